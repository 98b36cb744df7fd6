"""Gateways, the servers behind them and Redis are killed, and no call is lost, made twice, or left without an answer.

Some hundred calls for the suite; with TRIMARAN_CHAOS=10000 (`make chaos`) that many, and a table. Callers of both eras call
servers of both eras, over pipes and HTTP. Many calls ask in the middle, and some become tasks, which a gateway follows at the
server behind it. Every error has to name its kind.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from trimaran.errors import CallError, Error, ToolError
from trimaran.types import as_object

from . import load
from .gateway_rig import UPSTREAMS, GatewayRig, gateway_rig
from .test_chaos import CALLS, DEADLINE, HANDS, IS_FULL, sdk_client, stop_between_faults
from .verdict import judge, table

pytestmark = pytest.mark.deadline(3600 if IS_FULL else 400)

KINDS = ("add", "list", "record", "slow", "order", "voyage", "errand")
TYPES = ("unreachable", "lost", "timed_out", "parked_call_lost", "process_lost", "store_unavailable")
"""What an error of a gateway may name as its kind, of failures that a caller can meet here."""
PACE = 1.0  # seconds from one recovery to the next fault
FAULTS = ("kill", "child", "upstream", "redis")


def name_of(error: Exception) -> str:
    """What kind of failure it was, in a word that a program can act on."""
    if isinstance(error, ToolError):
        return f"the tool failed: {str(error)[:60]}"
    if not isinstance(error, CallError):
        return load.name_of(error) if isinstance(error, Error) else "untyped"
    kind = (as_object(error.data) or {}).get("kind")
    return f"refused {kind}" if kind in TYPES else "untyped"


async def vex_in_turn(fleet: GatewayRig) -> None:
    """A gateway, a child, a server behind the gateways and Redis are killed, one after the other."""
    for number in itertools.count():
        await asyncio.sleep(PACE)
        await fleet.kill_gateway(number % len(fleet.servers))
        await asyncio.sleep(PACE)
        await fleet.kill_child((number + 1) % len(fleet.servers))
        await asyncio.sleep(PACE)
        await fleet.kill_upstream(number % len(fleet.upstreams))
        await asyncio.sleep(PACE)
        await fleet.restart_redis(away=1.0)


async def test_gateways_and_what_stands_behind_them_are_killed(tmp_path: Path) -> None:
    options = {"name_of": name_of, "kinds": KINDS, "servers": UPSTREAMS}
    async with (
        gateway_rig(tmp_path) as fleet,
        load.client_load(fleet.url, "modern", DEADLINE, **options) as modern,
        load.client_load(fleet.url, "legacy", DEADLINE, **options) as legacy,
        sdk_client(fleet, CALLS // 5, fleet.url.replace("/mcp", "/servers/new_http/mcp"), *KINDS) as sdk,
    ):
        vexing = asyncio.create_task(vex_in_turn(fleet))
        sdk_done = asyncio.create_task(sdk.hear("done"))

        def is_vexed() -> bool:
            if vexing.done():
                vexing.result()  # a fault that could not be brought about ends the run
            if {fault.what for fault in fleet.faults if fault.is_over} < set(FAULTS):
                return False
            sdk.tell()
            return True

        def is_enough() -> bool:
            calls = len(modern.report.jobs), len(legacy.report.jobs)
            return is_vexed() and sdk_done.done() and calls[0] >= CALLS * 2 // 5 and calls[1] >= CALLS * 2 // 5

        try:
            await asyncio.gather(modern.run(HANDS, is_enough), legacy.run(HANDS, is_enough))
            await stop_between_faults(fleet, vexing)
            await asyncio.gather(modern.settle(), legacy.settle())
            sdk.tell()
            reports = [modern.report, legacy.report, await sdk.report()]
        finally:
            for task in (vexing, sdk_done):
                task.cancel()
            await asyncio.gather(vexing, sdk_done, return_exceptions=True)
    for report in reports:
        report.write(tmp_path / f"{report.client}.json")
    (tmp_path / "faults.json").write_text(json.dumps([asdict(fault) for fault in fleet.faults]))
    verdict = judge(reports, fleet.faults, fleet.entries())
    rows = table(verdict)
    if IS_FULL:
        print(f"\n{os.environ['PYTEST_CURRENT_TEST']}\n{rows}", file=sys.stderr)
    assert not verdict.problems, "\n".join([rows, *verdict.problems[:40], *verdict.failures[:40], fleet.logs()])
    assert not fleet.incidents(), "\n".join([rows, *fleet.incidents(), fleet.logs()])
    assert verdict.calls >= CALLS
