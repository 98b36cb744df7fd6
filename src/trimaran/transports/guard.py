"""The checks of Origin, Host and CORS. Hosts are compared as parsed values, never by prefix.

A browser sends Origin; a page elsewhere must not reach a server on this machine through it (DNS rebinding). So a foreign
Origin is refused on every verb, and so is a foreign Host, unless the endpoint was bound to a public address. The
defaults of an endpoint:

    bind                    Host                            Origin
    loopback                loopback                        loopback, any port; its own
    none, an app above      loopback                        loopback, any port, for a loopback Host; its own
    public                  any                             must be told

The URL that `public_url` names is added to the first two. "Its own" is the whole origin, scheme, host and port, that the
request itself was sent to; where every Host is allowed nothing is an endpoint's own, since a page can choose that name.
Verdicts are remembered per header value: a known client costs two look-ups.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final, Literal, final

from trimaran.errors import ConfigError, ProtocolError

logger: Final = logging.getLogger("trimaran.http")

_MEMO: Final = 1024
_MIRRORED: Final = re.compile(r"mcp-param-[!#$%&'*+\-.^_`|~0-9a-z]+")
_NAME: Final = r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::([0-9]{1,5}))?"
_HOST: Final = re.compile(_NAME)
_ORIGIN: Final = re.compile(rf"([A-Za-z][A-Za-z0-9+.-]*)://{_NAME}")
_ANY: Final = ("any", "all", "*")
_MOST_LOGGED: Final = 20  # refused hosts; an operator needs the first, and a stranger must not fill the log
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
    """Whether only this machine can reach this address or name."""
    bare = host.strip("[]").lower()
    if bare == "localhost":
        return True
    try:
        # An address, not a name that looks like one: the owner of 127.0.0.1.evil.example decides where it resolves.
        return ip_address(bare).is_loopback
    except ValueError:
        return False


def _origin(text: str) -> Origin | None:
    """Scheme, host and port of an origin; None if it is not one."""
    match = _ORIGIN.fullmatch(text)
    if match is None:
        return None
    scheme = match[1].lower()
    return scheme, match[2].strip("[]").lower(), int(match[3]) if match[3] else _DEFAULT_PORTS.get(scheme)


def _host_name(header: str) -> str:
    match = _HOST.fullmatch(header)
    return match[1].strip("[]").lower() if match else ""


@final
class Guard:
    """Judges one endpoint's requests.

    `bind` is the address the endpoint listens on, or None where an app server above decides that. `headers` are further
    request headers that web pages may send: those that credentials come in.
    """

    def __init__(
        self,
        bind: str | None,
        *,
        allowed_origins: Iterable[str] | Literal["any", "all", "*"] | None = None,
        allow_missing_origin: bool | None = None,
        allowed_hosts: Iterable[str] | Literal["any", "all", "*"] | None = None,
        public_url: str | None = None,
        headers: Iterable[str] = (),
    ) -> None:
        self._is_bound = bind is not None
        self._allow_headers = ", ".join(dict.fromkeys([*_ALLOW_HEADERS, *(name.lower() for name in headers)]))
        local = bind is not None and is_loopback(bind)
        if bind is not None and not local and allowed_origins is None:
            raise ConfigError(
                f"allowed_origins_required: {bind} can be reached from other machines, so say which web pages may call it: "
                'allowed_origins=["https://app.example.com"], [] for none, or "any" to switch the check off'
            )
        self._any = allowed_origins in _ANY
        listed = () if self._any or allowed_origins is None else _listed(allowed_origins)
        self._allows_null = "null" in listed
        self._origins = frozenset(_require_origin(o) for o in listed if o != "null")
        self._has_defaults = allowed_origins is None
        own = None if public_url is None else _origin("/".join(public_url.split("/")[:3]))
        if own is not None and self._has_defaults:
            self._origins |= {own}
        # Programs that are not browsers send no Origin. On a public address it must be asked for (R104, C15).
        self._missing_ok = allow_missing_origin if allow_missing_origin is not None else (bind is None or local)
        self._takes_loopback = allowed_hosts is None
        self._hosts = None if allowed_hosts is None and bind is not None and not local else _hosts(allowed_hosts)
        """None where any will do."""
        if self._hosts is not None and own is not None:
            self._hosts |= {own[1]}
        self._cors_memo: dict[tuple[str, str | None, str], list[tuple[str, str]]] = {}
        self._good_hosts: set[str] = set()
        self._logged: set[str] = set()

    def admit(self, origin: str | None, host: str | None, scheme: str = "http") -> list[tuple[str, str]] | None:
        """The CORS headers of the reply (None for none), or a 403. `scheme` is that of the request."""
        if self._hosts is not None and host not in self._good_hosts:
            self._judge_host(host)
        if origin is None:
            if not self._missing_ok and not self._any:
                raise ProtocolError.invalid_request(
                    "this endpoint needs an Origin header; a program that is not a browser is let in with allow_missing_origin=True",
                    status=403,
                )
            return None
        key = (origin, host, scheme)
        cors = self._cors_memo.get(key)
        if cors is None:
            self._judge_origin(origin, host, scheme)
            cors = self._cors(origin)
            if len(self._cors_memo) < _MEMO:
                self._cors_memo[key] = cors
        return cors

    def preflight(self, cors: list[tuple[str, str]], requested_headers: str | None) -> list[tuple[str, str]]:
        """The CORS headers of a preflight: headers that mirror arguments are named by the tools, so they are echoed."""
        mirrored = [
            h.strip().lower() for h in (requested_headers or "").split(",") if _MIRRORED.fullmatch(h.strip().lower())
        ]
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
        is_ours = name in self._hosts or (self._takes_loopback and is_loopback(name))
        if not is_ours and (host or "").lower() not in self._hosts:
            self._log_host(name)
            remedy = (
                f"if this name is yours, add it: allowed_hosts=[{name[:100]!r}]"
                if name
                else "a name or an address is expected, with a port or without, that allowed_hosts lists"
            )
            raise ProtocolError.invalid_request(
                f"the Host header {(host or '')[:200]!r} is not allowed here; {remedy}", status=403
            )
        if host is not None and len(self._good_hosts) < _MEMO:
            self._good_hosts.add(host)

    def _log_host(self, name: str) -> None:
        """Log a refusal for the operator, who does not see the replies."""
        if name and name not in self._logged and len(self._logged) < _MOST_LOGGED:
            self._logged.add(name)
            logger.warning(
                "a request for the host %r was refused; if this name is yours, pass allowed_hosts=[%r]",
                *(name[:100], name[:100]),
            )

    def _judge_origin(self, origin: str, host: str | None, scheme: str) -> None:
        if self._any or (origin == "null" and self._allows_null):
            return
        parts = _origin(origin)
        if parts is not None:
            if parts in self._origins:
                return
            if self._has_defaults and self._is_own(parts, host or "", scheme):
                return
        raise ProtocolError.invalid_request(
            f"the Origin {origin[:200]!r} is not allowed here; if it is yours, add it: allowed_origins=[{origin[:100]!r}]",
            status=403,
        )

    def _is_own(self, origin: Origin, host: str, scheme: str) -> bool:
        if origin[0] not in _DEFAULT_PORTS:
            return False
        if is_loopback(origin[1]) and (self._is_bound or is_loopback(_host_name(host))):
            return True
        return self._hosts is not None and origin == _origin(f"{scheme}://{host}")


def _hosts(allowed: Iterable[str] | str | None) -> frozenset[str] | None:
    """The names that are allowed, beside those of loopback; None if any is."""
    if allowed in _ANY:
        return None
    if isinstance(allowed, str):
        raise ConfigError(f'allowed_hosts must be a list of names, ["{allowed}"], or "any"')
    names = list(allowed or ())
    return None if any(name in _ANY for name in names) else frozenset(name.strip("[]").lower() for name in names)


def _listed(origins: Iterable[str] | str) -> tuple[str, ...]:
    if isinstance(origins, str):
        raise ConfigError(f'allowed_origins must be a list of origins, ["{origins}"], or "any"')
    return tuple(origins)


def _require_origin(text: str) -> Origin:
    parts = _origin(text.removesuffix("/"))
    if parts is None:
        raise ConfigError(
            f'allowed_origins: {text!r} is not an origin; write scheme and host, like "https://app.example.com"'
        )
    return parts
