"""`trimaran` itself: help, version, unknown commands, and what it loads."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import trimaran as library

Run = Callable[..., subprocess.CompletedProcess[str]]


def test_alone_it_prints_help(trimaran: Run) -> None:
    done = trimaran()
    assert done.returncode == 0
    assert "Usage: trimaran" in done.stdout
    assert "demo" in done.stdout
    assert "serve" in done.stdout


def test_it_knows_its_version(trimaran: Run) -> None:
    done = trimaran("--version")
    assert (done.returncode, done.stdout) == (0, f"trimaran {library.__version__}\n")


def test_an_unknown_command_is_a_usage_error(trimaran: Run) -> None:
    done = trimaran("sink")
    assert done.returncode == 2
    assert "there is no command 'sink'" in done.stderr
    assert not done.stdout


def test_an_option_before_the_command_is_told_where_it_belongs(trimaran: Run) -> None:
    done = trimaran("--debug", "call", "boat.py", "sail")
    assert done.returncode == 2
    assert "options of `call` go behind it: `trimaran call --debug ...`" in done.stderr
    assert "config check --workspace" in trimaran("config", "--workspace", ".", "check").stderr
    assert "No such option '--debug'" in trimaran("--debug").stderr


def test_every_command_has_help(trimaran: Run) -> None:
    for command in ("demo", "serve"):
        done = trimaran(command, "--help")
        assert done.returncode == 0
        assert f"trimaran {command}" in done.stdout


def test_serving_loads_neither_rich_nor_the_demo_nor_an_http_library() -> None:
    """Whose rule: ours: a stdio server starts fast."""
    probe = "import sys, trimaran.apps.cli.serve; print(*(m for m in ('rich', 'aiohttp', 'h2', 'trimaran.apps.demo') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-c", probe], capture_output=True, text=True, timeout=25)
    assert done.stdout.strip() == "", done


def run_into(stdout: int, **variables: str) -> subprocess.CompletedProcess[str]:
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    words = [sys.executable, "-m", "trimaran.apps.cli", "--help"]
    return subprocess.run(
        words, stdout=stdout, stderr=subprocess.PIPE, env={**environ, **variables}, text=True, timeout=25
    )


buffered_or_not = pytest.mark.parametrize("variables", [{}, {"PYTHONUNBUFFERED": "1"}], ids=["buffered", "unbuffered"])


@pytest.mark.slow
@buffered_or_not
def test_output_that_nobody_reads_ends_it_with_1_and_no_complaint(variables: dict[str, str]) -> None:
    """Python itself would end with 120: its own last flush fails, after the command has returned."""
    read_end, write_end = os.pipe()
    os.close(read_end)
    try:
        done = run_into(write_end, **variables)
    finally:
        os.close(write_end)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@buffered_or_not
def test_output_that_does_not_fit_on_the_disk_is_an_error(variables: dict[str, str]) -> None:
    with open("/dev/full", "wb") as full:
        done = run_into(full.fileno(), **variables)
    assert (done.returncode, done.stderr) == (1, "trimaran: cannot write the output: No space left on device\n")


@pytest.mark.slow
@pytest.mark.parametrize("variable", ["FORCE_COLOR", "TTY_COMPATIBLE", "COLUMNS"])
def test_a_pipe_gets_plain_text_whatever_is_said_of_the_terminal(boat: Path, variable: str) -> None:
    """CI services set these, and what a script reads must not change with them."""
    boat.write_text(boat.read_text() + "\nserver.run()\n")
    words = [sys.executable, "-m", "trimaran.apps.cli", "call", str(boat), "add", "a=1", "b=2", "--json"]
    done = subprocess.run(words, capture_output=True, env={**os.environ, variable: "1"}, text=True, timeout=25)
    assert json.loads(done.stdout)["structuredContent"]
    assert done.stderr == ""
