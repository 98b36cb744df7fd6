"""docs/requirements.md has every number that is cited, once, and a test cites every R and C number.

A test cites a number in its docstring or in a comment. A number at the head of a file, or in a range (R216-R221), says what
the file is about and proves nothing, so it does not count as cited by a test. Whether a test proves what it cites is for its
readers to judge. A requirement may be decided differently: then docs/differences.md says so.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent
DOCS = ROOT / "docs"
PAGE = DOCS / "requirements.md"
ENTRY = re.compile(r"^- \*\*([RCP]\d+)\*\* \S.*\.$", re.MULTILINE)
ENTRIES = ENTRY.findall(PAGE.read_text(encoding="utf-8"))
PROMISES = {name for name in ENTRIES if name[0] in "RC"}
COUNTS = {"R": 288, "C": 41, "P": 55}
CITED = re.compile(r"(?<![\w%])[RCP]\d+\b")  # %C3 is an escaped byte
FOLDERS = ("src", "tests", "docs", "examples", "bench")
OTHER_MEANINGS = {"C0", "P256", "P384", "P521"}  # control characters, and curves
RANGE = re.compile(r"\b[RC]\d+ ?(?:-|to|\.\.) ?[RC]?\d+")
NAME = re.compile(r"\b[RC]\d+\b")

# Requirements that are decided differently, whether a test cites them or not. Every page named here cites the number.
DECIDED_DIFFERENTLY = {
    **dict.fromkeys(("R9", "R38", "R65", "R77", "R83", "R86", "R94", "R184", "R279"), "differences.md"),
}


def names_in(text: str) -> set[str]:
    return set(NAME.findall(RANGE.sub("", text)))


def cited_in(source: str) -> dict[str, list[str]]:
    """What the tests of a file cite, and by which tests."""
    cited: dict[str, list[str]] = {}
    if not names_in(source) & PROMISES:
        return cited  # parsing every file would take longer than all other tests here
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
            for name in names_in("\n".join(lines[node.lineno - 1 : node.end_lineno])):
                cited.setdefault(name, []).append(node.name)
    return cited


@cache
def citations() -> dict[str, list[str]]:
    cited: dict[str, list[str]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        if file.resolve() != Path(__file__).resolve():
            for name, tests in cited_in(file.read_text(encoding="utf-8")).items():
                cited.setdefault(name, []).extend(tests)
    return cited


def test_the_page_has_every_number_once_in_one_sentence() -> None:
    assert Counter(ENTRIES) == Counter(
        f"{kind}{number}" for kind, most in COUNTS.items() for number in range(1, most + 1)
    )


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_number_cited_anywhere_is_on_the_page(folder: str) -> None:
    known = OTHER_MEANINGS.union(ENTRIES)
    strangers = {
        str(file.relative_to(ROOT)): sorted(missing)
        for file in sorted((ROOT / folder).rglob("*"))
        if file.suffix in {".py", ".md"}
        if (missing := set(CITED.findall(file.read_text(encoding="utf-8"))) - known)
    }
    assert not strangers, f"docs/requirements.md does not have these numbers: {strangers}"


def test_every_promise_is_cited_or_decided_differently() -> None:
    unnamed = PROMISES - citations().keys() - DECIDED_DIFFERENTLY.keys()
    names = ", ".join(sorted(unnamed, key=lambda name: (name[0], int(name[1:]))))
    assert not unnamed, f"no test cites {names}: write one that proves it, and name it inside the test"


def test_no_test_cites_what_was_never_promised() -> None:
    strangers = citations().keys() - PROMISES
    assert not strangers, {name: citations()[name] for name in strangers}


@pytest.mark.parametrize("name", DECIDED_DIFFERENTLY)
def test_a_page_says_what_is_decided_differently(name: str) -> None:
    page = DOCS / DECIDED_DIFFERENTLY[name]
    assert name in names_in(page.read_text(encoding="utf-8")), f"docs/{page.name} does not say how {name} is decided"


def test_only_a_test_can_cite() -> None:
    test = 'def test_a():\n    """R217, R219-R221, C3."""\n    # R222\n    pass\n'
    source = f'"""About R216."""\n{test}def help():\n    """R223."""\n'
    assert cited_in(source) == {"R217": ["test_a"], "R222": ["test_a"], "C3": ["test_a"]}
