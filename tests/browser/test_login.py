"""Point 6: a login one request at a time, against oidc-provider, and a server that wants its tokens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from .conftest import Visit
from .rig import MODULES, NODE, ROOT, Inspector, end, inspecting, need

pytestmark = [pytest.mark.slow, pytest.mark.deadline(150)]


@pytest.fixture(scope="module")
def guarded() -> Iterator[list[str]]:
    """Two guarded notebooks behind oidc-provider, in processes of their own; the second wants tokens bound to a key."""
    need(NODE, MODULES / "oidc-provider")
    words = [sys.executable, "-m", "tests.interop.auth.serve_guarded"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().decode().split()
        finally:
            end(process)


@pytest.fixture
def inspector(guarded: list[str]) -> Iterator[Inspector]:
    with inspecting(guarded[0]) as inspector:
        yield inspector


def log_in(page: Page) -> None:
    """On the provider's own pages, as a person does."""
    page.locator("input[name=login]").fill("ada")
    page.locator("input[name=password]").fill("any")
    page.locator("button[type=submit]").click()
    page.locator("button[type=submit]", has_text="Continue").click()


def finish(page: Page, flow: Locator, outcome: str) -> None:
    """Open the login page in a browser of its own: the inspector's page may ask nobody else, and the fixture would say so."""
    address = flow.get_by_role("link", name="Open the login page").get_attribute("href")
    assert address is not None
    browser = page.context.browser
    assert browser is not None
    other = browser.new_context()
    try:
        login = other.new_page()
        login.goto(address)
        log_in(login)
        expect(flow.locator(".flow-head .badge")).to_have_text(outcome)
    finally:
        other.close()


def test_a_person_walks_through_the_login(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector, "#/servers")
    expect(page.locator("article.card")).to_contain_text("needs a login")
    expect(page.locator("article.card .failure-who")).to_contain_text("The server wants a login")  # nobody tried one
    page.get_by_role("link", name="Log in, step by step").click()
    page.get_by_role("button", name="Log in step by step").click()
    flow = page.get_by_label("The login")
    steps = flow.locator(".oauth-steps > li")
    for done in range(1, 4):
        flow.get_by_role("button", name="Next:").click()
        expect(steps).to_have_count(done)
    expect(flow.locator(".oauth-steps")).to_contain_text("protected resource metadata")
    flow.get_by_role("button", name="All the rest").click()
    expect(flow.get_by_role("link", name="Open the login page")).to_be_visible()
    expect(flow.locator(".phases .reached")).to_contain_text(
        ["challenge", "discovery", "registration", "authorization"]
    )
    finish(page, flow, "done")
    expect(page.get_by_label("Token")).to_contain_text("refresh token")
    expect(page.locator(".topbar .badge")).to_have_text("connected")
    page.get_by_role("button", name="Refresh the token").click()
    flow.get_by_role("button", name="All the rest").click()
    expect(flow.locator(".oauth-steps")).to_contain_text("grant: refresh_token")
    expect(flow.locator(".flow-head .badge")).to_have_text("done")


def begin_bound(page: Page) -> Locator:
    """Begin a login with DPoP."""
    page.locator(".nav-server").first.click()
    page.get_by_role("navigation").get_by_role("link", name="Login", exact=True).click()
    page.get_by_text("Client and scopes").click()
    page.get_by_label("bind the token to a key").check()
    page.get_by_role("button", name="Log in at once").click()
    flow = page.get_by_label("The login")
    expect(flow.get_by_role("link", name="Open the login page")).to_be_visible()
    return flow


def test_a_token_is_bound_to_a_key_and_widened(guarded: list[str], visit: Visit) -> None:
    with inspecting(guarded[1]) as inspector:
        page = visit(inspector, "#/servers")
        flow = begin_bound(page)
        finish(page, flow, "done")
        expect(page.get_by_label("Token").locator(".facts-list")).to_contain_text("dpop", ignore_case=True)
        expect(page.locator(".topbar .badge")).to_have_text("connected")
        more = page.get_by_role("button", name="Ask for more scopes")
        expect(more).to_be_disabled()  # which?
        page.get_by_label("Scopes", exact=True).fill("notes:write")
        more.click()
        flow.get_by_role("button", name="All the rest").click()
        expect(flow.get_by_role("link", name="Open the login page")).to_be_visible()


def test_a_server_that_takes_no_bound_tokens_is_named_as_that(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector, "#/servers")
    flow = begin_bound(page)
    finish(page, flow, "failed")
    expect(flow.locator(".failure-who")).to_contain_text("The login failed")
    expect(flow.locator(".oauth-steps > li").last).to_contain_text("log in again without DPoP")
