"""A parent to be killed: opens a ChildChannel on a child that ignores EOF and SIGTERM, says its pid, and waits.

`python parent.py asyncio | uvloop [fork]`; with `fork`, a forked copy of it lives on, and its pid is said too.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

import uvloop

from trimaran.errors import Error
from trimaran.transports.process import ChildChannel

CHILD = str(Path(__file__).with_name("child.py"))


class Quiet:
    def __init__(self) -> None:
        self.first = asyncio.Event()

    def receive(self, message: bytes) -> None:
        self.first.set()

    def lost(self, error: Error | None) -> None:
        os._exit(3)

    def odd(self, what: str) -> None:
        os._exit(4)


async def main() -> None:
    owner = Quiet()
    channel = ChildChannel([sys.executable, "-S", CHILD, "stubborn", "15"])
    await channel.open(owner)
    await owner.first.wait()
    copy = 0
    if "fork" in sys.argv:
        copy = os.fork()
        if not copy:
            time.sleep(3600)
    os.write(1, f"{channel.pid} {copy}\n".encode())
    await asyncio.sleep(3600)


(uvloop.run if sys.argv[1] == "uvloop" else asyncio.run)(main())
