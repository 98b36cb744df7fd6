"""Seal state that travels through a peer, so that it comes back unread, unaltered, in time and to the same call.

    t1 . <key id> . base64url( salt 12 | nonce 12 | AES-256-GCM( expiry 8 | form 1 | payload ) )

The marker, the key id, the purpose and the caller's binding (principal, method, argument digest) are authenticated
along with the text; the expiry is inside. The salt derives a key per message, so that replicas sharing one key never
come near the number of random nonces one GCM key can bear.

It keeps nothing: using a state once only needs memory, which is the caller's. It does not hide how long a payload is,
and compression makes that length say a little about its content; what must not leak even so belongs in a store.

A refusal is StateRejected and tells "expired" (of a text that was genuine) or nothing.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import struct
import zlib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, final

from trimaran.errors import ConfigError, Error, StateRejected

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

# A state rides in a JSON body, often behind proxies that cap bodies; past this it belongs in a store.
MAX_TEXT: Final = 64 * 1024
# Only a genuine text is ever inflated; the bound keeps one bad caller of `seal` from becoming a slow `open`.
MAX_PAYLOAD_BYTES: Final = 1024 * 1024

_MARKER: Final = "t1"
_SALT_BYTES: Final = 12
_NONCE_BYTES: Final = 12
_TAG_BYTES: Final = 16
_KEY_ID_BYTES: Final = 6
_HEAD: Final = struct.Struct(">dB")
_RAW, _DEFLATED = 0, 1
_SHORTEST_KEY: Final = 16
# Below this deflate cannot win over its own header.
_SHORTEST_DEFLATED: Final = 64


class _Key:
    __slots__ = ("id", "secret")

    def __init__(self, material: bytes) -> None:
        # HKDF (RFC 5869), SHA-256: any sufficiently long secret will do as key material.
        extracted = hmac.digest(b"trimaran seal", material, hashlib.sha256)
        self.secret = hmac.digest(extracted, b"key\x01", hashlib.sha256)
        self.id = _to_text(hmac.digest(extracted, b"id\x01", hashlib.sha256)[:_KEY_ID_BYTES])

    def cipher(self, salt: bytes) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # slow to import, and most calls seal nothing

        return AESGCM(hmac.digest(self.secret, salt, hashlib.sha256))


@final
class Sealer:
    """Seal with the first key, open with any: to rotate, put the new key in front and drop the old one later.

    Args:
        keys: secrets of at least 16 bytes each; replicas share them.
        random: returns that many unpredictable bytes, as `secrets.token_bytes` does.
        max_text: the longest text made or looked at.

    Raises:
        ConfigError: there is no key, or one is too short.
    """

    __slots__ = ("_by_id", "_first", "_max_text", "_random")

    def __init__(self, keys: Sequence[bytes], *, random: Callable[[int], bytes], max_text: int = MAX_TEXT) -> None:
        if not keys:
            raise ConfigError("sealing needs at least one key; give the same keys to every replica")
        if any(len(key) < _SHORTEST_KEY for key in keys):
            raise ConfigError(
                f"a sealing key needs at least {_SHORTEST_KEY} bytes; make one with `openssl rand -hex 32`"
            )
        derived = [_Key(key) for key in keys]
        self._first = derived[0]
        self._by_id = {key.id: key for key in derived}
        self._random = random
        self._max_text = max_text

    def seal(self, payload: bytes, *, purpose: bytes, binding: bytes, expires_at: float) -> str:
        """Seal a payload for one purpose and one call.

        Raises:
            Error: the payload is too large to travel.
        """
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise Error(f"a state of {len(payload)} bytes is too large to seal; the limit is {MAX_PAYLOAD_BYTES}")
        form, body = _RAW, payload
        if len(payload) >= _SHORTEST_DEFLATED:
            deflated = zlib.compress(payload)
            if len(deflated) < len(payload):
                form, body = _DEFLATED, deflated
        salt = self._random(_SALT_BYTES)
        nonce = self._random(_NONCE_BYTES)
        assert len(salt) == _SALT_BYTES
        assert len(nonce) == _NONCE_BYTES
        key = self._first
        sealed = key.cipher(salt).encrypt(nonce, _HEAD.pack(expires_at, form) + body, _bound(key, purpose, binding))
        text = f"{_MARKER}.{key.id}.{_to_text(salt + nonce + sealed)}"
        if len(text) > self._max_text:
            raise Error(
                f"a sealed state of {len(text)} characters is too large to travel; the limit is {self._max_text}"
            )
        return text

    def open(self, text: str, *, purpose: bytes, binding: bytes, now: float) -> bytes:
        """Return the payload of a text sealed for this purpose and call, unless its time is over.

        Raises:
            StateRejected: it is not such a text, or has expired.
        """
        if len(text) > self._max_text:
            raise _refusal()
        plain = self._decrypt(text, purpose, binding)
        expires_at, form = _HEAD.unpack_from(plain)
        # Written so that an expiry that is no number counts as past.
        if not now < expires_at:
            raise StateRejected("the state has expired; start the call again")
        body = plain[_HEAD.size :]
        return _inflate(body) if form == _DEFLATED else body

    def _decrypt(self, text: str, purpose: bytes, binding: bytes) -> bytes:
        from cryptography.exceptions import InvalidTag

        marker, _, rest = text.partition(".")
        key_id, _, encoded = rest.partition(".")
        key = self._by_id.get(key_id)
        if marker != _MARKER or key is None:
            raise _refusal()
        octets = _from_text(encoded)
        if len(octets) < _SALT_BYTES + _NONCE_BYTES + _HEAD.size + _TAG_BYTES:
            raise _refusal()
        salt, nonce = octets[:_SALT_BYTES], octets[_SALT_BYTES : _SALT_BYTES + _NONCE_BYTES]
        try:
            return key.cipher(salt).decrypt(nonce, octets[_SALT_BYTES + _NONCE_BYTES :], _bound(key, purpose, binding))
        except InvalidTag:
            raise _refusal() from None


def _bound(key: _Key, purpose: bytes, binding: bytes) -> bytes:
    # Lengths in front, so that no two pairs of purpose and binding run together into one.
    head = f"{_MARKER}.{key.id}.".encode("ascii")
    return head + struct.pack(">QQ", len(purpose), len(binding)) + purpose + binding


def _to_text(octets: bytes) -> str:
    return base64.urlsafe_b64encode(octets).rstrip(b"=").decode("ascii")


def _from_text(text: str) -> bytes:
    try:
        octets = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _refusal() from None
    # One spelling only: otherwise the unused bits of the last character could be altered unnoticed.
    if _to_text(octets) != text:
        raise _refusal()
    return octets


def _inflate(body: bytes) -> bytes:
    inflater = zlib.decompressobj()
    try:
        payload = inflater.decompress(body, MAX_PAYLOAD_BYTES)
    except zlib.error:
        raise _refusal() from None
    if not inflater.eof:
        raise _refusal()
    return payload


def _refusal() -> StateRejected:
    return StateRejected("the state is not valid for this call")
