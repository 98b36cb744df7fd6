"""A grant: a way for a program to get the right to call a server. Here is what all of them share.

A grant is settings, and one flow: `acquire`, from what is held and why that is not enough to new credentials. It is
driven by `trimaran.transports.http_auth`, which also decides when. Nothing here waits, fetches, looks at a clock or
rolls dice by itself.
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

__all__ = [
    "CredentialNeed",
    "FlowEnvironment",
    "Grant",
    "GrantSite",
    "Login",
    "LoginStore",
    "TextOrAwaitable",
    "UserAgent",
    "check_option",
]

OFFLINE: Final = "offline_access"
_PROOF_ALGORITHMS: Final = ("ES256", "EdDSA", "ES384", "PS256", "RS256")
DPOP_EXTENSION: Final = "io.modelcontextprotocol/auth/dpop"


@runtime_checkable
class UserAgent(Protocol):
    """Whatever can show a person a page and hear where the browser came back to."""

    async def redirect_uri(self) -> str: ...
    async def browse(self, url: str, state: str) -> str: ...
    async def close(self) -> None: ...


class LoginStore(Protocol):
    """Keeps the records of logins. `trimaran.state` has several."""

    async def load(self, key: str) -> bytes | None: ...
    async def save(self, key: str, record: bytes) -> None: ...
    def lock(self, key: str) -> AbstractAsyncContextManager[None]: ...


Login: TypeAlias = "UserAgent | Callable[[str], str | Awaitable[str]] | bool | None"
TextOrAwaitable: TypeAlias = "str | Awaitable[str]"


class FlowEnvironment(Struct, frozen=True):
    """What a flow is given of the world."""

    now: Callable[[], float]
    entropy: Callable[[int], bytes]
    nonces: Nonces


Why = Literal["start", "expiring", "refused", "scopes"]


class CredentialNeed(Struct, frozen=True, kw_only=True):
    """Why credentials are wanted.

    - `start`: there are none yet, and nothing has been asked
    - `expiring`: those held will not last much longer
    - `refused`: the server answered 401
    - `scopes`: the server answered 403, these scopes are not enough
    """

    why: Why
    server_url: str
    www_authenticate: str = ""
    may_refresh: bool = True
    """False when fresh tokens have just been refused: then only another login can help."""
    may_ask: bool = True
    """False when nobody is waiting for it, or a login did not help a moment ago: then no person is asked."""

    def challenge(self) -> Challenge | None:
        return challenge_for(parse_www_authenticate(self.www_authenticate), "bearer", "dpop")


class GrantSite(Struct, frozen=True):
    """What discovery found: the resource, its authorization server, and the scopes in question."""

    resource: str
    metadata: ServerMetadata
    challenged: tuple[str, ...]
    supported: tuple[str, ...]
    is_legacy: bool = False


class Grant:
    """What all grants share: discovery, scopes, proofs, and how a reply becomes credentials."""

    extension: ClassVar[str | None] = None
    """The protocol extension that this grant is, if it is one."""
    can_renew: ClassVar[bool] = False
    """Can it get fresh tokens without a refresh token and without a person?"""
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
            raise ConfigError(f"scopes is a list, scopes=[{scopes!r}], or None for what the server asks")
        self.scopes: tuple[str, ...] | None = tuple(scopes) if scopes is not None else None
        if self.scopes is not None and not all(isinstance(scope, str) and scope for scope in self.scopes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError("scopes is a list of strings that are not empty")
        self.dpop = dpop
        self.memory: Any = None
        """What whoever drives the grant keeps with it, so that clients that share a grant share its logins."""

    @property
    def extensions(self) -> tuple[str, ...]:
        """The protocol extensions that a client with this grant declares."""
        return (*([self.extension] if self.extension else []), *([DPOP_EXTENSION] if self.dpop else []))

    def acquire(
        self, need: CredentialNeed, world: FlowEnvironment, held: Credentials | None
    ) -> Flow[Credentials | None]:
        """Credentials that should do; None if there is nothing to be had for this need (then what is held is used).

        Raises:
            AuthorizationFailed: they cannot be had; says which step failed, where, and what to do.
        """
        raise NotImplementedError

    def restores(self, held: Credentials) -> bool:
        """Are these stored credentials of any use to this grant?"""
        return True

    # --- shared steps

    def _discover(self, need: CredentialNeed, held: Credentials | None) -> Flow[GrantSite]:
        challenge = need.challenge()
        parameters: Mapping[str, str] = challenge.parameters if challenge is not None else {}
        challenged = tuple(parameters.get("scope", "").split())
        described = yield from discover_protected_resource(need.server_url, parameters.get("resource_metadata"))
        if described is None:
            self._check_for_oauth(need)
            metadata = yield from self._find_legacy(need.server_url)
            resource = self.resource or canonical_resource(need.server_url)
            return GrantSite(resource, metadata, challenged, (), True)
        issuer = self._choose_issuer(described, held)
        metadata = yield from discover_authorization_server(issuer, need.server_url)
        return GrantSite(self.resource or described.resource, metadata, challenged, described.scopes_supported or ())

    def _check_for_oauth(self, need: CredentialNeed) -> None:
        """Servers of 2025-03-26 publish no metadata, and challenge to Bearer if they challenge at all. One that asks for
        something else has no login, and looking for one would end in a registration that nobody offers.
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

    def _choose_issuer(self, described: ResourceMetadata, held: Credentials | None) -> str:
        offered = described.authorization_servers
        if self.issuer is not None:
            if self.issuer not in offered:
                raise AuthorizationFailed(
                    f"{described.resource} is guarded by {', '.join(map(shown, offered[:5]))}, not by the issuer "
                    f"{self.issuer} that was given; if it has moved, give the new issuer (and the client registered there)",
                    step="protected resource metadata",
                    url=described.resource,
                )
            return self.issuer
        if held is not None and held.issuer in offered:
            return held.issuer
        return offered[0]

    def _choose_scopes(self, place: GrantSite, need: CredentialNeed, held: Credentials | None) -> tuple[str, ...]:
        """What to ask for: what the operation needs; else what is configured or offered. What was asked for before is kept."""
        demanded = place.challenged or (place.supported if self.scopes is None else ())
        scopes = [*(self.scopes or ()), *demanded]
        if held is not None and held.issuer == place.metadata.issuer:
            scopes = [*held.scopes, *scopes]
        # It asks for a refresh token, not for a right on the server: only its issuer can mean anything by it.
        scopes = [scope for scope in scopes if scope != OFFLINE or OFFLINE in (self.scopes or ())]
        return tuple(dict.fromkeys(scopes))

    def _prover(
        self, world: FlowEnvironment, held: Credentials | None, metadata: ServerMetadata | None = None
    ) -> Prover | None:
        if not self.dpop:
            return None
        jwk = held.proof_key if held is not None else None
        key = ProofKey.from_jwk(jwk) if jwk is not None else ProofKey.generate(self._proof_algorithm(metadata))
        return Prover(key, world.nonces, world.now, world.entropy)

    @staticmethod
    def _proof_algorithm(metadata: ServerMetadata | None) -> str:
        supported = metadata.dpop_signing_alg_values_supported if metadata is not None else None
        return next(
            (name for name in _PROOF_ALGORITHMS if supported is None or name in supported), _PROOF_ALGORITHMS[0]
        )

    def _trusted(self, need: CredentialNeed, endpoint: str) -> str:
        """On whose behalf a request is made: what the operator configured needs no other trust than that."""
        return endpoint if endpoint == self.token_endpoint else need.server_url

    def _token_endpoint(self, metadata: ServerMetadata) -> str:
        endpoint = self.token_endpoint or metadata.token_endpoint
        if endpoint is None:
            raise AuthorizationFailed(
                f"{metadata.issuer} has no token endpoint in its metadata; its operator has to mend it",
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
        held: Credentials | None,
        clients: Mapping[str, ClientInfo] | None = None,
    ) -> Credentials:
        token_type = "dpop" if self.dpop else "bearer"
        if reply.token_type != token_type:
            url = self.token_endpoint or (metadata.token_endpoint if metadata is not None else None) or ""
            raise AuthorizationFailed(
                f"the token request failed: {url} gave a token of the type {shown(reply.token_type)!r}, and {token_type!r} was "
                f"asked for; {'give dpop=False if bearer tokens are good enough' if self.dpop else 'tell its operator'}",
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
            clients=dict(clients or (held.clients if held is not None else {})),
            proof_key=prover.key.to_jwk() if prover is not None else None,
        )


def check_option(option: str, url: str) -> None:
    try:
        check_url(url, step=option, allow_private=True)
    except UnsafeUrl as error:
        raise ConfigError(f"{option}: {error}") from None
