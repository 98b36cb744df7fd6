"""Users' code under pyright and mypy, both strict: the types that they reveal and the mistakes that they report (P52).

Each `*.py.txt` beside this file is a program of a user. It is no module of the tests, because some of its lines are wrong on
purpose. A marked line must be reported by both checkers, and no other line may be:

    reveal_type(add(1))  # int
    server.tool(nmae="x")  # error: reportCallIssue     (pyright's rule; mypy must report an error of any kind)

A type is written as pyright prints it. mypy's text is brought to the same form before it is compared.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
PROGRAMS = sorted(path.name.removesuffix(".py.txt") for path in HERE.glob("*.py.txt"))
BIN = Path(sys.executable).parent
PYRIGHT = {
    "include": ["."],
    "typeCheckingMode": "strict",
    "pythonVersion": "3.11",
    "reportUnusedExpression": False,
    "reportUnknownMemberType": False,
    "reportUnusedCoroutine": False,
}
MYPY = [
    "--strict",
    "--python-version=3.11",
    "--disable-error-code=unused-coroutine",
    f"--python-executable={sys.executable}",
    "--cache-dir=.mypy_cache",
    "--output=json",
]

Reports = dict[tuple[str, int], list[str]]
"""What a checker reports about each line of each program."""

pytestmark = [pytest.mark.slow, pytest.mark.deadline(180)]  # the first test runs both checkers over all programs


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("programs")
    for program in PROGRAMS:
        (folder / f"{program}.py").write_text((HERE / f"{program}.py.txt").read_text())
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT))
    return folder


def run(checker: str, folder: Path, *arguments: str) -> str:
    command = BIN / checker
    assert command.exists(), f"{checker} is missing; run `make setup`"
    return subprocess.run(
        [command, *arguments], cwd=folder, capture_output=True, text=True, timeout=150, check=False
    ).stdout


@pytest.fixture(scope="module")
def pyright(folder: Path) -> Reports:
    report: Any = json.loads(run("pyright", folder, "--pythonpath", sys.executable, "--outputjson"))
    reports: Reports = {}
    for entry in report["generalDiagnostics"]:
        revealed = re.fullmatch(r'Type of ".*" is "(.*)"', entry["message"], re.DOTALL)
        text = plain(revealed[1]) if revealed else f"error: {entry.get('rule', entry['message'])}"
        reports.setdefault((Path(entry["file"]).stem, entry["range"]["start"]["line"] + 1), []).append(text)
    return reports


@pytest.fixture(scope="module")
def mypy(folder: Path) -> Reports:
    reports: Reports = {}
    for line in run("mypy", folder, *MYPY, ".").splitlines():
        entry: Any = json.loads(line)
        revealed = re.fullmatch(r'Revealed type is "(.*)"', entry["message"], re.DOTALL)
        if entry["severity"] == "error" or revealed:
            text = plain(revealed[1]) if revealed else f"error: {entry['message']}"
            reports.setdefault((Path(entry["file"]).stem, entry["line"]), []).append(text)
    return reports


def plain(revealed: str) -> str:
    """A type as both checkers write it: without modules, default values and mypy's `def`, and with joined Literals."""
    while (
        shorter := re.sub(r"TypedDict\('?([\w.]+)'?, \{[^{}]*\}\)", r"\1", revealed)
    ) != revealed:  # mypy lists the fields
        revealed = shorter
    revealed = re.sub(r"\b(?:\w+\.)+(?=\w)", "", revealed).replace("CoroutineType[", "Coroutine[")
    revealed = re.sub(r" =(?: [^,()]+)?(?=[,)])", " = ...", re.sub(r"\bdef (?=\()", "", revealed))
    return re.sub(r"'\] \| Literal\['", "', '", revealed)


def marks(program: str) -> dict[int, str]:
    expected: dict[int, str] = {}
    for number, line in enumerate((HERE / f"{program}.py.txt").read_text().splitlines(), 1):
        code, mark, comment = line.partition("  # ")
        if mark and ("reveal_type(" in code or comment.startswith("error: ")):
            expected[number] = comment
    return expected


def of(program: str, reports: Reports) -> dict[int, list[str]]:
    return {line: texts for (name, line), texts in reports.items() if name == program}


def compare(checker: str, expected: dict[int, str], reported: dict[int, list[str]]) -> Iterable[str]:
    for line in sorted({*expected, *reported}):
        if reported.get(line) != ([expected[line]] if line in expected else None):
            yield f"line {line}: expected {expected.get(line)}, {checker} reports {reported.get(line)}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_pyright_sees_what_the_author_expects(program: str, pyright: Reports) -> None:
    """P52: every marked line is reported as marked, and no other line is."""
    expected = {line: plain(mark) for line, mark in marks(program).items()}
    reported = of(program, pyright)
    for line, texts in reported.items():  # a call that fits no overload has two errors
        if expected.get(line) in texts and all(text.startswith("error: ") for text in texts):
            reported[line] = [expected[line]]
    differences = list(compare("pyright", expected, reported))
    assert not differences, "\n".join(differences)


@pytest.mark.parametrize("program", PROGRAMS)
def test_mypy_sees_the_same(program: str, mypy: Reports) -> None:
    """P52: mypy is the second opinion. Its errors have other names, so any error will do on a line that has to have one."""
    expected = {line: "error" if mark.startswith("error: ") else plain(mark) for line, mark in marks(program).items()}
    reported = of(program, mypy)
    for line, texts in reported.items():
        if expected.get(line) == "error" and all(text.startswith("error: ") for text in texts):
            reported[line] = ["error"]
    differences = list(compare("mypy", expected, reported))
    assert not differences, "\n".join(differences)


def test_the_programs_have_marks() -> None:
    assert sum(len(marks(program)) for program in PROGRAMS) > 100
