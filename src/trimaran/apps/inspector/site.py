"""The inspector on HTTP: our own server, who may come in, the interface, and the files of the page.

`trimaran.Server` carries it with custom routes, the same that every author has: no second HTTP library is loaded, which
would cost half a second before the first byte. Its MCP endpoint is closed to everybody.
"""

from __future__ import annotations

import mimetypes
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import msgspec

from trimaran.auth.refusal import Refused
from trimaran.errors import Error, ProtocolError
from trimaran.files import read_file
from trimaran.serve import HttpServer
from trimaran.server.routes import RouteRequest
from trimaran.server.server import Server

from .failures import PageFailure, failure_of
from .interface import calls as call_routes
from .interface import checks as check_routes
from .interface import experiments as experiment_routes
from .interface import servers as server_routes
from .interface import sessions as session_routes
from .interface import wire as wire_routes
from .interface.routing import PageRequest, Reply, Route, RouteTable
from .requests import BadRequest, NotThere

if TYPE_CHECKING:
    from .inspector import Inspector

__all__ = ["PAGE", "Site"]

PAGE: Final = Path(__file__).parent / "page"
"""The built page. It is not in a checkout: `make page` builds it."""
_MOST_BODY: Final = 256 * 1024 * 1024  # a recording that somebody mailed
_MOST_LOGIN: Final = 4096
_MOST_FILE: Final = 32 * 1024 * 1024  # the page's bundle is a hundredth of it
_DEPTH: Final = 7  # segments of the longest path
_METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
_CSP: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
    "media-src 'self' data: blob:; font-src 'self' data:; connect-src 'self'; frame-src 'self'; worker-src 'self' blob:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_EVERYWHERE: Final = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
}
_ENCODINGS: Final = (("br", ".br"), ("gzip", ".gz"))
_NO_PAGE: Final = (
    "<!doctype html><meta charset=utf-8><title>trimaran inspect</title><h1>The page is not built</h1><p>Trimaran was "
    "installed without it. In a checkout, run <code>make page</code> (it needs Node and npm), then reload. The interface below "
    "<code>/api</code> works without it.</p>"
)
_NO_SESSION: Final = (
    "the session is missing: open the link that trimaran inspect printed, or POST its token to /api/login and send the "
    "session as Authorization: Bearer; the cookie opens the page only"
)
_SESSION_TAG: Final = "trimaran-session"
_NO_ENTRY: Final = (
    "<!doctype html><meta charset=utf-8><title>trimaran inspect</title><h1>This link was used</h1><p>The link that "
    "<code>trimaran inspect</code> opens or prints works once, in one browser. If you have not used it, open the one in your "
    "terminal; else start the command again for a new one.</p>"
)
RawReply = tuple[int, bytes, dict[str, str]]


class _NobodyMcp:
    """The authenticator of the endpoint that nobody uses."""

    async def authenticate(self, request: object) -> None:
        raise Refused("invalid_credentials", "this is the inspector, not an MCP server")


