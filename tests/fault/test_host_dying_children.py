"""A host and children that tell what they were given, or are given up before they answered."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import pytest
from tests.support.until import soon, until

from trimaran import Host
from trimaran.errors import Error

KEY = "hunter2-hunter2-hunter2"
TELLS = "import os, sys; sys.exit(f'the key {os.environ[\"API_KEY\"]} is not known')"
HANGS = "import sys\nfor line in sys.stdin: print('heard', file=sys.stderr, flush=True)"

pytestmark = pytest.mark.slow


def write(folder: Path, code: str, more: str = "") -> Path:
    file = folder / "mcp.toml"
    command, args = json.dumps(sys.executable), json.dumps(["-c", code])
    file.write_text(f"[server.child]\ncommand = {command}\nargs = {args}\nlazy = true\n{more}")
    return file


async def test_a_key_that_a_child_repeats_as_it_dies_is_in_no_status_and_no_log_of_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("BOAT_KEY", KEY)
    file = write(tmp_path, TELLS, 'startup_timeout = "15s"\nenv = { API_KEY = "${BOAT_KEY}" }')
    async with Host.load(file, allow=["*"], environ={}) as host:
        call = host.from_call({"type": "tool_use", "id": "1", "name": "mcp__child__x", "input": {}}, "anthropic")
        with pytest.raises(Error) as caught:
            await soon(host.call(*call))
        told = host.to_result(caught.value, call, "anthropic")
        status = host.status()[0]
    logged = [record.getMessage() for record in caplog.records if record.name == "trimaran.host"]
    assert "the key *** is not known" in status.reason
    assert KEY not in str((status, str(caught.value), told, logged))


@pytest.mark.parametrize("way", ["close", "stop_server", "disable"])
async def test_a_child_that_never_answers_is_given_up_while_it_is_woken(tmp_path: Path, way: str) -> None:
    """Its start has time, and so has its end: none of it is left when that returns, as the test's own checks see."""
    file = write(tmp_path, HANGS, 'startup_timeout = "60s"')
    async with Host.load(file, allow=["*"], environ={}) as host:
        waiting = [asyncio.create_task(host.call("mcp__child__x")), asyncio.create_task(host.expand("@child:x"))]
        await until(lambda: host.stderr("child"))
        await soon(host.close() if way == "close" else getattr(host, way)("child"))
        called, expanded = await soon(asyncio.gather(waiting[0], waiting[1], return_exceptions=True))
        assert isinstance(called, Error)
        assert expanded.problems
