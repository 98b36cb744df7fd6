"""The end under other people's servers: a client that stays connected does not keep the process from ending."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.ports import find_port
from tests.support.program import listens
from tests.support.until import PATIENCE, soon, until

from trimaran import connect

APP = """
import asyncio
from contextlib import asynccontextmanager
from pathlib import Path

from trimaran import Server


@asynccontextmanager
async def lifespan(server):
    yield
    Path("left").touch()


server = Server("app", version="1.0.0", lifespan=lifespan)


@server.tool
async def wait() -> str:
    Path("called").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "waited"


app = server.asgi("/mcp")
"""
COMMANDS = {
    "uvicorn": ["uvicorn", "app:app", "--port"],
    "granian": ["granian", "--interface", "asgi", "app:app", "--port"],
}


@pytest.mark.deadline(PATIENCE * 3)
@pytest.mark.parametrize("version", ["2026-07-28", "2025-11-25", "2025-03-26"])
@pytest.mark.parametrize("carrier", COMMANDS)
async def test_sigterm_ends_streams_after_their_calls_and_then_the_process(
    carrier: str, version: str, tmp_path: Path
) -> None:
    (tmp_path / "app.py").write_text(APP)
    port = find_port()
    command = [sys.executable, "-m", *COMMANDS[carrier], str(port)]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=tmp_path, stdout=log, stderr=log, env={**os.environ, "PYTHONPATH": str(tmp_path)}
        )
    try:
        await until(lambda: listens(port))
        async with (
            connect(f"http://127.0.0.1:{port}/mcp", version=version, timeout=PATIENCE) as client,
            client.listen(tools=True),  # a stream of its own on 2026-07-28, the session's GET before
        ):
            call = asyncio.create_task(client.call_tool("wait"))
            await until((tmp_path / "called").exists)
            process.send_signal(signal.SIGTERM)
            (tmp_path / "go").touch()
            assert (await soon(call)).text == "waited"
            await soon(asyncio.to_thread(process.wait))
        assert (tmp_path / "left").exists(), (tmp_path / "log").read_text()
    finally:
        process.kill()
        process.wait()
