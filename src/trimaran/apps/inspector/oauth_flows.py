"""A login, step by step: each request of the flow waits for the person, and its answer is shown with what is wrong.

The flow is the library's own (`trimaran.oauth`), run by its own driver with a fetcher that stops before each request. So what
is shown is what every client of this library does. Codes, secrets and tokens are masked.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import os
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, cast, final
from urllib.parse import parse_qsl, quote, urlsplit

import msgspec
from msgspec import Struct

from trimaran.depth import decode_json
from trimaran.errors import AuthorizationFailed, Error
from trimaran.oauth.effects import HttpReply, HttpRequest
from trimaran.oauth.login import OAuth
from trimaran.protocol.mask import MASK, mask_url
from trimaran.transports.fetch import Fetcher
from trimaran.transports.http_auth import NOTHING, SentCredentials
from trimaran.transports.loopback_login import LoopbackLogin
from trimaran.transports.oauth_driver import OAuthDriver

from .events import now_ms
from .failures import PageFailure, failure_of
from .requests import BadRequest, NotThere
from .servers import InspectedServer
from .wire import mask_header

if TYPE_CHECKING:
    from .inspector import Inspector

_PHASES: Final = (
    ("protected resource", "discovery"),
    ("authorization server", "discovery"),
    ("registration", "registration"),
    ("refresh", "refresh"),
    ("token", "token"),
    ("login", "authorization"),
)
_SECRETS: Final = frozenset(
    {
        "code",
        "code_verifier",
        "client_secret",
        "client_assertion",
        "refresh_token",
        "access_token",
        "id_token",
        "registration_access_token",
    }
)
_REMEDIES: Final = {
    "challenge": 'The server should answer 401 with WWW-Authenticate: Bearer resource_metadata="...".',
    "discovery": "Serve /.well-known/oauth-protected-resource for the server and the metadata of its authorization server.",
    "registration": "Allow dynamic registration, take a client metadata URL, or give a client id that is registered.",
    "authorization": "Log in on the page that opens; the redirect must reach this machine.",
    "token": "Check the client's credentials, the redirect URI and PKCE (S256) at the authorization server.",
    "refresh": "Log in again: the refresh token may have expired or been used before.",
    "step-up": "Grant the scopes that the server names, or call a tool that needs fewer.",
    "call": "The server refuses the token that was issued for it: check audience, issuer and scopes.",
}
_NO_DPOP: Final = "The server asks for Bearer tokens alone: log in again without DPoP."
_SHOWN_BODY: Final = 64 * 1024
_BROWSER_SECONDS: Final = 600.0  # a person may have to find a password
_MOST_FLOWS: Final = 50
_MOST_PROOFS: Final = 3  # a nonce may change once while the next request is on its way


class OAuthStep(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """One request and its answer, or the visit to the browser."""

    n: int
    phase: str
    title: str
    at: float
    notes: list[str]
    ms: float | None = None
    request: dict[str, Any] | None = None
    response: dict[str, Any] | None = None
    ok: bool | None = None
    problem: str | None = None
    remedy: str | None = None


class OAuthView(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A flow as the page sees it."""

    id: str
    server: str
    state: Literal["paused", "running", "waiting-for-browser", "done", "failed"]
    steps: list[OAuthStep]
    authorization_url: str | None = None
    next: str | None = None
    result: dict[str, Any] | None = None
    failure: PageFailure | None = None


@final
class _PageAgent:
    """A person at the page: they open the authorization URL themselves."""

    def __init__(self) -> None:
        self._inner = LoopbackLogin(open_browser=False, show=self._show, timeout=_BROWSER_SECONDS)
        self.flow: _Flow | None = None

    def _show(self, url: str) -> None:
        if self.flow is not None:
            self.flow.wait_for_browser(url)

    async def redirect_uri(self) -> str:
        return await self._inner.redirect_uri()

    async def browse(self, url: str, state: str) -> str:
        answer = await self._inner.browse(url, state)
        if self.flow is not None:
            self.flow.came_back(answer)
        return answer

    async def close(self) -> None:
        await self._inner.close()


