"""Transforms: a tool under another name, with other words, arguments or results; own, mounted and remote ones."""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Raw
from tests.support.memory_peer import Peer

from trimaran import CallToolResult, Context, Depends, Server, ToolError, connect
from trimaran.errors import DeclarationError
from trimaran.serve import HttpServer
from trimaran.server.handlers import Handler
from trimaran.server.tools import ToolEntry, compile_tool
from trimaran.server.transforms import Transform
from trimaran.types import TextContent, Tool, ToolAnnotations

ERAS = ("modern", "legacy")


def shop() -> Server:
    """A server with a tool of each kind."""
    server = Server("shop")

    @server.tool(tags={"read"}, annotations=ToolAnnotations(read_only_hint=True, title="Search"))
    def search(q: str, ctx: Context, limit: int = 10, api_key: str = "none") -> list[str]:
        """Search the shop."""
        assert isinstance(ctx, Context)
        assert threading.current_thread() is not threading.main_thread()
        return [q, str(limit), api_key]

    @server.tool(tags={"write", "billing"})
    async def pay(amount: float) -> str:
        """Pay."""
        if amount > 100:
            raise ToolError("too much")
        return f"paid {amount}"

    @server.tool
    async def count(to: int) -> AsyncIterator[str]:
        """Count."""
        for number in range(to):
            yield f"{number} "

    return server


