"""Dependencies: values that the server makes for a call, and puts away after it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Annotated, Any, cast

import pytest
from tests.support.memory_peer import Peer, texts
from tests.support.until import until

from trimaran import Context, Depends, Server, ToolError, connect
from trimaran.errors import DeclarationError

events: list[str] = []


@pytest.fixture(autouse=True)
def nothing_happened_yet() -> None:
    events.clear()


def plain() -> str:
    events.append("plain")
    return "plain value"


async def slow() -> str:
    await asyncio.sleep(0)
    return "async value"


def generator() -> Iterator[str]:
    events.append("open")
    try:
        yield "yielded value"
    finally:
        events.append("close")


async def async_generator() -> AsyncIterator[str]:
    events.append("open")
    try:
        yield "yielded value"
    finally:
        await asyncio.sleep(0)
        events.append("close")


class Settings:
    def __init__(self, region: str = "north") -> None:
        self.region = region

    def __str__(self) -> str:
        return f"settings of the {self.region}"


class Factory:
    async def __call__(self) -> str:
        return "factory value"


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
@pytest.mark.parametrize(
    ("fn", "value"),
    [
        (plain, "plain value"),
        (slow, "async value"),
        (generator, "yielded value"),
        (async_generator, "yielded value"),
        (contextmanager(generator), "yielded value"),
        (asynccontextmanager(async_generator), "yielded value"),
        (Settings, "settings of the north"),
        (Factory(), "factory value"),
        (partial(Settings, region="south"), "settings of the south"),
        (lambda: "lambda value", "lambda value"),
    ],
)
async def test_a_parameter_gets_what_its_dependency_gives(fn: Any, value: str, is_async: bool) -> None:
    server = Server("s")

    async def run(n: int, text: Any = Depends(fn)) -> str:
        events.append("call")
        return f"{n} {text}"

    def call(n: int, text: Any = Depends(fn)) -> str:
        events.append("call")
        return f"{n} {text}"

    tool = server.add_tool(run if is_async else call, name="t")
    assert list(tool.to_json()["inputSchema"]["properties"]) == ["n"]
    assert texts(await server.call_tool("t", {"n": 1})) == [f"1 {value}"]
    if "yielded" in value:
        assert events == ["open", "call", "close"]


Shared = Annotated[str, Depends(plain)]


def first(shared: Shared) -> str:
    return f"first of {shared}"


async def second(shared: Shared, one: Annotated[str, Depends(first)], ctx: Context) -> str:
    return f"second of {shared} and {one} for {ctx.request_id}"


async def test_a_function_that_several_need_runs_once_per_call() -> None:
    server = Server("s")

    @server.tool
    async def t(a: Shared, b: Annotated[str, Depends(second)], ctx: Context) -> str:
        return f"{a}; {b}"

    for _ in range(2):
        events.clear()
        result = await server.call_tool("t")
        assert texts(result) == ["plain value; second of plain value and first of plain value for 0"]
        assert events == ["plain"]


async def test_resources_templates_and_prompts_take_dependencies() -> None:
    server = Server("s")
    server.add_resource("a://b", lambda text=Depends(generator): text)

    @server.resource("a://{name}/c")
    async def read(name: str, text: Annotated[str, Depends(async_generator)], ctx: Context) -> str:
        return f"{name} {text} {ctx.uri}"

    @server.prompt
    def greet(name: str, text: Annotated[str, Depends(slow)]) -> str:
        return f"{name} {text}"

    async with connect(server) as client:
        assert [c.to_json()["text"] for c in (await client.read_resource("a://b")).contents] == ["yielded value"]
        contents = (await client.read_resource("a://x/c")).contents
        assert [c.to_json()["text"] for c in contents] == ["x yielded value a://x/c"]
        (prompt,) = await client.list_prompts()
        assert [argument.name for argument in prompt.arguments or ()] == ["name"]
        message = (await client.get_prompt("greet", {"name": "Ann"})).messages[0].to_json()
        assert message["content"]["text"] == "Ann async value"
    assert events == ["open", "close"] * 2


async def test_an_explicit_schema_leaves_dependencies_out() -> None:
    server = Server("s")
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}}

    @server.tool(input_schema=schema)
    async def by_name(n: int, text: Annotated[str, Depends(plain)]) -> str:
        return f"{n} {text}"

    @server.tool(input_schema=schema)
    async def whole(arguments: dict[str, Any], text: Annotated[str, Depends(plain)]) -> str:
        return f"{arguments} {text}"

    assert texts(await server.call_tool("by_name", {"n": 1})) == ["1 plain value"]
    assert texts(await server.call_tool("whole", {"n": 1})) == ["{'n': 1} plain value"]


async def test_a_stream_keeps_its_dependency_open_until_its_end() -> None:
    server = Server("s")

    @server.tool
    async def t(text: Annotated[str, Depends(async_generator)]) -> AsyncIterator[str]:
        yield text
        events.append("between")
        yield "!"

    assert texts(await server.call_tool("t")) == ["yielded value!"]
    assert events == ["open", "between", "close"]


@pytest.mark.parametrize("fn", [generator, async_generator])
@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_generator_closes_after_an_error(fn: Any, is_async: bool) -> None:
    server = Server("s")

    async def run(text: Any = Depends(fn)) -> None:
        raise ToolError("no")

    def call(text: Any = Depends(fn)) -> None:
        raise ToolError("no")

    server.add_tool(run if is_async else call, name="t")
    result = await server.call_tool("t")
    assert result.is_error and texts(result) == ["no"]
    assert events == ["open", "close"]


async def test_an_error_of_a_dependency_is_the_answer_and_what_was_opened_closes() -> None:
    server = Server("s")

    async def login(text: Annotated[str, Depends(async_generator)]) -> str:
        raise ToolError(f"no account for {text}")

    @server.tool
    async def t(user: Annotated[str, Depends(login)]) -> str:
        raise AssertionError("must not run")

    assert texts(await server.call_tool("t")) == ["no account for yielded value"]
    assert events == ["open", "close"]


async def test_a_generator_closes_when_the_call_is_cancelled() -> None:
    """R67."""
    server = Server("s")

    @server.tool
    async def t(text: Annotated[str, Depends(async_generator)]) -> None:
        events.append("waiting")
        await asyncio.Event().wait()

    async with Peer(server) as peer:
        await peer.initialize()
        id = await peer.start_legacy("tools/call", {"name": "t"})
        await until(lambda: "waiting" in events)
        await peer.notice("notifications/cancelled", {"requestId": id})
        await until(lambda: "close" in events)


async def test_a_question_closes_the_dependencies_and_the_retry_opens_them_again() -> None:
    """On 2026-07-28 a call that asks ends, and its body runs again with the answer."""
    server = Server("s")

    @server.tool
    async def t(ctx: Context, text: Annotated[str, Depends(async_generator)]) -> str:
        answer = await ctx.elicit("Sure?", {"type": "object", "properties": {"yes": {"type": "boolean"}}})
        return f"{answer.action} {text}"

    async def accept(*_: Any) -> Any:
        return {"action": "accept", "content": {"yes": True}}

    async with connect(server, on_elicit=accept) as client:
        assert (await client.call_tool("t")).data == "accept yielded value"
    assert events == ["open", "close"] * 2


async def test_a_plain_tool_and_its_plain_dependencies_share_a_thread() -> None:
    """A connection of sqlite3 may only be used in the thread that opened it."""
    server = Server("s")
    threads: list[int] = []

    def get_connection() -> Iterator[str]:
        threads.append(threading.get_ident())
        yield "connection"
        threads.append(threading.get_ident())

    @server.tool
    def t(connection: Annotated[str, Depends(get_connection)]) -> None:
        threads.append(threading.get_ident())

    await server.call_tool("t")
    assert len(threads) == 3 and set(threads) != {threading.get_ident()} and len(set(threads)) == 1


async def test_a_plain_tool_with_dependencies_returns_no_coroutine(caplog: pytest.LogCaptureFixture) -> None:
    """It would run after its dependencies are closed. Whose rule: ours."""
    server = Server("x")

    async def use(value: str) -> str:
        return value

    @server.tool
    def forward(value: Annotated[str, Depends(generator)]) -> Any:
        return use(value)

    async with connect(server) as client:
        assert (await client.call_tool("forward", raise_on_error=False)).is_error
    assert "write `async def`" in caplog.text
    assert events == ["open", "close"]


@pytest.mark.parametrize("is_async", [True, False], ids=["async", "plain"])
async def test_a_test_overrides_a_dependency(is_async: bool) -> None:
    server = Server("s")

    async def run(text: Annotated[str, Depends(first)]) -> str:
        return text

    def call(text: Annotated[str, Depends(first)]) -> str:
        return text

    server.add_tool(run if is_async else call, name="t")

    async def fake() -> AsyncIterator[str]:
        yield "fake"
        events.append("close")

    server.dependency_overrides[plain] = fake
    assert texts(await server.call_tool("t")) == ["first of fake"]
    assert events == ["close"]
    server.dependency_overrides.clear()
    assert texts(await server.call_tool("t")) == ["first of plain value"]


async def test_an_override_may_use_the_function_it_overrides() -> None:
    server = Server("s")

    @server.tool
    async def t(text: Annotated[str, Depends(plain)]) -> str:
        return text

    async def louder(text: Annotated[str, Depends(plain)]) -> str:
        return text.upper()

    server.dependency_overrides[plain] = louder
    assert texts(await server.call_tool("t")) == ["PLAIN VALUE"]


def test_declaring_says_what_is_wrong_with_a_dependency() -> None:
    server = Server("s")

    def needs_url(url: str) -> str:
        return url

    def egg(hen: str) -> str:
        return hen

    def hen(egg: Annotated[str, Depends(egg)]) -> str:
        return egg

    egg.__annotations__["hen"] = Annotated[str, Depends(hen)]
    cases = [
        (needs_url, "tool 't': the dependency needs_url takes 'url', which nothing fills in: mark it with Depends"),
        (egg, "tool 't': dependencies must not form a cycle: egg -> hen -> egg"),
        (dict.fromkeys, "the signature of the dependency fromkeys cannot be read|takes 'iterable'"),
    ]
    for fn, message in cases:
        with pytest.raises(DeclarationError, match=message):
            server.add_tool(lambda value=Depends(fn): value, name="t")
    with pytest.raises(DeclarationError, match=r"Depends takes a function, Depends\(get_db\), not str"):
        Depends(cast("Any", "get_db"))


async def test_a_tool_without_dependencies_keeps_its_own_function() -> None:
    """Nothing is put around it, so a call pays nothing."""
    server = Server("s")

    @server.tool
    async def t(n: int) -> int:
        return n

    entry = server.tools.get("t")
    assert entry is not None and entry.handler.fn is t and entry.context is None
