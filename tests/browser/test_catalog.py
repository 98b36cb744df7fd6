"""Point 2: forms of every shape, checks at the field, completion, progress, results as what they are, apps in their frame."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from .conftest import Visit
from .rig import EVERYTHING, RAW, ROOT, Inspector, inspecting, serving_harbour

pytestmark = [pytest.mark.slow, pytest.mark.deadline(150)]


@pytest.fixture(scope="module")
def inspector() -> Iterator[Inspector]:
    with (
        serving_harbour() as url,
        inspecting(url, RAW, EVERYTHING, str(ROOT / "examples" / "app_server.py")) as inspector,
    ):
        yield inspector


def open_tool(page: Page, server: int, tool: str, kind: str = "tools") -> None:
    """Open the tool of the server at this place on the command line."""
    link = page.locator(".nav-server").nth(server)
    link.click()
    page.locator(".nav-link", has_text=kind.capitalize()).first.click()
    page.locator(".list-pane").get_by_role("option", name=tool).first.click()
    page.wait_for_selector(".form-pane")


def test_a_form_has_a_widget_for_every_shape_and_changes_no_value(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    open_tool(page, 1, "shapes")
    form = page.locator(".schema-form")
    form.get_by_label("name", exact=False).first.fill("Tern")
    form.locator("[data-path='/count'] input").fill("99")
    form.locator("[data-path='/big'] input").fill("9007199254740993")
    form.get_by_role("radio", name="false").click()
    form.locator("[data-path='/rig'] select").select_option(label="ketch")
    form.get_by_role("button", name="Add item to tags").click()
    form.get_by_label("tags 0", exact=True).fill("fast")
    form.get_by_label("tue").check()
    form.get_by_role("button", name="Fill in … place").click()
    form.locator("[data-path='/place/x'] input").fill("1.50")
    form.get_by_label("Kind of target").select_option(label="By name")
    form.locator("[data-path='/target'] textarea").fill("harbour")
    form.get_by_label("New key").fill("colour")
    form.locator("[data-path='/labels']").get_by_role("button", name="Add").click()
    form.get_by_label("Value of colour").fill("red")
    form.get_by_label("Pick day").fill("2026-11-18")
    expect(form.locator("[data-path='/password'] input")).to_have_attribute("type", "password")
    form.locator("[data-path='/password'] input").fill("s3cret")
    form.locator("[data-path='/note']").get_by_role("button", name="null").click()
    form.locator("[data-path='/anything'] textarea").fill('{"deep": [1]}')
    expect(form.locator("[data-path='/count'] .field-error")).to_be_visible()

    page.get_by_role("button", name="Run tool").click()
    expect(page.locator(".failure-line")).to_contain_text("Not sent")
    page.get_by_role("button", name="Send anyway").click()
    page.locator(".call[data-state=ok]").wait_for()
    page.get_by_role("tab", name="Raw").click()
    page.get_by_role("tab", name="Result").click()
    page.get_by_role("button", name="text", exact=True).click()
    raw = page.locator(".result-pane pre.block").first.inner_text()
    assert "9007199254740993" in raw
    sent = json.loads(raw)
    assert sent["count"] == 99
    assert sent == {
        **sent,
        "name": "Tern", "flag": False, "rig": "ketch", "tags": ["fast"], "days": ["tue"], "place": {"x": 1.5}, "target": "harbour",
        "labels": {"colour": "red"}, "day": "2026-11-18", "password": "s3cret", "note": None, "anything": {"deep": [1]},
    }  # fmt: skip
    assert "at" not in sent


def test_changes_that_come_before_the_page_is_drawn_again_are_all_kept(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    open_tool(page, 1, "shapes")
    expect(page.locator("[data-path='/count'] input")).to_be_visible()
    page.evaluate(
        """() => {
            const at = (path, selector) => document.querySelector(`[data-path='${path}'] ${selector}`);
            const type = (field, text) => {
                field.value = text;
                field.dispatchEvent(new InputEvent("input", {bubbles: true}));
            };
            type(at("/name", "textarea"), "Tern");
            type(at("/count", "input"), "7");
            at("/tags", "button[aria-label='Add item to tags']").click();
            at("/tags", "button[aria-label='Add item to tags']").click();
            for (const box of [...document.querySelectorAll("[data-path='/days'] input")].slice(0, 2)) box.click();
        }"""
    )
    page.get_by_role("radio", name="JSON").click()
    arguments = json.loads(page.get_by_label("Arguments as JSON").inner_text())
    assert (arguments["name"], arguments["count"]) == ("Tern", 7)
    assert len(arguments["tags"]) == 2 and len(arguments["days"]) == 2


def test_a_number_is_sent_with_the_digits_that_were_typed(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    open_tool(page, 1, "conditions")
    price = page.locator("[data-path='/price'] input")
    for digits in ("1.50", "12345678.123456789012", "1e400"):
        price.fill(digits)
        page.reload()
        expect(price).to_have_value(digits)
        with page.expect_request("**/api/calls") as sent:
            page.get_by_role("button", name="Run tool").click()
        assert f'"price":{digits}' in (sent.value.post_data or "")
    expect(page.locator(".form-pane .failure")).to_contain_text("Number out of range")


def test_fields_of_a_condition_and_places_of_a_tuple_have_widgets(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    open_tool(page, 1, "conditions")
    page.locator("[data-path='/kind'] select").select_option(label="url")
    expect(page.locator("[data-path='/address'] textarea")).to_be_visible()
    pair = page.locator("[data-path='/pair']")
    for _ in range(2):
        pair.get_by_role("button", name="Add item to pair").click()
    expect(pair.get_by_role("radio", name="true")).to_be_visible()
    page.get_by_role("button", name="Run tool").click()
    expect(page.locator("[data-path='/address'] .field-error")).to_contain_text("required")


def test_what_an_item_remembers_moves_and_goes_with_it(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    open_tool(page, 1, "conditions")
    page.get_by_role("button", name="Clear", exact=True).click()
    items = page.locator("[data-path='/list']")
    kinds = items.locator("select")
    for number, kind in enumerate(("string", "integer", "boolean")):
        items.get_by_role("button", name="Add item to list").click()
        kinds.nth(number).select_option(label=kind)
    items.get_by_role("button", name="Remove list 0").click()
    expect(kinds).to_have_count(2)
    assert [kind.input_value() for kind in kinds.all()] == ["1", "2"]
    items.get_by_role("button", name="Move list 0 down").click()
    expect(kinds.nth(0)).to_have_value("2")
    expect(kinds.nth(1)).to_have_value("1")


def test_half_typed_json_outlives_a_reload_and_one_click_brings_arguments_back(
    inspector: Inspector, visit: Visit
) -> None:
    page = visit(inspector)
    open_tool(page, 0, "find_boat")
    page.locator("[data-path='/name'] textarea").fill("Tern")
    page.get_by_role("button", name="Example", exact=True).click()
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("[data-path='/name'] textarea")).to_have_value("Tern")
    expect(page.get_by_role("button", name="Undo")).to_have_count(0)
    page.get_by_role("radio", name="JSON").click()
    page.get_by_label("Arguments as JSON").fill('{"name": "Pu')
    expect(page.get_by_role("button", name="Run tool")).to_be_disabled()
    page.reload()
    expect(page.get_by_label("Arguments as JSON")).to_contain_text('{"name": "Pu')


def test_a_large_picture_is_shown_as_a_picture(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    open_tool(page, 1, "paint")
    page.get_by_role("button", name="Run tool").click()
    expect(page.locator(".result-pane")).to_contain_text("700 × 700")
    expect(page.locator(".result-pane .picture")).to_be_visible()
    with page.expect_download() as saved:
        page.locator(".content-tools").get_by_role("button", name="Save").click()
    assert saved.value.path().read_bytes().startswith(b"\x89PNG")


def test_what_was_typed_and_called_survives_a_reload(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    open_tool(page, 0, "find_boat")
    page.locator("[data-path='/name'] textarea").fill("Tern")
    page.keyboard.press("Control+Enter")
    page.locator(".call[data-state=ok]").wait_for()
    page.locator("[data-path='/name'] textarea").fill("Puff")
    page.reload()
    expect(page.locator("[data-path='/name'] textarea")).to_have_value("Puff")
    expect(page.locator(".call[data-state=ok]")).to_contain_text("trimaran")
    page.get_by_role("button", name="Use these arguments").click()
    expect(page.locator("[data-path='/name'] textarea")).to_have_value("Tern")


def test_the_json_editor_holds_the_same_arguments(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    open_tool(page, 0, "find_boat")
    page.get_by_role("radio", name="JSON").click()
    editor = page.get_by_label("Arguments as JSON")
    editor.fill('{"name": "Albatross"}')
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Run tool")).to_be_focused()  # no trap
    page.get_by_role("radio", name="Form").click()
    expect(page.locator("[data-path='/name'] textarea")).to_have_value("Albatross")


def test_each_error_and_each_value_is_shown_in_the_form(inspector: Inspector, visit: Visit) -> None:
    """Of a map's value, of a choice that is not in the list, in a list's item: they have no label of their own."""
    page = visit(inspector)
    open_tool(page, 1, "shapes")
    page.get_by_role("radio", name="JSON").click()
    wrong = {"name": "Tern", "count": 1, "labels": {"colour": 5}, "days": ["sun"], "tags": [7], "anything": {}}
    page.get_by_label("Arguments as JSON").fill(json.dumps(wrong))
    page.get_by_role("radio", name="Form").click()
    for path, problem in (("/labels", "5 is not of type"), ("/days", '/0: "sun" is not one of'), ("/tags", "7 is not")):
        expect(page.locator(f"[data-path='{path}'] .field-error")).to_contain_text(problem)
    expect(page.get_by_label("sun (not in the list)")).to_be_checked()
    expect(page.locator("[data-path='/name'] textarea")).to_have_attribute("dir", "auto")


def test_who_failed_is_said(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    for tool, badge, blame in (("breaks_promise", "breaks its schema", "check"), ("refuses", "server error", "server")):
        open_tool(page, 1, tool)
        page.get_by_role("button", name="Run tool").click()
        expect(page.locator(".call-head .badge").first).to_have_text(badge)
        expect(page.locator(".call .failure")).to_have_attribute("data-blame", blame)
    open_tool(page, 1, "is_error")
    page.get_by_role("button", name="Run tool").click()
    expect(page.locator(".call-head .badge").first).to_have_text("tool error")
    expect(page.locator(".call")).not_to_contain_text("OK")


def test_progress_stands_in_the_call_and_escape_cancels_it(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    open_tool(page, 1, "waits")
    page.get_by_role("button", name="Run tool").click()
    expect(page.locator(".progress")).to_contain_text("7 of 20")
    expect(page.locator(".progress")).to_contain_text("reading")
    page.locator("main").focus()
    page.keyboard.press("Escape")
    expect(page.locator(".call-head .badge").first).to_have_text("cancelled")


def test_results_are_shown_as_what_they_are(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    open_tool(page, 1, "everything")
    page.get_by_role("button", name="Run tool").click()
    pane = page.locator(".result-pane")
    expect(pane.locator(".markdown strong")).to_have_text("bold")
    expect(pane.locator("table.data td", has_text="Tern")).to_be_visible()
    expect(pane.get_by_alt_text("A picture from the server, image/png")).to_be_visible()
    expect(pane.locator("audio")).to_be_visible()
    expect(pane).to_contain_text("The guide")
    expect(pane).to_contain_text("demo://inside")
    expect(pane).to_contain_text("embedded text")
    expect(pane).to_contain_text("for user")


def test_resources_templates_and_prompts_with_completion(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    open_tool(page, 0, "Harbour guide", "resources")
    page.get_by_role("button", name="Read resource").click()
    expect(page.locator(".markdown h1")).to_have_text("Port Trimaran")
    open_tool(page, 0, "log://", "templates")
    box = page.get_by_role("combobox", name="day")
    box.press_sequentially("fr")
    page.get_by_role("option", name="friday", exact=True).click()
    page.get_by_role("button", name="Read resource").click()
    expect(page.locator(".result-pane")).to_contain_text("Clear and calm")
    open_tool(page, 0, "plan_passage", "prompts")
    page.get_by_role("combobox", name="destination").press_sequentially("Gu")
    page.get_by_role("option", name="Gull Rock", exact=True).click()
    page.get_by_role("button", name="Get prompt").click()
    expect(page.locator(".result-pane")).to_contain_text("Plan a day's sail from Port Trimaran to Gull Rock")


def test_what_is_completed_depends_on_what_else_was_typed(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    open_tool(page, 2, "completable-prompt", "prompts")
    page.get_by_role("button", name="Get prompt").click()
    expect(page.locator("[data-path='/department'] .field-error")).to_have_text('"department" is required')
    page.get_by_role("combobox", name="department").press_sequentially("Sal")
    page.get_by_role("option", name="Sales", exact=True).click()
    page.get_by_role("combobox", name="name").press_sequentially("D")
    page.get_by_role("option", name="David", exact=True).click()
    page.get_by_role("button", name="Get prompt").click()
    expect(page.locator(".result-pane")).to_contain_text("David")
    expect(page.get_by_role("button", name="Send anyway")).to_have_count(0)


def test_the_list_is_searched_and_a_link_opens_the_tool_with_its_arguments(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    open_tool(page, 0, "find_boat")
    page.keyboard.press("Escape")
    page.locator("main").focus()
    page.keyboard.press("/")
    page.keyboard.type("flags")
    expect(page.locator(".list-pane").get_by_role("option")).to_have_count(1)
    server = page.url.split("#/s/")[1].split("/")[0]
    page.goto(f"{inspector.origin}/#/s/{server}/tools/tide_table?args=%7B%22day%22%3A7%7D")
    expect(page.locator("[data-path='/day'] input")).to_have_value("7")


def test_an_app_runs_in_its_frame_and_its_bridge_is_seen(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    open_tool(page, 3, "tides")
    page.locator("[data-path='/harbour'] textarea").fill("Dover")
    page.get_by_role("button", name="Run tool").click()
    frame = page.frame_locator("iframe")
    expect(frame.locator("#harbour")).to_have_text("Dover")
    expect(page.locator(".bridge")).to_contain_text("ui/initialize")
    frame.get_by_role("button", name="Tomorrow").click()
    expect(frame.locator("#harbour")).to_contain_text("in 1 d")
    expect(page.locator(".bridge")).to_contain_text("tools/call")
    assert page.locator("iframe").get_attribute("sandbox") == "allow-scripts allow-forms"
