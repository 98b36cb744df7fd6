"""Calls that are passed on without a task: which are, what they answer, and how they become usual ones."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.support.until import soon, until

import trimaran.server.running_calls
from trimaran import Client, Server, connect
from trimaran.client.dialect import ModernDialect
from trimaran.errors import CallError
from trimaran.protocol.read_reply import read_frame
from trimaran.proxy.results import is_sound, read_plain_reply
from trimaran.proxy.shortcuts import ToolShortcut
from trimaran.serve import HttpServer
from trimaran.transports.engine import engines_of
from trimaran.transports.relayed_request import RelayedRequest

from .harbour import ERAS, Era, Harbour, through

every_era = pytest.mark.parametrize("near", ERAS)


@pytest.fixture
def harbour() -> Harbour:
    return Harbour()


@pytest.fixture
def routes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many calls took a shortcut, how many of them were answered on it, and how many became usual ones."""
    counts: Counter[str] = Counter()
    begin, receive, promote = RelayedRequest.begin, RelayedRequest.receive, RelayedRequest.promote

    def counting_begin(self: RelayedRequest, body: bytes) -> bool:
        is_taken = begin(self, body)
        counts["taken"] += is_taken
        return is_taken

    def counting_receive(self: RelayedRequest, result: bytes) -> None:
        counts["answered"] += 1
        receive(self, result)

    def counting_promote(self: RelayedRequest) -> Any:
        exchange = promote(self)
        counts["promoted"] += exchange is not None
        return exchange

    monkeypatch.setattr(RelayedRequest, "begin", counting_begin)
    monkeypatch.setattr(RelayedRequest, "receive", counting_receive)
    monkeypatch.setattr(RelayedRequest, "promote", counting_promote)
    return counts


@contextlib.asynccontextmanager
async def warm(
    harbour: Harbour,
    near: Era,
    routes: Counter[str],
    change: Callable[[Server], object] = lambda server: None,
    **options: Any,
) -> AsyncIterator[tuple[Client, Server]]:
    """A client of a proxy over HTTP, whose next calls take shortcuts; and the proxy."""
    async with contextlib.AsyncExitStack() as stack:
        target = await stack.enter_async_context(HttpServer(harbour.server, port=0))
        front = Server.proxy(target.url)
        change(front)
        place = await stack.enter_async_context(HttpServer(front, port=0))
        client = await stack.enter_async_context(connect(place.url, era=near, **options))
        for _ in range(3):
            for name in ("hoist", "meta"):
                await client.call_tool(name)
        routes.clear()
        yield client, front


@pytest.fixture(autouse=True)
def _more_tools(harbour: Harbour) -> None:
    @harbour.server.tool
    async def hoist() -> str:
        """A result that is plain text."""
        return "hoisted ⚓"

    @harbour.server.tool
    async def measure() -> dict[str, float]:
        return {"draught": 2.5}

    @harbour.server.tool
    async def load() -> list[int]:
        return [1, 2]

    @harbour.server.tool
    async def sound() -> str:
        return "x" * 100_000

    @harbour.server.tool
    async def dwell() -> str:
        harbour.started.set()
        await harbour.go_on.wait()
        return "dwelt"


