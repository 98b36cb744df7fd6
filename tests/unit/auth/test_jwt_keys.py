"""Keys and signed tokens: a key verifies what it is made for, and a token is read the narrow way or not at all."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from trimaran.auth import Refused, jwt_keys
from trimaran.auth.jwt_keys import FixedKeys, import_key, import_secret, import_set, read_signed, split_signed
from trimaran.errors import ConfigError

SPKI = b"-----BEGIN PUBLIC KEY-----\nMFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAE\n-----END PUBLIC KEY-----\n"


async def read(token: str, made: Any, algorithms: frozenset[str] | None = None, **more: Any) -> dict[str, Any]:
    found = FixedKeys([made], by_kid=False)
    return await read_signed(token, found, found.algorithms if algorithms is None else algorithms, **more)


async def refused(token: str, made: Any, algorithms: frozenset[str] | None = None, **more: Any) -> Refused:
    with pytest.raises(Refused) as caught:
        await read(token, made, algorithms, **more)
    assert caught.value.kind == "invalid_token"
    return caught.value


# --- keys ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alg", "allowed"),
    [
        ("RS256", {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}),
        ("ES256", {"ES256"}),
        ("ES384", {"ES384"}),
        ("EdDSA", {"EdDSA", "Ed25519"}),
    ],
)
@pytest.mark.parametrize("form", ["pem", "bytes", "jwk", "key"])
def test_a_key_verifies_what_its_kind_can(mint: Any, alg: str, allowed: set[str], form: str) -> None:
    forms = {"pem": mint.pem(alg), "bytes": mint.pem(alg).encode(), "jwk": mint.jwk(alg), "key": mint.keys[alg]}
    assert import_key(forms[form]).algorithms == allowed & jwt_keys.ALGORITHMS


@pytest.mark.parametrize(
    ("size", "allowed"), [(32, {"HS256"}), (48, {"HS256", "HS384"}), (64, {"HS256", "HS384", "HS512"})]
)
def test_a_secret_is_good_for_hashes_no_longer_than_itself(size: int, allowed: set[str]) -> None:
    """RFC 7518, 3.2."""
    assert import_secret("x" * size).algorithms == allowed


def test_a_short_secret_is_refused_and_not_quoted() -> None:
    with pytest.raises(ConfigError, match="31 bytes can be guessed") as caught:
        import_secret("hunter2" * 4 + "xyz")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("alg", ["RS256", "ES256", "EdDSA"])
@pytest.mark.parametrize("before", ["", "\n", "x"])
def test_a_public_key_is_no_secret(mint: Any, alg: str, before: str) -> None:
    """A key that everybody has would sign for everybody."""
    with pytest.raises(ConfigError, match="public key, which is no secret"):
        import_secret(before + mint.pem(alg))
    der = base64.b64decode("".join(mint.pem(alg).splitlines()[1:-1]))
    with pytest.raises(ConfigError, match="public key, which is no secret"):
        import_secret(der)


def test_text_that_looks_like_a_public_key_is_no_secret_either() -> None:
    for text in (SPKI, b"ssh-rsa " + b"A" * 64, b"ssh-ed25519 " + b"A" * 64, b"ecdsa-sha2-nistp256 " + b"A" * 64):
        with pytest.raises(ConfigError, match="public key"):
            import_secret(text)


def test_a_secret_of_another_type_is_refused() -> None:
    wrong: Any = 12345
    with pytest.raises(ConfigError, match="string or bytes, not int"):
        import_secret(wrong)


@pytest.mark.parametrize(
    "source", ["", "text", SPKI, b"\x00", {}, {"kty": "oct", "k": "AAAA"}, {"kty": "RSA"}, 7, None]
)
def test_what_is_no_public_key_is_refused(source: Any) -> None:
    with pytest.raises(ConfigError, match="key: neither PEM"):
        import_key(source)


@pytest.mark.parametrize("more", [{"use": "enc"}, {"key_ops": ["deriveKey"]}, {"alg": "RSA-OAEP"}, {"alg": "ES384"}])
def test_a_key_for_another_use_is_refused(mint: Any, more: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="verifies no signature"):
        import_key(mint.jwk("ES256", **more))


def test_keys_of_other_kinds_are_refused() -> None:
    for made in (OKPKey.generate_key("X25519"), ECKey.generate_key("secp256k1")):
        with pytest.raises(ConfigError, match="verifies no signature"):
            import_key(made)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_small_rsa_key_is_refused() -> None:
    with pytest.warns():
        small = RSAKey.generate_key(1024)
    with pytest.raises(ConfigError, match="2048 bits"):
        import_key(small)


def test_a_set_keeps_what_verifies_and_passes_over_the_rest(mint: Any) -> None:
    found = import_set(
        {
            "keys": [
                {"kty": "oct", "k": "AAAA", "kid": "secret"},
                {"kty": "unknown"},
                None,
                "text",
                mint.jwk("RS256", use="enc"),
                mint.jwk("RS256", kid="rsa", alg="RS256"),
                mint.jwk("ES256", kid=7),
                mint.jwk("EdDSA"),
            ]
        }
    )
    assert [(key.kid, sorted(key.algorithms)[0]) for key in found] == [("rsa", "RS256"), (None, "Ed25519")]
    assert found[0].algorithms == {"RS256"}
    assert import_set(KeySet([ECKey.generate_key("P-256")]))[0].algorithms == {"ES256"}


@pytest.mark.parametrize(
    "source", [None, [], "x", {}, {"keys": {}}, {"keys": []}, {"keys": [{"kty": "oct", "k": "AA"}]}]
)
def test_a_set_without_keys_is_refused(source: Any) -> None:
    with pytest.raises(ValueError, match="JWK Set"):
        import_set(source)


# --- tokens ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alg", ["HS256", "HS512", "RS256", "RS512", "PS256", "ES256", "ES384", "EdDSA"])
async def test_a_signed_token_is_read(mint: Any, alg: str) -> None:
    made = import_secret(mint.secret) if alg.startswith("HS") else import_key(mint.jwk(alg))
    assert await read(mint.token(alg), made) == mint.claims()
    assert await refused(mint.token(alg)[:-4] + "AAAA", made)
    assert await refused(mint.token(alg), made, made.algorithms - {alg})


async def test_alg_none_verifies_nothing(mint: Any) -> None:
    payload = base64.urlsafe_b64encode(json.dumps(mint.claims()).encode()).rstrip(b"=").decode()
    for spelling in ("none", "None", "NONE", "nOnE", "", " none"):
        header = base64.urlsafe_b64encode(json.dumps({"alg": spelling}).encode()).rstrip(b"=").decode()
        for made in (import_secret(mint.secret), import_key(mint.jwk("RS256"))):
            for signature in ("", "AAAA", mint.token().split(".")[2]):
                await refused(f"{header}.{payload}.{signature}", made)
                # Not even where somebody allows it.
                await refused(f"{header}.{payload}.{signature}", made, made.algorithms | {"none", spelling})


async def test_a_public_key_is_not_used_as_a_secret_because_a_token_says_so(mint: Any) -> None:
    """The classic: HS256 over the PEM that everybody can read."""
    for alg in ("RS256", "ES256", "EdDSA"):
        made = import_key(mint.pem(alg))
        for text in (mint.pem(alg), mint.pem(alg).strip(), json.dumps(mint.jwk(alg))):
            signing_input = mint.token("HS256").rpartition(".")[0].encode()

            class Raw:
                @staticmethod
                def get_op_key(_operation: str, text: str = text) -> bytes:
                    return text.encode()

            raw: Any = Raw()
            signature = JWSRegistry.algorithms["HS256"].sign(signing_input, raw)
            token = f"{signing_input.decode()}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
            await refused(token, made)
            await refused(token, made, made.algorithms | {"HS256"})


@pytest.mark.parametrize(
    "alg", ["ES384", "RS256", "EdDSA", "HS256", "ES256K", "RSA-OAEP", "dir", "es256", 7, None, ["ES256"], {}]
)
async def test_the_key_decides_the_algorithm_and_not_the_token(mint: Any, alg: Any) -> None:
    token = mint.raw("ES256", json.dumps(mint.claims()).encode(), header={"alg": alg})
    await refused(token, import_key(mint.jwk("ES256")))
    await refused(token, import_key(mint.jwk("ES256")), jwt_keys.ALGORITHMS)


@pytest.mark.parametrize(
    "header",
    [
        {"crit": ["exp"]},
        {"crit": []},
        {"crit": ["b64"], "b64": False},
        {"b64": False},
        {"b64": True},
        {"zip": "DEF"},
        {"kid": 7},
        {"kid": ["a"]},
        {"kid": {"a": 1}},
        {"typ": 7},
    ],
)
async def test_headers_that_change_the_meaning_are_refused(mint: Any, header: dict[str, Any]) -> None:
    await refused(mint.token(header=header), import_secret(mint.secret))


@pytest.mark.parametrize("name", ["jwk", "jku", "x5u", "x5c", "x5t", "x5t#S256"])
async def test_keys_that_a_token_brings_along_are_not_looked_at(mint: Any, name: str) -> None:
    other = ECKey.generate_key("P-256")
    values = {"jwk": other.as_dict(private=False), "x5c": ["AAAA"]}
    header = {name: values.get(name, "https://evil.example/keys")}
    made = import_key(mint.jwk("ES256"))
    forged = mint.raw("ES256", json.dumps(mint.claims()).encode(), header=header, key=other)
    await refused(forged, made)
    # They are no reason to refuse a good token, either.
    assert await read(mint.token("ES256", header=header), made) == mint.claims()


KIDS = [
    "other",
    "",
    "rsa\x00",
    "RSA",
    "rsa ",
    "../../dev/null",
    "' OR 1=1 --",
    "rsа",
    "\u2126",
    "x" * 5000,
    "|cat /etc/passwd",
]


@pytest.mark.parametrize("kid", KIDS, ids=range(len(KIDS)))
async def test_a_kid_is_a_name_compared_to_the_byte(mint: Any, kid: str) -> None:
    found = FixedKeys(import_set({"keys": [mint.jwk("RS256", kid="rsa"), mint.jwk("ES256", kid="ec")]}), by_kid=True)
    with pytest.raises(Refused):
        await read_signed(mint.token("RS256", header={"kid": kid}), found, found.algorithms)
    assert await read_signed(mint.token("RS256", header={"kid": "rsa"}), found, found.algorithms)
    assert await read_signed(mint.token("RS256"), found, found.algorithms)


async def test_a_kid_does_not_lend_its_key_to_another_algorithm(mint: Any) -> None:
    found = FixedKeys(import_set({"keys": [mint.jwk("RS256", kid="rsa"), mint.jwk("ES256", kid="ec")]}), by_kid=True)
    with pytest.raises(Refused):
        await read_signed(mint.token("RS256", header={"kid": "ec"}), found, found.algorithms)


async def test_a_key_declared_for_one_algorithm_is_not_used_for_another(mint: Any) -> None:
    """Though it could, and though another key of the set may."""
    other = RSAKey.generate_key(2048).as_dict(private=False)
    found = FixedKeys(
        import_set({"keys": [mint.jwk("RS256", kid="a", alg="RS256"), {**other, "kid": "b", "alg": "PS256"}]}),
        by_kid=True,
    )
    assert found.algorithms == {"RS256", "PS256"}
    for header in ({"kid": "a"}, {}):
        assert await read_signed(mint.token("RS256", header=header), found, found.algorithms)
        with pytest.raises(Refused):
            await read_signed(mint.token("PS256", header=header), found, found.algorithms)


async def test_keys_without_a_name_serve_tokens_with_any(mint: Any) -> None:
    found = FixedKeys(import_set({"keys": [mint.jwk("RS256"), mint.jwk("ES256", kid="ec")]}), by_kid=True)
    assert await read_signed(mint.token("RS256", header={"kid": "k1"}), found, found.algorithms)
    with pytest.raises(Refused):
        await read_signed(mint.token("ES256", header={"kid": "k1"}), found, found.algorithms)


async def test_only_so_many_keys_are_tried_for_a_token_without_kid(mint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Any] = []
    monkeypatch.setattr(jwt_keys, "verifies", lambda *_: tried.append(1))
    found = FixedKeys([import_key(mint.jwk("ES256"))] * 100, by_kid=True)
    with pytest.raises(Refused):
        await read_signed(mint.token("ES256"), found, found.algorithms)
    assert len(tried) == 16


@pytest.mark.parametrize(
    "typ",
    ["dpop+jwt", "application/dpop+jwt", "DPOP+JWT", "logout+jwt", "oauth-id-jag+jwt", "secevent+jwt", "id_token+jwt"],
)
async def test_another_kind_of_token_is_no_access_token(mint: Any, typ: str) -> None:
    """RFC 8725, 3.11: what says that it is something else is not taken for this."""
    made = import_secret(mint.secret)
    await refused(mint.token(header={"typ": typ}), made, kinds={"at+jwt"})
    assert await read(mint.token(header={"typ": typ}), made)


@pytest.mark.parametrize("typ", ["JWT", "jwt", "at+jwt", "application/at+jwt", "AT+JWT", "Bearer", None])
async def test_an_access_token_may_say_so_in_the_usual_ways(mint: Any, typ: str | None) -> None:
    assert await read(mint.token(header={"typ": typ}), import_secret(mint.secret), kinds={"at+jwt"})


def spellings(part: str) -> list[str]:
    """Other ways to write the same bytes, and nearly the same."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    found = [
        part + "=",
        part + "==",
        part + "=" * (-len(part) % 4 or 4),
        part + "\n",
        " " + part,
        part + "A",
        part + "!",
    ]
    found += [part[:5] + junk + part[5:] for junk in ("\n", " ", "=", "%", "\x00", "é", "\ud800")]
    found += [part.replace("-", "+").replace("_", "/")]
    if len(part) % 4:
        last = alphabet.index(part[-1])
        found += [part[:-1] + alphabet[last ^ 1]]
    return [text for text in found if text != part]


