"""Grants that need no person.

ClientCredentials   the program itself is known to the authorization server
EnterpriseManaged   a company's identity provider vouches for the person (ID-JAG)
WorkloadIdentity    the platform the program runs on vouches for it (jwt-bearer)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Literal, TypedDict, Unpack, final

from trimaran.errors import AuthorizationFailed, ConfigError

from .assertions import SigningKey, client_assertion
from .credentials import Credentials
from .effects import CallUser, Flow
from .grant import CredentialNeed, FlowEnvironment, Grant, GrantSite, TextOrAwaitable, check_option
from .metadata import ServerMetadata, shown
from .registration import ClientInfo, choose_auth_method
from .tokens import ID_JAG, ClientProof, Prover, TokenReply, client_credentials, jwt_bearer, token_exchange
from .urls import canonical_resource


class MachineGrantOptions(TypedDict, total=False):
    """The options that every grant of this module takes."""

    scopes: Iterable[str] | None
    """None for the scopes that the server asks for."""
    issuer: str | None
    """The authorization server. Without it, the server names its own."""
    token_endpoint: str | None
    """Skips discovery."""
    resource: str | None
    """The `resource` of token requests; without it, the one that the server names."""
    dpop: bool
    """Bind tokens to a key (RFC 9449)."""
    allow_private: bool
    """Let the authorization server have a private address."""


class _Unattended(Grant):
    """Grants that need no person: a fresh token is always one flow away."""

    can_renew: ClassVar[bool] = True

    def __init__(
        self,
        *,
        scopes: Iterable[str] | None = None,
        issuer: str | None = None,
        token_endpoint: str | None = None,
        resource: str | None = None,
        dpop: bool = False,
        allow_private: bool = False,
    ) -> None:
        super().__init__(scopes=scopes, dpop=dpop)
        if token_endpoint is not None:
            check_option("token_endpoint", token_endpoint)
        self.issuer = issuer
        self.token_endpoint = token_endpoint
        self.resource = resource
        self.allow_private = allow_private

    def acquire(
        self, need: CredentialNeed, world: FlowEnvironment, credentials: Credentials | None
    ) -> Flow[Credentials | None]:
        if need.why == "expiring" and credentials is not None and credentials.metadata is not None:
            place = GrantSite(credentials.resource or need.server_url, credentials.metadata, credentials.scopes, ())
        elif self.token_endpoint is not None:
            place = self._configured_place(need)
        elif need.why in ("start", "expiring"):
            return None
        else:
            place = yield from self._discover(need, credentials)
            self._check_migration(credentials, place.metadata)
        scopes = (
            credentials.scopes
            if need.why == "expiring" and credentials is not None
            else self._choose_scopes(place, need, credentials)
        )
        prover = self._prover(world, credentials, place.metadata)
        reply = yield from self._request(need, world, place, scopes, prover)
        return self._settle(
            reply,
            world,
            need,
            resource=place.resource,
            metadata=place.metadata,
            scopes=scopes,
            prover=prover,
            credentials=credentials,
        )

    def _configured_place(self, need: CredentialNeed) -> GrantSite:
        assert self.token_endpoint is not None
        challenge = need.challenge()
        challenged = tuple(challenge.parameters.get("scope", "").split()) if challenge is not None else ()
        metadata = ServerMetadata(issuer=self.issuer or self.token_endpoint, token_endpoint=self.token_endpoint)
        return GrantSite(self.resource or canonical_resource(need.server_url), metadata, challenged, ())

    def _check_migration(self, credentials: Credentials | None, metadata: ServerMetadata) -> None:
        """Refuse to show credentials to another issuer only because the server names it."""
        if self.issuer is None and credentials is not None and credentials.issuer not in (None, metadata.issuer):
            raise AuthorizationFailed(
                f"{credentials.server_url} is now guarded by {metadata.issuer}; credentials for {credentials.issuer} are sent "
                "nowhere else. If they are for the new one too, give issuer=",
                step="protected resource metadata",
                url=metadata.issuer,
            )

    def _request(
        self,
        need: CredentialNeed,
        world: FlowEnvironment,
        place: GrantSite,
        scopes: Sequence[str],
        prover: Prover | None,
    ) -> Flow[TokenReply]:
        raise NotImplementedError


class _Identity:
    """How a client proves its identity: by a secret, by a key that it signs with, or by an assertion made elsewhere."""

    def __init__(
        self,
        client_id: str,
        client_secret: str | None,
        private_key: str | bytes | None,
        algorithm: str | None,
        assertion: str | Callable[[], TextOrAwaitable] | None = None,
    ) -> None:
        if sum(proof is not None for proof in (client_secret, private_key, assertion)) > 1:
            raise ConfigError("give one of client_secret, private_key and client_assertion")
        self.client_id = client_id
        self._secret = client_secret
        self._key = SigningKey.from_pem(private_key, algorithm) if private_key is not None else None
        self._assertion = assertion

    def credentials(self, metadata: ServerMetadata, world: FlowEnvironment) -> Flow[ClientProof]:
        """The proof for the token endpoint."""
        if self._key is not None:
            assertion = client_assertion(
                self._key,
                client_id=self.client_id,
                audience=metadata.issuer,
                now=world.now(),
                jti=world.entropy(16).hex(),
            )
            return {"client_assertion": assertion}
        if self._assertion is not None:
            return {"client_assertion": (yield from _value_of(self._assertion, "client assertion"))}
        method = choose_auth_method(metadata, has_secret=self._secret is not None)
        return {"client": ClientInfo(client_id=self.client_id, client_secret=self._secret, auth_method=method)}


def _value_of(option: str | Callable[[], TextOrAwaitable], name: str) -> Flow[str]:
    """The value of an option that may be a function."""
    value: Any = (yield CallUser(option, name)) if callable(option) else option
    if not isinstance(value, str) or not value:
        raise ConfigError(
            f"the {name} must be a text that is not empty, or a function, sync or async, that returns one"
        )
    return value


@final
class ClientCredentials(_Unattended):
    """A program with credentials of its own: `client_secret`, or `private_key` (PEM), which never travels (R211)."""

    extension: ClassVar[str | None] = "io.modelcontextprotocol/oauth-client-credentials"

    def __init__(
        self,
        *,
        client_id: str,
        client_secret: str | None = None,
        private_key: str | bytes | None = None,
        algorithm: str | None = None,
        client_assertion: str | Callable[[], TextOrAwaitable] | None = None,
        **options: Unpack[MachineGrantOptions],
    ) -> None:
        super().__init__(**options)
        if client_secret is None and private_key is None and client_assertion is None:
            raise ConfigError("ClientCredentials needs a client_secret, a private_key or a client_assertion")
        self._identity = _Identity(client_id, client_secret, private_key, algorithm, client_assertion)
        self.client_id = client_id

    def __repr__(self) -> str:
        return f"ClientCredentials(client_id={self.client_id!r}, scopes={self.scopes!r})"

    def _request(
        self,
        need: CredentialNeed,
        world: FlowEnvironment,
        place: GrantSite,
        scopes: Sequence[str],
        prover: Prover | None,
    ) -> Flow[TokenReply]:
        endpoint = self._token_endpoint(place.metadata)
        return (
            yield from client_credentials(
                endpoint,
                resource=place.resource,
                scopes=scopes,
                prover=prover,
                server_url=self._trusted(need, endpoint),
                **(yield from self._identity.credentials(place.metadata, world)),
            )
        )


@final
class EnterpriseManaged(_Unattended):
    """A company's identity provider vouches for its people: its token becomes an ID-JAG, and that an access token (R212)."""

    extension: ClassVar[str | None] = "io.modelcontextprotocol/enterprise-managed-authorization"

    def __init__(
        self,
        *,
        client_id: str,
        idp_token_endpoint: str,
        subject_token: str | Callable[[], TextOrAwaitable],
        client_secret: str | None = None,
        private_key: str | bytes | None = None,
        algorithm: str | None = None,
        client_assertion: str | Callable[[], TextOrAwaitable] | None = None,
        idp_client_id: str | None = None,
        idp_client_secret: str | None = None,
        idp_issuer: str | None = None,
        subject_token_type: Literal["id_token", "saml2", "refresh_token"] = "id_token",  # noqa: S107 - a kind of token
        audience: str | None = None,
        **options: Unpack[MachineGrantOptions],
    ) -> None:
        super().__init__(**options)
        check_option("idp_token_endpoint", idp_token_endpoint)
        if self.token_endpoint is not None and audience is None and self.issuer is None:
            raise ConfigError("with a token_endpoint of your own, give the issuer (or audience) it belongs to")
        self._identity = _Identity(client_id, client_secret, private_key, algorithm, client_assertion)
        self._idp = _Identity(idp_client_id or client_id, idp_client_secret, None, None)
        self.client_id = client_id
        self.idp_token_endpoint = idp_token_endpoint
        self.idp_issuer = idp_issuer
        self._subject_token = subject_token
        self.subject_token_type = subject_token_type
        self.audience = audience

    def __repr__(self) -> str:
        return f"EnterpriseManaged(client_id={self.client_id!r}, idp_token_endpoint={self.idp_token_endpoint!r})"

    def _request(
        self,
        need: CredentialNeed,
        world: FlowEnvironment,
        place: GrantSite,
        scopes: Sequence[str],
        prover: Prover | None,
    ) -> Flow[TokenReply]:
        idp = ServerMetadata(issuer=self.idp_issuer or self.idp_token_endpoint, token_endpoint=self.idp_token_endpoint)
        try:
            grant = yield from token_exchange(
                self.idp_token_endpoint,
                subject_token=(yield from _value_of(self._subject_token, "subject token")),
                subject_token_type=self.subject_token_type,
                requested_token_type=ID_JAG,
                audience=self.audience or place.metadata.issuer,
                resource=place.resource,
                scopes=scopes,
                step="token exchange at the identity provider",
                server_url=self.idp_token_endpoint,
                **(yield from self._idp.credentials(idp, world)),
            )
        except AuthorizationFailed as error:
            if error.code == "invalid_grant":
                raise AuthorizationFailed(
                    f"{error}: the subject token is expired or withdrawn; sign in at the identity provider again",
                    step=error.step,
                    url=error.url,
                    code="subject_token_expired",
                ) from None
            raise
        if grant.issued_token_type not in (None, ID_JAG):
            raise AuthorizationFailed(
                f"the token exchange at the identity provider gave {shown(grant.issued_token_type)!r}, not an ID-JAG",
                step="token exchange at the identity provider",
                url=self.idp_token_endpoint,
            )
        endpoint = self._token_endpoint(place.metadata)
        return (
            yield from jwt_bearer(
                endpoint,
                assertion=grant.access_token,
                resource=place.resource,
                scopes=scopes,
                prover=prover,
                server_url=self._trusted(need, endpoint),
                **(yield from self._identity.credentials(place.metadata, world)),
            )
        )


