"""`Principal`: the authenticated caller."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn, Self, cast
from urllib.parse import SplitResult, urlsplit

from msgspec import Struct, field

from trimaran.types import Json

_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_UNFIT: Final = re.compile(r"[\x00-\x20\x7f\\]")
_LAST_SECOND: Final = 253_402_300_799
"""The end of the year 9999. A larger number is no date; most likely it is in milliseconds."""


class FrozenDict(dict[str, Any]):
    """A dict that cannot be changed. It can be encoded and copied like any dict."""

    def _refuse(self, *_: Any, **__: Any) -> NoReturn:
        raise TypeError("the claims and metadata of a principal cannot be changed; make a dict of them first")

    __setitem__: Any = _refuse
    __delitem__: Any = _refuse
    __ior__: Any = _refuse
    clear: Any = _refuse
    pop: Any = _refuse
    popitem: Any = _refuse
    setdefault: Any = _refuse
    update: Any = _refuse

    def __reduce__(self) -> tuple[type[FrozenDict], tuple[dict[str, Any]]]:
        return FrozenDict, (dict(self),)


_NOTHING: Final[Mapping[str, Any]] = FrozenDict()


class Principal(Struct, frozen=True, kw_only=True):
    """An authenticated caller: `ctx.auth` in a handler (R154, R165, R178).

    `claims` is the whole payload; `metadata` comes from the server's own configuration.
    One principal serves many requests, so neither can be changed.
    """

    subject: str | None = None
    issuer: str | None = None
    audience: tuple[str, ...] = ()
    scopes: frozenset[str] = frozenset()
    expires_at: float | None = None
    client_id: str | None = None
    claims: Mapping[str, Json] = field(default_factory=lambda: _NOTHING)
    metadata: Mapping[str, Json] = field(default_factory=lambda: _NOTHING)

    @classmethod
    def from_claims(cls, claims: Mapping[str, Json], *, scope_claim: str | None = None) -> Self:
        """A principal from a decoded JWT or an RFC 7662 introspection reply; ValueError if a claim has the wrong type.

        It verifies nothing: the caller must have done that.
        """
        return cls(
            subject=_text(claims, "sub"),
            issuer=_text(claims, "iss"),
            audience=_texts(claims, "aud"),
            scopes=_scopes(claims, scope_claim),
            expires_at=read_time(claims, "exp"),
            client_id=_text(claims, "client_id") or _text(claims, "azp"),
            claims=FrozenDict(claims),
        )

    @property
    def identity(self) -> str:
        """A text that identifies the caller: ownership and rate limits go by it.

        It holds issuer and subject, since two issuers may have subjects of the same name.
        """
        issuer = self.issuer or ""
        return f"{len(issuer)}:{issuer}:{self.subject or ''}"

    def has_scope(self, scope: str) -> bool:
        return scope in self.scopes

    def has_scopes(self, scopes: Iterable[str]) -> bool:
        """Whether all of these scopes are granted."""
        return self.scopes.issuperset(scopes)

    def covers_resource(self, resource: str) -> bool:
        """Is this token meant for a resource: an audience with the same scheme, host and port, and a path equal to the
        resource's or above it (R179)?
        """
        return any(_covers(audience, resource) for audience in self.audience)


def has_scopes(principal: Principal | None, scopes: Iterable[str]) -> bool:
    """`has_scopes` for a caller that may be anonymous: None has no scope."""
    return principal is not None and principal.has_scopes(scopes)


def _text(claims: Mapping[str, Json], name: str) -> str | None:
    value = claims.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"the claim {name} is not a string")
    return value or None


def _texts(claims: Mapping[str, Json], name: str) -> tuple[str, ...]:
    value = claims.get(name)
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, (list, tuple, set, frozenset)) or not all(
        isinstance(item, str) for item in cast("Iterable[Any]", value)
    ):
        raise ValueError(f"the claim {name} is neither a string nor a list of strings")
    return tuple(cast("Iterable[str]", value))


def split_scopes(text: str) -> frozenset[str]:
    """Split at spaces only (RFC 6749, 3.3). One scope of the issuer must not become two
    because it has another kind of blank in it.
    """
    return frozenset(scope for scope in text.split(" ") if scope)


def _scopes(claims: Mapping[str, Json], scope_claim: str | None) -> frozenset[str]:
    """The scopes of a token. Issuers write them into `scope`, `scp`, or both (R178)."""
    if scope_claim not in (None, "scope"):
        return _scopes_in(claims, scope_claim)
    if claims.get("scope") is None and claims.get("scp") is None:
        return _scopes_in(claims, "scopes")
    return _scopes_in(claims, "scope") | _scopes_in(claims, "scp")


def _scopes_in(claims: Mapping[str, Json], name: str) -> frozenset[str]:
    """The scopes in one claim: a text with blanks between them, or a list."""
    value = claims.get(name)
    return split_scopes(value) if isinstance(value, str) else frozenset(_texts(claims, name))


def read_time(claims: Mapping[str, Json], name: str) -> float | None:
    """A NumericDate (RFC 7519); None if there is none."""
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"the claim {name} is not a number")
    try:
        seconds = float(value)
    except OverflowError:
        seconds = math.inf
    if not -_LAST_SECOND <= seconds <= _LAST_SECOND:  # which NaN is not, either
        raise ValueError(f"the claim {name} is not a time in seconds")
    return seconds


def _parts(url: str) -> tuple[SplitResult, int | None] | None:
    # urlsplit drops some control characters without a word, and so would make two different strings equal.
    if _UNFIT.search(url):
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if not parts.scheme or not parts.hostname or parts.fragment or "@" in parts.netloc:
        return None
    return parts, port or _DEFAULT_PORTS.get(parts.scheme)


def _covers(audience: str, resource: str) -> bool:
    audience_parts, resource_parts = _parts(audience), _parts(resource)
    if audience_parts is None or resource_parts is None:
        return False
    (narrow, port), (wide, wide_port) = audience_parts, resource_parts
    if (narrow.scheme, narrow.hostname, port) != (wide.scheme, wide.hostname, wide_port):
        return False
    if narrow.query and narrow.query != wide.query:
        return False
    above, path = narrow.path.rstrip("/"), wide.path.rstrip("/")
    if any(segment in (".", "..") for segment in path.lower().replace("%2e", ".").split("/")):
        return False
    return path == above or path.startswith(above + "/")
