"""What a reviewer found: how the client's side of authorization should behave where it did not."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web
from tests.unit.oauth.stage import ISSUER, NOW, REDIRECT, SERVER, Stage, metadata, reply, resource, token
from tests.unit.oauth.world import TOKEN, World, numbered, refuse, sent, settle

from trimaran import connect, dialers
from trimaran.client import meeting
from trimaran.client.meeting import EraMemory
from trimaran.client.patience import Limit
from trimaran.errors import AuthorizationFailed, ConfigError, Error, LoginRequired, TimedOut, Unauthorized
from trimaran.oauth import (
    ClientCredentials,
    ClientInfo,
    Credentials,
    Grant,
    HttpReply,
    HttpRequest,
    OAuth,
    ProofKey,
    WorkloadIdentity,
    build_authorization_url,
)
from trimaran.oauth.grant import Need
from trimaran.oauth.metadata import ServerMetadata
from trimaran.state import MemoryTokens, StoreUnusable
from trimaran.state.tokens import token_key
from trimaran.transports import grants, http
from trimaran.transports.authority import Sent
from trimaran.transports.grants import GrantAuthority
from trimaran.transports.http import HttpWire
from trimaran.transports.loopback import LoopbackLogin

from ..ports import find_port
from .mean import Mean, Seen

KEY = token_key("mcp.example.com", SERVER)
PATIENCE = 20.0


@pytest.fixture(autouse=True)
def no_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port may have been another server's a moment ago."""
    monkeypatch.setattr(dialers, "_memory", EraMemory())


@asynccontextmanager
async def meet(*sins: str, era: str = "modern") -> AsyncIterator[Mean]:
    async with asyncio.timeout(PATIENCE), Mean(*sins, era=era) as mean:
        yield mean


async def whoami(mean: Mean, auth: Any) -> str:
    async with connect(mean.url, auth=auth) as client:
        return (await client.call_tool("whoami")).text


def unauthorized() -> web.Response:
    return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})


def held(**changes: Any) -> Credentials:
    """A login of an hour ago, which can be refreshed."""
    return Credentials(
        **{
            "server_url": SERVER,
            "resource": SERVER,
            "issuer": ISSUER,
            "access_token": "access-0",
            "refresh_token": "refresh-0",
            "issued_at": NOW - 3600,
            "expires_at": NOW + 3600,
            "scopes": ("notes",),
            "metadata": ServerMetadata(
                issuer=ISSUER, token_endpoint=TOKEN, token_endpoint_auth_methods_supported=("client_secret_post",)
            ),
            "clients": {ISSUER: ClientInfo(client_id="client-1")},
            **changes,
        }
    )


async def kept(record: Credentials) -> MemoryTokens:
    store = MemoryTokens()
    await store.save(KEY, record.to_bytes())
    return store


# --- to whom secrets are shown


async def test_a_client_secret_is_not_shown_to_an_issuer_that_the_server_moves_to() -> None:
    """Whose rule: protocol.md 4.1.7, registered beforehand and the issuer changes: an error, for every grant."""
    async with meet() as mean:
        secret = mean.issuer.make("secret")
        for house in (mean.issuer, mean.other):
            house.clients["robot"] = {"client_id": "robot", "client_secret": secret}
        grant = ClientCredentials(client_id="robot", client_secret=secret)
        async with connect(mean.url, auth=grant) as client:
            await client.call_tool("whoami")
            mean.migrate()
            with contextlib.suppress(Unauthorized):
                await client.call_tool("whoami")
        assert mean.indiscretions() == []


async def test_a_platforms_assertion_is_not_shown_to_an_issuer_that_the_server_moves_to() -> None:
    """Whose rule: protocol.md 4.1.7. A workload's JWT is good for whoever is shown it first."""
    stage = Stage(
        {
            "https://mcp.example.com/.well-known/oauth-protected-resource/v1/mcp": resource(
                authorization_servers=["https://elsewhere.example"]
            ),
            "https://elsewhere.example/.well-known/oauth-authorization-server": metadata("https://elsewhere.example"),
            "https://elsewhere.example/token": token(),
        }
    )
    grant = WorkloadIdentity(assertion="platform-jwt")
    need = Need(why="refused", server_url=SERVER, www_authenticate="Bearer")
    with contextlib.suppress(AuthorizationFailed):
        stage.play(grant.acquire(need, stage.world, held(refresh_token=None)))
    assert "https://elsewhere.example/token" not in stage.urls


