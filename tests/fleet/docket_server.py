"""What the servers and workers of `test_docket` load: the same tools, with a docket of its own settings or without.

Whatever a tool does to the world is a line in the ledger, which outlives the process that wrote it.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from trimaran import Context, Server
from trimaran.ext.tasks import Tasks
from trimaran.ext.tasks.docket import Docket

LEASE = 4.0


def harbour(folder: Path, docket: Docket | None = None) -> Server:
    server = Server("harbour", version="1", secret_keys=["one key for all processes"])
    server.enable_extension(Tasks(poll=0.05, lease=LEASE))
    if docket is not None:
        server.enable_extension(docket)
    ledger = os.open(folder / "ledger", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def enter(key: str, what: str) -> None:
        os.write(ledger, json.dumps([key, what, os.getpid()]).encode() + b"\n")

    @server.tool(long_running=True)
    async def where(key: str) -> int:
        """Which process runs this."""
        enter(key, "where")
        return os.getpid()

    @server.tool(long_running=True, resumable=True)
    async def voyage(key: str, gate: str, ctx: Context) -> str:
        """A step after the other until there is a file of the gate's name. Resumable."""
        leg = 0
        while leg == 0 or not (folder / gate).exists():
            await ctx.step(f"leg {leg}", enter, key, f"leg {leg}")
            await asyncio.sleep(0.2)
            leg += 1
        return key

    @server.tool(long_running=True)
    async def errand(key: str, gate: str) -> int:
        """Waits for the gate. Not resumable."""
        enter(key, "begun")
        try:
            while not (folder / gate).exists():
                await asyncio.sleep(0.02)
        except asyncio.CancelledError:
            enter(key, "cancelled")
            raise
        enter(key, "done")
        return os.getpid()

    @server.tool(long_running=True, resumable=True)
    async def patrol(key: str, gate: str, ctx: Context) -> str:
        """A step, the gate, a step. Resumable."""
        await ctx.step("out", enter, key, "out")
        while not (folder / gate).exists():
            await asyncio.sleep(0.02)
        await ctx.step("home", enter, key, "home")
        return key

    @server.tool(long_running=True)
    async def order(ctx: Context) -> str:
        schema: dict[str, Any] = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}
        answer = await ctx.elicit("How many?", schema)
        return f"{answer.content['count']} by {os.getpid()}" if answer.accepted else "none"

    return server


if "TRIMARAN_LEDGER_FOLDER" in os.environ:
    _folder = Path(os.environ["TRIMARAN_LEDGER_FOLDER"])
    plain = harbour(_folder)
    server = harbour(_folder, Docket(redelivery=1.0))