@every_era
@pytest.mark.parametrize("name", ["hoist", "measure", "load", "add", "meta", "fail"])
async def test_a_shortcut_answers_as_the_usual_way_does(
    harbour: Harbour, near: Era, name: str, routes: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    frames: list[bytes] = []

    def tap(direction: str, data: bytes) -> None:
        if direction == "in":
            frames.append(data)

    arguments = {"a": 20, "b": 22} if name == "add" else {}
    async with warm(harbour, near, routes, tap=tap) as (client, _):
        frames.clear()
        await client.call_tool(name, arguments)
        assert routes == {"taken": 1, "answered": 1}
        monkeypatch.setattr(ToolShortcut, "__call__", lambda *_: None)
        await client.call_tool(name, arguments)
        assert routes["taken"] == 1
    first, second = (json.loads(frame) for frame in frames)
    assert second.pop("id") == first.pop("id") + 1
    assert first == second


@every_era
@pytest.mark.parametrize("name", ["refuse", "greet", "report", "sound"])
async def test_any_other_answer_is_the_usual_ways(harbour: Harbour, near: Era, name: str, routes: Counter[str]) -> None:
    reports: list[Any] = []
    options: dict[str, Any] = {"on_elicit": lambda ask: {"name": "Ann"}, "on_log": lambda entry: reports.append(entry)}
    async with warm(harbour, near, routes, **options) as (client, _):
        if name == "refuse":
            with pytest.raises(CallError) as refused:
                await client.call_tool(name)
            assert (refused.value.code, refused.value.data) == (-32050, {"berths": 0})
        else:
            result = await soon(client.call_tool(name))
            assert result.text[:9] == {"greet": "hello Ann", "report": "done", "sound": "x" * 9}[name]
        if name == "report":
            await until(lambda: reports)
        if name == "greet":
            assert (harbour.greeted, harbour.finished) == (2, 1)
    assert routes["taken"] == routes["promoted"] >= 1


@every_era
async def test_a_call_that_takes_long_gets_a_deadline_and_its_answer(
    harbour: Harbour, near: Era, routes: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trimaran.server.running_calls, "_SHORTCUT_SECONDS", 0.01)
    async with warm(harbour, near, routes) as (client, front):
        call = asyncio.ensure_future(client.call_tool("dwell"))
        await soon(harbour.started.wait())
        engine = engines_of(front)[0]
        await until(lambda: routes["promoted"])
        await until(lambda: engine.running_calls.open)
        (exchange,) = engine.running_calls.open
        assert exchange.deadlines is not None
        assert exchange.began > 0
        harbour.go_on.set()
        assert (await soon(call)).text == "dwelt"
        assert not engine.running_calls.open
        assert len(engine.running_calls) == 0


@every_era
async def test_a_caller_that_cancels_cancels_at_the_target(harbour: Harbour, near: Era, routes: Counter[str]) -> None:
    async with warm(harbour, near, routes) as (client, _):
        call = asyncio.ensure_future(client.call_tool("hold"))
        await soon(harbour.started.wait())
        assert routes == {"taken": 1}
        call.cancel()
        await until(lambda: harbour.outcome == "cancelled")
        assert routes["promoted"] == 1


async def test_a_session_that_ends_cancels_its_calls(harbour: Harbour, routes: Counter[str]) -> None:
    async with warm(harbour, "legacy", routes) as (client, front):
        call = asyncio.ensure_future(client.call_tool("hold"))
        await soon(harbour.started.wait())
        assert front.runtime.sessions is not None
        (session,) = front.runtime.sessions  # pyright: ignore[reportGeneralTypeIssues, reportUnknownVariableType]
        session.close("the harbour is closed")  # pyright: ignore[reportUnknownMemberType]
        with pytest.raises(CallError, match="the harbour is closed"):
            await soon(call)
        await until(lambda: harbour.outcome == "cancelled")


@every_era
async def test_a_target_that_dies_in_the_middle_is_an_error_that_says_so(
    harbour: Harbour, near: Era, routes: Counter[str]
) -> None:
    async with contextlib.AsyncExitStack() as stack:
        target = await stack.enter_async_context(HttpServer(harbour.server, port=0))
        front = Server.proxy(target.url)
        place = await stack.enter_async_context(HttpServer(front, port=0))
        client = await stack.enter_async_context(connect(place.url, era=near))
        for _ in range(3):
            for name in ("hoist", "meta"):
                await client.call_tool(name)
        routes.clear()
        call = asyncio.ensure_future(client.call_tool("hold"))
        await soon(harbour.started.wait())
        assert routes == {"taken": 1}
        for connection in tuple(target._carrier.connections):
            connection.abort()
        with pytest.raises(CallError, match="lost its connection") as lost:
            await soon(call)
        assert lost.value.data["kind"] == "lost"


@every_era
async def test_a_stop_of_the_proxy_waits_for_its_calls(harbour: Harbour, near: Era, routes: Counter[str]) -> None:
    async with contextlib.AsyncExitStack() as stack:
        target = await stack.enter_async_context(HttpServer(harbour.server, port=0))
        front = Server.proxy(target.url)
        place = HttpServer(front, port=0)
        await place.start()
        client = await stack.enter_async_context(connect(place.url, era=near))
        for _ in range(3):
            for name in ("hoist", "meta"):
                await client.call_tool(name)
        routes.clear()
        call = asyncio.ensure_future(client.call_tool("dwell"))
        await soon(harbour.started.wait())
        stopping = asyncio.ensure_future(place.stop())
        await until(lambda: routes["promoted"])
        harbour.go_on.set()
        assert (await soon(call)).text == "dwelt"
        await soon(stopping)


async def test_calls_on_shortcuts_count_as_calls_at_work(harbour: Harbour, routes: Counter[str]) -> None:
    async with warm(harbour, "modern", routes) as (client, front):
        call = asyncio.ensure_future(client.call_tool("dwell"))
        await soon(harbour.started.wait())
        assert len(engines_of(front)[0].running_calls) == 1
        harbour.go_on.set()
        await soon(call)
        assert len(engines_of(front)[0].running_calls) == 0
        assert routes == {"taken": 1, "answered": 1}


@every_era
async def test_what_wants_progress_or_is_short_of_time_takes_the_usual_way(
    harbour: Harbour, near: Era, routes: Counter[str]
) -> None:
    reports: list[Any] = []
    async with warm(harbour, near, routes) as (client, front):
        await client.call_tool("report", on_progress=lambda *report: reports.append(report))
        assert reports == [(1.0, 2.0, "half")]
        entry = front.tools.get("hoist")
        assert entry is not None
        entry.timeout = 5.0
        assert (await client.call_tool("hoist")).text == "hoisted ⚓"
        assert not routes["taken"]


@every_era
async def test_middleware_and_transforms_of_values_see_every_call(
    harbour: Harbour, near: Era, routes: Counter[str]
) -> None:
    seen: list[str] = []

    def change(front: Server) -> None:
        @front.middleware("tools/call")
        async def note(call: Any, call_next: Any) -> Any:
            seen.append(call.params.name)
            return await call_next(call)

    async with warm(harbour, near, routes, change) as (client, _):
        assert (await client.call_tool("hoist")).text == "hoisted ⚓"
        assert seen[-1] == "hoist"
        assert not routes["taken"]

    def shape(front: Server) -> None:
        front.transform("hoist", result=lambda result: f"{result.content[0].text}!")

    async with warm(harbour, near, routes, shape) as (client, _):
        assert (await client.call_tool("hoist")).text == "hoisted ⚓!"
        assert not routes["taken"]


@every_era
async def test_a_renamed_tool_takes_a_shortcut_to_its_own_name(
    harbour: Harbour, near: Era, routes: Counter[str]
) -> None:
    async with through(harbour, near, "modern", over="warm", prefix="port") as client:
        routes.clear()
        assert (await client.call_tool("port_hoist")).text == "hoisted ⚓"
        assert routes == {"taken": 1, "answered": 1}


RESULT = '{"content":[{"type":"text","text":"x"}]}'


@pytest.mark.parametrize(
    "body",
    [
        f'{{"jsonrpc":"2.0","id":7,"result":{RESULT}}}',
        f'{{"result": {RESULT}, "id": 7, "jsonrpc": "2.0"}}',
        '{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","content":[]}}',
        '{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"é"}]}}',
    ],
)
def test_a_plain_answer_is_read_however_it_is_written(body: str) -> None:
    answer = read_plain_reply(body.encode(), 7, None, is_for_older=False)
    assert answer is not None
    assert json.loads(answer.result) == json.loads(body)["result"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"jsonrpc":"2.0","id":7,"result":}',
        b'{"jsonrpc":"2.0","id":7,"result":' + RESULT.encode(),
        b'{"jsonrpc":"2.0","id":8,"result":%b}' % RESULT.encode(),
        b'{"jsonrpc":"2.0","id":"7","result":%b}' % RESULT.encode(),
        b'{"jsonrpc":"1.0","id":7,"result":%b}' % RESULT.encode(),
        b'{"jsonrpc":"2.0","id":7,"result":%b,"result":%b}' % (RESULT.encode(), RESULT.encode()),
        b'{"jsonrpc":"2.0","id":7,"result":%b,"error":{}}' % RESULT.encode(),
        b'{"jsonrpc":"2.0","id":7,"result":%b}}' % RESULT.encode(),
        b'{"jsonrpc":"2.0","id":7,"result":%b} ' % RESULT.encode()[:-1],
        b'{"jsonrpc":"2.0","id":7,"error":{"code":1,"message":"x"}}',
        b'{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"image","data":"","mimeType":"image/png"}]}}',
        b'{"jsonrpc":"2.0","id":7,"result":{"content":null}}',
        b'{"jsonrpc":"2.0","id":7,"result":{"resultType":"input_required","content":[]}}',
        b'{"jsonrpc":"2.0","id":7,"result":{"resultType":7,"content":[]}}',
        b'{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"\xff"}]}}',
        b'{"jsonrpc":"2.0","id":7,"result":{"content":[],"_meta":' + b"[" * 200 + b"]" * 200 + b"}}",
        b'{"jsonrpc":"2.0","id":7,"result":{"content":[{"type":"text","text":"%b"}]}}' % (b"x" * 20_000),
    ],
)
def test_any_other_answer_is_left_to_the_usual_way(body: bytes) -> None:
    for is_for_older in (False, True):
        assert read_plain_reply(body, 7, None, is_for_older=is_for_older) is None


