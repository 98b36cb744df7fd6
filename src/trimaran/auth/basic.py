"""Users and passwords (R159-R161). A guess takes the same time whether its user exists or not.

Every check takes as long as the most expensive entry of the table: for a cheaper stored form, or none, the missing
rounds of PBKDF2 are added. Threads do the work, and an accepted password is remembered for a minute.
"""

from __future__ import annotations

import hmac
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, cast, final

from trimaran.errors import ConfigError

from .extract import basic_auth, presents
from .hashes import DERIVED, derive, is_legacy_hash, read_derived, verify_password
from .principal import Principal
from .provider import (
    AuthRequest,
    Provider,
    VerifiedCredentials,
    check_callable,
    check_realm,
    consult,
    in_thread,
    principal_from_info,
    read_info,
)
from .refusal import Refused, challenge

_REMEMBERED_SECONDS = 60.0
_NEVER_SENT = "\0"
"""A password that no request can carry."""


class _User(NamedTuple):
    password: str
    is_hashed: bool
    iterations: int
    principal: Principal | None


@final
class Basic(Provider):
    """Callers with `Authorization: Basic`. Either `credentials` or `verifier`:

    - `credentials`: a mapping from user to password, or to `{"password": ..., "scopes": [...], "metadata": {...}}`.
      Passwords are hashes made by `hash_password`, or plain text; `hash_passwords` says which, if that is not
      obvious (64 hexadecimal digits are taken for a hash)
    - `verifier`: a function, sync or async, from user and password to such a mapping, a `Principal`, True or None

    An accepted password of `credentials` is accepted again for `remember` seconds without deriving its hash again.
    A verifier's answer is remembered only if you give `remember`.
    """

    expects = "a user name and a password in the header Authorization, as Basic"

    def __init__(
        self,
        credentials: Mapping[str, object] | None = None,
        *,
        verifier: Callable[[str, str], object] | None = None,
        hash_passwords: bool | None = None,
        realm: str | None = "mcp",
        required_scopes: Iterable[str] = (),
        remember: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(required_scopes)
        if (credentials is None) == (verifier is None):
            raise ConfigError("Basic takes one of credentials= and verifier=")
        check_callable("verifier", verifier)
        self._verifier = verifier
        self._realm = check_realm(realm) or "mcp"
        self._users = {} if credentials is None else _read(credentials, hash_passwords)
        self._cost = max((user.iterations for user in self._users.values()), default=0)
        self._salt = secrets.token_bytes(16)
        self._key = secrets.token_bytes(32)
        self._clock = clock
        if remember is None:
            remember = 0.0 if verifier is not None else _REMEMBERED_SECONDS
        self._memory = VerifiedCredentials(clock, remember)

    def presents(self, request: AuthRequest) -> bool:
        return presents(request.headers, "basic")

    def challenge(self, refusal: Refused) -> str:
        return challenge("Basic", {"realm": self._realm, "charset": "UTF-8"})

    async def identify(self, request: AuthRequest) -> Principal | None:
        pair = basic_auth(request.headers)
        if pair is None:
            raise Refused("missing")
        digest = self._memory.keyed_digest(*pair)
        principal = self._memory.get(digest)
        if principal is not None:
            return principal
        if self._verifier is not None:
            principal = read_info(
                "password verifier", await consult("password verifier", self._verifier, *pair), pair[0]
            )
        else:
            # Without PBKDF2 in the table there is nothing to wait for.
            principal = await in_thread(self._check, *pair) if self._cost else self._check(*pair)
        if principal is None:
            raise Refused("invalid_credentials", reason="unknown user or wrong password")
        if principal.expires_at is not None and self._clock() >= principal.expires_at:
            raise Refused("invalid_credentials", reason="an expired user")
        self._memory.put(digest, principal, principal.expires_at)
        return principal

    def _check(self, name: str, password: str) -> Principal | None:
        user = self._users.get(name) or _User(_NEVER_SENT, False, 0, None)
        if user.is_hashed:
            matches = verify_password(password, user.password)
        else:
            matches = hmac.compare_digest(self._digest(password), self._digest(user.password))
        if self._cost > user.iterations:
            derive(password, self._salt, self._cost - user.iterations)
        return user.principal if matches else None

    def _digest(self, password: str) -> bytes:
        # Of one length, so that a comparison does not tell how long the password is.
        return hmac.digest(self._key, password.encode("utf-8", "surrogatepass"), "sha256")


def _read(credentials: Mapping[str, Any], hashed: bool | None) -> dict[str, _User]:
    if not isinstance(credentials, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ConfigError(f"credentials must be a mapping from user to password, not {type(credentials).__name__}")
    if not credentials:
        raise ConfigError("credentials must not be empty: nobody could call")
    return {name: _user(name, info, hashed) for name, info in credentials.items()}


def _user(name: Any, info: Any, hashed: bool | None) -> _User:
    if not isinstance(name, str) or not name or ":" in name or not name.isprintable():
        raise ConfigError(f"credentials: {name!r} cannot be the name of a user; it is text without a colon")
    rest: dict[str, Any] = {}
    if isinstance(info, Mapping):
        rest = dict(cast("Mapping[str, Any]", info))
        info = rest.pop("password", None)
    if not isinstance(info, str) or not info:
        raise ConfigError(f"credentials: {name} has no password; give a string, or a mapping with one under password")
    try:
        principal = principal_from_info(rest, name)
    except ValueError as error:
        raise ConfigError(f"credentials: {name}: {error}") from None
    parts = read_derived(info)
    is_form = parts is not None or is_legacy_hash(info)
    if (hashed is not False and info.startswith(DERIVED) and parts is None) or (hashed is True and not is_form):
        raise ConfigError(f"credentials: the password of {name} is not a hash made by hash_password; make it again")
    if hashed is False or not is_form:
        return _User(info, False, 0, principal)
    return _User(info, True, 0 if parts is None else parts.iterations, principal)
