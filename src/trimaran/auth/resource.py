"""A server as an OAuth 2.1 protected resource (RFC 9728, RFC 6750): it names the issuers of its tokens and accepts no others.

    auth = ProtectedResource(resource="https://mcp.example.com/mcp", authorization_servers=["https://login.example.com"])
    server.run("http", auth=auth)

Two public documents name the authorization servers, and every refusal points to them. An *authorizer*
decides who a token belongs to, by default `JwtAuthorizer`. An authorizer that fails, or returns something
invalid, is our fault and not the caller's: the reply is a bare 500 (R176).

This module issues no tokens. It reads tokens only from the Authorization header, never from a query (R172).
"""

from __future__ import annotations

import inspect
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from os.path import basename
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeAlias, cast, final
from urllib.parse import quote, unquote, urlsplit

import msgspec
from joserfc.jwk import KeySet

from trimaran.bounded_log import BoundedLog
from trimaran.depth import decode_json
from trimaran.errors import ConfigError
from trimaran.oauth.urls import is_loopback_host
from trimaran.protocol.headers import HeaderLookup
from trimaran.types import Json

from .bearer import Bearer, named
from .dpop import DPoP, bound_key
from .exchange import Secret, TokenExchange
from .extract import MAX_CREDENTIAL, bearer_token, credential, presents
from .jwt_keys import split_signed
from .principal import Principal
from .provider import AuthRequest, Fetch, Provider, VerifiedCredentials, ask, check_scopes, is_async
from .refusal import Refused, challenge

logger: Final = BoundedLog("trimaran.auth")

Resolver: TypeAlias = Callable[[Any], Any]
Pairs: TypeAlias = list[tuple[str, str]]
Answer: TypeAlias = tuple[int, Pairs, bytes]

WELL_KNOWN: Final = "/.well-known/oauth-protected-resource"
_ALLOW: Final = "GET, HEAD, OPTIONS"
_OPEN: Final = (("access-control-allow-origin", "*"), ("cache-control", "no-store"))
_PREFLIGHT: Final = (
    ("allow", _ALLOW),
    ("access-control-allow-methods", _ALLOW),
    ("access-control-allow-headers", "*"),
)
_JSON: Final = ("content-type", "application/json")
_RESERVED: Final = frozenset(
    {
        "resource",
        "authorization_servers",
        "scopes_supported",
        "bearer_methods_supported",
        "resource_name",
        "jwks_uri",
        "resource_documentation",
        "dpop_signing_alg_values_supported",
        "dpop_bound_access_tokens_required",
    }
)
# RFC 6749, 3.3; and the characters of an RFC 6750 token that a header can carry.
_SCOPE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]+")
_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_IN_PATH: Final = "/%:@!$&'()*+,;=~"
_URL: Final = re.compile(r"[\x21-\x7e]+")
# A grant of the authorization server, which says nothing about a resource: never asked for here (protocol, 4.3).
_OFFLINE: Final = "offline_access"
_EXPIRY_SKEW: Final = 60.0
_REMEMBERED: Final = 60.0
"""In addition to the cache of verified tokens, so short that a withdrawn key takes effect soon."""
# Codes of RFC 6750 and RFC 9449. Any other code of an authorizer becomes invalid_token.
_CODES: Final = frozenset(
    {"invalid_token", "insufficient_scope", "invalid_request", "invalid_dpop_proof", "use_dpop_nonce"}
)


class Authorizer(Protocol):
    """Decides whom a token belongs to. A function with the same three arguments works as well, sync or async."""

    def authorize(self, token: str, auth: ProtectedResource, request: Any, /) -> Any:
        """A `Principal`, or the claims of the token (a decoded JWT, an RFC 7662 reply); raise `Refused` otherwise.

        `auth.resource` is the audience that a token must have.
        """
        ...


