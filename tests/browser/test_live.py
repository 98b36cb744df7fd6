"""Points 1 and 2 while things change: watched resources, lists that grow, tasks, skills, lost sessions, long answers, files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.support.ports import find_port
from tests.support.until import wait_until

from .conftest import Visit
from .rig import LINK, ROOT, START_LIMIT, Inspector, end, environment, inspecting, serving_harbour

pytestmark = [pytest.mark.slow, pytest.mark.deadline(150)]

SERVER = """
import sys
from pathlib import Path
from trimaran import Context, Server
from trimaran.ext import Skills
from trimaran.ext.tasks import Tasks

server = Server("yard")
server.enable_extension(Tasks(poll=0.05))
server.enable_extension(Skills(Path({skills})))
news = ["calm"]

@server.resource("news://today")
def today() -> str:
    "Today's news."
    return news[-1]

@server.tool
def report(text: str) -> str:
    "Write the news."
    news.append(text)
    server.notify.resource_updated("news://today")
    return "written"

@server.tool
def learn(name: str) -> str:
    "Offer one more tool."
    server.add_tool(lambda: "done", name=name)
    return "learnt"

@server.tool(long_running=True)
async def build(hulls: int, ctx: Context) -> str:
    "Build a boat, hull by hull."
    for hull in range(hulls):
        await ctx.progress(hull + 1, total=hulls, message=f"hull {{hull + 1}}")
    return f"{{hulls}} hulls"

if __name__ == "__main__":
    server.run(*sys.argv[1:2], **({{"inspect": True, "port": int(sys.argv[2])}} if sys.argv[2:] else {{}}))
"""


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("yard") / "yard.py"
    file.write_text(SERVER.format(skills=repr(str(ROOT / "examples" / "skills"))))
    return file


@pytest.fixture(scope="module")
def inspector(yard: Path) -> Iterator[Inspector]:
    with inspecting(str(yard)) as inspector:
        yield inspector


def pick(page: Page, part: str, name: str) -> None:
    page.get_by_role("navigation").get_by_role("link", name=part).click()
    page.locator(".list-pane").get_by_role("option", name=name).first.click()
    page.wait_for_selector(".form-pane")


def run(page: Page, tool: str, argument: str, value: str) -> None:
    pick(page, "Tools", tool)
    page.locator(f"[data-path='/{argument}']").locator("input, textarea").first.fill(value)
    page.get_by_role("button", name="Run tool").click()
    page.locator(".call[data-state=ok]").wait_for()


def test_a_watched_resource_says_when_it_changed(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    pick(page, "Resources", "today")
    page.get_by_role("button", name="Watch for changes").click()
    expect(page.get_by_role("button", name="Stop watching")).to_be_visible()
    run(page, "report", "text", "a gale")
    pick(page, "Resources", "today")
    expect(page.locator(".bench-head .badge", has_text="changed")).to_be_visible()
    page.get_by_role("button", name="Read resource").click()
    expect(page.locator(".call[data-state=ok]")).to_contain_text("a gale")
    page.get_by_role("button", name="Stop watching").click()
    expect(page.get_by_role("button", name="Watch for changes")).to_be_visible()


def test_a_list_grows_while_it_is_looked_at(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    run(page, "learn", "name", "splice")
    expect(page.locator(".list-pane").get_by_role("option", name="splice")).to_be_visible()


def test_a_call_as_a_task_has_its_place_among_the_tasks(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    page.get_by_role("navigation").get_by_role("link", name="Tasks").click()
    expect(page.locator(".wide-pane")).to_contain_text("has become a task yet")
    run(page, "build", "hulls", "3")
    expect(page.locator(".call")).to_contain_text("3 hulls")
    page.get_by_role("navigation").get_by_role("link", name="Tasks").click()
    page.locator(".list-pane").get_by_role("option", name="completed").first.click()
    expect(page.locator(".wide-pane")).to_contain_text("completed")


def test_a_skill_is_read(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    page.get_by_role("navigation").get_by_role("link", name="Skills").click()
    page.locator(".list-pane").get_by_role("option", name="tying-knots").click()
    expect(page.locator(".bench-head h1")).to_have_text("tying-knots")
    expect(page.locator(".wide-pane .markdown")).to_contain_text("what rope there is")
    expect(page.locator(".wide-pane .markdown")).not_to_contain_text("description:")
    page.get_by_role("link", name="BOWLINE.md").click()
    page.get_by_role("button", name="Read resource").click()
    expect(page.locator(".call[data-state=ok]")).to_contain_text("loop")


def test_a_session_that_was_lost_is_opened_again_and_that_is_said(visit: Visit) -> None:
    port = find_port()
    with inspecting(f"http://127.0.0.1:{port}/mcp", options=("--era", "legacy")) as inspector:
        with serving_harbour(port):
            page = visit(inspector)
            page.get_by_role("link", name="127.0.0.1").first.click()
            connect = page.get_by_role("button", name="Connect", exact=True)
            if connect.is_visible():  # it was not there yet
                connect.click()
            expect(page.locator("main h1 + .badge")).to_have_text("connected")
        with serving_harbour(port):
            pick(page, "Tools", "tide_table")
            page.get_by_role("button", name="Run tool").click()
            page.locator(".call[data-state=ok]").wait_for()
            page.get_by_role("link", name="127.0.0.1").first.click()
            expect(page.get_by_label("Story of the connection")).to_contain_text("reinitialised")


def test_nothing_runs_out_while_a_person_types(visit: Visit) -> None:
    with serving_harbour() as url, inspecting(url, options=("--timeout", "1.5")) as inspector:
        page = visit(inspector)
        pick(page, "Tools", "book_berth")
        page.locator("[data-path='/boat'] textarea").fill("Tern")
        page.get_by_role("button", name="Run tool").click()
        card = page.locator(".call .question")
        expect(card).to_contain_text("waiting 3.")  # seconds: twice the time that an answer of the server may take
        card.locator("[data-path='/nights'] input").fill("3")
        card.get_by_role("button", name="Answer").click()
        expect(page.locator(".call[data-state=ok]")).to_contain_text("nights: 3")


def test_a_configured_server_is_added_with_a_click(yard: Path, visit: Visit, tmp_path: Path) -> None:
    config = tmp_path / "mcp.toml"
    words = json.dumps([str(yard)])
    config.write_text(f"[server.shipyard]\ncommand = {json.dumps(sys.executable)}\nargs = {words}\n")
    with inspecting(options=("--config", str(config))) as inspector:
        page = visit(inspector)
        page.get_by_role("button", name="Add shipyard").click()
        expect(page.locator("main h1 + .badge")).to_have_text("connected")
        expect(page.get_by_label("About")).to_contain_text("mcp.toml")


def test_the_inspector_beside_a_server_shows_that_server(yard: Path, visit: Visit, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("wb") as out:
        words = [sys.executable, str(yard), "http", str(find_port())]
        process = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment(tmp_path), cwd=tmp_path
        )
    try:
        link = wait_until(lambda: LINK.search(log.read_text()), "the link of the inspector", START_LIMIT)
        page = visit(Inspector(link[0], process.pid))
        pick(page, "Tools", "report")
        expect(page.locator(".topbar .badge")).to_have_text("connected")
    finally:
        end(process)
