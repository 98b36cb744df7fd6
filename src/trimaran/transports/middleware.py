"""Authentication and metadata as ASGI middleware, for whole applications of which an MCP server is only a part (R148, R149).

    app.add_middleware(AuthMiddleware, auth=auth)        every route asks who is calling; `FromScope()` hands it to the server
    app.add_middleware(MetadataMiddleware, auth=auth)    the metadata document of an OAuth resource, at the root of the host

Both answer or pass on, and look at nothing but headers and path: bodies belong to the application.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, final

from trimaran.auth.scope import PRINCIPAL

from .admission import Admission
from .asgi import AsgiResponder, Receive, Scope, Send
from .engine import Headers, HttpRequestHead

App = Callable[[Scope, Receive, Send], Awaitable[Any]]


def _request(scope: Scope, receive: Receive, send: Send) -> HttpRequestHead:
    headers = Headers([(k.decode("latin-1"), v.decode("latin-1").strip(" \t")) for k, v in scope["headers"]])
    root: str = scope.get("root_path", "")
    path: str = scope["path"]
    whole = path if path.startswith(root) else root + path
    request = HttpRequestHead(scope.get("method", "GET"), whole, headers, AsgiResponder(scope, receive, send))
    request.query = scope.get("query_string", b"").decode("latin-1")
    return request


@final
class AuthMiddleware:
    """Authenticates callers with a provider, and puts the principal into `scope["trimaran.principal"]`.

    Everybody else gets the refusal, with its challenge. Public documents of the provider and CORS preflights need no
    credentials. `public_url` is the URL of this application as clients write it, where a proxy stands between.
    """

    def __init__(self, app: App, auth: object, *, public_url: str | None = None) -> None:
        self._app = app
        self._admission = Admission(auth, None, public_url=public_url, path="/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            try:
                await self._app(scope, receive, send)
            finally:
                await self._admission.close()
            return
        request = _request(scope, receive, send)
        is_http = scope["type"] == "http"
        if is_http and await self._admission.serve_document(request):
            return
        if _is_preflight(request):
            await self._app(scope, receive, send)
            return
        try:
            principal = await self._admission.identify(request)
        except Exception as error:
            if is_http:
                await self._admission.turn_away(request, error, is_rpc=_is_mcp(request))
            else:
                await send({"type": "websocket.close", "code": 1008, "reason": "credentials are needed here"})
            return
        await self._app({**scope, PRINCIPAL: principal}, receive, send)

    async def aclose(self) -> None:
        """Close the provider; for hosts that run no lifespan."""
        await self._admission.close()


@final
class MetadataMiddleware:
    """Serves the public documents of a provider, and passes everything else on.

    For a `ProtectedResource` whose server is mounted under a prefix: its document belongs at the root of the host, where
    the mounted app is not asked.
    """

    def __init__(self, app: App, auth: object) -> None:
        self._app = app
        self._admission = Admission(auth, None)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and await self._admission.serve_document(_request(scope, receive, send)):
            return
        await self._app(scope, receive, send)


def _is_mcp(request: HttpRequestHead) -> bool:
    """MCP clients accept a stream with every request; other routes' clients would not know what a JSON-RPC error is."""
    return "text/event-stream" in (request.headers.get("accept") or "")


def _is_preflight(request: HttpRequestHead) -> bool:
    return request.method == "OPTIONS" and request.headers.get("access-control-request-method") is not None