@final
class ProtectedResource(Provider):
    """Callers with tokens of an authorization server (R167-R182).

    `resource` is the URL of this server as clients write it. `authorization_servers` are the issuers, or a function of
    the request. `authorizer` decides, and enforces scopes; without one, JWTs of these issuers are verified with their
    published keys. `required_scopes` are the scopes in challenges. `dpop` accepts tokens bound to a key as well, or only
    them. `exchange` is a `TokenExchange` for calling other servers on the caller's behalf.
    """

    offers_login = True
    expects = "a token of its authorization server in the header Authorization, as Bearer"

    def __init__(
        self,
        *,
        resource: str,
        authorization_servers: Sequence[str] | Resolver,
        authorizer: Authorizer | Callable[[str, ProtectedResource, AuthRequest], object] | None = None,
        scopes_supported: Sequence[str] | None = None,
        required_scopes: Sequence[str] | Resolver = (),
        bearer_methods_supported: Sequence[str] = ("header",),
        resource_name: str | None = None,
        jwks_uri: str | None = None,
        resource_documentation: str | None = None,
        resource_metadata_url: str | Resolver | None = None,
        metadata: Mapping[str, Json] | None = None,
        allow_insecure_authorization_servers: bool = False,
        dpop: DPoP | None = None,
        exchange: TokenExchange | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__()
        self.resource: str = _check_url("resource", resource, example="https://mcp.example.com/mcp")
        self._is_insecure_allowed = allow_insecure_authorization_servers
        self._servers = self._check_servers(authorization_servers)
        self._scopes = _resolvable("required_scopes", required_scopes, _check_scopes)
        self._metadata_url = _resolvable(
            "resource_metadata_url",
            resource_metadata_url if resource_metadata_url is not None else _metadata_url(self.resource),
            _check_url,
        )
        self._dpop: DPoP | None = _check_type("dpop", dpop, DPoP, "DPoP()")
        self._exchange: TokenExchange | None = _check_type("exchange", exchange, TokenExchange, "TokenExchange(...)")
        self.header_names: tuple[str, ...] = ("DPoP",) if self._dpop is not None else ()
        self._clock = clock
        self._authorizer = authorizer if authorizer is not None else self._usual_authorizer(required_scopes)
        self._authorize = _check_authorizer(self._authorizer)
        # Ours have looked, by a clock skew of their own.
        self._checks_expiry = isinstance(self._authorizer, (JwtAuthorizer, Provider))
        # If only the token decides and it is not stored for an exchange, a recent one is found by its header alone.
        is_plain = isinstance(self._authorizer, JwtAuthorizer) and self._authorizer.is_fixed
        self._memory = (
            VerifiedCredentials(clock, _REMEMBERED) if is_plain and exchange is None and dpop is None else None
        )
        optional = {
            "scopes_supported": None
            if scopes_supported is None
            else list(_check_scopes("scopes_supported", scopes_supported)),
            "resource_name": _check_text("resource_name", resource_name),
            "jwks_uri": None if jwks_uri is None else _check_url("jwks_uri", jwks_uri, is_https=True),
            "resource_documentation": None
            if resource_documentation is None
            else _check_url("resource_documentation", resource_documentation),
        }
        self._about: dict[str, Any] = {
            "resource": self.resource,
            "authorization_servers": () if callable(self._servers) else self._servers,
            "bearer_methods_supported": _check_methods(bearer_methods_supported),
            **{name: value for name, value in optional.items() if value is not None},
            **self._dpop_metadata(),
            **_check_extras(metadata),
        }
        self._fixed = msgspec.json.encode(self._about)
        self._documents = dict.fromkeys(_document_paths(self.resource, self._metadata_url), self._document)

    async def start(self, fetch: Fetch | None = None) -> None:
        """Get ready: fetch the issuers' keys. An authorizer with a `start(fetch)` of its own is started, too."""
        await _call(self._authorizer, "start", fetch)
        if self._exchange is not None:
            await self._exchange.start(fetch)

    async def close(self) -> None:
        await _call(self._authorizer, "close")

    # --- who is calling

    def presents(self, request: AuthRequest) -> bool:
        return presents(request.headers, "bearer") or self._is_dpop(request)

    async def authenticate(self, request: AuthRequest) -> Principal | None:
        memory = self._memory
        if memory is None:
            return await super().authenticate(request)
        value = request.headers.get("authorization")
        known = memory.seen(value) if value is not None else None
        if known is not None:
            return known
        principal = await super().authenticate(request)
        if value is not None and principal is not None:
            digest = memory.digest(value)
            memory.put(digest, principal, principal.expires_at)
            memory.note(value, digest)
        return principal

    async def identify(self, request: AuthRequest) -> Principal:
        try:
            return await self._identify(request)
        except Refused as refusal:
            refusal.challenges = self._challenges(refusal, request)
            nonce = self._dpop.fresh_nonce() if self._dpop is not None and refusal.status == 401 else None
            refusal.extra = [("dpop-nonce", nonce)] if nonce is not None else []
            raise

    async def _identify(self, request: AuthRequest) -> Principal:
        token, dpop = _plain_token(request.headers), None
        if token is None:
            dpop = self._dpop if self._is_dpop(request) else None
            token = bearer_token(request.headers) if dpop is None else _bound_token(request.headers)
            if token is None:
                raise Refused("missing")
        if dpop is None and self._dpop is not None and self._dpop.required:
            raise Refused("invalid_token", "tokens are taken with the DPoP scheme only here, and with a proof")
        principal = await self._judge(token, request)
        if dpop is not None:
            await self._check_proof(dpop, request, token, principal)
        elif "cnf" in principal.claims:
            # RFC 9449, 7.2: a thief has no key, and would send it as a plain bearer token.
            raise Refused("invalid_token", "the token is bound to a key: it is worth nothing without a proof (DPoP)")
        if self._exchange is not None:
            metadata = MappingProxyType({**principal.metadata, "token": Secret(token)})
            principal = msgspec.structs.replace(principal, metadata=metadata)
        return principal

    async def _check_proof(self, dpop: DPoP, request: AuthRequest, token: str, principal: Principal) -> None:
        key = bound_key(principal)
        if key is None:
            raise Refused("invalid_token", "the token is not bound to a key")
        nonce = await dpop.check(request.headers, request.method, self._targets(request), token, key)
        replies: Pairs | None = None if nonce is None else getattr(request, "reply_headers", None)
        if nonce is not None and replies is not None:
            replies.append(("dpop-nonce", nonce))

    async def _judge(self, token: str, request: AuthRequest) -> Principal:
        """The authorizer's answer about a token, as a principal."""
        try:
            verdict = await self._authorize(token, self, request)
        except Refused:
            raise
        except Exception as error:
            # Its text may quote the token; where it was raised does not.
            logger.error("the authorizer failed: %s", _where(error))
            raise Refused.failed(error) from None
        if isinstance(verdict, Principal):
            if not self._checks_expiry and self._is_over(verdict):
                raise Refused("expired_token")
            return named(verdict, token)
        if isinstance(verdict, Mapping):
            return named(self._from_claims(cast("Mapping[str, Any]", verdict)), token)
        if isinstance(verdict, Refused):
            raise verdict.again()
        if verdict is None:
            raise Refused("invalid_token", reason="unknown to the authorizer")
        logger.error(
            "the authorizer gave a %s; it gives a Principal or a mapping of claims, or raises Refused",
            type(verdict).__name__,  # pyright: ignore[reportUnknownArgumentType]
        )
        raise Refused("server_error")

    def _is_over(self, principal: Principal) -> bool:
        return principal.expires_at is not None and self._clock() >= principal.expires_at + _EXPIRY_SKEW

    def _from_claims(self, claims: Mapping[str, Any]) -> Principal:
        # An introspection reply handed on as it came: "not active" is all there is to know (RFC 7662, 2.2).
        if claims.get("active", True) is not True:
            raise Refused("invalid_token", reason="not active")
        try:
            principal = Principal.from_claims(claims)
        except ValueError as error:
            logger.error("the authorizer gave claims that cannot be read: %s", error)
            raise Refused("server_error") from None
        if self._is_over(principal):
            raise Refused("expired_token")
        return principal

    def _is_dpop(self, request: AuthRequest) -> bool:
        return self._dpop is not None and presents(request.headers, "dpop")

    def _targets(self, request: AuthRequest) -> list[str]:
        """The URLs that a proof for this request may name.

        They come from our resource or the operator (`public_url`), not from the request: its sender chooses the Host,
        and a proof for another server could be used here.
        """
        parts = urlsplit(self.resource)
        urls = [f"{parts.scheme}://{parts.netloc}{quote(request.path, safe=_IN_PATH)}"]
        public_url: str | None = getattr(request, "public_url", None)
        if public_url is not None:
            urls.append(public_url)
        if parts.path.endswith(request.path):
            urls.append(self.resource)
        return urls

    # --- challenges

    def challenge(self, refusal: Refused) -> str:
        return ", ".join(self._challenges(refusal, None))

    def step_up(self, request: AuthRequest | None, scopes: Iterable[str]) -> str:
        """`WWW-Authenticate` of a 403 for an operation that needs these scopes: all of them, in one challenge."""
        return ", ".join(self._challenges(Refused("insufficient_scope", scopes=scopes), request))

    def _challenges(self, refusal: Refused, request: AuthRequest | None) -> tuple[str, ...]:
        if refusal.status not in (400, 401, 403):
            return ()
        dpop = self._dpop
        if dpop is None:
            return (self._challenge("Bearer", refusal, request),)
        algorithms = " ".join(dpop.algorithms)
        if dpop.required or (request is not None and self._is_dpop(request)):
            return (self._challenge("DPoP", refusal, request, algorithms),)
        plain = self._challenge("Bearer", refusal, request)
        # RFC 9449, 7.2: the other scheme that is accepted; useless after insufficient_scope.
        return (plain, challenge("DPoP", {"algs": algorithms})) if refusal.status == 401 else (plain,)

    def _challenge(
        self, scheme: str, refusal: Refused, request: AuthRequest | None, algorithms: str | None = None
    ) -> str:
        explanation: dict[str, str | None] = {}
        if refusal.kind != "missing":
            code = refusal.code if refusal.code in _CODES else "invalid_token"
            explanation = {"error": code, "error_description": refusal.message}
        hinted = self._hint("required_scopes", self._scopes, _check_scopes, request) or ()
        scopes = dict.fromkeys(s for s in (*refusal.scopes, *hinted) if s != _OFFLINE and _SCOPE.fullmatch(s))
        url = self._hint("resource_metadata_url", self._metadata_url, _check_url, request)
        if url is None and request is None:
            url = _metadata_url(self.resource)
        return challenge(
            scheme, {**explanation, "scope": " ".join(scopes) or None, "resource_metadata": url, "algs": algorithms}
        )

    def _hint(self, option: str, value: Any, check: Callable[[str, Any], Any], request: AuthRequest | None) -> Any:
        """A value, or the result of its resolver. If the resolver fails, only this hint is missing (R175)."""
        if not callable(value):
            return value
        if request is None:
            return None
        try:
            return check(option, value(request))
        except Exception as error:
            logger.warning("%s: its resolver failed, and a challenge goes without: %s", option, _describe_error(error))
            return None

    # --- documents

    def documents(self) -> Mapping[str, Callable[[AuthRequest], bytes]]:
        """The metadata document, by the paths it is served at: under the resource's path, and at the root."""
        return self._documents

    def metadata(self, request: AuthRequest | None = None) -> dict[str, Json]:
        """The metadata document (RFC 9728) as a mapping, for a route of your own.

        `request` is for `authorization_servers=`, where that is a function.
        """
        return msgspec.json.decode(self._document(request), type=dict[str, Any])

    @property
    def metadata_url(self) -> str:
        """Where the document is, as challenges say: by RFC 9728, or as `resource_metadata_url=` says."""
        return _metadata_url(self.resource) if callable(self._metadata_url) else self._metadata_url

    def document(self, request: AuthRequest) -> Answer | None:
        """Status, headers and body of a request for one of the documents, which needs no token; None for any other."""
        return answer_document(self._documents, request)

    def _document(self, request: Any) -> bytes:
        if not callable(self._servers):
            return self._fixed
        servers = self._check_issuers(self._servers(request))
        return msgspec.json.encode({**self._about, "authorization_servers": servers})

    def _dpop_metadata(self) -> dict[str, Any]:
        if self._dpop is None:
            return {}
        return {
            "dpop_signing_alg_values_supported": self._dpop.algorithms,
            "dpop_bound_access_tokens_required": self._dpop.required,
        }

    # --- configuration

    def _check_servers(self, servers: Any) -> tuple[str, ...] | Resolver:
        if callable(servers):
            return _check_resolver("authorization_servers", servers)
        return self._check_issuers(servers)

    def _check_issuers(self, servers: Any) -> tuple[str, ...]:
        issuers = _check_list("authorization_servers", servers, example="https://login.example.com")
        if not issuers:
            raise ConfigError(
                "authorization_servers must not be empty: name the issuers of tokens for this resource, "
                'authorization_servers=["https://login.example.com"]'
            )
        for issuer in issuers:
            _check_issuer(issuer, allow_insecure=self._is_insecure_allowed)
        return issuers

    def _usual_authorizer(self, required_scopes: Sequence[str] | Resolver) -> JwtAuthorizer:
        if callable(self._servers):
            raise ConfigError(
                "authorizer is missing: with a function as authorization_servers it is not known beforehand whose keys to "
                "trust; pass authorizer=JwtAuthorizer(issuer=[...]) or a function of your own"
            )
        for issuer in self._servers:
            if not _is_safe(issuer):
                raise ConfigError(
                    f"authorizer is missing: the keys of {issuer} would come in the open, and prove nothing; "
                    "pass authorizer=JwtAuthorizer(issuer=..., jwks=...) with its key set, or a function of your own"
                )
        return JwtAuthorizer(issuer=self._servers, required_scopes=required_scopes, clock=self._clock)


def answer_document(documents: Mapping[str, Callable[[AuthRequest], bytes]], request: Any) -> Answer | None:
    """How a request for one of a provider's `documents()` is answered (R170); None if it is for none of them."""
    make = documents.get(request.path) or documents.get(getattr(request, "outer_path", None) or "")
    if make is None:
        return None
    if request.method in ("GET", "HEAD"):
        try:
            body = make(request)
        except Exception as error:
            logger.error("the document at %s could not be built: %s", request.path, _describe_error(error))
            failed = {"error": "server_error", "error_description": "the document could not be built"}
            return 500, [_JSON, *_OPEN], msgspec.json.encode(failed)
        return 200, [_JSON, *_OPEN], body if request.method == "GET" else b""
    if request.method == "OPTIONS":
        return 204, [*_PREFLIGHT, *_OPEN], b""
    return 405, [("allow", _ALLOW), *_OPEN], b""


@final
class JwtAuthorizer:
    """An authorizer for JWTs: signature, `exp`, `nbf`, `iss`, `aud` and scopes (C18).

    `audience` is by default the resource itself: an exact string, nothing is normalised. `jwks` is "discover"
    (the keys that the issuer publishes), the URL of a key set, a set, a key (PEM, JWK), or an async function that returns a
    set. With several issuers each is discovered, and a key verifies only tokens of its issuer. `required_scopes`, a list
    or a function of the request, is enforced: 403.
    """

    def __init__(
        self,
        *,
        issuer: str | Sequence[str],
        audience: str | Sequence[str] | None = None,
        jwks: object = "discover",
        algorithms: Iterable[str] | None = None,
        required_scopes: Sequence[str] | Resolver = (),
        clock_skew: float = 60,
        scope_claim: str = "scope",
        clock: Callable[[], float] = time.time,
    ) -> None:
        issuers = _check_list("issuer", [issuer] if isinstance(issuer, str) else issuer)
        if not issuers:
            raise ConfigError('issuer is missing: name the signer of the tokens, issuer="https://login.example.com"')
        if jwks is None:
            raise ConfigError('jwks is "discover", the URL of a key set, a set, or a key; leave it out to discover')
        if len(issuers) > 1 and jwks != "discover":
            raise ConfigError("jwks: several issuers have several sets of keys; leave it out, and each is looked up")
        self._scopes = _resolvable("required_scopes", required_scopes, _check_scopes)
        is_set = _is_set(jwks)
        self._bearers = {
            name: Bearer(
                jwks=jwks if is_set else None,
                key=None if is_set else jwks,
                issuer=name,
                audience=audience,
                algorithms=algorithms,
                clock_skew=clock_skew,
                scope_claim=scope_claim,
                clock=clock,
            )
            for name in issuers
        }
        self._only = next(iter(self._bearers.values())) if len(self._bearers) == 1 else None

    @property
    def is_fixed(self) -> bool:
        """Whether the decision depends on the token alone."""
        return not callable(self._scopes)

    async def start(self, fetch: Fetch | None = None) -> None:
        """Fetch the keys, if they are to be fetched."""
        for bearer in self._bearers.values():
            await bearer.load_keys(fetch)

    async def close(self) -> None:
        for bearer in self._bearers.values():
            await bearer.close()

    async def authorize(self, token: str, auth: ProtectedResource, request: AuthRequest) -> Principal:
        bearer = self._only or self._bearers.get(_unverified_issuer(token) or "")
        if bearer is None:
            raise Refused("invalid_token", "the token is from another issuer")
        principal = await bearer.authorize(token, auth, request)
        if self._scopes:
            scopes = _check_scopes("required_scopes", self._scopes(request)) if callable(self._scopes) else self._scopes
            if not principal.has_scopes(scopes):
                raise Refused("insufficient_scope", scopes=scopes)
        return principal


def _is_set(jwks: Any) -> bool:
    """Many keys, or where they are; not one key."""
    if isinstance(jwks, str):
        return jwks == "discover" or "://" in jwks
    return "keys" in jwks if isinstance(jwks, Mapping) else isinstance(jwks, KeySet) or callable(jwks)


def _unverified_issuer(token: str) -> str | None:
    """The unverified `iss` of a token. Use it only to choose the keys that verify it."""
    try:
        claims = decode_json(split_signed(token).payload, dict[str, Any])
    except ValueError:
        return None
    issuer = claims.get("iss")
    return issuer if isinstance(issuer, str) else None


def _plain_token(headers: HeaderLookup) -> str | None:
    """The bearer token as nearly everybody writes it; None where a closer look is needed."""
    value = headers.get("authorization")
    if value is None or value[:7] != "Bearer " or len(value) > MAX_CREDENTIAL or _TOKEN.fullmatch(value, 7) is None:
        return None
    return value[7:]


def _bound_token(headers: HeaderLookup) -> str | None:
    token = credential(headers, "dpop")
    if token is not None and _TOKEN.fullmatch(token) is None:
        raise Refused("invalid_request", "the Authorization header does not hold one token")
    return token


async def _call(target: Any, name: str, *arguments: Any) -> None:
    """Call a method that an author's object may have, sync or async."""
    method: Any = getattr(target, name, None)
    if method is not None:
        waiting = method(*arguments)
        if inspect.isawaitable(waiting):
            await waiting


def _describe_error(error: Exception) -> str:
    """The fault of a resolver: its wrong result in our words, or else its exception."""
    return str(error) if isinstance(error, ConfigError) else _where(error)


def _where(error: Exception) -> str:
    """The class and place of an exception, without its text."""
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    if frame is None:
        return type(error).__name__
    return f"{type(error).__name__} at {basename(frame.tb_frame.f_code.co_filename)}:{frame.tb_lineno}"


def _metadata_url(resource: str) -> str:
    """RFC 9728, 3.1: the well-known path goes between host and path; a path of "/" is none."""
    parts = urlsplit(resource)
    path = "" if parts.path == "/" else parts.path
    return f"{parts.scheme}://{parts.netloc}{WELL_KNOWN}{path}" + (f"?{parts.query}" if parts.query else "")


def _document_paths(resource: str, metadata_url: Any) -> tuple[str, ...]:
    """Paths of the document, as servers hand them over: decoded or not. A slash at the end makes no difference."""
    path = urlsplit(resource).path.rstrip("/")
    paths = [f"{WELL_KNOWN}{form}" for form in (path, unquote(path), "")]
    if isinstance(metadata_url, str) and urlsplit(metadata_url)[:2] == urlsplit(resource)[:2]:
        # Where challenges point to, as inside the prefix of a mount. Another host serves its own.
        elsewhere = urlsplit(metadata_url).path.rstrip("/")
        paths += [elsewhere, unquote(elsewhere)] if elsewhere else []
    return tuple(dict.fromkeys(text + slash for text in paths for slash in ("", "/")))


# --- options ----------------------------------------------------------------------------------------------------------


def _check_url(option: str, url: Any, *, example: str = "https://...", is_https: bool = False) -> str:
    """An absolute URL without a fragment."""
    if not isinstance(url, str) or _URL.fullmatch(url) is None:
        raise ConfigError(f'{option} is a URL, {option}="{example}", not {url!r}')
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises if it is none
    except ValueError:
        raise ConfigError(f"{option}: {url!r} is not a URL") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(f'{option}: {url!r} is not absolute; write it whole, "{example}"')
    if is_https and parts.scheme != "https":
        raise ConfigError(f"{option}: {url!r} is not https, which is asked of it")
    if "#" in url or "@" in parts.netloc:
        raise ConfigError(f"{option}: {url!r} has a fragment or a user; leave that out")
    return url


def _check_issuer(issuer: str, *, allow_insecure: bool) -> None:
    """The URL of an issuer: https, except on this machine, and nothing after the path (RFC 8414, 2)."""
    _check_url("authorization_servers", issuer, example="https://login.example.com")
    if "?" in issuer:
        raise ConfigError(f"authorization_servers: {issuer!r} has a query, which no issuer has; leave that out")
    if not allow_insecure and not _is_safe(issuer):
        raise ConfigError(
            f"authorization_servers: {issuer!r} is not https: anyone on the way could issue tokens. Write https://, or, "
            "inside a network that you trust, allow_insecure_authorization_servers=True"
        )


def _is_safe(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "https" or is_loopback_host(parts.hostname or "")


def _check_list(option: str, values: Any, *, example: str = "...") -> tuple[str, ...]:
    if isinstance(values, str) or not isinstance(values, (list, tuple, set, frozenset)):
        raise ConfigError(f'{option} must be a list of strings, {option}=["{example}"], not {values!r}')
    items = tuple(cast("Iterable[Any]", values))
    if not all(isinstance(item, str) and item for item in items):
        raise ConfigError(f'{option} must be a list of strings, {option}=["{example}"], not {values!r}')
    return items


def _check_scopes(option: str, scopes: Any) -> tuple[str, ...]:
    words = check_scopes(_check_list(option, scopes, example="notes:read"), option)
    if _OFFLINE in words:
        raise ConfigError(
            f"{option}: {_OFFLINE} is between a client and its authorization server, and no scope of a resource; leave it out"
        )
    return words


def _check_methods(methods: Any) -> tuple[str, ...]:
    names = _check_list("bearer_methods_supported", methods, example="header")
    if any(method != "header" for method in names):
        raise ConfigError(
            'bearer_methods_supported: tokens are taken from the Authorization header only; write ["header"], or leave it out'
        )
    return names


def _check_text(option: str, text: Any) -> str | None:
    if text is not None and (not isinstance(text, str) or not text):
        raise ConfigError(f"{option} must be a text, not {text!r}")
    return text


def _check_extras(metadata: Mapping[str, Json] | None) -> Mapping[str, Any]:
    if metadata is None:
        return {}
    if not isinstance(metadata, Mapping) or not all(isinstance(name, str) for name in metadata):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"metadata must be a mapping of further fields of the document, not {metadata!r}")
    reserved = sorted(_RESERVED.intersection(metadata))
    if reserved:
        raise ConfigError(f"metadata: {', '.join(reserved)} has an option of its own; use that")
    try:
        msgspec.json.encode(dict(metadata))
    except Exception as error:
        raise ConfigError(f"metadata cannot be written as JSON: {error}") from None
    return metadata


def _check_resolver(option: str, resolver: Any) -> Resolver:
    if is_async(resolver):
        raise ConfigError(
            f"{option}: the function is called while a reply is built, and cannot be async; use a plain def"
        )
    return resolver


def _resolvable(option: str, value: Any, check: Callable[[str, Any], Any]) -> Any:
    if callable(value):
        return _check_resolver(option, value)
    return check(option, value)


def _check_type(option: str, value: Any, kind: type[Any], example: str) -> Any:
    if value is not None and not isinstance(value, kind):
        raise ConfigError(f"{option} is a {kind.__name__}, {option}={example}, not {value!r}")
    return value


def _check_authorizer(authorizer: Any) -> Callable[..., Awaitable[Any]]:
    """The function to await: of an object its `authorize`."""
    function: Any = getattr(authorizer, "authorize", authorizer)
    if inspect.isclass(authorizer) or not callable(function):
        raise ConfigError(
            f"authorizer is a function (token, auth, request), or an object with authorize(token, auth, request), not {authorizer!r}"
        )
    try:
        inspect.signature(function).bind("token", None, None)
    except TypeError:
        raise ConfigError("authorizer takes three arguments: (token, auth, request)") from None
    except ValueError:  # built in, and does not say
        pass
    if is_async(function):
        return cast("Callable[..., Awaitable[Any]]", function)

    async def call(token: str, auth: ProtectedResource, request: Any) -> Any:
        return await ask(function, token, auth, request)

    return call
