"""Servers that ask again and again, and odd arguments."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from textual.widgets import Button

from trimaran import Context, Server
from trimaran.apps.conversation.model import TextReceived, ToolCallStarted

from .desk import app_of, console, shows, type_line, until


@pytest.mark.slow
async def test_a_server_that_asks_again_and_again_can_be_declined_for_good() -> None:
    server = Server("pest", version="1")

    @server.tool
    async def nag(ctx: Context) -> str:
        schema = {"type": "object", "properties": {"x": {"type": "string"}}}
        answers = [str((await ctx.elicit("And now?", schema)).action) for _ in range(3)]
        return " ".join([*answers, str((await ctx.elicit("Or here?", url="https://pest.example/")).action)])

    async with console(servers={"pest": server}, allow=["*"]) as pilot:
        await shows(pilot, "● pest: connected")
        await type_line(pilot, "pest:nag")
        await shows(pilot, "And now?")
        pilot.app.screen.query_one("#never", Button).press()
        await shows(pilot, "decline decline decline decline")


@pytest.mark.slow
async def test_arguments_that_cannot_be_written_down_do_not_end_the_console() -> None:
    async with console() as pilot:
        app = app_of(pilot)
        call = asyncio.create_task(app.host.call("sea:add", {"a": 10**5000, "b": 2}))
        await shows(pilot, "May this call be made?", "cannot be shown")
        await pilot.press("n")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        await asyncio.gather(call, return_exceptions=True)
        assert not app.is_broken


@pytest.mark.slow
async def test_a_message_to_a_model_that_still_answers_takes_nothing_from_that_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = asyncio.Event()

    class Slow:
        name = "slow"
        on_progress: Any = None
        budget_plan = None

        async def send(self, text: str) -> AsyncGenerator[Any]:
            yield ToolCallStarted("c1", "sea:add", {"a": 1, "b": 2})
            await gate.wait()
            self.on_progress("c1", 3, 12, "past the buoy")
            yield TextReceived(f"heard {text}")
            await asyncio.Event().wait()

        async def close(self) -> None:
            pass

    monkeypatch.setattr("trimaran.apps.console.app._open_model", lambda name, host: Slow())
    async with console(model="slow") as pilot:
        await type_line(pilot, "first")
        await shows(pilot, "sea:add")
        await type_line(pilot, "second")
        await shows(pilot, "The model is still answering.")
        gate.set()
        await shows(pilot, "heard first", "past the buoy")
        await pilot.press("escape")
        await shows(pilot, "the answer was stopped")
