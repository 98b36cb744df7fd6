"""Admission to an endpoint: authentication, rate limits, and public documents.

Only an endpoint with an authenticator or a rate limit has it. Each request is checked in this order: rate of its address,
authentication, rate of its caller; the engine checks the content after that (R129). Rates count messages: each message of
a batch counts. A refused caller gets the refusal and nothing else. A check that fails is a plain 500, or 503 if the service
it asks does not answer. The log says where it failed, never the text, which may quote a credential.

The authenticator starts before the endpoint listens, or with the first request of a mounted ASGI app. It may fetch from
the URLs that its operator configured; the first fetch makes the HTTP client.
"""

from __future__ import annotations

import asyncio
import inspect
import secrets
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import msgspec

from trimaran.auth.refusal import Refused
from trimaran.bounded_log import BoundedLog
from trimaran.errors import Error, ProtocolError
from trimaran.server.access import identity

if TYPE_CHECKING:
    from trimaran.oauth.effects import HttpReply, HttpRequest

    from .engine import HttpRequestHead, Pairs
    from .fetch import Fetcher

logger: Final = BoundedLog("trimaran.auth")

_NO_STORE: Final = [("content-type", "application/json"), ("cache-control", "no-store")]
# Where clients look for OAuth after any 401, whatever its challenge says: metadata, registration, login, tokens.
_LOGIN_PATHS: Final = frozenset({"register", "authorize", "token"})


class RateLimiter(Protocol):
    """Lets requests pass, or raises `Refused` with how long to wait. `trimaran.auth.RateLimit` is one."""

    def client_address(self, address: str | None, x_forwarded_for: str | None, /) -> str | None: ...
    def admit_address(self, address: str | None, /) -> None: ...
    def admit_principal(self, principal: Any, address: str | None, /) -> None: ...


@final
class _CallerIdentity:
    """An author's own principal, as the rate limit counts it."""

    __slots__ = ("identity",)

    def __init__(self, principal: Any) -> None:
        self.identity = identity(principal)


