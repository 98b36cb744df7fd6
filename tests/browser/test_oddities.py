"""What was wrong once: dates that are none, two tools of one name, a question without a call, tables at 390 pixels."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from .conftest import NARROW, Visit
from .raw_server import LONG
from .rig import RAW, Inspector, inspecting, serving_harbour

pytestmark = [pytest.mark.slow, pytest.mark.deadline(150)]


@pytest.fixture(scope="module")
def inspector() -> Iterator[Inspector]:
    with serving_harbour() as url, inspecting(url, RAW) as inspector:
        yield inspector


def place(page: Page, number: int, rest: str = "") -> str:
    """The link to a part of one of the servers."""
    link = page.locator(".nav-server").nth(number).get_attribute("href")
    assert link is not None
    return link + rest


def test_a_recording_whose_dates_are_none_is_shown(inspector: Inspector, visit: Visit, tmp_path: Path) -> None:
    page = visit(inspector, "#/sessions")
    page.get_by_role("button", name="Keep everything so far").click()
    with page.expect_download() as download:
        page.locator("article.card").first.get_by_role("button", name="Export").click()
    file = tmp_path / "mine.json"
    download.value.save_as(file)

    mine = json.loads(file.read_text())
    for at in (1e300, -1e300):
        file.write_text(json.dumps({**mine, "messages": [{**message, "at": at} for message in mine["messages"]]}))
        page.get_by_label("Import a file").set_input_files(file)
        expect(page.locator(".notices .bad").last).to_contain_text("this is not a recording")
        file.write_text(json.dumps({**mine, "name": f"from {at}", "at": at, "endedAt": at}))
        page.get_by_label("Import a file").set_input_files(file)
        card = page.locator("article.card", has_text=f"from {at}")
        expect(card).to_contain_text("? ·")
        card.get_by_role("link").first.click()
        page.locator(".wire-row").first.click()
        copies = page.get_by_label("Copy as").get_by_role("button")
        expect(copies).to_have_text(["JSON"])  # the server of a recording may be gone
        page.get_by_role("link", name="Sessions").click()


def test_a_line_separator_in_a_text_loses_no_event(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    page.goto(f"{inspector.origin}/{place(page, 1, '/tools/flood')}")
    page.locator("[data-path='/count'] input").fill("3")
    page.get_by_role("button", name="Run tool").click()
    page.locator(".call[data-state=ok]").wait_for()
    page.locator(".dock").get_by_role("tab", name="Log").click()
    expect(page.locator(".dock .log-panel .hidden-mark")).to_have_text("U+2028")


def test_two_tools_of_one_name_are_told_apart(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    page.goto(f"{inspector.origin}/{place(page, 1, '/tools')}")
    twins = page.locator(".list-pane").get_by_role("option", name="twin")
    expect(twins).to_have_count(2)
    expect(twins.nth(0)).not_to_contain_text("again")
    expect(twins.nth(1)).to_contain_text("again")
    expect(twins.nth(1)).to_contain_text("The second of two")


def test_a_question_that_either_of_two_calls_may_have_asked_is_in_both(inspector: Inspector, visit: Visit) -> None:
    """On a pipe nothing says which call a legacy server asks for."""
    page = visit(inspector)
    page.goto(f"{inspector.origin}/{place(page, 1, '/tools/asks')}")
    for about in ("Tern", "Puffin"):
        page.locator("[data-path='/about'] textarea").fill(about)
        page.get_by_role("button", name="Run tool").click()
        expect(page.locator(".call .question", has_text=f"What about {about}?")).to_be_visible()
    expect(page.locator(".topbar")).to_contain_text("2 questions wait")
    history = page.get_by_label("Earlier calls")
    for option in (1, 0):
        history.select_option(index=option)
        expect(page.locator(".call .question", has_text="What about Puffin?")).to_have_count(1)
    page.locator(".call .question", has_text="What about Puffin?").get_by_role("button", name="Answer").click()
    expect(page.locator(".call[data-state=ok]")).to_contain_text("they said")
    history.select_option(index=1)
    card = page.locator(".call .question", has_text="What about Tern?")
    card.get_by_role("button", name="Answer").click()
    expect(page.locator(".call[data-state=ok]")).to_contain_text("they said")
    expect(page.locator(".topbar")).not_to_contain_text("wait")


def test_a_half_typed_answer_outlives_a_reload_and_is_on_every_page(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    page.goto(f"{inspector.origin}/{place(page, 1, '/tools/asks')}")
    page.get_by_role("button", name="Run tool").click()
    note = page.locator(".question [data-path='/note'] textarea")
    note.fill("no wind")
    page.reload()
    expect(note).to_have_value("no wind")
    page.get_by_role("link", name="Questions", exact=False).last.click()
    expect(note).to_have_value("no wind")
    page.locator(".question").get_by_role("button", name="Answer").click()
    expect(page.locator(".question")).to_have_count(0)


def test_an_inspector_that_says_nothing_is_noticed_and_found_again(inspector: Inspector, visit: Visit) -> None:
    """It is stopped, as a laptop's lid or a tunnel that hangs would: no connection is refused, and nothing comes."""
    page = visit(inspector)
    page.clock.install()
    page.reload()
    page.wait_for_selector(".nav-server")
    os.kill(inspector.pid, signal.SIGSTOP)
    try:
        page.clock.fast_forward(41_000)
        expect(page.locator(".lost")).to_contain_text("does not answer")
    finally:
        os.kill(inspector.pid, signal.SIGCONT)
    page.clock.fast_forward(2_000)
    expect(page.locator(".lost")).to_have_count(0)


def test_at_390_pixels_words_are_whole(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector, size=NARROW)
    page.goto(f"{inspector.origin}/{place(page, 0, '/checks/cost')}")
    name = page.locator("table.named tbody td").first
    name.wait_for()
    box = name.bounding_box()
    assert box is not None
    assert box["width"] >= 120, "a letter in a line"
    page.goto(f"{inspector.origin}/{place(page, 1)}")
    badge = page.get_by_label("Capabilities").locator(".badge", has_text=LONG)
    badge.wait_for()
    assert badge.evaluate("badge => badge.scrollWidth <= badge.clientWidth"), "it is cut"
    page.goto(f"{inspector.origin}/{place(page, 0, '/tools')}")
    page.locator(".list-pane").get_by_role("option", name="tide_table").click()
    page.get_by_role("button", name="Run tool").click()
    page.locator(".call[data-state=ok]").wait_for()
    page.get_by_role("link", name="all tools").click()
    expect(page.locator(".list-pane")).to_be_visible()
    page.goto(f"{inspector.origin}/#/timeline")
    calls = page.locator("table.calls tbody td:not(.num)")
    calls.first.wait_for()
    assert calls.evaluate_all("cells => Math.min(...cells.map(cell => cell.clientWidth))") >= 80
    page.goto(f"{inspector.origin}/#/wire")
    page.locator(".wire-row").first.click()
    expect(page.get_by_label("Message", exact=True)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW[0]
