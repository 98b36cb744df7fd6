"""A grant at work: when a flow is run, who waits for it, and what is kept (R208-R212, R249, R253-R255)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.support.oauth_stage import NOW, REDIRECT, SERVER, reply, token
from tests.support.oauth_world import TOKEN, World, numbered, refuse, sent, settle
from tests.support.until import soon

from trimaran.client.deadline import SuspendableTimeout
from trimaran.errors import AuthorizationFailed, ConfigError, LoginRequired, Unauthorized
from trimaran.oauth import ClientCredentials, OAuth, WorkloadIdentity
from trimaran.oauth.effects import HttpReply, HttpRequest
from trimaran.transports import oauth_driver
from trimaran.transports.oauth_driver import OAuthDriver


def robot(**options: Any) -> ClientCredentials:
    return ClientCredentials(client_id="c", client_secret="s", **options)


async def test_nothing_is_sent_before_the_server_asks() -> None:
    """C31: silent until a 401 arrives."""
    world = World()
    assert (await sent(world.authority(world.person()))).headers == {}
    assert not world.stage.requests


async def test_a_401_leads_to_a_token_that_every_request_carries() -> None:
    world = World()
    authority = world.authority(world.person())
    assert await refuse(authority, await sent(authority))
    assert (await sent(authority)).headers == {"Authorization": "Bearer access-1"}


async def test_fifty_refusals_are_one_flow() -> None:
    """P7: single flight."""
    world = World({TOKEN: numbered()})
    authority = world.authority(world.person())
    first = await sent(authority)
    world.gate.clear()
    waiting = [asyncio.ensure_future(refuse(authority, first)) for _ in range(50)]
    await asyncio.wait_for(world.reached.wait(), 5)
    world.gate.set()
    assert all(await asyncio.gather(*waiting))
    assert (world.logins, world.token_requests) == (1, 1)


async def test_a_login_that_only_reads_documents_does_not_hold_up_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It used to hold it up for five seconds, and a server can take that long with every document."""
    monkeypatch.setattr(oauth_driver, "_CLOSE_SECONDS", 3600.0)
    begun = asyncio.Event()

    async def never(request: HttpRequest) -> HttpReply:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError(request)

    authority = OAuthDriver(robot(), SERVER, fetch=never)
    waiting = asyncio.ensure_future(refuse(authority, await sent(authority)))
    await soon(begun.wait())
    await soon(authority.close())
    with pytest.raises(AuthorizationFailed, match="cancelled"):
        await soon(waiting)


async def test_whoever_was_refused_with_the_old_token_finds_the_new_one() -> None:
    world = World({TOKEN: numbered()})
    authority = world.authority(robot())
    old = await sent(authority)
    await refuse(authority, old)
    assert await refuse(authority, old)
    assert world.token_requests == 1


async def test_a_new_token_that_is_refused_at_once_is_not_replaced_by_another() -> None:
    world = World({TOKEN: numbered()})
    authority = world.authority(robot())
    await refuse(authority, await sent(authority))
    assert not await refuse(authority, await sent(authority))
    assert world.token_requests == 1
    with pytest.raises(Unauthorized):
        await refuse(authority, await sent(authority))


async def test_a_token_that_was_good_for_a_while_is_replaced() -> None:
    world = World({TOKEN: numbered()})
    authority = world.authority(robot())
    await refuse(authority, await sent(authority))
    used = await sent(authority)
    authority.accepted({}, used, SERVER)
    assert await refuse(authority, used)
    assert (await sent(authority)).token == "access-2"


async def test_a_refreshed_token_that_is_refused_leads_to_a_login() -> None:
    world = World({TOKEN: numbered()})
    authority = world.authority(world.person())
    await refuse(authority, await sent(authority))
    authority.accepted({}, await sent(authority), SERVER)
    assert await refuse(authority, await sent(authority))
    assert world.logins == 1
    assert await refuse(authority, await sent(authority))
    assert world.logins == 2
    assert not await refuse(authority, await sent(authority))


async def test_a_token_is_refreshed_a_minute_before_it_expires() -> None:
    """R249."""
    world = World({TOKEN: numbered()})
    authority = world.authority(world.person())
    await refuse(authority, await sent(authority))
    world.stage.now = NOW + 3600 - 61
    assert (await sent(authority)).token == "access-1"
    world.stage.now = NOW + 3600 - 60
    assert (await sent(authority)).token == "access-2"
    assert world.logins == 1


