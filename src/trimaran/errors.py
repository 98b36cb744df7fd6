"""Every exception Trimaran raises, and the JSON-RPC codes they travel under.

    Error
    ├── ProtocolError            a JSON-RPC error: code, message, data, and the HTTP status that goes with it
    │   ├── LocalProtocolError       our caller broke the protocol
    │   ├── RemoteProtocolError      the peer broke the protocol
    │   │   └── InvalidOutput            a tool's result does not match the schema the tool declares
    │   ├── ResourceMissing          no resource has this URI
    │   └── CallError                the peer answered our call with an error
    │       ├── UnsupportedVersion
    │       ├── MissingCapability
    │       ├── HeaderMismatch
    │       └── UrlElicitationRequired   a person must visit these URLs first
    ├── ToolError                a tool failed, and says so to the model: an `isError` result, text untouched
    ├── DeclarationError         a tool, resource, prompt or server that cannot work as declared
    ├── ConfigError              an option or a combination of options that cannot work
    ├── TransportError           the connection, not the conversation
    │   ├── ConnectFailed            none could be made
    │   ├── ConnectionLost           it ended while an answer was expected
    │   ├── Disconnected             the client of a call is gone
    │   ├── TimedOut                 no answer in time
    │   ├── Unauthorized             the server wants credentials, or other ones
    │   │   └── AuthorizationFailed      they could not be obtained: a step of getting them failed
    │   │       ├── LoginRequired            a person has to log in, and cannot be asked here
    │   │       └── UnsafeUrl                a URL that a server named is not one to go to
    │   └── UnexpectedStatus         an HTTP status that answers nothing
    ├── ClientStateError         a client used at the wrong time
    │   ├── NotReady                 before it was opened
    │   └── Closed                   after it was closed
    ├── Unsupported              the server does not offer what was asked of it; nothing was sent
    ├── CallCancelled            the call was cancelled through its client
    ├── TooManyPages             a list that does not end
    ├── StateRejected            a sealed state that was forged, altered, expired, or made for another call
    └── RoundsExceeded

A message says what happened, what was expected and what to do next. Nothing here knows a transport.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Self

__all__ = [
    "CODE_HEADER_MISMATCH",
    "CODE_INTERNAL",
    "CODE_INVALID_PARAMS",
    "CODE_INVALID_REQUEST",
    "CODE_METHOD_NOT_FOUND",
    "CODE_MISSING_CAPABILITY",
    "CODE_PARSE",
    "CODE_RESOURCE_NOT_FOUND",
    "CODE_UNSUPPORTED_VERSION",
    "CODE_URL_ELICITATION_REQUIRED",
    "AuthorizationFailed",
    "CallCancelled",
    "CallError",
    "ClientStateError",
    "Closed",
    "ConfigError",
    "ConnectFailed",
    "ConnectionLost",
    "DeclarationError",
    "Disconnected",
    "Error",
    "HeaderMismatch",
    "InvalidOutput",
    "LocalProtocolError",
    "LoginRequired",
    "MissingCapability",
    "NotReady",
    "ProtocolError",
    "RemoteProtocolError",
    "ResourceMissing",
    "RoundsExceeded",
    "StateRejected",
    "TimedOut",
    "TooManyPages",
    "ToolError",
    "TransportError",
    "Unauthorized",
    "UnexpectedStatus",
    "UnsafeUrl",
    "Unsupported",
    "UnsupportedVersion",
    "UrlElicitationRequired",
]

CODE_PARSE: Final = -32700
CODE_INVALID_REQUEST: Final = -32600
CODE_METHOD_NOT_FOUND: Final = -32601
CODE_INVALID_PARAMS: Final = -32602
CODE_INTERNAL: Final = -32603
CODE_HEADER_MISMATCH: Final = -32020
CODE_MISSING_CAPABILITY: Final = -32021
CODE_UNSUPPORTED_VERSION: Final = -32022
# Legacy revisions only; a 2026-07-28 reply must not carry these two.
CODE_RESOURCE_NOT_FOUND: Final = -32002
CODE_URL_ELICITATION_REQUIRED: Final = -32042

# The status tells a peer of any era: 404 is "no such method", 400 is any other mistake that the caller can fix, 500
# is one that it cannot fix.
_STATUS: Final = {
    CODE_PARSE: 400,
    CODE_INVALID_REQUEST: 400,
    CODE_METHOD_NOT_FOUND: 404,
    CODE_INVALID_PARAMS: 400,
    CODE_INTERNAL: 500,
    CODE_HEADER_MISMATCH: 400,
    CODE_MISSING_CAPABILITY: 400,
    CODE_UNSUPPORTED_VERSION: 400,
}


# The kind of failure of a step of getting credentials, by a word in its name; any other is the flow's.
_OAUTH_STEPS: Final = {
    "metadata": "oauth_discovery",
    "registration": "oauth_registration",
    "token": "oauth_exchange",
}


class Error(Exception):
    """The root of every exception Trimaran raises."""

    kind: str = "error"
    """The failure in one word, for programs (R280). Messages may change, kinds do not."""


class ProtocolError(Error):
    """A JSON-RPC error: what goes on the wire, and the HTTP status that goes with it.

    A handler may raise it to answer a call with exactly this code, message and data (R48).
    """

    kind = "rpc"

    request_id: int | str | None = None
    """The id of the request this answers, where one could be read."""

    def __init__(self, code: int, message: str, data: object = None, *, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data: Any = data
        self.status: int = status if status is not None else _STATUS.get(code, 200)

    def __str__(self) -> str:
        return f"{self.message} ({self.code})"

    @classmethod
    def parse_error(cls, message: str = "the message is not valid JSON", data: object = None) -> Self:
        return cls(CODE_PARSE, message, data)

    @classmethod
    def invalid_request(cls, message: str, data: object = None, *, status: int | None = None) -> Self:
        return cls(CODE_INVALID_REQUEST, message, data, status=status)

    @classmethod
    def method_not_found(cls, method: str, data: object = None) -> Self:
        return cls(CODE_METHOD_NOT_FOUND, f"method not found: {method[:200]}", data)

    @classmethod
    def invalid_params(cls, message: str, data: object = None) -> Self:
        return cls(CODE_INVALID_PARAMS, message, data)

    @classmethod
    def internal_error(cls, message: str = "internal error", data: object = None, *, status: int | None = None) -> Self:
        return cls(CODE_INTERNAL, message, data, status=status)

    @classmethod
    def wrap(cls, anything: object) -> ProtocolError:
        """Turn any value into a protocol error: one stays itself, everything else is an internal error (R278).

        Only words that were meant for the peer become its message: a string, or a `ToolError`. The text of any
        other exception stays here, as the `__cause__`, for your log.
        """
        if isinstance(anything, ProtocolError):
            return anything
        meant = isinstance(anything, (str, ToolError))
        error = ProtocolError(CODE_INTERNAL, (str(anything) if meant else "") or "internal error")
        error.__cause__ = anything if isinstance(anything, BaseException) else None
        return error


class LocalProtocolError(ProtocolError):
    """Our caller asked for something the protocol does not allow; nothing was sent."""

    kind = "invalid_call"


class RemoteProtocolError(ProtocolError):
    """The peer sent something the protocol does not allow."""

    kind = "protocol"


class ResourceMissing(ProtocolError):
    """No resource has this URI: -32602 on the modern era, -32002 on the legacy ones, `data.uri` on both."""

    kind = "resource_missing"

    def __init__(self, uri: str) -> None:
        super().__init__(CODE_INVALID_PARAMS, f"resource not found: {uri[:500]}", {"uri": uri})


class InvalidOutput(RemoteProtocolError):
    """A tool's structured result does not match the output schema the tool declares; `result` holds it all the same."""

    kind = "invalid_output"

    def __init__(self, message: str, *, result: object = None) -> None:
        super().__init__(CODE_INTERNAL, message)
        self.result: Any = result


