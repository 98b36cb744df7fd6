"""Why a caller was turned away, and how HTTP says so: one table, one way to build a challenge."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from trimaran.errors import CODE_INTERNAL, CODE_INVALID_REQUEST, AuthorizationFailed, ConfigError, Error, UnsafeUrl


class Kind(NamedTuple):
    status: int
    code: str
    """The code in the reply: that of RFC 6750, if there is one."""
    message: str


# R164, R173. The names are ours; the codes are what clients know.
KINDS: Final[Mapping[str, Kind]] = {
    "missing": Kind(401, "unauthorized", "credentials are needed here"),
    "invalid_token": Kind(401, "invalid_token", "the token is not valid here"),
    "expired_token": Kind(401, "invalid_token", "the token has expired"),
    "invalid_credentials": Kind(401, "invalid_credentials", "the credentials are not valid here"),
    "insufficient_scope": Kind(403, "insufficient_scope", "the token does not cover this"),
    "invalid_request": Kind(400, "invalid_request", "the credentials are malformed"),
    "rate_limited": Kind(429, "rate_limited", "too many requests: wait as long as Retry-After says"),
    "server_error": Kind(500, "server_error", "the credentials could not be checked"),
    "unavailable": Kind(
        503,
        "temporarily_unavailable",
        "the credentials cannot be checked: their issuer does not answer; try again later",
    ),
}
_ALIASES: Final = {"unauthorized": "missing", "expired": "expired_token", "invalid_audience": "invalid_token"}
# The codes that RFC 6750 allows in a Bearer challenge.
# Refusals that should say what to send.
_UNAIDED: Final = frozenset({"missing", "invalid_credentials"})
_BEARER_CODES: Final = frozenset({"invalid_token", "insufficient_scope", "invalid_request"})
_UNPRINTABLE: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")
_CHALLENGED: Final = frozenset({400, 401, 403})
_MAX_HINT: Final = 500
_MAX_WAIT: Final = 86_400.0
"""A day: a longer wait tells a client nothing."""
_RETRY_SECONDS: Final = 5.0  # until an issuer that does not answer may do so again
# Errors of a check whose service is away. Any other error is a fault on our side.
_ABSENCES: Final = (TimeoutError, ConnectionError, AuthorizationFailed)


class Refused(Error):
    """A caller is refused. `message` is sent to the caller: it must not be secret.

    `kind` is one of `missing`, `invalid_token`, `expired_token`, `invalid_credentials`, `insufficient_scope`,
    `invalid_request`, `rate_limited`, `server_error` and `unavailable`. `reason` is for the log and is never sent.
    `retry_after` is the number of seconds after which to try again.
    """

    def __init__(
        self,
        kind: str,
        message: str | None = None,
        *,
        scopes: Iterable[str] = (),
        reason: str = "",
        retry_after: float | None = None,
    ) -> None:
        kind = _ALIASES.get(kind, kind)
        if kind not in KINDS:
            raise ConfigError(f"there is no kind of refusal {kind!r}; use one of {', '.join(KINDS)}")
        self.kind = kind
        self.message: str = message if message is not None else KINDS[kind].message
        self.scopes: tuple[str, ...] = tuple(scopes)
        self.reason = reason
        self.retry_after: float | None = (
            _RETRY_SECONDS if retry_after is None and kind == "unavailable" else retry_after
        )
        self.challenges: tuple[str, ...] = ()
        self.extra: list[tuple[str, str]] = []
        """Further headers of the reply: a nonce to use."""
        super().__init__(self.message)

    @classmethod
    def failed(cls, error: Exception) -> Refused:
        """The refusal for a check that raised this error: 503 if the service it asks is away, else 500."""
        is_away = isinstance(error, _ABSENCES) and not isinstance(error, UnsafeUrl)
        return cls("unavailable" if is_away else "server_error")

    def again(self) -> Refused:
        """The same, to be raised again: one that is raised again and again keeps every frame it went through."""
        return Refused(self.kind, self.message, scopes=self.scopes, reason=self.reason, retry_after=self.retry_after)

    @property
    def status(self) -> int:
        return KINDS[self.kind].status

    @property
    def code(self) -> str:
        return KINDS[self.kind].code

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers of the reply. There is a challenge only if other credentials could help."""
        pairs = [("content-type", "application/json"), ("cache-control", "no-store")]
        if self.challenges and self.status in _CHALLENGED:
            pairs.append(("www-authenticate", ", ".join(self.challenges)))
        if self.retry_after is not None:
            # Whole seconds, and never 0: a client that comes back at once would be turned away again.
            pairs.append(("retry-after", str(max(1, math.ceil(min(self.retry_after, _MAX_WAIT))))))
        pairs += self.extra
        return pairs

    @property
    def body(self) -> bytes:
        return msgspec.json.encode({"error": self.code, "error_description": printable(self.message)})

    @property
    def rpc_body(self) -> bytes:
        """The body as a JSON-RPC error. MCP clients show its message, and most show nothing of any other body."""
        data: dict[str, Any] = {"error": self.code}
        if self.scopes:
            data["required_scopes"] = self.scopes
        error = {
            "code": CODE_INTERNAL if self.status >= 500 else CODE_INVALID_REQUEST,
            "message": printable(self.message),
            "data": data,
        }
        return msgspec.json.encode({"jsonrpc": "2.0", "id": None, "error": error})

    def explain(self, expects: str) -> None:
        """Say what to send, unless the message is the author's own."""
        if expects and self.kind in _UNAIDED and self.message == KINDS[self.kind].message:
            self.message += f": send {expects}" if self.kind == "missing" else f"; this server takes {expects}"

    def bearer_challenge(
        self, realm: str | None, resource_metadata: str | None = None, *, scopes: Iterable[str] = ()
    ) -> str:
        """This refusal as a Bearer challenge; one for a missing token says nothing of errors (RFC 6750, 3.1).

        `scopes` are named where the refusal itself names none.
        """
        parameters: dict[str, str | None] = {"realm": realm}
        if self.code in _BEARER_CODES:
            parameters |= {"error": self.code, "error_description": self.message}
        parameters |= {"scope": " ".join(self.scopes or scopes) or None, "resource_metadata": resource_metadata}
        return challenge("Bearer", parameters)


def printable(text: str) -> str:
    return _UNPRINTABLE.sub("", text)[:_MAX_HINT]


def quote(text: str) -> str:
    """A quoted string of RFC 9110 in ASCII, without control characters."""
    plain = _UNPRINTABLE.sub("", text).encode("ascii", "replace").decode()
    return '"' + plain.replace("\\", "\\\\").replace('"', '\\"') + '"'


def challenge(scheme: str, parameters: Mapping[str, str | None]) -> str:
    """One challenge for `WWW-Authenticate`; parameters without a value are left out."""
    listed = ", ".join(f"{name}={quote(value)}" for name, value in parameters.items() if value is not None)
    return f"{scheme} {listed}" if listed else scheme