@final
class _Login:
    """The login of one server, over all of its flows."""

    def __init__(self, grant: OAuth, agent: _PageAgent, driver: OAuthDriver, fetcher: Fetcher) -> None:
        self.grant = grant
        self.agent = agent
        self.driver = driver
        self.fetcher = fetcher
        self.flow: _Flow | None = None

    async def close(self) -> None:
        await self.driver.close()
        await self.agent.close()
        await self.fetcher.close()


@final
class _Flow:
    def __init__(self, id: str, inspector: Inspector, server: InspectedServer, url: str, *, runs_on: bool) -> None:
        self._inspector = inspector
        self.server = server
        self.url = url
        self.view: OAuthView = OAuthView(id=id, server=server.id, state="running", steps=[])
        self.runs_on: bool = runs_on
        self._gate = asyncio.Event()
        self.task: asyncio.Task[None] | None = None

    def tell(self) -> None:
        view = self.view
        copy = msgspec.structs.replace(view, steps=list(view.steps))
        self._inspector.events.emit("oauth", key=view.id, size=8_000, flow=copy)

    def go_on(self, *, to_the_end: bool) -> None:
        self.runs_on = self.runs_on or to_the_end
        self._gate.set()

    async def pause_before(self, step: str) -> None:
        """Wait until the person wants the next step."""
        if self.runs_on:
            return
        self.view.state, self.view.next = "paused", step
        self._gate.clear()
        self.tell()
        await self._gate.wait()
        self.view.state, self.view.next = "running", None

    def begin_step(self, phase: str, title: str, request: HttpRequest | None = None) -> OAuthStep:
        step = OAuthStep(n=len(self.view.steps) + 1, phase=phase, title=title, at=now_ms(), notes=[])
        if request is not None:
            body = None if request.body is None else _masked_body(request.body, request.headers)
            headers = [(name, mask_header(name, value)) for name, value in request.headers.items()]
            step.request = {"method": request.method, "url": mask_url(request.url), "headers": headers, "body": body}
            step.notes += _request_notes(request)
        self.view.steps.append(step)
        return step

    async def fetch(self, fetcher: Fetcher, request: HttpRequest, phase: str = "") -> HttpReply:
        """Make one request of the flow, when the person lets it."""
        phase = phase or _phase_of(request)
        await self.pause_before(f"{request.method} {mask_url(request.url)} ({request.step})")
        step = self.begin_step(phase, request.step, request)
        self.tell()
        began = time.perf_counter()
        try:
            reply = await fetcher(request)
        except Error as error:
            step.ok, step.problem, step.remedy = False, str(error), _REMEDIES.get(phase)
            raise
        finally:
            step.ms = round((time.perf_counter() - began) * 1000, 1)
        headers = [(name, mask_header(name, value)) for name, value in reply.headers.items()]
        body = _masked_body(reply.body[:_SHOWN_BODY], reply.headers)
        step.response = {"status": reply.status, "headers": headers, "body": body}
        step.ok = reply.status < 400
        if not step.ok:
            step.problem = f"the answer is {reply.status}"
        step.notes += _reply_notes(phase, request, reply)
        self.tell()
        return reply

    def wait_for_browser(self, url: str) -> None:
        step = self.begin_step("authorization", "the person logs in")
        step.request = {"method": "GET", "url": mask_url(url), "headers": []}
        query = dict(parse_qsl(urlsplit(url).query))
        step.notes = [
            f"PKCE: {query.get('code_challenge_method', 'missing')}",
            f"resource: {query.get('resource', 'not named')}",
            f"scope: {query.get('scope', 'none')}",
            f"redirect: {query.get('redirect_uri', 'none')}",
        ]
        self.view.state, self.view.authorization_url = "waiting-for-browser", url
        self.tell()

    def came_back(self, url: str) -> None:
        query = dict(parse_qsl(urlsplit(url).query))
        step = self.view.steps[-1]
        step.ms = round(now_ms() - step.at, 1)
        step.ok = "error" not in query
        step.notes.append(f"came back with {', '.join(sorted(query))}")
        if not step.ok:
            step.problem = f"{query['error']}: {query.get('error_description', 'no reason given')}"
            step.remedy = _REMEDIES["authorization"]
        self.view.state, self.view.authorization_url = "running", None
        self.tell()

    def fail(self, error: Error) -> None:
        view = self.view
        view.state, view.failure = "failed", failure_of(error)
        if view.steps and view.steps[-1].problem is None:
            last = view.steps[-1]
            last.ok, last.problem = False, str(error)
            last.remedy = last.remedy or _REMEDIES.get(last.phase)
        elif view.steps:
            view.steps[-1].problem = str(error)
            view.steps[-1].remedy = view.steps[-1].remedy or _REMEDIES.get(view.steps[-1].phase)
        self.tell()


