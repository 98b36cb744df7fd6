"""Token exchange: the caller's token goes to the token endpoint and nowhere else, and what comes back is kept in time."""

from __future__ import annotations

import asyncio
import base64
import copy
import json
import pickle
from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

import msgspec
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey
from tests.support.clock import Clock
from tests.support.until import until

from trimaran.auth.exchange import Secret, TokenExchange
from trimaran.auth.principal import Principal
from trimaran.errors import AuthorizationFailed, ConfigError
from trimaran.oauth.effects import HttpReply, HttpRequest

ENDPOINT = "https://login.example.com/token"
API = "https://api.example.com"
INBOUND = "inbound.token"
KEY = ECKey.generate_key("P-256")
PEM = KEY.as_pem(private=True).decode()


class Endpoint:
    """A token endpoint, as a fetch function sees it."""

    def __init__(self, **reply: Any) -> None:
        self.asked: list[HttpRequest] = []
        self.status = 200
        self.reply: dict[str, Any] = {
            "access_token": "outbound",
            "token_type": "Bearer",
            "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
            "expires_in": 300,
            **reply,
        }
        self.gate: asyncio.Event | None = None

    async def __call__(self, request: HttpRequest) -> HttpReply:
        self.asked.append(request)
        if self.gate is not None:
            await self.gate.wait()
        made = {**self.reply, "access_token": f"{self.reply['access_token']}{len(self.asked)}"}
        return HttpReply(self.status, {}, json.dumps(made if self.status == 200 else self.reply).encode(), request.url)

    @property
    def form(self) -> dict[str, list[str]]:
        return parse_qs((self.asked[-1].body or b"").decode())


class Context:
    """What a handler has."""

    def __init__(self, auth: Principal | None) -> None:
        self.auth = auth


def caller(token: str = INBOUND, **fields: Any) -> Principal:
    return Principal(subject="ann", metadata={"token": Secret(token)}, **fields)


async def made(endpoint: Endpoint, **options: Any) -> TokenExchange:
    exchange = TokenExchange(ENDPOINT, "mcp server", **{"client_secret": "s3cret:%", "clock": Clock(), **options})
    await exchange.start(endpoint)
    return exchange


async def test_a_callers_token_is_exchanged_for_one_for_another_server() -> None:
    endpoint = Endpoint()
    exchange = await made(endpoint)
    token = await exchange.token_for(Context(caller()), audience=API, resource=f"{API}/v1", scopes=["read", "write"])
    assert token == "outbound1"
    [asked] = endpoint.asked
    assert (asked.method, asked.url, asked.step) == ("POST", ENDPOINT, "token exchange")
    assert endpoint.form == {
        "grant_type": ["urn:ietf:params:oauth:grant-type:token-exchange"],
        "subject_token": [INBOUND],
        "subject_token_type": ["urn:ietf:params:oauth:token-type:access_token"],
        "audience": [API],
        "resource": [f"{API}/v1"],
        "scope": ["read write"],
    }


async def test_this_server_shows_its_secret_as_the_endpoint_wants_it() -> None:
    endpoint = Endpoint()
    await (await made(endpoint)).token_for(caller(), audience=API)
    sent = endpoint.asked[-1].headers["Authorization"]
    assert base64.b64decode(sent.removeprefix("Basic ")) == b"mcp+server:s3cret%3A%25"
    await (await made(endpoint, auth_method="client_secret_post")).token_for(caller(), audience=API)
    assert "Authorization" not in endpoint.asked[-1].headers
    assert (endpoint.form["client_id"], endpoint.form["client_secret"]) == (["mcp server"], ["s3cret:%"])


@pytest.mark.parametrize("issuer", [None, "https://login.example.com"])
async def test_this_server_may_sign_instead(issuer: str | None) -> None:
    endpoint = Endpoint()
    exchange = await made(endpoint, client_secret=None, private_key=PEM, kid="k1", issuer=issuer)
    await exchange.token_for(caller(), audience=API)
    [assertion] = endpoint.form["client_assertion"]
    signed = jwt.decode(assertion, KEY)
    assert signed.header["kid"] == "k1"
    assert (signed.claims["iss"], signed.claims["sub"], signed.claims["aud"]) == (
        "mcp server",
        "mcp server",
        issuer or ENDPOINT,
    )
    assert signed.claims["exp"] == 1300
    assert "client_secret" not in endpoint.form


async def test_types_of_tokens_can_be_said() -> None:
    endpoint = Endpoint()
    exchange = await made(endpoint, subject_token_type="jwt", requested_token_type="access_token")
    await exchange.token_for(caller(), audience=API)
    assert endpoint.form["subject_token_type"] == ["urn:ietf:params:oauth:token-type:jwt"]
    assert endpoint.form["requested_token_type"] == ["urn:ietf:params:oauth:token-type:access_token"]


