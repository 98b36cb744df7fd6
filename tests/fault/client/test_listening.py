"""Listening under fire: servers that die and come back, streams that break, listeners that come and go.

Whoever listens hears every change that is announced while the stream is up, and "reconnected" where one may have been
missed; whoever stops listening leaves nothing behind, here or at the server (P1, P2, R198).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.support.faults import Child
from tests.support.until import PATIENCE, soon, until

from trimaran import Client, Server, connect, errors
from trimaran.serve import HttpServer

from . import evil
from .evil import P, notice
from .peers import ERAS, Dock, EvilHttp, Exchange, failure_of, sockets

URI = "note://1"
KINDS = {"tools": {"tools": True}, "resource": {"resources": [URI]}}
INTERESTS = pytest.mark.parametrize("interest", list(KINDS))

# A server in a process of its own: its tool announces changes. `python -c PROGRAM stdio`, or a port.
PROGRAM = f"""
import sys
from trimaran import Server
server = Server("bell", version="1")

@server.resource("{URI}")
def note() -> str:
    return "x"

@server.tool
async def ring() -> str:
    server.notify.resource_updated("{URI}")
    server.notify.tools_changed()
    return "rung"

if sys.argv[1] == "stdio":
    server.run()
else:
    server.run("http", port=int(sys.argv[1]), on_ready=lambda made: print(made.port, flush=True))
