"""`trimaran gateway` as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.ports import find_port
from tests.support.until import until

from trimaran import connect
from trimaran.errors import Error

from .conftest import child

pytestmark = pytest.mark.slow


async def test_the_command_serves_logs_json_and_ends_on_sigterm(tmp_path: Path) -> None:
    file = tmp_path / "mcp.toml"
    file.write_text(child("boats"))
    port = find_port()
    command = [sys.executable, "-m", "trimaran", "gateway", str(file), "--port", str(port), "--log-format", "json"]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}/mcp"

        async def sails() -> bool:
            try:
                async with connect(url, connect_timeout=1) as client:
                    return (await client.call_tool("boats_sail", {"boat": "Ida"})).data == "Ida sails"
            except Error:
                return False

        await until(sails, "the gateway serves")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    logged = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    told = [line["message"] for line in logged if line["logger"] == "trimaran.gateway" and url in line["message"]]
    assert told == [f"1 server is served at {url} (Ctrl-C ends it)"]


def test_a_configuration_that_cannot_be_used_is_told_on_one_line(tmp_path: Path) -> None:
    file = tmp_path / "mcp.toml"
    file.write_text('[gateway]\ndefalt = "deny"\n')
    ended = subprocess.run(
        [sys.executable, "-m", "trimaran", "gateway", str(file)],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert ended.returncode == 2 or ended.returncode == 1
    assert "mcp.toml:2: gateway.defalt: this key is not known; did you mean 'default'?" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (None, "there is no mcp.toml here, and none of the user's; name a file: trimaran gateway FILE"),
        ("[gateway]\n", "mcp.toml: no server to serve; add [server.NAME] with a command or a url"),
    ],
)
def test_a_gateway_without_servers_says_what_is_missing(tmp_path: Path, text: str | None, told: str) -> None:
    if text is not None:
        (tmp_path / "mcp.toml").write_text(text)
    command = [sys.executable, "-m", "trimaran", "gateway", "--port", "0"]
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            assert process.stderr.readline().startswith("0 servers are served at http://127.0.0.1:")
            assert process.stderr.readline().endswith(f"{told}\n")
        finally:
            process.terminate()
        assert process.wait(30) == 0