class CallError(ProtocolError):
    """The peer answered a call with a JSON-RPC error."""

    kind = "rpc"

    def __str__(self) -> str:
        # Without an id it is no answer: this program noticed by itself that the call cannot work.
        if self.request_id is None:
            return super().__str__()
        return f"the server answered: {self.message} ({self.code})"


class UnsupportedVersion(CallError):
    """The peer does not speak the revision that was asked for; `supported` lists what it speaks."""

    @property
    def supported(self) -> list[str]:
        """The revisions that the peer says it speaks."""
        listed: Any = self.data.get("supported") if isinstance(self.data, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return [version for version in listed if isinstance(version, str)] if isinstance(listed, list) else []  # pyright: ignore[reportUnknownVariableType]


class MissingCapability(CallError):
    """A capability the call needs was not declared by the peer that made it."""


class HeaderMismatch(CallError):
    """Routing headers and body disagree."""


class UrlElicitationRequired(CallError):
    """-32042 (2025-11-25): the call works once a person has visited these URLs."""

    @property
    def elicitations(self) -> list[Any]:
        """The params of each URL elicitation."""
        listed: Any = self.data.get("elicitations") if isinstance(self.data, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return list(listed) if isinstance(listed, list) else []  # pyright: ignore[reportUnknownArgumentType]


class ToolError(Error):
    """Raise it in a tool to tell the model what went wrong: the text is sent as it is, as an `isError` result.

    `content` replaces the text by ready content blocks; `meta` becomes the result's `_meta`. A client that was told
    to raise on errors gets one too, with the whole `result`.
    """

    kind = "tool_failed"

    result: Any = None

    def __init__(self, message: str = "", *, content: object = None, meta: dict[str, object] | None = None) -> None:
        super().__init__(message)
        self.content: Any = content
        self.meta = meta


class DeclarationError(Error):
    """A declaration that cannot work; the message says what to write instead."""

    kind = "declaration"


class ConfigError(Error):
    """An option, or a combination of options, cannot work; the message names it and the remedy."""

    kind = "config"


class TransportError(Error):
    """The connection, not the conversation, failed."""

    kind = "transport"


class ConnectFailed(TransportError):
    """No connection could be made."""

    def __init__(self, message: str, *, exit_code: int | None = None, stderr: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.exit_code = exit_code
        """How the child process ended, if that is why."""
        self.stderr: list[str] = list(stderr)
        """The last lines the child wrote there."""


class ConnectionLost(TransportError):
    """The connection ended while an answer was expected. Whether the server did the work is not known, if `sent`."""

    sent: bool = True
    """Could the server have seen the request? If not, it is safe to send again."""

    def __init__(
        self, message: str, *, cause_text: str = "", exit_code: int | None = None, stderr: Sequence[str] = ()
    ) -> None:
        super().__init__(message)
        self.cause_text: str = cause_text or message
        self.exit_code = exit_code
        """How the child process ended, where there was one and it ended."""
        self.stderr: list[str] = list(stderr)
        """The last lines the child wrote there, at most 200."""


class Disconnected(TransportError):
    """The client of a call is gone: nothing can be asked of it any more."""


class TimedOut(TransportError):
    """No answer came in time."""

    kind = "timeout"
    is_of_caller: bool = False
    """Is it the caller of a tool who did not answer what the tool asked?"""


class Unauthorized(TransportError):
    """The server wants credentials (401), or finds these not enough (403).

    `code` and `data` are those of the JSON-RPC error in the body, if the server sent one: for a tool that needs more
    scopes, `data["required_scopes"]` lists them (R184).
    """

    kind = "unauthorized"

    def __init__(
        self,
        message: str,
        *,
        status: int = 401,
        www_authenticate: str = "",
        code: int | str | None = None,
        data: object = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.www_authenticate = www_authenticate
        self.code = code
        self.data: Any = data


class AuthorizationFailed(Unauthorized):
    """Credentials for a server could not be obtained. The message says which step failed, at which URL, and what to do.

    `step` names it ("protected resource metadata", "token request", ...), `url` is where, and `code` is what the
    authorization server called it (`invalid_grant`, ...), if it said so. Nothing secret is in any of them.
    """

    # A word, not a number: what failed is no JSON-RPC call.
    code: str | None  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(
        self,
        message: str,
        *,
        step: str,
        url: str = "",
        code: str | None = None,
        status: int = 401,
        www_authenticate: str = "",
    ) -> None:
        super().__init__(message, status=status, www_authenticate=www_authenticate, code=code)
        self.step = step
        self.url = url
        if type(self) is AuthorizationFailed:
            self.kind: str = next((kind for word, kind in _OAUTH_STEPS.items() if word in step), "oauth_flow")


class LoginRequired(AuthorizationFailed):
    """A person has to log in, and this program cannot ask one."""

    kind = "oauth_interactive_required"

    is_final: bool = False
    """The issuer has refused to refresh: the tokens there were are worth nothing any more."""


class UnsafeUrl(AuthorizationFailed):
    """A URL that a server gave is not fetched: not https, an address inside, or a redirect to such."""

    kind = "unsafe_url"


class UnexpectedStatus(TransportError):
    """An HTTP status without a JSON-RPC answer in its body."""

    body: str = ""
    """The start of the body."""

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class ClientStateError(Error):
    """A client was used at the wrong time."""

    kind = "client_state"


class NotReady(ClientStateError):
    """The client was used before it was opened."""

    kind = "not_ready"


class Closed(ClientStateError):
    """The client was used after, or while, it was closed."""

    kind = "closed"


class Unsupported(Error):
    """The server does not offer what was asked of it; nothing was sent."""

    kind = "unsupported"

    def __init__(self, message: str, *, method: str) -> None:
        super().__init__(message)
        self.method = method


class CallCancelled(Error):
    """The call was cancelled through its client."""

    kind = "cancelled"


class TooManyPages(Error):
    """A list went on for more pages than allowed."""

    kind = "too_many_pages"


class StateRejected(Error):
    """A sealed state was forged, altered, expired, or made for another call or caller."""

    kind = "state_rejected"


class RoundsExceeded(Error):
    """A call asked for input more often than is allowed."""

    kind = "rounds_exceeded"