async def test_a_server_that_repeats_the_token_in_its_refusal_does_not_get_it_into_the_message() -> None:
    """`Invalid token: eyJ...` is what many servers answer."""
    async with meet() as mean:

        def refuse_loudly(seen: Seen) -> web.Response:
            return web.Response(status=401, text=f"invalid token: {seen.headers.get('authorization')}")

        mean.rs._refusal = refuse_loudly  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        with pytest.raises(Unauthorized) as caught:
            await whoami(mean, "fixed-HUSH-rs-1")
        assert mean.spilled(str(caught.value)) == []
        with pytest.raises(Unauthorized) as caught:
            await whoami(mean, OAuth(login=mean.browse))
        assert mean.spilled(str(caught.value)) == []


@pytest.mark.parametrize("echoed", ["the header", "the form as it was posted"])
async def test_a_secret_is_not_repeated_in_another_spelling(echoed: str) -> None:
    """base64 in the header, %-escapes in the form: a secret in another spelling is a secret."""
    secret = "s/e+c=ret"
    grant = ClientCredentials(client_id="c", client_secret=secret)

    def echo(request: HttpRequest) -> HttpReply:
        what = request.headers.get("Authorization", "") if echoed == "the header" else (request.body or b"").decode()
        return reply({"error": "invalid_client", "error_description": f"I cannot read {what}"}, 400)

    methods = ["client_secret_basic" if echoed == "the header" else "client_secret_post"]
    stage = Stage(
        {
            f"{ISSUER}/.well-known/oauth-authorization-server": metadata(token_endpoint_auth_methods_supported=methods),
            TOKEN: echo,
        }
    )
    need = Need(why="refused", server_url=SERVER, www_authenticate="Bearer")
    with pytest.raises(AuthorizationFailed) as caught:
        stage.play(grant.acquire(need, stage.world, None))
    text = str(caught.value)
    assert "s%2Fe%2Bc%3Dret" not in text
    assert base64.b64encode(b"c:s%2Fe%2Bc%3Dret").decode() not in text


@pytest.mark.parametrize(
    "thing",
    [
        pytest.param(Sent({"Authorization": "Bearer HUSH"}, "HUSH"), id="what a request was sent with"),
        pytest.param(
            HttpRequest(
                step="token request", url=TOKEN, method="POST", headers={"Authorization": "HUSH"}, body=b"HUSH"
            ),
            id="a request of a flow",
        ),
        pytest.param(HttpReply(200, {}, b'{"access_token": "HUSH"}', TOKEN), id="the reply to a flow"),
        pytest.param(
            build_authorization_url(f"{ISSUER}/authorize", client_id="c", redirect_uri=REDIRECT),
            id="a login that was begun",
        ),
    ],
)
def test_what_holds_secrets_does_not_show_them(thing: Any) -> None:
    """The brief's rule: no secret in a repr, of public effects least of all: whoever drives a flow will log them."""
    assert "HUSH" not in repr(thing)
    assert getattr(thing, "verifier", "no verifier") not in repr(thing)


# --- who is asked, and when


async def test_a_login_for_one_server_does_not_end_the_login_for_another() -> None:
    """`LoopbackLogin` says that several may wait at once: a grant for two servers, or two grants, may share one."""
    shown: asyncio.Queue[str] = asyncio.Queue()
    agent = LoopbackLogin(open_browser=False, show=shown.put_nowait)
    grant = OAuth(login=agent)
    async with meet() as one, meet() as two, asyncio.TaskGroup() as group:
        first = group.create_task(whoami(one, grant))
        second = group.create_task(whoami(two, grant))
        pages = [await shown.get(), await shown.get()]
        homes = {house.origin: mean for mean in (one, two) for house in (mean.issuer,)}
        import aiohttp

        for page in pages:
            parts = urlsplit(page)
            back = await homes[f"{parts.scheme}://{parts.netloc}"].browse(page)
            async with aiohttp.ClientSession() as session, session.get(back) as response:
                assert response.status == 200
            which = first if homes[f"{parts.scheme}://{parts.netloc}"] is one else second
            await which


