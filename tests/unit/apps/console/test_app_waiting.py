"""The time that a person takes is not the time of the call."""

from __future__ import annotations

from typing import cast

import pytest
from rich.text import Text

from trimaran.apps.console.transcript import Bar

from .desk import app_of, call_as_model, console, shows, until


async def test_the_time_a_person_takes_is_not_the_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("trimaran.apps.console.transcript.now", lambda: clock[0])
    bar = Bar()
    clock[0] = 101.0
    bar.wait_for_person(True)
    clock[0] = 161.0
    bar.wait_for_person(True)  # it is said again with each drawing
    assert bar.seconds == 1.0
    assert "waits for your answer" in bar.drawn().plain
    bar.wait_for_person(False)
    clock[0] = 163.0
    assert bar.seconds == 3.0
    assert "running" in bar.drawn().plain


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tool", "arguments", "card"), [("sea:add", {"a": 1, "b": 2}, "May this"), ("sea:moor", {}, "Where to?")]
)
async def test_a_call_that_waits_for_the_person_says_so(tool: str, arguments: dict[str, int], card: str) -> None:
    async with console(allow=["mcp__sea__moor", "mcp__sea__drift"]) as pilot:
        app = app_of(pilot)
        call_as_model(pilot, tool, **arguments)
        await shows(pilot, card)
        drawn = [cast("Text", entry.part) for entry in app._lines.calls.entries()]
        await until(pilot, lambda: any("waits for your" in str(e.part) for e in app._lines.calls.entries()))
        assert len(drawn) == 2
        await pilot.press("escape")
        await until(pilot, lambda: not app._lines.calls.entries())