def remote(name: str = "far", answer: Any = None, schema: dict[str, Any] | None = None) -> tuple[ToolEntry, list[Any]]:
    """A tool as a proxy has it: arguments pass through unread, and the answer is the upstream's whole result."""
    sent: list[Any] = []
    entry = compile_tool(lambda: None, name=name)
    listed: dict[str, Any] = schema or {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
    entry.definition = Tool(
        name=name, input_schema=Raw(json.dumps(listed).encode()), meta={"_fastmcp": {"tags": ["x"]}}
    )
    entry.arguments = lambda raw, /, *, notes=None: {"arguments": raw}

    async def forward(arguments: Raw) -> Any:
        sent.append(json.loads(bytes(arguments)))
        return CallToolResult.ok("far away") if answer is None else answer

    entry.handler = Handler(forward)
    return entry, sent


def tool_of(server: Server, name: str) -> dict[str, Any]:
    return next(t for t in server.list_tools() if t.name == name).to_json()


async def call(server: Server, name: str, arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    return (await server.call_tool(name, arguments)).to_json()


def text(result: dict[str, Any]) -> str:
    return result["content"][0]["text"]


# --- words -----------------------------------------------------------------------------------------------------------


async def test_a_tool_is_shown_with_another_name_and_other_words() -> None:
    server = shop()
    server.transform(
        "search",
        name="find",
        title="Find",
        description="Find goods.",
        tags=["shop"],
        annotations={"idempotent_hint": True, "title": "F"},
    )
    tool = next(t for t in server.list_tools() if t.name == "find")
    assert (tool.title, tool.description, tool.tags) == ("Find", "Find goods.", {"shop"})
    assert tool.to_json()["annotations"] == {"title": "F", "readOnlyHint": True, "idempotentHint": True}
    assert (await call(server, "find", {"q": "a"}))["structuredContent"] == ["a", "10", "none"]
    with pytest.raises(Exception, match="unknown tool: 'search'"):
        await call(server, "search", {"q": "a"})


def test_words_cost_a_call_nothing() -> None:
    """The handler and the reader of the arguments are the tool's own."""
    entry = compile_tool(lambda a: a, name="a")
    copy = Transform("a", name="b", description="x", tags=["y"], annotations={"readOnlyHint": True})(entry)
    assert copy is not None
    assert (copy.handler, copy.arguments, copy.context) == (entry.handler, entry.arguments, entry.context)
    assert (entry.key, entry.definition.name, copy.key, copy.definition.name) == ("a", "a", "b", "b")
    assert Transform("other", name="b")(entry) is entry


def test_tags_of_a_remote_tool_are_replaced_under_either_key() -> None:
    entry, _ = remote()
    changed = Transform("far", tags=["y"])(entry)
    assert changed is not None
    assert changed.definition.tags == {"y"}
    bare = Transform("far", tags=[])(entry)
    assert bare is not None
    assert (bare.definition.tags, bare.definition.meta) == (frozenset(), None)


def test_a_hidden_tool_is_neither_listed_nor_served() -> None:
    server = shop()
    server.transform("tag:write", hidden=True)
    assert [t.name for t in server.list_tools()] == ["search", "count"]


def test_several_tools_are_meant_by_a_pattern_a_tag_or_a_function_also_later_ones() -> None:
    server = shop()
    server.transform("*", tags=["all"])
    server.transform(lambda tool: tool.name.startswith("c"), description="begins with c")
    server.add_tool(lambda: 1, name="cut")
    assert all(t.tags == {"all"} for t in server.list_tools())
    assert [t.name for t in server.list_tools() if t.description == "begins with c"] == ["count", "cut"]


def test_each_transform_sees_what_those_before_it_made() -> None:
    server = shop()
    server.transform("search", name="find")
    server.transform("find", description="after")
    assert tool_of(server, "find")["description"] == "after"
    with pytest.raises(DeclarationError, match="there is no tool 'search'"):
        server.transform("search", description="x")


# --- arguments -------------------------------------------------------------------------------------------------------


def transformed() -> Server:
    server = shop()
    server.transform(
        "search",
        name="find",
        arguments={
            "q": {"name": "query", "description": "What to look for.", "examples": ["shoes"]},
            "limit": {"default": 3},
            "api_key": {"value": "sesame"},
        },
    )
    return server


@pytest.mark.parametrize("era", ERAS)
async def test_arguments_are_renamed_fixed_and_defaulted_in_both_eras(era: Any) -> None:
    async with connect(transformed(), era=era) as client:
        tool = next(t for t in await client.list_tools() if t.name == "find")
        assert tool.input_schema == {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What to look for.", "examples": ["shoes"]},
                "limit": {"type": "integer", "default": 3},
            },
            "required": ["query"],
        }
        assert (await client.call_tool("find", {"query": "a", "api_key": "mine"})).data == ["a", "3", "sesame"]
        wrong = await client.call_tool("find", {"query": 1}, raise_on_error=False)
        assert (
            wrong.text == """invalid arguments for 'find': argument 'query': 1 is not of type "string" (at $.query)"""
        )
        missing = await client.call_tool("find", {"q": "a"}, raise_on_error=False)
        assert "missing required argument 'query'" in missing.text


async def test_the_same_over_http() -> None:
    async with HttpServer(transformed(), port=0) as http, connect(http.url) as client:
        assert (await client.call_tool("find", {"query": "a"})).data == ["a", "3", "sesame"]


async def test_a_repaired_argument_is_noted_under_the_callers_name() -> None:
    result = await call(transformed(), "find", {"query": "a", "limit": "5"})
    assert result["structuredContent"] == ["a", "5", "sesame"]
    assert "argument 'limit'" in result["content"][1]["text"]


async def test_what_only_the_function_finds_wrong_is_told_in_the_callers_names() -> None:
    import datetime

    server = Server("x")

    @server.tool
    def plan(day: datetime.date) -> str:
        return str(day)

    server.transform("plan", arguments={"day": {"name": "date"}})
    result = await call(server, "plan", {"date": "2026-02-31"})
    assert result["isError"]
    assert "argument 'date'" in text(result)
    assert "day" not in text(result)


async def test_dependencies_and_the_context_are_filled_in_as_before() -> None:
    server = Server("x")

    @server.tool
    def greet(name: str, lang: Annotated[str, Depends(lambda: "de")], ctx: Context) -> str:
        return f"{name} {lang} {ctx.server.name}"

    server.transform("greet", arguments={"name": {"name": "who"}}, result=str.upper)
    assert text(await call(server, "greet", {"who": "Ada"})) == "ADA DE X"


async def test_a_pattern_changes_the_argument_of_those_tools_that_have_it() -> None:
    server = shop()
    server.transform("*", arguments={"api_key": {"value": "k"}})
    assert (await call(server, "search", {"q": "a"}))["structuredContent"] == ["a", "10", "k"]
    assert text(await call(server, "pay", {"amount": 1})) == "paid 1.0"


REGION: dict[str, Any] = {
    "type": "object",
    "properties": {
        "region": {"type": "string", "x-mcp-header": "Region"},
        "zone": {"type": "string", "x-mcp-header": "Zone"},
    },
}


async def test_headers_that_repeat_arguments_follow_names_and_leave_with_hidden_ones() -> None:
    server = Server("x")
    server.add_tool(lambda arguments: str(arguments), name="go", input_schema=REGION)
    server.transform("go", arguments={"region": {"name": "where"}, "zone": {"value": "z"}})
    entry = server.tools.view["go"]
    assert entry.param_headers is not None
    assert [(p.name, p.path) for p in entry.param_headers.params] == [("Mcp-Param-Region", ("where",))]
    async with HttpServer(server, port=0) as http, connect(http.url, era="modern") as client:
        assert (await client.call_tool("go", {"where": "eu"})).text == "{'region': 'eu', 'zone': 'z'}"
    server.transform("go", arguments={"where": {"hidden": True}})
    bare = server.tools.view["go"]
    assert (bare.param_headers, bare.is_gated) == (None, False)


# --- wrap and result -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_function_around_a_tool_sees_and_changes_its_arguments_and_its_value(era: Any) -> None:
    server = shop()
    seen: list[Any] = []

    async def around(call_next: Any, arguments: dict[str, Any], ctx: Context) -> Any:
        seen.append((arguments, ctx.request_id is not None))
        rows = await call_next({**arguments, "api_key": "from wrap"})
        return [*rows, "wrapped"]

    # "api_key" is for the function to fill in, so it may be hidden without a value.
    arguments: Any = {"q": {"name": "query"}, "api_key": {"hidden": True}, "limit": {"value": 2}}
    server.transform("search", arguments=arguments, wrap=around)
    async with connect(server, era=era) as client:
        assert (await client.call_tool("search", {"query": "a"})).data == ["a", "2", "from wrap", "wrapped"]
        bad = await client.call_tool("search", {}, raise_on_error=False)
        assert "missing required argument 'query'" in bad.text
    assert seen == [({"q": "a", "limit": 2}, True)]


async def test_a_required_argument_may_be_hidden_where_a_function_fills_it_in() -> None:
    server = shop()

    async def fill(call_next: Any, arguments: dict[str, Any], ctx: Context) -> Any:
        return await call_next({"q": "filled", **arguments})

    server.transform("search", arguments={"q": {"hidden": True}}, wrap=fill)
    assert tool_of(server, "search")["inputSchema"].get("required") is None
    assert (await call(server, "search"))["structuredContent"][0] == "filled"


async def test_a_function_that_forgets_an_argument_is_told_so() -> None:
    server = shop()

    async def forget(call_next: Any, arguments: dict[str, Any], ctx: Context) -> Any:
        return await call_next({})

    server.transform("search", arguments={"q": {"name": "query"}}, wrap=forget)
    result = await call(server, "search", {"query": "a"})
    assert text(result) == "invalid arguments for 'search': missing required argument 'query' (a string)"


async def test_a_failure_passes_through_and_may_be_caught() -> None:
    server = shop()

    async def patient(call_next: Any, arguments: dict[str, Any], ctx: Context) -> Any:
        try:
            return await call_next(arguments)
        except ToolError as error:
            return f"sorry: {error}"

    server.transform("pay", result=str.upper)
    failed = await call(server, "pay", {"amount": 200})
    assert (failed["isError"], text(failed)) == (True, "too much")
    assert text(await call(server, "pay", {"amount": 1})) == "PAID 1.0"
    server.transform("pay", wrap=patient)
    assert text(await call(server, "pay", {"amount": 200})) == "sorry: too much"


async def test_a_streamed_result_is_shaped_whole_and_its_progress_still_goes_out() -> None:
    server = shop()
    server.transform("count", result=lambda blocks: blocks[0].text.split())
    async with Peer(server) as peer:
        params = {"name": "count", "arguments": {"to": 3}}
        reply = await peer.modern("tools/call", params, progressToken=1)
    assert [block["text"] for block in reply["result"]["content"]] == ["0", "1", "2"]
    assert [m["params"]["progress"] for m in peer.heard] == [1, 2, 3]


async def test_a_question_in_the_middle_works_inside_a_wrapped_tool_in_both_eras() -> None:
    server = Server("x")
    runs: list[str] = []

    @server.tool
    async def order(ctx: Context) -> str:
        answer = await ctx.elicit("Size?", {"type": "object", "properties": {"size": {"type": "string"}}})
        return f"size {answer.content['size']}"

    async def around(call_next: Any, arguments: dict[str, Any], ctx: Context) -> Any:
        runs.append("run")
        try:
            return await call_next(arguments)
        except Exception:
            return "swallowed"

    server.transform("order", wrap=around, result=str.upper)
    for era in ERAS:
        async with connect(server, era=era, on_elicit=lambda *_: {"size": "L"}) as client:  # pyright: ignore[reportArgumentType]
            assert (await client.call_tool("order")).text == "SIZE L"
    assert runs == ["run", "run", "run"], "twice in the modern era: once until the question, once with the answer"


def test_the_output_schema_follows_the_result() -> None:
    server = shop()

    def lengths(rows: list[str]) -> dict[str, int]:
        return {row: len(row) for row in rows}

    server.transform("search", result=lengths)
    assert tool_of(server, "search")["outputSchema"] == {"type": "object", "additionalProperties": {"type": "integer"}}
    server.transform("search", result=lambda value: value)
    assert "outputSchema" not in tool_of(server, "search")
    server.transform("search", output_schema={"type": "object"})
    assert tool_of(server, "search")["outputSchema"] == {"type": "object"}
    server.transform("search", result=len)
    assert "outputSchema" not in tool_of(server, "search")


async def test_a_shaped_result_is_held_to_its_new_schema() -> None:
    server = shop()
    server.transform(
        "search", result=lambda rows: {"n": rows[0]}, output_schema={"properties": {"n": {"type": "integer"}}}
    )
    result = await call(server, "search", {"q": "a"})
    assert result["isError"]
    assert "does not match its output schema" in text(result)


# --- remote tools ----------------------------------------------------------------------------------------------------


async def test_a_remote_tool_gets_its_own_names_and_its_schema_is_checked_here() -> None:
    entry, sent = remote()
    server, far = Server("outer"), Server("far")
    far.tools.add(entry)
    server.mount(far, "f", transforms={"far": {"arguments": {"q": {"name": "query"}}}})
    assert tool_of(server, "f_far")["inputSchema"]["properties"] == {"query": {"type": "string"}}
    assert text(await call(server, "f_far", {"query": "a", "more": [1.0]})) == "far away"
    assert sent == [{"q": "a", "more": [1.0]}]
    assert "argument 'query'" in text(await call(server, "f_far", {"query": 1}))
    assert len(sent) == 1, "nothing is sent that the upstream would refuse in its own names"


WHOLE: dict[str, Any] = {
    "content": [{"type": "text", "text": "3"}, {"type": "hologram", "x": 1}],
    "structuredContent": {"rows": [1, 2, 3]},
    "_meta": {"a": 1},
    "resultType": "complete",
}


async def test_the_result_of_a_remote_tool_is_a_call_tool_result_to_shape() -> None:
    entry, _ = remote(answer=Raw(json.dumps(WHOLE).encode()))
    server = Server("outer")
    server.tools.add(entry)

    async def same(call_next: Any, arguments: dict[str, Any], ctx: Context) -> Any:
        return await call_next(arguments)

    server.transform("far", wrap=same)
    plain = await call(server, "far", {"q": "a"})
    assert {**plain, "resultType": "complete"} == WHOLE, "what passes through a function stays whole"
    server.transform("far", result=lambda result: result.structured_content["rows"][:1])
    assert text(await call(server, "far", {"q": "a"})) == "[1]"


async def test_a_failure_of_a_remote_tool_is_a_tool_error_to_the_function_and_stays_whole_for_the_caller() -> None:
    failure: dict[str, Any] = {
        "content": [{"type": "text", "text": "no"}],
        "isError": True,
        "structuredContent": {"c": 1},
    }
    entry, _ = remote(answer=Raw(json.dumps(failure).encode()))
    server = Server("outer")
    server.tools.add(entry)
    caught: list[str] = []

    async def watch(call_next: Any, arguments: dict[str, Any], ctx: Context) -> Any:
        try:
            return await call_next(arguments)
        except ToolError as error:
            caught.append(str(error))
            raise

    server.transform("far", wrap=watch, result=lambda value: "never")
    assert await call(server, "far", {"q": "a"}) == failure
    assert caught == ["no"]


@pytest.mark.parametrize("here", ERAS)
@pytest.mark.parametrize("there", ERAS)
async def test_a_question_of_a_remote_tool_passes_by_the_functions(here: Any, there: Any) -> None:
    """A function around the tool sees its answer, and never the end of a round."""
    far, server = Server("far"), Server("outer")

    @far.tool
    async def order(what: str, ctx: Context) -> str:
        answer = await ctx.elicit("Size?", {"type": "object", "properties": {"size": {"type": "string"}}})
        return f"{what} of size {answer.content['size']}"

    seen: list[Any] = []

    async def watch(call_next: Any, arguments: dict[str, Any], ctx: Context) -> Any:
        try:
            result = await call_next(arguments)
        except Exception:
            return "swallowed"
        seen.append(result.content[0].text)
        return result

    options: Any = {
        "arguments": {"what": {"name": "item"}},
        "wrap": watch,
        "result": lambda r: r.content[0].text.upper(),
    }
    server.mount(far_proxy := Server.proxy(far, era=there), "f", transforms={"order": options})
    async with connect(server, era=here, on_elicit=lambda *_: {"size": "L"}) as client:  # pyright: ignore[reportArgumentType]
        assert (await client.call_tool("f_order", {"item": "hat"})).text == "HAT OF SIZE L"
    await server.stop()
    assert seen == ["hat of size L"]
    assert far_proxy.tools.owner == "far"


@pytest.mark.parametrize("here", ERAS)
@pytest.mark.parametrize("there", ERAS)
async def test_tools_of_a_proxy_are_transformed_in_every_pair_of_eras(here: Any, there: Any) -> None:
    server = Server("outer")
    server.mount(
        Server.proxy(shop(), era=there),
        include=["search", "pay"],
        transforms={
            "search": {"name": "find", "arguments": {"q": {"name": "query"}, "api_key": {"value": "k"}}},
            "pay": {"result": lambda result: result.content[0].text.upper()},
        },
    )
    async with connect(server, era=here) as client:
        assert [tool.name for tool in await client.list_tools()] == ["find", "pay"]
        assert (await client.call_tool("find", {"query": "a", "api_key": "mine"})).data == ["a", "10", "k"]
        assert (await client.call_tool("pay", {"amount": 1})).text == "PAID 1.0"
        failed = await client.call_tool("pay", {"amount": 200}, raise_on_error=False)
        assert (failed.is_error, failed.text) == (True, "too much")
        wrong = await client.call_tool("find", {"query": 1}, raise_on_error=False)
        assert "argument 'query'" in wrong.text
    await server.stop()


async def test_a_name_that_a_remote_server_turns_out_not_to_have_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    server = Server("outer")
    server.mount(proxy := Server.proxy(shop()), transforms={"serch": {"hidden": True}})
    proxy.transform("pey", hidden=True)
    server.transform("cound", hidden=True)
    server.transform("search", name="find")  # which is there, and then is not, by this name
    async with connect(server) as client:
        assert len(await client.list_tools()) == 3
    await server.stop()
    lines = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert len(lines) == 3
    assert all("did you mean" in line for line in lines)


async def test_a_plain_value_in_place_of_a_remote_result_keeps_the_promised_structure() -> None:
    entry, _ = remote()
    entry.definition = msgspec.structs.replace(
        entry.definition, output_schema={"type": "object", "properties": {"n": {"type": "integer"}}}
    )
    server = Server("outer")
    server.tools.add(entry)

    async def instead(call_next: Any, arguments: dict[str, Any], ctx: Context) -> Any:
        return {"n": 1}

    server.transform("far", wrap=instead)
    assert (await call(server, "far", {"q": "a"}))["structuredContent"] == {"n": 1}


# --- mounts ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"include": ["search", "c*"]}, ["search", "count"]),
        ({"exclude": ["search"]}, ["pay", "count"]),
        ({"include": ["tag:read", "tag:bill*"]}, ["search", "pay"]),
        ({"include": lambda tool: "u" in tool.name, "exclude": ["tag:none"]}, ["count"]),
        ({"read_only": True}, ["search"]),
        ({"exclude": lambda tool: not tool.tags}, ["search", "pay"]),
    ],
)
def test_a_mount_shows_the_tools_that_are_chosen(options: Any, names: list[str]) -> None:
    outer = Server("outer")
    outer.mount(shop(), **options)
    assert [t.name for t in outer.list_tools()] == names


