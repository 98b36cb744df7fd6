"""Sentences say who does what: a count of those that begin with a riddle, by folder, that may only shrink.

"What was cut is kept in memory" makes a reader hold a clause in mind before the subject comes; "the host keeps cut results
in memory" does not. Counted are sentences of docstrings, comments and pages that begin with What, Who, Whose, Whoever,
"Of the ...", or "Nothing of ...". Questions do not count, nor does what code blocks of pages show.
"""

from __future__ import annotations

import re
from collections import Counter

import pytest

from .test_layers import ROOT

PROJECT = ROOT.parents[1]
RIDDLE = (
    r"(?:What|Whoever|Whose|Who|To whom|Nothing of|Of (?:a|an|all|each|more|the|these|those|two))\b [^.?\n]*(?:[.:;]|$)"
)
IN_CODE = re.compile(rf'(?:"""|# |^ +[a-z_]+: |(?<=[a-z`)][.:;] )){RIDDLE}', re.MULTILINE)
ON_PAGES = re.compile(rf"(?:^|\| |(?<=[.:] )){RIDDLE}", re.MULTILINE)
CODE_BLOCK = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)

# The most that a folder may have. A figure goes down, and never up.
MOST = {
    "": 2,
    "apps": 64,
    "auth": 0,
    "client": 2,
    "ext": 0,
    "format": 0,
    "host": 16,
    "legacy": 0,
    "oauth": 0,
    "openapi": 1,
    "pages": 6,
    "protocol": 0,
    "proxy": 20,
    "schema": 0,
    "server": 2,
    "state": 0,
    "testing": 0,
    "transports": 3,
    "types": 0,
}
SLACK = 10  # how far a figure may lag behind, so that not every change touches this file


def riddles() -> dict[str, Counter[str]]:
    """How many of these sentences each file has, by folder."""
    folders: dict[str, Counter[str]] = {}
    for file in sorted(ROOT.rglob("*.py")):
        path = file.relative_to(ROOT)
        count = len(IN_CODE.findall(file.read_text("utf-8")))
        folders.setdefault(path.parts[0] if len(path.parts) > 1 else "", Counter())[str(path)] = count
    for file in (PROJECT / "README.md", PROJECT / "CONTRIBUTING.md", *sorted(PROJECT.glob("docs/**/*.md"))):
        path = file.relative_to(PROJECT)
        if "adr" not in path.parts:  # a record is never edited
            count = len(ON_PAGES.findall(CODE_BLOCK.sub("", file.read_text("utf-8"))))
            folders.setdefault("pages", Counter())[str(path)] = count
    return folders


FILES = riddles()


@pytest.mark.parametrize("folder", sorted(FILES))
def test_sentences_that_begin_with_a_riddle_only_become_fewer(folder: str) -> None:
    count, most = FILES[folder].total(), MOST.get(folder, 0)
    assert count <= most, (
        f"{folder or 'src/trimaran'} has {count} sentences that begin with What, Who, Whose or Of, and may have {most}: "
        f"begin with the subject. Most stand in {FILES[folder].most_common(3)}"
    )
    assert count >= most - SLACK, f"{folder} has {count} such sentences: write that down in MOST, in place of {most}"


def test_only_sentences_that_begin_so_are_counted() -> None:
    source = '''
"""What is cut is kept."""
x = 1  # Whoever asks is told.
"""Fine. What is left is read.

Args:
    owner: Whose it is.
    order: The order. What comes first?
    kind: Somewhat: whose, of the two.
"""
'''
    assert len(IN_CODE.findall(source)) == 4
    page = "Who calls is told.\n\n| a | What it is |\n\nWhat now? Fine: what else.\n\n```python\nWhat is code\n```\n"
    assert len(ON_PAGES.findall(CODE_BLOCK.sub("", page))) == 2
