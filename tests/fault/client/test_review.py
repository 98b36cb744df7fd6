"""What a reader of the client looked for: the moments between two awaits, and who is left waiting there.

Each test is one such moment, brought about with a scripted peer.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import AsyncIterator
from typing import Any

import pytest

from trimaran import SyncClient, connect, errors
from trimaran.client import Deferred, connection, watch
from trimaran.client.dialect import Stateless
from trimaran.client.meeting import EraMemory, meet
from trimaran.legacy import link
from trimaran.legacy.dialect import Handshaken
from trimaran.legacy.link import SessionLink
from trimaran.protocol.replies import Frame, read_frame
from trimaran.transports.sse import SseChannel

from ...wire.client.peers import (
    Exchange,
    P,
    Pipe,
    Refused,
    Site,
    Wire,
    ask,
    bad,
    bounded,
    discovered,
    encode,
    error,
    finishing,
    held,
    initialized,
    input_required,
    listed,
    ok,
    plain,
    said,
    soon,
    stream,
    tell,
    tool,
)

LISTEN = "subscriptions/listen"
ELICIT = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {"type": "object"}}}


def acknowledge(pipe: Pipe, message: dict[str, Any]) -> None:
    meta = {P + "subscriptionId": message["id"]}
    pipe.say(tell("notifications/subscriptions/acknowledged", {"notifications": {}, "_meta": meta}))


@pytest.fixture
async def complaints() -> AsyncIterator[list[str]]:
    """What the loop had to complain about: exceptions that nobody looked at, above all."""
    found: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: found.append(str(context)))
    yield found
    gc.collect()
    asyncio.get_running_loop().set_exception_handler(None)
    assert not found


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    await made.start()
    yield made
    await made.stop()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconnecting without the pauses."""
    monkeypatch.setattr(connection, "_PAUSES", (0.0, 0.001))


# --- closing ---------------------------------------------------------------------------------------------------------


async def test_a_call_that_waits_for_a_person_ends_when_the_client_is_closed() -> None:
    """Whatever happens, a call ends. In between two rounds of a modern call there is no request in flight."""
    pipe = Pipe().modern().on("tools/call", input_required({"a": ELICIT}))
    asked = asyncio.Event()

    async def on_elicit(_: Any) -> Deferred:
        asked.set()
        return Deferred()

    client = await connect(pipe, on_elicit=on_elicit).open()
    call = asyncio.ensure_future(client.call_tool("x"))
    async with finishing(call):
        await bounded(asked.wait())
        await client.close()
        with pytest.raises(errors.Closed):
            await bounded(call, 1)


async def test_a_call_that_looks_for_its_tool_while_reconnecting_hears_closed_not_a_cancellation(hurried: None) -> None:
    pipe = Pipe().modern()
    client = await connect(pipe).open()
    pipe.on("server/discover", None)
    pipe.hang_up()
    call = asyncio.ensure_future(client.call_tool("x"))
    await soon(lambda: len(pipe.all("server/discover")) == 2)
    await client.close()
    with pytest.raises(errors.Closed):
        await bounded(call)


async def test_listening_that_is_not_acknowledged_yet_hears_closed_not_a_deadline() -> None:
    pipe = Pipe().modern().on(LISTEN, None)
    client = await connect(pipe).open()
    listening = asyncio.ensure_future(anext(client.listen(tools=True)))
    await soon(lambda: pipe.all(LISTEN))
    await client.close()
    with pytest.raises((errors.Closed, StopAsyncIteration)):
        await bounded(listening)


async def test_pings_end_quietly_with_the_client(complaints: list[str]) -> None:
    pipe = Pipe().modern()
    client = await connect(pipe, ping_interval=0.01).open()
    pipe.on("server/discover", None)
    await soon(lambda: len(pipe.all("server/discover")) > 1)
    await client.close()
    del client


async def test_nothing_runs_after_close_not_even_who_is_told_of_it() -> None:
    """`close` ends everything: a task that outlives it is cut off by the end of asyncio.run."""
    told: list[str] = []

    async def on_state(event: Any) -> None:
        await asyncio.sleep(0.01)
        told.append(event.state)

    client = await connect(Pipe().modern(), on_state=on_state).open()
    before = asyncio.all_tasks()
    await client.close()
    assert not asyncio.all_tasks() - before
    assert told[-1:] == ["closed"]


