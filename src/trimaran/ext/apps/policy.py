"""The origins that a view may reach, and the Content-Security-Policy that a host builds from them.

Pure, and used on both sides: a server's declaration is checked with the same eyes as a host's reading of it. A policy
starts from nothing and gains only origins that were declared and are origins, so that no spelling of a domain can end a
directive, start another one or act as a keyword. Invalid sources are never passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast, final

from msgspec import Struct

from trimaran.types import Json

PERMISSIONS: Final[Mapping[str, str]] = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboardWrite": "clipboard-write",
}
"""The permissions that a view may request, and their names in the Permissions-Policy."""

# A host as CSP knows it, in ASCII (an international name in its xn-- form). A wildcard stands for the first label only,
# and two more must follow: `https://*.com` would be half the world.
_LABEL: Final = r"[a-z0-9](?:[a-z0-9\-]{0,61}[a-z0-9])?"
_ORIGIN: Final = re.compile(
    rf"(?P<scheme>https?|wss?)://(?P<host>\*\.{_LABEL}(?:\.{_LABEL})+|{_LABEL}(?:\.{_LABEL})*|\[[0-9a-f:.]+\])(?P<port>:[0-9]{{1,5}})?",
    re.IGNORECASE,
)
_MAX_ORIGIN: Final = 300  # a host name has at most 253 characters
_WEB: Final = ("http", "https")
_FIELDS: Final = {
    "connectDomains": ("connect_domains", (*_WEB, "ws", "wss")),
    "resourceDomains": ("resource_domains", _WEB),
    "frameDomains": ("frame_domains", _WEB),
    "baseUriDomains": ("base_uri_domains", _WEB),
}
# More than any view needs. A header with more might be too long for proxies.
MAX_DOMAINS: Final = 64


def origin_problem(value: object, schemes: Sequence[str] = (*_WEB, "ws", "wss")) -> str | None:
    """Why this is not an origin that may stand in a policy; None if it is one."""
    if not isinstance(value, str):
        return f"an origin is text, not {type(value).__name__}"
    match = _ORIGIN.fullmatch(value) if len(value) <= _MAX_ORIGIN else None
    if match is None:
        return f'{value[:80]!r} is no origin; write "https://api.example.com" or "https://*.example.com"'
    if match["scheme"].lower() not in schemes:
        return f"{value[:80]!r} cannot be used here; the scheme is one of {', '.join(schemes)}"
    if match["port"] is not None and not 0 < int(match["port"][1:]) < 65536:
        return f"{value[:80]!r} has an invalid port"
    return None


@final
class Csp(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The origins that a view needs. It can reach no others."""

    connect_domains: tuple[str, ...] = ()
    """For requests: fetch, XHR, WebSocket."""
    resource_domains: tuple[str, ...] = ()
    """For scripts, styles, images, fonts and media."""
    frame_domains: tuple[str, ...] = ()
    """For frames inside the view."""
    base_uri_domains: tuple[str, ...] = ()
    """For the document's base URI."""

    @classmethod
    def read(cls, value: object) -> tuple[Csp, list[str]]:
        """The usable parts of a declaration, and the problems of the others."""
        if isinstance(value, Csp):
            value = value.to_json()
        if not isinstance(value, Mapping):
            return cls(), [f"csp is a mapping of lists of origins, not {type(value).__name__}"]
        origins: dict[str, tuple[str, ...]] = {}
        problems = [
            f"csp has no {key!r}; it has {', '.join(_FIELDS)}"
            for key in cast("Mapping[Any, Any]", value)
            if key not in _FIELDS
        ]
        for key, (name, schemes) in _FIELDS.items():
            origins[name], wrong = _origins(cast("Mapping[str, Any]", value).get(key), key, schemes)
            problems += wrong
        return cls(**origins), problems

    def to_json(self) -> dict[str, Json]:
        """As it stands in `_meta.ui.csp`."""
        return {key: list(origins) for key, (name, _) in _FIELDS.items() if (origins := getattr(self, name))}

    def within(self, allowed: Iterable[str]) -> Csp:
        """The same without origins that a host does not allow; `https://*.example.com` allows every name below it."""
        rules = tuple(allowed)
        return Csp(
            **{name: tuple(o for o in getattr(self, name) if _is_covered(o, rules)) for name, _ in _FIELDS.values()}
        )

    def directives(self) -> dict[str, str]:
        """The policy, directive by directive."""
        # Checked again, because a program may have created this Csp itself.
        safe, _ = Csp.read(self)
        resources = " ".join(("", *safe.resource_domains))
        return {
            "default-src": "'none'",
            "script-src": f"'self' 'unsafe-inline'{resources}",
            "style-src": f"'self' 'unsafe-inline'{resources}",
            "img-src": f"'self' data:{resources}",
            "font-src": f"'self'{resources}",
            "media-src": f"'self' data:{resources}",
            # Stricter than the specification's example, which says 'self' here: without a declared origin, nothing.
            "connect-src": " ".join(("'self'", *safe.connect_domains)) if safe.connect_domains else "'none'",
            "frame-src": " ".join(safe.frame_domains) or "'none'",
            "object-src": "'none'",
            "base-uri": " ".join(safe.base_uri_domains) or "'self'",
            # default-src does not cover forms: without this, a form could send out data that connect-src protects.
            "form-action": "'none'",
        }

    @property
    def policy(self) -> str:
        """The value of the Content-Security-Policy header."""
        return "; ".join(f"{name} {sources}" for name, sources in self.directives().items())


def _origins(value: object, key: str, schemes: Sequence[str]) -> tuple[tuple[str, ...], list[str]]:
    if value is None:
        return (), []
    if not isinstance(value, (list, tuple)):
        return (), [f"csp.{key} is a list of origins, not {type(value).__name__}"]
    origins: list[str] = []
    problems: list[str] = []
    for origin in cast("Sequence[object]", value):
        # One slash at the end means the same, and is often written.
        origin = origin[:-1] if isinstance(origin, str) and origin.endswith("/") else origin
        problem = origin_problem(origin, schemes)
        if problem is not None:
            problems.append(f"csp.{key}: {problem}")
        elif len(origins) >= MAX_DOMAINS:
            problems.append(f"csp.{key} has more than {MAX_DOMAINS} origins")
            break
        elif origin not in origins:
            origins.append(cast("str", origin))
    return tuple(origins), problems


def _is_covered(origin: str, rules: Sequence[str]) -> bool:
    origin = origin.lower()
    scheme, _, host = origin.partition("://")
    for rule in rules:
        rule_scheme, _, rule_host = rule.lower().rstrip("/").partition("://")
        if origin == f"{rule_scheme}://{rule_host}":
            return True
        if scheme == rule_scheme and rule_host.startswith("*.") and host.endswith(rule_host[1:]):
            return True
    return False


def allow_attribute(permissions: Iterable[str]) -> str:
    """The `allow` attribute of a view's frame. Unknown permissions are left out."""
    return "; ".join(PERMISSIONS[name] for name in PERMISSIONS if name in set(permissions))
