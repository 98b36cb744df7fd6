"""Requests to an ASGI application in the same process: what `Server.from_fastapi` sends by. No socket is opened."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any
from urllib.parse import unquote

from trimaran.errors import ToolError

from .requests import ApiRequest
from .responses import ApiResponse

__all__ = ["AsgiSend"]


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
                return await self._run(request)
        except TimeoutError:
            raise ToolError(f"the application did not answer within {self._timeout:g} s") from None

    async def _run(self, request: ApiRequest) -> ApiResponse:
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
                fields = {bytes(name).lower(): bytes(value) for name, value in message.get("headers", ())}
                response.media_type = fields.get(b"content-type", b"").decode("latin-1")
            elif message["type"] == "http.response.body":
                response.body += message.get("body", b"")
                if len(response.body) > self._most_bytes:
                    raise ToolError(f"the application's answer is larger than {self._most_bytes} bytes")

        await self._app(_scope(request), receive, send)
        return response


def _scope(request: ApiRequest) -> dict[str, Any]:
    headers = {"host": "localhost", **request.headers}
    if request.cookies:
        headers["cookie"] = "; ".join(f"{name}={value}" for name, value in request.cookies.items())
    if request.body is not None:
        headers["content-length"] = str(len(request.body))
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": "http",
        "path": unquote(request.path),
        "raw_path": request.path.encode(),
        "query_string": "&".join(request.query).encode(),
        "root_path": "",
        "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers.items()],
        "client": ("127.0.0.1", 0),
        "server": ("localhost", 80),
    }