async def test_a_server_that_asks_while_the_client_closes_starts_nothing() -> None:
    class Late(Pipe):
        async def close(self) -> None:
            self.say(ask(1, "sampling/createMessage", {"messages": [], "maxTokens": 1}))
            await asyncio.sleep(0)
            await super().close()

    begun: list[Any] = []

    async def on_sample(sampling: Any) -> str:
        begun.append(sampling)
        return "late"

    pipe = Late().legacy()
    async with connect(pipe, era="legacy", on_sample=on_sample):
        pass
    await asyncio.sleep(0.01)
    assert not begun


async def test_a_channel_that_fails_to_close_leaves_a_closed_client() -> None:
    class Broken(Pipe):
        async def close(self) -> None:
            await super().close()
            raise OSError("it was gone already")

    pipe = Broken()
    pipe.modern()
    client = await connect(pipe).open()
    with contextlib.suppress(OSError):
        await client.close()
    assert client.state == "closed"


# --- what a server may ask -------------------------------------------------------------------------------------------


async def test_asks_that_share_one_id_are_bounded_too() -> None:
    begun: list[Any] = []

    async def on_sample(sampling: Any) -> Deferred:
        begun.append(sampling)
        return Deferred()

    pipe = Pipe().legacy()
    async with connect(pipe, era="legacy", on_sample=on_sample):
        for _ in range(500):
            pipe.say(ask(7, "sampling/createMessage", {"messages": [], "maxTokens": 1}))
        await asyncio.sleep(0.05)
        assert len(begun) <= 64


async def test_a_request_before_the_link_is_known_is_answered_or_ignored(complaints: list[str]) -> None:
    """A child may speak before `open` has returned."""

    class Eager(Pipe):
        async def open(self, owner: Any) -> None:
            await super().open(owner)
            self.say(ask("early", "ping"))
            await asyncio.sleep(0.01)

    pipe = Eager().legacy()
    async with connect(pipe, era="legacy"):
        pass


async def test_an_error_that_has_no_json_form_is_still_an_answer(complaints: list[str]) -> None:
    async def on_request(method: str, params: Any) -> Any:
        raise errors.ProtocolError(-1, "no", object())

    pipe = Pipe().legacy()
    async with connect(pipe, era="legacy", on_request=on_request):
        pipe.say(ask(1, "vendor/x"))
        assert (await pipe.answered(1))["error"]["code"] in (-1, -32603)


async def test_a_handler_whose_own_wait_was_cancelled_still_gives_an_answer() -> None:
    async def on_sample(_: Any) -> str:
        raise asyncio.CancelledError

    pipe = Pipe().legacy()
    async with connect(pipe, era="legacy", on_sample=on_sample):
        pipe.say(ask(1, "sampling/createMessage", {"messages": [], "maxTokens": 1}))
        assert "error" in await pipe.answered(1)


async def test_a_progress_callback_whose_own_wait_was_cancelled_does_not_cancel_the_call() -> None:
    async def on_progress(*_: Any) -> None:
        raise asyncio.CancelledError

    def answer(pipe: Pipe, message: Any) -> None:
        pipe.say(tell("notifications/progress", {"progressToken": message["id"], "progress": 1}))
        pipe.say(ok(message["id"], said("done")))

    pipe = Pipe().modern().on("tools/call", answer)
    async with connect(pipe) as client:
        assert (await bounded(client.call_tool("x", on_progress=on_progress))).text == "done"


async def test_a_plain_progress_callback_may_return_a_coroutine() -> None:
    """As every other callback may: `lambda *report: store(report)`."""
    stored: list[float] = []

    async def store(progress: float) -> None:
        stored.append(progress)

    def answer(pipe: Pipe, message: Any) -> None:
        pipe.say(tell("notifications/progress", {"progressToken": message["id"], "progress": 1}))
        pipe.say(ok(message["id"], said("done")))

    pipe = Pipe().modern().on("tools/call", answer)
    async with connect(pipe) as client:
        await client.call_tool("x", on_progress=lambda progress, *_: store(progress))
        await soon(lambda: stored == [1])


async def test_a_person_is_not_asked_on_behalf_of_a_server_that_is_gone(hurried: None) -> None:
    gone = asyncio.Event()
    asked = asyncio.Event()

    async def on_sample(_: Any) -> str:
        asked.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            gone.set()
            raise
        return ""

    pipe = Pipe().legacy().on("ping", {})
    async with connect(pipe, era="legacy", on_sample=on_sample) as client:
        pipe.say(ask(1, "sampling/createMessage", {"messages": [], "maxTokens": 1}))
        await bounded(asked.wait())
        pipe.hang_up()
        await client.ping()
        await bounded(gone.wait(), 0.5)


