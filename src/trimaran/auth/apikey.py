"""API keys: from a table, in the clear or hashed, or by a function that knows them (R157, R158)."""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, cast, final

from trimaran.errors import ConfigError

from .extract import api_key, is_api_key, presents
from .hashes import KEYED, check_pepper, hash_key, is_keyed, is_legacy_hash
from .principal import Principal
from .provider import (
    REMEMBERED_SECONDS,
    AuthRequest,
    Provider,
    VerifiedCredentials,
    check_callable,
    check_realm,
    consult,
    principal_from_info,
    read_info,
)
from .refusal import Refused, challenge

_HEADER_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")


class _Entry(NamedTuple):
    stored: bytes
    principal: Principal


@final
class ApiKey(Provider):
    """Callers with a key in `X-API-Key` (another `header`, if you like) or `Authorization: ApiKey <key>`.

    Either `keys` or `verifier`:

    - `keys`: a mapping from key to `{"subject": ..., "scopes": [...], "metadata": {...}}`, or a plain list of keys.
      With `hash_keys=True` they are hashes made by `hash_key`; hashes with a pepper need that `pepper`
    - `verifier`: a function, sync or async, from a key to such a mapping, a `Principal`, True or None
    """

    def __init__(
        self,
        keys: Mapping[str, object] | Iterable[str] | None = None,
        *,
        verifier: Callable[[str], object] | None = None,
        header: str = "X-API-Key",
        hash_keys: bool = False,
        pepper: str | bytes | None = None,
        required_scopes: Iterable[str] = (),
        realm: str | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(required_scopes)
        if (keys is None) == (verifier is None):
            raise ConfigError("ApiKey takes one of keys= and verifier=")
        if not isinstance(header, str) or _HEADER_NAME.fullmatch(header) is None or header.lower() == "authorization":  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"header is the name of a header beside Authorization, not {header!r}")
        check_callable("verifier", verifier)
        self._verifier = verifier
        self._header = header
        self._lower = header.lower()
        self.header_names: tuple[str, ...] = (self._lower,)
        self.expects: str = f"an API key in the header {header}"
        self._realm = check_realm(realm)
        self._clock = clock
        self._hash_keys = hash_keys
        self._pepper = None if pepper is None else check_pepper(pepper)
        # Keys are found by a digest with a secret, so the time of the search reveals nothing about them.
        self._index_key = secrets.token_bytes(32)
        self._entries = {} if keys is None else self._read(keys)
        # The table does not change. A verifier may answer differently next time.
        self._memory = VerifiedCredentials(clock, REMEMBERED_SECONDS if verifier is None else 0.0)

    def presents(self, request: AuthRequest) -> bool:
        return request.headers.get(self._lower) is not None or presents(request.headers, "apikey")

    def challenge(self, refusal: Refused) -> str:
        return challenge("ApiKey", {"realm": self._realm, "header": self._header})

    async def identify(self, request: AuthRequest) -> Principal | None:
        key = api_key(request.headers, self._header)
        if key is None:
            raise Refused("missing")
        known = self._memory.seen(key)
        if known is not None:
            return known
        digest = self._memory.digest(key)
        if self._verifier is not None:
            principal = read_info("key verifier", await consult("key verifier", self._verifier, key), _subject(key))
        else:
            principal = self._find(key)
        if principal is None:
            raise Refused("invalid_credentials", reason="an unknown key")
        if principal.expires_at is not None and self._clock() >= principal.expires_at:
            raise Refused("invalid_credentials", reason="an expired key")
        self._memory.put(digest, principal, principal.expires_at)
        self._memory.note(key, digest)
        return principal

    def _find(self, key: str) -> Principal | None:
        match: Principal | None = None
        for form in self._forms(key):
            entry = self._entries.get(self._place(form))
            if entry is not None and hmac.compare_digest(entry.stored, form.encode()):
                match = entry.principal
        return match

    def _forms(self, key: str) -> tuple[str, ...]:
        """How a presented key would stand in the table."""
        if not self._hash_keys:
            return (key,)
        return (hash_key(key),) if self._pepper is None else (hash_key(key), hash_key(key, self._pepper))

    def _place(self, form: str) -> bytes:
        return hmac.digest(self._index_key, form.encode(), "sha256")

    def _read(self, keys: Mapping[str, Any] | Iterable[str]) -> dict[bytes, _Entry]:
        if isinstance(keys, str):
            raise ConfigError('keys must be a mapping or a list of keys: keys=["..."], not one string')
        table = cast("Mapping[str, Any]", keys) if isinstance(keys, Mapping) else dict.fromkeys(keys, True)
        if not table:
            raise ConfigError("keys must not be empty: nobody could call")
        entries: dict[bytes, _Entry] = {}
        for number, (form, info) in enumerate(table.items(), 1):
            self._check(number, form)
            subject = f"key:{hashlib.sha256(form.encode()).hexdigest()[:12]}" if self._hash_keys else _subject(form)
            entries[self._place(form)] = _Entry(form.encode(), _entry(number, info, subject))
        return entries

    def _check(self, number: int, form: Any) -> None:
        """The messages count the keys: quoting one would put it into a log."""
        if not isinstance(form, str) or not is_api_key(form):
            raise ConfigError(
                f"keys: number {number} cannot be sent in a header; keys are printable ASCII without commas"
            )
        if not self._hash_keys:
            if form.startswith(KEYED):
                raise ConfigError(f"keys: number {number} is hashed; say so with hash_keys=True")
        elif not (is_keyed(form) or is_legacy_hash(form)):
            raise ConfigError(f"keys: number {number} is not a hash made by hash_key, as hash_keys=True demands")
        elif is_keyed(form) and self._pepper is None:
            raise ConfigError(f"keys: number {number} was hashed with a pepper; without pepper= it never matches")


def _subject(key: str) -> str:
    return f"key:{hash_key(key)[:12]}"


def _entry(number: int, info: Any, subject: str) -> Principal:
    if info is True or info is None:
        return Principal(subject=subject)
    if isinstance(info, Principal):
        return info
    if not isinstance(info, Mapping):
        raise ConfigError(
            f"keys: number {number} has a {type(info).__name__}; a mapping with subject and scopes was expected"
        )
    try:
        return principal_from_info(cast("Mapping[str, Any]", info), subject)
    except ValueError as error:
        raise ConfigError(f"keys: number {number}: {error}") from None
