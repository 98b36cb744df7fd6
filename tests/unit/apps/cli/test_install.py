"""`trimaran install`: a server of yours in another program's configuration."""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from trimaran import connect
from trimaran.apps.cli import main
from trimaran.apps.cli.install import program
from trimaran.host.config import CLIENTS
from trimaran.host.config.clients import read_content

from .harness import Done, plain, run_cli

Capsys = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of the test's own; what is imported from beside it is forgotten afterwards."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("USERPROFILE", str(home))
    for name in ("XDG_CONFIG_HOME", "CODEX_HOME", "CLAUDE_CONFIG_DIR", "COPILOT_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield home
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def install(capsys: Capsys, *words: str) -> Done:
    return run_cli(capsys, "install", *words)


FILES = {
    "mcp-json": "../.mcp.json",
    "claude-code": ".claude.json",
    "cursor": ".cursor/mcp.json",
    "codex": ".codex/config.toml",
    "gemini": ".gemini/settings.json",
    "windsurf": ".codeium/windsurf/mcp_config.json",
    "claude-desktop": ".config/Claude/claude_desktop_config.json",
    "vscode": ".config/Code/User/mcp.json",
    "goose": ".config/goose/config.yaml",
    "zed": ".config/zed/settings.json",
    "qwen": ".qwen/settings.json",
    "copilot": ".copilot/mcp-config.json",
    "opencode": ".config/opencode/opencode.json",
}


@pytest.mark.skipif(sys.platform != "linux", reason="the files are named as on Linux; tests/unit/host names the others")
@pytest.mark.parametrize("client", sorted(CLIENTS))
def test_a_server_is_registered_in_every_program(capsys: Capsys, boat: Path, home: Path, client: str) -> None:
    done = install(capsys, str(boat), "--client", client)
    assert done.code == 0, done.err
    file = (home / FILES[client]).resolve()
    assert done.out == f"{CLIENTS[client].title} now has boat: {file}\n"
    entry = read_content(file.read_text(), CLIENTS[client].language, "f")[CLIENTS[client].key]["boat"]
    command = entry.get("command", entry.get("cmd"))
    words = command if isinstance(command, list) else [command, *entry["args"]]
    assert words == [*program(), "serve", str(boat)]
    assert Path(words[0]).is_absolute()


def test_a_file_of_another_name_is_taken_where_it_is_there(capsys: Capsys, boat: Path, home: Path) -> None:
    """opencode reads opencode.jsonc as well as opencode.json."""
    file = home / ".config" / "opencode" / "opencode.jsonc"
    file.parent.mkdir(parents=True)
    file.write_text('{\n  // mine\n  "theme": "sea",\n}\n')
    assert install(capsys, str(boat), "--client", "opencode").code == 0
    assert "// mine" in file.read_text()
    assert '"boat"' in file.read_text()
    assert not file.with_suffix(".json").exists()


async def test_what_is_registered_starts_the_server(capsys: Capsys, boat: Path) -> None:
    install(capsys, str(boat), "--client", "mcp-json")
    async with connect(json.loads(Path(".mcp.json").read_text())) as client:
        assert (await client.call_tool("add", {"a": 1, "b": 2})).data == 3


def test_what_is_there_stays_and_is_kept_beside(capsys: Capsys, boat: Path, home: Path) -> None:
    file = home / ".config" / "zed" / "settings.json"
    file.parent.mkdir(parents=True)
    before = '{\n  // my theme\n  "theme": "One", // dark\n  "context_servers": {"other": {"url": "https://h/"}}\n}\n'
    file.write_text(before)
    done = install(capsys, str(boat), "--client", "zed")
    assert done.code == 0
    assert '  // my theme\n  "theme": "One", // dark\n' in file.read_text()
    content = read_content(file.read_text(), "json", "f")
    assert content["context_servers"]["other"] == {"url": "https://h/"}
    assert Path(f"{file}.trimaran-bak").read_text() == before
    assert "settings.json.trimaran-bak" in done.err


def test_the_same_again_changes_nothing_and_another_needs_replace(capsys: Capsys, boat: Path, tmp_path: Path) -> None:
    install(capsys, str(boat), "--client", "mcp-json")
    before = (tmp_path / ".mcp.json").read_text()
    again = install(capsys, str(boat), "--client", "mcp-json")
    assert (again.code, again.out) == (0, "")
    assert "already" in again.err
    other = install(capsys, str(boat), "--client", "mcp-json", "--env", "A=b")
    assert other.code == 1
    assert "--replace" in other.err
    assert (tmp_path / ".mcp.json").read_text() == before
    replaced = install(capsys, str(boat), "--client", "mcp-json", "--env", "A=b=c", "--replace")
    assert replaced.code == 0
    assert json.loads((tmp_path / ".mcp.json").read_text())["mcpServers"]["boat"]["env"] == {"A": "b=c"}


def test_name_object_project_and_workspace_can_be_said(capsys: Capsys, boat: Path, tmp_path: Path) -> None:
    words = ("--client", "codex", "--name", "Tern", "--project", "--workspace", str(tmp_path / "w"))
    assert install(capsys, f"{boat}:server", *words).code == 0
    made: Any = tomllib.loads((tmp_path / "w" / ".codex" / "config.toml").read_text())
    assert made["mcp_servers"]["Tern"]["args"][-1] == f"{boat}:server"


def test_the_servers_name_is_made_to_fit(capsys: Capsys, tmp_path: Path) -> None:
    """R226."""
    (tmp_path / "x.py").write_text('from trimaran import Server\ns = Server("My Grand Boat!", version="1")\n')
    install(capsys, "x.py", "--client", "mcp-json")
    assert list(json.loads((tmp_path / ".mcp.json").read_text())["mcpServers"]) == ["my-grand-boat"]


def test_a_dry_run_writes_nothing_and_shows_no_secret(capsys: Capsys, boat: Path, tmp_path: Path) -> None:
    done = install(capsys, str(boat), "--client", "mcp-json", "--env", "K=hunter2", "--dry-run")
    assert done.code == 0
    assert done.json["mcpServers"]["boat"]["env"] == {"K": "***"}
    assert "hunter2" not in done.out + done.err
    assert not (tmp_path / ".mcp.json").exists()


def test_a_variable_can_be_passed_on_in_the_programs_spelling(capsys: Capsys, boat: Path, home: Path) -> None:
    assert install(capsys, str(boat), "--client", "cursor", "--env", "K=${K}").code == 0
    made = json.loads((home / ".cursor" / "mcp.json").read_text())
    assert made["mcpServers"]["boat"]["env"] == {"K": "${env:K}"}
    done = install(capsys, str(boat), "--client", "claude-desktop", "--env", "K=${K}")
    assert done.code == 1
    assert "Claude Desktop does not fill in ${K}" in done.err
    assert "--env NAME=value" in done.err


def test_a_program_that_seems_not_installed_is_pointed_out(capsys: Capsys, boat: Path) -> None:
    assert "is Cursor installed?" in install(capsys, str(boat), "--client", "cursor").err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nowhere.py", "--client", "cursor"], 2, "there is no file 'nowhere.py'"),
        (["some.module:server", "--client", "cursor"], 2, "name its file, as in some/module.py"),
        (["empty.py", "--client", "cursor"], 1, "no trimaran.Server in"),
        (["boat.py"], 2, "Missing option '--client'"),
        (["boat.py", "--client", "emacs"], 2, "emacs"),
        (["boat.py", "--client", "goose", "--project"], 2, "Goose has no file for one project alone"),
        (["boat.py", "--client", "cursor", "--name", "My Boat"], 2, "such as 'my-boat'"),
        (["boat.py", "--client", "cursor", "--env", "hunter2"], 2, "write --env NAME=value"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value) if isinstance(value, list) else str(value),
)
def test_what_cannot_work_is_said_and_nothing_is_written(
    capsys: Capsys, boat: Path, home: Path, tmp_path: Path, words: list[str], code: int, said: str
) -> None:
    (tmp_path / "empty.py").write_text("")
    done = install(capsys, *words)
    assert done.code == code
    assert said in plain(done.err)
    assert list(home.iterdir()) == []


def test_a_mistake_in_the_users_file_is_shown_now_and_nothing_is_written(
    capsys: Capsys, home: Path, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    assert main(["install", "broken.py", "--client", "cursor"]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err
    assert list(home.iterdir()) == []


def test_a_broken_file_of_the_program_is_left_as_it_is(capsys: Capsys, boat: Path, home: Path) -> None:
    file = home / ".cursor" / "mcp.json"
    file.parent.mkdir()
    file.write_text('{\n"mcpServers": hunter2\n}')
    done = install(capsys, str(boat), "--client", "cursor")
    assert done.code == 2
    assert f"{file}:2: this is not JSON" in done.err
    assert "hunter2" not in done.err
    assert file.read_text() == '{\n"mcpServers": hunter2\n}'
