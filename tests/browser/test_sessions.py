"""Point 8: a session is recorded, replayed, compared, exported, mocked and turned into tests; saved calls run."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, Route, expect

from .conftest import Visit
from .rig import Inspector, environment, inspecting, serving_harbour

pytestmark = [pytest.mark.slow, pytest.mark.deadline(150)]


@pytest.fixture(scope="module")
def inspector() -> Iterator[Inspector]:
    with serving_harbour() as url, inspecting(url) as inspector:
        yield inspector


def call(page: Page, inspector: Inspector, boat: str) -> None:
    page.goto(f"{inspector.origin}/#/servers")
    page.locator(".nav-server").first.click()
    page.locator(".nav-link", has_text="Tools").click()
    page.locator(".list-pane").get_by_role("option", name="find_boat").first.click()
    page.locator("[data-path='/name'] textarea").fill(boat)
    page.get_by_role("button", name="Run tool").click()
    expect(page.locator(".call[data-state=ok]")).to_contain_text(boat)


def test_a_recording_becomes_a_mock_server_and_a_test_file_that_passes(
    inspector: Inspector, visit: Visit, tmp_path: Path
) -> None:
    page = visit(inspector, "#/sessions")
    page.get_by_label("Name").fill("first")
    page.get_by_role("button", name="Record from now").click()
    expect(page.locator(".topbar")).to_contain_text("recording")
    call(page, inspector, "Tern")
    page.goto(f"{inspector.origin}/#/sessions")
    page.get_by_role("button", name="Stop recording").click()
    card = page.locator("article.card", has_text="first")
    expect(card).to_contain_text("1 call")
    with page.expect_download() as exported:
        card.get_by_role("button", name="Export").click()
    recording = tmp_path / "first.json"
    exported.value.save_as(recording)
    assert json.loads(recording.read_text())
    with page.expect_download() as tests:
        card.get_by_role("button", name="pytest file").click()
    file = tmp_path / "test_first.py"
    tests.value.save_as(file)
    mock = {"MCP_TARGET": shlex.join([sys.executable, "-m", "trimaran", "serve", str(recording)])}
    for elsewhere in ({}, mock):
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(file)],
            cwd=tmp_path, env={**environment(tmp_path), **elsewhere}, capture_output=True, text=True, timeout=90, check=False,
        )  # fmt: skip
        assert run.returncode == 0, f"{elsewhere}: {run.stdout}{run.stderr}"
    card.get_by_role("button", name="Mock server").click()
    expect(page.locator("main .badge", has_text="connected").first).to_be_visible()
    page.locator(".nav-link", has_text="Tools").click()
    page.locator(".list-pane").get_by_role("option", name="find_boat").first.click()
    page.locator("[data-path='/name'] textarea").fill("Tern")
    page.get_by_role("button", name="Run tool").click()
    expect(page.locator(".call[data-state=ok]")).to_contain_text("trimaran")


def test_a_recording_is_replayed_and_two_are_compared(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector, "#/sessions")
    for name, boat in (("one", "Tern"), ("two", "Puffin")):
        page.goto(f"{inspector.origin}/#/sessions")
        page.get_by_label("Name").fill(name)
        page.get_by_role("button", name="Record from now").click()
        expect(page.locator(".topbar")).to_contain_text("recording")
        call(page, inspector, boat)
        page.goto(f"{inspector.origin}/#/sessions")
        page.get_by_role("button", name="Stop recording").click()
        expect(page.locator(".topbar")).not_to_contain_text("recording")
    page.get_by_role("link", name="one", exact=True).click()
    page.get_by_role("button", name="Replay the calls").click()
    expect(page.get_by_label("Replay").locator(".badge").first).to_have_text("same")
    page.goto(f"{inspector.origin}/#/sessions/compare")
    page.get_by_label("First recording").select_option(label="one")
    page.get_by_label("Second recording").select_option(label="two")
    page.get_by_role("button", name="Compare").click()
    expect(page.get_by_label("Comparison").locator(".verdict")).to_contain_text("differs")


def test_a_saved_call_runs_and_fails_when_its_expectation_does(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector, "#/")
    call(page, inspector, "Tern")
    page.get_by_role("button", name="Save call").click()
    page.goto(f"{inspector.origin}/#/sessions/saved")
    card = page.locator("article.card", has_text="find_boat")
    card.get_by_role("button", name="Run").click()
    expect(card).to_contain_text("passed")
    card.get_by_label("Expectation", exact=True).select_option("error")
    card.get_by_role("button", name="Run").click()
    expect(card).to_contain_text("failed")


def test_a_call_that_begins_late_takes_nobody_back_to_its_form(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector, "#/")
    page.goto(f"{inspector.origin}/#/servers")
    page.locator(".nav-server").first.click()
    page.locator(".nav-link", has_text="Tools").click()
    page.locator(".list-pane").get_by_role("option", name="find_boat").first.click()
    page.locator("[data-path='/name'] textarea").fill("Tern")
    requests: list[Route] = []
    page.route("**/api/calls", lambda route: requests.append(route))
    with page.expect_request("**/api/calls"):
        page.get_by_role("button", name="Run tool").click()
    page.goto(f"{inspector.origin}/#/sessions")
    expect(page.get_by_role("button", name="Record from now")).to_be_visible()
    with page.expect_response("**/api/calls"):
        requests[0].continue_()
    expect(page.get_by_role("button", name="Record from now")).to_be_visible()
    expect(page).to_have_url(f"{inspector.origin}/#/sessions")
