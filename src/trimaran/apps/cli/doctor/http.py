"""Examine a URL: the way there, who may come in, and what its endpoint does with requests good and bad.

Raw requests only; what a client makes of the server is `eras.py`'s part. Requests that should be refused are made on
purpose, each harmless if it is not: they ask the server who it is.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, final
from urllib.parse import urlsplit, urlunsplit

from trimaran.errors import (
    CODE_HEADER_MISMATCH,
    CODE_METHOD_NOT_FOUND,
    CODE_MISSING_CAPABILITY,
    CODE_UNSUPPORTED_VERSION,
)
from trimaran.protocol.versions import MODERN
from trimaran.transports.failure_reasons import connection_reason, is_not_tls
from trimaran.transports.guard import is_loopback
from trimaran.types import as_object

from ..output import in_one_line
from ..target import Settings, Target
from .auth import examine_authorization, report_admission
from .report import Report
from .wire import ProbeConnection, ProbeReply, Unanswered, legacy_hello, modern_request

_EVIL: Final = "evil.example"
_INSPECTOR: Final = "http://localhost:6274"
_PATHS: Final = ("/mcp", "/mcp/", "/sse", "/")
_CERT_DAYS: Final = 14  # renewals are due by then
_SLOW_EVENT: Final = 1.0  # seconds; an acknowledgement is made at once, so a later one was held back on the way
_MODERN_CODES: Final = (CODE_HEADER_MISMATCH, CODE_MISSING_CAPABILITY, CODE_UNSUPPORTED_VERSION)
_NEEDED_HEADERS: Final = ("content-type", "mcp-protocol-version", "mcp-method", "mcp-name")


def wire_for(target: Target, settings: Settings) -> ProbeConnection:
    """A wire with the person's headers and token."""
    headers = {**target.headers, **settings.headers}
    if settings.bearer:
        headers["Authorization"] = f"Bearer {settings.bearer}"
    return ProbeConnection(headers, min(settings.timeout or 10.0, 10.0))


# --- the way there ---------------------------------------------------------------------------------------------------


async def reach(report: Report, url: str, seconds: float) -> bool:
    """Report on name, connection and certificate; False if there is no way."""
    report.section("Network")
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    begun = time.perf_counter()
    try:
        async with asyncio.timeout(seconds):
            resolved = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, TimeoutError, UnicodeError) as error:
        report.fail(
            "dns",
            f"{host}: {_reason(error)}",
            "Without an address there is nothing to connect to.",
            "Check the spelling of the host, and your DNS or VPN.",
        )
        return False
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in resolved))
    report.ok("dns", f"{', '.join(addresses[:4])} in {_ms(begun)}")
    begun = time.perf_counter()
    try:
        await _open(host, port, seconds, None)
    except (OSError, TimeoutError) as error:
        report.fail(
            "connect",
            f"no connection to port {port}: {_reason(error)}",
            "Nothing listens there, or something on the way does not let you through.",
            "Start the server, or check the port, the address it listens on, and firewalls.",
        )
        return False
    connecting = time.perf_counter() - begun
    report.ok("connect", f"port {port} in {1000 * connecting:,.1f} ms")
    if parts.scheme == "https":
        return await _examine_tls(report, host, port, seconds, connecting)
    if is_loopback(host):
        report.skip("tls", "plain HTTP, which is fine on this machine")
    else:
        report.warn(
            "tls",
            "plain HTTP to another machine",
            "Everyone on the way can read tokens and results, and change them.",
            "Serve https, or put a proxy with a certificate in front.",
        )
    return True


async def _open(host: str, port: int, seconds: float, context: ssl.SSLContext | None) -> Any:
    """Connect once and hang up; the TLS object, where there is one."""
    async with asyncio.timeout(seconds):
        _, writer = await asyncio.open_connection(host, port, ssl=context)
    try:
        return writer.get_extra_info("ssl_object")
    finally:
        writer.close()
        with contextlib.suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await writer.wait_closed()


async def _examine_tls(report: Report, host: str, port: int, seconds: float, connecting: float) -> bool:
    begun = time.perf_counter()
    try:
        secured = await _open(host, port, seconds, ssl.create_default_context())
    except (OSError, TimeoutError) as error:
        if is_not_tls(error):
            why = "The URL says https, and the server that answers there knows nothing of it."
            fix = "Write http:// in the URL, or give the server a certificate."
        else:
            why = "Clients refuse to talk to a server whose certificate they cannot check."
            fix = "Install a certificate for this name, with its whole chain, and see that it has not expired."
        report.fail("tls", _reason(error), why, fix)
        return False
    duration = max(0.0, time.perf_counter() - begun - connecting)
    certificate: Mapping[str, Any] = secured.getpeercert() or {}
    expires = datetime.datetime.fromtimestamp(ssl.cert_time_to_seconds(certificate["notAfter"]), datetime.UTC)
    days = (expires - datetime.datetime.now(datetime.UTC)).days
    seen = f"{secured.version()} in {1000 * duration:,.1f} ms, certificate good for {days} days"
    if days < _CERT_DAYS:
        report.warn("tls", seen, "When it expires nobody can connect.", "Renew the certificate.")
    else:
        report.ok("tls", seen)
    return True


