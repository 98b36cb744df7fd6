"""A login through a browser on this machine, with real sockets: who is taken for the one waited for, and who is not."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import re
import socket
import sys
import threading
import webbrowser
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.support.until import PATIENCE

from trimaran.errors import AuthorizationFailed, ConfigError, UnsafeUrl
from trimaran.transports import loopback_login
from trimaran.transports.loopback_login import LoopbackLogin

LOOPS = ("asyncio", "uvloop")
SECONDS = PATIENCE
PAGE = "https://as.example.com/authorize?client_id=a&state=right"
STATE = "r1ght-state_~"


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BROWSER", "DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "TRIMARAN_MCP_OAUTH_PORT"):
        monkeypatch.delenv(name, raising=False)


class Answer:
    """What a visitor was told."""

    def __init__(self, raw: bytes) -> None:
        head, _, self.body = raw.partition(b"\r\n\r\n")
        first, *fields = head.decode("latin-1").split("\r\n")
        self.status = int(first.split(" ")[1]) if first else 0
        self.headers = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}

    @property
    def text(self) -> str:
        return self.body.decode()


def port_of(uri: str) -> int:
    port = urlsplit(uri).port
    assert port
    return port


async def say(port: int, data: bytes) -> Answer:
    """Send this, read until the listener closes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        async with asyncio.timeout(SECONDS):
            with contextlib.suppress(ConnectionError):
                writer.write(data)
                await writer.drain()
            raw = b""
            with contextlib.suppress(ConnectionError):
                while piece := await reader.read(65536):
                    raw += piece
            return Answer(raw)
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def visit(port: int, target: str, *, method: str = "GET", host: str | None = None) -> Answer:
    host = f"127.0.0.1:{port}" if host is None else host
    return await say(port, f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nCookie: a=b\r\n\r\n".encode())


class Session:
    """A login that waits, and the way to visit it."""

    def __init__(self, login: LoopbackLogin, uri: str, waiting: asyncio.Task[str], shown: list[str]) -> None:
        self.login = login
        self.uri = uri
        self.port = port_of(uri)
        self.waiting = waiting
        self.shown = shown

    async def come_back(self) -> str:
        return await asyncio.wait_for(asyncio.shield(self.waiting), SECONDS)

    async def still_waits(self) -> None:
        """Nothing has ended it: the right answer still does, and comes out."""
        assert not self.waiting.done()
        target = f"/callback?code=c0de&state={STATE}"
        assert (await visit(self.port, target)).status == 200
        assert await self.come_back() == f"http://127.0.0.1:{self.port}{target}"


@contextlib.asynccontextmanager
async def waiting(**options: Any) -> AsyncIterator[Session]:
    shown: list[str] = []
    ready = asyncio.Event()

    def show(url: str) -> None:
        shown.append(url)
        ready.set()

    login = LoopbackLogin(**{"open_browser": False, "show": show, **options})
    uri = await login.redirect_uri()
    task = asyncio.create_task(login.browse(PAGE, STATE))
    try:
        await asyncio.wait_for(ready.wait(), SECONDS)
        yield Session(login, uri, task, shown)
    finally:
        await login.close()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


# --- the good way ----------------------------------------------------------------------------------------------------


async def test_a_browser_that_comes_back_with_the_state_ends_the_login() -> None:
    async with waiting() as session:
        assert re.fullmatch(r"http://127\.0\.0\.1:[0-9]+/callback", session.uri)
        assert session.shown == [PAGE]
        target = f"/callback?code=a%20b&iss=https%3A%2F%2Fas.example.com&state={STATE}"
        answer = await visit(session.port, target)
        assert await session.come_back() == f"http://127.0.0.1:{session.port}{target}"
    assert answer.status == 200
    assert "You are logged in" in answer.text
    assert "close this window" in answer.text


async def test_the_page_arrives_though_the_listener_closes_at_once() -> None:
    async with waiting() as session:

        async def close_after_login() -> None:
            await session.waiting
            await session.login.close()

        answer, _ = await asyncio.gather(visit(session.port, f"/callback?state={STATE}&code=x"), close_after_login())
    assert "You are logged in" in answer.text
    assert answer.text.endswith("</html>\n")


async def test_a_refusal_ends_the_login_and_says_so_without_its_words() -> None:
    """Whatever a stranger wrote into the URL is not on the page."""
    async with waiting() as session:
        target = f"/callback?error=access_denied&error_description=%3Cscript%3Ealert(1)%3C/script%3E&state={STATE}"
        answer = await visit(session.port, target)
        assert await session.come_back() == f"http://127.0.0.1:{session.port}{target}"
    assert answer.status == 200
    assert "refused" in answer.text
    for word in ("script", "alert", "access_denied", STATE):
        assert word not in answer.text


async def test_a_head_in_single_bytes_is_read() -> None:
    async with waiting() as session:
        reader, writer = await asyncio.open_connection("127.0.0.1", session.port)
        for byte in f"GET /callback?code=x&state={STATE} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode():
            writer.write(bytes([byte]))
            await writer.drain()
        assert (await asyncio.wait_for(reader.read(), SECONDS)).startswith(b"HTTP/1.1 200 ")
        writer.close()
        await writer.wait_closed()
        await session.come_back()


async def test_several_logins_wait_at_once() -> None:
    login = LoopbackLogin(open_browser=False, show=lambda _: None)
    port = port_of(await login.redirect_uri())
    tasks = {state: asyncio.create_task(login.browse(PAGE, state)) for state in ("one", "two", "three")}
    await asyncio.sleep(0)
    try:
        for state in ("two", "three", "one"):
            await visit(port, f"/callback?state={state}&code={state}")
            url = await asyncio.wait_for(tasks[state], SECONDS)
            assert parse_qs(urlsplit(url).query)["code"] == [state]
    finally:
        await login.close()


async def test_it_can_be_used_again_on_the_same_port() -> None:
    """A client that was registered with the redirect URI stays valid."""
    login = LoopbackLogin(open_browser=False, show=lambda _: None)
    first = await login.redirect_uri()
    assert await login.redirect_uri() == first
    await login.close()
    await login.close()
    assert await login.redirect_uri() == first
    await login.close()


async def test_its_last_port_is_not_insisted_on() -> None:
    login = LoopbackLogin(open_browser=False, show=lambda _: None)
    first = await login.redirect_uri()
    await login.close()
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", port_of(first)))
        other.listen()
        assert await login.redirect_uri() != first
        await login.close()


async def test_browsing_starts_to_listen_by_itself() -> None:
    login = LoopbackLogin(open_browser=False, show=lambda _: None)
    task = asyncio.create_task(login.browse(PAGE, STATE))
    try:
        port = port_of(await login.redirect_uri())
        await visit(port, f"/callback?state={STATE}")
        assert await asyncio.wait_for(task, SECONDS)
    finally:
        await login.close()


# --- strangers -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?",
        "?code=evil",
        "?state=",
        "?code=evil&state=wrong",
        f"?code=evil&state={STATE}x",
        f"?code=evil&state={STATE[:-1]}",
        f"?code=evil&state={STATE.upper()}",
        f"?code=evil&State={STATE}",
        f"?code=evil&state={STATE}&state={STATE}",
        f"?code=evil&state=wrong&state={STATE}",
        "?error=access_denied",
        "?error=access_denied&state=wrong",
        "?state=%ff%fe",
        "?state=%C3%A9",
        "?" + "&".join(f"a{n}=b" for n in range(60)) + f"&state={STATE}",
    ],
)
async def test_another_state_is_told_so_and_ends_nothing(query: str) -> None:
    """R253."""
    async with waiting() as session:
        answer = await visit(session.port, f"/callback{query}")
        assert answer.status == 400
        assert "Nobody waits for this login" in answer.text
        await session.still_waits()


