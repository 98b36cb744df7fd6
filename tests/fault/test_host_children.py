"""A host's children: where they run, what they are told, and that none outlives it (R228, R232, R275)."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

import pytest
from tests.support.faults import is_alive
from tests.support.until import soon, until

from trimaran import Host

SCRIPT = """
import os, signal, subprocess, sys, time
from trimaran import Server

server = Server("child", version="1")

@server.tool
def where() -> dict[str, str | None]:
    names = ("OURS", "SHARED", "THEIRS")
    return {"cwd": os.getcwd(), **{name: os.environ.get(name) for name in names}, "argument": sys.argv[1]}

@server.tool
def family() -> list[int]:
    return [os.getpid(), child.pid]

print("ahoy from", sys.argv[1], file=sys.stderr, flush=True)
if sys.argv[1] != "stubborn":
    server.run()
else:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    server.run()
    time.sleep(1000)
"""

pytestmark = pytest.mark.slow


def write(folder: Path, *tables: str) -> Path:
    (folder / "child.py").write_text(SCRIPT)
    file = folder / "mcp.toml"
    file.write_text("\n".join(f"{table}\nstartup_timeout = '15s'" for table in tables))
    return file


async def test_a_child_runs_where_and_with_what_its_table_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R228, R232: its variables are laid over the safe ones of ours, or over all where it says so; and without a directory
    of its own it has ours.
    """
    monkeypatch.setenv("OURS", "from the host")
    monkeypatch.setenv("SHARED", "from the host")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    config = write(
        tmp_path,
        f"[server.plain]\ncommand = '{sys.executable}'\nargs = ['child.py', '${{NOBODY_SETS_THIS:-žluť}}']",
        f"[server.open]\ncommand = '{sys.executable}'\nargs = ['child.py', 'y']\ninherit_env = true",
        f"[server.told]\ncommand = '{sys.executable}'\nargs = ['${{CLAUDE_PROJECT_DIR}}/child.py', 'x']\n"
        f"cwd = '{tmp_path}/elsewhere'\nenv = {{ SHARED = 'from the file', THEIRS = 'a ${{OURS}}' }}",
    )
    async with Host.load(config, workspace=tmp_path, environ={}, allow=["*"]) as host:
        assert host.connected() == ["open", "plain", "told"], [str(one) for one in host.status()]
        assert (await soon(host.call("mcp__plain__where"))).data == {
            "cwd": str(tmp_path),
            "OURS": None,
            "SHARED": None,
            "THEIRS": None,
            "argument": "žluť",
        }
        assert (await soon(host.call("mcp__open__where"))).data == {
            "cwd": str(tmp_path),
            "OURS": "from the host",
            "SHARED": "from the host",
            "THEIRS": None,
            "argument": "y",
        }
        assert (await soon(host.call("mcp__told__where"))).data == {
            "cwd": str(tmp_path / "elsewhere"),
            "OURS": None,
            "SHARED": "from the file",
            "THEIRS": "a from the host",
            "argument": "x",
        }


@pytest.mark.parametrize("way", ["close", "disable", "cancel"])
async def test_no_child_survives_however_it_ends(tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture) -> None:
    """R275: one that is deaf to the end of its input and to SIGTERM, and has a child of its own; its words are in the log."""
    config = write(tmp_path, f"[server.s]\ncommand = '{sys.executable}'\nargs = ['{tmp_path}/child.py', 'stubborn']")
    family: list[int] = []
    begun = asyncio.Event()

    async def gone() -> None:
        """The child is gone at once, and its own child as soon as the system has seen to it."""
        child, grandchild = family
        assert not is_alive(child)
        await until(lambda: not is_alive(grandchild), "the grandchild has ended")

    async def live() -> None:
        async with Host.load(config, environ={}, allow=["*"], options={"grace": 0.2}) as host:
            family.extend((await soon(host.call("mcp__s__family"))).data)
            assert all(map(is_alive, family))
            if way == "disable":
                await soon(host.disable("s"))
                await gone()
            begun.set()
            if way == "cancel":
                await asyncio.Event().wait()

    with caplog.at_level(logging.DEBUG, "trimaran.child"):
        life = asyncio.ensure_future(live())
        beginning = asyncio.ensure_future(begun.wait())
        await soon(asyncio.wait([life, beginning], return_when=asyncio.FIRST_COMPLETED))
        beginning.cancel()
        if way == "cancel":
            life.cancel()
        [end] = await soon(asyncio.gather(life, return_exceptions=True))
    assert isinstance(end, asyncio.CancelledError) if way == "cancel" else end is None, end
    await gone()
    assert "ahoy from stubborn" in caplog.text


async def test_a_host_tells_once_which_variable_a_server_seems_to_miss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """R228 yields: children get no secret that nobody named, so whoever relied on that is told."""
    monkeypatch.setenv("BOAT_TOKEN", "hunter2")
    script = tmp_path / "keyed.py"
    script.write_text(
        "from trimaran import Server, ToolError\n"
        "server = Server('keyed')\n"
        "@server.tool\n"
        "def look() -> str:\n"
        "    raise ToolError('BOAT_TOKEN is not set')\n"
        "server.run()\n"
    )
    servers = {
        "without": [sys.executable, str(script)],
        "named": {"command": sys.executable, "args": [str(script)], "env": {"BOAT_TOKEN": "x"}},
        "open": {"command": sys.executable, "args": [str(script)], "inherit_env": True},
    }
    async with Host(servers, allow=["*"], environ={}) as host:
        for _ in range(2):
            for name in servers:
                assert (await soon(host.call(f"mcp__{name}__look"))).is_error
    told = [one.getMessage() for one in caplog.records if "not passed on" in one.getMessage()]
    assert len(told) == 1
    assert told[0].startswith("the server 'without': BOAT_TOKEN is set here but is not passed on")
    assert "hunter2" not in caplog.text
