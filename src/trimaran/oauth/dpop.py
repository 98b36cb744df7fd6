"""DPoP for clients: proofs that the sender of a token has its key (RFC 9449).

Pure: the time and the unique id of each proof are passed in. A `ProofKey` signs one proof per request, and `Nonces`
remembers the nonce that each server expects in the next one. The sender decides when to retry.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from typing import Final, Protocol, final
from urllib.parse import urlsplit

from trimaran.types import Json

from .assertions import SigningKey

_NONCE: Final = re.compile(r"[\x21\x23-\x5b\x5d-\x7e]{1,2048}")
"""RFC 9449, 8.1: one or more NQCHAR. No real nonce is nearly as long."""

_MAX_ORIGINS: Final = 64
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}


class _Headers(Protocol):
    def get(self, key: str, /) -> str | None: ...


@final
class ProofKey:
    """The key that access tokens are bound to. Keep it as long as the tokens: store `to_jwk()`, and load it with `from_jwk`."""

    __slots__ = ("_header", "_key")

    def __init__(self, key: SigningKey) -> None:
        self._key = key
        self._header = {"typ": "dpop+jwt", "jwk": key.to_jwk()}

    @classmethod
    def generate(cls, algorithm: str = "ES256") -> ProofKey:
        """A new key.

        Raises:
            ConfigError: `algorithm` is not supported.
        """
        return cls(SigningKey.generate(algorithm))

    @classmethod
    def from_jwk(cls, jwk: Mapping[str, Json]) -> ProofKey:
        """The key that `to_jwk` wrote.

        Raises:
            ConfigError: it is not the JWK of a private key that signs.
        """
        return cls(SigningKey.from_jwk(jwk))

    def to_jwk(self) -> dict[str, Json]:
        """The whole key, private members too: for storage, never for the wire."""
        return self._key.to_jwk(private=True)

    @property
    def algorithm(self) -> str:
        return self._key.algorithm

    @property
    def thumbprint(self) -> str:
        """The value of `cnf.jkt` in a bound token, and of `dpop_jkt` in an authorization request (RFC 7638)."""
        return self._key.thumbprint

    def proof(
        self,
        method: str,
        url: str,
        *,
        now: float,
        jti: str,
        access_token: str | None = None,
        nonce: str | None = None,
    ) -> str:
        """The `DPoP` header for one request.

        Args:
            now: seconds since 1970.
            jti: a new unguessable value for each proof.
            access_token: the token of the request, if it has one.
            nonce: the latest nonce from this server, if there is one.
        """
        claims: dict[str, Json] = {"jti": jti, "htm": method.upper(), "htu": _target(url), "iat": int(now)}
        if access_token is not None:
            claims["ath"] = _segment(hashlib.sha256(access_token.encode()).digest())
        if nonce is not None:
            claims["nonce"] = nonce
        return self._key.sign(self._header, claims)

    def __repr__(self) -> str:
        return f"<ProofKey {self.algorithm}>"


@final
class Nonces:
    """The latest nonce of each origin, for a limited number of origins: the oldest are forgotten."""

    __slots__ = ("_latest",)

    def __init__(self) -> None:
        self._latest: dict[str, str] = {}

    def get(self, url: str) -> str | None:
        """The nonce for the next proof to this URL."""
        return self._latest.get(_origin(url))

    def learn(self, url: str, headers: _Headers) -> bool:
        """Take the nonce from an answer's headers (by lower-case name). True if it is new.

        An invalid nonce is ignored: the server would refuse the next proof.
        """
        nonce = headers.get("dpop-nonce")
        if nonce is None or _NONCE.fullmatch(nonce) is None:
            return False
        origin = _origin(url)
        before = self._latest.pop(origin, None)
        self._latest[origin] = nonce
        if len(self._latest) > _MAX_ORIGINS:
            del self._latest[next(iter(self._latest))]
        return nonce != before

    def __repr__(self) -> str:
        return f"<Nonces of {len(self._latest)} origins>"


def _origin(url: str) -> str:
    """Scheme, host and port as they go over the wire: lower case, no default port, never user and password."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    port = parts.port
    return f"{parts.scheme}://{host}" + (f":{port}" if port not in (None, _DEFAULT_PORTS.get(parts.scheme)) else "")


def _target(url: str) -> str:
    """`htu`: the URL without query and fragment (RFC 9449, 4.2)."""
    return _origin(url) + (urlsplit(url).path or "/")


def _segment(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode("ascii")
