"""`Host.code` and `run_code`: what code can do, that each of its calls is a call like any other, and hostile code."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, cast

import pytest
from tests.support.until import soon, until

from trimaran import Context, Host, Server, ToolError
from trimaran.errors import ConfigError, LocalProtocolError
from trimaran.host import Question
from trimaran.host.context.code import CodeLimits, CodeTools
from trimaran.host.context.code_stubs import function_names, write_function
from trimaran.types import ImageContent, Tool

pytest.importorskip("pydantic_monty")

QUICK = CodeLimits(seconds=0.5, memory=8_000_000, calls=5, output=200)


def make_server(calls: list[str] | None = None) -> Server:
    server = Server("my-shop", version="1")
    noted: list[str] = [] if calls is None else calls

    @server.tool
    def price(item: str, amount: int = 1) -> float:
        """The price of an item. In coins."""
        noted.append(item)
        return {"tea": 2.5, "jam": 4.0}[item] * amount

    @server.tool
    def stock() -> list[dict[str, Any]]:
        """Everything there is."""
        return [{"item": f"item {number}", "text": "x" * 1000} for number in range(200)]

    @server.tool
    def words() -> str:
        """Some words."""
        return "two words"

    @server.tool
    def picture() -> Any:
        """A picture."""
        return ImageContent(data="QUJD", mime_type="image/png")

    @server.tool
    def fail() -> str:
        """Fail."""
        raise ToolError("out of stock")

    @server.tool
    def drop(item: str) -> str:
        """Drop an item."""
        noted.append(f"dropped {item}")
        return "dropped"

    return server


def make_host(server: Server | None = None, **options: Any) -> Host:
    defaults: dict[str, Any] = {"environ": {}, "allow": ["mcp__my-shop__*"], "deny": ["mcp__my-shop__drop"]}
    return Host({"my-shop": server or make_server()}, **{**defaults, **options})


# --- what code can do ------------------------------------------------------------------------------------------------


async def test_code_calls_tools_and_returns_a_value() -> None:
    async with make_host() as host:
        result = await host.code("await my_shop__price(item='tea') + await my_shop__price('jam', 2)")
        assert result.value == 10.5
        assert result.error == ""
        assert result.calls == ("mcp__my-shop__price", "mcp__my-shop__price")


async def test_calls_can_be_made_at_the_same_time() -> None:
    code = "import asyncio\nasync def both():\n    return await asyncio.gather(my_shop__price('tea'), my_shop__price('jam'))\nawait both()"
    async with make_host() as host:
        assert (await host.code(code)).value == [2.5, 4.0]


async def test_results_stay_outside_unless_they_are_printed() -> None:
    """200 kB of rows are read whole by the code, though a model would get a part; it reads one line."""
    async with make_host() as host:
        result = await host.call(
            "run_code", {"code": "rows = await my_shop__stock()\nprint(len(rows), rows[7]['item'])"}
        )
        assert result.text == "200 item 7"
        assert not result.is_error


async def test_text_and_pictures_have_values() -> None:
    async with make_host() as host:
        assert (await host.code("(await my_shop__words()).split()")).value == ["two", "words"]
        (block,) = (await host.code("await my_shop__picture()")).value
        assert (block["type"], block["data"]) == ("image", "[4 characters of base64]")


async def test_a_failing_tool_raises_what_the_code_can_catch() -> None:
    async with make_host() as host:
        result = await host.code(
            "try:\n    await my_shop__fail()\nexcept RuntimeError as error:\n    print('caught', error)"
        )
        assert "caught" in result.printed
        assert "out of stock" in result.printed
        assert "out of stock" in (await host.code("await my_shop__fail()")).error


async def test_code_can_search() -> None:
    async with make_host() as host:
        result = await host.code("print(await search_tools('price of an item', 1))")
        assert "async def my_shop__price(item: str, amount: int = ...) -> float:" in result.printed
        assert "stock" not in result.printed


async def test_a_model_gets_the_value_as_json_and_printed_text_before_it() -> None:
    async with make_host() as host:
        assert (await host.call("run_code", {"code": "print('a')\n{'b': [1, None]}"})).text == 'a\n{"b":[1,null]}'
        assert "printed nothing" in (await host.call("run_code", {"code": "x = 1"})).text


# --- every call is a call --------------------------------------------------------------------------------------------


async def test_a_denied_call_is_denied_in_code() -> None:
    calls: list[str] = []
    async with make_host(make_server(calls)) as host:
        result = await host.code("await my_shop__drop(item='tea')")
        assert "PermissionError" in result.error
        assert "denied by a rule" in result.error
        assert calls == []


async def test_a_person_is_asked_about_a_call_in_code() -> None:
    seen: list[str] = []

    def decide(question: Question) -> None:
        seen.append(str(question.tool))
        question.deny() if "drop" in str(question.tool) else question.allow()

    calls: list[str] = []
    async with make_host(make_server(calls), allow=[], deny=[], ask=["*"], on_question=decide) as host:
        result = await host.code("await my_shop__price(item='tea')")
        assert result.value == 2.5
        assert len(seen) == 1
        assert (await host.code("await my_shop__drop(item='tea')")).error
        assert calls == ["tea"]


async def test_approved_code_does_not_approve_its_calls() -> None:
    async with make_host(allow=[], deny=[]) as host:
        result = await host.call("run_code", {"code": "await my_shop__price(item='tea')"}, approved=True)
        assert result.is_error
        assert "PermissionError" in result.text


# --- hostile and mistaken code ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        ("while True: pass", "longer than 0.5 s"),
        ("x = [0] * 10\nwhile True: x = x + x", "memory"),
        ("'a' * 10**12", "memory"),
        ("def f(n): return f(n + 1)\nf(0)", "Use a loop"),
        ("import os\nprint(os.environ)", "no environment"),
        ("import os\nos.listdir('/')", "no files"),
        ("open('/etc/passwd').read()", "no files"),
        ("import socket", "only these modules"),
        ("import subprocess", "only these modules"),
        ("def f(:", "Expected"),
        ("yield 5", "another way"),
        ("my_shop__prize(item='tea')", "my_shop__price"),
        ("my_shop__price(item='tea')", "await"),
        ("for i in range(9): await my_shop__price('tea')", "5 times"),
        ("await my_shop__price('tea', 1, 2)", "takes 2 arguments"),
        ("await my_shop__price('tea', item='tea')", "two values"),
        ("await my_shop__price(item=object())", ""),
        ("x" * 200_000, "100000"),
        ("while True:\n    try:\n        await my_shop__price('tea')\n    except BaseException: pass", ""),
    ],
)
async def test_bad_code_is_told_why_and_the_host_lives_on(code: str, advice: str) -> None:
    async with make_host() as host:
        result = await host.code(code, limits=QUICK)
        assert result.value is None
        assert result.error
        assert advice in result.error
        assert (await host.code("1 + 1")).value == 2


@pytest.mark.parametrize("rest", ["", "\nprint('bought')", "\n1 / 0"])
async def test_a_call_that_is_not_awaited_is_not_made(rest: str) -> None:
    calls: list[str] = []
    async with make_host(make_server(calls)) as host:
        result = await host.code(f"my_shop__price(item='tea'){rest}")
        assert result.error
        assert "0" in rest or "not made: my_shop__price" in result.error
        assert not result.calls
        assert "1" in (await host.code("await my_shop__price(item='jam')\n1")).text(100)
    assert calls == ["jam"]


async def test_a_call_that_began_beside_another_is_finished() -> None:
    server, finished = make_server(), asyncio.Event()

    @server.tool
    async def order() -> str:
        await asyncio.sleep(0.1)
        finished.set()
        return "ordered"

    async with make_host(server) as host:
        result = await host.code("order = my_shop__order()\nawait my_shop__words()")
        assert (result.value, result.error) == ("two words", "")
        assert finished.is_set()


async def test_a_loop_of_calls_ends_at_the_limit() -> None:
    calls: list[str] = []
    async with make_host(make_server(calls)) as host:
        code = "while True:\n    try:\n        await my_shop__price('tea')\n    except Exception:\n        pass"
        assert (await host.code(code, limits=QUICK)).error
        assert len(calls) == 5


async def test_huge_output_is_cut_with_a_notice() -> None:
    async with make_host() as host:
        result = await host.code("for i in range(100): print('x' * 1000)", limits=QUICK)
        assert len(result.printed) < 400
        assert "99900 more characters" in result.printed
        returned = await host.code("'y' * 1000000")
        assert len(returned.text(100)) < 300


async def test_a_cancelled_run_ends() -> None:
    started = asyncio.Event()
    server = Server("my-shop", version="1")

    @server.tool
    async def wait() -> str:
        """Wait."""
        started.set()
        await asyncio.Event().wait()
        return ""

    async with make_host(server) as host:
        run = asyncio.create_task(host.code("await my_shop__wait()"))
        await soon(started.wait())
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await run
        assert (await host.code("1 + 1")).value == 2


@pytest.mark.parametrize("era", ["legacy", "modern"])
async def test_a_question_of_an_inner_call_is_answered_in_the_run_and_ends_with_it(era: Any) -> None:
    server = Server("my-shop", version="1")

    @server.tool
    async def greet(ctx: Context) -> str:
        """Greet."""
        form = {"type": "object", "properties": {"name": {"type": "string"}}}
        answer = await ctx.elicit("Your name?", form)
        return f"Hello {(answer.content or {}).get('name')}"

    questions: list[Question] = []
    async with make_host(server, on_question=questions.append, options={"era": era}) as host:
        run = asyncio.create_task(host.code("print(await my_shop__greet())", limits=CodeLimits(seconds=0.5)))
        await until(lambda: questions)
        questions[0].accept({"name": "Ada"})
        assert (await soon(run)).printed == "Hello Ada\n"
        run = asyncio.create_task(host.code("await my_shop__greet()"))
        await until(lambda: len(questions) == 2)
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(run)
        await until(lambda: not questions[1].is_open)


async def test_a_run_that_computes_is_cancelled_at_once() -> None:
    """Ours: its process is ended, so that nobody waits for the limit of an hour."""
    called = asyncio.Event()
    server = Server("my-shop", version="1")

    @server.tool
    async def note() -> str:
        """Note."""
        called.set()
        return ""

    async with make_host(server) as host:
        run = asyncio.create_task(host.code("await my_shop__note()\nwhile True: pass", limits=CodeLimits(seconds=3600)))
        await soon(called.wait())
        run.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(run)


@pytest.mark.parametrize(
    "limits",
    [
        {"seconds": 0},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"memory": -5},
        {"calls": -1},
        {"output": -1},
    ],
)
def test_a_limit_that_limits_nothing_is_refused(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="give"):
        CodeLimits(**limits)


async def test_no_code_is_an_error() -> None:
    async with make_host() as host:
        for arguments in ({}, {"code": ""}, {"code": 5}):
            with pytest.raises(LocalProtocolError, match="needs code"):
                await host.call("run_code", cast("Any", arguments))


async def test_a_missing_sandbox_is_told_kindly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_monty", None)
    async with make_host() as host:
        with pytest.raises(ConfigError, match=r"trimaran\[code\]"):
            await host.code("1")


# --- the functions ---------------------------------------------------------------------------------------------------


async def test_the_declaration_has_every_signature() -> None:
    async with make_host() as host:
        tool = host.code_tool(CodeLimits(calls=7))
        assert tool.name == "run_code"
        assert "async def my_shop__stock() -> list[dict[str, Any]]:" in (tool.description or "")
        assert "At most 7 calls" in (tool.description or "")
        failed = await host.call("run_code", {"code": "for i in range(9): await my_shop__price('tea')"})
        assert "7 times" in failed.text


def test_the_declaration_of_many_tools_names_the_servers() -> None:
    from trimaran.host.context.code import code_declaration

    tools = {f"mcp__s{number % 3}__t{number}": Tool(name="t") for number in range(100)}
    description = code_declaration(CodeTools(tools)).description or ""
    assert "s0, s1, s2" in description
    assert "search_tools" in description
    assert len(description) < 1500


def test_a_schema_becomes_types() -> None:
    tool = Tool(
        name="t",
        description="Do it. And more.",
        input_schema={
            "type": "object",
            "$defs": {"Tree": {"type": "object", "properties": {"child": {"$ref": "#/$defs/Tree"}}}},
            "properties": {
                "from": {"type": "string"},
                "how": {"enum": ["a", "b"]},
                "user-id": {"type": ["integer", "null"]},
                "tags": {"type": "array", "items": {"type": "string"}},
                "tree": {"$ref": "#/$defs/Tree"},
                "any": True,
                "both": {"anyOf": [{"type": "string"}, {"type": "number"}]},
                "outside": {"$ref": "https://example.com/x"},
            },
            "required": ["how"],
        },
        output_schema={"type": "object", "properties": {"total": {"type": "number"}, "rows": {"type": "array"}}},
    )
    function = write_function("s__t", tool)
    assert (
        "async def s__t(how: Literal['a', 'b'], from_: str = ..., user_id: int | None = ..., tags: list[str] = ..., "
        in function.stub
    )
    assert "both: str | float = ..." in function.stub
    assert "outside: Any = ..." in function.stub
    assert "class STResult(TypedDict):\n    total: float\n    rows: list[Any]" in function.stub
    assert function.stub.endswith("-> STResult:\n    'Do it.'")
    assert function.arguments["from_"] == "from"
    assert function.arguments["user_id"] == "user-id"


@pytest.mark.parametrize(
    "schema", [{}, {"properties": 5}, {"properties": {"a": 5}, "required": 7}, {"properties": {"": {}}}]
)
def test_an_odd_schema_becomes_a_function(schema: dict[str, Any]) -> None:
    assert write_function("s__t", Tool(name="t", input_schema=schema)).stub.startswith("async def s__t(")


def test_classes_of_arguments_and_of_the_result_have_names_of_their_own() -> None:
    rows = {"type": "array", "items": {"type": "object", "properties": {"id": {"type": "string"}}}}
    schema = {"type": "object", "properties": {"rows": rows}}
    stub = write_function("s__t", Tool(name="t", input_schema=schema, output_schema=schema)).stub
    names = [line for line in stub.splitlines() if line.startswith("class ")]
    assert len(names) == len(set(names)) == 3


def test_a_huge_schema_becomes_a_short_stub() -> None:
    deep: dict[str, Any] = {"type": "string"}
    for _ in range(500):
        deep = {"type": "object", "properties": {"a": deep, "b": deep}}
    wide = {f"field{number}": {"type": "string", "description": "x" * 1000} for number in range(5000)}
    for schema in (deep, {"type": "object", "properties": wide}):
        tool = Tool(name="t", description="y" * 1_000_000, input_schema=schema, output_schema=schema)
        assert len(write_function("s__t", tool).stub) < 10_000


def exploding_schema() -> dict[str, Any]:
    part = {"type": "object", "properties": {f"p{number}": {"$ref": "#/$defs/a"} for number in range(30)}}
    return {**part, "$defs": {"a": part}}


def test_a_schema_of_references_does_not_explode() -> None:
    stub = write_function(
        "s__t", Tool(name="t", input_schema=exploding_schema(), output_schema=exploding_schema())
    ).stub
    assert len(stub) <= 6000
    assert stub.startswith("async def s__t(p0 = ..., p1 = ...")


def test_a_name_of_a_hundred_thousand_letters_is_left_out() -> None:
    schema = {"type": "object", "properties": {"n" * 100_000: {"type": "string"}}}
    function = write_function("s__t", Tool(name="t", input_schema=schema))
    assert function.stub.startswith("async def s__t(**arguments) -> Any:")
    assert len(function.arguments) == 1


def test_a_declaration_is_bounded_whatever_its_tools_are() -> None:
    from trimaran.host.context.code import code_declaration

    schema = {"type": "object", "properties": {f"{'n' * 150}{number}": {} for number in range(30)}}
    tools = {f"mcp__s__t{number}": Tool(name="t", input_schema=schema) for number in range(60)}
    assert len(code_declaration(CodeTools(tools)).description or "") < 2000


def test_no_two_tools_have_one_function() -> None:
    names = function_names(["mcp__a__b-c", "mcp__a__b_c", "mcp__1__x", "class"])
    assert names == {"a__b_c": "mcp__a__b-c", "a__b_c_2": "mcp__a__b_c", "_1__x": "mcp__1__x", "class_": "class"}
