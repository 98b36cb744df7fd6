"""Bare HTTP for the doctor: one request, one answer, nothing followed, nothing forgiven.

aiohttp is imported when the first request is made.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import time
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast, final

from msgspec import Struct

from trimaran.depth import decode_json
from trimaran.errors import Error, TransportError
from trimaran.protocol.sse import SSEParser
from trimaran.protocol.versions import MODERN

from .process import hello, modern_meta

if TYPE_CHECKING:
    import aiohttp

_MAX_BODY: Final = 1024 * 1024  # the most that the doctor reads of any answer
_ACCEPT: Final = "application/json, text/event-stream"
_ids = itertools.count(1)


class Unanswered(Error):
    """No answer at all; the text says why."""


@final
class ProbeReply(Struct, kw_only=True):
    """The answer to one request."""

    status: int
    headers: Mapping[str, str]
    """By lower-case name."""
    body: bytes
    seconds: float
    """Until the head of the answer was there."""
    message: dict[str, Any] | None = None
    """The JSON-RPC reply, from JSON or from a stream."""
    first_event: float | None = None
    """Seconds until the first event, of a stream."""

    @property
    def kind(self) -> str:
        """The content type without its parameters."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()

    @property
    def code(self) -> int | None:
        """The code of a JSON-RPC error."""
        error: Any = (self.message or {}).get("error")
        code: Any = cast("dict[str, Any]", error).get("code") if isinstance(error, dict) else None
        return code if isinstance(code, int) else None

    @property
    def result(self) -> dict[str, Any] | None:
        """The JSON-RPC result, if it is an object."""
        result: Any = (self.message or {}).get("result")
        return cast("dict[str, Any]", result) if isinstance(result, dict) else None

    def describe(self) -> str:
        """Status, content type and error code, as far as there are any."""
        parts = [f"HTTP {self.status}"]
        if self.kind:
            parts.append(self.kind)
        if self.code is not None:
            parts.append(f"error {self.code}")
        return ", ".join(parts)


def modern_request(
    method: str, params: Mapping[str, Any] | None = None, headers: Mapping[str, str] | None = None
) -> tuple[dict[str, str], bytes]:
    """Headers and body of a 2026-07-28 request; `headers` replaces some of them."""
    message = {
        "jsonrpc": "2.0",
        "id": next(_ids),
        "method": method,
        "params": {**(params or {}), "_meta": modern_meta()},
    }
    request_headers = {"MCP-Protocol-Version": MODERN, "Mcp-Method": method, **(headers or {})}
    return request_headers, json.dumps(message).encode()


def legacy_hello() -> tuple[dict[str, str], bytes]:
    """Headers and body of an `initialize`."""
    return {}, json.dumps({"jsonrpc": "2.0", "id": next(_ids), "method": "initialize", "params": hello()}).encode()


@final
class ProbeConnection:
    """Requests to one server, with the headers the person gave."""

    def __init__(self, headers: Mapping[str, str], seconds: float) -> None:
        self._headers = headers
        self._seconds = seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        import aiohttp

        self._session = aiohttp.ClientSession(
            timeout=aiohttp.ClientTimeout(total=self._seconds),
            # Each question on a connection of its own: an answer must not depend on the one before.
            connector=aiohttp.TCPConnector(force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def post(self, url: str, message: tuple[Mapping[str, str], bytes], **headers: str) -> ProbeReply:
        """Send one message; keyword headers are written with underscores."""
        own_headers, body = message
        extra = {name.replace("_", "-"): value for name, value in headers.items()}
        base = {"Content-Type": "application/json", "Accept": _ACCEPT}
        return await self.send("POST", url, {**base, **own_headers, **extra}, body)

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers that the person adds to every request."""
        return self._headers

    async def post_bare(self, url: str, message: tuple[Mapping[str, str], bytes]) -> ProbeReply:
        """Send one message without the person's own headers."""
        own_headers, body = message
        base = {"Content-Type": "application/json", "Accept": _ACCEPT}
        return await self.send("POST", url, {**base, **own_headers}, body, bare=True)

    async def send(
        self,
        verb: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        *,
        bare: bool = False,
    ) -> ProbeReply:
        """Send one request; `bare` leaves the person's own headers out.

        Raises:
            Unanswered: no HTTP answer came.
        """
        import aiohttp

        assert self._session is not None
        begun = time.perf_counter()
        sent = {**({} if bare else self._headers), **(headers or {})}
        try:
            async with self._session.request(verb, url, headers=sent, data=body, allow_redirects=False) as response:
                answer = ProbeReply(
                    status=response.status,
                    headers={name.lower(): value for name, value in response.headers.items()},
                    body=b"",
                    seconds=time.perf_counter() - begun,
                )
                if answer.kind == "text/event-stream":
                    await self._read_stream(response, answer, begun)
                else:
                    answer.body = await _read_some(response)
                    answer.message = _parse(answer.body)
                return answer
        except TimeoutError:
            raise Unanswered(f"no answer within {self._seconds:g} s") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise Unanswered(str(error) or type(error).__name__) from None

    async def _read_stream(self, response: aiohttp.ClientResponse, answer: ProbeReply, begun: float) -> None:
        """Read events until one answers, or holds still for a moment; a stream need not end."""
        parser = SSEParser()
        size = 0
        with contextlib.suppress(TimeoutError, TransportError):
            async with asyncio.timeout(min(self._seconds, 2.0)):
                async for chunk in response.content.iter_any():
                    size += len(chunk)
                    for event in parser.feed(chunk):
                        if answer.first_event is None:
                            answer.first_event = time.perf_counter() - begun
                        if event.event == "endpoint":  # HTTP+SSE begins with it
                            return
                        message = _parse(event.data)
                        if message is not None and ("result" in message or "error" in message):
                            answer.message = message
                            return
                        if message is not None and str(message.get("method", "")).endswith("acknowledged"):
                            return
                    if size > _MAX_BODY:
                        return


async def _read_some(response: aiohttp.ClientResponse) -> bytes:
    data = b""
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > _MAX_BODY:
            break
    return data


def _parse(body: bytes) -> dict[str, Any] | None:
    try:
        value = decode_json(body)
    except ValueError:
        return None
    if not isinstance(value, dict):
        return None
    message = cast("dict[str, Any]", value)
    return message if message.get("jsonrpc") == "2.0" else None
