"""Why a connection failed, in the system's own words: "connection refused" and not "[Errno 111] Connect call failed".

Pure. It reads an exception and never quotes the request, which may hold secrets.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from typing import Any, Final

# asyncio joins the failures of several addresses in one text, and leaves the number out of the exception.
_NUMBER: Final = re.compile(r"\[Errno (\d+)\]")

# OpenSSL's names for an answer that is no TLS record, such as "HTTP/1.1 400 Bad Request"; they depend on the version.
_NOT_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST", "UNKNOWN_PROTOCOL"})


TOO_MANY_FILES: Final = {
    errno.EMFILE: "this process has too many open files: raise its limit (ulimit -n), or close some",
    errno.ENFILE: "this machine has too many open files: close some",
}


def is_not_tls(error: BaseException) -> bool:
    """Whether the peer answered without TLS."""
    inner: Any = getattr(error, "os_error", None) or error
    return isinstance(inner, ssl.SSLError) and getattr(inner, "reason", None) in _NOT_TLS


def connection_reason(error: BaseException) -> str:
    """The reason in a few words; empty where the exception names none. aiohttp's exceptions are looked into."""
    inner: Any = getattr(error, "os_error", None) or error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"the certificate is refused: {inner.verify_message}"
    if is_not_tls(error):
        return "this port speaks HTTP without TLS: use http:// in the URL"
    if isinstance(inner, ssl.SSLError):
        return f"TLS failed ({(getattr(inner, 'reason', None) or 'unknown').replace('_', ' ').lower()})"
    if isinstance(inner, socket.gaierror):
        return f"its name cannot be resolved ({inner.strerror})"
    if not isinstance(inner, OSError):
        return ""
    number = _number(inner)
    return TOO_MANY_FILES.get(number) or os.strerror(number).lower() if number else ""


def connection_hint(error: BaseException) -> str:
    """The advice after the reason: nothing, if the server is there or has nothing to do with it."""
    inner: Any = getattr(error, "os_error", None) or error
    is_local = isinstance(inner, OSError) and _number(inner) in TOO_MANY_FILES
    return "" if is_local or is_not_tls(error) else "; is the server running?"


def _number(error: OSError) -> int:
    return error.errno or next((int(digits) for digits in _NUMBER.findall(str(error))), 0)
