"""Opaque tokens, verified by the authorization server that issued them (RFC 7662)."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, final
from urllib.parse import quote_plus, urlencode

from trimaran.durations import check_seconds
from trimaran.errors import ConfigError, Error
from trimaran.oauth.effects import HttpReply, HttpRequest
from trimaran.oauth.metadata import read_object

from .bearer import Bearer
from .jwks import check_url
from .principal import Principal
from .provider import AuthRequest, Fetch, Provider, logger
from .refusal import Refused

if TYPE_CHECKING:
    from .resource import ProtectedResource

_MAX_REPLY: Final = 64 * 1024
_MAX_ASKING: Final = 128
"""Tokens asked about at once: strangers must not be able to have us flood the authorization server."""


@final
class Introspection(Provider):
    """Callers with `Authorization: Bearer <token>`, whose tokens only the authorization server can verify.

    `client_id` and `client_secret` are this server's own at the authorization server, sent as HTTP Basic or, with
    `auth_method="client_secret_post"`, in the form. A positive answer is remembered for `remember` seconds, but not past the token's
    expiry: that long a revoked token may still be accepted. A negative answer is not remembered. If the
    authorization server does not answer, callers get 500 `server_error`.

    `issuer`, `audience`, `clock_skew` and the others are as for `Bearer`.
    """

    def __init__(
        self,
        endpoint: str,
        client_id: str,
        client_secret: str,
        *,
        auth_method: Literal["client_secret_basic", "client_secret_post"] = "client_secret_basic",
        issuer: str | Iterable[str] | None = None,
        audience: str | Iterable[str] | None = None,
        clock_skew: float = 60,
        scope_claim: str = "scope",
        required_scopes: Iterable[str] = (),
        realm: str | None = "mcp",
        resource_metadata: str | None = None,
        remember: float = 30,
        timeout: float = 10,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(required_scopes)
        check_url("endpoint", endpoint)
        if not (isinstance(client_id, str) and client_id and isinstance(client_secret, str) and client_secret):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(
                "Introspection needs client_id and client_secret: endpoints that answer anyone are no use"
            )
        if auth_method not in ("client_secret_basic", "client_secret_post"):
            raise ConfigError(f"auth_method is client_secret_basic or client_secret_post, not {auth_method!r}")
        if not timeout > 0:
            raise ConfigError(f"timeout must be a number of seconds above 0, not {timeout!r}")
        check_seconds("timeout", timeout)
        self._endpoint = endpoint
        self._timeout = timeout
        self._fetch: Fetch | None = None
        self._asking: dict[bytes, asyncio.Task[Mapping[str, Any] | None]] = {}
        self._headers = {"Accept": "application/json", "Content-Type": "application/x-www-form-urlencoded"}
        self._form = {"token_type_hint": "access_token"}
        if auth_method == "client_secret_basic":
            # RFC 6749, 2.3.1: both halves are form-encoded before they are joined.
            pair = f"{quote_plus(client_id)}:{quote_plus(client_secret)}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        else:
            self._form |= {"client_id": client_id, "client_secret": client_secret}
        self.expects: str = Bearer.expects
        self.offers_login: bool = resource_metadata is not None
        self._bearer = Bearer(
            verifier=self._ask,
            issuer=issuer,
            audience=audience,
            clock_skew=clock_skew,
            scope_claim=scope_claim,
            required_scopes=required_scopes,
            realm=realm,
            resource_metadata=resource_metadata,
            remember=remember,
            clock=clock,
        )

    async def start(self, fetch: Fetch | None = None) -> None:
        if fetch is None:
            raise ConfigError(
                "Introspection asks over the network, which only a server that runs on HTTP can do: start the provider "
                "with a fetch function, or use Bearer(verifier=...)"
            )
        self._fetch = fetch

    def presents(self, request: AuthRequest) -> bool:
        return self._bearer.presents(request)

    def challenge(self, refusal: Refused) -> str:
        return self._bearer.challenge(refusal)

    async def authenticate(self, request: AuthRequest) -> Principal | None:
        return await self._bearer.authenticate(request)

    async def identify(self, request: AuthRequest) -> Principal | None:
        return await self._bearer.identify(request)

    async def authorize(self, token: str, auth: ProtectedResource, request: AuthRequest) -> Principal:
        """As the authorizer of a `ProtectedResource`: without an audience of its own, tokens must be for that resource."""
        return await self._bearer.authorize(token, auth, request)

    async def verify(self, token: str) -> Principal:
        """The principal of a token. It checks neither scopes nor a proof of possession.

        Raises:
            Refused: The token is not valid.
        """
        return await self._bearer.verify(token)

    async def _ask(self, token: str) -> Mapping[str, Any] | None:
        """The authorization server's answer about a token. Callers with the same token share one request."""
        digest = hashlib.sha256(token.encode()).digest()
        asking = self._asking.get(digest)
        if asking is None:
            if len(self._asking) >= _MAX_ASKING:
                raise Refused("rate_limited", retry_after=1.0, reason="too many tokens wait to be asked about")
            asking = self._asking[digest] = asyncio.ensure_future(self._inquire(token))
            asking.add_done_callback(lambda done: self._keep_answer(digest, done))
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if asking.cancelled() and (task is None or not task.cancelling()):
                # The provider was closed, and not this caller cancelled: it gets an answer.
                raise Refused("unavailable", reason="the provider was closed") from None
            raise

    def _keep_answer(self, digest: bytes, done: asyncio.Future[Any]) -> None:
        self._asking.pop(digest, None)
        if not done.cancelled():
            done.exception()  # mark it as retrieved: perhaps no caller waits any more

    async def close(self) -> None:
        asking = [task for task in self._asking.values() if task.get_loop() is asyncio.get_running_loop()]
        for task in asking:
            task.cancel()
        if asking:
            await asyncio.wait(asking)

    async def _inquire(self, token: str) -> Mapping[str, Any] | None:
        reply = await self._post(urlencode({"token": token, **self._form}).encode())
        document = read_object(reply) if reply.status == 200 else None
        active: Any = None if document is None else document.get("active")
        if document is None or not isinstance(active, bool):
            logger.error("introspection at %s answered %d without a verdict", self._endpoint, reply.status)
            raise Refused("unavailable" if reply.status >= 500 or reply.status == 429 else "server_error")
        return document if active else None

    async def _post(self, body: bytes) -> HttpReply:
        if self._fetch is None:
            logger.error("introspection was not started, so it cannot ask: await provider.start(fetch) first")
            raise Refused("server_error")
        request = HttpRequest(
            step="token introspection",
            url=self._endpoint,
            method="POST",
            headers=self._headers,
            body=body,
            max_bytes=_MAX_REPLY,
            server_url=self._endpoint,
        )
        try:
            async with asyncio.timeout(self._timeout):
                return await self._fetch(request)
        except Exception as error:
            reason = str(error) if isinstance(error, Error) else type(error).__name__
            logger.error("introspection at %s failed: %s", self._endpoint, reason)
            raise Refused.failed(error) from None