async def test_a_mount_chooses_then_transforms_then_prefixes_and_stays_live() -> None:
    inner, outer = shop(), Server("outer")
    inner.add_prompt(lambda: "p", name="ask")
    outer.mount(inner, "shop", include=["s*"], transforms={"search": {"name": "find"}, "*": {"tags": ["mounted"]}})
    inner.add_tool(lambda: "new", name="sell")
    assert [(t.name, t.tags) for t in outer.list_tools()] == [
        ("shop_find", {"mounted"}),
        ("shop_sell", {"mounted"}),
    ]
    assert [p.name for p in outer.list_prompts()] == ["shop_ask"], "what chooses tools chooses nothing else"
    assert [t.name for t in inner.list_tools()] == ["search", "pay", "count", "sell"]
    assert text(await call(outer, "shop_sell")) == "new"


def test_two_servers_with_one_tool_name_are_refused_and_the_remedies_work() -> None:
    outer = Server("outer")
    outer.mount(shop())
    other = Server("other")
    other.add_tool(lambda: 1, name="pay")
    with pytest.raises(DeclarationError) as caught:
        outer.mount(other)
    assert "the tool 'pay' of the server 'other'" in str(caught.value)
    assert "the tool 'pay' of the server 'shop'" in str(caught.value)
    assert outer.runtime.mounted == [outer.runtime.mounted[0]]
    outer.mount(other, "other")
    outer.mount(other, transforms={"pay": {"name": "settle"}})
    assert {"other_pay", "settle"} <= {t.name for t in outer.list_tools()}


