"""The engine as an ASGI app: mountable anywhere, with no lifespan of its own (P14), never a redirect (P16).

Mounted under a prefix, the app answers at the mount point itself and at its own path below it, with and without a
trailing slash.

An authenticator's public documents live at the root of the host, outside any prefix. `MetadataMiddleware` around the
whole application serves them there; or `resource_metadata_url=` names an address inside the prefix, which this app then
serves; or the same app is mounted a second time, at the well-known path.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Final, final

from trimaran.errors import ProtocolError
from trimaran.protocol.http1_framing import read_length

from .engine import Engine, Headers, HttpRequestHead, Pairs, watch_by_task
from .stop_signals import overhear

if TYPE_CHECKING:
    from .endpoints import Endpoints

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

# Seconds for the calls that run when a signal comes. Supervisors, such as Kubernetes, kill after 30.
_PATIENCE: Final = 25.0

_ENCODED: dict[tuple[str, str], tuple[bytes, bytes]] = {}


def _pairs(headers: Pairs) -> list[tuple[bytes, bytes]]:
    encoded_pairs: list[tuple[bytes, bytes]] = []
    for pair in headers:
        encoded = _ENCODED.get(pair)
        if encoded is None:
            encoded = (pair[0].encode("latin-1"), pair[1].encode("latin-1"))
            if len(_ENCODED) < 256:
                _ENCODED[pair] = encoded
        encoded_pairs.append(encoded)
    return encoded_pairs


@final
class AsgiResponder:
    """One request's answer, as ASGI messages."""

    __slots__ = ("_gone", "_receive", "_send", "scope")

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.scope: Scope = scope
        self._receive = receive
        self._send = send
        self._gone = False

    @property
    def address(self) -> str | None:
        client = self.scope.get("client")
        return client[0] if client else None

    @property
    def scheme(self) -> str:
        return self.scope.get("scheme", "http")

    async def reply(self, status: int, headers: Pairs, body: bytes) -> None:
        pairs = _pairs(headers)
        if status in (204, 304):
            body = b""
        else:
            pairs.append((b"content-length", str(len(body)).encode()))
        await self._send({"type": "http.response.start", "status": status, "headers": pairs})
        await self._send({"type": "http.response.body", "body": body})

    async def stream_start(self, status: int, headers: Pairs) -> None:
        await self._send({"type": "http.response.start", "status": status, "headers": _pairs(headers)})

    async def stream_chunk(self, data: bytes) -> bool:
        if self._gone:
            return False
        try:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})
        except (OSError, RuntimeError):  # some servers raise once the client has gone
            self._gone = True
        return not self._gone

    async def stream_end(self) -> None:
        if not self._gone:
            try:
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
            except (OSError, RuntimeError):
                self._gone = True

    def watch(self, callback: Callable[[], None]) -> Callable[[], None]:
        return watch_by_task(self._wait_disconnect, callback)

    async def _wait_disconnect(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._gone = True


@final
class _Parts:
    """The pieces of a body that is still arriving. After a refusal, the next piece of the request brings the answer."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.size = 0
        self.refusal: ProtocolError | None = None

    def add(self, piece: bytes) -> int:
        """Keep a piece, and return the size of all."""
        self.pieces.append(piece)
        self.size += len(piece)
        return self.size

    def refuse_body(self, error: ProtocolError) -> None:
        self.refusal = error
        self.pieces.clear()


@final
class AsgiApp:
    """`app(scope, receive, send)`."""

    def __init__(self, engine: Engine | Endpoints) -> None:
        self._carried = engine
        self.engine: Engine = engine if isinstance(engine, Engine) else engine.main
        """The endpoint; of several, the main one."""
        self._hears_stop = False
        self._draining: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind != "http":
            await self._other(kind, receive, send)
            return
        if not self._hears_stop:
            self._hears_stop = True
            overhear(self)
        engine = self._carried
        if not engine.is_started and not engine.closing and engine.server.runtime.fleet is not None:
            await engine.start()  # no lifespan ran, and messages of other processes must be received
        responder = AsgiResponder(scope, receive, send)
        # Some HTTP servers leave blanks around a value, which are not part of it.
        headers = Headers([(k.decode("latin-1"), v.decode("latin-1").strip(" \t")) for k, v in scope["headers"]])
        path = scope["path"]
        if path[:1] != "/":  # Litestar's mounts take the slash away
            path = f"/{path}"
        request = HttpRequestHead(scope["method"], path, headers, responder)
        request.query = scope.get("query_string", b"").decode("latin-1")
        if scope.get("root_path"):
            self._find_place(request, scope["root_path"])
        refused = engine.admit(request) or engine.refuse_headers(request)
        if refused is not None:
            await refused
            return
        try:
            body = await self._body(receive, headers)
        except ProtocolError as error:
            await engine.refuse(request, error)
            return
        if body is None:
            await engine.too_large(request)
        elif body is not _GONE and request.method == "POST" and engine.owns(request.path):
            await engine.post(request, body)
        elif body is not _GONE:
            await engine.dispatch(request, body)

    def _find_place(self, request: HttpRequestHead, root: str) -> None:
        """Set the path relative to the mount point."""
        # Some frameworks leave the mount point in the path, others remove it.
        path = request.path.removeprefix(root)
        whole = root + path
        request.prefix = root
        request.outer_path = whole
        if whole.startswith("/.well-known/"):
            request.path = whole
        else:
            request.path = self._carried.path if path in ("", "/") else path

    async def _body(self, receive: Receive, headers: Headers) -> bytes | None:
        limit = self._carried.max_body_bytes
        if (read_length(headers.get("content-length")) or 0) > limit:
            return None
        message = await receive()
        if message["type"] == "http.disconnect":
            return _GONE
        body: bytes = message.get("body", b"")
        if not message.get("more_body", False):
            return body if len(body) <= limit else None
        parts = _Parts()
        try:
            while message.get("more_body", False):
                self._carried.bodies.count(parts, parts.add(message.get("body", b"")))
                message = await receive()
                if message["type"] == "http.disconnect":
                    return _GONE
                if parts.refusal is not None:
                    raise parts.refusal
                if parts.size > limit:
                    return None
            parts.add(message.get("body", b""))
            return b"".join(parts.pieces) if parts.size <= limit else None
        finally:
            self._carried.bodies.remove(parts)

    async def _other(self, kind: str, receive: Receive, send: Send) -> None:
        if kind == "lifespan":
            await self._lifespan(receive, send)
        elif kind == "websocket":
            await send({"type": "websocket.close", "code": 1000})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                try:
                    await self._carried.start()
                except Exception as error:
                    await send({"type": "lifespan.startup.failed", "message": str(error)})
                    return
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self._stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def aclose(self) -> None:
        """End open streams and calls; for hosts that run no lifespan."""
        async with asyncio.timeout(10):
            await self._stop()

    def begin_to_stop(self) -> None:
        """The process is told to stop, and its server waits for open responses: end the streams after their calls."""
        if self._draining is None:
            self._draining = asyncio.create_task(self._carried.drain(_PATIENCE))

    async def _stop(self) -> None:
        if self._draining is not None:
            self._draining.cancel()
        await self._carried.drain(patience=1.0)
        for server in self._carried.servers:
            await server.stop()


_GONE: Final = b"\0gone"