async def test_a_failed_refresh_ahead_of_time_is_not_the_callers_trouble() -> None:
    world = World({TOKEN: numbered()})
    authority = world.authority(world.person())
    await refuse(authority, await sent(authority))
    world.stage.answers[TOKEN] = reply(b"", 503)
    world.stage.now = NOW + 3590
    for _ in range(5):
        assert (await sent(authority)).token == "access-1"
    assert world.token_requests == 2, "it is tried again only after a while"
    world.stage.now += 31
    await sent(authority)
    assert world.token_requests == 3


async def test_a_program_without_a_person_never_waits() -> None:
    """R254."""
    world = World()
    authority = world.authority(OAuth())
    with pytest.raises(LoginRequired):
        await refuse(authority, await sent(authority))


async def test_a_login_that_failed_is_not_asked_for_again_by_those_refused_with_it() -> None:
    world = World()

    async def no(url: str) -> str:
        world.logins += 1
        raise AuthorizationFailed("the person said no", step="login")

    authority = world.authority(OAuth(login=no))
    first = await sent(authority)
    for _ in range(3):
        with pytest.raises(AuthorizationFailed, match="said no"):
            await refuse(authority, first)
    assert world.logins == 1


# --- scopes


async def test_missing_scopes_are_asked_for_once() -> None:
    """protocol.md 4.1, point 13: few attempts, remember failures."""
    world = World({TOKEN: numbered()})
    authority = world.authority(world.person())
    await refuse(authority, await sent(authority), headers={"www-authenticate": 'Bearer scope="a"'})
    more = {"www-authenticate": 'Bearer error="insufficient_scope", scope="b"'}
    assert await refuse(authority, await sent(authority), 403, more)
    assert not await refuse(authority, await sent(authority), 403, more)
    assert world.logins == 2


@pytest.mark.parametrize(
    "told", ["", "Bearer", 'Bearer error="insufficient_scope"', 'Bearer scope="b"', 'Basic scope="b"']
)
async def test_a_403_that_names_no_scopes_is_final(told: str) -> None:
    world = World()
    authority = world.authority(world.person())
    await refuse(authority, await sent(authority))
    assert not await refuse(authority, await sent(authority), 403, {"www-authenticate": told})


# --- DPoP


async def bound(world: World) -> OAuthDriver:
    world.stage.answers[TOKEN] = token(token_type="DPoP")
    authority = world.authority(robot(dpop=True))
    await refuse(authority, await sent(authority))
    return authority


async def test_a_bound_token_goes_with_a_fresh_proof_each_time() -> None:
    authority = await bound(World())
    one, two = await sent(authority), await sent(authority)
    assert one.headers["Authorization"] == "DPoP access-1"
    assert one.headers["DPoP"] != two.headers["DPoP"]


async def test_a_nonce_is_learnt_and_the_request_tried_again_without_a_new_token() -> None:
    world = World()
    authority = await bound(world)
    wanted = {"www-authenticate": 'DPoP error="use_dpop_nonce"', "dpop-nonce": "n1"}
    first = await sent(authority)
    assert await refuse(authority, first, 401, wanted)
    second = await sent(authority)
    assert second.nonce == "n1"
    assert await refuse(authority, first, 401, wanted), "others sent before it was known"
    assert not await refuse(authority, second, 401, wanted), "it was shown"
    assert world.token_requests == 1


async def test_a_nonce_on_a_good_answer_is_used_next() -> None:
    authority = await bound(World())
    authority.accepted({"dpop-nonce": "n7"}, await sent(authority), SERVER)
    assert (await sent(authority)).nonce == "n7"


# --- giving up


async def test_a_refresh_is_finished_although_its_caller_left() -> None:
    """A refresh token that was spent without hearing the answer is lost."""
    world = World({TOKEN: numbered()})
    authority = world.authority(robot())
    first = await sent(authority)
    world.gate.clear()
    caller = asyncio.ensure_future(refuse(authority, first))
    await asyncio.wait_for(world.reached.wait(), 5)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    world.gate.set()
    await settle()
    assert (await sent(authority)).token == "access-1"


async def test_a_login_is_given_up_when_its_last_caller_leaves() -> None:
    world = World()
    asked, gone = asyncio.Event(), asyncio.Event()

    async def wait(url: str) -> str:
        asked.set()
        try:
            await asyncio.Event().wait()
        finally:
            gone.set()
        return ""

    authority = world.authority(OAuth(login=wait))
    first = await sent(authority)
    callers = [asyncio.ensure_future(refuse(authority, first)) for _ in range(2)]
    await asyncio.wait_for(asked.wait(), 5)
    callers[0].cancel()
    await settle()
    assert not gone.is_set()
    callers[1].cancel()
    await asyncio.wait_for(gone.wait(), 5)


