"""What both clients do with a real server: connect, list, report as one line of JSON, close.

The report goes out before the connection is closed: some servers do not end by themselves. A list that answers an error
is not a failure of the client, so it is reported apart.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any


class Job:
    """One connection: the command, the limit in seconds, and what came of it."""

    def __init__(self, text: str) -> None:
        job = json.loads(text)
        self.command: list[str] = job["command"]
        self.env: dict[str, str] = job["env"]
        """What an entry of a configuration would name: the keys that some servers want."""
        self.mode: str = job["mode"]
        self.limit: float = job["limit"]
        self._began = time.perf_counter()
        self._result: dict[str, Any] = {"lists": {}, "errors": {}}

    def connected(self, revision: str) -> None:
        self._result["revision"] = revision
        self._result["connect_s"] = round(time.perf_counter() - self._began, 3)

    async def list(self, name: str, listing: Awaitable[Sequence[Any]]) -> None:
        try:
            async with asyncio.timeout(self.limit):
                self._result["lists"][name] = len(await listing)
        except Exception as error:
            self._result["errors"][name] = f"{type(error).__name__}: {error}"[:200]

    def report(self) -> None:
        sys.stdout.write("\n" + json.dumps(self._result) + "\n")
        sys.stdout.flush()

    def failed(self, error: BaseException) -> None:
        if "connect_s" not in self._result:
            self._result["failure"] = f"{type(error).__name__}: {_first(error)}"[:1500]
            self._result["failed_s"] = round(time.perf_counter() - self._began, 3)
            self.report()


def _first(error: BaseException) -> BaseException:
    return _first(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def main(drive: Callable[[Job], Awaitable[None]]) -> None:
    job = Job(sys.argv[1])

    async def whole() -> None:
        async with asyncio.timeout(job.limit):
            await drive(job)

    try:
        asyncio.run(whole())
    except BaseException as error:
        job.failed(error)
