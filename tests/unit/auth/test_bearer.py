"""Bearer tokens at the door: who is let in, who is told what, and what is remembered."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import threading
from typing import Any

import pytest

from trimaran.auth import Bearer, Principal, Refused
from trimaran.auth import provider as shared
from trimaran.errors import ConfigError

ISSUER = "https://issuer.example"
AUDIENCE = "https://api.example"


@pytest.fixture
def bearer(mint: Any, clock: Any) -> Any:
    def make(**options: Any) -> Bearer:
        if not {"secret", "key", "jwks", "verifier"} & options.keys():
            options["secret"] = mint.secret
        return Bearer(**{"issuer": ISSUER, "audience": AUDIENCE, "clock": clock, **options})

    return make


@pytest.fixture
def enter(request_with: Any) -> Any:
    async def authenticate(provider: Bearer, token: str) -> Principal:
        found = await provider.authenticate(request_with(f"Bearer {token}"))
        assert found is not None
        return found

    return authenticate


@pytest.fixture
def refused(request_with: Any) -> Any:
    async def authenticate(provider: Bearer, authorization: str | None) -> Refused:
        with pytest.raises(Refused) as caught:
            await provider.authenticate(request_with(authorization))
        return caught.value

    return authenticate


# --- who is let in ---------------------------------------------------------------------------------------------------


async def test_a_token_signed_with_the_secret_is_let_in(bearer: Any, enter: Any, mint: Any) -> None:
    """R155."""
    found = await enter(bearer(), mint.token(scope="read write", tenant=7))
    assert (found.subject, found.issuer, found.audience) == ("ada", ISSUER, (AUDIENCE,))
    assert found.scopes == {"read", "write"}
    assert found.expires_at == mint.claims()["exp"]
    assert found.claims["tenant"] == 7


@pytest.mark.parametrize("alg", ["RS256", "PS256", "ES256", "ES384", "EdDSA"])
@pytest.mark.parametrize("way", ["key", "pem", "jwks"])
async def test_a_token_signed_with_a_private_key_is_let_in(
    bearer: Any, enter: Any, mint: Any, alg: str, way: str
) -> None:
    ways = {"key": {"key": mint.jwk(alg)}, "pem": {"key": mint.pem(alg)}, "jwks": {"jwks": {"keys": [mint.jwk(alg)]}}}
    assert (await enter(bearer(**ways[way]), mint.token(alg))).subject == "ada"


async def test_the_scheme_is_read_in_any_case(bearer: Any, mint: Any, request_with: Any) -> None:
    provider = bearer()
    for scheme in ("bearer", "BEARER", "BeArEr"):
        assert (await provider.authenticate(request_with(f"{scheme} {mint.token()}"))).subject == "ada"
        assert provider.presents(request_with(f"{scheme} x"))
    assert not provider.presents(request_with("Basic x"))
    assert not provider.presents(request_with())


@pytest.mark.parametrize("audience", [AUDIENCE, [AUDIENCE], ["https://other.example", AUDIENCE], (AUDIENCE,)])
@pytest.mark.parametrize("given", [AUDIENCE, [AUDIENCE], ["x", AUDIENCE]])
async def test_one_audience_in_common_is_enough(bearer: Any, enter: Any, mint: Any, audience: Any, given: Any) -> None:
    """R155: a string or a list, on either side."""
    assert await enter(bearer(audience=audience), mint.token(aud=given))


async def test_one_of_several_issuers_is_enough(bearer: Any, enter: Any, mint: Any, refused: Any) -> None:
    provider = bearer(issuer=[ISSUER, "https://two.example"])
    assert (await enter(provider, mint.token(iss="https://two.example"))).issuer == "https://two.example"
    assert (await refused(provider, f"Bearer {mint.token(iss='https://three.example')}")).kind == "invalid_token"


async def test_clocks_may_differ_by_a_minute(bearer: Any, enter: Any, refused: Any, mint: Any, clock: Any) -> None:
    """R155: clock_skew 60 s, on both ends."""
    now = clock.now
    assert await enter(bearer(), mint.token(exp=now - 59))
    assert await enter(bearer(), mint.token(nbf=now + 60))
    assert (await refused(bearer(), f"Bearer {mint.token(exp=now - 60)}")).kind == "expired_token"
    assert (await refused(bearer(), f"Bearer {mint.token(nbf=now + 61)}")).kind == "invalid_token"
    assert (await refused(bearer(clock_skew=0), f"Bearer {mint.token(exp=now)}")).kind == "expired_token"
    assert await enter(bearer(clock_skew=0), mint.token(exp=now + 0.001, nbf=now))


# --- who is not ------------------------------------------------------------------------------------------------------

WRONG = {
    "expired": {"exp": 1_700_000_000},
    "expired long ago": {"exp": 0},
    "expired before 1970": {"exp": -1e9},
    "without expiry": {"exp": ...},
    "expiry is null": {"exp": None},
    "expiry is text": {"exp": "1900000000"},
    "expiry is true": {"exp": True},
    "expiry is a list": {"exp": [1_900_000_000]},
    "expiry in milliseconds": {"exp": 1_900_000_000_000},
    "expiry beyond all": {"exp": 10**30},
    "expiry is 1e300": {"exp": 1e300},
    "not yet valid": {"nbf": 1_900_000_000},
    "not before is text": {"nbf": "0"},
    "not before is beyond all": {"nbf": -(10**30)},
    "another issuer": {"iss": "https://evil.example"},
    "no issuer": {"iss": ...},
    "issuer is a list": {"iss": [ISSUER]},
    "issuer with a slash": {"iss": ISSUER + "/"},
    "issuer in capitals": {"iss": ISSUER.upper()},
    "issuer with its port": {"iss": ISSUER + ":443"},
    "issuer with a blank": {"iss": ISSUER + " "},
    "issuer with a null byte": {"iss": ISSUER + "\0"},
    "issuer with a homoglyph": {"iss": ISSUER.replace("e", "\u0435")},
    "issuer with a wide letter": {"iss": ISSUER.replace("issuer", "\uff49ssuer")},
    "issuer begins alike": {"iss": ISSUER + ".evil.example"},
    "another audience": {"aud": "https://evil.example"},
    "no audience": {"aud": ...},
    "empty audience": {"aud": []},
    "audience with a slash": {"aud": AUDIENCE + "/"},
    "audience in capitals": {"aud": AUDIENCE.upper()},
    "audience below": {"aud": AUDIENCE + "/mcp"},
    "audience above": {"aud": "https://"},
    "audience with its port": {"aud": AUDIENCE + ":443"},
    "audience in letters": {"aud": list(AUDIENCE)},
    "audience is an object": {"aud": {AUDIENCE: True}},
    "audience is nested": {"aud": [[AUDIENCE]]},
    "one audience is a number": {"aud": [AUDIENCE, 7]},
    "audience with a blank": {"aud": " " + AUDIENCE},
    "audience decomposed": {"aud": AUDIENCE.replace("e", "e\u0301")},
    "subject is a number": {"sub": 7},
    "subject is a list": {"sub": ["ada"]},
    "scope is a number": {"scope": 7},
    "client is a list": {"client_id": []},
    "not active": {"active": False},
    "active is text": {"active": "true"},
}


WAYS = [
    pytest.param(changes, way, id=f"{way}, {name}")
    for way in ("secret", "jwks", "verifier")
    for name, changes in WRONG.items()
    # What only a verifier knows may be good until it says otherwise.
    if way != "verifier" or changes.get("exp", 0) not in (..., None)
]


@pytest.mark.parametrize(("changes", "way"), WAYS)
async def test_a_claim_that_is_wrong_keeps_a_caller_out(
    bearer: Any, refused: Any, mint: Any, changes: dict[str, Any], way: str
) -> None:
    """R155, R156, P50: whoever verified the token, its claims are checked, as exact strings and real numbers."""
    ways = {
        "secret": {},
        "jwks": {"jwks": {"keys": [mint.jwk("ES256")]}},
        "verifier": {"verifier": lambda _token: mint.claims(**changes)},
    }
    token = mint.token("ES256" if way == "jwks" else "HS256", **changes)
    for _ in range(2):  # the second time it must not have been remembered
        refusal = await refused(bearer(**ways[way]), f"Bearer {token}")
        assert refusal.status == 401
        assert refusal.code == "invalid_token"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 10**400])
async def test_a_verifier_may_say_nothing_that_is_no_time(bearer: Any, refused: Any, mint: Any, value: Any) -> None:
    for name in ("exp", "nbf"):
        provider = bearer(verifier=lambda _token, name=name: mint.claims(**{name: value}))
        assert (await refused(provider, "Bearer opaque")).kind == "invalid_token"


async def test_nothing_is_checked_that_was_not_asked_for(mint: Any, clock: Any, enter: Any) -> None:
    assert await enter(Bearer(secret=mint.secret, clock=clock), mint.token(iss=..., aud=..., sub=...))


async def test_a_token_bound_to_a_key_needs_more_than_itself(bearer: Any, refused: Any, mint: Any) -> None:
    """RFC 9449, RFC 8705: stolen, it would be as good as any other; also after somebody has verified it."""
    provider = bearer()
    token = mint.token(cnf={"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"})
    assert (await refused(provider, f"Bearer {token}")).kind == "invalid_token"
    assert (await provider.verify(token)).claims["cnf"]
    assert (await refused(provider, f"Bearer {token}")).kind == "invalid_token"


@pytest.mark.parametrize("typ", ["dpop+jwt", "logout+jwt"])
async def test_another_kind_of_token_is_no_access_token(bearer: Any, refused: Any, mint: Any, typ: str) -> None:
    assert (await refused(bearer(), f"Bearer {mint.token(header={'typ': typ})}")).kind == "invalid_token"


async def test_only_the_algorithms_asked_for_are_taken(bearer: Any, enter: Any, refused: Any, mint: Any) -> None:
    provider = bearer(key=mint.jwk("RS256"), algorithms=["RS256"])
    assert await enter(provider, mint.token("RS256"))
    assert (await refused(provider, f"Bearer {mint.token('PS256')}")).kind == "invalid_token"


@pytest.mark.parametrize(
    "authorization", ["Bearer " + "a" * 10_000_000, "Bearer a b", "Bearer é", "Bearer a, Bearer b"]
)
async def test_a_malformed_header_is_a_bad_request(bearer: Any, refused: Any, authorization: str) -> None:
    refusal = await refused(bearer(), authorization)
    assert (refusal.status, refusal.code) == (400, "invalid_request")


@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer   ", "Basic YTpi", "Bearer\ud800", "\udcff", "ÿ"]
)
async def test_without_a_token_there_is_a_challenge_and_no_error(bearer: Any, refused: Any, authorization: Any) -> None:
    """R164, R171."""
    refusal = await refused(bearer(), authorization)
    assert refusal.status == 401
    assert dict(refusal.headers)["www-authenticate"] == 'Bearer realm="mcp"'


async def test_a_surrogate_in_a_token_is_refused_and_breaks_nothing(bearer: Any, refused: Any) -> None:
    for provider in (bearer(), bearer(verifier=lambda _token: None)):
        assert (await refused(provider, "Bearer a\udcffb")).status == 400
        with pytest.raises(Refused):
            await provider.verify("a\udcffb")


async def test_scopes_that_are_missing_are_named(bearer: Any, enter: Any, refused: Any, mint: Any) -> None:
    """R154, C20: 403, also for a token that has no scopes at all."""
    provider = bearer(required_scopes=["read", "write"], resource_metadata="https://api.example/meta")
    assert await enter(provider, mint.token(scope="write read more"))
    for changes in ({"scope": "read"}, {"scope": ""}, {}, {"scope": "readwrite"}):
        token = mint.token(**changes)
        for _ in range(2):
            refusal = await refused(provider, f"Bearer {token}")
            assert (refusal.status, refusal.code) == (403, "insufficient_scope")
            assert dict(refusal.headers)["www-authenticate"] == (
                'Bearer realm="mcp", error="insufficient_scope", error_description="the token does not cover this", '
                'scope="read write", resource_metadata="https://api.example/meta"'
            )


async def test_the_challenge_to_who_has_no_token_names_scopes_and_metadata(bearer: Any, refused: Any) -> None:
    provider = bearer(required_scopes=["read"], resource_metadata="https://api.example/meta", realm=None)
    assert (await refused(provider, None)).challenges == (
        'Bearer scope="read", resource_metadata="https://api.example/meta"',
    )


async def test_nothing_of_a_token_is_sent_or_logged(
    bearer: Any, refused: Any, mint: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    good = mint.token()
    for token in (good[:-4] + "AAAA", mint.token(iss="evil"), mint.token(exp=0), mint.token(sub=7), "opaque-secret"):
        refusal = await refused(bearer(), f"Bearer {token}")
        told = f"{refusal} {refusal!r} {refusal.headers} {refusal.body} {refusal.reason} {caplog.text}"
        for part in token.split("."):
            assert part not in told
        assert mint.secret not in told
    assert mint.secret not in repr(vars(bearer()))


# --- verifiers -------------------------------------------------------------------------------------------------------


async def test_a_verifier_may_be_plain_async_or_an_object(bearer: Any, enter: Any, mint: Any) -> None:
    """R156. A plain one runs in a thread: it may look things up."""
    seen: list[tuple[str, bool]] = []

    def plain(token: str) -> Any:
        seen.append((token, threading.current_thread() is threading.main_thread()))
        return mint.claims()

    async def later(token: str) -> Any:
        return plain(token)

    class Verifier:
        async def __call__(self, token: str) -> Any:
            return plain(token)

    for verifier in (plain, later, Verifier(), lambda token: later(token)):
        assert (await enter(bearer(verifier=verifier), "opaque")).subject == "ada"
    assert seen == [("opaque", False), ("opaque", True), ("opaque", True), ("opaque", True)]


@pytest.mark.parametrize("answer", [None, False])
async def test_what_a_verifier_does_not_know_is_refused(bearer: Any, refused: Any, answer: Any) -> None:
    assert (await refused(bearer(verifier=lambda _token: answer), "Bearer opaque")).kind == "invalid_token"


async def test_a_verifier_may_answer_as_those_of_other_providers_do() -> None:
    """Claims, or what a principal calls them, or a principal; True is a caller without a name."""
    for answer in ({"sub": "ada"}, {"subject": "ada", "scopes": ["a"]}, Principal(subject="ada")):
        assert (await Bearer(verifier=lambda _token, answer=answer: answer).verify("opaque")).subject == "ada"
    found = await Bearer(verifier=lambda _token: Principal(subject="ada", issuer="i", scopes=frozenset({"a"}))).verify(
        "t"
    )
    assert (found.subject, found.issuer, found.scopes) == ("ada", "i", {"a"})
    assert (await Bearer(verifier=lambda _token: True).verify("opaque")).subject is not None
    with pytest.raises(Refused):
        await Bearer(verifier=lambda _token: Principal(subject="ada", expires_at=5.0)).verify("opaque")


@pytest.mark.parametrize("answer", [1, "ada", ["ada"], object()])
async def test_a_verdict_that_makes_no_sense_is_our_fault(bearer: Any, refused: Any, answer: Any) -> None:
    """R176."""
    refusal = await refused(bearer(verifier=lambda _token: answer), "Bearer opaque")
    assert (refusal.status, refusal.message) == (500, "the credentials could not be checked")
    assert "www-authenticate" not in dict(refusal.headers)


async def test_a_verifier_that_fails_is_our_fault_and_is_not_quoted(
    bearer: Any, refused: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """R176."""

    def verifier(token: str) -> Any:
        raise RuntimeError(f"cannot look up {token}")

    refusal = await refused(bearer(verifier=verifier), "Bearer opaque-secret")
    assert refusal.status == 500
    assert "opaque-secret" not in caplog.text
    assert "RuntimeError" in caplog.text


async def test_a_verifier_may_refuse_in_its_own_words(bearer: Any, refused: Any) -> None:
    def verifier(token: str) -> Any:
        raise Refused("expired_token", "log in again")

    refusal = await refused(bearer(verifier=verifier), "Bearer opaque")
    assert (refusal.kind, refusal.message) == ("expired_token", "log in again")
    assert 'error_description="log in again"' in refusal.challenges[0]


async def test_callers_without_a_subject_are_not_the_same(bearer: Any, enter: Any, mint: Any) -> None:
    """What a caller owns is found by its subject."""
    provider = bearer()
    first = await enter(provider, mint.token(sub=..., jti="1"))
    second = await enter(provider, mint.token(sub="", jti="2"))
    client = await enter(provider, mint.token(sub=..., client_id="app"))
    assert client.subject == "client:app"
    assert first.subject.startswith("token:")
    assert len({first.identity, second.identity, client.identity}) == 3


# --- memory ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    from trimaran.auth import jwt_keys

    seen: list[int] = []
    verifies = jwt_keys.verifies
    monkeypatch.setattr(jwt_keys, "verifies", lambda *given: (seen.append(1), verifies(*given))[1])
    return seen


async def test_a_token_is_verified_once(bearer: Any, enter: Any, mint: Any, counted: list[int], clock: Any) -> None:
    provider, token = bearer(), mint.token()
    first = await enter(provider, token)
    assert await enter(provider, token) is first
    assert len(counted) == 1
    await enter(provider, mint.token(sub="eve"))
    assert len(counted) == 2


async def test_what_is_remembered_is_verified_anew_after_a_while(
    bearer: Any, enter: Any, mint: Any, counted: list[int], clock: Any
) -> None:
    provider, token = bearer(), mint.token(exp=clock.now + 10_000)
    await enter(provider, token)
    clock.now += 299
    await enter(provider, token)
    assert len(counted) == 1
    clock.now += 1
    await enter(provider, token)
    assert len(counted) == 2


async def test_a_remembered_token_expires_all_the_same(
    bearer: Any, enter: Any, refused: Any, mint: Any, clock: Any
) -> None:
    provider, token = bearer(), mint.token(exp=clock.now + 10)
    await enter(provider, token)
    clock.now += 69
    await enter(provider, token)
    clock.now += 1
    assert (await refused(provider, f"Bearer {token}")).kind == "expired_token"


async def test_remembering_can_be_turned_off(bearer: Any, enter: Any, mint: Any, counted: list[int]) -> None:
    provider, token = bearer(remember=0), mint.token()
    await enter(provider, token)
    await enter(provider, token)
    assert len(counted) == 2


async def test_a_token_that_differs_in_one_byte_is_not_the_remembered_one(
    bearer: Any, enter: Any, refused: Any, mint: Any
) -> None:
    provider, token = bearer(), mint.token()
    await enter(provider, token)
    for index in range(0, len(token), 7):
        other = token[:index] + ("A" if token[index] != "A" else "B") + token[index + 1 :]
        await refused(provider, f"Bearer {other}")
    await refused(provider, f"Bearer {token}=")
    assert len(provider._verified_tokens) == 1


async def test_a_token_that_was_refused_is_not_let_in_without_its_scheme(
    bearer: Any, enter: Any, refused: Any, mint: Any
) -> None:
    """Whose rule: ours. A verified token is remembered, but the scope and the key binding are checked each time."""
    for options, token in (
        ({"required_scopes": ["admin"]}, mint.token(scope="read")),
        ({}, mint.token(cnf={"jkt": "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I"})),
    ):
        provider = bearer(**options)
        for _ in range(3):  # verified; then known by its digest; then known by itself
            first = await refused(provider, f"Bearer {token}")
            assert first.kind in ("insufficient_scope", "invalid_token")
            assert (await refused(provider, token)).kind == "missing"
            assert (await refused(provider, f"Basic {token}")).kind == "missing"


async def test_a_token_that_was_let_in_is_not_let_in_without_its_scheme(
    bearer: Any, enter: Any, refused: Any, mint: Any
) -> None:
    provider, token = bearer(), mint.token()
    for _ in range(3):
        await enter(provider, token)
        await provider.verify(token)
        assert (await refused(provider, token)).kind == "missing"


async def test_a_header_is_not_remembered_for_longer_than_its_token(
    bearer: Any, enter: Any, mint: Any, counted: list[int], clock: Any, request_with: Any
) -> None:
    provider, token = bearer(), mint.token(exp=clock.now + 10_000)
    await enter(provider, token)
    clock.now += 299
    await provider.authenticate(request_with(f"bearer {token}"))  # another header, the same token
    assert len(counted) == 1
    clock.now += 1
    await provider.authenticate(request_with(f"bearer {token}"))
    assert len(counted) == 2


async def test_a_huge_header_is_not_even_looked_up(bearer: Any, refused: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = bearer()
    monkeypatch.setattr(provider._verified_tokens, "digest", lambda *_: pytest.fail("hashed"))
    assert (await refused(provider, "Bearer " + "a" * 10_000_000)).status == 400


async def test_a_verifier_is_asked_every_time_unless_told_otherwise(bearer: Any, enter: Any, mint: Any) -> None:
    asked: list[str] = []

    async def verifier(token: str) -> Any:
        asked.append(token)
        return mint.claims()

    provider = bearer(verifier=verifier)
    await enter(provider, "opaque")
    await enter(provider, "opaque")
    assert len(asked) == 2
    provider = bearer(verifier=verifier, remember=5)
    await enter(provider, "opaque")
    await enter(provider, "opaque")
    assert len(asked) == 3


async def test_memory_is_bounded(bearer: Any, enter: Any, mint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "REMEMBERED", 20)
    found = bearer()
    for number in range(50):
        await enter(found, mint.token(jti=str(number)))
        assert len(found._verified_tokens) <= 20


# --- configuration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "none was given"),
        ({"secret": "x" * 32, "key": "y"}, "not secret and key"),
        ({"secret": "short"}, "5 bytes can be guessed"),
        ({"key": "text"}, "neither PEM"),
        ({"jwks": 7}, "JWK Set"),
        ({"jwks": {}}, "JWK Set"),
        ({"jwks": "text"}, "jwks: 'text' must be an https URL"),
        ({"jwks": "http://issuer.example/jwks"}, "https URL"),
        ({"jwks": "https://user:pw@issuer.example/jwks"}, "has a user in it"),
        ({"jwks": "https://issuer.example/jwks#x"}, "https URL"),
        ({"jwks": "http://127.0.0.1.evil.example/jwks"}, "https URL"),
        ({"jwks": "file:///etc/passwd"}, "https URL"),
        ({"jwks": "discover"}, "name one"),
        ({"jwks": "discover", "issuer": ["https://a.example"]}, "name one"),
        ({"jwks": "discover", "issuer": "http://a.example"}, "https URL"),
        ({"jwks": "discover", "issuer": "https://a.example?x=1"}, "must not have a query"),
        ({"verifier": "text"}, "verifier is a function"),
        ({"verifier": print, "algorithms": ["HS256"]}, "leave it out"),
        ({"secret": "x" * 32, "algorithms": ["none"]}, "none verifies nothing"),
        ({"secret": "x" * 32, "algorithms": []}, "an empty list verifies nothing"),
        ({"secret": "x" * 32, "algorithms": ["RS256"]}, "cannot verify RS256"),
        ({"secret": "x" * 32, "algorithms": ["HS512"]}, "cannot verify HS512"),
        ({"secret": "x" * 32, "clock_skew": -1}, "clock_skew"),
        ({"secret": "x" * 32, "clock_skew": True}, "clock_skew"),
        ({"secret": "x" * 32, "clock_skew": math.nan}, "clock_skew"),
        ({"secret": "x" * 32, "remember": math.inf}, "remember"),
        ({"secret": "x" * 32, "issuer": ""}, "issuer must be a string"),
        ({"secret": "x" * 32, "audience": []}, "audience must be a string"),
        ({"secret": "x" * 32, "audience": [7]}, "audience must be a string"),
        ({"secret": "x" * 32, "required_scopes": "read"}, "required_scopes must be a list"),
        ({"secret": "x" * 32, "required_scopes": ["a b"]}, "required_scopes must be a list"),
        ({"secret": "x" * 32, "required_scopes": ['a"b']}, "required_scopes must be a list"),
        ({"secret": "x" * 32, "required_scopes": [""]}, "required_scopes must be a list"),
        ({"secret": "x" * 32, "required_scopes": [7]}, "required_scopes must be a list"),
        ({"secret": "x" * 32, "realm": "a\r\nb"}, "realm"),
    ],
)
def test_what_cannot_work_is_said_at_once(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as caught:
        Bearer(**options)
    assert "x" * 32 not in str(caught.value)
    assert ":pw@" not in str(caught.value)


async def test_a_public_key_cannot_be_passed_as_the_secret(mint: Any) -> None:
    with pytest.raises(ConfigError, match="pass it as key="):
        Bearer(secret=mint.pem("RS256"))


async def test_an_issuer_without_audience_is_warned_about(mint: Any, caplog: pytest.LogCaptureFixture) -> None:
    await Bearer(key=mint.jwk("ES256"), audience="a").start()
    await Bearer(secret=mint.secret).start()
    assert not caplog.records
    await Bearer(key=mint.jwk("ES256")).start()
    assert "no audience=" in caplog.text


async def test_many_callers_at_once_are_served(bearer: Any, enter: Any, mint: Any) -> None:
    provider = bearer()
    tokens = [mint.token(sub=f"u{number % 7}") for number in range(100)]
    found = await asyncio.gather(*(enter(provider, token) for token in tokens))
    assert [principal.subject for principal in found] == [f"u{number % 7}" for number in range(100)]


async def test_the_payload_that_is_signed_is_the_payload_that_is_read(bearer: Any, refused: Any, mint: Any) -> None:
    """A good signature does not lend itself to another payload."""
    one, two = mint.token(sub="ada").split("."), mint.token(sub="eve").split(".")
    await refused(bearer(), "Bearer " + ".".join([one[0], two[1], one[2]]))
    await refused(bearer(), "Bearer " + ".".join([one[0], one[1], two[2]]))
    assert json.loads((await refused(bearer(), "Bearer " + ".".join(one[:2]) + ".")).body)["error"] == "invalid_token"
