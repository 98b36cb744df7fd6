"""Tokens bound to a key (RFC 9449), for a resource server: each request must prove that its sender has the key.

A proof is a small JWT in the `DPoP` header, signed with the key it shows. `check` is the list of section 4.3, one step
for each sentence of it, cheap ones first: the key is compared with the one the token is bound to before any signature
is computed, so only a caller with a valid token can cause that work.

Proofs are remembered until they are too old, so none is valid twice. The memory is bounded and belongs to one
process; workers share one through `replay=`. Nonces need no memory: each is a MAC over the time, so workers
that share `nonce_key` accept each other's. A nonce is valid for half a window to a whole one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import inspect
import re
import secrets
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, Protocol, cast, final
from urllib.parse import urlsplit

import msgspec

from trimaran.bounded_log import BoundedLog
from trimaran.errors import ConfigError
from trimaran.protocol.headers import HeaderLookup

from .extract import MAX_CREDENTIAL
from .jwt_keys import ALGORITHMS as VERIFIABLE
from .jwt_keys import FixedKeys, VerifyKey, import_key, read_signed, split_signed
from .principal import Principal, read_time
from .refusal import Refused

logger: Final = BoundedLog("trimaran.auth")

_ASYMMETRIC: Final = "ES256 ES384 ES512 EdDSA Ed25519 PS256 PS384 PS512 RS256 RS384 RS512"
ALGORITHMS: Final = tuple(name for name in _ASYMMETRIC.split() if name in VERIFIABLE)
"""Algorithms of proofs, the most common first."""

# The members of a key that its thumbprint is made of (RFC 7638). The others are ignored.
_MEMBERS: Final[Mapping[str, tuple[str, ...]]] = {
    "EC": ("crv", "kty", "x", "y"),
    "OKP": ("crv", "kty", "x"),
    "RSA": ("e", "kty", "n"),
}
_PRIVATE: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "oth", "k"})
# The key comes from a stranger, and a large one is a way to make us work: 4096 bits, and an exponent of up to 4 bytes.
_MAX_MODULUS: Final = 684
_MAX_EXPONENT: Final = 6
_MAX_JTI: Final = 1024
_REPLAY: Final = 100_000
_KEYS: Final = 1000
_SHORTEST_KEY: Final = 16
_ESCAPED: Final = re.compile(r"%([0-9A-Fa-f]{2})")
_UNRESERVED: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~")
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}

Place = tuple[str, str, int | None, str]


@final
class ProofRefused(Refused):
    """A proof is missing or wrong (`invalid_dpop_proof`), or holds no nonce of ours (`use_dpop_nonce`)."""

    def __init__(self, message: str, *, code: str = "invalid_dpop_proof") -> None:
        super().__init__("invalid_token", message)
        self._code = code

    @property
    def code(self) -> str:
        return self._code


class ReplayStore(Protocol):
    """Where proofs are remembered, for workers that share one memory."""

    def add(self, proof: str, seconds: float) -> bool | Awaitable[bool]:
        """Remember `proof` (a digest) for `seconds`. Returns whether it is new."""
        ...


@final
class _Seen:
    """Proofs seen lately. When it is full the oldest are forgotten, and that is logged once."""

    def __init__(self, size: int, clock: Callable[[], float]) -> None:
        self._size = size
        self._clock = clock
        self._until: dict[str, float] = {}
        self._has_warned = False

    def __len__(self) -> int:
        return len(self._until)

    def add(self, proof: str, seconds: float) -> bool:
        now = self._clock()
        known = self._until.pop(proof, None)
        if known is not None and known > now:
            self._until[proof] = known
            return False
        if len(self._until) >= self._size:
            self._make_room(now)
        self._until[proof] = now + seconds
        return True

    def _make_room(self, now: float) -> None:
        self._until = {proof: until for proof, until in self._until.items() if until > now}
        excess = len(self._until) - self._size * 9 // 10
        if excess <= 0:
            return
        if not self._has_warned:
            self._has_warned = True
            logger.warning("more than %d proofs in one window: the oldest are forgotten; raise replay=", self._size)
        for proof in list(self._until)[:excess]:
            del self._until[proof]


@final
class DPoP:
    """How a `ProtectedResource` accepts tokens that are bound to a key.

    `required` refuses unbound tokens. `nonces` makes clients use a value of ours in each proof, so no proof can
    be made beforehand; `nonce_key` is the secret behind it, the same for all workers. `window` is the number of seconds that a
    proof's time may differ from ours. `replay` is the number of proofs to remember, a store that workers share, or None.
    """

    def __init__(
        self,
        *,
        required: bool = False,
        nonces: bool = False,
        window: float = 300,
        replay: int | ReplayStore | None = _REPLAY,
        nonce_key: str | bytes | None = None,
        algorithms: Iterable[str] = ALGORITHMS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        if isinstance(window, bool) or not 1 <= window <= 3600:
            raise ConfigError(f"window must be a number of seconds from 1 to 3600, not {window!r}")
        self.required = required
        self.has_nonces = nonces
        self.algorithms: tuple[str, ...] = _check_algorithms(algorithms)
        self._allowed = frozenset(self.algorithms)
        self._window = float(window)
        self._clock = clock
        self._nonce_key = _check_nonce_key(nonce_key, nonces)
        self._seen = _check_replay(replay, clock)
        self._keys: dict[str, VerifyKey] = {}

    async def check(
        self, headers: HeaderLookup | Mapping[str, str], method: str, urls: Iterable[str], token: str, key: str
    ) -> str | None:
        """Check the proof of this request and token against the key with this thumbprint.

        `urls` are the names this request's target goes by. Gives the nonce to use from now on, if it is another.

        Raises:
            ProofRefused: there is none.
            Refused: there is one, by somebody else.
        """
        text = one_header(headers)
        jwk = self._shown_key(text)
        proof_key = thumbprint(jwk)
        if not hmac.compare_digest(proof_key, key):
            raise Refused("invalid_token", "the token is bound to another key than the proof's")
        claims = await self._signed_claims(text, proof_key, jwk)
        jti, issued = self._check_claims(claims, method, urls)
        nonce = self._check_nonce(claims.get("nonce"))
        now = self._clock()
        if abs(now - issued) > self._window:
            raise ProofRefused("the proof is too old, or from the future: compare clocks")
        if claims.get("ath") != _segment(hashlib.sha256(token.encode()).digest()):
            raise ProofRefused("the proof is for another token (ath)")
        await self._check_new(proof_key, jti, issued + self._window - now)
        return nonce

    def fresh_nonce(self) -> str | None:
        """The nonce that clients should use now; None where they need none."""
        return self._nonce(self._slot()) if self.has_nonces else None

    def _shown_key(self, text: str) -> dict[str, str]:
        """The public key in a proof's header, when all else there is right."""
        try:
            header = split_signed(text).header
        except Refused:
            raise ProofRefused("the proof is not a JWT") from None
        if header.get("typ") != "dpop+jwt":
            raise ProofRefused("the proof is not of the type dpop+jwt")
        if header.get("alg") not in self.algorithms:
            raise ProofRefused(f"the proof is not signed with one of {', '.join(self.algorithms)}")
        jwk = header.get("jwk")
        if not isinstance(jwk, dict):
            raise ProofRefused("the proof shows no key (jwk)")
        return _public_members(cast("dict[str, Any]", jwk))

    async def _signed_claims(self, text: str, proof: str, jwk: dict[str, str]) -> dict[str, Any]:
        key = self._keys.get(proof)
        if key is None:
            try:
                key = import_key(jwk)
            except ConfigError:
                raise ProofRefused("the proof's key (jwk) cannot be used") from None
            if len(self._keys) >= _KEYS:
                del self._keys[next(iter(self._keys))]
            self._keys[proof] = key
        try:
            return await read_signed(text, FixedKeys([key], by_kid=False), self._allowed)
        except Refused:
            raise ProofRefused("the proof's signature is not by the key it shows") from None

    def _check_claims(self, claims: Mapping[str, Any], method: str, urls: Iterable[str]) -> tuple[str, float]:
        """`jti` and `iat` of a proof that was made for this request."""
        jti, htm, htu = claims.get("jti"), claims.get("htm"), claims.get("htu")
        if not isinstance(jti, str) or not 0 < len(jti) <= _MAX_JTI:
            raise ProofRefused("the proof has no id of its own (jti)")
        try:
            issued = read_time(claims, "iat")
        except ValueError:
            issued = None
        if issued is None:
            raise ProofRefused("the proof must say when it was made (iat)")
        if not isinstance(htm, str) or htm != method:
            raise ProofRefused("the proof is for another method (htm)")
        target = place(htu) if isinstance(htu, str) else None
        if target is None or all(place(url) != target for url in urls):
            raise ProofRefused("the proof is for another URL (htu)")
        return jti, issued

    def _check_nonce(self, nonce: Any) -> str | None:
        if not self.has_nonces:
            return None
        slot = self._slot()
        fresh = self._nonce(slot)
        if isinstance(nonce, str):
            octets = nonce.encode("utf-8", "surrogatepass")
            if hmac.compare_digest(octets, fresh.encode()):
                return None
            # Also the nonce before, and the nonce after, from a worker whose clock is a little ahead.
            for near in (slot - 1, slot + 1):
                if hmac.compare_digest(octets, self._nonce(near).encode()):
                    return fresh
        raise ProofRefused("use the nonce in this reply", code="use_dpop_nonce")

    async def _check_new(self, proof: str, jti: str, seconds: float) -> None:
        if self._seen is None:
            return
        name = _segment(hashlib.sha256(f"{proof}.{jti}".encode("utf-8", "surrogatepass")).digest())
        try:
            is_new: Any = self._seen.add(name, seconds + 1)
            if inspect.isawaitable(is_new):
                is_new = await is_new
        except Exception as error:
            logger.error("the store of proofs failed: %s", type(error).__name__)
            raise Refused.failed(error) from None
        if is_new is not True:
            raise ProofRefused("the proof has been used before")

    def _slot(self) -> int:
        return int(self._clock() // (self._window / 2))

    def _nonce(self, slot: int) -> str:
        return _segment(hmac.digest(self._nonce_key, b"dpop nonce %d" % slot, "sha256")[:18])


def bound_key(principal: Principal) -> str | None:
    """The thumbprint of the key a token is bound to (`cnf.jkt`); None if it is bound to none."""
    confirmation = principal.claims.get("cnf")
    jkt = cast("Mapping[str, Any]", confirmation).get("jkt") if isinstance(confirmation, Mapping) else None
    return jkt if isinstance(jkt, str) and jkt.isascii() else None


def thumbprint(jwk: Mapping[str, str]) -> str:
    """SHA-256 of a public key (RFC 7638)."""
    members = {name: jwk[name] for name in _MEMBERS[jwk["kty"]]}
    return _segment(hashlib.sha256(msgspec.json.encode(members)).digest())


def one_header(headers: HeaderLookup | Mapping[str, str]) -> str:
    """The one proof in a request's headers. HTTP servers join repeated headers with a comma, or keep them apart."""
    every: Any = getattr(headers, "get_all", None)
    if every is not None and len(every("dpop")) > 1:
        raise ProofRefused("there is more than one DPoP header")
    text = (headers.get("dpop") or "").strip(" \t")
    if not text:
        raise ProofRefused("the request has no proof (DPoP header)")
    if "," in text:
        raise ProofRefused("there is more than one DPoP header")
    if len(text) > MAX_CREDENTIAL:
        raise ProofRefused(f"the proof is larger than {MAX_CREDENTIAL} bytes")
    return text


def place(url: str) -> Place | None:
    """Where a URL leads, query and fragment apart, written in one way (RFC 3986, 6.2.2 and 6.2.3); None if nowhere."""
    if not url.isascii() or not url.isprintable() or " " in url:
        return None
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in _DEFAULT_PORTS or not parts.hostname or "@" in parts.netloc:
        return None
    path = _ESCAPED.sub(_normal_escape, parts.path) or "/"
    return parts.scheme, parts.hostname, _DEFAULT_PORTS[parts.scheme] if port is None else port, path


def _normal_escape(match: re.Match[str]) -> str:
    char = chr(int(match[1], 16))
    return char if char in _UNRESERVED else match[0].upper()


def _public_members(jwk: dict[str, Any]) -> dict[str, str]:
    """The members that make the key. Its other members are claims of a stranger."""
    if not _PRIVATE.isdisjoint(jwk):
        raise ProofRefused("the proof shows a private key: that key is burnt, make another")
    kind = jwk.get("kty")
    names = _MEMBERS.get(kind) if isinstance(kind, str) else None
    members = {name: jwk.get(name) for name in names or ()}
    if not members or not all(isinstance(m, str) and m.isascii() and len(m) <= _MAX_MODULUS for m in members.values()):
        raise ProofRefused("the proof's key (jwk) cannot be used")
    if len(members.get("e") or "") > _MAX_EXPONENT:
        raise ProofRefused("the proof's key (jwk) cannot be used")
    return cast("dict[str, str]", members)


def _segment(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode("ascii")


def _check_algorithms(algorithms: Iterable[str]) -> tuple[str, ...]:
    names = (algorithms,) if isinstance(algorithms, str) else tuple(algorithms)
    unknown = [name for name in names if name not in ALGORITHMS]
    if unknown or not names:
        raise ConfigError(
            f"algorithms: {', '.join(map(repr, unknown)) or 'an empty list'} cannot sign a proof; use some of {', '.join(ALGORITHMS)}"
        )
    return names


def _check_nonce_key(key: str | bytes | None, nonces: bool) -> bytes:
    if key is None:
        return secrets.token_bytes(32)
    if not nonces:
        raise ConfigError("nonce_key is of use with nonces=True only")
    octets = key.encode() if isinstance(key, str) else key
    if len(octets) < _SHORTEST_KEY:
        raise ConfigError(
            f"nonce_key: {len(octets)} bytes can be guessed; give at least {_SHORTEST_KEY} random ones, as secrets.token_urlsafe(32) makes"
        )
    return octets


def _check_replay(replay: Any, clock: Callable[[], float]) -> ReplayStore | None:
    if replay is None or callable(getattr(replay, "add", None)):
        return replay
    if isinstance(replay, bool) or not isinstance(replay, int) or replay < 1:
        raise ConfigError(
            f"replay is how many proofs are remembered (replay={_REPLAY}), a store with add(proof, seconds), or None, not {replay!r}"
        )
    return _Seen(replay, clock)
