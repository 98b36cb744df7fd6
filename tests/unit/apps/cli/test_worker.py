"""`trimaran worker`, as far as it goes without Redis: what cannot work is said plainly. The rest is in tests/fleet."""

from __future__ import annotations

from pathlib import Path

import pytest

from .harness import run_cli

QUICK = """
from trimaran import Server

server = Server("boat", version="1")


@server.tool
def add(a: int, b: int) -> int:
    return a + b
"""
LONG = QUICK.replace("@server.tool", "@server.tool(long_running=True)")


@pytest.fixture
def boat(tmp_path: Path) -> Path:
    path = tmp_path / "boat.py"
    path.write_text(LONG)
    return path


def test_a_worker_needs_a_store(capsys: pytest.CaptureFixture[str], boat: Path) -> None:
    done = run_cli(capsys, "worker", str(boat))
    assert done.code == 2
    assert "Missing option '--store'" in done.err


def test_a_worker_needs_a_store_on_redis(capsys: pytest.CaptureFixture[str], boat: Path, tmp_path: Path) -> None:
    done = run_cli(capsys, "worker", str(boat), "--store", f"sqlite:///{tmp_path}/boat.db")
    assert (done.code, done.out) == (2, "")
    assert "need a store on Redis" in done.err


def test_a_worker_needs_tools_whose_calls_can_be_tasks(capsys: pytest.CaptureFixture[str], boat: Path) -> None:
    boat.write_text(QUICK)
    done = run_cli(capsys, "worker", str(boat), "--store", "redis://127.0.0.1:1")
    assert done.code == 2
    assert "no tool of this server is declared long_running" in done.err


@pytest.mark.parametrize("store", [(), ("--store", "sqlite:///boat.db")], ids=["none", "sqlite"])
def test_a_server_gives_tasks_to_workers_only_by_way_of_redis(
    capsys: pytest.CaptureFixture[str], boat: Path, store: tuple[str, ...]
) -> None:
    done = run_cli(capsys, "serve", str(boat), "--port", "0", "--tasks", "docket", *store)
    assert done.code == 2
    assert "--tasks docket needs a store on Redis" in done.err
