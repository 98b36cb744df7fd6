"""Stored forms of keys and passwords (R158-R161). Comparisons take constant time."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import re
import secrets
from typing import Final, Literal, NamedTuple

from trimaran.errors import ConfigError

logger: Final = logging.getLogger("trimaran.auth")

KEYED: Final = "hmac-sha256$"
DERIVED: Final = "pbkdf2-sha256$"
ITERATIONS: Final = 600_000
"""The minimum of OWASP for PBKDF2-HMAC-SHA256 since 2023: about 0.2 s of one core."""
MIN_ITERATIONS: Final = 100_000
_MAX_ITERATIONS: Final = 10_000_000
_SALT_BYTES: Final = 16
_HEX: Final = re.compile(r"[0-9a-f]{64}")
_KEYED_FORM: Final = re.compile(r"hmac-sha256\$[A-Za-z0-9+/]{43}=")


def _bytes(text: str) -> bytes:
    # A text that is not UTF-8 matches nothing, and must not raise.
    return text.encode("utf-8", "surrogatepass")


def hash_key(key: str, pepper: str | bytes | None = None) -> str:
    """The stored form of an API key: `hmac-sha256$<base64>` with a pepper, plain hex SHA-256 without.

    The pepper is a secret of the server, stored apart from the hashes.
    """
    if pepper is None:
        return hashlib.sha256(_bytes(key)).hexdigest()
    return KEYED + base64.b64encode(hmac.digest(check_pepper(pepper), _bytes(key), "sha256")).decode()


def verify_key(key: str, stored: str, pepper: str | bytes | None = None) -> bool:
    """Is this the key that was stored, in either form? An HMAC form never matches without its pepper."""
    if not stored.startswith(KEYED):
        return hmac.compare_digest(hash_key(key).encode(), _bytes(stored))
    hashed = hash_key(key, pepper if pepper is not None else secrets.token_bytes(32))
    return hmac.compare_digest(hashed.encode(), _bytes(stored)) and pepper is not None


def check_pepper(pepper: str | bytes) -> bytes:
    octets = pepper.encode() if isinstance(pepper, str) else pepper
    if not octets:
        raise ConfigError("pepper: an empty pepper protects nothing; give 32 random bytes, or leave it out")
    return octets


def is_keyed(stored: str) -> bool:
    return _KEYED_FORM.fullmatch(stored) is not None


def hash_password(
    password: str, algorithm: Literal["pbkdf2-sha256", "sha256-hex"] = "pbkdf2-sha256", iterations: int = ITERATIONS
) -> str:
    """The stored form of a password: `pbkdf2-sha256$<iterations>$<base64 salt>$<base64 hash>`, 16 bytes of salt.

    `sha256-hex` is the legacy form, for moving old stores only.
    """
    if algorithm == "sha256-hex":
        return hashlib.sha256(_bytes(password)).hexdigest()
    if algorithm != "pbkdf2-sha256":
        raise ConfigError(f"algorithm: there is no {algorithm!r}; use pbkdf2-sha256")
    if isinstance(iterations, bool) or not MIN_ITERATIONS <= iterations <= _MAX_ITERATIONS:
        raise ConfigError(f"iterations must be a number from {MIN_ITERATIONS} to {_MAX_ITERATIONS}, not {iterations!r}")
    salt = secrets.token_bytes(_SALT_BYTES)
    derived = derive(password, salt, iterations)
    return f"{DERIVED}{iterations}${base64.b64encode(salt).decode()}${base64.b64encode(derived).decode()}"


def derive(password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac("sha256", _bytes(password), salt, iterations)


class Derived(NamedTuple):
    iterations: int
    salt: bytes
    hash: bytes


def read_derived(stored: str) -> Derived | None:
    """The parts of a PBKDF2 form; None if it is not one. The count is the stored one, not today's default (C30)."""
    parts = stored.removeprefix(DERIVED).split("$")
    if not stored.startswith(DERIVED) or len(parts) != 3 or not re.fullmatch(r"[0-9]{1,8}", parts[0]):
        return None
    try:
        salt, derived = (base64.b64decode(part, validate=True) for part in parts[1:])
    except (binascii.Error, ValueError):
        return None
    iterations = int(parts[0])
    if not 1 <= iterations <= _MAX_ITERATIONS or len(derived) != 32:
        return None
    return Derived(iterations, salt, derived)


def is_legacy_hash(stored: str) -> bool:
    return _HEX.fullmatch(stored) is not None


def verify_password(password: str, stored: str) -> bool:
    """Is this the password that was stored? A match of the legacy form is logged, so that it gets replaced."""
    if is_legacy_hash(stored):
        hashed = hashlib.sha256(_bytes(password)).hexdigest()
        matches = hmac.compare_digest(hashed.encode(), stored.encode())
        if matches:
            logger.warning("a password is stored as sha256-hex, which is deprecated: store hash_password(...) instead")
        return matches
    parts = read_derived(stored)
    if parts is None:
        return False
    return hmac.compare_digest(derive(password, parts.salt, parts.iterations), parts.hash)
