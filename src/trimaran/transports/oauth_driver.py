"""Runs a grant of `trimaran.oauth`: does its requests, shows pages to a person, and stores the tokens.

One flow runs at a time. Other refused requests wait for it: in this process they share its task, in other processes they
wait for the store's lock. A flow that talks to a token endpoint goes on when its caller is cancelled, because a refresh
token is lost if its answer is not read. A flow that waits for a person ends with its caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from math import inf
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar, cast, final
from urllib.parse import urlsplit

from trimaran.client.deadline import Suspension, is_in_background
from trimaran.errors import AuthorizationFailed, ConfigError, Error, LoginRequired, Unauthorized
from trimaran.oauth.challenges import Challenge, challenge_for, parse_www_authenticate
from trimaran.oauth.credentials import Credentials
from trimaran.oauth.dpop import Nonces, ProofKey
from trimaran.oauth.effects import Browse, CallUser, Flow, HttpReply, HttpRequest, Redirect
from trimaran.oauth.grant import CredentialNeed, FlowEnvironment, Grant, UserAgent
from trimaran.oauth.tokens import Prover
from trimaran.oauth.urls import bare_url
from trimaran.protocol.mask import mask_url

if TYPE_CHECKING:
    from trimaran.state.token_storage import TokenStore

from .http_auth import NOTHING, SentCredentials

T = TypeVar("T")

logger: Final = logging.getLogger("trimaran.client")
Fetch = Callable[[HttpRequest], Any]

EARLY_SECONDS: Final = 60.0
"""A token is refreshed this long before it expires (R249)."""
_AGAIN_SECONDS: Final = 30.0  # between two tries to refresh ahead of time, when the first failed
_REST_SECONDS: Final = 5.0  # after a failure: calls that were refused for the same reason do not all try again
_STEP_UPS: Final = 3  # rounds of one request; a server that wants more each time wants something else
_FUTILE_SECONDS: Final = 300.0  # after a login whose token was refused at once: no person is asked again for a while
_CLOSE_SECONDS: Final = 5.0  # for an answer that holds the only valid refresh token; a document is not waited for
_DEFAULT_REDIRECT: Final = "http://127.0.0.1/callback"

_Origin = Literal["kept", "refreshed", "issued"]


async def perform(flow: Flow[T], fetch: Fetch, agent: UserAgent | None = None) -> T:
    """Run a flow to its end: carry out its effects and send it the results."""
    answer: Any = None
    failure: Exception | None = None
    try:
        while True:
            try:
                effect = flow.throw(failure) if failure is not None else flow.send(answer)
            except StopIteration as done:
                return done.value
            answer, failure = None, None
            try:
                answer = await _do(effect, fetch, agent)
            except Exception as error:  # the flow decides: a refresh that failed may lead to a login
                failure = error
    finally:
        flow.close()


async def _do(effect: HttpRequest | Redirect | Browse | CallUser, fetch: Fetch, agent: UserAgent | None) -> Any:
    if isinstance(effect, HttpRequest):
        return await fetch(effect)
    if isinstance(effect, CallUser):
        try:
            return await call_any(effect.function)
        except (Error, asyncio.CancelledError):
            raise
        except Exception as error:
            raise AuthorizationFailed(
                f"the {effect.what} could not be obtained: the function that gives it raised {type(error).__name__}",
                step=effect.what,
            ) from error
    if agent is None:
        raise ConfigError("this flow needs a person: give it a user agent")
    if isinstance(effect, Redirect):
        return await agent.redirect_uri()
    return await agent.browse(effect.url, effect.state)


async def call_any(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a program's function: a coroutine function here, a plain one in a thread, since it may wait for something."""
    if inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004
        return await function(*arguments)
    value = await asyncio.to_thread(function, *arguments)
    return await value if inspect.isawaitable(value) else value


