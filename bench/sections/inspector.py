"""From the command to a page with the tools listed, in a real Chromium: ours and the official Inspector, and the memory of both.

Both are clicked by a script, which is faster than any person: that favours the one that needs more clicks. The first start of
each is also given alone; the later ones find their files in the system's cache.
"""

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import contenders as who
from plan import Plan
from procs import Process, UnavailableError, cpu_seconds, free_port, running, size
from report import Row, Section, Series, compare, limit

CHROMIUM = who.ROOT / ".tools" / "chromium" / "chromium"
MODULES = who.ROOT / ".tools" / "node" / "node_modules"
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
LINK = re.compile(rb"http://127\.0\.0\.1:\d+\S*[Tt][Oo][Kk][Ee][Nn]=\S+")
TOOL = "tide_table"  # of the demo's harbour
SECONDS = 60.0


@dataclass
class Run:
    """One start."""

    link_ms: float
    tools_ms: float
    megabytes: float
    received: int
    own_ms: float
    """Processor time of its processes until the tools are listed: what other programs of the machine do not lengthen."""
    all_ms: float
    """The same with the browser's, and that of the script that clicks."""
    paint_ms: float


def run(plan: Plan) -> Section:
    section = Section("inspector", "Command to a usable page, and memory")
    labels = {"ours": "trimaran inspect", "theirs": "Inspector 2.12"}
    runs: dict[str, list[Run]] = {key: [] for key in labels}
    failures: dict[str, str] = {}
    port = free_port()
    harbour = [
        sys.executable,
        "-m",
        "trimaran",
        "serve",
        "trimaran.apps.demo.server:server",
        "--http",
        "--port",
        str(port),
    ]
    with running(harbour, port, env=dict(os.environ)):
        for _ in range(plan.spawns):
            for key, start in (("ours", _ours), ("theirs", _theirs)):
                if key not in failures:
                    try:
                        runs[key].append(start(f"http://127.0.0.1:{port}/mcp"))
                    except Exception as error:
                        failures[key] = str(error).splitlines()[0] if str(error) else type(error).__name__

    def series(pick: Callable[[Run], float]) -> dict[str, Series]:
        return {key: Series(labels[key], [pick(one) for one in runs[key]], failures.get(key)) for key in labels}

    tools, own, everything, links, memory, sent, paint = (
        series(lambda one: one.tools_ms),
        series(lambda one: one.own_ms),
        series(lambda one: one.all_ms),
        series(lambda one: one.link_ms),
        series(lambda one: one.megabytes),
        series(lambda one: one.received / 1024),
        series(lambda one: one.paint_ms),
    )
    section.series = {
        "tools": tools,
        "own": own,
        "all": everything,
        "link": links,
        "memory": memory,
        "sent": sent,
        "paint": paint,
    }
    section.rows += [
        compare("command to tools listed", tools["theirs"], tools["ours"], unit="ms", at_most=1.0),
        compare("processor time of its processes until then", own["theirs"], own["ours"], unit="ms", at_most=1.0),
        compare("the same with the browser's", everything["theirs"], everything["ours"], unit="ms", at_most=1.0),
        compare("command to its link", links["theirs"], links["ours"], unit="ms"),
        compare("memory, its process and children", memory["theirs"], memory["ours"], unit="MB", at_most=1.0),
        compare("sent to the browser", sent["theirs"], sent["ours"], unit="KB", at_most=1.0),
        limit(
            "first contentful paint",
            paint["ours"],
            unit="ms",
            at_most=300,
            anchor=f"{labels['theirs']}: {paint['theirs'].show('ms')}",
        ),
        _first(runs),
    ]
    section.notes.append("Clicks until the tools are listed: ours none, Inspector's two (connect, Tools).")
    return section


def _first(runs: dict[str, list[Run]]) -> Row:
    first = {key: f"{values[0].tools_ms:.0f} ms" if values else "-" for key, values in runs.items()}
    return Row(
        "command to tools listed, the first start of this run", f"Inspector 2.12: {first['theirs']}", first["ours"]
    )


def _ours(url: str) -> Run:
    words = [sys.executable, "-m", "trimaran", "inspect", "--no-open", "--port", "0", url]
    return _measure(words, lambda _page: None)


def _theirs(url: str) -> Run:
    script = MODULES / ".bin" / "mcp-inspector"
    if not script.exists():
        raise UnavailableError("the Inspector is missing: run scripts/setup-node")
    words = [
        str(MODULES / ".bin" / "node"),
        str(script),
        "--web",
        "--transport",
        "http",
        "--server-url",
        url,
        "--protocol-era",
        "auto",
    ]

    def click(page: Any) -> None:
        page.get_by_role("switch").click(force=True)
        page.locator("label", has_text="Tools").first.click()

    return _measure(words, click, CLIENT_PORT=str(free_port()), MCP_AUTO_OPEN_ENABLED="false")


def _measure(words: list[str], click: Callable[[Any], None], **extra: str) -> Run:
    from playwright.sync_api import sync_playwright

    if not CHROMIUM.exists():
        raise UnavailableError("Chromium is missing: run scripts/setup-chromium")
    with tempfile.TemporaryDirectory() as home, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.route(lambda address: "127.0.0.1" not in address, lambda route: route.abort())  # fonts from elsewhere
        bodies: list[Any] = []
        page.on("requestfinished", lambda request: bodies.append(request))  # noqa: PLW0108  # its type is looked at
        path = f"{MODULES / '.bin'}{os.pathsep}{os.environ.get('PATH', '')}"
        started, spent = time.perf_counter(), cpu_seconds(os.getpid())
        process = Process(
            words,
            env={**os.environ, "PATH": path, "HOME": home, "XDG_CONFIG_HOME": home, "XDG_DATA_HOME": home, **extra},
        )
        try:
            link = _wait_link(process)
            link_ms = (time.perf_counter() - started) * 1e3
            page.goto(link)
            click(page)
            page.get_by_text(TOOL, exact=True).first.wait_for(timeout=SECONDS * 1e3)
            tools_ms = (time.perf_counter() - started) * 1e3
            own_ms, all_ms = cpu_seconds(process.pid) * 1e3, (cpu_seconds(os.getpid()) - spent) * 1e3
            megabytes = size(process.pid).pss_mb
            paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0")
            received = sum(request.sizes()["responseBodySize"] for request in bodies)
        finally:
            process.stop()
            browser.close()
    return Run(link_ms, tools_ms, megabytes, received, own_ms, all_ms, float(paint))


def _wait_link(process: Process) -> str:
    deadline = time.perf_counter() + SECONDS
    while time.perf_counter() < deadline:
        text = Path(f"/proc/self/fd/{process.log.fileno()}").read_bytes()
        if match := LINK.search(text):
            return match[0].decode()
        if process.popen.poll() is not None:
            raise UnavailableError(f"it ended: {text.decode(errors='replace')[-200:]}")
        time.sleep(0.005)
    raise UnavailableError("it printed no link")
