"""The engine without ASGI: carried by an HTTP server of your own, here aiohttp's.

    python examples/embedding.py
    claude mcp add --transport http clock http://127.0.0.1:9090/mcp

`engine.handle` takes a method, a path, headers, a body and a *responder*; it never touches a socket. The responder below is
all there is to write for another HTTP server.
"""

from __future__ import annotations

import asyncio
import datetime as dt
import os
from collections.abc import Callable

from aiohttp import web

from trimaran import Context, Server

server = Server("clock", version="1.0.0")
engine = server.engine("/mcp", host="127.0.0.1")


@server.tool
def now() -> dt.datetime:
    """The time, in UTC."""
    return dt.datetime.now(dt.UTC)


@server.tool
async def wait(seconds: float, ctx: Context) -> str:
    """Wait a little, reporting progress."""
    for tenth in range(1, 11):
        await asyncio.sleep(seconds / 10)
        await ctx.progress(tenth, total=10)
    return f"waited {seconds:g} s"


class Responder:
    """How one aiohttp request is answered: whole, or as a stream."""

    def __init__(self, request: web.Request) -> None:
        self._request = request
        self.response: web.StreamResponse | None = None

    def reply(self, status: int, headers: list[tuple[str, str]], body: bytes) -> None:
        self.response = web.Response(status=status, headers=headers, body=body)

    async def stream_start(self, status: int, headers: list[tuple[str, str]]) -> None:
        self.response = web.StreamResponse(status=status, headers=headers)
        await self.response.prepare(self._request)

    async def stream_chunk(self, data: bytes) -> bool:
        assert self.response is not None
        try:
            await self.response.write(data)
        except ConnectionError:
            return False
        return True

    async def stream_end(self) -> None:
        if self.response is not None:
            await self.response.write_eof()

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        # aiohttp does not call back when a client goes, so look now and then.
        async def look() -> None:
            while self._request.transport is not None and not self._request.transport.is_closing():
                await asyncio.sleep(0.2)
            callback()

        task = asyncio.ensure_future(look())

        def unwatch() -> None:
            task.cancel()

        return unwatch


async def handle(request: web.Request) -> web.StreamResponse:
    responder = Responder(request)
    await engine.handle(request.method, request.path_qs, request.headers, await request.read(), responder)
    assert responder.response is not None
    return responder.response


async def end_streams(app: web.Application) -> None:
    await engine.drain(patience=1.0)


app = web.Application(client_max_size=engine.max_body_bytes)
app.router.add_route("*", "/mcp", handle)
app.on_shutdown.append(end_streams)


if __name__ == "__main__":
    web.run_app(app, host="127.0.0.1", port=int(os.environ.get("PORT", "9090")), print=None)
