"""The proxy of a sandbox: which hosts a list means, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from trimaran.transports.sandbox_proxy import SandboxProxy, may_reach


@pytest.mark.parametrize(
    ("entry", "host", "port", "is_reached"),
    [
        ("example.com", "example.com", 443, True),
        ("example.com", "example.com", 80, True),
        ("example.com", "example.com", 22, False),
        ("example.com:8443", "example.com", 8443, True),
        ("example.com:8443", "example.com", 443, False),
        ("example.com", "evil-example.com", 443, False),
        ("example.com", "example.com.evil.net", 443, False),
        ("example.com", "api.example.com", 443, False),
        ("*.example.com", "api.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "evilexample.com", 443, False),
        ("Example.COM", "example.com", 443, True),
        ("127.0.0.1:80", "127.0.0.1", 80, True),
        ("[::1]:80", "::1", 80, True),
        ("[::1]", "::1", 443, True),
    ],
)
def test_a_list_means_its_hosts_and_no_others(entry: str, host: str, port: int, is_reached: bool) -> None:
    assert may_reach([entry], host, port) is is_reached


@pytest.fixture
async def port() -> AsyncGenerator[int]:
    proxy = SandboxProxy(["example.com"], is_local=False)
    await proxy.start()
    yield int(proxy.address)
    await proxy.close()


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"CONNECT other.example:443 HTTP/1.1\r\n\r\n", b"403"),
        (b"CONNECT example.com:22 HTTP/1.1\r\n\r\n", b"403"),
        (b"CONNECT example.com HTTP/1.1\r\n\r\n", b"400"),
        (b"CONNECT user@example.com:443 HTTP/1.1\r\n\r\n", b"400"),
        (b"GET http://other.example/ HTTP/1.1\r\nHost: example.com\r\n\r\n", b"403"),
        (b"GET https://example.com/ HTTP/1.1\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n", b"400"),
        (b"GET http://[::1/ HTTP/1.1\r\n\r\n", b"400"),
        (b"\x16\x03\x01 nonsense\r\n\r\n", b"400"),
        (b"CONNECT example.com:99999 HTTP/1.1\r\n\r\n", b"400"),
    ],
)
async def test_what_is_not_listed_or_no_request_is_refused(port: int, request_bytes: bytes, status: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request_bytes)
    answer = await reader.read()
    writer.close()
    await writer.wait_closed()
    assert answer.startswith(b"HTTP/1.1 " + status)


async def test_a_head_without_end_is_cut_off(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET http://example.com/ HTTP/1.1\r\nX: " + b"x" * 100_000)
    assert await reader.read() == b""
    writer.close()
