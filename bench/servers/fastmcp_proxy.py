"""FastMCP's proxy before another server, at its best: one shared client, uvicorn with uvloop and httptools, JSON answers."""

import contextlib
import os

os.environ.setdefault("FASTMCP_LOG_LEVEL", "ERROR")
os.environ.setdefault("FASTMCP_CHECK_FOR_UPDATES", "off")

import uvicorn
from common import parse
from fastmcp import Client
from fastmcp.server import create_proxy


async def main() -> None:
    options = parse(__doc__ or "")
    # Behaviours are tried on the usual form: a client for each request, and streams. One client and JSON are faster.
    streams = "BENCH_STREAMS" in os.environ
    async with contextlib.nullcontext(options.upstream) if streams else Client(options.upstream) as target:
        app = create_proxy(target).http_app(path="/mcp", json_response=not streams, stateless_http=options.stateless)
        config = uvicorn.Config(
            app,
            host="127.0.0.1",
            port=options.port,
            loop="uvloop",
            http="httptools",
            log_level="error",
            access_log=False,
        )
        await uvicorn.Server(config).serve()


if __name__ == "__main__":
    import uvloop

    uvloop.run(main())
