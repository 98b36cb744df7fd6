"""Servers that take long to start, as real processes: the host stops waiting, and each goes on by itself (R267, R272)."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.faults import is_alive
from tests.support.until import soon, until

from trimaran import Host
from trimaran.host import ServerUnavailable

pytestmark = pytest.mark.slow

LIMIT = 60.0  # seconds; twenty interpreters start at once
COUNT = 20

# A package runner: says what it does, waits until the download is there, and is a server then. It needs no library, so that
# twenty of them are quick.
SCRIPT = """
import json, os, sys

name, log, gate = sys.argv[1:]
print("resolving", name, file=sys.stderr)
print("downloading", name, "...", file=sys.stderr, flush=True)
with open(log, "a") as file:
    file.write(f"{os.getpid()}\\n")
if gate:
    open(gate).close()
for line in sys.stdin:
    message = json.loads(line)
    results = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": name, "version": "1"},
        },
        "tools/list": {"tools": [{"name": "who", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": name}]},
        "ping": {},
    }
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] in results:
        answer["result"] = results[message["method"]]
    else:
        answer["error"] = {"code": -32601, "message": "no such method"}
    print(json.dumps(answer), flush=True)
"""


class Gate:
    """A pipe that children open for reading: that blocks until the gate is opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None
        os.mkfifo(path)

    def open(self) -> None:
        self._file = os.open(self.path, os.O_RDWR)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    made = Gate(tmp_path / "gate")
    yield made
    made.close()


@pytest.fixture
def runner(tmp_path: Path) -> Callable[..., list[str]]:
    (tmp_path / "runner.py").write_text(SCRIPT)
    (tmp_path / "started").touch()

    def command(name: str, gate: Gate | None = None) -> list[str]:
        arguments = [name, str(tmp_path / "started"), "" if gate is None else str(gate.path)]
        return [sys.executable, str(tmp_path / "runner.py"), *arguments]

    return command


def started(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "started").read_text().split()]


async def test_twenty_slow_servers_come_up_by_themselves_and_none_is_started_twice(
    tmp_path: Path, gate: Gate, runner: Callable[..., list[str]]
) -> None:
    """R267, R272: entering waits for the startup time; a call waits; the tools appear when each is ready."""
    changes: list[int] = []
    servers = {f"s{number:02}": runner(f"s{number:02}", gate) for number in range(COUNT)}
    host = Host(
        servers,
        allow=["*"],
        environ={"TRIMARAN_MCP_TIMEOUT": "100ms"},
        on_change=lambda: changes.append(len(host.tools())),
    )
    async with host:
        assert {status.state for status in host.status()} == {"starting"}
        assert host.tools() == []
        await until(lambda: all("downloading" in status.text for status in host.status()), "all wrote to stderr", LIMIT)
        status = host.status()[3]
        assert status.text == "starting (downloading s03 ...)"
        assert status.reason == "resolving s03\ndownloading s03 ..."
        call = asyncio.ensure_future(host.call("mcp__s07__who"))
        gate.open()
        assert (await soon(call, LIMIT)).text == "s07"
        await until(lambda: len(host.connected()) == COUNT, "all are connected", LIMIT)
        assert len(host.tools()) == COUNT
        assert changes[-1] == COUNT
        pids = started(tmp_path)
        assert len(pids) == COUNT
        assert all(map(is_alive, pids))
    assert not any(map(is_alive, pids))


async def test_a_slow_server_does_not_hold_up_the_quick_ones(gate: Gate, runner: Callable[..., list[str]]) -> None:
    """R272."""
    servers = {"quick": runner("quick"), "slow": runner("slow", gate)}
    async with Host(servers, allow=["*"], environ={"TRIMARAN_MCP_TIMEOUT": "100ms"}) as host:
        assert (await soon(host.call("mcp__quick__who"), LIMIT)).text == "quick"
        with pytest.raises(ServerUnavailable, match=r"starting .*it is still starting") as refused:
            await soon(host.call("mcp__slow__who", timeout=0.05), LIMIT)
        assert refused.value.status.state == "starting"


async def test_a_child_that_stays_silent_is_given_up_at_the_limit_and_started_again(
    tmp_path: Path, gate: Gate, runner: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """R272."""
    monkeypatch.setattr("trimaran.host.supervise._PAUSES", (0.001,))
    environ = {"TRIMARAN_MCP_TIMEOUT": "10ms", "TRIMARAN_MCP_STARTUP_LIMIT": "1s"}
    async with Host({"slow": runner("slow", gate)}, environ=environ, options={"grace": 0.1}) as host:
        await until(lambda: host.status()[0].state == "failed", "the start was given up", LIMIT)
        assert "within 1 s" in host.status()[0].reason
        await until(lambda: len(started(tmp_path)) == 2, "it is started again", LIMIT)
        assert not is_alive(started(tmp_path)[0])


async def test_a_slow_start_that_is_closed_ends_its_child(
    tmp_path: Path, gate: Gate, runner: Callable[..., list[str]]
) -> None:
    """R275."""
    host = Host({"slow": runner("slow", gate)}, environ={"TRIMARAN_MCP_TIMEOUT": "10ms"}, options={"grace": 0.1})
    async with host:
        await until(lambda: len(started(tmp_path)) == 1, "the child runs", LIMIT)
    assert not is_alive(started(tmp_path)[0])


async def test_start_server_waits_until_the_tools_are_there(gate: Gate, runner: Callable[..., list[str]]) -> None:
    """R216."""
    async with Host({}, allow=["*"], environ={"TRIMARAN_MCP_TIMEOUT": "10ms"}) as host:
        starting = asyncio.ensure_future(host.start_server("slow", runner("slow", gate)))
        await until(lambda: any("downloading" in one.text for one in host.status()), "it wrote to stderr", LIMIT)
        assert not starting.done()
        gate.open()
        await soon(starting, LIMIT)
        assert [tool.name for tool in host.tools()] == ["mcp__slow__who"]
