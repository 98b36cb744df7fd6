"""Servers that do not start as they should: what the user reads, and how often they are started."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from trimaran import connect
from trimaran.errors import ConnectFailed, TimedOut

pytestmark = pytest.mark.slow

COUNT = """\
import json, os, sys, time
with open(sys.argv[1], "a") as log:
    print("started", file=log)
start = sum(1 for _ in open(sys.argv[1]))
def say(text): print(text, file=sys.stderr, flush=True)
"""

# As the official Python SDK before 1.9: an unknown method ends it, but only when the next line comes.
OLD = """\
for line in sys.stdin:
    message = json.loads(line)
    if message["method"] == "server/discover":
        sys.stdin.readline()
        say("ValidationError: input_value='server/discover'")
        sys.exit(1)
    if message["method"] == "initialize":
        result = {"protocolVersion": "2024-11-05", "capabilities": {}, "serverInfo": {"name": "old", "version": "1"}}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)
"""

Write = Callable[[str], tuple[list[str], Callable[[], int]]]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a server; its command, and how often it was started."""

    def write(body: str) -> tuple[list[str], Callable[[], int]]:
        script, log = tmp_path / "server.py", tmp_path / "starts"
        script.write_text(COUNT + body)
        return [sys.executable, "-S", "-E", str(script), str(log)], lambda: len(log.read_text().splitlines())

    return write


async def test_a_server_that_cannot_start_is_started_once(write: Write) -> None:
    """R142: and its own words are the message."""
    command, starts = write('say("FATAL: API_KEY is not set"); sys.exit(1)')
    with pytest.raises(ConnectFailed, match="FATAL: API_KEY is not set") as caught:
        await connect(command).open()
    assert caught.value.exit_code == 1
    assert starts() == 1


async def test_the_first_death_is_told_when_the_second_start_hangs(write: Write) -> None:
    command, starts = write(
        'sys.stdin.readline()\nif start == 1: say("FATAL: the port is taken"); sys.exit(3)\ntime.sleep(60)'
    )
    with pytest.raises(ConnectFailed, match="FATAL: the port is taken") as caught:
        await connect(command, connect_timeout=3.0, grace=0.1).open()
    assert caught.value.exit_code == 3
    assert "connect_timeout" not in str(caught.value)
    assert starts() == 2


async def test_a_timeout_shows_what_the_server_waits_for(write: Write) -> None:
    """A server that waits for a person says so on its stderr."""
    command, starts = write('say("Visit https://login.example/device to log in"); time.sleep(60)')
    with pytest.raises(TimedOut, match=r"has not read its input yet(?s:.*)https://login\.example/device") as caught:
        await connect(command, connect_timeout=1.0, grace=0.1).open()
    assert "connect_timeout" in str(caught.value)
    assert starts() == 1


async def test_an_old_server_that_dies_of_the_probe_is_met_without_waiting(write: Write) -> None:
    """P30: the handshake is the line that lets it die; two seconds of silence are not needed."""
    command, starts = write(OLD)
    async with connect(command, connect_timeout=60.0) as client:
        assert client.version == "2024-11-05"
    assert starts() == 2
    async with connect(command, connect_timeout=60.0) as client:
        assert client.version == "2024-11-05"
    assert starts() == 3, "what it answered last time is remembered"


async def test_an_old_server_is_started_once_where_its_files_tell_its_age(write: Write, tmp_path: Path) -> None:
    command, starts = write(OLD)
    (tmp_path / "lib" / "python3.11" / "site-packages" / "mcp-1.6.0.dist-info").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python3").symlink_to(sys.executable)
    async with connect([str(tmp_path / "bin" / "python3"), *command[1:]]) as client:
        assert client.version == "2024-11-05"
    assert starts() == 1
