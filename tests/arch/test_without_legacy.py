"""The modern library alone: `trimaran.legacy` cannot be imported, and everything of 2026-07-28 works."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]

BLOCK = """
import sys
from importlib.abc import MetaPathFinder

class Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "trimaran.legacy" or name.startswith("trimaran.legacy."):
            raise ModuleNotFoundError(f"{name} is absent", name=name)

sys.meta_path.insert(0, Absent())
"""

SERVER = """
import asyncio
from trimaran import Context, Server

server = Server("modern", version="1")

@server.tool
def add(a: int, b: int) -> int:
    return a + b

@server.tool
async def greet(ctx: Context) -> str:
    answer = await ctx.elicit("Who are you?", {"type": "object", "properties": {"name": {"type": "string"}}})
    return f"Hello {answer.content['name']}"

@server.tool(long_running=True)
async def survey() -> str:
    await asyncio.sleep(0.05)
    return "surveyed"
"""

TALK = """
import asyncio
from trimaran import connect
from trimaran.errors import Error
from trimaran.serve import HttpServer

async def on_elicit(ask):
    return {"name": "Ada"}

async def talk(target):
    async with connect(target, on_elicit=on_elicit, timeout=20) as client:
        assert client.version == "2026-07-28", client.version
        assert (await client.call_tool("add", {"a": 2, "b": 3})).data == 5
        assert (await client.call_tool("greet")).data == "Hello Ada"
        assert (await client.call_tool("survey")).data == "surveyed"

async def main():
    await talk(server)
    await talk([sys.executable, sys.argv[1]])
    async with HttpServer(server, port=0) as running:
        await talk(running.url)
        try:
            async with connect(running.url, era="legacy"):
                raise SystemExit("an older revision was spoken")
        except Error as error:
            assert "trimaran.legacy is not installed" in str(error), error
    assert not [name for name in sys.modules if name.startswith("trimaran.legacy.")]

asyncio.run(main())
print("done")
"""


def test_the_modern_library_works_without_the_older_revisions(tmp_path: Path) -> None:
    """Over memory, stdio and HTTP: connect, call, ask, tasks. A client that needs an older revision hears why not."""
    child = tmp_path / "child.py"
    child.write_text(BLOCK + SERVER + "server.run()\n")
    parent = tmp_path / "parent.py"
    parent.write_text(BLOCK + SERVER + TALK)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    run = subprocess.run(
        [sys.executable, str(parent), str(child)], capture_output=True, text=True, timeout=120, env=environment
    )
    assert (run.returncode, run.stdout) == (0, "done\n"), run.stdout + run.stderr


def test_only_the_seam_imports_the_older_revisions() -> None:
    """Whose rule: ours. The folder is to be deleted one day, and with it one file."""
    sources = [path for path in (ROOT / "src/trimaran").rglob("*.py") if "legacy" not in path.relative_to(ROOT).parts]
    doors = [
        path.name for path in sources if "trimaran.legacy." in path.read_text() or "from .legacy" in path.read_text()
    ]
    assert doors == ["legacy_seam.py"]
