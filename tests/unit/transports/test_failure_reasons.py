"""Why a connection failed, in words that a person can use."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl

import pytest

from trimaran import connect
from trimaran.errors import ConnectFailed
from trimaran.transports.failure_reasons import connection_reason


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
        (
            OSError(errno.EMFILE, "Too many open files"),
            "this process has too many open files: raise its limit (ulimit -n), or close some",
        ),
        (OSError("no number"), ""),
        (ValueError("no connection at all"), ""),
    ],
    ids=["refused", "aiohttp", "several addresses", "name", "tls", "descriptors", "no number", "another error"],
)
def test_the_reason_is_the_systems_own(error: Exception, reason: str) -> None:
    assert connection_reason(error) == reason


async def test_https_on_a_port_without_tls_is_told_what_to_write() -> None:
    """With the OpenSSL that is here: what it calls this depends on its version."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(65536)
        writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(refuse, "127.0.0.1", 0) as server:
        url = f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        with pytest.raises(ConnectFailed) as caught:
            async with connect(url):
                pass
    assert str(caught.value) == (f"no connection to {url}: this port speaks HTTP without TLS: use http:// in the URL")
