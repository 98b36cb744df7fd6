"""Our client and our server with a real authorization server between them: oidc-provider, a certified OpenID provider.

Everything goes over sockets: discovery, registration, the pages where a person logs in and consents, tokens, proofs.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest

from trimaran import connect, errors
from trimaran.client.options import Era
from trimaran.oauth import ClientCredentials, Credentials, OAuth
from trimaran.state import FileTokens, MemoryTokens
from trimaran.transports.loopback_login import LoopbackLogin

from ..harness import DEADLINE
from .authority import SCOPES, Authority, Person
from .notes import guarded_notes

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]

ERAS = ["modern", "legacy"]
PLACES = [pytest.param(False, id="jwt"), pytest.param(True, id="opaque")]


async def held(store: Any) -> Credentials:
    """The one login in a store."""
    [key] = await store.keys()
    found = Credentials.from_bytes(await store.load(key))
    assert found is not None
    return found


async def login_at(url: str) -> Credentials:
    """A good login at this server."""
    store = MemoryTokens()
    async with connect(url, auth=OAuth(login=Person(), store=store)) as client:
        await client.call_tool("whoami")
    return await held(store)


# --- a person logs in ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opaque", PLACES)
@pytest.mark.parametrize("era", ERAS)
async def test_a_person_logs_in_once_and_calls_tools(authority: Authority, era: Era, opaque: bool) -> None:
    """protocol.md 4.1: discovery, dynamic registration, code with PKCE, resource indicator; the `iss` comes back."""
    person = Person("ada")
    async with (
        guarded_notes(authority, opaque=opaque, required=SCOPES) as url,
        connect(url, era=era, auth=OAuth(login=person)) as client,
    ):
        assert client.era == era
        assert [tool.name for tool in await client.list_tools()] == ["whoami", "write"]
        found = (await client.call_tool("whoami")).data
        assert (await client.call_tool("write", {"text": "hello"})).data == {"written": 5}
    [asked] = person.asked
    assert found["subject"] == "ada"
    assert found["client"] == asked["client_id"]
    assert asked["client_id"] not in ("app", "Trimaran")
    assert asked["resource"] == url
    assert asked["code_challenge_method"] == "S256"
    assert set(asked["scope"].split()) >= set(SCOPES)


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_is_known_already_does_not_register(authority: Authority, era: Era) -> None:
    person = Person("bob")
    async with (
        guarded_notes(authority) as url,
        connect(url, era=era, auth=OAuth(**authority.app, login=person)) as client,
    ):
        found = (await client.call_tool("whoami")).data
    assert (found["subject"], found["client"]) == ("bob", "app")
    assert [asked["client_id"] for asked in person.asked] == ["app"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_browser_comes_back_to_this_machine(authority: Authority, era: Era) -> None:
    """RFC 8252, 7.3: the provider lets a native client use any port of 127.0.0.1."""
    person = Person()
    login = LoopbackLogin(open_browser=False, show=person.visit)
    async with (
        guarded_notes(authority) as url,
        connect(url, era=era, auth=OAuth(**authority.app, login=login)) as client,
    ):
        assert (await client.call_tool("whoami")).data["subject"] == "ada"
    assert urlsplit(person.asked[0]["redirect_uri"]).port
    assert "<html" in person.last_page


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_that_needs_more_asks_the_person_once_more(authority: Authority, era: Era) -> None:
    """protocol.md 4.1 (13): what was asked for before is asked for again, with what is missing."""
    person = Person()
    async with (
        guarded_notes(authority) as url,
        connect(url, era=era, auth=OAuth(login=person)) as client,
    ):
        assert (await client.call_tool("whoami")).data["scopes"] == ["notes:read"]
        assert (await client.call_tool("write", {"text": "hello"})).data == {"written": 5}
        assert (await client.call_tool("whoami")).data["scopes"] == ["notes:read", "notes:write"]
    first, second = ([s for s in asked["scope"].split() if s != "offline_access"] for asked in person.asked)
    assert first == ["notes:read"]
    assert sorted(second) == ["notes:read", "notes:write"]
    # This issuer holds a client to the scopes it registered for, so the step up needs another registration.
    assert person.asked[0]["client_id"] != person.asked[1]["client_id"]


@pytest.mark.parametrize("era", ERAS)
async def test_a_person_who_says_no_is_believed(authority: Authority, era: Era) -> None:
    person = Person(consents=False)
    async with guarded_notes(authority) as url:
        with pytest.raises(errors.AuthorizationFailed) as refused:
            async with connect(url, era=era, auth=OAuth(login=person)) as client:
                await client.call_tool("whoami")
    assert refused.value.code == "access_denied"
    assert len(person.asked) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_without_a_way_to_ask_nobody_is_asked(authority: Authority, era: Era) -> None:
    """R246: a program that nobody watches must not wait for somebody."""
    async with guarded_notes(authority) as url:
        with pytest.raises(errors.LoginRequired):
            async with connect(url, era=era, auth=OAuth()) as client:
                await client.call_tool("whoami")


# --- and stays logged in ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_after_a_restart_no_person_is_needed(authority: Authority, era: Era, tmp_path: Path) -> None:
    """P4: tokens, the refresh token and the registration are kept."""
    person, path = Person(), tmp_path / "tokens"
    async with guarded_notes(authority) as url:
        for _ in range(2):
            async with connect(url, era=era, auth=OAuth(login=person, store=FileTokens(path))) as client:
                assert (await client.call_tool("whoami")).data["subject"] == "ada"
        async with connect(url, era=era, auth=OAuth(store=FileTokens(path))) as client:
            assert (await client.call_tool("whoami")).data["subject"] == "ada"
    assert len(person.asked) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_a_token_that_ended_is_replaced_without_the_person(authority: Authority, era: Era) -> None:
    """Refresh with rotation: each refresh token is good once, and the last one given is the one that is kept."""
    person, store = Person(), MemoryTokens()
    async with (
        guarded_notes(authority, opaque=True) as url,
        connect(url, era=era, auth=OAuth(**authority.app, login=person, store=store)) as client,
    ):
        await client.call_tool("whoami")
        seen = [await held(store)]
        for _ in range(2):
            await authority.expire(seen[-1].access_token)
            assert await status_with(url, seen[-1].access_token) == 401
            assert (await client.call_tool("whoami")).data["subject"] == "ada"
            seen.append(await held(store))
    assert len({login.access_token for login in seen}) == len({login.refresh_token for login in seen}) == 3
    assert len(person.asked) == 1
    form = {"grant_type": "refresh_token", "refresh_token": seen[0].refresh_token or ""}
    status, said = await authority.post("/token", form, client=authority.app)
    assert (status, said["error"]) == (400, "invalid_grant")


async def test_many_calls_refused_at_once_make_one_refresh(authority: Authority) -> None:
    """With rotation a second refresh would show a token that is spent, and the login would be lost."""
    person, store = Person(), MemoryTokens()
    async with (
        guarded_notes(authority, opaque=True) as url,
        connect(url, auth=OAuth(**authority.app, login=person, store=store)) as client,
    ):
        await client.call_tool("whoami")
        await authority.expire((await held(store)).access_token)
        results = await asyncio.gather(*(client.call_tool("whoami") for _ in range(10)))
        assert [result.data["subject"] for result in results] == ["ada"] * 10
        await authority.expire((await held(store)).access_token)
        assert (await client.call_tool("whoami")).data["subject"] == "ada"
    assert len(person.asked) == 1


async def test_two_clients_with_one_store_share_one_refresh(authority: Authority, tmp_path: Path) -> None:
    """As two programs would: who comes second finds what the first one got."""
    person, path = Person(), tmp_path / "tokens"

    def grant() -> OAuth:
        return OAuth(**authority.app, login=person, store=FileTokens(path))

    async with (
        guarded_notes(authority, opaque=True) as url,
        connect(url, auth=grant()) as first,
    ):
        await first.call_tool("whoami")
        async with connect(url, auth=grant()) as second:
            await second.call_tool("whoami")
            await authority.expire((await held(FileTokens(path))).access_token)
            calls = (client.call_tool("whoami") for client in (first, second))
            assert [result.data["subject"] for result in await asyncio.gather(*calls)] == ["ada", "ada"]
    assert len(person.asked) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_a_revoked_token_is_refused_and_the_person_is_asked_again(authority: Authority, era: Era) -> None:
    """RFC 7009: this provider takes the refresh token back with it, as it may. RFC 7662 tells our server at once."""
    person, store = Person(), MemoryTokens()
    async with (
        guarded_notes(authority, opaque=True) as url,
        connect(url, era=era, auth=OAuth(**authority.app, login=person, store=store)) as client,
    ):
        await client.call_tool("whoami")
        token = (await held(store)).access_token
        assert await status_with(url, token) == 200
        await authority.revoke(token)
        assert await status_with(url, token) == 401
        assert (await client.call_tool("whoami")).data["subject"] == "ada"
    assert len(person.asked) == 2


@pytest.mark.parametrize("era", ERAS)
async def test_when_the_refresh_token_is_revoked_the_error_says_that_a_login_is_needed(
    authority: Authority, era: Era
) -> None:
    person, store = Person(), MemoryTokens()
    async with guarded_notes(authority, opaque=True) as url:
        async with connect(url, era=era, auth=OAuth(**authority.app, login=person, store=store)) as client:
            await client.call_tool("whoami")
        await authority.revoke((await held(store)).refresh_token)
        with pytest.raises(errors.LoginRequired):
            async with connect(url, era=era, auth=OAuth(**authority.app, store=store)) as client:
                await client.call_tool("whoami")
    assert len(person.asked) == 1


# --- programs --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opaque", PLACES)
@pytest.mark.parametrize("who", ["robot", "poster", "signer"])
@pytest.mark.parametrize("era", ERAS)
async def test_a_program_gets_in_by_itself(authority: Authority, era: Era, who: str, opaque: bool) -> None:
    """Client credentials by HTTP Basic (with a secret that must be encoded), in the body, and by a signed assertion."""
    if who == "signer":
        grant = ClientCredentials(client_id="signer", private_key=authority.private_key)
    else:
        grant = ClientCredentials(**getattr(authority, who))
    async with (
        guarded_notes(authority, opaque=opaque) as url,
        connect(url, era=era, auth=grant) as client,
    ):
        found = (await client.call_tool("whoami")).data
    assert (found["client"], found["scopes"]) == (who, ["notes:read"])


async def test_a_wrong_secret_gets_nobody_in(authority: Authority) -> None:
    async with guarded_notes(authority) as url:
        grant = ClientCredentials(client_id="robot", client_secret="not-the-secret-of-robot")
        with pytest.raises(errors.AuthorizationFailed) as refused:
            async with connect(url, auth=grant) as client:
                await client.call_tool("whoami")
    assert refused.value.code == "invalid_client"
    assert "not-the-secret-of-robot" not in str(refused.value)


# --- bound to a key --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opaque", PLACES)
@pytest.mark.parametrize("era", ERAS)
async def test_a_bound_token_is_proved_on_every_call(authority: Authority, era: Era, opaque: bool) -> None:
    """RFC 9449, both sides, nonces demanded by both: the authorization server's and ours."""
    person, store = Person(), MemoryTokens()
    async with (
        guarded_notes(authority, opaque=opaque, dpop=True) as url,
        connect(url, era=era, auth=OAuth(login=person, store=store, dpop=True)) as client,
    ):
        for _ in range(3):
            assert (await client.call_tool("whoami")).data["subject"] == "ada"
        found = await held(store)
        assert found.token_type.lower() == "dpop"
        assert await status_with(url, found.access_token) == 401
        assert await status_with(url, found.access_token, scheme="DPoP") == 401
    assert len(person.asked) == 1