"""


@contextlib.contextmanager
def bell_tower(port: int = 0) -> Any:
    command = [sys.executable, "-c", PROGRAM, str(port)]
    with Child(command=command, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL) as child:
        line = child.line()
        assert line, "the server did not start"
        yield child, int(line)


def bell() -> Server:
    server = Server("bell", version="1")

    @server.resource(URI)
    def note() -> str:
        return "x"

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


@contextlib.asynccontextmanager
async def near(era: Any, server: Server, **options: Any) -> AsyncIterator[Client]:
    """A client of a server in this process, over HTTP."""
    async with HttpServer(server, port=0) as http:
        async with connect(http.url, era=era, **options) as client:
            yield client


class Ear:
    """Listens in a task of its own and writes down what it hears."""

    def __init__(self, client: Client, **wanted: Any) -> None:
        self.heard: list[str] = []
        self.is_set = asyncio.Event()
        self.task = asyncio.ensure_future(self._hear(client, wanted))

    async def _hear(self, client: Client, wanted: Any) -> None:
        async with client.listen(**wanted) as changes:
            self.is_set.set()
            async for change in changes:
                self.heard.append(change.kind if change.uri is None else change.uri)

    async def ready(self) -> Ear:
        waiting = asyncio.ensure_future(self.is_set.wait())
        await soon(asyncio.wait((waiting, self.task), return_when=asyncio.FIRST_COMPLETED))
        waiting.cancel()
        if self.task.done():
            self.task.result()
        return self

    async def stop(self) -> None:
        self.task.cancel()
        await soon(asyncio.gather(self.task, return_exceptions=True))


async def rung_until(client: Client, condition: Callable[[], Any], what: str) -> None:
    """Announce changes until somebody hears: a server that comes back may be heard of before its stream is."""
    deadline = asyncio.get_running_loop().time() + 15
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, what
        with contextlib.suppress(errors.TransportError):
            await soon(client.call_tool("ring", timeout=2.0))
        for _ in range(20):
            if condition():
                return
            await asyncio.sleep(0.01)


# --- servers that come back ------------------------------------------------------------------------------------------


@pytest.mark.slow
@ERAS
@INTERESTS
async def test_a_server_that_was_killed_over_http_is_heard_again(dock: Dock, era: Any, interest: str) -> None:
    event = {"tools": "tools", "resource": URI}[interest]
    with bell_tower() as (first, port):
        client = connect(f"http://127.0.0.1:{port}/mcp", era=era, timeout=5.0)
        await soon(client.open())
        dock.on_exit(client.close)
        ear = await Ear(client, **KINDS[interest]).ready()
        await rung_until(client, lambda: event in ear.heard, "the first server is heard")
        first.signal(signal.SIGKILL)
        first.wait(5)
    ear.heard.clear()
    with bell_tower(port):
        # Nobody calls: the listener finds its way back alone.
        await until(lambda: "reconnected" in ear.heard, "the loss is told", 15)
        assert client.state == "ready"
        ear.heard.clear()
        await rung_until(client, lambda: event in ear.heard, "the second server is heard")
        await ear.stop()
        await soon(client.close())


@pytest.mark.slow
@ERAS
@INTERESTS
async def test_a_child_that_was_killed_is_heard_again(dock: Dock, era: Any, interest: str) -> None:
    event = {"tools": "tools", "resource": URI}[interest]
    async with connect([sys.executable, "-c", PROGRAM, "stdio"], era=era, timeout=5.0) as client:
        ear = await Ear(client, **KINDS[interest]).ready()
        await rung_until(client, lambda: event in ear.heard, "the first child is heard")
        ear.heard.clear()
        assert client.pid is not None
        os.kill(client.pid, signal.SIGKILL)
        await until(lambda: "reconnected" in ear.heard, "the loss is told", 15)
        assert client.state == "ready"
        await rung_until(client, lambda: event in ear.heard, "the second child is heard")
        await ear.stop()


@pytest.mark.slow
@ERAS
async def test_a_subscription_outlives_its_server(dock: Dock, era: Any) -> None:
    """The callback is told after the loss too: the resource may have changed."""
    heard: list[str] = []
    with bell_tower() as (first, port):
        client = connect(f"http://127.0.0.1:{port}/mcp", era=era, timeout=5.0)
        await soon(client.open())
        dock.on_exit(client.close)
        await soon(client.subscribe(URI, heard.append))
        await rung_until(client, lambda: heard, "the first server is heard")
        first.signal(signal.SIGKILL)
        first.wait(5)
    heard.clear()
    with bell_tower(port):
        await until(lambda: heard, "the loss is told", 15)
        heard.clear()
        await rung_until(client, lambda: heard, "the second server is heard")
        await soon(client.close())


# --- streams that break ----------------------------------------------------------------------------------------------


class Belfry:
    """Makes an EvilHttp announce changes, on streams that it may cut."""

    def __init__(self, peer: EvilHttp, *, subscribable: bool = True) -> None:
        self.peer = peer
        self._open: list[tuple[Exchange, dict[str, Any]]] = []
        self.opened = 0
        self.uris: list[str] = []
        self.subscribing = asyncio.Event()
        self.may_subscribe = asyncio.Event()
        self.may_subscribe.set()
        self.hold_acknowledgement = False
        peer.overrides["subscriptions/listen"] = self.listen
        peer.overrides["GET"] = self.stand
        for verb in ("subscribe", "unsubscribe"):
            peer.overrides[f"resources/{verb}"] = self.subscribe
        if subscribable:
            for method in ("server/discover", "initialize"):
                peer.overrides[method] = self.welcome

    @property
    def open(self) -> list[tuple[Exchange, dict[str, Any]]]:
        """The streams that are up, each with what goes into its messages."""
        return [entry for entry in self._open if not entry[0].writer.transport.is_closing()]

    async def welcome(self, x: Exchange) -> None:
        kept = dict(evil.CAPABILITIES)
        evil.CAPABILITIES["resources"] = {"subscribe": True, "listChanged": True}
        try:
            await self.peer.honest(x)
        finally:
            evil.CAPABILITIES.clear()
            evil.CAPABILITIES.update(kept)

    async def subscribe(self, x: Exchange) -> None:
        if not await self.peer._admit(x):
            return
        uri = x.message["params"]["uri"]
        if x.method == "resources/subscribe":
            self.uris.append(uri)
            self.subscribing.set()
            await self.may_subscribe.wait()
        else:
            self.uris.remove(uri)
        await x.reply(evil.encode({"jsonrpc": "2.0", "id": x.id, "result": {}}))

    async def listen(self, x: Exchange) -> None:
        await x.stream()
        meta = {"_meta": {P + "subscriptionId": x.id}}
        if not self.hold_acknowledgement:
            wanted = {"notifications": x.message["params"]["notifications"], **meta}
            await x.event(notice("notifications/subscriptions/acknowledged", wanted))
        await self._keep(x, meta)

    async def stand(self, x: Exchange) -> None:
        if x.headers.get("mcp-session-id") not in self.peer.sessions:
            await x.reply(b"Bad Request: No valid session ID provided", self.peer.unknown_session, "text/plain")
            return
        await x.stream()
        await x.chunk(b"retry: 50\n\n")
        await self._keep(x, {})

    async def _keep(self, x: Exchange, meta: dict[str, Any]) -> None:
        self.opened += 1
        entry = (x, meta)
        self._open.append(entry)
        try:
            await x.silence()
        finally:
            self._open.remove(entry)

    async def ring(self) -> None:
        for x, meta in self.open:
            await x.event(notice("notifications/tools/list_changed", meta))
            await x.event(notice("notifications/resources/updated", {"uri": URI, **meta}))

    def cut(self) -> None:
        for x, _ in self.open:
            x.reset()


@pytest.fixture
async def belfry(dock: Dock, era: Any) -> Belfry:
    return Belfry(await dock.http(era))


@ERAS
@INTERESTS
async def test_a_stream_that_is_cut_is_opened_again_and_told_of(belfry: Belfry, era: Any, interest: str) -> None:
    """What was announced in between nobody has heard."""
    async with connect(belfry.peer.url, era=era) as client:
        ear = await Ear(client, **KINDS[interest]).ready()
        await until(lambda: belfry.open, "the stream is open")
        belfry.cut()
        await until(lambda: belfry.opened >= 2 and belfry.open, "the stream is open again")
        await until(lambda: "reconnected" in ear.heard, "the loss is told")
        ear.heard.clear()
        await belfry.ring()
        await until(lambda: ear.heard, "a change is heard")
        assert ear.heard == [{"tools": "tools", "resource": URI}[interest]]
        await ear.stop()


@pytest.mark.slow
@ERAS
async def test_a_stream_cut_five_times_a_second_stays_useful(belfry: Belfry, era: Any) -> None:
    """Calls are not held up, the server is not stormed, and every return is told."""
    async with connect(belfry.peer.url, era=era) as client:
        ear = await Ear(client, tools=True).ready()
        stop = asyncio.Event()

        async def saw() -> None:
            while not stop.is_set():
                await asyncio.sleep(0.2)
                belfry.cut()

        sawing = asyncio.ensure_future(saw())
        try:
            for _ in range(20):
                assert (await soon(client.call_tool("echo", {"text": "x"}), 1)).text == "x"
                await asyncio.sleep(0.1)
        finally:
            stop.set()
            await sawing
        assert 2 <= belfry.opened <= 20
        await until(lambda: len(belfry.open) == 1, "the stream is back")
        told = ear.heard.count("reconnected")
        assert told >= 1
        await belfry.ring()
        await until(lambda: "tools" in ear.heard, "a change is heard")
        assert client.state == "ready"
        await ear.stop()


@pytest.mark.parametrize("era", ["modern"])
async def test_the_state_is_ready_again_when_the_stream_is(belfry: Belfry, era: Any) -> None:
    """Whoever only listens makes no call that would show it."""
    states: list[str] = []
    async with connect(belfry.peer.url, era=era, on_state=lambda event: states.append(event.state)) as client:
        ear = await Ear(client, tools=True).ready()
        belfry.cut()
        await until(lambda: "reconnected" in ear.heard, "the stream is back")
        await until(lambda: client.state == "ready", "the client says so")
        assert states[-1] == "ready"
        await ear.stop()


@pytest.mark.parametrize("era", ["legacy"])
@pytest.mark.parametrize("status", [404, 400])
async def test_a_session_found_gone_by_its_stream_is_renewed(belfry: Belfry, era: Any, status: int) -> None:
    """P1: some servers say 400. The stream alone finds out; nobody makes a call."""
    belfry.peer.unknown_session = status
    async with connect(belfry.peer.url, era=era) as client:
        ear = await Ear(client, resources=[URI]).ready()
        await until(lambda: belfry.open, "the stream is open")
        belfry.peer.sessions.clear()
        belfry.uris.clear()
        belfry.cut()
        await until(lambda: "reconnected" in ear.heard, "the loss is told")
        assert belfry.uris == [URI]
        await until(lambda: belfry.open, "the stream is open")
        ear.heard.clear()
        await belfry.ring()
        await until(lambda: ear.heard == [URI], "a change is heard")
        await ear.stop()


@pytest.mark.parametrize("era", ["legacy"])
async def test_a_listener_is_set_up_when_its_stream_is(belfry: Belfry, era: Any) -> None:
    """Client.listen: with `async with`, nothing announced from then on is missed; also not right after connecting."""
    gate = asyncio.Event()
    stand = belfry.stand

    async def late(x: Exchange) -> None:
        await gate.wait()
        await stand(x)

    belfry.peer.overrides["GET"] = late
    async with connect(belfry.peer.url, era=era) as client:
        ear = Ear(client, tools=True)
        with contextlib.suppress(AssertionError):
            await until(lambda: ear.is_set.is_set(), "it is set up", 0.3)
        is_early = ear.is_set.is_set()
        gate.set()
        await ear.ready()
        await until(lambda: belfry.open, "the stream is open")
        await ear.stop()
    assert not is_early, "the block began before there was a stream for a change to come on"


# --- listeners that come and go --------------------------------------------------------------------------------------


@pytest.mark.slow
@ERAS
async def test_no_listener_misses_a_change_while_others_come_and_go(era: Any) -> None:
    """Every listener hears each change from the moment its block begins; the interests of the others do not matter."""
    server = bell()
    uris = [f"note://{n}" for n in range(6)]
    for uri in uris[1:]:
        if uri != URI:
            server.add_resource(uri, lambda: "x", name=uri)
    lost: list[str] = []
    async with near(era, server, timeout=10.0) as client:
        # A legacy server has nowhere to send to until the standing stream is up; this is about what comes after.
        first = await Ear(client, tools=True).ready()
        while not first.heard:
            server.notify.tools_changed()
            await asyncio.sleep(0.01)

        async def one(uri: str) -> None:
            for number in range(8):
                async with client.listen(resources=[uri]) as changes:
                    server.notify.resource_updated(uri)
                    try:
                        async with asyncio.timeout(PATIENCE):
                            change = await anext(changes)
                            while change.kind == "reconnected":
                                change = await anext(changes)
                    except TimeoutError:
                        lost.append(f"{uri}, round {number}")
                    else:
                        assert change.uri == uri

        await soon(asyncio.gather(*(one(uri) for uri in uris[1:])), 25)
        await first.stop()
    assert lost == []


@pytest.mark.slow
@ERAS
async def test_a_steady_listener_hears_every_change_while_others_come_and_go(era: Any) -> None:
    """The stream is replaced many times under it."""
    server = bell()
    async with near(era, server, timeout=10.0) as client:
        ear = await Ear(client, resources=[URI]).ready()
        while not ear.heard:
            server.notify.resource_updated(URI)
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)
        ear.heard.clear()
        done = asyncio.Event()

        async def churn() -> None:
            while not done.is_set():
                async with client.listen(tools=True):
                    await asyncio.sleep(0)

        churning = [asyncio.ensure_future(churn()) for _ in range(3)]
        try:
            for number in range(1, 51):
                server.notify.resource_updated(URI)
                await until(lambda: len([x for x in ear.heard if x == URI]) >= number, f"change {number} is heard")
        finally:
            done.set()
            await soon(asyncio.gather(*churning))
        assert "reconnected" not in ear.heard
        await ear.stop()


@pytest.mark.slow
@ERAS
async def test_a_listener_cancelled_at_any_moment_leaves_nothing(belfry: Belfry, era: Any) -> None:
    """Neither a task here, nor a stream or a subscription at the server, nor a spoiled client."""
    async with connect(belfry.peer.url, era=era) as client:
        await soon(client.call_tool("echo", {"text": "x"}))
        if era == "legacy":
            await until(lambda: belfry.open, "the standing stream is open")
        tasks, streams = len(asyncio.all_tasks()), len(belfry.open)

        async def listen() -> None:
            async with client.listen(resources=[URI]) as changes:
                async for _ in changes:
                    pass

        for turns in range(60):
            task = asyncio.ensure_future(listen())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await soon(asyncio.gather(task, return_exceptions=True))
            await until(lambda: len(belfry.open) == streams, f"cancelled after {turns} turns: no stream is left")
            await until(lambda: not belfry.uris, f"cancelled after {turns} turns: no subscription is left")
            assert client._watch._watchers == []
        await until(lambda: len(asyncio.all_tasks()) <= tasks + 1, "no task is left")
        ear = await Ear(client, resources=[URI]).ready()
        await belfry.ring()
        await until(lambda: ear.heard == [URI], "a change is heard")
        await ear.stop()


@pytest.mark.parametrize("era", ["legacy"])
async def test_a_subscription_given_up_before_its_answer_is_undone(belfry: Belfry, era: Any) -> None:
    """The server has it already; nobody here would ever end it."""
    async with connect(belfry.peer.url, era=era) as client:
        belfry.may_subscribe.clear()
        task = asyncio.ensure_future(client.subscribe(URI, print))
        await soon(belfry.subscribing.wait())
        task.cancel()
        await soon(asyncio.gather(task, return_exceptions=True))
        belfry.may_subscribe.set()
        await until(lambda: belfry.uris == [], "the subscription is undone")


@pytest.mark.parametrize("era", ["modern"])
async def test_an_interest_given_up_while_the_old_stream_ends_is_undone(belfry: Belfry, era: Any) -> None:
    """Cancelled at each await of a listener that joins another: the stream ends up with the other's interest."""
    async with connect(belfry.peer.url, era=era) as client:
        ear = await Ear(client, tools=True).ready()

        async def join() -> None:
            async with client.listen(resources=[URI]):
                await asyncio.sleep(60)

        def interests() -> list[Any]:
            return [x.message["params"]["notifications"] for x, _ in belfry.open]

        for turns in range(60):
            task = asyncio.ensure_future(join())
            for _ in range(turns):
                await asyncio.sleep(0)
            task.cancel()
            await soon(asyncio.gather(task, return_exceptions=True))
            await until(
                lambda: interests() == [{"toolsListChanged": True}], f"cancelled after {turns} turns: {interests()}", 2
            )
        await ear.stop()


