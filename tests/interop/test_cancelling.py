"""Cancelled calls, as the official SDKs of two languages see them: none of them complains (docs/adr/0014).

Each SDK cancels a call that has sent nothing yet and one that streams, goes on working, and then leaves, or ends its session,
in the middle of a call. Whatever it logs, hands to its error handler, or raises at the end is a complaint.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from trimaran import Context, Server
from trimaran.serve import HttpServer

from .harness import DRIVER_LIMIT, HERE, NODE, TOOLS, need

PEERS = {
    "mcp 1.10": (TOOLS / "peers" / "sdk-1.10" / "bin" / "python", HERE / "cancel_client.py"),
    "mcp 1.28": (TOOLS / "peers" / "sdk-1.28" / "bin" / "python", HERE / "cancel_client.py"),
    "mcp 2.3": (TOOLS / "peers" / "sdk" / "bin" / "python", HERE / "cancel_client.py"),
    "TypeScript 1.x": (NODE, HERE / "ts_cancel.mjs", "v1"),
    "TypeScript 2.x": (NODE, HERE / "ts_cancel.mjs", "v2"),
}

pytestmark = [pytest.mark.slow, pytest.mark.deadline(90)]


class Calls:
    """What has happened to the calls of a client."""

    def __init__(self) -> None:
        self._begun: dict[str, asyncio.Event] = {}
        self._ended: dict[str, asyncio.Event] = {}
        self.resumed: list[str] = []
        """Event ids that the client came back with."""

    def begun(self, name: str) -> asyncio.Event:
        return self._begun.setdefault(name, asyncio.Event())

    def ended(self, name: str) -> asyncio.Event:
        return self._ended.setdefault(name, asyncio.Event())


def make_server(calls: Calls) -> Server:
    server = Server("cancelling", version="1")

    @server.tool
    async def hold(name: str, ctx: Context) -> str:
        await ctx.progress(1)
        calls.begun(name).set()
        try:
            await asyncio.Event().wait()
        finally:
            calls.ended(name).set()
        return "never"

    @server.tool
    async def wait_until_begun(name: str) -> str:
        await calls.begun(name).wait()
        return "begun"

    @server.tool
    async def wait_until_ended(name: str) -> str:
        await calls.ended(name).wait()
        return "ended"

    @server.tool
    def add(a: int, b: int) -> str:
        return str(a + b)

    return server


@asynccontextmanager
async def serving(calls: Calls) -> AsyncIterator[str]:
    # A client that comes back for a stream is told to do so soon, so that one which does it for ever is seen to.
    async with HttpServer(make_server(calls), port=0, retry_ms=50) as http:
        legacy: Any = http.engine.legacy
        get = legacy.get

        async def count(request: Any) -> None:
            if request.headers.get("last-event-id"):
                calls.resumed.append(request.headers.get("last-event-id"))
            await get(request)

        legacy.get = count
        yield http.url


async def drive(peer: str, url: str) -> dict[str, Any]:
    need(PEERS[peer][0])  # pyright: ignore[reportArgumentType]
    process = await asyncio.create_subprocess_exec(
        *map(str, PEERS[peer]), url, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    try:
        async with asyncio.timeout(DRIVER_LIMIT):
            stdout, stderr = await process.communicate()
    except TimeoutError:
        process.kill()
        stdout, stderr = await process.communicate()
        pytest.fail(f"{peer} did not end within {DRIVER_LIMIT:g} s:\n{stderr.decode()[-2000:]}")
    assert process.returncode == 0, stderr.decode()[-3000:]
    return json.loads(stdout)


@pytest.mark.parametrize("peer", PEERS)
async def test_no_sdk_complains_of_a_cancelled_call_or_of_a_session_that_it_ends(peer: str) -> None:
    """R65, R67, C11 but for the content type: measured for each of them, see docs/adr/0014."""
    calls = Calls()
    async with serving(calls) as url:
        report = await drive(peer, url)
    assert report == {"whole": "ended", "stream": "ended", "after": "5", "complaints": []}
    assert len(calls.resumed) <= 2, "it goes on asking for the stream of a cancelled call"
