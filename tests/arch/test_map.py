"""The map is true: the table of units, the path of a call and the glossary say what the code says.

The table of units on docs/concepts/internals.md has every folder and module of the package, in the order of the layers
(`test_layers.py`). The path of a call is compared with a call. A word of the glossary names a class that is where it says.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from types import FrameType

import pytest

import trimaran

from .test_frames import LIBRARY, post
from .test_layers import LINE, ROOT, unit_of

DOCS = ROOT.parents[1] / "docs"
CONTRIBUTING = ROOT.parents[1] / "CONTRIBUTING.md"
INTERNALS = (DOCS / "concepts" / "internals.md").read_text(encoding="utf-8")
GLOSSARY = (DOCS / "glossary.md").read_text(encoding="utf-8")
PACKAGE_FILES = {"__init__", "__main__", "__pycache__", "py.typed"}


def section(page: str, heading: str) -> str:
    return page.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def units_on_the_map() -> list[list[str]]:
    rows = re.findall(r"^\| (`.+?`) \|", section(INTERNALS, "The map"), re.MULTILINE)
    return [re.findall(r"`(\w+)`", row) for row in rows]


def test_the_map_has_every_folder_and_module_once() -> None:
    there = {path.stem for path in ROOT.iterdir()} - PACKAGE_FILES - {"py"}
    listed = [name for row in units_on_the_map() for name in row]
    assert sorted(listed) == sorted(set(listed))
    missing, gone = there - set(listed), set(listed) - there
    assert not missing | gone, f'docs/concepts/internals.md, "The map": add {missing or None}, remove {gone or None}'


def test_the_map_is_in_the_order_of_the_layers() -> None:
    lines = [{LINE[unit_of(f"trimaran.{name}")] for name in row} for row in units_on_the_map()]
    assert all(max(above) <= min(below) for above, below in zip(lines, lines[1:], strict=False)), lines


def path_on(page: str) -> list[str]:
    """The files that a page lists as the path of a call; the other binding than the one tried here is left out."""
    if page == "CONTRIBUTING.md":
        text = (
            CONTRIBUTING.read_text(encoding="utf-8").split("The path of one call over HTTP: ")[1].split("`. ")[0] + "`"
        )
    else:
        text = "\n".join(re.findall(r"^\d\. .*", section(INTERNALS, "The path of a call"), re.MULTILINE))
    return [file for file in re.findall(r"`(\w+/\w+\.py)`", text) if file != "transports/http1_server.py"]


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "internals.md"])
async def test_the_path_of_a_call_is_the_one_on_the_page(page: str) -> None:
    promised = path_on(page)
    server = trimaran.Server("path", version="1.0.0")

    @server.tool
    async def look() -> str:
        return "seen"

    app = server.asgi(path="/mcp")
    await post(app, "tools/call", {"name": "look", "arguments": {}})  # what is made once is made
    entered: dict[str, None] = {}

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(LIBRARY):
            entered[str(Path(frame.f_code.co_filename).relative_to(LIBRARY))] = None

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        status, body = await post(app, "tools/call", {"name": "look", "arguments": {}})
    finally:
        sys.setprofile(before)
    assert (status, b"seen" in body) == (200, True)
    assert [file for file in entered if file in promised] == promised
    assert len(promised) == 6


def names_in(file: Path) -> set[str]:
    """Classes and types that a module defines."""
    defined: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ClassDef):
            defined.add(node.name)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            defined.update(target.id for target in targets if isinstance(target, ast.Name))
    return defined


def test_the_glossary_names_what_is_there() -> None:
    rows = re.findall(r"^\| \*\*(.+?)\*\* \| .+ \| (.+) \|$", GLOSSARY, re.MULTILINE)
    words = [word for word, _ in rows]
    assert words == sorted(set(words), key=str.lower), "each word once, in order"
    for word, place in rows:
        if place != "-":
            name = re.fullmatch(r"`(\w+)` in `([\w/]+\.py)`", place)
            assert name is not None, f"{word}: {place}"
            assert name[1] in names_in(ROOT / name[2]), f"{word}: {place} is not so"


def test_every_file_of_the_tour_is_there() -> None:
    tour = CONTRIBUTING.read_text(encoding="utf-8").split("### Where do I change ...?")[1].split("\n## ")[0]
    files = re.findall(r"`([\w/]+\.py)` \|$", tour, re.MULTILINE)
    assert len(files) >= 20
    assert [file for file in files if not (ROOT / file).is_file()] == []
