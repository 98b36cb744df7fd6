"""To whom a client shows its secrets."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import pytest
from aiohttp import web
from tests.support.mean_authority import Seen
from tests.support.oauth_stage import ISSUER, REDIRECT, SERVER, Stage, metadata, reply, resource, token
from tests.support.oauth_world import TOKEN

from trimaran import connect
from trimaran.errors import AuthorizationFailed, Unauthorized
from trimaran.oauth import (
    ClientCredentials,
    HttpReply,
    HttpRequest,
    OAuth,
    WorkloadIdentity,
    build_authorization_url,
)
from trimaran.oauth.grant import CredentialNeed
from trimaran.transports.http_auth import SentCredentials

from .logins import held, meet, whoami


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
    need = CredentialNeed(why="refused", server_url=SERVER, www_authenticate="Bearer")
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
    need = CredentialNeed(why="refused", server_url=SERVER, www_authenticate="Bearer")
    with pytest.raises(AuthorizationFailed) as caught:
        stage.play(grant.acquire(need, stage.world, None))
    text = str(caught.value)
    assert "s%2Fe%2Bc%3Dret" not in text
    assert base64.b64encode(b"c:s%2Fe%2Bc%3Dret").decode() not in text


@pytest.mark.parametrize(
    "thing",
    [
        pytest.param(SentCredentials({"Authorization": "Bearer HUSH"}, "HUSH"), id="what a request was sent with"),
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