async def test_closing_ends_a_login_under_way() -> None:
    world = World()
    asked = asyncio.Event()

    async def wait(url: str) -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    authority = world.authority(OAuth(login=wait))
    caller = asyncio.ensure_future(refuse(authority, await sent(authority)))
    await asyncio.wait_for(asked.wait(), 5)
    await authority.close()
    with pytest.raises(AuthorizationFailed, match="cancelled"):
        await caller


async def test_a_deadline_stands_still_while_a_person_is_asked() -> None:
    world = World()
    stopped: list[bool] = []

    async def slow(url: str) -> str:
        stopped.append(limit.is_paused)
        return await world.log_in(url)

    authority = world.authority(OAuth(login=slow, redirect_uri=REDIRECT))
    async with SuspendableTimeout(60) as limit:
        assert not limit.is_paused
        assert await refuse(authority, await sent(authority))
        assert not limit.is_paused
    assert stopped == [True]


# --- what is kept


class Store:
    """A store in a dict; `busy` shows that the lock is held."""

    def __init__(self) -> None:
        self.records: dict[str, bytes] = {}
        self.busy = 0

    async def load(self, key: str) -> bytes | None:
        return self.records.get(key)

    async def save(self, key: str, record: bytes) -> None:
        self.records[key] = record

    async def delete(self, key: str) -> bool:
        return self.records.pop(key, None) is not None

    async def keys(self) -> list[str]:
        return list(self.records)

    @asynccontextmanager
    async def lock(self, key: str) -> AsyncIterator[None]:
        self.busy += 1
        try:
            yield
        finally:
            self.busy -= 1


async def test_a_restart_needs_no_person() -> None:
    """P4: the refresh token is not forgotten."""
    world, store = World({TOKEN: numbered()}), Store()
    authority = world.authority(world.person(store=store))
    await refuse(authority, await sent(authority))
    again = world.authority(OAuth(store=store))
    assert (await sent(again)).token == "access-1"
    assert await refuse(again, await sent(again))
    assert (await sent(again)).token == "access-2"
    assert world.logins == 1


async def test_what_another_process_got_is_used_instead_of_getting_it_again() -> None:
    world, store = World({TOKEN: numbered()}), Store()
    one, two = world.authority(world.person(store=store)), world.authority(world.person(store=store))
    old = await sent(two)
    await refuse(one, await sent(one))
    assert await refuse(two, old)
    assert (await sent(two)).token == "access-1"
    assert world.token_requests == 1


async def test_others_need_not_wait_for_one_persons_login() -> None:
    world, store = World(), Store()
    held: list[int] = []

    async def look(url: str) -> str:
        held.append(store.busy)
        return await world.log_in(url)

    authority = world.authority(OAuth(login=look, redirect_uri=REDIRECT, store=store))
    await refuse(authority, await sent(authority))
    assert held == [0]
    assert store.busy == 0


async def test_a_record_for_another_url_or_client_is_not_used() -> None:
    """C33."""
    world, store = World(), Store()
    authority = world.authority(world.person(store=store, client_id="mine"))
    await refuse(authority, await sent(authority))
    assert (await sent(world.authority(OAuth(store=store)))).token == "access-1"
    assert (await sent(world.authority(OAuth(store=store, client_id="other")))).token is None
    assert (await sent(world.authority(OAuth(store=store, issuer="https://other.example")))).token is None
    elsewhere = OAuthDriver(OAuth(store=store), SERVER + "/x", fetch=world.fetch)
    assert (await sent(elsewhere)).token is None


async def test_clients_that_share_a_grant_share_its_login() -> None:
    world = World()
    grant = world.person()
    one, two = world.authority(grant), world.authority(grant)
    await refuse(one, await sent(one))
    assert (await sent(two)).token == "access-1"


@pytest.mark.parametrize("options", [{"login": 7}, {"store": 7}])
async def test_what_is_neither_a_login_nor_a_store_is_refused(options: dict[str, Any]) -> None:
    world = World()
    with pytest.raises(ConfigError):
        authority = world.authority(OAuth(**options))
        await refuse(authority, await sent(authority))


async def test_a_refused_assertion_stays_refused() -> None:
    world = World({TOKEN: reply({"error": "invalid_grant"}, 400)})
    authority = world.authority(WorkloadIdentity(assertion="a.b.c"))
    for _ in range(3):
        with pytest.raises(AuthorizationFailed):
            await refuse(authority, await sent(authority))
    assert world.token_requests == 1