@final
class Site:
    """Serves one inspector: `async with Site(inspector, port=0) as site: print(site.link)`."""

    def __init__(self, inspector: Inspector, *, port: int = 0, page: Path = PAGE) -> None:
        self._inspector = inspector
        self._page = page
        self._router = RouteTable(ROUTES)
        server = Server("trimaran-inspector", max_body_bytes=_MOST_BODY, max_incoming_body_bytes=_MOST_BODY)
        for depth in range(_DEPTH + 1):
            path = "/" + "/".join(f"{{p{number}}}" for number in range(depth))
            server.custom_route(path, methods=list(_METHODS))(self._serve)
        self._http = HttpServer(
            server, host="127.0.0.1", port=port, path="/.mcp", auth=_NobodyMcp(), legacy=False, health=False
        )

    async def __aenter__(self) -> Site:
        await self._http.start()
        self._inspector.access.port = self._http.port
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self._inspector.close()
        await self._http.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    @property
    def port(self) -> int:
        return self._http.port

    @property
    def link(self) -> str:
        """Where to point a browser, with the token that works once."""
        return f"{self.url}?token={self._inspector.access.token}"

    @property
    def opening_link(self) -> str:
        """The link for a browser that this program starts. Other users of the machine can read it; see `access.py`."""
        return f"{self.url}?token={self._inspector.access.opening_token}"

    @property
    def has_page(self) -> bool:
        return (self._page / "index.html").is_file()

    async def _serve(self, request: RouteRequest) -> Any:
        reply = await self._answer(request)
        if callable(reply):
            return reply
        status, body, headers = reply
        return status, body, {**_EVERYWHERE, **headers}

    async def _answer(self, request: RouteRequest) -> Any:
        access = self._inspector.access
        if not access.is_from_here(request.headers):
            return _failed(403, "this request does not come from the inspector's own page")
        token = request.query_params.get("token")
        if request.path == "/" and request.method == "GET" and token is not None:
            return self._enter(token, request)
        if request.path == "/api/login" and request.method == "POST":
            return self._log_in(request)
        if request.path.startswith("/api/"):
            return await self._call(request) if access.has_session(request.headers) else _failed(401, _NO_SESSION)
        if not (access.has_cookie(request.headers) or access.has_session(request.headers)):
            return 401, _NO_ENTRY.encode(), _html()
        if request.path.startswith("/frame/"):
            return self._frame(request.path.removeprefix("/frame/"))
        if request.method != "GET":
            return _failed(405, "pages are read with GET")
        return self._file(request)

    def _enter(self, token: str, request: RouteRequest) -> RawReply:
        access = self._inspector.access
        session = access.redeem(token)
        if session is None:
            if access.has_cookie(request.headers):
                return 303, b"", {"location": "/", "cache-control": "no-store"}
            return 401, _NO_ENTRY.encode(), _html()
        status, body, headers = self._index()
        # The page takes the session out of this document, and the token out of the address.
        body = body.replace(b"</head>", f'<meta name="{_SESSION_TAG}" content="{session}"></head>'.encode(), 1)
        return status, body, {**headers, "set-cookie": access.cookie(), "cache-control": "no-store"}

    def _index(self) -> RawReply:
        file = self._page / "index.html"
        return 200, read_file(file, _MOST_FILE) if file.is_file() else _NO_PAGE.encode(), _html()

    def _log_in(self, request: RouteRequest) -> RawReply:
        if len(request.body) > _MOST_LOGIN:  # it is read for anybody
            return _failed(400, "the body is larger than a token")
        try:
            token = PageRequest(
                self._inspector,
                "POST",
                request.path,
                variables={},
                query={},
                headers=request.headers,
                body=request.body,
            ).text("token")
        except BadRequest as error:
            return _failed(400, str(error))
        session = self._inspector.access.redeem(token)
        if session is None:
            return _failed(401, "this token is not valid: it works once")
        return _json(200, {"session": session})

    # The interface

    async def _call(self, request: RouteRequest) -> Any:
        route = self._router.find(request.method, request.path)
        if isinstance(route, list):
            allowed = ", ".join(route)
            return _failed(405, f"use {allowed}") if route else _failed(404, f"there is no {request.path[:200]}")
        entry, variables = route
        api_request = PageRequest(
            self._inspector,
            request.method,
            request.path,
            variables=variables,
            query=request.query_params,
            headers=request.headers,
            body=request.body,
        )
        try:
            value = await entry.handler(api_request)
        except Exception as error:
            return _refusal(error)
        reply = value if isinstance(value, Reply) else Reply(value=value)
        if reply.stream is not None:
            return _Streamed(reply)
        body = reply.body if reply.body is not None else msgspec.json.encode(reply.value)
        return reply.status, body, {"content-type": reply.content_type, "cache-control": "no-store", **reply.headers}

    def _frame(self, key: str) -> RawReply:
        frame = self._inspector.frames.get(key)
        if frame is None:
            return _failed(404, "this view was closed")
        headers = {
            "content-type": "text/html; charset=utf-8",
            "content-security-policy": frame.csp,
            "cache-control": "no-store",
            "cross-origin-opener-policy": "unsafe-none",
        }
        return 200, frame.html.encode("utf-8", "replace"), headers

    # The page

    def _file(self, request: RouteRequest) -> RawReply:
        if request.path == "/":
            return self._index()
        name = request.path.lstrip("/")
        try:
            file = (self._page / name).resolve()
            is_ours = file.is_relative_to(self._page.resolve()) and file.is_file()
        except (OSError, ValueError):  # a name longer than names can be
            file, is_ours = self._page, False
        if not is_ours:
            return _failed(404, "there is no such file")
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        if kind.startswith("text/") or kind in ("application/javascript", "application/json", "image/svg+xml"):
            kind += "; charset=utf-8"
        is_hashed = name.startswith("assets/")
        headers = {
            "content-type": kind,
            "content-security-policy": _CSP,
            "cache-control": "private, max-age=31536000, immutable" if is_hashed else "no-cache",
            "vary": "accept-encoding",
        }
        accepted = request.headers.get("accept-encoding") or ""
        for coding, suffix in _ENCODINGS:
            packed = file.with_name(file.name + suffix)
            if coding in accepted and packed.is_file():
                return 200, read_file(packed, _MOST_FILE), {**headers, "content-encoding": coding}
        return 200, read_file(file, _MOST_FILE), headers


