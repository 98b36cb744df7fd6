"""The prompt: completion, history, several lines, and keys that are not the text's."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from rich.text import Text
from textual import events
from textual.pilot import Pilot

from trimaran import Host
from trimaran.apps.console.app import ConsoleApp
from trimaran.apps.console.completion import CompletionMenu
from trimaran.apps.console.prompt import Choices, PromptInput
from trimaran.apps.console.transcript import TranscriptView

from .desk import Sea, console, seen, shows, type_line, until

pytestmark = pytest.mark.slow


def text(pilot: Pilot[None]) -> str:
    return pilot.app.query_one(PromptInput).text


async def write(pilot: Pilot[None], line: str) -> None:
    pilot.app.query_one(PromptInput).put(line)
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


async def test_keys_after_tab_wait_for_its_options_however_fast_they_come() -> None:
    """All of them are in the queue before the first is handled, as when somebody types ahead of a slow terminal."""
    sea = Sea()
    async with console(sea=sea) as pilot:
        for key in ["s", "e", "a", ":", "a", "tab", *"a=1 b=2", "enter"]:
            pilot.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await shows(pilot, "✓ sea:add a=1 b=2")
        assert sea.calls == [(1, 2)]


async def test_keys_that_edit_keep_their_place_among_letters() -> None:
    async with console() as pilot:
        for key in ["a", "b", "backspace", "c", "left", "x", "home", "y", "end", "z"]:
            pilot.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(pilot, lambda: "z" in text(pilot))
        assert text(pilot) == "yaxcz"


async def test_enter_after_a_typed_letter_sends_the_line_and_takes_nothing_from_the_list() -> None:
    async with console() as pilot:
        await write(pilot, "sea:")
        for key in ["tab", *"poem lines=3", "enter"]:
            pilot.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await shows(pilot, "✓ sea:poem lines=3", "verse 2")
        assert text(pilot) == ""


@pytest.mark.parametrize(("keys", "line"), [("tab", "sea:pay "), ("down enter", "sea:pay "), ("up enter", "sea:poem ")])
@pytest.mark.parametrize("is_fast", [True, False])
async def test_a_narrowed_list_is_entered_by_tab_or_an_arrow(keys: str, line: str, is_fast: bool) -> None:
    async with console() as pilot:
        await write(pilot, "sea:")
        await pilot.press("tab")
        await shows(pilot, "sea:drift")
        await pilot.press("p")
        if not is_fast:
            await until(pilot, lambda: "sea:drift" not in seen(pilot))
        await pilot.press(*keys.split())
        if keys == "tab":
            await pilot.press("tab")
        await until(pilot, lambda: text(pilot) == line)


async def test_a_server_that_completes_too_slowly_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.apps.console.prompt._PATIENCE", 0.05)
    gate = asyncio.Event()

    async def complete(text: str, cursor: int) -> CompletionMenu:
        await gate.wait()
        raise AssertionError("nobody waits for this")

    async with console() as pilot:
        pilot.app.query_one(PromptInput)._complete = complete
        await pilot.press(*"/he", "tab", "l", "p")
        await until(pilot, lambda: text(pilot) == "/help")


async def test_what_was_typed_before_the_console_was_there_is_in_the_prompt_or_sent() -> None:
    async with console(typed_ahead="/mod\t\nse\x1ba:add a=1 b=2\x7f5\n/he") as pilot:
        await shows(pilot, "There is no model", "✓ sea:add a=1 b=5")
        await until(pilot, lambda: text(pilot) == "/he")


async def test_keys_that_come_before_the_prompt_has_the_focus_wait_for_it() -> None:
    def open_host(**options: Any) -> Host:
        return Host({"sea": Sea().server}, **options)

    app = ConsoleApp(open_host, settle=0.0)
    for key in "sea":
        app.post_message(events.Key(key, key))
    try:
        async with app.run_test() as pilot:
            await until(pilot, lambda: text(pilot) == "sea")
    finally:
        await app.aclose()


async def test_a_command_that_waits_and_a_server_that_starts_are_seen_to_be_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A glyph that turns, beside the name of what is waited for."""
    monkeypatch.setattr("trimaran.apps.console.running_lines._MOMENT", 0.0)
    sea = Sea()

    @sea.server.resource("sea://depth", name="depth")
    async def depth() -> str:
        await sea.gate.wait()
        return "deep"

    async with console(sea=sea) as pilot:
        await type_line(pilot, "/read @sea:depth")
        frames: set[str] = set()

        def turns() -> bool:
            line = seen(pilot).splitlines()[-2]
            if "/read @sea:depth 0 s" in line or "/read @sea:depth 1 s" in line:
                frames.add(line.partition(" /read")[0][-1])
            return len(frames) > 2

        await until(pilot, turns)
        sea.gate.set()
        await shows(pilot, "deep")
        await until(pilot, lambda: "/read" not in seen(pilot).splitlines()[-2])


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
        pilot.app.query_one(PromptInput).post_message(events.Paste("one\r\ntwo\x1b[31m\nthree"))
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
        transcript = pilot.app.query_one(TranscriptView)
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
        transcript = pilot.app.query_one(TranscriptView)
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
        transcript = pilot.app.query_one(TranscriptView)
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
