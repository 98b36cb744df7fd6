"""The console: lines are typed, calls run, results, errors and states are shown; nothing a server says is obeyed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.until import soon
from textual.pilot import Pilot

from trimaran import Context, Host, Server
from trimaran.apps.console.app import ConsoleApp
from trimaran.apps.console.transcript import Bar, TranscriptView
from trimaran.host import Machine, OutputLimits, Source, read_config

from .desk import Sea, console, seen, shows, type_line, until


def lines(pilot: Pilot[None]) -> int:
    return len(pilot.app.query_one(TranscriptView))


async def test_a_call_is_typed_and_its_result_is_shown() -> None:
    async with console(allow=["*"]) as pilot:
        await shows(pilot, "● sea: connected (7 tools)", "● sea")
        await type_line(pilot, "sea:add a=1 b=2")
        await shows(pilot, "✓ sea:add a=1 b=2", "\n   3")


@pytest.mark.slow
async def test_the_screen_is_there_before_the_servers_are() -> None:
    """R272, R273: each comes up behind, and what it came to is a line and a glyph with a word."""
    async with console(servers={"gone": ["no-such-command"], "sea": Sea().server}, allow=["*"]) as pilot:
        await shows(pilot, "trimaran console, 2 servers")
        await shows(pilot, "○ gone: failed:", "● sea: connected", "○ gone failed  ● sea", "tried again")


async def test_a_bar_follows_the_progress_of_a_call() -> None:
    sea = Sea()
    async with console(sea=sea, allow=["*"]) as pilot:
        await type_line(pilot, "sea:drift")
        await shows(pilot, "▸ sea:drift", "25%", "3/12", "past the buoy", "1 call running")
        sea.gate.set()
        await shows(pilot, "✓ sea:drift", "ashore")
        await until(pilot, lambda: "running" not in seen(pilot) and "━" not in seen(pilot))


@pytest.mark.slow
@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
async def test_a_key_cancels_the_call_that_began_last_and_the_server_is_told(key: str) -> None:
    """R274."""
    sea = Sea()
    async with console(sea=sea, allow=["*"]) as pilot:
        await type_line(pilot, "sea:drift")
        await shows(pilot, "past the buoy")
        await type_line(pilot, "sea:add a=1 b=1")
        await shows(pilot, "✓ sea:add")
        await pilot.press(key)
        await shows(pilot, "✗ sea:drift", "cancelled; the server was told")
        await soon(sea.cancelled.wait())


@pytest.mark.slow
async def test_what_cannot_be_done_is_one_readable_block() -> None:
    async with console(deny=["mcp__sea__add"], allow=["*"], size=(80, 40)) as pilot:
        await type_line(pilot, "sea:add a=1 b=2")
        await shows(pilot, "✗ Not allowed", "global deny mcp__sea__add", "/explain")
        await type_line(pilot, "sea:ad a=1")
        await shows(pilot, "sea:add?")
        await type_line(pilot, "/hepl")
        await shows(pilot, "/help")
        await type_line(pilot, "sea:sink")
        await shows(pilot, "✗ sea:sink", "the mast broke")
        assert "Traceback" not in seen(pilot)


async def test_what_servers_say_is_neither_markup_nor_a_command_to_the_terminal() -> None:
    async with console(allow=["*"]) as pilot:
        await type_line(pilot, "sea:shout")
        await shows(pilot, "[bold red]loud[/]", r"\x1b[2J\x1b]0;title\x07", "[@click=app.quit]here[/]")
        assert "\x1b" not in seen(pilot)


@pytest.mark.slow
async def test_a_long_text_is_shown_by_pages() -> None:
    async with console(allow=["*"]) as pilot:
        await type_line(pilot, "sea:poem lines=2000")
        await shows(pilot, "characters are not shown: /more goes on")
        assert "verse 1999" not in seen(pilot)
        for _ in range(10):
            before = lines(pilot)
            await type_line(pilot, "/more")
            await until(pilot, lambda now=before: lines(pilot) > now + 1)
            if "verse 1999" in seen(pilot):
                break
        await shows(pilot, "verse 1999")
        await type_line(pilot, "/more")
        await shows(pilot, "There is nothing more to show.")


@pytest.mark.slow
async def test_what_the_host_cut_is_paged_from_where_it_is_kept() -> None:
    """R270."""
    async with console(allow=["*"], limits=OutputLimits(bytes=2000)) as pilot:
        await type_line(pilot, "sea:poem lines=1000")
        await shows(pilot, "characters are not shown: /more goes on", "verse 2")
        assert "truncated" not in seen(pilot)
        await type_line(pilot, "/more")
        await until(pilot, lambda: "verse 85" in seen(pilot) or "verse 7" in seen(pilot))
        await type_line(pilot, "/more")
        await shows(pilot, "verse 999")


@pytest.mark.slow
async def test_a_message_is_shown_with_what_it_mentions() -> None:
    """R264, R266."""
    async with console() as pilot:
        await type_line(pilot, "look at @sea:log and @sea:nothing")
        await shows(pilot, "day 1: calm", "Put in: @sea:log (sea://log)", "no resource 'nothing'", "There is no model")


@pytest.mark.slow
async def test_commands_list_tools_resources_prompts_and_rules() -> None:
    async with console(allow=["mcp__sea__add"], size=(80, 30)) as pilot:
        for line, found in (
            ("/tools po", ("sea:poem", "A long poem.")),
            ("/tool sea:add", ("sea:add a=INTEGER b=INTEGER", "Add two numbers.")),
            ("/resources", ("@sea:log", "sea://log")),
            ("/read @sea:log", ("day 1: calm",)),
            ("/prompts", ("sea:plan where=", "Plan a trip.")),
            ("/prompt sea:plan where=Kelp", ("Plan a trip to Kelp.",)),
            ("/explain sea:add", ("sea:add: allow", "global allow", "decides")),
            ("/model", ("There is no model",)),
            ("/help", ("/resources [SERVER]", "Ctrl+Q, Ctrl+D")),
            ("/read @sea:nix", ("no resource 'nix'",)),
            ("/resources see", ("did you mean sea?",)),
        ):
            await type_line(pilot, "/clear")
            await type_line(pilot, line)
            await shows(pilot, *found)


@pytest.mark.slow
async def test_clear_keeps_what_still_runs() -> None:
    sea = Sea()
    async with console(sea=sea, allow=["*"]) as pilot:
        await type_line(pilot, "sea:drift")
        await shows(pilot, "past the buoy")
        await type_line(pilot, "/clear")
        await until(pilot, lambda: "trimaran console" not in seen(pilot))
        sea.gate.set()
        await shows(pilot, "ashore")


@pytest.mark.slow
async def test_what_cannot_be_drawn_is_told_and_ends_nothing() -> None:
    class Broken:
        def __rich_console__(self, *_: Any) -> Any:
            raise ValueError("no such glyph")

    async with console(allow=["*"]) as pilot:
        pilot.app.query_one(TranscriptView).add(cast("Any", Broken()))
        await shows(pilot, "(cannot be drawn: ValueError)")
        await type_line(pilot, "sea:add a=1 b=1")
        await shows(pilot, "✓ sea:add")


@pytest.mark.slow
async def test_a_server_that_waits_to_be_needed_is_woken_by_a_call(tmp_path: Path) -> None:
    file = tmp_path / "lazy.py"
    file.write_text(
        "from trimaran import Server\nserver = Server('lazy', version='1')\n@server.tool\ndef hi(name: str) -> str:\n    return 'hi ' + name\nserver.run()\n"
    )
    config = read_config(
        [
            (
                Source("mcp.toml", "file"),
                f"[server.lazy]\ncommand = {sys.executable!r}\nargs = [{str(file)!r}]\nlazy = true",
            )
        ],
        Machine(home=str(tmp_path), workspace=str(tmp_path), environ={}),
    )
    async with console(servers=config, allow=["*"]) as pilot:
        await shows(pilot, "○ lazy idle")
        await type_line(pilot, "lazy:hi Ada")
        await shows(pilot, "● lazy: connected (1 tool)", "✓ lazy:hi name=Ada", "hi Ada")


@pytest.mark.slow
async def test_the_transcript_forgets_what_is_old() -> None:
    async with console() as pilot:
        transcript = pilot.app.query_one(TranscriptView)
        for number in range(60):
            transcript.add(*[_text(f"entry {number}.{part}") for part in range(10)])
        await shows(pilot, "entry 59.9")
        assert len(transcript) == 500


def _text(text: str) -> Any:
    from rich.text import Text

    return Text(text)


@pytest.mark.slow
async def test_a_flood_of_progress_does_not_slow_the_screen() -> None:
    """Ten thousand reports are drawn as often as the screen is."""
    server = Server("flood", version="1")

    @server.tool
    async def pour(ctx: Context) -> str:
        for drop in range(10_000):
            await ctx.progress(drop, total=10_000)
        return "poured"

    async with console(servers={"flood": server}, allow=["*"]) as pilot:
        await shows(pilot, "● flood: connected")
        drawn = 0
        draw = Bar.drawn

        def counted(bar: Bar) -> Any:
            nonlocal drawn
            drawn += 1
            return draw(bar)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Bar, "drawn", counted)
            await type_line(pilot, "flood:pour")
            await shows(pilot, "✓ flood:pour", "poured")
        assert drawn < 200


@pytest.mark.slow
async def test_the_status_line_counts_what_does_not_fit() -> None:
    servers = {f"server-with-a-name-{n}": Server("s", version="1") for n in range(9)}
    async with console(servers=servers) as pilot:
        await shows(pilot, "● 9 connected")


async def test_a_model_that_cannot_be_had_is_an_error_before_the_screen_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from trimaran.apps.conversation.model import ModelUnavailable

    with pytest.raises(ModelUnavailable):
        ConsoleApp(lambda **given: Host({}, **given), model="nobody:nothing")


@pytest.mark.slow
@pytest.mark.parametrize("key", ["ctrl+q", "ctrl+d"])
async def test_a_key_ends_it(key: str) -> None:
    async with console() as pilot:
        await pilot.press(key)
        await until(pilot, lambda: not pilot.app.is_running)
