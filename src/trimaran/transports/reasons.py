"""Why a connection failed, in the system's own words: "connection refused" and not "[Errno 111] Connect call failed".

Pure. It reads an exception and never quotes the request, which may hold secrets.
"""

from __future__ import annotations

import os
import re
import socket
import ssl
from typing import Any, Final

__all__ = ["connection_reason"]

# asyncio joins the failures of several addresses in one text, and leaves the number out of the exception.
_NUMBER: Final = re.compile(r"\[Errno (\d+)\]")


def connection_reason(error: BaseException) -> str:
    """The reason in a few words; empty where the exception names none. aiohttp's exceptions are looked into."""
    inner: Any = getattr(error, "os_error", None) or error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return f"the certificate is refused: {inner.verify_message}"
    if isinstance(inner, ssl.SSLError):
        return f"TLS failed ({(getattr(inner, 'reason', None) or 'unknown').replace('_', ' ').lower()})"
    if isinstance(inner, socket.gaierror):
        return f"its name cannot be resolved ({inner.strerror})"
    if not isinstance(inner, OSError):
        return ""
    number = inner.errno or next((int(digits) for digits in _NUMBER.findall(str(inner))), 0)
    return os.strerror(number).lower() if number else ""
