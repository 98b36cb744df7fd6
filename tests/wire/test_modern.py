"""What 2026-07-28 looks like once a request is through the ladder: results, streams, progress, logs, listening."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated, Any

import pytest
import pytest_asyncio
from tests.support.harness import MODERN, Channel, P, Stream, Wire, meta, notification, request, serve
from tests.support.until import soon, until

from trimaran import CallToolResult, Context, Limits, Server, ToolError
from trimaran.errors import ProtocolError

INFO = P + "serverInfo"
SUBSCRIPTION = P + "subscriptionId"
LEVEL = P + "logLevel"


def full(**options: Any) -> Server:
    server = Server("full", version="2.0.0", title="Full", instructions="Read me.", **options)

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        "Add."
        return a + b

    @server.tool
    async def chatty(ctx: Context) -> str:
        await ctx.progress(1, 3, "one")
        await ctx.progress(1, 3, "again")
        await ctx.progress(0.5)
        await ctx.progress(2)
        await ctx.log("debug", "d")
        await ctx.log("warning", {"w": 1}, logger="test")
        return "done"

    @server.tool
    def threaded(ctx: Context) -> str:
        for n in range(1, 6):
            ctx.progress(n, 5)
        return "threaded"

    @server.tool
    async def counting() -> AsyncIterator[str]:
        for part in ("a", "b", "c"):
            yield part

    @server.tool
    async def fails() -> str:
        raise ValueError("the secret reason")

    @server.tool
    async def declines() -> str:
        raise ToolError("try another city")

    @server.tool
    async def refuses() -> str:
        raise ProtocolError(1234, "by hand", {"why": "because"})

    @server.tool
    async def late_error(ctx: Context) -> str:
        await ctx.progress(1)
        raise ProtocolError.invalid_params("too late for a status")

    @server.tool(output_schema={"type": "integer"})
    async def promises() -> Any:
        return "not an integer"

    @server.resource("config://app", mime_type="application/json")
    def config() -> dict[str, Any]:
        return {"debug": True}

    @server.resource("note://{name}")
    def note(name: str) -> str:
        return f"note {name}"

    @server.prompt
    def greet(name: str) -> str:
        return f"Greet {name}"

    @server.completion(prompt="greet", argument="name")
    def names(value: str) -> list[str]:
        return [f"{value}{n}" for n in range(250)]

    @server.completion(template="note://{name}", argument="name")
    def notes(value: str, arguments: dict[str, str]) -> list[str]:
        return [value + arguments.get("seen", "")]

    return server


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["http", "asgi"])
async def wire(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    """One server for the cases that leave no trace in it."""
    async with serve(request.param, full()) as wire:
        yield wire


shared = pytest.mark.asyncio(loop_scope="module")

EVERY_METHOD: list[tuple[str, dict[str, Any]]] = [
    ("server/discover", {}),
    ("tools/list", {}),
    ("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("resources/read", {"uri": "config://app"}),
    ("resources/read", {"uri": "note://x"}),
    ("prompts/list", {}),
    ("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}),
    (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}},
    ),
]
CACHEABLE = {
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
}


@shared
@pytest.mark.parametrize(("method", "params"), EVERY_METHOD, ids=lambda v: v if isinstance(v, str) else "")
async def test_every_result_is_typed_and_signed(wire: Wire, method: str, params: dict[str, Any]) -> None:
    """protocol.md 7.1: resultType on every result, serverInfo in its _meta, cache hints on exactly six methods."""
    reply = await wire.modern(method, params)
    assert reply.status == 200
    assert reply.json["id"] == 1
    result = reply.result
    assert result["resultType"] == "complete"
    assert result["_meta"][INFO] == {"name": "full", "version": "2.0.0", "title": "Full"}
    assert ("ttlMs" in result, "cacheScope" in result) == (method in CACHEABLE,) * 2
    if method in CACHEABLE:
        assert type(result["ttlMs"]) is int
        assert result["ttlMs"] >= 0
        assert result["cacheScope"] in ("public", "private")


@shared
async def test_discover_tells_all_about_the_server(wire: Wire) -> None:
    """protocol.md 1.1, R6: supportedVersions, derived capabilities, instructions; no top-level serverInfo."""
    result = (await wire.modern("server/discover")).result
    assert result["supportedVersions"][0] == MODERN
    assert result["instructions"] == "Read me."
    assert set(result["capabilities"]) == {"tools", "resources", "prompts", "completions", "logging"}
    assert "serverInfo" not in result


async def test_cache_hints_follow_the_options(binding: str) -> None:
    """protocol.md 1.5: ttlMs from cache_ttl in whole milliseconds, cacheScope as configured, the same on all pages."""
    server = Server("c", version="1", cache_ttl=1.5, cache_scope="private", page_size=2)
    for n in range(5):
        server.add_tool(lambda: "x", name=f"t{n}", inline=True)
    server.add_resource("a:slow", lambda: "x", cache_ttl=60)
    async with serve(binding, server) as wire:
        result = (await wire.modern("tools/list")).result
        names: list[str] = []
        while True:
            assert (result["ttlMs"], result["cacheScope"]) == (1500, "private")
            names += [t["name"] for t in result["tools"]]
            if "nextCursor" not in result:
                break
            result = (await wire.modern("tools/list", {"cursor": result["nextCursor"]})).result
        assert names == [f"t{n}" for n in range(5)]  # deterministic, complete, without repeats
        assert (await wire.modern("resources/read", {"uri": "a:slow"})).result["ttlMs"] == 60_000


@shared
@pytest.mark.parametrize(
    "cursor", ["nope", "", "tool.zz", "tool.ffffff", "tool.-1", "tool.0_1", "resource.1", "tool.1 ", "tool."]
)
async def test_an_unknown_cursor_is_refused(wire: Wire, cursor: str) -> None:
    """R38, protocol.md 7.1: a cursor that was never given out is -32602, whatever it looks like."""
    assert (await wire.modern("tools/list", {"cursor": cursor})).verdict == (400, -32602, 1)


@shared
async def test_unknown_things_are_invalid_params(wire: Wire) -> None:
    """protocol.md 1.5, 8.2, C6: unknown tool and prompt -32602; a missing resource -32602 with data.uri, never empty contents."""
    assert (await wire.call("nope")).verdict == (400, -32602, 1)
    assert (await wire.modern("prompts/get", {"name": "nope"})).verdict == (400, -32602, 1)
    reply = await wire.modern("resources/read", {"uri": "config://gone"})
    assert reply.verdict == (400, -32602, 1)
    assert reply.error["data"] == {"uri": "config://gone"}


@shared
async def test_bad_arguments_are_for_the_model_to_read(wire: Wire) -> None:
    """R84, protocol.md 8.6: a schema violation is an isError result, and the handler is not called."""
    reply = await wire.call("add", {"a": "x", "b": 2})
    assert reply.status == 200
    assert reply.result["isError"] is True
    assert "a" in reply.result["content"][0]["text"]
    assert (await wire.call("add", {})).result["isError"] is True


@shared
async def test_failures_of_tools(wire: Wire, caplog: pytest.LogCaptureFixture) -> None:
    """R48, R49, C5: a raised ToolError is told word by word, any other exception is redacted, a protocol error is itself."""
    failed = (await wire.call("fails")).result
    assert failed["isError"] is True
    assert "secret" not in str(failed)
    assert any("secret" in str(r.exc_info) for r in caplog.records)
    declined = (await wire.call("declines")).result
    assert (declined["isError"], declined["content"][0]["text"]) == (True, "try another city")
    refused = await wire.call("refuses")
    assert refused.error == {"code": 1234, "message": "by hand", "data": {"why": "because"}}
    broken = (await wire.call("promises")).result
    assert broken["isError"] is True


# --- the lazy stream -------------------------------------------------------------------------------------------------


@shared
async def test_a_call_that_says_nothing_is_answered_as_json(wire: Wire) -> None:
    """R63, protocol.md 2.3: no token, no log level: nothing is emitted, so the answer is plain JSON."""
    reply = await wire.call("chatty")
    assert reply.headers["content-type"] == "application/json"
    assert reply.result["content"][0]["text"] == "done"


@shared
async def test_progress_rides_the_stream_of_its_call(wire: Wire) -> None:
    """R55, R63, protocol.md 1.4: with a token, strictly increasing, then the response, then the end; no event ids."""
    stream = await wire.open_call("chatty", id="c", extra={"progressToken": "tok"})
    assert stream.status == 200
    assert stream.headers["content-type"].startswith("text/event-stream")
    assert "no-cache" in stream.headers["cache-control"]
    assert stream.headers["x-accel-buffering"] == "no"
    *progress, response = await stream.rest()
    assert [m["method"] for m in progress] == ["notifications/progress"] * 2
    assert progress[0]["params"] == {"progressToken": "tok", "progress": 1, "total": 3, "message": "one"}
    assert progress[1]["params"] == {"progressToken": "tok", "progress": 2}
    assert response["id"] == "c"
    assert response["result"]["resultType"] == "complete"
    await stream.close()


@shared
@pytest.mark.parametrize("token", [0, 7, "", "7"])
async def test_a_progress_token_comes_back_as_it_was(wire: Wire, token: Any) -> None:
    """protocol.md 1.4: string or integer, of the same JSON type; 0 and "" are tokens too."""
    messages = (await wire.call("counting", extra={"progressToken": token})).messages
    tokens = [m["params"]["progressToken"] for m in messages[:-1]]
    assert tokens == [token] * 3
    assert all(type(t) is type(token) for t in tokens)


async def test_progress_is_a_number(binding: str) -> None:
    """protocol.md 1.4: `progress` is a JSON number that grows; what is none (NaN, infinity) is not sent as null."""
    server = full()

    @server.tool
    async def odd(ctx: Context) -> str:
        for value in (float("nan"), 1, float("inf"), 2):
            await ctx.progress(value, float("nan"))
        return "ok"

    async with serve(binding, server) as wire:
        *progress, _ = (await wire.call("odd", extra={"progressToken": 1})).messages
        assert [m["params"]["progress"] for m in progress] == [1, 2]
        assert all(m["params"].get("total", 0) is not None for m in progress)


@shared
async def test_progress_from_a_thread_keeps_its_order(wire: Wire) -> None:
    """R55, R139: a plain def tool reports from its thread; all of it precedes the result, in order."""
    *progress, response = (await wire.call("threaded", extra={"progressToken": 1})).messages
    assert [m["params"]["progress"] for m in progress] == [1, 2, 3, 4, 5]
    assert response["result"]["content"][0]["text"] == "threaded"


async def test_a_slow_connection_still_gets_everything_in_order() -> None:
    """R63, protocol.md 2.3: while a chunk waits to leave, the call may end; its result still comes last, before the end of the stream."""
    async with serve("asgi", full(), lag=20) as wire:
        for name, count in (("threaded", 5), ("counting", 3), ("chatty", 2)):
            *progress, response = (await wire.call(name, extra={"progressToken": 1})).messages
            assert len(progress) == count
            assert response["result"]["resultType"] == "complete"


@shared
async def test_logs_are_opt_in_per_request(wire: Wire) -> None:
    """protocol.md 1.4: without logLevel no notifications/message; with it, from that level up, on that request's stream."""
    assert not (await wire.call("chatty")).is_stream
    quiet = (await wire.call("chatty", extra={LEVEL: "error"})).messages
    assert len(quiet) == 1
    warned = (await wire.call("chatty", extra={LEVEL: "info"})).messages
    assert [m["params"] for m in warned[:-1]] == [{"level": "warning", "data": {"w": 1}, "logger": "test"}]
    all_of_it = (await wire.call("chatty", extra={LEVEL: "debug"})).messages
    assert [m["params"]["level"] for m in all_of_it[:-1]] == ["debug", "warning"]
    assert not (await wire.call("chatty")).is_stream  # the level is not remembered


