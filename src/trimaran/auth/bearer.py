"""Bearer tokens: JWTs by secret, key or key set, and any other token by a function that knows it (R155, R156)."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

import msgspec

from trimaran.errors import ConfigError

from .extract import MAX_CREDENTIAL, bearer_token, presents, too_large
from .jwks import FetchedKeys, from_function, from_issuer, from_url
from .jwt_keys import ALGORITHMS, FixedKeys, Keys, import_key, import_secret, import_set, read_signed
from .principal import Principal, read_time
from .provider import (
    REMEMBERED_SECONDS,
    AuthRequest,
    Fetch,
    Provider,
    VerifiedCredentials,
    check_callable,
    check_realm,
    consult,
    is_async,
    logger,
)
from .refusal import Refused

if TYPE_CHECKING:
    from .resource import ProtectedResource


_KINDS: Final = frozenset({"at+jwt"})
_LONGEST: Final = MAX_CREDENTIAL + len("Bearer ")

_FIELDS: Final = {
    "subject": "sub",
    "issuer": "iss",
    "audience": "aud",
    "scopes": "scope",
    "expires_at": "exp",
    "client_id": "client_id",
}
"""The claims of a principal's fields."""


class Bearer(Provider):
    """Callers with `Authorization: Bearer <token>`. Exactly one of four says how tokens are verified:

    - `secret`: JWTs signed with a shared secret (HS256, and HS384 or HS512 if it is long enough)
    - `key`: JWTs signed with the private half of this public key (PEM, JWK)
    - `jwks`: the same with a JWK Set, the https URL of one, an async function that gets one, or "discover", which asks
      the issuer's own metadata for it
    - `verifier`: a function, sync or async, from a token to its claims, or None: opaque tokens

    Claims are checked in all four cases: `exp`, `nbf`, `iss` and `aud`, the last two as exact strings. A JWT needs an
    `exp`. `clock_skew` is the allowed difference of clocks in seconds. `resource_metadata` is the URL in challenges.

    A verified JWT is remembered for `remember` seconds (default 300; 0 for never), but not past its expiry; a
    verifier's answer only if you give `remember`. Tokens bound to a key (`cnf`) are refused: the token
    alone does not prove that the caller has the key.
    """

    expects = "a token in the header Authorization, as Bearer"

    def __init__(
        self,
        *,
        secret: str | bytes | None = None,
        key: object = None,
        jwks: object = None,
        verifier: Callable[[str], object] | None = None,
        issuer: str | Iterable[str] | None = None,
        audience: str | Iterable[str] | None = None,
        algorithms: Iterable[str] | None = None,
        clock_skew: float = 60,
        scope_claim: str = "scope",
        required_scopes: Iterable[str] = (),
        realm: str | None = "mcp",
        resource_metadata: str | None = None,
        remember: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(required_scopes)
        sources = [
            n for n, v in (("secret", secret), ("key", key), ("jwks", jwks), ("verifier", verifier)) if v is not None
        ]
        if len(sources) != 1:
            problem = f"not {' and '.join(sources)}" if sources else "and none was given"
            raise ConfigError(f"Bearer takes one of secret=, key=, jwks= and verifier=, {problem}")
        check_callable("verifier", verifier)
        self._verifier = verifier
        self._issuers = _names("issuer", issuer)
        self._audiences = _names("audience", audience)
        self._skew = _seconds("clock_skew", clock_skew, 3600)
        self._scope_claim = scope_claim
        self._realm = check_realm(realm)
        self._clock = clock
        self._keys = None if verifier is not None else _keys(secret, key, jwks, issuer, clock)
        self._algorithms = _algorithms(algorithms, self._keys)
        self._metadata_url = resource_metadata
        self.offers_login: bool = resource_metadata is not None
        if remember is None:
            remember = 0 if verifier is not None else REMEMBERED_SECONDS
        seconds = _seconds("remember", remember, 86_400)
        # Two caches: a verified token may still lack a scope or be bound to a key.
        self._verified_tokens = VerifiedCredentials(clock, seconds)
        self._admitted_headers = VerifiedCredentials(clock, seconds)

    async def start(self, fetch: Fetch | None = None) -> None:
        if self._keys is not None and not self._audiences and "HS256" not in self._keys.algorithms:
            # The issuer signs tokens for other servers, too; those must not be valid here.
            logger.warning("Bearer has no audience=: every token of the issuer is accepted, whomever it was meant for")
        await self.load_keys(fetch)

    async def load_keys(self, fetch: Fetch | None = None) -> None:
        """Fetch the keys, if they are to be fetched."""
        if isinstance(self._keys, FetchedKeys):
            await self._keys.start(fetch)

    async def close(self) -> None:
        if isinstance(self._keys, FetchedKeys):
            await self._keys.close()

    def presents(self, request: AuthRequest) -> bool:
        return presents(request.headers, "bearer")

    def challenge(self, refusal: Refused) -> str:
        return refusal.bearer_challenge(self._realm, self._metadata_url, scopes=self.required_scopes)

    async def authenticate(self, request: AuthRequest) -> Principal | None:
        # The way of nearly every request: a header that has passed every check below.
        header = request.headers.get("authorization")
        known = self._admitted_headers.seen(header) if header is not None else None
        if known is not None:
            return known
        principal = await super().authenticate(request)
        if header is not None and principal is not None:
            self._admit(header, bearer_token(request.headers) or "", principal)
        return principal

    def _admit(self, header: str, token: str, principal: Principal) -> None:
        """Remember a header for as long as its token, so that a token is verified again when it is time for that."""
        until = self._verified_tokens.expiry(self._verified_tokens.digest(token))
        if until is not None:
            digest = self._admitted_headers.digest(header)
            self._admitted_headers.put(digest, principal, until)
            self._admitted_headers.note(header, digest)

    async def identify(self, request: AuthRequest) -> Principal | None:
        token = bearer_token(request.headers)
        if token is None:
            raise Refused("missing")
        principal = await self.verify(token)
        if "cnf" in principal.claims:
            raise Refused(
                "invalid_token", "the token is bound to a key, and the request does not prove that you have the key"
            )
        return principal

    async def authorize(self, token: str, auth: ProtectedResource, request: AuthRequest) -> Principal:
        """As the authorizer of a `ProtectedResource`: without an audience of its own, tokens must be for that resource."""
        principal = await self.verify(token)
        if not self._audiences and auth.resource not in principal.audience:
            raise Refused("invalid_token", "the token is for another audience")
        if self.required_scopes and not principal.has_scopes(self.required_scopes):
            raise Refused("insufficient_scope", scopes=self.required_scopes)
        return principal

    async def verify(self, token: str) -> Principal:
        """The principal of a token. It checks neither scopes nor a proof of possession.

        Raises:
            Refused: The token is not valid.
        """
        if len(token) > MAX_CREDENTIAL:
            raise too_large()
        known = self._verified_tokens.seen(token)
        if known is not None:
            return known
        digest = self._verified_tokens.digest(token)
        known = self._verified_tokens.get(digest)
        if known is not None:
            self._verified_tokens.note(token, digest)
            return known
        if self._keys is None:
            principal = self._accept(await self._look_up(token), token)
        else:
            principal = self._accept(await read_signed(token, self._keys, self._algorithms, kinds=_KINDS), token)
            if principal.expires_at is None:
                raise Refused("invalid_token", "the token has no expiry (exp)")
        until = None if principal.expires_at is None else principal.expires_at + self._skew
        self._verified_tokens.put(digest, principal, until)
        return principal

    async def _look_up(self, token: str) -> Mapping[str, Any]:
        assert self._verifier is not None
        claims = await consult("token verifier", self._verifier, token)
        if claims is None or claims is False:
            raise Refused("invalid_token", reason="unknown to the verifier")
        if claims is True:
            return {}
        if isinstance(claims, Principal):
            fields = {name: getattr(claims, field) for field, name in _FIELDS.items()}
            return {**claims.claims, **fields, "scp": None}  # only the scopes that the verifier returned
        if not isinstance(claims, Mapping):
            logger.error(
                "the token verifier gave a %s; it gives claims as a mapping, a Principal, True, or None",
                type(claims).__name__,
            )
            raise Refused("server_error")
        copied = dict(cast("Mapping[str, Any]", claims))
        for field, name in _FIELDS.items():  # `subject` means `sub`
            if field in copied and name not in copied:
                copied[name] = copied[field]
                if field == "scopes":
                    copied["scp"] = None
        return copied

    def _accept(self, claims: Mapping[str, Any], token: str) -> Principal:
        """Check the claims of a token."""
        # RFC 7662: an inactive token is invalid, whatever its other claims are.
        if claims.get("active", True) is not True:
            raise Refused("invalid_token", reason="not active")
        try:
            principal = Principal.from_claims(claims, scope_claim=self._scope_claim)
            not_before = read_time(claims, "nbf")
        except ValueError as error:
            raise Refused("invalid_token", reason=str(error)) from None
        now = self._clock()
        if principal.expires_at is not None and now >= principal.expires_at + self._skew:
            raise Refused("expired_token")
        if not_before is not None and now < not_before - self._skew:
            raise Refused("invalid_token", "the token is not valid yet")
        if self._issuers and principal.issuer not in self._issuers:
            raise Refused("invalid_token", "the token is from another issuer")
        if self._audiences and self._audiences.isdisjoint(principal.audience):
            raise Refused("invalid_token", "the token is for another audience")
        return named(principal, token)


def named(principal: Principal, token: str) -> Principal:
    """A principal with a subject. Ownership goes by the subject, so two callers without one must get different ones."""
    if principal.subject is not None:
        return principal
    if principal.client_id is not None:
        subject = f"client:{principal.client_id}"
    else:
        subject = f"token:{hashlib.sha256(token.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
    return msgspec.structs.replace(principal, subject=subject)


def _names(option: str, value: str | Iterable[str] | None) -> frozenset[str]:
    if value is None:
        return frozenset()
    names = frozenset([value] if isinstance(value, str) else value)
    if not names or not all(isinstance(item, str) and item for item in names):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"{option} must be a string or a list of strings, and not empty")
    return names


