"""Server: declaring, the runtime registry, what it says about itself, callbacks, starting and stopping (R1-R8, R21-R24)."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.inside import inside
from tests.support.memory_peer import LEGACY, MODERN, Peer, texts
from tests.support.until import soon

from trimaran import Context, ProtocolError, Server
from trimaran.errors import ConfigError, DeclarationError, Error, TimedOut
from trimaran.protocol.methods import extend
from trimaran.types import DiscoverParams, Prompt, Resource, ResourceTemplate, Tool

# --- declaring -------------------------------------------------------------------------------------------------------


async def test_everything_can_be_declared_bare_or_called() -> None:
    """R1."""
    server = Server("x", version="1")

    @server.tool
    def bare() -> str:
        return "bare"

    @server.tool()
    def empty() -> str:
        return "empty"

    @server.tool(name="renamed")
    def called() -> str:
        return "called"

    @server.prompt
    def ask() -> str:
        return "ask"

    @server.prompt(name="other")
    def asked() -> str:
        return "asked"

    @server.resource("a:b")
    def fixed() -> str:
        return "fixed"

    @server.resource("a:{x}/t")
    def template(x: str) -> str:
        return x

    @server.resource_template("b:{x}")
    def second(x: str) -> str:
        return x

    assert [t.name for t in server.list_tools()] == ["bare", "empty", "renamed"]
    assert [p.name for p in server.list_prompts()] == ["ask", "other"]
    assert [r.uri for r in server.list_resources()] == ["a:b"]
    assert [t.uri_template for t in server.list_resource_templates()] == ["a:{x}/t", "b:{x}"]
    assert (bare(), called(), ask(), fixed(), template("x")) == ("bare", "called", "ask", "fixed", "x")
    assert "3 tools" in repr(server)


def test_a_resource_declared_without_its_uri_is_told_so() -> None:
    with pytest.raises(DeclarationError, match="needs its URI"):
        Server("x").resource(lambda: 1)  # pyright: ignore[reportArgumentType]


async def test_everything_can_be_registered_and_removed_while_running() -> None:
    """R21, R29."""
    server = Server("x")
    assert isinstance(server.add_tool(lambda: "t", name="t"), Tool)
    assert isinstance(server.add_resource("a:b", lambda: "r"), Resource)
    assert isinstance(server.add_resource("t:{x}", lambda x: x), ResourceTemplate)
    assert isinstance(server.add_prompt(lambda: "p", name="p"), Prompt)
    server.add_completion(lambda v: [v], prompt="p", argument="a")
    assert texts(await server.call_tool("t")) == ["t"]
    server.remove_tool("t")
    server.remove_resource("a:b")
    server.remove_resource("t:{x}")
    server.remove_prompt("p")
    server.remove_completion(prompt="p", argument="a")
    assert not any((server.tools, server.resources, server.templates, server.prompts, server.completions))
    for gone in (
        server.call_tool("t"),
        server.read_resource("a:b"),
        server.read_resource("t:1"),
        server.get_prompt("p"),
    ):
        with pytest.raises(ProtocolError):
            await gone


@pytest.mark.parametrize(
    "declare",
    [
        lambda s: s.add_tool(lambda: 1, name="a"),
        lambda s: s.add_resource("a:b", lambda: 1),
        lambda s: s.add_resource("a:{b}", lambda b: 1),
        lambda s: s.add_prompt(lambda: "x", name="a"),
        lambda s: s.add_completion(lambda v: [], template="a:{b}", argument="b"),
    ],
)
def test_the_same_thing_twice_is_refused_unless_it_replaces(declare: Any) -> None:
    """R8."""
    server = Server("x")
    declare(server)
    with pytest.raises(DeclarationError, match="already"):
        declare(server)


def test_a_replacement_is_said_aloud() -> None:
    server = Server("x")
    server.add_tool(lambda: 1, name="a")
    server.add_tool(lambda: 1, name="a", title="new", replace=True)
    server.add_resource("a:b", lambda: 1)
    server.add_resource("a:b", lambda: 1, title="new", replace=True)
    server.add_prompt(lambda: "x", name="a")
    server.add_prompt(lambda: "x", name="a", title="new", replace=True)
    assert [e.title for e in (*server.list_tools(), *server.list_resources(), *server.list_prompts())] == ["new"] * 3


@pytest.mark.parametrize(
    "declare",
    [
        lambda s: s.tool(nmae="x"),
        lambda s: s.prompt(nmae="x"),
        lambda s: s.resource("a:b", nmae="x"),
        lambda s: s.resource("a:{b}", nmae="x"),
    ],
)
def test_an_unknown_option_is_named_and_the_known_ones_are_listed(declare: Any) -> None:
    with pytest.raises(
        DeclarationError, match="unknown option 'nmae'; did you mean 'name'\\? a .* takes .*description"
    ):
        declare(Server("x"))(lambda b="": 1)


def test_a_template_has_no_size() -> None:
    with pytest.raises(DeclarationError, match="size= is for a resource with a fixed URI"):
        Server("x", version="1").add_resource("a:{b}", lambda b: b, size=1)


def test_a_misspelt_option_of_the_server_is_named_with_the_nearest() -> None:
    with pytest.raises(ConfigError, match="unknown option 'instuctions'; did you mean 'instructions'"):
        Server("x", instuctions="y")  # pyright: ignore[reportCallIssue]


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"name": ""},
        {"name": None},
        {"name": 123},
        {"name": "x", "version": ""},
        {"name": "x", "version": 1},
        {"name": "x", "version": None},
    ],
)
def test_a_server_has_a_name_and_a_version_both_strings(arguments: dict[str, Any]) -> None:
    """R7."""
    with pytest.raises(DeclarationError):
        Server(**arguments)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"page_size": 0}, "page_size"),
        ({"page_size": True}, "page_size"),
        ({"cache_scope": "shared"}, "cache_scope"),
        ({"no_such_option": 1}, "no_such_option"),
        ({"min_log_level": "loud"}, "loud"),
        ({"cache_ttl": -1}, "cache_ttl"),
    ],
)
def test_an_option_that_cannot_work_is_refused_at_once(options: dict[str, Any], named: str) -> None:
    """R95, R70 (levels are validated); ttlMs is never negative (protocol.md 1.5)."""
    with pytest.raises(Error, match=named):
        Server("x", **options)


# --- what it says about itself ---------------------------------------------------------------------------------------


async def test_it_introduces_itself_in_both_eras() -> None:
    """R1."""
    server = Server(
        "x",
        version="1",
        title="X",
        description="d",
        website_url="https://x",
        icons=[{"src": "s", "mime_type": "image/png"}],
        instructions="be kind",
    )
    async with Peer(server) as peer:
        modern = (await peer.modern("server/discover"))["result"]
        legacy = (await peer.initialize())["result"]
    info = {
        "name": "x",
        "version": "1",
        "title": "X",
        "description": "d",
        "websiteUrl": "https://x",
        "icons": [{"src": "s", "mimeType": "image/png"}],
    }
    assert legacy["serverInfo"] == modern["_meta"]["io.modelcontextprotocol/serverInfo"] == info
    assert legacy["instructions"] == modern["instructions"] == "be kind"
    assert modern["supportedVersions"] == [MODERN, *LEGACY]
    assert (modern["ttlMs"], modern["cacheScope"], modern["resultType"]) == (0, "public", "complete")
    assert not {"ttlMs", "cacheScope", "resultType"} & set(legacy)


async def test_instructions_are_absent_when_unset() -> None:
    """R1."""
    async with Peer(Server("x")) as peer:
        assert "instructions" not in (await peer.modern("server/discover"))["result"]
        assert "instructions" not in (await peer.initialize())["result"]


async def test_every_version_it_offers_it_also_lists() -> None:
    """protocol.md 2.2d: one server object may be served several ways at once, with and without the older revisions."""
    server = Server("x")
    async with Peer(server) as both, Peer(server, legacy=False) as modern_only:
        whole = (await both.modern("server/discover"))["result"]["supportedVersions"]
        part = (await modern_only.modern("server/discover"))["result"]["supportedVersions"]
    assert whole == [MODERN, *LEGACY]
    assert part == [MODERN]


def test_capabilities_follow_what_is_declared() -> None:
    """R6, R35, C27."""
    server = Server("x")
    assert server.capabilities() == {"logging": {}}
    server.add_tool(lambda: 1, name="a")
    assert server.capabilities()["tools"] == {"listChanged": True}
    server.add_resource("a:{b}", lambda b: 1)
    assert server.capabilities()["resources"] == {"listChanged": True, "subscribe": True}
    server.add_prompt(lambda a: "x", name="a")
    assert "completions" not in server.capabilities()
    server.add_completion(lambda v: [], prompt="a", argument="a")
    assert server.capabilities()["completions"] == {}
    server.remove_tool("a")
    assert "tools" not in server.capabilities()
    assert Server("x", logging=False).capabilities() == {}


async def test_a_method_comes_and_goes_with_its_capability() -> None:
    """R2, R35, C27: recomputed, on open channels too."""
    server = Server("x")
    async with Peer(server) as peer:
        await peer.initialize()
        for ask in (peer.modern, peer.legacy):
            assert (await ask("tools/list"))["error"]["code"] == -32601
        server.add_tool(lambda: 1, name="a")
        for ask in (peer.modern, peer.legacy):
            assert [t["name"] for t in (await ask("tools/list"))["result"]["tools"]] == ["a"]
        server.remove_tool("a")
        assert (await peer.modern("tools/list"))["error"]["code"] == -32601


def test_capabilities_can_be_overridden_and_added_to() -> None:
    """R6."""
    assert Server("x", capabilities={"tools": {}}).capabilities() == {"tools": {}}
    assert Server("x", experimental={"e": {"a": 1}}).capabilities()["experimental"] == {"e": {"a": 1}}
    server = Server("x", extensions={"com.example/a": {"b": 1}})
    server.enable_extension("com.example/c")
    assert server.capabilities()["extensions"] == {"com.example/a": {"b": 1}, "com.example/c": {}}


async def test_an_extension_brings_its_methods() -> None:
    server = Server("x")
    ran: list[Any] = []

    async def serve(call: Any) -> dict[str, Any]:
        ran.append(call.method)
        return {"answer": 42}

    server.enable_extension("com.example/thing", {"a": 1}, [(extend("thing/ask", DiscoverParams), serve)])
    async with Peer(server) as peer:
        assert (await peer.modern("thing/ask"))["result"]["answer"] == 42
        await peer.initialize()
        assert (await peer.legacy("thing/ask"))["error"]["code"] == -32601
    assert ran == ["thing/ask"]
    with pytest.raises(DeclarationError, match="prefixed"):
        server.enable_extension("thing")


async def test_cache_hints_are_the_servers_unless_a_thing_has_its_own() -> None:
    """protocol.md 1.5."""
    server = Server("x", cache_ttl=2, cache_scope="private")
    server.add_tool(lambda: 1, name="a")
    server.add_tool(lambda: 1, name="b", cache_ttl=0.5)
    server.add_resource("a:b", lambda: 1, cache_ttl=9)
    server.add_resource("a:c", lambda: 1)
    async with Peer(server) as peer:
        found = [
            (await peer.modern(method, params))["result"]
            for method, params in (
                ("tools/list", {}),
                ("resources/list", {}),
                ("resources/read", {"uri": "a:b"}),
                ("resources/read", {"uri": "a:c"}),
            )
        ]
    assert [r["ttlMs"] for r in found] == [500, 2000, 9000, 2000]
    assert {r["cacheScope"] for r in found} == {"private"}


async def test_lists_are_paged() -> None:
    """R38."""
    server = Server("x", page_size=2)
    for name in "abcde":
        server.add_tool(lambda: 1, name=name)
    async with Peer(server) as peer:
        seen: list[str] = []
        params: dict[str, Any] = {}
        for _ in range(3):
            result = (await peer.modern("tools/list", params))["result"]
            seen += [t["name"] for t in result["tools"]]
            params = {"cursor": result.get("nextCursor")}
        assert params == {"cursor": None}
        assert (await peer.modern("tools/list", {"cursor": "nope"}))["error"]["code"] == -32602
    assert seen == list("abcde")


# --- callbacks -------------------------------------------------------------------------------------------------------


class Nothing:
    def server_info(self) -> dict[str, str]:
        return {"name": "callbacks", "version": "2"}


class Everything(Nothing):
    """R3: the whole set."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def instructions(self) -> str:
        return "from the callbacks"

    def capabilities(self) -> dict[str, Any]:
        return {"experimental": {"mine": {}}}

    async def init(self, arg: Any) -> dict[str, Any]:
        return {"arg": arg}

    async def list_tools(self, cursor: str | None, ctx: Context) -> Any:
        if cursor is None:
            return [{"name": "one", "inputSchema": {"type": "object"}}], "2"
        return [Tool(name="two")]

    async def call_tool(self, name: str, args: dict[str, Any], ctx: Context) -> Any:
        if name == "boom":
            raise ValueError("secret")
        if name == "nope":
            raise ProtocolError.invalid_params("unknown tool")
        return f"{name} {args} {ctx.state}"

    def list_resources(self, cursor: str | None, ctx: Context) -> list[Resource]:
        return [Resource(uri="cb:1")]

    def list_resource_templates(self, cursor: str | None, ctx: Context) -> list[ResourceTemplate]:
        return [ResourceTemplate(uri_template="cb:{n}")]

    def read_resource(self, uri: str, ctx: Context) -> Any:
        return f"read {uri} {ctx.uri}" if uri.startswith("cb:") else None

    def subscribe_resource(self, uri: str, ctx: Context) -> None:
        self.told.append(("subscribe", uri))

    def unsubscribe_resource(self, uri: str, ctx: Context) -> None:
        self.told.append(("unsubscribe", uri))

    def list_prompts(self, cursor: str | None, ctx: Context) -> list[Prompt]:
        return [Prompt(name="cb")]

    def get_prompt(self, name: str, args: dict[str, Any], ctx: Context) -> str:
        return f"{name} {args}"

    def complete(self, ref: Any, argument: Any, filled: Any, ctx: Context) -> list[str]:
        return [argument.value, *filled.values()]

    def set_log_level(self, level: str, ctx: Context) -> None:
        if level == "alert":
            raise ProtocolError(9, "not that one")
        self.told.append(("level", level))


