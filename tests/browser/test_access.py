"""Who may use the inspector: the browser that came with the link, and no other local server that it visits."""

from __future__ import annotations

import contextlib
import http.server
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from playwright.sync_api import expect

from .conftest import Visit
from .rig import RAW, Inspector, inspecting

pytestmark = [pytest.mark.slow, pytest.mark.deadline(120)]


@pytest.fixture(scope="module")
def inspector() -> Iterator[Inspector]:
    with inspecting(RAW) as inspector:
        yield inspector


@contextlib.contextmanager
def another_server() -> Iterator[tuple[str, list[str]]]:
    """A web server on another port of this machine, and the cookies that browsers sent it."""
    cookies: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("Cookie") or "")
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<!doctype html><title>Another</title>hello")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/", cookies
        finally:
            server.shutdown()
            thread.join()


def answer(url: str, headers: dict[str, str]) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=headers)) as response:  # noqa: S310
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_a_cookie_that_another_local_server_was_sent_opens_nothing(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    session: str = page.evaluate("localStorage.getItem('trimaran.session') ?? ''")
    with another_server() as (url, cookies):
        page.context.new_page().goto(url)
    stolen = next(cookie for cookie in cookies if "trimaran_inspect_" in cookie)  # browsers send it to every port
    value = stolen.partition("=")[2]
    for path in ("api/state", "api/events", "api/servers", "api/export/har"):
        for headers in ({"Cookie": stolen}, {"Cookie": stolen, "Authorization": f"Bearer {value}"}):
            assert answer(f"{inspector.origin}/{path}", headers)[0] == 401, (path, headers)
    for place in (f"{inspector.origin}/", inspector.link):
        assert session not in answer(place, {"Cookie": stolen})[1] or not session
    assert session


def test_a_reload_a_second_tab_and_a_link_need_no_other_key(inspector: Inspector, visit: Visit) -> None:
    page = visit(inspector)
    assert "token" not in page.url
    page.reload()
    expect(page.locator(".list-pane").get_by_role("option").first).to_be_visible()
    tab = page.context.new_page()
    tab.goto(f"{inspector.origin}/#/wire")
    expect(tab.locator(".wire-row").first).to_be_visible()
