"""Redirects of an API: followed within its origin, whoever sends the requests. Elsewhere nothing is sent.

A request that changes something is sent again only where HTTP says that it must be the same request (307, 308: a slash
that was missing). After 303 the answer is fetched from where it is.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Final
from urllib.parse import urljoin, urlsplit

from msgspec.structs import replace

from trimaran.errors import ToolError

from .requests import ApiRequest
from .responses import ApiResponse

_MAX_REDIRECTS: Final = 5
_SAFE: Final = ("GET", "HEAD")
_log: Final = logging.getLogger("trimaran.openapi")


async def follow_redirects(
    send: Callable[[ApiRequest, str], Awaitable[ApiResponse]], request: ApiRequest, base_url: str
) -> ApiResponse:
    """Send a request, and again where the answer says it belongs.

    Raises:
        ToolError: it belongs to another origin, or nowhere.
    """
    url = request.url(base_url)
    origin = urlsplit(url)[:2]
    for _ in range(_MAX_REDIRECTS):
        response = await send(request, url)
        target = response.headers.get("location") if 300 <= response.status < 400 else None
        if target is None:
            return response
        url = urljoin(url, target)
        if response.status == 303 and request.method not in _SAFE:
            headers = {name: value for name, value in request.headers.items() if name != "content-type"}
            request = replace(request, method="GET", body=None, headers=headers)
        is_same = request.method in _SAFE or response.status in (307, 308)
        if urlsplit(url)[:2] != origin or not is_same:
            _log.debug("%s %s redirects to %.200s", request.method, request.path, url)
            raise ToolError(f"the API redirects {request.method} to another address, which is not followed")
    raise ToolError("the API redirects in a circle")
