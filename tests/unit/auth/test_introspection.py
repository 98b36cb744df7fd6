"""Opaque tokens: the authorization server is asked properly, believed exactly, and its silence opens nothing (RFC 7662)."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from typing import Any
from urllib.parse import parse_qs

import pytest
from tests.support.until import PATIENCE, until

from trimaran.auth import Introspection, Refused
from trimaran.errors import AuthorizationFailed, ConfigError, UnsafeUrl
from trimaran.oauth.effects import HttpReply, HttpRequest

ENDPOINT = "https://issuer.example/introspect"


class Issuer:
    def __init__(self, **claims: Any) -> None:
        self.reply: Any = {"active": True, "sub": "ada", "scope": "read", **claims}
        self.status = 200
        self.failure: BaseException | None = None
        self.gate: asyncio.Event | None = None
        self.asked: list[HttpRequest] = []

    async def __call__(self, request: HttpRequest) -> HttpReply:
        self.asked.append(request)
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        body = self.reply if isinstance(self.reply, bytes) else json.dumps(self.reply).encode()
        return HttpReply(self.status, {}, body)


@pytest.fixture
async def issuer() -> Issuer:
    return Issuer()


@pytest.fixture
async def make(issuer: Issuer, clock: Any) -> Any:
    async def started(**options: Any) -> Introspection:
        given: dict[str, Any] = {"client_id": "rs", "client_secret": "geheim", "clock": clock, **options}
        provider = Introspection(ENDPOINT, **given)
        await provider.start(issuer)
        return provider

    return started


async def test_the_token_is_asked_about_with_our_own_credentials(make: Any, issuer: Issuer, request_with: Any) -> None:
    """RFC 7662, 2.1; RFC 6749, 2.3.1: both halves form-encoded before they are joined."""
    provider = await make(client_id="r s:1", client_secret="gé%:+/")
    found = await provider.authenticate(request_with("Bearer opa~que+1"))
    assert (found.subject, found.scopes) == ("ada", {"read"})
    (asked,) = issuer.asked
    assert (asked.method, asked.url, asked.server_url) == ("POST", ENDPOINT, ENDPOINT)
    assert asked.headers["Content-Type"] == "application/x-www-form-urlencoded"
    assert asked.body is not None
    assert parse_qs(asked.body.decode()) == {"token": ["opa~que+1"], "token_type_hint": ["access_token"]}
    scheme, _, pair = asked.headers["Authorization"].partition(" ")
    assert (scheme, base64.b64decode(pair)) == ("Basic", b"r+s%3A1:g%C3%A9%25%3A%2B%2F")


async def test_the_credentials_may_go_into_the_form(make: Any, issuer: Issuer, request_with: Any) -> None:
    provider = await make(auth_method="client_secret_post")
    await provider.authenticate(request_with("Bearer x"))
    (asked,) = issuer.asked
    assert "Authorization" not in asked.headers
    assert asked.body is not None
    assert parse_qs(asked.body.decode()) == {
        "token": ["x"],
        "token_type_hint": ["access_token"],
        "client_id": ["rs"],
        "client_secret": ["geheim"],
    }


async def test_a_token_that_is_not_active_is_refused_and_asked_about_again(
    make: Any, issuer: Issuer, request_with: Any
) -> None:
    issuer.reply = {"active": False, "sub": "ada"}
    provider = await make()
    for _ in range(2):
        with pytest.raises(Refused) as caught:
            await provider.authenticate(request_with("Bearer x"))
        assert caught.value.kind == "invalid_token"
        assert caught.value.challenges
    assert len(issuer.asked) == 2


@pytest.mark.parametrize(
    ("status", "reply"),
    [
        (200, {}),
        (200, {"active": "true"}),
        (200, {"active": 1}),
        (200, {"active": None}),
        (200, []),
        (200, b"active"),
        (200, b""),
        (200, b"[" * 50_000),
        (201, {"active": True}),
        (302, {"active": True}),
        (401, {"active": True}),
        (404, b""),
        (429, b""),
        (500, {"active": True}),
    ],
)
async def test_an_answer_that_is_no_verdict_opens_nothing(
    make: Any, issuer: Issuer, request_with: Any, status: int, reply: Any, caplog: pytest.LogCaptureFixture
) -> None:
    issuer.status, issuer.reply = status, reply
    provider = await make()
    with pytest.raises(Refused) as caught:
        await provider.authenticate(request_with("Bearer opaque-secret"))
    refusal = caught.value
    expected = (503, "temporarily_unavailable") if status in (429, 500) else (500, "server_error")
    assert (refusal.status, refusal.code) == expected
    assert "www-authenticate" not in dict(refusal.headers)
    assert f"{ENDPOINT} answered {status} without a verdict" in caplog.text
    assert "opaque-secret" not in caplog.text


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (OSError("opaque-secret"), "server_error"),
        (UnsafeUrl("inside", step="s"), "server_error"),
        (TimeoutError(), "unavailable"),
        (ConnectionError("opaque-secret"), "unavailable"),
        (AuthorizationFailed("no connection", step="s"), "unavailable"),
    ],
    ids=repr,
)
async def test_an_authorization_server_that_cannot_be_asked_opens_nothing(
    make: Any, issuer: Issuer, request_with: Any, failure: Exception, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider = await make()
    issuer.failure = failure
    with pytest.raises(Refused) as caught:
        await provider.authenticate(request_with("Bearer opaque-secret"))
    assert caught.value.kind == kind
    assert "opaque-secret" not in caplog.text
    assert "geheim" not in caplog.text
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


async def test_an_authorization_server_that_is_silent_opens_nothing(
    make: Any, issuer: Issuer, request_with: Any
) -> None:
    issuer.gate = asyncio.Event()
    provider = await make(timeout=0.01)
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(Refused) as caught:
            await provider.authenticate(request_with("Bearer x"))
    assert caught.value.kind == "unavailable"


async def test_a_caller_that_goes_away_is_not_mistaken_for_a_refusal(
    make: Any, issuer: Issuer, request_with: Any
) -> None:
    issuer.gate = asyncio.Event()
    provider = await make()
    caller = asyncio.create_task(provider.authenticate(request_with("Bearer x")))
    await until(lambda: issuer.asked)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await provider.close()


async def test_who_waits_while_the_provider_is_closed_is_answered(make: Any, issuer: Issuer, request_with: Any) -> None:
    issuer.gate = asyncio.Event()
    provider = await make()
    caller = asyncio.create_task(provider.authenticate(request_with("Bearer x")))
    await until(lambda: issuer.asked)
    await provider.close()
    with pytest.raises(Refused) as refused:
        await caller
    assert refused.value.status == 503


async def test_a_yes_is_remembered_for_half_a_minute(make: Any, issuer: Issuer, request_with: Any, clock: Any) -> None:
    provider = await make()
    for _ in range(3):
        await provider.authenticate(request_with("Bearer x"))
    assert len(issuer.asked) == 1
    clock.now += 30
    issuer.reply = {"active": False}
    with pytest.raises(Refused):
        await provider.authenticate(request_with("Bearer x"))
    assert len(issuer.asked) == 2


async def test_a_yes_is_never_remembered_past_the_expiry(
    make: Any, issuer: Issuer, request_with: Any, clock: Any
) -> None:
    issuer.reply |= {"exp": clock.now + 5}
    provider = await make(clock_skew=0)
    await provider.authenticate(request_with("Bearer x"))
    clock.now += 5
    with pytest.raises(Refused) as caught:
        await provider.authenticate(request_with("Bearer x"))
    assert caught.value.kind == "expired_token"
    assert len(issuer.asked) == 2


@pytest.mark.parametrize(
    ("claims", "kind"),
    [
        ({"aud": "other"}, "invalid_token"),
        ({"aud": None}, "invalid_token"),
        ({"iss": "other"}, "invalid_token"),
        ({"exp": 0}, "expired_token"),
        ({"nbf": 1_900_000_000}, "invalid_token"),
        ({"sub": 7}, "invalid_token"),
        ({"scope": "write"}, "insufficient_scope"),
        ({"cnf": {"jkt": "x"}}, "invalid_token"),
    ],
)
async def test_an_active_token_is_checked_all_the_same(
    make: Any, issuer: Issuer, request_with: Any, claims: Any, kind: str
) -> None:
    """R156."""
    issuer.reply |= {"aud": "api", "iss": "me"}
    provider = await make(audience="api", issuer="me", required_scopes=["read"])
    assert await provider.authenticate(request_with("Bearer good"))
    assert provider.required_scopes == ("read",)
    issuer.reply |= claims
    with pytest.raises(Refused) as caught:
        await provider.authenticate(request_with("Bearer x"))
    assert caught.value.kind == kind


async def test_a_malformed_token_is_not_asked_about(make: Any, issuer: Issuer, request_with: Any) -> None:
    provider = await make()
    for authorization in (None, "Bearer", "Bearer a b", "Bearer " + "x" * 100_000, "Basic YTpi"):
        with pytest.raises(Refused):
            await provider.authenticate(request_with(authorization))
    assert not issuer.asked
    assert provider.presents(request_with("Bearer x"))
    assert not provider.presents(request_with())


async def test_without_a_network_it_does_not_start(clock: Any, request_with: Any) -> None:
    """R166."""
    provider = Introspection(ENDPOINT, "rs", "geheim", clock=clock)
    with pytest.raises(ConfigError, match=r"Bearer\(verifier"):
        await provider.start()
    with pytest.raises(Refused) as caught:
        await provider.authenticate(request_with("Bearer x"))
    assert caught.value.status == 500


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"endpoint": "http://issuer.example/introspect"}, "endpoint"),
        ({"endpoint": "https://rs:geheim@issuer.example/"}, "has a user in it"),
        ({"client_secret": ""}, "client_secret"),
        ({"client_id": None}, "client_id"),
        ({"auth_method": "none"}, "auth_method"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": float("nan")}, "timeout"),
        ({"remember": -1}, "remember"),
    ],
)
def test_what_cannot_work_is_said_at_once(options: dict[str, Any], said: str) -> None:
    given: dict[str, Any] = {"endpoint": ENDPOINT, "client_id": "rs", "client_secret": "geheim", **options}
    with pytest.raises(ConfigError, match=said) as caught:
        Introspection(**given)
    assert "geheim" not in str(caught.value)


def test_an_endpoint_on_this_machine_may_be_plain() -> None:
    for url in ("http://127.0.0.1:9000/i", "http://localhost/i", "http://[::1]:9000/i"):
        assert Introspection(url, "rs", "geheim")
