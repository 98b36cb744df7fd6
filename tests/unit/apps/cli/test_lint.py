"""`trimaran lint`: figures, findings and an exit code, for one server and for a file of them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from trimaran.apps.cli import main

SERVER = """
from trimaran import Server

server = Server("boats", version="1.0.0")

@server.tool
def rent(boat: str, days: int) -> str:
    "Rent a boat for some days."
    return boat

@server.tool(name="get_boat", description="Look at one boat.")
def get_boat(name: str) -> str:
    return name

@server.tool(name="getBoats", description="")
def get_boats(name: str) -> str:
    return name

server.run()
"""


@pytest.fixture
def boats(tmp_path: Path) -> Path:
    file = tmp_path / "boats.py"
    file.write_text(SERVER)
    return file


def lint(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["lint", *words])
    return code, capsys.readouterr().out


@pytest.mark.slow
def test_bars_and_findings_of_one_server(boats: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = lint(capsys, str(boats))
    assert code == 0
    assert "█" in text
    assert "tokens in 3 tools" in text
    assert "servers" not in text
    assert "easily confused: getBoats, get_boat" in " ".join(text.split())
    assert "getBoats: it has no description" in text


@pytest.mark.slow
def test_a_budget_that_is_exceeded_fails_the_run(boats: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, text = lint(capsys, str(boats), "--budget", "20")
    assert code == 1
    assert "over the budget of 20" in text
    assert lint(capsys, str(boats), "--budget", "2000")[0] == 0


@pytest.mark.slow
def test_a_file_of_servers_as_json(boats: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mcp.toml"
    command = json.dumps(sys.executable)
    file.write_text(
        f'[context]\nbudget = 30\n[server.one]\ncommand = {command}\nargs = ["{boats}"]\n'
        '[server.gone]\ncommand = "no-such-program-here"\n'
    )
    code, text = lint(capsys, str(file), "--format", "json", "--provider", "openai")
    report: Any = json.loads(text)
    assert code == 1  # the file's own budget
    assert [server["name"] for server in report["servers"]] == ["one"]
    assert {tool["name"] for tool in report["tools"]} == {"rent", "get_boat", "getBoats"}
    assert report["format"] == "openai"
    assert "budget" in {finding["kind"] for finding in report["findings"]}


@pytest.mark.slow
def test_a_server_that_cannot_be_counted_fails_the_run(
    boats: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mcp.toml"
    command = json.dumps(sys.executable)
    file.write_text(
        f'[server.one]\ncommand = {command}\nargs = ["{boats}"]\n[server.gone]\ncommand = "no-such-program-here"\n'
    )
    code, text = lint(capsys, str(file))
    assert code == 3
    assert "tokens in 3 tools" in text
