"""Point 5: the other era, another revision, fewer capabilities, a slow, cut or restarted server: one click, difference shown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from .conftest import Visit
from .rig import RAW, Inspector, inspecting, serving_harbour

pytestmark = [pytest.mark.slow, pytest.mark.deadline(150)]


@pytest.fixture(scope="module")
def inspector() -> Iterator[Inspector]:
    with serving_harbour() as url, inspecting(url, RAW) as inspector:
        yield inspector


@pytest.mark.parametrize(("tile", "word"), [("The other era", "legacy"), ("Revision 2025-06-18", "2025-06-18")])
def test_a_harbour_speaks_both_eras(inspector: Inspector, visit: Visit, tile: str, word: str) -> None:
    page = visit(inspector)
    page.locator(".nav-server").first.click()
    page.locator(".nav-link", has_text="Try differently").click()
    page.get_by_role("button", name=tile).click()
    result = page.get_by_label("Difference")
    expect(result.locator(".verdict .badge")).to_be_visible()
    expect(result.locator(".card").nth(1)).to_contain_text(word)
    expect(result.locator(".card").nth(1)).to_contain_text("works")


HTTP, STDIO = 0, 1  # places on the command line


@pytest.mark.parametrize(
    ("server", "tile", "outcome"),
    [
        (HTTP, "No capabilities", "works"),
        (HTTP, "No token", "works"),
        (HTTP, "A slow network", "works"),
        (HTTP, "A cut stream", "fails"),
        (HTTP, "A restarted server", "works"),
        (STDIO, "No capabilities", "works"),
        (STDIO, "A slow network", "works"),
        (STDIO, "A cut stream", "reconnecting"),
        (STDIO, "A restarted server", "was killed"),
    ],
)
def test_each_other_condition_takes_one_click(
    inspector: Inspector, visit: Visit, server: int, tile: str, outcome: str
) -> None:
    page = visit(inspector)
    page.locator(".nav-server").nth(server).click()
    page.locator(".nav-link", has_text="Try differently").click()
    page.get_by_role("button", name=tile).click()
    result = page.get_by_label("Difference")
    expect(result.locator(".verdict .badge")).to_be_visible()
    expect(result.locator(".card").nth(0)).to_contain_text("works")
    expect(result.locator(".card").nth(1)).to_contain_text(outcome)


def test_a_program_is_not_tried_without_a_token(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    page.locator(".nav-server").nth(STDIO).click()
    page.locator(".nav-link", has_text="Try differently").click()
    expect(page.get_by_role("button", name="A cut stream")).to_be_visible()
    expect(page.get_by_role("button", name="No token")).to_have_count(0)


def test_a_legacy_server_fails_in_the_modern_era_and_that_is_said(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    page.locator(".nav-server").nth(1).click()
    page.locator(".nav-link", has_text="Try differently").click()
    page.get_by_role("button", name="The other era").click()
    result = page.get_by_label("Difference")
    expect(result.locator(".verdict")).to_contain_text("differs")
    expect(result.locator(".card").nth(1)).to_contain_text("fails")


def test_a_call_is_tried_without_elicitation(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    page.locator(".nav-server").first.click()
    page.locator(".nav-link", has_text="Tools").click()
    page.locator(".list-pane").get_by_role("option", name="tide_table").first.click()
    page.get_by_role("button", name="Run tool").click()
    page.locator(".call[data-state=ok]").wait_for()
    page.locator(".nav-link", has_text="Try differently").click()
    page.get_by_label("With the call").select_option(label="tide_table")
    page.get_by_role("button", name="No elicitation").click()
    expect(page.get_by_label("Difference").locator(".card").nth(1)).to_contain_text("works")