@final
class _Streamed:
    """A streamed answer, as the ASGI response that a route may return."""

    def __init__(self, reply: Reply) -> None:
        self._reply = reply

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        import asyncio

        reply = self._reply
        assert reply.stream is not None
        names = {**_EVERYWHERE, "content-type": reply.content_type, "cache-control": "no-store", **reply.headers}
        headers = [(name.encode(), value.encode()) for name, value in names.items()]
        await receive()  # the body, which was read
        gone = asyncio.ensure_future(receive())
        sending = asyncio.ensure_future(self._send(send, reply, headers))
        try:
            await asyncio.wait((gone, sending), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (gone, sending):
                task.cancel()
            await asyncio.wait((gone, sending))
            await reply.stream.aclose()

    async def _send(self, send: Any, reply: Reply, headers: list[tuple[bytes, bytes]]) -> None:
        assert reply.stream is not None
        await send({"type": "http.response.start", "status": reply.status, "headers": headers})
        async for piece in reply.stream:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def get_state(request: PageRequest) -> Any:
    return request.inspector.state()


async def get_events(request: PageRequest) -> Any:
    last = request.headers.get("last-event-id")
    after = int(last) if last is not None and last.isdecimal() else request.number("after", 0) or 0
    return Reply(stream=request.inspector.events.stream(after), content_type="text/event-stream")


ROUTES: Final = (
    Route("GET", "/api/state", get_state),
    Route("GET", "/api/events", get_events),
    *server_routes.ROUTES,
    *call_routes.ROUTES,
    *wire_routes.ROUTES,
    *check_routes.ROUTES,
    *session_routes.ROUTES,
    *experiment_routes.ROUTES,
)


def _html() -> dict[str, str]:
    return {"content-type": "text/html; charset=utf-8", "content-security-policy": _CSP, "cache-control": "no-store"}


def _json(status: int, value: Any) -> RawReply:
    return status, msgspec.json.encode(value), {"content-type": "application/json", "cache-control": "no-store"}


def _failed(status: int, message: str) -> RawReply:
    return _json(status, {"error": PageFailure(blame="client", kind="Refused", message=message)})


def _refusal(error: Exception) -> RawReply:
    """The answer to a request whose handler failed."""
    failure = failure_of(error)
    if isinstance(error, BadRequest):
        return _json(error.status, {"error": failure, **error.details})
    status = getattr(error, "status", None)
    if isinstance(error, NotThere) or (isinstance(error, Error) and status == 409):
        return _json(int(status or 404), {"error": failure})
    if not isinstance(error, Error):
        import logging

        logging.getLogger("trimaran.inspector").error("a request of the page failed", exc_info=error)
        return _json(500, {"error": failure})
    return _json(502 if isinstance(error, ProtocolError) or failure.blame != "client" else 400, {"error": failure})
