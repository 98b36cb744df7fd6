"""Our own client at work on the fleet, in the process of the test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Literal

from trimaran import connect
from trimaran.client import Client
from trimaran.errors import CallError, Error, TransportError, UnexpectedStatus

from .jobs import BOARDS, Job, Report, expect, perform, plan, work

TASK_LIMIT = 60.0
"""Seconds within which a task must have come to an end: half a second's work, and a lease that may have to run out."""


def name_of(error: Exception) -> str:
    if isinstance(error, UnexpectedStatus):
        return f"HTTP {error.status}"
    if isinstance(error, CallError):
        return f"refused {error.code}"
    return type(error).__name__


def tool_of(job: Job) -> str:
    return f"{job.server}_{job.kind}" if job.server else job.kind


class Load:
    """One client, its calls, and the tasks it began."""

    def __init__(
        self,
        client: Client,
        report: Report,
        deadline: float,
        name_of: Callable[[Exception], str] = name_of,
        **plan: Any,
    ) -> None:
        self.client = client
        self._name_of = name_of
        self._plan = plan
        self.report = report
        self._deadline = deadline
        self._session = client.session_id
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self, hands: int, is_enough: Callable[[], bool]) -> None:
        await work(self.report, plan(self.report.client, self._deadline, **self._plan), hands, is_enough, self.one)

    async def settle(self) -> None:
        """Every task that was begun is followed to its end, and the session is still the one it was."""
        await asyncio.gather(*self.tasks.values())
        await self.client.ping(timeout=self._deadline)
        if self.client.session_id != self._session:
            self.report.sessions.append("the client had to begin another one")

    async def one(self, job: Job) -> None:
        await perform(job, self._do, self._name_of)

    async def _do(self, job: Job) -> None:
        do = getattr(self, f"_{job.kind}")
        await do(job)

    async def _call(self, job: Job, arguments: dict[str, Any], **more: Any) -> Any:
        result = await self.client.call_tool(
            tool_of(job),
            arguments,
            timeout=job.deadline,
            max_timeout=job.deadline,
            raise_on_error=True,
            **more,
        )
        return result.data

    async def _add(self, job: Job) -> None:
        expect(str(await self._call(job, {"a": len(job.key), "b": 1})), str(len(job.key) + 1))

    async def _list(self, job: Job) -> None:
        names = [tool.name for tool in await self.client.list_tools(fresh=True)]
        expect(any(name.endswith("record") for name in names), True)

    async def _read(self, job: Job) -> None:
        result = await self.client.read_resource(job.board, timeout=job.deadline)
        expect(result.text.partition(" ")[0], job.board.rpartition("/")[2])

    async def _record(self, job: Job) -> None:
        expect(await self._call(job, {"key": job.key}), job.key)

    _announce = _record

    async def _post(self, job: Job) -> None:
        expect(await self._call(job, {"key": job.key, "board": job.board}), job.key)

    async def _slow(self, job: Job) -> None:
        seen: list[float] = []

        def progress(value: float, total: float | None, message: str | None) -> None:
            seen.append(value)

        expect(await self._call(job, {"key": job.key}, on_progress=progress), job.key)
        expect(seen, [1, 2, 3, 4, 5])

    async def _order(self, job: Job) -> None:
        expect(await self._call(job, {"key": job.key}), f"3 for {job.key}")

    async def _voyage(self, job: Job) -> None:
        task = await self.client.start_task(tool_of(job), {"key": job.key}, timeout=job.deadline)
        self.tasks[job.key] = asyncio.create_task(self._follow(job, task.id))

    _errand = _voyage

    async def _follow(self, job: Job, id: str) -> None:
        whole = Job(job.client, "task", job.key, TASK_LIMIT)
        self.report.jobs.append(whole)
        await perform(whole, lambda _: self._wait(whole, id), name_of)

    async def _wait(self, job: Job, id: str) -> None:
        """Whoever waits waits once, and is told what came of the task, whatever happens to the fleet meanwhile."""
        task = self.client.task(id)
        try:
            expect((await task.result(job.deadline)).data, job.key)
        except TransportError as error:
            raise Misled(f"{name_of(error)}: {error}") from None
        except CallError as error:
            if task.status == "failed":
                raise Failed(str(error)) from None
            raise Misled(f"{name_of(error)}, and the task is {task.status}: {error}") from None


class Failed(Error):
    """The task came to an end, and not a good one."""


class Misled(Error):
    """Somebody who waited for a task was told something else than what came of it."""


@asynccontextmanager
async def client_load(url: str, era: Literal["modern", "legacy"], deadline: float, **more: Any) -> AsyncIterator[Load]:
    """A client that listens to changes and answers questions; ready when entered. `more` is for `Load`."""
    report = Report(era)

    def answer(ask: Any) -> Any:
        return ask.accept({"count": 3})

    async def listen(client: Client) -> None:
        async with client.listen(tools=True, resources=BOARDS) as changes:
            listening.set()
            async for change in changes:
                report.heard.append((time.time(), change.uri or ("tools" if change.kind == "tools" else "again")))

    listening = asyncio.Event()
    async with connect(url, era=era, on_elicit=answer, timeout=deadline) as client:
        listener = asyncio.create_task(listen(client))
        try:
            async with asyncio.timeout(deadline):
                await listening.wait()
            yield Load(client, report, deadline, **more)
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)