async def test_only_server_info_is_mandatory_and_the_rest_does_not_exist() -> None:
    """R2."""
    server = Server(callbacks=Nothing())
    assert (server.info.name, server.info.version) == ("callbacks", "2")
    async with Peer(server) as peer:
        for method, params in (
            ("tools/list", {}),
            ("tools/call", {"name": "x"}),
            ("resources/list", {}),
            ("resources/read", {"uri": "a:b"}),
            ("prompts/list", {}),
            ("prompts/get", {"name": "x"}),
            (
                "completion/complete",
                {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}},
            ),
        ):
            assert (await peer.modern(method, params))["error"]["code"] == -32601, method


@pytest.mark.parametrize("info", [{"name": "x"}, {"version": "1"}, {"name": 1, "version": "1"}, None, "x"])
def test_callbacks_without_a_name_and_version_are_refused(info: Any) -> None:
    """R7."""

    class Bad:
        server_info = info

    with pytest.raises(DeclarationError):
        Server(callbacks=Bad())


async def test_every_callback_is_called(caplog: pytest.LogCaptureFixture) -> None:
    """R3."""
    callbacks = Everything()
    server = Server(callbacks=callbacks, init_arg="arg")
    assert server.instructions == "from the callbacks"
    assert server.capabilities()["experimental"] == {"mine": {}}
    async with Peer(server) as peer:
        first = (await peer.modern("tools/list"))["result"]
        second = (await peer.modern("tools/list", {"cursor": first["nextCursor"]}))["result"]
        assert [t["name"] for t in first["tools"] + second["tools"]] == ["one", "two"]
        assert "nextCursor" not in second
        assert texts(await peer.call("any", {"a": 1})) == ["any {'a': 1} {'arg': 'arg'}"]
        assert (await peer.modern("tools/call", {"name": "nope"}))["error"]["code"] == -32602
        with caplog.at_level(logging.ERROR, "trimaran"):
            failed = await peer.call("boom")
        assert failed["isError"] is True
        assert "secret" not in texts(failed)[0]
        assert "secret" in caplog.text
        assert [r["uri"] for r in (await peer.modern("resources/list"))["result"]["resources"]] == ["cb:1"]
        templates = (await peer.modern("resources/templates/list"))["result"]["resourceTemplates"]
        assert [t["uriTemplate"] for t in templates] == ["cb:{n}"]
        read = await peer.modern("resources/read", {"uri": "cb:7"})
        assert read["result"]["contents"][0]["text"] == "read cb:7 cb:7"
        assert (await peer.modern("resources/read", {"uri": "no:7"}))["error"]["data"] == {"uri": "no:7"}
        assert [p["name"] for p in (await peer.modern("prompts/list"))["result"]["prompts"]] == ["cb"]
        prompt = await peer.modern("prompts/get", {"name": "any", "arguments": {"a": "b"}})
        assert prompt["result"]["messages"][0]["content"]["text"] == "any {'a': 'b'}"
        params = {
            "ref": {"type": "ref/prompt", "name": "p"},
            "argument": {"name": "a", "value": "v"},
            "context": {"arguments": {"x": "y"}},
        }
        assert (await peer.modern("completion/complete", params))["result"]["completion"]["values"] == ["v", "y"]
        await peer.initialize()
        assert (await peer.legacy("resources/subscribe", {"uri": "cb:1"}))["result"] == {}
        assert (await peer.legacy("resources/unsubscribe", {"uri": "cb:1"}))["result"] == {}
        assert (await peer.legacy("logging/setLevel", {"level": "error"}))["result"] == {}
        assert (await peer.legacy("logging/setLevel", {"level": "alert"}))["error"]["code"] == 9
    assert callbacks.told == [("subscribe", "cb:1"), ("unsubscribe", "cb:1"), ("level", "error")]


