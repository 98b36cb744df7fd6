"""Point 4: every message both ways, filters, search in bodies, copies, HAR, and the timeline."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from .conftest import Visit
from .rig import Inspector, inspecting, serving_harbour

pytestmark = [pytest.mark.slow, pytest.mark.deadline(150)]


@pytest.fixture(scope="module")
def inspector() -> Iterator[Inspector]:
    with serving_harbour() as url, inspecting(url) as inspector:
        yield inspector


def test_form_result_and_wire_are_seen_together(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector, "")
    page.locator(".list-pane").get_by_role("option", name="tide_table").first.click()
    page.get_by_role("button", name="Run tool").click()
    page.locator(".call[data-state=ok]").wait_for()
    for part in (".form-pane", ".result-pane", ".dock .wire-row"):
        box = page.locator(part).first.bounding_box()
        assert box is not None
        assert box["y"] + min(box["height"], 20) <= 800, part
    expect(page.locator(".dock")).to_contain_text("tide_table")


def test_messages_are_filtered_searched_opened_and_copied(inspector: Inspector, visit: Visit, tmp_path: Path) -> None:
    page = visit(inspector, "")
    page.locator(".list-pane").get_by_role("option", name="find_boat").first.click()
    page.locator("[data-path='/name'] textarea").fill("Albatross")
    page.get_by_role("button", name="Run tool").click()
    page.locator(".call[data-state=ok]").wait_for()
    page.goto(f"{inspector.origin}/#/wire")
    page.get_by_label("Direction").select_option("out")
    page.get_by_label("Filter messages").fill("find_boat")
    expect(page.locator(".wire-row")).to_have_count(1)
    page.get_by_label("Direction").select_option("")
    page.get_by_label("Filter messages").fill("readOnlyHint")
    expect(page.locator(".wire-row")).to_have_count(0)
    page.get_by_label("in bodies").check()
    expect(page.locator(".wire-row")).to_have_count(1)
    page.locator(".wire-row").click()
    panel = page.get_by_label("Message", exact=True)
    expect(panel).to_contain_text("readOnlyHint")
    expect(panel).to_contain_text("HTTP")
    panel.get_by_role("link", name="its request").click()
    expect(panel.locator("strong")).to_have_text("tools/list")
    expect(panel.locator(".badge").first).to_have_text("request")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for kind, word in (("curl", "curl"), ("Python", "import"), ("pytest", "def test_")):
        panel.get_by_role("button", name=kind).click()
        expect(page.locator(".notices")).to_contain_text(f"Copied as {kind}")
        assert word in page.evaluate("navigator.clipboard.readText()")
    panel.get_by_role("link", name="tools/list: ").click()
    expect(panel.locator(".badge").first).to_have_text("response")
    assert panel.get_by_label("Copy as").get_by_role("button").all_inner_texts() == ["JSON"], "an answer is not sent"
    with page.expect_download() as download:
        page.get_by_role("button", name="HAR").click()
    har = tmp_path / "trimaran.har"
    download.value.save_as(har)
    assert json.loads(har.read_text())["log"]["entries"]


def test_a_link_leads_to_one_message(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector, "#/wire")
    page.locator(".wire-row").first.click()
    expect(page.get_by_label("Message", exact=True)).to_be_visible()
    address = page.url
    assert "seq=" in address
    again = visit(inspector, address.split("/", 3)[3])
    expect(again.get_by_label("Message", exact=True)).to_be_visible()


def test_the_timeline_zooms_and_its_calls_are_a_table(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector, "")
    page.locator(".list-pane").get_by_role("option", name="tide_table").first.click()
    page.get_by_role("button", name="Run tool").click()
    page.locator(".call[data-state=ok]").wait_for()
    page.goto(f"{inspector.origin}/#/timeline")
    expect(page.locator("table.calls")).to_contain_text("tide_table")
    before = page.locator(".timeline-page .note").first.inner_text()
    page.locator("canvas").focus()
    page.keyboard.press("+")
    expect(page.locator(".timeline-page .note").first).not_to_have_text(before)
