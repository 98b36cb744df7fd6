"""Reloading, for real: files change on disk, workers are replaced, sessions go on (P53)."""

from __future__ import annotations

import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from trimaran.apps.cli.reload import FileWatcher

from .conftest import BOAT, Child, Spawn
from .harness import AtTerminal

pytestmark = pytest.mark.slow

NEWER = BOAT.replace("def add(", "def multiply(").replace("a + b", "a * b").replace("Add", "Multiply")

WAITS = """
import asyncio
from trimaran import Context

@server.tool
async def wait(ctx: Context) -> str:
    await ctx.progress(1)
    await asyncio.sleep(600)
    return "done"

@server.tool
async def ask(ctx: Context) -> str:
    answer = await ctx.elicit("Which way?", str)
    return f"{answer.content}"
"""


def names(reply: dict[str, Any]) -> list[str]:
    return sorted(tool["name"] for tool in reply["result"]["tools"])


def rewrite(path: Path, text: str) -> None:
    """Write as editors do: all at once, under a new timestamp."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    fresh.replace(path)


def list_changes(child: Child, count: int) -> list[str]:
    return sorted(child.receive()["method"] for _ in range(count))


def test_a_legacy_session_survives_a_reload(spawn: Spawn, boat: Path) -> None:
    """P53: the client is not asked to reconnect; it hears that the list changed."""
    child = spawn("serve", str(boat), "--reload")
    child.shake_hands()
    assert names(child.call(1, "tools/list")) == ["add"]
    rewrite(boat, NEWER)
    assert list_changes(child, 1) == ["notifications/tools/list_changed"]
    assert names(child.call(2, "tools/list")) == ["multiply"]
    assert child.call(3, "tools/call", {"name": "multiply", "arguments": {"a": 6, "b": 7}})["result"][
        "structuredContent"
    ] == {"result": 42}
    rewrite(boat, BOAT)
    assert list_changes(child, 1) == ["notifications/tools/list_changed"]
    assert names(child.call(4, "tools/list")) == ["add"]
    assert child.end_input() == 0
    assert child.rest() == [], "the replayed handshake must not show"


def test_prompts_and_resources_are_announced_too(spawn: Spawn, boat: Path) -> None:
    boat.write_text(BOAT + '\n@server.prompt\ndef hail() -> str:\n    return "Ahoy"\n')
    child = spawn("serve", str(boat), "--reload")
    child.shake_hands()
    child.call(1, "ping")
    rewrite(boat, boat.read_text() + '\n@server.resource("sea://now")\ndef now() -> str:\n    return "calm"\n')
    kinds = ("prompts", "resources", "tools")
    assert list_changes(child, 3) == [f"notifications/{kind}/list_changed" for kind in kinds]


def test_subscriptions_and_the_log_level_carry_over(spawn: Spawn, boat: Path) -> None:
    resource = """
from trimaran import Context

@server.resource("sea://now")
def now() -> str:
    return "calm"

@server.tool
async def blow(ctx: Context) -> str:
    await ctx.log("debug", "gust")
    server.notify.resource_updated("sea://now")
    return "blown"
