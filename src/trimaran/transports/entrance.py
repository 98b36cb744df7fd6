"""The entrance of an endpoint: who is calling, how often, and what anyone may read.

Made only for an endpoint that has an authenticator or a rate limit. The order for every request: so many from one address,
who it is, so many from one caller; the engine looks at the content after that (R129). Rates are of messages: one that comes
in a batch counts as it would alone. Whoever is turned away hears the
refusal and nothing else; what fails on our side is a plain 500, and the log gets where it failed but never the text,
which may quote a credential.

The authenticator is started before the endpoint listens, or by the first request where nobody said when that would be
(a mounted ASGI app). It may fetch from the URLs its operator configured; nothing is set up for that until it does.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import secrets
import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, final

import msgspec

from trimaran.auth.refusal import Refused
from trimaran.errors import Error, ProtocolError
from trimaran.server.access import identity

if TYPE_CHECKING:
    from trimaran.oauth.effects import HttpReply, HttpRequest

    from .engine import Pairs, Request
    from .fetch import Fetcher

__all__ = ["Entrance", "RateLimiter"]

logger: Final = logging.getLogger("trimaran.auth")

_NO_STORE: Final = [("content-type", "application/json"), ("cache-control", "no-store")]
# Where clients look for OAuth after any 401, whatever its challenge says: metadata, registration, login, tokens.
_LOGIN_PATHS: Final = frozenset({"register", "authorize", "token"})


class RateLimiter(Protocol):
    """Lets requests pass, or raises `Refused` with how long to wait. `trimaran.auth.RateLimit` is one."""

    def client_address(self, address: str | None, x_forwarded_for: str | None, /) -> str | None: ...
    def admit_address(self, address: str | None, /) -> None: ...
    def admit_principal(self, principal: Any, address: str | None, /) -> None: ...


@final
class _Known:
    """What is counted of an author's own principal: who it is."""

    __slots__ = ("identity",)

    def __init__(self, principal: Any) -> None:
        self.identity = identity(principal)