async def test_a_caller_who_comes_while_a_login_is_being_given_up_gets_one_of_its_own() -> None:
    """Not the error of a client that was closed: this one is open, and its person is there."""
    world = World({TOKEN: numbered()})
    world.door.clear()
    closing, may_close = asyncio.Event(), asyncio.Event()

    class Agent:
        async def redirect_uri(self) -> str:
            return REDIRECT

        async def browse(self, url: str, state: str) -> str:
            return await world.log_in(url)

        async def close(self) -> None:
            closing.set()
            await may_close.wait()

    may_close.set()
    authority = world.authority(OAuth(login=Agent()))
    first = await sent(authority)
    may_close.clear()
    impatient = asyncio.ensure_future(refuse(authority, first))
    await asyncio.wait_for(world.asked.wait(), 30)
    closing.clear()
    impatient.cancel()
    await asyncio.wait_for(closing.wait(), 30)
    world.door.set()
    patient = asyncio.ensure_future(refuse(authority, first))
    await settle()
    may_close.set()
    assert await asyncio.wait_for(patient, 5)
    assert (await sent(authority)).token == "access-1"


async def test_a_token_that_is_still_good_is_used_while_a_person_is_asked_for_more() -> None:
    """Refreshing ahead of time is a courtesy: nobody has to wait for a person because of it."""
    world = World({TOKEN: numbered()})
    authority = world.authority(world.person())
    await refuse(authority, await sent(authority))
    authority.accepted({}, await sent(authority), SERVER)
    world.stage.now += 3600 - 30
    world.door.clear()
    world.asked.clear()
    more = {"www-authenticate": 'Bearer error="insufficient_scope", scope="write"'}
    stepping = asyncio.ensure_future(authority.refused(403, more, Sent({}, "access-1"), SERVER, 0))
    await asyncio.wait_for(world.asked.wait(), 30)
    other = asyncio.ensure_future(sent(authority))
    done, _ = await asyncio.wait((other,), timeout=20)
    world.door.set()
    await stepping
    await other
    assert done


async def test_a_standing_stream_that_is_refused_does_not_ask_a_person_again() -> None:
    """Some servers have no GET and refuse it as they refuse everything; the login works, as every POST shows."""
    async with meet(era="legacy") as mean:
        refusal = mean.rs._refusal  # pyright: ignore[reportPrivateUsage]
        mean.rs._refusal = lambda seen: refusal(seen) if seen.method != "GET" else unauthorized()  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        async with connect(mean.url, auth=OAuth(login=mean.browse), era="legacy") as client:
            await client._connection.conversation.link.settled()  # pyright: ignore[reportPrivateUsage]
        assert len(mean.opened) == 1


async def test_a_person_is_not_asked_for_every_call_that_no_login_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that answers 401 to one method, whoever asks: the login that did not help is remembered."""
    monkeypatch.setattr(grants, "_REST_SECONDS", 0.0)
    async with meet() as mean:
        refusal = mean.rs._refusal  # pyright: ignore[reportPrivateUsage]
        mean.rs._refusal = lambda seen: unauthorized() if b"tools/call" in seen.body else refusal(seen)  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        async with connect(mean.url, auth=OAuth(login=mean.browse)) as client:
            for _ in range(3):
                with pytest.raises(Unauthorized):
                    await client.call_tool("whoami")
                await client.list_tools()
        assert len(mean.opened) <= 2


async def test_closing_a_client_asks_nobody_to_log_in() -> None:
    """The DELETE of a session whose login has ended meanwhile is not worth a person's time."""
    async with meet(era="legacy") as mean:
        speak = mean.rs._speak  # pyright: ignore[reportPrivateUsage]

        def with_session(seen: Seen) -> web.Response:
            response = speak(seen)
            response.headers["Mcp-Session-Id"] = "session-1"
            return response

        mean.rs._speak = with_session  # pyright: ignore[reportPrivateUsage, reportAttributeAccessIssue]
        async with connect(mean.url, auth=OAuth(login=mean.browse), era="legacy") as client:
            await client.call_tool("whoami")
            mean.issuer.end_login()
        assert any("DELETE" in line for line in mean.lines("rs"))
        assert len(mean.opened) == 1


