"""The page at `/`: servers, their state and tools, sessions, recent calls, and the rules. Plain HTML, no script.

It looks like the inspector, with which it shares `apps/look.css`, and has none of its powers: nothing can be called or changed
here. Where callers authenticate it is for administrators. A browser cannot send an API key or a token by itself, so the page
asks for one and keeps it, sealed, in a cookie that scripts cannot read. Cookies know no port: every server on any port of this
host would be sent it, and could replay it. So it is only good, and only sent, below a path that nobody else knows.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast, final
from urllib.parse import parse_qs

from trimaran.errors import StateRejected
from trimaran.files import read_file
from trimaran.protocol.headers import HeaderLookup
from trimaran.protocol.seal import Sealer
from trimaran.server.routes import RouteRequest
from trimaran.types import Tool

from .call_control import RecentCall

if TYPE_CHECKING:
    from .gateway import Gateway

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
_MOST_STYLE: Final = 64 * 1024  # our own file
_STYLE: Final = read_file(Path(__file__).parents[1] / "look.css", _MOST_STYLE).decode() + (
    ".topbar{height:44px}.page{margin:0 auto}.card{overflow-wrap:anywhere}table.data th{overflow-wrap:normal}input{max-width:100%}"
    # Where there is no room for columns, each row is a block, and each cell says which column it is.
    "@media(max-width:45rem){.page{padding:14px}.card{padding:12px}thead{display:none}"
    "table.data,tbody,tr,table.data td{display:block;max-width:none}tr{padding:.4rem 0;border-bottom:1px solid var(--line)}"
    "table.data td{border:0;padding:0 8px}table.data td:empty{display:none}"
    "td::before{content:attr(data-column) ' ';color:var(--faint)}}"
)
_HINTS: Final = (("read_only_hint", "read only"), ("destructive_hint", "destructive"))
_MOST_WORDS: Final = 200  # characters of a description

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
        """The headers of a request, with the credentials of its cookie if it came by the cookie's path."""
        key = request.path_params.get("key", "")
        for part in (request.headers.get("cookie") or "").split(";"):
            name, _, value = part.strip().partition("=")
            if name == _COOKIE and key:
                try:
                    payload = self._sealer.open(value, purpose=_PURPOSE, binding=key.encode(), now=time.time()).decode()
                except StateRejected:
                    break
                header, _, credential = payload.partition("\n")
                return _WithHeader(request.headers, header, credential)
        return request.headers

    def candidates(
        self, request: RouteRequest, credential: str, header_names: Iterable[str]
    ) -> Iterable[tuple[str, str, Any]]:
        """The path, the cookie and the headers for each way in which a credential may be meant."""
        key = secrets.token_urlsafe(32)
        path = f"/page/{key}"
        ways = [("authorization", f"Bearer {credential}"), *((name.lower(), credential) for name in header_names)]
        expires_at = time.time() + _SIGNED_IN_SECONDS
        for name, value in ways:
            payload = f"{name}\n{value}".encode()
            sealed = self._sealer.seal(payload, purpose=_PURPOSE, binding=key.encode(), expires_at=expires_at)
            cookie = f"{_COOKIE}={sealed}; Path={path}; HttpOnly; SameSite=Strict; Max-Age={int(_SIGNED_IN_SECONDS)}"
            yield path, cookie, _WithHeader(request.headers, name, value)


