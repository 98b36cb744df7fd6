"""Clients that abuse HTTP/2: floods that ask for nothing, windows that never open, heads and bodies without bounds.

The server is real, over TLS on a port of this machine. The client writes its frames by hand (hyperframe, hpack), so that
it can send what a library would not.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from h2.errors import ErrorCodes
from hpack import Decoder, Encoder
from hyperframe.frame import (
    ContinuationFrame,
    DataFrame,
    Frame,
    GoAwayFrame,
    HeadersFrame,
    PingFrame,
    PriorityFrame,
    RstStreamFrame,
    SettingsFrame,
    WindowUpdateFrame,
)
from tests.support.certificates import Authority
from tests.support.faults import call, encode, modern_headers
from tests.support.until import PATIENCE, settled, soon, until

from trimaran import Context, Limits, Server
from trimaran.serve import HttpServer
from trimaran.transports import http1_server, http2_server

PIECE = "x" * 50_000
CALM = ErrorCodes.ENHANCE_YOUR_CALM


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def files(authority: Authority) -> tuple[Path, Path]:
    return authority.issue("127.0.0.1")


class Harbour:
    """A server whose tools say much, or wait; and what they were asked."""

    def __init__(self, files: tuple[Path, Path]) -> None:
        self.calls = 0
        self.cancelled = 0
        self.pieces = 0
        self.go_on = asyncio.Event()
        limits = Limits(max_body_bytes=100_000, max_stream_bytes=1 << 30)
        self.server = Server("harbour", version="1", limits=limits)
        self.server.tool(self.add)
        self.server.tool(self.big)
        self.server.tool(self.pour)
        self.server.tool(self.wait)
        self.http = HttpServer(self.server, port=0, tls=files, http2=True)

    @property
    def carrier(self) -> Any:
        return self.http._carrier

    async def add(self, a: int, b: int) -> int:
        """Add."""
        self.calls += 1
        return a + b

    async def big(self) -> str:
        """Say much."""
        self.calls += 1
        return "x" * 100_000

    async def pour(self, ctx: Context) -> str:
        """Say very much, bit by bit."""
        for number in range(400):
            await ctx.progress(number, 400, PIECE)
            self.pieces = number + 1
        return "poured"

    async def wait(self) -> str:
        """Wait."""
        self.calls += 1
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return "waited"


@pytest.fixture
async def harbour(files: tuple[Path, Path]) -> AsyncIterator[Harbour]:
    made = Harbour(files)
    async with made.http:
        yield made
        made.go_on.set()


class Peer:
    """A client that writes frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        self.reader = reader
        self.writer = writer
        self.port = port
        self.encoder = Encoder()
        self.decoder = Decoder()
        self.number = -1
        self.frames: list[Frame] = []

    @classmethod
    @contextlib.asynccontextmanager
    async def open(cls, port: int, trust: ssl.SSLContext, **settings: int) -> AsyncIterator[Peer]:
        trust.set_alpn_protocols(["h2"])
        reader, writer = await soon(asyncio.open_connection("127.0.0.1", port, ssl=trust))
        peer = cls(reader, writer, port)
        try:
            values = {getattr(SettingsFrame, name.upper()): value for name, value in settings.items()}
            await peer.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", SettingsFrame(0, settings=values))
            await peer.until(lambda f: isinstance(f, SettingsFrame) and "ACK" in f.flags)
            yield peer
        finally:
            writer.transport.abort()

    async def send(self, *frames: Frame | bytes) -> None:
        self.writer.write(b"".join(f if isinstance(f, bytes) else f.serialize() for f in frames))
        with contextlib.suppress(ConnectionError):
            await soon(self.writer.drain())

    def stop_reading(self) -> None:
        transport: Any = self.writer.transport
        transport.pause_reading()

    def head(self, fields: dict[str, str] | None = None, **about: str | None) -> HeadersFrame:
        """A request's head on a new stream, with its pseudo-headers or without."""
        self.number += 2
        first = {"method": "POST", "scheme": "https", "path": "/mcp", "authority": f"127.0.0.1:{self.port}", **about}
        pairs = [(f":{name}", value) for name, value in first.items() if value is not None]
        pairs += [(name.lower(), value) for name, value in (fields or {}).items() if name.lower() != "host"]
        return HeadersFrame(self.number, self.encoder.encode(pairs), flags=["END_HEADERS"])

    def call(self, tool: str, arguments: dict[str, Any] | None = None) -> tuple[HeadersFrame, DataFrame]:
        message = call(tool, arguments, progressToken="t")
        head = self.head(modern_headers(message))
        return head, DataFrame(self.number, encode(message), flags=["END_STREAM"])

    async def frame(self) -> Frame | None:
        """The next frame of the server's; None at its end."""
        async with asyncio.timeout(PATIENCE):
            try:
                raw = await self.reader.readexactly(9)
                frame, length = Frame.parse_frame_header(memoryview(raw))
                frame.parse_body(memoryview(await self.reader.readexactly(length)))
            except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
                return None
        self.frames.append(frame)
        if isinstance(frame, HeadersFrame):
            frame.fields = dict(self.decoder.decode(frame.data))  # type: ignore[attr-defined]
        return frame

    async def until(self, wanted: Callable[[Any], bool]) -> Any:
        while (frame := await self.frame()) is not None:
            if wanted(frame):
                return frame
        raise AssertionError(f"it never came; these did: {[type(f).__name__ for f in self.frames][-20:]}")

    async def status(self, number: int | None = None) -> str:
        wanted = number or self.number
        frame = await self.until(lambda f: isinstance(f, HeadersFrame) and f.stream_id == wanted)
        return frame.fields[":status"]

    async def goaway(self) -> int:
        return (await self.until(lambda f: isinstance(f, GoAwayFrame))).error_code


