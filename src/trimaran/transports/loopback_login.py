"""Logs a person in: shows them a page, and listens on this machine for their browser to come back.

A flow that must ask a person uses `LoopbackLogin` (RFC 8252, 7.3). It listens on 127.0.0.1 only while a login is under way,
answers GET /callback and nothing else, and accepts only the `state` of a login that it waits for: requests of other pages,
other programs or old tabs end nothing (R253).

The flow reads the answer, a code or an error. The pages show one of three fixed texts, never a part of the URL.

A connection is a protocol with a timer, not a task, so a cancelled login leaves nothing running. The caller decides whether
a person can be asked at all (R254).
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import inspect
import os
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, cast, final
from urllib.parse import parse_qsl

from trimaran.durations import check_seconds
from trimaran.errors import AuthorizationFailed, ConfigError, ProtocolError
from trimaran.oauth.urls import bare_url, check_browser_url
from trimaran.protocol.http1_framing import read_head, response_head

from .guard import Guard

PORT_VARIABLE: Final = "TRIMARAN_MCP_OAUTH_PORT"

_HOST: Final = "127.0.0.1"  # not `localhost`, which may mean something else to the browser than to us (RFC 8252, 8.3)
_PATH: Final = "/callback"
_MAX_LINE: Final = 8 * 1024  # of the request: a code that is a JWT takes 2 KB
_MAX_HEAD: Final = 64 * 1024  # a browser sends every cookie of 127.0.0.1, from any port
_MAX_FIELDS: Final = 50
_VISIT_SECONDS: Final = 10.0  # for a request to come in, and for its page to go out
_MAX_VISITS: Final = 32  # a browser opens a few at once; beyond that the oldest must go
_GOING_SECONDS: Final = 1.0


@final
class LoopbackLogin:
    """A person with a browser on this machine.

    Args:
        port: where to listen; by default TRIMARAN_MCP_OAUTH_PORT, else any free port.
        likely_port: tried first where any free one will do: one that a client was registered with.
        open_browser: try to open the page; it is shown either way.
        show: called with the URL of the page (sync or async); by default it is written to standard error.
        timeout: seconds to wait for the person.

    Several logins may wait at once. After `close` it can be used again, on the same port if that is still free.
    """

    def __init__(
        self,
        *,
        port: int | None = None,
        likely_port: int = 0,
        open_browser: bool = True,
        show: Callable[[str], Awaitable[None] | None] | None = None,
        timeout: float = 300.0,
    ) -> None:
        self._given_port = _check_port(port, "port") if port is not None else None
        self._open_browser = open_browser
        self._show = show if show is not None else _print
        check_seconds("timeout", timeout)
        self._timeout = timeout
        self._server: asyncio.Server | None = None
        self._opening = asyncio.Lock()
        self._port = likely_port
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._guard = Guard(_HOST)
        self._porch = _Visitors(self._answer)

    async def redirect_uri(self) -> str:
        """Start to listen, unless that is done; the URI that a browser is to come back to.

        Raises:
            ConfigError: the port is taken, or is no port.
        """
        async with self._opening:
            if self._server is None:
                await self._listen()
        return f"http://{_HOST}:{self._port}{_PATH}"

    async def browse(self, url: str, state: str) -> str:
        """Send a person to `url`; the whole URL that their browser came back with, once it carries `state`.

        Raises:
            UnsafeUrl: this is not a URL to open in a browser.
            AuthorizationFailed: the browser did not come back in time, or the login was closed.
        """
        check_browser_url(url)
        if not state:
            raise ConfigError("a login needs a state, or anybody could answer it")
        await self.redirect_uri()
        came_back = self._waiting[state] = asyncio.get_running_loop().create_future()
        scope = asyncio.timeout(self._timeout)
        try:
            async with scope:
                page = self._show(url)
                if inspect.isawaitable(page):
                    await page
                if self._open_browser:
                    open_in_browser(url)
                return await came_back
        except TimeoutError:
            if not scope.expired():
                raise
            raise AuthorizationFailed(
                f"the login failed: nobody logged in at {bare_url(url)} within {self._timeout:g} s. Open the page that is "
                f"shown in a browser on this machine, which must reach {_HOST}:{self._port}, and try again; "
                "allow more time with LoopbackLogin(timeout=...)",
                step="login",
                url=bare_url(url),
            ) from None
        finally:
            self._waiting.pop(state, None)
            came_back.cancel()  # also if `close` has failed it already

    async def close(self) -> None:
        """Stop listening. A page on its way out may get there; a login that still waits fails. Idempotent."""
        for came_back in self._waiting.values():
            if not came_back.done():
                came_back.set_exception(AuthorizationFailed("the login failed: it was cancelled", step="login"))
        async with self._opening:
            server, self._server = self._server, None
            if server is not None:
                server.close()
                await self._porch.clear()

    # Listening

    async def _listen(self) -> None:
        port = self._given_port if self._given_port is not None else _port_from_environment()
        # Where any will do, the last one first: a client that was registered with it may go on with it.
        listener = _bind(port if port is not None else self._port)
        if listener is None and port is None:
            listener = _bind(0)
        if listener is None:
            raise ConfigError(
                f"cannot listen for the login on {_HOST}:{port or 0}: the port is taken or not allowed; choose another "
                f"with port= or {PORT_VARIABLE}, or leave it out for any free one"
            )
        loop = asyncio.get_running_loop()
        try:
            # Not started yet, so that it is never between two owners when this is cancelled.
            server = await loop.create_server(lambda: _Visit(self._porch), sock=listener, start_serving=False)
        except BaseException:
            listener.close()
            raise
        self._port = listener.getsockname()[1]
        self._porch.is_open = True
        try:
            await server.start_serving()
        except BaseException:
            server.close()
            self._porch.abort()
            raise
        self._server = server

    # Answering

    def _answer(self, raw: bytes) -> bytes:
        """The response to a request's head; a login that it answers goes on."""
        try:
            head = read_head(raw)
            self._guard.admit(None, head.headers.get("host"))
        except ProtocolError as error:
            return _response(error.status, _ODD)
        if head.path != _PATH:
            return _response(404, _ODD)
        if head.method != "GET":
            return _response(405, _ODD, [("allow", "GET")])
        try:
            fields = parse_qsl(head.query, keep_blank_values=True, max_num_fields=_MAX_FIELDS)
        except ValueError:
            return _response(400, _STRANGER)
        came_back = self._waiter(value for name, value in fields if name == "state")
        if came_back is None:
            return _response(400, _STRANGER)
        came_back.set_result(f"http://{_HOST}:{self._port}{_PATH}?{head.query}")
        is_refused = any(name == "error" for name, _ in fields)
        return _response(200, _REFUSED if is_refused else _WELCOME)

    def _waiter(self, states: Iterable[str]) -> asyncio.Future[str] | None:
        """The login that waits for this state, of which there must be exactly one."""
        candidates = list(states)
        if len(candidates) != 1:
            return None
        waiter = None
        for state, came_back in self._waiting.items():
            # Every one is compared to its end: the time it takes says nothing about how close a guess was.
            if hmac.compare_digest(state.encode(), candidates[0].encode()) and not came_back.done():
                waiter = came_back
        return waiter


