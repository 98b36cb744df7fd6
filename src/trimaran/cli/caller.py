"""The tour's own client: MCP over HTTP/1.1 on bare asyncio streams, one connection per message.

It exists so that the tour shows what is on the wire and loads no HTTP library. `ModernCaller` speaks 2026-07-28, where
each request stands for itself; `LegacyCaller` speaks 2025-11-25, with its handshake, its session and the requests the
server sends on the stream of a call. Neither is a client for anybody else.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final, final
from urllib.parse import urlsplit

import msgspec

from trimaran.depth import decode_json
from trimaran.errors import CallError, ConnectFailed, Disconnected, TimedOut
from trimaran.protocol.headers import encode_value
from trimaran.protocol.sse import SSEParser
from trimaran.protocol.versions import LATEST_LEGACY, MODERN
from trimaran.transports.reasons import connection_reason

__all__ = ["LegacyCaller", "ModernCaller"]

Params = dict[str, Any]
OnProgress = Callable[[Params], None]
OnRequest = Callable[[str, Params], Params]

_META: Final = "io.modelcontextprotocol/"
_INFO: Final[Params] = {"name": "trimaran-tour", "version": "1.0.0"}
_CAPABILITIES: Final[Params] = {"elicitation": {"form": {}}}
_SECONDS: Final = 10.0  # every station of the tour takes well under one; what takes ten is stuck
# Which field of the params a request names itself by, in the Mcp-Name header.
_NAMED_BY: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


@final
class _Response:
    """Status and headers of an answer, and its messages as they come."""

    def __init__(self, status: int, headers: Mapping[str, str], reader: asyncio.StreamReader) -> None:
        self.status = status
        self.headers = headers
        self._reader = reader

    async def messages(self) -> AsyncIterator[Params]:
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            parser = SSEParser()
            async for chunk in self._chunks():
                for event in parser.feed(chunk):
                    yield decode_json(event.data)
            return
        body = b"".join([chunk async for chunk in self._chunks()])
        if body:
            yield decode_json(body)

    async def _chunks(self) -> AsyncIterator[bytes]:
        if self.headers.get("transfer-encoding", "").lower() != "chunked":
            yield await self._reader.readexactly(int(self.headers.get("content-length", 0)))
            return
        while size := int(await self._reader.readline(), 16):
            yield await self._reader.readexactly(size)
            await self._reader.readexactly(2)


@asynccontextmanager
async def _open_post(url: str, message: Params, headers: Mapping[str, str]) -> AsyncGenerator[_Response, None]:
    """Send one message; what fails on the way is said as one of our errors."""
    parts = urlsplit(url)
    body = msgspec.json.encode({"jsonrpc": "2.0", **message})
    head = {
        "Host": parts.netloc,
        "Connection": "close",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "Accept": "application/json, text/event-stream",
        **headers,
    }
    lines = [f"POST {parts.path} HTTP/1.1", *(f"{name}: {value}" for name, value in head.items())]
    try:
        async with asyncio.timeout(_SECONDS):
            reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
            try:
                writer.write("\r\n".join([*lines, "", ""]).encode("ascii") + body)
                status = int((await reader.readline()).split()[1])
                received: dict[str, str] = {}
                while line := (await reader.readline()).decode("latin-1").strip():
                    name, _, value = line.partition(":")
                    received[name.lower()] = value.strip()
                yield _Response(status, received, reader)
            finally:
                writer.close()
    except TimeoutError:
        raise TimedOut(f"no answer to {message.get('method')} from {url} within {_SECONDS:g} s") from None
    except (asyncio.IncompleteReadError, IndexError, ValueError):
        raise Disconnected(f"the connection to {url} ended in the middle of an answer") from None
    except OSError as error:
        raise ConnectFailed(f"no connection to {url}: {connection_reason(error) or error}") from None


def _result(message: Params, method: str) -> Params:
    if "error" in message:
        error = message["error"]
        raise CallError(error["code"], f"{method}: {error['message']}", error.get("data"))
    return message["result"]


def _with_progress(params: Params | None, on_progress: OnProgress | None, id: int) -> Params:
    """The params with a progress token, if anybody wants to hear."""
    if on_progress is None:
        return dict(params or {})
    return {**(params or {}), "_meta": {"progressToken": id}}


@final
class ModernCaller:
    """Calls on 2026-07-28: no handshake, no session."""

    version = MODERN

    def __init__(self, url: str) -> None:
        self._url = url
        self._ids = itertools.count(1)

    async def call(self, method: str, params: Params | None = None, *, on_progress: OnProgress | None = None) -> Params:
        """The result, which may be `input_required`; a JSON-RPC error is raised."""
        id = next(self._ids)
        full = _with_progress(params, on_progress, id)
        meta: Params = {"protocolVersion": MODERN, "clientInfo": _INFO, "clientCapabilities": _CAPABILITIES}
        full["_meta"] = {**full.get("_meta", {}), **{_META + name: value for name, value in meta.items()}}
        headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        if method in _NAMED_BY:
            headers["Mcp-Name"] = encode_value(full[_NAMED_BY[method]])
        async with _open_post(self._url, {"id": id, "method": method, "params": full}, headers) as response:
            async for message in response.messages():
                if message.get("id") == id:
                    return _result(message, method)
                if message.get("method") == "notifications/progress" and on_progress is not None:
                    on_progress(message["params"])
        raise Disconnected(f"{method}: the answer ended (HTTP {response.status}) without a result")


@final
class LegacyCaller:
    """Calls on 2025-11-25: a handshake first, then a session."""

    version = LATEST_LEGACY

    def __init__(self, url: str) -> None:
        self._url = url
        self._ids = itertools.count(1)
        self.session_id = ""

    async def open(self) -> Params:
        """Shake hands; what the server says about itself."""
        hello: Params = {"protocolVersion": LATEST_LEGACY, "clientInfo": _INFO, "capabilities": _CAPABILITIES}
        result = await self.call("initialize", hello)
        await self._send({"method": "notifications/initialized"})
        return result

    async def call(self, method: str, params: Params | None = None, *, on_request: OnRequest | None = None) -> Params:
        """The result; what the server asks meanwhile is answered by `on_request`."""
        id = next(self._ids)
        async with _open_post(
            self._url, {"id": id, "method": method, "params": params or {}}, self._headers()
        ) as response:
            self.session_id = response.headers.get("mcp-session-id", self.session_id)
            async for message in response.messages():
                if "method" in message and "id" in message and on_request is not None:
                    answer = on_request(message["method"], message["params"])
                    await self._send({"id": message["id"], "result": answer})
                elif message.get("id") == id and "method" not in message:
                    return _result(message, method)
        raise Disconnected(f"{method}: the answer ended (HTTP {response.status}) without a result")

    async def _send(self, message: Params) -> None:
        async with _open_post(self._url, message, self._headers()) as response:
            if response.status >= 400:
                raise Disconnected(
                    f"the server refused {message.get('method', 'our answer')} with HTTP {response.status}"
                )

    def _headers(self) -> dict[str, str]:
        if not self.session_id:
            return {}
        return {"Mcp-Session-Id": self.session_id, "MCP-Protocol-Version": LATEST_LEGACY}
