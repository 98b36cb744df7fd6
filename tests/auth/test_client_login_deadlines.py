"""How long a call waits while its client gets credentials."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from tests.support.mean_authority import Seen
from tests.support.oauth_stage import SERVER
from tests.support.oauth_world import TOKEN, World, numbered, refuse, sent, settle
from tests.support.until import until

from trimaran import connect
from trimaran.client import negotiation
from trimaran.client.deadline import SuspendableTimeout
from trimaran.errors import TimedOut
from trimaran.oauth import (
    ClientCredentials,
    OAuth,
)
from trimaran.transports.http_auth import SentCredentials

from .logins import meet, whoami


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
    monkeypatch.setattr(negotiation, "HTTP_SILENCE", 0.2)
    async with meet() as mean:
        mean.issuer.clients["robot"] = {"client_id": "robot", "client_secret": "s"}
        mean.gate = asyncio.Event()
        opening = asyncio.create_task(whoami(mean, ClientCredentials(client_id="robot", client_secret="s")))
        await until(lambda: mean.token_requests())
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
    stepping = asyncio.ensure_future(authority.refused(403, more, SentCredentials({}, "access-1"), SERVER, 0))
    await asyncio.wait_for(world.asked.wait(), 30)
    limits: list[SuspendableTimeout] = []

    async def other() -> None:
        async with SuspendableTimeout(60) as limit:
            limits.append(limit)
            await refuse(authority, SentCredentials({}, "access-1"))

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
            await until(lambda: client._connection.live_session is None)  # pyright: ignore[reportPrivateUsage]
            calls = [asyncio.create_task(client.call_tool("whoami", timeout=1)) for _ in range(2)]
            await asyncio.wait_for(asked.wait(), 30)
            done, _ = await asyncio.wait(calls, timeout=1.5)
            door.set()
            found = await asyncio.gather(*calls, return_exceptions=True)
            cut.set()
        assert not done
        assert [getattr(one, "text", one) for one in found] == ["client-as-1"] * 2