@shared
async def test_an_error_after_the_first_event_travels_in_the_stream(wire: Wire) -> None:
    """protocol.md 2.3: once committed the status stays 200 and the error is an event; before, it has its own status."""
    reply = await wire.call("late_error", extra={"progressToken": 1})
    assert reply.status == 200
    assert reply.is_stream
    assert reply.messages[-1]["error"]["code"] == -32602
    assert (await wire.call("late_error")).verdict == (400, -32602, 1)


@shared
async def test_a_client_that_prefers_a_stream_gets_one(wire: Wire) -> None:
    """R118, C9: text/event-stream listed first means SSE at once; refusals keep their status."""
    first = {"Accept": "text/event-stream, application/json"}
    reply = await wire.call("add", {"a": 1, "b": 2}, headers=first)
    assert reply.is_stream
    assert len(reply.messages) == 1
    assert (await wire.call("nope", headers=first)).status == 400
    assert (await wire.modern("no/such", headers=first)).status == 404


async def test_a_silent_call_is_kept_alive_by_comments(binding: str) -> None:
    """P29, protocol.md 1.2: comments after `keep_alive` seconds of silence, then the response as an event."""
    server = full(limits=Limits(keep_alive=0.03))
    gate = asyncio.Event()

    @server.tool
    async def hold() -> str:
        await gate.wait()
        return "held"

    async with serve(binding, server) as wire:
        stream = await wire.open_call("hold")
        assert stream.status == 200
        for _ in range(2):
            event = await stream.raw_event()
            assert event is not None
            assert event.comments == 1
            assert not event.has_data
        gate.set()
        (response,) = await stream.rest()
        assert response["result"]["content"][0]["text"] == "held"
        await stream.close()