@pytest.fixture
async def peer(harbour: Harbour, authority: Authority) -> AsyncIterator[Peer]:
    async with Peer.open(harbour.http.port, authority.trust()) as made:
        yield made


async def assert_serves(peer: Peer) -> None:
    await peer.send(*peer.call("add", {"a": 1, "b": 2}))
    assert await peer.status() == "200"


# --- floods ----------------------------------------------------------------------------------------------------------


def pings(peer: Peer) -> list[Any]:
    return [PingFrame(0, b"12345678")] * 20_000


def settings(peer: Peer) -> list[Any]:
    return [SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 65535})] * 20_000


def priorities(peer: Peer) -> list[Any]:
    return [PriorityFrame(1, depends_on=0, stream_weight=5)] * 20_000


def windows(peer: Peer) -> list[Any]:
    return [WindowUpdateFrame(0, window_increment=1)] * 20_000


def empties(peer: Peer) -> list[Any]:
    return [peer.head(), *[DataFrame(peer.number, b"")] * 20_000]


def unknowns(peer: Peer) -> list[Any]:
    return [b"\x00\x00\x04\xfa\x00\x00\x00\x00\x00abcd"] * 20_000


def crumbs(peer: Peer) -> list[Any]:
    return [peer.head(), *[DataFrame(peer.number, b"x", pad_length=200, flags=["PADDED"])] * 3000]


@pytest.mark.parametrize("flood", [pings, settings, priorities, windows, empties, unknowns, crumbs])
async def test_a_flood_that_asks_for_nothing_ends_the_connection(
    harbour: Harbour, peer: Peer, flood: Callable[[Peer], list[Any]]
) -> None:
    """RFC 9113, 10.5; CVE-2019-9512, 9515, 9518."""
    await peer.send(*flood(peer))
    assert await peer.goaway() == CALM
    assert len([f for f in peer.frames if not isinstance(f, WindowUpdateFrame)]) < 10_000


