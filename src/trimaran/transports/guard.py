"""Who may talk to this endpoint from where: Origin, Host and CORS, by structure, never by prefix.

A browser sends Origin; a page elsewhere must not reach a server on this machine through it (DNS rebinding), so a foreign
Origin is refused on every verb, and a loopback bind refuses foreign Host names as well. Verdicts are remembered per
header value: a known client costs two look-ups.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final, Literal, final
from urllib.parse import urlsplit

from trimaran.errors import ConfigError, ProtocolError

__all__ = ["Guard", "is_loopback"]

LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_MEMO: Final = 1024
_MIRRORED: Final = re.compile(r"mcp-param-[!#$%&'*+\-.^_`|~0-9a-z]+")
_HOST: Final = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

_ALLOW_METHODS: Final = "POST, GET, DELETE, OPTIONS"
_ALLOW_HEADERS: Final = (
    "content-type",
    "accept",
    "authorization",
    "mcp-session-id",
    "mcp-protocol-version",
    "mcp-method",
    "mcp-name",
    "last-event-id",
)
_EXPOSE_HEADERS: Final = "www-authenticate, dpop-nonce, retry-after, mcp-session-id, mcp-protocol-version"

Origin = tuple[str, str, int | None]


def is_loopback(host: str) -> bool:
    """Is this address or name one that only this machine can reach?"""
    bare = host.strip("[]").lower()
    if bare in LOOPBACK:
        return True
    try:
        # An address, not a name that looks like one: 127.0.0.1.evil.example resolves wherever its owner likes.
        return ip_address(bare).is_loopback
    except ValueError:
        return False


def _origin(text: str) -> Origin | None:
    """Scheme, host and port of an origin; None if it is not one."""
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return None
    if (
        not parts.scheme
        or not parts.hostname
        or "@" in parts.netloc
        or parts.path not in ("", "/")
        or parts.query
        or parts.fragment
    ):
        return None
    return parts.scheme, parts.hostname, port or _DEFAULT_PORTS.get(parts.scheme)


def _host_name(header: str) -> str:
    found = _HOST.fullmatch(header)
    return found[1].strip("[]").lower() if found else ""


@final
class Guard:
    """Judges one endpoint's requests.

    `bind` is the address the endpoint listens on, or None where an app server above decides that: then an Origin is
    good if it is the very host that was asked, and Host is not judged. `headers` are further request headers that web
    pages may send: those that credentials come in.
    """

    def __init__(
        self,
        bind: str | None,
        *,
        allowed_origins: Iterable[str] | Literal["any", "all", "*"] | None = None,
        allow_missing_origin: bool | None = None,
        allowed_hosts: Iterable[str] | None = None,
        headers: Iterable[str] = (),
    ) -> None:
        self._bind = bind
        self._allow_headers = ", ".join(dict.fromkeys([*_ALLOW_HEADERS, *(name.lower() for name in headers)]))
        local = bind is not None and is_loopback(bind)
        if bind is not None and not local and allowed_origins is None:
            raise ConfigError(
                f"allowed_origins_required: {bind} can be reached from other machines, so say which web pages may call it: "
                'allowed_origins=["https://app.example.com"], [] for none, or "any" to switch the check off'
            )
        self._any = allowed_origins in ("any", "all", "*")
        listed = () if self._any or allowed_origins is None else _listed(allowed_origins)
        self._allows_null = "null" in listed
        self._origins = frozenset(_require_origin(o) for o in listed if o != "null")
        self._local_default = allowed_origins is None
        # Programs that are not browsers send no Origin. On a public address it must be asked for (R104, C15).
        self._missing_ok = allow_missing_origin if allow_missing_origin is not None else (bind is None or local)
        self._hosts = (
            frozenset(h.lower() for h in allowed_hosts) if allowed_hosts is not None else (LOOPBACK if local else None)
        )
        self._cors_memo: dict[str, list[tuple[str, str]]] = {}
        self._good_hosts: set[str] = set()

    def admit(self, origin: str | None, host: str | None) -> list[tuple[str, str]] | None:
        """The CORS headers of the reply (None for none), or a 403."""
        if self._hosts is not None and host not in self._good_hosts:
            self._judge_host(host)
        if origin is None:
            if not self._missing_ok and not self._any:
                raise ProtocolError.invalid_request(
                    "this endpoint needs an Origin header; a program that is not a browser is let in with allow_missing_origin=True",
                    status=403,
                )
            return None
        cors = self._cors_memo.get(origin)
        if cors is None or self._bind is None:
            self._judge_origin(origin, host)
            cors = self._cors(origin)
            if len(self._cors_memo) < _MEMO:
                self._cors_memo[origin] = cors
        return cors

    def preflight(self, cors: list[tuple[str, str]], asked: str | None) -> list[tuple[str, str]]:
        """The CORS headers of a preflight: headers that mirror arguments are named by the tools, so they are echoed."""
        mirrored = [h.strip().lower() for h in (asked or "").split(",") if _MIRRORED.fullmatch(h.strip().lower())]
        allowed = ", ".join([self._allow_headers, *mirrored[:50]])
        return [(name, allowed if name == "access-control-allow-headers" else value) for name, value in cors]

    def _cors(self, origin: str) -> list[tuple[str, str]]:
        return [
            ("access-control-allow-origin", origin),
            ("vary", "Origin"),
            ("access-control-allow-methods", _ALLOW_METHODS),
            ("access-control-allow-headers", self._allow_headers),
            ("access-control-expose-headers", _EXPOSE_HEADERS),
        ]

    def _judge_host(self, host: str | None) -> None:
        assert self._hosts is not None
        name = _host_name(host or "")
        if "*" not in self._hosts and name not in self._hosts and (host or "").lower() not in self._hosts:
            raise ProtocolError.invalid_request(
                f"the Host header {(host or '')[:200]!r} is not allowed here; if this name is yours, add it: "
                f"allowed_hosts=[{name[:100]!r}]",
                status=403,
            )
        if host is not None and len(self._good_hosts) < _MEMO:
            self._good_hosts.add(host)

    def _judge_origin(self, origin: str, host: str | None) -> None:
        if self._any or (origin == "null" and self._allows_null):
            return
        parts = _origin(origin)
        if parts is not None:
            if parts in self._origins:
                return
            if self._local_default and self._is_own(parts, host):
                return
        raise ProtocolError.invalid_request(
            f"the Origin {origin[:200]!r} is not allowed here; if it is yours, add it: allowed_origins=[{origin[:100]!r}]",
            status=403,
        )

    def _is_own(self, origin: Origin, host: str | None) -> bool:
        name = origin[1]
        if origin[0] not in _DEFAULT_PORTS:
            return False
        if self._bind is not None:
            return is_loopback(name)
        asked = _host_name(host or "")
        return name == asked or (is_loopback(name) and is_loopback(asked))


def _listed(origins: Iterable[str] | str) -> tuple[str, ...]:
    if isinstance(origins, str):
        raise ConfigError(f'allowed_origins is a list of origins, ["{origins}"], or "any"')
    return tuple(origins)


def _require_origin(text: str) -> Origin:
    parts = _origin(text)
    if parts is None:
        raise ConfigError(
            f'allowed_origins: {text!r} is not an origin; write scheme and host, like "https://app.example.com"'
        )
    return parts