def test_two_prompts_with_one_name_are_refused_before_anything_is_mounted() -> None:
    inner, outer = shop(), Server("outer")
    for server in (inner, outer):
        server.add_prompt(lambda: "p", name="ask")
    with pytest.raises(DeclarationError, match="the prompt 'ask' of the server 'shop'"):
        outer.mount(inner)
    assert (outer.runtime.mounted, outer.list_tools()) == ([], [])


WRONG: list[tuple[Any, str]] = [
    ({"transforms": {"serch": {"name": "x"}}}, "there is no tool 'serch'; did you mean 'search'? there are: count,"),
    ({"include": ["pey"]}, "mount of the server 'shop': there is no tool 'pey'; did you mean 'pay'?"),
    ({"includ": ["pay"]}, "includ: options of a connection, and a Server needs none; did you mean 'include'?"),
    ({"prefx": "a"}, "prefx: options of a connection, and a Server needs none; did you mean 'prefix'?"),
    ({"include": "pay"}, 'include must be a list of names, patterns and tags, include=["search_*", "tag:billing"]'),
    ({"transforms": {"search": {"arguments": {"p": {"name": "x"}}}}}, "tool 'search' has no argument 'p'"),
    ({"transforms": {"search": {"arguments": {"q": {"hidden": True}}}}}, "argument 'q' is required"),
    ({"transforms": {"search": {"arguments": {"limit": {"value": "x"}}}}}, "value does not fit the schema"),
    ({"transforms": {"search": {"name": "pay"}}}, "has the name 'pay', and so has"),
]


