"""Who failed: an error as the page shows it, with whom to blame.

One table decides. A server that answers an error, a way that breaks, credentials that are refused, an answer that breaks
its own schema and a mistake on our side are different faults with different remedies, and a page that mixes them up sends
people to the wrong place.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, Literal, TypeAlias

from msgspec import Struct

from trimaran.errors import (
    CallCancelled,
    CallError,
    ClientStateError,
    ConfigError,
    DeclarationError,
    Error,
    InvalidOutput,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    RoundsExceeded,
    ToolError,
    TooManyPages,
    TransportError,
    Unauthorized,
    Unsupported,
)

Blame: TypeAlias = Literal["server", "transport", "check", "auth", "client", "person"]

# The first class that fits decides, so subclasses stand before their bases.
_BLAMED: Final[tuple[tuple[type[BaseException], Blame], ...]] = (
    (CallCancelled, "person"),
    (asyncio.CancelledError, "person"),
    (InvalidOutput, "check"),
    (LocalProtocolError, "client"),
    (RemoteProtocolError, "server"),
    (CallError, "server"),
    (ToolError, "server"),
    (ProtocolError, "server"),
    (RoundsExceeded, "server"),
    (TooManyPages, "server"),
    (Unsupported, "server"),
    (Unauthorized, "auth"),
    (TransportError, "transport"),
    (ClientStateError, "client"),
    (ConfigError, "client"),
    (DeclarationError, "client"),
)
_HINTS: Final[dict[str, str]] = {
    "TimedOut": "Allow more time in the server's options, or look at its stderr: it may still be at work.",
    "ConnectFailed": "Run the doctor: it says where the connection fails.",
    "ConnectionLost": "The server, or something on the way, ended the connection. The next call connects again.",
    "UnexpectedStatus": "Is this the address of an MCP server, with its path? The doctor looks at what answers there.",
    "Unauthorized": "Log in, step by step; or add the server again with a token or a header.",
    "UnsupportedVersion": "Try another era or revision.",
    "Unsupported": "The server did not declare this capability.",
    "InvalidOutput": "The server's answer breaks the output schema that the server itself declared.",
}


class PageFailure(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """An error for the page."""

    blame: Blame
    kind: str
    message: str
    code: int | str | None = None
    status: int | None = None
    data: Any = None
    hint: str | None = None


def failure_of(error: BaseException) -> PageFailure:
    """What an exception says to a person."""
    kind = type(error).__name__
    blames: list[Blame] = [blame for base, blame in _BLAMED if isinstance(error, base)]
    blame: Blame = blames[0] if blames else "client"
    if isinstance(error, asyncio.CancelledError):
        return PageFailure(blame="person", kind="Cancelled", message="the call was cancelled")
    message = error.message if isinstance(error, ProtocolError) else str(error)
    if not isinstance(error, Error):
        message = f"a mistake in the inspector, not in the server: {kind}: {error}"
    status: Any = getattr(error, "status", None)
    hint = _HINTS.get(kind)
    if "max_message_bytes" in message:
        blame, hint = "client", 'Raise "Largest message" in the options of the connection, and connect again.'
    return PageFailure(
        blame=blame,
        kind=kind,
        message=message or kind,
        code=getattr(error, "code", None),
        # That of a JSON-RPC error is what a server would send with it: nobody saw it, and stdio has none.
        status=status if isinstance(status, int) and not isinstance(error, ProtocolError) else None,
        data=getattr(error, "data", None),
        hint=hint,
    )
