"""What Chromium says of a page's main thread, in CPU time: other programs on a busy machine do not lengthen it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Page

_CATEGORIES = ["toplevel", "devtools.timeline", "loading"]
_TASKS = ("RunTask", "ThreadControllerImpl::RunTask")


@dataclass
class Trace:
    """Filled when the block ends."""

    tasks_ms: list[float] = field(default_factory=list[float])
    """CPU time of each task of the thread that did most; a frame is drawn between two."""
    before_paint_ms: float | None = None
    """CPU time of the thread until it drew the first content, if it did."""

    @property
    def longest_ms(self) -> float:
        return max(self.tasks_ms)


@contextmanager
def traced(page: Page) -> Iterator[Trace]:
    """Trace the browser of a page for the length of a block."""
    browser = page.context.browser
    assert browser is not None
    trace = Trace()
    browser.start_tracing(page=page, categories=_CATEGORIES)
    try:
        yield trace
    finally:
        events: list[dict[str, Any]] = json.loads(browser.stop_tracing())["traceEvents"]
    names = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    tasks = [event for event in events if event.get("ph") == "X" and event["name"] in _TASKS]
    tasks = [task for task in tasks if names.get((task["pid"], task["tid"])) == "CrRendererMain"]
    spent: Counter[int] = Counter()
    for task in tasks:
        spent[task["pid"]] += task.get("tdur", 0)
    [(busiest, _)] = spent.most_common(1)
    own = [(task["ts"], task.get("tdur", 0) / 1000) for task in tasks if task["pid"] == busiest]
    trace.tasks_ms = [cpu for _, cpu in own]
    paints = [event["ts"] for event in events if event["name"] == "firstContentfulPaint" and event["pid"] == busiest]
    if paints:
        trace.before_paint_ms = sum(cpu for begin, cpu in own if begin <= max(paints))
