"""Cards on a small terminal."""

from __future__ import annotations

import asyncio

import pytest
from textual.widgets import Button

from trimaran.apps.console.cards import Card

from .desk import app_of, call_as_model, console, seen, shows, until


@pytest.mark.slow
async def test_a_card_says_that_there_is_more_than_can_be_seen() -> None:
    async with console() as pilot:
        host = app_of(pilot).host
        arguments = {**{f"part{n:02}": "x" for n in range(30)}, "zz_last": "rm -rf"}
        call = asyncio.create_task(host.call("sea:add", arguments))
        await shows(pilot, "May this call be made?", "more below: PgDn")
        assert "zz_last" not in seen(pilot)
        await pilot.press("pagedown", "pagedown", "pagedown", "pagedown")
        await shows(pilot, "zz_last")
        await until(pilot, lambda: "more below" not in seen(pilot))
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


@pytest.mark.slow
@pytest.mark.parametrize(("tool", "arguments"), [("sea:add", {"a": 1, "b": 2}), ("sea:moor", {})])
async def test_the_answers_are_on_the_card_in_a_terminal_of_40_by_10(tool: str, arguments: dict[str, int]) -> None:
    async with console(size=(40, 10), allow=["mcp__sea__moor"]) as pilot:
        call_as_model(pilot, tool, **arguments)
        await until(pilot, lambda: isinstance(pilot.app.screen, Card))
        await until(pilot, lambda: pilot.app.screen.query(Button))
        labels = [str(button.label) for button in pilot.app.screen.query(Button)]
        assert len(labels) == 4
        await shows(pilot, *labels)
