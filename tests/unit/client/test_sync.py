"""`SyncClient`: the client without a loop of one's own (P33)."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.peers import P, Pipe, tell
from tests.support.until import PATIENCE

from trimaran import Context, Server, SyncClient, errors
from trimaran.client.options import Era
from trimaran.ext.tasks import Tasks

SECONDS = PATIENCE


@pytest.fixture(autouse=True)
def no_thread_left() -> Iterator[None]:
    before = clients()
    yield
    deadline = time.monotonic() + 1
    while (left := clients() - before) and time.monotonic() < deadline:
        time.sleep(0.005)
    assert not left


def clients() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name == "trimaran-client"}


def demo() -> Server:
    server = Server("demo", version="1")

    @server.tool
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool
    async def wait() -> str:
        await asyncio.sleep(30)
        return "late"

    @server.tool
    async def steps(ctx: Context) -> str:
        for number in range(3):
            await ctx.progress(number, 3)
        return "done"

    @server.resource("note://1")
    def note() -> str:
        return "hello"

    @server.prompt
    def greet(name: str) -> str:
        return f"Hello {name}"

    return server


def test_everything_without_await() -> None:
    with SyncClient(demo()) as client:
        assert (client.state, client.era) == ("ready", "modern")
        assert client.server_info is not None
        assert client.server_info.name == "demo"
        assert client.call_tool("add", {"a": 1, "b": 2}).data == 3
        assert {tool.name for tool in client.list_tools()} == {"add", "wait", "steps"}
        assert len(client.list_tools_all()) == 3
        assert client.read_resource("note://1").text == "hello"
        assert [one.uri for one in client.list_resources_all()] == ["note://1"]
        assert client.list_resource_templates_all() == []
        assert client.get_prompt("greet", {"name": "Ada"}).text == "Hello Ada"
        assert [one.name for one in client.list_prompts_all()] == ["greet"]
        client.ping()
        assert client.request("tools/list")["tools"]
        client.notify("notifications/x")
        reports: list[Any] = []
        client.call_tool("steps", on_progress=lambda *report: reports.append(report[0]))
        assert reports == [0, 1, 2]
    assert client.state == "closed"


def test_before_and_after() -> None:
    """R187."""
    client = SyncClient(demo())
    assert client.state == "new"
    with pytest.raises(errors.NotReady):
        client.list_tools()
    with pytest.raises(errors.NotReady):
        _ = client.era
    client.open()
    with pytest.raises(errors.NotReady):
        client.open()
    client.close()
    client.close()
    for use in (client.list_tools, client.open, client.ping):
        with pytest.raises(errors.Closed):
            use()
    unused = SyncClient(demo())
    unused.close()
    with pytest.raises(errors.Closed):
        unused.open()


def test_what_cannot_be_right_is_said_at_once() -> None:
    with pytest.raises(errors.ConfigError):
        SyncClient("no such thing")
    with pytest.raises(errors.ConfigError, match="tmeout"):
        SyncClient(demo(), tmeout=5)  # pyright: ignore[reportCallIssue] - the mistake in question


def test_what_cannot_be_opened_leaves_nothing(free_port: int) -> None:
    client = SyncClient(f"http://127.0.0.1:{free_port}/mcp")
    with pytest.raises(errors.ConnectFailed):
        client.open()
    assert client.state == "closed"


def test_errors_are_the_same() -> None:
    with SyncClient(demo(), timeout=0.05) as client:
        with pytest.raises(errors.CallError):
            client.call_tool("nobody")
        with pytest.raises(errors.TimedOut):
            client.call_tool("wait")


async def test_it_works_inside_a_running_loop() -> None:
    """P33: Jupyter has one."""
    with SyncClient(demo()) as client:
        assert client.call_tool("add", {"a": 1, "b": 2}).data == 3


def test_many_threads_share_one_client() -> None:
    with SyncClient(demo()) as client:
        found: list[Any] = []

        def work(number: int) -> None:
            found.extend(client.call_tool("add", {"a": number, "b": n}).data - n for n in range(10))

        threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS)
        assert sorted(found) == sorted(list(range(8)) * 10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_told_to_make_a_client_of_its_own() -> None:
    """Its copy has no thread: what it asks would never be answered, and a close never end."""
    with SyncClient(demo()) as client:
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(int(PATIENCE))
            try:
                client.call_tool("add", {"a": 1, "b": 2})
            except errors.Closed as error:
                client.close()
                os.write(writer, str(error).encode())
            os._exit(0)
        os.close(writer)
        with open(reader) as told:
            assert told.read() == (
                f"the client was opened in process {os.getpid()}, and this one was forked from it: make a client in each "
                "process, after the fork"
            )
        os.waitpid(child, 0)
        assert client.call_tool("add", {"a": 1, "b": 2}).data == 3


def test_closing_ends_the_calls_of_other_threads() -> None:
    client = SyncClient(demo()).open()
    found: list[Any] = []

    def work() -> None:
        try:
            client.call_tool("wait", timeout=None)
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.05)
    client.close()
    thread.join(SECONDS)
    assert not thread.is_alive()
    assert isinstance(found[0], errors.Closed)


def interrupt_soon() -> threading.Timer:
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.1, signal.pthread_kill, (main, signal.SIGINT))
    timer.start()
    return timer


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_a_wait_and_cancels_the_call() -> None:
    pipe = Pipe().modern().on("tools/call", None)
    with SyncClient(pipe) as client:
        client.list_tools()
        timer = interrupt_soon()
        with pytest.raises(KeyboardInterrupt):
            client.call_tool("t", timeout=None)
        timer.join()
        deadline = time.monotonic() + SECONDS
        while not pipe.all("notifications/cancelled") and time.monotonic() < deadline:
            time.sleep(0.005)
        assert pipe.all("notifications/cancelled")
        client.list_tools()


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_while_connecting_leaves_no_connection_behind() -> None:
    pipe = Pipe().on("initialize", None)
    timer = interrupt_soon()
    client = SyncClient(pipe, era="legacy")
    with pytest.raises(KeyboardInterrupt):
        client.open()
    timer.join()
    assert client.state == "closed"
    assert pipe.opened == 1
    assert not pipe.is_open


def changing(*methods: str, **params: Any) -> Pipe:
    """A modern server that acknowledges a listen and says these at once."""

    def reply(pipe: Pipe, message: dict[str, Any]) -> None:
        meta = {"_meta": {P + "subscriptionId": message["id"]}}
        pipe.say(tell("notifications/subscriptions/acknowledged", {"notifications": {}, **meta}))
        for method in methods:
            pipe.say(tell(f"notifications/{method}", {**params, **meta}))

    return Pipe().modern().on("subscriptions/listen", reply)


def test_changes_can_be_iterated() -> None:
    pipe = changing("tools/list_changed", "prompts/list_changed")
    with SyncClient(pipe) as client:
        kinds: list[str] = []
        for change in client.listen(tools=True, prompts=True):
            kinds.append(change.kind)
            if len(kinds) == 2:
                break
        assert kinds == ["tools", "prompts"]
        assert client.list_tools() == []
    with SyncClient(pipe) as client:
        changes: Any = client.listen(tools=True)
        assert next(changes).kind == "tools"
        changes.close()
        deadline = time.monotonic() + SECONDS
        while len(pipe.all("notifications/cancelled")) < 2 and time.monotonic() < deadline:
            time.sleep(0.005)
        assert len(pipe.all("notifications/cancelled")) == 2


def test_an_iteration_ends_when_another_thread_closes_the_client() -> None:
    client = SyncClient(demo()).open()
    timer = threading.Timer(0.1, client.close)
    timer.start()
    assert list(client.listen(tools=True)) == []
    timer.join(SECONDS)


def test_a_callback_on_the_clients_thread_is_told_that_it_cannot_wait() -> None:
    found: list[Any] = []
    heard = threading.Event()
    with SyncClient(changing("resources/updated", uri="note://1")) as client:

        def callback(uri: str) -> None:
            try:
                client.list_tools()
            except Exception as error:
                found.append(error)
            heard.set()

        subscription = client.subscribe("note://1", callback)
        assert heard.wait(SECONDS)
        subscription.cancel()
    assert isinstance(found[0], errors.NotReady)
    assert "async" in str(found[0])


def test_a_callback_may_close_its_client() -> None:
    """SyncClient.close: any number of times, from any thread: also from the client's own."""
    pipe = Pipe().legacy()
    closed = threading.Event()
    made: list[SyncClient] = []

    def on_notification(method: str, params: Any) -> None:
        made[0].close()
        closed.set()

    client = SyncClient(pipe, era="legacy", on_notification=on_notification)
    made.append(client)
    client.open()
    loop = client._loop
    assert loop is not None
    loop.call_soon_threadsafe(pipe.say, {"jsonrpc": "2.0", "method": "notifications/x"})
    assert closed.wait(SECONDS), "close() on the client's own thread hangs"


