"""Clients that abuse TLS, or use it in rare ways: they do not read, never finish the handshake, end one side, speak no TLS.

The server is real, on a port of this machine, and carries HTTP/1.1 over TLS itself; the clients are OpenSSL through
Python's ssl, driven by hand where asyncio would hide what happens.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.certificates import Authority
from tests.support.faults import call, modern_http
from tests.support.until import PATIENCE, settled, soon, until

from trimaran import Context, Limits, Server
from trimaran.serve import HttpServer
from trimaran.transports import http1_server, tls

PIECE = "x" * 50_000


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def files(authority: Authority) -> tuple[Path, Path]:
    return authority.issue("localhost", "127.0.0.1")


class Wordy:
    """A server that says much, and how far it came."""

    def __init__(self) -> None:
        self.pieces = 0
        self.calls = 0
        self.go_on = asyncio.Event()
        self.server = Server("wordy", version="1", limits=Limits(max_body_bytes=200_000, max_stream_bytes=1 << 30))
        self.server.tool(self.pour)
        self.server.tool(self.big)
        self.server.tool(self.wait)

    async def pour(self, ctx: Context) -> str:
        """Say very much, bit by bit."""
        for number in range(400):
            await ctx.progress(number, 400, PIECE)
            self.pieces = number + 1
        return "poured"

    async def big(self) -> str:
        """Say much."""
        self.calls += 1
        return "x" * 100_000

    async def wait(self) -> str:
        """Wait."""
        self.calls += 1
        await self.go_on.wait()
        return "waited"


@pytest.fixture
async def wordy(files: tuple[Path, Path]) -> AsyncIterator[tuple[Wordy, HttpServer]]:
    made = Wordy()
    async with HttpServer(made.server, port=0, tls=files) as http:
        yield made, http


BIG = modern_http(call("big"))
WAIT = modern_http(call("wait"))
POUR = modern_http(call("pour", progressToken="t"))


class Hand:
    """TLS by hand: each side can be ended alone, and nothing is read unless asked for."""

    def __init__(self, raw: socket.socket, context: ssl.SSLContext) -> None:
        self.raw = raw
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, port: int, context: ssl.SSLContext) -> AsyncIterator[Hand]:
        with socket.socket() as raw:
            raw.setblocking(False)
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            await asyncio.get_running_loop().sock_connect(raw, ("127.0.0.1", port))
            hand = cls(raw, context)
            await hand._until_done(hand._tls.do_handshake)
            await hand._flush()
            yield hand

    async def _flush(self) -> None:
        await soon(asyncio.get_running_loop().sock_sendall(self.raw, self._outgoing.read()))

    async def _until_done(self, step: Any) -> Any:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    return step()
                except ssl.SSLWantReadError:
                    await self._flush()
                    data = await asyncio.get_running_loop().sock_recv(self.raw, 1 << 18)
                    if not data:
                        raise EOFError("the connection ended without close_notify") from None
                    self._incoming.write(data)

    async def send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        await self._flush()

    async def end(self) -> None:
        """Send close_notify, and go on reading."""
        with contextlib.suppress(ssl.SSLWantReadError):
            self._tls.unwrap()
        await self._flush()

    async def receive(self) -> bytes:
        """What comes next; empty at the server's close_notify."""
        return await self._until_done(lambda: self._tls.read(1 << 16))

    async def everything(self) -> bytes:
        parts: list[bytes] = []
        while data := await self.receive():
            parts.append(data)
        return b"".join(parts)


def version(context: ssl.SSLContext, name: str) -> ssl.SSLContext:
    context.minimum_version = context.maximum_version = ssl.TLSVersion[name]
    return context


# --- who does not read -----------------------------------------------------------------------------------------------


async def test_a_stream_waits_for_a_client_that_does_not_read(
    wordy: tuple[Wordy, HttpServer], authority: Authority
) -> None:
    """20 MB are to be said; what the client leaves unread stays with the tool, not in memory."""
    made, http = wordy
    async with Hand.open(http.port, authority.trust()) as hand:
        await hand.send(POUR)
        assert 0 < await settled(lambda: made.pieces) < 200
        hand.raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        size, tail = 0, b""
        while b"poured" not in tail:
            data = await hand.receive()
            size, tail = size + len(data), (tail + data)[-1000:]
        assert made.pieces == 400
        assert size > 400 * len(PIECE)


async def test_a_client_that_pipelines_and_never_reads_is_served_no_further(
    wordy: tuple[Wordy, HttpServer], authority: Authority
) -> None:
    made, http = wordy
    async with Hand.open(http.port, authority.trust()) as hand:
        await hand.send(BIG * 300)
        assert 0 < await settled(lambda: made.calls) < 150


