"""Registries: atomic writes, consistent reads, pages that stay where they were, live mounts (R21, R22, R38)."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.support.memory_peer import Peer

from trimaran import Server
from trimaran.errors import DeclarationError, ProtocolError
from trimaran.server.registry import Registry


class Thing:
    def __init__(self, key: str) -> None:
        self.key = key
        self.place = 0
        self.definition = key

    def renamed(self, key: str) -> Thing:
        copy = Thing(key)
        copy.place = self.place
        return copy


def registry(*keys: str, kind: str = "tool") -> Registry[Thing]:
    made: Registry[Thing] = Registry(kind)
    for key in keys:
        made.add(Thing(key))
    return made


def keys(found: Any) -> list[str]:
    return [e.key for e in (found.entries() if isinstance(found, Registry) else found.entries)]


def test_entries_come_in_the_order_of_registration() -> None:
    found = registry("c", "a", "b")
    assert keys(found) == ["c", "a", "b"]
    assert (len(found), bool(found), bool(registry())) == (3, True, False)
    assert found.get("a") is found.view["a"]
    assert found.get("z") is None


def test_a_name_is_taken_once() -> None:
    """R8."""
    found = registry("a")
    with pytest.raises(DeclarationError, match="already a tool 'a'"):
        found.add(Thing("a"))


def test_a_replacement_takes_the_place_of_what_it_replaces() -> None:
    found = registry("a", "b")
    before = found.view["a"].place
    new = found.add(Thing("a"), replace=True)
    assert (new.place, keys(found)) == (before, ["a", "b"])
    found.add(Thing("c"), replace=True)
    assert keys(found) == ["a", "b", "c"]


def test_what_is_removed_is_gone_and_cannot_be_removed_again() -> None:
    """R29."""
    found = registry("a", "b")
    assert found.remove("a").key == "a"
    assert keys(found) == ["b"]
    with pytest.raises(DeclarationError, match="no tool 'a'"):
        found.remove("a")


def test_every_change_is_told_after_it_has_happened() -> None:
    found = registry()
    told: list[list[str]] = []
    found.watch(lambda: told.append(keys(found)))
    found.add(Thing("a"))
    found.add(Thing("b"))
    found.remove("a")
    assert told == [["a"], ["a", "b"], ["b"]]
    assert found.version == 3


def test_a_refused_write_changes_nothing() -> None:
    found = registry("a")
    version = found.version
    with pytest.raises(DeclarationError):
        found.add(Thing("a"))
    with pytest.raises(DeclarationError):
        found.remove("z")
    assert found.version == version


@pytest.mark.parametrize(
    "declare",
    [
        lambda s: s.add_tool(lambda: 1, name="a"),
        lambda s: s.add_resource("a:b", lambda: 1),
        lambda s: s.add_resource("a:{b}", lambda b: 1),
        lambda s: s.add_prompt(lambda: "x", name="a"),
        lambda s: s.add_completion(lambda v: [], prompt="p", argument="a"),
    ],
)
def test_a_duplicate_is_told_how_to_be_removed_by_a_method_that_exists(declare: Any) -> None:
    """A message says what to do next (errors.py)."""
    server = Server("x")
    declare(server)
    with pytest.raises(DeclarationError) as caught:
        declare(server)
    word = next(w for w in str(caught.value).split() if w.startswith("remove_"))
    assert hasattr(server, word.partition("(")[0])


# --- pages -----------------------------------------------------------------------------------------------------------


def test_pages_go_through_everything_once() -> None:
    """R38."""
    found = registry(*"abcdefg")
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(4):
        page = found.page(cursor, 2)
        seen += keys(page)
        cursor = page.next_cursor
    assert seen == list("abcdefg")
    assert cursor is None


def test_a_last_page_that_is_full_has_no_next() -> None:
    assert registry("a", "b").page(None, 2).next_cursor is None
    assert registry().page(None, 2).next_cursor is None


def test_a_cursor_stays_where_it_was_when_entries_come_and_go() -> None:
    """R38: nothing is listed twice, nothing that stayed is skipped."""
    found = registry(*"abcdef")
    first = found.page(None, 3)
    found.remove("a")
    found.remove("c")
    found.add(Thing("g"))
    found.add(Thing("d"), replace=True)
    second = found.page(first.next_cursor, 3)
    assert keys(first) == ["a", "b", "c"]
    assert keys(second) == ["d", "e", "f"]
    assert keys(found.page(second.next_cursor, 3)) == ["g"]


def test_a_cursor_survives_the_entry_it_points_at() -> None:
    found = registry(*"abcd")
    cursor = found.page(None, 2).next_cursor
    found.remove("b")
    found.add(Thing("b"))
    assert keys(found.page(cursor, 9)) == ["c", "d", "b"]


@pytest.mark.parametrize(
    "cursor", ["", "x", "prompt.1", "tool.", "tool.xyz", "tool.1 ", "tool.1F", "1", ".1", "tool.1.2"]
)
def test_an_unknown_cursor_is_invalid_params(cursor: str) -> None:
    """R38 (spec)."""
    with pytest.raises(ProtocolError) as caught:
        registry("a", "b").page(cursor, 1)
    assert caught.value.code == -32602


@pytest.mark.parametrize("cursor", ["tool.-1", "tool.+1", "tool.0x1", "tool.0_1", "tool.0000000000000001", "tool.0"])
def test_a_cursor_that_was_never_given_out_is_unknown_however_it_reads(cursor: str) -> None:
    """R38 (spec): a place has one spelling."""
    with pytest.raises(ProtocolError) as caught:
        registry("a", "b").page(cursor, 1)
    assert caught.value.code == -32602


async def test_made_up_cursors_take_no_memory() -> None:
    """P8: a request that is wrong allocates nothing. The listing keeps encoded pages by cursor."""
    server = Server("x")
    server.add_tool(lambda: 1, name="a")
    listing = server.dispatcher._listings["tools/list"]
    async with Peer(server) as peer:
        for number in range(50):
            await peer.modern("tools/list", {"cursor": f"tool.{number:040x}"})
            await peer.modern("tools/list", {"cursor": f"tool.{number + 10**9:x}"})
    assert len(listing._pages) <= 2


def test_a_template_cursor_has_no_blank() -> None:
    page = registry("a", "b", kind="resource template").page(None, 1)
    assert page.next_cursor is not None
    assert " " not in page.next_cursor
    assert keys(registry("a", "b", kind="resource template").page(page.next_cursor, 1))


# --- threads ---------------------------------------------------------------------------------------------------------


def test_writers_in_many_threads_lose_nothing() -> None:
    """R22."""
    found = registry()
    seen_halves: list[Any] = []
    done = threading.Event()

    def write(number: int) -> None:
        for step in range(100):
            found.add(Thing(f"{number}-{step}"))
            if step % 2:
                found.remove(f"{number}-{step}")

    def read() -> None:
        while not done.is_set():
            try:
                places = [e.place for e in found.entries()]
                if places != sorted(places) or 0 in places:
                    seen_halves.append(places)
                found.page(None, 10)
            except Exception as error:
                seen_halves.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    writers = [threading.Thread(target=write, args=(n,)) for n in range(4)]
    for thread in writers:
        thread.start()
    for thread in writers:
        thread.join(10)
    done.set()
    reader.join(10)
    assert not seen_halves
    assert len(found) == 200
    assert found.version == 4 * 150


def test_one_of_many_threads_gets_the_name() -> None:
    """R8, R22."""
    found = registry()
    outcomes: list[str] = []
    start = threading.Barrier(8)

    def add() -> None:
        start.wait(5)
        try:
            found.add(Thing("same"))
            outcomes.append("added")
        except DeclarationError:
            outcomes.append("refused")

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert sorted(outcomes) == ["added"] + ["refused"] * 7


def test_a_mounted_registry_may_grow_while_the_outer_one_is_being_read() -> None:
    """R22: reads are consistent whatever happens below."""
    inner = registry("a", "b")
    outer = registry()
    workers: list[threading.Thread] = []

    def rename(key: str) -> str:
        if not workers:
            worker = threading.Thread(target=lambda: inner.add(Thing("late")))
            workers.append(worker)
            worker.start()
            for _ in range(5000):  # the writer tells the outer registry afterwards, so it cannot be joined here
                if "late" in inner._own:
                    break
                worker.join(0.001)
        return f"x_{key}"

    outer._mounts.append((inner, rename))
    inner.watch(outer._changed)
    outer._view = None
    try:
        assert {"x_a", "x_b"} <= set(outer.view)
    finally:
        for worker in workers:
            worker.join(5)
    assert set(outer.view) == {"x_a", "x_b", "x_late"}


def test_a_capability_that_comes_never_hides_the_methods_that_are_there() -> None:
    """R22: registering the first prompt in a thread must not make tools/call unknown for a moment."""

    class Watched(dict[str, Any]):
        missing = 0

        def _look(self) -> None:
            if "tools/call" not in self:
                self.missing += 1

        def clear(self) -> None:
            super().clear()
            self._look()

        def update(self, *args: Any, **kwargs: Any) -> None:
            super().update(*args, **kwargs)
            self._look()

        def pop(self, *args: Any) -> Any:
            found = super().pop(*args)
            self._look()
            return found

        def __delitem__(self, key: str) -> None:
            super().__delitem__(key)
            self._look()

    server = Server("x")
    server.add_tool(lambda: 1, name="a")
    watched = server.dispatcher.served = Watched(server.dispatcher.served)
    server.add_prompt(lambda: "x", name="p")
    assert "prompts/get" in server.dispatcher.served
    assert watched.missing == 0


# --- mounting --------------------------------------------------------------------------------------------------------


def test_a_mount_is_live() -> None:
    inner, outer = registry("a"), registry("own")
    outer.mount(inner, lambda key: f"in_{key}")
    assert keys(outer) == ["a", "own"] or set(keys(outer)) == {"in_a", "own"}
    inner.add(Thing("b"))
    assert set(outer.view) == {"own", "in_a", "in_b"}
    inner.remove("a")
    assert set(outer.view) == {"own", "in_b"}
    assert outer.get("in_b") is not None


def test_what_a_server_declares_itself_wins_over_what_it_mounts() -> None:
    first, second, outer = registry("a", "b"), registry("b", "c"), registry("a")
    outer.mount(first, lambda key: key)
    outer.mount(second, lambda key: key)
    assert outer.get("a") is outer._own["a"]
    assert outer.get("b") is first._own["b"]
    assert set(outer.view) == {"a", "b", "c"}


def test_mounts_reach_through_mounts_and_their_changes_are_told() -> None:
    deep, middle, outer = registry(), registry(), registry()
    middle.mount(deep, lambda key: f"d_{key}")
    outer.mount(middle, lambda key: f"m_{key}")
    told: list[int] = []
    outer.watch(lambda: told.append(outer.version))
    deep.add(Thing("a"))
    assert set(outer.view) == {"m_d_a"}
    assert told


def test_pages_of_a_registry_with_mounts_are_in_one_order() -> None:
    inner, outer = registry("a"), registry("b")
    inner.add(Thing("c"))
    outer.mount(inner, lambda key: f"x_{key}")
    first = outer.page(None, 2)
    assert keys(first) + keys(outer.page(first.next_cursor, 2)) == ["x_a", "b", "x_c"]


async def test_a_mounted_server_serves_under_its_prefix() -> None:
    inner, outer = Server("inner"), Server("outer")
    inner.add_tool(lambda: "hi", name="greet")
    outer.mount(inner, "in")
    inner.add_tool(lambda: "later", name="late")
    inner.add_prompt(lambda: "p", name="ask")
    inner.add_resource("a:b", lambda: "r")
    inner.add_resource("t:{x}", lambda x: x)
    assert [t.name for t in outer.list_tools()] == ["in_greet", "in_late"]
    assert [p.name for p in outer.list_prompts()] == ["in_ask"]
    assert (await outer.call_tool("in_late")).to_json()["content"][0]["text"] == "later"
    assert (await outer.read_resource("a:b")).to_json()["contents"][0]["text"] == "r"
    assert (await outer.read_resource("t:1")).to_json()["contents"][0]["text"] == "1"
    assert (await outer.get_prompt("in_ask")).to_json()["messages"][0]["content"]["text"] == "p"
    assert [t.name for t in inner.list_tools()] == ["greet", "late"]


async def test_a_mounted_prompts_completion_follows_its_name() -> None:
    inner, outer = Server("inner"), Server("outer")
    inner.add_prompt(lambda a: a, name="ask")
    inner.add_completion(lambda value: [value + "!"], prompt="ask", argument="a")
    outer.mount(inner, "in")
    async with Peer(outer) as peer:
        params = {"ref": {"type": "ref/prompt", "name": "in_ask"}, "argument": {"name": "a", "value": "x"}}
        message = await peer.modern("completion/complete", params)
    assert message["result"]["completion"]["values"] == ["x!"]


def test_a_server_is_not_mounted_on_itself() -> None:
    server = Server("x")
    with pytest.raises(DeclarationError, match="itself"):
        server.mount(server)


async def test_a_mounts_change_reaches_the_listings_of_the_outer_server() -> None:
    inner, outer = Server("inner"), Server("outer")
    outer.add_tool(lambda: 1, name="own")
    outer.mount(inner)
    async with Peer(outer) as peer:
        first = await peer.modern("tools/list")
        inner.add_tool(lambda: 2, name="new")
        second = await peer.modern("tools/list")
    assert [t["name"] for t in first["result"]["tools"]] == ["own"]
    assert [t["name"] for t in second["result"]["tools"]] == ["own", "new"]
