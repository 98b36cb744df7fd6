"""Keys that verify signatures, and tokens read with them. The kind of a key decides which algorithms it may verify, never
the token.

joserfc does the mathematics. This module chooses the key and the algorithm, so a token cannot ask for `alg: none`, a public key used as a
secret, or another curve. The reader is strict: a token has three parts, each the
canonical base64url of its bytes, and JSON objects without duplicate names. Keys inside a token (`jwk`,
`jku`, `x5c`, `x5u`) are ignored.
"""

from __future__ import annotations

import base64
import binascii
import json
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

from joserfc.jwk import ECKey, KeySet, OctKey, OKPKey, RSAKey
from joserfc.jws import JWSRegistry

from trimaran.depth import decode_json
from trimaran.errors import ConfigError

from .extract import MAX_CREDENTIAL, too_large
from .refusal import Refused

logger: Final = logging.getLogger("trimaran.auth")

_MAX_KEYS: Final = 100
_MAX_TRIES: Final = 16
"""A token without `kid` is tried with so many keys: a signature costs a caller nothing to invent, and us time to check."""
_MIN_SECRET: Final = {"HS256": 32, "HS384": 48, "HS512": 64}
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_RSA_BITS: Final = range(2048, 16_385)
_CURVES: Final = {
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA", "Ed25519"),
    "Ed448": ("EdDSA", "Ed448"),
}
_KNOWN: Final = JWSRegistry.algorithms
ALGORITHMS: Final[frozenset[str]] = frozenset(
    name for name in (*_MIN_SECRET, *_RSA, *(n for names in _CURVES.values() for n in names)) if name in _KNOWN
)
SHARED: Final = frozenset(_MIN_SECRET)
_PUBLIC_TEXT: Final = (b"-----BEGIN ", b"---- BEGIN ", b"ssh-rsa ", b"ssh-ed25519 ", b"ecdsa-sha2-")
# `crit` and `b64` change the signed bytes, `zip` the content; no access token needs them.
_REFUSED_HEADERS: Final = frozenset({"crit", "b64", "zip"})


class VerifyKey(NamedTuple):
    key: Any
    kid: str | None
    algorithms: frozenset[str]


# --- keys ------------------------------------------------------------------------------------------------------------


def import_secret(secret: str | bytes) -> VerifyKey:
    """A shared secret, for the HS algorithms that it is long enough for (RFC 7518, 3.2)."""
    if not isinstance(secret, (str, bytes)):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"secret must be a string or bytes, not {type(secret).__name__}")
    raw = secret.encode() if isinstance(secret, str) else secret
    allowed = frozenset(name for name, least in _MIN_SECRET.items() if len(raw) >= least)
    if not allowed:
        raise ConfigError(
            f"secret: {len(raw)} bytes can be guessed; HS256 needs at least 32 random ones, as secrets.token_urlsafe(32) makes"
        )
    public = ConfigError("secret: this is a public key, which is no secret; pass it as key=")
    if any(mark in raw for mark in _PUBLIC_TEXT):
        raise public
    try:
        return VerifyKey(OctKey.import_key(raw), None, allowed)
    except ValueError:
        raise public from None


def import_key(source: Any) -> VerifyKey:
    """A public key: PEM text, a JWK as a dict, or a key of joserfc."""
    key = _imported(source)
    if key is None:
        raise ConfigError("key: neither PEM of an RSA, EC or Ed25519 public key, nor a JWK")
    allowed = _allowed(key)
    if not allowed:
        raise ConfigError(
            "key: a key of this kind verifies no signature we know; use RSA (2048 bits or more), EC or Ed25519"
        )
    return VerifyKey(key, None, allowed)


def _imported(source: Any) -> Any:
    if isinstance(source, (RSAKey, ECKey, OKPKey)):
        return source
    if isinstance(source, Mapping):
        jwk = dict(cast("Mapping[str, Any]", source))
        kinds: Iterable[Any] = [k for n, k in (("RSA", RSAKey), ("EC", ECKey), ("OKP", OKPKey)) if jwk.get("kty") == n]
        source = jwk
    elif isinstance(source, (str, bytes)):
        kinds = (RSAKey, ECKey, OKPKey)
    else:
        return None
    for kind in kinds:
        try:
            return kind.import_key(source)
        except Exception:  # noqa: S112 - whatever it is, it is not a key of this kind
            continue
    return None


def _allowed(key: Any) -> frozenset[str]:
    if isinstance(key, RSAKey):
        names: Sequence[str] = _RSA if key.public_key.key_size in _RSA_BITS else ()
    else:
        names = _CURVES.get(key.curve_name, ())
    jwk: Mapping[str, Any] = key.as_dict(private=False)
    if jwk.get("use") not in (None, "sig") or "verify" not in jwk.get("key_ops", ("verify",)):
        return frozenset()
    alg = jwk.get("alg")
    return frozenset(name for name in names if name in ALGORITHMS and alg in (None, name))


def import_set(source: Any) -> tuple[VerifyKey, ...]:
    """The keys of a JWK Set that can verify something. Secrets in it are passed over: a set is a public document."""
    keys: Any = source.keys if isinstance(source, KeySet) else None
    if keys is None and isinstance(source, Mapping):
        keys = cast("Mapping[str, Any]", source).get("keys")
    if not isinstance(keys, (list, tuple)):
        raise ValueError('a JWK Set is a mapping with a list under "keys"')
    usable: list[VerifyKey] = []
    for item in cast("Sequence[Any]", keys)[:_MAX_KEYS]:
        key = _imported(item)
        if key is None or not (allowed := _allowed(key)):
            continue
        kid: Any = cast("Mapping[str, Any]", item).get("kid") if isinstance(item, Mapping) else key.kid
        usable.append(VerifyKey(key, kid if isinstance(kid, str) else None, allowed))
    if not usable:
        raise ValueError("the JWK Set holds no key that verifies signatures")
    return tuple(usable)


