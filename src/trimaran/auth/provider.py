"""`Provider`, the base of all providers: required scopes, challenges, and calls of an author's function.

A provider runs on every request, so it may remember verified credentials in a `VerifiedCredentials`: bounded, by digest, for minutes.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import hashlib
import hmac
import inspect
import os
import re
import secrets
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol, TypeAlias, cast

import msgspec

from trimaran.bounded_log import BoundedLog
from trimaran.daemon_threads import DaemonExecutor
from trimaran.errors import ConfigError
from trimaran.oauth.effects import HttpReply, HttpRequest
from trimaran.protocol.headers import HeaderLookup

from .principal import FrozenDict, Principal
from .refusal import Refused, printable

logger: Final = BoundedLog("trimaran.auth")

Fetch: TypeAlias = Callable[[HttpRequest], Awaitable[HttpReply]]
"""How a provider reaches an issuer. The server gives it one when it starts: there is no network here."""

REMEMBERED: Final = 10_000
_RECENT: Final = 2048
REMEMBERED_SECONDS: Final = 300.0
"""Verified credentials are verified again after this long, so that a withdrawn key takes effect."""

_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_THREADS: Final = 4
"""Functions of authors look things up, and passwords take a core for a while: more threads would not make them faster."""
_VERDICT_SECONDS: Final = 30.0
"""The limit for one decision, the wait for a thread included. Few callers wait longer."""
_MAX_WAITING: Final = 256


class AuthRequest(Protocol):
    """The part of a request that a provider reads. `url` is as the client wrote it, if that is known."""

    @property
    def headers(self) -> HeaderLookup: ...
    @property
    def method(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def query(self) -> str: ...
    @property
    def url(self) -> str | None: ...
    @property
    def address(self) -> str | None: ...


class Provider:
    """Authenticates callers (R152). A subclass has `identify` and `challenge`."""

    header_names: tuple[str, ...] = ()
    """Headers beside Authorization that carry credentials. CORS replies allow them."""

    allows_anonymous: bool = False
    """Whether a caller without credentials is accepted."""

    expects: str = ""
    """The required credentials, in words that follow "send": "an API key in the header X-API-Key". Refusals name them."""

    offers_login: bool = False
    """Whether a client can discover where to get a token (OAuth). If not, refusals and 404s say what to send."""

    needs_scope: bool = False
    """Whether it reads the ASGI scope, so that it works only below an ASGI application."""

    def __init__(self, required_scopes: Iterable[str] = ()) -> None:
        self.required_scopes: tuple[str, ...] = check_scopes(required_scopes)

    async def start(self, fetch: Fetch | None = None) -> None:
        """Prepare. An exception keeps the server from listening (R166)."""

    async def close(self) -> None:
        """End background work. A provider may be started again."""

    def presents(self, request: AuthRequest) -> bool:
        """Whether the request carries credentials of this kind, valid or not."""
        raise NotImplementedError

    async def identify(self, request: AuthRequest) -> Principal | None:
        """The caller; None for an anonymous one. Raises `Refused`."""
        raise NotImplementedError

    def challenge(self, refusal: Refused) -> str:
        """The value of `WWW-Authenticate` for a refusal."""
        raise NotImplementedError

    def documents(self) -> Mapping[str, Callable[[AuthRequest], bytes]]:
        """Documents that anyone may read, by path."""
        return {}

    def refusal(self, kind: str = "missing", message: str | None = None, *, scopes: Iterable[str] = ()) -> Refused:
        """A refusal with its challenge, for routes of your own: its `status`, `headers` and `body` are the reply."""
        refusal = Refused(kind, message, scopes=scopes)
        if challenge := self.challenge(refusal):
            refusal.challenges = (challenge,)
        refusal.explain(self.expects)
        return refusal

    async def authenticate(self, request: AuthRequest) -> Principal | None:
        """The caller. Raises `Refused` with a challenge."""
        try:
            principal = await self.identify(request)
            if self.required_scopes and (principal is None or not principal.has_scopes(self.required_scopes)):
                raise Refused("missing" if principal is None else "insufficient_scope", scopes=self.required_scopes)
        except Refused as refusal:
            if not refusal.challenges:  # or else another provider has seen to it
                if refusal.reason:
                    logger.info("refused: %s (%s)", refusal.kind, printable(refusal.reason), kind=refusal.kind)
                if challenge := self.challenge(refusal):
                    refusal.challenges = (challenge,)
            refusal.explain(self.expects)
            raise
        return principal


def check_scopes(scopes: Iterable[str], option: str = "required_scopes") -> tuple[str, ...]:
    words: tuple[Any, ...] = (scopes,) if isinstance(scopes, str) else tuple(scopes)
    if isinstance(scopes, str) or not all(isinstance(scope, str) and _SCOPE.fullmatch(scope) for scope in words):
        raise ConfigError(f'{option} must be a list of scopes, each a word of plain ASCII: ["read"], not {scopes!r}')
    return words


def check_realm(realm: Any) -> str | None:
    if realm is not None and not (isinstance(realm, str) and realm.isprintable() and realm.isascii()):
        raise ConfigError(f"realm must be a string of plain ASCII, or None, not {realm!r}")
    return realm


def check_callable(option: str, function: Any) -> None:
    if function is not None and not callable(function):
        raise ConfigError(f"{option} is a function, sync or async, not {type(function).__name__}")


@functools.cache
def _pool() -> DaemonExecutor:
    return DaemonExecutor(_THREADS, "trimaran-auth")


_places = threading.BoundedSemaphore(_MAX_WAITING)


def _start_over() -> None:
    """A worker has its parent's memory and none of its threads."""
    global _places
    _places = threading.BoundedSemaphore(_MAX_WAITING)
    _pool.cache_clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_start_over)


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run blocking work in threads of our own, so that tools and authentication do not wait for each other.

    If too many wait, further callers are refused: password guesses must not fill the memory.
    """
    places = _places
    if not places.acquire(blocking=False):
        raise Refused("rate_limited", retry_after=5.0, reason="too many credentials wait to be checked")
    try:
        run = functools.partial(contextvars.copy_context().run, _carry, function, *arguments)
        return await asyncio.get_running_loop().run_in_executor(_pool(), run)
    finally:
        places.release()


def _carry(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except BaseException as error:
        if isinstance(error, Exception) and not isinstance(error, StopIteration):
            raise
        # A future cannot carry StopIteration, and SystemExit or CancelledError would be misread by the loop.
        raise RuntimeError(f"a function raised {type(error).__name__}") from None


def is_async(function: Any) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


async def ask(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call an author's function: a coroutine function here, a plain one in a thread, since it may look things up."""
    if is_async(function):
        return await function(*arguments)
    answer = await in_thread(function, *arguments)
    return await answer if inspect.isawaitable(answer) else answer


