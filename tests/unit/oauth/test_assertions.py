"""A client signs who it is: the claims of RFC 7523, the algorithm its key can do, and nothing of the key in any message."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import dsa, ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from joserfc.errors import SecurityWarning
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from trimaran.errors import ConfigError
from trimaran.oauth.assertions import SigningKey, client_assertion

RSA = rsa.generate_private_key(65537, 2048)
P256, P384, P521 = (ec.generate_private_key(curve()) for curve in (ec.SECP256R1, ec.SECP384R1, ec.SECP521R1))
ED25519 = ed25519.Ed25519PrivateKey.generate()
# Parameters that were made beforehand: to find some takes seconds.
DSA = dsa.DSAParameterNumbers(
    p=0xF720D6CCC8B88B9342E8A3DB565A512225DEC58EFE5E71C24FED0880B57EC3367B6E50BFF08E0395E8DFFF9A2702646E798FB7A50DDC5D6373CB0C2F7601B7BD8B876F2327AEE0D1BDD49D1B11FC5C54628074D23FFAF82F6CD5AC295B45E534BDA618D7D4F98C16ECF068EA0879556C08D9CF0245A1B8B543A150E9692E003B,
    q=0xC550B26EC4AC123A2EFE9E09ED59F7BD2EAC5807,
    g=0xC0D4F5412EB0C9DE00C392DD7847213B4DBD71290DF93CAD1A61BCA8CC626E8CD20EA45CEF0BDB1431B0C53B9E83EE26331FDD13979B16E8EF8CCBE3F1AF3312406420037D6654CF9EBDF53F8CD8D2231283D346FC5D25C7C5B8C7D065F0F7E3F4F5389869A568F44A7474CE233807944F434E4B5B1F0F2CB59829328CB70392,
)
KEYS = {"RSA": RSA, "P-256": P256, "P-384": P384, "P-521": P521, "Ed25519": ED25519}


def pem(key: Any, form: PrivateFormat = PrivateFormat.PKCS8) -> bytes:
    return key.private_bytes(Encoding.PEM, form, NoEncryption())


def public_pem(key: Any) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def parts(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    header, claims, _ = (base64.urlsafe_b64decode(part + "==") for part in token.split("."))
    return json.loads(header), json.loads(claims)


def verifies(token: str, key: Any, algorithm: str) -> bool:
    """Does another reader of JWTs agree? It gets the public half alone."""
    kind = {"R": RSAKey, "P": RSAKey, "E": ECKey}[algorithm[0]] if not algorithm.startswith("Ed") else OKPKey
    text, _, signature = token.rpartition(".")
    raw = base64.urlsafe_b64decode(signature + "==")
    return JWSRegistry.algorithms[algorithm].verify(text.encode(), raw, kind.import_key(public_pem(key)))


@pytest.mark.parametrize(
    ("kind", "asked", "algorithm"),
    [
        ("RSA", None, "RS256"),
        ("RSA", "PS256", "PS256"),
        ("RSA", "RS512", "RS512"),
        ("P-256", None, "ES256"),
        ("P-384", None, "ES384"),
        ("P-521", None, "ES512"),
        ("P-384", "ES384", "ES384"),
        ("Ed25519", None, "EdDSA"),
        ("Ed25519", "Ed25519", "Ed25519"),
    ],
)
def test_the_algorithm_follows_from_the_key_and_the_signature_verifies(
    kind: str, asked: str | None, algorithm: str
) -> None:
    key = SigningKey.from_pem(pem(KEYS[kind]).decode(), asked)
    assert key.algorithm == algorithm
    token = client_assertion(key, client_id="c", audience="a", now=1, jti="j")
    assert parts(token)[0] == {"alg": algorithm, "typ": "JWT"}
    assert verifies(token, KEYS[kind], algorithm)
    other = key.sign({"typ": "JWT"}, {"x": 1})
    assert not verifies(token.rpartition(".")[0] + "." + other.rpartition(".")[2], KEYS[kind], algorithm)


def test_the_claims_say_who_for_whom_and_how_long() -> None:
    """Whose rule: RFC 7523, 3; OpenID Connect Core, 9."""
    key = SigningKey.from_pem(pem(P256), kid="k1")
    token = client_assertion(key, client_id="me", audience="https://as", now=1700000000.9, jti="once", lifetime=60)
    assert parts(token) == (
        {"alg": "ES256", "typ": "JWT", "kid": "k1"},
        {
            "iss": "me",
            "sub": "me",
            "aud": "https://as",
            "jti": "once",
            "iat": 1700000000,
            "exp": 1700000060,
        },
    )


def test_an_assertion_lives_five_minutes_unless_said() -> None:
    _, claims = parts(
        client_assertion(SigningKey.from_pem(pem(P256)), client_id="c", audience=["a", "b"], now=5, jti="j")
    )
    assert claims["exp"] - claims["iat"] == 300
    assert claims["aud"] == ["a", "b"]


@pytest.mark.parametrize("key", [RSA, P256], ids=["RSA", "EC"])
def test_the_older_forms_of_pem_are_read(key: Any) -> None:
    assert SigningKey.from_pem(pem(key, PrivateFormat.TraditionalOpenSSL)).algorithm in ("RS256", "ES256")


def encrypted(form: PrivateFormat) -> bytes:
    return P256.private_bytes(Encoding.PEM, form, BestAvailableEncryption(b"hush"))


@pytest.mark.parametrize(
    ("text", "algorithm", "said"),
    [
        pytest.param(encrypted(PrivateFormat.PKCS8), None, "the PEM is encrypted; pass it decrypted", id="encrypted"),
        pytest.param(
            encrypted(PrivateFormat.TraditionalOpenSSL), None, "the PEM is encrypted", id="encrypted, old form"
        ),
        pytest.param(public_pem(P256), None, "this is a public key", id="public"),
        pytest.param(
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
            None,
            "this is a public key",
            id="certificate",
        ),
        pytest.param("/etc/keys/me.pem", None, "not its path", id="path"),
        pytest.param("", None, "this is not PEM", id="empty"),
        pytest.param(pem(P256).replace(b"\n", b"\\n"), None, "turn them into real ones", id="escaped line breaks"),
        pytest.param(pem(P256)[:80] + b"\n-----END PRIVATE KEY-----\n", None, "cannot be read", id="cut"),
        pytest.param(pem(DSA.parameters().generate_private_key()), None, "a key of this kind", id="DSA"),
        pytest.param(pem(ec.generate_private_key(ec.SECP256K1())), None, "curve secp256k1", id="another curve"),
        pytest.param(pem(P256), "RS256", "this P-256 key cannot sign with 'RS256'; use ES256", id="RS256 by EC"),
        pytest.param(pem(P384), "ES256", "use ES384", id="ES256 by P-384"),
        pytest.param(pem(RSA), "ES256", "use RS256 or PS256", id="ES256 by RSA"),
        pytest.param(pem(ED25519), "ES256", "use EdDSA", id="ES256 by Ed25519"),
        pytest.param(pem(RSA), "HS256", "cannot sign with 'HS256'", id="HS256"),
        pytest.param(pem(RSA), "none", "cannot sign with 'none'", id="none"),
    ],
)
def test_a_key_that_cannot_sign_is_refused_at_once_and_not_quoted(
    text: str | bytes, algorithm: str | None, said: str
) -> None:
    with pytest.raises(ConfigError, match="^(private_key|algorithm): ") as caught:
        SigningKey.from_pem(text, algorithm)
    assert said in str(caught.value)
    assert caught.value.__cause__ is None
    octets = text.encode() if isinstance(text, str) else text
    body = octets.replace(b"\\n", b"\n").split(b"\n")[1:-2]
    assert not any(line.decode() in repr(caught.value) for line in body if line)


def test_a_short_rsa_key_is_refused() -> None:
    """Whose rule: RFC 7518, 3.3."""
    with pytest.raises(ConfigError, match="1024 bits"):
        SigningKey.from_pem(pem(rsa.generate_private_key(65537, 1024)))
    with pytest.warns(SecurityWarning), pytest.raises(ConfigError, match="1024 bits"):
        SigningKey.from_jwk(RSAKey.generate_key(1024).as_dict(private=True))


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "ES512", "EdDSA", "RS256", "PS256"])
def test_a_generated_key_survives_its_jwk(algorithm: str) -> None:
    key = SigningKey.generate(algorithm)
    again = SigningKey.from_jwk(json.loads(json.dumps(key.to_jwk(private=True))))
    assert (again.algorithm, again.thumbprint) == (algorithm, key.thumbprint)
    assert again.to_jwk(private=True) == key.to_jwk(private=True)


@pytest.mark.slow
def test_kid_and_algorithm_of_a_jwk_count_unless_others_are_given() -> None:
    jwk = SigningKey.generate("PS256").to_jwk(private=True)
    assert SigningKey.from_jwk({**jwk, "kid": "a"}).kid == "a"
    assert SigningKey.from_jwk({**jwk, "kid": "a"}, "RS256", "b").kid == "b"
    assert SigningKey.from_jwk(jwk, "RS256").algorithm == "RS256"
    assert SigningKey.from_jwk({**jwk, "kid": "a"}).to_jwk(private=True)["kid"] == "a"


@pytest.mark.parametrize(
    "jwk",
    [
        pytest.param({}, id="empty"),
        pytest.param({"kty": "oct", "k": "c2VjcmV0"}, id="shared secret"),
        pytest.param({"kty": []}, id="kty is a list"),
        pytest.param({"kty": "EC", "crv": "P-256", "x": "c2VjcmV0", "y": 5}, id="broken"),
        pytest.param(SigningKey.generate().to_jwk(), id="public"),
    ],
)
def test_a_jwk_without_a_private_key_is_refused_and_not_quoted(jwk: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="private members") as caught:
        SigningKey.from_jwk(jwk)
    assert "c2VjcmV0" not in repr(caught.value)


def test_an_unknown_algorithm_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="'HS256' is not supported.* ES256"):
        SigningKey.generate("HS256")


def test_the_public_jwk_and_the_repr_keep_the_key_to_themselves() -> None:
    for algorithm in ("RS256", "ES256", "EdDSA"):
        key = SigningKey.generate(algorithm)
        whole, public = key.to_jwk(private=True), key.to_jwk()
        assert not public.keys() & {"d", "p", "q", "dp", "dq", "qi"}
        assert not any(value in repr(key) for name, value in whole.items() if name in ("d", "p", "q"))
