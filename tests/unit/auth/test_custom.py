"""Authentication in the author's own words (R162)."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from trimaran.auth import Custom, Principal, Refused
from trimaran.errors import ConfigError


class House:
    """Two methods, and a state that counts."""

    async def init(self, opts: Any) -> Any:
        return {"known": opts["known"], "seen": 0}

    async def authenticate(self, token: str, state: Any) -> Any:
        state = {**state, "seen": state["seen"] + 1}
        if token in state["known"]:
            return {"subject": token, "scopes": ["read"], "seen": state["seen"], "team": 7}, state
        return f"{token} is not known", state


@pytest.fixture
async def house() -> Custom:
    provider = Custom(House(), {"known": ["ada"]})
    await provider.start()
    return provider


async def test_init_makes_the_state_that_calls_hand_on(house: Custom, request_with: Any) -> None:
    """R162: init(opts), authenticate(token, state) -> (info, state); extra keys stay in claims."""
    for number in (1, 2):
        found: Any = await house.authenticate(request_with("Bearer ada"))
        assert (found.subject, found.scopes) == ("ada", {"read"})
        assert found.claims == {"seen": number, "team": 7}
    with pytest.raises(Refused):
        await house.authenticate(request_with("Bearer eve"))
    found = await house.authenticate(request_with(x_api_key="ada"))
    assert found.claims["seen"] == 4


async def test_the_token_is_of_bearer_and_else_the_api_key(house: Custom, request_with: Any) -> None:
    """R162."""
    for request in (
        request_with("bearer ada"),
        request_with(x_api_key="ada"),
        request_with("Bearer ada", x_api_key="eve"),
    ):
        assert house.presents(request)
        found: Any = await house.authenticate(request)
        assert found.subject == "ada"
    assert house.header_names == ("x-api-key",)
    assert not house.presents(request_with("Basic x"))


async def test_a_refusal_says_no_reason_and_the_log_does(
    house: Custom, request_with: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """R162: 401 with `Bearer realm="mcp"`."""
    caplog.set_level(logging.INFO, "trimaran.auth")
    with pytest.raises(Refused) as caught:
        await house.authenticate(request_with("Bearer eve"))
    refusal = caught.value
    assert refusal.status == 401
    assert dict(refusal.headers)["www-authenticate"] == 'Bearer realm="mcp"'
    assert "not known" not in refusal.body.decode()
    assert "eve is not known" in caplog.text


async def test_without_a_token_it_is_not_called(house: Custom, request_with: Any) -> None:
    for request in (request_with(), request_with("Bearer"), request_with("Basic x"), request_with(x_api_key="")):
        with pytest.raises(Refused) as caught:
            await house.authenticate(request)
        assert caught.value.kind == "missing"
        assert caught.value.challenges == ('Bearer realm="mcp"',)
    found: Any = await house.authenticate(request_with("Bearer ada"))
    assert found.claims["seen"] == 1


@pytest.mark.parametrize(
    ("answer", "subject"),
    [
        ({"subject": "ada"}, "ada"),
        (({"subject": "ada"}, None), "ada"),
        ((Principal(subject="ada"), 7), "ada"),
        ({"claims": {"sub": "ada"}}, "ada"),
        ({"subject": "", "claims": {"sub": "ada"}}, "ada"),
        ({"client_id": "app"}, "client:app"),
    ],
)
async def test_a_plain_function_will_do(request_with: Any, answer: Any, subject: str) -> None:
    for provider in (Custom(lambda _token, _state: answer), Custom(authenticate=lambda _token, _state: answer)):
        await provider.start()
        found: Any = await provider.authenticate(request_with("Bearer x"))
        assert found.subject == subject


@pytest.mark.parametrize(
    ("info", "scopes"),
    [
        ({"scopes": ["a"], "scope": "b"}, {"a"}),
        ({"scopes": [], "scope": "b"}, set()),
        ({"scopes": "a b"}, {"a", "b"}),
        ({"scopes": {"a"}}, {"a"}),
        ({"scope": "b"}, {"b"}),
        ({"claims": {"scp": ["c"]}}, {"c"}),
        ({}, set()),
    ],
)
async def test_what_it_says_of_scopes_goes_before_what_claims_say(
    request_with: Any, info: Any, scopes: set[str]
) -> None:
    found: Any = await Custom(lambda _token, _state: info).authenticate(request_with("Bearer x"))
    assert found.scopes == scopes


async def test_callers_without_a_name_are_not_the_same(request_with: Any) -> None:
    provider = Custom(lambda _token, _state: True)
    one: Any = await provider.authenticate(request_with("Bearer x"))
    two: Any = await provider.authenticate(request_with("Bearer y"))
    assert one.identity != two.identity


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (None, 401),
        (False, 401),
        ((None, 1), 401),
        ("reason", 401),
        ((ValueError("reason"), 1), 401),
        ((Refused("insufficient_scope"), 1), 403),
        (7, 500),
        (("ok", {}, {}), 500),
        ({"scopes": 7}, 500),
        ({"scopes": 0}, 500),
        ({"scopes": {"admin": True}}, 500),
        ({"subject": 0}, 500),
        ({"claims": 7}, 500),
        ({"claims": {"sub": 7}}, 500),
        ({"metadata": "x"}, 500),
        ({"issuer": ["x"]}, 500),
    ],
)
async def test_what_is_not_clearly_a_yes_is_refused(request_with: Any, answer: Any, status: int) -> None:
    with pytest.raises(Refused) as caught:
        await Custom(lambda _token, _state: answer).authenticate(request_with("Bearer x"))
    assert caught.value.status == status
    assert b"reason" not in caught.value.body


async def test_what_it_raises_is_our_fault_unless_it_refuses(
    request_with: Any, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(token: str, state: Any) -> Any:
        raise LookupError(token)

    def refusing(token: str, state: Any) -> Any:
        raise Refused("expired_token", "log in again")

    with pytest.raises(Refused) as caught:
        await Custom(failing).authenticate(request_with("Bearer opaque-secret"))
    assert caught.value.status == 500
    assert "opaque-secret" not in caplog.text
    with pytest.raises(Refused, match="log in again"):
        await Custom(refusing).authenticate(request_with("Bearer x"))


async def test_an_init_that_fails_keeps_the_server_from_starting() -> None:
    """R166."""

    def init(opts: Any) -> Any:
        raise LookupError("no database")

    with pytest.raises(LookupError, match="no database"):
        await Custom(authenticate=lambda _token, _state: True, init=init).start()


async def test_without_init_the_options_are_the_state(request_with: Any) -> None:
    provider = Custom(lambda token, state: {"subject": state[token]}, {"x": "ada"})
    found: Any = await provider.authenticate(request_with("Bearer x"))
    assert found.subject == "ada"


async def test_scopes_and_expiry_hold_here_too(request_with: Any, clock: Any) -> None:
    """R154."""
    provider = Custom(lambda _token, _state: {"subject": "ada", "scopes": "read"}, required_scopes=["write"])
    with pytest.raises(Refused) as caught:
        await provider.authenticate(request_with("Bearer x"))
    assert caught.value.status == 403
    assert 'scope="write"' in caught.value.challenges[0]
    provider = Custom(lambda _token, _state: {"subject": "ada", "expires_at": clock.now}, clock=clock)
    with pytest.raises(Refused) as caught:
        await provider.authenticate(request_with("Bearer x"))
    assert caught.value.kind == "expired_token"


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"source": object()},
        {"source": print, "authenticate": print},
        {"authenticate": 7},
        {"source": print, "init": 7},
    ],
)
def test_what_cannot_work_is_said_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        Custom(**options)
