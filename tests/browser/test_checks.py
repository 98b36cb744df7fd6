"""Point 7: doctor, lint, cost and permissions."""

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


def test_the_doctor_examines_a_server(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    page.locator(".nav-server").first.click()
    page.locator(".nav-link", has_text="Checks").click()
    page.get_by_role("button", name="Examine").click()
    expect(page.locator("main .badge", has_text="healthy").first).to_be_visible()
    assert page.locator(".check-list li").count() > 3


def test_lint_finds_the_hidden_sentence(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    page.locator(".nav-server").nth(1).click()
    page.locator(".nav-link", has_text="Checks").click()
    page.get_by_role("tab", name="Lint").click()
    worst = page.locator(".findings > li").first
    expect(worst.locator(".badge").first).to_have_text("fail")
    # What is wrong in many places is said once, with the provider that minds.
    unlisted = page.locator(".findings > li", has_text="the top lists no properties")
    expect(unlisted).to_have_count(1)
    expect(unlisted).to_contain_text("OpenAI")
    unlisted.locator("summary").click()
    expect(unlisted.locator("li")).to_have_count(9)


def test_cost_is_counted_per_tool(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    page.locator(".nav-server").first.click()
    page.locator(".nav-link", has_text="Checks").click()
    page.get_by_role("tab", name="Cost").click()
    expect(page.locator("table.data tbody tr")).to_have_count(6)
    expect(page.locator("main")).to_contain_text("tokens in every request")


def test_the_rule_that_decides_is_named(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    page.locator(".nav-server").first.click()
    page.locator(".nav-link", has_text="Checks").click()
    page.get_by_role("tab", name="Permissions").click()
    page.get_by_label("Tool", exact=True).select_option("book_berth")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_label("Verdict").locator(".verdict .badge")).to_be_visible()
    page.get_by_label("deny, one rule per line").fill("mcp__*__book_berth")
    page.get_by_label("allow, one rule per line").fill("book_berth(")
    page.get_by_role("button", name="Explain").click()
    expect(page.get_by_label("Verdict").locator(".verdict .badge")).to_have_text("deny")
    expect(page.get_by_label("Verdict").locator(".field-error")).to_contain_text("is never closed")
