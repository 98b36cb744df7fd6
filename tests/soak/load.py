"""Users who do a little of everything, for as long as it takes: calls, streams, questions, tasks, and leaving at any moment."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Literal

from tests.support.faults import Connection, call, initialize, legacy_call, legacy_get, legacy_http, modern_http

from trimaran import connect
from trimaran.client import Client
from trimaran.errors import Error

Era = Literal["modern", "legacy"]
STAY = 3.0  # seconds before a client is closed and another one opened: so as many are made as used


class Account:
    """What all users did, and what they were told that they should not have been."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.errors: Counter[str] = Counter()


class User:
    def __init__(self, era: Era, urls: list[str], account: Account, seed: int, *, may_lose: bool = False) -> None:
        self._era: Era = era
        self._urls = urls
        self._account = account
        self._random = random.Random(seed)
        self._may_lose = may_lose
        """The server is killed now and then: lost connections are no fault."""

    async def run(self, goes_on: Callable[[], bool]) -> None:
        while goes_on():
            try:
                async with asyncio.timeout(60), self._connect() as client:
                    leaves_at = time.monotonic() + STAY * self._random.uniform(0.5, 1.5)
                    while goes_on() and time.monotonic() < leaves_at:
                        await self._act(client)
            except (Error, OSError, TimeoutError) as error:
                self._note(error)
                await asyncio.sleep(0.1)
            await self._vanish()

    def _connect(self) -> Client:
        return connect(
            self._random.choice(self._urls), era=self._era, timeout=20, on_elicit=self._answer, on_sample=self._sample
        )

    async def _answer(self, ask: Any) -> Any:
        return ask.accept({"name": "Ada"}) if self._random.random() < 0.8 else ask.decline()

    async def _sample(self, _ask: Any) -> str:
        return "blue"

    async def _act(self, client: Client) -> None:
        name, act = self._random.choice(self._acts())
        try:
            async with asyncio.timeout(30):
                await act(client)
            self._account.done[name] += 1
        except (Error, TimeoutError) as error:
            self._note(error)
        await asyncio.sleep(self._random.uniform(0, 0.02))

    def _note(self, error: BaseException) -> None:
        if not self._may_lose:
            self._account.errors[f"{type(error).__name__}: {error}"[:100]] += 1

    def _acts(self) -> list[tuple[str, Callable[[Client], Any]]]:
        calls = [(name, lambda client, name=name: client.call_tool(name)) for name in ("big", "think", "announce")]
        return [
            *calls,
            ("add", lambda client: client.call_tool("add", {"a": 2, "b": 3})),
            ("add", lambda client: client.call_tool("add", {"a": 2, "b": 3})),
            ("list", lambda client: client.list_tools_all()),
            ("read", lambda client: client.read_resource("soak://page/1")),
            ("report", lambda client: client.call_tool("report", on_progress=lambda *_: None)),
            ("greet", lambda client: client.call_tool("greet")),
            ("praise", lambda client: client.call_tool("praise")),
            ("task", self._task),
            ("cancel", self._cancel),
            ("crowd", self._crowd),
        ]

    async def _task(self, client: Client) -> None:
        task = await client.start_task("voyage")
        if self._random.random() < 0.5:
            await task
        elif self._random.random() < 0.5:
            await task.cancel()

    async def _cancel(self, client: Client) -> None:
        calling = asyncio.create_task(client.call_tool("wait"))
        await asyncio.sleep(self._random.uniform(0, 0.02))
        calling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await calling

    async def _crowd(self, client: Client) -> None:
        await asyncio.gather(*(client.call_tool("add", {"a": number, "b": 1}) for number in range(10)))

    async def _vanish(self) -> None:
        """Leave in the middle of something, without a word, and leave a session behind."""
        port = int(self._random.choice(self._urls).split(":")[2].split("/")[0])
        with contextlib.suppress(OSError, EOFError, TimeoutError):
            connection = await Connection.open(port)
            if self._era == "modern":
                await connection.send(modern_http(call("wait")))
            else:
                reply = await connection.ask(legacy_http(initialize()))
                session = reply.headers.get("mcp-session-id", "")
                message = (
                    legacy_http(legacy_call("wait"), session) if self._random.random() < 0.5 else legacy_get(session)
                )
                await connection.send(message)
            await asyncio.sleep(0.01)
            connection.vanish()
            self._account.done["vanish"] += 1