async def test_a_client_that_never_reads_is_let_go_in_the_end(
    wordy: tuple[Wordy, HttpServer], authority: Authority
) -> None:
    made, http = wordy
    carrier: Any = http._carrier
    async with Hand.open(http.port, authority.trust()) as hand:
        await hand.send(BIG * 300)
        await settled(lambda: made.calls)
        (connection,) = carrier.connections
        now = carrier.now
        connection.check_time(now)
        assert carrier.connections
        connection.check_time(now + http1_server.IDLE_SECONDS + 1)
        await until(lambda: not carrier.connections, "the end of the connection")


# --- how it ends -----------------------------------------------------------------------------------------------------


async def test_a_stopping_server_takes_no_connection_and_lets_a_call_finish(
    files: tuple[Path, Path], authority: Authority
) -> None:
    made = Wordy()
    http = HttpServer(made.server, port=0, tls=files)
    await http.start()
    async with Hand.open(http.port, authority.trust()) as hand:
        await hand.send(WAIT)
        await until(lambda: made.calls, "the call")
        stopping = asyncio.ensure_future(http.stop())
        await until(lambda: http.engine.closing, "the beginning of the end")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", http.port)
        made.go_on.set()
        assert b"waited" in await hand.everything()
        await stopping


@pytest.mark.parametrize("name", ["TLSv1_2", "TLSv1_3"])
async def test_a_client_that_ended_its_side_is_still_answered(
    wordy: tuple[Wordy, HttpServer], authority: Authority, name: str
) -> None:
    """RFC 8446, 6.1: close_notify ends one direction. The answer is followed by ours."""
    made, http = wordy
    async with Hand.open(http.port, version(authority.trust(), name)) as hand:
        await hand.send(BIG)
        await hand.end()
        reply = await hand.receive()
        while len(reply) < 100_000:
            # OpenSSL 3.0 reads on after its own close_notify only in this way.
            reply += await hand.receive()
        assert reply.startswith(b"HTTP/1.1 200")
    await until(lambda: not http._carrier.connections, "the end of the connection")


