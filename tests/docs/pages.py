"""The pages of the documentation, taken apart: fenced blocks, links, headings, and the strings the library really says."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
SOURCE = ROOT / "src" / "trimaran"

PAGES = [
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted(DOCS.rglob("*.md")),
]

_FENCE = re.compile(r"^```(\w*)\s*$")
_NOT_RUN = re.compile(r"<!-- not run: (.+) -->")
_FILE = re.compile(r"<!-- file: ([\w./-]+) -->")
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_INLINE = re.compile(r"`[^`\n]*`")


class Block(NamedTuple):
    """A fenced block. `line` is the number, from 1, of its first line within the page.

    A block below `<!-- file: NAME -->` is a file that the blocks after it use; the tests write it and do not run it.
    """

    language: str
    line: int
    text: str
    not_run: str | None
    file: str | None = None


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    found: list[Block] = []
    language, start, before = None, 0, ""
    taken: list[str] = []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        fence = _FENCE.match(line)
        if language is None:
            if fence:
                language, start, taken = fence[1] or "text", number + 1, []
            elif line.strip():
                before = line.strip()
        elif line.strip() == "```":
            reason = _NOT_RUN.fullmatch(before)
            file = _FILE.fullmatch(before)
            text = "\n".join(taken) + "\n"
            found.append(Block(language, start, text, reason[1] if reason else None, file[1] if file else None))
            language, before = None, ""
        else:
            taken.append(line)
    assert language is None, f"{name_of(page)}: the block at line {start} is never closed"
    return found


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def links(page: Path) -> list[str]:
    return _LINK.findall(_INLINE.sub("", prose(page)))


def anchors(page: Path) -> set[str]:
    """The names that headings get on the usual forges."""
    found: set[str] = set()
    for line in prose(page).splitlines():
        if heading := re.match(r"#{1,6} (.+)", line):
            words = re.sub(r"[^\w\- ]", "", heading[1].lower().replace("`", ""))
            found.add(words.strip().replace(" ", "-"))
    return found


def named_files(page: Path) -> list[str]:
    """Paths of this repository that the page names in code style: those with a slash and a known ending."""
    return re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|txt|toml|mjs))`", prose(page))


def said_strings() -> list[str]:
    """Every string literal of the library, with `{}` where something is filled in."""
    found: list[str] = []
    for file in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                found.append("".join(p.value if isinstance(p, ast.Constant) else "{}" for p in node.values))  # type: ignore[misc]
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return found


def commands(block: Block) -> Iterator[list[str]]:
    """The commands of a shell block, as words, continuation lines joined and comments left out."""
    import shlex

    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words