"""
    boat.write_text(BOAT + resource)
    child = spawn("serve", str(boat), "--reload")
    child.shake_hands()
    child.call(1, "resources/subscribe", {"uri": "sea://now"})
    child.call(2, "logging/setLevel", {"level": "debug"})
    rewrite(boat, BOAT + resource + "\n")
    list_changes(child, 2)
    child.send(id=3, method="tools/call", params={"name": "blow", "arguments": {}})
    heard = [child.receive() for _ in range(3)]
    assert {m.get("method") for m in heard} == {"notifications/message", "notifications/resources/updated", None}


def test_a_call_caught_in_a_reload_is_answered_with_an_error(spawn: Spawn, boat: Path) -> None:
    boat.write_text(BOAT + WAITS)
    child = spawn("serve", str(boat), "--reload")
    child.shake_hands()
    child.send(id=7, method="tools/call", params={"name": "wait", "arguments": {}, "_meta": {"progressToken": 1}})
    assert child.receive()["method"] == "notifications/progress"
    rewrite(boat, NEWER)
    reply = child.receive()
    assert reply["id"] == 7
    assert reply["error"] == {"code": -32603, "message": "reloaded"}
    list_changes(child, 1)
    assert names(child.call(8, "tools/list")) == ["multiply"]


def test_a_late_answer_to_the_old_worker_does_not_reach_the_new_one(spawn: Spawn, boat: Path) -> None:
    boat.write_text(BOAT + WAITS)
    child = spawn("serve", str(boat), "--reload")
    child.shake_hands({"elicitation": {}})
    child.send(id=1, method="tools/call", params={"name": "ask", "arguments": {}})
    first = child.receive()
    assert first["method"] == "elicitation/create"
    rewrite(boat, BOAT + WAITS + "\n")
    assert child.receive()["error"]["message"] == "reloaded"
    cancelled = child.receive()
    assert (cancelled["method"], cancelled["params"]["requestId"]) == ("notifications/cancelled", first["id"])
    list_changes(child, 1)
    child.send(id=2, method="tools/call", params={"name": "ask", "arguments": {}})
    second = child.receive()
    assert second["id"] != first["id"]
    child.send(id=first["id"], result={"action": "accept", "content": {"value": "stale"}})
    child.send(id=second["id"], result={"action": "accept", "content": {"value": "fresh"}})
    assert child.receive()["result"]["content"][0]["text"] == "fresh"


def test_a_version_that_does_not_load_leaves_the_old_one_serving(spawn: Spawn, boat: Path) -> None:
    child = spawn("serve", str(boat), "--reload")
    child.shake_hands()
    rewrite(boat, "def broken(:\n")
    child.wait_stderr("SyntaxError")
    child.wait_stderr("still serving the previous version")
    assert names(child.call(1, "tools/list")) == ["add"]
    rewrite(boat, NEWER)
    list_changes(child, 1)
    assert names(child.call(2, "tools/list")) == ["multiply"]


def test_a_server_that_does_not_load_at_first_answers_once_it_is_mended(spawn: Spawn, boat: Path) -> None:
    rewrite(boat, "1 / 0\n")
    child = spawn("serve", str(boat), "--reload")
    child.send(
        id=0,
        method="initialize",
        params={"protocolVersion": "2025-11-25", "clientInfo": {"name": "t", "version": "0"}, "capabilities": {}},
    )
    child.wait_stderr("waiting for a change")
    child.send(id=1, method="tools/list", params={})
    refused = child.receive()
    assert (refused["id"], refused["error"]["code"]) == (1, -32603), "a call does not wait for a fixed file"
    rewrite(boat, BOAT)
    assert child.receive()["result"]["serverInfo"]["name"] == "boat"


def test_a_worker_that_dies_is_started_again(spawn: Spawn, boat: Path) -> None:
    boat.write_text(BOAT + "\n@server.tool\nasync def sink() -> str:\n    import os\n    os._exit(9)\n")
    child = spawn("serve", str(boat), "--reload")
    child.shake_hands()
    reply = child.call(1, "tools/call", {"name": "sink", "arguments": {}})
    assert reply["error"]["code"] == -32603
    list_changes(child, 1)
    assert names(child.call(2, "tools/list")) == ["add", "sink"]


def test_modern_clients_need_no_session(spawn: Spawn, boat: Path) -> None:
    child = spawn("serve", str(boat), "--reload", "--no-legacy")
    assert names(child.call_modern(1, "tools/list", {})) == ["add"]
    rewrite(boat, NEWER)
    child.wait_stderr("reloaded")
    assert names(child.call_modern(2, "tools/list", {})) == ["multiply"]
    assert child.end_input() == 0


def test_calls_at_work_when_input_ends_are_still_answered(spawn: Spawn, boat: Path) -> None:
    child = spawn("serve", str(boat), "--reload")
    child.send(
        id=0,
        method="initialize",
        params={"protocolVersion": "2025-11-25", "clientInfo": {"name": "t", "version": "0"}, "capabilities": {}},
    )
    assert child.end_input() == 0
    assert child.receive()["result"]["serverInfo"]["name"] == "boat"


def test_a_wrong_object_ends_the_front(spawn: Spawn, boat: Path) -> None:
    child = spawn("serve", "no_such_module_at_all:server", "--reload")
    assert child.wait() == 2
    assert "there is no module" in child.all_stderr()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_end_the_front_and_its_worker(spawn: Spawn, boat: Path, number: signal.Signals) -> None:
    boat.write_text(BOAT + "\nimport os, sys\nprint('worker', os.getpid(), file=sys.stderr, flush=True)\n")
    child = spawn("serve", str(boat), "--reload")
    worker = int(child.wait_stderr("worker").split()[1])
    child.shake_hands()
    child.process.send_signal(number)
    assert child.wait() in (0, 130)
    with pytest.raises(ProcessLookupError):
        os.kill(worker, 0)


# HTTP


def test_http_serves_the_new_version_on_the_same_port(spawn: Spawn, boat: Path, free_port: int) -> None:
    child = spawn("serve", str(boat), "--reload", "--port", str(free_port))
    child.wait_stderr("is served at")
    rewrite(boat, "def broken(:\n")
    child.wait_stderr("still serving the previous version")
    rewrite(boat, BOAT.replace('"boat"', '"newer"'))
    child.wait_stderr("newer is served at")
    assert child.interrupt() in (0, 130)
    assert "Traceback" not in child.all_stderr()


def test_ctrl_c_at_a_terminal_ends_front_and_worker_without_a_complaint(boat: Path, free_port: int) -> None:
    """The terminal sends SIGINT to both, so the worker goes while its front still holds the other end of its input."""
    with AtTerminal("serve", str(boat), "--reload", "--port", str(free_port)) as terminal:
        terminal.wait_for("is served at")
        terminal.type("\x03")
        assert terminal.end() in (0, 130)
        assert "Fatal" not in terminal.seen
        assert "Traceback" not in terminal.seen


def test_http_workers_end_with_their_front(spawn: Spawn, boat: Path, free_port: int) -> None:
    """P10: not even a front that was killed leaves a worker behind with the port."""
    child = spawn("serve", str(boat), "--reload", "--port", str(free_port))
    child.wait_stderr("is served at")
    child.process.kill()
    child.all_stderr()  # ends when the last holder of the pipe has gone, which is the worker
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", free_port)) != 0


# Watching


def test_the_watcher_sees_python_files_only_and_skips_what_is_not_source(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    for skipped in (".venv", "__pycache__", "node_modules"):
        (tmp_path / skipped).mkdir()
    (tmp_path / "gone.py").touch()
    watcher = FileWatcher(tmp_path)
    (tmp_path / "deep" / "new.py").write_text("x = 1")
    (tmp_path / "gone.py").unlink()
    (tmp_path / "notes.txt").write_text("not code")
    for skipped in (".venv", "__pycache__", "node_modules"):
        (tmp_path / skipped / "x.py").touch()
    deadline = time.monotonic() + 5
    changed: list[str] = []
    while not changed and time.monotonic() < deadline:
        changed = watcher.changed()
    assert changed == sorted([str(tmp_path / "deep" / "new.py"), str(tmp_path / "gone.py")])