@pytest.mark.parametrize("era", ERAS)
async def test_a_bound_token_is_refreshed_with_the_same_key(authority: Authority, era: Era, tmp_path: Path) -> None:
    person, path = Person(), tmp_path / "tokens"
    async with guarded_notes(authority, opaque=True, dpop=True) as url:
        async with connect(url, era=era, auth=OAuth(login=person, store=FileTokens(path), dpop=True)) as client:
            await client.call_tool("whoami")
        before = await held(FileTokens(path))
        await authority.expire(before.access_token)
        async with connect(url, era=era, auth=OAuth(store=FileTokens(path), dpop=True)) as client:
            assert (await client.call_tool("whoami")).data["subject"] == "ada"
        after = await held(FileTokens(path))
        assert after.access_token != before.access_token
        assert after.proof_key == before.proof_key
    assert len(person.asked) == 1


async def test_a_token_that_is_bound_to_nothing_is_no_use_where_binding_is_demanded(authority: Authority) -> None:
    async with guarded_notes(authority, dpop=True) as url:
        with pytest.raises(errors.Unauthorized):
            async with connect(url, auth=OAuth(login=Person())) as client:
                await client.call_tool("whoami")


# --- what is for others ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("opaque", PLACES)
async def test_a_token_for_one_server_is_no_use_at_another(authority: Authority, opaque: bool) -> None:
    """P50: the audience is compared as it is written; a good signature, or an active token, is not enough."""
    async with guarded_notes(authority, opaque=opaque) as here, guarded_notes(authority, opaque=opaque) as there:
        token = (await login_at(here)).access_token
        assert await status_with(here, token) == 200
        assert await status_with(there, token) == 401


@pytest.mark.parametrize("opaque", PLACES)
async def test_a_token_that_nobody_issued_is_refused(authority: Authority, opaque: bool) -> None:
    async with guarded_notes(authority, opaque=opaque) as url:
        assert await status_with(url, "nobody-issued-this") == 401
        assert await status_with(url, None) == 401


async def status_with(url: str, token: str | None, *, scheme: str = "Bearer") -> int:
    """What a bare request with this token is answered with."""
    body = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "bare", "version": "1"},
        },
    }
    headers = {"accept": "application/json, text/event-stream"}
    if token is not None:
        headers["authorization"] = f"{scheme} {token}"
    async with aiohttp.ClientSession() as http, http.post(url, json=body, headers=headers) as answer:
        if answer.status == 401:
            assert "resource_metadata=" in answer.headers["www-authenticate"]
        return answer.status
