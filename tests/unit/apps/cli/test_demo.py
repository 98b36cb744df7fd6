"""`trimaran demo` as a child process, and what its tour says when something is wrong."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable

import pytest

from .conftest import Spawn

Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.slow

STATIONS = [
    "Discover the server",
    "List its tools",
    "Call a plain function",
    "Watch progress",
    "Structured output",
    "An image",
    "Streaming",
    "A question in the middle of a call",
    "Resources",
    "A resource template",
    "A prompt",
    "Completion",
    "The same tool, an older client",
]


def test_once_shows_every_station_and_ends(trimaran: Run, free_port: int) -> None:
    done = trimaran("demo", "--once", "--port", str(free_port))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"http://127.0.0.1:{free_port}/mcp" in done.stdout
    for station in STATIONS:
        assert station in done.stdout
    for text in (
        "5/5 moor",
        "03:15",
        "456 x 64 pixels",
        "input_required",
        "reserved exactly once",
        "2025-11-25, session",
        "both eras",
    ):
        assert text in done.stdout
    assert "\x1b" not in done.stdout, "no control codes where there is no terminal"
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert done.stderr == ""


def test_it_says_how_to_connect_and_ends_cleanly_on_an_interrupt(spawn: Spawn, free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}/mcp"
    child = spawn("demo", "--port", str(free_port))
    child.wait_stdout(f"claude mcp add --transport http demo {url}")
    desktop = json.loads(child.wait_stdout('"mcpServers"'))["mcpServers"]["demo"]
    assert desktop["args"][-2:] == ["serve", "trimaran.apps.demo.server:server"]
    assert json.loads(child.wait_stdout('"mcpServers"'))["mcpServers"]["demo"]["url"] == url
    assert json.loads(child.wait_stdout('"servers"'))["servers"]["demo"] == {"type": "http", "url": url}
    assert url in child.wait_stdout("@modelcontextprotocol/inspector")
    child.wait_stdout("Serving until Ctrl-C")
    assert child.interrupt() == 0
    assert child.rest()[-1] == "Fair winds.\n"
    assert child.all_stderr() == ""


def test_an_interrupt_during_the_tour_is_quiet(spawn: Spawn, free_port: int) -> None:
    child = spawn("demo", "--port", str(free_port))
    child.wait_stdout("Watch progress")
    assert child.interrupt() == 0
    assert child.all_stderr() == ""


def test_sigterm_ends_it(spawn: Spawn, free_port: int) -> None:
    child = spawn("demo", "--port", str(free_port))
    child.wait_stdout("Serving until Ctrl-C")
    assert child.terminate() == 0


def test_a_taken_port_suggests_another(trimaran: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = trimaran("demo", "--once", "--port", str(port))
    assert done.returncode == 2
    assert f"port {port}" in done.stderr
    assert "try another: trimaran demo --port" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_stdio_command_it_recommends_works(spawn: Spawn) -> None:
    child = spawn("serve", "trimaran.apps.demo.server:server")
    assert child.shake_hands()["serverInfo"]["name"] == "port-trimaran"
    assert child.end_input() == 0


def test_a_tour_that_fails_says_where_and_ends_with_one(free_port: int) -> None:
    sink = """
import sys
from trimaran.apps.cli import main
from trimaran.apps.demo import server as demo
demo.server.remove_tool("sail")
@demo.server.tool
async def sail(destination: str) -> str:
    "Sail without a word."
    return "no progress at all"
sys.exit(main(["demo", "--once", "--port", sys.argv[1]]))
"""
    done = subprocess.run([sys.executable, "-c", sink, str(free_port)], capture_output=True, text=True, timeout=25)
    assert done.returncode == 1, done
    assert "The tour failed at station 4, watch progress: expected five reports of progress, heard 0" in " ".join(
        done.stdout.split()
    )
    assert "Traceback" not in done.stderr
