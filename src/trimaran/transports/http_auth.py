"""The `Authorization` header of a client, and its renewal when a server refuses it.

`HttpWire` asks an authority for the headers of each request and tells it of every refusal; the authority says whether
trying again makes sense. A fixed token never does. A user's own object is asked for `header()` and `refresh()`. A grant
of `trimaran.oauth` has a module of its own, `grants`, which is loaded only for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, Protocol, final
from urllib.parse import urlsplit

from msgspec import Struct

from trimaran.errors import ConfigError, Error, Unauthorized
from trimaran.oauth.urls import is_loopback_host


class SentCredentials(Struct, frozen=True):
    """The credentials a request went out with."""

    headers: Mapping[str, str]
    token: str | None = None
    nonce: str | None = None

    def __repr__(self) -> str:
        return f"<Sent {', '.join(self.headers) or 'nothing'}>"


NOTHING: Final = SentCredentials({})


class HttpAuth(Protocol):
    """The credentials of requests."""

    async def credentials(self, verb: str, url: str) -> SentCredentials:
        """For one request."""
        ...

    async def refused(
        self, status: int, headers: Mapping[str, str], sent: SentCredentials, url: str, round_number: int
    ) -> bool:
        """The server refused them. Returns whether to try again with the present `credentials`.

        `round_number` counts the refusals of this request from 0.
        """
        ...

    def accepted(self, headers: Mapping[str, str], sent: SentCredentials, url: str) -> None:
        """The server took them."""
        ...

    async def close(self) -> None: ...


@final
class FixedToken:
    """A token that never changes (R209)."""

    def __init__(self, token: str) -> None:
        self._sent = SentCredentials({"Authorization": f"Bearer {token}"})

    async def credentials(self, verb: str, url: str) -> SentCredentials:
        return self._sent

    async def refused(
        self, status: int, headers: Mapping[str, str], sent: SentCredentials, url: str, round_number: int
    ) -> bool:
        return False

    def accepted(self, headers: Mapping[str, str], sent: SentCredentials, url: str) -> None: ...

    async def close(self) -> None: ...


@final
class CallbackAuth:
    """A user's object: `header()` for every request, `refresh(www_authenticate)` once on a 401 (R208)."""

    def __init__(self, handle: Any, server_url: str) -> None:
        self._handle = handle
        self._server_url = server_url
        self._refreshing = asyncio.Lock()

    async def credentials(self, verb: str, url: str) -> SentCredentials:
        value = await self._ask("header")
        if value is None:
            return NOTHING
        if not isinstance(value, str) or not value.isprintable():
            raise ConfigError("auth.header() gives the value of the Authorization header: one line of text")
        return SentCredentials({"Authorization": value}, value)

    async def refused(
        self, status: int, headers: Mapping[str, str], sent: SentCredentials, url: str, round_number: int
    ) -> bool:
        if status != 401 or round_number:
            return False
        async with self._refreshing:
            # Other requests that were refused with the old credentials use the new ones: one refresh serves all.
            if (await self.credentials("", url)).token != sent.token:
                return True
            return bool(await self._ask("refresh", headers.get("www-authenticate", "")))

    def accepted(self, headers: Mapping[str, str], sent: SentCredentials, url: str) -> None: ...

    async def close(self) -> None: ...

    async def _ask(self, method: str, *args: str) -> Any:
        """An exception of the object becomes an error that names the failed step."""
        try:
            value = getattr(self._handle, method)(*args)
            return await value if hasattr(value, "__await__") else value
        except (Error, asyncio.CancelledError):
            raise
        except Exception as error:
            raise Unauthorized(
                f"the credentials for {self._server_url} could not be obtained: auth.{method}() raised "
                f"{type(error).__name__}: {error}"
            ) from error


def authority_for(auth: Any, server_url: str, ssl: Any = None) -> HttpAuth | None:
    """The credentials for `connect(auth=...)`."""
    if auth is None:
        return None
    if isinstance(auth, str):
        return FixedToken(auth)
    if hasattr(auth, "header"):
        return CallbackAuth(auth, server_url)
    if not server_url.lower().startswith("https://") and not is_loopback_host(urlsplit(server_url).hostname or ""):
        raise ConfigError(
            f"{server_url} is not https: a token would travel in the clear. Only a server on this machine may be reached without https"
        )
    from .oauth_driver import OAuthDriver

    return OAuthDriver(auth, server_url, ssl=ssl)
