"""Other people's clients that log in, and other people's servers that want a login."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import find_port

from ..harness import DRIVER_LIMIT, NODE, TOOLS, need
from ..servers.places import Listening
from .authority import Authority, Person

HERE = Path(__file__).resolve().parent
SDK = TOOLS / "peers" / "sdk" / "bin" / "python"
FASTMCP = TOOLS / "peers" / "fastmcp" / "bin" / "python"

CLIENTS = {
    "python-sdk": (SDK, HERE / "sdk_login.py"),
    "fastmcp": (FASTMCP, HERE / "fastmcp_login.py"),
    "typescript-sdk": (NODE, HERE / "ts_login.mjs"),
}
SERVERS = {
    "python-sdk": (SDK, HERE / "sdk_guarded.py"),
    "fastmcp": (FASTMCP, HERE / "fastmcp_guarded.py"),
}


async def log_in(client: str, era: str, url: str, person: Person) -> dict[str, Any]:
    """Have somebody else's client log in with the help of a person: what it found."""
    program, script = CLIENTS[client]
    need(program)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(program, script, era, url, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    found: dict[str, Any] = {}
    words = asyncio.ensure_future(process.stderr.read())
    try:
        async with asyncio.timeout(DRIVER_LIMIT):
            async for line in process.stdout:
                found = json.loads(line)
                if "open" in found:
                    process.stdin.write(f"{await person(found['open'])}\n".encode())
            await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        process.stdin.close()
        stderr = (await words).decode(errors="replace")
    if "result" not in found:
        pytest.fail(f"the client ended without a result:\n{stderr[-4000:]}", pytrace=False)
    return found["result"]


def guarded(server: str, authority: Authority, *, path: str = "/mcp") -> Listening:
    """Somebody else's server that trusts the authority.

    Args:
        path: At `/opaque` it asks the authority about each token, at `/sse` (the SDK's only) it speaks HTTP+SSE.
    """
    program, script = SERVERS[server]
    need(program)
    port = find_port()
    inquirer = [authority.guard["client_id"], authority.guard["client_secret"]]
    more = {"/mcp": [], "/opaque": inquirer, "/sse": ["sse"]}[path]
    return Listening([str(program), str(script), str(port), authority.issuer, *more], port)