@pytest.mark.parametrize("streaming", [False, True])
async def test_leaving_cancels_the_call(binding: str, streaming: bool) -> None:
    """protocol.md 1.2, P28: on the modern era a closed response stream MUST be taken as cancellation."""
    server = Server("s", version="1", keep_alive=30.0)
    started, cancelled = asyncio.Event(), asyncio.Event()

    @server.tool
    async def long(ctx: Context) -> str:
        await ctx.progress(1)
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            assert ctx.cancelled
            cancelled.set()
            raise
        return ""

    async with serve(binding, server) as wire:
        extra = {"progressToken": 1} if streaming else {}
        opening = asyncio.ensure_future(wire.open_call("long", extra=extra))
        await soon(started.wait())
        if streaming:
            stream = await opening
            await stream.message()
            await stream.close()
        else:
            opening.cancel()
            await asyncio.wait({opening})
        await soon(cancelled.wait())
        await until(lambda: not wire.engine.running_calls.open, "no call is left in flight")


async def test_a_time_limit_answers_with_an_error(binding: str) -> None:
    """R69, R130: the handler is stopped, the client hears -32603; a tool's own timeout wins over the server's."""
    server = Server("s", version="1", request_timeout=30.0)
    stopped = asyncio.Event()

    @server.tool(timeout=0.03)
    async def slow() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    async with serve(binding, server) as wire:
        reply = await wire.call("slow")
        assert reply.error["code"] == -32603
        assert stopped.is_set()


