"""The page of `trimaran gateway`: readable in both themes, and no wider than the screen."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser

from .rig import AXE, ROOT, end, need

pytestmark = [pytest.mark.slow, pytest.mark.deadline(120)]

SERVER = """
from trimaran import Server
server = Server("boats")
server.add_tool(lambda: "gone", name="sail_" + "far_" * 25 + "away")
server.run()
"""
CONFIG = """
[server.boats]
command = {python}
args = [{script}]
[server.a-server-with-quite-a-long-name-that-cannot-be-reached]
transport = "http"
url = "http://127.0.0.1:9/mcp"
oauth = "off"
[view.everything-that-floats-in-the-whole-wide-harbour]
servers = ["boats"]
[permissions]
deny = ["mcp__boats__sail_{far}* to group:developers"]
"""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the page."""
    folder = tmp_path_factory.mktemp("gateway")
    (folder / "boats.py").write_text(SERVER)
    config = CONFIG.format(
        python=json.dumps(sys.executable), script=json.dumps(str(folder / "boats.py")), far="far_" * 20
    )
    (folder / "mcp.toml").write_text(config)
    words = [sys.executable, "-m", "trimaran", "gateway", str(folder / "mcp.toml"), "--port", "0"]
    words += ["--log-format", "json", "--log-level", "error"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=ROOT) as process:
        try:
            assert process.stderr is not None
            notices = (json.loads(line)["message"] for line in process.stderr)
            notice = next(text for text in notices if " served at " in text)
            yield notice.partition(" served at ")[2].partition("/mcp")[0]
        finally:
            end(process)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 768, 1280])
def test_nothing_scrolls_sideways(browser: Browser, gateway: str, width: int, theme: str) -> None:
    need(AXE)
    is_dark = theme == "dark"
    context = browser.new_context(
        viewport={"width": width, "height": 844}, color_scheme="dark" if is_dark else "light", is_mobile=width < 500
    )
    page = context.new_page()
    page.goto(gateway)
    page.evaluate("document.querySelectorAll('details').forEach(part => { part.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") == width
    assert page.get_by_text("cannot be reached").count() or page.get_by_text("connection refused").count()
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (paper != "rgb(247, 248, 248)") == is_dark, "the colours are the inspector's"
    page.evaluate(AXE.read_text("utf-8"))
    result = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    assert [fault["id"] for fault in result["violations"] if fault["impact"] in ("serious", "critical")] == []
    context.close()
