"""The legacy handshake, and the words each of the four revisions is spoken to in (protocol.md 1.8)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from tests.support.harness import (
    LEGACY,
    MODERN,
    Channel,
    Session,
    Wire,
    by_name,
    initialize,
    notification,
    request,
    serve,
)
from tests.support.until import soon

from trimaran import CallToolResult, Context, Server, content
from trimaran.errors import ProtocolError
from trimaran.types import PromptArgument

V11, V06, V03, V24 = LEGACY
ICONS = [{"src": "https://x.example/i.png", "mimeType": "image/png"}]
NOTES = {"audience": ["user"], "priority": 0.5, "lastModified": "2026-01-01T00:00:00Z"}
FORM = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "default": "Ada"},
        "ok": {"type": "boolean", "default": True},
        "size": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
        "tags": {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}},
    },
}


def rich(**options: Any) -> Server:
    """A server that uses every field that came with some revision."""
    server = Server(
        "rich",
        version="3",
        title="Rich",
        description="has it all",
        website_url="https://rich.example",
        icons=ICONS,
        instructions="Be kind.",
        experimental={"x": {}},
        extensions={"com.example/thing": {"on": True}},
        **options,
    )

    @server.tool(
        title="Full tool",
        annotations={"readOnlyHint": True},
        icons=ICONS,
        meta={"k": 1},
        output_schema={"type": "integer"},
    )
    async def scalar() -> int:
        "A tool."
        return 5

    @server.tool(output_schema={"type": "object", "properties": {"n": {"type": "integer"}}})
    async def shaped() -> dict[str, int]:
        return {"n": 1}

    @server.tool
    async def blocks() -> CallToolResult:
        return CallToolResult(
            content=[
                content.text("t", annotations=NOTES, meta={"m": 1}),
                content.audio(b"a", "audio/wav"),
                content.resource_link("file:///x", "x"),
                content.embedded(content.text_resource("file:///y", "y", meta={"m": 1})),
                content.image(b"i", "image/png"),
            ],
            structured_content={"s": 1},
            meta={"result": True},
        )

    @server.tool
    async def step(ctx: Context) -> str:
        await ctx.progress(1, 2, "half")
        return "ok"

    @server.tool
    async def form(ctx: Context) -> str:
        answer = await ctx.elicit("Fill in", FORM)
        return str(answer.content)

    @server.tool
    async def needs(a: int) -> int:
        return a

    @server.resource("r:1", title="Res", icons=ICONS, annotations=NOTES, meta={"k": 1}, size=5)
    def one() -> Any:
        return {"text": "x", "mimeType": "text/plain"}

    @server.resource("t:{x}", title="Tmpl", icons=ICONS, annotations=NOTES, meta={"k": 1})
    def tmpl(x: str) -> str:
        return x

    arguments = [PromptArgument(name="who", title="Who", description="d", required=True)]

    @server.prompt(title="Ask", icons=ICONS, meta={"k": 1}, arguments=arguments)
    def ask(who: str) -> Any:
        return [content.user_message(content.audio(b"a", "audio/wav")), content.user_message("hi")]

    @server.completion(prompt="ask", argument="who")
    def who(value: str) -> list[str]:
        return ["you"]

    return server


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["http", "asgi"])
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    async with serve(request.param, rich()) as wire:
        yield wire


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.mark.parametrize(
    ("asked", "given"),
    [*((v, v) for v in LEGACY), ("1999-01-01", V11), ("2099-01-01", V11), ("nonsense", V11), ("", V11), (MODERN, V11)],
)
async def test_the_version_is_echoed_or_the_newest_legacy_one(wire: Wire, asked: str, given: str) -> None:
    """R18, protocol.md 1.1: a mismatch is not an error; initialize never agrees on the modern revision."""
    session = await wire.initialize(asked, ready=False)
    assert session.reply.json["id"] == "init"
    assert session.hello["protocolVersion"] == given


async def test_what_initialize_answers(wire: Wire) -> None:
    """R1, R90, R99: serverInfo, instructions, capabilities; the id is visible ASCII, random, mcp_ and 32 hex digits."""
    one, two = await wire.initialize(ready=False), await wire.initialize(ready=False)
    assert re.fullmatch(r"mcp_[0-9a-f]{32}", one.id)
    assert one.id != two.id
    assert one.hello["serverInfo"]["name"] == "rich"
    assert one.hello["instructions"] == "Be kind."
    assert one.hello["capabilities"]["tools"] == {"listChanged": True}
    assert one.hello["capabilities"]["resources"] == {"listChanged": True, "subscribe": True}
    assert "resultType" not in one.hello


async def test_instructions_are_absent_when_unset(binding: str) -> None:
    """R1, R2, R6: what is not there is not said; capability groups appear only if supported."""
    async with serve(binding, Server("bare", version="1", logging=False)) as wire:
        session = await wire.initialize()
        assert "instructions" not in session.hello
        assert session.hello["capabilities"] == {}
        for method in (
            "tools/list",
            "resources/list",
            "prompts/list",
            "completion/complete",
            "logging/setLevel",
            "resources/subscribe",
        ):
            assert (await session.ask(method, {"uri": "x", "level": "info"})).error["code"] == -32601


BAD_PARAMS: dict[str, Any] = {
    "nothing": {},
    "no version": {"capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    "no capabilities": {"protocolVersion": V11, "clientInfo": {"name": "x", "version": "1"}},
    "no clientInfo": {"protocolVersion": V11, "capabilities": {}},
    "no client name": {"protocolVersion": V11, "capabilities": {}, "clientInfo": {"version": "1"}},
    "no client version": {"protocolVersion": V11, "capabilities": {}, "clientInfo": {"name": "x"}},
    "version number": {"protocolVersion": 1, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}},
    "capabilities array": {"protocolVersion": V11, "capabilities": [], "clientInfo": {"name": "x", "version": "1"}},
    "client name number": {"protocolVersion": V11, "capabilities": {}, "clientInfo": {"name": 1, "version": "1"}},
}


@pytest.mark.parametrize("case", BAD_PARAMS)
async def test_initialize_needs_its_params(wire: Wire, case: str) -> None:
    """R98, R122, C7: anything missing or mistyped is -32602 under HTTP 400, and no session is made."""
    before = len(wire.engine.server.sessions)
    reply = await wire.post(request("initialize", BAD_PARAMS[case], "i"))
    assert reply.verdict == (400, -32602, "i")
    assert "mcp-session-id" not in reply.headers
    assert len(wire.engine.server.sessions) == before


async def test_initialize_ignores_the_version_header(wire: Wire) -> None:
    """R121: the header is not checked on initialize."""
    assert (await wire.post(initialize(V06), {"MCP-Protocol-Version": "1999-01-01"})).result["protocolVersion"] == V06
    assert (await wire.post(initialize(V06), {"MCP-Protocol-Version": V11})).result["protocolVersion"] == V06


@pytest.mark.parametrize(
    "method", ["tools/list", "tools/call", "resources/list", "prompts/list", "logging/setLevel", "no/such"]
)
async def test_before_initialized_only_ping_is_answered(wire: Wire, method: str) -> None:
    """R97, C8: -32600 for everything else, with the id; ping gets {} at once."""
    session = await wire.initialize(ready=False)
    reply = await session.ask(method, {"name": "scalar", "level": "info"}, id="early")
    assert reply.error["code"] == -32600
    assert reply.json["id"] == "early"
    assert reply.status != 404  # which would tell the client that its session is gone
    assert (await session.ask("ping")).result == {}
    await session.notify("notifications/initialized")
    assert (await session.ask("tools/list")).status == 200


@pytest.mark.parametrize("version", LEGACY)
async def test_ping_and_unknown_methods(wire: Wire, version: str) -> None:
    """protocol.md 1.1, R122: `{}` without resultType; an unknown or modern method is -32601, and not a 404: that is "session ended"."""
    session = await wire.initialize(version)
    pong = await session.ask("ping", id="p")
    assert pong.json == {"jsonrpc": "2.0", "id": "p", "result": {}}
    assert pong.headers["mcp-session-id"] == session.id
    for method in ("no/such", "server/discover", "subscriptions/listen"):
        reply = await session.ask(method, {"notifications": {}})
        assert (reply.status, reply.error["code"]) == (200, -32601)
    assert (await session.ask("ping")).result == {}


async def test_handler_errors_travel_under_200(wire: Wire) -> None:
    """R122, C6: unknown tool and prompt -32602, a missing resource -32002 with data.uri."""
    session = await wire.initialize()
    unknown = await session.call("nope")
    assert (unknown.status, unknown.error["code"]) == (200, -32602)
    prompt = await session.ask("prompts/get", {"name": "nope"})
    assert (prompt.status, prompt.error["code"]) == (200, -32602)
    cursor = await session.ask("tools/list", {"cursor": "nope"})
    assert (cursor.status, cursor.error["code"]) == (200, -32602)
    for version in LEGACY:
        session = await wire.initialize(version)
        missing = await session.ask("resources/read", {"uri": "gone:1"})
        assert (missing.status, missing.error["code"], missing.error["data"]) == (200, -32002, {"uri": "gone:1"})


async def test_legacy_results_have_nothing_modern(wire: Wire) -> None:
    """protocol.md 1.5, 3.1: no resultType, no cache hints, no serverInfo on any result of any revision."""
    for version in LEGACY:
        session = await wire.initialize(version)
        asked: list[tuple[str, dict[str, Any]]] = [
            ("tools/list", {}),
            ("tools/call", {"name": "scalar"}),
            ("resources/list", {}),
            ("resources/templates/list", {}),
            ("resources/read", {"uri": "r:1"}),
            ("prompts/list", {}),
            ("prompts/get", {"name": "ask", "arguments": {"who": "x"}}),
            (
                "completion/complete",
                {"ref": {"type": "ref/prompt", "name": "ask"}, "argument": {"name": "who", "value": ""}},
            ),
            ("logging/setLevel", {"level": "error"}),
        ]
        for method, params in asked:
            result = (await session.ask(method, params)).result
            assert not {"resultType", "ttlMs", "cacheScope"} & set(result), (version, method)
            assert "io.modelcontextprotocol" not in str(result), (version, method)


# --- field gating: exactly the fields of each revision's schema --------------------------------------------------------

IMPLEMENTATION = {
    V24: {"name", "version"},
    V03: {"name", "version"},
    V06: {"name", "version", "title"},
    V11: {"name", "version", "title", "description", "websiteUrl", "icons"},
}
CAPABILITIES = {
    V24: {"tools", "resources", "prompts", "logging", "experimental"},
    V03: {"tools", "resources", "prompts", "logging", "experimental", "completions"},
    V06: {"tools", "resources", "prompts", "logging", "experimental", "completions"},
    V11: {"tools", "resources", "prompts", "logging", "experimental", "completions", "extensions"},
}
TOOL = {
    V24: {"name", "description", "inputSchema"},
    V03: {"name", "description", "inputSchema", "annotations"},
    V06: {"name", "description", "inputSchema", "annotations", "title", "outputSchema", "_meta"},
    V11: {"name", "description", "inputSchema", "annotations", "title", "outputSchema", "_meta", "icons"},
}
RESOURCE = {
    V24: {"uri", "name", "annotations", "size"},
    V03: {"uri", "name", "annotations", "size"},
    V06: {"uri", "name", "annotations", "size", "title", "_meta"},
    V11: {"uri", "name", "annotations", "size", "title", "_meta", "icons"},
}
PROMPT = {
    V24: {"name", "arguments"},
    V03: {"name", "arguments"},
    V06: {"name", "arguments", "title", "_meta"},
    V11: {"name", "arguments", "title", "_meta", "icons"},
}
ARGUMENT = {
    V24: {"name", "description", "required"},
    V03: {"name", "description", "required"},
    V06: {"name", "description", "required", "title"},
    V11: {"name", "description", "required", "title"},
}


@pytest.mark.parametrize("version", LEGACY)
async def test_initialize_speaks_the_revision(wire: Wire, version: str) -> None:
    """protocol.md 1.8: title since 2025-06-18; description, websiteUrl, icons since 2025-11-25; completions since 2025-03-26."""
    hello = (await wire.initialize(version)).hello
    assert set(hello["serverInfo"]) == IMPLEMENTATION[version]
    assert set(hello["capabilities"]) == CAPABILITIES[version]


@pytest.mark.parametrize("version", LEGACY)
async def test_lists_speak_the_revision(wire: Wire, version: str) -> None:
    """protocol.md 1.8: each definition has the fields of its revision and no others."""
    session = await wire.initialize(version)
    tool = by_name((await session.ask("tools/list")).result["tools"])["scalar"]
    assert set(tool) == TOOL[version]
    if version >= V06:
        # An output schema is object-rooted on these revisions.
        assert tool["outputSchema"]["type"] == "object"
    resource = (await session.ask("resources/list")).result["resources"][0]
    assert set(resource) == RESOURCE[version]
    template = (await session.ask("resources/templates/list")).result["resourceTemplates"][0]
    assert set(template) == RESOURCE[version] - {"uri", "size"} | {"uriTemplate"}
    for notes in (resource["annotations"], template["annotations"]):
        assert ("lastModified" in notes) == (version >= V06)
    prompt = (await session.ask("prompts/list")).result["prompts"][0]
    assert set(prompt) == PROMPT[version]
    assert set(prompt["arguments"][0]) == ARGUMENT[version]


async def _blocks(session: Session) -> Any:
    return (await session.call("blocks")).result


@pytest.mark.parametrize("version", LEGACY)
async def test_results_speak_the_revision(wire: Wire, version: str) -> None:
    """protocol.md 1.8: audio since 2025-03-26, resource_link, structuredContent and block _meta since 2025-06-18."""
    session = await wire.initialize(version)
    result = await _blocks(session)
    assert result["_meta"] == {"result": True}
    assert ("structuredContent" in result) == (version >= V06)
    first, audio, link, embedded, image = result["content"]
    assert ("_meta" in first) == (version >= V06)
    assert ("lastModified" in first["annotations"]) == (version >= V06)
    assert first["annotations"]["priority"] == 0.5
    assert audio["type"] == ("audio" if version >= V03 else "text")
    assert link["type"] == ("resource_link" if version >= V06 else "text")
    assert "file:///x" in str(link)
    assert ("_meta" in embedded["resource"]) == (version >= V06)
    assert image["type"] == "image"
    message = (await session.ask("prompts/get", {"name": "ask", "arguments": {"who": "x"}})).result["messages"][0]
    assert message["content"]["type"] == ("audio" if version >= V03 else "text")
    scalar = (await session.call("scalar")).result
    if version >= V06:
        assert isinstance(scalar["structuredContent"], dict)
        assert 5 in scalar["structuredContent"].values()
    else:
        assert "structuredContent" not in scalar
    assert scalar["content"][0]["text"] == "5"
    if version >= V06:
        assert (await session.call("shaped")).result["structuredContent"] == {"n": 1}


async def test_a_wrapped_result_fits_its_wrapped_schema(wire: Wire) -> None:
    """protocol.md 1.5: structuredContent conforms to the outputSchema that this very client was shown."""
    import jsonschema_rs

    for version in (V11, V06):
        session = await wire.initialize(version)
        schema = by_name((await session.ask("tools/list")).result["tools"])["scalar"]["outputSchema"]
        jsonschema_rs.validate(schema, (await session.call("scalar")).result["structuredContent"])


@pytest.mark.parametrize("version", LEGACY)
async def test_notifications_speak_the_revision(wire: Wire, version: str) -> None:
    """protocol.md 1.8: progress.message since 2025-03-26."""
    session = await wire.initialize(version)
    progress, response = (await session.call("step", progress="t")).messages
    assert progress["params"]["progress"] == 1
    assert progress["params"]["total"] == 2
    assert ("message" in progress["params"]) == (version >= V03)
    assert response["result"]["content"][0]["text"] == "ok"


@pytest.mark.parametrize("version", [V11, V06])
async def test_forms_speak_the_revision(wire: Wire, version: str) -> None:
    """protocol.md 1.3: before 2025-11-25 no mode, no defaults but boolean ones, enum with enumNames, no arrays."""
    session = await wire.initialize(version, caps={"elicitation": {"form": {}} if version == V11 else {}})
    async with await session.open_call("form") as stream:
        asked = await stream.message()
        schema = asked["params"]["requestedSchema"]["properties"]
        assert asked["params"].get("mode", "form") == "form"
        if version == V06:
            assert "mode" not in asked["params"]
            assert "default" not in schema["name"]
            assert schema["size"]["enum"] == ["s", "l"]
            assert schema["size"]["enumNames"] == ["Small", "Large"]
            assert "oneOf" not in schema["size"]
            assert all(f["type"] in ("string", "number", "integer", "boolean") for f in schema.values())
        else:
            assert schema == FORM["properties"]
        assert schema["ok"]["default"] is True
        await session.answer(asked["id"], {"action": "decline"})
        assert "result" in (await stream.rest())[-1]


@pytest.mark.parametrize("version", LEGACY)
async def test_bad_arguments_by_revision(wire: Wire, version: str) -> None:
    """protocol.md 1.5, 8.6: isError from 2025-11-25, -32602 before."""
    session = await wire.initialize(version)
    reply = await session.call("needs", {"a": "x"})
    assert reply.status == 200
    if version == V11:
        assert reply.result["isError"] is True
    else:
        assert reply.error["code"] == -32602


async def test_elicitation_does_not_exist_before_2025_06_18(wire: Wire) -> None:
    """protocol.md 1.3, 1.8: whatever an older client declares, its revision has no elicitation/create."""
    for version in (V03, V24):
        session = await wire.initialize(version, caps={"elicitation": {}})
        async with await session.open_call("form") as stream:
            assert stream.headers["content-type"] == "application/json", await stream.message()
            assert b"elicitation" in await stream.read()


# --- levels ----------------------------------------------------------------------------------------------------------


async def test_set_level_filters_what_is_sent(binding: str) -> None:
    """R56, R70, R71: info by default, setLevel moves it for this session only, an unknown level is -32602."""
    server = rich()

    @server.tool
    async def speak(ctx: Context) -> str:
        for level in ("debug", "info", "warning", "emergency"):
            await ctx.log(level, level, logger="l")
        return "ok"

    async with serve(binding, server) as wire:
        one, two = await wire.initialize(), await wire.initialize(V24)

        async def heard(session: Session) -> list[str]:
            return [m["params"]["level"] for m in (await session.call("speak")).messages[:-1]]

        assert await heard(one) == ["info", "warning", "emergency"]
        assert (await one.ask("logging/setLevel", {"level": "emergency"})).result == {}
        assert await heard(one) == ["emergency"]
        assert await heard(two) == ["info", "warning", "emergency"]
        assert (await one.ask("logging/setLevel", {"level": "loud"})).error["code"] == -32602
        assert (await one.ask("logging/setLevel", {})).error["code"] == -32602
        assert await heard(one) == ["emergency"]
        assert (await one.ask("logging/setLevel", {"level": "debug"})).result == {}
        assert await heard(one) == ["debug", "info", "warning", "emergency"]


async def test_the_level_hook_runs_first(binding: str, caplog: pytest.LogCaptureFixture) -> None:
    """R70, R50: the level changes only if the hook succeeds; an exception of the hook is redacted."""
    seen: list[str] = []

    async def hook(level: str, ctx: Context) -> None:
        seen.append(level)
        if level == "debug":
            raise ProtocolError.invalid_params("not debug")
        if level == "alert":
            raise RuntimeError("inner secret")

    server = rich(on_set_level=hook)

    @server.tool
    async def level(ctx: Context) -> str:
        return str(ctx.min_log_level)

    async with serve(binding, server) as wire:
        session = await wire.initialize()
        assert (await session.ask("logging/setLevel", {"level": "debug"})).error["code"] == -32602
        assert (await session.call("level")).result["content"][0]["text"] == "info"
        failed = (await session.ask("logging/setLevel", {"level": "alert"})).error
        assert failed["code"] == -32603
        assert "secret" not in str(failed)
        assert (await session.ask("logging/setLevel", {"level": "error"})).result == {}
        assert (await session.call("level")).result["content"][0]["text"] == "error"
        assert seen == ["debug", "alert", "error"]


# --- channels --------------------------------------------------------------------------------------------------------


async def test_the_handshake_on_a_channel() -> None:
    """R97, protocol.md 2.4: the same gates; initialize may be followed by pipelined messages; both eras interleave."""
    async with Channel(rich()) as channel:
        assert (await channel.ask("tools/list"))["error"]["code"] == -32600
        await channel.send(initialize(V06))
        await channel.send(notification("notifications/initialized"))
        await channel.send(request("ping", id="p"))
        await channel.send(request("tools/list", id="t"))
        assert (await channel.receive())["result"]["protocolVersion"] == V06
        found = {m["id"]: m for m in (await channel.receive(), await channel.receive())}
        assert found["p"]["result"] == {}
        assert "resultType" not in found["t"]["result"]
        assert (await channel.modern("tools/list"))["result"]["resultType"] == "complete"


async def test_before_initialized_on_a_channel() -> None:
    """R97: only ping."""
    async with Channel(rich()) as channel:
        await channel.send(initialize())
        await channel.receive()
        assert (await channel.ask("tools/list"))["error"]["code"] == -32600
        assert (await channel.ask("ping"))["result"] == {}


async def test_a_channel_without_the_older_half() -> None:
    """protocol.md 2.4: a modern-only server's error names the supported versions."""
    async with Channel(rich(), legacy=False) as channel:
        await channel.send(initialize())
        assert MODERN in str((await channel.receive())["error"])
        assert "error" in await channel.ask("ping")


