"""Questions in the console: one card at a time, the answer that does nothing has the focus, and haste answers nothing."""

from __future__ import annotations

import asyncio

import pytest
from textual import events
from textual.pilot import Pilot
from textual.widgets import Button, Input

from trimaran import Context, Server
from trimaran.apps.console.cards import Card
from trimaran.apps.console.prompt import PromptInput
from trimaran.apps.console.questions import PageCard, PermissionCard

from .desk import Sea, call_as_model, console, seen, shows, type_line, until

pytestmark = pytest.mark.slow


async def test_a_call_that_the_person_typed_needs_no_permission_unless_a_rule_denies_it() -> None:
    """Also where a rule says ask by name: typing the call answers that. It is written down as the person's yes."""
    sea = Sea()
    async with console(sea=sea, ask=["mcp__sea__add"], deny=["mcp__sea__poem"]) as pilot:
        await type_line(pilot, "sea:add a=1 b=2")
        await shows(pilot, "✓ sea:add a=1 b=2")
        assert sea.calls == [(1, 2)]
        await type_line(pilot, "sea:poem")
        await shows(pilot, "✗ Not allowed")
        call_as_model(pilot, "sea:add", a=5, b=2)
        await shows(pilot, "May this call be made?")
        await pilot.press("n")


async def test_a_call_that_the_rules_ask_about_is_put_to_the_person() -> None:
    """R239, R240: who, what, with what, and why it is asked."""
    sea = Sea()
    async with console(sea=sea) as pilot:
        call_as_model(pilot, "sea:add", a=1, b=2)
        await shows(pilot, "May this call be made?", "sea:add", '"a": 1', "no rule matches it, and the default is ask")
        assert sea.calls == []
        await pilot.press("y")
        await shows(pilot, "✓ sea:add a=1 b=2")
        call_as_model(pilot, "sea:add", a=5, b=2)
        await shows(pilot, "May this call be made?")  # once is once


@pytest.mark.parametrize("key", ["n", "enter", "escape", "ctrl+c", "space"])
async def test_no_is_what_haste_answers(key: str) -> None:
    sea = Sea()
    async with console(sea=sea) as pilot:
        call_as_model(pilot, "sea:add", a=1, b=2)
        await shows(pilot, "May this call be made?")
        if key == "space":  # no answer at all
            await pilot.press(key)
            assert isinstance(pilot.app.screen, PermissionCard)
            await pilot.press("n")
        else:
            await pilot.press(key)
        await shows(pilot, "✗ Not allowed")
        assert sea.calls == []


@pytest.mark.parametrize(("key", "comes"), [("a", "✓ sea:add"), ("d", "✗ Not allowed")])
async def test_an_answer_for_good_is_not_asked_for_again(key: str, comes: str) -> None:
    async with console() as pilot:
        call_as_model(pilot, "sea:add", a=1, b=2)
        await shows(pilot, "May this call be made?")
        await pilot.press(key)
        await shows(pilot, comes)
        await type_line(pilot, "/clear")
        call_as_model(pilot, "sea:add", a=3, b=4)
        await shows(pilot, comes)


async def test_what_is_typed_when_a_question_appears_is_no_answer() -> None:
    """A card takes answers once no key was pressed for a while."""
    sea = Sea()
    async with console(sea=sea, settle=1000) as pilot:
        call_as_model(pilot, "sea:add", a=1, b=2)
        await shows(pilot, "May this call be made?")
        card = pilot.app.screen
        assert isinstance(card, PermissionCard)
        await pilot.press("y", "a", "enter")
        assert card.question.is_open
        card._settle = 0.0
        await pilot.press("y")
        await shows(pilot, "✓ sea:add")


async def test_what_is_typed_when_a_question_appears_goes_on_into_the_line() -> None:
    sea = Sea()
    async with console(sea=sea, settle=1000) as pilot:
        await pilot.press(*"sea")
        call_as_model(pilot, "sea:add", a=1, b=2)
        await shows(pilot, "May this call be made?")
        await pilot.press(*":poem")
        pilot.app.post_message(events.Paste(" lines=3"))
        await until(pilot, lambda: pilot.app.screen_stack[0].query_one(PromptInput).text == "sea:poem lines=3")
        card = pilot.app.screen
        assert isinstance(card, PermissionCard)
        assert card.question.is_open
        card._settle = 0.0
        await pilot.press("x", "n")  # the first key after the pause is not taken: a line stands unfinished
        await shows(pilot, "✗ Not allowed")
        assert pilot.app.query_one(PromptInput).text == "sea:poem lines=3"


async def test_questions_come_one_at_a_time_and_are_counted() -> None:
    async with console() as pilot:
        host = pilot.app.host  # type: ignore[attr-defined]
        calls = [asyncio.create_task(host.call("sea:add", {"a": n, "b": 0})) for n in range(3)]
        await shows(pilot, "1 of 3", '"a": 0')
        await pilot.press("n")
        await shows(pilot, "1 of 2", '"a": 1')
        await pilot.press("n")
        await shows(pilot, '"a": 2')
        assert "1 of" not in seen(pilot)
        await pilot.press("n")
        await until(pilot, lambda: not isinstance(pilot.app.screen, Card))
        await asyncio.gather(*calls, return_exceptions=True)


