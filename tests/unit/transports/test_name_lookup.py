"""Names whose look-up hangs: they hold nothing that others need."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from trimaran import connect
from trimaran.errors import AuthorizationFailed, TimedOut
from trimaran.oauth.effects import HttpRequest
from trimaran.transports.fetch import Fetcher
from trimaran.transports.name_lookup import look_up

HANGS = "hangs.example"


class NameServer:
    """Answers for this machine, and leaves one name waiting."""

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self._gate = threading.Event()
        self._getaddrinfo = socket.getaddrinfo

    def getaddrinfo(self, host: Any, *arguments: Any, **options: Any) -> Any:
        if host != HANGS:
            return self._getaddrinfo(host, *arguments, **options)
        self.threads.append(threading.current_thread())
        self._gate.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "no answer")

    def end(self) -> None:
        self._gate.set()


@pytest.fixture
def name_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServer]:
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server.getaddrinfo)
    yield server
    server.end()


async def test_look_ups_that_hang_keep_no_thread_that_others_need(name_server: NameServer) -> None:
    """The loop's own executor has six threads on two cores: forty hanging names would stop whatever needs one."""
    hanging = [asyncio.create_task(look_up(HANGS, 80)) for _ in range(40)]
    async with asyncio.timeout(10):
        assert await asyncio.to_thread(lambda: 7) == 7
        assert (await look_up("localhost", 80))[0].port == 80
    for task in hanging:
        task.cancel()
    await asyncio.wait(hanging)
    assert all(thread.daemon for thread in name_server.threads)


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_server_whose_name_hangs_is_given_up_in_time(name_server: NameServer, scheme: str) -> None:
    async with asyncio.timeout(10):
        with pytest.raises(TimedOut, match="connect_timeout"):
            async with connect(f"{scheme}://{HANGS}/mcp", connect_timeout=0.3, timeout=0.3):
                pass


@pytest.mark.slow
async def test_a_document_whose_host_name_hangs_is_given_up_in_time(name_server: NameServer) -> None:
    fetcher = Fetcher(timeout=0.2)
    try:
        async with asyncio.timeout(10):
            with pytest.raises(AuthorizationFailed, match="no whole answer"):
                await fetcher(HttpRequest(step="discovery", url=f"https://{HANGS}/.well-known/x"))
    finally:
        await fetcher.close()
