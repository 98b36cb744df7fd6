"""Call another server on a caller's behalf, without sending it the caller's token: RFC 8693 token exchange.

A token was issued for this server. Every server that it is passed on to could act as the caller here, and we
would not notice (the confused deputy). So the inbound token goes only to the token endpoint, which issues a
short-lived token for the other server.

    exchange = TokenExchange("https://login.example.com/token", client_id="mcp-server", client_secret=...)
    auth = ProtectedResource(..., exchange=exchange)

    @server.tool
    async def issues(ctx: Context) -> list[Issue]:
        token = await exchange.token_for(ctx, audience="https://api.example.com")
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, final
from urllib.parse import urlsplit

from msgspec import Struct

from trimaran.errors import AuthorizationFailed, ConfigError
from trimaran.oauth.assertions import SigningKey, client_assertion
from trimaran.oauth.effects import Flow, HttpReply, HttpRequest
from trimaran.oauth.registration import ClientInfo
from trimaran.oauth.tokens import SUBJECT_TYPES, TokenReply, token_exchange
from trimaran.oauth.urls import is_loopback_host

from .principal import Principal
from .provider import Fetch

STEP: Final = "token exchange"
_CACHED: Final = 10_000
# A token that ends while it is on its way is refused over there.
_EARLY_SECONDS: Final = 30.0


@final
class Secret:  # noqa: PLW1641 - a hash would reveal something about the text
    """A text that does not show itself: not in a repr, not in a log, not in JSON, not in a pickle."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "Secret(***)"

    def __str__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and hmac.compare_digest(self._text.encode(), other._text.encode())

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied; reveal() returns its text")


class _CachedToken(Struct, frozen=True):
    token: str
    until: float