async def test_a_flood_whose_answers_nobody_reads_takes_no_memory(harbour: Harbour, authority: Authority) -> None:
    async with Peer.open(harbour.http.port, authority.trust()) as peer:
        peer.stop_reading()
        (connection,) = harbour.carrier.connections
        await peer.send(*pings(peer))
        await until(lambda: connection._lingers_since is not None, "the end")
        assert connection._transport.get_write_buffer_size() < 200_000


async def test_requests_that_are_reset_at_once_end_the_connection(harbour: Harbour, peer: Peer) -> None:
    """CVE-2023-44487: each is within the number of streams that may be open, and all of them are work."""
    frames: list[Any] = []
    for _ in range(5000):
        frames += [*peer.call("wait"), RstStreamFrame(peer.number, error_code=ErrorCodes.CANCEL)]
    await peer.send(*frames)
    assert await peer.goaway() == CALM
    assert harbour.calls < 1000
    await until(lambda: not harbour.http.engine.running_calls.open, "the end of the calls")


async def test_some_cancelled_calls_are_nobodys_fault(harbour: Harbour, peer: Peer) -> None:
    """An agent that is stopped cancels all it has asked for."""
    for _ in range(100):
        await peer.send(*peer.call("wait"))
    await until(lambda: harbour.calls == 100, "the calls")
    await peer.send(*[RstStreamFrame(number, error_code=ErrorCodes.CANCEL) for number in range(1, 200, 2)])
    await until(lambda: harbour.cancelled == 100, "the end of the calls")
    await assert_serves(peer)


