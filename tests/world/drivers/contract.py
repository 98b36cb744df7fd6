"""What every driver does: read the target and the calls from the command line, list, call, report as one line of JSON.

Runs in the virtualenv of the framework under test, so it imports the standard library only. A call that raises is a
result too: its text is what the framework's caller is told.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

Caller = Callable[[dict[str, Any]], Any]


class Job:
    """One run: where the server is, which calls to make, what came of it."""

    def __init__(self, text: str) -> None:
        job = json.loads(text)
        self.transport: str = job["transport"]
        self.command: str = job["command"][0] if job["command"] else ""
        self.args: list[str] = job["command"][1:]
        self.url: str = job["url"]
        self.era: str = job["era"]
        self.calls: list[tuple[str, dict[str, Any]]] = [(call["tool"], call["arguments"]) for call in job["calls"]]
        self.tools: list[str] = []
        self.results: list[tuple[str, str]] = []

    @property
    def is_stdio(self) -> bool:
        return self.transport == "stdio"

    async def use(self, tools: Iterable[tuple[str, Caller]]) -> None:
        """Make every call whose tool is listed. A caller may be a coroutine function or a plain one."""
        callers = dict(tools)
        self.tools = list(callers)
        for tool, arguments in self.calls:
            name = next((name for name in callers if _is_name_of(tool, name)), None)
            if name is not None:
                self.results.append((name, await self._call(callers[name], arguments)))

    async def _call(self, caller: Caller, arguments: dict[str, Any]) -> str:
        try:
            result = caller(dict(arguments))
            if inspect.isawaitable(result):
                result = await result
        except Exception as error:
            return describe(error)
        return result if isinstance(result, str) else repr(result)


def describe(error: BaseException) -> str:
    """The error in a line; of a group, its first."""
    return (
        describe(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else f"{type(error).__name__}: {error}"
    )


def main(drive: Callable[[Job], Awaitable[None]]) -> None:
    """Run a driver. What it lists and was told goes out even if the framework fails at the end."""
    job = Job(sys.argv[1])
    error: str | None = None
    try:
        asyncio.run(_whole(drive, job))
    except BaseException as raised:
        traceback.print_exc()
        error = describe(raised)[:600]
    sys.stdout.write("\n" + json.dumps({"tools": job.tools, "results": job.results, "error": error}) + "\n")
    sys.stdout.flush()


async def _whole(drive: Callable[[Job], Awaitable[None]], job: Job) -> None:
    await drive(job)


def _is_name_of(tool: str, name: str) -> bool:
    """Frameworks add prefixes, and replace or drop characters."""
    return _fold(name).endswith(_fold(tool)) or _fold(name).replace("_", "") == _fold(tool).replace("_", "")


def _fold(name: str) -> str:
    return "_" + "".join(character if character.isalnum() else "_" for character in name.lower())
