"""API keys: from a table, hashed or not, or by a function; found without telling how near a guess was."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from trimaran.auth import ApiKey, Principal, Refused, apikey, hash_key
from trimaran.errors import ConfigError

KEY = "k-0123456789abcdef"


@pytest.fixture
def refused(request_with: Any) -> Any:
    async def authenticate(provider: ApiKey, authorization: str | None = None, **headers: str) -> Refused:
        with pytest.raises(Refused) as caught:
            await provider.authenticate(request_with(authorization, **headers))
        return caught.value

    return authenticate


async def test_a_table_says_who_has_which_key(request_with: Any) -> None:
    """R157: key -> {subject, scopes, metadata}; whatever else is there becomes a claim."""
    provider = ApiKey({KEY: {"subject": "ada", "scopes": ["read"], "metadata": {"plan": "pro"}, "team": 7}})
    for request in (request_with(x_api_key=KEY), request_with(f"ApiKey {KEY}"), request_with(f"apikey  {KEY}")):
        found: Any = await provider.authenticate(request)
        assert (found.subject, found.scopes, found.metadata) == ("ada", {"read"}, {"plan": "pro"})
        assert found.claims == {"team": 7}
        assert provider.presents(request)


async def test_a_plain_list_will_do_and_its_keys_stay_apart(request_with: Any) -> None:
    """R157. The subject does not give the key away."""
    provider = ApiKey([KEY, KEY + "x"])
    one: Any = await provider.authenticate(request_with(x_api_key=KEY))
    two: Any = await provider.authenticate(request_with(x_api_key=KEY + "x"))
    assert one.subject != two.subject
    assert KEY not in one.subject
    again: Any = await ApiKey([KEY]).authenticate(request_with(x_api_key=KEY))
    assert again.subject == one.subject


async def test_the_header_may_have_another_name(request_with: Any, refused: Any) -> None:
    """R152, R157."""
    provider = ApiKey([KEY], header="X-Token")
    assert await provider.authenticate(request_with(x_token=KEY))
    assert provider.header_names == ("x-token",)
    assert ApiKey([KEY]).header_names == ("x-api-key",)
    refusal = await refused(provider, x_api_key=KEY)
    assert refusal.kind == "missing"
    assert dict(refusal.headers)["www-authenticate"] == 'ApiKey header="X-Token"'


@pytest.mark.parametrize("wrong", ["k-0123456789abcde", KEY + "x", KEY.upper(), "x", hash_key(KEY), hash_key(KEY, "p")])
@pytest.mark.parametrize("hashed", [False, True])
async def test_another_key_is_refused(refused: Any, wrong: str, hashed: bool) -> None:
    """R164. What is stored does not open the door, either."""
    provider = ApiKey([hash_key(KEY), hash_key(KEY, "p")], hash_keys=True, pepper="p") if hashed else ApiKey([KEY])
    for _ in range(2):
        refusal = await refused(provider, x_api_key=wrong)
        assert (refusal.status, refusal.code) == (401, "invalid_credentials")
        assert refusal.challenges == ('ApiKey header="X-API-Key"',)


async def test_without_a_key_there_is_a_challenge(refused: Any) -> None:
    """R164."""
    provider = ApiKey([KEY], realm="mcp")
    for headers in ({}, {"authorization": "Bearer x"}, {"x_api_key": ""}, {"authorization": "ApiKey"}):
        refusal = await refused(provider, **headers)
        assert (refusal.kind, refusal.status) == ("missing", 401)
        assert refusal.challenges == ('ApiKey realm="mcp", header="X-API-Key"',)


@pytest.mark.parametrize("pepper", [None, "pepper", b"pepper"])
async def test_keys_may_be_stored_hashed(request_with: Any, pepper: Any) -> None:
    """R158: both forms, side by side if there is a pepper."""
    table = {hash_key(KEY + "old"): {"subject": "old"}, hash_key(KEY, pepper): {"subject": "new"}}
    provider = ApiKey(table, hash_keys=True, pepper=pepper)
    for _ in range(2):
        old: Any = await provider.authenticate(request_with(x_api_key=KEY + "old"))
        new: Any = await provider.authenticate(request_with(x_api_key=KEY))
        assert (old.subject, new.subject) == ("old", "new")


async def test_the_wrong_pepper_matches_nothing(refused: Any) -> None:
    provider = ApiKey([hash_key(KEY, "pepper")], hash_keys=True, pepper="other")
    assert (await refused(provider, x_api_key=KEY)).kind == "invalid_credentials"


async def test_keys_are_found_by_a_digest_and_compared_in_constant_time(
    request_with: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R161: neither the key nor what is stored of it is ever the key of a table."""
    seen: list[tuple[bytes, bytes]] = []

    def compare(a: bytes, b: bytes) -> bool:
        seen.append((a, b))
        return a == b

    monkeypatch.setattr(apikey.hmac, "compare_digest", compare)
    provider = ApiKey([KEY])
    assert all(isinstance(place, bytes) and KEY.encode() not in place for place in provider._entries)
    assert await provider.authenticate(request_with(x_api_key=KEY))
    assert seen == [(KEY.encode(), KEY.encode())]
    other = ApiKey([KEY])
    assert provider._entries.keys().isdisjoint(other._entries.keys())


