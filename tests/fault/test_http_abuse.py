"""Clients that abuse HTTP/1.1: they send and never read, frame every byte, or send on after they were refused.

The server is real, on a port of this machine; the clients are sockets, and Python's own urllib.
"""

from __future__ import annotations

import asyncio
import re
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.faults import call, modern_http
from tests.support.until import PATIENCE, settled, until

from trimaran import Limits, Server
from trimaran.serve import HttpServer
from trimaran.transports import http1_server

BIG = 100_000  # bytes of one answer


class Counted:
    """A server with a tool whose answers are large, and how often it was called."""

    def __init__(self) -> None:
        self.calls = 0
        self.server = Server("abused", version="1", limits=Limits(max_body_bytes=200_000))
        self.server.tool(self.big)

    async def big(self) -> str:
        """Say much."""
        self.calls += 1
        return "x" * BIG


@pytest.fixture
async def abused() -> AsyncIterator[tuple[Counted, HttpServer]]:
    counted = Counted()
    async with HttpServer(counted.server, port=0) as server:
        yield counted, server


CALL = modern_http(call("big"))


async def connect(port: int, *, receive_buffer: int = 0) -> socket.socket:
    raw = socket.socket()
    raw.setblocking(False)
    if receive_buffer:
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
    return raw


async def test_a_client_that_pipelines_and_never_reads_is_served_no_further(
    abused: tuple[Counted, HttpServer],
) -> None:
    """Whose rule: ours. Its answers would pile up: 500 of them are 50 MB. Once it reads, the rest is served."""
    counted, server = abused
    loop = asyncio.get_running_loop()
    with await connect(server.port, receive_buffer=4096) as raw:
        await loop.sock_sendall(raw, CALL * 500)
        served = await settled(lambda: counted.calls)
        assert 0 < served < 250
        received = 0
        async with asyncio.timeout(PATIENCE):
            while received < 500 * BIG or counted.calls < 500:  # the heads are bytes too
                received += len(await loop.sock_recv(raw, 1 << 20))
        assert counted.calls == 500


async def test_a_client_that_never_reads_is_let_go_with_all_that_waits_for_it(
    abused: tuple[Counted, HttpServer],
) -> None:
    """Closing would wait for a flush that never comes."""
    counted, server = abused
    carrier: Any = server._carrier
    with await connect(server.port, receive_buffer=4096) as raw:
        await asyncio.get_running_loop().sock_sendall(raw, CALL * 500)
        await settled(lambda: counted.calls)
        (connection,) = carrier.connections
        now = carrier.now
        connection.check_time(now)
        assert carrier.connections
        connection.check_time(now + http1_server.IDLE_SECONDS + 1)
        await until(lambda: not carrier.connections)


def post(port: int, body: bytes) -> int:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/mcp", data=body, method="POST")
    request.add_header("Content-Type", "application/json")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("attempt", range(4))
async def test_a_refusal_arrives_though_its_reader_is_still_sending(
    abused: tuple[Counted, HttpServer], attempt: int
) -> None:
    """RFC 9112, 9.6. urllib reads nothing before it has sent everything; a reset would take the 413 from it."""
    _, server = abused
    assert await asyncio.to_thread(post, server.port, b" " * 8_000_000) == 413


async def test_a_request_that_cannot_be_read_is_refused_though_more_comes(abused: tuple[Counted, HttpServer]) -> None:
    _, server = abused
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        async with asyncio.timeout(PATIENCE):
            writer.write(b"no HTTP\r\n\r\n" + b"x" * 4_000_000)
            await writer.drain()
            assert (await reader.readline()).split()[1] == b"400"
            assert b"connection: close" in await reader.read()  # and then the end, though we have not ended
    finally:
        writer.close()
        await writer.wait_closed()


LARGE = re.sub(rb"Content-Length: \d+", b"Content-Length: 999999999", CALL.partition(b"\r\n\r\n")[0]) + b"\r\n\r\n"


@pytest.mark.parametrize(("bad", "refusal"), [(b"no HTTP\r\n\r\n", b"400"), (LARGE, b"413")], ids=["garbage", "large"])
async def test_a_good_request_behind_a_bad_one_is_not_served(
    abused: tuple[Counted, HttpServer], bad: bytes, refusal: bytes
) -> None:
    """Where it begins is unknown, even if its head is that of the request before."""
    counted, server = abused
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        async with asyncio.timeout(PATIENCE):
            for request, status in ((CALL, b"200"), (bad, refusal)):
                writer.write(request)
                head = await reader.readuntil(b"\r\n\r\n")
                assert head.split()[1] == status
                size = re.search(rb"content-length: (\d+)", head)
                assert size is not None
                await reader.readexactly(int(size[1]))
            writer.write(CALL)
            writer.write_eof()
            assert await reader.read() == b""
            carrier: Any = server._carrier
            await until(lambda: not carrier.connections)
            assert counted.calls == 1
    finally:
        writer.close()
        await writer.wait_closed()


async def test_who_sends_on_after_a_refusal_is_cut_off_in_the_end(abused: tuple[Counted, HttpServer]) -> None:
    _, server = abused
    carrier: Any = server._carrier
    with await connect(server.port) as raw:
        await asyncio.get_running_loop().sock_sendall(raw, b"no HTTP\r\n\r\n")
        async with asyncio.timeout(PATIENCE):
            await until(lambda: carrier.connections and next(iter(carrier.connections))._lingers_since is not None)
            (connection,) = carrier.connections
            connection.check_time(carrier.now + http1_server.LINGER_QUIET - 1)
            assert carrier.connections
            connection.check_time(carrier.now + http1_server.LINGER_QUIET + 1)
            await until(lambda: not carrier.connections)


async def test_endless_empty_lines_are_refused(abused: tuple[Counted, HttpServer]) -> None:
    _, server = abused
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        async with asyncio.timeout(PATIENCE):
            for _ in range(5):
                writer.write(b"\r\n")
                await writer.drain()
            assert (await reader.readline()).split()[1] == b"400"
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_body_in_chunks_of_one_byte_is_read(abused: tuple[Counted, HttpServer]) -> None:
    counted, server = abused
    head, _, body = CALL.partition(b"\r\n\r\n")
    head = re.sub(rb"Content-Length: \d+", b"Transfer-Encoding: chunked\r\n\r\n", head)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        async with asyncio.timeout(PATIENCE):
            writer.write(head + b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n")
            assert (await reader.readline()).split()[1] == b"200"
            assert counted.calls == 1
    finally:
        writer.close()
        await writer.wait_closed()


async def test_a_java_client_that_offers_http_2_is_served(abused: tuple[Counted, HttpServer]) -> None:
    """Java's HttpClient offers `Upgrade: h2c` with its first request, whose body must not be taken for HTTP/2."""
    counted, server = abused
    offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAEAAEAAAAIAAAAA"}
    loop = asyncio.get_running_loop()
    with await connect(server.port) as raw:
        await loop.sock_sendall(raw, modern_http(call("big"), **offer) + CALL)
        received = 0
        async with asyncio.timeout(PATIENCE):
            while received < 2 * BIG:
                received += len(await loop.sock_recv(raw, 1 << 20))
    assert counted.calls == 2