async def test_what_is_exposed_of_internal_errors(binding: str) -> None:
    """R128: expose_internal_errors shows the exception's text; off, it stays in the log."""
    for expose in (False, True):
        server = full(expose_internal_errors=expose)
        server.add_resource("x:broken", _broken, name="broken")
        async with serve(binding, server) as wire:
            assert ("the secret reason" in str((await wire.call("fails")).result)) is expose
            reply = await wire.modern("resources/read", {"uri": "x:broken"})
            assert reply.error["code"] == -32603
            assert ("hidden" in reply.error["message"]) is expose


def _broken() -> str:
    raise KeyError("hidden")


# --- completion ------------------------------------------------------------------------------------------------------


def complete(ref: Any, value: Any = "A", **more: Any) -> dict[str, Any]:
    return {"ref": ref, "argument": {"name": "name", "value": value}, **more}


@shared
async def test_completion_is_cut_to_a_hundred(wire: Wire) -> None:
    """R36, R37: 100 values with hasMore; a key nobody registered has none; context reaches the handler."""
    found = (await wire.modern("completion/complete", complete({"type": "ref/prompt", "name": "greet"}))).result[
        "completion"
    ]
    assert len(found["values"]) == 100
    assert found["hasMore"] is True
    assert found["total"] == 250
    none = (await wire.modern("completion/complete", complete({"type": "ref/prompt", "name": "other"}))).result[
        "completion"
    ]
    assert none["values"] == []
    template = complete({"type": "ref/resource", "uri": "note://{name}"}, context={"arguments": {"seen": "!"}})
    assert (await wire.modern("completion/complete", template)).result["completion"]["values"] == ["A!"]