async def test_no_login_is_the_same_as_none() -> None:
    """`login=False` reads like "never ask": it must say so, as None does."""
    async with meet() as mean:
        with pytest.raises(LoginRequired):
            await whoami(mean, OAuth(login=False))


async def test_a_program_that_lacks_a_scope_is_told_which() -> None:
    """Logging in again as the message says gives the same scopes again, unless it says which."""
    async with meet() as mean:
        store = MemoryTokens()
        await whoami(mean, OAuth(login=mean.browse, store=store))
        mean.scope = "notes write"
        with pytest.raises(LoginRequired, match="write") as caught:
            await whoami(mean, OAuth(store=store))
        assert caught.value.status == 403


async def test_a_plain_function_that_asks_a_person_does_not_stop_the_loop() -> None:
    """As everywhere: plain functions run in worker threads. `login=lambda url: input(...)` is what people write."""
    world = World()
    told: list[str] = []
    release = threading.Event()

    def ask(url: str) -> str:
        told.append(url)
        release.wait(2)
        return f"{REDIRECT}?code=c&state={parse_qs(urlsplit(url).query)['state'][0]}"

    authority = world.authority(OAuth(login=ask, redirect_uri=REDIRECT))
    caller = asyncio.ensure_future(refuse(authority, await sent(authority)))
    while not told:
        await asyncio.sleep(0.001)
    is_free = not caller.done()
    release.set()
    assert await caller
    assert is_free


async def test_the_redirect_uri_that_is_given_is_the_one_that_is_used() -> None:
    """A client registered beforehand has one redirect URI; a login that listens elsewhere can only fail."""
    wanted = f"http://127.0.0.1:{find_port()}/callback"
    stage = Stage()
    shown: list[str] = []

    async def fetch(request: HttpRequest) -> HttpReply:
        return stage.answer(request)

    async def browse(self: LoopbackLogin, url: str, state: str) -> str:
        shown.append(url)
        raise AuthorizationFailed("enough", step="login")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LoopbackLogin, "browse", browse)
        authority = GrantAuthority(OAuth(login=True, client_id="c", redirect_uri=wanted), SERVER, fetch=fetch)
        with pytest.raises(AuthorizationFailed):
            await refuse(authority, await sent(authority))
    assert parse_qs(urlsplit(shown[0]).query)["redirect_uri"] == [wanted]


# --- deadlines


async def test_a_slow_token_endpoint_does_not_outlast_a_calls_deadline() -> None:
    """Only a person's time stops a clock; an authorization server's does not."""
    async with meet() as mean:
        async with connect(mean.url, auth=OAuth(login=mean.browse)) as client:
            await client.call_tool("whoami")
            mean.issuer.revoke_access()
            mean.gate = asyncio.Event()
            call = asyncio.create_task(client.call_tool("whoami", timeout=0.2))
            done, _ = await asyncio.wait((call,), timeout=3)
            mean.gate.set()
            with pytest.raises(TimedOut):
                await call
            assert done
        assert len(mean.opened) == 1


async def test_a_slow_token_endpoint_does_not_make_a_modern_server_look_old(monkeypatch: pytest.MonkeyPatch) -> None:
    """The silence that tells eras apart is the MCP server's, not its authorization server's."""
    monkeypatch.setattr(meeting, "HTTP_SILENCE", 0.2)
    async with meet() as mean:
        mean.issuer.clients["robot"] = {"client_id": "robot", "client_secret": "s"}
        mean.gate = asyncio.Event()
        opening = asyncio.create_task(whoami(mean, ClientCredentials(client_id="robot", client_secret="s")))
        while not mean.token_requests():
            await asyncio.sleep(0.001)
        asyncio.get_running_loop().call_later(0.5, mean.gate.set)
        assert await opening == "robot"
        assert not [seen for seen in mean.seen if b'"initialize"' in seen.body]


