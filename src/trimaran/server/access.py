"""Access: who may see and use what, and who owns what.

A *principal* is what an authenticator gave for a request: `trimaran.auth.Principal`, or an author's own object with
`subject`, `issuer`, `scopes` and `expires_at` as far as it has them; None is an anonymous caller. Nothing here decides who
is calling. A failure means refusal: a `visible_to` that fails hides, a principal without scopes has none.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, cast

import msgspec

from trimaran.errors import CODE_INVALID_REQUEST, DeclarationError, ProtocolError
from trimaran.protocol.inbound import IncomingCall

from .handlers import incident, logger

Visible: TypeAlias = Callable[[Any], bool]
"""May this principal see it?"""
VisibleTo: TypeAlias = Sequence[str] | Callable[[Any], bool] | None
"""The same as an author declares it: scopes, all of which are needed, or a function of the principal."""

# Allowed clock skew, the same as the auth providers': a stream stays open while its token would still be accepted.
SKEW_SECONDS: Final = 60.0
# A timer is not set further ahead than this. A client that loses its stream once a month will live.
_LONGEST_SECONDS: Final = 30 * 86400.0
_PLAIN: Final = (str, int, bool, float)
_NONCE: Final = secrets.token_hex(8)
# The marks of principals that only this process can tell apart; whoever was not seen for longest gives way.
_MARKS: Final[dict[Any, str]] = {}
_MOST_MARKS: Final = 10_000


class InsufficientScope(ProtocolError):
    """The caller's credentials do not cover the operation: -32600 with all the scopes it needs (R183, R184).

    Over HTTP, a provider that can ask for more makes a 403 with a challenge of it; the body stays the same.
    """

    def __init__(self, scopes: Sequence[str]) -> None:
        self.scopes: tuple[str, ...] = tuple(scopes)
        named = f"the scope{'s' if len(scopes) > 1 else ''} {', '.join(scopes)}"
        super().__init__(
            CODE_INVALID_REQUEST, f"this needs {named}", {"required_scopes": list(self.scopes)}, status=200
        )


def scopes_of(scopes: Sequence[str], owner: str) -> tuple[str, ...]:
    """Scopes as declared; anything but a list of strings is refused (R185)."""
    if isinstance(scopes, str) or not all(type(s) is str for s in scopes):
        raise DeclarationError(f'{owner}: scopes must be a list of strings, scopes=["files:write"], not {scopes!r}')
    return tuple(scopes)


def grants(principal: object, scopes: Sequence[str]) -> bool:
    """Has the caller every one of these scopes? An anonymous one has none."""
    if principal is None:
        return False
    ask = getattr(principal, "has_scopes", None)
    if ask is not None:  # where an author's principal knows that one scope includes another
        return bool(ask(scopes))
    return frozenset(getattr(principal, "scopes", None) or ()).issuperset(scopes)


def require_scopes(call: IncomingCall, scopes: Sequence[str]) -> None:
    """-32600 unless the caller authenticated with every scope; an anonymous caller has none (R183, R184)."""
    if not grants(call.principal, scopes):
        raise InsufficientScope(scopes)


def visible_of(visible_to: Any, owner: str) -> Visible | None:
    """`visible_to` as declared: None for everybody, a list of scopes, or a function of the principal."""
    if visible_to is None:
        return None
    if callable(visible_to):
        if inspect.iscoroutinefunction(visible_to) or inspect.iscoroutinefunction(type(visible_to).__call__):
            raise DeclarationError(
                f"{owner}: visible_to is asked for every list, so it cannot be async; look things up in the authenticator"
            )
        return _by_function(cast("Callable[[Any], Any]", visible_to), owner)
    if isinstance(visible_to, (list, tuple, set, frozenset)) and visible_to:
        scopes = tuple(cast("Sequence[Any]", visible_to))
        if all(type(s) is str and s for s in scopes):
            return _by_scopes(scopes)
    raise DeclarationError(
        f'{owner}: visible_to must be a list of scopes, visible_to=["admin"], or a function of the principal (None if '
        f"anonymous) that returns True or False, not {visible_to!r}"
    )


def _by_scopes(scopes: tuple[str, ...]) -> Visible:
    def visible(principal: object) -> bool:
        return grants(principal, scopes)

    return visible


def _by_function(fn: Callable[[Any], Any], owner: str) -> Visible:
    def visible(principal: object) -> bool:
        try:
            answer = fn(principal)
        except Exception as error:
            incident(f"visible_to of {owner}", error)
            return False
        if inspect.isawaitable(answer):
            # Always true as a truth value: the one wrong answer that would show everything to everybody.
            if inspect.iscoroutine(answer):
                answer.close()
            logger.error("visible_to of %s returned an awaitable; it returns True or False", owner)
            return False
        return bool(answer)

    return visible


def is_hidden(entry: Any, principal: object) -> bool:
    """Is this declared thing one that the caller must not know of?"""
    visible: Visible | None = entry.visible_to
    return visible is not None and not visible(principal)


def refuse_hidden(entry: Any, call: IncomingCall) -> None:
    """Tell whoever hides an entry that it was asked for by name: its `visible_to.refused(call)` may raise what the caller is told."""
    refused = getattr(entry.visible_to, "refused", None)
    if refused is not None:
        refused(call)


def identity(principal: object) -> Any:
    """The identity that tells whether two requests come from the same caller: subject *and* issuer (R102).

    Authentication makes a new object for each request, so the object's identity says nothing. Principals without a
    subject are compared with `==`.
    """
    subject = getattr(principal, "subject", None)
    return getattr(principal, "issuer", None), principal if subject is None else subject


def same_principal(principal: object, other: object) -> bool:
    return principal is other or identity(principal) == identity(other)


def owner_text(principal: object) -> str:
    """The owner of something, as text that every process understands; empty for an anonymous caller.

    By subject and issuer, as `identity` has it. A principal without a subject that is a plain value is that
    value. Any other is known to this process alone, and to no other process ever: what cannot be told is refused.
    """
    if principal is None:
        return ""
    subject = getattr(principal, "subject", None)
    if subject is not None:
        kind = [] if isinstance(subject, str) else [type(subject).__name__]  # 1 is not "1"
        return msgspec.json.encode(["sub", str(getattr(principal, "issuer", None) or ""), str(subject), *kind]).decode()
    if isinstance(principal, _PLAIN):
        return msgspec.json.encode(["is", type(principal).__name__, str(principal)]).decode()
    return msgspec.json.encode(["here", _NONCE, type(principal).__qualname__, _mark(principal)]).decode()


def _mark(principal: object) -> str:
    """A mark for whatever equals this principal, and for nothing else: two that are not equal may have the same hash."""
    new = secrets.token_hex(8)
    if type(principal).__hash__ is object.__hash__:
        return new
    try:
        hash(principal)
    except TypeError:
        return new
    _MARKS[principal] = mark = _MARKS.pop(principal, new)
    if len(_MARKS) > _MOST_MARKS:
        del _MARKS[next(iter(_MARKS))]
    return mark


def at_expiry(principal: object, end: Callable[[], None]) -> asyncio.TimerHandle | None:
    """Call `end` when the principal's credentials expire. Returns the timer; cancel it if the stream ends first."""
    expires_at: float | None = getattr(principal, "expires_at", None)
    if expires_at is None:
        return None
    left = expires_at + SKEW_SECONDS - time.time()
    if not left > 0:
        # Its authenticator has more patience than we. Ask it again in a minute; at once would be to go in circles.
        left = SKEW_SECONDS
    return asyncio.get_running_loop().call_later(min(left, _LONGEST_SECONDS), end)
