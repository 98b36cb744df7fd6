"""`trimaran permissions explain` and `check`: the rules of the files that are there, explained without connecting (R240)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from trimaran.apps.cli import main

USER = """
[permissions]
deny = ["mcp__fs__write_file(/etc/**)", { pattern = "mcp__fs__rm", reason = "Never." }, "Elicit(git)"]
allow = ["mcp__fs__*"]
[server.fs]
command = "fs"
[server.git]
command = "${NOT_SET_ANYWHERE}"
"""
PROJECT = """
[server.fs]
command = "fs"
[server.fs.permissions]
ask = ["write_*"]
[server.fs-x]
command = "fs"
"""


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Shell:
    """The command line in a directory with both files."""

    def __init__(self, capsys: pytest.CaptureFixture[str], user: Path, project: Path) -> None:
        self._capsys = capsys
        self.user, self.project = user, project

    def __call__(self, *words: str) -> Done:
        self._capsys.readouterr()
        code = main(["permissions", *words])
        out, err = self._capsys.readouterr()
        return Done(code, out, err)


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shell:
    user, project = tmp_path / "config" / "trimaran" / "mcp.toml", tmp_path / "work" / ".trimaran" / "mcp.toml"
    for file, text in ((user, USER), (project, PROJECT)):
        file.parent.mkdir(parents=True)
        file.write_text(text)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path / "work")
    return Shell(capsys, user, project)


def test_a_tool_is_explained_by_the_rules_of_both_files(shell: Shell) -> None:
    """R225, R240."""
    done = shell("explain", "mcp__fs__write_file", "path=/srv/x")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("mcp__fs__write_file: ask\n")
    assert "> 3 server ask" in done.out and f"{shell.project}:5, server.fs.permissions.ask" in done.out
    assert "  6 global allow" in done.out and f"{shell.user}:4, permissions.allow" in done.out


def test_arguments_make_the_difference(shell: Shell) -> None:
    assert shell("explain", "mcp__fs__write_file", "path=/etc/x").out.startswith("mcp__fs__write_file: deny\n")
    assert shell("explain", "mcp__fs__write_file", 'path:=["/etc/x"]').out.startswith("mcp__fs__write_file: deny\n")
    assert "does not match these arguments" in shell("explain", "mcp__fs__write_file", "--args", "{}").out
    assert "unless the arguments say otherwise" in shell("explain", "mcp__fs__write_file").out


def test_json_for_programs(shell: Shell) -> None:
    """R240."""
    found: Any = json.loads(shell("explain", "mcp__fs__rm", "--json").out)
    assert (found["action"], found["rule"]["reason"]) == ("deny", "Never.")
    assert found["rule"]["source"]["kind"] == "user"


def test_rules_of_the_command_line_come_first_in_their_tier(shell: Shell) -> None:
    """R244."""
    done = shell("explain", "mcp__fs__rm", "--deny", "mcp__fs__r*", "--allow", "*", "--ask", "*__rm")
    assert "> 1 global deny   mcp__fs__r*" in done.out and "--deny" in done.out
    assert [line.split()[0] for line in done.out.splitlines() if line[2:3].isdigit()] == [">", "1", "5", "6", "6", "7"]


def test_elicitation_is_explained(shell: Shell) -> None:
    """R241."""
    assert shell("explain", "Elicit(git)").out.startswith("Elicit(git): deny\n")
    assert shell("explain", "Elicit:fs").out.startswith("Elicit(fs): ask\n")


def test_one_file_can_be_named(shell: Shell) -> None:
    done = shell("explain", "mcp__fs__write_file", "--config", str(shell.user))
    assert "> 6 global allow" in done.out and "server ask" not in done.out


def test_what_is_not_certain_about_a_name_is_said(shell: Shell) -> None:
    assert "no server is called nix" in shell("explain", "mcp__nix__read").err
    assert "git cannot be used as it is configured" in shell("explain", "mcp__git__log").err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["mcp__fs"], "can never match"),
        (["fs"], "Name a tool, mcp__SERVER__TOOL"),
        (["mcp__fs__*"], "is a rule for several things"),
        (["*"], "is a rule for several things"),
        (["mcp__fs__rm(x)"], "is a rule for several things"),
        (["mcp__fs__rm", "path"], "write key=value"),
        (["mcp__fs__rm", "path:={"], "is not JSON"),
        (["mcp__fs__rm", "--config", "nowhere.toml"], "nowhere.toml"),
        (["mcp__fs__rm", "--deny", "mcp__fs__rm("], "never closed"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_explained_ends_with_2_and_says_why(shell: Shell, words: list[str], said: str) -> None:
    done = shell("explain", *words)
    assert (done.code, done.out) == (2, "")
    assert said in done.err


def test_rules_of_another_server_that_cannot_be_read_are_told_and_do_not_matter(shell: Shell) -> None:
    shell.project.write_text('[server.fs]\ncommand = "x"\n[server.fs.permissions]\nask = ["***"]\n')
    assert shell("explain", "mcp__fs__rm").code == 2
    done = shell("explain", "mcp__other__rm")
    assert done.code == 0 and "*** is no glob" in done.err


def test_check_finds_what_cannot_be_read_and_what_has_no_effect(shell: Shell) -> None:
    """R243."""
    assert shell("check") == (0, "", "5 rules read, nothing to remark.\n")
    done = shell("check", "--deny", "mcp__fs__*", "--ask", "mcp__fs__(")
    assert done.code == 1
    assert done.out.startswith("error: --ask: the parenthesis that opens here is never closed\n")
    assert done.out.count("warning:") == 4 and "the rule is never reached" in done.out
    assert {problem["severity"] for problem in json.loads(shell("check", "--deny", "*", "--json").out)} == {"warning"}