async def test_whoever_waits_behind_a_persons_login_has_time_too() -> None:
    """One deadline that runs while a person is asked is one too many, whatever the reason for waiting."""
    world = World({TOKEN: numbered()})
    authority = world.authority(world.person())
    await refuse(authority, await sent(authority))
    authority.accepted({}, await sent(authority), SERVER)
    world.door.clear()
    world.asked.clear()
    more = {"www-authenticate": 'Bearer error="insufficient_scope", scope="write"'}
    stepping = asyncio.ensure_future(authority.refused(403, more, Sent({}, "access-1"), SERVER, 0))
    await asyncio.wait_for(world.asked.wait(), 30)
    limits: list[Limit] = []

    async def other() -> None:
        async with Limit(60) as limit:
            limits.append(limit)
            await refuse(authority, Sent({}, "access-1"))

    waiting = asyncio.ensure_future(other())
    await settle()
    is_paused = limits[0].is_paused
    world.door.set()
    await asyncio.gather(stepping, waiting)
    assert is_paused


async def test_calls_that_wait_for_a_connection_have_time_while_a_person_logs_in() -> None:
    """The stream of a session ends, the login has ended too: calls wait for the new one, which waits for a person."""
    async with meet(era="legacy") as mean:
        streams: list[web.StreamResponse] = []
        cut, door, asked = asyncio.Event(), asyncio.Event(), asyncio.Event()

        async def answer(seen: Seen) -> web.StreamResponse:
            if seen.path.startswith("/.well-known/"):
                return mean.rs._metadata(seen)  # pyright: ignore[reportPrivateUsage]
            refusal = mean.rs._refusal(seen)  # pyright: ignore[reportPrivateUsage]
            if refusal is not None:
                return refusal
            if seen.method == "GET":
                stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
                await stream.prepare(seen.request)
                await stream.write(b"event: endpoint\ndata: /post\n\n")
                streams.append(stream)
                await cut.wait()
                cut.clear()
                return stream
            said = mean.rs._speak(seen)  # pyright: ignore[reportPrivateUsage]
            if said.status == 200:
                assert isinstance(said.body, bytes)
                await streams[-1].write(b"event: message\ndata: " + said.body + b"\n\n")
            return web.Response(status=202)

        async def log_in(url: str) -> str:
            asked.set()
            await door.wait()
            return await mean.browse(url)

        mean.rs.answer = answer
        door.set()
        async with connect({"url": mean.url, "type": "sse"}, auth=OAuth(login=log_in)) as client:
            await client.call_tool("whoami")
            door.clear()
            asked.clear()
            mean.issuer.end_login()
            cut.set()
            while client._connection.is_live:  # pyright: ignore[reportPrivateUsage]
                await asyncio.sleep(0.001)
            calls = [asyncio.create_task(client.call_tool("whoami", timeout=1)) for _ in range(2)]
            await asyncio.wait_for(asked.wait(), 30)
            done, _ = await asyncio.wait(calls, timeout=1.5)
            door.set()
            found = await asyncio.gather(*calls, return_exceptions=True)
            cut.set()
        assert not done
        assert [getattr(one, "text", one) for one in found] == ["client-as-1"] * 2


# --- refreshing, and what is kept


class Full:
    """A store on a disk that is full."""

    def __init__(self, inner: MemoryTokens) -> None:
        self.load, self.delete, self.keys, self.lock = inner.load, inner.delete, inner.keys, inner.lock

    async def save(self, key: str, record: bytes) -> None:
        raise StoreUnusable("the disk is full")


async def test_a_store_that_cannot_be_written_does_not_fail_a_call_whose_token_is_good() -> None:
    """What fails ahead of expiry is not the caller's trouble."""
    world = World({TOKEN: numbered()})
    store = Full(await kept(held(expires_at=NOW + 30)))
    authority = world.authority(world.person(store=store))
    assert (await sent(authority)).token in ("access-0", "access-1")


