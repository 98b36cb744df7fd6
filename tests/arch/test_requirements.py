"""Every requirement, R1 to R288, is cited by a test, or a page says why it is decided differently.

A test cites a requirement by its number, in its docstring or a comment. What stands at the head of a file, or in a range
(R216-R221), says what a file is about and proves nothing, so it does not count. What a requirement says is written elsewhere;
whether a test that cites it proves it is for its readers to see.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]
DOCS = TESTS.parent / "docs"
REQUIREMENTS = range(1, 289)
RANGE = re.compile(r"\bR\d+ ?(?:-|to|\.\.) ?R?\d+")
NUMBER = re.compile(r"\bR(\d+)\b")

# Requirements that are decided differently, whether a test cites them or not. Every page named here cites the number.
DECIDED_DIFFERENTLY = {
    **dict.fromkeys((9, 38, 65, 77, 83, 86, 94, 184, 279), "differences.md"),
}


def numbers_in(text: str) -> set[int]:
    return {int(number) for number in NUMBER.findall(RANGE.sub("", text))}


def cited_in(source: str) -> dict[int, list[str]]:
    """The requirements that the tests of a file cite, and by which tests."""
    cited: dict[int, list[str]] = {}
    if not numbers_in(source).intersection(REQUIREMENTS):
        return cited  # parsing every file would take longer than all other tests here
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
            for number in numbers_in("\n".join(lines[node.lineno - 1 : node.end_lineno])):
                cited.setdefault(number, []).append(node.name)
    return cited


@cache
def citations() -> dict[int, list[str]]:
    cited: dict[int, list[str]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        if file.resolve() != Path(__file__).resolve():
            for number, tests in cited_in(file.read_text(encoding="utf-8")).items():
                cited.setdefault(number, []).extend(tests)
    return cited


def test_every_requirement_is_cited_or_decided_differently() -> None:
    unnamed = set(REQUIREMENTS) - citations().keys() - DECIDED_DIFFERENTLY.keys()
    names = ", ".join(f"R{number}" for number in sorted(unnamed))
    assert not unnamed, f"no test cites {names}: write one that proves it, and name the number inside it"


def test_no_test_cites_a_requirement_that_does_not_exist() -> None:
    strangers = {f"R{number}": citations()[number] for number in citations().keys() - set(REQUIREMENTS)}
    assert not strangers


@pytest.mark.parametrize("number", DECIDED_DIFFERENTLY, ids=lambda number: f"R{number}")
def test_a_page_says_what_is_decided_differently(number: int) -> None:
    page = DOCS / DECIDED_DIFFERENTLY[number]
    assert number in numbers_in(page.read_text(encoding="utf-8")), (
        f"docs/{page.name} does not say how R{number} is decided"
    )


def test_only_a_test_can_cite() -> None:
    test = 'def test_a():\n    """R217, R219-R221."""\n    # R222\n    pass\n'
    source = f'"""About R216."""\n{test}def help():\n    """R223."""\n'
    assert cited_in(source) == {217: ["test_a"], 222: ["test_a"]}
