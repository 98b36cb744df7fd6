"""Fixtures: `browser`, one Chromium for a file; `visit`, which opens a page and fails if it complained or called elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from .rig import CHROMIUM, FLAGS, PAGE, Inspector, need

Visit = Callable[..., Page]
WIDE = (1280, 800)
NARROW = (390, 844)
PATIENCE = 45_000  # milliseconds; what is waited for comes at once, except on a busy machine
expect.set_options(timeout=PATIENCE)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    need(PAGE, CHROMIUM)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Visit]:
    complaints: list[str] = []
    pages: list[Page] = []

    def hear(message: ConsoleMessage) -> None:
        # A refused request shows in the console as well; the page says it in its own words. Apps complain for themselves.
        is_app = "/frame/" in message.text + message.location["url"]
        if message.type == "error" and "Failed to load resource" not in message.text and not is_app:
            complaints.append(message.text)

    def go(inspector: Inspector, place: str = "", *, size: tuple[int, int] = WIDE, theme: str = "light") -> Page:
        context = browser.new_context(
            viewport={"width": size[0], "height": size[1]},
            color_scheme="dark" if theme == "dark" else "light",
            storage_state=inspector.storage,
        )
        context.set_default_timeout(PATIENCE)
        page = context.new_page()
        pages.append(page)

        def watch(request: Request) -> None:
            if not request.url.startswith((inspector.origin, "data:", "blob:")):
                complaints.append(f"the page asked for {request.url}")

        page.on("console", hear)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", watch)
        if inspector.storage is None:
            page.goto(inspector.link)
            page.wait_for_selector(".nav-link")
            inspector.storage = context.storage_state()
        page.goto(f"{inspector.origin}/{place}")
        page.wait_for_selector(".nav-link")
        return page

    yield go
    for page in pages:
        page.context.close()
    assert complaints == []
