"""Who may call a gateway: one provider of `trimaran.auth` for all of its endpoints.

Every endpoint starts and closes its authenticator; this one starts its provider with the first endpoint and closes it with
the last, and a reload may put another provider in its place while requests go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import MappingProxyType
from typing import Any, final

import msgspec

from trimaran.auth.config import provider_from
from trimaran.auth.exchange import Secret
from trimaran.auth.extract import bearer_token
from trimaran.auth.principal import Principal
from trimaran.auth.provider import AuthRequest, Fetch, Provider
from trimaran.auth.refusal import Refused

from .settings import GatewaySettings


def read_provider(settings: GatewaySettings) -> Provider | None:
    """The provider of the configuration; None if nobody is asked.

    Raises:
        ConfigError: it cannot be made of what is written.
    """
    return None if settings.is_open else provider_from(settings.auth)


@final
class Authentication:
    """The authenticator of all endpoints.

    Args:
        keeps_token: Keep the caller's token with the principal, for servers that exchange it.
    """

    def __init__(self, provider: Provider, *, keeps_token: bool = False) -> None:
        self._provider = provider
        self.keeps_token = keeps_token
        self._users = 0
        self._fetch: Fetch | None = None

    async def authenticate(self, request: AuthRequest) -> Principal | None:
        principal = await self._provider.authenticate(request)
        if principal is None or not self.keeps_token or (token := bearer_token(request.headers)) is None:
            return principal
        return msgspec.structs.replace(
            principal, metadata=MappingProxyType({**principal.metadata, "token": Secret(token)})
        )

    async def start(self, fetch: Fetch | None = None) -> None:
        self._users += 1
        self._fetch = self._fetch or fetch
        if self._users == 1:
            await self._provider.start(fetch)

    async def close(self) -> None:
        self._users -= 1
        if not self._users:
            await self._provider.close()

    async def replace(self, provider: Provider) -> None:
        """Let another provider decide from now on. If it cannot start, the one before stays."""
        if self._users:
            await provider.start(self._fetch)
        before, self._provider = self._provider, provider
        if self._users:
            await before.close()

    # What an endpoint asks beside that

    @property
    def header_names(self) -> tuple[str, ...]:
        return self._provider.header_names

    @property
    def offers_login(self) -> bool:
        return self._provider.offers_login

    @property
    def expects(self) -> str:
        return self._provider.expects

    def document(self, request: AuthRequest) -> Any:
        answer = getattr(self._provider, "document", None)
        return None if answer is None else answer(request)

    def challenge(self, refusal: Refused) -> str:
        return self._provider.challenge(refusal)

    def step_up(self, request: AuthRequest, scopes: Iterable[str]) -> str:
        ask = getattr(self._provider, "step_up", None)
        return (
            self._provider.challenge(Refused("insufficient_scope", scopes=scopes))
            if ask is None
            else ask(request, scopes)
        )


@final
class ViewAuthentication:
    """The same for a view that is not for everybody: whoever is known and may not use it is refused with 403."""

    def __init__(self, shared: Authentication, may_use: Callable[[Principal | None], bool]) -> None:
        self._shared = shared
        self._may_use = may_use

    async def authenticate(self, request: AuthRequest) -> Principal | None:
        principal = await self._shared.authenticate(request)
        if not self._may_use(principal):
            raise Refused(
                "insufficient_scope", "this view is not for you: `to` in its configuration lists who may use it"
            )
        return principal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._shared, name)
