"""`pyright --verifytypes`: every public name has a type that checkers need not guess.

An attribute without an annotation is what each checker infers, and they infer differently.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BIN = Path(sys.executable).parent


@pytest.mark.slow
@pytest.mark.deadline(300)
def test_every_public_name_has_a_known_type(tmp_path: Path) -> None:
    """Whose rule: ours (P52)."""
    report: Any = json.loads(
        subprocess.run(
            [BIN / "pyright", "--verifytypes", "trimaran", "--ignoreexternal", "--outputjson"],
            cwd=tmp_path,
            env={**os.environ, "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"},  # where pyright looks for `python`
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        ).stdout
    )["typeCompleteness"]
    assert report["exportedSymbolCounts"]["withKnownType"] > 5000, "pyright did not find the package"
    guesses = [
        f"{symbol['name']}: {diagnostic['message']}"
        for symbol in report["symbols"]
        if symbol["isExported"] and not symbol["isTypeKnown"]
        for diagnostic in symbol["diagnostics"]
        if "docstring" not in diagnostic["message"] and "is partially unknown" not in diagnostic["message"]
    ]
    assert not guesses, "annotate:\n" + "\n".join(guesses)
    assert report["completenessScore"] == 1, report["exportedSymbolCounts"]
