"""Requests of a server, and handlers that fail or are cancelled: each gets one answer."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.peers import (
    Pipe,
    ask,
    ok,
    said,
    tell,
)
from tests.support.until import soon, until

from trimaran import connect, errors
from trimaran.client import Deferred


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
        assert (await soon(client.call_tool("x", on_progress=on_progress))).text == "done"


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
        await until(lambda: stored == [1])


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
        await soon(asked.wait())
        pipe.hang_up()
        await client.ping()
        await soon(gone.wait(), 0.5)
