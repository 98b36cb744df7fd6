"""Why a connection failed, in words that a person can use."""

from __future__ import annotations

import errno
import socket
import ssl

import pytest

from trimaran.transports.reasons import connection_reason


class Connector(Exception):
    """As aiohttp's: the system's error stands inside."""

    def __init__(self, os_error: OSError) -> None:
        super().__init__("Cannot connect to host 127.0.0.1:9 ssl:default")
        self.os_error = os_error


REFUSED = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 9)")
MANY = OSError("Multiple exceptions: [Errno 111] Connect call failed ('::1', 9), [Errno 111] Connect call failed")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (REFUSED, "connection refused"),
        (Connector(REFUSED), "connection refused"),
        pytest.param(
            MANY, "connection refused", marks=pytest.mark.skipif(errno.ECONNREFUSED != 111, reason="Linux's numbers")
        ),
        (socket.gaierror(-2, "Name or service not known"), "its name cannot be resolved (Name or service not known)"),
        (ssl.SSLError(1, "[SSL] wrong version number"), "TLS failed (unknown)"),
        (OSError("no number"), ""),
        (ValueError("no connection at all"), ""),
    ],
    ids=["refused", "aiohttp", "several addresses", "name", "tls", "no number", "another error"],
)
def test_the_reason_is_the_systems_own(error: Exception, reason: str) -> None:
    assert connection_reason(error) == reason