async def test_a_platform_that_has_no_assertion_right_now_does_not_fail_a_call_whose_token_is_good() -> None:
    is_there = True

    def assertion() -> str:
        if not is_there:
            raise FileNotFoundError("/var/run/token")
        return "platform-jwt"

    world = World({TOKEN: numbered()})
    authority = world.authority(WorkloadIdentity(assertion=assertion))
    await refuse(authority, await sent(authority))
    authority.accepted({}, await sent(authority), SERVER)
    is_there = False
    world.stage.now += 3600 - 30
    assert (await sent(authority)).token == "access-1"


async def test_what_a_function_for_an_assertion_raises_is_told_with_the_step() -> None:
    """As for `login` and `auth.header()`: an error of ours that says whose function it was."""

    def assertion() -> str:
        raise FileNotFoundError("/var/run/token")

    world = World()
    authority = world.authority(WorkloadIdentity(assertion=assertion))
    with pytest.raises(Error, match="assertion"):
        await refuse(authority, await sent(authority))


async def test_a_secret_that_was_changed_is_used_from_then_on() -> None:
    """The operator rotated the secret of a client; the stored one is of yesterday."""
    world = World({TOKEN: numbered()})
    store = await kept(held(clients={ISSUER: ClientInfo(client_id="c", client_secret="old")}))
    world.stage.answers[f"{ISSUER}/.well-known/oauth-authorization-server"] = metadata(
        token_endpoint_auth_methods_supported=["client_secret_post"]
    )
    authority = world.authority(OAuth(client_id="c", client_secret="new", store=store))
    assert await refuse(authority, await sent(authority))
    assert world.stage.form(TOKEN)["client_secret"] == "new"


async def test_tokens_that_a_program_brings_along_win_over_those_it_brought_last_time() -> None:
    """R210 with a store: whoever configures new tokens means them."""
    world = World({TOKEN: numbered()})
    store = MemoryTokens()
    assert (await sent(world.authority(OAuth(access_token="old", store=store)))).token == "old"
    assert (await sent(world.authority(OAuth(access_token="new", store=store)))).token == "new"


async def test_a_wrong_client_secret_does_not_cost_the_login() -> None:
    """`invalid_client` says nothing about the refresh token: with the right secret it is good again."""
    refused = reply({"error": "invalid_client"}, 401)
    world = World({TOKEN: refused})
    store = await kept(held(expires_at=NOW + 30, clients={ISSUER: ClientInfo(client_id="c", client_secret="wrong")}))
    await sent(world.authority(OAuth(client_id="c", client_secret="wrong", store=store)))
    record = Credentials.from_bytes(await store.load(KEY) or b"")
    assert record is not None
    assert record.refresh_token == "refresh-0"


async def test_a_registration_that_the_issuer_has_forgotten_is_made_anew() -> None:
    """It says `invalid_client` to the refresh; to show the same client to a person can only end in an error page."""
    async with meet() as mean:
        async with connect(mean.url, auth=OAuth(login=mean.browse)) as client:
            await client.call_tool("whoami")
            mean.issuer.clients["decoy"] = {}
            del mean.issuer.clients["client-as-1"]
            mean.issuer.end_login()
            assert (await client.call_tool("whoami")).text == "client-as-2"


async def test_a_bound_login_is_of_no_use_to_a_grant_that_does_not_prove() -> None:
    """dpop=True yesterday, dpop=False today: a new login is due, not the same error for ever."""

    def answer(request: HttpRequest) -> HttpReply:
        if b"grant_type=refresh_token" in (request.body or b"") and "DPoP" not in request.headers:
            return reply({"error": "invalid_dpop_proof"}, 400)
        return reply(token())

    world = World({TOKEN: answer})
    store = await kept(held(token_type="dpop", proof_key=ProofKey.generate().to_jwk()))
    authority = world.authority(world.person(store=store))
    assert await refuse(authority, await sent(authority))
    assert (await sent(authority)).headers == {"Authorization": "Bearer access-1"}


async def test_a_refresh_needs_no_metadata_that_are_known_already() -> None:
    """A refresh token goes to the issuer that gave it, and where that is has been kept: a bad day of discovery is no reason
    to stop."""
    world = World({TOKEN: numbered()})
    for url in ("https://mcp.example.com/.well-known/oauth-protected-resource/v1/mcp",):
        world.stage.answers[url] = reply(b"", 503)
    authority = world.authority(OAuth(store=await kept(held())))
    assert await refuse(authority, await sent(authority))
    assert (await sent(authority)).token == "access-1"