PIECES = (
    *(b'{ } [ ] , : " \\ 7 8 null true \xc3\xa9 \xff'.split()),
    *(b'"id" "result" "error" "method" "jsonrpc" "2.0" "content" "isError" "_meta" "resultType" "complete"'.split()),
    RESULT.encode(),
    b',"result":{}',
    b',"content":[]',
)
bodies = st.lists(
    st.tuples(st.integers(0, 120), st.integers(0, 30), st.sampled_from(PIECES) | st.just(b"")), min_size=0, max_size=3
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(bodies, st.sampled_from(['"resultType":"complete",', '"structuredContent":{"a":1},"isError":true,', ""]))
def test_whatever_passes_on_a_shortcut_passes_on_the_usual_way(
    changes: list[tuple[int, int, bytes]], more: str
) -> None:
    body = f'{{"jsonrpc":"2.0","id":7,"result":{{{more}"content":[{{"type":"text","text":"x"}}]}}}}'.encode()
    for place, length, piece in changes:
        body = body[:place] + piece + body[place + length :]
    reply = read_plain_reply(body, 7, None, is_for_older=False)
    if reply is not None:
        frame = read_frame(body)
        kind, raw = ModernDialect({}, {}).outcome(frame)
        assert (frame.id, frame.is_reply, kind) == (7, True, "complete")
        assert is_sound(raw, any_structure=True)
        assert json.loads(reply.result) == json.loads(bytes(raw))
    elif not changes:
        pytest.fail("an answer that is as it should be did not pass")
