"""Servers behind a proxy that say much, before callers that do not read: bounded memory, and nobody else waits."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.faults import (
    INITIALIZED,
    Child,
    Connection,
    ask,
    call,
    http_child,
    initialize,
    legacy_call,
    legacy_http,
    modern_http,
    open_session,
    rss,
)
from tests.support.ports import find_port
from tests.support.program import Program
from tests.support.until import PATIENCE

from .test_readers import GROWTH

pytestmark = [pytest.mark.slow, pytest.mark.deadline(150)]

SERVE = [sys.executable, "-m", "trimaran.apps.cli", "serve"]
COUNT = 100_000  # messages of the flood; a caller's stream has room for two thirds of them


@contextlib.asynccontextmanager
async def proxied(tmp_path: Path) -> AsyncIterator[Program]:
    """A server that says much, behind `trimaran serve URL`."""
    with http_child() as (_, port):
        near = find_port()
        command = [*SERVE, f"http://127.0.0.1:{port}/mcp", "--port", str(near)]
        program = Program("proxy", near, command, tmp_path / "proxy.log")
        program.start()
        try:
            await program.wait_until_listening()
            yield program
        finally:
            program.kill()


@pytest.mark.parametrize("era", ["modern", "legacy"])
async def test_progress_for_callers_that_do_not_read_is_bounded(era: str, tmp_path: Path) -> None:
    async with proxied(tmp_path) as proxy, contextlib.AsyncExitStack() as held:
        before = rss(proxy.pid)
        for number in range(2):
            request = modern_http(call("ticks", {"n": COUNT}, progressToken="t"))
            if era == "legacy":
                request = legacy_http(legacy_call("ticks", {"n": COUNT}, number, "t"), await open_session(proxy.port))
            slow = await held.enter_async_context(await Connection.open(proxy.port, receive_buffer=4096))
            slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
            await slow.send(request)
        quiet = 0
        deadline = time.monotonic() + 2 * PATIENCE
        top = before
        while quiet < 20 and time.monotonic() < deadline and top - before < 300:
            reply = await ask(proxy.port, modern_http(call("add", {"a": 1, "b": 2})))
            assert reply.status == 200
            await asyncio.sleep(0.05)
            now = rss(proxy.pid)
            quiet = quiet + 1 if now < top + 0.2 and now > before + 10 else 0
            top = max(top, now)
        assert top - before < 2 * GROWTH


@pytest.mark.parametrize("era", ["modern", "legacy"])
def test_progress_on_a_stdout_that_nobody_reads_is_bounded(era: str) -> None:
    with http_child() as (_, port), Child(command=[*SERVE, f"http://127.0.0.1:{port}/mcp"]) as child:
        if era == "legacy":
            child.ask(initialize())
            child.send(INITIALIZED)
            child.send(legacy_call("ticks", {"n": COUNT}, 7, "t"))
        else:
            child.ask(call("add", {"a": 1, "b": 1}))
            child.send(call("ticks", {"n": COUNT}, 7, progressToken="t"))
        before = top = rss(child.pid)
        quiet, deadline = 0, time.monotonic() + PATIENCE
        while quiet < 40 and time.monotonic() < deadline and top - before < 300:
            time.sleep(0.05)
            now = rss(child.pid)
            quiet = quiet + 1 if now < top + 0.2 and now > before + 1 else 0
            top = max(top, now)
        assert top - before < GROWTH
        # Once it is read again, the result comes.
        assert "result" in child.answer(7, 2 * PATIENCE)