# --- the end ---------------------------------------------------------------------------------------------------------


@ERAS
async def test_closing_the_client_ends_every_loop_quietly(era: Any) -> None:
    before = sockets()
    async with near(era, bell()) as client:
        ears = [await Ear(client, tools=True).ready(), await Ear(client, resources=[URI]).ready()]
        bare: list[Any] = []

        async def plainly() -> None:
            async for change in client.listen(prompts=True, tools=True):
                bare.append(change)

        task = asyncio.ensure_future(plainly())
        await asyncio.sleep(0.05)
        await soon(client.close())
        for ear in ears:
            await soon(ear.task, 2)
        await soon(task, 2)
        error = await failure_of(anext(client.listen(tools=True)))
        assert isinstance(error, errors.Closed), repr(error)
    await until(lambda: sockets() <= before, "every socket is closed")


@pytest.mark.parametrize("era", ["modern"])
async def test_closing_the_client_while_a_listener_is_being_set_up_is_told_as_that(belfry: Belfry, era: Any) -> None:
    belfry.hold_acknowledgement = True
    async with connect(belfry.peer.url, era=era) as client:
        ear = Ear(client, tools=True)
        await until(lambda: belfry.open, "the stream is asked for")
        await soon(client.close())
        error = (await soon(asyncio.gather(ear.task, return_exceptions=True)))[0]
        assert isinstance(error, errors.Closed), repr(error)