def _seconds(option: str, value: Any, most: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
        raise ConfigError(f"{option} must be a number of seconds from 0 to {most:g}, not {value!r}")
    return float(value)


def _keys(secret: Any, key: Any, jwks: Any, issuer: Any, clock: Callable[[], float]) -> Keys:
    if secret is not None:
        return FixedKeys([import_secret(secret)], by_kid=False)
    if key is not None:
        return FixedKeys([import_key(key)], by_kid=False)
    if jwks == "discover":
        if not isinstance(issuer, str):
            raise ConfigError('jwks="discover" asks the issuer for its keys: name one, issuer="https://..."')
        return FetchedKeys(from_issuer(issuer), clock)
    if isinstance(jwks, str):
        return FetchedKeys(from_url(jwks), clock)
    if is_async(jwks):
        return FetchedKeys(from_function(jwks), clock)
    try:
        return FixedKeys(import_set(jwks), by_kid=True)
    except ValueError as error:
        raise ConfigError(
            f'jwks: {error}; pass a JWK Set, its URL, an async function that gets it, or "discover"'
        ) from None


def _algorithms(algorithms: Iterable[str] | None, keys: Keys | None) -> frozenset[str]:
    possible = keys.algorithms if keys is not None else frozenset[str]()
    if algorithms is None:
        return possible
    if keys is None:
        raise ConfigError("algorithms: a verifier decides that itself; leave it out")
    chosen = frozenset([algorithms] if isinstance(algorithms, str) else algorithms)
    unknown = sorted(chosen - ALGORITHMS)
    if unknown or not chosen:
        raise ConfigError(
            f"algorithms: {', '.join(unknown) or 'an empty list'} verifies nothing; there are {', '.join(sorted(ALGORITHMS))}"
        )
    unfit = sorted(chosen - possible)
    if unfit:
        raise ConfigError(f"algorithms: the key cannot verify {', '.join(unfit)}; it can {', '.join(sorted(possible))}")
    return chosen
