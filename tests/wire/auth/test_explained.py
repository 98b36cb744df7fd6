"""Without OAuth, a refusal says what to send; and whoever looks for OAuth all the same is told the same there.

Clients go for OAuth after any 401, whatever its challenge says, and show their users the last thing they heard.
"""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.badges import demo
from tests.support.harness import serve

from trimaran import Host, connect, errors
from trimaran.auth import Anonymous, AnyOf, ApiKey, Basic, Bearer, Custom, ProtectedResource, Provider, Refused
from trimaran.oauth import OAuth
from trimaran.serve import HttpServer

IN_KEY_HEADER = "an API key in the header X-Boat"
IN_AUTHORIZATION = "a token in the header Authorization, as Bearer"


def api_key() -> ApiKey:
    return ApiKey(["good-key"], header="X-Boat")


def bearer(**options: Any) -> Bearer:
    return Bearer(verifier=lambda token: {"sub": "ada"} if token == "good" else None, **options)


class Stamped(Provider):
    """An author's own."""

    header_names = ("x-stamp",)
    expects = "a stamp in the header X-Stamp"

    def presents(self, request: Any) -> bool:
        return request.headers.get("x-stamp") is not None

    async def identify(self, request: Any) -> None:
        raise Refused("missing")

    def challenge(self, refusal: Refused) -> str:
        return "Stamp"


PROVIDERS: dict[str, tuple[Any, str]] = {
    "apikey": (api_key, IN_KEY_HEADER),
    "basic": (lambda: Basic({"ada": "pw"}), "a user name and a password in the header Authorization, as Basic"),
    "secret": (lambda: Bearer(secret="x" * 32), IN_AUTHORIZATION),
    "verifier": (bearer, IN_AUTHORIZATION),
    "custom": (lambda: Custom(lambda token, state: None), f"{IN_AUTHORIZATION}, or in the header X-API-Key"),
    "several": (lambda: AnyOf(api_key(), bearer()), f"{IN_KEY_HEADER}; or {IN_AUTHORIZATION}"),
    "own": (Stamped, "a stamp in the header X-Stamp"),
}
LOGIN_PATHS = [
    "/register",
    "/authorize",
    "/token",
    "/.well-known/oauth-protected-resource",
    "/.well-known/oauth-protected-resource/mcp",
    "/.well-known/oauth-authorization-server",
    "/.well-known/openid-configuration",
]


@pytest.mark.parametrize("kind", PROVIDERS)
async def test_a_401_says_what_to_send_where_clients_read_it(binding: str, kind: str) -> None:
    """R152, R164: a JSON-RPC error, since that is what clients show; and no challenge that speaks of OAuth."""
    make, expected = PROVIDERS[kind]
    async with serve(binding, demo(), auth=make()) as wire:
        reply = await wire.call("whoami")
        assert reply.status == 401
        assert "resource_metadata" not in reply.headers["www-authenticate"]
        assert reply.json == {
            "jsonrpc": "2.0",
            "id": None,
            "error": {
                "code": -32600,
                "message": f"credentials are needed here: send {expected}",
                "data": {"error": "unauthorized"},
            },
        }


@pytest.mark.parametrize("path", LOGIN_PATHS)
@pytest.mark.parametrize("kind", PROVIDERS)
async def test_who_looks_for_oauth_is_told_what_to_send(kind: str, path: str) -> None:
    """An OAuth error: whoever asks there reads nothing else."""
    make, expected = PROVIDERS[kind]
    async with serve("asgi", demo(), auth=make()) as wire:
        verb = "GET" if path.startswith("/.well-known") else "POST"
        reply = await wire.send(verb, {}, b"" if verb == "GET" else b"{}", path=path)
        assert reply.status == 404
        assert reply.json["error"] == "invalid_request"
        said = reply.json["error_description"]
        assert said.startswith("This server has no OAuth")
        assert said.endswith(f"Every request to /mcp needs credentials: send {expected}")


async def test_a_wrong_key_is_told_from_a_missing_one(binding: str) -> None:
    async with serve(binding, demo(), auth=api_key()) as wire:
        reply = await wire.call("whoami", headers={"X-Boat": "bad"})
        assert (
            reply.json["error"]["message"] == f"the credentials are not valid here; this server takes {IN_KEY_HEADER}"
        )
        # Somebody's OAuth token is not a key, so the key is what is missing.
        reply = await wire.call("whoami", headers={"Authorization": "Bearer some"})
        assert reply.json["error"]["message"] == f"credentials are needed here: send {IN_KEY_HEADER}"


