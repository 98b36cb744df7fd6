"""Shared by the probes: time sequential awaits and print the outcome as JSON. Standard library and uvloop only."""

import json
import sys
import time
from collections.abc import Awaitable, Callable


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


def arguments() -> tuple[str, float]:
    """Return the target (a URL, or `memory`) and the seconds to measure."""
    return sys.argv[1], float(sys.argv[2])


def report(outcome: dict[str, float]) -> None:
    print(json.dumps(outcome))
