"""Keys that were meant for something else answer no card."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from textual import events
from textual.widgets import Input

from trimaran.apps.console.cards import Card
from trimaran.apps.console.prompt import PromptInput
from trimaran.apps.console.questions import PermissionCard

from .desk import Sea, app_of, call_as_model, console, shows, type_line, until


@pytest.mark.slow
async def test_what_is_typed_or_pasted_when_a_form_appears_is_not_put_into_its_fields() -> None:
    sea = Sea()
    async with console(sea=sea, allow=["*"], settle=1000) as pilot:
        await type_line(pilot, "sea:moor")
        await shows(pilot, "Boat *")
        card = cast("Card[None]", pilot.app.screen)
        await pilot.press("h", "i", "enter", "x", "ctrl+s")
        pilot.app.post_message(events.Paste("my secret"))
        await pilot.pause()
        assert [entry.value for entry in card.query(Input)] == ["", "9"]
        card._settle = 0.0
        await pilot.press("T")
        assert [entry.value for entry in card.query(Input)] == ["T", "9"]


@pytest.mark.slow
async def test_a_card_that_was_not_drawn_yet_takes_no_answer_however_long_that_takes() -> None:
    async with console(settle=0.001) as pilot:
        host = app_of(pilot).host
        call = asyncio.create_task(host.call("sea:add", {"a": 1, "b": 2}))
        await shows(pilot, "May this call be made?")
        card = cast("PermissionCard", pilot.app.screen)
        await until(pilot, lambda: card.is_settled)
        card._touched = None
        await pilot.pause(0.01)  # longer than it has to be silent
        assert not card.is_settled
        card.action_answer("yes")
        assert card.question.is_open
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)


@pytest.mark.slow
async def test_a_line_that_is_gone_on_with_after_a_pause_allows_nothing() -> None:
    """`a` is "always", and the first letter of many words."""
    sea = Sea()
    async with console(sea=sea) as pilot:
        app = app_of(pilot)
        app.query_one(PromptInput).put("now add one ")
        calls = [asyncio.create_task(app.host.call("sea:add", {"a": n, "b": 2})) for n in range(2)]
        await shows(pilot, "May this call be made?", "1 of 2")
        await pilot.press("a")
        await shows(pilot, "that key was not taken")
        assert sea.calls == []
        await pilot.press("y")
        await shows(pilot, '"a": 1')  # the other one: now it is answering that the person does
        await pilot.press("y")
        await asyncio.gather(*calls)
        assert sea.calls == [(0, 2), (1, 2)]
        assert app.query_one(PromptInput).text == "now add one "


@pytest.mark.slow
async def test_the_way_out_is_open_while_a_card_takes_no_answer() -> None:
    async with console(settle=1000) as pilot:
        call_as_model(pilot, "sea:add", a=1, b=2)
        await shows(pilot, "May this call be made?")
        await pilot.press("ctrl+q")
        await until(pilot, lambda: not pilot.app.is_running)