async def test_a_question_that_is_withdrawn_vanishes() -> None:
    async with console() as pilot:
        host = pilot.app.host  # type: ignore[attr-defined]
        call = asyncio.create_task(host.call("sea:add", {"a": 1, "b": 2}))
        await shows(pilot, "May this call be made?")
        call.cancel()
        await until(pilot, lambda: not isinstance(pilot.app.screen, Card))
        await asyncio.gather(call, return_exceptions=True)


async def fill(pilot: Pilot[None], text: str) -> None:
    entry = pilot.app.screen.focused
    assert isinstance(entry, Input)
    entry.value = text


async def test_a_form_is_filled_in_judged_and_sent() -> None:
    sea = Sea()
    async with console(sea=sea, allow=["*"]) as pilot:
        await type_line(pilot, "sea:moor")
        await shows(pilot, "The server sea asks, in its own words:", "Where to? [bold]now[/bold]", "Boat *")
        await fill(pilot, "T")
        await pilot.press("enter")  # goes to the next field, and sends nothing
        await fill(pilot, "99")
        await pilot.press("ctrl+s")
        await shows(pilot, "✗")
        assert sea.calls == []
        await fill(pilot, "Tern")
        await pilot.press("tab")
        await fill(pilot, "12")
        await pilot.press("tab", "enter", "down", "enter")
        await pilot.press("tab", "space", "tab", "space", "ctrl+s")
        await shows(pilot, "✓ sea:moor", "You answered sea: accept.")
    content = {"boat": "Tern", "length": 12, "side": "starboard", "extras": ["water"], "insured": False}
    assert sea.calls == [("accept", content)]


@pytest.mark.parametrize(("button", "action"), [("decline", "decline"), ("cancel", "cancel")])
async def test_a_form_can_be_declined_and_closed(button: str, action: str) -> None:
    sea = Sea()
    async with console(sea=sea, allow=["*"]) as pilot:
        await type_line(pilot, "sea:moor")
        await shows(pilot, "Boat *")
        pilot.app.screen.query_one(f"#{button}", Button).press()
        await shows(pilot, "✓ sea:moor")
    assert [one[0] for one in sea.calls] == [action]


async def test_a_form_that_nobody_could_fill_in_can_only_be_declined() -> None:
    server = Server("odd", version="1")
    schema = {"type": "object", "properties": {f"field {n}": {"type": "string"} for n in range(500)}}

    @server.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.elicit("All of it", schema)).action)

    async with console(servers={"odd": server}, allow=["*"]) as pilot:
        await shows(pilot, "● odd: connected")
        await type_line(pilot, "odd:ask")
        await shows(pilot, "500 fields", "Decline")
        assert not pilot.app.screen.query("#submit")
        await pilot.press("escape")
        await shows(pilot, "cancel")


async def test_a_page_is_opened_only_after_a_yes() -> None:
    opened: list[str] = []

    def open_page(url: str) -> bool:
        opened.append(url)
        return False

    async with console(allow=["*"], open_page=open_page) as pilot:
        url = "https://xn--pypal-4ve.example/pay?id=7"
        await type_line(pilot, f"sea:pay url={url}")
        await shows(pilot, "Pay here", "xn--pypal-4ve.example\n".strip(), url)
        assert opened == []
        await pilot.press("enter")
        await shows(pilot, "decline")
        await type_line(pilot, f"sea:pay url={url}")
        await until(pilot, lambda: isinstance(pilot.app.screen, PageCard))
        await pilot.press("y")
        await shows(pilot, "accept", "No browser can be opened here. Open this page yourself:")
    assert opened == [url]


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("file:///etc/passwd", "Only pages on the web are opened from here"),
        ("javascript:alert(1)", "Only pages on the web are opened from here"),
        ("https://", "not written as addresses are"),
        ("https://bank.example/\u202ecod.exe", "not written as addresses are"),
        ("https://bank.example/" + "a" * 9000, "too long to be looked at"),
    ],
    ids=["file", "script", "nowhere", "backwards", "endless"],
)
async def test_a_page_that_is_none_of_the_web_cannot_be_opened(url: str, why: str) -> None:
    """The host declines other schemes itself; should one come through, the card offers no way to open it."""
    from trimaran.host import ConsentBridge, Question

    opened: list[str] = []
    async with console(allow=["*"], open_page=lambda url: bool(opened.append(url))) as pilot:
        bridge = pilot.app.host.bridge  # type: ignore[attr-defined]
        assert isinstance(bridge, ConsentBridge)
        question = Question("url", "sea", "Look here", url=url)
        asking = asyncio.create_task(bridge.ask(question))
        await until(pilot, lambda: isinstance(pilot.app.screen, PageCard))
        card = pilot.app.screen
        assert isinstance(card, PageCard)
        assert why in card.refusal
        assert not pilot.app.screen.query("#open")
        await pilot.press("y", "o")
        assert question.is_open
        await pilot.press("n")
        assert (await asking).reply == "decline"
    assert opened == []