@ERAS
async def test_a_loop_that_is_left_gives_up_its_subscription(belfry: Belfry, era: Any) -> None:
    async with connect(belfry.peer.url, era=era) as client:
        for _ in range(3):
            ringing = asyncio.ensure_future(_ring_soon(belfry))
            async with asyncio.timeout(PATIENCE):
                async for change in client.listen(resources=[URI]):
                    assert change.uri == URI
                    break
            await ringing
            gc.collect()
            await until(lambda: not belfry.uris, "no subscription is left")
            if era == "modern":
                await until(lambda: not belfry.open, "no stream is left")
        assert client._watch._watchers == []


async def _ring_soon(belfry: Belfry) -> None:
    await until(lambda: belfry.open and (belfry.peer.era == "modern" or belfry.uris), "somebody listens")
    await belfry.ring()


@ERAS
async def test_a_block_may_be_left_while_another_task_iterates(era: Any) -> None:
    """The iteration ends; neither side is told of generators."""
    async with near(era, bell()) as client:
        heard: list[Any] = []

        async def iterate(changes: Any) -> None:
            async for change in changes:
                heard.append(change)

        async with client.listen(tools=True) as changes:
            task = asyncio.ensure_future(iterate(changes))
            await asyncio.sleep(0.02)
        await soon(task, 2)


@ERAS
async def test_a_step_given_up_by_a_timeout_can_be_taken_again(era: Any) -> None:
    """`asyncio.timeout` around one step is how a program polls; the listener stays set up, its block is not over."""
    server = bell()
    async with near(era, server) as client:
        async with client.listen(resources=[URI]) as changes:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await anext(changes)
            for _ in range(100):
                server.notify.resource_updated(URI)
                try:
                    async with asyncio.timeout(0.05):
                        change = await anext(changes)
                    break
                except TimeoutError:
                    continue
            else:
                raise AssertionError("nothing is heard any more")
            assert change.uri == URI


@ERAS
async def test_a_server_that_is_down_does_not_hold_up_whoever_stops_listening(belfry: Belfry, era: Any) -> None:
    async with connect(belfry.peer.url, era=era, timeout=20.0) as client:
        ears = [await Ear(client, tools=True).ready(), await Ear(client, resources=[URI]).ready()]
        await belfry.peer.stop()
        for ear in ears:
            ear.task.cancel()
        await soon(asyncio.gather(*(ear.task for ear in ears), return_exceptions=True), 5)
