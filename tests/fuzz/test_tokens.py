"""No token that was not signed as it stands opens the door, and none breaks it: whatever comes in, `Refused` comes out.

Twenty thousand of them: good tokens with something changed, and headers nobody would send. All from fixed seeds.
"""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from joserfc.jwk import ECKey, OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from trimaran.auth import AnyOf, ApiKey, Basic, Bearer, Refused

NOW = 1_800_000_000.0
SECRET = "0123456789abcdef0123456789abcdef0123456789abcdef"
ROUNDS = 1000
ALGORITHMS = ["HS256", "RS256", "ES256", "EdDSA"]
URLSAFE = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
CLAIMS = {
    "sub": "ada",
    "iss": "https://issuer.example",
    "aud": "https://api.example",
    "exp": NOW + 600,
    "scope": "read",
}

KEYS: dict[str, Any] = {
    "HS256": OctKey.import_key(SECRET),
    "RS256": RSAKey.generate_key(2048),
    "ES256": ECKey.generate_key("P-256"),
    "EdDSA": OKPKey.generate_key("Ed25519"),
}


def b64(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def sign(alg: str, header: bytes, payload: bytes, key: Any = None) -> str:
    signing_input = f"{b64(header)}.{b64(payload)}"
    return f"{signing_input}.{b64(JWSRegistry.algorithms[alg].sign(signing_input.encode(), key or KEYS[alg]))}"


def good(alg: str) -> str:
    return sign(alg, json.dumps({"alg": alg, "typ": "JWT"}).encode(), json.dumps(CLAIMS).encode())


GOOD = {alg: good(alg) for alg in ALGORITHMS}


def door(alg: str) -> Bearer:
    how: dict[str, Any] = {"secret": SECRET} if alg == "HS256" else {"key": KEYS[alg].as_dict(private=False)}
    return Bearer(**how, issuer=CLAIMS["iss"], audience=CLAIMS["aud"], clock=lambda: NOW)


class Request:
    method, path, query, url, address = "POST", "/mcp", "", None, None

    def __init__(self, headers: dict[str, str]) -> None:
        self.headers = headers


async def expect_refusal(provider: Any, headers: dict[str, str]) -> None:
    try:
        found = await provider.authenticate(Request(headers))
    except Refused as refusal:
        assert refusal.status in (400, 401, 403)
        assert dict(refusal.headers)["www-authenticate"].isascii()
        json.loads(refusal.body)
        return
    raise AssertionError(f"let in as {found}: {headers!r}")


# --- tokens with something changed -----------------------------------------------------------------------------------


def change_a_character(dice: random.Random, token: str) -> str:
    index = dice.randrange(len(token))
    pool = URLSAFE if dice.random() < 0.8 else "+/= .,\n\x00é%\ud800"
    return token[:index] + dice.choice(pool) + token[index + 1 :]


def change_a_bit(dice: random.Random, token: str) -> str:
    """In the bytes, so that what comes is proper base64url all the same."""
    parts = token.split(".")
    which = dice.randrange(3)
    raw = bytearray(base64.urlsafe_b64decode(parts[which] + "=="))
    raw[dice.randrange(len(raw))] ^= 1 << dice.randrange(8)
    parts[which] = b64(bytes(raw))
    return ".".join(parts)


def cut_or_add(dice: random.Random, token: str) -> str:
    at, to = sorted((dice.randrange(len(token) + 1), dice.randrange(len(token) + 1)))
    match dice.randrange(4):
        case 0:
            return token[:at]
        case 1:
            return token[:at] + token[to:]
        case 2:
            return token[:to] + token[at:]
        case _:
            return token[:at] + "".join(dice.choices(URLSAFE + ".", k=dice.randrange(1, 20))) + token[at:]


def shuffle_parts(dice: random.Random, token: str) -> str:
    parts = token.split(".")
    other = GOOD[dice.choice(ALGORITHMS)].split(".")
    picked = [dice.choice([*parts, *other, "", "e30", "bnVsbA"]) for _ in range(dice.choice([1, 2, 3, 3, 3, 4, 5]))]
    return ".".join(picked)


def junk(dice: random.Random, depth: int = 0) -> Any:
    kinds: list[Callable[[], Any]] = [
        lambda: dice.choice([None, True, False, 0, -1, 1e308, 10**25, 1.5, "", "none", "HS256", CLAIMS["iss"]]),
        lambda: "".join(chr(dice.choice([0, 10, 65, 0xE9, 0x435, 0x1F600])) for _ in range(dice.randrange(5))),
    ]
    if depth < 3:
        kinds += [
            lambda: [junk(dice, depth + 1) for _ in range(dice.randrange(4))],
            lambda: {str(junk(dice, 3)): junk(dice, depth + 1) for _ in range(dice.randrange(4))},
        ]
    return dice.choice(kinds)()


def odd_claims(dice: random.Random, alg: str) -> str:
    """Signed by the right key, and wrong all the same."""
    claims: dict[str, Any] = dict(CLAIMS)
    match dice.randrange(4):
        case 0:
            claims["exp"] = dice.choice([0, -1, NOW - 61, "soon", [], {}, None, True, 1e300, 10**30, str(NOW + 600)])
        case 1:
            claims[dice.choice(["iss", "aud"])] = dice.choice(
                [None, 7, {}, [[CLAIMS["aud"]]], "x", CLAIMS["aud"] + "/", CLAIMS["iss"].upper(), [" " + CLAIMS["aud"]]]
            )
        case 2:
            claims["nbf"] = dice.choice([NOW + 61, "0", [], True, 1e300])
        case _:
            raw = json.dumps(claims)
            twice = dice.choice(["sub", "exp", "aud", "iss"])
            text = raw[:-1] + f', "{twice}": {json.dumps(claims[twice])}}}'
            return sign(alg, json.dumps({"alg": alg}).encode(), text.encode())
    return sign(alg, json.dumps({"alg": alg}).encode(), json.dumps(claims).encode())


def odd_header(dice: random.Random, alg: str) -> str:
    """Signed by the right key, or by one the token brings along."""
    header: dict[str, Any] = {"alg": alg}
    key = None
    match dice.randrange(4):
        case 0:
            header["alg"] = dice.choice(
                ["none", "None", "HS384", "ES512", "dir", None, 7, [], {}, alg.lower(), alg + " "]
            )
        case 1:
            header[dice.choice(["crit", "b64", "zip"])] = junk(dice)
        case 2:
            header[dice.choice(["kid", "typ"])] = dice.choice([7, [], {}, True, ["a"]])
        case _:
            key = {"HS256": lambda: OctKey.generate_key(256), "ES256": lambda: ECKey.generate_key("P-256")}.get(
                alg, lambda: OKPKey.generate_key("Ed25519")
            )()
            alg = alg if alg in ("HS256", "ES256") else "EdDSA"
            header |= {
                "jwk": key.as_dict(),
                "jku": "https://evil.example",
                "kid": dice.choice(["a", "../../k", "' --"]),
            }
    return sign(alg, json.dumps(header).encode(), json.dumps(CLAIMS).encode(), key)


def unsigned(dice: random.Random, alg: str) -> str:
    header = junk(dice) if dice.random() < 0.3 else {"alg": dice.choice([alg, "none", junk(dice)]), "x": junk(dice)}
    payload = junk(dice) if dice.random() < 0.3 else CLAIMS
    signature = (
        bytes(dice.choice([0, 1, 32, 64, 256])) if dice.random() < 0.5 else dice.randbytes(dice.choice([32, 64, 256]))
    )
    return f"{b64(json.dumps(header).encode())}.{b64(json.dumps(payload).encode())}.{b64(signature)}"


@pytest.mark.parametrize("change", [change_a_character, change_a_bit, cut_or_add, shuffle_parts])
@pytest.mark.parametrize("alg", ALGORITHMS)
async def test_a_token_with_anything_changed_is_refused(alg: str, change: Callable[[random.Random, str], str]) -> None:
    dice = random.Random(f"{alg} {change.__name__}")
    provider, token = door(alg), GOOD[alg]
    assert await provider.authenticate(Request({"authorization": f"Bearer {token}"}))
    for _ in range(ROUNDS):
        other = change(dice, token)
        if other != token and other.strip(" \t") != token:
            await expect_refusal(provider, {"authorization": f"Bearer {other}"})


@pytest.mark.parametrize("alg", ALGORITHMS)
async def test_every_byte_of_a_token_counts(alg: str) -> None:
    provider, token = door(alg), GOOD[alg]
    for index, character in enumerate(token):
        for other in ("A" if character != "A" else "B", "."):
            if other != character:
                await expect_refusal(provider, {"authorization": f"Bearer {token[:index]}{other}{token[index + 1 :]}"})


@pytest.mark.parametrize("make", [odd_claims, odd_header, unsigned])
@pytest.mark.parametrize("alg", ALGORITHMS)
async def test_a_token_that_was_put_together_wrongly_is_refused(
    alg: str, make: Callable[[random.Random, str], str]
) -> None:
    dice = random.Random(f"{alg} {make.__name__}")
    provider = door(alg)
    # RSA signs slowly.
    for _ in range(ROUNDS if alg != "RS256" or make is unsigned else ROUNDS // 10):
        await expect_refusal(provider, {"authorization": f"Bearer {make(dice, alg)}"})


# --- headers nobody would send ---------------------------------------------------------------------------------------


def odd_value(dice: random.Random) -> str:
    scheme = dice.choice(
        ["", "Bearer ", "bearer  ", "Basic ", "ApiKey ", "Bearer", "DPoP ", "Bearer a, Bearer ", "\t", ", "]
    )
    size = dice.choice([0, 1, 2, 5, 50, 200, 20_000])
    match dice.randrange(5):
        case 0:
            rest = "".join(chr(dice.randrange(0x100)) for _ in range(min(size, 200)))
        case 1:
            rest = "".join(dice.choices(URLSAFE + ".=", k=size))
        case 2:
            rest = base64.b64encode(dice.randbytes(min(size, 200))).decode()
        case 3:
            rest = base64.b64encode(f"ada:{junk(dice)!s}".encode()).decode()
        case _:
            rest = str(junk(dice)) + dice.choice(["\ud800", "\udcff", "\U0001f600", "", ":"])
    return scheme + rest


async def test_no_header_opens_or_breaks_any_door() -> None:
    dice = random.Random("headers")
    doors = [door("HS256"), ApiKey(["k-0123456789abcdef"]), Basic({"ada": "geheim-0123456789"})]
    doors.append(AnyOf(*doors))
    for _ in range(ROUNDS * 3):
        headers = {name: odd_value(dice) for name in ("authorization", "x-api-key") if dice.random() < 0.7}
        await expect_refusal(dice.choice(doors), headers)