# --- changes ---------------------------------------------------------------------------------------------------------


async def test_listening_may_be_stopped_from_another_task() -> None:
    pipe = Pipe().modern().on(LISTEN, acknowledge)
    async with connect(pipe) as client:
        changes = client.listen(tools=True)
        waiting = asyncio.ensure_future(anext(changes, None))
        async with finishing(waiting):
            await soon(lambda: pipe.all(LISTEN))
            await asyncio.sleep(0.01)
            await changes.aclose()
            assert await bounded(waiting) is None


async def test_listening_given_up_before_it_was_agreed_to_ends_with_its_own_error() -> None:
    pipe = Pipe().modern().on(LISTEN, None)
    async with connect(pipe, timeout=0.1) as client:
        changes = client.listen(tools=True)
        entering = asyncio.ensure_future(changes.__aenter__())
        await soon(lambda: pipe.all(LISTEN))
        leaving = asyncio.ensure_future(changes.aclose())
        await asyncio.wait((entering, leaving))
        await leaving
        assert isinstance(entering.exception(), (errors.Error, type(None)))


async def test_subscriptions_given_up_while_the_server_is_away_do_not_wait_for_each_other(hurried: None) -> None:
    """Nothing has to be sent: there is no session that knows of them."""
    pipe = Pipe().legacy().on("resources/subscribe", {})
    async with connect(pipe, era="legacy", timeout=0.3) as client:
        subscriptions = [await client.subscribe(f"a:{number}", print) for number in range(5)]
        pipe.on("initialize", None)
        pipe.hang_up()
        await bounded(asyncio.gather(*(one.cancel() for one in subscriptions)), 0.6)


async def test_cancelling_all_requests_does_not_deafen_those_who_listen(complaints: list[str]) -> None:
    """What the client asks for its own ends is nobody's request."""
    pipe = Pipe().modern().on(LISTEN, acknowledge)
    async with connect(pipe) as client:
        await client.subscribe("a:1", print)
        assert client.requests == ()
        assert not client.cancel(pipe.all(LISTEN)[0]["id"])
        assert len(pipe.all(LISTEN)) == 1


@pytest.mark.parametrize("refusing", ["resources/subscribe", "logging/setLevel"])
async def test_what_cannot_be_restored_does_not_keep_the_rest_from_it(hurried: None, refusing: str) -> None:
    def subscribe(pipe: Pipe, message: Any) -> None:
        is_gone = refusing == "resources/subscribe" and pipe.opened > 1 and message["params"]["uri"] == "a:1"
        pipe.say(bad(message["id"], -32602, "no such resource") if is_gone else ok(message["id"], {}))

    def level(pipe: Pipe, message: Any) -> None:
        is_gone = refusing == "logging/setLevel" and pipe.opened > 1
        pipe.say(bad(message["id"], -32602) if is_gone else ok(message["id"], {}))

    pipe = Pipe().legacy().on("resources/subscribe", subscribe).on("logging/setLevel", level).on("ping", {})
    heard: list[str] = []
    async with connect(pipe, era="legacy") as client:
        await client.set_log_level("error")
        await client.subscribe("a:1", lambda uri: None)
        await client.subscribe("b:1", heard.append)
        pipe.hang_up()
        await client.ping()
        await soon(lambda: heard == ["b:1"])  # "reconnected"
        assert [one["params"]["uri"] for one in pipe.all("resources/subscribe")][-1] == "b:1"


async def test_listeners_follow_a_server_into_another_era(hurried: None) -> None:
    """A server that was upgraded in its place is listened to in its new way."""
    pipe = Pipe().legacy().on("resources/subscribe", {}).on(LISTEN, acknowledge)
    heard: list[str] = []
    async with connect(pipe) as client:
        assert client.era == "legacy"
        await client.subscribe("a:1", heard.append)
        pipe.on("server/discover", discovered())
        pipe.hang_up()
        await client.ping()
        assert client.era == "modern"
        await soon(lambda: pipe.all(LISTEN))


