"""The engine as an RSGI app: Granian's own interface, one Python call per request instead of three."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol, final

from trimaran.protocol.http1 import read_length

from .engine import Engine, Pairs, Request, watch_by_task

__all__ = ["RsgiApp"]


class RsgiScope(Protocol):
    proto: str
    scheme: str
    method: str
    path: str
    query_string: str
    authority: str | None
    headers: Any
    client: str


class RsgiProtocol(Protocol):
    async def __call__(self) -> bytes: ...
    def __aiter__(self) -> Any: ...
    async def client_disconnect(self) -> None: ...
    def response_empty(self, status: int, headers: Pairs) -> None: ...
    def response_bytes(self, status: int, headers: Pairs, body: bytes) -> None: ...
    def response_stream(self, status: int, headers: Pairs) -> Any: ...


@final
class _Joined:
    """Headers of which a repeated one is joined, as RFC 9110 has it, where Granian gives the first alone.

    It costs more, so only where somebody could gain by two lines that another party reads differently.
    """

    __slots__ = ("_all",)

    def __init__(self, headers: Any) -> None:
        self._all = headers.get_all

    def get(self, key: str, /) -> str | None:
        found = self._all(key)
        return ", ".join(found) if found else None


@final
class _Responder:
    _stream: Any = None
    _gone = False

    def __init__(self, protocol: RsgiProtocol, scope: RsgiScope) -> None:
        self._protocol = protocol
        self._scope = scope

    @property
    def address(self) -> str | None:
        return self._scope.client.rpartition(":")[0].strip("[]") or None

    @property
    def scheme(self) -> str:
        return self._scope.scheme

    def reply(self, status: int, headers: Pairs, body: bytes) -> None:
        if body:
            self._protocol.response_bytes(status, headers, body)
        else:
            self._protocol.response_empty(status, headers)

    async def stream_start(self, status: int, headers: Pairs) -> None:
        self._stream = self._protocol.response_stream(status, headers)

    async def stream_chunk(self, data: bytes) -> bool:
        if self._gone:
            return False
        try:
            await self._stream.send_bytes(data)
        except RuntimeError:  # RSGIProtocolClosed, RSGIProtocolError
            self._gone = True
        return not self._gone

    async def stream_end(self) -> None:
        # The stream ends when the last reference to it goes and the request's coroutine returns.
        self._stream = None

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        return watch_by_task(self._wait_disconnect, callback)

    async def _wait_disconnect(self) -> None:
        await self._protocol.client_disconnect()
        self._gone = True


@final
class RsgiApp:
    """`__rsgi__(scope, protocol)`, with its start and end."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def __rsgi__(self, scope: RsgiScope, protocol: RsgiProtocol) -> None:
        # Every attribute of a scope is made when it is asked for, so ask for little.
        engine = self.engine
        headers = _Joined(scope.headers) if engine.asks_who else scope.headers
        request = Request(scope.method, scope.path, headers, _Responder(protocol, scope))
        if headers.get("host") is None:
            request.authority = scope.authority
        if not engine.owns(request.path):
            request.query = scope.query_string
        refused = engine.admit(request) or engine.refuse_headers(request)
        if refused is not None:
            await refused
            return
        length = headers.get("content-length")
        size = read_length(length)
        if size is None or size > engine.max_body_bytes:
            body = await self._bounded(length, protocol)
            if body is None:
                await engine.too_large(request)
                return
        else:
            body = await protocol()
        if request.method == "POST" and engine.owns(request.path):
            await engine.post(request, body)
        else:
            await engine.dispatch(request, body)

    async def _bounded(self, length: str | None, protocol: RsgiProtocol) -> bytes | None:
        """A body whose size is not stated, or may be too much: read with an eye on the limit."""
        limit = self.engine.max_body_bytes
        if length is not None:
            return None
        parts: list[bytes] = []
        size = 0
        async for part in protocol:
            size += len(part)
            if size > limit:
                return None
            parts.append(part)
        return b"".join(parts)

    def __rsgi_init__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Granian is about to serve."""

    def __rsgi_del__(self, loop: asyncio.AbstractEventLoop) -> None:
        """Granian has stopped."""
