"""Real servers: our client and the official one connect to each, in turn, in the same minute.

The verdict is a comparison: what works with the official SDK, in the better of its two modes, must work with us and list
as much. The order is official, ours, official, ours; the best of each side counts, so that a cold start of the server
weighs on neither. After a fault there is another round, since somebody else's load looks like one.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import Any

from .catalog import RealServer, Surroundings
from .frameworks import DRIVERS
from .sandbox import SDK_PYTHON, Sandbox

CONNECT_LIMIT = 90.0  # seconds; the slowest takes 45 on two cores
GOAL = 1.2  # our connect time by the official client's
MAX_ROUNDS = 4  # a fault that the next round does not show was somebody else's load
NOISE = 0.3  # seconds by which two starts of the same server differ for no reason of ours


@dataclass(frozen=True)
class Listing:
    """One client's look at a server."""

    failure: str | None
    seconds: float
    """To be ready, or to fail."""
    revision: str
    lists: dict[str, int]
    errors: dict[str, str]


@dataclass(frozen=True)
class Comparison:
    ours: Listing
    official: Listing

    @property
    def ratio(self) -> float | None:
        return None if self.official.failure or self.ours.failure else self.ours.seconds / self.official.seconds

    def faults(self) -> list[str]:
        """What the official client can and we cannot."""
        if self.official.failure:
            return []
        if self.ours.failure:
            return [f"connect: {self.ours.failure}"]
        less = [
            f"{name}: {self.ours.lists.get(name, self.ours.errors.get(name))} and not {count}"
            for name, count in self.official.lists.items()
            if self.ours.lists.get(name) != count and not _both_without(self, name)
        ]
        slow = self.ratio is not None and self.ratio > GOAL and self.ours.seconds - self.official.seconds > NOISE
        return less + ([f"connecting takes {self.ratio:.1f} times as long"] if slow else [])


def _both_without(comparison: Comparison, name: str) -> bool:
    """One says that there is no such list, the other that it is empty: the same to the user."""
    return not comparison.official.lists.get(name) and not comparison.ours.lists.get(name)


async def compare(server: RealServer, surroundings: Surroundings, sandbox: Sandbox) -> Comparison:
    for name, text in surroundings.files.items():
        sandbox.write(name, text)
    variables = surroundings.variables
    ours: list[Listing] = []
    official: list[Listing] = []
    for _ in range(MAX_ROUNDS):
        for mode in ("auto", "legacy"):
            official.append(await _look("list_official.py", mode, server, variables, sandbox))
            ours.append(await _look("list_ours.py", mode, server, variables, sandbox))
        if not Comparison(_better(ours), _better(official)).faults():
            break
    return Comparison(_better(ours), _better(official))


def _better(listings: list[Listing]) -> Listing:
    return min(listings, key=lambda listing: (listing.failure is not None, listing.seconds))


async def _look(driver: str, mode: str, server: RealServer, variables: dict[str, str], sandbox: Sandbox) -> Listing:
    def fill(text: str) -> str:
        return text.replace("{sandbox}", str(sandbox.home))

    program, *arguments = map(fill, server.command)
    env = {key: fill(value) for key, value in variables.items()}
    command = [str(server.packages.bin / program), *arguments]
    job = {"command": command, "env": env, "mode": mode, "limit": CONNECT_LIMIT}
    python = SDK_PYTHON if driver == "list_official.py" else sys.executable
    environment = sandbox.environment(env, [server.packages.bin])
    finished = await sandbox.run([python, DRIVERS / driver, json.dumps(job)], environment, CONNECT_LIMIT + 20)
    reports = [line for line in finished.stdout.splitlines() if line.startswith('{"lists"')]
    if not reports:
        return Listing(finished.complaint(), finished.seconds, "", {}, {})
    report: dict[str, Any] = json.loads(reports[-1])
    seconds = report.get("connect_s", report.get("failed_s", finished.seconds))
    return Listing(report.get("failure"), seconds, report.get("revision", ""), report["lists"], report["errors"])
