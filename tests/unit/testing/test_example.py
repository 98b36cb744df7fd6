"""The example of tests passes as its docstring says, first recording and then playing back."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"


@pytest.mark.slow
@pytest.mark.deadline(120)
def test_the_example_passes(tmp_path: Path) -> None:
    for name in ("test_calculator.py", "calculator.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    words = ["-p", "trimaran.testing.pytest_plugin", "-p", "pytest_asyncio.plugin", "-p", "no:cacheprovider"]
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_ADDOPTS": ""}
    for more in ([], ["--mcp-replay"]):
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", *words, *more, "test_calculator.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=environment,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        assert "10 passed" in done.stdout
    assert (tmp_path / "cassettes" / "test_calculator" / "test_from_a_file.jsonl").exists()
