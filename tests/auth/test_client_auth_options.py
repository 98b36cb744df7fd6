"""Challenges and options of a client that logs in."""

from __future__ import annotations

import contextlib
import sys
from typing import Any

import pytest
from aiohttp import web
from tests.support.oauth_stage import SERVER, Stage, token
from tests.support.oauth_world import TOKEN, World

from trimaran import connect
from trimaran.errors import AuthorizationFailed, ConfigError, Unauthorized
from trimaran.oauth import (
    ClientCredentials,
    Grant,
    OAuth,
)
from trimaran.oauth.grant import CredentialNeed
from trimaran.transports import http_client
from trimaran.transports.http_client import HttpWire
from trimaran.transports.oauth_driver import OAuthDriver

from .logins import meet


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
    wire._pool = http_client._AioPool(url, None, None, cookies=False)  # pyright: ignore[reportPrivateUsage]
    try:
        with pytest.raises(Unauthorized) as caught:
            await wire.send("POST", b"{}", None)
    finally:
        await wire.close()
        await runner.cleanup()
    assert "resource_metadata" in caught.value.www_authenticate


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
        connect("https://example.com/mcp", auth=OAuth)  # pyright: ignore[reportArgumentType] - the mistake in question


async def test_an_operators_own_endpoints_need_no_other_trust() -> None:
    """R256: as for ClientCredentials. A company's own token endpoint is in the company's own network."""
    stage = Stage({"https://sso.corp.example/token": token()})
    grant = OAuth(
        client_id="c",
        login=lambda url: url,
        authorization_endpoint="https://sso.corp.example/authorize",
        token_endpoint="https://sso.corp.example/token",
    )
    need = CredentialNeed(why="refused", server_url=SERVER, www_authenticate="Bearer")
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
        await OAuthDriver(grant, server, fetch=world.fetch).credentials("POST", server)
