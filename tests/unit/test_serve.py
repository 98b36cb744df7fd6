"""Serving: blocking, inside a loop, as a context manager; and all three roles in one process."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import io
import json
import os
import pty
import select
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.until import PATIENCE, soon

from trimaran import Host, Server, connect, serve
from trimaran.errors import ConfigError
from trimaran.serve import HttpServer
from trimaran.server.limits import Limits


@pytest.fixture
def server() -> Server:
    server = Server("small", version="1.0.0")

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    return server


@contextlib.asynccontextmanager
async def in_background(server: Server, **options: Any) -> AsyncIterator[HttpServer]:
    """`server.serve("http")` in a task of its own, until the block ends."""
    ready: asyncio.Future[HttpServer] = asyncio.get_running_loop().create_future()
    serving = asyncio.ensure_future(server.serve("http", port=0, on_ready=ready.set_result, **options))
    try:
        await soon(asyncio.wait({serving, ready}, return_when=asyncio.FIRST_COMPLETED))
        if serving.done():
            await serving
        yield ready.result()
    finally:
        serving.cancel()
        await soon(asyncio.wait({serving}))


def test_the_defaults_of_an_http_server() -> None:
    """R15, R104, C13, C16."""
    defaults = {n: p.default for n, p in inspect.signature(HttpServer).parameters.items() if p.default is not p.empty}
    assert (defaults["host"], defaults["port"], defaults["path"]) == ("127.0.0.1", 9090, "/mcp")
    assert defaults["tls"] is None
    assert Limits().replay_events == 256


async def test_an_http_server_is_a_context_manager(server: Server) -> None:
    """R15."""
    async with HttpServer(server, port=0, path="/tools") as http:
        assert http.url == f"http://127.0.0.1:{http.port}/tools"
        async with connect(http.url) as client:
            assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    with pytest.raises(OSError, match=r"[Rr]efused|Connect"):
        await asyncio.open_connection("127.0.0.1", http.port)


async def test_http_can_be_started_and_stopped_inside_a_loop(server: Server) -> None:
    """R20: start is a task, stop is its cancellation."""
    async with in_background(server) as http, connect(http.url) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3
    with pytest.raises(OSError, match=r"[Rr]efused|Connect"):
        await asyncio.open_connection("127.0.0.1", http.port)


async def test_plain_http_can_be_started_and_stopped_inside_a_loop(server: Server) -> None:
    """R20, R131."""

    def post(url: str) -> Any:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}).encode()
        request = urllib.request.Request(url, body, {"Content-Type": "application/json"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:  # noqa: S310
            return json.load(reply)

    async with in_background(server, plain=True) as http:
        reply = await asyncio.to_thread(post, http.url)
    assert [tool["name"] for tool in reply["result"]["tools"]] == ["add"]


async def test_there_is_no_other_transport(server: Server) -> None:
    with pytest.raises(ConfigError, match="there is no transport 'carrier pigeon'"):
        await server.serve("carrier pigeon")  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(ConfigError, match="there is no transport 'carrier pigeon'"):
        server.run("carrier pigeon")  # pyright: ignore[reportCallIssue, reportArgumentType]


async def test_a_port_that_cannot_be_is_refused_before_anything_is_bound(server: Server) -> None:
    """uvloop would take the number modulo 65536."""
    with pytest.raises(ConfigError, match="port must be a number from 0 to 65535, not 99999"):
        await server.serve("http", port=99999)


STDIO = """
import asyncio
from trimaran import Server
server = Server("child", version="1")
server.add_tool(lambda: "here", name="where", inline=True)
ticks = []
server.add_tool(lambda: len(ticks) > 0, name="others_run", inline=True)
async def tick():
    while True:
        ticks.append(1)
        await asyncio.sleep(0.001)
async def main():
    others = asyncio.ensure_future(tick())
    await server.serve("stdio")
    others.cancel()
{start}
"""


@pytest.mark.slow
@pytest.mark.parametrize("start", ["server.run()", "asyncio.run(main())"], ids=["blocking", "inside a loop"])
async def test_stdio_is_served_either_way(start: str) -> None:
    """R20: `run()` blocks; `serve()` leaves the loop to others, and returns when the client has gone."""
    async with connect([sys.executable, "-c", STDIO.format(start=start)]) as client:
        assert (await client.call_tool("where")).text == "here"
        if start != "server.run()":
            assert (await client.call_tool("others_run")).text == "true"


async def test_one_process_plays_all_three_roles(server: Server) -> None:
    """R16: a server whose tool asks a host, whose client asks another server, all in one loop."""
    async with HttpServer(server, port=0) as back, Host({"back": back.url}, allow=["*"]) as host:
        front = Server("front", version="1.0.0")

        @front.tool
        async def twice(n: int) -> str:
            return (await host.call("mcp__back__add", {"a": n, "b": n})).text

        async with HttpServer(front, port=0) as http, connect(http.url) as client:
            assert (await client.call_tool("twice", {"n": 21})).data == "42"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("'http', port=0", b"small is served at http://127.0.0.1:"),
        ("", b"small waits for a program that speaks MCP to its stdin"),
    ],
    ids=["http", "stdio"],
)
def test_run_says_at_a_terminal_where_the_server_is(arguments: str, line: bytes) -> None:
    code = f"from trimaran import Server; Server('small', version='1').run({arguments})"
    master, slave = pty.openpty()
    child = subprocess.Popen([sys.executable, "-c", code], stdin=slave, stdout=subprocess.DEVNULL, stderr=slave)
    os.close(slave)
    try:
        shown = b""
        while b"\n" not in shown:
            assert select.select([master], [], [], 20.0)[0], "nothing came in time"
            shown += os.read(master, 4096)
        assert shown.startswith(line)
        child.terminate()
        assert child.wait(20.0) == 0
    finally:
        child.kill()
        child.wait()
        os.close(master)


class Stderr(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize("is_terminal", [True, False])
@pytest.mark.parametrize("own", [None, print])
def test_run_is_silent_elsewhere_and_where_somebody_has_an_own_announcement(
    server: Server, monkeypatch: pytest.MonkeyPatch, is_terminal: bool, own: Any
) -> None:
    """P54."""
    announcements: list[Any] = []
    monkeypatch.setattr(serve, "_run_one", lambda server, on_ready, *rest: announcements.append(on_ready))  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    monkeypatch.setattr(sys, "stderr", Stderr(is_terminal))
    server.run("http", on_ready=own)
    assert announcements == [own or (serve.announce if is_terminal else None)]


@pytest.mark.parametrize("transport", ["stdio", "http"])
async def test_run_names_serve_where_a_loop_runs_already(server: Server, transport: Any) -> None:
    """As in a notebook; and no coroutine is left that nobody awaited, which would be a warning."""
    with pytest.raises(ConfigError, match=rf"await server\.serve\('{transport}', \.\.\.\)"):
        server.run(transport)


async def test_run_serves_in_a_thread_which_hears_no_signals(server: Server) -> None:
    class Enough(Exception):
        pass

    def refuse(http: HttpServer) -> None:
        raise Enough

    with pytest.raises(Enough):
        await soon(asyncio.to_thread(server.run, "http", port=0, on_ready=refuse))
    with pytest.raises(ConfigError, match="main thread"):
        await soon(asyncio.to_thread(server.run, "http", port=0, workers=2))
