"""Messages to a model: its text as it comes, its calls like those of a person, and Esc. The model here is a script."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest

import trimaran.apps.console.app
from trimaran import Context
from trimaran.apps.conversation.model import (
    Event,
    ModelFailed,
    TextReceived,
    ToolCallFailed,
    ToolCallRefused,
    ToolCallReturned,
    ToolCallStarted,
    TurnEnded,
    UserNotice,
)
from trimaran.errors import Error
from trimaran.host import Host, PermissionDenied

from .desk import Sea, console, seen, shows, type_line, until

pytestmark = pytest.mark.slow

Script = Callable[["Parrot", str], AsyncGenerator[Event]]


class Parrot:
    """A conversation that goes by a script."""

    budget_plan = None

    def __init__(self, name: str, host: Host, script: Script) -> None:
        self.name = name
        self.host = host
        self.heard: list[str] = []
        self.is_closed = self.is_cleared = False
        self.on_progress: Any = None
        self._script = script

    async def send(self, text: str) -> AsyncGenerator[Event]:
        self.heard.append(text)
        async for event in self._script(self, text):
            yield event

    def clear(self) -> None:
        self.is_cleared = True

    async def close(self) -> None:
        self.is_closed = True

    async def sample(self, server: str, ask: Any) -> str:
        return f"sampled for {server}"


@pytest.fixture
def parrots(monkeypatch: pytest.MonkeyPatch) -> Callable[[Script], list[Parrot]]:
    def train(script: Script) -> list[Parrot]:
        made: list[Parrot] = []

        def open_model(name: str, host: Host) -> Parrot:
            made.append(Parrot(name, host, script))
            return made[-1]

        monkeypatch.setattr(trimaran.apps.console.app, "_open_model", open_model)
        return made

    return train


async def test_a_message_goes_to_the_model_with_what_it_mentions(parrots: Any) -> None:
    async def script(parrot: Parrot, text: str) -> AsyncGenerator[Event]:
        yield UserNotice("the model is not told of sea:moor")
        for word in ("The sea ", "is [bold]calm[/bold] ", "\x1b[31mtoday."):
            yield TextReceived(word)
        yield ToolCallStarted("c1", "sea:add", {"a": 1, "b": 2})
        yield ToolCallReturned("c1", "sea:add", await parrot.host.call("sea:add", {"a": 1, "b": 2}))
        yield TextReceived("Three it is.")
        yield TurnEnded("end_turn", 1200, 34)

    made = parrots(script)
    async with console(model="parrot", allow=["*"], size=(80, 34)) as pilot:
        await shows(pilot, "messages go to parrot")
        await type_line(pilot, "sea:add is what @sea:log says")
        await shows(pilot, r"The sea is [bold]calm[/bold] \x1b[31mtoday.", "✓ sea:add a=1 b=2", "Three it is.")
        await shows(pilot, "not told of sea:moor", "1,200 tokens read, 34 written")
        await type_line(pilot, "!sea:add a=5 b=5")
        await shows(pilot, "✓ sea:add a=5 b=5")
        await type_line(pilot, "/clear")
        await until(pilot, lambda: made[0].is_cleared)
    assert "day 1: calm" in made[0].heard[0]
    assert made[0].is_closed


async def test_what_the_model_may_not_do_is_shown_like_a_persons_call(parrots: Any) -> None:
    async def script(parrot: Parrot, text: str) -> AsyncGenerator[Event]:
        yield ToolCallStarted("c1", "sea:add", {"a": 1, "b": 2})
        try:
            await parrot.host.call("sea:add", {"a": 1, "b": 2})
        except PermissionDenied as error:
            yield ToolCallRefused("c1", "sea:add", str(error), error)
        broken = Error("the wire broke")
        yield ToolCallRefused("c2", "sea:nothing", "no such tool", Error("no such tool"))
        yield ToolCallStarted("c3", "sea:poem", {})
        yield ToolCallFailed("c3", "sea:poem", str(broken), broken)
        yield TurnEnded("max_turns", 0, 0)

    parrots(script)
    async with console(model="parrot", size=(80, 40)) as pilot:
        await type_line(pilot, "add them")
        await shows(pilot, "May this call be made?")
        await pilot.press("n")
        await shows(pilot, "✗ sea:add", "Not allowed", "no such tool", "the wire broke", "used tools too often")


async def test_escape_stops_the_answer(parrots: Any) -> None:
    ended: list[str] = []

    async def script(parrot: Parrot, text: str) -> AsyncGenerator[Event]:
        yield TextReceived("Once upon a time")
        yield ToolCallStarted("c1", "sea:drift", {})
        parrot.on_progress("c1", 5.0, 10.0, "on the way")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(text)

    parrots(script)
    async with console(sea=Sea(), model="parrot", allow=["*"]) as pilot:
        await type_line(pilot, "tell me")
        await shows(pilot, "Once upon a time", "▸ sea:drift", "50%", "on the way", "1 call running")
        await pilot.press("escape")
        await shows(pilot, "the answer was stopped", "✗ sea:drift")
        await until(pilot, lambda: ended == ["tell me"] and "running" not in seen(pilot))


async def test_a_provider_that_fails_is_one_block_and_the_next_message_works(parrots: Any) -> None:
    async def script(parrot: Parrot, text: str) -> AsyncGenerator[Event]:
        if text == "first":
            raise ModelFailed("Parrots answered 529: overloaded. Try again in a minute.", provider="Parrots")
        yield TextReceived("Hello.")
        yield TurnEnded("end_turn", 1, 1)

    parrots(script)
    async with console(model="parrot") as pilot:
        await type_line(pilot, "first")
        await shows(pilot, "✗ ", "Parrots answered 529")
        await type_line(pilot, "second")
        await shows(pilot, "Hello.")


async def test_another_model_is_taken_while_the_console_runs(parrots: Any) -> None:
    async def script(parrot: Parrot, text: str) -> AsyncGenerator[Event]:
        yield TextReceived(f"I am {parrot.name}.")
        yield TurnEnded("end_turn", 1, 1)

    made = parrots(script)
    async with console() as pilot:
        await type_line(pilot, "/model grey")
        await shows(pilot, "Messages go to grey")
        await type_line(pilot, "/model green")
        await shows(pilot, "Messages go to green")
        await type_line(pilot, "who are you?")
        await shows(pilot, "I am green.")
    assert [one.is_closed for one in made] == [True, True]


async def test_a_server_uses_the_model_only_after_a_yes(parrots: Any) -> None:
    async def script(parrot: Parrot, text: str) -> AsyncGenerator[Event]:
        yield TurnEnded("end_turn", 0, 0)

    parrots(script)
    sea = Sea()

    @sea.server.tool
    async def guess(ctx: Context) -> str:
        """Ask the model."""
        said = await ctx.sample([{"role": "user", "content": {"type": "text", "text": "How deep?"}}], max_tokens=50)
        return str(said)

    async with console(sea=sea, model="parrot", allow=["*"]) as pilot:
        await type_line(pilot, "!sea:guess")
        await shows(pilot, "May this server use your model?", "How deep?", "50 tokens", "the server's words")
        await pilot.press("y")
        await shows(pilot, "✓ sea:guess", "sampled for sea")


async def test_a_model_may_be_given_code_instead_of_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--code`; the end to end of it is tests/fault/test_ask.py."""
    options: list[dict[str, bool]] = []

    def open_model(name: str, host: Host, **more: bool) -> None:
        options.append(more)

    monkeypatch.setattr(trimaran.apps.console.app, "_open_model", open_model)
    for code in (False, True):
        trimaran.apps.console.app.ConsoleApp(lambda **more: Host({}, environ={}, **more), model="parrot", code=code)
    assert options == [{}, {"code": True}]