@pytest.mark.parametrize("size", [20, len(BIG) - 5])
async def test_a_connection_cut_in_the_middle_of_a_request_leaves_nothing(
    wordy: tuple[Wordy, HttpServer], authority: Authority, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    """No close_notify, as an attacker on the way would cut it: what came is no request, and is not served."""
    made, http = wordy
    async with Hand.open(http.port, authority.trust()) as hand:
        await hand.send(BIG[:size])
        await until(lambda: http._carrier.connections, "the connection")
    await until(lambda: not http._carrier.connections, "the end of the connection")
    assert made.calls == 0
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def post(url: str, body: bytes, context: ssl.SSLContext) -> int:
    request = urllib.request.Request(url, data=body, method="POST", headers={"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE, context=context) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        with error:
            return error.code


@pytest.mark.parametrize("attempt", range(4))
async def test_a_refusal_arrives_though_its_reader_is_still_sending(
    wordy: tuple[Wordy, HttpServer], authority: Authority, attempt: int
) -> None:
    """RFC 9112, 9.6. urllib reads nothing before it has sent everything."""
    _, http = wordy
    assert await asyncio.to_thread(post, http.url, b" " * 4_000_000, authority.trust()) == 413


async def test_a_refusal_is_followed_by_close_notify(wordy: tuple[Wordy, HttpServer], authority: Authority) -> None:
    _, http = wordy
    async with Hand.open(http.port, authority.trust()) as hand:
        await hand.send(b"no HTTP\r\n\r\n" + b"x" * 100_000)
        assert (await hand.everything()).startswith(b"HTTP/1.1 400")


# --- who does not finish, or speaks something else -------------------------------------------------------------------


async def raw_connection(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", port)


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01\x00"], ids=["nothing", "half a hello"])
async def test_a_handshake_that_is_never_finished_is_ended(wordy: tuple[Wordy, HttpServer], said: bytes) -> None:
    """Its time counts from the accept."""
    _, http = wordy
    carrier: Any = http._carrier
    reader, writer = await raw_connection(http.port)
    try:
        writer.write(said)
        await until(lambda: carrier.connections, "the connection")
        (connection,) = carrier.connections
        connection.check_time(carrier.now + tls._HANDSHAKE_SECONDS - 1)
        assert carrier.connections
        connection.check_time(carrier.now + tls._HANDSHAKE_SECONDS + 1)
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b""
        assert (carrier.connections, carrier.engine.tls_failures) == (set(), 1)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def test_a_stopping_server_waits_for_no_handshake(files: tuple[Path, Path]) -> None:
    http = HttpServer(Server("quick", version="1"), port=0, tls=files)
    await http.start()
    reader, writer = await raw_connection(http.port)
    carrier: Any = http._carrier
    await until(lambda: carrier.connections, "the connection")
    async with asyncio.timeout(PATIENCE):
        await http.stop()
        with contextlib.suppress(ConnectionError):
            assert await reader.read() == b""
    assert not carrier.connections
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_plain_http_on_a_tls_port_is_told_to_use_https(
    wordy: tuple[Wordy, HttpServer], caplog: pytest.LogCaptureFixture
) -> None:
    _, http = wordy
    caplog.set_level(logging.DEBUG, "trimaran")
    reader, writer = await raw_connection(http.port)
    try:
        writer.write(BIG)
        reply = await soon(reader.read())
        assert reply.startswith(b"HTTP/1.1 400 ") and b"https://" in reply
    finally:
        writer.close()
        await writer.wait_closed()
    await until(lambda: not http._carrier.connections, "the end of the connection")
    assert [record.levelname for record in caplog.records if "plain HTTP" in record.message] == ["DEBUG"]


@pytest.mark.parametrize(
    "said", [b"\x80\x2e\x01\x00", b"\0" * 100, b"\x16\x03\x01\x00\x05hello", b"\x16" + b"\xff" * 999]
)
async def test_what_is_no_tls_is_closed_and_counted(
    wordy: tuple[Wordy, HttpServer], said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    _, http = wordy
    caplog.set_level(logging.DEBUG)
    reader, writer = await raw_connection(http.port)
    carrier: Any = http._carrier
    try:
        writer.write(said)
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                assert b"HTTP" not in await reader.read()
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()
    await until(lambda: not carrier.connections, "the end of the connection")
    assert carrier.engine.tls_failures == 1
    assert not [record for record in caplog.records if record.levelno > logging.DEBUG or record.exc_info]


async def test_tls_on_a_plain_port_is_refused_with_a_reason(caplog: pytest.LogCaptureFixture) -> None:
    async with HttpServer(Server("plain", version="1"), port=0) as http:
        with pytest.raises(ssl.SSLError):
            await asyncio.open_connection("127.0.0.1", http.port, ssl=ssl.create_default_context())
        reader, writer = await raw_connection(http.port)
        try:
            writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
            async with asyncio.timeout(PATIENCE):
                assert b"this port speaks plain HTTP" in await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_record_that_was_tampered_with_ends_the_connection(
    wordy: tuple[Wordy, HttpServer], authority: Authority
) -> None:
    made, http = wordy
    async with Hand.open(http.port, authority.trust()) as hand:
        hand._tls.write(BIG)
        record = bytearray(hand._outgoing.read())
        record[-1] ^= 1
        await asyncio.get_running_loop().sock_sendall(hand.raw, record)
        with pytest.raises(ssl.SSLError):
            await hand.receive()
    await until(lambda: not http._carrier.connections, "the end of the connection")
    assert made.calls == 0


async def test_many_records_in_one_segment_are_one_request(
    wordy: tuple[Wordy, HttpServer], authority: Authority
) -> None:
    """A client may encrypt as it likes: every byte in a record of its own is no other request."""
    made, http = wordy
    async with Hand.open(http.port, authority.trust()) as hand:
        for byte in BIG:
            hand._tls.write(bytes([byte]))
        await hand._flush()
        reply = b""
        while len(reply) < 100_000:
            reply += await hand.receive()
    assert (made.calls, reply[:12]) == (1, b"HTTP/1.1 200")


async def test_a_byte_in_each_record_for_long_ends_the_connection(
    wordy: tuple[Wordy, HttpServer], authority: Authority
) -> None:
    """It costs the server more than the client; two million such records held up others for seconds."""
    _, http = wordy
    carrier: Any = http._carrier
    async with Hand.open(http.port, authority.trust()) as hand:
        with contextlib.suppress(ConnectionError):
            await hand.send(
                BIG.partition(b"\r\n\r\n")[0].replace(b"Content-Length: ", b"Content-Length: 9") + b"\r\n\r\n"
            )
            for _ in range(100):
                for _ in range(1000):
                    hand._tls.write(b" ")
                await hand._flush()
        await until(lambda: not carrier.connections, "the end of the connection")
    assert carrier.engine.tls_failures == 1


async def test_a_client_that_speaks_only_http_2_is_told_what_is_missing(
    files: tuple[Path, Path], authority: Authority
) -> None:
    async with HttpServer(Server("one", version="1"), port=0, tls=files, http2=False) as http:
        context = authority.trust()
        context.set_alpn_protocols(["h2"])
        async with Hand.open(http.port, context) as hand:
            assert hand._tls.selected_alpn_protocol() is None
            await hand.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            assert b"HTTP/2 is not served here" in await hand.everything()
