"""Many connections that each send most of a body and then stop: their bytes have one bound over all connections.

Over HTTP/1.1 and HTTP/2 the server is real, on a port of this machine; under ASGI it is called as an HTTP server would.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from hyperframe.frame import DataFrame, HeadersFrame
from tests.support.certificates import Authority
from tests.support.faults import Connection, assert_serves, call, encode, http, modern_headers, modern_http
from tests.support.until import until

from trimaran import Limits, Server
from trimaran.errors import ProtocolError
from trimaran.serve import HttpServer
from trimaran.transports.unfinished_bodies import UnfinishedBodies

from .test_http2_abuse import Peer

PART = 80_000
LIMITS = Limits(max_body_bytes=100_000, max_incoming_body_bytes=300_000)
MESSAGE = call("add", {"a": 2, "b": 3})
HEAD = http(b"", {**modern_headers(MESSAGE), "Content-Length": "90000"}, framed=False)


def make_server() -> Server:
    server = Server("target", version="1", limits=LIMITS)

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


@contextlib.asynccontextmanager
async def half_sent(port: int, number: int) -> AsyncIterator[list[Connection]]:
    """Connections that have each sent most of a body, one after the other."""
    connections: list[Connection] = []
    try:
        for _ in range(number):
            connections.append(await Connection.open(port))
            await connections[-1].send(HEAD + b" " * PART)
        yield connections
    finally:
        for connection in connections:
            connection.vanish()


async def test_the_body_that_began_first_is_refused_when_all_together_are_too_large(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "trimaran")
    async with HttpServer(make_server(), port=0) as server:
        bodies = server.engine.bodies
        async with half_sent(server.port, 5) as (first, second, *others):
            for refused in (first, second):
                status, headers = await refused.head()
                assert (status, headers["retry-after"], headers["connection"]) == (503, "1", "close")
            assert bodies._total == PART * len(others)
            await assert_serves(server.port)
        await until(lambda: not bodies._sizes, "the connections to be forgotten")
        assert bodies._total == 0
    assert caplog.text.count("max_incoming_body_bytes") == 1, caplog.text


async def test_a_caller_that_sends_its_body_whole_gets_through_while_others_hold_theirs() -> None:
    async with HttpServer(make_server(), port=0) as server, half_sent(server.port, 3):
        await until(lambda: server.engine.bodies._total == 3 * PART, "the bodies")
        padded = encode(MESSAGE) + b" " * 90_000
        async with await Connection.open(server.port) as caller:
            await caller.send(
                http(padded[:50_000], {**modern_headers(MESSAGE), "Content-Length": str(len(padded))}, framed=False)
            )
            await until(lambda: server.engine.bodies._total > 3 * PART - 1, "the first half")
            await caller.send(padded[50_000:])
            assert (await caller.reply()).status == 200


async def test_a_finished_body_is_no_longer_counted() -> None:
    async with HttpServer(make_server(), port=0) as server, await Connection.open(server.port) as connection:
        data = modern_http(MESSAGE)
        for _ in range(3):
            await connection.send(data[:-5])
            await until(lambda: server.engine.bodies._total > 0, "the first part")
            await connection.send(data[-5:])
            assert (await connection.reply()).status == 200
            assert not server.engine.bodies._sizes


async def test_a_refused_request_is_answered_after_those_before_it() -> None:
    server = make_server()
    gate = asyncio.Event()

    @server.tool
    async def wait() -> str:
        await gate.wait()
        return "waited"

    async with HttpServer(server, port=0) as running, await Connection.open(running.port) as connection:
        await connection.send(modern_http(call("wait")) + HEAD + b" " * PART)
        await until(lambda: running.engine.bodies._sizes, "the second request")
        async with half_sent(running.port, 3):
            await until(lambda: running.engine.bodies._total == 3 * PART, "the refusal")
            gate.set()
            assert (await connection.reply()).status == 200
            assert (await connection.reply()).status == 503


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def files(authority: Authority) -> tuple[Path, Path]:
    return authority.issue("127.0.0.1")


async def test_bodies_over_http_2_count_too(files: tuple[Path, Path], authority: Authority) -> None:
    async with HttpServer(make_server(), port=0, tls=files, http2=True) as server, contextlib.AsyncExitStack() as stack:
        peers: list[Peer] = []
        for _ in range(5):
            peer = await stack.enter_async_context(Peer.open(server.port, authority.trust()))
            await peer.send(peer.head(), *[DataFrame(peer.number, b" " * 10_000)] * 8)
            peers.append(peer)
        assert await peers[0].status() == "503"
        assert await peers[1].status() == "503"
        assert server.engine.bodies._total == 3 * PART
        await peers[0].send(*peers[0].call("add", {"a": 1, "b": 2}))
        assert await peers[0].status() == "200"
        await stack.aclose()
        await until(lambda: not server.engine.bodies._sizes, "the streams to be forgotten")


async def test_a_whole_body_counts_until_its_call_begins(files: tuple[Path, Path], authority: Authority) -> None:
    """A client that reads nothing is not served further: its requests wait, and their bodies take memory."""
    server = make_server()
    server.tool(big)
    async with HttpServer(server, port=0, tls=files, http2=True) as running:
        async with Peer.open(running.port, authority.trust(), initial_window_size=0) as peer:
            for _ in range(8):
                await peer.send(*peer.call("big"))
            for _ in range(20):
                message = encode(call("big")) + b" " * 90_000
                pieces = [message[start : start + 10_000] for start in range(0, len(message), 10_000)]
                await peer.send(peer.head(modern_headers(call("big"))), *(DataFrame(peer.number, p) for p in pieces))
                await peer.send(DataFrame(peer.number, b"", flags=["END_STREAM"]))
            await peer.until(
                lambda frame: isinstance(frame, HeadersFrame) and getattr(frame, "fields")[":status"] == "503"
            )
            (connection,) = running._carrier.connections
            assert sum(len(stream.body) for stream in connection._streams.values()) <= 400_000
            assert running.engine.bodies._total <= 300_000


async def big() -> str:
    return "x" * 100_000


async def test_bodies_under_another_http_server_count_too() -> None:
    app: Any = make_server().asgi()
    queues = [asyncio.Queue[dict[str, Any]]() for _ in range(5)]
    answers: list[list[dict[str, Any]]] = [[] for _ in queues]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "headers": [(n.lower().encode(), v.encode()) for n, v in modern_headers(MESSAGE).items()]
        + [(b"host", b"127.0.0.1")],
    }

    async def send(answer: list[dict[str, Any]], message: dict[str, Any]) -> None:
        answer.append(message)

    async def run(queue: asyncio.Queue[dict[str, Any]], answer: list[dict[str, Any]]) -> None:
        await app(dict(scope), queue.get, lambda message: send(answer, message))

    bodies = app.engine.bodies
    async with asyncio.timeout(10), asyncio.TaskGroup() as group:
        for queue, answer in zip(queues, answers, strict=True):
            group.create_task(run(queue, answer))
            queue.put_nowait({"type": "http.request", "body": b" " * PART, "more_body": True})
            await until(queue.empty, "the first part to be read")
        assert bodies._total == 3 * PART
        for queue in queues:
            queue.put_nowait({"type": "http.request", "body": encode(MESSAGE), "more_body": False})
    assert [answer[0]["status"] for answer in answers] == [503, 503, 200, 200, 200]
    assert (b"retry-after", b"1") in answers[0][0]["headers"]
    assert not bodies._sizes


def test_the_largest_body_fits_whatever_the_budget_is() -> None:
    refused: list[ProtocolError] = []

    class Body:
        def refuse_body(self, error: ProtocolError) -> None:
            refused.append(error)

    budget, body = UnfinishedBodies(10, 1000), Body()
    budget.count(body, 1000)
    assert not refused
    budget.count(Body(), 1)
    assert [error.status for error in refused] == [503]
