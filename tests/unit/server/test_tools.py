"""Tools: declared or registered, called in every way, failing in every way (R28, R43-R49, R82-R88; P24, P27, P46, P48)."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
import threading
from collections.abc import AsyncIterator
from typing import Annotated, Any

import msgspec
import pytest
from tests.support.memory_peer import MODERN, P, Peer, texts
from tests.support.until import soon

from trimaran import Context, ProtocolError, Server, ToolError, content
from trimaran.errors import DeclarationError
from trimaran.server.exchange import Exchange
from trimaran.server.tools import ToolOptions, compile_tool
from trimaran.types import CallToolResult, Icon, TextContent, ToolAnnotations

PAIR: dict[str, Any] = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a"],
    "additionalProperties": False,
}


class Sum(msgspec.Struct):
    total: int


@pytest.fixture
def server() -> Server:
    return Server("tools", version="1")


async def call(server: Server, name: str, **arguments: Any) -> dict[str, Any]:
    return (await soon(server.call_tool(name, arguments))).to_json()


# --- what is listed --------------------------------------------------------------------------------------------------


def test_a_tool_is_described_by_its_function(server: Server) -> None:
    @server.tool
    def add(a: int, b: int = 2) -> int:
        """Add two numbers.

        Args:
            a: the first
        """
        return a + b

    (tool,) = server.list_tools()
    assert (tool.name, tool.description) == ("add", "Add two numbers.")
    assert tool.input_schema == {
        "type": "object",
        "properties": {"a": {"type": "integer", "description": "the first"}, "b": {"type": "integer", "default": 2}},
        "required": ["a"],
    }
    assert tool.output_schema == {"type": "integer"}
    assert add(1) == 3, "the function stays as it is"


def test_every_option_is_listed(server: Server) -> None:
    """R14, R25, R26."""

    @server.tool(
        name="n",
        title="T",
        description="d",
        annotations={"readOnlyHint": True, "x": 1},
        icons=[{"src": "s", "mime_type": "image/png"}, Icon(src="t")],
        meta={"m": 1},
    )
    def fn() -> str:
        return ""

    assert server.list_tools()[0].to_json() == {
        "name": "n",
        "title": "T",
        "description": "d",
        "inputSchema": {"type": "object", "properties": {}},
        "annotations": {"readOnlyHint": True, "x": 1},
        "icons": [{"src": "s", "mimeType": "image/png"}, {"src": "t"}],
        "_meta": {"m": 1},
    }


class Shop:
    def price(self, item: str) -> int:
        return len(item)


def test_a_method_needs_its_object(server: Server) -> None:
    """A client would be asked for `self`."""
    with pytest.raises(
        DeclarationError, match=r"price is a method, .* of which Shop: .*server\.add_tool\(Shop\(\)\.price\)"
    ):
        server.add_tool(Shop.price)
    server.add_tool(Shop().price)
    assert asyncio.run(server.call_tool("price", {"item": "tea"})).structured_content == 3


@pytest.mark.parametrize("kind", ["tool", "prompt"])
def test_a_name_without_its_keyword_is_told_where_it_goes(server: Server, kind: str) -> None:
    """Other libraries take it there."""
    with pytest.raises(DeclarationError, match=rf"write @server\.{kind}\(name='add'\)"):
        getattr(server, kind)("add")


def test_annotations_may_be_typed(server: Server) -> None:
    server.add_tool(lambda: 1, name="n", annotations=ToolAnnotations(destructive_hint=False))
    assert server.list_tools()[0].to_json()["annotations"] == {"destructiveHint": False}


def test_an_explicit_schema_is_listed_untouched(server: Server) -> None:
    schema = {**PAIR, "$schema": "https://json-schema.org/draft/2020-12/schema", "x-own": [1]}
    server.add_tool(lambda a, b=0: a, name="n", input_schema=schema, output_schema={"type": "object", "x-own": 2})
    tool = server.list_tools()[0]
    assert tool.input_schema == schema
    assert tool.output_schema == {"type": "object", "x-own": 2}


def test_the_context_is_no_argument_wherever_it_stands(server: Server) -> None:
    @server.tool
    def first(ctx: Context, a: int) -> str:
        return type(ctx).__name__

    @server.tool
    def last(a: int, ctx: Context) -> str:
        return type(ctx).__name__

    @server.tool
    def keyword(a: int, *, where: Context) -> str:
        return type(where).__name__

    @server.tool
    def maybe(a: int, ctx: Context | None = None) -> str:
        return type(ctx).__name__

    for tool in server.list_tools():
        assert set(tool.to_json()["inputSchema"]["properties"]) == {"a"}


@pytest.mark.parametrize(
    "declare",
    [
        lambda s: s.add_tool(lambda: 1),
        lambda s: s.add_tool(5),
        lambda s: s.add_tool(lambda *a: 1, name="n"),
        lambda s: s.add_tool(lambda **k: 1, name="n"),
        lambda s: s.add_tool(lambda a, /: 1, name="n"),
        lambda s: s.add_tool(lambda: (yield), name="n"),
        lambda s: s.add_tool(min, name="n"),
        lambda s: s.add_tool(lambda: 1, name="n", input_schema={"type": "array"}),
        lambda s: s.add_tool(lambda: 1, name="n", input_schema={"type": "object", "properties": {"a": {"type": "x"}}}),
        lambda s: s.add_tool(lambda: 1, name="n", output_schema={"type": "nonsense"}),
        lambda s: s.add_tool(lambda: 1, name="n", timeout=0),
        lambda s: s.add_tool(lambda: 1, name="n", timeout=True),
        lambda s: s.add_tool(lambda: 1, name="n", scopes="admin"),
        lambda s: s.add_tool(lambda: 1, name="n", scopes=[1]),
        lambda s: s.add_tool(lambda: 1, name="n", icons=[{"mimeType": "x"}]),
        lambda s: s.add_tool(lambda: 1, name="n", colour="red"),
        lambda s: s.tool(colour="red")(lambda: 1),
        lambda s: s.add_tool(
            lambda a: 1, name="n", input_schema={**PAIR, "properties": {"a": {"type": "number", "x-mcp-header": "A"}}}
        ),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_declared(server: Server, declare: Any) -> None:
    """R9, R28, R185."""
    with pytest.raises(DeclarationError):
        declare(server)
    assert not server.tools


def test_any_name_is_taken(server: Server) -> None:
    """R10."""
    for name in ("with blank", "ünï", "a/b", "x" * 300):
        server.add_tool(lambda: 1, name=name)
    assert len(server.tools) == 4


# --- return shapes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("x", {"content": [{"type": "text", "text": "x"}]}),
        ({"a": 1}, {"content": [{"type": "text", "text": '{"a":1}'}]}),
        (TextContent(text="x"), {"content": [{"type": "text", "text": "x"}]}),
        (CallToolResult.error("x"), {"content": [{"type": "text", "text": "x"}], "isError": True}),
        (ToolError("x"), {"content": [{"type": "text", "text": "x"}], "isError": True}),
        (
            content.structured({"a": 1}, "x"),
            {"content": [{"type": "text", "text": "x"}], "structuredContent": {"a": 1}},
        ),
    ],
)
async def test_what_a_tool_returns_is_its_result(server: Server, value: Any, expected: Any) -> None:
    """R43, R44, R45, R47, R48; every shape is in test_results.py."""
    server.add_tool(lambda: value, name="n")
    assert await call(server, "n") == expected


async def test_a_typed_result_is_structured(server: Server) -> None:
    @server.tool
    async def add(a: int, b: int) -> Sum:
        return Sum(total=a + b)

    assert await call(server, "add", a=1, b=2) == {
        "content": [{"type": "text", "text": '{"total":3}'}],
        "structuredContent": {"total": 3},
    }


async def test_structure_can_be_switched_off(server: Server) -> None:
    @server.tool(structured_output=False)
    async def add() -> Sum:
        return Sum(total=1)

    assert server.list_tools()[0].output_schema is None
    assert "structuredContent" not in await call(server, "add")


async def test_output_that_breaks_its_schema_is_an_error_in_result_and_log(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """C2, R88."""
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    server.add_tool(lambda: {"n": "x"}, name="bad", output_schema=schema)
    server.add_tool(lambda: {"n": "x"}, name="free", output_schema=schema, validate_output=False)
    server.add_tool(lambda: {"n": 1}, name="good", output_schema=schema)
    with caplog.at_level(logging.ERROR, "trimaran"):
        result = await call(server, "bad")
    assert result["isError"] is True
    assert "structuredContent" not in result
    assert "output schema" in caplog.text
    assert (await call(server, "free"))["structuredContent"] == {"n": "x"}
    assert (await call(server, "good"))["structuredContent"] == {"n": 1}


# --- arguments -------------------------------------------------------------------------------------------------------


async def test_arguments_are_checked_before_the_handler_and_the_first_fault_is_named(server: Server) -> None:
    """R84."""
    called: list[Any] = []

    @server.tool
    def add(a: int, b: int = 2) -> int:
        called.append(a)
        return a + b

    for arguments in ({}, {"a": "x"}, {"a": 1.5}, {"a": None}):
        result = await call(server, "add", **arguments)
        assert result["isError"] is True
        assert "'a'" in texts(result)[0]
    assert not called
    assert (await call(server, "add", a=1, extra=True))["structuredContent"] == 3, "extra arguments are ignored (C3)"


@pytest.mark.parametrize("arguments", [[], "x", 5, None, True])
async def test_arguments_that_are_no_object_are_invalid_params(server: Server, arguments: Any) -> None:
    """R85."""
    server.add_tool(lambda a=1: a, name="derived")
    server.add_tool(lambda a, b=0: a, name="explicit", input_schema=PAIR)
    server.add_tool(lambda a, b=0: a, name="free", input_schema=PAIR, validate_input=False)
    async with Peer(server) as peer:
        for name in ("derived", "explicit", "free"):
            message = await peer.modern("tools/call", {"name": name, "arguments": arguments})
            assert message["error"]["code"] == -32602, name


async def test_arguments_may_be_left_out(server: Server) -> None:
    server.add_tool(lambda: "x", name="n")
    async with Peer(server) as peer:
        assert texts(await peer.call("n")) == ["x"]


async def test_arguments_that_are_no_text_are_the_callers_fault(server: Server) -> None:
    """R85: -32602 (or -32700), not an internal error."""
    server.add_tool(lambda a: "x", name="n")
    head = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"n","arguments":{"a":"\xff"},"_meta":'
    meta = msgspec.json.encode({P + "protocolVersion": MODERN, P + "clientCapabilities": {}})
    async with Peer(server) as peer:
        await peer.send(head + meta + b"}}")
        message = await peer.receive()
    assert message.get("error", {}).get("code") in (-32602, -32700) or message.get("result", {}).get("isError")


async def test_an_explicit_schema_is_enforced(server: Server) -> None:
    """C1, C4, R84."""
    server.add_tool(lambda a, b=0: a + b, name="n", input_schema=PAIR)
    assert texts(await call(server, "n", a=1, b=2)) == ["3"]
    assert (await call(server, "n", a=1, c=2))["isError"] is True
    assert (await call(server, "n", b=1))["isError"] is True


async def test_input_validation_can_be_left_to_the_handler(server: Server) -> None:
    """C1."""
    server.add_tool(lambda args: args, name="n", input_schema=PAIR, validate_input=False)
    assert texts(await call(server, "n", c=1)) == ['{"c":1}']


async def test_a_handler_with_one_parameter_takes_the_arguments_whole(server: Server) -> None:
    """R28: (args) or (args, ctx)."""

    def with_context(args: dict[str, Any], ctx: Context) -> str:
        return f"{args} {ctx.request_id}"

    server.add_tool(lambda args: args["a"], name="whole", input_schema=PAIR)
    server.add_tool(with_context, input_schema=PAIR)
    server.add_tool(lambda a: a, name="named", input_schema=PAIR)
    server.add_tool(lambda **args: sorted(args), name="keywords", input_schema=PAIR)
    assert texts(await call(server, "whole", a=1)) == ["1"]
    assert texts(await call(server, "with_context", a=1)) == ["{'a': 1} 0"]
    assert texts(await call(server, "named", a=5, b=6)) == ["5"], "what the function does not care for is dropped"
    assert texts(await call(server, "keywords", a=1, b=2)) == ["a", "b"]


@pytest.mark.parametrize("schema", [PAIR, {"type": "object"}], ids=["with properties", "open"])
async def test_a_parameter_called_ctx_is_the_context_without_an_annotation(server: Server, schema: Any) -> None:
    """R28: the arity is detected, also of a lambda, which cannot be annotated."""
    server.add_tool(lambda args, ctx: f"{args} {ctx.request_id}", name="two", input_schema=schema)
    assert texts(await call(server, "two", a=1)) == ["{'a': 1} 0"]


async def test_a_ctx_that_is_annotated_as_something_else_is_an_argument(server: Server) -> None:
    @server.tool
    def look(ctx: str) -> str:
        return ctx

    assert texts(await call(server, "look", ctx="mine")) == ["mine"]


@pytest.mark.parametrize("fn", [lambda x, y: x, lambda a, b, c: a, lambda a, missing: a])
def test_a_handler_that_cannot_be_called_with_its_schema_is_refused(server: Server, fn: Any) -> None:
    """R28: at registration, not at every call."""
    with pytest.raises(DeclarationError):
        server.add_tool(fn, name="n", input_schema=PAIR)


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ({"items": "[1, 2]"}, "[1,2] None"),
        ({"items": [1], "note": "[1]"}, "[1] [1]"),
        ({"items": [1], "note": '{"a": 1}'}, '[1] {"a": 1}'),
    ],
)
async def test_stringified_json_is_read_only_where_no_string_fits(server: Server, sent: Any, seen: str) -> None:
    """P24, and its reverse: a string that looks like JSON stays one."""

    @server.tool
    def take(items: list[int], note: str | None = None) -> str:
        return f"{msgspec.json.encode(items).decode()} {note}"

    first, *notes = texts(await call(server, "take", **sent))
    assert first == seen
    # The model is told when its arguments had to be fixed, and only then.
    assert [n.startswith("Note: argument 'items' was a JSON string") for n in notes] == (
        [True] if isinstance(sent["items"], str) else []
    )


async def test_a_string_that_cannot_be_mended_is_refused(server: Server) -> None:
    """P24."""
    server.add_tool(_take_items)
    assert (await call(server, "_take_items", items="not json"))["isError"] is True


def _take_items(items: list[int]) -> str:
    return str(items)


async def test_stringified_json_is_mended_under_an_explicit_schema_too(server: Server) -> None:
    """P24."""
    schema = {"type": "object", "properties": {"items": {"type": "array"}}}
    server.add_tool(lambda items: items[0], name="n", input_schema=schema)
    first, note = texts(await call(server, "n", items="[7]"))
    assert first == "7"
    assert "read as an array" in note


# --- ways to run -----------------------------------------------------------------------------------------------------


async def test_every_kind_of_callable_is_a_tool(server: Server) -> None:
    class Box:
        def __init__(self, start: int) -> None:
            self.start = start

        def add(self, a: int) -> int:
            return self.start + a

        async def __call__(self, a: int) -> int:
            return self.start * a

    def plus(a: int, b: int) -> int:
        return a + b

    server.add_tool(Box(10).add, name="method")
    server.add_tool(Box(10), name="object")
    server.add_tool(functools.partial(plus, b=5), name="partial")
    found = [(await call(server, n, a=2))["structuredContent"] for n in ("method", "object", "partial")]
    assert found == [12, 20, 7]


@pytest.mark.parametrize("inline", [False, True])
async def test_a_plain_function_may_return_the_coroutine_of_an_async_one(server: Server, inline: bool) -> None:
    """Whose rule: ours. Wrappers that forward to an async function are common; they need no `async` of their own."""

    async def read(name: str) -> str:
        await asyncio.sleep(0)
        if name == "nothing":
            raise ToolError("no such file")
        return f"text of {name}"

    server.add_tool(lambda file: read(file), name="read", inline=inline)
    server.add_prompt(lambda: read("prompt"), name="ask")
    server.add_resource("note://{name}", lambda name: read(name))
    server.add_resource("note:all", lambda: read("all"))
    assert texts(await call(server, "read", file="a")) == ["text of a"]
    assert (await call(server, "read", file="nothing"))["isError"]
    assert "text of prompt" in str(await soon(server.get_prompt("ask")))
    for uri in ("note://a", "note:all"):
        assert "text of a" in str((await soon(server.read_resource(uri))).to_json())


async def test_a_plain_function_runs_in_a_thread_and_inline_ones_do_not(server: Server) -> None:
    """P46."""
    server.add_tool(lambda: threading.get_ident(), name="thread")
    server.add_tool(lambda: threading.get_ident(), name="inline", inline=True)
    here = threading.get_ident()
    assert texts(await call(server, "inline")) == [str(here)]
    assert texts(await call(server, "thread")) != [str(here)]


async def test_a_blocking_tool_does_not_hold_up_the_others(server: Server) -> None:
    gate = threading.Event()
    server.add_tool(lambda: gate.wait(5), name="slow")
    server.add_tool(lambda: "quick", name="quick")
    async with Peer(server) as peer:
        slow = await peer.start("tools/call", {"name": "slow"})
        assert texts(await peer.call("quick")) == ["quick"]
        gate.set()
        assert texts((await peer.reply(slow))["result"]) == ["true"]


async def test_a_thread_sees_the_callers_context_variables(server: Server) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    server.add_tool(lambda: variable.get(), name="n")
    variable.set("mine")
    assert texts(await call(server, "n")) == ["mine"]


async def test_a_tool_may_take_its_time_and_no_more(server: Server) -> None:
    """R69."""
    stopped = asyncio.Event()

    @server.tool(timeout=0.02)
    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return "never"

    async with Peer(server) as peer:
        message = await peer.modern("tools/call", {"name": "slow"})
    assert message["error"]["code"] == -32603
    assert "0.02" in message["error"]["message"]
    await soon(stopped.wait())


async def test_the_servers_time_limit_counts_where_a_tool_has_none() -> None:
    """R69."""
    server = Server("x", request_timeout=0.02)
    server.add_tool(_for_ever)
    server.add_tool(_soon, timeout=5)
    async with Peer(server) as peer:
        assert (await peer.modern("tools/call", {"name": "_for_ever"}))["error"]["code"] == -32603
        assert texts(await peer.call("_soon")) == ["done"]


async def _for_ever() -> None:
    await asyncio.Event().wait()


async def _soon() -> str:
    await asyncio.sleep(0)
    return "done"


async def test_an_async_generator_streams_progress_and_ends_in_all_of_it(server: Server) -> None:
    """P48."""

    @server.tool
    async def words() -> AsyncIterator[str]:
        yield "one "
        yield "two"

    async with Peer(server) as peer:
        result = await peer.call("words", progressToken="t")
    assert texts(result) == ["one two"]
    assert [n["params"] for n in peer.heard] == [
        {"progressToken": "t", "progress": 1, "message": "one "},
        {"progressToken": "t", "progress": 2, "message": "two"},
    ]
    assert server.list_tools()[0].output_schema is None


async def test_an_async_generator_may_yield_blocks_values_or_its_result(server: Server) -> None:
    """P48."""
    closed: list[str] = []

    @server.tool
    async def blocks() -> AsyncIterator[Any]:
        yield content.text("x")
        yield "y"

    @server.tool
    async def values() -> AsyncIterator[int]:
        yield 1
        yield 2

    @server.tool
    async def ends() -> AsyncIterator[Any]:
        try:
            yield "lost"
            yield CallToolResult.ok("whole")
            yield "never"
        finally:
            closed.append("ends")

    @server.tool
    async def nothing() -> AsyncIterator[str]:
        for part in ():
            yield part

    @server.tool
    async def fails() -> AsyncIterator[str]:
        yield "x"
        raise ToolError("half way")

    assert texts(await call(server, "blocks")) == ["x", "y"]
    assert texts(await call(server, "values")) == ["[1,2]"]
    assert texts(await call(server, "ends")) == ["whole"]
    assert closed == ["ends"]
    assert await call(server, "nothing") == {"content": []}
    assert await call(server, "fails") == {"content": [{"type": "text", "text": "half way"}], "isError": True}


async def test_the_progress_of_a_stream_grows_whoever_reports_it(server: Server) -> None:
    """protocol.md 1.4: `progress` strictly increases within a call."""

    @server.tool
    async def busy(ctx: Context) -> AsyncIterator[str]:
        await ctx.progress(10)
        yield "a"
        await ctx.progress(20)
        yield "b"

    async with Peer(server) as peer:
        assert texts(await peer.call("busy", progressToken=1)) == ["ab"]
    values = [n["params"]["progress"] for n in peer.heard]
    assert values == sorted(set(values)), values


# --- failing ---------------------------------------------------------------------------------------------------------


async def test_an_unknown_tool_is_invalid_params(server: Server) -> None:
    """C6."""
    server.add_tool(lambda: 1, name="n")
    async with Peer(server) as peer:
        message = await peer.modern("tools/call", {"name": "nope"})
    assert message["error"]["code"] == -32602
    assert message["error"]["data"] == {"name": "nope"}
    with pytest.raises(ProtocolError):
        await server.call_tool("nope")


async def test_a_tool_error_is_told_in_its_own_words(server: Server) -> None:
    """R48."""

    @server.tool
    def fail() -> str:
        raise ToolError("no such city", meta={"m": 1})

    assert await call(server, "fail") == {
        "content": [{"type": "text", "text": "no such city"}],
        "isError": True,
        "_meta": {"m": 1},
    }


@pytest.mark.parametrize("returned", [False, True])
async def test_a_protocol_error_goes_out_untouched(server: Server, returned: bool) -> None:
    """R48."""
    error = ProtocolError(1234, "mine", {"x": 1})

    @server.tool
    async def fail() -> Any:
        if returned:
            return error
        raise error

    async with Peer(server) as peer:
        message = await peer.modern("tools/call", {"name": "fail"})
    assert message["error"] == {"code": 1234, "message": "mine", "data": {"x": 1}}


@pytest.mark.parametrize("kind", ["async", "thread", "inline", "stream"])
async def test_any_other_exception_is_redacted_and_its_id_is_in_the_log(
    server: Server, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    """R49, C5, P27."""

    def plain() -> None:
        raise ValueError("the secret is 42")

    async def coroutine() -> None:
        raise ValueError("the secret is 42")

    async def stream() -> AsyncIterator[str]:
        raise ValueError("the secret is 42")
        yield ""

    fn = {"async": coroutine, "stream": stream}.get(kind, plain)
    server.add_tool(fn, name="leaky", inline=kind == "inline")
    with caplog.at_level(logging.ERROR, "trimaran"):
        result = await call(server, "leaky")
    (said,) = texts(result)
    assert result["isError"] is True
    assert "secret" not in said
    assert "ValueError" not in said
    (record,) = caplog.records
    number = said.split()[-1]
    assert number in record.getMessage()
    assert "the secret is 42" in caplog.text, "the full detail is in the log"


async def test_internal_errors_are_shown_where_that_was_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    """C5, P27."""
    server = Server("x", expose_internal_errors=True)

    @server.tool
    def leaky() -> None:
        raise ValueError("the secret is 42")

    with caplog.at_level(logging.ERROR, "trimaran"):
        assert "ValueError: the secret is 42" in texts(await call(server, "leaky"))[0]


async def test_a_result_json_cannot_hold_is_a_redacted_failure(
    server: Server, caplog: pytest.LogCaptureFixture
) -> None:
    server.add_tool(object, name="n", input_schema={"type": "object"})
    with caplog.at_level(logging.ERROR, "trimaran"):
        assert (await call(server, "n"))["isError"] is True


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), StopIteration()])
async def test_a_thread_cannot_end_the_process_by_raising(
    server: Server, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    def bad() -> None:
        raise error

    server.add_tool(bad)
    with caplog.at_level(logging.ERROR, "trimaran"):
        assert (await call(server, "bad"))["isError"] is True


# --- gates -----------------------------------------------------------------------------------------------------------


class Caller:
    def __init__(self, *scopes: str) -> None:
        self.subject = "someone"
        self.scopes = frozenset(scopes)


async def test_a_tool_needs_every_scope_and_an_anonymous_caller_has_none(server: Server) -> None:
    """R183, R184, C20: fail closed."""
    server.add_tool(lambda: "in", name="n", scopes=["read", "write"])
    for principal, fits in (
        (None, False),
        (object(), False),
        (Caller("read"), False),
        (Caller("read", "write", "x"), True),
    ):
        async with Peer(server) as peer:
            peer._channel._duplex.principal = principal
            message = await peer.modern("tools/call", {"name": "n"})
            if fits:
                assert texts(message["result"]) == ["in"]
            else:
                assert message["error"]["code"] == -32600
                assert message["error"]["data"] == {"required_scopes": ["read", "write"]}


async def test_scopes_are_asked_before_arguments_are_read(server: Server) -> None:
    """R183: who may not use a tool learns nothing else about it."""
    server.add_tool(lambda a: a, name="n", scopes=["x"], input_schema=PAIR)
    async with Peer(server) as peer:
        assert (await peer.modern("tools/call", {"name": "n", "arguments": {}}))["error"]["code"] == -32600


@pytest.mark.parametrize(
    ("headers", "arguments", "code"),
    [
        ({"mcp-param-region": "eu"}, {"region": "eu"}, None),
        ({"mcp-param-region": "us"}, {"region": "eu"}, -32020),
        ({}, {"region": "eu"}, -32020),
        ({}, {}, None),
        ({"mcp-param-region": "=?base64?!?="}, {"region": "eu"}, -32020),
    ],
)
async def test_a_marked_argument_must_repeat_its_header(
    server: Server, headers: Any, arguments: Any, code: int | None
) -> None:
    """protocol.md 3.3."""
    schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    server.add_tool(lambda region="none": region, name="n", input_schema=schema)
    assert await _over_http(server, headers, arguments) == code


async def test_a_marked_parameter_of_a_signature_counts_too(server: Server) -> None:
    """protocol.md 3.3."""

    @server.tool
    def n(region: Annotated[str, msgspec.Meta(extra_json_schema={"x-mcp-header": "Region"})] = "none") -> str:
        return region

    assert await _over_http(server, {"mcp-param-region": "us"}, {"region": "eu"}) == -32020
    assert await _over_http(server, {"mcp-param-region": "eu"}, {"region": "eu"}) is None


async def _over_http(server: Server, extra: dict[str, str], arguments: Any) -> int | None:
    meta = {P + "protocolVersion": MODERN, P + "clientCapabilities": {}}
    params = {"name": "n", "arguments": arguments, "_meta": meta}
    body = msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params})
    headers = {"mcp-protocol-version": MODERN, "mcp-method": "tools/call", "mcp-name": "n", **extra}
    made: Any = server.runtime.dispatcher.reader().read(body, headers)
    Exchange(made, _Nowhere(), server.runtime.voice)
    try:
        await soon(server.runtime.dispatcher.handlers["tools/call"](made))
    except ProtocolError as error:
        return error.code
    return None


class _Nowhere:
    async def send(self, data: bytes) -> None: ...


def test_type_checkers_know_every_option_of_a_tool() -> None:
    assert ToolOptions.__annotations__.keys() == (compile_tool.__kwdefaults__ or {}).keys()
