"""DPoP proofs as RFC 9449 has them, and the nonces that servers ask to see in them."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
from typing import Any

import pytest
from joserfc.jwk import ECKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from trimaran.errors import ConfigError
from trimaran.oauth.dpop import Nonces, ProofKey

KEY = ProofKey.generate()
PRIVATE = {"d", "p", "q", "dp", "dq", "qi", "k", "oth"}


def parts(token: str) -> tuple[dict[str, Any], dict[str, Any]]:
    header, claims, _ = (base64.urlsafe_b64decode(part + "==") for part in token.split("."))
    return json.loads(header), json.loads(claims)


def claims(url: str = "https://h/p", method: str = "POST", **options: Any) -> dict[str, Any]:
    return parts(KEY.proof(method, url, **{"now": 7.9, "jti": "j", **options}))[1]


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "EdDSA", "RS256", "PS256"])
def test_a_proof_verifies_with_the_key_in_its_own_header(algorithm: str) -> None:
    """Whose rule: RFC 9449, 4.2: typ, alg, and the public key alone."""
    key = ProofKey.generate(algorithm)
    proof = key.proof("POST", "https://h/p", now=1, jti="j")
    header, _ = parts(proof)
    jwk = header.pop("jwk")
    assert header == {"typ": "dpop+jwt", "alg": algorithm}
    assert not jwk.keys() & PRIVATE
    text, _, signature = proof.rpartition(".")
    public = {"EC": ECKey, "RSA": RSAKey, "OKP": OKPKey}[jwk["kty"]].import_key(jwk)
    raw = base64.urlsafe_b64decode(signature + "==")
    assert JWSRegistry.algorithms[algorithm].verify(text.encode(), raw, public)
    assert not JWSRegistry.algorithms[algorithm].verify(text.encode() + b"x", raw, public)
    assert public.thumbprint() == key.thumbprint


def test_the_least_proof_says_which_request_and_when() -> None:
    assert claims() == {"jti": "j", "htm": "POST", "htu": "https://h/p", "iat": 7}


def test_a_proof_with_a_token_holds_its_hash_and_not_the_token() -> None:
    """Whose rule: RFC 9449, 4.2 (`ath`); the value is that of its figure 12."""
    token = "Kz~8mXK1EalYznwH-LC-1fBAo.4Ljp~zsPE_NeO.gxU"
    assert claims(access_token=token)["ath"] == "fUHyO2r2Z3DZ53EsNrWBb0xWXoaNy59IiKCAqksmQEo"
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"t").digest()).rstrip(b"=").decode()
    assert claims(access_token="t")["ath"] == digest


def test_a_proof_holds_the_nonce_it_was_told() -> None:
    assert claims(nonce="n-1")["nonce"] == "n-1"
    assert "nonce" not in claims()


@pytest.mark.parametrize(
    ("url", "htu"),
    [
        ("https://h/p?q=1", "https://h/p"),
        ("https://h/p#f", "https://h/p"),
        ("https://h/p?a=b?c#d?e", "https://h/p"),
        ("https://h", "https://h/"),
        ("https://h?q", "https://h/"),
        ("HTTPS://Host.Example:443/P/", "https://host.example/P/"),
        ("http://h:80/p", "http://h/p"),
        ("http://h:443/p", "http://h:443/p"),
        ("https://h:8443/p;v=1/%7Ex", "https://h:8443/p;v=1/%7Ex"),
        ("http://[::1]:8080/mcp?x", "http://[::1]:8080/mcp"),
        ("https://[::1]/", "https://[::1]/"),
        ("https://user:hush@h/p", "https://h/p"),
    ],
)
def test_htu_is_the_url_without_query_fragment_and_password(url: str, htu: str) -> None:
    """Whose rule: RFC 9449, 4.2."""
    assert claims(url)["htu"] == htu


def test_htm_is_the_method_in_capitals() -> None:
    assert claims(method="get")["htm"] == "GET"


@pytest.mark.parametrize(
    ("jwk", "thumbprint"),
    [
        pytest.param(
            {
                "kty": "OKP",
                "crv": "Ed25519",
                "d": "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A",
                "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo",
            },
            "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k",
            id="RFC 8037, A.3",
        ),
        pytest.param(
            {
                "kty": "EC",
                "crv": "P-256",
                "x": "l8tFrhx-34tV3hRICRDY9zCkDlpBhF42UQUfWVAWBFs",
                "y": "9VE4jf_Ok_o64zbTTlcuNJajHmt6v9TDVrU0CdvGRDA",
                "d": None,
            },
            "0ZcOCORZNYy-DWpqq30jZyJGHTN0d2HglBV3uiguA4I",
            id="RFC 9449, 6.1",
        ),
    ],
)
def test_the_thumbprint_is_that_of_the_rfc(jwk: dict[str, Any], thumbprint: str) -> None:
    if jwk["d"] is None:  # the RFC shows the public half only
        members = {name: jwk[name] for name in sorted(jwk) if name != "d"}
        digest = hashlib.sha256(json.dumps(members, separators=(",", ":")).encode()).digest()
        assert base64.urlsafe_b64encode(digest).rstrip(b"=").decode() == thumbprint
        members = {name: value for name, value in sorted(KEY.to_jwk().items()) if name in ("crv", "kty", "x", "y")}
        digest = hashlib.sha256(json.dumps(members, separators=(",", ":")).encode()).digest()
        assert KEY.thumbprint == base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
    else:
        assert ProofKey.from_jwk(jwk).thumbprint == thumbprint


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "EdDSA", "RS256", "PS256"])
def test_a_stored_key_is_the_same_key_again(algorithm: str) -> None:
    key = ProofKey.generate(algorithm)
    again = ProofKey.from_jwk(json.loads(json.dumps(key.to_jwk())))
    assert (again.thumbprint, again.algorithm) == (key.thumbprint, algorithm)
    assert again.to_jwk() == key.to_jwk()


@pytest.mark.parametrize(
    "jwk", [{}, {"kty": "oct", "k": "aHVzaA"}, parts(KEY.proof("GET", "http://h", now=1, jti="j"))[0]["jwk"]]
)
def test_what_is_no_private_key_is_refused(jwk: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="private members"):
        ProofKey.from_jwk(jwk)


def test_an_algorithm_with_a_shared_secret_is_refused() -> None:
    """Whose rule: RFC 9449, 4.2: alg must not be none or symmetric."""
    for algorithm in ("HS256", "none", ""):
        with pytest.raises(ConfigError, match="is not supported"):
            ProofKey.generate(algorithm)


def test_no_repr_shows_a_key_or_a_nonce() -> None:
    nonces = Nonces()
    nonces.learn("https://h", {"dpop-nonce": "hush"})
    assert "hush" not in repr(nonces)
    assert KEY.to_jwk()["d"] not in repr(KEY)
    assert "ES256" in repr(KEY)


def test_the_latest_nonce_of_an_origin_counts_for_all_of_its_urls() -> None:
    """Whose rule: RFC 9449, 8.2."""
    nonces = Nonces()
    assert nonces.get("https://h/a") is None
    assert nonces.learn("https://h/a?q", {"dpop-nonce": "1"})
    assert nonces.get("HTTPS://H:443/b") == "1"
    assert not nonces.learn("https://h/c", {"dpop-nonce": "1"})
    assert nonces.learn("https://h/c", {"dpop-nonce": "2"})
    assert nonces.get("https://h") == "2"
    for other in ("https://h:8443", "http://h", "https://g", "https://h.g"):
        assert nonces.get(other) is None


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"dpop-nonce": ""},
        {"dpop-nonce": "a b"},
        {"dpop-nonce": 'a"b'},
        {"dpop-nonce": "a\\b"},
        {"dpop-nonce": "x" * 4096},
    ],
    ids=["none", "empty", "blank", "quote", "backslash", "long"],
)
def test_what_cannot_be_a_nonce_changes_nothing(headers: dict[str, str]) -> None:
    """Whose rule: RFC 9449, 8.1 (NQCHAR); the length is ours."""
    nonces = Nonces()
    nonces.learn("https://h", {"dpop-nonce": "good"})
    assert not nonces.learn("https://h", headers)
    assert nonces.get("https://h") == "good"


def test_the_origins_heard_from_last_are_remembered() -> None:
    nonces = Nonces()
    for number in range(64):
        nonces.learn(f"https://h{number}", {"dpop-nonce": "n"})
    nonces.learn("https://h0", {"dpop-nonce": "again"})
    nonces.learn("https://one-more", {"dpop-nonce": "n"})
    assert nonces.get("https://h0") == "again"
    assert nonces.get("https://h1") is None
    assert nonces.get("https://h2") == "n"
    assert "64 origins" in repr(nonces)


@pytest.mark.slow
def test_importing_loads_no_cryptography() -> None:
    """Whose rule: ours (the budgets in bench/README.md). In a fresh interpreter, since this one has loaded it."""
    code = "import sys, trimaran.oauth.dpop; sys.exit(any(m in sys.modules for m in ('joserfc', 'cryptography')))"
    assert subprocess.run([sys.executable, "-I", "-c", code], timeout=30).returncode == 0