@shared
@pytest.mark.parametrize(
    "params",
    [
        {},
        complete({"type": "ref/tool", "name": "x"}),
        complete({"name": "greet"}),
        complete({"type": "ref/prompt", "name": "greet"}, value=5),
        {"ref": {"type": "ref/prompt", "name": "greet"}},
        complete({"type": "ref/prompt", "name": "greet"}, context={"arguments": {"a": 1}}),
    ],
)
async def test_completion_params_are_validated(wire: Wire, params: dict[str, Any]) -> None:
    """R36: a wrong ref, argument or context is -32602."""
    assert (await wire.modern("completion/complete", params)).verdict == (400, -32602, 1)


# --- listening -------------------------------------------------------------------------------------------------------


async def listen(wire: Wire, wanted: dict[str, Any], id: Any = "L") -> tuple[Stream, Any]:
    stream = await wire.open_modern("subscriptions/listen", {"notifications": wanted}, id=id)
    assert stream.status == 200, await stream.read()
    return stream, await stream.message()


@pytest.mark.parametrize("id", ["sub", 0, 42])
async def test_listening_is_acknowledged_first(binding: str, id: Any) -> None:
    """protocol.md 1.4: the ack comes first, every message carries the listen id in its own JSON type."""
    server = full()
    async with serve(binding, server) as wire:
        stream, ack = await listen(wire, {"toolsListChanged": True, "resourceSubscriptions": ["config://app"]}, id)
        assert ack["method"] == "notifications/subscriptions/acknowledged"
        assert ack["params"]["notifications"] == {"toolsListChanged": True, "resourceSubscriptions": ["config://app"]}
        server.add_tool(lambda: "x", name="new", inline=True)
        changed = await stream.message()
        server.notify.resource_updated("config://app")
        updated = await stream.message()
        assert changed["method"] == "notifications/tools/list_changed"
        assert updated["method"] == "notifications/resources/updated"
        assert updated["params"]["uri"] == "config://app"
        for message in (ack, changed, updated):
            subscription = message["params"]["_meta"][SUBSCRIPTION]
            assert subscription == id
            assert type(subscription) is type(id)
            assert "id" not in message
        await stream.close()


async def test_nothing_unrequested_is_heard(binding: str) -> None:
    """protocol.md 7.1, R39: only the kinds and URIs of the filter; the ack names the honoured subset."""
    server = Server("s", version="1")
    server.add_tool(lambda: "x", name="first", inline=True)
    async with serve(binding, server) as wire:
        stream, ack = await listen(
            wire, {"toolsListChanged": False, "promptsListChanged": True, "resourceSubscriptions": ["a:1"]}
        )
        assert ack["params"]["notifications"] == {}  # neither prompts nor resources are served
        await stream.close()
        server.add_prompt(lambda: "x", name="p")
        server.add_resource("a:1", lambda: "x", name="r")
        stream, ack = await listen(wire, {"promptsListChanged": True, "resourceSubscriptions": ["a:1"]})
        assert ack["params"]["notifications"] == {"promptsListChanged": True, "resourceSubscriptions": ["a:1"]}
        server.add_tool(lambda: "x", name="second", inline=True)
        server.notify.resources_changed()
        server.notify.resource_updated("a:2")
        server.notify.resource_updated("a:1")
        assert (await stream.message())["params"]["uri"] == "a:1"
        server.remove_prompt("p")
        assert (await stream.message())["method"] == "notifications/prompts/list_changed"
        await stream.close()