@pytest.mark.parametrize("index", [0, 1, 2])
async def test_a_token_has_one_spelling(mint: Any, index: int) -> None:
    """Padding, other alphabets, blanks and stray bits would give one token many names, and a block list none."""
    made = import_key(mint.jwk("EdDSA"))
    token = mint.token("EdDSA")
    assert await read(token, made)
    parts = token.split(".")
    for text in spellings(parts[index]):
        await refused(".".join([*parts[:index], text, *parts[index + 1 :]]), made)


async def test_a_header_or_payload_spelt_loosely_is_refused_although_signed(mint: Any) -> None:
    """The signature is over the text, so a signer could use any spelling: only the canonical one is read."""
    made = import_secret(mint.secret)
    key = mint.keys["HS256"]
    for index in (0, 1):
        for text in spellings(mint.token().split(".")[index]):
            if not text.isascii():
                continue
            parts = mint.token().split(".")[:2]
            parts[index] = text
            signature = JWSRegistry.algorithms["HS256"].sign(".".join(parts).encode(), key)
            token = ".".join([*parts, base64.urlsafe_b64encode(signature).rstrip(b"=").decode()])
            await refused(token, made)


@pytest.mark.parametrize(
    "token",
    ["", ".", "..", "...", "a", "a.b", "a.b.c", "a.b.c.d", "a.b.c.d.e", "é.é.é", "\ud800.a.b", "\x00", "." * 10_000],
)
async def test_what_is_not_three_parts_is_no_token(mint: Any, token: str) -> None:
    await refused(token, import_secret(mint.secret))


