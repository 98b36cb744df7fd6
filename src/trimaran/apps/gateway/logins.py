"""The caller's own login at a server: OAuth for each caller, by a page that the caller is asked to open.

    a call -> the server wants a login -> URL elicitation: `/login/TICKET` at the gateway, which names caller and server
           -> the person agrees there -> the issuer -> `/oauth/callback` at the gateway -> the call goes on

Whoever agrees gets a cookie, and a login that comes back without it is not taken: a caller could send the issuer's address to
somebody else, who logs in there, and have a login in that person's name.

A server turns out to need this when it refuses a connection without credentials. Its catalog is then listed with the login
of whoever logged in last. The tools `login` and `logout` of such a server do what their names say.

Logins are sealed with the gateway's keys, one record for each caller, in the store or in memory. Servers that the operator
lists as `shared_logins` share the refresh token of their issuer, so one login is enough for all of them. Only one process at a
time refreshes the tokens of a caller (`store_lock.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from html import escape
from typing import Any, Final, final
from urllib.parse import urlsplit

import msgspec

from trimaran.connecting import connect
from trimaran.errors import CODE_INVALID_REQUEST, AuthorizationFailed, Error, ProtocolError, StateRejected, TimedOut
from trimaran.host.connect_plan import ConnectPlan
from trimaran.host.oauth_config import login_grant
from trimaran.oauth import Credentials, Grant, revoke_token
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.seal import Sealer
from trimaran.proxy.forwarding import answer_live, require_capability
from trimaran.proxy.upstream import Upstream
from trimaran.server.access import owner_text
from trimaran.server.context import Context
from trimaran.server.input_rounds import ModernVoice
from trimaran.server.routes import RouteRequest
from trimaran.server.server import Server
from trimaran.state.contracts import NoAnswer, StoreError
from trimaran.transports.fetch import Fetcher
from trimaran.transports.oauth_driver import perform

from .store_lock import StoreLocks

log: Final = logging.getLogger("trimaran.gateway")

_PERSON_SECONDS: Final = 600.0  # to log in; a person may have to find a phone first
_AFTER_SECONDS: Final = 20.0  # from the person's answer to the tokens
_KEPT_SECONDS: Final = 90 * 86_400.0  # since the last refresh
_STREAM: Final = "~logins"
_PURPOSE: Final = b"gateway login"
_STEP: Final = "gateway.login"
_KEY: Final = "gateway.login"
_NEWS: Final = "gateway.login"
_CALLBACK: Final = "/oauth/callback"
_COOKIE: Final = "trimaran_login_"
_MOST_PROOFS: Final = 20  # logins that one browser has under way
_OVER: Final = "This login is over. Call the tool again."
_HTML: Final = {
    "content-type": "text/html; charset=utf-8",
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
}


@final
class _Vault:
    """The logins of all callers, sealed."""

    def __init__(self, keys: Sequence[str], store: Callable[[], Any]) -> None:
        self._sealer = Sealer([key.encode() for key in keys] or [os.urandom(32)], random=os.urandom, max_text=1 << 20)
        self._store = store
        self._memory: dict[str, str] = {}
        self._locks = StoreLocks(store)

    def lock(self, name: str) -> AbstractAsyncContextManager[None]:
        return self._locks.hold(name)

    async def read(self, owner: str) -> dict[str, bytes]:
        """The records of a caller, by server."""
        name = hashlib.sha256(owner.encode()).hexdigest()
        store = self._store()
        if store is None:
            sealed = self._memory.get(name)
        else:
            last = (await store.events.read(_STREAM, name, 0, limit=1)).last
            page = await store.events.read(_STREAM, name, max(0, last - 1), limit=1)
            sealed = page.events[-1].data.decode() if page.events else None
        if not sealed:
            return {}
        try:
            plain = self._sealer.open(sealed, purpose=_PURPOSE, binding=name.encode(), now=time.time())
        except StateRejected:
            return {}  # too old, or sealed with keys that are gone
        return msgspec.msgpack.decode(plain, type=dict[str, bytes])

    async def write(self, owner: str, records: Mapping[str, bytes]) -> None:
        name = hashlib.sha256(owner.encode()).hexdigest()
        plain = msgspec.msgpack.encode(dict(records))
        expires_at = time.time() + _KEPT_SECONDS
        sealed = self._sealer.seal(plain, purpose=_PURPOSE, binding=name.encode(), expires_at=expires_at)
        store = self._store()
        if store is None:
            self._memory[name] = sealed
        else:
            await store.events.append(_STREAM, name, sealed.encode(), ttl=_KEPT_SECONDS)


@final
class _CallerTokens:
    """The logins of one caller, as a grant uses them for one server."""

    def __init__(self, vault: _Vault, owner: str, url: str, shared: Callable[[], Sequence[str]]) -> None:
        self._vault = vault
        self._owner = owner
        self._url = url
        self._shared = shared

    async def load(self, key: str) -> bytes | None:
        records = await self._vault.read(self._owner)
        if key in records:
            return records[key]
        shared = self._shared()
        if _server_of(key) not in shared:
            return None
        for name, record in records.items():
            other = Credentials.from_bytes(record) if _server_of(name) in shared else None
            if other is not None and other.refresh_token is not None:
                # Only the issuer that gave the refresh token is shown it: the grant compares.
                return msgspec.structs.replace(
                    other, server_url=self._url, resource=None, access_token=None, expires_at=None, granted=None
                ).to_bytes()
        return None

    async def save(self, key: str, record: bytes) -> None:
        fresh = Credentials.from_bytes(record)
        async with self._vault.lock(f"write {self._owner}"):
            records = await self._vault.read(self._owner)
            before = Credentials.from_bytes(records.get(key, b"")) or fresh
            records[key] = record
            if fresh is not None and before is not None and fresh.refresh_token is not None:
                shared = self._shared() if _server_of(key) in self._shared() else ()
                alike = {name: text for name, text in records.items() if _server_of(name) in shared}
                for name, other in ((name, Credentials.from_bytes(text)) for name, text in alike.items()):
                    # An issuer that rotates refresh tokens has ended the one that all its servers shared.
                    if other is not None and other.issuer == fresh.issuer and name != key:
                        records[name] = msgspec.structs.replace(other, refresh_token=fresh.refresh_token).to_bytes()
            await self._vault.write(self._owner, records)

    def lock(self, key: str) -> AbstractAsyncContextManager[None]:
        return self._vault.lock(self._owner)


def _server_of(key: str) -> str:
    """The name of the server whose record has this key (see `token_key`)."""
    return key.rpartition(":")[0]


@final
class _Attempt:
    """A login that is under way. It is the `UserAgent` of its grant."""

    def __init__(self, desk: LoginDesk, caller: str, server: str) -> None:
        self._desk = desk
        self.caller = caller
        self.server = server
        self.ticket: str = f"{desk.process}.{secrets.token_urlsafe(24)}"
        self.proof: str = secrets.token_urlsafe(24)
        """In the cookie of the browser in which a person agreed."""
        self.issuer_url: str = ""
        self.asked: asyncio.Event = asyncio.Event()
        self.returned: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None

    @property
    def url(self) -> str:
        """The page to open."""
        return f"{self._desk.base_url()}/login/{self.ticket}"

    async def redirect_uri(self) -> str:
        return f"{self._desk.base_url()}{_CALLBACK}"

    async def browse(self, url: str, state: str) -> str:
        self.issuer_url = url
        self._desk.expect(state, self)
        self.asked.set()
        try:
            async with asyncio.timeout(_PERSON_SECONDS):
                return await self.returned
        except TimeoutError:
            raise AuthorizationFailed(f"nobody logged in within {_PERSON_SECONDS:g} s", step="login") from None
        finally:
            self._desk.forget(state, self)

    async def close(self) -> None:
        pass


@final
class LoginDesk:
    """All logins of a gateway: where they are kept, and the pages that people come to.

    Args:
        base_url: The address of the gateway, as browsers know it.
        fleet: The other processes: a person may come back to another one.
    """

    def __init__(self, keys: Sequence[str], base_url: Callable[[], str], fleet: Callable[[], Any]) -> None:
        self.base_url = base_url
        self._fleet = fleet
        self.vault: _Vault = _Vault(keys, lambda: None if fleet() is None else fleet().store)
        self._by_state: dict[str, _Attempt] = {}
        self._by_ticket: dict[str, _Attempt] = {}
        self._subscribed: Any = None

    @property
    def process(self) -> str:
        """The name of this process among the others; tickets begin with it."""
        fleet = self._fleet()
        return "here" if fleet is None else fleet.name

    def declare(self, server: Server) -> None:
        server.custom_route("/login/{ticket}")(self.show_login)
        server.custom_route("/login/{ticket}", methods=["POST"])(self.begin_login)
        server.custom_route(_CALLBACK)(self.take_callback)

    def listen(self) -> None:
        """Hear of people who came back to another process."""
        fleet = self._fleet()
        if fleet is not None and fleet is not self._subscribed:
            self._subscribed = fleet
            fleet.on(_NEWS, self._hear)
            fleet.on_ask(_NEWS, self._describe_ticket)

    def expect(self, state: str, attempt: _Attempt) -> None:
        self._by_state[state] = attempt
        self._by_ticket[attempt.ticket] = attempt

    def forget(self, state: str, attempt: _Attempt) -> None:
        self._by_state.pop(state, None)
        self._by_ticket.pop(attempt.ticket, None)

    async def show_login(self, request: RouteRequest) -> Any:
        about = await self._find_ticket(request.path_params["ticket"])
        if about is None:
            return _reply(404, _OVER)
        server, caller = map(escape, about[:2])
        text = (
            f"The gateway is about to use <b>{server}</b> in your name, for the caller <b>{caller}</b>. "
            f'If that is not you, close this page.</p><form method="post"><button>Log in to {server}</button></form><p>'
        )
        return _reply(200, text)

    async def begin_login(self, request: RouteRequest) -> Any:
        """Send the browser to the issuer. No other page can do this: its Origin is refused."""
        ticket = request.path_params["ticket"]
        about = await self._find_ticket(ticket)
        if about is None:
            return _reply(404, _OVER)
        _, _, issuer_url, proof = about
        base = urlsplit(self.base_url())
        name = (
            _COOKIE + hashlib.sha256(ticket.encode()).hexdigest()[:16]
        )  # several logins may be under way in one browser
        secure = "; Secure" if base.scheme == "https" else ""
        cookie = (
            f"{name}={proof}; Path={base.path}{_CALLBACK}; HttpOnly; SameSite=Lax; Max-Age={_PERSON_SECONDS:g}{secure}"
        )
        return 303, "", {"location": issuer_url, "set-cookie": cookie, "cache-control": "no-store"}

    async def _find_ticket(self, ticket: str) -> list[str] | None:
        about = await self._describe_ticket(ticket)
        process, _, _ = ticket.partition(".")
        fleet = self._fleet()
        if about is None and fleet is not None and process != fleet.name:
            with contextlib.suppress(StoreError, NoAnswer, TimedOut):
                about = await fleet.ask(process, _NEWS, ticket)
        return about

    async def _describe_ticket(self, ticket: Any) -> list[str] | None:
        """What the page has to know about a login of this process."""
        attempt = self._by_ticket.get(ticket)
        return None if attempt is None else [attempt.server, attempt.caller, attempt.issuer_url, attempt.proof]

    async def withdraw(self, record: bytes, *, allow_private: bool) -> None:
        """Have the issuer end the tokens of a login, if it does such things."""
        login = Credentials.from_bytes(record)
        endpoint = login.metadata.revocation_endpoint if login is not None and login.metadata is not None else None
        if login is None or endpoint is None:
            return
        fetcher = Fetcher(allow_private=allow_private)
        try:
            async with asyncio.timeout(_AFTER_SECONDS):
                for kind, token in (("refresh_token", login.refresh_token), ("access_token", login.access_token)):
                    if token is not None:
                        flow = revoke_token(
                            endpoint, token, kind=kind, client=login.client, server_url=login.server_url
                        )
                        await perform(flow, fetcher)
        except (Error, TimeoutError) as error:
            log.warning("a login was forgotten here, but %s did not revoke its tokens: %s", login.issuer, error)
        finally:
            await fetcher.close()

    async def take_callback(self, request: RouteRequest) -> Any:
        proofs = _proofs(request.headers.get("cookie") or "")
        if not proofs:
            return _reply(
                400, "This login was not begun in this browser. Open the link that your program shows in this browser."
            )
        query = "&".join(f"{_quote(name)}={_quote(value)}" for name, value in request.query_params.items())
        state, url = request.query_params.get("state", ""), f"{self.base_url()}{_CALLBACK}?{query}"
        fleet = self._fleet()
        if not self._deliver(state, url, proofs) and fleet is not None:
            fleet.tell_soon(_NEWS, [state, url, proofs])
        return _reply(200, "Thank you. You may close this page. The call continues; if it does not, repeat it.")

    def _hear(self, news: Any) -> None:
        state, url, proofs = news
        self._deliver(state, url, proofs)

    def _deliver(self, state: str, url: str, proofs: Sequence[str]) -> bool:
        attempt = self._by_state.get(state)
        if attempt is None:
            return False
        is_proven = any(secrets.compare_digest(attempt.proof.encode(), proof.encode()) for proof in proofs)
        if is_proven and not attempt.returned.done():
            attempt.returned.set_result(url)
        return True


def _proofs(cookies: str) -> list[str]:
    """What the cookies of this browser prove."""
    parts = (part.strip().partition("=") for part in cookies.split(";"))
    return [value for name, _, value in parts if name.startswith(_COOKIE)][:_MOST_PROOFS]


def _reply(status: int, text: str) -> Any:
    return status, _page(text), _HTML


def _quote(text: str) -> str:
    from urllib.parse import quote

    return quote(text, safe="")


def _page(text: str) -> str:
    return f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Login</title></head><body><p>{text}</p></body></html>'


@final
class ServerLogins:
    """The logins of callers at one server."""

    upstream: Upstream
    """The connections; set before the first call."""

    def __init__(
        self, plan: ConnectPlan, desk: LoginDesk, shared: Callable[[], Sequence[str]], *, allow_private: bool = False
    ) -> None:
        self._plan = plan
        self._allow_private = allow_private
        """A server may name an issuer inside. Otherwise one outside could have the gateway ask whatever is inside."""
        self._shared = shared
        """The names of the servers that share logins."""
        self._desk = desk
        self._known: set[str] = set()
        """Callers who are logged in, as far as this process knows."""
        self._attempts: dict[str, _Attempt] = {}
        self.server: Server = self._build_server()

    def auth_for(self, call: IncomingCall) -> Grant:
        """The credentials of a caller, for its connection; they ask nobody."""
        return self._grant(owner_text(call.principal), None)

    def _grant(self, owner: str, login: Any) -> Grant:
        entry = self._plan.entry
        url = entry.url if entry is not None else ""
        return login_grant(
            entry.oauth_config if entry is not None else None,
            name=self._plan.name,
            login=login,
            store=_CallerTokens(self._desk.vault, owner, url, self._shared),
            allow_private=self._allow_private,
        )

    def forget(self, principal: Any) -> None:
        """The server refuses the login of a caller: the next call asks for another one."""
        self._known.discard(owner_text(principal))
        self.upstream.drop_caller(principal)

    async def ensure(self, ctx: Context) -> bool:
        """Have the caller log in, if it must. False if the call ends here with a question."""
        principal = ctx.call.principal
        if principal is None:
            return True  # the connection refuses it, with the reason
        owner = owner_text(principal)
        if owner in self._known:
            return True
        rounds = ctx.call.exchange.rounds
        has_answered = False
        if rounds is not None and _STEP in rounds.steps:
            has_answered = True
            _check_answer(rounds.answers.get(_KEY), self._plan.name)
            ctx.call.exchange.rounds = None  # the server begins with the call only now
        attempt = await self._begin(owner, str(getattr(principal, "subject", None) or "you"))
        if attempt is None or (has_answered and await self._is_over(attempt, owner)):
            return True
        return await self._ask(ctx, attempt, owner)

    async def _ask(self, ctx: Context, attempt: _Attempt, owner: str) -> bool:
        call = ctx.call
        params = {"mode": "url", "message": f"Log in to {attempt.server}", "url": attempt.url}
        voice = call.exchange.voice
        if isinstance(voice, ModernVoice):
            require_capability(call, "elicitation/create", params)
            question = {_KEY: {"method": "elicitation/create", "params": params}}
            voice.end_round(call.exchange, question, {_STEP: attempt.ticket})
            return False
        answer = await answer_live(call, "elicitation/create", {**params, "elicitationId": attempt.ticket})
        _check_answer(answer, attempt.server)
        if not await self._is_over(attempt, owner):
            raise _refused(attempt.server, "the login is not finished yet; call again when you have logged in")
        return True

    async def _begin(self, owner: str, caller: str) -> _Attempt | None:
        """The login that the caller has to finish; None if it is logged in."""
        self._desk.listen()
        attempt = self._attempts.get(owner)
        if attempt is None:
            attempt = self._attempts[owner] = _Attempt(self._desk, caller, self._plan.name)
            attempt.task = asyncio.ensure_future(self._log_in(owner, attempt))
        task = attempt.task
        assert task is not None
        waiting = asyncio.ensure_future(attempt.asked.wait())
        try:
            await asyncio.wait((waiting, task), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        return None if self._is_done(attempt, owner) else attempt

    async def _is_over(self, attempt: _Attempt, owner: str) -> bool:
        task = attempt.task
        assert task is not None
        await asyncio.wait((task,), timeout=_AFTER_SECONDS)
        return self._is_done(attempt, owner)

    def _is_done(self, attempt: _Attempt, owner: str) -> bool:
        task = attempt.task
        assert task is not None
        if not task.done():
            return False
        self._attempts.pop(owner, None)
        if task.cancelled():
            raise _refused(attempt.server, "the login was cancelled")
        error = task.exception()
        if isinstance(error, Error):
            raise _refused(attempt.server, self._plan.mask(str(error))) from error
        if error is not None:
            raise error
        return True

    async def _log_in(self, owner: str, attempt: _Attempt) -> None:
        limit = _PERSON_SECONDS + 60
        client = connect(
            self._plan.target, auth=self._grant(owner, attempt), connect_timeout=limit, timeout=limit, max_timeout=limit
        )
        try:
            await client.open()
            if "tools" in client.server_capabilities:
                await client.list_tools()  # some servers ask for a login only here
        finally:
            await client.close()
        self._known.add(owner)
        self.upstream.use_credentials(self._grant(owner, None))  # the catalog can be listed with them

    async def close(self) -> None:
        tasks = [attempt.task for attempt in self._attempts.values() if attempt.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- the tools

    def _build_server(self) -> Server:
        name = self._plan.name
        server = Server(f"{name} login")

        def is_shown(principal: Any) -> bool:
            return principal is not None and self.upstream.is_personal

        async def login(ctx: Context) -> str:
            owner = owner_text(ctx.call.principal)
            if owner not in self._known:
                caller = str(getattr(ctx.call.principal, "subject", None) or "you")
                attempt = await self._begin(owner, caller)
                if attempt is not None:
                    answer = await ctx.elicit(f"Log in to {name}", url=attempt.url)
                    if answer.action != "accept":
                        return "You did not log in."
                    if not await self._is_over(attempt, owner):
                        return "The login is not finished yet. Log in, and call this again."
            return f"You are logged in to {name}."

        async def logout(ctx: Context) -> str:
            owner = owner_text(ctx.call.principal)
            self._known.discard(owner)
            async with self._desk.vault.lock(f"write {owner}"):
                records = await self._desk.vault.read(owner)
                ended = self._of_same_issuer(records)
                remaining = {key: record for key, record in records.items() if key not in ended}
                await self._desk.vault.write(owner, remaining)
            self.upstream.drop_caller(ctx.call.principal)
            for key in ended:
                await self._desk.withdraw(records[key], allow_private=self._allow_private)
            return f"Your login to {name}, and to other servers of its issuer, is forgotten here."

        server.add_tool(login, name="login", description=f"Log in to {name}.", visible_to=is_shown)
        server.add_tool(logout, name="logout", description=f"Forget your login to {name}.", visible_to=is_shown)
        return server

    def _of_same_issuer(self, records: Mapping[str, bytes]) -> set[str]:
        """The keys of the logins that go together with the one at this server."""
        known = {key: Credentials.from_bytes(record) for key, record in records.items()}
        issuers = {login.issuer for key, login in known.items() if login and key.startswith(f"{self._plan.name}:")}
        return {key for key, login in known.items() if login is None or login.issuer in issuers}


def _check_answer(answer: Any, server: str) -> None:
    action = answer.get("action") if isinstance(answer, Mapping) else getattr(answer, "action", None)  # pyright: ignore[reportUnknownMemberType,reportUnknownVariableType]
    if action != "accept":
        raise _refused(server, "you did not log in")


def _refused(server: str, why: str) -> ProtocolError:
    return ProtocolError(
        CODE_INVALID_REQUEST, f"{server} needs your login: {why}", {"upstream": server, "kind": "login"}, status=200
    )
