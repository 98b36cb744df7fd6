"""Client assertions: a signed JWT in place of a secret, `private_key_jwt` (RFC 7523; OpenID Connect Core, 9).

Pure: the time and the unique id are passed in. The algorithm follows from the key; one that the key cannot do is
refused when the key is loaded, not at the first request. `dpop.py` signs with the same `SigningKey`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast, final

import msgspec

from trimaran.errors import ConfigError
from trimaran.types import Json

ASSERTION_TYPE: Final = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

# The algorithms of each kind of key or curve; the first is the default.
_ALGORITHMS: Final[Mapping[str, tuple[str, ...]]] = {
    "RSA": ("RS256", "PS256", "RS384", "RS512", "PS384", "PS512"),
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA", "Ed25519"),
}
_KINDS: Final = "RSA (2048 bits or more), EC (P-256, P-384, P-521) or Ed25519"
# RFC 7518, 3.3: smaller keys must not be used.
_MIN_RSA_BITS: Final = 2048

_encode = msgspec.json.Encoder().encode


@final
class SigningKey:
    """A private key and the one algorithm it signs with. Its repr shows neither."""

    __slots__ = ("_key", "algorithm", "kid")

    def __init__(self, key: object, algorithm: str | None = None, kid: str | None = None) -> None:
        """Takes a private key of joserfc; use `from_pem`, `from_jwk` or `generate`."""
        self._key: Any = key
        self.algorithm: str = _choose(key, algorithm)
        self.kid: str | None = kid

    @classmethod
    def from_pem(cls, pem: str | bytes, algorithm: str | None = None, kid: str | None = None) -> SigningKey:
        """The private key in a PEM text, PKCS#8 or the older forms.

        Raises:
            ConfigError: it is encrypted, public, of another kind, or cannot sign with `algorithm`.
        """
        return cls(_load_pem(pem), algorithm, kid)

    @classmethod
    def from_jwk(cls, jwk: Mapping[str, Json], algorithm: str | None = None, kid: str | None = None) -> SigningKey:
        """The private key in a JWK. `algorithm` and `kid` override its `alg` and `kid`."""
        key = _load_jwk(jwk)
        return cls(key, algorithm or jwk.get("alg"), kid or jwk.get("kid"))

    @classmethod
    def generate(cls, algorithm: str = "ES256") -> SigningKey:
        """A new key for an algorithm."""
        from joserfc.jwk import ECKey, OKPKey, RSAKey

        kind = next((kind for kind, names in _ALGORITHMS.items() if algorithm in names), None)
        if kind is None:
            known = ", ".join(name for names in _ALGORITHMS.values() for name in names)
            raise ConfigError(f"algorithm: {algorithm!r} is not supported; use one of {known}")
        if kind == "RSA":
            key: Any = RSAKey.generate_key(_MIN_RSA_BITS)
        elif kind == "Ed25519":
            key = OKPKey.generate_key("Ed25519")
        else:
            key = ECKey.generate_key(kind)
        return cls(key, algorithm)

    @property
    def thumbprint(self) -> str:
        """SHA-256 over the public key (RFC 7638)."""
        return self._key.thumbprint()

    def to_jwk(self, *, private: bool = False) -> dict[str, Json]:
        """The key as a JWK: its public members only, or all of it, for keeping in a safe place."""
        members: dict[str, Json] = self._key.as_dict(private=private)
        if not private:
            return {name: members[name] for name in ("kty", "crv", "x", "y", "n", "e") if name in members}
        return {**members, "alg": self.algorithm, **({"kid": self.kid} if self.kid else {})}

    def sign(self, header: Mapping[str, Json], claims: Mapping[str, Json]) -> str:
        """A JWT in its compact form. `alg` is added to the header."""
        from joserfc.jws import JWSRegistry

        # One and the same signature under its old name and its new one (RFC 9864).
        name = "EdDSA" if self.algorithm == "Ed25519" else self.algorithm
        text = _segment(_encode({**header, "alg": self.algorithm})) + b"." + _segment(_encode(claims))
        return (text + b"." + _segment(JWSRegistry.algorithms[name].sign(text, self._key))).decode("ascii")

    def __repr__(self) -> str:
        return f"<SigningKey {self.algorithm}>"


def client_assertion(
    key: SigningKey, *, client_id: str, audience: str | Sequence[str], now: float, jti: str, lifetime: int = 300
) -> str:
    """The assertion that a client sends instead of a secret, good once and for `lifetime` seconds.

    Args:
        audience: the issuer of the authorization server, which verifies it.
        now: seconds since 1970.
        jti: a new unguessable value for each assertion.
    """
    issued = int(now)
    claims = {
        "iss": client_id,
        "sub": client_id,
        "aud": audience,
        "jti": jti,
        "iat": issued,
        "exp": issued + lifetime,
    }
    return key.sign({"typ": "JWT", "kid": key.kid} if key.kid else {"typ": "JWT"}, claims)


def _load_pem(pem: str | bytes) -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
    from cryptography.hazmat.primitives.serialization import load_pem_private_key
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    octets = pem.encode() if isinstance(pem, str) else pem
    if b"-----BEGIN" not in octets:
        raise ConfigError("private_key: this is not PEM; pass the text of the key file, not its path or its JWK")
    if b"PUBLIC KEY-----" in octets or b"BEGIN CERTIFICATE" in octets:
        raise ConfigError(
            "private_key: this is a public key, which cannot sign; pass the PEM of the private key that belongs to it"
        )
    try:
        loaded = load_pem_private_key(octets, password=None)
    except TypeError:
        raise ConfigError(
            "private_key: the PEM is encrypted; pass it decrypted (openssl pkey -in key.pem makes it so), from a safe place"
        ) from None
    except Exception:  # the parser's message may quote the key
        hint = "; its line breaks are written as \\n, turn them into real ones" if b"\\n" in octets else ""
        raise ConfigError(f"private_key: the PEM cannot be read as a private key of {_KINDS}{hint}") from None
    if isinstance(loaded, rsa.RSAPrivateKey):
        _check_bits(loaded.key_size)
    kinds: list[tuple[type, Any]] = [
        (rsa.RSAPrivateKey, RSAKey),
        (ec.EllipticCurvePrivateKey, ECKey),
        (ed25519.Ed25519PrivateKey, OKPKey),
    ]
    for kind, key_class in kinds:
        if isinstance(loaded, kind):
            return key_class.import_key(octets)
    raise ConfigError(f"private_key: a key of this kind cannot be used here; use {_KINDS}")


def _load_jwk(jwk: Mapping[str, Json]) -> Any:
    from joserfc.jwk import ECKey, OKPKey, RSAKey

    kinds: dict[Any, Any] = {"RSA": RSAKey, "EC": ECKey, "OKP": OKPKey}
    try:
        key = kinds[jwk["kty"]].import_key(dict(jwk))
        if key.is_private:
            return key
    except Exception:  # noqa: S110 - what the parser says may quote the key
        pass
    raise ConfigError(f"key: not a JWK with the private members of a key of {_KINDS}")


def _choose(key: Any, algorithm: str | None) -> str:
    """`algorithm`, if the key can sign with it; without one, the default of the key's kind."""
    from joserfc.jwk import RSAKey

    if isinstance(key, RSAKey):
        kind = "RSA"
        _check_bits(cast("Any", key.public_key).key_size)
    else:
        kind = cast("str", key.curve_name)
    able = _ALGORITHMS.get(kind)
    if able is None:
        raise ConfigError(f"private_key: a key on the curve {kind} cannot be used here; use {_KINDS}")
    if algorithm is not None and algorithm not in able:
        raise ConfigError(
            f"algorithm: this {kind} key cannot sign with {algorithm!r}; use {' or '.join(able)}, or leave it out"
        )
    return algorithm or able[0]


def _check_bits(bits: int) -> None:
    if bits < _MIN_RSA_BITS:
        raise ConfigError(f"private_key: {bits} bits of RSA can be broken; use {_KINDS}")


def _segment(octets: bytes) -> bytes:
    return base64.urlsafe_b64encode(octets).rstrip(b"=")
