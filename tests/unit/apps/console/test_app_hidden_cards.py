"""Cards and reloads behind another screen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from trimaran.apps.console.logincard import LoginCard
from trimaran.apps.console.questions import PermissionCard
from trimaran.apps.console.server_screens import ServersScreen

from .desk import app_of, console, shows, until


@pytest.mark.slow
async def test_a_question_that_is_withdrawn_behind_another_screen_is_gone_when_that_is_left() -> None:
    async with console() as pilot:
        app = app_of(pilot)
        call = asyncio.create_task(app.host.call("sea:add", {"a": 1, "b": 2}))
        await shows(pilot, "May this call be made?")
        app.open_servers()
        await until(pilot, lambda: isinstance(app.screen, ServersScreen))
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)


@pytest.mark.slow
async def test_a_login_that_ends_behind_a_question_leaves_the_question_where_it_is() -> None:
    async with console() as pilot:
        app = app_of(pilot)
        done = asyncio.Event()

        async def authorize(name: str, **options: Any) -> None:
            await done.wait()

        app.host.authorize = authorize  # type: ignore[assignment,method-assign]
        login = LoginCard(app.host, "sea")
        await app.push_screen(login)
        call = asyncio.create_task(app.host.call("sea:add", {"a": 1, "b": 2}))
        await shows(pilot, "May this call be made?")
        done.set()
        await until(pilot, lambda: login._is_over)
        login._tell()
        await pilot.pause()
        assert isinstance(app.screen, PermissionCard)
        await pilot.press("n")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        await asyncio.gather(call, return_exceptions=True)


@pytest.mark.slow
async def test_a_reload_goes_on_when_the_servers_are_left_meanwhile() -> None:
    async with console() as pilot:
        app = app_of(pilot)
        gate, ended = asyncio.Event(), list[str]()

        async def reload(name: str) -> None:
            try:
                await gate.wait()
                ended.append("reloaded")
            except asyncio.CancelledError:
                ended.append("cancelled")
                raise

        app.host.reload = reload  # type: ignore[assignment,method-assign]
        app.open_servers()
        await until(pilot, lambda: isinstance(app.screen, ServersScreen))
        await pilot.press("r")
        await shows(pilot, "reloading")
        await pilot.press("escape")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        gate.set()
        await until(pilot, lambda: ended)
        assert ended == ["reloaded"]
