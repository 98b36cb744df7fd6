"""Key sets of issuers, refreshed without making callers wait.

A set is read when the server starts. If the issuer is away then, the server starts without keys: tokens are refused with 503,
and the set is asked for again as they come, every five seconds at most. After an hour it is read again in the background. A token with an unknown
`kid` makes its caller wait for a new reading, at most one every 30 seconds for all callers. When a reading fails, the old
keys stay valid for a day: an issuer that is down for an afternoon must not lock everybody out, and one that stays
away must not keep a withdrawn key valid for ever.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from trimaran.errors import AuthorizationFailed, ConfigError, Error
from trimaran.oauth.discovery import authorization_server_urls
from trimaran.oauth.effects import HttpReply, HttpRequest
from trimaran.oauth.metadata import read_object, shown

from .jwt_keys import ALGORITHMS, SHARED, VerifyKey, import_set, named, nameless
from .provider import Fetch
from .refusal import Refused

logger: Final = logging.getLogger("trimaran.auth")

STALE_SECONDS: Final = 3600.0
REFETCH_SECONDS: Final = 30.0
RETRY_SECONDS: Final = 5.0
"""While there are no keys at all. `Retry-After` of the refusals says the same."""
START_SECONDS: Final = 5.0
"""How long a start waits: whatever watches over the process takes one that takes longer for broken."""
KEEP_SECONDS: Final = 86_400.0

Source: TypeAlias = Callable[[Fetch | None], Awaitable[Any]]
"""Gives a JWK Set, or raises."""


class FetchedKeys:
    """Keys from a source. Many callers wait for one reading, and a cancelled caller does not end it for the others."""

    # A set is a public document, so it has no shared secrets.
    algorithms: frozenset[str] = ALGORITHMS - SHARED

    def __init__(self, source: Source, clock: Callable[[], float]) -> None:
        self._source = source
        self._clock = clock
        self._fetch: Fetch | None = None
        self._keys: tuple[VerifyKey, ...] = ()
        self._read_at = self._tried_at = float("-inf")
        self._reading: asyncio.Task[None] | None = None
        self._failure = "server_error"
        """Which refusal fits the last reading, if that failed."""

    async def start(self, fetch: Fetch | None) -> None:
        """Read the keys. An issuer that is away is waited for a moment, and stops nobody; one that answers wrongly does."""
        self._fetch = fetch
        try:
            async with asyncio.timeout(START_SECONDS):
                await self._read()
        except Exception as error:
            self._failure = Refused.failed(error).kind
            if self._failure != "unavailable":
                raise
            reason = str(error) or f"no answer within {START_SECONDS:.0f} s"
            logger.warning(
                "the signing keys cannot be read yet; tokens are refused with 503 until they can: %s", reason
            )

    async def close(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None and not reading.done() and reading.get_loop() is asyncio.get_running_loop():
            reading.cancel()
            await asyncio.wait([reading])

    async def find(self, kid: str | None) -> Sequence[VerifyKey]:
        if self._clock() - self._read_at >= KEEP_SECONDS:
            self._keys = ()
        keys = named(self._keys, kid)
        if keys:
            if self._is_past(self._read_at, STALE_SECONDS):
                self._begin()
            return keys
        reading = self._begin()
        if reading is not None and not nameless(self._keys):
            await asyncio.shield(reading)
        if not self._keys:
            raise Refused(self._failure, reason="no signing keys")
        return named(self._keys, kid) or nameless(self._keys)

    async def renew(self) -> bool:
        """Read the keys again, unless that happened a moment ago. Returns whether it read them."""
        reading = self._begin()
        if reading is not None:
            await asyncio.shield(reading)
        return reading is not None

    def _is_past(self, moment: float, seconds: float) -> bool:
        # A clock that was set back says nothing about age: then it is time to look.
        return not 0 <= self._clock() - moment < seconds

    def _begin(self) -> asyncio.Task[None] | None:
        """The reading under way, or a new one unless the last was a moment ago."""
        loop = asyncio.get_running_loop()
        reading = self._reading
        if reading is not None and not reading.done() and reading.get_loop() is loop:
            return reading
        if not self._is_past(self._tried_at, REFETCH_SECONDS if self._keys else RETRY_SECONDS):
            return None
        self._tried_at = self._clock()
        self._reading = loop.create_task(self._read_or_log(), name="trimaran-auth-keys")
        return self._reading

    async def _read_or_log(self) -> None:
        try:
            await self._read()
        except Exception as error:
            # Our own errors have nothing secret in them; an author's function may say anything.
            reason = str(error) if isinstance(error, Error) else type(error).__name__
            logger.warning("the signing keys could not be read: %s", reason)
            self._failure = Refused.failed(error).kind

    async def _read(self) -> None:
        self._tried_at = self._clock()
        document = await self._source(self._fetch)
        try:
            self._keys = import_set(document)
        except ValueError as error:
            raise ConfigError(f"jwks: {error}") from None
        self._read_at = self._clock()


# --- sources ---------------------------------------------------------------------------------------------------------


def from_function(function: Callable[[], Awaitable[Any]]) -> Source:
    async def read(_fetch: Fetch | None) -> Any:
        return await function()

    return read


def from_url(url: str) -> Source:
    """The set at a URL that the operator has named."""
    check_url("jwks", url)

    async def read(fetch: Fetch | None) -> Any:
        return await _get(_require_fetch(fetch, "jwks"), url, "signing keys", trusted=url)

    return read


def from_issuer(issuer: str) -> Source:
    """The set that an issuer's metadata names (RFC 8414, then OpenID), looked up again each time: it may move."""
    check_issuer(issuer)

    async def read(fetch: Fetch | None) -> Any:
        fetch = _require_fetch(fetch, 'jwks="discover"')
        tried: list[str] = []
        for url in authorization_server_urls(issuer):
            reply = await fetch(_request(url, "authorization server metadata", issuer))
            _check_available(reply, url, "authorization server metadata")
            metadata = read_object(reply) if reply.status == 200 else None
            if metadata is None or "issuer" not in metadata:
                tried.append(f"{url} answered {reply.status}")
                continue
            if metadata["issuer"] != issuer:
                raise ConfigError(
                    f"issuer: the metadata at {url} is of {shown(str(metadata['issuer']))!r}, not of {issuer!r}; "
                    "the two must be the same to the byte, a trailing slash included"
                )
            jwks_uri: Any = metadata.get("jwks_uri")
            if not isinstance(jwks_uri, str):
                raise ConfigError(f"issuer: the metadata at {url} names no jwks_uri; give the URL of its keys as jwks=")
            check_url("jwks_uri", jwks_uri)
            return await _get(fetch, jwks_uri, "signing keys", trusted=issuer)
        raise ConfigError(f"issuer: {issuer} has no metadata that can be read: {'; '.join(tried)}")

    return read


