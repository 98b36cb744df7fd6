"""`trimaran` itself: help, version, unknown commands, and what it loads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

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
    assert "No such command 'sink'" in done.stderr
    assert not done.stdout


def test_every_command_has_help(trimaran: Run) -> None:
    for command in ("demo", "serve"):
        done = trimaran(command, "--help")
        assert done.returncode == 0
        assert f"trimaran {command}" in done.stdout


def test_serving_loads_neither_rich_nor_the_demo_nor_an_http_library() -> None:
    """Whose rule: ours: a stdio server starts fast."""
    probe = "import sys, trimaran.cli.serve; print(*(m for m in ('rich', 'aiohttp', 'granian', 'trimaran.demo') if m in sys.modules))"
    done = subprocess.run([sys.executable, "-I", "-c", probe], capture_output=True, text=True, timeout=25)
    assert done.stdout.strip() == "", done
