"""Where a command is looked for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from trimaran.transports import process


def program(file: Path) -> str:
    file.parent.mkdir(exist_ok=True)
    file.write_text("#!/bin/sh\n")
    file.chmod(0o755)
    return str(file)


def test_on_windows_the_folder_one_is_in_does_not_replace_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone may hold an npx.bat of its own."""
    monkeypatch.setattr(process, "_IS_WINDOWS", True)
    monkeypatch.setenv("PATHEXT", ".EXE;.BAT")
    program(tmp_path / "npx.BAT")
    monkeypatch.chdir(tmp_path)
    installed = program(tmp_path / "bin" / "npx.BAT")
    path = os.pathsep.join(["", str(tmp_path / "none"), str(tmp_path / "bin")])
    assert process._which("npx", path) == installed
    assert process._which("npx.bat", path) is None, "the name as it is, where it has an ending"
    assert process._which("npx.BAT", path) == installed
    assert process._which("uvx", path) is None


def test_elsewhere_the_path_decides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_IS_WINDOWS", False)
    program(tmp_path / "npx")
    monkeypatch.chdir(tmp_path)
    installed = program(tmp_path / "bin" / "npx")
    assert process._which("npx", str(tmp_path / "bin")) == installed