@final
class Entrance:
    """`await identify(request)` gives the principal, or raises what `turn_away` knows how to answer."""

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
        self._document: Callable[[Request], Any] | None = getattr(auth, "document", None)
        self._step_up: Callable[[Request, Sequence[str]], str] | None = getattr(auth, "step_up", None)
        self._challenge: Callable[[Refused], str] | None = getattr(auth, "challenge", None)
        # An author's own object need not say: it may well have OAuth.
        self._offers_login: bool = getattr(auth, "offers_login", True)
        self._expects: str = getattr(auth, "expects", "")
        self.identify: Callable[[Request], Awaitable[Any]] = self._identify
        """What is to be awaited: the authenticator itself, once it is started and if nothing else is asked for."""

    # Its life

    async def start(self) -> None:
        """Get the authenticator ready; whatever it raises keeps the endpoint closed (R166).

        However many ask for it at once, it is started once, and all of them hear what came of it.
        """
        if self._is_started:
            return
        if self._starting is None:
            self._starting = asyncio.ensure_future(self._start())
        starting = self._starting
        try:
            # Shielded: a caller that goes away must not stop what the others wait for.
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if starting.cancelled() and (task is None or not task.cancelling()):
                raise _stopping() from None  # it was closed meanwhile: who waits gets an answer
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
        """End what the authenticator has going on; it may be started again."""
        self.identify = self._identify_no_more
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
        """What an authenticator fetches with. It knows only URLs of its own configuration, so they may be anywhere."""
        if self._fetcher is None:
            from .fetch import Fetcher

            self._fetcher = Fetcher(allow_private=True)
        return await self._fetcher(request)

    async def _close_fetcher(self) -> None:
        fetcher, self._fetcher = self._fetcher, None
        if fetcher is not None:
            await fetcher.close()

    # Who is calling

    async def _identify_no_more(self, request: Request) -> Any:
        raise _stopping()

    async def _identify(self, request: Request) -> Any:
        self.admit_unasked(request)
        if not self._is_started:
            await self.start()
        request.public_url = self.public_url(request.path)
        principal = None if self._auth is None else await self._auth.authenticate(request)
        self._admit_principal(principal, request)
        return principal

    def admit_more(self, request: Request) -> ProtocolError | None:
        """Count one more message of a request that was let in: those of a batch beyond its first. What comes back refuses it."""
        try:
            self.admit_unasked(request)
            self._admit_principal(request.principal, request)
        except Refused as refused:
            late = ProtocolError.invalid_request(f"{refused.message}; send fewer in a batch", status=refused.status)
            late.data = {"error": refused.code}
            late.headers = [pair for pair in refused.headers if pair[0] != "content-type"]  # pyright: ignore[reportAttributeAccessIssue]
            return late
        return None

    def _admit_principal(self, principal: Any, request: Request) -> None:
        limit = self._limit
        if limit is not None:
            is_ours = principal is None or hasattr(principal, "identity")
            limit.admit_principal(principal if is_ours else _Known(principal), request.believed_address)

    @staticmethod
    def _address(request: Request, limit: RateLimiter) -> str | None:
        return limit.client_address(request.address, request.headers.get("x-forwarded-for"))

    def admit_unasked(self, request: Request) -> None:
        """For what is answered without asking who it is: only how often that happens is looked at."""
        if self._limit is not None:
            request.believed_address = self._address(request, self._limit)
            self._limit.admit_address(request.believed_address)

    def public_url(self, path: str) -> str | None:
        """What clients call one of our paths, as far as `public_url=` says."""
        whole, own = self._public_url, self._path
        if whole is None or path == own:
            return whole
        if path == own + "/":
            return whole + "/"
        # A proxy may have put a prefix before our paths; if it did something cleverer, the path is what we know.
        scheme, _, rest = whole.partition("://")
        host, _, outer = rest.partition("/")
        prefix = f"/{outer}".removesuffix(own) if own != "/" and f"/{outer}".endswith(own) else ""
        return f"{scheme}://{host}{prefix}{path}"

    # What is answered here

    async def turn_away(self, request: Request, error: Exception, *, is_rpc: bool = True) -> None:
        """Answer what `identify` raised. Where clients can log in, as an OAuth error, and also outside of MCP."""
        if isinstance(error, Refused):
            body = error.rpc_body if is_rpc and not self._offers_login else error.body
            await request.reply(error.status, error.headers, body)
            return
        number = _log(error)
        said = {"error": "server_error", "error_description": f"the credentials could not be checked (error {number})"}
        await request.reply(500, list(_NO_STORE), msgspec.json.encode(said))

    async def refuse_login(self, request: Request) -> bool:
        """Answer a client that looks for OAuth where there is none; False for any other request.

        The reply is an OAuth error, because that is what such a client reads and shows to its user.
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
        said = {"error": "invalid_request", "error_description": text}
        await request.reply(404, list(_NO_STORE), msgspec.json.encode(said))
        return True

    async def serve_document(self, request: Request) -> bool:
        """Serve a document that anyone may read, from any page; False if it is none of ours."""
        if self._document is None:
            return False
        try:
            request.public_url = self.public_url(request.path)
            found = self._document(request)
            if found is None:
                return False
            self.admit_unasked(request)
            status, headers, body = found
        except Exception as error:
            await self.turn_away(request, error)
            return True
        await request.reply(status, list(headers), body)
        return True

    def step_up(self, request: Request, scopes: Sequence[str]) -> tuple[int, Pairs] | None:
        """Status and headers of a reply that says which scopes would do; None where nobody could get them.

        To who is known, a 403. Who has shown no credentials lacks those first: a 401 (RFC 6750, 3.1).
        """
        if self._step_up is None:
            return None
        try:
            if request.principal is None and self._challenge is not None:
                status, said = 401, self._challenge(Refused("missing", scopes=scopes))
            else:
                status, said = 403, self._step_up(request, scopes)
        except Exception as error:
            _log(error)
            return None
        return status, [("cache-control", "no-store"), ("www-authenticate", said)]


def _stopping() -> ProtocolError:
    return ProtocolError.internal_error("the server is stopping; try again in a moment", status=503)


async def _whole(made: Any) -> None:
    if inspect.isawaitable(made):
        await made


def _log(error: Exception) -> str:
    """Log a failure under a short id. Of errors that are not ours, where they came from and not what they say."""
    number = secrets.token_hex(4)
    said = f": {error}" if isinstance(error, Error) else ""
    frames = "".join(traceback.format_tb(error.__traceback__))
    logger.error("authentication failed [%s]: %s%s\n%s", number, type(error).__name__, said, frames)
    return number