def _error_text(answer: ProbeReply) -> str:
    """The message of a JSON-RPC error, as an addition to a sentence."""
    error = as_object((answer.message or {}).get("error"))
    return f": {in_one_line(str(error.get('message', '')))}" if error else ""


def _ms(begun: float) -> str:
    return f"{1000 * (time.perf_counter() - begun):,.1f} ms"


def _reason(error: BaseException) -> str:
    if isinstance(error, TimeoutError) and not str(error):
        return "no answer in time"
    return in_one_line(connection_reason(error) or str(error) or type(error).__name__, 1000)


# --- the endpoint ----------------------------------------------------------------------------------------------------


@final
class Endpoint:
    """One URL, asked in many ways."""

    def __init__(self, report: Report, url: str, wire: ProbeConnection) -> None:
        self._report = report
        self._url = url
        self._wire = wire
        self._is_local = is_loopback(urlsplit(url).hostname or "")
        self._is_modern = False
        self._is_sse = False
        """True if the server speaks the transport of 2024, where a GET opens the connection."""

    async def knock(self) -> bool:
        """The first request: is this MCP, does it redirect, does it want credentials? False: go no further."""
        report = self._report
        report.section("Access")
        try:
            answer = await self._wire.post(self._url, modern_request("server/discover"))
        except Unanswered as error:
            report.fail(
                "answer",
                in_one_line(str(error), 1000),
                "The port is open, but what listens there does not answer HTTP.",
                "Check that the port and the scheme (http or https) are those of the MCP server.",
            )
            return False
        if 300 <= answer.status < 400:
            location = in_one_line(answer.headers.get("location", "nowhere"))
            report.fail(
                "redirect",
                f"HTTP {answer.status} to {location}",
                "A redirected POST loses its body or its token, so clients do not follow.",
                f"Use {location} as the URL, or answer here without a redirect.",
            )
            return False
        report.ok("redirect", f"none: {answer.describe()}")
        if answer.status == 403 and "www-authenticate" not in answer.headers:
            report.fail(
                "access",
                f"refused: {answer.describe()}{_error_text(answer)}",
                "The server refuses requests without Origin and with this Host.",
                "See what its answer says; servers on public addresses often have a list of hosts or origins to extend.",
            )
            return False
        if answer.status in (401, 403):
            await examine_authorization(report, self._wire, self._url, answer)
            return False
        await report_admission(report, self._wire, self._url)
        if await self._is_mcp(self._url, answer):
            return True
        await self._find_path(answer)
        return False

    async def _is_mcp(self, url: str, discovered: ProbeReply) -> bool:
        """True if MCP of any revision answers here."""
        if discovered.result is not None or discovered.code in _MODERN_CODES:
            return True
        has_answered = False
        with contextlib.suppress(Unanswered):
            answer = await self._wire.post(url, legacy_hello())
            await self._end_session(answer)
            if answer.result is not None:
                return True
            has_answered = answer.message is not None and answer.status not in (404, 405)
        with contextlib.suppress(Unanswered):
            if (await self._wire.send("GET", url, {"Accept": "text/event-stream"})).kind == "text/event-stream":
                self._is_sse = url == self._url
                return True
        return has_answered

    async def _find_path(self, answer: ProbeReply) -> None:
        """There is no MCP at this path: look at the usual ones."""
        parts = urlsplit(self._url)
        own = parts.path or "/"
        endpoints: list[str] = []
        for path in _PATHS:
            url = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
            with contextlib.suppress(Unanswered):
                if path != own:
                    discovered = await self._wire.post(url, modern_request("server/discover"))
                    if discovered.status == 401 or await self._is_mcp(url, discovered):
                        endpoints.append(url)
        others = ", ".join(path for path in _PATHS if path != own)
        self._report.fail(
            "path",
            f"no MCP at {own}: {answer.describe()}{_error_text(answer)}" + ("" if endpoints else f"; nor at {others}"),
            "Clients use the URL exactly as it is given; something else answers here.",
            f"Use {endpoints[0]}" if endpoints else "Look up the endpoint's URL in the configuration of the server.",
        )

    async def examine(self, *, modern: bool, legacy: bool) -> None:
        """Everything else about the endpoint, once it is known which eras it speaks."""
        self._report.section("HTTP")
        self._is_modern = modern
        steps: list[tuple[str, Callable[[], Awaitable[None]]]] = [
            ("content-type", self._content_type),
            ("unknown-method", self._unknown_method),
            ("header-mismatch", self._header_mismatch),
            ("version", self._unknown_version),
            ("get", lambda: self._verb("GET")),
            ("delete", lambda: self._verb("DELETE")),
            ("slash", self._slash),
            ("host", self._host),
            ("origin", self._origin),
            ("cors", self._preflight),
            ("stream", self._stream),
        ]
        if self._is_sse:
            self._report.warn(
                "transport",
                "HTTP+SSE, of 2024",
                "It was replaced in March 2025, and clients are dropping it.",
                "Serve Streamable HTTP, beside it or instead.",
            )
        for key, step in steps:
            if not modern and not legacy:
                self._report.skip(key, "neither era works")
            elif self._is_sse and key in ("delete", "slash"):
                self._report.skip(key, "not part of HTTP+SSE")
            elif not modern and key in ("unknown-method", "header-mismatch", "version", "stream"):
                self._report.skip(key, f"the server does not speak {MODERN}")
            else:
                await self._guarded(key, step)

    async def _guarded(self, key: str, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except Unanswered as error:
            self._report.fail(
                key,
                in_one_line(str(error), 1000),
                "A request without an answer leaves its client waiting.",
                "Answer every request, if only with an error.",
            )

    async def _hello(self, **headers: str) -> ProbeReply:
        """The smallest good request; a session it opened is closed again."""
        if self._is_sse:
            return await self._wire.send("GET", self._url, {"Accept": "text/event-stream", **headers})
        answer = await self._wire.post(
            self._url, modern_request("server/discover") if self._is_modern else legacy_hello(), **headers
        )
        await self._end_session(answer)
        return answer

    async def _end_session(self, answer: ProbeReply) -> None:
        session = answer.headers.get("mcp-session-id")
        if session is not None:
            with contextlib.suppress(Unanswered):
                await self._wire.send("DELETE", self._url, {"Mcp-Session-Id": session})

    async def _content_type(self) -> None:
        answer = await self._hello()
        if answer.kind in ("application/json", "text/event-stream"):
            self._report.ok("content-type", answer.kind)
        else:
            self._report.fail(
                "content-type",
                answer.kind or "none",
                "Clients read application/json and text/event-stream, and refuse the rest.",
                "Send the Content-Type of what is in the body; see whether a proxy changes it.",
            )

    async def _refusal(self, key: str, answer: ProbeReply, status: int, code: int, why: str) -> None:
        if answer.status == status and answer.code == code:
            self._report.ok(key, f"refused: HTTP {status}, error {code}")
            return
        fix = f"Answer HTTP {status} with error {code}; MCP libraries of {MODERN} do."
        self._report.fail(key, f"{answer.describe()}, where HTTP {status} and {code} are due", why, fix)

    async def _unknown_method(self) -> None:
        answer = await self._wire.post(self._url, modern_request("doctor/unknown"))
        why = "Clients tell from it that a method is missing, and not the whole endpoint."
        await self._refusal("unknown-method", answer, 404, CODE_METHOD_NOT_FOUND, why)

    async def _header_mismatch(self) -> None:
        answer = await self._wire.post(self._url, modern_request("server/discover", None, {"Mcp-Method": "tools/list"}))
        why = "Proxies route and refuse by these headers; a server that does not compare them can be tricked past a proxy."
        await self._refusal("header-mismatch", answer, 400, CODE_HEADER_MISMATCH, why)

    async def _unknown_version(self) -> None:
        headers, body = modern_request("server/discover", None, {"MCP-Protocol-Version": "2999-01-01"})
        answer = await self._wire.post(self._url, (headers, body.replace(MODERN.encode(), b"2999-01-01")))
        why = "Newer clients learn from this answer which version to use instead."
        await self._refusal("version", answer, 400, CODE_UNSUPPORTED_VERSION, why)

    async def _verb(self, verb: str) -> None:
        answer = await self._wire.send(verb, self._url, {"Accept": "text/event-stream"})
        seen = answer.describe()
        is_page = answer.kind == "text/html" and answer.status < 400
        if answer.status >= 500 or is_page:
            self._report.fail(
                verb.lower(),
                seen,
                "Older clients open a stream with GET and end their session with DELETE.",
                "Answer 405 with an Allow header if the verb means nothing here.",
            )
        elif answer.status == 405 and "allow" not in answer.headers:
            self._report.warn(
                verb.lower(),
                f"{seen}, without Allow",
                "HTTP wants a 405 to say which verbs there are.",
                "Add the header Allow: POST.",
            )
        else:
            self._report.ok(verb.lower(), seen)

    async def _slash(self) -> None:
        parts = urlsplit(self._url)
        path = parts.path[:-1] if parts.path.endswith("/") else f"{parts.path}/"
        if parts.path in ("", "/"):
            self._report.skip("slash", "the endpoint is the root")
            return
        url = urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))
        answer = await self._wire.post(url, modern_request("server/discover") if self._is_modern else legacy_hello())
        if 300 <= answer.status < 400:
            location = in_one_line(answer.headers.get("location", "nowhere"))
            self._report.warn(
                "slash",
                f"{path} redirects with HTTP {answer.status} to {location}",
                "A URL of that form gets a redirect, which clients do not follow for a POST.",
                "Answer both forms, or refuse one with 404.",
            )
        else:
            self._report.ok("slash", f"{path} gives HTTP {answer.status}, no redirect")

    async def _host(self) -> None:
        if not self._is_local:
            self._report.skip("host", "only a server on this machine needs to check it")
            return
        answer = await self._hello(Host=_EVIL)
        if 400 <= answer.status < 500:
            self._report.ok("host", f"refused: HTTP {answer.status}")
        else:
            self._report.fail(
                "host",
                f"Host: {_EVIL} is let in ({answer.describe()})",
                "A web page can point its own name at 127.0.0.1 and then call your tools (DNS rebinding).",
                "Refuse every Host but localhost, 127.0.0.1 and [::1].",
            )

    async def _origin(self) -> None:
        answer = await self._hello(Origin=f"https://{_EVIL}")
        if answer.status == 403:
            self._report.ok("origin", "refused: HTTP 403")
            return
        seen = f"Origin: https://{_EVIL} gets {answer.describe()}"
        why = "A page in somebody's browser may call the server in their name; the specification wants 403."
        fix = "Check Origin against the list of pages that may call."
        if 400 <= answer.status < 500:
            self._report.warn("origin", f"{seen}, where 403 is due", why, fix)
        elif self._is_local:
            self._report.fail("origin", seen, why, fix)
        else:
            self._report.warn("origin", seen, why, fix)

    async def _preflight(self) -> None:
        headers = {
            "Origin": _INSPECTOR,
            "Access-Control-Request-Method": "POST",
            "Access-Control-Request-Headers": ", ".join(_NEEDED_HEADERS),
        }
        # As a browser does it: a preflight carries no credentials.
        answer = await self._wire.send("OPTIONS", self._url, headers, bare=True)
        allowed = answer.headers.get("access-control-allow-origin")
        if allowed is None or answer.status >= 400:
            self._report.ok("cors", f"refused (HTTP {answer.status}): programs may call, web pages not")
            return
        if allowed == "*" and self._is_local:
            self._report.warn(
                "cors",
                "every web page may call (Access-Control-Allow-Origin: *)",
                "Any page open in a browser on this machine can use your tools.",
                "Allow the pages that need it by name.",
            )
            return
        listed = answer.headers.get("access-control-allow-headers", "").lower()
        missing = [name for name in _NEEDED_HEADERS if name not in listed and "*" not in listed]
        if missing:
            self._report.warn(
                "cors",
                f"allowed from {in_one_line(allowed)}, but without {', '.join(missing)}",
                "Browsers hold the request back, so web clients fail although they are allowed.",
                "Add these names to Access-Control-Allow-Headers.",
            )
        else:
            self._report.ok("cors", f"web pages from {in_one_line(allowed)} may call")

    async def _stream(self) -> None:
        answer = await self._wire.post(self._url, modern_request("subscriptions/listen", {"notifications": {}}))
        if answer.kind != "text/event-stream":
            self._report.skip("stream", f"the server opens no stream for subscriptions/listen ({answer.describe()})")
            return
        buffering = answer.headers.get("x-accel-buffering", "").lower()
        encoding = answer.headers.get("content-encoding")
        if answer.first_event is None or answer.first_event > _SLOW_EVENT:
            when = (
                "no event came"
                if answer.first_event is None
                else f"the first event came after {answer.first_event:.1f} s"
            )
            self._report.fail(
                "stream",
                when,
                "Something holds events back, so progress and questions arrive too late or not at all.",
                "Switch buffering and compression off in the proxy; nginx heeds X-Accel-Buffering: no.",
            )
        elif buffering != "no" or encoding:
            lack = f"Content-Encoding: {in_one_line(encoding)}" if encoding else "no X-Accel-Buffering: no"
            self._report.warn(
                "stream",
                f"events come at once, but with {lack}",
                "A proxy in front may collect events before it passes them on.",
                "Send X-Accel-Buffering: no with text/event-stream, uncompressed.",
            )
        else:
            self._report.ok("stream", f"first event after {1000 * answer.first_event:,.1f} ms, unbuffered")
