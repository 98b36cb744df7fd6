"""The rig itself: what the other tests rely on when they blame the fleet."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from tests.support.until import PATIENCE

from trimaran import connect

from .rig import Cable, rig


async def test_requests_go_round_and_a_dead_process_is_passed_over(tmp_path: Path) -> None:
    async with rig(tmp_path, store=False) as fleet, connect(fleet.url, era="modern") as client:
        pids = Counter([(await client.call_tool("where")).data for _ in range(12)])
        assert pids == {program.pid: 4 for program in fleet.servers}
        dead = fleet.servers[1].pid
        fleet.servers[1].kill()
        pids = Counter([(await client.call_tool("where")).data for _ in range(12)])
        assert set(pids) == {fleet.servers[0].pid, fleet.servers[2].pid}
        fleet.servers[1].start()
        await fleet.servers[1].wait_until_listening()
        pids = Counter([(await client.call_tool("where")).data for _ in range(12)])
        assert pids == {program.pid: 4 for program in fleet.servers}
        assert dead not in pids


class Echo:
    """Says what it hears."""

    port: int

    async def __aenter__(self) -> Echo:
        self._server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1000):
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()

    async def __aexit__(self, *exc: object) -> None:
        self._server.close()
        await self._server.wait_closed()


async def test_a_refused_cable_resets_and_refuses_until_it_is_mended() -> None:
    async with Echo() as echo:
        cable = Cable(echo.port)
        cable.start()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", cable.port)
            writer.write(b"one")
            assert await asyncio.wait_for(reader.readexactly(3), PATIENCE) == b"one"
            cable.cut("refused")
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await asyncio.wait_for(reader.readexactly(1), 5)
            writer.close()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", cable.port)
            cable.mend()
            reader, writer = await asyncio.open_connection("127.0.0.1", cable.port)
            writer.write(b"two")
            assert await asyncio.wait_for(reader.readexactly(3), PATIENCE) == b"two"
            writer.close()
        finally:
            cable.stop()


async def test_a_silent_cable_holds_what_was_sent_until_it_is_mended() -> None:
    async with Echo() as echo:
        cable = Cable(echo.port)
        cable.start()
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", cable.port)
            writer.write(b"one")
            assert await asyncio.wait_for(reader.readexactly(3), PATIENCE) == b"one"
            cable.cut("silent")
            writer.write(b"two")
            later, late = await asyncio.open_connection("127.0.0.1", cable.port)
            late.write(b"six")
            for silent in (reader, later):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(silent.readexactly(1), 0.1)
            cable.mend()
            assert await asyncio.wait_for(reader.readexactly(3), PATIENCE) == b"two"
            assert await asyncio.wait_for(later.readexactly(3), PATIENCE) == b"six"
            writer.close()
            late.close()
        finally:
            cable.stop()