async def test_more_or_fewer_parts_than_three_are_refused(mint: Any) -> None:
    token = mint.token()
    for wrong in (token + ".", token + ".AAAA", "." + token, token.rpartition(".")[0], token + "." + token):
        await refused(wrong, import_secret(mint.secret))


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"null",
        b"7",
        b'"text"',
        b"[]",
        b'[{"sub": "ada"}]',
        b'{"sub": "ada"',
        b'{"sub": "ada"} {}',
        b'{"sub": "ada",}',
        b"{'sub': 'ada'}",
        b'{"exp": NaN}',
        b'{"exp": Infinity}',
        b'{"exp": -Infinity}',
        b'{"exp": 1e400}',
        b'{"sub": "eve", "sub": "ada"}',
        b'{"sub": "eve", "s\\u0075b": "ada"}',
        b'{"act": {"sub": "eve", "sub": "ada"}}',
        b'{"list": [{"a": 1, "a": 1}]}',
        b'{"sub": "\\ud800"}',
        b'{"sub": "\xff"}',
        b"\xef\xbb\xbf{}",
        '{"sub": "ada"}'.encode("utf-16"),
        b'{"a":' * 2000 + b"1" + b"}" * 2000,
        b"eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiJhZGEifQ.AAAA",
    ],
)
async def test_a_payload_that_is_not_one_plain_object_is_refused(mint: Any, payload: bytes) -> None:
    """RFC 7519, 4: claims are unique; RFC 8259: and they are JSON."""
    token = mint.raw("HS256", payload)
    await refused(token, import_secret(mint.secret))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"null",
        b"[]",
        b'"HS256"',
        b'{"typ": "JWT"}',
        b'{"alg": "none", "alg": "HS256"}',
        b'{"alg": "HS256", "alg": "none"}',
        b'{"alg": "HS256", "al\\u0067": "HS256"}',
        b'{"alg": "HS256", "kid": "a", "kid": "b"}',
        b'{"alg": "HS256"',
        b'{"alg": "HS256", "x": NaN}',
        b'{"alg": "HS256"}\x00',
        b'{"alg":' * 1500 + b"1" + b"}" * 1500,
    ],
)
async def test_a_header_that_is_not_one_plain_object_is_refused(mint: Any, header: bytes) -> None:
    token = mint.raw("HS256", json.dumps(mint.claims()).encode(), header=header)
    await refused(token, import_secret(mint.secret))


async def test_a_huge_token_is_refused_before_it_is_read(mint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwt_keys, "_decode", lambda *_: pytest.fail("decoded"))
    with pytest.raises(Refused, match="larger than") as caught:
        split_signed("a" * 10_000_000)
    assert caught.value.status == 400


async def test_a_signature_of_zeros_is_refused(mint: Any) -> None:
    """The "psychic signature": r = s = 0 is not on offer."""
    for size in (0, 1, 63, 64, 65, 96):
        token = mint.token("ES256").rpartition(".")[0]
        await refused(
            f"{token}.{base64.urlsafe_b64encode(bytes(size)).rstrip(b'=').decode()}", import_key(mint.jwk("ES256"))
        )


async def test_an_error_in_the_mathematics_is_a_no(mint: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def verify(self, *_: Any) -> bool:
            raise OverflowError("inside")

    token = mint.token("ES256")
    monkeypatch.setitem(JWSRegistry.algorithms, "ES256", Broken())  # pyright: ignore[reportArgumentType]
    await refused(token, import_key(mint.jwk("ES256")))