@pytest.mark.parametrize(
    ("answer", "subject"),
    [
        ({"subject": "ada"}, "ada"),
        ({"subject": "ada", "scopes": "read write"}, "ada"),
        (Principal(subject="ada"), "ada"),
        (True, f"key:{hash_key(KEY)[:12]}"),
        ({}, f"key:{hash_key(KEY)[:12]}"),
        (Principal(), f"key:{hash_key(KEY)[:12]}"),
    ],
)
async def test_a_function_may_know_the_keys(request_with: Any, answer: Any, subject: str) -> None:
    """R157: verifier(key), asked every time."""
    asked: list[str] = []

    async def verifier(key: str) -> Any:
        asked.append(key)
        return answer

    provider = ApiKey(verifier=verifier)
    for _ in range(2):
        found: Any = await provider.authenticate(request_with(x_api_key=KEY))
        assert found.subject == subject
    assert asked == [KEY, KEY]


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (None, 401),
        (False, 401),
        ("a reason", 401),
        (KeyError("k"), 401),
        (Refused("insufficient_scope"), 403),
        (7, 500),
        ([], 500),
    ]
    + [({"subject": 7}, 500), ({"scopes": 7}, 500), ({"metadata": 7}, 500), ({"expires_at": "soon"}, 500)],
)
async def test_what_a_function_does_not_clearly_allow_is_refused(
    refused: Any, answer: Any, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "trimaran.auth")
    refusal = await refused(ApiKey(verifier=lambda _key: answer), x_api_key=KEY)
    assert refusal.status == status
    assert "a reason" not in str(refusal.body) + str(refusal.headers)
    assert answer != "a reason" or "a reason" in caplog.text


async def test_a_function_that_fails_is_our_fault(refused: Any, caplog: pytest.LogCaptureFixture) -> None:
    def verifier(key: str) -> Any:
        raise RuntimeError(key)

    assert (await refused(ApiKey(verifier=verifier), x_api_key=KEY)).status == 500
    assert KEY not in caplog.text


async def test_a_key_may_expire(request_with: Any, refused: Any, clock: Any) -> None:
    provider = ApiKey({KEY: {"subject": "ada", "expires_at": clock.now + 10}}, clock=clock)
    assert await provider.authenticate(request_with(x_api_key=KEY))
    clock.now += 10
    assert (await refused(provider, x_api_key=KEY)).kind == "invalid_credentials"


async def test_scopes_are_demanded_of_keys_too(request_with: Any, refused: Any) -> None:
    """R154."""
    provider = ApiKey({KEY: {"scopes": ["read"]}, KEY + "w": {"scopes": ["read", "write"]}}, required_scopes=["write"])
    assert await provider.authenticate(request_with(x_api_key=KEY + "w"))
    refusal = await refused(provider, x_api_key=KEY)
    assert (refusal.status, refusal.challenges) == (403, ('ApiKey header="X-API-Key"',))


@pytest.mark.parametrize("headers", [{"x_api_key": "a, b"}, {"x_api_key": "é"}, {"x_api_key": "k" * 10_000_000}])
async def test_a_malformed_key_is_a_bad_request(refused: Any, headers: dict[str, str]) -> None:
    assert (await refused(ApiKey([KEY]), **headers)).status == 400


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "one of keys= and verifier="),
        ({"keys": [KEY], "verifier": print}, "one of keys= and verifier="),
        ({"keys": []}, "keys must not be empty"),
        ({"keys": {}}, "keys must not be empty"),
        ({"keys": KEY}, "not one string"),
        ({"keys": ["a b"]}, "number 1 cannot be sent"),
        ({"keys": [KEY, ""]}, "number 2 cannot be sent"),
        ({"keys": [KEY, 7]}, "number 2 cannot be sent"),
        ({"keys": ["a,b"]}, "number 1 cannot be sent"),
        ({"keys": {KEY: 7}}, "number 1 has a int"),
        ({"keys": {KEY: {"scopes": 7}}}, "number 1"),
        ({"keys": {KEY: {"subject": 7}}}, "number 1"),
        ({"keys": [KEY], "hash_keys": True}, "number 1 is not a hash made by hash_key"),
        ({"keys": [hash_key(KEY, "p")], "hash_keys": True}, "without pepper= it never matches"),
        ({"keys": [hash_key(KEY, "p")]}, "say so with hash_keys=True"),
        ({"keys": [KEY], "pepper": ""}, "pepper"),
        ({"keys": [KEY], "header": "Authorization"}, "header"),
        ({"keys": [KEY], "header": "a b"}, "header"),
        ({"keys": [KEY], "header": ""}, "header"),
        ({"verifier": 7}, "verifier is a function"),
    ],
)
def test_what_cannot_work_is_said_at_once_and_no_key_is_quoted(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        ApiKey(**options)
    assert KEY not in str(caught.value)