async def test_declared_and_hand_written_features_mix() -> None:
    """R4: both show up in lists and both dispatch; what is declared comes first and wins."""
    server = Server(callbacks=Everything(), page_size=1)
    server.add_tool(lambda: "declared", name="mine")
    server.add_tool(lambda: "declared", name="also")
    server.add_resource("cb:1", lambda: "declared")
    server.add_prompt(lambda: "declared", name="ask")
    async with Peer(server) as peer:
        seen: list[str] = []
        params: dict[str, Any] = {}
        while True:
            result = (await peer.modern("tools/list", params))["result"]
            seen += [t["name"] for t in result["tools"]]
            if "nextCursor" not in result:
                break
            params = {"cursor": result["nextCursor"]}
        assert seen == ["mine", "also", "one", "two"]
        assert texts(await peer.call("mine")) == ["declared"]
        assert texts(await peer.call("other"))[0].startswith("other")
        assert (await peer.modern("resources/read", {"uri": "cb:1"}))["result"]["contents"][0]["text"] == "declared"
        prompt = await peer.modern("prompts/get", {"name": "ask"})
        assert prompt["result"]["messages"][0]["content"]["text"] == "declared"
        assert (await peer.modern("prompts/get", {"name": "else"}))["result"]["messages"]


async def test_a_hand_written_call_tool_gets_the_arguments_unchecked() -> None:
    """R87, C1: whatever schema its listing shows, checking is its own affair."""

    class Lenient:
        def server_info(self) -> dict[str, str]:
            return {"name": "lenient", "version": "1"}

        def list_tools(self, cursor: str | None, ctx: Context) -> list[dict[str, Any]]:
            schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
            return [{"name": "take", "inputSchema": schema}]

        def call_tool(self, name: str, arguments: dict[str, Any], ctx: Context) -> str:
            return f"{name} {arguments}"

    async with Peer(Server(callbacks=Lenient())) as peer:
        assert texts(await peer.call("take", {"n": "no number", "more": 1})) == ["take {'n': 'no number', 'more': 1}"]