async def test_a_flood_is_read_in_turns(harbour: Harbour, peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are served in between: at no time are more than some hundred frames read at once."""
    sizes: list[int] = []
    read = http2_server.H2Connection.receive_data

    def counted(self: Any, data: Any) -> Any:
        events = read(self, data)
        sizes.append(len(events))
        return events

    monkeypatch.setattr(http2_server.H2Connection, "receive_data", counted)
    monkeypatch.setattr(http2_server, "_TURN_SECONDS", -1.0)
    turns: list[object] = []
    read_on = http2_server.Http2Connection._read_on
    monkeypatch.setattr(http2_server.Http2Connection, "_read_on", lambda self: (turns.append(self), read_on(self)))
    await peer.send(*windows(peer))
    assert await peer.goaway() == CALM
    assert max(sizes) < 250
    assert len(turns) >= len(sizes) - 2


# --- heads -----------------------------------------------------------------------------------------------------------


async def test_a_head_that_never_ends_is_refused(harbour: Harbour, peer: Peer) -> None:
    """CVE-2024-27316: CONTINUATION without end."""
    number = peer.head().stream_id
    block = b"\x00\x01a\x7f\xff\x7f" + b"x" * 1000
    await peer.send(HeadersFrame(number, block), *[ContinuationFrame(number, b"x" * 1000)] * 1000)
    assert await peer.goaway() != ErrorCodes.NO_ERROR
    assert harbour.calls == 0


async def test_a_head_that_unpacks_to_much_is_refused(harbour: Harbour, peer: Peer) -> None:
    """HPACK: one byte may stand for 4 KB."""
    block = peer.encoder.encode([("x-large", "y" * 3000)]) + b"\xbe" * 5000
    await peer.send(HeadersFrame(1, block, flags=["END_HEADERS", "END_STREAM"]))
    assert await peer.goaway() == CALM


async def test_a_head_over_the_limit_is_431_and_the_connection_goes_on(harbour: Harbour, peer: Peer) -> None:
    await peer.send(peer.head({"x-large": "e" * 20_000}), DataFrame(peer.number, b"", flags=["END_STREAM"]))
    assert await peer.status() == "431"
    await peer.send(peer.head({f"x-{n}": "y" for n in range(200)}), DataFrame(peer.number, b"", flags=["END_STREAM"]))
    assert await peer.status() == "431"
    await assert_serves(peer)


@pytest.mark.parametrize(
    ("fields", "about"),
    [
        ({"transfer-encoding": "chunked"}, {}),
        ({"connection": "close"}, {}),
        ({"te": "gzip"}, {}),
        ({"x": "a\r\nb: c"}, {}),
        ({"x": "a\0b"}, {}),
        ({"x": " a"}, {}),
        ({"x y": "a"}, {}),
        ({":late": "a"}, {}),
        ({"content-length": "3, 3"}, {"path": "*"}),
        ({}, {"path": "http://evil.example/mcp"}),
        ({}, {"path": None}),
        ({}, {"path": "/mcp HTTP/1.1"}),
        ({}, {"method": None}),
        ({}, {"scheme": "ftp"}),
        ({}, {"authority": None}),
        ({}, {"protocol": "websocket"}),
    ],
    ids=str,
)
async def test_a_malformed_request_is_refused_alone(
    harbour: Harbour, peer: Peer, fields: dict[str, str], about: dict[str, Any]
) -> None:
    """RFC 9113, 8.1.1: what two parsers could read differently is refused; other streams go on."""
    head = peer.head(fields if "content-length" not in fields else {}, **about)
    head.flags.add("END_STREAM")
    await peer.send(head)
    assert await peer.status() == "400"
    await assert_serves(peer)
    assert harbour.calls == 1


async def test_a_second_host_is_refused(harbour: Harbour, peer: Peer) -> None:
    peer.number = 1
    pairs = [
        (":method", "POST"),
        (":scheme", "https"),
        (":path", "/mcp"),
        (":authority", "127.0.0.1"),
        ("host", "evil"),
    ]
    await peer.send(HeadersFrame(1, peer.encoder.encode(pairs), flags=["END_HEADERS", "END_STREAM"]))
    assert await peer.status() == "400"


async def test_capital_letters_in_a_name_are_refused(harbour: Harbour, peer: Peer) -> None:
    head = peer.head()
    head.data += peer.encoder.encode([("X-Upper", "a")])
    head.flags.add("END_STREAM")
    await peer.send(head)
    assert await peer.status() == "400"


# --- bodies ----------------------------------------------------------------------------------------------------------


async def test_a_body_over_the_limit_is_413_and_the_connection_goes_on(harbour: Harbour, peer: Peer) -> None:
    """What still comes is read and dropped: a reset would take the answer from clients that are still sending."""
    await peer.send(peer.head({"content-type": "application/json"}), *[DataFrame(peer.number, b" " * 16_000)] * 10)
    assert await peer.status() == "413"
    await peer.send(*[DataFrame(peer.number, b" " * 16_000)] * 10, DataFrame(peer.number, b"", flags=["END_STREAM"]))
    await assert_serves(peer)
    assert not [f for f in peer.frames if isinstance(f, RstStreamFrame)]
    (connection,) = harbour.carrier.connections
    await until(lambda: not connection._streams, "the end of both")
    assert connection._bodies == 0


async def test_who_sends_on_after_a_refusal_is_reset_in_the_end(harbour: Harbour, peer: Peer) -> None:
    await peer.send(peer.head({"content-type": "application/json"}), *[DataFrame(peer.number, b" " * 16_000)] * 10)
    assert await peer.status() == "413"
    (connection,) = harbour.carrier.connections
    await until(lambda: connection._streams[1].is_sent, "the answer")
    connection.check_time(harbour.carrier.now + http1_server.LINGER_QUIET - 1)
    assert connection._streams
    connection.check_time(harbour.carrier.now + http1_server.LINGER_QUIET + 1)
    reset = await peer.until(lambda f: isinstance(f, RstStreamFrame))
    assert reset.error_code == ErrorCodes.NO_ERROR
    assert not connection._streams
    await assert_serves(peer)


async def test_credentials_do_not_reach_the_log(harbour: Harbour, peer: Peer, caplog: pytest.LogCaptureFixture) -> None:
    """The library that packs headers would write them there."""
    caplog.set_level(logging.DEBUG)
    await peer.send(peer.head({"authorization": "Bearer s3cr3t"}), DataFrame(peer.number, b"", flags=["END_STREAM"]))
    await peer.status()
    assert "s3cr3t" not in caplog.text


async def test_bodies_that_are_never_finished_have_a_bound(harbour: Harbour, peer: Peer) -> None:
    """One connection, 128 streams: together they may hold four bodies."""
    for _ in range(20):
        await peer.send(peer.head(), *[DataFrame(peer.number, b" " * 10_000)] * 9)
    assert await peer.status() == "503"
    (connection,) = harbour.carrier.connections
    assert connection._bodies <= http2_server._BODIES * 100_000 + 100_000
    await assert_serves(peer)


async def test_a_body_that_does_not_come_in_time_is_408(harbour: Harbour, peer: Peer) -> None:
    await peer.send(peer.head(), DataFrame(peer.number, b"{"))
    (connection,) = harbour.carrier.connections
    await until(lambda: connection._streams, "the stream")
    now = harbour.carrier.now
    connection.check_time(now + http1_server.READ_SECONDS - 1)
    connection.check_time(now + http1_server.READ_SECONDS + 1)
    assert await peer.status() == "408"
    assert connection._bodies == 0
    await assert_serves(peer)


async def test_more_streams_than_allowed_end_the_connection(harbour: Harbour, peer: Peer) -> None:
    for _ in range(http2_server._MAX_STREAMS + 1):
        await peer.send(*peer.call("wait"))
    assert await peer.goaway() != ErrorCodes.NO_ERROR
    await until(lambda: not harbour.http.engine.running_calls.open, "the end of the calls")


# --- who does not read -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("window", [0, 1, 65535])
async def test_a_stream_waits_for_its_window(harbour: Harbour, authority: Authority, window: int) -> None:
    async with Peer.open(harbour.http.port, authority.trust(), initial_window_size=window) as peer:
        await peer.send(*peer.call("pour"))
        assert await settled(lambda: harbour.pieces) < 10
        await assert_head(peer)
        await peer.send(WindowUpdateFrame(0, window_increment=1 << 30))
        await peer.send(WindowUpdateFrame(peer.number, window_increment=1 << 30))
        await peer.until(lambda f: isinstance(f, DataFrame) and "END_STREAM" in f.flags)
        assert harbour.pieces == 400


async def assert_head(peer: Peer) -> None:
    assert await peer.status() == "200"


async def test_requests_wait_while_answers_are_not_read(harbour: Harbour, authority: Authority) -> None:
    """100 answers of 100 KB would be 10 MB in memory; and a window of zero costs the client nothing."""
    async with Peer.open(harbour.http.port, authority.trust(), initial_window_size=0) as peer:
        for _ in range(100):
            await peer.send(*peer.call("big"))
        # Eight begin together, and as many again if a read comes before they have answered; three fill the mark.
        assert 0 < await settled(lambda: harbour.calls) <= 24


async def test_a_stream_that_is_never_read_is_reset_in_the_end(harbour: Harbour, authority: Authority) -> None:
    async with Peer.open(harbour.http.port, authority.trust(), initial_window_size=0) as peer:
        await peer.send(*peer.call("pour"))
        await settled(lambda: harbour.pieces)
        (connection,) = harbour.carrier.connections
        now = harbour.carrier.now
        connection.check_time(now)
        connection.check_time(now + http1_server.IDLE_SECONDS - 1)
        assert connection._streams
        connection.check_time(now + http1_server.IDLE_SECONDS + 1)
        reset = await peer.until(lambda f: isinstance(f, RstStreamFrame))
        assert reset.error_code == CALM
        await until(lambda: not connection._streams, "the end of the call")


async def test_a_client_that_never_reads_its_socket_is_let_go_in_the_end(
    harbour: Harbour, authority: Authority
) -> None:
    async with Peer.open(harbour.http.port, authority.trust(), initial_window_size=1 << 30) as peer:
        peer.stop_reading()
        await peer.send(WindowUpdateFrame(0, window_increment=1 << 30), *peer.call("pour"))
        assert await settled(lambda: harbour.pieces) < 200
        (connection,) = harbour.carrier.connections
        now = harbour.carrier.now
        connection.check_time(now)
        connection.check_time(now + http1_server.IDLE_SECONDS + 1)
        await until(lambda: not harbour.carrier.connections, "the end of the connection")


# --- ends ------------------------------------------------------------------------------------------------------------


async def test_a_reset_cancels_its_call_and_no_other(harbour: Harbour, peer: Peer) -> None:
    await peer.send(*peer.call("wait"))
    await peer.send(*peer.call("wait"))
    await until(lambda: harbour.calls == 2, "the calls")
    await peer.send(RstStreamFrame(1, error_code=ErrorCodes.CANCEL))
    await until(lambda: harbour.cancelled, "the end of the first")
    harbour.go_on.set()
    assert await peer.status(3) == "200"
    assert harbour.cancelled == 1


async def test_a_lost_connection_cancels_all_its_calls(harbour: Harbour, authority: Authority) -> None:
    async with Peer.open(harbour.http.port, authority.trust()) as peer:
        for _ in range(5):
            await peer.send(*peer.call("wait"))
        await until(lambda: harbour.calls == 5, "the calls")
    await until(lambda: harbour.cancelled == 5, "the end of the calls")


async def test_a_client_that_says_goodbye_is_still_answered(harbour: Harbour, peer: Peer) -> None:
    await peer.send(*peer.call("wait"))
    await until(lambda: harbour.calls, "the call")
    await peer.send(GoAwayFrame(0, last_stream_id=0, error_code=0))
    await peer.send(PingFrame(0, b"12345678"))
    await peer.until(lambda f: isinstance(f, PingFrame))
    harbour.go_on.set()
    assert await peer.status() == "200"
    await peer.until(lambda f: isinstance(f, DataFrame) and "END_STREAM" in f.flags)
    await assert_serves(peer)  # Node opens streams behind it


async def test_a_stopping_server_takes_nothing_more_and_lets_calls_finish(
    files: tuple[Path, Path], authority: Authority
) -> None:
    made = Harbour(files)
    await made.http.start()
    async with Peer.open(made.http.port, authority.trust()) as peer:
        await peer.send(*peer.call("wait"))
        await until(lambda: made.calls, "the call")
        stopping = asyncio.ensure_future(made.http.stop())
        await until(lambda: made.http.engine.closing, "the beginning of the end")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", made.http.port)
        made.go_on.set()
        assert await peer.status() == "200"
        assert await peer.goaway() == ErrorCodes.NO_ERROR
        await stopping


async def test_an_idle_connection_is_closed_with_a_word(harbour: Harbour, peer: Peer) -> None:
    await assert_serves(peer)
    (connection,) = harbour.carrier.connections
    await until(lambda: not connection._streams, "the end of the call")
    connection.check_time(harbour.carrier.now + http1_server.IDLE_SECONDS + 1)
    assert await peer.goaway() == ErrorCodes.NO_ERROR
    await until(lambda: not harbour.carrier.connections, "the end of the connection")


@pytest.mark.parametrize(
    "said", [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * 100, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100_000]
)
async def test_what_is_no_http_2_ends_the_connection(
    harbour: Harbour, authority: Authority, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    trust = authority.trust()
    trust.set_alpn_protocols(["h2"])
    reader, writer = await asyncio.open_connection("127.0.0.1", harbour.http.port, ssl=trust)
    try:
        writer.write(said)
        async with asyncio.timeout(PATIENCE):
            with contextlib.suppress(ConnectionError):
                assert b"HTTP/1.1" not in await reader.read()
    finally:
        writer.transport.abort()
    await until(lambda: not harbour.carrier.connections, "the end of the connection")
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
