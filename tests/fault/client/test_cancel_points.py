"""Cancelled at every await: whatever a client was doing, nothing of it is left, and the cancellation is not swallowed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Any

import pytest
from tests.support.until import soon, until

from trimaran import Context, Server, connect, open_client

from .peers import Dock, children_of_us, evil_command, sockets

LIMIT = 400  # suspensions; the scenario has a few dozen


class Cutter:
    """Runs a coroutine and cancels its task at the nth time that it waits."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], at: int) -> None:
        self.coroutine = coroutine
        self.at = at
        self.waits = 0
        self.where = ""

    def __await__(self) -> Generator[Any, Any, Any]:
        inner = self.coroutine.__await__()
        thrown: BaseException | None = None
        while True:
            try:
                waited_for = inner.send(None) if thrown is None else inner.throw(thrown)
            except StopIteration as end:
                return end.value
            thrown = None
            self.waits += 1
            if self.waits == self.at:
                self.where = self._innermost()
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield waited_for
            except BaseException as error:
                thrown = error

    def _innermost(self) -> str:
        """Where it waits: the chain of coroutines down to the last one."""
        names: list[str] = []
        one: Any = self.coroutine
        while one is not None and len(names) < 20:
            frame = getattr(one, "cr_frame", None) or getattr(one, "gi_frame", None)
            if frame is not None:
                names.append(f"{frame.f_code.co_name}:{frame.f_lineno}")
            one = getattr(one, "cr_await", None) or getattr(one, "gi_yieldfrom", None)
        return " > ".join(names)


async def answer(ask: Any) -> Any:
    await asyncio.sleep(0)
    return ask.accept({"name": "Ada"})


async def scenario(target: Any, era: Any) -> None:
    """Connect, list, call with progress and a question, close."""
    async with connect(target, era=era, on_elicit=answer, timeout=8.0, grace=0.5) as client:
        assert await client.list_tools()
        result = await client.call_tool("ask", on_progress=lambda *_: None)
        assert result.text == "hello Ada"


async def scenario_by_hand(target: Any, era: Any) -> None:
    client = await open_client(target, era=era, on_elicit=answer, timeout=8.0, grace=0.5)
    try:
        result = await client.call_tool("ask", on_progress=lambda *_: None)
        assert result.text == "hello Ada"
    finally:
        await client.close()


async def everywhere(run: Callable[[], Coroutine[Any, Any, None]], settle: Callable[[], Awaitable[None]]) -> int:
    """Cut `run` at its first wait, its second, and so on until it is through; the number of places."""
    for at in range(1, LIMIT):
        tasks, open_before, kin = asyncio.all_tasks(), sockets(), children_of_us()
        cutter = Cutter(run(), at)

        async def drive(cutter: Cutter = cutter) -> None:
            await cutter

        task = asyncio.create_task(drive())
        done, _ = await asyncio.wait([task], timeout=10)
        assert done, f"cut at wait {at} ({cutter.where}), it hangs"
        through = cutter.waits < at
        if through:
            assert not task.cancelled()
            await task
        else:
            assert task.cancelled(), f"cut at wait {at} ({cutter.where}), it ended with {outcome(task)}"
        del task, done
        where = f"after a cut at wait {at} ({cutter.where})"
        await until(lambda: not children_of_us() - kin, f"{where} no child is left")
        await settle()
        await until(lambda: not sockets() - open_before, f"{where} no socket or pipe is left")
        await until(lambda: not asyncio.all_tasks() - tasks, f"{where} no task is left")
        if through:
            gc.collect()
            return at - 1
    raise AssertionError(f"the scenario has more than {LIMIT} waits")


def outcome(task: asyncio.Task[Any]) -> str:
    return repr(task.exception() or task.result())


async def nothing() -> None:
    pass


def asking() -> Server:
    server = Server("memory", version="1")

    @server.tool
    async def ask(ctx: Context) -> str:
        await ctx.progress(1)
        given = await ctx.elicit("Your name?", {"type": "object", "properties": {"name": {"type": "string"}}})
        await ctx.progress(2)
        return f"hello {given.content['name']}"

    return server


SCENARIOS = pytest.mark.parametrize("play", [scenario, scenario_by_hand], ids=["entered", "opened"])


@SCENARIOS
@pytest.mark.parametrize("era", ["auto", "modern", "legacy"])
async def test_in_memory(era: str, play: Any) -> None:
    server = asking()
    assert await everywhere(lambda: play(server, era), nothing) >= 1


@pytest.mark.slow
@pytest.mark.deadline(60)
@SCENARIOS
@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("probing", [True, False], ids=["probing", "told"])
async def test_over_stdio(dock: Dock, era: str, play: Any, probing: bool) -> None:
    command = evil_command(era)
    assert await everywhere(lambda: play(command, "auto" if probing else era), nothing) >= 4


@pytest.mark.slow
@pytest.mark.deadline(60)
@SCENARIOS
@pytest.mark.parametrize("era", ["modern", "legacy"])
@pytest.mark.parametrize("probing", [True, False], ids=["probing", "told"])
async def test_over_http(dock: Dock, era: str, play: Any, probing: bool) -> None:
    peer = await dock.http(era, "sse")

    async def settle() -> None:
        """The server's side of every connection ends when the client's does."""
        await until(lambda: not peer._running, "the server has no connection left")

    assert await everywhere(lambda: play(peer.url, "auto" if probing else era), settle) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("wire", ["json", "stdio"])
@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_a_call_cut_anywhere_leaves_its_client_usable(dock: Dock, wire: str, era: str) -> None:
    async with dock.open("sse" if wire == "json" else wire, era, on_elicit=answer) as (client, _):

        async def call() -> None:
            result = await client.call_tool("ask", on_progress=lambda *_: None)
            assert result.text == "hello Ada"

        for at in range(1, LIMIT):
            cutter = Cutter(call(), at)

            async def drive(cutter: Cutter = cutter) -> None:
                await cutter

            task = asyncio.create_task(drive())
            await asyncio.wait([task], timeout=10)
            assert task.done()
            if cutter.waits < at:
                await task
                break
            assert task.cancelled(), f"cut at wait {at} ({cutter.where}): {outcome(task)}"
            async with asyncio.timeout(10):  # the reading of the tools, which all callers share, goes on without us
                while client.requests:
                    await asyncio.sleep(0)
            assert (await soon(client.call_tool("add", {"a": 2, "b": 3}))).text == "5"
        else:
            raise AssertionError("endless")
