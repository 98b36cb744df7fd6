"""Files are replaced whole, with a backup, and never over somebody else's change."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from trimaran.host import ConfigUnusable
from trimaran.host.config.files import BACKUP, read_text, replace_text


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


def test_a_new_file_is_for_its_owner_alone_in_a_directory_that_is_made(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "mcp.json"
    assert replace_text(file, "ü", None) is None
    assert file.read_bytes() == "ü".encode()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert names(file.parent) == ["mcp.json"]


def test_what_was_there_is_kept_beside_with_its_mode(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(b"\xef\xbb\xbfold\r\n")
    file.chmod(0o640)
    backup = replace_text(file, "new\r\n", read_text(file))
    assert backup is not None
    assert backup == tmp_path / f"mcp.json{BACKUP}"
    assert backup.read_bytes() == b"\xef\xbb\xbfold\r\n"
    assert file.read_bytes() == b"new\r\n"
    assert stat.S_IMODE(file.stat().st_mode) == stat.S_IMODE(backup.stat().st_mode) == 0o640
    assert names(tmp_path) == ["mcp.json", f"mcp.json{BACKUP}"]


def test_a_change_by_somebody_else_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text("theirs")
    for before in ("mine", None):
        with pytest.raises(ConfigUnusable, match="changed by somebody else"):
            replace_text(file, "new", before)
    assert file.read_text() == "theirs"
    assert names(tmp_path) == ["mcp.json"]


def test_a_symbolic_link_stays_one(tmp_path: Path) -> None:
    real = tmp_path / "dotfiles" / "settings.json"
    real.parent.mkdir()
    real.write_text("old")
    link = tmp_path / "settings.json"
    link.symlink_to(real)
    replace_text(link, "new", read_text(link))
    assert link.is_symlink()
    assert real.read_text() == "new"


def test_a_failure_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "mcp.json"
    file.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigUnusable, match="cannot be written: No space left"):
        replace_text(file, "new", "old")
    assert file.read_text() == "old"
    assert names(tmp_path) == ["mcp.json"]


def test_what_is_not_there_reads_as_nothing(tmp_path: Path) -> None:
    assert read_text(tmp_path / "nowhere" / "x") is None
    (tmp_path / "file").write_text("")
    assert read_text(tmp_path / "file" / "x") is None
    assert read_text(tmp_path / "file") == ""


def test_a_fifo_in_the_place_of_a_file_does_not_hang_us(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "mcp.toml")
    with pytest.raises(ConfigUnusable, match="this is not a file"):
        read_text(tmp_path / "mcp.toml")