@pytest.mark.parametrize("method", ["list_tools", "read_resource", "get_prompt", "complete"])
async def test_a_callback_that_fails_is_an_internal_error_without_its_detail(
    method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """R50."""
    callbacks = Everything()

    def fail(*args: Any) -> Any:
        raise ValueError("secret")

    setattr(callbacks, method, fail)
    requests: dict[str, tuple[str, dict[str, Any]]] = {
        "list_tools": ("tools/list", {}),
        "read_resource": ("resources/read", {"uri": "cb:1"}),
        "get_prompt": ("prompts/get", {"name": "x"}),
        "complete": (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "p"}, "argument": {"name": "a", "value": ""}},
        ),
    }
    async with Peer(Server(callbacks=callbacks)) as peer:
        with caplog.at_level(logging.ERROR, "trimaran"):
            error = (await peer.modern(*requests[method]))["error"]
    assert error["code"] == -32603
    assert "secret" not in error["message"]
    assert "secret" in caplog.text


# --- init, readiness, lifespan ---------------------------------------------------------------------------------------


async def test_init_runs_once_per_session_and_its_state_reaches_the_handlers() -> None:
    """R5."""
    made: list[Any] = []

    async def init(arg: str) -> dict[str, int]:
        made.append(arg)
        return {"number": len(made)}

    server = Server("x", init=init, init_arg="arg")
    server.add_tool(_state)
    await server.start()
    started = len(made)
    async with Peer(server) as one, Peer(server) as two:
        await one.initialize()
        await two.initialize()
        assert len(made) == started + 2
        numbers = [
            (await p.legacy("tools/call", {"name": "_state"}))["result"]["content"][0]["text"] for p in (one, two, one)
        ]
        assert numbers[0] == numbers[2] != numbers[1]
    assert len(made) == started + 2
    assert set(made) == {"arg"}