def test_plain_handlers_may_use_the_client() -> None:
    """Handlers that are plain functions run in worker threads."""
    server = demo()

    @server.tool
    async def ask(ctx: Context) -> str:
        answer = await ctx.sample("hi", max_tokens=5)
        return str(answer.content)

    made: list[SyncClient] = []

    def on_sample(ask: Any) -> str:
        return str(made[0].call_tool("add", {"a": 2, "b": 3}).data)

    with SyncClient(server, on_sample=on_sample) as client:
        made.append(client)
        assert "5" in client.call_tool("ask").text


# --- tasks -----------------------------------------------------------------------------------------------------------


class Oven:
    """A server whose work is held until it is let go; its loop is the client's, in another thread."""

    def __init__(self) -> None:
        self.gate = threading.Event()
        self.server = server = Server("oven", version="1")
        server.enable_extension(Tasks(poll=0.02))

        @server.tool(long_running=True)
        async def bake(loaves: int) -> list[str]:
            while not self.gate.is_set():
                await asyncio.sleep(0.005)
            return ["loaf"] * loaves

        @server.tool(long_running=True)
        async def ask(ctx: Context) -> str:
            answer = await ctx.elicit("rye?", bool)
            return "rye" if answer.content else "wheat"

        @server.tool
        def smell() -> str:
            return "good"


