"""What a second look at the console found: keys and cards that miss each other, servers that ask and ask, small terminals."""

from __future__ import annotations

import asyncio
import base64
import io
import json
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

import pytest
from PIL import Image
from rich.text import Text
from textual import events
from textual.pilot import Pilot
from textual.widgets import Button, Input

from trimaran import Context, Server
from trimaran.client.results import ToolResult
from trimaran.console.app import ConsoleApp
from trimaran.console.cards import Card
from trimaran.console.history import History
from trimaran.console.logincard import LoginCard
from trimaran.console.overlay import ServersScreen
from trimaran.console.pages import Pages
from trimaran.console.pictures import Picture
from trimaran.console.prompt import Prompt
from trimaran.console.questions import PermissionCard
from trimaran.console.show import show_result
from trimaran.console.transcript import Bar
from trimaran.conversation.model import Called, Said
from trimaran.types import ImageContent, TextContent

from .desk import Sea, console, seen, shows, type_line, until

slow = pytest.mark.slow


def app_of(pilot: Pilot[None]) -> ConsoleApp:
    return cast("ConsoleApp", pilot.app)


def result_of(*blocks: Any) -> ToolResult:
    return ToolResult(list(blocks), None, False, None, cast("Any", b"{}"))


# --- keys that were meant for something else -------------------------------------------------------------------------


@slow
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


@slow
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


@slow
async def test_a_line_that_is_gone_on_with_after_a_pause_allows_nothing() -> None:
    """`a` is "always", and the first letter of many words."""
    sea = Sea()
    async with console(sea=sea) as pilot:
        app = app_of(pilot)
        app.query_one(Prompt).put("now add one ")
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
        assert app.query_one(Prompt).text == "now add one "


@slow
async def test_the_way_out_is_open_while_a_card_takes_no_answer() -> None:
    async with console(settle=1000) as pilot:
        await type_line(pilot, "sea:add a=1 b=2")
        await shows(pilot, "May this call be made?")
        await pilot.press("ctrl+q")
        await until(pilot, lambda: not pilot.app.is_running)


# --- cards that are not in front -------------------------------------------------------------------------------------


@slow
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


@slow
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


@slow
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


# --- servers that ask and ask ----------------------------------------------------------------------------------------


@slow
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


@slow
async def test_arguments_that_cannot_be_written_down_do_not_end_the_console() -> None:
    async with console() as pilot:
        app = app_of(pilot)
        call = asyncio.create_task(app.host.call("sea:add", {"a": 10**5000, "b": 2}))
        await shows(pilot, "May this call be made?", "cannot be shown")
        await pilot.press("n")
        await until(pilot, lambda: len(app.screen_stack) == 1)
        await asyncio.gather(call, return_exceptions=True)
        assert not app.is_broken


@slow
async def test_a_message_to_a_model_that_still_answers_takes_nothing_from_that_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gate = asyncio.Event()

    class Slow:
        name = "slow"
        on_progress: Any = None

        async def send(self, text: str) -> AsyncGenerator[Any]:
            yield Called("c1", "sea:add", {"a": 1, "b": 2})
            await gate.wait()
            self.on_progress("c1", 3, 12, "past the buoy")
            yield Said(f"heard {text}")
            await asyncio.Event().wait()

        async def close(self) -> None:
            pass

    monkeypatch.setattr("trimaran.console.app._open_model", lambda name, host: Slow())
    async with console(model="slow") as pilot:
        await type_line(pilot, "first")
        await shows(pilot, "sea:add")
        await type_line(pilot, "second")
        await shows(pilot, "The model is still answering.")
        gate.set()
        await shows(pilot, "heard first", "past the buoy")
        await pilot.press("escape")
        await shows(pilot, "the answer was stopped")


# --- what fits on a screen -------------------------------------------------------------------------------------------


@slow
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


@slow
@pytest.mark.parametrize("line", ["sea:add a=1 b=2", "sea:moor"])
async def test_the_answers_are_on_the_card_in_a_terminal_of_40_by_10(line: str) -> None:
    async with console(size=(40, 10), allow=["mcp__sea__moor"]) as pilot:
        await type_line(pilot, line)
        await until(pilot, lambda: isinstance(pilot.app.screen, Card))
        labels = [str(button.label) for button in pilot.app.screen.query(Button)]
        assert len(labels) == 4
        await shows(pilot, *labels)


# --- the time a person takes -----------------------------------------------------------------------------------------


async def test_the_time_a_person_takes_is_not_the_calls() -> None:
    bar, clock = Bar(), [100.0]
    bar._now = lambda: clock[0]  # type: ignore[method-assign]
    bar._began = 100.0
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


@slow
@pytest.mark.parametrize(("line", "card"), [("sea:add a=1 b=2", "May this"), ("sea:moor", "Where to?")])
async def test_a_call_that_waits_for_the_person_says_so(line: str, card: str) -> None:
    async with console(allow=["mcp__sea__moor", "mcp__sea__drift"]) as pilot:
        app = app_of(pilot)
        await type_line(pilot, line)
        await shows(pilot, card)
        drawn = [cast("Text", entry.part) for entry in app._lines.calls.entries()]
        await until(pilot, lambda: any("waits for your" in str(e.part) for e in app._lines.calls.entries()))
        assert len(drawn) == 2
        await pilot.press("escape")
        await until(pilot, lambda: not app._lines.calls.entries())


# --- what else servers, and files, may hold --------------------------------------------------------------------------


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


@slow
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


@slow
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
        assert app_of(pilot).query_one(Prompt).text == "door:unlock hunter2"  # as long as the console runs
    assert json.loads(file.read_text()) == ["door:knock slowly"]