def _state(ctx: Context) -> str:
    return str(ctx.state["number"])


async def test_without_sessions_init_runs_once_for_the_server() -> None:
    """Ours: a modern call belongs to no session, so it sees the server's own state."""
    made: list[int] = []

    def init(arg: Any) -> dict[str, int]:
        made.append(1)
        return {"number": len(made)}

    server = Server("x", init=init)
    server.add_tool(_state)
    async with Peer(server) as peer:
        found = [texts(await peer.call("_state")) for _ in range(3)]
    assert found == [["1"]] * 3
    assert len(made) == 1


async def test_an_init_that_fails_answers_initialize_and_frees_the_slot(caplog: pytest.LogCaptureFixture) -> None:
    """R5."""
    fails = [True]

    def init(arg: Any) -> str:
        if fails:
            fails.pop()
            raise ValueError("secret")
        return "ok"

    server = Server("x", init=init, max_sessions=1)
    async with Peer(server) as peer:
        with caplog.at_level(logging.ERROR, "trimaran"):
            error = (await peer.initialize(ready=False))["error"]
        assert error["code"] == -32603
        assert "secret" not in error["message"]
        assert len(inside(server).sessions) == 0
        assert "result" in await peer.initialize()


@asynccontextmanager
async def _yielding(log: list[str], value: Any) -> AsyncIterator[Any]:
    log.append("in")
    try:
        yield value
    finally:
        log.append("out")


