"""The prompt: completion, history, several lines, and keys that are not the text's."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.text import Text
from textual import events
from textual.pilot import Pilot

from trimaran.console.prompt import Choices, Prompt
from trimaran.console.transcript import Transcript

from .desk import Sea, console, seen, shows, type_line, until

pytestmark = pytest.mark.slow


def text(pilot: Pilot[None]) -> str:
    return pilot.app.query_one(Prompt).text


async def write(pilot: Pilot[None], line: str) -> None:
    pilot.app.query_one(Prompt).put(line)
    await pilot.pause()


async def test_tab_puts_in_the_only_thing_that_fits() -> None:
    async with console() as pilot:
        await write(pilot, "/he")
        await pilot.press("tab")
        await until(pilot, lambda: text(pilot) == "/help ")


async def test_tab_lists_what_fits_and_arrows_choose() -> None:
    async with console() as pilot:
        await write(pilot, "sea:p")
        await pilot.press("tab")
        await shows(pilot, "sea:pay", "Visit a page.", "sea:poem")
        await pilot.press("down", "enter")
        await until(pilot, lambda: text(pilot) == "sea:poem ")
        assert not pilot.app.query_one(Choices).display
        assert "▸" not in seen(pilot)


async def test_typing_narrows_the_list_and_escape_closes_it() -> None:
    async with console() as pilot:
        await write(pilot, "sea:")
        await pilot.press("tab")
        await shows(pilot, "sea:add", "sea:drift")
        await pilot.press("p")
        await until(pilot, lambda: "sea:drift" not in seen(pilot))
        await shows(pilot, "sea:pay")
        await pilot.press("escape")
        assert not pilot.app.query_one(Choices).display
        assert text(pilot) == "sea:p"


async def test_arguments_and_mentions_are_completed() -> None:
    async with console() as pilot:
        await write(pilot, "sea:add ")
        await pilot.press("tab")
        await shows(pilot, "a=", "integer, required")
        await pilot.press("enter", "1", "space", "b", "tab")
        await until(pilot, lambda: text(pilot) == "sea:add a=1 b=")
        await write(pilot, "look at @sea:l")
        await pilot.press("tab")
        await until(pilot, lambda: text(pilot) == "look at @sea:log ")


async def test_up_and_down_bring_back_what_was_typed(tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    async with console(history=file) as pilot:
        await type_line(pilot, "/tools")
        await type_line(pilot, "/model")
        await write(pilot, "dra")
        await pilot.press("up", "up")
        assert text(pilot) == "/tools"
        await pilot.press("down", "down")
        assert text(pilot) == "dra"
    async with console(history=file) as pilot:
        await pilot.press("up")
        assert text(pilot) == "/model"


async def test_a_text_of_several_lines_is_pasted_whole_and_sent_by_enter() -> None:
    async with console() as pilot:
        pilot.app.query_one(Prompt).post_message(events.Paste("one\r\ntwo\x1b[31m\nthree"))
        await until(pilot, lambda: text(pilot) == "one\ntwo[31m\nthree")
        await pilot.press("ctrl+j", "f")
        assert text(pilot) == "one\ntwo[31m\nthree\nf"
        await pilot.press("up", "home", "x")
        assert "xthree" in text(pilot)
        await pilot.press("enter")
        await shows(pilot, "> one", "two[31m", "xthree")
        assert text(pilot) == ""


async def test_pages_of_the_transcript_are_turned_from_the_prompt() -> None:
    async with console(sea=Sea(), allow=["*"]) as pilot:
        await type_line(pilot, "sea:poem lines=200")
        await shows(pilot, "verse 199")
        await pilot.press("pageup", "pageup")
        await until(pilot, lambda: "verse 199" not in seen(pilot))
        transcript = pilot.app.query_one(Transcript)
        at = transcript.scroll_offset.y
        await type_line(pilot, "")
        assert transcript.scroll_offset.y == at
        await pilot.press("ctrl+home")
        await shows(pilot, "trimaran console")
        await pilot.press("ctrl+end")
        await shows(pilot, "verse 199")


@pytest.mark.parametrize("lines", [17, 20, 40])
async def test_the_end_is_in_sight_however_long_what_comes_is(lines: int) -> None:
    """Also when a scrollbar comes with it, and when the bar of the call goes."""
    async with console(sea=Sea(), allow=["*"]) as pilot:
        await shows(pilot, "● sea: connected")
        await type_line(pilot, f"sea:poem lines={lines}")
        await shows(pilot, f"verse {lines - 1}")
        transcript = pilot.app.query_one(Transcript)
        await until(pilot, lambda: transcript.scroll_offset.y == transcript.max_scroll_y)
        for _ in range(3):
            await pilot.pause()
            assert transcript.scroll_offset.y == transcript.max_scroll_y
        assert f"verse {lines - 1}" in seen(pilot)


async def test_who_scrolled_up_is_left_alone() -> None:
    async with console(sea=Sea(), allow=["*"]) as pilot:
        await type_line(pilot, "sea:poem lines=100")
        await shows(pilot, "verse 99")
        await pilot.press("pageup")
        await until(pilot, lambda: "verse 99" not in seen(pilot))
        transcript = pilot.app.query_one(Transcript)
        at = transcript.scroll_offset.y
        transcript.add(Text("news"))
        await pilot.pause(0.2)
        assert transcript.scroll_offset.y == at
        await pilot.press("pagedown", "pagedown")
        await shows(pilot, "news")
        transcript.add(Text("more news"))
        await shows(pilot, "more news")


async def test_the_transcript_is_drawn_anew_for_another_width() -> None:
    async with console(allow=["*"], size=(100, 24)) as pilot:
        wide = " ".join(["wide"] * 15)
        await type_line(pilot, wide)
        await until(pilot, lambda: f"> {wide}" in seen(pilot))
        await pilot.resize_terminal(60, 24)
        await until(pilot, lambda: wide not in seen(pilot) and "> wide wide" in seen(pilot))


async def test_ctrl_d_deletes_where_there_is_something_to_delete() -> None:
    async with console() as pilot:
        await write(pilot, "abc")
        await pilot.press("home", "ctrl+d")
        assert text(pilot) == "bc"
