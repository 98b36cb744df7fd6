"""Proofs of possession: a good one passes, and each sentence of RFC 9449, 4.3 refuses a proof that breaks it alone."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from typing import Any

import pytest
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry
from tests.support.clock import Clock

from trimaran.auth.dpop import DPoP, ProofRefused, bound_key, place, thumbprint
from trimaran.auth.principal import Principal
from trimaran.auth.refusal import Refused
from trimaran.errors import ConfigError

NOW = 1_750_000_000.0
URL = "https://mcp.example.com/mcp"
TOKEN = "an.access-token"
KEY = ECKey.generate_key("P-256")
OTHER = ECKey.generate_key("P-256")
RSA = RSAKey.generate_key(2048)
REMOVED: Any = object()


def b64(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode()


def public(key: Any) -> dict[str, Any]:
    found = key.as_dict(private=False)
    return {name: found[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in found}


def fields(**changes: Any) -> dict[str, Any]:
    good = {
        "jti": "one",
        "htm": "POST",
        "htu": URL,
        "iat": int(NOW),
        "ath": b64(hashlib.sha256(TOKEN.encode()).digest()),
    }
    return {name: value for name, value in {**good, **changes}.items() if value is not REMOVED}


def proof(*, key: Any = KEY, alg: str = "ES256", header: dict[str, Any] | None = None, **changes: Any) -> str:
    head = {"typ": "dpop+jwt", "alg": alg, "jwk": public(key), **(header or {})}
    head = {name: value for name, value in head.items() if value is not REMOVED}
    return signed(head, json.dumps(fields(**changes)).encode(), key, alg)


def signed(head: dict[str, Any], payload: bytes, key: Any, alg: str = "ES256") -> str:
    """By the mathematics of joserfc alone, which would not write most of what is tested here."""
    text = f"{b64(json.dumps(head).encode())}.{b64(payload)}"
    return f"{text}.{b64(JWSRegistry.algorithms[alg].sign(text.encode(), key))}"


def by_hand(head: dict[str, Any], payload: bytes, signature: bytes = b"nothing") -> str:
    return f"{b64(json.dumps(head).encode())}.{b64(payload)}.{b64(signature)}"


async def check(
    text: str | None,
    *,
    dpop: DPoP | None = None,
    method: str = "POST",
    url: str = URL,
    token: str = TOKEN,
    key: str | None = None,
) -> str | None:
    dpop = dpop or DPoP(clock=Clock(NOW))
    headers = {} if text is None else {"dpop": text}
    return await dpop.check(headers, method, [url], token, KEY.thumbprint() if key is None else key)


# --- what passes ------------------------------------------------------------------------------------------------------


async def test_a_good_proof_passes() -> None:
    assert await check(proof()) is None


@pytest.mark.parametrize(
    ("key", "alg"),
    [
        (ECKey.generate_key("P-256"), "ES256"),
        (ECKey.generate_key("P-384"), "ES384"),
        (ECKey.generate_key("P-521"), "ES512"),
        (OKPKey.generate_key("Ed25519"), "EdDSA"),
        (RSA, "RS256"),
        (RSA, "PS256"),
    ],
    ids=["ES256", "ES384", "ES512", "EdDSA", "RS256", "PS256"],
)
async def test_every_asymmetric_algorithm_will_do(key: Any, alg: str) -> None:
    assert await check(proof(key=key, alg=alg), key=key.thumbprint()) is None


def test_a_thumbprint_is_that_of_rfc_7638() -> None:
    jwk = {
        "kty": "RSA",
        "n": "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhM"
        "stn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbI"
        "SD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw",
        "e": "AQAB",
        "alg": "RS256",
        "kid": "2011-04-29",
    }
    assert thumbprint(jwk) == "NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs"


@pytest.mark.parametrize("key", [KEY, RSA, OKPKey.generate_key("Ed25519")], ids=["EC", "RSA", "OKP"])
def test_a_thumbprint_is_what_others_compute(key: Any) -> None:
    assert thumbprint(public(key)) == key.thumbprint()


@pytest.mark.parametrize(
    ("htu", "url"),
    [
        ("HTTPS://MCP.Example.COM/mcp", URL),
        ("https://mcp.example.com:443/mcp", URL),
        ("https://mcp.example.com/mcp?a=b", URL),
        ("https://mcp.example.com/mcp#part", URL),
        (URL, "https://mcp.example.com/mcp?session=1"),
        ("http://127.0.0.1:80/mcp", "http://127.0.0.1/mcp"),
        ("https://mcp.example.com", "https://mcp.example.com/"),
        ("https://mcp.example.com/%7euser/%c3%a9", "https://mcp.example.com/~user/%C3%A9"),
        ("http://[::1]:9090/mcp", "http://[::1]:9090/mcp"),
    ],
)
async def test_a_url_is_compared_by_where_it_leads(htu: str, url: str) -> None:
    assert await check(proof(htu=htu), url=url) is None


@pytest.mark.parametrize("iat", [NOW - 299, NOW + 299, NOW - 0.5])
async def test_clocks_may_differ_by_the_window(iat: float) -> None:
    assert await check(proof(iat=iat)) is None


# --- what does not: each breaks one thing -----------------------------------------------------------------------------

BROKEN: dict[str, tuple[str | None, str]] = {
    "no header": (None, "no proof"),
    "blank header": ("  ", "no proof"),
    "two headers": (f"{proof()}, {proof(jti='two')}", "more than one"),
    "not a JWT": ("abc", "not a JWT"),
    "four parts": (proof() + ".abc", "not a JWT"),
    "header not JSON": (f"{b64(b'[1]')}.{b64(b'{}')}.{b64(b'x')}", "not a JWT"),
    "too large": ("a" * 20_000, "larger than"),
    "typ JWT": (proof(header={"typ": "JWT"}), "type dpop"),
    "no typ": (proof(header={"typ": REMOVED}), "type dpop"),
    "alg none": (by_hand({"typ": "dpop+jwt", "alg": "none", "jwk": public(KEY)}, b"{}"), "signed with"),
    "alg symmetric": (
        by_hand({"typ": "dpop+jwt", "alg": "HS256", "jwk": {"kty": "oct", "k": "c2VjcmV0"}}, b"{}"),
        "signed with",
    ),
    "alg not a string": (by_hand({"typ": "dpop+jwt", "alg": 5, "jwk": public(KEY)}, b"{}"), "signed with"),
    "alg a list": (by_hand({"typ": "dpop+jwt", "alg": ["ES256"], "jwk": public(KEY)}, b"{}"), "signed with"),
    "alg of another curve": (by_hand({"typ": "dpop+jwt", "alg": "ES384", "jwk": public(KEY)}, b"{}"), "signature"),
    "no jwk": (proof(header={"jwk": REMOVED}), "no key"),
    "jwk not an object": (proof(header={"jwk": "key"}), "no key"),
    "jwk private": (proof(header={"jwk": KEY.as_dict(private=True)}), "private key"),
    "jwk symmetric": (proof(header={"jwk": {"kty": "oct", "k": "c2VjcmV0"}}), "private key"),
    "jwk of no kind": (proof(header={"jwk": {**public(KEY), "kty": "XX"}}), "cannot be used"),
    "jwk kind not a string": (proof(header={"jwk": {**public(KEY), "kty": ["EC"]}}), "cannot be used"),
    "jwk without y": (proof(header={"jwk": {n: v for n, v in public(KEY).items() if n != "y"}}), "cannot be used"),
    "payload changed": (
        f"{proof().rsplit('.', 2)[0]}.{b64(json.dumps(fields(jti='other')).encode())}.{proof().rsplit('.', 1)[1]}",
        "signature",
    ),
    "signed by another key": (proof(key=OTHER, header={"jwk": public(KEY)}), "signature"),
    "crit": (proof(header={"crit": ["exp"], "exp": 1}), "not a JWT"),
    "payload not an object": (
        signed({"typ": "dpop+jwt", "alg": "ES256", "jwk": public(KEY)}, b"[1]", KEY),
        "signature",
    ),
    "no jti": (proof(jti=REMOVED), "jti"),
    "blank jti": (proof(jti=""), "jti"),
    "jti a number": (proof(jti=5), "jti"),
    "jti huge": (proof(jti="a" * 2000), "jti"),
    "no htm": (proof(htm=REMOVED), "htm"),
    "another method": (proof(htm="GET"), "htm"),
    "method in another case": (proof(htm="post"), "htm"),
    "no htu": (proof(htu=REMOVED), "htu"),
    "htu a number": (proof(htu=5), "htu"),
    "another path": (proof(htu="https://mcp.example.com/other"), "htu"),
    "path in another case": (proof(htu="https://mcp.example.com/MCP"), "htu"),
    "path encoded to differ": (proof(htu="https://mcp.example.com/%2Fmcp"), "htu"),
    "another host": (proof(htu="https://evil.example.com/mcp"), "htu"),
    "another port": (proof(htu="https://mcp.example.com:8443/mcp"), "htu"),
    "another scheme": (proof(htu="http://mcp.example.com/mcp"), "htu"),
    "htu with a user": (proof(htu="https://me@mcp.example.com/mcp"), "htu"),
    "htu with a control character": (proof(htu="https://mcp.example.com/m\ncp"), "htu"),
    "htu not a URL": (proof(htu="https://[mcp/mcp"), "htu"),
    "htu with a port that is none": (proof(htu="https://mcp.example.com:99999/mcp"), "htu"),
    "no iat": (proof(iat=REMOVED), "iat"),
    "iat a string": (proof(iat=str(int(NOW))), "iat"),
    "iat a boolean": (proof(iat=True), "iat"),
    "too old": (proof(iat=NOW - 301), "too old"),
    "from the future": (proof(iat=NOW + 301), "future"),
    "no ath": (proof(ath=REMOVED), "ath"),
    "ath of another token": (proof(ath=b64(hashlib.sha256(b"another").digest())), "ath"),
    "ath not hashed": (proof(ath=TOKEN), "ath"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_proof_that_breaks_one_rule_is_refused(name: str) -> None:
    text, said = BROKEN[name]
    # The key is what the header shows wherever that is a key at all, so that only the rule in question is broken.
    with pytest.raises(ProofRefused, match=said) as refused:
        await check(text)
    assert (refused.value.status, refused.value.code) == (401, "invalid_dpop_proof")


async def test_a_proof_by_another_key_than_the_tokens_is_refused() -> None:
    """RFC 9449, 7.1: its own example calls this invalid_token."""
    with pytest.raises(Refused, match="another key") as refused:
        await check(proof(key=OTHER))
    assert (refused.value.status, refused.value.code) == (401, "invalid_token")


async def test_no_signature_is_computed_for_a_key_that_is_not_the_tokens() -> None:
    with pytest.raises(Refused, match="another key"):
        await check(proof(key=OTHER, header={"jwk": public(OTHER)}, jti=5))


async def test_a_point_that_is_not_on_the_curve_is_refused() -> None:
    jwk = {**public(KEY), "y": public(OTHER)["y"]}
    with pytest.raises(ProofRefused, match="cannot be used"):
        await check(proof(header={"jwk": jwk}), key=thumbprint(jwk))


@pytest.mark.parametrize(
    "jwk",
    [{"kty": "RSA", "n": "v" * 3000, "e": "AQAB"}, {"kty": "RSA", "n": "v" * 342, "e": "v" * 342}],
    ids=["modulus", "exponent"],
)
async def test_a_key_made_to_be_slow_is_refused_before_it_is_used(
    jwk: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def used(_: Any) -> Any:
        raise AssertionError("the key was used")

    monkeypatch.setattr("trimaran.auth.dpop.import_key", used)
    text = by_hand({"typ": "dpop+jwt", "alg": "RS256", "jwk": jwk}, json.dumps(fields()).encode())
    with pytest.raises(ProofRefused, match="cannot be used"):
        await check(text, key=thumbprint(jwk))


async def test_a_small_rsa_key_is_refused() -> None:
    jwk = {"kty": "RSA", "n": "v" * 171, "e": "AQAB"}
    text = by_hand({"typ": "dpop+jwt", "alg": "RS256", "jwk": jwk}, json.dumps(fields()).encode())
    with pytest.raises(ProofRefused, match="cannot be used"):
        await check(text, key=thumbprint(jwk))


async def test_what_a_key_says_about_itself_is_not_believed() -> None:
    jwk = {**public(KEY), "alg": "HS256", "use": "enc", "kid": "x", "key_ops": []}
    assert await check(proof(header={"jwk": jwk})) is None


async def test_only_the_algorithms_that_were_allowed_will_do() -> None:
    with pytest.raises(ProofRefused, match="ES384"):
        await check(proof(), dpop=DPoP(algorithms=["ES384"], clock=Clock(NOW)))


async def test_headers_that_a_server_keeps_apart_are_counted() -> None:
    class Apart:
        def get(self, key: str, /) -> str | None:
            return proof() if key == "dpop" else None

        def get_all(self, key: str, /) -> list[str]:
            return [proof(), proof(jti="two")] if key == "dpop" else []

    with pytest.raises(ProofRefused, match="more than one"):
        await DPoP(clock=Clock(NOW)).check(Apart(), "POST", [URL], TOKEN, KEY.thumbprint())


async def test_any_of_the_names_of_a_target_will_do() -> None:
    urls = ["http://10.0.0.1:9090/mcp", URL]
    assert await DPoP(clock=Clock(NOW)).check({"dpop": proof()}, "POST", urls, TOKEN, KEY.thumbprint()) is None
    with pytest.raises(ProofRefused, match="htu"):
        await DPoP(clock=Clock(NOW)).check({"dpop": proof()}, "POST", [], TOKEN, KEY.thumbprint())


# --- replay -----------------------------------------------------------------------------------------------------------


async def test_a_proof_is_good_once() -> None:
    dpop = DPoP(clock=Clock(NOW))
    text = proof()
    await check(text, dpop=dpop)
    with pytest.raises(ProofRefused, match="used before"):
        await check(text, dpop=dpop)


async def test_a_new_proof_with_an_old_id_is_a_replay_and_another_keys_is_not() -> None:
    dpop = DPoP(clock=Clock(NOW))
    await check(proof(), dpop=dpop)
    with pytest.raises(ProofRefused, match="used before"):
        await check(proof(iat=NOW + 1), dpop=dpop)
    assert await check(proof(key=OTHER), dpop=dpop, key=OTHER.thumbprint()) is None


@pytest.mark.parametrize("iat", [NOW - 290, NOW, NOW + 290])
async def test_a_proof_is_remembered_as_long_as_it_is_good(iat: float) -> None:
    clock = Clock(NOW)
    dpop = DPoP(clock=clock)
    text = proof(iat=iat)
    await check(text, dpop=dpop)
    clock.now = iat + 300
    with pytest.raises(ProofRefused, match="used before"):
        await check(text, dpop=dpop)
    clock.now = iat + 301
    with pytest.raises(ProofRefused, match="too old"):
        await check(text, dpop=dpop)


async def test_an_id_may_come_back_when_the_proof_it_was_of_is_over() -> None:
    clock = Clock(NOW)
    dpop = DPoP(clock=clock)
    await check(proof(), dpop=dpop)
    clock.now += 302
    assert await check(proof(iat=clock.now), dpop=dpop) is None


async def test_a_refused_proof_is_not_remembered() -> None:
    dpop = DPoP(clock=Clock(NOW))
    with pytest.raises(ProofRefused, match="htu"):
        await check(proof(), dpop=dpop, url="https://mcp.example.com/other")
    assert await check(proof(), dpop=dpop) is None


async def test_the_memory_is_bounded_and_forgets_what_is_over_first(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock(NOW)
    dpop = DPoP(replay=10, clock=clock)
    for number in range(10):
        await check(proof(jti=f"old{number}"), dpop=dpop)
    clock.now += 302
    for number in range(10):
        await check(proof(jti=f"new{number}", iat=clock.now), dpop=dpop)
    assert not caplog.records
    for number in range(25):
        await check(proof(jti=f"more{number}", iat=clock.now), dpop=dpop)
    seen: Any = dpop._seen
    assert len(seen) <= 10
    assert [record.message for record in caplog.records] == [
        "more than 10 proofs in one window: the oldest are forgotten; raise replay="
    ]
    with pytest.raises(ProofRefused, match="used before"):
        await check(proof(jti="more24", iat=clock.now), dpop=dpop)


async def test_a_shared_store_is_asked() -> None:
    class Store:
        def __init__(self) -> None:
            self.added: list[tuple[str, float]] = []

        async def add(self, proof: str, seconds: float) -> bool:
            self.added.append((proof, seconds))
            return len(self.added) == 1

    store = Store()
    await check(proof(), dpop=DPoP(replay=store, clock=Clock(NOW)))
    with pytest.raises(ProofRefused, match="used before"):
        await check(proof(), dpop=DPoP(replay=store, clock=Clock(NOW)))
    assert store.added[0] == store.added[1]
    assert 300 <= store.added[0][1] <= 302


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
async def test_a_store_that_fails_is_our_fault(is_async: bool, caplog: pytest.LogCaptureFixture) -> None:
    class Plain:
        def add(self, proof: str, seconds: float) -> bool:
            raise OSError("redis://user:password@host")

    class Waiting:
        async def add(self, proof: str, seconds: float) -> bool:
            raise OSError("redis://user:password@host")

    with pytest.raises(Refused) as refused:
        await check(proof(), dpop=DPoP(replay=Waiting() if is_async else Plain(), clock=Clock(NOW)))
    assert refused.value.kind == "server_error"
    assert "password" not in caplog.text


async def test_without_replay_nothing_is_remembered() -> None:
    dpop = DPoP(replay=None, clock=Clock(NOW))
    await check(proof(), dpop=dpop)
    assert await check(proof(), dpop=dpop) is None


# --- nonces -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("nonce", [REMOVED, "", "wrong", 5, None, ["a"], "é"])
async def test_a_proof_without_a_nonce_of_ours_is_told_to_use_one(nonce: Any) -> None:
    with pytest.raises(ProofRefused) as refused:
        await check(proof(nonce=nonce), dpop=DPoP(nonces=True, clock=Clock(NOW)))
    assert (refused.value.status, refused.value.code) == (401, "use_dpop_nonce")


async def test_a_nonce_is_good_until_the_next_but_one_and_the_next_is_given_in_time() -> None:
    clock = Clock(NOW)
    clock.now = NOW - NOW % 150  # the beginning of a slot
    dpop = DPoP(nonces=True, clock=clock)
    first = dpop.fresh_nonce()
    assert await check(proof(nonce=first, jti="a", iat=clock.now), dpop=dpop) is None
    clock.now += 149
    assert await check(proof(nonce=first, jti="b", iat=clock.now), dpop=dpop) is None
    clock.now += 1
    second = await check(proof(nonce=first, jti="c", iat=clock.now), dpop=dpop)
    assert second is not None
    assert second == dpop.fresh_nonce() != first
    clock.now += 149
    assert await check(proof(nonce=first, jti="d", iat=clock.now), dpop=dpop) == second
    clock.now += 1
    with pytest.raises(ProofRefused) as refused:
        await check(proof(nonce=first, jti="e", iat=clock.now), dpop=dpop)
    assert refused.value.code == "use_dpop_nonce"


async def test_workers_that_share_a_key_know_each_others_nonces() -> None:
    one, two, three = Clock(NOW), Clock(NOW), Clock(NOW)
    one.now += 150  # a little ahead
    key = "0123456789abcdef"
    ahead = DPoP(nonces=True, nonce_key=key, clock=one)
    assert await check(proof(nonce=ahead.fresh_nonce()), dpop=DPoP(nonces=True, nonce_key=key, clock=two)) is not None
    with pytest.raises(ProofRefused, match="nonce"):
        await check(proof(nonce=ahead.fresh_nonce()), dpop=DPoP(nonces=True, clock=three))


async def test_a_nonce_does_not_excuse_an_old_proof() -> None:
    dpop = DPoP(nonces=True, clock=Clock(NOW))
    with pytest.raises(ProofRefused, match="too old"):
        await check(proof(nonce=dpop.fresh_nonce(), iat=NOW - 301), dpop=dpop)


async def test_a_nonce_nobody_asked_for_is_passed_over() -> None:
    assert await check(proof(nonce="of another server")) is None
    assert DPoP().fresh_nonce() is None


# --- the token's side -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("claims", "key"),
    [
        ({}, None),
        ({"cnf": {"jkt": "abc"}}, "abc"),
        ({"cnf": {"x5t#S256": "abc"}}, None),
        ({"cnf": {"jkt": 5}}, None),
        ({"cnf": {"jkt": "é"}}, None),
        ({"cnf": "abc"}, None),
    ],
)
def test_the_key_of_a_token_is_in_its_confirmation(claims: dict[str, Any], key: str | None) -> None:
    assert bound_key(Principal.from_claims(claims)) == key


def test_urls_that_lead_nowhere_have_no_place() -> None:
    wrong = ["", "/mcp", "ftp://host/", "https://", "https://a b/", "https://é.example/", "mailto:a@b"]
    assert [place(url) for url in wrong] == [None] * len(wrong)


# --- options ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"window": 0}, "window must be a number of seconds"),
        ({"window": True}, "window must be a number of seconds"),
        ({"window": 86_400}, "window must be a number of seconds"),
        ({"replay": 0}, "replay is how many"),
        ({"replay": True}, "replay is how many"),
        ({"replay": "redis"}, "replay is how many"),
        ({"algorithms": ["HS256"]}, "'HS256' cannot sign a proof"),
        ({"algorithms": []}, "an empty list"),
        ({"nonce_key": "0123456789abcdef"}, "nonces=True"),
        ({"nonces": True, "nonce_key": "short"}, "can be guessed"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        DPoP(**options)
    assert "0123456789abcdef" not in str(refused.value)


# --- whatever comes ---------------------------------------------------------------------------------------------------


def garbage(dice: random.Random) -> str:
    """A proof that has suffered: cut, spliced, with parts swapped, or nothing of the kind."""
    good = dice.choice([proof(), "a.b.c", "", "DPoP", by_hand({"typ": "dpop+jwt", "alg": "ES256"}, b"{}")])
    text = list(good)
    for _ in range(dice.randrange(1, 4)):
        at = dice.randrange(len(text) + 1)
        match dice.randrange(4):
            case 0:
                text[at : at + dice.randrange(40)] = []
            case 1:
                text[at:at] = dice.choices('AZaz09-_=.,{}"\\ \x00\x7fé\ud800', k=dice.randrange(1, 20))
            case 2:
                text[at:at] = b64(json.dumps(dice.choice([None, [], {"a": {}}, 1e999, "x"])).encode())
            case _:
                text = text[at:] + text[:at]
    return "".join(text)


@pytest.mark.slow
async def test_garbage_is_refused_and_nothing_else_happens() -> None:
    dice = random.Random(9449)
    dpop = DPoP(nonces=True, clock=Clock(NOW))
    for _ in range(1500):
        text = garbage(dice)
        with pytest.raises(Refused) as refused:
            await check(text, dpop=dpop)
        assert refused.value.status == 401


async def test_values_of_any_type_in_claims_and_header_are_refused() -> None:
    odd: list[Any] = [None, True, 0, -1, 1e300, "", "x", [], ["x"], {}, {"x": None}, "\u0000", "\ud83d\ude00"]
    for value in odd:
        for name in ("jti", "htm", "htu", "iat", "ath"):
            if name == "jti" and value in ("x", "\u0000", "\ud83d\ude00") and isinstance(value, str):
                continue  # as good an id as any
            with pytest.raises(Refused):
                changes: dict[str, Any] = {name: value}
                await check(proof(**changes))
        for name in ("typ", "alg", "jwk"):
            head = {"typ": "dpop+jwt", "alg": "ES256", "jwk": public(KEY), name: value}
            with pytest.raises(Refused):
                await check(by_hand(head, json.dumps(fields()).encode()))
