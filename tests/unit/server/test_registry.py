"""Registries: atomic writes, consistent reads, pages that stay where they were, live mounts (R21, R22, R38)."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.support.memory_peer import Peer

from trimaran import Server
from trimaran.errors import DeclarationError, ProtocolError
from trimaran.server.registry import Registry, _Adapter


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


def prefixed(prefix: str) -> Any:
    return lambda entry: entry.renamed(f"{prefix}{entry.key}")


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
    "cursor",
    ["", "x", "prompt.1", "tool.", "tool.xyz", "tool.1 ", "tool.1F", "1", ".1", "tool.1.2"]
    + ["tool.-1", "tool.+1", "tool.0x1", "tool.0_1", "tool.0000000000000001", "tool.0"],
)
def test_an_unknown_cursor_is_invalid_params(cursor: str) -> None:
    """R38 (spec): a place has one spelling."""
    with pytest.raises(ProtocolError) as caught:
        registry("a", "b").page(cursor, 1)
    assert caught.value.code == -32602


async def test_made_up_cursors_take_no_memory() -> None:
    """P8: a request that is wrong allocates nothing. The listing keeps encoded pages by cursor."""
    server = Server("x")
    server.add_tool(lambda: 1, name="a")
    listing = server.runtime.dispatcher._listings["tools/list"]
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

    def adapt(entry: Thing) -> Thing:
        if not workers:
            worker = threading.Thread(target=lambda: inner.add(Thing("late")))
            workers.append(worker)
            worker.start()
            for _ in range(5000):  # the writer tells the outer registry afterwards, so it cannot be joined here
                if "late" in inner._own:
                    break
                worker.join(0.001)
        return entry.renamed(f"x_{entry.key}")

    outer._mounts.append(_Adapter(adapt, inner))
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
    watched = server.runtime.dispatcher.served = Watched(server.runtime.dispatcher.served)
    server.add_prompt(lambda: "x", name="p")
    assert "prompts/get" in server.runtime.dispatcher.served
    assert watched.missing == 0


# --- mounting --------------------------------------------------------------------------------------------------------


def test_a_mount_is_live() -> None:
    inner, outer = registry("a"), registry("own")
    outer.mount(inner, prefixed("in_"))
    assert keys(outer) == ["a", "own"] or set(keys(outer)) == {"in_a", "own"}
    inner.add(Thing("b"))
    assert set(outer.view) == {"own", "in_a", "in_b"}
    inner.remove("a")
    assert set(outer.view) == {"own", "in_b"}
    assert outer.get("in_b") is not None


def show(entry: Thing) -> Thing:
    return entry


def named(owner: str, *keys: str, kind: str = "tool") -> Registry[Thing]:
    owned: Registry[Thing] = Registry(kind, owner)
    for key in keys:
        owned.add(Thing(key))
    return owned


def test_two_entries_with_one_name_are_an_error_at_mount_that_names_both_and_the_remedy() -> None:
    """Ours: no entry hides another."""
    inner, outer = named("github", "search", "free"), named("demo", "search")
    version = outer.version
    with pytest.raises(DeclarationError) as caught:
        outer.mount(inner, show)
    text = str(caught.value)
    assert "'search' of the server 'github'" in text
    assert "'search' of the server 'demo'" in text
    assert "prefix" in text
    assert """transforms={'search': {"name": "..."}}""" in text
    assert (keys(outer), outer.version) == (["search"], version)
    inner.add(Thing("later"))
    assert keys(outer) == ["search"], "nothing is mounted"
    with pytest.raises(DeclarationError):
        outer.check_mount(inner, show)
    outer.check_mount(inner, prefixed("in_"))
    assert keys(outer) == ["search"]
    outer.mount(inner, prefixed("in_"))
    assert set(outer.view) == {"search", "in_search", "in_free", "in_later"}


def test_an_own_entry_cannot_take_the_name_of_a_mounted_one() -> None:
    inner, outer = named("github", "search"), named("demo")
    outer.mount(inner, show)
    for replace in (False, True):
        with pytest.raises(DeclarationError, match="'search' of the server 'github'"):
            outer.add(Thing("search"), replace=replace)
    assert outer.get("search") is inner.get("search")
    inner.remove("search")
    assert outer.add(Thing("search")) is outer.get("search")


def test_a_name_that_comes_later_is_left_out_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    first, second, outer = named("a"), named("b", "x"), named("demo", "own")
    outer.mount(first, show)
    outer.mount(second, show)
    first.add(Thing("x"))
    assert outer.get("x") is second.get("x"), "the newcomer is left out, whatever the order of mounting"
    second.add(Thing("own"))
    second.add(Thing("y"))
    assert outer.get("own") is outer._own["own"]
    outer.add(Thing("z"))  # nobody is refused for what went wrong before
    lines = [r.getMessage() for r in caplog.records if r.name == "trimaran.server"]
    assert len(lines) == 2
    assert "the tool 'x' of the server 'a' has the name 'x', and so has the tool 'x' of the server 'b'" in lines[0]
    assert "'own' of the server 'b'" in lines[1]
    second.remove("x")
    assert outer.get("x") is first.get("x")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_order_of_mounting_is_a_remedy_for_resources_with_one_uri(
    order: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    """Also for servers of other people, whose entries come late and in any order."""
    servers, outer = [named(name, kind="resource") for name in ("boats", "birds")], named("outer", kind="resource")
    for index in order:
        outer.mount(servers[index], show)
    for server in servers:
        server.reset([Thing("a:b")])
    assert outer.get("a:b") is servers[order[0]].get("a:b")
    [line] = {r.getMessage() for r in caplog.records if r.name == "trimaran.server"}
    assert "mounted first" in line
    assert "remove" not in line


def test_resources_with_one_uri_are_logged_and_those_of_the_server_itself_win(caplog: pytest.LogCaptureFixture) -> None:
    """A mount has no way to change a URI, so it cannot be refused for one."""
    inner, outer = named("inner", "a:b", kind="resource"), named("outer", "a:b", kind="resource")
    outer.mount(inner, show)
    assert outer.get("a:b") is outer._own["a:b"]
    assert [r.levelname for r in caplog.records] == ["WARNING"]


def test_an_adapt_leaves_out_changes_and_is_asked_once() -> None:
    inner, outer = registry("a", "b", "c"), registry()
    asked: list[str] = []

    def adapt(entry: Thing) -> Thing | None:
        asked.append(entry.key)
        return None if entry.key == "b" else entry.renamed(entry.key.upper())

    outer.mount(inner, adapt)
    before = outer.get("A")
    inner.add(Thing("d"))
    assert set(outer.view) == {"A", "C", "D"}
    assert outer.get("A") is before
    assert sorted(asked) == ["a", "b", "c", "d"]


def test_an_entry_that_an_adapt_refuses_is_never_shown_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    inner, outer = named("github", "good"), named("demo")

    def adapt(entry: Thing) -> Thing:
        if entry.key == "bad":
            raise DeclarationError("no such argument")
        return entry

    outer.mount(inner, adapt)
    inner.add(Thing("bad"))
    assert keys(outer) == ["good"]
    assert [r.getMessage() for r in caplog.records] == [
        "left out: the tool 'bad' of the server 'github': no such argument"
    ]
    with pytest.raises(DeclarationError, match="'bad' of the server 'github': no such argument"):
        named("other").mount(inner, adapt)


def test_transforms_see_own_mounted_and_later_entries_one_after_the_other() -> None:
    inner, outer = registry("a"), registry("own")
    outer.mount(inner, prefixed("in_"))
    outer.transform(lambda entry: entry.renamed(entry.key.upper()))
    outer.transform(lambda entry: None if entry.key == "IN_B" else entry)
    inner.add(Thing("b"))
    outer.add(Thing("late"))
    assert keys(outer) == ["IN_A", "OWN", "LATE"] or set(outer.view) == {"OWN", "IN_A", "LATE"}
    assert set(inner.view) == {"a", "b"}
    assert outer.remove("own").key == "own"
    assert set(outer.view) == {"IN_A", "LATE"}


def test_a_transform_that_takes_a_taken_name_changes_nothing() -> None:
    found = named("demo", "a", "b")
    with pytest.raises(DeclarationError, match=r"'b' of the server 'demo' has the name 'b', and so has the tool 'a'"):
        found.transform(lambda entry: entry.renamed("b"))
    assert keys(found) == ["a", "b"]
    found.transform(lambda entry: entry.renamed("c") if entry.key == "a" else entry)
    with pytest.raises(DeclarationError, match="'a' of the server 'demo'"):
        found.add(Thing("c"))


def test_a_list_that_comes_as_a_whole_keeps_places_and_the_names_of_others(caplog: pytest.LogCaptureFixture) -> None:
    far, outer = named("far"), named("demo", "own")
    far.expect_reset(LookupError)
    outer.mount(far, show)
    assert not outer.is_known
    far.reset([Thing("a"), Thing("own")])
    assert outer.is_known
    place = outer.view["a"].place
    far.reset([Thing("b"), Thing("a")])
    assert (outer.view["a"].place, keys(outer)) == (place, ["own", "a", "b"])
    assert [r.getMessage()[:50] for r in caplog.records] == ["left out: the tool 'own' of the server 'far' has t"]


def test_a_list_that_comes_as_a_whole_is_transformed() -> None:
    far = named("far", "a")
    far.transform(lambda entry: entry.renamed(entry.key.upper()))
    far.reset([Thing("a"), Thing("b")])
    assert keys(far) == ["A", "B"]


def test_a_registry_that_is_mounted_twice_is_paged_whole() -> None:
    inner, outer = registry("a", "b", "c"), registry()
    outer.mount(inner, prefixed("x_"))
    outer.mount(inner, prefixed("y_"))
    seen: list[str] = []
    cursor: str | None = None
    for _ in range(9):
        page = outer.page(cursor, 1)
        seen += keys(page)
        cursor = page.next_cursor
        if cursor is None:
            break
    assert sorted(seen) == ["x_a", "x_b", "x_c", "y_a", "y_b", "y_c"]


def test_mounts_reach_through_mounts_and_their_changes_are_told() -> None:
    deep, middle, outer = registry(), registry(), registry()
    middle.mount(deep, prefixed("d_"))
    outer.mount(middle, prefixed("m_"))
    told: list[int] = []
    outer.watch(lambda: told.append(outer.version))
    deep.add(Thing("a"))
    assert set(outer.view) == {"m_d_a"}
    assert told


def test_pages_of_a_registry_with_mounts_are_in_one_order() -> None:
    inner, outer = registry("a"), registry("b")
    inner.add(Thing("c"))
    outer.mount(inner, prefixed("x_"))
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
