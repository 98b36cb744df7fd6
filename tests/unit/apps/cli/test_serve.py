"""`trimaran serve` as a child process: stdio and HTTP, both eras, clean ends."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import META, Spawn

Run = Callable[..., subprocess.CompletedProcess[str]]

pytestmark = pytest.mark.slow

needs_signals = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT for one process")


def post(port: int, path: str = "/mcp") -> dict[str, object]:
    """A modern tools/call over HTTP."""
    params = {"name": "add", "arguments": {"a": 2, "b": 3}, "_meta": META}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    headers = {
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2026-07-28",
        "Mcp-Method": "tools/call",
        "Mcp-Name": "add",
    }
    request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", body, headers)
    with urllib.request.urlopen(request, timeout=10) as response:
        return json.loads(response.read())


def test_stdio_answers_both_eras(spawn: Spawn, boat: Path) -> None:
    child = spawn("serve", str(boat))
    reply = child.call_modern(1, "tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}})
    assert reply["result"]["structuredContent"] == 5
    assert child.shake_hands()["serverInfo"]["name"] == "boat"
    assert child.call(2, "tools/list")["result"]["tools"][0]["name"] == "add"
    assert child.end_input() == 0
    assert child.all_stderr() == "", "silent by default (P54)"


def test_what_a_file_prints_at_import_and_in_calls_stays_out_of_the_stream(spawn: Spawn, boat: Path) -> None:
    """P11."""
    noisy = boat.read_text().replace("return a", "print('in call'); return a")
    boat.write_text(
        "import os\nprint('at import')\nos.system('echo from a child')\n" + noisy + "\nprint('at the end')\n"
    )
    child = spawn("serve", str(boat))
    reply = child.call_modern(1, "tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}})
    assert reply["result"]["structuredContent"] == 5
    assert child.end_input() == 0
    assert child.rest() == []
    said = child.all_stderr()
    assert all(text in said for text in ("at import", "from a child", "at the end", "in call"))


def test_a_command_in_quotes_is_a_server_to_stand_for(spawn: Spawn, boat: Path) -> None:
    """As supergateway takes it."""
    child = spawn("serve", shlex.join([sys.executable, "-m", "trimaran", "serve", str(boat)]))
    reply = child.call_modern(1, "tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}})
    assert reply["result"]["structuredContent"] == 5
    assert child.end_input() == 0


def test_no_legacy_refuses_the_handshake(spawn: Spawn, boat: Path) -> None:
    child = spawn("serve", str(boat), "--no-legacy")
    reply = child.call(
        0,
        "initialize",
        {"protocolVersion": "2025-11-25", "clientInfo": {"name": "t", "version": "0"}, "capabilities": {}},
    )
    assert "error" in reply
    assert child.end_input() == 0


@pytest.mark.parametrize("is_debugging", [False, True])
def test_debug_tells_clients_what_failed(spawn: Spawn, boat: Path, is_debugging: bool) -> None:
    boat.write_text(boat.read_text().replace("return a + b", "raise RuntimeError('the mast broke')"))
    child = spawn("serve", str(boat), *(["--debug"] if is_debugging else []))
    reply = child.call_modern(1, "tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}})
    assert ("the mast broke" in str(reply)) is is_debugging
    child.end_input()


def test_mistakes_end_with_code_two_and_a_broken_file_with_one(trimaran: Run, tmp_path: Path) -> None:
    missing = trimaran("serve", str(tmp_path / "none.py"))
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.startswith("trimaran: there is no file")
    (tmp_path / "bad.py").write_text("1 / 0\n")
    broken = trimaran("serve", str(tmp_path / "bad.py"))
    assert (broken.returncode, broken.stdout) == (1, "")
    assert "ZeroDivisionError" in broken.stderr
    assert "trimaran/apps/cli" not in broken.stderr


def test_options_that_contradict_each_other_are_refused(trimaran: Run, boat: Path) -> None:
    both = trimaran("serve", str(boat), "--stdio", "--port", "1")
    assert both.returncode == 2
    assert "--port is an option of HTTP" in both.stderr
    public = trimaran("serve", str(boat), "--host", "0.0.0.0")
    assert public.returncode == 2
    assert "--allowed-origin" in public.stderr
    half = trimaran("serve", str(boat), "--tls-cert", "x.pem")
    assert half.returncode == 2
    assert "go together" in half.stderr
    zero = trimaran("serve", str(boat), "--stdio", "--port", "0")
    assert zero.returncode == 2
    assert "--port is an option of HTTP" in zero.stderr
    two = trimaran("serve", str(boat), "other.py")
    assert two.returncode == 2
    assert "'other.py' comes after" in two.stderr
    bare = trimaran("serve", "--port", "1", "python3", "-m", "some_server", "--verbose")
    assert bare.returncode == 2
    assert "No such option '-m'. A command and its options stand behind --: -- python3 -m some_server" in bare.stderr
    misspelt = trimaran("serve", "--port", "1", "--reloud", str(boat))
    assert "behind --" not in misspelt.stderr
    plain = trimaran("serve", str(boat), "--http2")
    assert plain.returncode == 2
    assert "--http2 needs TLS" in plain.stderr


def test_what_the_server_refuses_is_said_in_one_line(trimaran: Run, boat: Path) -> None:
    done = trimaran("serve", str(boat), "--http", "--store", "nowhere://at-all")
    assert done.returncode == 2
    assert done.stderr.startswith("trimaran: ")
    assert "Traceback" not in done.stderr
    nowhere = trimaran("serve", str(boat), "--port", "0", "--store", "sqlite:///absent/boat.db")
    assert nowhere.returncode == 2
    assert nowhere.stderr == "trimaran: absent/boat.db cannot be made: there is no directory absent; make it\n"
    lost = trimaran("serve", str(boat), "--path", "/a?b")
    assert lost.returncode == 2
    assert lost.stderr.startswith("trimaran: no request can have the path '/a?b'")


@needs_signals
@pytest.mark.parametrize("more", [[], ["--reload"]], ids=["", "reload"])
def test_port_zero_says_http_and_takes_a_free_port(spawn: Spawn, boat: Path, more: list[str]) -> None:
    child = spawn("serve", str(boat), "--port", "0", *more)
    line = child.wait_stderr("is served at")
    assert ":0/mcp" not in line
    assert ":9090/mcp" not in line
    child.interrupt()


@needs_signals
def test_http_serves_until_interrupted(spawn: Spawn, boat: Path, free_port: int) -> None:
    child = spawn("serve", str(boat), "--port", str(free_port), "--path", "/sea")
    assert f"http://127.0.0.1:{free_port}/sea" in child.wait_stderr("is served at")
    assert "5" in str(post(free_port, "/sea"))
    assert child.interrupt() in (0, 130)
    assert "Traceback" not in child.all_stderr()


@needs_signals
def test_sigterm_ends_http(spawn: Spawn, boat: Path, free_port: int) -> None:
    child = spawn("serve", str(boat), "--port", str(free_port))
    child.wait_stderr("is served at")
    assert child.terminate() == 0
    assert "Traceback" not in child.all_stderr()


@needs_signals
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_stdio_quietly(spawn: Spawn, boat: Path, number: signal.Signals) -> None:
    child = spawn("serve", str(boat))
    child.call_modern(1, "tools/call", {"name": "add", "arguments": {"a": 2, "b": 3}})
    child.process.send_signal(number)
    assert child.wait() in (0, 130)
    assert child.all_stderr() == ""


@needs_signals
def test_an_interrupt_while_the_file_is_imported_is_quiet(spawn: Spawn, boat: Path) -> None:
    boat.write_text(
        "import sys, threading\nprint('importing', file=sys.stderr, flush=True)\nthreading.Event().wait(60)\n"
    )
    child = spawn("serve", str(boat))
    child.wait_stderr("importing")
    assert child.interrupt() == 130
    assert child.all_stderr().split() == ["importing"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers need fork")
def test_workers_share_a_port(spawn: Spawn, boat: Path, free_port: int) -> None:
    child = spawn("serve", str(boat), "--port", str(free_port), "--workers", "2")
    child.wait_stderr("is served at")
    assert "5" in str(post(free_port))
    assert child.terminate() == 0
