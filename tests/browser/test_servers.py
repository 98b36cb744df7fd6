"""Point 1 of the inspector's page, servers: several at once, states, stories, stderr, one that is typed in, one that dies."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from .conftest import NARROW, Visit
from .rig import EVERYTHING, RAW, Inspector, inspecting, serving_harbour

pytestmark = [pytest.mark.slow, pytest.mark.deadline(150)]


@pytest.fixture(scope="module")
def inspector() -> Iterator[Inspector]:
    with serving_harbour() as url, inspecting(url, EVERYTHING) as inspector:
        yield inspector


def test_the_servers_of_the_command_line_connect_by_themselves(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector, "#/servers")
    expect(page.locator("article.card", has_text="connected")).to_have_count(2)
    expect(page.locator("article.card", has_text="modern 2026-07-28")).to_have_count(1)
    expect(page.locator("article.card", has_text="legacy 2025-11-25")).to_have_count(1)


def test_every_part_of_the_navigation_is_in_reach_on_a_low_screen(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector, size=(1280, 400))
    page.locator(".nav-server").last.click()
    for name in ("Sessions", "Checks"):
        place = page.get_by_role("navigation").get_by_role("link", name=name)
        place.click()
        expect(place).to_be_in_viewport()
        centre = "link => { const at = link.getBoundingClientRect(); return link.contains(document.elementFromPoint(at.x + 20, at.y + at.height / 2)); }"
        assert place.evaluate(centre), f"{name} lies under something"
        page.go_back()


def test_a_server_is_typed_in_its_stderr_is_shown_and_it_is_removed(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector, "#/servers")
    page.get_by_label("URL or command").fill(RAW)
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(page.locator("main .badge", has_text="connected").first).to_be_visible()
    expect(page.get_by_label("Story of the connection")).to_contain_text("ready")
    expect(page.get_by_role("log", name="stderr")).to_contain_text("raw server starts")
    page.get_by_role("button", name="Remove").click()
    expect(page.locator("main")).to_contain_text("No such server")


def test_a_server_that_does_not_exist_is_shown_as_that(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector, "#/servers")
    page.get_by_label("URL or command").fill("http://127.0.0.1:9/mcp")
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(page.locator("main .failure")).to_contain_text("connection failed")
    for tab in ("Lint", "Cost"):
        page.get_by_role("link", name="Checks").click()
        page.get_by_role("tab", name=tab).click()
        expect(page.locator("main")).to_contain_text("The server is not connected.")
    page.locator(".nav-server").last.click()
    page.get_by_role("button", name="Remove").click()


def test_a_server_that_dies_is_said_to_have_died(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector, "#/servers")
    page.get_by_label("URL or command").fill(RAW)
    page.get_by_role("button", name="Connect", exact=True).click()
    page.wait_for_url("**/#/s/**")
    server = page.url.split("#/s/")[1].split("/")[0]
    page.goto(f"{inspector.origin}/#/s/{server}/tools/dies")
    page.get_by_role("button", name="Run tool").click()
    expect(page.locator(".call .failure")).to_have_attribute("data-blame", "transport")
    page.goto(f"{inspector.origin}/#/s/{server}")
    stderr = page.get_by_role("log", name="stderr")
    expect(stderr).to_contain_text("boom: the process ends now")
    page.set_viewport_size({"width": NARROW[0], "height": NARROW[1]})
    stderr.evaluate("log => log.scrollLeft = 10_000")
    assert stderr.evaluate("log => log.scrollLeft") > 0, "a long line cannot be read"
    page.get_by_role("button", name="Remove").click()


def test_a_server_that_hangs_is_said_to_hang(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector, "#/servers")
    program = "import sys; print('I hang', file=sys.stderr, flush=True); sys.stdin.read()"
    page.get_by_label("URL or command").fill(shlex.join([sys.executable, "-c", program]))
    page.get_by_role("button", name="Connect", exact=True).click()
    expect(page.locator("main")).to_contain_text(re.compile("No answer yet, for [1-9].*It has 1 min"))
    expect(page.locator("main")).to_contain_text("It wrote 1 line to stderr")
    expect(page.get_by_role("log", name="stderr")).to_contain_text("I hang")
    page.get_by_role("link", name="Tools").click()
    expect(page.locator("main")).to_contain_text("has not answered yet")
    page.go_back()
    page.get_by_role("button", name="Remove").click()


def test_programs_of_one_name_are_told_apart(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector, "#/servers")
    expect(page.locator(".nav-server", has_text="server-everything")).to_have_count(1)
    for name in ("raw_server", "raw_server 2"):
        page.goto(f"{inspector.origin}/#/servers")
        page.get_by_label("URL or command").fill(RAW)
        page.get_by_role("button", name="Connect", exact=True).click()
        expect(page.locator("main h1")).to_have_text(name)
    for _ in range(2):
        page.get_by_role("button", name="Remove").click()
        page.get_by_role("link", name="raw_server").first.click() if _ == 0 else None


def test_a_second_browser_without_the_token_sees_nothing(inspector: Inspector, visit: Visit) -> None:
    visit(inspector)
    page = visit(inspector)
    page.context.clear_cookies()
    for path in ("/api/state", "/"):
        assert page.context.request.get(inspector.origin + path).status == 401, path
    again = page.context.request.get(inspector.link, max_redirects=0)
    assert again.status in (401, 403)
