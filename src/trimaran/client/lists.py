"""Lists of a server, page by page: from the cache, from the server, and what they teach about its tools."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, final

from trimaran.errors import CODE_INVALID_PARAMS, CallError, TimedOut, TooManyPages
from trimaran.paging import walk_pages

from .cache import Cache
from .capability_check import check_offered
from .connection import Connection
from .known_tools import KnownTools
from .options import MAX_TIMEOUT
from .results import Page, read_page

KEEP_BYTES: Final = 1024 * 1024  # of one result in the cache
_LIST_BYTES: Final = 64 * 1024 * 1024  # of all pages of a list, on the wire
_NO_PARAMS: Final[Mapping[str, Any]] = {}


@final
class Lists:
    """The lists of one client."""

    def __init__(self, connection: Connection, cache: Cache, tools: KnownTools) -> None:
        self._connection = connection
        self._options = connection.options
        self._cache = cache
        self._tools = tools

    async def page(self, method: str, cursor: str | None, fresh: bool) -> Page[Any]:
        """One page, from the cache if it is there."""
        check_offered(self._connection, method)
        params = page_params(cursor)
        if not fresh:
            cached = self._cache.get(method, params)
            if cached is not None:
                return cached.copy()  # the caller's own: what it does to it concerns nobody else
        try:
            return await self.fetch(method, cursor)
        except CallError as error:
            if cursor is not None and error.code == CODE_INVALID_PARAMS:
                self._cache.drop(method)  # the pages this cursor came from belong to a list that is gone
            raise

    async def fetch(self, method: str, cursor: str | None, *, is_internal: bool = False) -> Page[Any]:
        """One page from the server, taken note of unless the list changed while it was on its way."""
        cache_generation, tools_generation = self._cache.generation, self._tools.generation
        params = page_params(cursor)
        raw, _ = await self._connection.call(method, params, is_internal=is_internal)
        page = read_page(method, raw)
        size = page._size  # pyright: ignore[reportPrivateUsage]
        if method == "tools/list":
            is_current = self._tools.generation == tools_generation
            page[:] = self._tools.learn(page, over_http=self._mirrors, legacy=not self._is_modern, size=size)
            if is_current and cursor is None and page.next_cursor is None:
                self._tools.is_complete = True
        if self._options.cache and 0 < size <= KEEP_BYTES:
            self._cache.put(method, params, page.ttl_ms, page.copy(), generation=cache_generation, size=size)
        return page

    @property
    def _is_modern(self) -> bool:
        return self._connection.conversation.dialect.era == "modern"

    @property
    def _mirrors(self) -> bool:
        """True if annotated arguments also travel in headers."""
        return self._connection.conversation.link.is_http and self._is_modern

    async def all(self, method: str, max_pages: int, fresh: bool) -> list[Any]:
        """All pages, as one list."""
        options = self._options
        # Each page is a call with a deadline of its own; a server that has pages without end has as many deadlines.
        seconds = options.max_timeout or (options.timeout and max(MAX_TIMEOUT, options.timeout))
        items: list[Any] = []
        size = 0

        async def next_page(cursor: str | None) -> Page[Any]:
            nonlocal size
            page = await self.page(method, cursor, fresh)
            size += page._size  # pyright: ignore[reportPrivateUsage]
            if size > _LIST_BYTES:
                raise TooManyPages(f"{method} has more than {_LIST_BYTES} bytes; read it page by page")
            return page

        try:
            async with asyncio.timeout(seconds):
                async for item in walk_pages(next_page, max_pages=max_pages, what=method):
                    items.append(item)  # noqa: PERF401 - so that an error can say how far it came
        except TimeoutError:
            raise TimedOut(
                f"{method} has not come to its end within {seconds:g} s, after {len(items)} entries; "
                "read it page by page, or allow more with max_timeout"
            ) from None
        if method == "tools/list":
            self._tools.is_complete = True
        return items


def page_params(cursor: str | None) -> Mapping[str, Any]:
    return _NO_PARAMS if cursor is None else {"cursor": cursor}
