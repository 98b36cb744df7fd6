"""The table of exit codes, and what each of our errors means to a person.

Scripts read the code; people read two sentences on stderr: what happened, and what to do about it. Nothing here prints.
"""

from __future__ import annotations

import errno
import re
from enum import IntEnum
from typing import Final

from trimaran.errors import (
    CODE_INVALID_PARAMS,
    CODE_METHOD_NOT_FOUND,
    CODE_RESOURCE_NOT_FOUND,
    AuthorizationFailed,
    CallCancelled,
    CallError,
    ClientStateError,
    ConfigError,
    ConnectFailed,
    ConnectionLost,
    Disconnected,
    Error,
    LocalProtocolError,
    LoginRequired,
    RemoteProtocolError,
    TimedOut,
    Unauthorized,
    UnexpectedStatus,
    Unsupported,
    UrlElicitationRequired,
)
from trimaran.types import as_object


class Exit(IntEnum):
    """The exit codes of every command that talks to a server."""

    OK = 0
    TOOL_FAILED = 1
    USAGE = 2
    NO_CONNECTION = 3
    SERVER_ERROR = 4
    TIMED_OUT = 5
    LOST = 6
    UNAUTHORIZED = 7
    BUG = 70
    INTERRUPTED = 130


MEANINGS: Final = {
    Exit.OK: "done",
    Exit.TOOL_FAILED: "the tool ran, and says that it failed (isError)",
    Exit.USAGE: "the command cannot work as it was typed",
    Exit.NO_CONNECTION: "no connection: refused, not found, or not an MCP server",
    Exit.SERVER_ERROR: "the server answered with an error, or not by the protocol",
    Exit.TIMED_OUT: "no answer in time (--timeout)",
    Exit.LOST: "the connection ended before the answer came",
    Exit.UNAUTHORIZED: "the server wants credentials, or other ones (trimaran auth login, --bearer, --header)",
    Exit.BUG: "a mistake in trimaran itself (--debug shows it)",
    Exit.INTERRUPTED: "interrupted with Ctrl-C",
}

EPILOG: Final = "\b\nExit codes:\n" + "\n".join(f"  {code:>3}  {meaning}" for code, meaning in MEANINGS.items())

# Most specific first. Other errors are the server's: it broke the protocol, or took too long.
_CODES: Final[tuple[tuple[type[Error], Exit], ...]] = (
    (ConfigError, Exit.USAGE),
    (LocalProtocolError, Exit.USAGE),
    (Unauthorized, Exit.UNAUTHORIZED),
    (TimedOut, Exit.TIMED_OUT),
    (ConnectFailed, Exit.NO_CONNECTION),
    (ConnectionLost, Exit.LOST),
    (Disconnected, Exit.LOST),
    (ClientStateError, Exit.LOST),
    (CallCancelled, Exit.INTERRUPTED),
)


_OPTIONS: Final = (
    (re.compile(r"\n?A slow start needs a larger connect_timeout"), ""),  # `advice` says it
    (re.compile(r"connect_timeout"), "--timeout"),
    (re.compile(r"; give (?:auth|headers)=.*\Z", re.DOTALL), ""),
    (re.compile(r",? and era='modern' allows no older revision to be tried|; era='modern' allows [\w ]+ tried"), ""),
    (re.compile(r"; (?:allow more with|retries the call with) \w+"), ""),
)


# Errors of a write to a pipe, a terminal or a redirected file.
_OUTPUT_ERRORS: Final = frozenset({errno.EPIPE, errno.EIO, errno.ENOSPC, errno.EFBIG, errno.EDQUOT})


def is_output_error(error: Exception) -> bool:
    """True if standard output failed: its reader or terminal is gone, or its disk is full."""
    return isinstance(error, OSError) and error.filename is None and error.errno in _OUTPUT_ERRORS


def code_of(error: Error, *, connected: bool = True) -> int:
    """The exit code of an error; `connected` says whether the server had been reached before it happened."""
    # The class only: on an instance the same name may hold how a child process ended.
    own = getattr(type(error), "exit_code", None)
    if isinstance(own, int):
        return own
    for kind, code in _CODES:
        if isinstance(error, kind):
            return code
    if isinstance(error, CallError) and _lacks_scopes(error):
        return Exit.UNAUTHORIZED
    if isinstance(error, (UnexpectedStatus, RemoteProtocolError)) and not connected:
        # Something is there, but no MCP server.
        return Exit.NO_CONNECTION
    return Exit.SERVER_ERROR


def in_our_words(error: Error) -> str:
    """The message of an error, with the library's options under the names that the command line gives them."""
    message = str(error)
    for pattern, instead in _OPTIONS:
        message = pattern.sub(instead, message)
    return message


def advice(error: Error, target: str, *, is_http: bool) -> str:
    """The remedy for an error, in one or two sentences; empty if its own message has it."""
    doctor = f"`trimaran doctor {target}` looks closer."
    if isinstance(error, UrlElicitationRequired):
        urls = [str(e.get("url", "")) for e in error.elicitations if isinstance(e, dict)]  # pyright: ignore[reportUnknownMemberType, reportUnknownArgumentType]
        return f"Visit {' and '.join(urls) or 'the page it names'} first, then run this again."
    if isinstance(error, Unauthorized):
        return _credentials_advice(error, target, doctor)
    if isinstance(error, TimedOut):
        return f"Give it longer with --timeout SECONDS. If it should have answered at once: {doctor}"
    if isinstance(error, ConnectFailed):
        if "no known parent package" in "".join(error.stderr):
            return f"The file is a part of a package: give `-- python -m PACKAGE.MODULE` instead. {doctor}"
        if error.exit_code == 0 and not error.stderr:
            return f"`-- trimaran serve FILE` serves one that does not. {doctor}"
        return f"Check the address, path included. {doctor}" if is_http else doctor
    if isinstance(error, UnexpectedStatus):
        return f"Is this an MCP endpoint? The path is often /mcp. {doctor}"
    if isinstance(error, ConnectionLost):
        return f"Whether the server did the work is not known. {doctor}"
    if isinstance(error, Unsupported):
        return f"`trimaran list {target}` shows what the server offers."
    if isinstance(error, CallError):
        return _call_advice(error, target)
    return doctor if isinstance(error, RemoteProtocolError) else ""


def _credentials_advice(error: Unauthorized, target: str, doctor: str) -> str:
    from .credentials import how_to_pass, offers_login

    if isinstance(error, LoginRequired):
        return ""
    if isinstance(error, AuthorizationFailed) and offers_login(error.www_authenticate):
        return doctor
    if error.status == 403:
        return "The server knows you, but refuses this: use credentials with more scope, or ask whoever runs it."
    first, *others = how_to_pass(error.www_authenticate, target)
    sentences = [first[0].upper() + first[1:], *(f"Or {way}" for way in others)]
    return ". ".join([*sentences, doctor])


def _lacks_scopes(error: CallError) -> bool:
    """True if a server refused a call for its scope, under status 200: no login can add to an API key."""
    return "required_scopes" in (as_object(getattr(error, "data", None)) or {})


def _call_advice(error: CallError, target: str) -> str:
    if _lacks_scopes(error):
        return "The server knows you, but refuses this: use credentials with that scope, or ask whoever runs it."
    if error.code in (CODE_INVALID_PARAMS, CODE_RESOURCE_NOT_FOUND):
        return f"Check names and arguments: `trimaran list {target}` shows what the server offers."
    if error.code == CODE_METHOD_NOT_FOUND:
        return f"`trimaran list {target}` shows what the server offers."
    return ""
