"""With which credentials a gateway calls a server.

    headers = { Authorization = "Bearer ${TOKEN}" }    the same for all callers; nothing to do here
    oauth = "client_credentials" and its like          the gateway's own, by `trimaran.host.oauth_config`
    oauth = "token_exchange"                           the caller's token is exchanged for one of the server (RFC 8693)

Where credentials are a caller's, each caller has a connection of its own. The catalog of such a server is listed with the
gateway's own credentials: those of the same client at the same token endpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, final

from trimaran.auth.exchange import TokenExchange
from trimaran.errors import ConfigError
from trimaran.host.config.model import OAuthEntry, ServerEntry
from trimaran.host.oauth_config import read_private_key, unattended_grant
from trimaran.oauth import ClientCredentials
from trimaran.protocol.inbound import IncomingCall
from trimaran.proxy.connections import CallerAuth


@final
class UpstreamCredentials:
    """How one server is called."""

    def __init__(
        self,
        shared: Any = None,
        caller_auth: Callable[[IncomingCall], CallerAuth] | None = None,
        exchange: TokenExchange | None = None,
    ) -> None:
        self.shared = shared
        """The `auth=` of the connection that all share."""
        self.caller_auth = caller_auth
        """Makes the credentials of each caller; None where all callers share a connection."""
        self.exchange = exchange


def credentials_of(entry: ServerEntry, *, allow_private: bool) -> UpstreamCredentials:
    """The credentials that an entry asks for.

    Raises:
        ConfigError: they cannot be made of what is written.
    """
    if entry.oauth != "token_exchange":
        return UpstreamCredentials(unattended_grant(entry, allow_private=allow_private))
    details = entry.oauth_config
    if details is None or details.token_url is None or details.client_id is None:
        raise ConfigError(f'{entry.where("oauth")}: oauth = "token_exchange" needs token_url and client_id')
    key = read_private_key(details)
    exchange = TokenExchange(
        details.token_url,
        details.client_id,
        details.client_secret,
        private_key=key,
        algorithm=details.algorithm,
        issuer=details.issuer,
        allow_insecure=allow_private,
    )
    resource = details.resource or (None if details.audience else entry.url)
    return UpstreamCredentials(
        _own_credentials(details, key, allow_private), lambda _: _ExchangedToken(exchange, details, resource), exchange
    )


def _own_credentials(details: OAuthEntry, key: str | None, allow_private: bool) -> ClientCredentials:
    return ClientCredentials(
        client_id=details.client_id or "",
        client_secret=details.client_secret,
        private_key=key,
        algorithm=details.algorithm,
        scopes=details.scopes or None,
        issuer=details.issuer,
        token_endpoint=details.token_url,
        resource=details.resource,
        allow_private=allow_private,
    )


@final
class _ExchangedToken:
    """The token of one caller for one server; a `TokenSource` of `connect`."""

    def __init__(self, exchange: TokenExchange, details: OAuthEntry, resource: str | None) -> None:
        self._exchange = exchange
        self._audience = details.audience
        self._resource = resource
        self._scopes = details.scopes
        self._principal: Any = None

    def use(self, call: IncomingCall) -> None:
        self._principal = call.principal

    async def header(self) -> str:
        return f"Bearer {await self._token()}"

    async def refresh(self, www_authenticate: str, /) -> bool:
        await self._token(fresh=True)
        return True

    async def _token(self, *, fresh: bool = False) -> str:
        return await self._exchange.token_for(
            self._principal, audience=self._audience, resource=self._resource, scopes=self._scopes, fresh=fresh
        )
