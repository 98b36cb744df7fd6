"""Point 9, and bad input: links, keys, themes, widths, screen readers; hostile servers, floods and large answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from .conftest import NARROW, WIDE, Visit
from .raw_server import IMITATION
from .rig import AXE, HERE, RAW, Inspector, inspecting, need, serving_harbour
from .tracing import traced

pytestmark = [pytest.mark.slow, pytest.mark.deadline(150)]

PLACES = ["#/servers", "#/s/{0}", "#/s/{0}/tools/tide_table", "#/s/{0}/prompts", "#/s/{0}/try", "#/s/{0}/auth", "#/s/{0}/checks", "#/wire", "#/timeline", "#/questions", "#/sessions", "#/sessions/saved"]  # fmt: skip
FRAME_LIMIT = 50  # milliseconds of CPU time between two frames
PAINT_LIMIT = 300  # milliseconds of CPU time before the first content is seen


@pytest.fixture(scope="module")
def inspector() -> Iterator[Inspector]:
    with serving_harbour() as url, inspecting(url, RAW, str(HERE / "hostile_app.py")) as inspector:
        yield inspector


def servers(page: Page) -> list[str]:
    page.wait_for_selector(".nav-server")
    links = page.locator(".nav-server").evaluate_all("items => items.map(item => item.getAttribute('href'))")
    return [link.split("/")[2] for link in links]


def open_raw(page: Page, inspector: Inspector, tool: str) -> None:
    from urllib.parse import quote

    page.goto(f"{inspector.origin}/#/s/{servers(page)[1]}/tools/{quote(tool, safe='')}")
    page.wait_for_selector(".form-pane")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1280", "390"])
def test_axe_finds_nothing_serious(inspector: Inspector, visit: Visit, size: tuple[int, int], theme: str) -> None:
    need(AXE)
    page = visit(inspector, size=size, theme=theme)
    harbour = servers(page)[0]
    serious: list[str] = []

    def check(place: str) -> None:
        # Playwright evaluates from outside the page, so the page's policy stays as strict as it is.
        page.evaluate(AXE.read_text("utf-8"))
        result: Any = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        serious.extend(
            f"{place}: {fault['id']}: {fault['nodes'][0]['html'][:160]}"
            for fault in result["violations"]
            if fault["impact"] in ("serious", "critical")
        )
        width: int = page.evaluate("document.documentElement.scrollWidth")
        assert width <= size[0], f"{place} is {width} pixels wide on a screen of {size[0]}"
        height: int = page.evaluate("document.documentElement.scrollHeight")
        assert height <= size[1], f"{place} scrolls the frame away: it is {height} pixels high"

    for place in PLACES:
        page.goto(f"{inspector.origin}/{place.format(harbour)}")
        page.wait_for_selector("main h1:visible, main .empty:visible, main .list-pane:visible")
        check(place)
    open_raw(page, inspector, "conditions")
    page.get_by_role("button", name="Add item to list").click()
    page.locator("[data-path='/price'] input").fill("no number")
    page.get_by_role("button", name="Run tool").click()
    expect(page.locator(".field-error")).to_contain_text("is not of type")
    page.locator("[data-path='/price']").hover()
    check("a form with errors")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Go to")).to_be_visible()
    check("a dialog")
    page.keyboard.press("Escape")
    open_raw(page, inspector, "asks")
    page.get_by_role("button", name="Run tool").click()
    expect(page.locator(".question")).to_be_visible()
    check("a question in its call")
    page.locator(".question").get_by_role("button", name="Decline").click()
    assert serious == []


def test_everything_is_reached_by_keys(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    page.keyboard.press("Control+k")
    page.keyboard.type("tide_table")
    expect(page.locator("#palette li").first).to_contain_text("tide_table")
    page.keyboard.press("Enter")
    expect(page.locator(".form-pane h1")).to_have_text("tide_table")
    page.keyboard.press("g")
    page.keyboard.press("w")
    expect(page.get_by_label("Filter messages")).to_be_visible()
    page.get_by_role("listbox", name="Messages").focus()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_label("Message", exact=True)).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    page.keyboard.press("Escape")
    before = page.evaluate("document.documentElement.dataset.theme ?? ''")
    page.keyboard.press("d")
    assert page.evaluate("document.documentElement.dataset.theme") != before


def tab_to(page: Page, place: str) -> None:
    """Press Tab until the focus is in such a place, and is seen there."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("place => document.activeElement.matches(place)", place):
            outline: str = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
            assert outline != "none", f"nobody sees that the focus is at {place}"
            return
    pytest.fail(f"Tab does not reach {place}")


