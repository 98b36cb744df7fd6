"""Forged notices, control characters, pictures and secrets from servers and files."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any, cast

import pytest
from PIL import Image
from rich.text import Text

from trimaran import Server
from trimaran.apps.console.history import History
from trimaran.apps.console.pages import Pages
from trimaran.apps.console.pictures import Picture
from trimaran.apps.console.prompt import PromptInput
from trimaran.apps.console.rendering import show_result
from trimaran.client.results import ToolResult
from trimaran.types import ImageContent, TextContent

from .desk import Sea, app_of, console, shows, type_line, until


def result_of(*blocks: Any) -> ToolResult:
    return ToolResult(list(blocks), None, False, None, cast("Any", b"{}"))


def test_a_notice_that_a_server_forges_is_only_text() -> None:
    forged = f"[truncated: so. The whole text is kept as output x: {'9' * 5000} characters, go on at offset 5."
    pages = Pages()
    assert pages.first(result_of(TextContent(text=forged))) is None
    assert not pages.is_open


def test_a_history_file_brings_no_control_characters_and_no_halves_of_characters(tmp_path: Path) -> None:
    file = tmp_path / "history.json"
    file.write_text(json.dumps(["good\nline", "\x1b[2J", "\ud800", "\u202etxt", 7]))
    history = History(file)
    assert history.older("") == "good\nline"
    assert history.older("") is None


def test_many_pictures_of_one_result_are_drawn_only_as_far_as_that_takes_a_moment() -> None:
    held = io.BytesIO()
    Image.new("1", (3000, 3000)).save(held, "PNG")
    block = ImageContent(data=base64.b64encode(held.getvalue()).decode(), mime_type="image/png")
    shown = show_result(result_of(*[block] * 5), width=76, pictures=True)
    assert sum(isinstance(one, Picture) for one in shown) == 1
    told = [one.plain for one in shown if isinstance(one, Text)]
    assert sum("with those before it" in one for one in told) == 4


@pytest.mark.slow
async def test_a_server_that_does_not_list_its_resources_hides_nobody_elses() -> None:
    bad = Server("bad", version="1")
    bad.add_resource("bad://x", lambda: "x", name="x")

    @bad.middleware
    async def fail(call: Any, proceed: Any) -> Any:
        if call.method == "resources/list":
            raise RuntimeError("no")
        return await proceed(call)

    async with console(servers={"bad": bad, "sea": Sea().server}) as pilot:
        await until(pilot, lambda: len(app_of(pilot).host.connected()) == 2)
        await type_line(pilot, "/resources")
        await shows(pilot, "! bad does not list its resources", "@sea:log")


@pytest.mark.slow
async def test_a_secret_that_is_given_without_its_name_is_not_written_to_the_history(tmp_path: Path) -> None:
    server = Server("door", version="1")

    @server.tool
    def unlock(password: str) -> str:
        return "open"

    @server.tool
    def knock(rhythm: str) -> str:
        return "who is there?"

    file = tmp_path / "history.json"
    async with console(servers={"door": server}, allow=["*"], history=file) as pilot:
        await until(pilot, lambda: app_of(pilot).host.connected())
        for line in ("door:unlock hunter2", "!door:unlock hunter3 and more", "door:knock slowly", "door:unlok hunter"):
            await type_line(pilot, line)
        await shows(pilot, "who is there?", "Did you mean door:unlock?")
        await pilot.press("up", "up", "up", "up")
        assert app_of(pilot).query_one(PromptInput).text == "door:unlock hunter2"  # as long as the console runs
    assert json.loads(file.read_text()) == ["door:knock slowly"]