async def consult(owner: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """`ask` for a verdict. A function that fails gives none: 500, or 503 if it says that a service does not answer."""
    try:
        async with asyncio.timeout(_VERDICT_SECONDS):
            return await ask(function, *arguments)
    except Refused:
        raise
    except Exception as error:
        # Its text may quote the credential.
        logger.error("the %s failed: %s", owner, type(error).__name__)
        raise Refused.failed(error) from None


_FIELDS: Final = frozenset({"subject", "issuer", "scopes", "client_id", "expires_at", "claims", "metadata"})


def read_info(owner: str, info: Any, subject: str | None, *, kind: str = "invalid_credentials") -> Principal | None:
    """A principal from the answer of an author's function or table; None for a refusal.

    It says True, a `Principal`, or a mapping with `subject`, `scopes`, `metadata` and others of its fields; other keys
    are claims. A string or an exception is the reason of a refusal, which is logged and not sent. Anything that is not clearly a yes is a no, or, when of a type that makes no sense, an error on our side.
    """
    if info is None or info is False:
        return None
    if info is True:
        return Principal(subject=subject)
    if isinstance(info, Principal):
        return info if info.subject is not None else msgspec.structs.replace(info, subject=subject)
    if isinstance(info, Refused):
        raise info.again()
    if isinstance(info, (str, Exception)):
        raise Refused(kind, reason=info if isinstance(info, str) else type(info).__name__)
    if not isinstance(info, Mapping):
        logger.error("the %s gave a %s; it gives True, a mapping or a Principal, or None", owner, type(info).__name__)
        raise Refused("server_error")
    try:
        return principal_from_info(cast("Mapping[str, Any]", info), subject)
    except ValueError as error:
        logger.error("the %s returned no valid principal: %s", owner, error)
        raise Refused("server_error") from None


def principal_from_info(info: Mapping[str, Any], subject: str | None) -> Principal:
    """A principal from a mapping with its field names; ValueError if a field has the wrong type."""
    claims, metadata = (_mapping(info, name) for name in ("claims", "metadata"))
    claims |= {name: value for name, value in info.items() if name not in _FIELDS}

    def pick(field: str, claim: str, default: Any = None) -> Any:
        candidates = (info.get(field), claims.get(claim), default)
        return next((value for value in candidates if value is not None and value != ""), None)

    principal = Principal.from_claims(
        {
            **claims,
            "sub": pick("subject", "sub", subject),
            "iss": pick("issuer", "iss"),
            "client_id": pick("client_id", "client_id"),
            "exp": pick("expires_at", "exp"),
            "scope": pick("scopes", "scope"),
            # The author's scopes replace those of the token.
            "scp": claims.get("scp") if info.get("scopes") is None else None,
        }
    )
    return msgspec.structs.replace(principal, claims=FrozenDict(claims), metadata=FrozenDict(metadata))


def _mapping(info: Mapping[str, Any], name: str) -> dict[str, Any]:
    value: Any = info.get(name)
    if value is not None and not isinstance(value, Mapping):
        raise ValueError(f"{name} is not a mapping")
    return dict(cast("Mapping[str, Any]", value or {}))


class VerifiedCredentials:
    """A bounded cache of verified credentials by digest. Each expires.

    The most recent ones are also stored undigested: computing the digest is most of the cost of a call with a known token.
    """

    def __init__(self, clock: Callable[[], float], seconds: float = REMEMBERED_SECONDS) -> None:
        self._clock = clock
        self._seconds = seconds
        self._key = secrets.token_bytes(32)
        self._known: dict[bytes, tuple[Principal, float]] = {}
        self._recent: dict[str, tuple[Principal, float]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def digest(self, credential: str) -> bytes:
        # A header may not be UTF-8. Such a credential is unknown, and must not raise.
        return hashlib.sha256(credential.encode("utf-8", "surrogatepass")).digest()

    def keyed_digest(self, *parts: str) -> bytes:
        """For credentials that could be guessed: the memory of another process says nothing about them."""
        text = "".join(f"{len(part)}:{part}" for part in parts)
        return hmac.digest(self._key, text.encode("utf-8", "surrogatepass"), "sha256")

    def seen(self, text: str) -> Principal | None:
        """The principal of this credential, or of the header that holds it, if it is in the cache."""
        entry = self._recent.get(text)
        return entry[0] if entry is not None and self._clock() < entry[1] else None

    def note(self, text: str, digest: bytes) -> None:
        """Know a text by itself from now on, if its digest is known."""
        entry = self._known.get(digest)
        if entry is not None:
            if len(self._recent) >= _RECENT:
                self._recent.clear()
            self._recent[text] = entry

    def get(self, digest: bytes) -> Principal | None:
        entry = self._known.get(digest)
        if entry is None:
            return None
        if self._clock() >= entry[1]:
            del self._known[digest]
            return None
        return entry[0]

    def expiry(self, digest: bytes) -> float | None:
        """When this credential is forgotten; None if it is not known."""
        entry = self._known.get(digest)
        return None if entry is None else entry[1]

    def put(self, digest: bytes, principal: Principal, until: float | None = None) -> None:
        if self._seconds <= 0:
            return
        now = self._clock()
        latest = now + self._seconds
        if len(self._known) >= REMEMBERED:
            self._make_room(now)
        self._known[digest] = (principal, latest if until is None else min(until, latest))

    def clear(self) -> None:
        self._known.clear()
        self._recent.clear()

    def _make_room(self, now: float) -> None:
        self._known = {digest: entry for digest, entry in self._known.items() if entry[1] > now}
        excess = len(self._known) - REMEMBERED * 9 // 10
        for digest in list(self._known)[: max(0, excess)]:
            del self._known[digest]