async def test_starting_over_on_a_channel() -> None:
    """R39: a re-initialised session has no carried-over subscriptions."""
    server = rich()
    async with Channel(server) as channel:
        await channel.initialize()
        await channel.ask("resources/subscribe", {"uri": "r:1"})
        server.notify.resource_updated("r:1")
        assert (await channel.receive())["method"] == "notifications/resources/updated"
        await channel.initialize()
        server.notify.resource_updated("r:1")
        assert (await channel.ask("ping", id="p"))["id"] == "p"


async def test_questions_on_a_channel() -> None:
    """R60, R61: a real request with an id of ours; the answer is matched, a late or foreign one is ignored."""
    async with Channel(rich()) as channel:
        await channel.initialize(caps={"elicitation": {}})
        await channel.send(request("tools/call", {"name": "form"}, "c"))
        asked = await channel.receive()
        assert asked["method"] == "elicitation/create"
        await channel.send({"jsonrpc": "2.0", "id": "srv-99", "result": {}})
        await channel.send(
            {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"name": "Bo"}}}
        )
        reply = await channel.receive()
        assert reply["id"] == "c"
        assert "Bo" in reply["result"]["content"][0]["text"]
        await channel.send({"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "cancel"}})
        assert (await channel.ask("ping"))["result"] == {}


async def test_batches_on_a_channel_by_revision() -> None:
    """protocol.md 1.1: 2025-03-26 only; replies come as one array."""
    async with Channel(rich()) as channel:
        await channel.initialize(V03)
        await channel.send([request("ping", id=1), notification("notifications/x"), request("ping", id=2)])
        assert sorted(m["id"] for m in await channel.receive()) == [1, 2]
    for version in (V11, V06, V24):
        async with Channel(rich()) as channel:
            await channel.initialize(version)
            assert (await _sent(channel, [request("ping", id=1)]))["error"]["code"] == -32600


async def test_a_batch_that_is_too_long_is_refused_and_not_cut() -> None:
    """A call that is left out would wait for its answer for ever."""
    async with Channel(rich()) as channel:
        await channel.initialize(V03)
        refused = await _sent(channel, [request("ping", id=n) for n in range(101)])
        assert refused["error"]["code"] == -32600
        assert "a batch may hold 100 messages, not 101" in refused["error"]["message"]


async def _sent(channel: Channel, message: Any) -> Any:
    await channel.send(message)
    return await soon(asyncio.shield(channel.receive()))
