"""Context: what a handler may know and do about its call (R53-R62, R70, R71)."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.memory_peer import ALL, LEGACY, MODERN, P, Peer, texts
from tests.support.until import soon, until

from trimaran import Context, ProtocolError, Server
from trimaran.content import user_message
from trimaran.errors import DeclarationError, TimedOut
from trimaran.protocol.meta import LOG_LEVELS
from trimaran.server.context import Trace
from trimaran.types import Implementation


def serving(fn: Any, **options: Any) -> Server:
    server = Server("context", version="1", **options)
    server.add_tool(fn, name="t")
    return server


# --- knowing ---------------------------------------------------------------------------------------------------------


async def test_a_modern_call_says_who_calls() -> None:
    """R53, R54."""
    seen: dict[str, Any] = {}

    async def look(ctx: Context) -> str:
        for name in (
            "request_id session_id session meta progress_token auth client_info client_capabilities protocol_version "
            "initialized min_log_level state uri params assigns trace cancelled"
        ).split():
            seen[name] = getattr(ctx, name)
        seen["peer"] = ctx.peer.version
        return repr(ctx)

    async with Peer(serving(look)) as peer:
        await peer.call("t", progressToken="p", logLevel="error", traceparent="00-1", tracestate=5, caps={"roots": {}})
    meta = seen.pop("meta")
    assert meta["progressToken"] == "p"
    assert meta[P + "protocolVersion"] == MODERN
    assert seen == {
        "request_id": 1,
        "session_id": None,
        "session": None,
        "progress_token": "p",
        "auth": None,
        "client_info": None,
        "client_capabilities": {"roots": {}},
        "protocol_version": MODERN,
        "initialized": True,
        "min_log_level": "error",
        "state": None,
        "uri": None,
        "params": {},
        "assigns": {},
        "trace": Trace(traceparent="00-1"),
        "cancelled": False,
        "peer": MODERN,
    }


async def test_a_legacy_call_says_which_session_it_belongs_to() -> None:
    """R53, R54."""
    seen: list[Any] = []

    def look(ctx: Context) -> str:
        assert ctx.session is not None
        seen.append((ctx.session_id, ctx.session.id, ctx.initialized, ctx.min_log_level, ctx.client_info, ctx.meta))
        return ctx.protocol_version

    async with Peer(serving(look)) as peer:
        await peer.initialize("2025-06-18", {"roots": {}})
        assert texts((await peer.legacy("tools/call", {"name": "t"}))["result"]) == ["2025-06-18"]
    ((id, same, initialized, level, info, meta),) = seen
    assert id == same
    assert id.startswith("mcp_")
    assert (initialized, level, info, meta) == (True, "info", Implementation(name="peer", version="1"), {})


async def test_assigned_values_live_as_long_as_the_call() -> None:
    """R54."""

    def count(ctx: Context) -> str:
        ctx.assign("n", ctx.assigns.get("n", 0) + 1)
        return str(ctx.assigns)

    server = serving(count)
    assert [texts(await server.call_tool("t")) for _ in range(2)] == [["{'n': 1}"]] * 2


# --- speaking --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_progress_goes_out_in_order_and_only_grows(kind: str) -> None:
    """R53, R55; protocol.md 1.4."""

    async def coroutine(ctx: Context) -> str:
        await ctx.progress(1)
        await ctx.progress(1)
        await ctx.progress(0.5)
        await ctx.progress(2, 4, "half")
        return "done"

    def plain(ctx: Context) -> str:
        ctx.progress(1)
        ctx.progress(1)
        ctx.progress(0.5)
        ctx.progress(2, total=4, message="half")
        return "done"

    async with Peer(serving(coroutine if kind == "async" else plain)) as peer:
        await peer.call("t", progressToken=0)
    assert [n["method"] for n in peer.heard] == ["notifications/progress"] * 2
    assert [n["params"] for n in peer.heard] == [
        {"progressToken": 0, "progress": 1},
        {"progressToken": 0, "progress": 2, "total": 4, "message": "half"},
    ]


async def test_progress_nobody_asked_for_is_silent() -> None:
    """R55."""

    async def work(ctx: Context) -> str:
        await ctx.progress(1)
        return "done"

    async with Peer(serving(work)) as peer:
        await peer.call("t")
    assert peer.heard == []


async def _talk(ctx: Context) -> str:
    for level in LOG_LEVELS:
        await ctx.log(level, {"l": level}, logger="mine")
    return "done"


async def test_a_modern_caller_hears_logs_only_when_it_asked() -> None:
    """R56; protocol.md 1.4."""
    async with Peer(serving(_talk)) as peer:
        await peer.call("t")
        assert peer.heard == []
        await peer.call("t", logLevel="critical")
    assert [n["params"] for n in peer.heard] == [
        {"level": level, "data": {"l": level}, "logger": "mine"} for level in ("critical", "alert", "emergency")
    ]


async def test_a_server_that_does_not_advertise_logging_sends_none() -> None:
    """protocol.md 1.4: the capability MUST be declared."""
    async with Peer(serving(_talk, logging=False)) as peer:
        await peer.call("t", logLevel="debug")
        await peer.initialize()
        await peer.legacy("tools/call", {"name": "t"})
        assert (await peer.legacy("logging/setLevel", {"level": "error"}))["error"]["code"] == -32601
    assert peer.heard == []


async def test_a_legacy_session_hears_from_its_level_on() -> None:
    """R56, R70, R71: info by default, the server's choice, then the client's."""
    async with Peer(serving(_talk)) as peer:
        await peer.initialize()
        await peer.legacy("tools/call", {"name": "t"})
        assert len(peer.heard) == 7
        assert (await peer.legacy("logging/setLevel", {"level": "alert"}))["result"] == {}
        assert (await peer.legacy("logging/setLevel", {"level": "loud"}))["error"]["code"] == -32602
        peer.heard.clear()
        await peer.legacy("tools/call", {"name": "t"})
        assert len(peer.heard) == 2
    async with Peer(serving(_talk, min_log_level="emergency")) as peer:
        await peer.initialize()
        await peer.legacy("tools/call", {"name": "t"})
        assert len(peer.heard) == 1


async def test_the_level_changes_only_if_the_hook_agrees() -> None:
    """R70."""

    async def hook(level: str, ctx: Context) -> None:
        if level == "debug":
            raise ProtocolError.invalid_params("too loud")

    async with Peer(serving(_talk, on_set_level=hook)) as peer:
        await peer.initialize()
        assert (await peer.legacy("logging/setLevel", {"level": "debug"}))["error"]["code"] == -32602
        await peer.legacy("tools/call", {"name": "t"})
        assert len(peer.heard) == 7


async def test_a_level_that_does_not_exist_is_the_authors_mistake() -> None:
    async def keep(ctx: Context) -> str:
        with pytest.raises(DeclarationError, match="loud"):
            ctx.log("loud", "x")  # pyright: ignore[reportArgumentType]
        return "x"

    assert texts(await serving(keep).call_tool("t")) == ["x"]


async def test_any_notification_goes_out_on_the_calls_stream() -> None:
    """R57."""

    async def tell(ctx: Context) -> str:
        await ctx.notify("com.example/thing", {"a": 1})
        await ctx.notify("com.example/bare")
        return "x"

    async with Peer(serving(tell)) as peer:
        await peer.call("t")
    assert [(n["method"], n.get("params")) for n in peer.heard] == [
        ("com.example/thing", {"a": 1}),
        ("com.example/bare", {}),
    ]


async def test_what_a_finished_call_left_behind_speaks_and_is_not_heard() -> None:
    """Exchange.end: silence, for every way of speaking."""
    context: list[Context] = []

    async def keep(ctx: Context) -> str:
        context.append(ctx)
        return "x"

    async with Peer(serving(keep)) as peer:
        await peer.call("t", progressToken=1, logLevel="debug")
        (ctx,) = context
        await ctx.progress(1)
        await ctx.notify("a/b")
        await ctx.release_stream()
        assert ctx.cancelled
        await ctx.log("error", "late")
        assert (await peer.call("t"))["content"]
    assert peer.heard == []


async def test_asking_after_the_call_is_over_fails_at_once() -> None:
    context: list[Context] = []

    async def keep(ctx: Context) -> str:
        context.append(ctx)
        return "x"

    async with Peer(serving(keep)) as peer:
        await peer.call("t", caps=ALL)
        with pytest.raises(Exception, match="over"):
            await soon(context[0].roots())


# --- cancelling ------------------------------------------------------------------------------------------------------


async def test_cancelling_stops_the_handler_and_nothing_is_answered() -> None:
    """R62, R65, R67."""
    started, stopped = asyncio.Event(), asyncio.Event()
    seen: list[bool] = []

    async def work(ctx: Context) -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(ctx.cancelled)
            await ctx.progress(1)
            stopped.set()
        return "never"

    async with Peer(serving(work)) as peer:
        id = await peer.start("tools/call", {"name": "t"}, progressToken=1)
        await soon(started.wait())
        await peer.notice("notifications/cancelled", {"requestId": id, "reason": "enough"})
        await soon(stopped.wait())
        assert (await peer.modern("server/discover"))["result"]
    assert seen == [True]
    assert peer.heard == []


async def test_a_thread_can_see_that_it_was_cancelled() -> None:
    """R62, R66."""
    started, go = threading.Event(), threading.Event()
    seen: list[bool] = []

    def work(ctx: Context) -> str:
        started.set()
        go.wait(5)
        seen.append(ctx.cancelled)
        return "dropped"

    async with Peer(serving(work)) as peer:
        id = await peer.start("tools/call", {"name": "t"})
        await until(started.is_set)
        await peer.notice("notifications/cancelled", {"requestId": id})
        await peer.modern("server/discover")
        go.set()
        await until(lambda: seen)
    assert seen == [True]
    assert peer.heard == []


@pytest.mark.parametrize("notice", [{}, {"requestId": 999}, {"requestId": None}, {"requestId": [1]}])
async def test_cancelling_what_is_not_there_is_ignored(notice: Any) -> None:
    """protocol.md 3.6."""
    async with Peer(serving(lambda: "x")) as peer:
        await peer.notice("notifications/cancelled", notice)
        assert texts(await peer.call("t")) == ["x"]


# --- asking, on a legacy session -------------------------------------------------------------------------------------


@dataclasses.dataclass
class Person:
    name: str
    age: int = 1


async def _ask_person(ctx: Context) -> str:
    answer = await ctx.elicit("Who?", Person)
    return f"{answer.action} {answer.content!r}"


@pytest.mark.parametrize("version", LEGACY[:2])
async def test_a_form_is_asked_and_its_answer_is_the_model(version: str) -> None:
    """R58, R60."""
    async with Peer(serving(_ask_person)) as peer:
        await peer.initialize(version, {"elicitation": {}})
        id = await peer.start_legacy("tools/call", {"name": "t"})
        asked = await peer.receive()
        assert (asked["method"], asked["params"]["message"]) == ("elicitation/create", "Who?")
        assert ("default" in asked["params"]["requestedSchema"]["properties"]["age"]) == (version == LEGACY[0])
        await peer.answer(asked, {"action": "accept", "content": {"name": "Ada"}})
        assert texts((await peer.reply(id))["result"]) == ["accept Person(name='Ada', age=1)"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
async def test_a_person_may_say_no(action: str) -> None:
    async with Peer(serving(_ask_person)) as peer:
        await peer.initialize(caps={"elicitation": {}})
        id = await peer.start_legacy("tools/call", {"name": "t"})
        await peer.answer(await peer.receive(), {"action": action})
        assert texts((await peer.reply(id))["result"]) == [f"{action} None"]


@pytest.mark.parametrize("answer", [{"action": "maybe"}, {}, [], {"action": "accept", "content": {"age": "x"}}])
async def test_an_answer_that_makes_no_sense_is_invalid_params(answer: Any) -> None:
    async with Peer(serving(_ask_person)) as peer:
        await peer.initialize(caps={"elicitation": {}})
        id = await peer.start_legacy("tools/call", {"name": "t"})
        await peer.answer(await peer.receive(), answer)
        assert (await peer.reply(id))["error"]["code"] == -32602


async def test_a_page_is_visited_in_each_eras_way() -> None:
    """protocol.md 1.3: elicitationId on 2025-11-25 only."""

    async def visit(ctx: Context) -> str:
        return (await ctx.elicit("Sign in", url="https://x")).action

    async with Peer(serving(visit)) as peer:
        asked = (await peer.call("t", caps=ALL))["inputRequests"]["elicit-1"]["params"]
        assert asked == {"mode": "url", "message": "Sign in", "url": "https://x"}
        await peer.initialize(caps=ALL)
        id = await peer.start_legacy("tools/call", {"name": "t"})
        request = await peer.receive()
        assert set(request["params"]) == {"mode", "message", "url", "elicitationId"}
        await peer.answer(request, {"action": "accept"})
        assert texts((await peer.reply(id))["result"]) == ["accept"]


async def test_sampling_says_everything_it_was_told() -> None:
    """R58."""

    async def sample(ctx: Context) -> str:
        answer = await ctx.sample(
            ["hi", user_message("there"), {"role": "assistant", "content": "yes"}, {"role": "user", "content": []}],
            max_tokens=5,
            system="brief",
            temperature=0.5,
            stop_sequences=("x",),
            model_preferences={"hints": []},
            include_context="thisServer",
            tools=[{"name": "t", "inputSchema": {}}],
            tool_choice={"mode": "auto"},
            metadata={"m": 1},
        )
        return f"{answer.text} by {answer.model}"

    async with Peer(serving(sample)) as peer:
        await peer.initialize(caps=ALL)
        id = await peer.start_legacy("tools/call", {"name": "t"})
        asked = await peer.receive()

        def text(value: str) -> dict[str, str]:
            return {"type": "text", "text": value}

        assert asked["params"] == {
            "messages": [
                {"role": "user", "content": text("hi")},
                {"role": "user", "content": text("there")},
                {"role": "assistant", "content": text("yes")},
                {"role": "user", "content": []},
            ],
            "maxTokens": 5,
            "systemPrompt": "brief",
            "temperature": 0.5,
            "stopSequences": ["x"],
            "modelPreferences": {"hints": []},
            "includeContext": "thisServer",
            "tools": [{"name": "t", "inputSchema": {}}],
            "toolChoice": {"mode": "auto"},
            "metadata": {"m": 1},
        }
        await peer.answer(asked, {"role": "assistant", "content": text("ok"), "model": "m"})
        assert texts((await peer.reply(id))["result"]) == ["ok by m"]


async def test_a_plain_function_waits_for_an_answer() -> None:
    def roots(ctx: Context) -> str:
        return " ".join(r.uri for r in ctx.wait(ctx.roots()))

    async with Peer(serving(roots)) as peer:
        await peer.initialize(caps=ALL)
        id = await peer.start_legacy("tools/call", {"name": "t"})
        asked = await peer.receive()
        assert asked["method"] == "roots/list"
        await peer.answer(asked, {"roots": [{"uri": "file:///a"}]})
        assert texts((await peer.reply(id))["result"]) == ["file:///a"]


async def test_waiting_is_for_threads_only() -> None:
    async def wrong(ctx: Context) -> str:
        done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        done.set_result(1)
        with pytest.raises(DeclarationError, match="await"):
            ctx.wait(done)
        return "x"

    assert texts(await serving(wrong).call_tool("t")) == ["x"]


async def test_any_request_can_be_sent_to_a_legacy_client_and_to_no_modern_one() -> None:
    """R57."""

    async def ask(ctx: Context) -> str:
        return str(await ctx.request("com.example/ask", {"a": 1}))

    async with Peer(serving(ask)) as peer:
        error = (await peer.modern("tools/call", {"name": "t"}))["error"]
        assert error["code"] == -32603
        await peer.initialize()
        id = await peer.start_legacy("tools/call", {"name": "t"})
        asked = await peer.receive()
        assert (asked["method"], asked["params"]) == ("com.example/ask", {"a": 1})
        await peer.answer(asked, {"b": 2})
        assert texts((await peer.reply(id))["result"]) == ["{'b': 2}"]


async def test_a_refusal_of_the_client_is_an_error_with_its_code() -> None:
    """R58."""

    async def ask(ctx: Context) -> str:
        try:
            await ctx.sample("x")
        except ProtocolError as error:
            return f"{error.code} {error.message}"
        return "no error"

    async with Peer(serving(ask)) as peer:
        await peer.initialize(caps=ALL)
        id = await peer.start_legacy("tools/call", {"name": "t"})
        asked = await peer.receive()
        await peer.send({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "no"}})
        assert texts((await peer.reply(id))["result"]) == ["-1 the client refused: no"]


async def test_a_silent_client_times_out_and_its_late_answer_is_ignored() -> None:
    """R58, R61."""

    async def ask(ctx: Context) -> str:
        with pytest.raises(TimedOut):
            await ctx.roots(timeout=0.01)
        return "went on"

    async with Peer(serving(ask)) as peer:
        await peer.initialize(caps=ALL)
        id = await peer.start_legacy("tools/call", {"name": "t"})
        asked = await peer.receive()
        assert texts((await peer.reply(id))["result"]) == ["went on"]
        await peer.answer(asked, {"roots": []})
        await peer.answer({"id": "never-asked"}, {})
        assert (await peer.legacy("ping"))["result"] == {}


QUESTIONS: dict[str, tuple[Any, Any, Any]] = {
    "form": (lambda ctx: ctx.elicit("?", str), {}, {"elicitation": {"form": {}}}),
    "form, url only": (lambda ctx: ctx.elicit("?", str), {"elicitation": {"url": {}}}, {"elicitation": {"form": {}}}),
    "url": (lambda ctx: ctx.elicit("?", url="https://x"), {"elicitation": {}}, {"elicitation": {"url": {}}}),
    "sample": (lambda ctx: ctx.sample("x"), {}, {"sampling": {}}),
    "sample with tools": (lambda ctx: ctx.sample("x", tools=[]), {"sampling": {}}, {"sampling": {"tools": {}}}),
    "sample with context": (
        lambda ctx: ctx.sample("x", include_context="allServers"),
        {"sampling": {}},
        {"sampling": {"context": {}}},
    ),
    "roots": (lambda ctx: ctx.roots(), {}, {"roots": {}}),
    "old names": (lambda ctx: ctx.list_roots(), {}, {"roots": {}}),
}


@pytest.mark.parametrize("question", QUESTIONS)
async def test_what_the_client_did_not_declare_is_not_asked(question: str) -> None:
    """R59; protocol.md 1.7: -32021 with the capabilities needed, as an object."""
    ask, caps, required = QUESTIONS[question]

    async def work(ctx: Context) -> str:
        await ask(ctx)
        return "asked"

    async with Peer(serving(work)) as peer:
        modern = (await peer.modern("tools/call", {"name": "t"}, caps=caps))["error"]
        await peer.initialize(caps=caps)
        legacy = (await peer.legacy("tools/call", {"name": "t"}))["error"]
    assert (modern["code"], modern["data"]) == (-32021, {"requiredCapabilities": required})
    assert legacy["code"] == -32600, "a code the older revisions know"
    assert peer.heard == [], "nothing touched the wire"


@pytest.mark.parametrize("arguments", [("?",), ("?", str, "both")])
async def test_a_question_is_a_form_or_a_page(arguments: Any) -> None:
    async def work(ctx: Context) -> str:
        with pytest.raises(DeclarationError, match="either"):
            await ctx.elicit(*arguments[:2], **({"url": "https://x"} if len(arguments) > 2 else {}))
        return "x"

    assert texts(await serving(work).call_tool("t")) == ["x"]


# --- steps -----------------------------------------------------------------------------------------------------------


def make_person(name: str) -> Person:
    return Person(name)


async def make_later(name: str, *, age: int) -> Person:
    return Person(name, age)


async def test_a_step_gives_back_what_its_function_declares() -> None:
    """Context.step: JSON-like, or of the type `fn` declares to return, written as text or not."""
    seen: list[Any] = []

    async def work(ctx: Context) -> str:
        seen.append(await ctx.step("one", make_person, "Ada"))
        seen.append(await ctx.step("two", make_later, "Bob", age=3))
        seen.append(await ctx.step("three", lambda: {"a": [1, 2]}))
        return "x"

    await serving(work).call_tool("t")
    assert seen == [Person("Ada"), Person("Bob", 3), {"a": [1, 2]}]


@asynccontextmanager
async def list_of_ships(server: Server) -> AsyncIterator[list[str]]:
    yield ["Otter"]


async def test_a_context_with_type_arguments_is_found_by_its_annotation() -> None:
    server = Server("typed", version="1", lifespan=list_of_ships, init=lambda argument: 7)

    @server.tool
    async def look(word: str, ctx: Context[int, list[str]]) -> str:
        return f"{word} {ctx.state} {ctx.lifespan_state[0]}"

    result = await server.call_tool("look", {"word": "a"})
    assert "a 7 Otter" in repr(result.content)
    await server.stop()
