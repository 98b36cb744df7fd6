"""Ours as one of many: workers, a store, long work. Through the public face only, like `trimaran_server.py`."""

import argparse
import os

from trimaran import Context, Server
from trimaran.ext.tasks import Tasks

# A third to half of a millisecond of Python; the bench shows what it was.
STEPS = 8_000
REPORTS = 3

server = Server("bench", version="1", secret_keys=["one key for every process of the bench"])
server.enable_extension(Tasks(most_per_caller=1_000))


@server.tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool
async def work(a: int, b: int) -> int:
    """Add two numbers after some work of the processor's, all of it Python."""
    total = 0
    for step in range(STEPS):
        total += step & 1
    return a + b + total - STEPS // 2


@server.tool
async def report(a: int, b: int, ctx: Context) -> int:
    """Add two numbers and tell the client how that goes: the answer is a stream."""
    for done in range(REPORTS):
        await ctx.progress(done, REPORTS)
    return a + b


@server.tool(long_running=True)
async def job(a: int, b: int) -> int:
    """Add two numbers, as a task for whoever understands tasks."""
    return a + b


@server.tool
async def where() -> int:
    """Which process answers."""
    return os.getpid()


@server.tool
async def poke() -> str:
    """Tell every listen stream that the tools changed."""
    server.notify.tools_changed()
    return "poked"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--store", default=None)
    options = parser.parse_args()
    server.run("http", host="127.0.0.1", port=options.port, workers=options.workers, store=options.store)


if __name__ == "__main__":
    main()
