"""Every requirement on the host is cited by a test: R216 to R276, from federation to lifecycle.

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
HOST = range(216, 277)
RANGE = re.compile(r"\bR\d+ ?(?:-|to|\.\.) ?R?\d+")
NUMBER = re.compile(r"\bR(\d+)\b")


def numbers_in(text: str) -> set[int]:
    return {int(number) for number in NUMBER.findall(RANGE.sub("", text))}


def cited_in(source: str) -> dict[int, list[str]]:
    """The requirements that the tests of a file cite, and by which tests."""
    found: dict[int, list[str]] = {}
    if not numbers_in(source).intersection(HOST):
        return found  # most files: reading all of them would take longer than all other tests here
    lines = source.splitlines()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_"):
            for number in numbers_in("\n".join(lines[node.lineno - 1 : node.end_lineno])):
                found.setdefault(number, []).append(node.name)
    return found


@cache
def citations() -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for file in sorted(TESTS.rglob("test_*.py")):
        if file.resolve() != Path(__file__).resolve():
            for number, tests in cited_in(file.read_text(encoding="utf-8")).items():
                found.setdefault(number, []).extend(tests)
    return found


@pytest.mark.parametrize("number", HOST, ids=lambda number: f"R{number}")
def test_a_test_cites_it(number: int) -> None:
    assert citations().get(number), f"no test cites R{number}: write one that proves it, and name the number there"


def test_only_a_test_can_cite() -> None:
    test = 'def test_a():\n    """R217, R219-R221."""\n    # R222\n    pass\n'
    source = f'"""About R216."""\n{test}def help():\n    """R223."""\n'
    assert cited_in(source) == {217: ["test_a"], 222: ["test_a"]}
