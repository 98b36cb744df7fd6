"""The official SDK 1.28 before `trimaran serve -- COMMAND`: servers of both eras behind it, one of them on mcp 1.6."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import find_port
from tests.support.program import listens
from tests.support.until import wait_until

from .harness import DEADLINE

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]

HERE = Path(__file__).resolve().parent
TOOLS = HERE.parents[1] / ".tools"
PYTHON = TOOLS / "peers" / "sdk-1.28" / "bin" / "python"
SERVE = [sys.executable, "-m", "trimaran.apps.cli", "serve"]


def use(target: str | list[str], *calls: tuple[str, dict[str, Any]]) -> dict[str, Any]:
    assert PYTHON.exists(), f"{PYTHON} is missing: run `make setup`"
    words = [str(PYTHON), str(HERE / "old_sdk_client.py"), json.dumps(target), json.dumps(calls)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=DEADLINE / 2)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(params=["stdio", "http"])
def near(request: pytest.FixtureRequest) -> Iterator[Any]:
    """A function from the options and the command of `trimaran serve` to the target of a client."""
    processes: list[subprocess.Popen[bytes]] = []

    def serve(*words: str) -> str | list[str]:
        if request.param == "stdio":
            return [*SERVE, *words]
        port = find_port()
        processes.append(subprocess.Popen([*SERVE, "--port", str(port), *words], stderr=subprocess.DEVNULL))
        wait_until(lambda: listens(port), "the proxy listens")
        return f"http://127.0.0.1:{port}/mcp"

    yield serve
    for process in processes:
        process.terminate()
        process.wait()


@pytest.mark.parametrize("far", ["modern", "legacy"])
def test_it_is_told_of_progress_and_asked(near: Any, far: str) -> None:
    target = near("--era", far, "--", sys.executable, str(HERE / "asking_server.py"))
    report = use(target, ("slow", {}), ("greet", {}))
    assert (report["server"], report["revision"], report["tools"]) == ("asking", "2025-11-25", ["greet", "slow"])
    assert report["calls"] == [["done", False, [1, 2, 3]], ["hello Ann", False, []]]


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the pydantic that mcp 1.6 needs has no wheel for it")
def test_a_server_on_mcp_1_6_works_for_it(near: Any, tmp_path: Path) -> None:
    program = TOOLS / "servers" / "sqlite-sdk-1.6" / "bin" / "mcp-server-sqlite"
    assert program.exists(), f"{program} is missing: run `make setup`"
    report = use(
        near("--", str(program), "--db-path", str(tmp_path / "boats.db")),
        ("create_table", {"query": "CREATE TABLE boats (masts int)"}),
        ("write_query", {"query": "INSERT INTO boats VALUES (3)"}),
        ("read_query", {"query": "SELECT * FROM boats"}),
    )
    assert [text for text, _, _ in report["calls"]][-1] == "[{'masts': 3}]"
    assert not any(is_error for _, is_error, _ in report["calls"])
