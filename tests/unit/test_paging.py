"""Walking lists that come in pages, whatever shape the pages have (R38)."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran import Context, Server, connect, walk_pages
from trimaran.client import Page
from trimaran.errors import RemoteProtocolError, TooManyPages

PAGES: dict[str | None, tuple[list[int], str | None]] = {None: ([1, 2], "b"), "b": ([], "c"), "c": ([3], None)}


async def as_pairs(cursor: str | None) -> Any:
    return PAGES[cursor]


def plainly(cursor: str | None) -> Any:
    return PAGES[cursor]


async def as_client_pages(cursor: str | None) -> Any:
    items, following = PAGES[cursor]
    return Page(items, next_cursor=following)


async def as_results(cursor: str | None) -> Any:
    items, following = PAGES[cursor]
    return {"tasks": items, **({"nextCursor": following} if following else {})}


@pytest.mark.parametrize("fetch", [as_pairs, plainly, as_client_pages, as_results])
async def test_every_entry_is_yielded_in_order(fetch: Any) -> None:
    """R38: hand-written lists return (items, next_cursor)."""
    assert [entry async for entry in walk_pages(fetch)] == [1, 2, 3]


async def test_a_plain_list_is_the_last_page() -> None:
    assert [entry async for entry in walk_pages(lambda cursor: [1, 2])] == [1, 2]


async def test_a_page_is_fetched_when_an_entry_of_it_is_wanted() -> None:
    asked: list[str | None] = []

    def fetch(cursor: str | None) -> Any:
        asked.append(cursor)
        return PAGES[cursor]

    entries = walk_pages(fetch)
    assert await anext(entries) == 1
    assert asked == [None]


async def test_a_list_without_end_ends_with_an_error() -> None:
    """R38: how many pages there are is for the peer to say, so there is a bound."""
    with pytest.raises(TooManyPages, match="the list has more than 3 pages; allow more with max_pages"):
        [entry async for entry in walk_pages(lambda cursor: ([1], (cursor or "") + "x"), max_pages=3)]
    with pytest.raises(RemoteProtocolError, match="boats goes in circles: the cursor 'x' came twice"):
        [entry async for entry in walk_pages(lambda cursor: ([1], "x"), what="boats")]


async def test_what_has_no_list_of_entries_is_no_page() -> None:
    with pytest.raises(RemoteProtocolError, match="one list of entries; this has 0"):
        [entry async for entry in walk_pages(lambda cursor: {"tasks": 5})]


async def test_the_lists_of_clients_and_of_callbacks_can_be_walked() -> None:
    """R3, R38."""

    class Callbacks:
        def server_info(self) -> Any:
            return {"name": "paged", "version": "1"}

        def list_tools(self, cursor: str | None, ctx: Context) -> Any:
            number = int(cursor or 0)
            tool = {"name": f"t{number}", "inputSchema": {"type": "object"}}
            return [tool], (str(number + 1) if number < 4 else None)

        def call_tool(self, name: str, arguments: Any, ctx: Context) -> str:
            return name

    async with connect(Server(callbacks=Callbacks())) as client:
        assert [tool.name async for tool in walk_pages(client.list_tools)] == ["t0", "t1", "t2", "t3", "t4"]