class Keys(Protocol):
    """Where the keys for a token are found."""

    @property
    def algorithms(self) -> frozenset[str]:
        """The algorithms that these keys may verify."""
        ...

    async def find(self, kid: str | None) -> Sequence[VerifyKey]:
        """Those that may have signed a token with this `kid`."""
        ...

    async def renew(self) -> bool:
        """Look for newer keys. Returns whether there may be some."""
        ...


class FixedKeys:
    """Keys that are there from the beginning."""

    def __init__(self, keys: Sequence[VerifyKey], *, by_kid: bool) -> None:
        self._keys = tuple(keys)
        self._by_kid = by_kid

    @property
    def algorithms(self) -> frozenset[str]:
        return frozenset[str]().union(*(key.algorithms for key in self._keys))

    async def find(self, kid: str | None) -> Sequence[VerifyKey]:
        return (named(self._keys, kid) or nameless(self._keys)) if self._by_kid else self._keys

    async def renew(self) -> bool:
        return False


def named(keys: Sequence[VerifyKey], kid: str | None) -> Sequence[VerifyKey]:
    """The keys that go by this `kid`, to the byte; all of them for a token that names none."""
    return keys if kid is None else [key for key in keys if key.kid == kid]


def nameless(keys: Sequence[VerifyKey]) -> Sequence[VerifyKey]:
    """The keys without `kid`: an issuer that names its key in tokens only means one of these."""
    return [key for key in keys if key.kid is None]


# --- tokens ----------------------------------------------------------------------------------------------------------


class Signed(NamedTuple):
    """A token taken apart; nothing of it is verified."""

    header: dict[str, Any]
    payload: bytes
    signing_input: bytes
    signature: bytes


def split_signed(token: str) -> Signed:
    """Take a compact JWS apart; `Refused` if it is not one, or needs more understanding than is here."""
    if len(token) > MAX_CREDENTIAL:
        raise too_large()
    parts = token.split(".", 3)
    if len(parts) != 3:
        raise Refused("invalid_token", reason="not a JWT")
    try:
        header, payload, signature = (_decode(part) for part in parts)
        signed = Signed(_object(header), payload, f"{parts[0]}.{parts[1]}".encode(), signature)
    except ValueError:
        raise Refused("invalid_token", reason="not a JWT") from None
    if not _REFUSED_HEADERS.isdisjoint(signed.header):
        raise Refused("invalid_token", reason="a header that is not allowed")
    return signed


def _decode(part: str) -> bytes:
    """Base64url without padding. Only the one spelling of its bytes counts: or else a token had many names."""
    raw = part.encode("ascii")
    try:
        octets = base64.urlsafe_b64decode(raw + b"=" * (-len(raw) % 4))
    except binascii.Error:
        raise ValueError("not base64url") from None
    if base64.urlsafe_b64encode(octets).rstrip(b"=") != raw:
        raise ValueError("not base64url as it is written")
    return octets


def _object(raw: bytes) -> dict[str, Any]:
    """A JSON object without duplicate names, since two readers could take different ones (RFC 7519, 4)."""
    # msgspec is strict about JSON (NaN, lone surrogates, UTF-8) but takes the last of two equal names.
    members = decode_json(raw, dict[str, Any])
    json.loads(raw.decode(), object_pairs_hook=_unique)
    return members


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len({name for name, _ in pairs}) != len(pairs):
        raise ValueError("a name occurs twice")


async def read_signed(
    token: str, keys: Keys, algorithms: frozenset[str], *, kinds: Collection[str] | None = None
) -> dict[str, Any]:
    """The claims of a JWT whose signature one of the keys verifies; `Refused` for any other token.

    `kinds` are the `+jwt` media types that will do as `typ`, such as `at+jwt`; a token that says it is something else,
    a proof or a logout, is not taken for an access token (RFC 8725, 3.11).
    """
    signed = split_signed(token)
    alg, kid, typ = (signed.header.get(name) for name in ("alg", "kid", "typ"))
    if not isinstance(alg, str) or alg not in algorithms or alg not in ALGORITHMS:
        raise Refused("invalid_token", reason="an algorithm that is not allowed")
    if (kid is not None and not isinstance(kid, str)) or (typ is not None and not isinstance(typ, str)):
        raise Refused("invalid_token", reason="kid or typ is not a string")
    if kinds is not None and typ is not None:
        kind = typ.lower().removeprefix("application/")
        if kind.endswith("+jwt") and kind not in kinds:
            raise Refused("invalid_token", reason="another kind of token")
    if _any_verifies(signed, alg, await keys.find(kid)):
        return _claims(signed.payload)
    # A token that names its key would have been told from others by that; one that does not may be of a newer one.
    if kid is None and await keys.renew() and _any_verifies(signed, alg, await keys.find(kid)):
        return _claims(signed.payload)
    raise Refused("invalid_token", reason="no key verifies the signature")


def _any_verifies(signed: Signed, alg: str, keys: Iterable[VerifyKey]) -> bool:
    candidates = [key for key in keys if alg in key.algorithms]
    return any(verifies(signed, alg, key.key) for key in candidates[:_MAX_TRIES])


def verifies(signed: Signed, alg: str, key: Any) -> bool:
    try:
        return _KNOWN[alg].verify(signed.signing_input, signed.signature, key) is True
    except Exception:  # joserfc and cryptography each have their own; none of them means yes
        return False


def _claims(payload: bytes) -> dict[str, Any]:
    try:
        return _object(payload)
    except ValueError:
        raise Refused("invalid_token", reason="the payload is not one JSON object") from None