# --- what the server says


async def test_every_challenge_of_a_response_is_read_over_tls_and_proxies_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several WWW-Authenticate fields are several challenges (RFC 9110, 11.6.1), whichever pool brought them."""

    async def answer(request: web.BaseRequest) -> web.Response:
        response = web.Response(status=401, text="who are you?")
        response.headers.add("WWW-Authenticate", 'Bearer resource_metadata="https://a.example/prm", scope="notes"')
        response.headers.add("WWW-Authenticate", 'Basic realm="old"')
        return response

    runner = web.ServerRunner(web.Server(answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}/mcp"
    wire = HttpWire(url, max_bytes=1000)
    wire._pool = http._AioPool(url, None, None, cookies=False)  # pyright: ignore[reportPrivateUsage]
    try:
        with pytest.raises(Unauthorized) as caught:
            await wire.send("POST", b"{}", None)
    finally:
        await wire.close()
        await runner.cleanup()
    assert "resource_metadata" in caught.value.www_authenticate


# --- options


@pytest.mark.parametrize("spelled", ["Authorization", "authorization"])
def test_a_header_and_a_grant_for_the_same_thing_are_not_both_taken(spelled: str) -> None:
    """C31: a configured Authorization header and a login contradict each other; silence would hide which one counts."""
    with pytest.raises(ConfigError, match="Authorization"):
        connect("https://example.com/mcp", headers={spelled: "Bearer x"}, auth=OAuth(login=True))


async def test_no_request_carries_two_authorization_headers() -> None:
    async with meet() as mean:
        with contextlib.suppress(ConfigError, Unauthorized):
            async with connect(mean.url, headers={"authorization": "Bearer mine"}, auth="theirs"):
                pass
        for seen in mean.seen:
            assert len(seen.request.headers.getall("Authorization")) == 1


@pytest.mark.parametrize("auth", [OAuth(store=True), "a-token"], ids=["a grant", "a token"])
def test_credentials_for_a_child_process_are_refused(auth: Any) -> None:
    """A child gets its secrets in its environment (protocol.md 4): credentials that go nowhere are a mistake to be told."""
    with pytest.raises(ConfigError, match="env"):
        connect([sys.executable, "-c", ""], auth=auth)


def test_a_grant_that_was_not_made_is_noticed() -> None:
    """`auth=OAuth`, without the parentheses."""
    with pytest.raises(ConfigError):
        connect("https://example.com/mcp", auth=OAuth)


async def test_an_operators_own_endpoints_need_no_other_trust() -> None:
    """R256: as for ClientCredentials. A company's own token endpoint is in the company's own network."""
    stage = Stage({"https://sso.corp.example/token": token()})
    grant = OAuth(
        client_id="c",
        login=lambda url: url,
        authorization_endpoint="https://sso.corp.example/authorize",
        token_endpoint="https://sso.corp.example/token",
    )
    need = Need(why="refused", server_url=SERVER, www_authenticate="Bearer")
    stage.play(grant.acquire(need, stage.world, None))
    asked = [request for request in stage.requests if request.url == "https://sso.corp.example/token"]
    assert [request.server_url for request in asked] == ["https://sso.corp.example/token"]


@pytest.mark.parametrize(
    "grant",
    [
        pytest.param(OAuth(access_token="given"), id="given tokens"),
        pytest.param(ClientCredentials(client_id="c", client_secret="s", token_endpoint=TOKEN), id="own credentials"),
    ],
)
async def test_a_token_does_not_travel_in_the_clear(grant: Grant) -> None:
    """R252, OAuth 2.1 (1.5): the MCP endpoint is https too, unless it is on this machine."""
    world = World()
    server = "http://mcp.example.com/mcp"
    with pytest.raises((ConfigError, AuthorizationFailed), match="https"):
        connect(server, auth=grant)
        await GrantAuthority(grant, server, fetch=world.fetch).credentials("POST", server)