@final
class _Visitors:
    """The open connections, oldest first, and the page for each."""

    def __init__(self, answer: Callable[[bytes], bytes]) -> None:
        self.answer = answer
        self.visits: dict[_Visit, None] = {}
        self.is_open = False

    def enter(self, visit: _Visit) -> None:
        if not self.is_open:
            visit.abort()
            return
        if len(self.visits) >= _MAX_VISITS:
            oldest = next(iter(self.visits))
            del self.visits[oldest]
            oldest.abort()
        self.visits[visit] = None

    def abort(self) -> None:
        """Send everybody off. A page that is on its way gets there: it is small, so the system has it whole."""
        self.is_open = False
        for visit in tuple(self.visits):
            visit.abort()

    async def clear(self) -> None:
        """Send everybody off, and see them gone."""
        leaving = [visit.gone for visit in self.visits]
        self.abort()
        if leaving:
            await asyncio.wait(leaving, timeout=_GOING_SECONDS)


@final
class _Visit(asyncio.Protocol):
    """One connection: one request, one page, and its end."""

    _transport: asyncio.Transport = cast("Any", None)
    _timer: asyncio.TimerHandle = cast("Any", None)
    is_answered = False

    def __init__(self, porch: _Visitors) -> None:
        self._porch = porch
        self._buffer = bytearray()
        self.gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._timer = asyncio.get_running_loop().call_later(_VISIT_SECONDS, self.abort)
        self._porch.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._porch.visits.pop(self, None)
        self.gone.set_result(None)

    def data_received(self, data: bytes) -> None:
        if self.is_answered:
            return
        buffer = self._buffer
        buffer += data
        line, end = buffer.find(b"\r\n"), buffer.find(b"\r\n\r\n")
        if (line if line >= 0 else len(buffer)) > _MAX_LINE:
            self._reply(_response(414, _ODD))
        elif end > _MAX_HEAD or (end < 0 and len(buffer) > _MAX_HEAD):
            self._reply(_response(431, _ODD))
        elif end >= 0:
            self._reply(self._porch.answer(bytes(buffer[: end + 4])))

    def _reply(self, response: bytes) -> None:
        self.is_answered = True
        self._buffer.clear()
        self._transport.write(response)
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()


# --- The port --------------------------------------------------------------------------------------------------------


def _check_port(port: Any, owner: str) -> int:
    if isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 65536:
        raise ConfigError(f"{owner} is {port!r}, and a port is a number from 1 to 65535, or 0 for any free one")
    return port