# --- who is calling ---------------------------------------------------------------------------------------------------


async def test_a_context_its_auth_or_the_secret_itself_will_do() -> None:
    endpoint = Endpoint()
    exchange = await made(endpoint)
    for who in (Context(caller()), caller(), Secret(INBOUND)):
        assert await exchange.token_for(who, audience=API) == "outbound1"
    assert len(endpoint.asked) == 1


@pytest.mark.parametrize("who", [None, INBOUND, Context(None), object()], ids=["none", "text", "anonymous", "foreign"])
async def test_without_a_caller_there_is_nothing_to_exchange(who: Any) -> None:
    with pytest.raises(ConfigError, match="this caller is anonymous") as raised:
        await (await made(Endpoint())).token_for(who, audience=API)
    assert INBOUND not in str(raised.value)


@pytest.mark.parametrize("metadata", [{}, {"token": INBOUND}], ids=["nothing", "text"])
async def test_a_token_that_was_not_kept_cannot_be_exchanged(metadata: Mapping[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"ProtectedResource\(exchange=\.\.\.\)"):
        await (await made(Endpoint())).token_for(Principal(subject="ann", metadata=metadata), audience=API)


async def test_it_has_to_be_said_what_the_token_is_for() -> None:
    exchange = await made(Endpoint())
    with pytest.raises(ConfigError, match="audience=, resource= or scopes="):
        await exchange.token_for(caller())
    with pytest.raises(ConfigError, match="a list of strings"):
        await exchange.token_for(caller(), scopes="read")


async def test_before_it_is_started_it_cannot_fetch() -> None:
    exchange = TokenExchange(ENDPOINT, "mcp", "secret")
    with pytest.raises(ConfigError, match=r"start\(fetch\)"):
        await exchange.token_for(caller(), audience=API)


# --- what is kept -----------------------------------------------------------------------------------------------------


async def test_a_token_is_kept_until_shortly_before_it_expires() -> None:
    endpoint, clock = Endpoint(), Clock()
    exchange = await made(endpoint, clock=clock)
    assert await exchange.token_for(caller(), audience=API) == "outbound1"
    clock.now += 269
    assert await exchange.token_for(caller(), audience=API) == "outbound1"
    clock.now += 1
    assert await exchange.token_for(caller(), audience=API) == "outbound2"


async def test_a_token_is_not_kept_longer_than_the_callers_own() -> None:
    endpoint, clock = Endpoint(), Clock()
    exchange = await made(endpoint, clock=clock)
    await exchange.token_for(caller(expires_at=1010.0), audience=API)
    clock.now = 1010.0
    assert await exchange.token_for(caller(expires_at=1010.0), audience=API) == "outbound2"


@pytest.mark.parametrize("expires_in", [None, 30, 0, -5, "soon"])
async def test_a_token_that_does_not_say_how_long_or_not_long_is_not_kept(expires_in: Any) -> None:
    exchange = await made(Endpoint(expires_in=expires_in))
    assert [await exchange.token_for(caller(), audience=API) for _ in range(2)] == ["outbound1", "outbound2"]


async def test_each_caller_and_each_target_has_its_own_token() -> None:
    exchange = await made(Endpoint())
    asks: list[tuple[Principal, dict[str, Any]]] = [
        (caller(), {"audience": API}),
        (caller("another"), {"audience": API}),
        (caller(), {"audience": "https://other.example.com"}),
        (caller(), {"resource": API}),
        (caller(), {"audience": API, "scopes": ["read"]}),
        (caller(), {"audience": API, "scopes": ["read", "write"]}),
    ]
    first = [await exchange.token_for(who, **target) for who, target in asks]
    assert len(set(first)) == len(asks)
    assert [await exchange.token_for(who, **target) for who, target in asks] == first
    assert await exchange.token_for(caller(), audience=API, scopes=["write", "read", "read"]) == first[-1]


async def test_a_fresh_token_replaces_the_one_kept() -> None:
    exchange = await made(Endpoint())
    await exchange.token_for(caller(), audience=API)
    assert await exchange.token_for(caller(), audience=API, fresh=True) == "outbound2"
    assert await exchange.token_for(caller(), audience=API) == "outbound2"


async def test_what_is_kept_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trimaran.auth.exchange._CACHED", 10)
    endpoint = Endpoint()
    exchange = await made(endpoint)
    for number in range(35):
        await exchange.token_for(caller(f"token{number}"), audience=API)
    assert len(exchange._cached) <= 10
    await exchange.token_for(caller("token34"), audience=API)
    assert len(endpoint.asked) == 35


async def test_many_who_want_the_same_token_ask_once() -> None:
    endpoint = Endpoint()
    endpoint.gate = asyncio.Event()
    exchange = await made(endpoint)
    tasks = [asyncio.create_task(exchange.token_for(caller(), audience=API)) for _ in range(5)]
    await until(lambda: endpoint.asked)
    endpoint.gate.set()
    assert await asyncio.wait_for(asyncio.gather(*tasks), 5) == ["outbound1"] * 5
    assert len(endpoint.asked) == 1
    assert not exchange._busy


async def test_who_is_cancelled_while_asking_does_not_take_the_others_along() -> None:
    endpoint = Endpoint()
    endpoint.gate = asyncio.Event()
    exchange = await made(endpoint)
    first = asyncio.create_task(exchange.token_for(caller(), audience=API))
    await until(lambda: endpoint.asked)
    second = asyncio.create_task(exchange.token_for(caller(), audience=API))
    await asyncio.sleep(0)
    first.cancel()
    endpoint.gate.set()
    assert await asyncio.wait_for(second, 5) == "outbound2"
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not exchange._busy


# --- what goes wrong --------------------------------------------------------------------------------------------------


async def test_a_refusal_says_what_the_endpoint_said_and_no_secret() -> None:
    endpoint = Endpoint(error="invalid_target", error_description=f"no {INBOUND} with s3cret:% for this")
    endpoint.status = 400
    exchange = await made(endpoint)
    with pytest.raises(AuthorizationFailed, match="token exchange failed: .* answered 400 invalid_target") as raised:
        await exchange.token_for(caller(), audience=API)
    assert (raised.value.step, raised.value.url, raised.value.code) == ("token exchange", ENDPOINT, "invalid_target")
    assert INBOUND not in str(raised.value)
    assert "s3cret" not in str(raised.value) + repr(exchange)
    endpoint.status = 200
    del endpoint.reply["error"]
    assert await exchange.token_for(caller(), audience=API) == "outbound2"


async def test_the_very_token_that_was_shown_is_not_handed_on() -> None:
    exchange = await made(Endpoint(access_token="inbound.token"))
    with pytest.raises(AuthorizationFailed, match="the caller's own token") as raised:
        await exchange.token_for(caller("inbound.token1"), audience=API)
    assert "inbound.token1" not in str(raised.value)


async def test_a_fetch_that_fails_is_told_and_tried_again() -> None:
    calls: list[HttpRequest] = []

    async def fetch(request: HttpRequest) -> HttpReply:
        calls.append(request)
        raise OSError("no route")

    exchange = TokenExchange(ENDPOINT, "mcp", "secret")
    await exchange.start(fetch)
    for _ in range(2):
        with pytest.raises(OSError, match="no route"):
            await exchange.token_for(caller(), audience=API)
    assert len(calls) == 2
    assert not exchange._busy


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"token_endpoint": "/token"}, "token_endpoint is an absolute URL"),
        ({"token_endpoint": None}, "token_endpoint is an absolute URL"),
        ({"token_endpoint": "https://[login/token"}, "token_endpoint is an absolute URL"),
        ({"token_endpoint": "https://login.example.com/token#a"}, "token_endpoint is an absolute URL"),
        ({"token_endpoint": "https://a b/"}, "token_endpoint is an absolute URL"),
        ({"token_endpoint": "http://login.example.com/token"}, "is not https"),
        ({"client_id": ""}, "client_id is missing"),
        ({"client_secret": None}, "one of client_secret= and private_key="),
        ({"private_key": PEM}, "one of client_secret= and private_key="),
        ({"client_secret": None, "private_key": "nonsense"}, "not PEM"),
        ({"auth_method": "tls"}, "auth_method is"),
        ({"subject_token_type": "cookie"}, "there is no 'cookie'"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"token_endpoint": ENDPOINT, "client_id": "mcp", "client_secret": "s3cret", **options}
    with pytest.raises(ConfigError, match=said) as raised:
        TokenExchange(**given)
    assert "s3cret" not in str(raised.value)
    assert "PRIVATE KEY" not in str(raised.value)


def test_an_endpoint_on_this_machine_or_inside_may_do_without_https() -> None:
    assert TokenExchange("http://127.0.0.1:8080/token", "mcp", "secret")
    assert TokenExchange("http://idp.internal/token", "mcp", "secret", allow_insecure=True)


# --- secrets ----------------------------------------------------------------------------------------------------------


def test_a_secret_does_not_show_itself() -> None:
    secret = Secret("hidden")
    shown = [repr(secret), str(secret), f"{secret}", f"{secret!r:>20}", repr({"token": secret})]
    assert not any("hidden" in text for text in shown)
    assert secret.reveal() == "hidden"
    for leak in (pickle.dumps, msgspec.json.encode, json.dumps, copy.copy, copy.deepcopy, hash, vars):
        with pytest.raises(TypeError):
            leak(secret)


def test_secrets_are_compared_by_what_they_hold() -> None:
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