async def test_the_lifespan_is_entered_once_and_left() -> None:
    log: list[str] = []
    server = Server("x", lifespan=lambda server: _yielding(log, {"db": 1}))
    server.add_tool(_db)
    async with Peer(server) as peer:
        ids = [await peer.start("tools/call", {"name": "_db"}) for _ in range(3)]
        assert [texts((await peer.reply(i))["result"]) for i in ids] == [["1"]] * 3
    assert log == ["in"]
    await server.start()
    assert log == ["in"]
    await server.stop()
    assert log == ["in", "out"]
    await server.stop()
    assert log == ["in", "out"]


def _db(ctx: Context) -> str:
    return str(ctx.server.lifespan_state["db"])


async def test_a_server_can_be_started_again() -> None:
    """P39."""
    log: list[str] = []
    server = Server("x", lifespan=lambda server: _yielding(log, None))
    for _ in range(2):
        await server.start()
        await server.stop()
    assert log == ["in", "out"] * 2


async def test_a_start_that_fails_half_way_leaves_what_it_entered() -> None:
    """The lifespan is entered once for each time it is left, whatever comes after it fails."""
    log: list[str] = []
    fails = [True]

    def init(arg: Any) -> None:
        if fails:
            fails.pop()
            raise ValueError("not yet")

    server = Server("x", lifespan=lambda server: _yielding(log, None), init=init)
    with pytest.raises(ValueError, match="not yet"):
        await server.start()
    await server.start()
    await server.stop()
    assert log == ["in", "out", "in", "out"]


