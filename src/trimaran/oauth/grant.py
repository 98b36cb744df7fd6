"""`Grant`: a way for a program to get the right to call a server, and the steps that all grants share.

A grant has settings and one flow, `acquire`: it takes the present credentials and the need, and returns new ones. It is
driven by `trimaran.transports.http_auth`, which also decides when. Nothing here waits, fetches, reads a clock or
makes random numbers by itself.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar, Final, Literal, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from trimaran.errors import AuthorizationFailed, ConfigError, UnsafeUrl

from .challenges import Challenge, challenge_for, key_header, parse_www_authenticate
from .credentials import Credentials
from .discovery import discover_authorization_server, discover_legacy_server, discover_protected_resource
from .dpop import Nonces, ProofKey
from .effects import Flow
from .metadata import ResourceMetadata, ServerMetadata, shown
from .registration import ClientInfo
from .tokens import Prover, TokenReply
from .urls import canonical_resource, check_url

OFFLINE: Final = "offline_access"
_PROOF_ALGORITHMS: Final = ("ES256", "EdDSA", "ES384", "PS256", "RS256")
DPOP_EXTENSION: Final = "io.modelcontextprotocol/auth/dpop"


@runtime_checkable
class UserAgent(Protocol):
    """Shows a person a page, and reports the URL that the browser came back with."""

    async def redirect_uri(self) -> str: ...
    async def browse(self, url: str, state: str) -> str: ...
    async def close(self) -> None: ...


class LoginStore(Protocol):
    """Keeps the records of logins. `trimaran.state` has several."""

    async def load(self, key: str) -> bytes | None: ...
    async def save(self, key: str, record: bytes) -> None: ...
    def lock(self, key: str) -> AbstractAsyncContextManager[None]: ...


Login: TypeAlias = UserAgent | Callable[[str], str | Awaitable[str]] | bool | None
TextOrAwaitable: TypeAlias = str | Awaitable[str]


class FlowEnvironment(Struct, frozen=True):
    """The clock and the source of randomness for a flow."""

    now: Callable[[], float]
    entropy: Callable[[int], bytes]
    nonces: Nonces


Why = Literal["start", "expiring", "refused", "scopes"]


class CredentialNeed(Struct, frozen=True, kw_only=True):
    """The reason for new credentials.

    - `start`: there are none yet, and no request was sent
    - `expiring`: the present ones expire soon
    - `refused`: the server answered 401
    - `scopes`: the server answered 403, these scopes are not enough
    """

    why: Why
    server_url: str
    www_authenticate: str = ""
    may_refresh: bool = True
    """False if fresh tokens were refused a moment ago: only another login can help."""
    may_ask: bool = True
    """False if nobody waits for the result, or a login did not help a moment ago: no person is asked."""

    def challenge(self) -> Challenge | None:
        return challenge_for(parse_www_authenticate(self.www_authenticate), "bearer", "dpop")


class GrantSite(Struct, frozen=True):
    """The result of discovery: the resource, its authorization server, and the scopes."""

    resource: str
    metadata: ServerMetadata
    challenged: tuple[str, ...]
    supported: tuple[str, ...]
    is_legacy: bool = False


class Grant:
    """The base of all grants: discovery, scopes, proofs, and credentials from a token reply."""

    extension: ClassVar[str | None] = None
    """The protocol extension of this grant, if it has one."""
    can_renew: ClassVar[bool] = False
    """Whether it can get fresh tokens without a refresh token and without a person."""
    login: Login = None
    store: LoginStore | str | os.PathLike[str] | bool | None = None
    redirect_uri: str | None = None
    allow_private: bool = False
    issuer: str | None = None
    token_endpoint: str | None = None
    resource: str | None = None
    name: str | None = None

    def __init__(self, *, scopes: Iterable[str] | None, dpop: bool) -> None:
        if isinstance(scopes, str):
            raise ConfigError(
                f"scopes must be a list, scopes=[{scopes!r}], or None for the scopes that the server asks for"
            )
        self.scopes: tuple[str, ...] | None = tuple(scopes) if scopes is not None else None
        if self.scopes is not None and not all(isinstance(scope, str) and scope for scope in self.scopes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("scopes must be a list of strings that are not empty")
        self.dpop = dpop
        self.memory: Any = None
        """Data of the driver. It lies here so that clients that share a grant share its logins."""

    @property
    def extensions(self) -> tuple[str, ...]:
        """The protocol extensions that a client with this grant declares."""
        return (*([self.extension] if self.extension else []), *([DPOP_EXTENSION] if self.dpop else []))

    def acquire(
        self, need: CredentialNeed, world: FlowEnvironment, credentials: Credentials | None
    ) -> Flow[Credentials | None]:
        """New credentials; None if this grant can do nothing about the need, so the present ones are used.

        Raises:
            AuthorizationFailed: a step failed. The message says which, where, and what to do.
        """
        raise NotImplementedError

    def restores(self, credentials: Credentials) -> bool:
        """Whether this grant can use these stored credentials."""
        return True

    # --- shared steps

    def _discover(self, need: CredentialNeed, credentials: Credentials | None) -> Flow[GrantSite]:
        challenge = need.challenge()
        parameters: Mapping[str, str] = challenge.parameters if challenge is not None else {}
        challenged = tuple(parameters.get("scope", "").split())
        described = yield from discover_protected_resource(need.server_url, parameters.get("resource_metadata"))
        if described is None:
            self._check_for_oauth(need)
            metadata = yield from self._find_legacy(need.server_url)
            resource = self.resource or canonical_resource(need.server_url)
            return GrantSite(resource, metadata, challenged, (), True)
        issuer = self._choose_issuer(described, credentials)
        metadata = yield from discover_authorization_server(issuer, need.server_url)
        return GrantSite(self.resource or described.resource, metadata, challenged, described.scopes_supported or ())

    def _check_for_oauth(self, need: CredentialNeed) -> None:
        """Servers of 2025-03-26 publish no metadata, and their only challenge is Bearer. A server with another challenge
        has no OAuth, and discovery would end with a registration endpoint that does not exist.
        """
        challenges = parse_www_authenticate(need.www_authenticate)
        if self.issuer is not None or not challenges or need.challenge() is not None:
            return
        header = next((name for challenge in challenges if (name := key_header(challenge)) is not None), None)
        if header is not None:
            demand, remedy = f"an API key in the header {header}", f'give headers={{"{header}": ...}}'
        else:
            demand, remedy = f"the scheme {shown(challenges[0].scheme)}", 'give headers={"Authorization": ...}'
        raise AuthorizationFailed(
            f"{need.server_url} has no OAuth, so nobody can log in: it asks for {demand}; {remedy}",
            step="protected resource metadata",
            url=need.server_url,
        )

    def _find_legacy(self, server_url: str) -> Flow[ServerMetadata]:
        if self.issuer is not None:
            return (yield from discover_authorization_server(self.issuer, server_url))
        return (yield from discover_legacy_server(server_url))

    def _choose_issuer(self, described: ResourceMetadata, credentials: Credentials | None) -> str:
        offered = described.authorization_servers
        if self.issuer is not None:
            if self.issuer not in offered:
                raise AuthorizationFailed(
                    f"{described.resource} is guarded by {', '.join(map(shown, offered[:5]))}, not by the issuer "
                    f"{self.issuer} of the grant; if the server has moved, give the new issuer (and the client registered there)",
                    step="protected resource metadata",
                    url=described.resource,
                )
            return self.issuer
        if credentials is not None and credentials.issuer in offered:
            return credentials.issuer
        return offered[0]

    def _choose_scopes(
        self, place: GrantSite, need: CredentialNeed, credentials: Credentials | None
    ) -> tuple[str, ...]:
        """The scopes to request: those the operation needs, or else the configured or offered ones; and those requested before."""
        demanded = place.challenged or (place.supported if self.scopes is None else ())
        scopes = [*(self.scopes or ()), *demanded]
        if credentials is not None and credentials.issuer == place.metadata.issuer:
            scopes = [*credentials.scopes, *scopes]
        # offline_access asks the issuer for a refresh token. It is no right on the server.
        scopes = [scope for scope in scopes if scope != OFFLINE or OFFLINE in (self.scopes or ())]
        return tuple(dict.fromkeys(scopes))

    def _prover(
        self, world: FlowEnvironment, credentials: Credentials | None, metadata: ServerMetadata | None = None
    ) -> Prover | None:
        if not self.dpop:
            return None
        jwk = credentials.proof_key if credentials is not None else None
        key = ProofKey.from_jwk(jwk) if jwk is not None else ProofKey.generate(self._proof_algorithm(metadata))
        return Prover(key, world.nonces, world.now, world.entropy)

    @staticmethod
    def _proof_algorithm(metadata: ServerMetadata | None) -> str:
        supported = metadata.dpop_signing_alg_values_supported if metadata is not None else None
        return next(
            (name for name in _PROOF_ALGORITHMS if supported is None or name in supported), _PROOF_ALGORITHMS[0]
        )

    def _trusted(self, need: CredentialNeed, endpoint: str) -> str:
        """The server whose origin is trusted for a request to `endpoint`. An endpoint that the operator configured is trusted."""
        return endpoint if endpoint == self.token_endpoint else need.server_url

    def _token_endpoint(self, metadata: ServerMetadata) -> str:
        endpoint = self.token_endpoint or metadata.token_endpoint
        if endpoint is None:
            raise AuthorizationFailed(
                f"{metadata.issuer} has no token endpoint in its metadata; its operator must correct it",
                step="authorization server metadata",
                url=metadata.issuer,
            )
        return endpoint

    def _settle(
        self,
        reply: TokenReply,
        world: FlowEnvironment,
        need: CredentialNeed,
        *,
        resource: str | None,
        metadata: ServerMetadata | None,
        scopes: Sequence[str],
        prover: Prover | None,
        credentials: Credentials | None,
        clients: Mapping[str, ClientInfo] | None = None,
    ) -> Credentials:
        token_type = "dpop" if self.dpop else "bearer"
        if reply.token_type != token_type:
            url = self.token_endpoint or (metadata.token_endpoint if metadata is not None else None) or ""
            raise AuthorizationFailed(
                f"the token request failed: {url} issued a token of the type {shown(reply.token_type)!r}, but {token_type!r} was "
                f"requested; {'give dpop=False to accept bearer tokens' if self.dpop else 'tell its operator'}",
                step="token request",
                url=url,
            )
        return Credentials(
            server_url=need.server_url,
            name=self.name or "",
            resource=resource,
            issuer=metadata.issuer if metadata is not None else None,
            access_token=reply.access_token,
            token_type=reply.token_type,
            refresh_token=reply.refresh_token,
            issued_at=world.now(),
            expires_at=world.now() + reply.expires_in if reply.expires_in is not None else None,
            scopes=tuple(scopes),
            granted=reply.scopes,
            metadata=metadata,
            clients=dict(clients or (credentials.clients if credentials is not None else {})),
            proof_key=prover.key.to_jwk() if prover is not None else None,
        )


def check_option(option: str, url: str) -> None:
    try:
        check_url(url, step=option, allow_private=True)
    except UnsafeUrl as error:
        raise ConfigError(f"{option}: {error}") from None