@final
class WorkloadIdentity(_Unattended):
    """The platform vouches for the program, with a JWT that `assertion` gives: no registration, no secret.

    A refused assertion is final: it is neither sent again nor replaced by another grant.
    """

    extension: ClassVar[str | None] = "io.modelcontextprotocol/auth/wif"

    def __init__(
        self,
        *,
        assertion: str | Callable[[], TextOrAwaitable],
        client_id: str | None = None,
        **options: Unpack[MachineGrantOptions],
    ) -> None:
        super().__init__(**options)
        self._assertion = assertion
        self._refused: dict[str, AuthorizationFailed] = {}
        self.client_id = client_id

    def __repr__(self) -> str:
        return f"WorkloadIdentity(scopes={self.scopes!r})"

    def _request(
        self,
        need: CredentialNeed,
        world: FlowEnvironment,
        place: GrantSite,
        scopes: Sequence[str],
        prover: Prover | None,
    ) -> Flow[TokenReply]:
        endpoint = self._token_endpoint(place.metadata)
        assertion = yield from _value_of(self._assertion, "assertion")
        known = self._refused.get(assertion)
        if known is not None:
            raise AuthorizationFailed(f"{known} (not tried again)", step=known.step, url=known.url, code=known.code)
        client = ClientInfo(client_id=self.client_id, auth_method="none") if self.client_id is not None else None
        try:
            return (
                yield from jwt_bearer(
                    endpoint,
                    assertion=assertion,
                    resource=place.resource,
                    scopes=scopes,
                    prover=prover,
                    client=client,
                    server_url=self._trusted(need, endpoint),
                )
            )
        except AuthorizationFailed as error:
            if error.code is not None:
                self._refused = {assertion: error}
            raise
