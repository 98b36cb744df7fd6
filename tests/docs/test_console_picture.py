"""The picture of the console in the README: it is there, small, and drawn by a script that still runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from .pages import ROOT

PICTURE = "docs/console.svg"
LARGEST = 60_000  # bytes: a page should not be slow for it


def test_the_readme_shows_the_picture_and_it_loads_nothing_from_elsewhere() -> None:
    picture = (ROOT / PICTURE).read_text("utf-8")
    assert f"]({PICTURE})" in (ROOT / "README.md").read_text("utf-8")
    assert len(picture.encode()) < LARGEST
    assert "url(http" not in picture
    assert 'url("http' not in picture


@pytest.mark.slow
def test_the_script_draws_the_real_console(tmp_path: Path) -> None:
    file = tmp_path / "console.svg"
    subprocess.run([sys.executable, ROOT / "scripts" / "draw-console", file], check=True, timeout=60)
    picture = file.read_text("utf-8")
    for text in ("harbour:find_boat", "Titanic", "harbour:tide_table"):
        assert text in picture
