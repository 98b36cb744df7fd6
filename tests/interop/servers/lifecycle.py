"""What our client must survive, and leave behind, wherever it goes: each test has its own connection, most their own server.

A peer's test class names its `program`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from tests.support.ports import find_port
from tests.support.until import soon

from trimaran import connect, errors
from trimaran.client.options import Era

from .places import LIMIT, Listening, Program, call_that_waits, is_alive, names

ERAS = ["modern", "legacy"]


class OverPipes:
    program: Program

    @pytest.fixture
    def command(self, tmp_path: Path) -> list[str]:
        return self.program.over_pipes(tmp_path / "log")

    async def test_a_child_is_heard_on_stderr_and_gone_after_closing(self, command: list[str]) -> None:
        """P34, P10."""
        heard: asyncio.Queue[str] = asyncio.Queue()
        async with connect(command, on_stderr=heard.put_nowait) as client:
            pid = client.pid
            assert pid is not None
            assert is_alive(pid)
            await client.call_tool("complain", {"text": "oh no"})
            async with asyncio.timeout(LIMIT):
                while "oh no" not in await heard.get():
                    pass
            assert "oh no" in client.stderr
        assert client.state == "closed"
        assert not is_alive(pid)

    async def test_two_clients_have_a_child_each(self, command: list[str]) -> None:
        async with connect(command) as first:
            async with connect(command) as second:
                calls = [client.call_tool("pid") for client in (first, second)]
                pids = [int(result.text) for result in await asyncio.gather(*calls)]
                assert pids == [first.pid, second.pid]
                assert pids[0] != pids[1]
            assert (await first.call_tool("add", {"a": 2, "b": 3})).text == "5"
            assert not is_alive(pids[1])

    @pytest.mark.parametrize("era", ERAS)
    async def test_a_killed_child_fails_its_calls_at_once_and_the_next_call_works(
        self, command: list[str], era: Era
    ) -> None:
        """P2, P22: nothing is left to the caller but the one call that was lost."""
        async with connect(command, era=era) as client:
            pid = client.pid
            assert pid is not None
            await client.call_tool("complain", {"text": "last words"})
            call = await call_that_waits(client, next(names))
            os.kill(pid, signal.SIGKILL)
            with pytest.raises(errors.ConnectionLost) as lost:
                await asyncio.wait_for(call, 1)
            assert lost.value.exit_code == -signal.SIGKILL
            assert "last words" in lost.value.stderr
            assert (await client.call_tool("add", {"a": 2, "b": 3})).text == "5"
            assert client.pid not in (pid, None)
            assert client.era == era


class OverHttp:
    program: Program
    versions = ["2025-06-18", "2025-03-26"]
    """Older revisions that the library still speaks."""

    @pytest.fixture(scope="class")
    @classmethod
    def running(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Listening]:
        log = tmp_path_factory.mktemp("theirs") / "log"
        with cls.program.over_http(log).running() as server:
            yield server

    @pytest.mark.parametrize("era", ERAS)
    async def test_two_clients_do_not_disturb_each_other(self, running: Listening, era: Era) -> None:
        async with connect(running.url(), era=era) as first:
            async with connect(running.url(), era=era) as second:
                assert (first.session_id is None) is (second.session_id is None) is (era == "modern")
                if era == "legacy":
                    assert first.session_id != second.session_id
                calls = [client.call_tool("echo", {"text": text}) for client, text in ((first, "1"), (second, "2"))]
                assert [result.data for result in await asyncio.gather(*calls)] == ["1", "2"]
                call = await call_that_waits(first, name := next(names))
            assert not call.done()
            call.cancel()
            await asyncio.gather(call, return_exceptions=True)
            assert (await first.call_tool("has_stopped", {"name": name})).text == "true"

    async def test_closing_ends_the_session(self, running: Listening) -> None:
        """R205. Whoever comes with its id afterwards is told that there is none."""
        async with connect(running.url(), era="legacy") as client:
            session = client.session_id
            assert session is not None
        headers = {
            "accept": "application/json, text/event-stream",
            "mcp-session-id": session,
            "mcp-protocol-version": "2025-11-25",
        }
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        async with aiohttp.ClientSession() as http, http.post(running.url(), json=ping, headers=headers) as answer:
            assert answer.status == 404

    async def test_an_older_revision_is_spoken_if_asked_for(self, running: Listening) -> None:
        for version in self.versions:
            async with connect(running.url(), version=version) as client:
                assert client.version == version
                assert (await client.call_tool("echo", {"text": version})).text == version

    @pytest.mark.parametrize("era", ["auto", *ERAS])
    async def test_where_nobody_listens_no_connection_is_made(self, era: Era) -> None:
        """P5: one typed error, no group of them."""
        with pytest.raises(errors.ConnectFailed):
            async with connect(f"http://127.0.0.1:{find_port()}/mcp", era=era):
                pass

    @pytest.mark.parametrize("era", ERAS)
    async def test_a_killed_server_fails_its_calls_at_once_and_after_its_return_all_is_well(
        self, tmp_path: Path, era: Era
    ) -> None:
        """P1, P2: it comes back without the session, and nobody has to know."""
        with self.program.over_http(tmp_path / "log").running() as server:
            async with connect(server.url(), era=era) as client:
                session = client.session_id
                before = (await client.call_tool("pid")).text
                call = await call_that_waits(client, next(names))
                server.kill()
                with pytest.raises(errors.ConnectionLost):
                    await asyncio.wait_for(call, 1)
                with pytest.raises(errors.TransportError):
                    await client.call_tool("echo", {"text": "anyone there?"}, timeout=0.5)
                await asyncio.to_thread(server.start)
                after = (await soon(client.call_tool("pid"))).text
                assert after != before
                assert (client.session_id is None) is (era == "modern")
                assert era == "modern" or client.session_id != session
                assert client.state == "ready"
