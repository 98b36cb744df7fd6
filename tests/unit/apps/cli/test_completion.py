"""`trimaran completion`: what a shell is taught, and what it is told at a Tab."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from trimaran.apps.cli import commands

from .harness import run_cli

Capsys = pytest.CaptureFixture[str]


def offered(line: str) -> list[str]:
    """What a Tab at the end of the line offers; "file" where the shell is to look for files itself."""
    *words, incomplete = line.split(" ")
    items = BashComplete(commands, {}, "trimaran", "_TRIMARAN_COMPLETE").get_completions(words[1:], incomplete)
    return ["file" if item.type == "file" else str(item.value) for item in items]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(capsys: Capsys, monkeypatch: pytest.MonkeyPatch, shell: str) -> None:
    done = run_cli(capsys, "completion", shell)
    assert (done.code, done.err) == (0, "")
    assert f"_TRIMARAN_COMPLETE={shell}_complete" in done.out
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    assert run_cli(capsys, "completion").out == done.out


def test_a_shell_that_is_not_known_is_asked_for(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", "/bin/tcsh")
    done = run_cli(capsys, "completion")
    assert (done.code, "write `trimaran completion bash`, or zsh or fish" in done.err) == (2, True)


def test_commands_are_completed() -> None:
    assert offered("trimaran co") == ["console", "config", "completion"]
    assert offered("trimaran auth log") == ["login", "logout"]
    assert offered("trimaran config ch") == ["check"]


def test_options_are_completed() -> None:
    assert "--timeout" in offered("trimaran call boat.py add --ti")


def test_a_target_is_a_file_or_a_server_of_the_current_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert offered("trimaran serve b") == ["file"]
    names = ["tide", "tides", "t$(touch owned)", "t`x`", "wind", "t\nx"]
    Path(".mcp.json").write_text(json.dumps({"mcpServers": {name: {"command": "x"} for name in names}}))
    assert offered("trimaran list t") == ["file", "tide", "tides"], "nothing that a shell would run"


@pytest.mark.slow
def test_bash_completes_what_is_typed(tmp_path: Path) -> None:
    program = tmp_path / "trimaran"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m trimaran.apps.cli "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(trimaran completion bash)"; COMP_WORDS=(trimaran se); COMP_CWORD=1; '
        '_trimaran_completion trimaran; echo "${COMPREPLY[@]}"'
    )
    environ = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=60, env=environ)
    assert done.stdout == "serve\n", done.stderr


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["serv"], "there is no command 'serv'; did you mean `trimaran serve`?"),
        (["auth", "lgin"], "there is no command 'lgin'; did you mean `trimaran auth login`?"),
        (["config", "shwo"], "there is no command 'shwo'; did you mean `trimaran config show`?"),
        (["boat.py"], "there is no command 'boat.py'; to serve this file, write `trimaran serve boat.py`"),
        (["zzz"], "there is no command 'zzz'; there are demo, serve, "),
    ],
)
def test_a_misspelt_command_is_guessed(
    capsys: Capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], complaint: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("boat.py").touch()
    done = run_cli(capsys, *words)
    assert (done.code, done.out) == (2, "")
    assert complaint in done.err