@final
class Admission:
    """`await identify(request)` returns the principal, or raises an error that `turn_away` answers."""

    def __init__(
        self, auth: Any, rate_limit: RateLimiter | None, *, public_url: str | None = None, path: str = "/mcp"
    ) -> None:
        self._auth: Any = auth
        self._limit = rate_limit
        self._public_url = public_url
        self._path = path
        self._fetcher: Fetcher | None = None
        self._starting: asyncio.Task[None] | None = None
        self._is_started = False
        self._document: Callable[[HttpRequestHead], Any] | None = getattr(auth, "document", None)
        self._step_up: Callable[[HttpRequestHead, Sequence[str]], str] | None = getattr(auth, "step_up", None)
        self._challenge: Callable[[Refused], str] | None = getattr(auth, "challenge", None)
        # An author's own object without this attribute may have OAuth.
        self._offers_login: bool = getattr(auth, "offers_login", True)
        self._expects: str = getattr(auth, "expects", "")
        self.identify: Callable[[HttpRequestHead], Awaitable[Any]] = self._identify
        """The authenticator itself, once it has started and if there is nothing else to check."""

    # Start and end

    async def start(self) -> None:
        """Start the authenticator. An error keeps the endpoint closed (R166).

        Concurrent callers share one start and its outcome.
        """
        if self._is_started:
            return
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start())
        starting = self._starting
        try:
            # Shielded: the others still wait for it when one caller goes.
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if starting.cancelled() and (task is None or not task.cancelling()):
                raise _stopping() from None  # the endpoint closes, and this caller gets an answer
            raise

    async def _start(self) -> None:
        try:
            start = getattr(self._auth, "start", None)
            if start is not None:
                await _whole(start(self._fetch))
        except BaseException:
            await self._close_fetcher()
            raise
        else:
            is_alone = self._limit is None and self._public_url is None
            self.identify = self._auth.authenticate if is_alone else self._identify
            self._is_started = True
        finally:
            self._starting = None

    async def close(self) -> None:
        """Close the authenticator; it may start again."""
        self.identify = self._refuse_while_stopping
        starting, self._starting = self._starting, None
        if starting is not None:
            starting.cancel()
            await asyncio.wait({starting})
        was_started, self._is_started = self._is_started, False
        close = getattr(self._auth, "close", None)
        try:
            if was_started and close is not None:
                await _whole(close())
        finally:
            await self._close_fetcher()

    async def _fetch(self, request: HttpRequest) -> HttpReply:
        """Fetch for the authenticator. Its URLs come from the configuration, so private addresses are allowed."""
        if self._fetcher is None:
            from .fetch import Fetcher

            self._fetcher = Fetcher(allow_private=True)
        return await self._fetcher(request)

    async def _close_fetcher(self) -> None:
        fetcher, self._fetcher = self._fetcher, None
        if fetcher is not None:
            await fetcher.close()

    # Authentication

    async def _refuse_while_stopping(self, request: HttpRequestHead) -> Any:
        raise _stopping()

    async def _identify(self, request: HttpRequestHead) -> Any:
        self.admit_unasked(request)
        if not self._is_started:
            await self.start()
        request.public_url = self.public_url(request.path)
        principal = None if self._auth is None else await self._auth.authenticate(request)
        self._admit_principal(principal, request)
        return principal

    def admit_more(self, request: HttpRequestHead) -> ProtocolError | None:
        """Count one more message of a batch. Returns the error that refuses it, or None."""
        try:
            self.admit_unasked(request)
            self._admit_principal(request.principal, request)
        except Refused as refused:
            late = ProtocolError.invalid_request(f"{refused.message}; send fewer in a batch", status=refused.status)
            late.data = {"error": refused.code}
            late.headers = [pair for pair in refused.headers if pair[0] != "content-type"]  # pyright: ignore[reportAttributeAccessIssue]
            return late
        return None

    def _admit_principal(self, principal: Any, request: HttpRequestHead) -> None:
        limit = self._limit
        if limit is not None:
            is_ours = principal is None or hasattr(principal, "identity")
            limit.admit_principal(principal if is_ours else _CallerIdentity(principal), request.believed_address)

    @staticmethod
    def _address(request: HttpRequestHead, limit: RateLimiter) -> str | None:
        return limit.client_address(request.address, request.headers.get("x-forwarded-for"))

    def admit_unasked(self, request: HttpRequestHead) -> None:
        """Count a request that is answered without authentication."""
        if self._limit is not None:
            request.believed_address = self._address(request, self._limit)
            self._limit.admit_address(request.believed_address)

    def public_url(self, path: str) -> str | None:
        """The public URL of one of our paths, if `public_url=` is set."""
        whole, own = self._public_url, self._path
        if whole is None or path == own:
            return whole
        if path == own + "/":
            return whole + "/"
        # A proxy may put a prefix before our paths. After any other rewriting the path is all we know.
        scheme, _, rest = whole.partition("://")
        host, _, outer = rest.partition("/")
        prefix = f"/{outer}".removesuffix(own) if own != "/" and f"/{outer}".endswith(own) else ""
        return f"{scheme}://{host}{prefix}{path}"

    # Answers

    async def turn_away(self, request: HttpRequestHead, error: Exception, *, is_rpc: bool = True) -> None:
        """Answer an error of `identify`: as an OAuth error where clients can log in, or outside of MCP."""
        if isinstance(error, Refused):
            body = error.rpc_body if is_rpc and not self._offers_login else error.body
            await request.reply(error.status, error.headers, body)
            return
        refusal = Refused.failed(error)
        refusal.message += f" (error {_log(error)})"
        await request.reply(refusal.status, refusal.headers, refusal.body)

    async def refuse_login(self, request: HttpRequestHead) -> bool:
        """Answer a client that looks for OAuth on a server without it; False for any other request.

        The reply is an OAuth error: such a client shows it to its user.
        """
        if self._offers_login or not self._expects:
            return False
        path = request.path
        if not path.startswith("/.well-known/") and path.rpartition("/")[2] not in _LOGIN_PATHS:
            return False
        text = (
            f"This server has no OAuth, and nothing is served at {path[:200]}. "
            f"Every request to {self._path} needs credentials: send {self._expects}"
        )
        error = {"error": "invalid_request", "error_description": text}
        await request.reply(404, list(_NO_STORE), msgspec.json.encode(error))
        return True

    async def serve_document(self, request: HttpRequestHead) -> bool:
        """Serve a public document; False if there is none at this path."""
        if self._document is None:
            return False
        try:
            request.public_url = self.public_url(request.path)
            document = self._document(request)
            if document is None:
                return False
            self.admit_unasked(request)
            status, headers, body = document
        except Exception as error:
            await self.turn_away(request, error)
            return True
        await request.reply(status, list(headers), body)
        return True

    def step_up(self, request: HttpRequestHead, scopes: Sequence[str]) -> tuple[int, Pairs] | None:
        """Status and headers of a reply that names the missing scopes; None if the authenticator cannot tell.

        A caller with credentials gets 403, one without gets 401 (RFC 6750, 3.1).
        """
        if self._step_up is None:
            return None
        try:
            if request.principal is None and self._challenge is not None:
                status, challenge = 401, self._challenge(Refused("missing", scopes=scopes))
            else:
                status, challenge = 403, self._step_up(request, scopes)
        except Exception as error:
            _log(error)
            return None
        return status, [("cache-control", "no-store"), ("www-authenticate", challenge)]


def _stopping() -> ProtocolError:
    return ProtocolError.internal_error("the server is stopping; try again in a moment", status=503)


async def _whole(result: Any) -> None:
    if inspect.isawaitable(result):
        await result


def _log(error: Exception) -> str:
    """Log a failure under a short id, with the text only of our own errors."""
    number = secrets.token_hex(4)
    text = f": {error}" if isinstance(error, Error) else ""
    frames = "".join(traceback.format_tb(error.__traceback__))
    logger.error(
        "authentication failed [%s]: %s%s\n%s", number, type(error).__name__, text, frames, kind=type(error).__name__
    )
    return number
