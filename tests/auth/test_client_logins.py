"""When a client asks a person to log in, and whom it asks."""

from __future__ import annotations

import asyncio
import threading
from urllib.parse import parse_qs, urlsplit

import pytest
from aiohttp import web
from tests.support.mean_authority import Seen
from tests.support.oauth_stage import REDIRECT, SERVER, Stage
from tests.support.oauth_world import TOKEN, World, numbered, refuse, sent, settle
from tests.support.ports import find_port
from tests.support.until import until

from trimaran import connect
from trimaran.errors import AuthorizationFailed, LoginRequired, Unauthorized
from trimaran.oauth import (
    HttpReply,
    HttpRequest,
    OAuth,
)
from trimaran.state import MemoryTokens
from trimaran.transports import oauth_driver
from trimaran.transports.http_auth import SentCredentials
from trimaran.transports.loopback_login import LoopbackLogin
from trimaran.transports.oauth_driver import OAuthDriver

from .logins import meet, whoami


def unauthorized() -> web.Response:
    return web.Response(status=401, headers={"WWW-Authenticate": "Bearer"})


async def test_a_login_for_one_server_does_not_end_the_login_for_another() -> None:
    """`LoopbackLogin` says that several may wait at once: a grant for two servers, or two oauth_driver, may share one."""
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
    stepping = asyncio.ensure_future(authority.refused(403, more, SentCredentials({}, "access-1"), SERVER, 0))
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
    monkeypatch.setattr(oauth_driver, "_REST_SECONDS", 0.0)
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
    await until(lambda: told)
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
        authority = OAuthDriver(OAuth(login=True, client_id="c", redirect_uri=wanted), SERVER, fetch=fetch)
        with pytest.raises(AuthorizationFailed):
            await refuse(authority, await sent(authority))
    assert parse_qs(urlsplit(shown[0]).query)["redirect_uri"] == [wanted]