async def test_an_empty_filter_is_served_and_a_missing_one_is_not(binding: str) -> None:
    """protocol.md 8.10: `notifications` is required, its fields are not."""
    async with serve(binding, full()) as wire:
        stream, ack = await listen(wire, {})
        assert ack["params"]["notifications"] == {}
        await stream.close()
        assert (await wire.modern("subscriptions/listen", {})).verdict == (400, -32602, 1)


async def test_listeners_do_not_hear_progress_or_logs(binding: str) -> None:
    """protocol.md 7.1: request-related notifications ride the request's own stream only."""
    server = full()
    async with serve(binding, server) as wire:
        stream, _ = await listen(wire, {"toolsListChanged": True})
        await wire.call("chatty", extra={"progressToken": 1, LEVEL: "debug"})
        server.notify.tools_changed()
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
        await stream.close()


async def test_a_change_from_another_thread_is_heard(binding: str) -> None:
    """P23: server.notify works from anywhere."""
    server = full()
    async with serve(binding, server) as wire:
        stream, _ = await listen(wire, {"toolsListChanged": True})
        await asyncio.to_thread(server.notify.tools_changed)
        assert (await stream.message())["method"] == "notifications/tools/list_changed"
        await stream.close()


async def test_leaving_ends_the_subscription(binding: str) -> None:
    """protocol.md 1.4, P8: closing the stream ends it and leaves nothing behind."""
    server = full()
    async with serve(binding, server) as wire:
        stream, _ = await listen(wire, {"toolsListChanged": True})
        assert len(server.runtime.changes) == 1
        await stream.close()
        await until(lambda: len(server.runtime.changes) == 0, "the subscription is gone")


@pytest.mark.parametrize("id", ["L", 5])
async def test_a_stopping_server_ends_listening_with_a_result(binding: str, id: Any) -> None:
    """protocol.md 1.4, 8.1, P13: the listen result, then the end of the stream."""
    async with serve(binding, full()) as wire:
        stream, _ = await listen(wire, {"toolsListChanged": True}, id)
    (result,) = await stream.rest()
    assert result["id"] == id
    assert result["result"]["resultType"] == "complete"
    assert result["result"]["_meta"][SUBSCRIPTION] == id
    await stream.close()


async def test_a_server_may_be_served_again(binding: str) -> None:
    """P39, P14: stopping one endpoint does not spoil the server: the next one listens as well as the first."""
    server = full()
    for _ in range(2):
        async with serve(binding, server) as wire:
            stream, _ = await listen(wire, {"toolsListChanged": True})
            server.notify.tools_changed()
            assert (await stream.message())["method"] == "notifications/tools/list_changed"
            await stream.close()


async def test_listening_survives_the_end_of_another_endpoint(binding: str) -> None:
    """Server's docstring: "one server object may be served several ways at once", so one way's end is not the other's."""
    server = full()
    async with serve(binding, server) as wire:
        stream, _ = await listen(wire, {"toolsListChanged": True})
        async with serve("asgi", server) as other:
            assert (await other.modern("tools/list")).status == 200
        server.notify.tools_changed()
        assert (await stream.message()).get("method") == "notifications/tools/list_changed"
        await stream.close()


async def test_listening_on_a_channel() -> None:
    """protocol.md 1.4, 3.5: ack first, correlated by subscription id, ended by notifications/cancelled without an answer."""
    server = full()
    async with Channel(server) as channel:
        ack = await channel.modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, id="a")
        assert ack["params"]["_meta"][SUBSCRIPTION] == "a"
        await channel.modern("subscriptions/listen", {"notifications": {"promptsListChanged": True}}, id=7)
        server.notify.tools_changed()
        assert (await channel.receive())["params"]["_meta"][SUBSCRIPTION] == "a"
        server.notify.prompts_changed()
        assert (await channel.receive())["params"]["_meta"][SUBSCRIPTION] == 7
        await channel.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "a"}})
        server.notify.tools_changed()
        server.notify.prompts_changed()
        assert (await channel.receive())["params"]["_meta"][SUBSCRIPTION] == 7
        assert (await channel.modern("tools/list", id="end"))["id"] == "end"


