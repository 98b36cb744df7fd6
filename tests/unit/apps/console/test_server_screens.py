"""`/mcp`: servers, their tools, the rule that holds for a tool, stderr; reload, enable, disable, log in; all by keyboard."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from textual.pilot import Pilot

from trimaran.apps.console.logincard import LoginCard
from trimaran.apps.console.server_screens import ServersScreen, StderrScreen, ToolsScreen
from trimaran.apps.console.trustcard import TrustCard
from trimaran.host import Host, Machine, Source, Trust, load_config, read_config

from .desk import Sea, console, seen, shows, type_line, until

pytestmark = pytest.mark.slow

MACHINE = Machine(home="/home/ada", workspace="/work", environ={})


def host_of(pilot: Pilot[None]) -> Host:
    return pilot.app.host  # type: ignore[attr-defined, no-any-return]


async def test_a_server_is_looked_at_and_its_tools_with_their_rules() -> None:
    """R240, R273."""
    async with console(deny=["mcp__sea__poem"]) as pilot:
        await type_line(pilot, "/mcp")
        await shows(pilot, "Servers", "● sea   connected, memory", "sea 1.0.0, speaks 2026-07-28 (modern)", "sea:add")
        await shows(pilot, "t Tools", "s Stderr", "r Reload", "e Enable", "d Disable", "a Authorise", "esc Back")
        await pilot.press("t")
        await shows(pilot, "Tools of sea", "sea:add a=INTEGER b=INTEGER", "Permission: ask", "the default is ask")
        await pilot.press("down", "down", "down", "down")
        await shows(pilot, "sea:poem", "Permission: deny", "global deny mcp__sea__poem")
        await pilot.press("escape")
        await until(pilot, lambda: isinstance(pilot.app.screen, ServersScreen))
        await pilot.press("escape")
        await until(pilot, lambda: len(pilot.app.screen_stack) == 1)


async def test_a_server_is_disabled_enabled_and_reloaded() -> None:
    async with console() as pilot:
        await type_line(pilot, "/mcp")
        await shows(pilot, "● sea")
        before = host_of(pilot).whereis("sea")
        await pilot.press("r")
        await until(pilot, lambda: host_of(pilot).whereis("sea") not in (None, before))
        await pilot.press("d")
        await shows(pilot, "○ sea   disabled", "press e")
        await pilot.press("e")
        await shows(pilot, "● sea   connected")


async def test_a_failed_server_says_why_and_what_to_do() -> None:
    async with console(servers={"gone": ["no-such-command"]}) as pilot:
        await shows(pilot, "○ gone: failed")
        await type_line(pilot, "/mcp")
        await shows(pilot, "○ gone   failed, stdio", "cannot start no-such-command", "press r")
        await pilot.press("a")
        await shows(pilot, "nobody can log in")
        await pilot.press("s")
        await until(pilot, lambda: isinstance(pilot.app.screen, StderrScreen))
        await shows(pilot, "stderr of gone", "It wrote nothing")
        await pilot.press("q")
        await pilot.press("t")
        await until(pilot, lambda: isinstance(pilot.app.screen, ToolsScreen))
        await shows(pilot, "nothing here")


async def test_a_login_shows_where_to_go_and_can_be_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    begun = asyncio.Event()
    ended: list[str] = []

    async def authorize(self: Host, name: str, *, login: Any = None) -> None:
        await show_page(login, "https://login.example/?state=1")
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(name)

    async def show_page(login: Any, url: str) -> None:
        login._show(url)

    monkeypatch.setattr(Host, "authorize", authorize)
    async with console() as pilot:
        await type_line(pilot, "/mcp")
        await shows(pilot, "● sea")
        await pilot.press("a")
        await shows(pilot, "Log in to sea", "https://login.example/?state=1")
        await pilot.press("escape")
        await until(pilot, lambda: ended == ["sea"] and not isinstance(pilot.app.screen, LoginCard))


async def test_a_question_comes_in_front_of_the_servers() -> None:
    async with console() as pilot:
        await type_line(pilot, "/mcp")
        await shows(pilot, "Servers")
        call = asyncio.create_task(host_of(pilot).call("sea:add", {"a": 1, "b": 2}))
        await shows(pilot, "May this call be made?")
        await pilot.press("y")
        assert (await call).data == 3
        await until(pilot, lambda: isinstance(pilot.app.screen, ServersScreen))


# --- a project's file ------------------------------------------------------------------------------------------------

PROJECT = """
[server.tool]
command = "no-such-command"
args = ["--flag"]
env = { COLOUR = "red" }

