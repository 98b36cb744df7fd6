"""The page at `/`: servers, their state and tools, sessions, recent calls, and the rules. Plain HTML, no script.

Where callers authenticate it is for administrators. A browser cannot send an API key or a token by itself, so the page asks for
one and keeps it, sealed, in a cookie that scripts cannot read. Nothing can be changed here.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import parse_qs

from trimaran.errors import StateRejected
from trimaran.protocol.headers import HeaderLookup
from trimaran.protocol.seal import Sealer
from trimaran.server.routes import RouteRequest

from .control import RecentCall

if TYPE_CHECKING:
    from .gateway import Gateway

__all__ = ["SignIn", "StatusPage", "read_form"]

_COOKIE: Final = "trimaran_gateway"
_SIGNED_IN_SECONDS: Final = 8 * 3600.0  # a working day
_PURPOSE: Final = b"gateway page"
_MOST_FORM: Final = 32 * 1024  # bytes; the longest credential that providers read has 16 KiB
_MOST_FIELDS: Final = 10
_HEADERS: Final = {
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_STYLE: Final = (
    ":root{color-scheme:light dark;--ink:#223;--paper:#fff;--faint:#566;--line:#dde;--up:#065f3c;--down:#a3200d;--link:#0b57b0}"
    "@media(prefers-color-scheme:dark){:root{--ink:#dde;--paper:#15181c;--faint:#a4adb6;--line:#343a42;--up:#6fd39f;"
    "--down:#ff9a85;--link:#8ab8f5}}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:var(--ink);"
    "background:var(--paper);overflow-wrap:anywhere}a{color:var(--link)}input{max-width:100%;box-sizing:border-box}"
    "table{border-collapse:collapse;width:100%}td,th{text-align:left;vertical-align:top;padding:.3rem .6rem;"
    "border-bottom:1px solid var(--line)}th{overflow-wrap:normal}ul{padding-left:1.2rem}"
    "code{font-size:.9em}.up{color:var(--up)}.down{color:var(--down)}h2{margin-top:2rem}"
    # Where there is no room for columns, each row is a block, and each cell says which column it is.
    "@media(max-width:45rem){thead{display:none}table,tbody,tr,td{display:block}tr{padding:.4rem 0;"
    "border-bottom:1px solid var(--line)}td{border:0;padding:0}td:empty{display:none}"
    "td::before{content:attr(data-column) ' ';color:var(--faint)}}"
)

Reply = tuple[int, Any, dict[str, str]]


@final
class _WithHeader:
    """The headers of a request, and one more."""

    def __init__(self, headers: HeaderLookup, name: str, value: str) -> None:
        self._headers = headers
        self._name, self._value = name, value

    def get(self, key: str, /) -> str | None:
        return self._value if key == self._name else self._headers.get(key)


@final
class SignIn:
    """Credentials in a cookie, for people with a browser."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._sealer = Sealer([key.encode() for key in keys] or [os.urandom(32)], random=os.urandom)

    def headers(self, request: RouteRequest) -> HeaderLookup:
        """The headers of a request, with the credentials of its cookie."""
        for part in (request.headers.get("cookie") or "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == _COOKIE:
                try:
                    payload = self._sealer.open(value, purpose=_PURPOSE, binding=b"", now=time.time()).decode()
                except StateRejected:
                    break
                header, _, credential = payload.partition("\n")
                return _WithHeader(request.headers, header, credential)
        return request.headers

    def candidates(
        self, request: RouteRequest, credential: str, header_names: Iterable[str]
    ) -> Iterable[tuple[str, Any]]:
        """The cookie and the headers for each way in which a credential may be meant."""
        ways = [("authorization", f"Bearer {credential}"), *((name.lower(), credential) for name in header_names)]
        expires_at = time.time() + _SIGNED_IN_SECONDS
        for name, value in ways:
            payload = f"{name}\n{value}".encode()
            sealed = self._sealer.seal(payload, purpose=_PURPOSE, binding=b"", expires_at=expires_at)
            cookie = f"{_COOKIE}={sealed}; Path=/; HttpOnly; SameSite=Strict; Max-Age={int(_SIGNED_IN_SECONDS)}"
            yield cookie, _WithHeader(request.headers, name, value)


@final
class StatusPage:
    """Writes the page."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def sign_in_form(self, message: str = "") -> Reply:
        form = (
            '<form method="post" action="/"><p><label>An API key or a token of an administrator:<br>'
            '<input type="password" name="credential" size="60" autofocus></label> <button>Sign in</button></p></form>'
        )
        return 401, _document(f"<h1>Gateway</h1><p>{escape(message)}</p>{form}"), dict(_HEADERS)

    def render(self) -> Reply:
        gateway = self._gateway
        parts = [
            f"<h1>Gateway</h1><p>{len(gateway.served)} servers at <code>{escape(gateway.url)}</code>. "
            '<a href="/metrics">Figures</a>, <a href="/health">health</a>.</p>',
            *self._problems(),
            "<h2>Servers</h2>",
            _table(("server", "state", "reached by", "revision", "tools", "connections", "endpoint"), self._servers()),
            *self._tools(),
            "<h2>Views</h2>",
            _table(("view", "servers", "for", "endpoint"), self._views()),
            "<h2>Sessions</h2>",
            _table(("endpoint", "sessions of older revisions", "open streams"), self._sessions()),
            "<h2>Recent calls</h2>",
            _table(
                ("time", "caller", "tool", "status", "ms"),
                (_call_row(call) for call in reversed(gateway.controls.recent)),
            ),
            "<h2>Rules</h2>",
            f"<p>A call that no rule matches is {'allowed' if gateway.controls.access.default == 'allow' else 'denied'}.</p>",
            _table(("action", "rule", "for", "where"), self._rules()),
        ]
        return 200, _document("".join(parts)), dict(_HEADERS)

    def _problems(self) -> Iterable[str]:
        gateway = self._gateway
        problems = [*gateway.problems(), *(f"{name}: {reason}" for name, reason in gateway.failed.items())]
        if problems:
            yield f"<h2>To be fixed</h2><ul>{''.join(f'<li>{escape(problem)}</li>' for problem in problems)}</ul>"

    def _servers(self) -> Iterable[tuple[str, ...]]:
        for name, served in self._gateway.served.items():
            client = served.upstream.client
            state = '<span class="up">up</span>'
            if not served.is_up:
                reason = escape(served.plan.mask(served.upstream.status))
                state = f'<span class="down">down</span>: {reason}'
            yield (
                escape(name),
                state,
                escape(served.plan.transport),
                "" if client is None else escape(client.version),
                str(len(served.server.tools)),
                str((client is not None) + served.upstream.own_clients),
                f"<code>{escape(served.engine.path)}</code>",
            )

    def _tools(self) -> Iterable[str]:
        for name, served in self._gateway.served.items():
            tools = served.server.list_tools()
            items = "".join(
                f"<li><code>{escape(tool.name)}</code> {escape((tool.description or '')[:200])}</li>" for tool in tools
            )
            if tools:
                yield f"<details><summary>Tools of {escape(name)}</summary><ul>{items}</ul></details>"

    def _views(self) -> Iterable[tuple[str, ...]]:
        for view in self._gateway.views.values():
            settings = view.settings
            listed = (view.name, ", ".join(settings.servers), ", ".join(settings.to) or "everybody")
            yield (*map(escape, listed), f"<code>{escape(view.engine.path)}</code>")

    def _sessions(self) -> Iterable[tuple[str, ...]]:
        figures: dict[str, dict[str, float]] = {}
        for name, labels, value in self._gateway.observe():
            if name in ("sessions", "streams"):
                figures.setdefault(labels["endpoint"], {})[name] = value
        for path, counts in figures.items():
            yield escape(path), f"{counts.get('sessions', 0):g}", f"{counts.get('streams', 0):g}"

    def _rules(self) -> Iterable[tuple[str, ...]]:
        for rule in self._gateway.controls.access.rules:
            who = ", ".join(rule.callers) or "everybody"
            yield (
                escape(rule.action),
                f"<code>{escape(str(rule.pattern))}</code>",
                escape(who),
                escape(str(rule.source)),
            )


def _call_row(call: RecentCall) -> tuple[str, ...]:
    moment = time.strftime("%H:%M:%S", time.gmtime(call.time))
    status = call.status + (f" ({call.kind})" if call.kind else "")
    return (*map(escape, (moment, call.caller, call.act, status)), f"{call.seconds * 1000:.1f}")


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are HTML already."""
    body = "".join(f"<tr>{''.join(map(_cell, head, row))}</tr>" for row in rows)
    heads = "".join(f"<th>{escape(name)}</th>" for name in head)
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>" if body else "<p>None.</p>"


def _cell(column: str, content: str) -> str:
    return f'<td data-column="{escape(column)}">{content}</td>'


def _document(body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>Gateway</title><style>{_STYLE}</style></head><body>{body}</body></html>"
    )


def read_form(body: bytes) -> Mapping[str, str]:
    """The fields of a form, the last value of each; none of one that is larger than the page's own can be.

    Anybody may send one, and the event loop reads it: 8 MB of fields would take half a minute.
    """
    if len(body) > _MOST_FORM:
        return {}
    try:
        fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=_MOST_FIELDS)
    except ValueError:
        return {}
    return {name: values[-1] for name, values in fields.items()}
