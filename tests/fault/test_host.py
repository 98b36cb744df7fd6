"""A host and children that misbehave: each fails alone, with its reason, and none is left behind (R272, R275)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.support.until import PATIENCE, until

from trimaran import Host, Server
from trimaran.errors import TimedOut
from trimaran.host import supervise

DIES = "import sys; sys.exit('the licence has run out')"
HANGS = "import sys, time\nfor line in sys.stdin: pass"
BABBLES = "import sys\nfor line in sys.stdin: print('what?', flush=True)"
FLOODS = """
import sys
while True:
    sys.stdout.write("x" * 65536)
"""
LISTS_FOR_EVER = """
import json, sys
for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message["method"]
    if id is None:
        continue
    if method == "initialize":
        info = {"name": "liar", "version": "1"}
        version = message["params"]["protocolVersion"]
        result = {"protocolVersion": version, "serverInfo": info, "capabilities": {"tools": {}}}
    elif method == "tools/list":
        number = int(message.get("params", {}).get("cursor", 0)) + 1
        schema = {"type": "object"}
        result = {"tools": [{"name": f"t{number}", "inputSchema": schema}], "nextCursor": str(number)}
    else:
        print(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}), flush=True)
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
"""
TELLS_ITS_PID = """
import json, os, sys
for line in sys.stdin:
    message = json.loads(line)
    id, method = message.get("id"), message["method"]
    results = {
        "initialize": {
            "protocolVersion": "2025-06-18", "serverInfo": {"name": "p", "version": "1"}, "capabilities": {"tools": {}}
        },
        "tools/list": {"tools": [{"name": "pid", "inputSchema": {"type": "object"}}]},
        "tools/call": {"content": [{"type": "text", "text": str(os.getpid())}]},
        "ping": {},
    }
    if id is not None and method in results:
        print(json.dumps({"jsonrpc": "2.0", "id": id, "result": results[method]}), flush=True)
    elif id is not None:
        print(json.dumps({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no"}}), flush=True)
"""
NOISY = """
import sys
from trimaran import Server
server = Server("noisy", version="1")
@server.tool
def shout(lines: int) -> str:
    for number in range(lines):
        print("noise", number, file=sys.stderr)
    return "shouted"
server.run()
"""


@pytest.mark.deadline(60)
async def test_children_that_misbehave_fail_alone_and_with_a_reason() -> None:
    calm = Server("calm", version="1")
    calm.add_tool(lambda: "ok", name="ping_it")
    bad = {"dies": DIES, "hangs": HANGS, "babbles": BABBLES, "floods": FLOODS, "lists": LISTS_FOR_EVER}
    servers = {name: [sys.executable, "-c", script] for name, script in bad.items()}
    environ = {"TRIMARAN_MCP_STARTUP_LIMIT": "2s"}
    async with asyncio.timeout(PATIENCE), Host({"calm": calm, **servers}, allow=["*"], environ=environ) as host:
        found = {status.name: status for status in host.status()}
        assert found["calm"].state == "connected"
        assert {found[name].state for name in bad} == {"failed"}, [str(one) for one in found.values()]
        assert "the licence has run out" in found["dies"].reason
        assert "the licence has run out" in host.stderr("dies")
        for name, told in (("hangs", "2 s"), ("lists", "pages")):
            assert told in found[name].reason, found[name].reason
        assert all(found[name].retries and found[name].reason for name in bad)
        assert (await host.call("mcp__calm__ping_it")).data == "ok"
        assert [tool.name for tool in host.tools()] == ["mcp__calm__ping_it"]


async def test_a_child_that_floods_stderr_is_heard_in_its_last_lines(tmp_path: Path) -> None:
    """R273, R275: 200 of them, and it is not held up."""
    script = tmp_path / "noisy.py"
    script.write_text(NOISY)
    environ = {"TRIMARAN_MCP_TIMEOUT": "15s"}
    async with Host({"noisy": [sys.executable, str(script)]}, allow=["*"], environ=environ) as host:
        async with asyncio.timeout(PATIENCE):
            assert (await host.call("mcp__noisy__shout", {"lines": 20_000})).data == "shouted"
            await until(lambda: host.stderr("noisy")[-1:] == ["noise 19999"])
        assert host.stderr("noisy") == [f"noise {number}" for number in range(19_800, 20_000)]


MOODS = """
import asyncio, sys
from trimaran import Server, ToolError
if "hang_init" in sys.argv:
    sys.stdin.buffer.read()
server = Server("moods", version="1")
@server.tool
def echo(text: str) -> str:
    return text
@server.tool
def fail() -> str:
    raise ToolError("as asked")
@server.tool
async def slow() -> str:
    await asyncio.sleep(60)
    return "late"
server.run()
"""


@pytest.mark.deadline(60)
async def test_a_server_of_every_mood_is_lived_with(tmp_path: Path) -> None:
    """R287: one that echoes, fails, is slow, or never answers the first question; one of them harms no other."""
    script = tmp_path / "moods.py"
    script.write_text(MOODS)
    servers = {"good": [sys.executable, str(script)], "bad": [sys.executable, str(script), "hang_init"]}
    environ = {"TRIMARAN_MCP_TIMEOUT": "15s", "TRIMARAN_MCP_TOOL_TIMEOUT": "500ms"}
    async with asyncio.timeout(PATIENCE), Host(servers, allow=["*"], environ=environ, wait=False) as host:
        await host.wake("good")
        assert (await host.call("mcp__good__echo", {"text": "hello"})).text == "hello"
        failed = await host.call("mcp__good__fail")
        assert (failed.is_error, failed.text) == (True, "as asked")
        with pytest.raises(TimedOut):
            await host.call("mcp__good__slow")
        assert (await host.call("mcp__good__echo", {"text": "still here"})).text == "still here"
        states = {status.name: status.state for status in host.status()}
        assert states["good"] == "connected"
        assert states["bad"] in ("starting", "failed")


@pytest.mark.skipif(sys.platform == "win32", reason="nothing stops a process there")
@pytest.mark.deadline(60)
async def test_a_child_that_hangs_is_ended_and_another_one_started(monkeypatch: pytest.MonkeyPatch) -> None:
    """R218, R275: it runs, it does not answer, and it does not even hear that it is to end."""
    monkeypatch.setattr(supervise, "_HEALTH", 0.05)
    changed = asyncio.Event()
    host = Host(
        {"hangs": [sys.executable, "-c", TELLS_ITS_PID]},
        allow=["*"],
        environ={"TRIMARAN_MCP_TIMEOUT": "1s"},
        on_change=changed.set,
        options={"era": "legacy"},
    )

    async def connected() -> int:
        while host.status()[0].state != "connected":
            changed.clear()
            await changed.wait()
        return int((await host.call("mcp__hangs__pid")).text)

    async with asyncio.timeout(PATIENCE), host:
        first = await connected()
        os.kill(first, signal.SIGSTOP)
        while host.status()[0].state == "connected":
            changed.clear()
            await changed.wait()
        second = await connected()
        assert second != first
        with pytest.raises(ProcessLookupError):
            os.kill(first, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)