# --- channels --------------------------------------------------------------------------------------------------------


async def test_calls_on_a_channel_run_at_the_same_time() -> None:
    """R139: a slow call holds up nobody, and notifications interleave."""
    server = full()
    gate = asyncio.Event()

    @server.tool
    async def hold() -> str:
        await gate.wait()
        return "held"

    async with Channel(server) as channel:
        await channel.send(request("tools/call", {"name": "hold", "_meta": meta()}, "slow"))
        assert (await channel.modern("tools/call", {"name": "add", "arguments": {"a": 1, "b": 2}}, id="quick"))[
            "id"
        ] == "quick"
        noisy = await channel.modern("tools/call", {"name": "counting"}, id="noisy", progressToken=9)
        assert noisy["params"]["progressToken"] == 9
        rest = [await channel.receive() for _ in range(3)]
        assert rest[-1]["id"] == "noisy"
        gate.set()
        assert (await channel.receive())["id"] == "slow"


async def test_an_id_in_use_is_refused_on_a_channel() -> None:
    """protocol.md 3.1: ids are unique among outstanding requests; the first call is not disturbed."""
    server = full()
    gate = asyncio.Event()

    @server.tool
    async def hold() -> str:
        await gate.wait()
        return "held"

    async with Channel(server) as channel:
        await channel.send(request("tools/call", {"name": "hold", "_meta": meta()}, 1))
        assert (await channel.modern("tools/list", id=1))["error"]["code"] == -32600
        gate.set()
        assert (await channel.receive())["result"]["content"][0]["text"] == "held"
        assert "result" in await channel.modern("tools/list", id=1)


@pytest.mark.parametrize("legacy", [False, True])
async def test_a_cancellation_right_behind_its_request_applies(legacy: bool) -> None:
    """R67: a cancellation that arrives before the request is registered still applies (two lines in one read)."""
    server = full()
    ran = asyncio.Event()

    @server.tool
    async def hold() -> str:
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        ran.set()
        return "ran to its end"

    async with Channel(server) as channel:
        await channel.initialize()
        params = {"name": "hold"} if legacy else {"name": "hold", "_meta": meta()}
        await channel.send(request("tools/call", params, "x"))
        await channel.send(notification("notifications/cancelled", {"requestId": "x"}))
        assert (await channel.modern("completion/complete", complete({"type": "ref/prompt", "name": "o"}), id="y"))[
            "id"
        ] == "y"
        await asyncio.sleep(0.01)
        assert not ran.is_set()


async def test_cancelling_on_a_channel_silences_the_call() -> None:
    """protocol.md 1.4: on stdio `notifications/cancelled` stops it, and nothing further is sent for it."""
    server = full()
    started, stopped = asyncio.Event(), asyncio.Event()

    @server.tool
    async def hold() -> str:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        return ""

    async with Channel(server) as channel:
        waiting = asyncio.ensure_future(channel.modern("tools/call", {"name": "hold"}, id="x"))
        await soon(started.wait())
        await channel.send({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "x"}})
        await soon(stopped.wait())
        await channel.send(b'{"jsonrpc":"2.0","id":"y","method":"nope"}')
        assert (await waiting)["id"] == "y"


# --- x-mcp-header ----------------------------------------------------------------------------------------------------


def mirrored() -> Server:
    server = Server("m", version="1")
    schema = {
        "type": "object",
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "count": {"type": "integer", "x-mcp-header": "Count"},
            "dry": {"type": "boolean", "x-mcp-header": "Dry"},
            "deep": {"type": "object", "properties": {"key": {"type": ["string", "null"], "x-mcp-header": "Key"}}},
            "free": {"type": "string"},
        },
    }

    @server.tool(input_schema=schema, inline=True)
    def where(arguments: dict[str, Any]) -> str:
        return "ok"

    return server