async def test_the_lifespan_is_there_before_a_session_is_made() -> None:
    """`init` may use what `lifespan` opened, on every transport."""
    seen: list[Any] = []
    server = Server(
        "x", lifespan=lambda server: _yielding([], "open"), init=lambda arg: seen.append(server.lifespan_state)
    )
    server.add_tool(lambda: 1, name="a")
    async with Peer(server) as peer:
        await peer.initialize()
    await server.stop()
    assert seen
    assert set(seen) == {"open"}


async def test_readiness_waits_for_a_question_to_be_answered_yes() -> None:
    """R24."""
    answers = iter([False, False, True])
    server = Server("x", wait_for=lambda: next(answers))
    server.add_tool(lambda: "in", name="a")
    async with Peer(server) as peer:
        assert texts(await peer.call("a")) == ["in"]
    assert list(answers) == []


async def test_readiness_waits_for_a_coroutine_to_end() -> None:
    """R24: what is registered meanwhile is not lost (R23)."""
    gate = asyncio.Event()
    server = Server("x", wait_for=gate.wait)
    server.add_tool(lambda: "early", name="early")
    async with Peer(server) as peer:
        id = await peer.start("tools/call", {"name": "late"})
        server.add_tool(lambda: "late", name="late")
        gate.set()
        assert texts((await peer.reply(id))["result"]) == ["late"]
    await server.wait_ready()


async def test_waiting_for_readiness_reports_a_timeout_and_goes_on() -> None:
    """R23: `TimedOut`, as its docstring says."""
    gate = asyncio.Event()
    server = Server("x", wait_for=gate.wait)
    try:
        with pytest.raises(TimedOut):
            await server.wait_ready(0.01)
    finally:
        gate.set()
        await server.wait_ready(5)


async def test_stopping_a_server_that_is_not_ready_yet_leaves_nothing_running() -> None:
    server = Server("x", wait_for=asyncio.Event().wait)
    waiting = asyncio.ensure_future(server.wait_ready(30))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    before = asyncio.all_tasks() - {asyncio.current_task(), waiting}
    await server.stop()
    waiting.cancel()
    await asyncio.wait({waiting})
    for _ in range(20):
        await asyncio.sleep(0)
    left = [t for t in before if not t.done()]
    for task in left:
        task.cancel()
    assert not left


async def test_a_call_to_a_server_that_never_gets_ready_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """R23."""
    server = Server("x", wait_for=lambda: False)
    server.add_tool(lambda: 1, name="a")
    waits = server.runtime.startup.wait_ready
    monkeypatch.setattr(server.runtime.startup, "wait_ready", lambda timeout: waits(0.01))
    async with Peer(server) as peer:
        error = (await peer.modern("tools/call", {"name": "a"}))["error"]
    assert error["code"] == -32603
    assert "not ready" in error["message"]
    task = server.runtime.startup._task
    assert task is not None
    task.cancel()


async def test_waiting_for_a_server_with_nothing_to_wait_for_is_over_at_once() -> None:
    server = Server("x")
    await soon(server.wait_ready())
    await soon(server.start())
    await soon(server.stop())


# --- local calls and the rest ----------------------------------------------------------------------------------------