async def test_a_state_counts_once() -> None:
    async with waiting() as session:
        await session.still_waits()
        assert (await visit(session.port, f"/callback?code=again&state={STATE}")).status == 400
        assert not session.login._waiting


async def test_a_state_counts_once_though_two_come_with_it_at_the_same_time() -> None:
    """Before the one who waits has heard of the first."""
    async with waiting() as session:
        requests = [f"GET /callback?code={n}&state={STATE} HTTP/1.1\r\nHost: localhost\r\n\r\n" for n in range(2)]
        answers = [Answer(session.login._answer(request.encode())) for request in requests]
        assert [answer.status for answer in answers] == [200, 400]
        assert "code=0" in await session.come_back()


@pytest.mark.parametrize(
    "path",
    ["/", "/favicon.ico", "/callback/", "/Callback", "/callback/x", "//callback", "/%63allback", "/x/../callback"],
)
async def test_other_paths_are_not_there(path: str) -> None:
    async with waiting() as session:
        assert (await visit(session.port, f"{path}?code=evil&state={STATE}")).status == 404
        await session.still_waits()


@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "OPTIONS"])
async def test_other_methods_are_not_taken(method: str) -> None:
    async with waiting() as session:
        answer = await visit(session.port, f"/callback?code=evil&state={STATE}", method=method)
        assert answer.status == 405
        assert answer.headers["allow"] == "GET"
        await session.still_waits()


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "localhost.evil.example:80", "", "a b", "0.0.0.0"]
)
async def test_a_page_that_calls_this_machine_by_another_name_is_refused(host: str) -> None:
    """DNS rebinding: also with the right state."""
    async with waiting() as session:
        answer = await visit(session.port, f"/callback?code=evil&state={STATE}", host=host)
        assert answer.status == 403
        assert "evil" not in answer.text
        await session.still_waits()


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "[::1]:80", "127.0.0.1"])
async def test_this_machine_may_be_called_by_its_own_names(host: str) -> None:
    async with waiting() as session:
        assert (await visit(session.port, f"/callback?code=x&state={STATE}", host=host)).status == 200
        await session.come_back()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"hello\r\n\r\n", 400),
        (b"get /callback HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"GET\r\n\r\n", 400),
        (b"GET /callback HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        (b"GET /callback HTTP/1.1\r\n\r\n", 400),
        (b"GET /callback HTTP/1.0\r\n\r\n", 403),
        (b"GET /callback HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /callback HTTP/1.1\r\nHost: localhost\r\n folded\r\n\r\n", 400),
        (b"GET /call\x00back HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"GET /callback?" + b"x" * 8200, 414),
        (b"x" * 8193, 414),
        (b"GET /callback?" + b"x" * 8200 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 414),
        (b"GET /callback HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 65536, 431),
        (b"GET /callback HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 101 + b"\r\n", 431),
    ],
    ids=[
        *("words", "small", "blank", "verb", "version", "no_host", "old", "two_hosts", "folded", "nul", "tls"),
        *("line", "no_line", "whole_line", "head", "fields"),
    ],
)
async def test_what_is_no_plain_request_is_refused(data: bytes, status: int) -> None:
    async with waiting() as session:
        assert (await say(session.port, data)).status in (status, 0)  # 0: our refusal crossed the rest of what was sent
        await session.still_waits()


async def test_a_line_as_long_as_allowed_is_read() -> None:
    async with waiting() as session:
        target = f"/callback?state={STATE}&code="
        target += "x" * (8192 - len(f"GET {target} HTTP/1.1"))
        assert (await visit(session.port, target)).status == 200
        assert (await session.come_back()).endswith("xxx")


async def test_every_page_is_locked_up() -> None:
    async with waiting() as session:
        targets = ["/", "/callback", f"/callback?state={STATE}"]
        answers = [await visit(session.port, target) for target in targets]
    assert [answer.status for answer in answers] == [404, 400, 200]
    for answer in answers:
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-type"] == "text/html; charset=utf-8"
        assert answer.headers["connection"] == "close"
        assert int(answer.headers["content-length"]) == len(answer.body)
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; ")
        assert "frame-ancestors 'none'" in policy
        assert "unsafe" not in policy
        assert style_hash(answer.text) in policy
        assert not re.search(r"<script|https?://|\bon[a-z]+=|style=|@import|url\(", answer.text)
        assert "color-scheme: light dark" in answer.text


def style_hash(page: str) -> str:
    import base64
    import hashlib

    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    return f"'sha256-{base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()}'"


async def test_a_visitor_that_says_nothing_is_sent_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback_login, "_VISIT_SECONDS", 0.05)
    async with waiting() as session:
        assert (await say(session.port, b"GET /callback")).status == 0
        assert (await say(session.port, b"")).status == 0
        await session.still_waits()


async def test_many_silent_visitors_do_not_keep_the_browser_out() -> None:
    """The oldest ones make room."""
    async with waiting() as session:
        crowd = [await asyncio.open_connection("127.0.0.1", session.port) for _ in range(40)]
        try:
            await session.still_waits()
            async with asyncio.timeout(SECONDS):
                with contextlib.suppress(ConnectionError):
                    assert await crowd[0][0].read() == b""
        finally:
            for _, writer in crowd:
                writer.close()


async def test_only_this_machine_can_come() -> None:
    async with waiting() as session:
        with socket.socket() as probe:
            probe.settimeout(SECONDS)
            with pytest.raises(OSError, match="refused"):
                probe.connect(("127.0.0.2", session.port))  # had it listened on every address, this would do


# --- ends ------------------------------------------------------------------------------------------------------------


async def test_nobody_in_time_is_an_error_that_says_what_to_do() -> None:
    login = LoopbackLogin(open_browser=False, show=lambda _: None, timeout=0.05)
    try:
        with pytest.raises(AuthorizationFailed) as caught:
            await login.browse(PAGE, STATE)
    finally:
        await login.close()
    error = caught.value
    assert "within 0.05 s" in str(error)
    assert "Open the page" in str(error)
    assert "timeout=" in str(error)
    assert (error.step, error.url) == ("login", "https://as.example.com/authorize")
    assert "state" not in str(error)


async def test_closing_fails_a_login_that_waits_and_stops_listening() -> None:
    async with waiting() as session:
        idle, writer = await asyncio.open_connection("127.0.0.1", session.port)
        assert await say(session.port, b"GET /x HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert len(session.login._porch.visits) == 1
        await session.login.close()
        assert not session.login._porch.visits
        with pytest.raises(AuthorizationFailed, match="cancelled"):
            await session.come_back()
        with contextlib.suppress(ConnectionError):
            assert await asyncio.wait_for(idle.read(), SECONDS) == b""
        writer.close()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", session.port)


async def test_a_visitor_let_in_while_it_closed_is_sent_off() -> None:
    login = LoopbackLogin(open_browser=False)
    await login.redirect_uri()
    await login.close()
    ours, theirs = socket.socketpair()
    with theirs:
        theirs.setblocking(False)
        loop = asyncio.get_running_loop()
        await loop.connect_accepted_socket(lambda: loopback_login._Visit(login._porch), ours)
        async with asyncio.timeout(SECONDS):
            assert await loop.sock_recv(theirs, 1) == b""


async def test_closed_before_anybody_waited_and_cancelled_then_it_ends_quietly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    shown = asyncio.Event()

    async def show(_: str) -> None:
        shown.set()
        await asyncio.get_running_loop().create_future()

    login = LoopbackLogin(open_browser=False, show=show)
    task = asyncio.create_task(login.browse(PAGE, STATE))
    await asyncio.wait_for(shown.wait(), SECONDS)
    await login.close()
    task.cancel()
    await asyncio.wait([task], timeout=SECONDS)
    assert task.cancelled()
    del task
    gc.collect()
    assert not caplog.records  # asyncio tells of an exception that nobody saw


async def test_a_cancelled_login_waits_for_nobody() -> None:
    async with waiting() as session:
        session.waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await session.waiting
        assert (await visit(session.port, f"/callback?code=late&state={STATE}")).status == 400


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_what_show_raises_is_raised(is_async: bool) -> None:
    def show(url: str) -> None:
        raise TimeoutError("the screen is broken")

    async def show_later(url: str) -> None:
        show(url)

    login = LoopbackLogin(open_browser=False, show=show_later if is_async else show)
    try:
        with pytest.raises(TimeoutError, match="the screen is broken"):
            await login.browse(PAGE, STATE)
    finally:
        await login.close()


# --- the port --------------------------------------------------------------------------------------------------------


async def test_a_port_can_be_given(free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_MCP_OAUTH_PORT", "1")
    login = LoopbackLogin(port=free_port)
    assert await login.redirect_uri() == f"http://127.0.0.1:{free_port}/callback"
    await login.close()


async def test_a_port_can_be_given_by_the_environment(free_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_MCP_OAUTH_PORT", f" {free_port} ")
    login = LoopbackLogin()
    assert await login.redirect_uri() == f"http://127.0.0.1:{free_port}/callback"
    await login.close()


async def test_a_taken_port_is_told_with_the_remedy() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        login = LoopbackLogin(port=port)
        with pytest.raises(ConfigError, match=rf"127\.0\.0\.1:{port}: the port is taken.*TRIMARAN_MCP_OAUTH_PORT"):
            await login.redirect_uri()
        await login.close()


@pytest.mark.parametrize("port", [-1, 65536, True, "8080", 1.5])
def test_what_is_no_port_is_told(port: Any) -> None:
    with pytest.raises(ConfigError, match="port is"):
        LoopbackLogin(port=port)


@pytest.mark.parametrize("text", ["web", "-1", "65536", "80 80", "\u0661"])
async def test_what_is_no_port_in_the_environment_is_told(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIMARAN_MCP_OAUTH_PORT", text)
    with pytest.raises(ConfigError, match="TRIMARAN_MCP_OAUTH_PORT is"):
        await LoopbackLogin().redirect_uri()


# --- showing and opening the page ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "file:///etc/passwd", "data:text/html,x", "http://example.com/", "https://a/\x1b[2J"]
)
async def test_what_is_no_page_to_log_in_at_is_neither_shown_nor_opened(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(loopback_login, "open_in_browser", seen.append)
    login = LoopbackLogin(show=seen.append)
    with pytest.raises(UnsafeUrl):
        await login.browse(url, STATE)
    assert not seen


async def test_a_login_without_state_is_refused() -> None:
    with pytest.raises(ConfigError, match="state"):
        await LoopbackLogin().browse(PAGE, "")


async def test_the_page_is_written_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    login = LoopbackLogin(timeout=0.02)
    try:
        with pytest.raises(AuthorizationFailed):
            await login.browse(PAGE, STATE)
    finally:
        await login.close()
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"Open this page to log in: {PAGE}\n")


class Browser:
    """Stands for `webbrowser.get()`."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.seen = threading.Event()
        self.thread: threading.Thread | None = None

    def open(self, url: str) -> bool:
        self.opened.append(url)
        self.thread = threading.current_thread()
        self.seen.set()
        return True


async def test_a_browser_is_opened_beside_the_loop_where_somebody_sees_it(monkeypatch: pytest.MonkeyPatch) -> None:
    browser = Browser()
    monkeypatch.setattr(webbrowser, "get", lambda: browser)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr(sys, "platform", "linux")
    async with waiting(open_browser=True) as session:
        assert await asyncio.to_thread(browser.seen.wait, SECONDS)
        assert browser.opened == [PAGE]
        assert browser.thread is not threading.main_thread()
        assert browser.thread is not None
        assert browser.thread.daemon
        await session.still_waits()


@pytest.mark.parametrize(
    ("platform", "environment", "is_seen"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"SSH_CONNECTION": "x", "DISPLAY": "localhost:10.0"}, True),
        ("linux", {"BROWSER": "my-browser"}, True),
        ("darwin", {}, True),
        ("darwin", {"SSH_CONNECTION": "x"}, False),
        ("win32", {}, True),
        ("win32", {"SSH_CONNECTION": "x"}, False),
        ("darwin", {"SSH_CONNECTION": "x", "BROWSER": "my-browser"}, True),
    ],
)
def test_a_browser_is_opened_only_where_it_could_be_seen(
    monkeypatch: pytest.MonkeyPatch, platform: str, environment: dict[str, str], is_seen: bool
) -> None:
    browser = Browser()
    monkeypatch.setattr(loopback_login, "_open_now", browser.open)
    monkeypatch.setattr(sys, "platform", platform)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    loopback_login.open_in_browser(PAGE)
    assert browser.seen.wait(SECONDS if is_seen else 0) is is_seen


def test_a_browser_for_the_terminal_is_not_opened_unless_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr(webbrowser.GenericBrowser, "open", lambda _, url: opened.append(url))
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser("lynx"))
    loopback_login._open_now(PAGE)
    assert not opened
    monkeypatch.setenv("BROWSER", "lynx")
    loopback_login._open_now(PAGE)
    assert opened == [PAGE]


def test_no_browser_at_all_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing() -> Any:
        raise webbrowser.Error("could not locate runnable browser")

    monkeypatch.setattr(webbrowser, "get", nothing)
    loopback_login._open_now(PAGE)


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="a script stands for the browser")
async def test_a_program_of_the_users_choice_is_opened_without_a_shell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole login, with a child process for a browser: it is given the URL as one argument, whatever is in it."""
    script = tmp_path / "browser.py"
    script.write_text(
        "import sys, urllib.request\n"
        "from urllib.parse import parse_qs, urlsplit\n"
        "query = parse_qs(urlsplit(sys.argv[1]).query)\n"
        "assert len(sys.argv) == 2 and query['x'] == ['$(id);a']\n"
        "urllib.request.urlopen(query['redirect_uri'][0] + '?code=c&state=' + query['state'][0]).read()\n"
    )
    monkeypatch.setenv("BROWSER", f"{sys.executable} {script} %s")
    monkeypatch.setattr(webbrowser, "_tryorder", None)  # forget what the environment chose before
    login = LoopbackLogin(show=lambda _: None, timeout=20.0)
    before = set(threading.enumerate())
    try:
        uri = await login.redirect_uri()
        url = await login.browse(f"https://as.example.com/authorize?state={STATE}&redirect_uri={uri}&x=$(id);a", STATE)
        assert url == f"{uri}?code=c&state={STATE}"
    finally:
        await login.close()
        for thread in set(threading.enumerate()) - before:
            if thread.name == "trimaran-browser":
                await asyncio.to_thread(thread.join, SECONDS)
        monkeypatch.setattr(webbrowser, "_tryorder", None)
