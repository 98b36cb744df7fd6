"""Requests to an ASGI application in the same process: what `Server.from_fastapi` sends by. No socket is opened."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from trimaran.errors import ToolError

from .redirects import follow_redirects
from .requests import ApiRequest
from .responses import ApiResponse

_BASE_URL: Final = "http://localhost"


class AsgiSend:
    """Sends requests to `app`. The application's own lifespan is not run: whoever serves it does that."""

    def __init__(self, app: Any, *, timeout: float, most_bytes: int) -> None:
        self._app = app
        self._timeout = timeout
        self._most_bytes = most_bytes

    async def __aenter__(self) -> None: ...

    async def __aexit__(self, *error: Any) -> None: ...

    async def __call__(self, request: ApiRequest) -> ApiResponse:
        try:
            async with asyncio.timeout(self._timeout):
                return await follow_redirects(self._run, request, _BASE_URL)
        except TimeoutError:
            raise ToolError(f"the application did not answer within {self._timeout:g} s") from None

    async def _run(self, request: ApiRequest, url: str) -> ApiResponse:
        response = ApiResponse(500, "", b"")
        is_read = False

        async def receive() -> dict[str, Any]:
            nonlocal is_read
            if is_read:
                await asyncio.Event().wait()  # the client stays until the answer is there
            is_read = True
            return {"type": "http.request", "body": request.body or b"", "more_body": False}

        async def send(message: MutableMapping[str, Any]) -> None:
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

        await self._app(_scope(request, url), receive, send)
        return response


def _scope(request: ApiRequest, url: str) -> dict[str, Any]:
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
    }
