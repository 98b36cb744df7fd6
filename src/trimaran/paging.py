"""Read a list that comes in pages, to its end and no further than a bound (R38).

`walk_pages` asks a function for page after page, and yields the entries one by one. It takes every shape that pages have
here: what a client's `list_*` returns, `(items, next_cursor)` as hand-written lists return it, a plain list, and a result as it
is on the wire. It fetches the next page only when somebody wants an entry of it.

A peer decides how many pages there are, so the number is bounded, and a cursor that comes twice ends the walk with an error.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar, cast, overload

from .errors import CODE_INVALID_REQUEST, RemoteProtocolError, TooManyPages

T = TypeVar("T")
Plain: TypeAlias = T | Awaitable[T]

MAX_PAGES: Final = 1000
"""More than any server has, few enough to end soon: a thousand pages of a thousand entries."""


@overload
def walk_pages(
    fetch: Callable[[str | None], Plain[tuple[Sequence[T], str | None]]], *, max_pages: int = ..., what: str = ...
) -> AsyncIterator[T]: ...
@overload
def walk_pages(
    fetch: Callable[[str | None], Plain[Sequence[T]]], *, max_pages: int = ..., what: str = ...
) -> AsyncIterator[T]: ...
@overload
def walk_pages(
    fetch: Callable[[str | None], Plain[Mapping[str, object]]], *, max_pages: int = ..., what: str = ...
) -> AsyncIterator[Any]: ...
async def walk_pages(
    fetch: Callable[[str | None], object], *, max_pages: int = MAX_PAGES, what: str = "the list"
) -> AsyncIterator[Any]:
    """Yield every entry of a list that comes in pages.

    Args:
        fetch: gets the cursor of a page, None for the first; plain or async.
        max_pages: how many pages there may be.
        what: what the list is called in errors.

    Raises:
        TooManyPages: there are more.
        RemoteProtocolError: a cursor came twice.
    """
    seen: set[str] = set()
    cursor: str | None = None
    for _ in range(max_pages):
        page = fetch(cursor)
        items, cursor = _read(await page if inspect.isawaitable(page) else page)
        for item in items:
            yield item
        if cursor is None:
            return
        if cursor in seen:
            raise RemoteProtocolError(
                CODE_INVALID_REQUEST, f"{what} goes in circles: the cursor {cursor[:80]!r} came twice"
            )
        seen.add(cursor)
    raise TooManyPages(f"{what} has more than {max_pages} pages; allow more with max_pages, or read page by page")


def _read(page: Any) -> tuple[Sequence[Any], str | None]:
    """The entries of a page, and the cursor of the next one."""
    if isinstance(page, tuple):
        items, cursor = cast("tuple[Sequence[Any], str | None]", page)
        return items, cursor
    if isinstance(page, Mapping):
        result = cast("Mapping[str, Any]", page)
        lists: list[Any] = [value for value in result.values() if isinstance(value, list)]
        if len(lists) != 1:
            raise RemoteProtocolError(CODE_INVALID_REQUEST, f"a page has one list of entries; this has {len(lists)}")
        return lists[0], result.get("nextCursor")
    return page, getattr(page, "next_cursor", None)
