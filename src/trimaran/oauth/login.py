"""`OAuth`: a person logs in once, by authorization code with PKCE; from then on tokens are refreshed without them.

The present token is used first, then the refresh token, then a person is asked, if there is a way. A refresh token
and a client's registration are sent only to the issuer that issued them.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Final, cast, final
from urllib.parse import urlsplit

import msgspec

from trimaran.errors import AuthorizationFailed, ConfigError, LoginRequired, UnsafeUrl

from .authorization import build_authorization_url, read_callback
from .credentials import Credentials
from .effects import Browse, Flow, Redirect
from .grant import OFFLINE, CredentialNeed, FlowEnvironment, Grant, GrantSite, Login, LoginStore, check_option
from .metadata import ServerMetadata
from .registration import ClientInfo, choose_auth_method, client_metadata, register_client
from .tokens import exchange_code, refresh_token
from .urls import canonical_resource

# A refresh that fails with one of these will not succeed later. Other failures may be temporary.
_FINAL: Final = frozenset({"invalid_grant", "invalid_client", "unauthorized_client", "unsupported_grant_type"})
_LOOPBACK_URI: Final = re.compile(r"http://127\.0\.0\.1:[0-9]{1,5}/callback")


@final
class OAuth(Grant):
    """Log in as a person, and stay logged in (R246-R256).

    `login` says how a person is asked: None never asks (an unattended program), True opens a browser and listens on
    127.0.0.1, a function gets the URL and returns the URL that the browser came back with, and a `UserAgent` does both.
    `store` says where the login is stored: None only in memory, True in the system's keyring or else in a file that only its
    owner can read, a path, or a store of your own.
    """

    def __init__(
        self,
        *,
        client_id: str | None = None,
        client_secret: str | None = None,
        client_metadata_url: str | None = None,
        client_name: str = "Trimaran",
        scopes: Iterable[str] | None = None,
        login: Login = None,
        redirect_uri: str | None = None,
        store: LoginStore | str | os.PathLike[str] | bool | None = None,
        name: str | None = None,
        dpop: bool = False,
        access_token: str | None = None,
        refresh_token: str | None = None,
        issuer: str | None = None,
        authorization_endpoint: str | None = None,
        token_endpoint: str | None = None,
        resource: str | None = None,
        allow_private: bool = False,
    ) -> None:
        super().__init__(scopes=scopes, dpop=dpop)
        if client_secret is not None and client_id is None:
            raise ConfigError("client_secret needs a client_id")
        if (authorization_endpoint is None) != (token_endpoint is None) and login is not None:
            raise ConfigError(
                "give both authorization_endpoint and token_endpoint, or neither: then they are discovered"
            )
        if authorization_endpoint is not None and client_id is None:
            raise ConfigError("with endpoints of your own, give the client_id that is registered there")
        if client_metadata_url is not None and not _is_document_url(client_metadata_url):
            raise ConfigError(
                "client_metadata_url must be the https URL, with a path, of the document that describes this client"
            )
        if refresh_token is not None and token_endpoint is None and issuer is None:
            raise ConfigError("refresh_token is sent only to its issuer: name it with token_endpoint or issuer")
        for option, url in (("authorization_endpoint", authorization_endpoint), ("token_endpoint", token_endpoint)):
            if url is not None:
                check_option(option, url)
        _check_login(login, redirect_uri)
        self.client_id = client_id
        self._client_secret = client_secret
        self.client_metadata_url = client_metadata_url
        self.client_name = client_name
        self.login = None if login is False else login
        self.redirect_uri = redirect_uri
        self.store = store
        self.name = name
        self._access_token = access_token
        self._refresh_token = refresh_token
        self.issuer = issuer
        self.authorization_endpoint = authorization_endpoint
        self.token_endpoint = token_endpoint
        self.resource = resource
        self.allow_private = allow_private

    def __repr__(self) -> str:
        return f"OAuth(client_id={self.client_id!r}, scopes={self.scopes!r})"

    def restores(self, credentials: Credentials) -> bool:
        """Stored credentials of another client, of another kind, or from other supplied tokens belong to another login."""
        if self.issuer is not None and credentials.issuer != self.issuer:
            return False
        if credentials.access_token is not None and (credentials.token_type == "dpop") != self.dpop:  # noqa: S105 - a kind of token
            return False
        if credentials.given != self._given_digest() and (
            credentials.given is not None or self._access_token is not None
        ):
            return False
        client = credentials.client
        if self.client_id is not None and client is not None:
            return client.client_id == self.client_id
        return True

    def acquire(
        self, need: CredentialNeed, world: FlowEnvironment, credentials: Credentials | None
    ) -> Flow[Credentials | None]:
        if need.why == "start":
            return self._supplied(need) if credentials is None else None
        if need.why == "expiring":
            return (yield from self._refresh_early(need, world, credentials))
        try:
            place = yield from self._place(need, credentials)
        except UnsafeUrl:
            raise
        except AuthorizationFailed:
            # The token endpoint is known already, so a failure of discovery does not matter.
            fresh = yield from self._refresh_unasked(need, world, credentials)
            if fresh is None:
                raise
            return fresh
        if credentials is not None and credentials.issuer not in (None, place.metadata.issuer):
            self._check_migration(credentials, place.metadata)
        if credentials is not None and need.why == "refused" and _can_refresh(credentials, need):
            fresh, credentials = yield from self._refresh_after_401(need, world, credentials, place)
            if fresh is not None:
                return fresh
        if self.login is not None and not need.may_ask:
            return None
        return (yield from self._log_in(need, world, credentials, place))

    def _supplied(self, need: CredentialNeed) -> Credentials | None:
        """Tokens that the program supplied (R210)."""
        if self._access_token is None and self._refresh_token is None:
            return None
        metadata = self._manual()
        return Credentials(
            server_url=need.server_url,
            name=self.name or "",
            resource=self.resource,
            issuer=metadata.issuer if metadata is not None else self.issuer,
            access_token=self._access_token,
            token_type="dpop" if self.dpop else "bearer",
            refresh_token=self._refresh_token,
            scopes=self.scopes or (),
            metadata=metadata,
            given=self._given_digest(),
            clients={metadata.issuer: self._configured()} if metadata is not None and self.client_id else {},
        )

    def _given_digest(self) -> str | None:
        if self._access_token is None and self._refresh_token is None:
            return None
        return hashlib.sha256(f"{self._access_token}\0{self._refresh_token}".encode()).hexdigest()

    def _manual(self) -> ServerMetadata | None:
        """The authorization server as the operator describes it (R256)."""
        if self.token_endpoint is None:
            return None
        return ServerMetadata(
            issuer=self.issuer or self.token_endpoint,
            authorization_endpoint=self.authorization_endpoint,
            token_endpoint=self.token_endpoint,
            code_challenge_methods_supported=("S256",),
        )

    def _configured(self) -> ClientInfo:
        assert self.client_id is not None
        return ClientInfo(client_id=self.client_id, client_secret=self._client_secret)

    def _place(self, need: CredentialNeed, credentials: Credentials | None) -> Flow[GrantSite]:
        manual = self._manual()
        if manual is None:
            return (yield from self._discover(need, credentials))
        challenge = need.challenge()
        challenged = tuple(challenge.parameters.get("scope", "").split()) if challenge is not None else ()
        return GrantSite(self.resource or canonical_resource(need.server_url), manual, challenged, ())

    def _check_migration(self, credentials: Credentials, metadata: ServerMetadata) -> None:
        if self.client_id is not None and self.issuer is None and self.token_endpoint is None:
            raise AuthorizationFailed(
                f"{credentials.server_url} is now guarded by {metadata.issuer}; the client {self.client_id!r} is registered with "
                f"{credentials.issuer}, and its credentials are sent nowhere else. Register a client with the new issuer",
                step="protected resource metadata",
                url=metadata.issuer,
            )

    # --- refreshing

    def _refresh(
        self, need: CredentialNeed, world: FlowEnvironment, credentials: Credentials, metadata: ServerMetadata
    ) -> Flow[Credentials]:
        assert credentials.refresh_token is not None
        prover = self._prover(world, credentials)
        # The configuration wins over the stored client: the secret may have changed.
        client = self._configured() if self.client_id is not None else credentials.clients.get(metadata.issuer)
        endpoint = self._token_endpoint(metadata)
        reply = yield from refresh_token(
            endpoint,
            credentials.refresh_token,
            resource=credentials.resource,
            client=self._with_method(client, metadata),
            prover=prover,
            server_url=self._trusted(need, endpoint),
        )
        fresh = self._settle(
            reply,
            world,
            need,
            resource=credentials.resource,
            metadata=metadata,
            scopes=credentials.scopes,
            prover=prover,
            credentials=credentials,
        )
        if fresh.refresh_token is None:  # it may be used again (RFC 6749, 6)
            fresh = msgspec.structs.replace(fresh, refresh_token=credentials.refresh_token)
        return msgspec.structs.replace(fresh, granted=fresh.granted or credentials.granted, given=credentials.given)

    def _refresh_early(
        self, need: CredentialNeed, world: FlowEnvironment, credentials: Credentials | None
    ) -> Flow[Credentials | None]:
        """Refresh before the token expires. If that fails, the old token is used until the server answers 401."""
        if credentials is None or credentials.refresh_token is None or credentials.metadata is None:
            return None
        try:
            return (yield from self._refresh(need, world, credentials, credentials.metadata))
        except UnsafeUrl:
            raise
        except AuthorizationFailed as error:
            # Only this code says that the refresh token itself is invalid.
            return msgspec.structs.replace(credentials, refresh_token=None) if error.code == "invalid_grant" else None

    def _refresh_unasked(
        self, need: CredentialNeed, world: FlowEnvironment, credentials: Credentials | None
    ) -> Flow[Credentials | None]:
        if (
            credentials is None
            or credentials.metadata is None
            or need.why != "refused"
            or not _can_refresh(credentials, need)
        ):
            return None
        try:
            return (yield from self._refresh(need, world, credentials, credentials.metadata))
        except AuthorizationFailed:
            return None

    def _refresh_after_401(
        self, need: CredentialNeed, world: FlowEnvironment, credentials: Credentials, place: GrantSite
    ) -> Flow[tuple[Credentials | None, Credentials]]:
        """After a 401: fresh credentials or None, and the old ones without the parts that failed.

        A refresh token is sent only to its issuer. An invalid one leads to a login, and if the issuer has
        forgotten the client, to another registration.
        """
        issuer = place.metadata.issuer
        if credentials.issuer != issuer:
            return None, credentials
        try:
            known = msgspec.structs.replace(credentials, resource=place.resource)
            return (yield from self._refresh(need, world, known, place.metadata)), credentials
        except AuthorizationFailed as error:
            if error.code not in _FINAL:
                raise
            if error.code == "invalid_client":
                clients = {name: client for name, client in credentials.clients.items() if name != issuer}
                credentials = msgspec.structs.replace(credentials, clients=clients)
            return None, credentials.without_tokens()

    # --- logging in

    def _log_in(
        self, need: CredentialNeed, world: FlowEnvironment, present: Credentials | None, place: GrantSite
    ) -> Flow[Credentials]:
        metadata = place.metadata
        if self.login is None:
            raise self._login_required(need, present, place)
        endpoint = metadata.authorization_endpoint
        if endpoint is None:
            raise AuthorizationFailed(
                f"{metadata.issuer} has no authorization endpoint, so a login is impossible; if this program has "
                "credentials of its own, use ClientCredentials",
                step="authorization server metadata",
                url=metadata.issuer,
            )
        methods = metadata.code_challenge_methods_supported
        if "S256" not in (methods or ()) and not (methods is None and place.is_legacy):
            raise AuthorizationFailed(
                f"{metadata.issuer} does not say that it supports PKCE with S256, without which a code can be stolen; "
                "no login is begun there until its operator has added that",
                step="authorization server metadata",
                url=metadata.issuer,
            )
        scopes = self._choose_scopes(place, need, present)
        requested = scopes
        if OFFLINE in (metadata.scopes_supported or ()) and scopes and OFFLINE not in scopes:
            requested = (*scopes, OFFLINE)
        redirect_uri = cast("str", (yield Redirect()))
        client = yield from self._client(need, world, present, place, redirect_uri, requested)
        request = build_authorization_url(
            endpoint,
            client_id=client.client_id,
            redirect_uri=redirect_uri,
            resource=place.resource,
            scopes=requested,
            # OpenID issues a refresh token only after the person's consent.
            extra={"prompt": "consent"} if OFFLINE in requested else None,
            entropy=world.entropy,
        )
        callback = cast("str", (yield Browse(request.url, request.state, redirect_uri)))
        # Configured endpoints may have no issuer; then there is nothing to compare `iss` with.
        is_named = self.token_endpoint is None or self.issuer is not None
        code = read_callback(callback, state=request.state, metadata=metadata, check_issuer=is_named)
        prover = self._prover(world, None, metadata)
        token_endpoint = self._token_endpoint(metadata)
        reply = yield from exchange_code(
            token_endpoint,
            code=code,
            verifier=request.verifier,
            redirect_uri=redirect_uri,
            resource=place.resource,
            client=client,
            prover=prover,
            server_url=self._trusted(need, token_endpoint),
        )
        clients = {**(present.clients if present is not None else {}), metadata.issuer: client}
        credentials = self._settle(
            reply,
            world,
            need,
            resource=place.resource,
            metadata=metadata,
            scopes=scopes,
            prover=prover,
            credentials=present,
            clients=clients,
        )
        return msgspec.structs.replace(credentials, given=self._given_digest())

    def _login_required(self, need: CredentialNeed, credentials: Credentials | None, place: GrantSite) -> LoginRequired:
        missing = self._choose_scopes(place, need, credentials) if need.why == "scopes" else ()
        # Records are stored by the server's name, so the command must use the same name.
        is_named = self.name not in (None, "", urlsplit(need.server_url).netloc)
        called = f" --name {shlex.quote(self.name or '')}" if is_named else ""
        # Quoted: the scopes come from the server, and people paste this command into a shell.
        how = called + "".join(f" --scope {shlex.quote(_plain(scope))}" for scope in missing)
        needed = "a login" if need.why == "refused" else f"a login with the scopes {' '.join(map(_plain, missing))}"
        error = LoginRequired(
            f"{need.server_url} needs {needed} at {place.metadata.issuer}, and this program cannot ask a person: run "
            f"`trimaran auth login {shlex.quote(need.server_url)}{how}` once, or pass auth=OAuth(login=True) to `connect` in a program of your own",
            step="login",
            url=place.metadata.issuer,
            status=401 if need.why == "refused" else 403,
        )
        error.is_final = (
            credentials is not None and credentials.access_token is None and credentials.refresh_token is None
        )
        return error

    def _client(
        self,
        need: CredentialNeed,
        world: FlowEnvironment,
        credentials: Credentials | None,
        place: GrantSite,
        redirect_uri: str,
        scopes: Sequence[str],
    ) -> Flow[ClientInfo]:
        """The client: configured, or its metadata document, or registered earlier, or registered now."""
        metadata = place.metadata
        if self.client_id is not None:
            return cast("ClientInfo", self._with_method(self._configured(), metadata))
        if self.client_metadata_url is not None and metadata.client_id_metadata_document_supported:
            return ClientInfo(client_id=self.client_metadata_url, auth_method="none", source="document")
        known = credentials.clients.get(metadata.issuer) if credentials is not None else None
        if known is not None and _still_fits(known, redirect_uri, scopes, world.now()):
            return known
        if metadata.registration_endpoint is None:
            nameless = AuthorizationFailed(
                f"{metadata.issuer} does not register clients on request: register an application with it, and give its client_id"
                + (
                    ""
                    if self.client_metadata_url is None
                    else "; it does not read client_metadata_url documents either"
                ),
                step="client registration",
                url=metadata.issuer,
            )
            nameless.kind = "oauth_no_client_id"
            raise nameless
        description = client_metadata(
            name=self.client_name,
            redirect_uri=redirect_uri,
            auth_method=choose_auth_method(metadata),
            # Some issuers limit a client to the scopes it registered for, and a later step-up needs more than the first login.
            scopes=tuple(dict.fromkeys((*scopes, *place.supported))) if scopes else (),
            dpop=self.dpop,
        )
        return (yield from register_client(metadata.registration_endpoint, description, server_url=need.server_url))

    @staticmethod
    def _with_method(client: ClientInfo | None, metadata: ServerMetadata) -> ClientInfo | None:
        if client is None or client.auth_method is not None:
            return client
        return msgspec.structs.replace(
            client, auth_method=choose_auth_method(metadata, has_secret=client.client_secret is not None)
        )


def _can_refresh(credentials: Credentials, need: CredentialNeed) -> bool:
    return credentials.refresh_token is not None and need.may_refresh


def _check_login(login: Login, redirect_uri: str | None) -> None:
    is_agent = all(hasattr(login, name) for name in ("redirect_uri", "browse", "close"))
    if isinstance(login, type) or not (login is None or isinstance(login, bool) or is_agent or callable(login)):
        raise ConfigError(
            "login must be True, a function that takes a URL and returns the URL the browser came back with, or an object with "
            f"redirect_uri(), browse() and close(); not {login!r}"
        )
    if login is True and redirect_uri is not None and not _LOOPBACK_URI.fullmatch(redirect_uri):
        raise ConfigError(
            f"with login=True the browser comes back to http://127.0.0.1:PORT/callback, so redirect_uri cannot be {redirect_uri!r}"
        )


def _is_document_url(url: str) -> bool:
    return url.startswith("https://") and url.count("/") >= 3 and not url.endswith(("/",)) and "#" not in url


def _still_fits(client: ClientInfo, redirect_uri: str, scopes: Sequence[str], now: float) -> bool:
    if client.source != "registered" or (client.expires_at is not None and now >= client.expires_at):
        return False
    if client.scopes is not None and not set(scopes) <= set(client.scopes):
        return False
    # A native client's loopback port may vary (RFC 8252, 7.3), but some servers do not allow that.
    return client.redirect_uri == redirect_uri


def _plain(scope: str) -> str:
    """A scope without the characters that a scope must not have (RFC 6749, 3.3)."""
    return re.sub(r"[^\x21\x23-\x5b\x5d-\x7e]", "?", scope)
