"""A server inside other applications and other servers: its lifespan runs, and ends."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import find_port

from trimaran import Server, connect

APP = """
from contextlib import asynccontextmanager
from fastapi import FastAPI
import uvicorn
from trimaran import Server

@asynccontextmanager
async def lifespan(server):
    print("open", flush=True)
    try:
        yield {"db": 7}
    finally:
        print("closed", flush=True)

server = Server("inner", lifespan=lifespan)

@server.tool
async def look() -> int:
    return server.lifespan_state["db"]

@asynccontextmanager
async def own(app):
    async with server.lifespan():
        print("own", flush=True)
        yield

app = FastAPI(lifespan=LIFESPAN)
app.mount("/", server.asgi("/mcp"))
uvicorn.run(app, port=PORT, log_level="warning")
"""


async def reachable(port: int) -> None:
    """Wait until somebody listens; uvicorn does so after the lifespan has begun."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            await writer.wait_closed()
            return


@pytest.mark.slow
@pytest.mark.parametrize("lifespan", ["server.lifespan", "own"])
async def test_a_fastapi_app_opens_and_closes_the_server_with_itself(tmp_path: Path, lifespan: str) -> None:
    """P14: one line, with or without a lifespan of the application's own; SIGTERM ends both."""
    port = find_port()
    file = tmp_path / "app.py"
    file.write_text(APP.replace("LIFESPAN", lifespan).replace("PORT", str(port)))
    process = await asyncio.create_subprocess_exec(sys.executable, str(file), stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30):
            assert await process.stdout.readline() == b"open\n"
            if lifespan == "own":
                assert await process.stdout.readline() == b"own\n"
            await reachable(port)
            async with connect(f"http://127.0.0.1:{port}/mcp") as client:
                assert (await client.call_tool("look")).data == 7
            process.send_signal(signal.SIGTERM)
            assert await process.stdout.readline() == b"closed\n"
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_mounted_server_starts_and_stops_with_the_outer_one() -> None:
    events: list[str] = []

    def server_named(name: str) -> Server:
        @asynccontextmanager
        async def lifespan(server: Server) -> AsyncIterator[Any]:
            events.append(f"{name} opens")
            yield name
            events.append(f"{name} closes")

        return Server(name, lifespan=lifespan)

    inner, outer = server_named("inner"), server_named("outer")

    @inner.tool
    async def look() -> str:
        return inner.lifespan_state

    outer.mount(inner, "in")
    async with connect(outer) as client:
        assert (await client.call_tool("in_look")).data == "inner"
    await outer.stop()
    assert events == ["outer opens", "inner opens", "inner closes", "outer closes"]


async def test_a_lifespan_of_a_mounted_server_alone_is_enough() -> None:
    """The outer server has none, and has declared tools before."""
    inner_is_open = False

    @asynccontextmanager
    async def lifespan(server: Server) -> AsyncIterator[None]:
        nonlocal inner_is_open
        inner_is_open = True
        yield
        inner_is_open = False

    inner, outer = Server("inner", lifespan=lifespan), Server("outer")
    outer.add_tool(lambda: "x", name="own")
    outer.mount(inner)
    inner.add_tool(lambda: inner_is_open, name="look")
    result = await outer.call_tool("look")
    assert result.structured_content in (True, {"result": True}) or result.to_json()["content"][0]["text"] == "true"
    await outer.stop()
    assert not inner_is_open