def _port_from_environment() -> int | None:
    text = os.environ.get(PORT_VARIABLE, "").strip()
    if not text:
        return None
    return _check_port(int(text) if text.isascii() and text.isdigit() else text, PORT_VARIABLE)


def _bind(port: int) -> socket.socket | None:
    """A listening socket; None if the port cannot be obtained."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            # After a login the port lingers for a minute. Elsewhere than here this would let two programs share it.
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setblocking(False)
        listener.bind((_HOST, port))
        listener.listen(_MAX_VISITS)
    except OSError:
        listener.close()
        return None
    return listener


# --- The browser -----------------------------------------------------------------------------------------------------


def _print(url: str) -> None:
    # Another's words, on a terminal: a URL is ASCII, and what is not is shown and not obeyed.
    sys.stderr.write(f"Open this page to log in: {ascii(url)[1:-1]}\n")
    sys.stderr.flush()


def open_in_browser(url: str) -> None:
    """Try to open it in a thread without waiting: some browsers return only when their window is closed."""
    if _has_display():
        with contextlib.suppress(RuntimeError):  # no thread can be started; the URL was printed already
            threading.Thread(target=_open_now, args=(url,), name="trimaran-browser", daemon=True).start()


def _open_now(url: str) -> None:
    import webbrowser

    with contextlib.suppress(Exception):
        browser = webbrowser.get()
        # A browser for the terminal would take it away from the program that runs there, unless somebody chose it.
        if type(browser) is not webbrowser.GenericBrowser or os.environ.get("BROWSER"):
            browser.open(url)


def _has_display() -> bool:
    """Whether a browser can open a window on this machine."""
    if os.environ.get("BROWSER"):
        return True
    if sys.platform in ("win32", "darwin"):
        return not os.environ.get("SSH_CONNECTION")
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


# --- The pages -------------------------------------------------------------------------------------------------------

_STYLE: Final = """
:root { color-scheme: light dark; --page: #eef3f6; --card: #ffffff; --ink: #14232d; --soft: #52646f; --mark: #0b7a75;
  --edge: #d8e2e8; }
@media (prefers-color-scheme: dark) { :root { --page: #0d161c; --card: #15222b; --ink: #e8f0f4; --soft: #9fb1bc;
  --mark: #4fd1c5; --edge: #24363f; } }
body { margin: 0; min-height: 100vh; display: flex; align-items: center; justify-content: center; padding: 1.5rem;
  box-sizing: border-box; background: var(--page); color: var(--ink);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 26rem; width: 100%; box-sizing: border-box; padding: 2.5rem 2rem; text-align: center;
  background: var(--card); border: 1px solid var(--edge); border-radius: 1rem; }
svg { display: block; width: 3.5rem; margin: 0 auto 1.25rem; fill: none; stroke: var(--mark); stroke-width: 1.5;
  stroke-linecap: round; stroke-linejoin: round; }
h1 { margin: 0 0 .5rem; font-size: 1.4rem; line-height: 1.3; }
p { margin: 0; color: var(--soft); }
"""
_POLICY: Final = (
    "default-src 'none'; style-src 'sha256-"
    + base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
    + "'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)


def _page(mark: str, title: str, text: str) -> bytes:
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n<main>\n"
        f'<svg viewBox="0 0 48 48" aria-hidden="true"><circle cx="24" cy="24" r="23"/><path d="{mark}"/></svg>\n'
        f"<h1>{title}</h1>\n<p>{text}</p>\n</main>\n</body>\n</html>\n"
    ).encode()


# Drawn, since not every font has them.
_TICK: Final = "M15 25l6 6 12-14"
_STOP: Final = "M24 14v13M24 33.5v.5"
_QUESTION: Final = "M18.5 19a5.5 5.5 0 1 1 8.5 4.6c-2 1.3-3 2.4-3 4.4M24 33.5v.5"

_WELCOME: Final = _page(
    _TICK, "You are logged in", "You can close this window and go back to the program that sent you here."
)
_REFUSED: Final = _page(
    _STOP,
    "The login was refused",
    "You can close this window. The program that sent you here says why.",
)
_STRANGER: Final = _page(
    _QUESTION,
    "Nobody waits for this login",
    "It may be an old one, or was started by something else. Go back to the program that sent you here, and follow the "
    "link that it shows now.",
)
_ODD: Final = _page(_QUESTION, "Nothing is here", "This address only takes a browser back from a login.")


def _response(status: int, page: bytes, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    fields = [
        ("content-type", "text/html; charset=utf-8"),
        ("cache-control", "no-store"),
        ("content-security-policy", _POLICY),
        ("referrer-policy", "no-referrer"),
        ("x-content-type-options", "nosniff"),
        *headers,
    ]
    return response_head(status, fields, f"content-length: {len(page)}\r\nconnection: close") + b"\r\n" + page
