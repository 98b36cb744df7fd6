"""OAuth documents that never end, trickle, are huge or deep: each step of a login, and the keys of a server, give up in time."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from trimaran import connect
from trimaran.auth import Bearer
from trimaran.auth.refusal import Refused
from trimaran.errors import Error
from trimaran.oauth import ClientCredentials
from trimaran.transports.fetch import Fetcher

pytestmark = pytest.mark.slow

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


async def never_end(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        writer.write(b"10000\r\n" + b" " * 0x10000 + b"\r\n")
        await writer.drain()


async def trickle(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Content-Length: 1000\r\n\r\n{")
    while True:
        writer.write(b" ")
        await writer.drain()
        await asyncio.sleep(0.05)


async def be_huge(writer: asyncio.StreamWriter) -> None:
    writer.write(HEAD + b"Content-Length: 9000000000\r\n\r\n{")
    await asyncio.sleep(60)


async def nest(writer: asyncio.StreamWriter) -> None:
    body = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()


async def say_nothing(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


WAYS = [never_end, trickle, be_huge, nest, say_nothing]


@contextlib.contextmanager
def aborting(writer: asyncio.StreamWriter) -> Iterator[None]:
    try:
        yield
    finally:
        writer.transport.abort()


class Authority:
    """An MCP server and its authorization server; one of the documents comes in a hostile way."""

    def __init__(self, hostile_path: str, answer: Callable[[asyncio.StreamWriter], Any]) -> None:
        self._hostile_path = hostile_path
        self._answer = answer
        self.url = ""
        self.paths: list[str] = []

    def document(self, path: str) -> dict[str, Any] | None:
        if path.startswith("/.well-known/oauth-protected-resource"):
            return {"resource": f"{self.url}/mcp", "authorization_servers": [self.url]}
        if path.startswith("/.well-known/oauth-authorization-server"):
            return {
                "issuer": self.url,
                "token_endpoint": f"{self.url}/token",
                "authorization_endpoint": f"{self.url}/authorize",
                "response_types_supported": ["code"],
                "grant_types_supported": ["client_credentials"],
                "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            }
        return None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with aborting(writer), contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                await reader.readexactly(int(head.lower().partition("content-length:")[2].split("\r\n")[0] or 0))
                path = head.split(" ")[1]
                self.paths.append(path)
                if path.startswith(self._hostile_path):
                    await self._answer(writer)
                    break
                document = self.document(path)
                status = "401 Unauthorized" if path == "/mcp" else "404 Not Found" if document is None else "200 OK"
                body = json.dumps(document or {}).encode()
                challenge = "WWW-Authenticate: Bearer\r\n" if path == "/mcp" else ""
                writer.write(f"HTTP/1.1 {status}\r\n{challenge}Content-Length: {len(body)}\r\n\r\n".encode() + body)
                await writer.drain()


@contextlib.asynccontextmanager
async def running(authority: Authority) -> AsyncIterator[Authority]:
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(authority.serve(reader, writer)))

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    authority.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield authority
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


@pytest.mark.parametrize("answer", WAYS)
@pytest.mark.parametrize(
    "path", ["/.well-known/oauth-protected-resource", "/.well-known/oauth-authorization-server", "/token"]
)
async def test_a_login_gives_up_a_hostile_document_in_time(
    path: str, answer: Callable[[asyncio.StreamWriter], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whose rule: ours. 20 s for a document; here half a second, or the test would take long."""
    _shorten(monkeypatch)
    async with running(Authority(path, answer)) as authority, asyncio.timeout(20):
        with pytest.raises(Error) as caught:
            async with connect(
                f"{authority.url}/mcp", auth=ClientCredentials(client_id="id", client_secret="hunter2"), timeout=10
            ):
                pass
    assert any(seen.startswith(path) for seen in authority.paths), authority.paths
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("answer", WAYS)
async def test_keys_that_never_come_leave_callers_with_an_answer(answer: Callable[[asyncio.StreamWriter], Any]) -> None:
    """An issuer that is away does not end the start; one that answers nonsense does."""
    fetcher = Fetcher(allow_private=True, timeout=0.3)
    async with running(Authority("/keys", answer)) as authority, asyncio.timeout(20):
        provider = Bearer(jwks=f"{authority.url}/keys", issuer=authority.url, audience="a")
        try:
            with pytest.raises(Error) if answer is nest else contextlib.nullcontext():
                await provider.start(fetcher)
            with pytest.raises(Refused):
                await provider.verify("eyJhbGciOiJSUzI1NiJ9.e30.c2ln")
        finally:
            await provider.close()
            await fetcher.close()


def _shorten(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Fetcher.__init__

    def shorter(self: Fetcher, **options: Any) -> None:
        start(self, **{**options, "timeout": 0.5})

    monkeypatch.setattr(Fetcher, "__init__", shorter)
