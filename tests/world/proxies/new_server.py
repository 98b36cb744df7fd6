"""An upstream that speaks 2026-07-28 and nothing else: `new_server.py LEDGER`, on stdio; with a PORT behind it, over HTTP.

Our server speaks both eras, so whatever reaches it in the older one is refused here.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import threading
from typing import Any

from trimaran import Context, Server

server = Server("upstream", version="1", secret_keys=["the same for each start"])

numbers = itertools.count(1)


def enter(word: str) -> None:
    with open(sys.argv[1], "a") as ledger:
        ledger.write(word + "\n")


@server.tool
async def add(a: int, b: int) -> int:
    return a + b


@server.tool
async def slow(ctx: Context) -> str:
    for done in (1, 2, 3):
        await ctx.progress(done, total=3)
        await asyncio.sleep(0.05)
    return "done"


@server.tool
async def hold() -> str:
    enter("started")
    try:
        await asyncio.sleep(60)
    except asyncio.CancelledError:
        enter("cancelled")
        raise
    return "held"


@server.tool
async def greet(ctx: Context) -> str:
    answer = await ctx.elicit("Your name?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"hello {answer.content['name']}"


@server.tool
async def grow() -> str:
    name = f"grown{next(numbers)}"
    server.add_tool(add, name=name)
    return name


@server.tool
async def die() -> str:
    os._exit(3)


def refuse_handshakes() -> None:
    """Stand between stdin and the server, and answer `initialize` with an error."""
    child = subprocess.Popen(
        [sys.executable, __file__, sys.argv[1], "inside"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert child.stdin is not None
    assert child.stdout is not None
    lock = threading.Lock()

    def say(line: bytes) -> None:
        with lock:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

    def copy() -> None:
        assert child.stdout is not None
        for line in child.stdout:
            say(line)
        os._exit(child.wait())

    threading.Thread(target=copy, daemon=True).start()
    for line in sys.stdin.buffer:
        message = json.loads(line)
        if message.get("method") == "initialize":
            say(json.dumps({"jsonrpc": "2.0", "id": message["id"], "error": REFUSAL}).encode() + b"\n")
        else:
            child.stdin.write(line)
            child.stdin.flush()
    child.stdin.close()
    child.wait()


REFUSAL = {
    "code": -32022,
    "message": "unsupported protocol version",
    "data": {"supported": ["2026-07-28"], "requested": "an older one"},
}


def serve_http(port: int) -> None:
    import uvicorn

    app: Any = server.asgi()

    async def guard(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await app(scope, receive, send)
            return
        first = await receive()
        body: Any = json.loads(first.get("body") or b"{}")
        if isinstance(body, dict) and body.get("method") == "initialize":  # pyright: ignore[reportUnknownMemberType]
            reply = json.dumps({"jsonrpc": "2.0", "id": body["id"], "error": REFUSAL}).encode()
            await send(
                {"type": "http.response.start", "status": 400, "headers": [(b"content-type", b"application/json")]}
            )
            await send({"type": "http.response.body", "body": reply})
            return
        messages = [first]

        async def again() -> Any:
            return messages.pop() if messages else await receive()

        await app(scope, again, send)

    uvicorn.run(guard, host="127.0.0.1", port=port, log_level="error")


if __name__ == "__main__":
    if sys.argv[2:] == ["inside"]:
        server.run()
    elif len(sys.argv) > 2:
        serve_http(int(sys.argv[2]))
    else:
        refuse_handshakes()
