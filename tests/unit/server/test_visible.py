"""`visible_to`: lists show what the caller may know of, and the rest does not exist (protocol.md 4.3, issue "lists")."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.memory_peer import Peer

from trimaran import Context, Server
from trimaran.auth import Principal
from trimaran.errors import DeclarationError
from trimaran.legacy.duplex import LegacyDuplex
from trimaran.server import dispatch
from trimaran.transports.memory import MemoryChannel

ADMIN = Principal(subject="root", scopes=frozenset({"admin", "audit"}))
ALICE = Principal(subject="alice", scopes=frozenset({"audit"}))
NOBODY = None
ERAS = ["modern", "legacy"]


class As(Peer):
    """A peer that is somebody."""

    def __init__(self, server: Server, principal: Any, era: str = "modern") -> None:
        super().__init__(server)
        self._channel = MemoryChannel(server, legacy=LegacyDuplex, principal=principal)
        self._era = era

    async def __aenter__(self) -> As:
        if self._era == "legacy":
            await self.initialize()
        return self

    async def ask(self, method: str, params: Any = None) -> Any:
        """The reply without what tells one request from another."""
        reply = await (self.modern(method, params) if self._era == "modern" else self.legacy(method, params))
        return {k: v for k, v in reply.items() if k != "id"}

    async def names(self, kind: str = "tools") -> list[str]:
        method, field, key = LISTS[kind]
        found: list[str] = []
        cursor = None
        while True:
            result = (await self.ask(method, {} if cursor is None else {"cursor": cursor}))["result"]
            found += [item[key] for item in result[field]]
            cursor = result.get("nextCursor")
            if cursor is None:
                return found


LISTS = {
    "tools": ("tools/list", "tools", "name"),
    "resources": ("resources/list", "resources", "uri"),
    "templates": ("resources/templates/list", "resourceTemplates", "uriTemplate"),
    "prompts": ("prompts/list", "prompts", "name"),
}


def demo(**options: Any) -> Server:
    server = Server("demo", version="1", **options)

    @server.tool
    async def open_tool() -> str:
        return "open"

    @server.tool(visible_to=["admin"])
    async def hidden_tool() -> str:
        return "secret"

    @server.resource("open://a")
    async def open_resource() -> str:
        return "open"

    @server.resource("hidden://a", visible_to=["admin"])
    async def hidden_resource() -> str:
        return "secret"

    @server.resource("opened://{name}")
    async def open_template(name: str) -> str:
        return "open"

    @server.resource("hiding://{name}", visible_to=["admin"])
    async def hidden_template(name: str) -> str:
        return "secret"

    @server.prompt
    def open_prompt(topic: str) -> str:
        return "open"

    @server.prompt(visible_to=["admin"])
    def hidden_prompt(topic: str) -> str:
        return "secret"

    for prompt in ("open_prompt", "hidden_prompt"):
        server.add_completion(lambda value: ["secret"], prompt=prompt, argument="topic")
    server.add_completion(lambda value: ["secret"], template="hiding://{name}", argument="name")
    return server


SHOWN = {
    "tools": (["open_tool"], ["open_tool", "hidden_tool"]),
    "resources": (["open://a"], ["open://a", "hidden://a"]),
    "templates": (["opened://{name}"], ["opened://{name}", "hiding://{name}"]),
    "prompts": (["open_prompt"], ["open_prompt", "hidden_prompt"]),
}

# --- lists -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", LISTS)
@pytest.mark.parametrize("era", ERAS)
async def test_a_list_shows_what_its_caller_may_see(era: str, kind: str) -> None:
    server = demo()
    for who, wanted in ((NOBODY, 0), (ADMIN, 1), (ALICE, 0), (ADMIN, 1)):
        async with As(server, who, era) as peer:
            assert await peer.names(kind) == SHOWN[kind][wanted]


@pytest.mark.parametrize("kind", LISTS)
async def test_such_a_list_is_its_callers_own(kind: str) -> None:
    """protocol.md 4.3: cacheScope private, whoever asks; without anything hidden it stays as the server has it."""
    method = LISTS[kind][0]
    for who in (NOBODY, ADMIN):
        async with As(demo(), who) as peer:
            assert (await peer.ask(method))["result"]["cacheScope"] == "private"
    plain = Server("plain", version="1")
    plain.add_tool(lambda: 1, name="t")
    plain.add_prompt(lambda: "", name="p")
    plain.add_resource("a:b", lambda: "")
    plain.add_resource("a:{b}", lambda b: "")
    async with As(plain, ADMIN) as peer:
        assert (await peer.ask(method))["result"]["cacheScope"] == "public"


async def test_scopes_alone_hide_nothing() -> None:
    """R183: who may not call a tool may know that it is there, and what it would need."""
    server = Server("s", version="1")
    server.add_tool(lambda: 1, name="guarded", scopes=["admin"])
    async with As(server, NOBODY) as peer:
        assert await peer.names() == ["guarded"]
        assert (await peer.ask("tools/list"))["result"]["cacheScope"] == "public"


async def test_what_a_guarded_resource_says_is_not_kept_for_others() -> None:
    """protocol.md 6.12."""
    server = Server("s", version="1")
    server.add_resource("a:open", lambda: "x")
    server.add_resource("a:scoped", lambda: "x", scopes=["admin"])
    server.add_resource("a:hidden", lambda: "x", visible_to=["admin"])
    server.add_resource("t:{b}", lambda b: "x", scopes=["admin"])
    async with As(server, ADMIN) as peer:
        for uri in ("a:scoped", "a:hidden", "t:1"):
            assert (await peer.ask("resources/read", {"uri": uri}))["result"]["cacheScope"] == "private"


async def test_what_may_have_been_made_for_one_caller_is_not_kept_for_others() -> None:
    """protocol.md 6.12: a handler, or a callback, knows who is calling; a list of declared things does not depend on it."""

    class Callbacks:
        def list_prompts(self, cursor: Any, ctx: Context) -> list[Any]:
            return [{"name": str(ctx.auth and ctx.auth.subject)}]

        def get_prompt(self, name: str, arguments: Any, ctx: Context) -> str:
            return ""

    server = Server("s", version="1", callbacks=Callbacks())
    server.add_resource("a:open", lambda: "x")
    for who, scope in ((ALICE, "private"), (NOBODY, "public")):
        async with As(server, who) as peer:
            assert (await peer.ask("resources/read", {"uri": "a:open"}))["result"]["cacheScope"] == scope
            assert (await peer.ask("prompts/list"))["result"]["cacheScope"] == scope
            assert (await peer.ask("resources/list"))["result"]["cacheScope"] == "public"


async def test_a_function_decides_for_each_caller() -> None:
    server = Server("s", version="1")
    server.add_tool(lambda: 1, name="mine", visible_to=lambda p: p is not None and p.subject == "alice")
    server.add_tool(lambda: 1, name="anonymous", visible_to=lambda p: p is None)
    server.add_tool(lambda: 1, name="truthy", visible_to=lambda p: p and p.scopes)
    for who, wanted in ((ALICE, ["mine", "truthy"]), (ADMIN, ["truthy"]), (NOBODY, ["anonymous"])):
        async with As(server, who) as peer:
            assert await peer.names() == wanted


async def test_all_scopes_are_needed() -> None:
    server = Server("s", version="1")
    server.add_tool(lambda: 1, name="both", visible_to=["admin", "audit"])
    server.add_tool(lambda: 1, name="one", visible_to=("audit",))
    for who, wanted in ((ALICE, ["one"]), (ADMIN, ["both", "one"]), (NOBODY, [])):
        async with As(server, who) as peer:
            assert await peer.names() == wanted


async def test_a_function_that_changes_its_mind_is_heard() -> None:
    """What is kept is kept by what is visible, not by who asked."""
    server = Server("s", version="1")
    allowed = {"alice"}
    server.add_tool(lambda: 1, name="t", visible_to=lambda p: p is not None and p.subject in allowed)
    async with As(server, ALICE) as peer:
        assert await peer.names() == ["t"]
        allowed.clear()
        assert await peer.names() == []
        assert "error" in await peer.ask("tools/call", {"name": "t", "arguments": {}})


async def test_a_function_that_fails_hides(caplog: pytest.LogCaptureFixture) -> None:
    """Fails closed, and says so in the log."""
    server = Server("s", version="1")
    server.add_tool(lambda: 1, name="t", visible_to=lambda p: p.subject == "alice")

    async def later() -> bool:
        return True

    def undecided(principal: Any) -> Any:
        return later()

    server.add_tool(lambda: 1, name="u", visible_to=undecided)
    async with As(server, NOBODY) as peer:
        assert await peer.names() == []
    assert "visible_to of tool 't'" in caplog.text
    assert "visible_to of tool 'u' returned an awaitable" in caplog.text


@pytest.mark.parametrize("era", ERAS)
async def test_pages_are_cut_from_what_is_visible(era: str) -> None:
    """R38: every page but the last is full, nothing twice, nothing missing; a cursor is good for another caller too."""
    server = Server("many", version="1", page_size=3)
    for n in range(10):
        server.add_tool(lambda: 1, name=f"t{n}", visible_to=["admin"] if n % 2 else None)
    async with As(server, NOBODY, era) as peer, As(server, ADMIN, era) as admin:
        assert await peer.names() == ["t0", "t2", "t4", "t6", "t8"]
        assert await admin.names() == [f"t{n}" for n in range(10)]
        first = (await peer.ask("tools/list"))["result"]
        assert [t["name"] for t in first["tools"]] == ["t0", "t2", "t4"]
        second = (await admin.ask("tools/list", {"cursor": first["nextCursor"]}))["result"]
        assert [t["name"] for t in second["tools"]] == ["t5", "t6", "t7"]


@pytest.mark.slow
async def test_the_thousandth_entry_ends_a_page() -> None:
    """docs/adr/0005: pages of 1000, whatever is hidden in between."""
    server = Server("many", version="1")
    for n in range(1500):
        server.add_tool(
            lambda: 1, name=f"t{n}", visible_to=["admin"] if n % 3 == 0 else None, input_schema={"type": "object"}
        )
    async with As(server, NOBODY) as peer, As(server, ADMIN) as admin:
        everything = (await peer.ask("tools/list"))["result"]
        assert (len(everything["tools"]), everything.get("nextCursor")) == (1000, None)
        assert len(await peer.names()) == 1000
        assert len(await admin.names()) == 1500


async def test_the_last_page_may_end_in_what_is_hidden() -> None:
    """No cursor to an empty page: that alone would tell."""
    server = Server("many", version="1", page_size=2)
    for name, scopes in (("a", None), ("b", None), ("c", ["admin"])):
        server.add_tool(lambda: 1, name=name, visible_to=scopes)
    async with As(server, NOBODY) as peer:
        assert "nextCursor" not in (await peer.ask("tools/list"))["result"]


async def test_lists_are_encoded_once_for_each_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """The price of a list is paid per view, not per call; views are forgotten when there are many or something changes."""
    server = demo()
    encoded: list[str] = []
    original = server.runtime.dispatcher.encode_page

    def count(result: Any, version: str) -> Any:
        encoded.append(version)
        return original(result, version)

    monkeypatch.setattr(server.runtime.dispatcher, "encode_page", count)
    async with As(server, NOBODY) as nobody, As(server, ALICE) as alice, As(server, ADMIN) as admin:
        for _ in range(3):
            for peer in (nobody, alice, admin):
                await peer.names()
        assert len(encoded) == 2  # what nobody sees is what Alice sees
        server.remove_tool("open_tool")
        assert await nobody.names() == []
        assert await admin.names() == ["hidden_tool"]
        assert len(encoded) == 4


async def test_the_views_that_are_kept_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "_PAGES_KEPT", 4)
    server = Server("many", version="1")
    for n in range(10):
        server.add_tool(lambda: 1, name=f"t{n}", visible_to=[f"s{n}"])
    listing = server.runtime.dispatcher._listings["tools/list"]
    for n in range(10):
        async with As(server, Principal(subject="p", scopes=frozenset({f"s{n}"}))) as peer:
            assert await peer.names() == [f"t{n}"]
        assert len(listing._pages) <= 4


async def test_nothing_is_asked_on_a_server_that_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server("plain", version="1")
    server.add_tool(lambda: 1, name="t")

    def never(entry: Any, principal: Any) -> bool:
        raise AssertionError("asked")

    monkeypatch.setattr("trimaran.server.dispatch.is_hidden", never)
    monkeypatch.setattr("trimaran.server.tools.is_hidden", never)
    async with As(server, ALICE) as peer:
        assert await peer.names() == ["t"]
        assert "result" in await peer.ask("tools/call", {"name": "t", "arguments": {}})


async def test_a_list_that_changes_is_announced_to_everybody() -> None:
    """The announcement says nothing of what changed."""
    server = demo()
    async with As(server, NOBODY, "legacy") as peer:
        server.add_tool(lambda: 1, name="new", visible_to=["admin"])
        assert (await peer.receive())["method"] == "notifications/tools/list_changed"
        assert await peer.names() == ["open_tool"]


async def test_middleware_sees_the_list_its_caller_sees() -> None:
    server = demo()
    seen: list[tuple[Any, list[str]]] = []

    @server.middleware("tools/list")
    async def look(call: Any, call_next: Any) -> Any:
        result = await call_next(call)
        seen.append((call.principal, [tool["name"] for tool in result.tools]))
        return result

    for who in (ADMIN, NOBODY):
        async with As(server, who) as peer:
            await peer.names()
    assert seen == [(ADMIN, ["open_tool", "hidden_tool"]), (NOBODY, ["open_tool"])]


async def test_the_items_of_callbacks_follow_what_is_visible() -> None:
    class Callbacks:
        def list_tools(self, cursor: Any, ctx: Context) -> Any:
            return [{"name": "own", "inputSchema": {"type": "object"}}]

        def call_tool(self, name: str, arguments: Any, ctx: Context) -> str:
            return f"called back for {name}"

    server = demo(callbacks=Callbacks(), page_size=1)
    for who, wanted in ((NOBODY, ["open_tool", "own"]), (ADMIN, ["open_tool", "hidden_tool", "own"])):
        async with As(server, who) as peer:
            assert await peer.names() == wanted
            assert (await peer.ask("tools/list"))["result"]["cacheScope"] == "private"
    async with As(server, NOBODY) as peer:
        answer = await peer.ask("tools/call", {"name": "hidden_tool", "arguments": {}})
        assert answer["result"]["content"][0]["text"] == "called back for hidden_tool"


async def test_what_a_mounted_server_hides_stays_hidden() -> None:
    outer = Server("outer", version="1")
    outer.mount(demo(), prefix="inner")
    async with As(outer, NOBODY) as peer, As(outer, ADMIN) as admin:
        assert await peer.names() == ["inner_open_tool"]
        assert await admin.names() == ["inner_open_tool", "inner_hidden_tool"]
        assert "error" in await peer.ask("tools/call", {"name": "inner_hidden_tool", "arguments": {}})
        assert await peer.names("resources") == ["open://a"]


# --- what is hidden is unknown ---------------------------------------------------------------------------------------

# A use of something hidden, and the same of something that was never there.
USES: dict[str, tuple[str, Any, str, str]] = {
    "tool": ("tools/call", {"name": "hidden_tool", "arguments": {}}, "hidden_tool", "absent_tool"),
    "tool with wrong arguments": ("tools/call", {"name": "hidden_tool", "arguments": {"x": 1}}, "hidden", "absent"),
    "resource": ("resources/read", {"uri": "hidden://a"}, "hidden://a", "absent://a"),
    "template": ("resources/read", {"uri": "hiding://a"}, "hiding://a", "absent://a"),
    "prompt": ("prompts/get", {"name": "hidden_prompt", "arguments": {"topic": "a"}}, "hidden_prompt", "absent_prompt"),
    "prompt without its arguments": ("prompts/get", {"name": "hidden_prompt"}, "hidden_prompt", "absent_prompt"),
    "prompt completion": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "hidden_prompt"}, "argument": {"name": "topic", "value": ""}},
        "hidden_prompt",
        "absent_prompt",
    ),
    "template completion": (
        "completion/complete",
        {"ref": {"type": "ref/resource", "uri": "hiding://{name}"}, "argument": {"name": "name", "value": ""}},
        "hiding://",
        "absent://",
    ),
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("era", ERAS)
async def test_what_is_hidden_is_answered_as_what_is_unknown(era: str, use: str) -> None:
    """To the byte, but for the name that was asked for; and to those who may see it, it is there."""
    method, params, hidden, absent = USES[use]
    elsewhere = json.loads(json.dumps(params).replace(hidden, absent))
    server = demo()
    async with As(server, NOBODY, era) as peer, As(server, ADMIN, era) as admin:
        refused = await peer.ask(method, params)
        unknown = await peer.ask(method, elsewhere)
        assert json.loads(json.dumps(refused).replace(hidden, absent)) == unknown
        assert "secret" not in json.dumps(refused)
        assert await admin.ask(method, params) != refused


async def test_a_visible_template_behind_a_hidden_resource_is_read() -> None:
    """As if the hidden one were not there."""
    server = Server("s", version="1")
    server.add_resource("a://x", lambda: "hidden", visible_to=["admin"])
    server.add_resource("a://{name}", lambda name: "hidden too", visible_to=["admin"])
    server.add_resource("{+anything}", lambda anything: "open")
    async with As(server, NOBODY) as peer, As(server, ADMIN) as admin:
        read = {"uri": "a://x"}
        assert (await peer.ask("resources/read", read))["result"]["contents"][0]["text"] == "open"
        assert (await admin.ask("resources/read", read))["result"]["contents"][0]["text"] == "hidden"


async def test_scopes_of_what_is_hidden_are_not_told() -> None:
    """First whether it exists for the caller, then whether the caller may."""
    server = Server("s", version="1")
    server.add_tool(lambda: 1, name="t", visible_to=["audit"], scopes=["admin"])
    async with As(server, NOBODY) as peer, As(server, ALICE) as alice:
        call = ("tools/call", {"name": "t", "arguments": {}})
        assert (await peer.ask(*call))["error"]["code"] == -32602
        assert (await alice.ask(*call))["error"]["data"] == {"required_scopes": ["admin"]}


async def test_changes_of_a_hidden_resource_are_not_heard_in_a_session() -> None:
    """Watching it is answered like watching what is not there, and stays as silent."""
    server = demo()
    async with As(server, NOBODY, "legacy") as peer, As(server, ADMIN, "legacy") as admin:
        for uri in ("hidden://a", "hiding://a", "absent://a"):
            assert await peer.ask("resources/subscribe", {"uri": uri}) == {"jsonrpc": "2.0", "result": {}}
            assert await admin.ask("resources/subscribe", {"uri": uri}) == {"jsonrpc": "2.0", "result": {}}
        for uri in ("hidden://a", "hiding://a", "absent://a"):
            server.notify.resource_updated(uri)
        assert (await peer.receive())["params"]["uri"] == "absent://a"
        assert [(await admin.receive())["params"]["uri"] for _ in range(3)] == [
            "hidden://a",
            "hiding://a",
            "absent://a",
        ]


async def test_changes_of_a_hidden_resource_are_not_heard_on_a_listen_stream() -> None:
    """The acknowledgement is the same as for what is not there; the changes do not come."""
    server = demo()
    uris = ["hidden://a", "hiding://a", "absent://a"]
    for who, heard in ((NOBODY, ["absent://a"]), (ADMIN, uris)):
        async with As(server, who) as peer:
            await peer.start("subscriptions/listen", {"notifications": {"resourceSubscriptions": uris}})
            kept = (await peer.receive())["params"]["notifications"]
            assert kept == {"resourceSubscriptions": uris}
            for uri in uris:
                server.notify.resource_updated(uri)
            assert [(await peer.receive())["params"]["uri"] for _ in heard] == heard


# --- declaring -------------------------------------------------------------------------------------------------------


async def _later(principal: Any) -> bool:
    return True


class _AsyncObject:
    async def __call__(self, principal: Any) -> bool:
        return True


WRONG = {
    "text": "admin",
    "bytes": b"admin",
    "nothing": [],
    "numbers": [1],
    "an empty scope": [""],
    "a mapping": {"admin": True},
    "a truth": True,
    "async": _later,
    "async object": _AsyncObject(),
}


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("kind", LISTS)
def test_anything_else_is_refused_when_it_is_declared(kind: str, wrong: str) -> None:
    """visible_to="admin" would ask for the scopes a, d, m, i and n; an async function would be true for everybody."""
    server = Server("s", version="1")
    declare = {
        "tools": lambda given: server.add_tool(lambda: 1, name="n", visible_to=given),
        "resources": lambda given: server.add_resource("a:b", lambda: "", visible_to=given),
        "templates": lambda given: server.add_resource("a:{b}", lambda b: "", visible_to=given),
        "prompts": lambda given: server.add_prompt(lambda: "", name="n", visible_to=given),
    }[kind]
    with pytest.raises(DeclarationError, match="visible_to"):
        declare(WRONG[wrong])


# --- ctx.auth --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_every_handler_knows_who_is_calling(era: str) -> None:
    """R54, R165: tools, resources, templates, prompts, completions, middleware and callbacks."""
    seen: dict[str, Any] = {}

    class Callbacks:
        def call_tool(self, name: str, arguments: Any, ctx: Context) -> str:
            seen["call_tool"] = ctx.auth
            return ""

        def read_resource(self, uri: str, ctx: Context) -> str:
            seen["read_resource"] = ctx.auth
            return ""

        def get_prompt(self, name: str, arguments: Any, ctx: Context) -> str:
            seen["get_prompt"] = ctx.auth
            return ""

        def complete(self, ref: Any, argument: Any, filled: Any, ctx: Context) -> list[str]:
            seen["complete"] = ctx.auth
            return []

        def list_tools(self, cursor: Any, ctx: Context) -> list[Any]:
            seen["list_tools"] = ctx.auth
            return []

        def subscribe_resource(self, uri: str, ctx: Context) -> None:
            seen["subscribe_resource"] = ctx.auth

        def set_log_level(self, level: str, ctx: Context) -> None:
            seen["set_log_level"] = ctx.auth

    server = Server("all", version="1", callbacks=Callbacks())

    @server.middleware
    async def look(call: Any, call_next: Any) -> Any:
        seen.setdefault(f"middleware {call.method}", call.principal)
        return await call_next(call)

    @server.tool
    async def tool(ctx: Context) -> str:
        seen["tool"] = ctx.auth
        return ""

    @server.tool
    def threaded(ctx: Context) -> str:
        seen["threaded"] = ctx.auth
        return ""

    @server.resource("a:b")
    async def resource(ctx: Context) -> str:
        seen["resource"] = ctx.auth
        return ""

    @server.resource("a:x{b}")
    async def template(b: str, ctx: Context) -> str:
        seen["template"] = ctx.auth
        return ""

    @server.prompt
    def prompt(ctx: Context) -> str:
        seen["prompt"] = ctx.auth
        return ""

    @server.completion(prompt="prompt", argument="a")
    async def completion(value: str, ctx: Context) -> list[str]:
        seen["completion"] = ctx.auth
        return []

    ref = {"type": "ref/prompt", "name": "prompt"}
    asked: list[tuple[str, Any]] = [
        *(("tools/call", {"name": name, "arguments": {}}) for name in ("tool", "threaded", "other")),
        *(("resources/read", {"uri": uri}) for uri in ("a:b", "a:x1", "b:other")),
        *(("prompts/get", {"name": name}) for name in ("prompt", "other")),
        *(("completion/complete", {"ref": ref, "argument": {"name": name, "value": ""}}) for name in ("a", "other")),
        ("tools/list", {}),
    ]
    if era == "legacy":
        asked += [("resources/subscribe", {"uri": "a:b"}), ("logging/setLevel", {"level": "info"})]
    async with As(server, ALICE, era) as peer:
        for method, params in asked:
            assert "result" in await peer.ask(method, params), (method, params)
    wanted = "tool threaded resource template prompt completion call_tool read_resource get_prompt complete list_tools"
    if era == "legacy":
        wanted += " subscribe_resource set_log_level"
    assert set(wanted.split()) <= set(seen)
    assert {f"middleware {method}" for method in ("tools/call", "resources/read", "prompts/get", "tools/list")} <= set(
        seen
    )
    assert set(map(id, seen.values())) == {id(ALICE)}