async def test_local_calls_go_through_validation_and_middleware() -> None:
    """R21."""
    server = Server("x")
    seen: list[str] = []

    @server.middleware
    async def watch(call: Any, call_next: Any) -> Any:
        seen.append(call.method)
        return await call_next(call)

    server.add_tool(lambda a: a, name="t", input_schema={"type": "object", "properties": {"a": {"type": "integer"}}})
    server.add_resource("a:b", lambda: "r")
    server.add_prompt(lambda: "p", name="p")
    assert (await server.call_tool("t", {"a": "x"})).is_error
    assert (await server.call_tool("t", {"a": 1})).structured_content is not None
    await server.read_resource("a:b")
    await server.get_prompt("p")
    assert seen == ["tools/call", "tools/call", "resources/read", "prompts/get"]


async def test_a_local_call_has_nobody_to_ask_or_tell() -> None:
    server = Server("x")

    @server.tool
    async def talk(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.log("error", "x")
        await ctx.notify("x/y")
        await ctx.elicit("?", str)
        return "never"

    with pytest.raises(ProtocolError) as caught:
        await server.call_tool("talk")
    assert caught.value.code == -32021


async def test_broadcasts_reach_every_session_and_are_counted() -> None:
    """R19."""
    server = Server("x")
    assert server.broadcast("notifications/x") == 0
    async with Peer(server) as one, Peer(server) as two, Peer(server) as early:
        await one.initialize()
        await two.initialize()
        await early.initialize(ready=False)
        await one.legacy("ping")
        await two.legacy("ping")
        assert server.broadcast("notifications/x", {"a": 1}) == 2
        for peer in (one, two):
            assert await peer.receive() == {"jsonrpc": "2.0", "method": "notifications/x", "params": {"a": 1}}


@pytest.mark.parametrize(
    ("transport", "options"), [("pigeon", {}), ("http", {"workers": 0}), ("http", {"workers": True})]
)
def test_a_way_to_serve_that_does_not_exist_is_refused(transport: Any, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Server("x").run(transport, **options)


@pytest.mark.parametrize(
    ("transport", "options", "message"),
    [
        ("htpp", {}, "there is no transport 'htpp'; did you mean 'http'?"),
        ("http", {"prot": 80}, "unknown option 'prot'; did you mean 'port'? an HTTP server takes .*allowed_hosts"),
        ("stdio", {"watch_parnet": True}, "unknown option 'watch_parnet'; did you mean 'watch_parent'? stdio takes"),
        ("stdio", {"port": 80}, 'port= is an option of HTTP, not of stdio: server.run("http", port=...)'),
        ("stdio", {"workers": 2}, 'workers= is an option of HTTP, not of stdio: server.run("http", workers=...)'),
    ],
)
async def test_a_misspelt_way_to_serve_is_refused_with_the_nearest(
    transport: Any, options: dict[str, Any], message: str
) -> None:
    pattern = re.escape(message).replace(r"\.\*", ".*")
    with pytest.raises(ConfigError, match=pattern):
        Server("x").run(transport, **options)
    if "workers" not in options:
        with pytest.raises(ConfigError, match=pattern):
            await Server("x").serve(transport, **options)


def test_a_misspelt_option_of_the_app_is_refused_with_the_nearest() -> None:
    with pytest.raises(
        ConfigError, match="unknown option 'pth'; did you mean 'path'\\? the endpoint takes .*allowed_hosts.*path"
    ):
        Server("x").asgi(pth="/mcp")  # pyright: ignore[reportCallIssue]
    with pytest.raises(ConfigError, match="unknown option 'allowed_orgins'; did you mean 'allowed_origins'"):
        Server("x").asgi(allowed_orgins=[])  # pyright: ignore[reportCallIssue]


def test_an_endpoint_option_that_does_not_exist_is_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"colour": 1},
        {"store": "nowhere://"},
        {"tasks": "elsewhere"},
        {"gauges": "yes"},
        {"auth": object()},
    ]
    for options in wrong:
        with pytest.raises(ConfigError):
            Server("x").engine(**options)


def test_a_server_knows_its_name_version_and_instructions() -> None:
    server = Server("boat", version="1.2.0", instructions="Ask first.")
    assert (server.name, server.version, server.instructions) == ("boat", "1.2.0", "Ask first.")
    assert Server("boat").instructions is None
