"""How a client refreshes its tokens, and which of them it keeps."""

from __future__ import annotations

import pytest
from tests.support.oauth_stage import ISSUER, NOW, SERVER, metadata, reply, token
from tests.support.oauth_world import TOKEN, World, numbered, refuse, sent

from trimaran import connect
from trimaran.errors import Error
from trimaran.oauth import (
    ClientInfo,
    Credentials,
    HttpReply,
    HttpRequest,
    OAuth,
    ProofKey,
    WorkloadIdentity,
)
from trimaran.state import MemoryTokens, StoreUnusable
from trimaran.state.token_storage import token_key

from .logins import held, meet

KEY = token_key("mcp.example.com", SERVER)


async def kept(record: Credentials) -> MemoryTokens:
    store = MemoryTokens()
    await store.save(KEY, record.to_bytes())
    return store


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