@final
class _FunctionUserAgent:
    """A user agent made of one function, from the URL to the URL that the browser came back with."""

    def __init__(self, function: Callable[[str], Any], redirect_uri: str | None) -> None:
        self._function = function
        self._redirect_uri = redirect_uri or _DEFAULT_REDIRECT

    async def redirect_uri(self) -> str:
        return self._redirect_uri

    async def browse(self, url: str, state: str) -> str:
        try:
            answer = await call_any(self._function, url)
        except (Error, asyncio.CancelledError):
            raise
        except Exception as error:
            # Its text may quote the URL, which holds a code. The cause has it.
            raise AuthorizationFailed(
                f"the login at {bare_url(url)} failed: login() raised {type(error).__name__}; try again, or fix it",
                step="login",
                url=bare_url(url),
            ) from error
        if not isinstance(answer, str):
            raise ConfigError("login() gives back the whole URL that the browser was sent to, as text")
        return answer

    async def close(self) -> None: ...


@final
class OAuthDriver:
    """A grant at work for one server."""

    def __init__(
        self,
        grant: Grant,
        server_url: str,
        *,
        ssl: Any = None,
        fetch: Fetch | None = None,
        now: Callable[[], float] = time.time,
        entropy: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self._grant = grant
        self._server_url = server_url
        self._ssl = ssl
        self._given_fetch = fetch
        self._own_fetch: Any = None
        self._now = now
        self._entropy = entropy
        self._world = FlowEnvironment(now, entropy, Nonces())
        self._shelf = _CredentialStore(grant, server_url)
        self._credentials: Credentials | None = None
        self._prover: Prover | None = None
        self._is_loaded = False
        self._origin: _Origin = "kept"
        self._is_proven = False
        """Has the server taken the current token? One that is refused at once was not worth getting."""
        self._not_before = -inf
        self._resting: tuple[AuthorizationFailed | None, float] = (None, -inf)
        self._flight: asyncio.Task[None] | None = None
        self._flight_why = ""
        self._waiting: set[Suspension] = set()
        """The deadlines of callers that wait for the running flow."""
        self._behind: set[Suspension] = set()
        """The deadlines of callers that wait for its end."""
        self._ending: set[asyncio.Task[None]] = set()
        self._is_with_person = False
        self._persons_asked = 0
        self._futile_until = -inf
        """Until when no person is asked, since a login did not help."""
        self._may_be_cut = True
        """Whether the running flow only waits, for its turn or for a person, so that it can be dropped."""
        self._is_committed = False
        """Whether something would be lost with the running flow: a person has logged in, or a token may be used up."""

    @property
    def held(self) -> Credentials | None:
        """The current credentials."""
        return self._credentials

    # --- what HttpWire asks

    async def credentials(self, verb: str, url: str) -> SentCredentials:
        if not self._is_loaded:
            await self._share("start", self._load)
        credentials = self._credentials
        if credentials is not None and credentials.expires_at is not None and self._is_due(credentials):
            await self._renew(credentials)
            credentials = self._credentials
        if credentials is None or credentials.access_token is None:
            return NOTHING
        token = credentials.access_token
        prover = self._prover
        if prover is None:
            return SentCredentials({"Authorization": f"Bearer {token}"}, token)
        nonce = prover.nonces.get(url)
        return SentCredentials({"Authorization": f"DPoP {token}", "DPoP": prover.proof(verb, url, token)}, token, nonce)

    def accepted(self, headers: Mapping[str, str], sent: SentCredentials, url: str) -> None:
        if self._prover is not None:
            self._world.nonces.learn(url, headers)
        if not self._is_proven and self._credentials is not None and sent.token == self._credentials.access_token:
            self._is_proven = True

    async def refused(
        self, status: int, headers: Mapping[str, str], sent: SentCredentials, url: str, round_number: int
    ) -> bool:
        header = headers.get("www-authenticate", "")
        challenges = parse_www_authenticate(header)
        if self._prover is not None:
            self._world.nonces.learn(url, headers)
            if status == 401 and any(challenge.parameters.get("error") == "use_dpop_nonce" for challenge in challenges):
                return self._world.nonces.get(url) not in (None, sent.nonce)
        current = self._credentials.access_token if self._credentials is not None else None
        if current not in (None, sent.token):
            return True  # another caller has got new ones already
        need = self._need(status, header, challenge_for(challenges, "bearer", "dpop"))
        if need is None or (need.why == "scopes" and round_number >= _STEP_UPS):
            return False
        return await self._acquire(need, sent.token)

    async def close(self) -> None:
        flight = self._flight
        if flight is not None and not flight.done():
            if self._is_committed and not self._may_be_cut:
                await asyncio.wait((flight,), timeout=_CLOSE_SECONDS)
            flight.cancel()
            await asyncio.wait((flight,))
        if self._ending:
            await asyncio.wait(self._ending)
        fetch, self._own_fetch = self._own_fetch, None
        if fetch is not None:
            await fetch.close()

    # --- decisions

    def _need(self, status: int, header: str, challenge: Challenge | None) -> CredentialNeed | None:
        """The need that follows from a refusal; None if nothing can be done."""
        credentials = self._credentials
        if status == 403:
            parameters: Mapping[str, str] = challenge.parameters if challenge is not None else {}
            scopes = set(parameters.get("scope", "").split())
            # Scopes that were requested and not granted are not requested again.
            is_hopeless = not scopes or (credentials is not None and scopes <= set(credentials.scopes))
            if parameters.get("error") != "insufficient_scope" or is_hopeless:
                return None
            return CredentialNeed(
                why="scopes", server_url=self._server_url, www_authenticate=header, may_ask=not is_in_background()
            )
        has_token = credentials is not None and credentials.access_token is not None
        if has_token and self._origin == "issued" and not self._is_proven:
            # Brand-new, from the best source there is, and refused. Another will fare no better, at least not now.
            self._origin = "kept"
            self._rest(None)
            self._futile_until = asyncio.get_running_loop().time() + _FUTILE_SECONDS
            return None
        return CredentialNeed(
            why="refused",
            server_url=self._server_url,
            www_authenticate=header,
            may_refresh=self._origin != "refreshed" or self._is_proven,
            may_ask=not is_in_background() and asyncio.get_running_loop().time() >= self._futile_until,
        )

    def _is_due(self, credentials: Credentials) -> bool:
        if not self._is_old(credentials) or self._now() < self._not_before:
            return False
        return credentials.refresh_token is not None or self._grant.can_renew

    def _is_old(self, credentials: Credentials) -> bool:
        """Is it time for fresh ones: a minute before the end, or less where a token does not live much longer anyway?"""
        if credentials.expires_at is None:
            return False
        early = EARLY_SECONDS
        if credentials.issued_at is not None:
            early = min(early, (credentials.expires_at - credentials.issued_at) / 10)
        return self._now() >= credentials.expires_at - early

    async def _renew(self, credentials: Credentials) -> None:
        """Renew before expiry. A failure is ignored: the server's 401 decides."""
        flight = self._flight
        if flight is not None and not flight.done() and self._flight_why != "expiring":
            return  # somebody is at it already, and may have to wait for a person
        try:
            await self._share(
                "expiring",
                lambda: self._get(
                    CredentialNeed(why="expiring", server_url=self._server_url), credentials.access_token
                ),
            )
        except Error as error:
            logger.info("the token for %s could not be refreshed ahead of time: %s", mask_url(self._server_url), error)
            self._not_before = self._now() + _AGAIN_SECONDS

    def _rest(self, error: AuthorizationFailed | None) -> None:
        """For a moment nothing is tried: many calls may have been refused for the same reason."""
        self._resting = (error, asyncio.get_running_loop().time() + _REST_SECONDS)

    # --- one flow at a time

    async def _acquire(self, need: CredentialNeed, refused: str | None) -> bool:
        """Get other credentials than those; False if there are none to be had."""
        error, until = self._resting
        if asyncio.get_running_loop().time() < until:
            raise error or Unauthorized(f"{self._server_url} refuses the token that was issued for it")
        await self._share(need.why if need.may_ask else f"{need.why} quietly", lambda: self._get(need, refused))
        return self._credentials is not None and self._credentials.access_token not in (None, refused)

    async def _share(self, why: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Wait for the flow under way if it is for the same reason; else begin one when it is over."""
        with Suspension() as clocks:
            if self._is_with_person:
                clocks.meet_person()
            while self._flight is not None and not self._flight.done() and self._flight_why != why:
                self._behind.add(clocks)
                try:
                    await asyncio.wait((self._flight,))
                finally:
                    self._behind.discard(clocks)
            flight = self._flight
            if flight is None or flight.done():
                flight = self._flight = asyncio.ensure_future(work())
                self._flight_why = why
                flight.add_done_callback(_look_at)
            self._waiting.add(clocks)
            try:
                await asyncio.shield(flight)
            except asyncio.CancelledError:
                if flight.cancelled():
                    raise AuthorizationFailed("the login was cancelled: the client was closed", step="login") from None
                if self._waiting == {clocks} and self._may_be_cut:
                    self._cut(flight)
                raise
            finally:
                self._waiting.discard(clocks)

    def _cut(self, flight: asyncio.Task[None]) -> None:
        """Drop a flow without waiters. The next caller begins a new one."""
        if self._flight is flight:
            self._flight = None
        self._ending.add(flight)
        flight.add_done_callback(self._ending.discard)
        flight.cancel()

    async def _load(self) -> None:
        credentials = await self._shelf.load()
        if credentials is not None:
            self._adopt(credentials, "kept")
        if credentials is None or credentials.access_token is None:
            await self._get(CredentialNeed(why="start", server_url=self._server_url), None)
        self._is_loaded = True

    async def _get(self, need: CredentialNeed, refused: str | None) -> None:
        self._may_be_cut, self._is_committed = True, False
        try:
            async with self._shelf.lock():
                stored = await self._shelf.load()
                if stored is not None and stored.access_token not in (None, refused) and not self._is_old(stored):
                    self._adopt(stored, "kept")
                    return
                self._may_be_cut = False
                has_asked = self._persons_asked
                try:
                    fresh = await self._run(self._grant.acquire(need, self._world, stored or self._credentials))
                except LoginRequired as error:
                    if error.is_final and stored is not None:  # R255: never try them again
                        await self._keep(stored.without_tokens())
                    raise
                if fresh is None:
                    self._not_before = self._now() + _AGAIN_SECONDS
                    return
                self._adopt(fresh, self._origin_of(need, by_person=self._persons_asked > has_asked))
                await self._keep(fresh)
        except AuthorizationFailed as error:
            error.www_authenticate = error.www_authenticate or need.www_authenticate
            if need.why in ("refused", "scopes") and self._grant.login is not None:
                self._rest(error)
            raise

    async def _keep(self, credentials: Credentials) -> None:
        try:
            await self._shelf.save(credentials)
        except Error as error:
            # They are valid now, even if they cannot be stored.
            logger.warning("the credentials for %s could not be kept: %s", mask_url(self._server_url), error)

    def _origin_of(self, need: CredentialNeed, *, by_person: bool) -> _Origin:
        if need.why in ("start", "expiring"):
            return "kept"
        return "issued" if by_person or self._grant.can_renew else "refreshed"

    async def _run(self, flow: Flow[T]) -> T:
        agent = _agent_of(self._grant, self._credentials)
        watched = _WatchedUserAgent(agent, self) if agent is not None else None
        try:
            return await perform(flow, self._fetch, watched)
        finally:
            if watched is not None:
                self.leave_person()
                await watched.close()

    async def meet_person(self) -> None:
        """A person is about to be asked. Release the lock meanwhile: others read the result from the store."""
        self._persons_asked += 1
        self._may_be_cut = self._is_with_person = True
        for clocks in (*self._waiting, *self._behind):
            clocks.meet_person()
        await self._shelf.unlock()

    def leave_person(self) -> None:
        """From here on the flow is not dropped any more."""
        self._is_committed = self._is_committed or self._is_with_person
        self._may_be_cut = self._is_with_person = False
        for clocks in (*self._waiting, *self._behind):
            clocks.leave_person()

    async def _fetch(self, request: HttpRequest) -> HttpReply:
        self._is_committed = self._is_committed or request.method != "GET"
        return await self._fetcher()(request)

    def _fetcher(self) -> Fetch:
        if self._given_fetch is not None:
            return self._given_fetch
        if self._own_fetch is None:
            from .fetch import Fetcher

            # A context of one's own speaks of authorities; that any certificate will do, only of the server itself.
            context = None if isinstance(self._ssl, bool) else self._ssl
            self._own_fetch = Fetcher(allow_private=self._grant.allow_private, ssl=context)
        return self._own_fetch

    def _adopt(self, credentials: Credentials, origin: _Origin) -> None:
        self._credentials = credentials
        self._origin = origin
        self._is_proven = False
        self._resting = (None, -inf)
        self._prover = None
        if credentials.token_type == "dpop" and credentials.proof_key is not None:  # noqa: S105 - a kind of token
            self._prover = Prover(
                ProofKey.from_jwk(credentials.proof_key), self._world.nonces, self._now, self._entropy
            )

    def __repr__(self) -> str:
        return f"<GrantAuthority for {self._server_url}: {self._credentials!r}>"


@final
class _CredentialStore:
    """The storage of a grant's credentials for one server: its store, or the grant itself."""

    def __init__(self, grant: Grant, server_url: str) -> None:
        from trimaran.state.token_storage import MemoryTokens, token_key

        if grant.memory is None:
            grant.memory = MemoryTokens()  # clients that share a grant share its logins
        self._grant = grant
        self._server_url = server_url
        self._memory: TokenStore = grant.memory
        self._store = _store_of(grant) or self._memory
        self._key = token_key(grant.name or urlsplit(server_url).netloc, server_url)
        self._credentials = contextlib.AsyncExitStack()

    async def load(self) -> Credentials | None:
        record = await self._store.load(self._key)
        credentials = Credentials.from_bytes(record) if record is not None else None
        if credentials is None or credentials.server_url != self._server_url or not self._grant.restores(credentials):
            return None
        return credentials

    async def save(self, credentials: Credentials) -> None:
        await self._store.save(self._key, credentials.to_bytes())

    @contextlib.asynccontextmanager
    async def lock(self) -> AsyncGenerator[None, None]:
        """A lock on getting credentials for this server: for this grant, and through the store for all processes."""
        async with self._memory.lock(self._key), contextlib.AsyncExitStack() as stack:
            if self._store is not self._memory:
                await stack.enter_async_context(self._store.lock(self._key))
            self._credentials = stack
            yield

    async def unlock(self) -> None:
        """Let other processes go on before the time."""
        await self._credentials.aclose()


_users: Final[dict[int, int]] = {}
"""How many flows use an agent at the moment, by its identity: several may share one, and the last closes it."""


@final
class _WatchedUserAgent:
    """A user agent that says when a person is asked, and is closed only if one was."""

    def __init__(self, agent: UserAgent, owner: OAuthDriver) -> None:
        self._agent = agent
        self._owner = owner
        self._is_used = False

    async def redirect_uri(self) -> str:
        await self._owner.meet_person()
        if not self._is_used:
            self._is_used = True
            _users[id(self._agent)] = _users.get(id(self._agent), 0) + 1
        return await self._agent.redirect_uri()

    async def browse(self, url: str, state: str) -> str:
        try:
            return await self._agent.browse(url, state)
        finally:
            self._owner.leave_person()

    async def close(self) -> None:
        if not self._is_used:
            return
        _users[id(self._agent)] -= 1
        if not _users[id(self._agent)]:
            del _users[id(self._agent)]
            await self._agent.close()


def _agent_of(grant: Grant, credentials: Credentials | None) -> UserAgent | None:
    login = grant.login
    if login is None or login is False:
        return None
    if login is True:
        from .loopback_login import LoopbackLogin

        port = urlsplit(grant.redirect_uri).port if grant.redirect_uri is not None else None
        return LoopbackLogin(port=port, likely_port=_port_of(credentials))
    return login if isinstance(login, UserAgent) else _FunctionUserAgent(login, grant.redirect_uri)


def _port_of(credentials: Credentials | None) -> int:
    """The port a client was registered with: on the same one it need not be registered again."""
    known = credentials.client.redirect_uri if credentials is not None and credentials.client is not None else None
    return (urlsplit(known).port or 0) if known is not None else 0


def _store_of(grant: Grant) -> Any:
    store = grant.store
    if store is None or store is False:
        return None
    from trimaran.state.token_storage import FileTokens, default_tokens

    if store is True:
        return default_tokens()
    if isinstance(store, (str, os.PathLike)):
        return FileTokens(cast("str", store))
    if all(hasattr(store, name) for name in ("load", "save", "lock")):
        return store
    raise ConfigError(f"store is True, a path, or an object with load, save and lock; not {type(store).__name__}")


def _look_at(task: asyncio.Task[None]) -> None:
    if not task.cancelled():
        task.exception()  # mark it as retrieved: perhaps no caller waits any more
