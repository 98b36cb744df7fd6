"""Examinations of servers by `trimaran doctor`, told check by check. A server that cannot be reached is examined by itself."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias, final

from msgspec import Struct, structs

from .events import PageEvents
from .requests import NotThere, WrongState
from .servers import InspectedServer, Reach, Servers

_SECONDS: Final = 120.0  # for a whole examination: its own waits add up to less
Examine: TypeAlias = Callable[[Reach, Callable[[Any], None]], Awaitable[None]]
"""Examines a target; calls back with each check, a struct."""


class _Examination(Struct):
    run: str
    checks: list[dict[str, Any]]
    is_done: bool = False


@final
class Doctors:
    """The last examination of each server."""

    def __init__(self, events: PageEvents, servers: Servers, examine: Examine | None) -> None:
        self._events = events
        self._servers = servers
        self._examine = examine
        self._ids = itertools.count(1)
        self._last: dict[str, _Examination] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        servers.on_failed = self._failed

    def _failed(self, server: InspectedServer) -> None:
        if self._examine is not None and server.reach.transport in ("stdio", "http") and server.source.kind != "try":
            self.start(server)

    def start(self, server: InspectedServer) -> str:
        """Begin an examination, unless one is under way; its id."""
        if self._examine is None:
            raise WrongState(f"this inspector was made without a doctor: run trimaran doctor {server.reach.text}")
        if server.reach.transport not in ("stdio", "http", "sse"):
            raise WrongState("the doctor examines commands and URLs, and this server is neither")
        running = self._running.get(server.id)
        if running is not None and not running.done():
            return self._last[server.id].run
        examination = self._last[server.id] = _Examination(f"d{next(self._ids)}", [])
        self._running[server.id] = self._servers.spawn(self._run(server, examination, self._examine))
        return examination.run

    async def _run(self, server: InspectedServer, examination: _Examination, examine: Examine) -> None:
        mask = server.reach.mask

        def tell(check: Any) -> None:
            fields = structs.asdict(check)
            masked: dict[str, Any] = {
                name: mask(value) if isinstance(value, str) else [mask(str(line)) for line in value]
                for name, value in fields.items()
            }
            examination.checks.append(masked)
            self._events.emit("doctor", size=1_000, server=server.id, run=examination.run, check=masked)

        try:
            async with asyncio.timeout(_SECONDS):
                await examine(server.reach, tell)
        except Exception as error:  # the doctor's own mistake must not look like the server's
            section = {"section": "Doctor", "key": "doctor", "title": "the doctor", "status": "fail"}
            why = "This is a mistake in the doctor, not in the server."
            seen = mask(f"{type(error).__name__}: {error}")
            examination.checks.append({**section, "seen": seen, "why": why, "fix": "Try again.", "details": []})
        finally:
            examination.is_done = True
            self._events.emit("doctor", server=server.id, run=examination.run, done=True)

    def report(self, server: str) -> dict[str, Any]:
        """The last examination of a server."""
        examination = self._last.get(server)
        if examination is None:
            raise NotThere("this server has not been examined yet: POST to the same path")
        counts: dict[str, int] = {"ok": 0, "warn": 0, "fail": 0, "skipped": 0}
        for check in examination.checks:
            counts[check["status"]] += 1
        return {
            "run": examination.run,
            "done": examination.is_done,
            "healthy": not counts["fail"],
            "counts": counts,
            "checks": examination.checks,
        }
