"""Tools that a model finds when it needs them: `search_tools`, `call_tool`, and the providers' own deferred loading."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from trimaran import Host, Server
from trimaran.errors import Closed, ConfigError, LocalProtocolError
from trimaran.format.deferred import defer_tools
from trimaran.format.providers import to_provider
from trimaran.host import PermissionDenied, UnknownName
from trimaran.host.context.activation import ActiveTools
from trimaran.host.context.search_tool import search_declarations
from trimaran.host.names import Address


def make_server(name: str, *tools: tuple[str, str]) -> Server:
    server = Server(name, version="1")
    for tool, description in tools:

        def echo(text: str, tool: str = tool) -> str:
            return f"{tool}: {text}"

        server.add_tool(
            lambda text, tool=tool: f"{tool}: {text}",
            name=tool,
            description=description,
            input_schema={"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
        )
    return server


def make_host(**options: Any) -> Host:
    servers = {
        "post": make_server("post", ("send_mail", "Send an email."), ("drop_mail", "Delete an email.")),
        "disk": make_server("disk", ("write_file", "Write a file."), ("read_file", "Read a file.")),
    }
    defaults: dict[str, Any] = {"environ": {}, "allow": ["*"], "deny": ["mcp__post__drop_mail"]}
    return Host(servers, **{**defaults, **options})


async def test_a_host_finds_tools_by_what_they_do() -> None:
    async with make_host() as host:
        tools = await host.search_tools("save this as a file", limit=2)
        assert [tool.name for tool in tools][0] == "mcp__disk__write_file"
        assert len(tools) == 2
        assert await host.call(tools[0].name, {"text": "x"})
        assert host._active.addresses() == ()  # pyright: ignore[reportPrivateUsage]  # a program's search is no model's


async def test_a_changed_catalog_is_searched_as_it_is_now() -> None:
    async with make_host() as host:
        assert await host.search_tools("chess") == []
        await host.start_server("games", make_server("games", ("play_chess", "Play chess.")))
        assert [tool.name for tool in await host.search_tools("chess")] == ["mcp__games__play_chess"]
        await host.stop_server("games")
        assert await host.search_tools("chess") == []


async def test_a_closed_host_does_not_search() -> None:
    host = make_host()
    with pytest.raises(Closed):
        await host.search_tools("mail")


async def test_a_large_catalog_is_indexed_beside_the_event_loop() -> None:
    many = make_server("many", *((f"item_{number}", f"Number {number}.") for number in range(400)))
    async with Host({"many": many}, environ={}, allow=["*"]) as host:
        assert (await host.search_tools("item 77"))[0].name == "mcp__many__item_77"


async def test_a_model_searches_and_calls() -> None:
    async with make_host() as host:
        found = await host.call("search_tools", {"query": "send a mail", "limit": 1})
        definition = json.loads(found.text)
        assert definition["name"] == "mcp__post__send_mail"
        assert definition["inputSchema"]["required"] == ["text"]
        assert host._active.addresses() == (Address("post", "send_mail"),)  # pyright: ignore[reportPrivateUsage]
        result = await host.call("call_tool", {"name": definition["name"], "arguments": {"text": "hello"}})
        assert result.text == "send_mail: hello"


async def test_call_tool_passes_the_gate() -> None:
    """Ours: another name for a call is no way around the rules."""
    async with make_host() as host:
        with pytest.raises(PermissionDenied):
            await host.call("call_tool", {"name": "mcp__post__drop_mail", "arguments": {"text": "x"}})


@pytest.mark.parametrize(
    ("tool", "arguments", "error"),
    [
        ("search_tools", {}, LocalProtocolError),
        ("search_tools", {"query": 5}, LocalProtocolError),
        ("call_tool", {}, LocalProtocolError),
        ("call_tool", {"name": "call_tool", "arguments": {}}, LocalProtocolError),
        ("call_tool", {"name": "mcp__post__nothing"}, UnknownName),
        ("call_tool", {"name": "mcp__post__send_mail", "arguments": [1]}, LocalProtocolError),
    ],
)
async def test_wrong_arguments_are_told(tool: str, arguments: dict[str, Any], error: type[Exception]) -> None:
    async with make_host() as host:
        with pytest.raises(error):
            await host.call(tool, arguments)


async def test_a_search_without_a_match_says_what_to_do() -> None:
    async with make_host() as host:
        result = await host.call("search_tools", {"query": "zzxqv", "limit": "many"})
        assert not result.is_error
        assert "other words" in result.text


async def test_a_reply_that_searches_is_answered() -> None:
    async with make_host() as host:
        block = {"type": "tool_use", "id": "c1", "name": "search_tools", "input": {"query": "send a mail"}}
        answer = await host.answer(
            {"role": "assistant", "content": [block], "stop_reason": "tool_use"}, format="anthropic"
        )
        assert answer is not None
        text = cast("Any", answer)["content"][0]["content"][0]["text"]
        assert "mcp__post__send_mail" in text


# --- deferred loading ------------------------------------------------------------------------------------------------


async def test_anthropic_gets_references_to_deferred_tools() -> None:
    async with make_host() as host:
        block = {"type": "tool_use", "id": "c1", "name": "tool_search", "input": {"query": "send a mail", "limit": 1}}
        answer = await host.answer(
            {"role": "assistant", "content": [block], "stop_reason": "tool_use"}, format="anthropic"
        )
        assert cast("Any", answer)["content"] == [
            {
                "type": "tool_result",
                "tool_use_id": "c1",
                "content": [{"type": "tool_reference", "tool_name": "mcp__post__send_mail"}],
            }
        ]


async def test_openai_gets_the_definitions_that_were_found() -> None:
    async with make_host() as host:
        item = {
            "type": "tool_search_call",
            "id": "ts_1",
            "call_id": "c1",
            "execution": "client",
            "status": "completed",
            "arguments": {"query": "send a mail", "limit": 1},
        }
        hosted = {**item, "execution": "server", "call_id": None}
        answer = await host.answer({"output": [hosted, item]})
        assert isinstance(answer, list)
        assert len(answer) == 1
        output = cast("Any", answer[0])
        assert {key: output[key] for key in ("type", "call_id", "execution", "status")} == {
            "type": "tool_search_output",
            "call_id": "c1",
            "execution": "client",
            "status": "completed",
        }
        assert [(tool["name"], tool["defer_loading"]) for tool in output["tools"]] == [("mcp__post__send_mail", True)]


async def test_a_deferred_search_that_fails_is_told_as_an_error() -> None:
    async with make_host() as host:
        block = {"type": "tool_use", "id": "c1", "name": "tool_search", "input": {}}
        answer = await host.answer(
            {"role": "assistant", "content": [block], "stop_reason": "tool_use"}, format="anthropic"
        )
        assert cast("Any", answer)["content"][0]["is_error"] is True


async def test_a_host_defers_what_does_not_fit() -> None:
    async with make_host() as host:
        search, *tools = cast("Any", host.deferred_tools("anthropic"))
        assert search["name"] == "tool_search"
        assert "disk (2), post (2)" in search["description"]
        assert [tool["defer_loading"] for tool in tools] == [True] * 4
        search, *tools = cast("Any", host.deferred_tools("openai-responses"))
        assert (search["type"], tools) == ("tool_search", [])
        _, *tools = cast("Any", host.deferred_tools("openai-responses", budget=100_000))
        assert len(tools) == 4
        with pytest.raises(ConfigError, match="cannot defer"):
            host.deferred_tools(cast("Any", "gemini"))


def test_definitions_are_deferred_where_the_provider_can() -> None:
    search = search_declarations({"post": 2})[0]
    tools = [*search_declarations({})]  # any definitions will do
    anthropic = defer_tools(
        to_provider(tools, "anthropic"), to_provider([search], "anthropic")[0], {"call_tool"}, "anthropic"
    )
    assert [(tool["name"], tool.get("defer_loading")) for tool in anthropic] == [
        ("tool_search", None),
        ("search_tools", True),
        ("call_tool", None),
    ]
    declared = to_provider(tools, "openai-responses")
    responses = defer_tools(declared, to_provider([search], "openai-responses")[0], {"call_tool"}, "openai-responses")
    assert responses[0]["type"] == "tool_search"
    assert responses[0]["execution"] == "client"
    assert [tool["name"] for tool in responses[1:]] == ["call_tool"]
    with pytest.raises(ConfigError, match="cannot defer"):
        defer_tools([], {}, (), "gemini")


# --- active tools ----------------------------------------------------------------------------------------------------


def test_active_tools_are_bounded_and_keep_their_order() -> None:
    a, b, c, d = (Address("s", name) for name in "abcd")
    active = ActiveTools(most=3)
    active.add([a])
    active.add([b, c])
    assert set(active.addresses()) == {a, b, c}
    before = active.version
    active.touch(a)
    assert active.version == before
    active.add([d])
    assert a in active.addresses()
    assert c not in active.addresses()  # the last of the least recent search
    assert active.version > before
    active.keep({a, b})
    assert set(active.addresses()) == {a, b}
    active.touch(d)
    assert d not in active.addresses()


def test_the_declarations_name_the_servers_and_stay_small() -> None:
    search, call = search_declarations({f"server{number}": 3 for number in range(60)})
    assert "180" in (search.description or "")
    assert "20 more servers" in (search.description or "")
    assert (search.name, call.name) == ("search_tools", "call_tool")
