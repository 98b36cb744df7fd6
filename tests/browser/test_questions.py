"""Point 3: questions as cards in their call, in both eras, rounds of a modern call together; nothing answers for the person."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from .conftest import Visit
from .rig import EVERYTHING, Inspector, inspecting, serving_harbour

pytestmark = [pytest.mark.slow, pytest.mark.deadline(150)]


@pytest.fixture(scope="module")
def inspector() -> Iterator[Inspector]:
    with serving_harbour() as url, inspecting(url, EVERYTHING) as inspector:
        yield inspector


def test_a_modern_question_is_a_card_in_its_call_and_the_rounds_are_one_call(
    inspector: Inspector, visit: Visit
) -> None:
    page = visit(inspector)
    page.locator(".nav-server").first.click()
    page.locator(".nav-link", has_text="Tools").click()
    page.locator(".list-pane").get_by_role("option", name="book_berth").first.click()
    page.locator("[data-path='/boat'] textarea").fill("Tern")
    page.get_by_role("button", name="Run tool").click()
    card = page.locator(".call .question")
    expect(card).to_contain_text("How long will you stay?")
    expect(page.locator(".call-head .badge").first).to_have_text("waiting for you")
    expect(page.locator(".topbar")).to_contain_text("1 question waits")
    card.locator("[data-path='/nights'] input").fill("99")
    card.get_by_role("button", name="Answer").click()
    expect(card.locator("[data-path='/nights'] .field-error")).to_be_visible()
    card.locator("[data-path='/nights'] input").fill("3")
    card.get_by_role("button", name="Answer").click()
    expect(page.locator(".call[data-state=ok]")).to_contain_text("nights: 3")
    expect(page.locator(".call-head")).to_contain_text("2 rounds")
    page.get_by_role("tab", name="Steps").click()
    expect(page.locator(".steps")).to_contain_text("answered: accept")
    answered = page.get_by_label("Answered question")
    expect(answered).to_contain_text("How long will you stay?")
    expect(answered).to_contain_text('"nights": 3')


def test_a_legacy_sampling_request_is_answered_by_hand(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    page.locator(".nav-server").nth(1).click()
    page.locator(".nav-link", has_text="Tools").click()
    page.locator(".list-pane").get_by_role("option", name="trigger-sampling-request").first.click()
    page.locator("[data-path='/prompt'] textarea").fill("Say ahoy")
    page.get_by_role("button", name="Run tool").click()
    page.goto(f"{inspector.origin}/#/questions")
    card = page.locator(".question")
    expect(card).to_contain_text("Say ahoy")
    expect(card).to_contain_text("legacy")
    expect(card).to_contain_text("You are a helpful test server.")  # the system prompt
    card.get_by_label("The answer, in the model's place").fill("Ahoy from a person")
    card.get_by_role("button", name="Answer by hand").click()
    expect(page.locator("main")).to_contain_text("Nobody is asking")
    page.go_back()
    expect(page.locator(".call[data-state=ok]")).to_contain_text("Ahoy from a person")


def test_a_declined_question_is_told_to_the_server(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    page.locator(".nav-server").first.click()
    page.locator(".nav-link", has_text="Tools").click()
    page.locator(".list-pane").get_by_role("option", name="book_berth").first.click()
    page.locator("[data-path='/boat'] textarea").fill("Puffin")
    page.get_by_role("button", name="Run tool").click()
    page.locator(".call .question").get_by_role("button", name="Decline").click()
    expect(page.locator(".call[data-state=ok]")).to_contain_text("booked: false")