# arguments, headers, accepted
MIRRORS: dict[str, tuple[dict[str, Any], dict[str, str], bool]] = {
    "nothing": ({}, {}, True),
    "unannotated": ({"free": "x"}, {}, True),
    "string": ({"region": "eu"}, {"Mcp-Param-Region": "eu"}, True),
    "any case of name": ({"region": "eu"}, {"mcp-param-REGION": "eu"}, True),
    "case of value": ({"region": "eu"}, {"Mcp-Param-Region": "EU"}, False),
    "missing header": ({"region": "eu"}, {}, False),
    "other value": ({"region": "eu"}, {"Mcp-Param-Region": "us"}, False),
    "stray header": ({}, {"Mcp-Param-Region": "eu"}, False),
    "null": ({"deep": {"key": None}}, {}, True),
    "null with header": ({"deep": {"key": None}}, {"Mcp-Param-Key": "x"}, False),
    "nested": ({"deep": {"key": "k"}}, {"Mcp-Param-Key": "k"}, True),
    "integer": ({"count": 42}, {"Mcp-Param-Count": "42"}, True),
    "integer 42.0": ({"count": 42}, {"Mcp-Param-Count": "42.0"}, True),
    "integer other": ({"count": 42}, {"Mcp-Param-Count": "43"}, False),
    "boolean": ({"dry": True}, {"Mcp-Param-Dry": "true"}, True),
    "boolean case": ({"dry": True}, {"Mcp-Param-Dry": "True"}, False),
    "base64": ({"region": "zürich"}, {"Mcp-Param-Region": "=?base64?esO8cmljaA==?="}, True),
    "bad padding": ({"region": "zürich"}, {"Mcp-Param-Region": "=?base64?esO8cmljaA?="}, False),
    "bad alphabet": ({"region": "zürich"}, {"Mcp-Param-Region": "=?base64?esO8cmlja*==?="}, False),
    "uppercase marker is literal": ({"region": "=?BASE64?eA==?="}, {"Mcp-Param-Region": "=?BASE64?eA==?="}, True),
    "unknown param header": ({}, {"Mcp-Param-Other": "x"}, True),
}  # fmt: skip


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["http", "asgi"])
async def mirror(request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    async with serve(request.param, mirrored()) as wire:
        yield wire


@shared
@pytest.mark.parametrize("case", MIRRORS)
async def test_param_headers_must_say_what_the_body_says(mirror: Wire, case: str) -> None:
    """protocol.md 3.3: strict base64, numeric integers, missing or stray headers refused with 400 -32020."""
    arguments, headers, accepted = MIRRORS[case]
    reply = await mirror.call("where", arguments, headers=dict(headers))
    if accepted:
        assert reply.result["content"][0]["text"] == "ok"
    else:
        assert reply.verdict == (400, -32020, 1)


@shared
async def test_param_headers_mean_nothing_to_legacy_clients(mirror: Wire) -> None:
    """protocol.md 1.5: the annotation is the modern era's; a legacy client sends none and is served."""
    session = await mirror.initialize()
    assert (await session.call("where", {"region": "eu"})).result["content"][0]["text"] == "ok"


@shared
async def test_results_take_the_shape_of_what_was_returned(binding: str) -> None:
    """protocol.md 1.5: structuredContent may be any JSON value, null included, mirrored as text."""
    server = Server("s", version="1")
    cases: dict[str, Any] = {"none": None, "number": 5, "list": [1, 2], "object": {"a": 1}, "text": "x"}
    for name, value in cases.items():
        server.add_tool(_returning(value), name=name, output_schema={}, inline=True)
    server.add_tool(lambda: CallToolResult.error("no"), name="explicit", inline=True)
    async with serve(binding, server) as wire:
        for name, value in cases.items():
            result = (await wire.call(name)).result
            assert result["structuredContent"] == value
            assert result["content"], name
        assert (await wire.call("explicit")).result["isError"] is True


def _returning(value: Any) -> Any:
    def fn() -> Annotated[Any, "anything"]:
        return value

    return fn
