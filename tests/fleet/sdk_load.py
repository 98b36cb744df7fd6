# pyright: reportMissingImports=false
"""The official Python SDK's client at work on the fleet, run by `.tools/peers/sdk`:

    sdk_load.py URL COUNT HANDS DEADLINE REPORT [KINDS]

It opens a legacy session, says `ready`, calls until it has made COUNT calls and a line has come on stdin, says `done`, waits
for another line, makes one last call in the session it has then, hears out what is still said, and writes its report.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
import warnings
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
from jobs import BOARDS, WEIGHTS, Job, Report, expect, perform, plan, work
from mcp import Client
from mcp.shared.exceptions import MCPError

warnings.simplefilter("ignore")  # the SDK deprecates the legacy methods as they are used


def say(word: str) -> None:
    print(word, flush=True)


def name_of(error: Any) -> str:
    if not isinstance(error, MCPError):
        return type(error).__name__
    words = error.message.lower()
    if "session" in words and ("terminated" in words or "does not exist" in words):
        return "session lost"
    return f"refused {error.code}"


class Ears(logging.Handler):
    """The SDK gives up the session's own stream when it has broken twice, and says so nowhere else."""

    def __init__(self, report: Report) -> None:
        super().__init__(logging.DEBUG)
        self.report = report

    def emit(self, record: logging.LogRecord) -> None:
        if "max reconnection attempts" in record.getMessage() and "GET" in record.getMessage():
            self.report.deaf_since = self.report.deaf_since or time.time()


class Load:
    def __init__(self, url: str, deadline: float) -> None:
        self.url = url
        self.deadline = deadline
        self.report = Report("sdk")
        self.client: Any = None
        logger = logging.getLogger("mcp.client.streamable_http")
        logger.setLevel(logging.DEBUG)
        logger.propagate = False
        logger.addHandler(Ears(self.report))

    async def elicit(self, context: Any, params: Any) -> Any:
        return types.ElicitResult(action="accept", content={"count": 3})

    async def hear(self, message: Any) -> None:
        method = getattr(message, "method", "")
        if method == "notifications/tools/list_changed":
            self.report.heard.append((time.time(), "tools"))
        elif method == "notifications/resources/updated":
            self.report.heard.append((time.time(), str(message.params.uri)))

    def open(self) -> Any:
        return Client(
            self.url,
            mode="legacy",
            elicitation_callback=self.elicit,
            message_handler=self.hear,
            read_timeout_seconds=self.deadline,
            client_info=types.Implementation(name="sdk-load", version="1"),
        )

    async def one(self, job: Job) -> None:
        await perform(job, self.do, name_of)

    async def do(self, job: Job) -> None:
        client = self.client
        if job.kind == "list":
            names = [tool.name for tool in (await client.list_tools()).tools]
            expect("record" in names, True)
        elif job.kind == "read":
            contents = (await client.read_resource(job.board)).contents
            expect(contents[0].text.partition(" ")[0], job.board.rpartition("/")[2])
        elif job.kind == "add":
            expect(await self.call(job, {"a": len(job.key), "b": 1}), str(len(job.key) + 1))
        elif job.kind == "slow":
            seen: list[float] = []

            async def progress(value: float, total: float | None, message: str | None) -> None:
                seen.append(value)

            expect(await self.call(job, {"key": job.key}, progress_callback=progress), job.key)
            expect(seen, sorted(set(seen)))  # the SDK may return before all of it was heard
        elif job.kind == "order":
            expect(await self.call(job, {"key": job.key}), f"3 for {job.key}")
        elif job.kind == "post":
            expect(await self.call(job, {"key": job.key, "board": job.board}), job.key)
        else:  # the SDK knows no tasks: it waits for what others come back for
            expect(await self.call(job, {"key": job.key}), job.key)

    async def call(self, job: Job, arguments: dict[str, Any], **more: Any) -> Any:
        result = await self.client.call_tool(job.kind, arguments, job.deadline, **more)
        if result.is_error:
            raise RuntimeError(result.content[0].text)
        return result.content[0].text


async def main(url: str, count: int, hands: int, deadline: float, path: Path, kinds: list[str]) -> None:
    load = Load(url, deadline)
    report = load.report
    jobs = plan("sdk", deadline, kinds=kinds)
    lines = 0
    heard = asyncio.Event()
    loop = asyncio.get_running_loop()

    def came() -> None:
        nonlocal lines
        lines += 1
        heard.set()

    def listen() -> None:
        for _ in sys.stdin:
            loop.call_soon_threadsafe(came)

    threading.Thread(target=listen, daemon=True).start()

    def is_enough() -> bool:
        return len(report.jobs) >= count and lines >= 1

    is_first = True
    while True:
        try:
            async with load.open() as load.client:
                for uri in BOARDS:
                    await load.client.subscribe_resource(uri)
                if is_first:
                    say("ready")
                    is_first = False
                await work(report, jobs, hands, is_enough, load.one)
                say("done")
                while lines < 2:
                    heard.clear()
                    await heard.wait()
                last = Job("sdk", "add", "sdk-last-0", deadline)
                report.jobs.append(last)
                await load.one(last)
                while (
                    report.deaf_since is None and time.time() - max([last.ended, *(at for at, _ in report.heard)]) < 2
                ):
                    await asyncio.sleep(0.1)  # it may be on its way back to its stream
                break
        except* Exception as errors:
            if is_first or (len(report.jobs) and report.jobs[-1].key == "sdk-last-0"):
                raise
            report.sessions.append("; ".join(_words(errors)))
            report.deaf_since = None
            await asyncio.sleep(0.25)
    report.write(path)


def _words(error: BaseException) -> list[str]:
    if isinstance(error, BaseExceptionGroup):
        return [word for one in error.exceptions for word in _words(one)]
    return [f"{type(error).__name__}: {error}"[:300]]


if __name__ == "__main__":
    kinds = sys.argv[6].split(",") if len(sys.argv) > 6 else list(WEIGHTS)
    anyio.run(main, sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), Path(sys.argv[5]), kinds)