[permissions]
allow = ["mcp__tool__*"]
"""


def project(tmp_path: Path, text: str = PROJECT) -> Any:
    file = tmp_path / ".trimaran" / "mcp.toml"
    file.parent.mkdir()
    file.write_text(text)
    return load_config(machine=Machine(home=str(tmp_path / "home"), workspace=str(tmp_path), environ={}))


async def test_a_projects_file_without_servers_says_that_it_starts_nothing(tmp_path: Path) -> None:
    config = project(tmp_path, "[context]\nbudget = 5000\n")
    async with console(servers=config, trust=Trust(tmp_path / "trusted.json")) as pilot:
        await shows(pilot, "it would", "start nothing and allow nothing")


async def test_a_projects_file_starts_nothing_before_a_person_trusts_it(tmp_path: Path) -> None:
    trust = Trust(tmp_path / "trusted.json")
    config = project(tmp_path)
    async with console(servers=config, trust=trust) as pilot:
        await shows(pilot, "Do you trust this project's configuration?", "start tool: no-such-command --flag")
        await shows(pilot, "with COLOUR=red", "allow mcp__tool__*")
        await until(pilot, lambda: isinstance(pilot.app.screen, TrustCard) and pilot.app.screen.is_settled)
        for _ in range(100):  # an answer is marked a moment after the card is drawn; a key before that is not taken
            if not isinstance(pilot.app.screen, TrustCard):
                break
            await pilot.press("enter")
            await pilot.pause(0.1)
        await shows(pilot, "is not trusted: its servers are not started")
        assert [one.state for one in host_of(pilot).status()] == ["disabled"]
    assert trust.files() == {}
    async with console(servers=config, trust=trust) as pilot:
        await until(pilot, lambda: isinstance(pilot.app.screen, TrustCard) and pilot.app.screen.is_settled)
        await pilot.press("escape")
        await type_line(pilot, "/mcp tool")
        await shows(pilot, "not trusted yet", "To trust it: press e")
        await pilot.press("e")
        await until(pilot, lambda: isinstance(pilot.app.screen, TrustCard) and pilot.app.screen.is_settled)
        await pilot.press("y")
        await until(pilot, lambda: host_of(pilot).status()[0].state == "failed")
    async with console(servers=config, trust=trust) as pilot:
        await shows(pilot, "○ tool: failed")
        assert "Do you trust" not in seen(pilot)


async def test_what_is_odd_about_the_configuration_is_said_at_the_start() -> None:
    config = read_config([(Source("mcp.toml", "file"), "[sever.x]\ncommand = 'x'")], MACHINE)
    async with console(servers=config) as pilot:
        await shows(pilot, "mcp.toml:1", "did you mean 'server'?", "No server is configured")


async def test_everything_fits_a_small_and_a_large_screen() -> None:
    for size in ((80, 24), (200, 50)):
        async with console(sea=Sea(), allow=["*"], size=size) as pilot:
            await type_line(pilot, "sea:moor")
            await shows(pilot, "Where to?", "Submit", "Decline", "Close")
            await pilot.press("escape")
            await type_line(pilot, "/mcp")
            await shows(pilot, "Servers", "Authorise")
            assert all(len(line) <= size[0] for line in seen(pilot).splitlines())
