"""`trimaran console` on the command line: what it needs, and what its options become."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import trimaran.apps.cli.console
import trimaran.apps.console
from trimaran.apps.cli import main
from trimaran.host import ConsentBridge, Host


class Started:
    """What the application was given."""

    def __init__(self) -> None:
        self.host: Host | None = None
        self.options: dict[str, Any] = {}

    def run(self, open_host: Any, **options: Any) -> int:
        self.host = open_host(bridge=ConsentBridge(), separator=":", wait=False)
        self.options = options
        return 0


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Started:
    for name in ("XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    made = Started()
    monkeypatch.setattr(trimaran.apps.cli.console, "_require_terminal", lambda: None)
    monkeypatch.setattr(trimaran.apps.console, "run_console", made.run, raising=False)
    return made


def test_its_options_become_servers_rules_and_settings(started: Started, tmp_path: Path) -> None:
    (tmp_path / "my.toml").write_text('[server.one]\ncommand = "one"\n[server.two]\ncommand = "two"\n')
    (tmp_path / "boat.py").write_text("")
    words = ["--server", "sea=https://sea.example/mcp", "--server", "boat=boat.py", "--server", "two=echo 'a b' c"]
    words += ["--allow", "mcp__sea__*", "--deny", "mcp__boat__*", "--audit", str(tmp_path / "audit.jsonl")]
    assert main(["console", "my.toml", *words, "--model", "claude-x", "--no-pictures", "--no-history"]) == 0
    host = started.host
    assert host is not None
    entries = host.config.servers
    assert sorted(entries) == ["boat", "one", "sea", "two"]
    assert (entries["sea"].transport, entries["sea"].url, entries["sea"].oauth) == (
        "http",
        "https://sea.example/mcp",
        "auto",
    )
    assert (entries["boat"].command, entries["boat"].args) == (sys.executable, ("boat.py",))
    assert (entries["two"].command, entries["two"].args) == ("echo", ("a b", "c"))
    assert [(rule.action, rule.text) for rule in host.gate.policy.rules] == [
        ("deny", "mcp__boat__*"),
        ("allow", "mcp__sea__*"),
    ]
    assert started.options == {"model": "claude-x", "code": False, "pictures": False, "history": None}


async def test_no_server_is_started_where_a_flag_says_so(started: Started, monkeypatch: pytest.MonkeyPatch) -> None:
    """R269."""
    monkeypatch.setenv("TRIMARAN_NO_MCP", "")
    assert main(["console", "--server", "two=echo two", "--no-mcp", "--no-pictures"]) == 0
    assert started.host is not None
    async with started.host as host:
        (status,) = host.status()
        assert (status.name, status.state) == ("two", "disabled")


def test_the_port_of_a_login_is_the_flags_before_the_variables(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R247."""
    monkeypatch.setenv("TRIMARAN_MCP_OAUTH_PORT", "9")
    assert main(["console", "--mcp-oauth-port", "28123", "--no-pictures"]) == 0
    assert os.environ["TRIMARAN_MCP_OAUTH_PORT"] == "28123"


def test_a_projects_file_is_not_trusted_before_it_was_seen(started: Started, tmp_path: Path) -> None:
    (tmp_path / ".trimaran").mkdir()
    (tmp_path / ".trimaran" / "mcp.toml").write_text('[server.one]\ncommand = "one"\n')
    assert main(["console", "--no-pictures"]) == 0
    assert started.host is not None
    assert [one.name for one in started.host.untrusted] == ["one"]
    assert started.options["history"] == tmp_path / "XDG_STATE_HOME" / "trimaran" / "console-history.json"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--server", "sea"], "write --server NAME=TARGET"),
        (["--server", " sea=https://sea.example/mcp"], "neither begins nor ends with a blank"),
        (["--server", "sea=ftp://sea.example"], "http:// and https://"),
        (["nothing.toml"], "there is no such file"),
        (["--mcp-oauth-port", "65536"], "--mcp-oauth-port"),
        (["--allow", "mcp__sea__(", "--no-pictures"], "mcp__sea__("),
    ],
    ids=["no-target", "bad-name", "bad-url", "no-file", "bad-port", "bad-rule"],
)
def test_what_cannot_be_is_refused_with_what_to_write(
    started: Started, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["console", *words]) == 2
    assert said in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "textual" else find(name, *rest)
    )
    assert main(["console"]) == 2
    assert "pip install 'trimaran[console]'" in capsys.readouterr().err


def test_without_a_terminal_it_names_the_command_that_needs_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["console"]) == 2
    assert "trimaran call" in capsys.readouterr().err
