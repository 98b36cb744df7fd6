"""Stored forms of keys and passwords."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
from typing import Any

import pytest

from trimaran.auth import hash_key, hash_password, hashes, verify_key, verify_password
from trimaran.errors import ConfigError


def test_a_key_with_pepper_is_stored_as_hmac() -> None:
    """R158: hmac-sha256$<base64>."""
    stored = hash_key("k-1", "pepper")
    made = base64.b64encode(hmac.digest(b"pepper", b"k-1", "sha256")).decode()
    assert stored == f"hmac-sha256${made}" == hash_key("k-1", b"pepper")
    assert verify_key("k-1", stored, "pepper")
    assert not verify_key("k-2", stored, "pepper")
    assert not verify_key("k-1", stored, "other")


def test_a_key_without_pepper_is_stored_as_hex() -> None:
    """R158: the legacy form, which a verifier with a pepper accepts too."""
    stored = hash_key("k-1")
    assert stored == hashlib.sha256(b"k-1").hexdigest()
    assert verify_key("k-1", stored)
    assert verify_key("k-1", stored, "pepper")
    assert not verify_key("k-2", stored)


def test_an_hmac_never_matches_without_its_pepper() -> None:
    """R158, C30."""
    assert not verify_key("k-1", hash_key("k-1", "pepper"))
    assert not verify_key("k-1", "hmac-sha256$")


def test_an_empty_pepper_is_refused() -> None:
    with pytest.raises(ConfigError, match="pepper"):
        hash_key("k-1", "")


@pytest.mark.parametrize("stored", ["", "x", "hmac-sha256$", "hmac-sha256$é", "\ud800", "k-1"])
def test_what_is_no_stored_form_matches_nothing(stored: str) -> None:
    assert not verify_key("k-1", stored, "pepper")
    assert not verify_password("k-1", stored)


def test_a_password_is_stored_with_its_rounds_and_salt() -> None:
    """R160: pbkdf2-sha256$<iterations>$<b64 salt>$<b64 hash>, 16 bytes of salt."""
    stored = hash_password("geheim", iterations=100_000)
    name, rounds, salt, made = stored.split("$")
    raw = base64.b64decode(salt)
    assert (name, rounds, len(raw)) == ("pbkdf2-sha256", "100000", 16)
    assert base64.b64decode(made) == hashlib.pbkdf2_hmac("sha256", b"geheim", raw, 100_000)
    assert stored != hash_password("geheim", iterations=100_000)
    assert verify_password("geheim", stored)
    assert not verify_password("Geheim", stored)


def test_the_rounds_are_read_from_the_stored_form() -> None:
    """C30: a raised default does not lock out what was stored before."""
    salt = bytes(16)
    made = hashlib.pbkdf2_hmac("sha256", b"geheim", salt, 1000)
    stored = f"pbkdf2-sha256$1000${base64.b64encode(salt).decode()}${base64.b64encode(made).decode()}"
    assert verify_password("geheim", stored)
    assert not verify_password("geheim", stored.replace("$1000$", "$1001$"))


def test_the_default_is_above_the_floor(monkeypatch: pytest.MonkeyPatch) -> None:
    """R160, C30: 100,000 is the least."""
    seen: list[int] = []

    def derive(password: str, salt: bytes, iterations: int) -> bytes:
        seen.append(iterations)
        return bytes(32)

    monkeypatch.setattr(hashes, "derive", derive)
    assert hash_password("x").startswith("pbkdf2-sha256$600000$")
    assert seen == [600_000]
    for wrong in (99_999, 0, -1, True, 10_000_001):
        with pytest.raises(ConfigError, match="iterations"):
            hash_password("x", iterations=wrong)


def test_a_legacy_password_matches_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    """R160: per match."""
    stored = hash_password("geheim", algorithm="sha256-hex")
    assert stored == hashlib.sha256(b"geheim").hexdigest()
    with caplog.at_level(logging.WARNING, "trimaran.auth"):
        assert not verify_password("falsch", stored)
        assert not caplog.records
        assert verify_password("geheim", stored)
        assert verify_password("geheim", stored)
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING"]
    assert "geheim" not in caplog.text
    assert stored not in caplog.text


def test_an_unknown_algorithm_is_refused() -> None:
    wrong: Any = "md5"
    with pytest.raises(ConfigError, match="md5"):
        hash_password("x", algorithm=wrong)


@pytest.mark.parametrize(
    "stored",
    [
        "pbkdf2-sha256$",
        "pbkdf2-sha256$1$$",
        "pbkdf2-sha256$0$AAAA$" + "A" * 43 + "=",
        "pbkdf2-sha256$99999999$AAAA$" + "A" * 43 + "=",
        "pbkdf2-sha256$-1$AAAA$" + "A" * 43 + "=",
        "pbkdf2-sha256$٣$AAAA$" + "A" * 43 + "=",
        "pbkdf2-sha256$1$AAAA$AAAA",
        "pbkdf2-sha256$1$!!!!$" + "A" * 43 + "=",
        "pbkdf2-sha256$1$AAAA$" + "A" * 43 + "=$x",
        "pbkdf2-sha512$1$AAAA$" + "A" * 43 + "=",
    ],
)
def test_a_damaged_form_matches_nothing_and_costs_nothing(stored: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashes, "derive", lambda *_: pytest.fail("derived"))
    assert not verify_password("x", stored)


def test_every_comparison_is_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """R161: one function compares, and it is that of hmac."""
    seen: list[tuple[Any, Any]] = []

    def compare(a: Any, b: Any) -> bool:
        seen.append((a, b))
        return a == b

    monkeypatch.setattr(hashes.hmac, "compare_digest", compare)
    stored = [
        hash_key("x"),
        hash_key("x", "p"),
        hash_password("x", "sha256-hex"),
        hash_password("x", iterations=100_000),
    ]
    assert verify_key("y", stored[0]) is verify_key("y", stored[1], "p") is False
    assert verify_password("y", stored[2]) is verify_password("y", stored[3]) is False
    assert len(seen) == 4
    assert all(len(a) == len(b) for a, b in seen)