async def test_listeners_do_not_pester_a_server_of_the_other_era(
    hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch, "_PAUSES", (0.01,))
    pipe = Pipe().modern().on(LISTEN, acknowledge).on("resources/subscribe", {}).on("ping", {})
    async with connect(pipe) as client:
        await client.subscribe("a:1", lambda uri: None)
        pipe.on("server/discover", Refused(-32601)).on("initialize", initialized()).on(LISTEN, Refused(-32601))
        pipe.hang_up()
        await client.ping()
        assert client.era == "legacy"
        await soon(lambda: pipe.all("resources/subscribe"))
        await asyncio.sleep(0.2)
        assert len(pipe.all(LISTEN)) <= 2


async def test_a_legacy_listener_survives_a_long_absence_of_its_server(hurried: None) -> None:
    """Nobody calls: a program that only listens must be reconnected all the same."""

    class Absent(Pipe):
        refuses = 0

        async def open(self, owner: Any) -> None:
            if self.refuses:
                self.refuses -= 1
                raise errors.ConnectFailed("nobody there")
            await super().open(owner)

    pipe = Absent()
    pipe.legacy().on("resources/subscribe", {})
    heard: list[str] = []
    async with connect(pipe, era="legacy") as client:
        await client.subscribe("a:1", heard.append)
        pipe.refuses = 8
        pipe.hang_up()
        await soon(lambda: heard == ["a:1"])


# --- tools and caches ------------------------------------------------------------------------------------------------


async def test_a_list_that_changes_while_it_is_read_is_not_taken_for_complete() -> None:
    wrapped = {"type": "object", "properties": {"result": {"type": "integer"}}, "required": ["result"]}

    def page(pipe: Pipe, message: Any) -> None:
        if "cursor" not in message["params"]:
            one = tool("one", outputSchema={**wrapped, "title": "oneOutput"})
            pipe.say(ok(message["id"], listed(one, nextCursor="2")))
            return
        if len(pipe.all("tools/list")) == 2:
            pipe.say(tell("notifications/tools/list_changed"))
        pipe.say(ok(message["id"], listed(tool("two"))))

    pipe = Pipe().modern().on("tools/list", page)
    pipe.on("tools/call", said("3", structuredContent={"result": 3}))
    async with connect(pipe) as client:
        await client.call_tool("two")
        assert (await client.call_tool("one")).data == 3


async def test_what_changed_while_it_was_asked_for_is_not_kept() -> None:
    def answer(pipe: Pipe, message: Any) -> None:
        if len(pipe.all("prompts/list")) == 1:
            pipe.say(tell("notifications/prompts/list_changed"))
        body = {"resultType": "complete", "prompts": [], "ttlMs": 60_000, "cacheScope": "private"}
        pipe.say(ok(message["id"], body))

    pipe = Pipe().modern().on("prompts/list", answer)
    async with connect(pipe) as client:
        await client.list_prompts()
        await client.list_prompts()
        assert len(pipe.all("prompts/list")) == 2


async def test_a_time_to_live_beyond_all_numbers_does_no_harm() -> None:
    pipe = Pipe().modern()
    number = "9" * 400

    def answer(pipe: Pipe, message: Any) -> None:
        pipe.shout(
            f'{{"jsonrpc":"2.0","id":{message["id"]},"result":{{"resultType":"complete","tools":[],"ttlMs":{number}}}}}'.encode()
        )

    pipe.on("tools/list", answer)
    async with connect(pipe) as client:
        with contextlib.suppress(errors.Error):
            await client.list_tools()


# --- connecting ------------------------------------------------------------------------------------------------------


async def test_a_channel_is_not_opened_again_while_it_is_being_closed() -> None:
    class Slow(Pipe):
        closing = 0
        overlaps = 0

        async def open(self, owner: Any) -> None:
            self.overlaps += self.closing
            await super().open(owner)

        async def close(self) -> None:
            self.closing += 1
            await asyncio.sleep(0.3)
            await super().close()
            self.closing -= 1

    pipe = Slow()
    pipe.modern()
    async with connect(pipe) as client:
        pipe.hang_up()
        await client.ping()
        assert not pipe.overlaps


async def test_a_server_that_ends_right_after_its_greeting_could_not_be_connected_to() -> None:
    """The documented errors of `open` do not hold ConnectionLost."""

    def greet_and_go(pipe: Pipe, message: Any) -> None:
        pipe.say(ok(message["id"], discovered()))
        pipe.hang_up()

    pipe = Pipe().on("server/discover", greet_and_go)
    with pytest.raises(errors.ConnectFailed):
        await connect(pipe).open()