def test_a_task_without_await() -> None:
    oven = Oven()
    with SyncClient(oven.server) as client:
        task = client.start_task("bake", {"loaves": 2}, into=list[str])
        assert (task.status, task.is_over) == ("working", False)
        assert task.refresh().status == "working"
        assert repr(task) == f"<SyncTask {task.id} working>"
        with pytest.raises(errors.TimedOut, match="goes on"):
            task.result(0.05)
        oven.gate.set()
        assert task.result(SECONDS).data == ["loaf", "loaf"]
        assert task.result().data == ["loaf", "loaf"]
        assert (task.status, task.message, task.is_over) == ("completed", None, True)
        quick = client.start_task("smell")
        assert (quick.id, quick.is_over, quick.result().data) == ("", True, "good")


def test_a_task_is_come_back_to_by_its_id() -> None:
    oven = Oven()
    oven.gate.set()
    with SyncClient(oven.server) as client:
        id = client.start_task("bake", {"loaves": 1}).id
        task = client.task(id, into=list[str])
        assert (task.id, task.status) == (id, "unknown")
        assert task.result(SECONDS).data == ["loaf"]
        with pytest.raises(errors.CallError, match="no task"):
            client.task("task_0").result()


def test_a_tasks_updates_can_be_iterated() -> None:
    oven = Oven()
    with SyncClient(oven.server) as client:
        task = client.start_task("bake", {"loaves": 1})
        seen: list[str] = []
        for update in task:
            seen.append(update.status)
            oven.gate.set()
        assert seen == ["working", "completed"]
        for update in task:
            assert update.status == "completed"
            break
        assert task.result().data == ["loaf"]


def test_a_task_is_cancelled_without_await() -> None:
    oven = Oven()
    with SyncClient(oven.server) as client:
        task = client.start_task("bake", {"loaves": 1})
        task.cancel()
        assert task.refresh().status == "cancelled"
        task.cancel()
        with pytest.raises(errors.CallError, match="cancelled"):
            task.result()


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_a_tasks_questions_are_answered_by_plain_handlers(era: Era) -> None:
    with SyncClient(Oven().server, era=era, on_elicit=lambda one: one.accept({"value": True})) as client:
        assert client.start_task("ask").result(SECONDS).data == "rye"


def test_a_task_of_a_closed_client_says_so() -> None:
    oven = Oven()
    with SyncClient(oven.server) as client:
        task = client.start_task("bake", {"loaves": 1})
        updates = iter(task)
        assert next(updates).status == "working"
    for use in (task.result, task.refresh, task.cancel, lambda: list(task), lambda: list(updates)):
        with pytest.raises(errors.Closed):
            use()


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_the_wait_for_a_task_and_not_the_task() -> None:
    oven = Oven()
    with SyncClient(oven.server) as client:
        task = client.start_task("bake", {"loaves": 1})
        timer = interrupt_soon()
        with pytest.raises(KeyboardInterrupt):
            task.result()
        timer.join()
        assert task.refresh().status == "working"
        oven.gate.set()
        assert task.result(SECONDS).data == ["loaf"]