@final
class OAuthFlows:
    """The flows of this run, and the logins they made."""

    def __init__(self, inspector: Inspector) -> None:
        self._inspector = inspector
        self._flows: dict[str, _Flow] = {}
        self._logins: dict[str, _Login] = {}
        self._ids = itertools.count(1)

    def get(self, id: str) -> _Flow:
        flow = self._flows.get(id)
        if flow is None:
            raise NotThere(f"there is no login {id!r}")
        return flow

    async def start(self, server: InspectedServer, settings: Mapping[str, Any]) -> OAuthView:
        """Begin a login, a refresh or a step-up."""
        target: Any = server.reach.target
        url = cast("dict[str, Any]", target).get("url") if isinstance(target, dict) else target
        if not isinstance(url, str) or server.reach.transport not in ("http", "sse"):
            raise BadRequest("only a server on HTTP wants a login")
        purpose = settings.get("what", "login")
        if purpose not in ("login", "refresh", "step-up"):
            raise BadRequest('what must be "login", "refresh" or "step-up"')
        if purpose == "login" or server.id not in self._logins:
            if purpose != "login":
                raise BadRequest("log in first: there is no token yet", status=409)
            await self._forget(server.id)
            self._logins[server.id] = self._make_login(url, settings)
        login = self._logins[server.id]
        flow = _Flow(f"o{next(self._ids)}", self._inspector, server, url, runs_on=bool(settings.get("auto")))
        self._flows[flow.view.id] = flow
        while len(self._flows) > _MOST_FLOWS:
            await self.give_up(next(iter(self._flows)))
        login.flow = login.agent.flow = flow
        flow.task = self._inspector.servers.spawn(
            self._run(flow, login, str(purpose), str(settings.get("scope") or ""))
        )
        await asyncio.sleep(0)
        return flow.view

    def _make_login(self, url: str, settings: Mapping[str, Any]) -> _Login:
        agent = _PageAgent()
        allows_private = os.environ.get("TRIMARAN_ALLOW_PRIVATE", "").strip().lower() in ("1", "true", "yes")
        scope = settings.get("scope")
        try:
            grant = OAuth(
                client_id=settings.get("clientId") or None,
                client_secret=settings.get("clientSecret") or None,
                scopes=str(scope).split() if scope else None,
                login=agent,
                dpop=bool(settings.get("dpop")),
                client_name="Trimaran inspector",
                allow_private=allows_private,
            )
        except Error as error:
            raise BadRequest(str(error)) from None
        fetcher = Fetcher(allow_private=allows_private)

        async def fetch(request: HttpRequest) -> HttpReply:
            flow = login.flow
            return await (fetcher(request) if flow is None else flow.fetch(fetcher, request))

        login = _Login(grant, agent, OAuthDriver(grant, url, fetch=fetch), fetcher)
        return login

    async def _run(self, flow: _Flow, login: _Login, purpose: str, scope: str) -> None:
        try:
            if purpose == "login":
                header = await self._challenge(flow, login)
                await login.driver.refused(401, {"www-authenticate": header}, NOTHING, flow.url, 0)
            else:
                sent = await login.driver.credentials("POST", flow.url)
                await self._again(flow, login, sent, purpose, scope)
            await self._prove(flow, login)
        except Error as error:
            flow.fail(error)
        finally:
            login.flow = None

    async def _again(self, flow: _Flow, login: _Login, sent: SentCredentials, purpose: str, scope: str) -> None:
        if purpose == "refresh":
            await login.driver.refused(401, {"www-authenticate": 'Bearer error="invalid_token"'}, sent, flow.url, 0)
            return
        if not scope:
            raise AuthorizationFailed("a step-up needs the scope that is missing", step="login")
        header = f'Bearer error="insufficient_scope", scope="{quote(scope, safe=" :/.")}"'
        if not await login.driver.refused(403, {"www-authenticate": header}, sent, flow.url, 0):
            raise AuthorizationFailed(
                "the token has these scopes already, so there is nothing to ask for", step="login"
            )

    async def _challenge(self, flow: _Flow, login: _Login) -> str:
        """Ask without a token: the server's refusal says where to log in."""
        reply = await flow.fetch(login.fetcher, _probe(flow.url, {}), "challenge")
        step = flow.view.steps[-1]
        header = reply.headers.get("www-authenticate", "")
        if reply.status == 401:
            step.ok, step.problem = True, None
        if reply.status < 400:
            raise AuthorizationFailed("the server answers without a token, so nobody needs to log in", step="login")
        if "resource_metadata" not in header:
            step.notes.append("WWW-Authenticate names no resource_metadata: the well-known places are tried")
            step.remedy = _REMEDIES["challenge"]
        return header

    async def _prove(self, flow: _Flow, login: _Login) -> None:
        """Use the token, and let the server connect with it."""
        for number in itertools.count(1):
            sent = await login.driver.credentials("POST", flow.url)
            if sent.token is None:
                raise AuthorizationFailed("the flow ended without a token", step="token request")
            reply = await flow.fetch(login.fetcher, _probe(flow.url, sent.headers), "call")
            step = flow.view.steps[-1]
            wants_nonce = reply.status == 401 and "dpop-nonce" in reply.headers and number < _MOST_PROOFS
            # RFC 9449, 9: the proof must contain this nonce. The driver learns it, and the next proof has it.
            if wants_nonce and await login.driver.refused(401, reply.headers, sent, flow.url, 0):
                step.phase, step.ok, step.problem = "dpop", True, None
                step.notes.append("the server wants a nonce in the proof: the request is sent again with the nonce")
                continue
            if reply.status in (401, 403):
                is_bound = any(name.lower() == "dpop" for name in sent.headers)
                if is_bound and "dpop" not in reply.headers.get("www-authenticate", "").lower():
                    step.remedy = _NO_DPOP
                raise AuthorizationFailed(f"the server refuses the new token ({reply.status})", step="token use")
            step.ok, step.problem = True, None
            break
        flow.view.state = "done"
        flow.view.result = _result_of(login)
        flow.tell()
        server = flow.server
        options = {**server.reach.options, "auth": login.grant}
        server.reach = msgspec.structs.replace(server.reach, options=options)
        server.begin_connecting()

    async def give_up(self, id: str) -> None:
        """End a flow."""
        flow = self.get(id)
        del self._flows[id]
        if flow.task is not None and not flow.task.done():
            flow.task.cancel()
            await asyncio.wait((flow.task,))
        self._inspector.events.forget("oauth", id)

    async def _forget(self, server: str) -> None:
        login = self._logins.pop(server, None)
        if login is not None:
            await login.close()

    async def close(self) -> None:
        for id in tuple(self._flows):
            await self.give_up(id)
        for server in tuple(self._logins):
            await self._forget(server)


