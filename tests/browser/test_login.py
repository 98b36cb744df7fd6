"""Point 6: a login one request at a time, against oidc-provider, and a server that wants its tokens."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from .conftest import Visit
from .rig import MODULES, NODE, ROOT, Inspector, end, inspecting, need

pytestmark = [pytest.mark.slow, pytest.mark.deadline(150)]


@pytest.fixture(scope="module")
def guarded() -> Iterator[str]:
    """A guarded notebook behind oidc-provider, in processes of their own."""
    need(NODE, MODULES / "oidc-provider")
    words = [sys.executable, "-m", "tests.interop.auth.serve_guarded"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().decode().strip()
        finally:
            end(process)


@pytest.fixture(scope="module")
def inspector(guarded: str) -> Iterator[Inspector]:
    with inspecting(guarded) as inspector:
        yield inspector


def log_in(page: Page) -> None:
    """On the provider's own pages, as a person does."""
    page.locator("input[name=login]").fill("ada")
    page.locator("input[name=password]").fill("any")
    page.locator("button[type=submit]").click()
    page.locator("button[type=submit]", has_text="Continue").click()


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
    address = flow.get_by_role("link", name="Open the login page").get_attribute("href")
    assert address is not None
    # A browser of its own: the page itself may ask nobody else, and the fixture would say so.
    browser = page.context.browser
    assert browser is not None
    other = browser.new_context()
    try:
        login = other.new_page()
        login.goto(address)
        log_in(login)
        expect(flow.locator(".flow-head .badge")).to_have_text("done")
    finally:
        other.close()
    expect(page.get_by_label("Token")).to_contain_text("refresh token")
    expect(page.locator(".topbar .badge")).to_have_text("connected")
    page.get_by_role("button", name="Refresh the token").click()
    flow.get_by_role("button", name="All the rest").click()
    expect(flow.locator(".oauth-steps")).to_contain_text("grant: refresh_token")
    expect(flow.locator(".flow-head .badge")).to_have_text("done")