@pytest.mark.parametrize(("options", "words"), WRONG, ids=[words[:60] for _, words in WRONG])
def test_a_mount_that_cannot_work_is_refused_and_mounts_nothing(options: Any, words: str) -> None:
    outer = Server("outer")
    with pytest.raises(DeclarationError) as caught:
        outer.mount(shop(), **options)
    assert words in str(caught.value)
    assert (outer.list_tools(), outer.runtime.mounted) == ([], [])


def far_away() -> Server:
    """A remote server that is not connected yet."""
    far = Server("far")
    far.tools.expect_reset(LookupError)
    return far


def test_a_server_whose_tools_are_to_come_may_bring_what_the_options_name() -> None:
    far, outer = far_away(), Server("outer")
    outer.mount(far, transforms={"far": {"name": "near"}})
    outer.transform("near", tags=["x"])
    far.tools.reset([remote()[0]])
    assert [(t.name, t.tags) for t in outer.list_tools()] == [("near", {"x"})]
    with pytest.raises(DeclarationError, match="there are: near"):
        outer.transform("far", tags=["y"])
    with pytest.raises(DeclarationError, match="there are: none"):
        outer.mount(Server("empty"), transforms={"x": {"name": "y"}})


def test_a_late_tool_that_a_transform_does_not_fit_is_left_out_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Never shown unchanged: the transform may hide something."""
    far, outer = far_away(), Server("outer")
    outer.mount(far, transforms={"far": {"arguments": {"secret": {"hidden": True}}}})
    far.tools.add(remote()[0])
    assert outer.list_tools() == []
    assert "left out: the tool 'far' of the server 'far': tool 'far' has no argument 'secret'" in caplog.text


def test_a_refused_transform_changes_nothing() -> None:
    server = shop()
    before = [t.to_json() for t in server.list_tools()]
    for options in ({"name": "pay"}, {"arguments": {"q": {"hidden": True}}}):
        with pytest.raises(DeclarationError):
            server.transform("search", **options)  # pyright: ignore[reportArgumentType]
    assert [t.to_json() for t in server.list_tools()] == before
    server.add_tool(lambda: 1, name="later")


async def test_blocks_of_a_local_result_pass_through_a_function() -> None:
    server = Server("x")
    server.add_tool(lambda: CallToolResult.ok([TextContent(text="a")], structured={"b": 1}), name="t")
    server.transform("t", result=lambda result: result.structured_content)
    assert json.loads(text(await call(server, "t"))) == {"b": 1}