def _probe(url: str, headers: Mapping[str, str]) -> HttpRequest:
    """A request that any MCP server answers, or refuses for want of a token."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "trimaran-inspector", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {},
    }
    message = {"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {"_meta": meta}}
    own = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "Mcp-Protocol-Version": "2026-07-28",
        "Mcp-Method": "server/discover",
    }
    step = "a request with the token" if headers else "a request without a token"
    body = msgspec.json.encode(message)
    return HttpRequest(step=step, url=url, method="POST", headers={**own, **headers}, body=body, server_url=url)


def _phase_of(request: HttpRequest) -> str:
    if request.body is not None and b"grant_type=refresh_token" in request.body:
        return "refresh"
    return next((phase for word, phase in _PHASES if word in request.step), "discovery")


def _masked_body(body: bytes, headers: Mapping[str, str]) -> str:
    """A body without its secrets, JSON or a form."""
    text = body.decode("utf-8", "replace")
    kind = next((value for name, value in headers.items() if name.lower() == "content-type"), "")
    if "x-www-form-urlencoded" in kind:
        pairs = parse_qsl(text, keep_blank_values=True)
        return "&".join(f"{name}={MASK if name in _SECRETS else quote(value, safe=':/ ')}" for name, value in pairs)
    try:
        value: Any = decode_json(text)
    except ValueError:
        return text
    if isinstance(value, dict):
        members = cast("dict[str, Any]", value)
        value = {name: MASK if name in _SECRETS and part else part for name, part in members.items()}
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()


def _request_notes(request: HttpRequest) -> list[str]:
    notes: list[str] = []
    if any(name.lower() == "dpop" for name in request.headers):
        notes.append("a DPoP proof goes along: the token is bound to a key")
    form = dict(parse_qsl((request.body or b"").decode("utf-8", "replace"))) if request.method == "POST" else {}
    if "grant_type" in form:
        notes.append(f"grant: {form['grant_type']}; resource: {form.get('resource', 'not named')}")
    return notes


def _reply_notes(phase: str, request: HttpRequest, reply: HttpReply) -> list[str]:
    """What a person should see in an answer."""
    try:
        value: Any = decode_json(reply.body)
    except ValueError:
        value = None
    members = cast("dict[str, Any]", value) if isinstance(value, dict) else {}
    notes: list[str] = []
    if phase == "challenge" and reply.headers.get("www-authenticate"):
        notes.append(f"WWW-Authenticate: {reply.headers['www-authenticate'][:500]}")
    if "authorization_servers" in members:
        notes.append(f"authorization servers: {members['authorization_servers']}")
    if "token_endpoint" in members:
        methods: Any = members.get("code_challenge_methods_supported") or []
        notes.append(
            "PKCE S256 is supported" if "S256" in methods else "PKCE S256 is not announced: clients must refuse"
        )
        notes.append(
            "clients can register themselves"
            if members.get("registration_endpoint")
            else "clients cannot register themselves: a client id is needed"
        )
        if members.get("client_id_metadata_document_supported"):
            notes.append("client metadata documents are accepted")
        if members.get("dpop_signing_alg_values_supported"):
            notes.append("DPoP is supported")
    if "access_token" in members:
        notes.append(f"token type {members.get('token_type')}, expires in {members.get('expires_in', 'unknown')} s")
    if "error" in members:
        notes.append(f"{members['error']}: {members.get('error_description', 'no description')}")
    return notes


def _result_of(login: _Login) -> dict[str, Any]:
    credentials = login.driver.held
    if credentials is None:
        return {"hasRefreshToken": False}
    result: dict[str, Any] = {
        "scope": " ".join(credentials.granted if credentials.granted is not None else credentials.scopes),
        "tokenType": credentials.token_type,
        "hasRefreshToken": credentials.refresh_token is not None,
    }
    if credentials.expires_at is not None:
        result["expiresIn"] = round(credentials.expires_at - time.time())
    claims = _claims_of(credentials.access_token or "")
    if claims is not None:
        result["claims"] = claims
    return result


def _claims_of(token: str) -> Any:
    """The claims of a JWT, unchecked and for show; None if it is none."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        return decode_json(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return None
