"""Shared by the probes: time awaits, one after the other or many at once, and print the outcome as JSON. Standard library only."""

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable


async def timed(call: Callable[[], Awaitable[object]], *, seconds: float, callers: int) -> dict[str, float]:
    """Calls per second of `callers` at once; with one caller also p50."""
    if callers == 1:
        return await sequential(call, seconds=seconds)
    await asyncio.gather(*(call() for _ in range(callers)))
    started = time.perf_counter()

    async def caller() -> int:
        made = 0
        while time.perf_counter() < started + seconds:
            await call()
            made += 1
        return made

    made = sum(await asyncio.gather(*(caller() for _ in range(callers))))
    return {"rate": made / (time.perf_counter() - started)}


async def sequential(call: Callable[[], Awaitable[object]], *, seconds: float, warm_up: int = 50) -> dict[str, float]:
    """Await `call` over and over for `seconds`; return p50 in microseconds and calls per second."""
    for _ in range(warm_up):
        await call()
    latencies: list[float] = []
    started = now = time.perf_counter()
    while now < started + seconds:
        before = now
        await call()
        now = time.perf_counter()
        latencies.append(now - before)
    return {"p50_us": sorted(latencies)[len(latencies) // 2] * 1e6, "rate": len(latencies) / (now - started)}


def expect(value: object) -> None:
    """Refuse to time wrong answers."""
    if "42222" not in str(value):
        raise SystemExit(f"unexpected result: {value!r}")


def arguments() -> tuple[str | list[str], float, int]:
    """Return the target (a URL, `memory`, or a command), the seconds to measure, and how many calls at once."""
    target = sys.argv[1]
    return json.loads(target) if target.startswith("[") else target, float(sys.argv[2]), int(sys.argv[3])


def report(outcome: dict[str, float]) -> None:
    print(json.dumps(outcome))
