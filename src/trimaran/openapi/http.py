"""Requests to an API over HTTP, by aiohttp: one pool of connections, whole answers within a limit, no redirect elsewhere.

Where the API is, is for the log alone: callers may be strangers, and it may stand inside.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any, Final
from urllib.parse import urlsplit

import aiohttp
from yarl import URL

from trimaran.errors import ConfigError, ToolError
from trimaran.outage_log import Outage

from .document import MAX_BYTES
from .redirects import follow_redirects
from .requests import ApiRequest
from .responses import ApiResponse

_PIECE: Final = 65536
_FETCH_TIMEOUT: Final = 60.0  # seconds for a document
_log: Final = logging.getLogger("trimaran.openapi")


async def fetch_document(url: str) -> bytes:
    """The document at a URL.

    Raises:
        ConfigError: it cannot be fetched.
    """
    limits = aiohttp.ClientTimeout(total=_FETCH_TIMEOUT)
    try:
        async with aiohttp.ClientSession(timeout=limits) as session, session.get(url) as response:
            if response.status != 200:
                raise ConfigError(f"{url} answered {response.status} {response.reason}; expected an OpenAPI document")
            data = bytearray()
            async for piece in response.content.iter_chunked(_PIECE):
                data += piece
                if len(data) > MAX_BYTES:
                    raise ConfigError(f"{url} is larger than {MAX_BYTES} bytes")
    except (aiohttp.ClientError, OSError, TimeoutError) as error:
        raise ConfigError(f"{url} cannot be fetched: {error or type(error).__name__}") from None
    return bytes(data)


class HttpSend:
    """Sends requests below one base URL; `has_other_servers`: those of operations with a server of their own go there."""

    def __init__(self, base_url: str, *, timeout: float, most_bytes: int, has_other_servers: bool = False) -> None:
        self._base_url = base_url
        self._has_other_servers = has_other_servers
        self._timeout = timeout
        self._most_bytes = most_bytes
        self._session: aiohttp.ClientSession | None = None
        self._outage = Outage(_log, "the API can be reached again")

    async def __aenter__(self) -> None:
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())

    async def __aexit__(self, *error: Any) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def __call__(self, request: ApiRequest) -> ApiResponse:
        base_url = (self._has_other_servers and request.server_url) or self._base_url
        host = urlsplit(base_url).netloc
        try:
            async with asyncio.timeout(self._timeout):
                response = await follow_redirects(self._send, request, base_url)
        except TimeoutError:
            raise ToolError(f"the API did not answer within {self._timeout:g} s") from None
        except aiohttp.ClientResponseError as error:
            raise ToolError(f"the API at {host} sent an invalid answer: {error.message}") from None
        except (aiohttp.ClientError, OSError) as error:
            self._outage.failed(f"the API at {host} cannot be reached: {error}")
            raise ToolError("the API cannot be reached at the moment") from None
        self._outage.succeeded()
        return response

    async def _send(self, request: ApiRequest, url: str) -> ApiResponse:
        assert self._session is not None, "the server's lifespan opens the session"
        # `encoded`: what is percent-encoded in a path stays so.
        async with self._session.request(
            request.method,
            URL(url, encoded=True),
            headers=request.all_headers,
            data=request.body,
            allow_redirects=False,
        ) as response:
            headers = {name.lower(): ", ".join(response.headers.getall(name)) for name in response.headers}
            return ApiResponse(response.status, response.content_type or "", await self._read(response), headers)

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        pieces: list[bytes] = []
        size = 0
        async for piece in response.content.iter_chunked(_PIECE):
            size += len(piece)
            if size > self._most_bytes:
                raise ToolError(f"the API's answer is larger than {self._most_bytes} bytes; ask for less of it")
            pieces.append(piece)
        return b"".join(pieces)
