"""User code under pyright, strict: what it reveals and what it refuses (P52)."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
CODE = HERE / "user_code.py.txt"
PYRIGHT = Path(sys.executable).parent / "pyright"


@pytest.mark.slow
@pytest.mark.deadline(90)
def test_user_code_is_typed_as_its_author_expects(tmp_path: Path) -> None:
    """P52: one run for the whole file; every marked line, and no other, is reported."""
    assert PYRIGHT.exists(), "pyright is missing; run `make setup`"
    config = {
        "include": ["."],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.11",
        "reportUnusedExpression": False,
        "reportUnknownMemberType": False,
        "reportUnusedCoroutine": False,
    }
    project = tmp_path / "pyrightconfig.json"
    project.write_text(json.dumps(config))
    (tmp_path / "user_code.py").write_text(CODE.read_text())
    done = subprocess.run(
        [str(PYRIGHT), "--project", str(project), "--pythonpath", sys.executable, "--outputjson"],
        capture_output=True,
        text=True,
        timeout=80,
        check=False,
    )
    report: Any = json.loads(done.stdout)
    said: dict[int, list[str]] = {}
    for entry in report["generalDiagnostics"]:
        line = entry["range"]["start"]["line"] + 1
        revealed = re.fullmatch(r'Type of ".*" is "(.*)"', entry["message"], re.DOTALL)
        said.setdefault(line, []).append(revealed[1] if revealed else f"error: {entry.get('rule', entry['message'])}")
    wanted: dict[int, list[str]] = {}
    for number, line in enumerate(CODE.read_text().splitlines(), 1):
        before, mark, comment = line.partition("  # ")
        if mark and ("reveal_type(" in before or comment.startswith("error: ")):
            wanted[number] = [comment]
    wrong = {n: (wanted.get(n), said.get(n)) for n in sorted({*wanted, *said}) if wanted.get(n) != said.get(n)}
    lines = [f"line {n}: expected {expected}, pyright says {found}" for n, (expected, found) in wrong.items()]
    assert not lines, "\n".join(lines)
    assert len(wanted) > 50