@final
class TokenExchange:
    """Tokens for other servers, on a caller's behalf.

    The client at the token endpoint is this server, with a `client_secret` (`auth_method` says how it is sent) or a
    `private_key` (PEM; `issuer` is then the audience of its assertions, by default the endpoint itself).
    `subject_token_type` is the type of callers' tokens; `requested_token_type` the type to request, if the endpoint needs it.
    """

    def __init__(
        self,
        token_endpoint: str,
        client_id: str,
        client_secret: str | None = None,
        *,
        private_key: str | bytes | None = None,
        algorithm: str | None = None,
        kid: str | None = None,
        issuer: str | None = None,
        auth_method: str = "client_secret_basic",
        subject_token_type: str = "access_token",  # noqa: S107 - a name
        requested_token_type: str | None = None,
        allow_insecure: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._endpoint = _check_endpoint(token_endpoint, allow_insecure)
        if (client_secret is None) == (private_key is None):
            raise ConfigError(
                "TokenExchange needs one of client_secret= and private_key=, this server's own credentials"
            )
        if not client_id or auth_method not in ("client_secret_basic", "client_secret_post"):
            raise ConfigError(
                f"auth_method is client_secret_basic or client_secret_post, not {auth_method!r}"
                if client_id
                else "client_id is missing: the name of this server at the token endpoint"
            )
        if subject_token_type not in SUBJECT_TYPES and ":" not in subject_token_type:
            raise ConfigError(
                f"subject_token_type: there is no {subject_token_type!r}; use {', '.join(SUBJECT_TYPES)}, or a URN"
            )
        self._client = ClientInfo(client_id=client_id, client_secret=client_secret, auth_method=auth_method)
        self._key = SigningKey.from_pem(private_key, algorithm, kid) if private_key is not None else None
        self._issuer = issuer or token_endpoint
        self._subject_type = subject_token_type
        self._requested_type = requested_token_type
        self._clock = clock
        self._fetch: Fetch | None = None
        self._cached: dict[bytes, _CachedToken] = {}
        self._busy: dict[bytes, _SharedRequest] = {}

    async def start(self, fetch: Fetch | None = None) -> None:
        """Take the function that does the fetching. `ProtectedResource(exchange=...)` calls this."""
        if fetch is not None:
            self._fetch = fetch

    async def token_for(
        self,
        caller: object,
        *,
        audience: str | None = None,
        resource: str | None = None,
        scopes: Sequence[str] = (),
        fresh: bool = False,
    ) -> str:
        """A token for another server, in the name of `caller`: the context of a handler, or its `auth`.

        It is remembered until shortly before it expires; use `fresh=True` after the other server refused it.

        Raises:
            AuthorizationFailed: the token endpoint gives none. It says why.
            ConfigError: there is no caller, or nothing that says which server the token is for.
        """
        if audience is None and resource is None and not scopes:
            raise ConfigError("token_for needs the purpose of the token: audience=, resource= or scopes=")
        if isinstance(scopes, str):
            raise ConfigError(f"token_for: scopes must be a list of strings, not {scopes!r}")
        inbound, expires_at = _inbound(caller)
        name = _digest(inbound, audience, resource, *sorted(set(scopes)))
        if not fresh and (cached := self._cached.get(name)) is not None and self._clock() < cached.until:
            return cached.token
        turn = self._busy.setdefault(name, _SharedRequest())
        turn.waiting += 1
        try:
            async with turn.lock:
                before = turn.cached
                if before is not None and self._clock() < before.until:
                    return before.token  # another caller has fetched it meanwhile
                turn.cached = await self._ask(inbound, audience, resource, scopes, expires_at)
                self._keep(name, turn.cached)
                return turn.cached.token
        finally:
            turn.waiting -= 1
            if not turn.waiting:
                del self._busy[name]

    async def _ask(
        self, inbound: str, audience: str | None, resource: str | None, scopes: Sequence[str], expires_at: float | None
    ) -> _CachedToken:
        sent_at = self._clock()
        signed = None
        if self._key is not None:
            signed = client_assertion(
                self._key,
                client_id=self._client.client_id,
                audience=self._issuer,
                now=sent_at,
                jti=secrets.token_urlsafe(16),
            )
        flow = token_exchange(
            self._endpoint,
            subject_token=inbound,
            subject_token_type=self._subject_type,
            requested_token_type=self._requested_type,
            audience=audience,
            resource=resource,
            scopes=scopes,
            client=self._client,
            client_assertion=signed,
        )
        reply = await self._drive(flow)
        if hmac.compare_digest(reply.access_token.encode(), inbound.encode()):
            raise AuthorizationFailed(
                f"the {STEP} failed: {self._endpoint} returned the caller's own token, which must not be passed on; "
                "its operator has to give tokens for other audiences",
                step=STEP,
                url=self._endpoint,
            )
        until = sent_at + (reply.expires_in or 0.0) - _EARLY_SECONDS
        return _CachedToken(reply.access_token, until if expires_at is None else min(until, expires_at))

    async def _drive(self, flow: Flow[TokenReply]) -> TokenReply:
        reply: HttpReply | None = None
        while True:
            try:
                request = flow.send(reply)
            except StopIteration as done:
                return done.value
            if not isinstance(request, HttpRequest) or request.url != self._endpoint:
                raise AssertionError("the inbound token goes to the token endpoint only")
            if self._fetch is None:
                raise ConfigError(
                    "this TokenExchange cannot fetch yet: give it to ProtectedResource(exchange=...), or call its start(fetch)"
                )
            reply = await self._fetch(request)

    def _keep(self, name: bytes, token: _CachedToken) -> None:
        now = self._clock()
        self._cached.pop(name, None)
        if token.until <= now:
            return
        if len(self._cached) >= _CACHED:
            self._cached = {key: cached for key, cached in self._cached.items() if cached.until > now}
            for key in list(self._cached)[: max(0, len(self._cached) - _CACHED * 9 // 10)]:
                del self._cached[key]
        self._cached[name] = token

    def __repr__(self) -> str:
        return f"<TokenExchange {self._client.client_id!r} at {self._endpoint}>"


@final
class _SharedRequest:
    """Callers that need the same token at the same time: one requests it, the others wait."""

    __slots__ = ("cached", "lock", "waiting")

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.cached: _CachedToken | None = None
        self.waiting = 0


def _inbound(caller: Any) -> tuple[str, float | None]:
    """The token a caller came with, and when it ends."""
    principal: Any = caller if isinstance(caller, (Principal, Secret)) else getattr(caller, "auth", None)
    if isinstance(principal, Secret):
        return principal.reveal(), None
    if not isinstance(principal, Principal):
        raise ConfigError("token_for needs the context of an authenticated call, or its auth; this caller is anonymous")
    token = principal.metadata.get("token")
    if not isinstance(token, Secret):
        raise ConfigError(
            "the caller's token is not available: give this exchange to the provider, ProtectedResource(exchange=...)"
        )
    return token.reveal(), principal.expires_at


def _digest(*parts: str | None) -> bytes:
    digest = hashlib.sha256()
    for part in parts:
        octets = (part or "").encode()
        digest.update(b"%d:%d:" % (part is not None, len(octets)) + octets)
    return digest.digest()


def _check_endpoint(url: Any, allow_insecure: bool) -> str:
    example = 'token_endpoint="https://login.example.com/token"'
    wrong = ConfigError(f"token_endpoint is an absolute URL, {example}, not {url!r}")
    if not isinstance(url, str) or not url.isascii() or not url.isprintable() or " " in url:
        raise wrong
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise wrong from None
    if not host or parts.scheme not in ("http", "https") or "#" in url or "@" in parts.netloc:
        raise wrong
    if parts.scheme != "https" and not (allow_insecure or is_loopback_host(host)):
        raise ConfigError(f"token_endpoint: {url!r} is not https, and callers' tokens go there; write {example}")
    return url
