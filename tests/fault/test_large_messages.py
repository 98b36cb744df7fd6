"""Large messages are read beside the event loop: others are served meanwhile."""

from __future__ import annotations

import asyncio
import base64
import threading
from typing import Any

import pytest
from tests.support.faults import ask, call, legacy_call, legacy_http, modern_http, open_session

from trimaran import Server
from trimaran.serve import HttpServer
from trimaran.server import tools
from trimaran.server.threads import LARGE_MESSAGE
from trimaran.transports import engine

DATA = base64.b64encode(bytes(LARGE_MESSAGE)).decode()


@pytest.fixture
def readers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was handed to a thread."""
    names: list[str] = []
    to_thread = asyncio.to_thread

    async def watched(function: Any, /, *arguments: Any, **options: Any) -> Any:
        names.append(function.__name__)
        return await to_thread(function, *arguments, **options)

    assert engine.asyncio is tools.asyncio
    monkeypatch.setattr(asyncio, "to_thread", watched)
    return names


@pytest.mark.parametrize("is_modern", [True, False])
async def test_a_large_call_is_read_in_a_thread_and_a_small_one_is_not(readers: list[str], is_modern: bool) -> None:
    server = Server("target", version="1")
    threads: list[threading.Thread] = []

    @server.tool
    async def upload(data: bytes) -> int:
        threads.append(threading.current_thread())
        return len(data)

    async with HttpServer(server, port=0) as running:
        session = await open_session(running.port)

        def request(data: str) -> bytes:
            arguments = {"data": data}
            return (
                modern_http(call("upload", arguments))
                if is_modern
                else legacy_http(legacy_call("upload", arguments), session)
            )

        small = await ask(running.port, request("QUJD"))
        assert b'"text":"3"' in small.body
        assert readers == []
        large = await ask(running.port, request(DATA))
        assert f'"text":"{LARGE_MESSAGE}"'.encode() in large.body
        assert readers == ["read", "arguments"]
        bad = await ask(running.port, request(DATA[:-3]))
        assert b'"isError":true' in bad.body
        garbage = await ask(running.port, request(DATA).replace(b'"jsonrpc"', b'"jsonrpc ', 1))
        assert garbage.status == 400
    assert set(threads) == {threading.main_thread()}