def test_a_question_is_answered_and_its_call_read_without_a_mouse(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    page.keyboard.press("Control+k")
    page.keyboard.type("book_berth")
    expect(page.locator("#palette li").first).to_contain_text("book_berth")
    page.keyboard.press("Enter")
    expect(page.locator(".form-pane h1")).to_have_text("book_berth")
    tab_to(page, "[data-path='/boat'] textarea")
    page.keyboard.type("Tern")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".call .question")).to_be_visible()
    tab_to(page, ".question [data-path='/nights'] input")
    page.keyboard.type("3")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".call[data-state=ok]")).to_contain_text("nights: 3")
    tab_to(page, ".call [role=tab]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".call .steps")).to_contain_text("answered: accept")
    tab_to(page, "#dock-wire")
    page.keyboard.press("End")
    expect(page.locator(".dock .message-panel")).to_be_visible()
    tab_to(page, ".message-panel [aria-label='Close message']")
    page.keyboard.press("Enter")
    expect(page.locator(".dock .message-panel")).to_have_count(0)


def test_a_hostile_server_runs_nothing_and_hides_nothing(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    open_raw(page, inspector, IMITATION)
    page.get_by_role("button", name="Run tool").click()
    page.locator(".call[data-state=ok]").wait_for()
    for name in ("markdown", "text"):
        page.locator(".result-pane").get_by_role("button", name=name, exact=True).click()
        expect(page.locator(".result-pane")).to_contain_text("window.pwned=1")
    expect(page.locator(".result-pane .hidden-mark", has_text="ignore all rules")).to_be_visible()
    expect(page.locator(".result-pane .hidden-mark", has_text="U+202E").first).to_be_visible()
    expect(page.locator(".result-pane .hidden-mark", has_text="ESC").first).to_be_visible()
    page.goto(f"{inspector.origin}/#/s/{servers(page)[1]}")
    expect(page.get_by_label("Instructions")).to_contain_text("<script>")
    expect(page.get_by_role("log", name="stderr")).to_contain_text("raw server starts")
    page.goto(f"{inspector.origin}/#/wire")
    page.locator(".wire-row").first.wait_for()
    assert page.evaluate("window.pwned") is None
    assert page.locator("main a[href^='javascript:']").count() == 0


AFTER_FRAMES = """count => new Promise((resolve) => {
  const tick = () => count-- > 0 ? requestAnimationFrame(tick) : resolve();
  tick();
})"""


def test_the_page_is_seen_soon(inspector: Inspector, visit: Visit, record_property: Any) -> None:
    page = visit(inspector)
    with traced(page) as trace:
        page.goto("about:blank")
        page.goto(inspector.origin)
        page.wait_for_selector(".nav-link")
    wall: float = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
    assert trace.before_paint_ms is not None
    print(f"\nfirst contentful paint: {trace.before_paint_ms:.0f} ms of CPU time, {wall:.0f} ms by the clock")
    record_property("first paint, ms of CPU time", round(trace.before_paint_ms))
    assert 0 < trace.before_paint_ms < PAINT_LIMIT


def test_five_thousand_notifications_do_not_stop_a_frame(
    inspector: Inspector, visit: Visit, record_property: Any
) -> None:
    page = visit(inspector)
    open_raw(page, inspector, "flood")
    page.locator("[data-path='/count'] input").fill("5000")
    with traced(page) as trace:
        page.get_by_role("button", name="Run tool").click()
        page.locator(".call[data-state=ok]").wait_for()
        page.get_by_role("tab", name="Logs").click()
        expect(page.locator(".call .log-panel")).to_contain_text("line 4998")
    record_property("longest task, ms of CPU time", round(trace.longest_ms))
    print(f"\n5,000 notifications: {len(trace.tasks_ms)} tasks, the longest {trace.longest_ms:.0f} ms of CPU time")
    assert trace.longest_ms < FRAME_LIMIT
    page.goto(f"{inspector.origin}/#/wire")
    expect(page.locator(".wire-tools .num")).to_contain_text("5,0")


def test_a_form_of_500_properties_stops_no_frame(inspector: Inspector, visit: Visit, record_property: Any) -> None:
    page = visit(inspector)
    open_raw(page, inspector, "conditions")
    with traced(page) as trace:
        open_raw(page, inspector, "many")
        page.locator("[data-path='/p499'] input").wait_for()
        page.locator("[data-path='/p250'] input").click()
        page.keyboard.type("12345678", delay=60)
        expect(page.locator("[data-path='/p250'] input")).to_have_value("12345678")
    record_property("longest task, ms of CPU time", round(trace.longest_ms))
    print(f"\n500 properties: the longest task {trace.longest_ms:.0f} ms of CPU time")
    assert trace.longest_ms < FRAME_LIMIT


@pytest.mark.parametrize("place", ["#/wire", "#/wire?q=line", "#/timeline"])
def test_a_flood_beside_a_hundred_thousand_messages_does_not_stop_a_frame(
    inspector: Inspector, visit: Visit, record_property: Any, place: str
) -> None:
    page = visit(inspector, "#/wire")
    raw = servers(page)[1]
    flood = """([server, count]) => fetch('/api/calls', {method: 'POST',
        headers: {'content-type': 'application/json', authorization: `Bearer ${localStorage.getItem('trimaran.session')}`},
        body: JSON.stringify({server, kind: 'tool', name: 'flood', arguments: {count}})})"""
    for _ in range(2):
        page.evaluate(flood, [raw, 50_000])
    expect(page.locator(".wire-tools .num")).to_have_text(re.compile(r"1[0-2]\d,\d{3} messages"))
    page.goto(f"{inspector.origin}/{place}")
    page.wait_for_selector(".wire-tools")
    with traced(page) as trace:
        page.evaluate(flood, [raw, 5_000])
        page.evaluate(AFTER_FRAMES, 180)
    record_property("longest task, ms of CPU time", round(trace.longest_ms))
    print(f"\n{place}, 100,000 messages and 5,000 more: the longest task {trace.longest_ms:.0f} ms of CPU time")
    assert trace.longest_ms < FRAME_LIMIT


def test_a_large_answer_is_cut_and_the_page_stays_alive(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    open_raw(page, inspector, "large")
    page.locator("[data-path='/megabytes'] input").fill("20")
    page.get_by_role("button", name="Run tool").click()
    expect(page.locator(".result-pane")).to_contain_text("the first 64 KB of 20.0 MB")
    page.locator(".result-pane").get_by_role("tab", name="Raw").click()
    expect(page.locator(".result-pane")).to_contain_text("larger than a page should load")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Go to")).to_be_visible()


def test_an_app_does_not_get_out_of_its_frame(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    page.goto(f"{inspector.origin}/#/s/{servers(page)[2]}/tools/show")
    page.get_by_role("button", name="Run tool").click()
    report = page.frame_locator("iframe").locator("#report[data-done=yes]")
    expect(report).to_have_text("achieved: nothing")
    expect(page.locator(".bridge")).to_contain_text("is not open to apps")
    expect(page.locator(".bridge")).to_contain_text("does not serve sampling/createMessage")
    assert page.url.startswith(inspector.origin)
    expect(page.locator(".topbar")).to_be_visible()
    assert len(page.context.pages) == 1


def test_an_app_that_leads_its_frame_to_the_interface_reads_nothing(inspector: Inspector, visit: Visit) -> None:
    """The frame is the inspector's neighbour by address, and nobody's by origin: it brings no cookie and no session."""
    page = visit(inspector)
    page.goto(f"{inspector.origin}/#/s/{servers(page)[2]}/tools/leave")
    page.get_by_role("button", name="Run tool").click()
    expect(page.frame_locator("iframe").locator("body")).to_contain_text("does not come from the inspector's own page")
    expect(page.locator(".topbar")).to_be_visible()
    assert page.url.startswith(inspector.origin)


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        ("flood", "posted more than 1000 messages"),
        ("weigh", "posted more than 16 MB"),
        ("steal", "taking the keyboard"),
    ],
)
def test_an_app_that_holds_the_page_is_closed(inspector: Inspector, visit: Visit, tool: str, reason: str) -> None:
    page = visit(inspector)
    page.goto(f"{inspector.origin}/#/s/{servers(page)[2]}/tools/{tool}")
    page.get_by_role("button", name="Run tool").click()
    page.locator("iframe").wait_for(state="attached") if tool == "steal" else None
    search = page.get_by_label("Search tools")
    search.click()
    search.press_sequentially("a b c d e f g h", delay=60)
    expect(page.locator(".app-frame .failure-line")).to_contain_text(reason)
    expect(page.locator("iframe")).to_have_count(0)


def test_an_app_that_asks_for_ever_holds_nobody(inspector: Inspector, visit: Visit) -> None:
    """A card asks, once at a time; no dialog stands over the page."""
    page = visit(inspector)
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: dialogs.append(dialog.message) or dialog.dismiss())
    page.goto(f"{inspector.origin}/#/s/{servers(page)[2]}/tools/ask")
    page.get_by_role("button", name="Run tool").click()
    asked = page.locator(".asked")
    expect(asked).to_contain_text("https://evil.example/")
    asked.get_by_role("button", name="No", exact=True).click()
    expect(page.locator(".bridge")).to_contain_text("The person said no.")
    page.keyboard.press("Control+k")
    expect(page.get_by_role("dialog", name="Go to")).to_be_visible()
    assert dialogs == []


def test_nothing_typed_at_once_is_lost(inspector: Inspector, visit: Visit) -> None:
    """Whoever knows the keys types on without a look at the page."""
    page = visit(inspector)
    page.keyboard.press("Control+k")
    page.keyboard.type("tide")
    expect(page.locator("#palette").locator("xpath=..").locator("input")).to_have_value("tide")
