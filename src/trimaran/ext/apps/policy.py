"""What a view may reach: the origins it declares, and the Content-Security-Policy a host makes of them.

Pure, and used on both sides: a server's declaration is checked with the same eyes as a host's reading of it. A policy
starts from nothing and gains only origins that were declared and are origins, so that no spelling of a domain can end a
directive, start another one or stand for a keyword. What does not fit is never passed on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, cast, final

from msgspec import Struct

from trimaran.types import Json

__all__ = ["PERMISSIONS", "Csp", "allow_attribute", "origin_problem"]

PERMISSIONS: Final[Mapping[str, str]] = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboardWrite": "clipboard-write",
}
"""What a view may ask the browser for, and the name the Permissions-Policy has for it."""

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
# More than any view needs, less than what makes a header that proxies refuse.
MAX_DOMAINS: Final = 64


def origin_problem(value: object, schemes: Sequence[str] = (*_WEB, "ws", "wss")) -> str | None:
    """Why this is not an origin that may stand in a policy; None if it is one."""
    if not isinstance(value, str):
        return f"an origin is text, not {type(value).__name__}"
    found = _ORIGIN.fullmatch(value) if len(value) <= _MAX_ORIGIN else None
    if found is None:
        return f'{value[:80]!r} is no origin; write "https://api.example.com" or "https://*.example.com"'
    if found["scheme"].lower() not in schemes:
        return f"{value[:80]!r} cannot be used here; the scheme is one of {', '.join(schemes)}"
    if found["port"] is not None and not 0 < int(found["port"][1:]) < 65536:
        return f"{value[:80]!r} has a port that is none"
    return None


@final
class Csp(Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """The origins a view needs. What is not named here is out of its reach."""

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
        """What of a declaration can be used, and what is wrong with the rest."""
        if isinstance(value, Csp):
            value = value.to_json()
        if not isinstance(value, Mapping):
            return cls(), [f"csp is a mapping of lists of origins, not {type(value).__name__}"]
        kept: dict[str, tuple[str, ...]] = {}
        problems = [
            f"csp has no {key!r}; it has {', '.join(_FIELDS)}"
            for key in cast("Mapping[Any, Any]", value)
            if key not in _FIELDS
        ]
        for key, (name, schemes) in _FIELDS.items():
            kept[name], wrong = _origins(cast("Mapping[str, Any]", value).get(key), key, schemes)
            problems += wrong
        return cls(**kept), problems

    def to_json(self) -> dict[str, Json]:
        """As it stands in `_meta.ui.csp`."""
        return {key: list(found) for key, (name, _) in _FIELDS.items() if (found := getattr(self, name))}

    def within(self, allowed: Iterable[str]) -> Csp:
        """The same without origins that a host does not allow; `https://*.example.com` allows every name below it."""
        rules = tuple(allowed)
        return Csp(
            **{name: tuple(o for o in getattr(self, name) if _is_covered(o, rules)) for name, _ in _FIELDS.values()}
        )

    def directives(self) -> dict[str, str]:
        """The policy, directive by directive."""
        # Checked again, for whoever made a Csp by hand: a policy is no place for anything unchecked.
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
            # Not covered by default-src: without it a form could carry away what connect-src keeps in.
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
    kept: list[str] = []
    problems: list[str] = []
    for one in cast("Sequence[object]", value):
        # One slash at the end means the same, and is often written.
        origin = one[:-1] if isinstance(one, str) and one.endswith("/") else one
        problem = origin_problem(origin, schemes)
        if problem is not None:
            problems.append(f"csp.{key}: {problem}")
        elif len(kept) >= MAX_DOMAINS:
            problems.append(f"csp.{key} has more than {MAX_DOMAINS} origins")
            break
        elif origin not in kept:
            kept.append(cast("str", origin))
    return tuple(kept), problems


def _is_covered(origin: str, rules: Sequence[str]) -> bool:
    origin = origin.lower()
    scheme, _, host = origin.partition("://")
    for rule in rules:
        wanted_scheme, _, wanted = rule.lower().rstrip("/").partition("://")
        if origin == f"{wanted_scheme}://{wanted}":
            return True
        if scheme == wanted_scheme and wanted.startswith("*.") and host.endswith(wanted[1:]):
            return True
    return False


def allow_attribute(permissions: Iterable[str]) -> str:
    """The `allow` attribute of a view's frame; what is no permission of views is left out."""
    return "; ".join(PERMISSIONS[name] for name in PERMISSIONS if name in set(permissions))