async def test_a_link_that_ends_right_after_its_greeting_is_closed_too(
    site: Site, hurried: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """HTTP+SSE: a stream that ends while `notifications/initialized` is still being posted."""
    opened: list[Any] = []
    closed: list[Any] = []
    close = SseChannel.close

    async def noted(channel: SseChannel) -> None:
        closed.append(channel)
        await close(channel)

    monkeypatch.setattr(SseChannel, "close", noted)
    make = SseChannel.__init__

    def count(channel: Any, *args: Any, **options: Any) -> None:
        opened.append(channel)
        make(channel, *args, **options)

    monkeypatch.setattr(SseChannel, "__init__", count)
    wires: list[Wire] = []
    ends: list[asyncio.Event] = []

    async def speak(wire: Wire) -> None:
        wires.append(wire)
        ends.append(asyncio.Event())
        await wire.raw("event: endpoint\ndata: /post\n\n")
        await ends[-1].wait()

    async def greet(exchange: Exchange) -> Any:
        await wires[-1].say(ok(exchange.id, initialized("2024-11-05")))
        return await plain(202)(exchange)

    async def cut(exchange: Exchange) -> Any:
        ends[-1].set()
        await asyncio.sleep(0.05)
        return await plain(202)(exchange)

    site.on("GET", stream(speak)).on("initialize", greet)
    site.on("notifications/initialized", plain(202), cut, cut, plain(202))
    async with connect({"url": site.url, "transport": "sse"}) as client:
        ends[-1].set()
        await soon(lambda: len(wires) == 4 and client.state == "ready")
    ends[-1].set()
    assert len(opened) == 4
    assert set(opened) == set(closed)


class SilentHandshake:
    """A target that answers the modern greeting and lets the handshake hang; its dialer, link and inbox in one."""

    key = "somewhere"
    manners = ("modern", "legacy")
    is_http = True

    def describe(self) -> str:
        return "somewhere"

    def newest_revision(self) -> None: ...

    async def dial(self, manner: Any, inbox: Any, reuse: Any) -> Any:
        return self

    async def request(self, id: Any, message: bytes, headers: Any, **_: Any) -> Frame:
        if b"initialize" in message:
            await asyncio.Event().wait()
        return read_frame(encode(ok(id, discovered())))

    async def send(self, message: bytes, headers: Any) -> None: ...
    async def close(self) -> None: ...
    def attach(self, link: Any) -> None: ...
    def notice(self, frame: Any) -> None: ...
    def asked(self, frame: Any) -> None: ...
    def lost(self, error: Any) -> None: ...
    def oddities(self) -> str:
        return ""


async def test_an_era_that_is_remembered_and_hangs_is_forgotten() -> None:
    """The next attempt must not walk into the same silence."""
    target: Any = SilentHandshake()
    memory = EraMemory()
    memory.note(target.key, "legacy")
    ids = itertools.count(1)
    info = {"name": "x", "version": "1"}

    def make(manner: Any, version: Any) -> Any:
        return Stateless(info, {}) if manner == "modern" else Handshaken(info, {}, version)

    async def attempt() -> Any:
        async with asyncio.timeout(0.1):
            return await meet(
                target, lambda: target, make, ids.__next__, era="auto", version=None, memory=memory, patience=0.1
            )

    with contextlib.suppress(TimeoutError):
        await attempt()
    assert (await attempt()).manner == "modern"


# --- HTTP ------------------------------------------------------------------------------------------------------------


async def test_a_400_is_not_taken_for_a_lost_session_because_of_the_word_in_the_url(site: Site) -> None:
    """The request is not repeated: nothing says that the session is gone."""
    site.legacy().on("tools/call", plain(400, "Bad Request"))
    async with connect(site.url + "/sessions", era="legacy") as client:
        with pytest.raises(errors.UnexpectedStatus):
            await client.call_tool("x")
    assert len(site.all("tools/call")) == 1


async def test_a_session_mentioned_by_an_answer_to_this_very_request_is_not_ours(site: Site) -> None:
    site.legacy().on("tools/call", error(-32602, "unknown argument: session_name", status=400))
    async with connect(site.url, era="legacy") as client:
        with pytest.raises(errors.CallError):
            await client.call_tool("x")
    assert len(site.all("tools/call")) == 1


async def test_a_redirect_that_only_one_parser_understands_is_refused(site: Site) -> None:
    there = site.url.replace("http://", "http://x\\@")
    site.on("server/discover", plain(307, headers={"Location": there}))
    with pytest.raises(errors.ConnectFailed):
        await connect(site.url, era="modern").open()


async def test_a_goodbye_cut_short_still_closes_the_connections() -> None:
    class Hanging:
        url = "http://x/"
        max_bytes = 100
        closed = False

        async def send(self, *args: Any, **options: Any) -> Any:
            await asyncio.Event().wait()

        async def close(self) -> None:
            self.closed = True

    wire: Any = Hanging()
    inbox: Any = None
    session = SessionLink(wire, inbox)
    session.session_id = "s"
    closing = asyncio.ensure_future(session.close())
    await asyncio.sleep(0.01)
    closing.cancel()
    await asyncio.wait((closing,))
    assert wire.closed


async def test_a_server_that_wants_no_pause_between_streams_gets_one(site: Site) -> None:
    site.legacy().on("GET", stream("retry: 0\n\n"))
    async with connect(site.url, era="legacy"):
        await soon(lambda: site.all("GET"))
        await asyncio.sleep(0.3)
        assert len(site.all("GET")) < 20


async def test_a_standing_stream_refused_for_a_moment_is_asked_for_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_PAUSES", (0.01,))
    site.legacy().on("GET", plain(429, "slow down"), stream(held))
    async with connect(site.url, era="legacy"):
        await soon(lambda: len(site.all("GET")) == 2)


# --- without a loop --------------------------------------------------------------------------------------------------


def test_ctrl_c_in_a_loop_over_changes_is_ctrl_c() -> None:
    def listen(pipe: Pipe, message: Any) -> None:
        acknowledge(pipe, message)
        acknowledged.set()

    acknowledged = threading.Event()
    pipe = Pipe().modern().on(LISTEN, listen)

    def interrupt() -> None:
        acknowledged.wait(3)
        threading.Event().wait(0.1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with SyncClient(pipe) as client:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            for _ in client.listen(tools=True):
                pass
        thread.join()


def test_a_call_that_meets_the_very_end_of_close_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is handed to a loop that turns no more is never run: its caller must not wait for it."""
    ending, handed_over = threading.Event(), threading.Event()
    submit = asyncio.run_coroutine_threadsafe

    def late(coroutine: Any, loop: Any) -> Any:
        if threading.current_thread() is caller:
            ending.wait(0.5)
            try:
                return submit(coroutine, loop)
            finally:
                handed_over.set()
        return submit(coroutine, loop)

    client = SyncClient(Pipe().modern()).open()
    loop: Any = client._loop
    close = loop.close

    def close_late() -> None:
        ending.set()
        handed_over.wait(0.5)
        close()

    loop.close = close_late
    outcomes: list[Any] = []

    def call() -> None:
        try:
            outcomes.append(client.ping())
        except Exception as error:
            outcomes.append(error)

    caller = threading.Thread(target=call, daemon=True)
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", late)
    caller.start()
    closer = threading.Timer(0.05, client.close)
    closer.start()
    closer.join(5)
    caller.join(2)
    assert not caller.is_alive(), "the call hangs"
    assert outcomes[0] is None or isinstance(outcomes[0], errors.Closed)


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=8, check=False
    )


DEMO = """
    import threading
    from trimaran import Context, Server, SyncClient, errors
    server = Server("demo", version="1")
    @server.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.sample("hi", max_tokens=5)).content)
"""


@pytest.mark.slow
def test_a_plain_handler_may_close_its_client() -> None:
    """It runs on a worker thread of the very loop that is being ended."""
    script = """
    made = []
    def on_sample(ask):
        made[0].close()
        return "x"
    client = SyncClient(server, on_sample=on_sample)
    made.append(client)
    client.open()
    try:
        client.call_tool("ask")
    except errors.Closed:
        print("closed")
    """
    assert run(DEMO + script).stdout == "closed\n"


@pytest.mark.slow
def test_a_plain_handler_that_waits_for_a_person_does_not_hold_up_close() -> None:
    script = """
    import os
    stuck = threading.Event()
    def on_sample(ask):
        stuck.set()
        threading.Event().wait()
    client = SyncClient(server, on_sample=on_sample).open()
    call = threading.Thread(target=lambda: client.call_tool("ask"), daemon=True)
    threading.excepthook = lambda args: None
    call.start()
    stuck.wait()
    client.close()
    print("closed", flush=True)
    os._exit(0)
    """
    assert run(DEMO + script).stdout == "closed\n"
