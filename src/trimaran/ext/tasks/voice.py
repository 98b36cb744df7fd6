"""How a task speaks while nobody holds a request open for it: not at all, except to ask.

A question parks the task as `input_required` until its answer is brought by `tasks/update` (2026-07-28), or until somebody
comes for the result and can be asked (2025-11-25). Progress becomes the status message. Steps run once, since the body does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, final

from trimaran.errors import Disconnected, ProtocolError
from trimaran.protocol.inbound import Call
from trimaran.server.exchange import SENT, Exchange, Voice
from trimaran.server.rounds import ASKABLE

from .keeper import Keeper
from .model import Task

__all__ = ["TaskSink", "TaskVoice"]


@final
class TaskSink:
    """Where a task's messages go: to the session that it belongs to, or nowhere. It has no stream of its own."""

    def __init__(self, session: Any = None) -> None:
        self._session = session

    def send(self, data: bytes) -> Awaitable[None]:
        if self._session is not None and not self._session.closed:
            self._session.outlet.put(data)
        return SENT


@final
class TaskVoice:
    """The voice of the request until the task is on its own, then the task's."""

    def __init__(self, inner: Voice, keeper: Keeper, begin: Callable[[], Task], *, modern: bool = False) -> None:
        self._inner = inner
        self._is_modern = modern
        self._keeper = keeper
        self._begin = begin
        self._count = 0
        self._answers: dict[str, asyncio.Future[Any]] = {}
        self._used: set[str] = set()
        self._loop = asyncio.get_running_loop()
        self.task: Task | None = None
        self.detached = self._loop.create_future()

    def detach(self) -> Task:
        """From here on nobody waits for the answer on the request itself."""
        if self.task is None:
            self.task = self._begin()
            self.detached.set_result(None)
        return self.task

    def answer(self, answers: Mapping[str, Any]) -> None:
        """Answers by key; what was not asked, or has been answered, is passed over."""
        task = self.task
        if task is None:
            return
        for key, answer in answers.items():
            waiting = self._answers.get(key)
            if waiting is not None and not waiting.done():
                if isinstance(answer, ProtocolError):
                    waiting.set_exception(answer)
                else:
                    waiting.set_result(answer)
                self._withdraw(task, key)

    def _withdraw(self, task: Task, key: str) -> None:
        """A question is answered, or nobody waits for its answer any more."""
        self._answers.pop(key, None)
        if task.is_over or key not in task.inputs:
            return
        inputs = {name: request for name, request in task.inputs.items() if name != key}
        self._keeper.move(task, "input_required" if inputs else "working", task.message, inputs=inputs)

    async def ask(
        self, exchange: Exchange, method: str, params: dict[str, Any], key: str | None, timeout: float | None
    ) -> Any:
        if self.task is None:
            return await self._inner.ask(exchange, method, params, key, timeout)
        task = self.task
        if task.is_over:
            raise Disconnected("the task is over; its client can no longer be asked")
        if self._is_modern and method not in ASKABLE:
            raise ProtocolError.internal_error(
                f"{method} cannot be asked in a task: a client answers only {', '.join(sorted(ASKABLE))}"
            )
        self._count += 1
        key = key or f"{method}-{self._count}"
        if key in self._answers:
            raise ProtocolError.internal_error(
                f"two questions of one task have the key {key!r}; give each its own key="
            )
        if key in self._used:
            key = f"{key}-{self._count}"  # a client passes over a key that it has answered
        self._used.add(key)
        waiting = self._answers[key] = self._loop.create_future()
        inputs = {**task.inputs, key: {"method": method, "params": params}}
        self._keeper.move(task, "input_required", task.message, inputs=inputs)
        try:
            return await waiting
        finally:
            self._withdraw(task, key)

    async def step(self, exchange: Exchange, name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        return await (self._inner.step(exchange, name, run) if self.task is None else run())

    def note(self, message: str) -> None:
        """How it goes, whether or not a token was given for it. A plain `def` tool says it from a thread of its own."""
        if self.task is None:
            return
        if _is_current(self._loop):
            self._keeper.move(self.task, self.task.status, message)
        else:
            self._loop.call_soon_threadsafe(self.note, message)

    # What a request's own voice does

    def notification(self, method: str, params: dict[str, Any]) -> bytes:
        if method == "notifications/progress" and isinstance(params.get("message"), str):
            self.note(params["message"])
        return self._inner.notification(method, params)

    def result(self, call: Call, result: Any) -> bytes:
        return self._inner.result(call, result)

    def error(self, call: Call, error: ProtocolError) -> bytes:
        return self._inner.error(call, error)

    def logs(self, exchange: Exchange, level: str) -> bool:
        return self.task is None and self._inner.logs(exchange, level)

    def open_rounds(self, exchange: Exchange) -> None:
        self._inner.open_rounds(exchange)

    def suspended(self, exchange: Exchange) -> Any:
        return None if self.task is not None else self._inner.suspended(exchange)

    def bad_arguments(self, message: str) -> Any:
        return self._inner.bad_arguments(message)

    def lacks(self, capability: str, required: dict[str, Any]) -> ProtocolError:
        return self._inner.lacks(capability, required)


def _is_current(loop: asyncio.AbstractEventLoop) -> bool:
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
