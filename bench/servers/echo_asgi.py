"""The least an ASGI server can do for a call: read the body, decode it, answer a small JSON body.

No protocol, no routing, no validation: the yardstick for "near what the bare HTTP server costs".
`--server uvicorn` (uvloop, httptools) or `--server granian` (ASGI, uvloop). `--extra-path` names a site-packages that
has httptools, for a venv that lacks it.
"""

import argparse
import logging
import sys
from typing import Any

import msgspec

decode = msgspec.json.Decoder().decode
encode = msgspec.json.Encoder().encode


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    message = await receive()
    body = message["body"]
    while message.get("more_body"):
        message = await receive()
        body += message["body"]
    call = decode(body)
    arguments = call["params"]["arguments"]
    answer = encode({"jsonrpc": "2.0", "id": call["id"], "result": arguments["a"] + arguments["b"]})
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def serve_uvicorn(port: int, tls: str) -> None:
    import uvicorn

    uvicorn.run(
        app,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        lifespan="off",
        ws="none",
        log_level="error",
        access_log=False,
        ssl_certfile=f"{tls}/cert.pem" if tls else None,
        ssl_keyfile=f"{tls}/key.pem" if tls else None,
    )


def serve_granian(port: int, tls: str) -> None:
    from pathlib import Path

    from granian import Granian
    from granian.constants import Interfaces, Loops

    logging.disable(logging.WARNING)
    Granian(
        "echo_asgi:app",
        address="127.0.0.1",
        port=port,
        interface=Interfaces.ASGINL,
        loop=Loops.uvloop,
        workers=1,
        websockets=False,
        log_enabled=False,
        ssl_cert=Path(tls, "cert.pem") if tls else None,
        ssl_key=Path(tls, "key.pem") if tls else None,
    ).serve()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--server", choices=("uvicorn", "granian"), default="uvicorn")
    parser.add_argument("--extra-path", default="")
    parser.add_argument("--tls", default="", metavar="DIRECTORY")
    options = parser.parse_args()
    if options.extra_path:
        sys.path.append(options.extra_path)
    {"uvicorn": serve_uvicorn, "granian": serve_granian}[options.server](options.port, options.tls)


if __name__ == "__main__":
    main()