@final
class StatusPage:
    """Writes the page."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def sign_in_form(self, message: str = "") -> Reply:
        form = (
            '<form class="card" method="post" action="/"><label for="credential">An API key or a token of an administrator'
            '</label><p class="row wrap"><input type="password" id="credential" name="credential" size="60" autofocus>'
            '<button class="primary">Sign in</button></p></form>'
        )
        problem = f'<p class="failure">{escape(message)}</p>' if message else ""
        return 401, _document(f"<h1>Sign in</h1>{problem}{form}"), dict(_HEADERS)

    def render(self, base: str) -> Reply:
        """The page; `base` is the path by which the browser is known, for its links."""
        gateway = self._gateway
        default = "allowed" if gateway.controls.access.default == "allow" else "denied"
        calls = (_call_row(call) for call in reversed(gateway.controls.recent))
        parts = [
            f"<h1>{len(gateway.served)} servers</h1><p class=lead>They are served at <code>{escape(gateway.url)}</code>. "
            f'<a href="{escape(base)}/metrics">Figures</a>, <a href="{escape(base)}/health">health</a>.</p>',
            *self._problems(),
            _card(
                "Servers",
                _table(
                    ("server", "state", "reached by", "revision", "tools", "connections", "endpoint"), self._servers()
                ),
                *self._tools(),
            ),
            _card("Views", _table(("view", "servers", "for", "endpoint"), self._views())),
            _card("Sessions", _table(("endpoint", "sessions of older revisions", "open streams"), self._sessions())),
            _card("Recent calls", _table(("time", "caller", "tool", "status", "ms"), calls)),
            _card(
                "Rules",
                f"<p>A call that no rule matches is {default}.</p>",
                _table(("action", "rule", "for", "where"), self._rules()),
            ),
        ]
        return 200, _document("".join(parts)), dict(_HEADERS)

    def _problems(self) -> Iterable[str]:
        gateway = self._gateway
        problems = [*gateway.problems(), *(f"{name}: {reason}" for name, reason in gateway.failed.items())]
        if problems:
            items = "".join(f"<li>{words_of_others(problem)}</li>" for problem in problems)
            yield f'<section class="failure"><h2 class="failure-who">To be fixed</h2><ul>{items}</ul></section>'

    def _servers(self) -> Iterable[tuple[str, ...]]:
        for name, served in self._gateway.served.items():
            client = served.upstream.client
            state = '<span class="badge ok">up</span>'
            if not served.is_up:
                state = (
                    f'<span class="badge bad">down</span> {words_of_others(served.plan.mask(served.upstream.status))}'
                )
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
            table = _table(("tool", "takes", "what it says"), map(_tool_row, tools))
            if tools:
                yield f'<details class="disclosure"><summary>Tools of {escape(name)}</summary>{table}</details>'

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


def _tool_row(tool: Tool) -> tuple[str, ...]:
    annotations = tool.annotations
    hints = [words for name, words in _HINTS if annotations is not None and getattr(annotations, name)]
    badges = "".join(f' <span class="badge">{hint}</span>' for hint in hints)
    schema: Any = tool.input_schema or {}
    properties: Any = schema.get("properties")
    names = ", ".join(cast("dict[str, Any]", properties)) if isinstance(properties, dict) else ""
    words = (tool.description or "")[:_MOST_WORDS]
    return (
        f"<code>{words_of_others(tool.name)}</code>{badges}",
        words_of_others(names[:_MOST_WORDS]),
        words_of_others(words),
    )


def _call_row(call: RecentCall) -> tuple[str, ...]:
    moment = time.strftime("%H:%M:%S", time.gmtime(call.time))
    status = call.status + (f" ({call.kind})" if call.kind else "")
    tone = "ok" if call.status == "ok" else "bad"
    badge = f'<span class="badge {tone}">{escape(status)}</span>'
    return escape(moment), words_of_others(call.caller), words_of_others(call.act), badge, f"{call.seconds * 1000:.1f}"


def words_of_others(text: str) -> str:
    """Words of others: isolated, and marked where they hide something."""
    marked = "".join(
        escape(character) if character.isprintable() or character in "\n\t" else f'<b class="hidden-mark">U+{ord(character):04X}</b>'
        for character in text
    )  # fmt: skip
    return f'<bdi class="theirs">{marked}</bdi>' if text else ""


def _card(title: str, *parts: str) -> str:
    return f'<section class="card"><h2>{title}</h2>{"".join(parts)}</section>'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are HTML already."""
    body = "".join(f"<tr>{''.join(map(_cell, head, row))}</tr>" for row in rows)
    heads = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    table = f'<table class="data"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>'
    return table if body else '<p class="note">None.</p>'


def _cell(column: str, content: str) -> str:
    return f'<td data-column="{escape(column)}">{content}</td>'


def _document(body: str) -> str:
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<title>Gateway</title><style>{_STYLE}</style></head><body><header class="topbar"><span class="brand">Trimaran '
        f'<span>gateway</span></span></header><main class="page">{body}</main></body></html>'
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