def _require_fetch(fetch: Fetch | None, option: str) -> Fetch:
    if fetch is None:
        raise ConfigError(
            f"{option} is fetched over the network, which only a server that runs on HTTP can do: start the provider "
            "with a fetch function, or pass an async function that gets the keys"
        )
    return fetch


def _request(url: str, step: str, trusted: str) -> HttpRequest:
    return HttpRequest(step=step, url=url, headers={"Accept": "application/json"}, server_url=trusted)


async def _get(fetch: Fetch, url: str, step: str, *, trusted: str) -> dict[str, Any]:
    reply = await fetch(_request(url, step, trusted))
    _check_available(reply, url, step)
    document = read_object(reply) if reply.status == 200 else None
    if document is None:
        problem = f"answered {reply.status}" if reply.status != 200 else "returned no JSON object"
        raise ConfigError(f"jwks: {shown(url)} {problem}; a JWK Set was expected")
    return document


def _check_available(reply: HttpReply, url: str, step: str) -> None:
    if reply.status >= 500 or reply.status == 429:
        raise AuthorizationFailed(f"{shown(url)} answered {reply.status}", step=step, url=url, status=reply.status)


def check_url(option: str, url: str) -> None:
    """https, or http to this machine: keys and tokens that came or went in the open prove nothing."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        raise ConfigError(f"{option}: {shown(url)!r} is not a URL") from None
    if "@" in parts.netloc:
        raise ConfigError(f"{option}: the URL has a user in it, and maybe a password; leave them out")
    is_local = host in ("localhost", "::1") or re.fullmatch(r"127(\.[0-9]{1,3}){3}", host) is not None
    is_safe = parts.scheme == "https" or (parts.scheme == "http" and is_local)
    if not is_safe or not host or parts.fragment or re.search(r"[\x00-\x20\x7f\\]", url):
        raise ConfigError(
            f"{option}: {shown(url)!r} must be an https URL without a fragment (http only to this machine)"
        )


def check_issuer(issuer: str) -> None:
    check_url("issuer", issuer)
    if urlsplit(issuer).query:
        raise ConfigError(f"issuer: {shown(issuer)!r} must not have a query")
