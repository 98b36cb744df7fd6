"""What the page offers: the servers of mcp.toml and of other programs' files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trimaran.apps.inspector.sources import Sources


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home and a project without any configuration."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_file_that_several_programs_read_is_listed_once(home: Path) -> None:
    (home / ".mcp.json").write_text(json.dumps({"mcpServers": {"boats": {"command": "boat-server"}}}))
    assert [row.name for row in Sources().list()] == ["boats"]


def test_an_entry_that_cannot_be_used_is_listed_with_the_reason(home: Path) -> None:
    (home / ".cursor").mkdir()
    servers = {"boats": {"command": "boat-server", "env": {"API_KEY": "sesame-42"}}, "odd": {"sails": 1}}
    (home / ".cursor" / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    rows = {row.name: row for row in Sources().list()}
    assert rows.keys() == {"boats", "odd"}
    assert rows["boats"].problem is None
    assert rows["odd"].problem
    assert "sesame-42" not in str(rows)
