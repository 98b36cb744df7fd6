"""Requests to an ASGI application in the same process: what `Server.from_fastapi` sends by. No socket is opened."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, MutableMapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from trimaran.errors import ToolError

from .redirects import follow_redirects
from .requests import ApiRequest
from .responses import ApiResponse

_BASE_URL: Final = "http://localhost"
_GRACE: Final = 5.0  # seconds for background tasks at the end; who stops a server waits for it
_log: Final = logging.getLogger("trimaran.openapi")


class _Lifespan:
    """The lifespan of an application: whether it runs, and what it yielded.

    An application that is served as well, or has the server mounted, is started by its own server; it must not start
    twice. Nothing in FastAPI tells, so its router's lifespan is wrapped.
    """

    def __init__(self, app: Any) -> None:
        self.state: Mapping[str, Any] = {}
        self._running = 0
        self._app = app
        self._router: Any = getattr(app, "router", None)
        self._own: Any = getattr(self._router, "lifespan_context", None)
        if self._own is not None:
            self._router.lifespan_context = self._watched

    @asynccontextmanager
    async def _watched(self, app: Any) -> AsyncGenerator[Any]:
        self._running += 1  # before: the server may be started by the application's lifespan
        try:
            async with self._own(app) as state:
                self.state = state or {}
                yield state
        finally:
            self._running -= 1

    async def enter(self, stack: AsyncExitStack) -> None:
        """Run it until `stack` is left, unless somebody runs it."""
        if self._own is not None and not self._running:
            await stack.enter_async_context(self._router.lifespan_context(self._app))


class AsgiSend:
    """Sends requests to `app`, and starts and stops it with the server unless it is served otherwise."""

    def __init__(self, app: Any, *, timeout: float, most_bytes: int) -> None:
        self._app = app
        self._timeout = timeout
        self._most_bytes = most_bytes
        self._lifespan = _Lifespan(app)
        self._stack = AsyncExitStack()
        self._calls: set[asyncio.Future[None]] = set()

    async def __aenter__(self) -> None:
        await self._lifespan.enter(self._stack)

    async def __aexit__(self, *error: Any) -> None:
        if self._calls:
            await asyncio.wait(self._calls, timeout=_GRACE)
        for call in self._calls:
            call.cancel()
        await self._stack.aclose()

    async def __call__(self, request: ApiRequest) -> ApiResponse:
        try:
            async with asyncio.timeout(self._timeout):
                return await follow_redirects(self._run, request, _BASE_URL)
        except TimeoutError:
            raise ToolError(f"the application did not answer within {self._timeout:g} s") from None

    async def _run(self, request: ApiRequest, url: str) -> ApiResponse:
        response = ApiResponse(500, "", b"")
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        is_read = False

        async def receive() -> dict[str, Any]:
            nonlocal is_read
            if is_read:
                await asyncio.Event().wait()  # the client stays until the answer is there
            is_read = True
            return {"type": "http.request", "body": request.body or b"", "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
            if answered.done():
                return
            if message["type"] == "http.response.start":
                response.status = message["status"]
                for raw_name, raw_value in message.get("headers", ()):
                    name, value = bytes(raw_name).decode("latin-1").lower(), bytes(raw_value).decode("latin-1")
                    known = response.headers.get(name)
                    response.headers[name] = f"{known}, {value}" if known else value
                response.media_type = response.headers.get("content-type", "")
            elif message["type"] == "http.response.body":
                response.body += message.get("body", b"")
                if len(response.body) > self._most_bytes:
                    raise ToolError(f"the application's answer is larger than {self._most_bytes} bytes")
                if not message.get("more_body", False):
                    answered.set_result(None)

        def end(call: asyncio.Future[None]) -> None:
            self._calls.discard(call)
            error = None if call.cancelled() else call.exception()
            if not answered.done():
                answered.set_exception(error) if error else answered.set_result(None)
            elif error is not None:  # Starlette answers 500 and raises all the same; a background task may fail
                _log.error("%s %s failed after its answer", request.method, request.path, exc_info=error)

        # A task of its own: what the application does behind its answer, such as FastAPI's background tasks, is no part
        # of the call.
        call = asyncio.ensure_future(self._app(self._scope(request, url), receive, send))
        self._calls.add(call)
        call.add_done_callback(end)
        try:
            await answered
        except asyncio.CancelledError:
            call.cancel()
            raise
        return response

    def _scope(self, request: ApiRequest, url: str) -> dict[str, Any]:
        headers = {"host": "localhost", **request.all_headers}
        place = urlsplit(url)
        if request.body is not None:
            headers["content-length"] = str(len(request.body))
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": "http",
            "path": unquote(place.path),
            "raw_path": place.path.encode(),
            "query_string": place.query.encode(),
            "root_path": "",
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
            "client": ("127.0.0.1", 0),
            "server": ("localhost", 80),
            "state": dict(self._lifespan.state),
        }