async def test_scopes_that_everybody_needs_are_in_the_data(binding: str) -> None:
    """R154, R164: and in the same place where the refusal of a tool has them (R184)."""
    auth = ApiKey(["good-key"], required_scopes=["sail"])
    async with serve(binding, demo(), auth=auth) as wire:
        reply = await wire.call("whoami", headers={"X-API-Key": "good-key"})
        assert reply.status == 403
        assert reply.json["error"]["data"] == {"error": "insufficient_scope", "required_scopes": ["sail"]}


def resource(**options: Any) -> ProtectedResource:
    async def authorize(token: str, auth: Any, request: Any) -> Any:
        raise Refused("invalid_token")

    issuer = "https://login.example.com"
    return ProtectedResource(
        resource="http://127.0.0.1/mcp", authorization_servers=[issuer], authorizer=authorize, **options
    )


@pytest.mark.parametrize(
    "auth",
    [
        pytest.param(lambda: resource(), id="resource"),
        pytest.param(lambda: AnyOf(api_key(), resource()), id="several"),
        pytest.param(lambda: bearer(resource_metadata="https://a.example/metadata"), id="bearer"),
    ],
)
async def test_where_there_is_oauth_the_body_is_an_oauth_error(binding: str, auth: Any) -> None:
    """R174: as before; and a path that is nothing here is nobody's login."""
    async with serve(binding, demo(), auth=auth()) as wire:
        reply = await wire.call("whoami")
        assert "resource_metadata=" in reply.headers["www-authenticate"]
        assert reply.json["error"] == "unauthorized"
        assert (await wire.send("POST", {}, b"{}", path="/register")).json["error"]["code"] == -32600


async def test_with_several_ways_the_key_is_named_beside_the_login(binding: str) -> None:
    async with serve(binding, demo(), auth=AnyOf(api_key(), resource())) as wire:
        assert IN_KEY_HEADER in (await wire.call("whoami")).json["error_description"]


async def test_other_paths_and_open_servers_are_as_ever(binding: str) -> None:
    async with serve(binding, demo(), auth=api_key()) as wire:
        assert "the endpoint is /mcp" in (await wire.send("GET", {}, path="/elsewhere")).json["error"]["message"]
    async with serve(binding, demo(), auth=AnyOf(bearer(), Anonymous())) as wire:
        assert (await wire.call("whoami")).status == 200


@pytest.mark.parametrize(
    ("auth", "remedy"),
    [
        (api_key(), 'give headers={"X-Boat": ...}'),
        (Basic({"ada": "pw"}), 'give headers={"Authorization": "Basic ..."}'),
        (bearer(), "give auth=..."),
        (AnyOf(bearer(), api_key()), 'give headers={"X-Boat": ...}'),
    ],
    ids=["apikey", "basic", "bearer", "several"],
)
async def test_our_own_client_says_which_option_is_missing(auth: Any, remedy: str) -> None:
    async with HttpServer(demo(), port=0, auth=auth) as http:
        with pytest.raises(errors.Unauthorized) as caught:
            async with connect(http.url):
                pass
    assert str(caught.value).endswith(remedy)
    assert auth.expects in str(caught.value)
    assert (caught.value.code, caught.value.data) == (-32600, {"error": "unauthorized"})


@pytest.mark.parametrize(
    ("auth", "said"),
    [
        (api_key(), 'it asks for an API key in the header X-Boat; give headers={"X-Boat": ...}'),
        (Basic({"ada": "pw"}), "it asks for the scheme basic; give headers="),
    ],
    ids=["apikey", "basic"],
)
async def test_our_own_logins_do_not_look_for_oauth_where_there_is_none(auth: Any, said: str) -> None:
    """Nobody is asked to log in, and nothing is registered."""

    async def person(url: str) -> str:
        raise AssertionError("somebody was asked to log in")

    async with HttpServer(demo(), port=0, auth=auth) as http:
        for grant in (OAuth(login=person), OAuth()):
            with pytest.raises(errors.AuthorizationFailed) as caught:
                async with connect(http.url, auth=grant):
                    pass
            assert f"{http.url} has no OAuth, so nobody can log in: {said}" in str(caught.value)
            assert not isinstance(caught.value, errors.LoginRequired)
        async with Host({"boat": {"url": http.url}}, environ={}) as host:
            [status] = host.status()
            assert said in status.reason
