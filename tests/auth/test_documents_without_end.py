"""Documents of an authorization server that never end, for everybody who fetches one: each fetch has a limit and a deadline.

Whose rule: ours. A login must not cost a program its memory, and not its time either.
"""

from __future__ import annotations

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.until import soon

from trimaran.auth import Bearer, Introspection
from trimaran.auth.refusal import Refused
from trimaran.errors import Error
from trimaran.oauth.effects import MAX_DOCUMENT, HttpRequest
from trimaran.transports.fetch import Fetcher

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
PACKED = zlib.compress(b" " * (1 << 20), wbits=31)

DOCUMENTS: dict[str, tuple[bytes, bytes, float]] = {
    # The beginning, what is repeated after it, and the pause between.
    "without end": (OK + b'\r\n{"keys":"', b"x" * 65_536, 0),
    "of 100 MB": (OK + b"Content-Length: 104857600\r\n\r\n", b" " * 65_536, 0),
    "byte by byte": (OK + b"Content-Length: 1000\r\n\r\n{", b" ", 0.01),
    "in gzip": (OK + b"Content-Encoding: gzip\r\n\r\n", PACKED, 0),
    "in chunks of one byte": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n" * 2_000, 0),
    "in chunks with long extensions": (
        OK + b"Transfer-Encoding: chunked\r\n\r\n",
        b"1;" + b"x" * 4_000 + b"\r\n \r\n",
        0,
    ),
    "with trailers without end": (OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", b"X: y\r\n" * 1_000, 0),
    "behind a head without end": (OK, b"X-Filler: y\r\n" * 1_000, 0),
    "behind a line without end": (OK + b"X: ", b"x" * 65_536, 0),
    "behind interim answers": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" * 100, 0.001),
    "that moves on and on": (b"HTTP/1.1 302 Found\r\nLocation: /again\r\n\r\n", b"x" * 65_536, 0),
    "that never comes": (b"", b"", 0.01),
}
MOST_SENT = 16 * MAX_DOCUMENT  # room for what the kernel takes off our hands


class Hostile:
    """An authorization server with one document."""

    def __init__(self, name: str) -> None:
        self.start, self.piece, self.pause = DOCUMENTS[name]
        self.sent = 0
        self.url = ""
        self.serving: set[asyncio.Task[Any]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.serving.add(task)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(self.start)
            while not writer.is_closing():
                writer.write(self.piece)
                self.sent += len(self.piece)
                await writer.drain()
                await asyncio.sleep(self.pause)
        writer.transport.abort()


@asynccontextmanager
async def hostile(name: str) -> AsyncIterator[Hostile]:
    peer = Hostile(name)
    async with await asyncio.start_server(peer.serve, "127.0.0.1", 0) as server:
        peer.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/document"
        yield peer
        for task in peer.serving:
            task.cancel()
        await asyncio.gather(*peer.serving, return_exceptions=True)


async def discover(url: str, fetcher: Fetcher) -> None:
    """As the OAuth client does it."""
    await fetcher(HttpRequest(step="discovery", url=url))


async def read_keys(url: str, fetcher: Fetcher) -> None:
    """As a server does it that verifies JWTs: it starts without keys, and refuses."""
    provider = Bearer(jwks=url, issuer="https://issuer.example", audience="https://api.example")
    try:
        await provider.start(fetcher)
        await provider.verify("eyJhbGciOiJSUzI1NiJ9.e30.c2ln")
    finally:
        await provider.close()


async def introspect(url: str, fetcher: Fetcher) -> None:
    """As a server does it that asks about opaque tokens."""
    provider = Introspection(url, "client", "secret")
    await provider.start(fetcher)
    request: Any = SimpleNamespace(headers={"authorization": "Bearer opaque"}, method="POST", url=None, address=None)
    await provider.authenticate(request)


@pytest.mark.parametrize("fetch", [discover, read_keys, introspect])
@pytest.mark.parametrize("name", DOCUMENTS)
async def test_a_document_without_end_is_given_up(name: str, fetch: Callable[[str, Fetcher], Awaitable[None]]) -> None:
    async with hostile(name) as peer:
        fetcher = Fetcher(allow_private=True, timeout=0.5)
        try:
            with pytest.raises((Error, Refused)):
                await soon(fetch(peer.url, fetcher))
        finally:
            await fetcher.close()
        assert peer.sent <= MOST_SENT
