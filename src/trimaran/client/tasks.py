"""A task on the server, as its caller holds it: wait for it, watch it, end it, or come back to it later.

`await task` is the tool's result, as `call_tool` would have given it. The client's handlers answer the task's
questions, each once. The handle knows nothing but the task's id that the server would not tell again,
so an id that was written down is enough to go on after a restart: `client.task(id)`.

On 2026-07-28 the server is asked again and again, at the pace it wishes for; on 2025-11-25 it is asked once, and answers when
the task is done. A task does not end with the process that was asked. So whoever waits goes on when the connection is lost,
or when the server says that it cannot answer now, and gives up only when that lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from typing import Any, Final, Generic, final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from trimaran.errors import (
    CODE_INTERNAL,
    CODE_INVALID_REQUEST,
    CallError,
    ConnectFailed,
    ConnectionLost,
    Error,
    RemoteProtocolError,
    TimedOut,
    TransportError,
    UnexpectedStatus,
)
from trimaran.protocol.read_reply import excerpt

from .results import D, ToolResult

TASKS: Final = "io.modelcontextprotocol/tasks"
_ENDED: Final = frozenset({"completed", "failed", "cancelled"})
_POLL: Final = (0.02, 60.0)  # seconds between two looks, at least and at most, whatever the server wishes for
_USUAL_POLL: Final = 1.0
# How long whoever waits bears a server that does not answer: longer than a restart takes, or a balancer to notice one.
_TROUBLE_SECONDS: Final = 30.0
_PAUSES: Final = (0.1, 0.3, 1.0, 3.0)
# A request that was open for so long reached a server that was well.
_SETTLED_SECONDS: Final = 5.0
_PASSING: Final = frozenset({502, 503, 504})


class TaskUpdate(Struct, frozen=True):
    """The outcome of a task."""

    status: str
    message: str | None = None


class _Failure(Struct):
    code: int
    message: str
    data: Any = None


class _Wire(Struct, rename="camel"):
    """A task as either protocol spells it."""

    task_id: str
    status: str
    status_message: str | None = None
    poll_interval_ms: float | None = None
    poll_interval: float | None = None
    result: Raw | UnsetType = UNSET
    error: _Failure | None = None
    input_requests: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])


class _Created(Struct):
    task: Raw | UnsetType = UNSET


class _Typed(Struct):
    result_type: str | None = field(name="resultType", default=None)


_decode = msgspec.json.Decoder(_Wire).decode


def read_begun(raw: Raw, *, modern: bool) -> _Wire | None:
    """The task that a call was answered with; None if the answer is a result."""
    try:
        if modern:
            return _read(raw) if msgspec.json.decode(raw, type=_Typed).result_type == "task" else None
        task = msgspec.json.decode(raw, type=_Created).task
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return None if task is UNSET else _read(task)


def _read(raw: Raw) -> _Wire:
    try:
        return _decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RemoteProtocolError(
            CODE_INVALID_REQUEST, f"a task is malformed ({error}): {excerpt(bytes(raw))}"
        ) from None


@final
class TaskClient:
    """The parts of a client that a handle uses."""

    def __init__(
        self,
        call: Callable[..., Awaitable[Raw]],
        ask: Callable[[str, Mapping[str, Any], str], Awaitable[Any]],
        rest: Callable[[Awaitable[None]], Awaitable[None]],
        is_modern: Callable[[], bool],
    ) -> None:
        self.call = call
        self.ask = ask
        self.rest = rest
        self.is_modern = is_modern


@final
class _Silence:
    """Measures how long the server has not answered a caller who waits for a task."""

    def __init__(self, rest: Callable[[Awaitable[None]], Awaitable[None]]) -> None:
        self._rest = rest
        self._since: float | None = None
        self._count = 0

    def is_over(self) -> None:
        self._since, self._count = None, 0

    async def bear(self, error: Error) -> None:
        """Wait a little before the next try; raise the error if it is final or has lasted too long."""
        if not _may_pass(error):
            raise error
        now = asyncio.get_running_loop().time()
        if self._since is None:
            self._since = now
        elif now - self._since > _TROUBLE_SECONDS:
            raise error
        pause = _PAUSES[min(self._count, len(_PAUSES) - 1)]
        self._count += 1
        await self._rest(asyncio.sleep(pause))


def _may_pass(error: Error) -> bool:
    """True if the error says nothing about the task, and another try may succeed."""
    if isinstance(error, CallError):
        return error.code == CODE_INTERNAL
    if isinstance(error, UnexpectedStatus):
        return error.status in _PASSING
    return isinstance(error, (ConnectFailed, ConnectionLost, TimedOut))


@final
class TaskHandle(Generic[D]):
    """One task. Made by `client.start_task(...)` or `client.task(id)`. `TaskHandle[Report]` is one with `into=Report`."""

    def __init__(
        self, asker: TaskClient, id: str, finish: Callable[[Raw], ToolResult[D]], known: _Wire | None = None
    ) -> None:
        self.id = id
        self.status: str = known.status if known is not None else "unknown"
        self.message = known.status_message if known is not None else None
        self._asker = asker
        self._finish = finish
        self._poll = _pace(known)
        self._answered: set[str] = set()
        self._result: ToolResult[D] | None = None

    @classmethod
    def ended(cls, result: ToolResult[D]) -> TaskHandle[D]:
        """A handle for a call that the server answered at once."""
        handle = cls(_NO_CLIENT, "", _never)
        handle.status = "completed"
        handle._result = result
        return handle

    def __repr__(self) -> str:
        return f"<TaskHandle {self.id} {self.status}>"

    def __await__(self) -> Generator[Any, None, ToolResult[D]]:
        return self.result().__await__()

    @property
    def is_over(self) -> bool:
        return self.status in _ENDED

    async def result(self, timeout: float | None = None) -> ToolResult[D]:
        """Wait for the end: the tool's result.

        Raises:
            CallError: it failed, or was cancelled.
            TimedOut: it did not end in time; it goes on, and can be waited for again.
        """
        scope = asyncio.timeout(timeout)
        try:
            async with scope:
                return await self._wait()
        except TimeoutError:
            if not scope.expired():
                raise
            raise TimedOut(f"the task {self.id} is {self.status} after {timeout or 0:g} s; it goes on") from None

    async def _wait(self) -> ToolResult[D]:
        if self._result is not None:
            return self._result
        self._result = await self._wait_for_end()
        return self._result

    async def _wait_for_end(self) -> ToolResult[D]:
        if not self._asker.is_modern():
            raw = await self._fetch()
            self.status = "completed"
            return self._finish(raw)
        trouble = _Silence(self._asker.rest)
        while True:
            task = await self._get_patiently(trouble)
            if task.status == "completed":
                if task.result is UNSET:
                    raise RemoteProtocolError(
                        CODE_INVALID_REQUEST, f"the task {self.id} is completed, and the server sent no result"
                    )
                return self._finish(task.result)
            if task.error is not None and task.status == "failed":
                raise CallError(task.error.code, task.error.message, task.error.data)
            if task.status in _ENDED:
                why = f": {task.status_message}" if task.status_message else ""
                raise CallError(CODE_INVALID_REQUEST, f"the task {self.id} was {task.status}{why}")
            await self._asker.rest(asyncio.sleep(self._poll))

    async def _fetch(self) -> Raw:
        """The result, on 2025-11-25: asked for until the answer is about the task, and not about who was asked."""
        trouble = _Silence(self._asker.rest)
        has_ended = False
        while True:
            began = asyncio.get_running_loop().time()
            try:
                return await self._asker.call("tasks/result", {"taskId": self.id}, self.id, timeout=None)
            except CallError as error:
                try:
                    task = await self._get_patiently(_Silence(self._asker.rest))
                except CallError:  # the same error may mean that there is no such task
                    raise error from None
                if has_ended or not _may_pass(error):
                    raise
                # After a failure the next error is the task's own. A completed task has none: only its store was away.
                has_ended = task.status in _ENDED and task.status != "completed"
                if not has_ended:
                    await trouble.bear(error)
            except TransportError as error:
                if asyncio.get_running_loop().time() - began > _SETTLED_SECONDS:
                    trouble.is_over()
                await trouble.bear(error)

    async def _get_patiently(self, trouble: _Silence) -> _Wire:
        """The state of the task; waits while the server does not answer."""
        while True:
            try:
                task = await self._get()
            except (CallError, TransportError) as error:
                await trouble.bear(error)
            else:
                trouble.is_over()
                return task

    async def refresh(self) -> TaskUpdate:
        """Ask the server for the state of the task, and answer the task's questions."""
        if self._result is not None:
            return TaskUpdate(self.status, self.message)
        task = await self._get()
        return TaskUpdate(task.status, task.status_message)

    async def __aiter__(self) -> AsyncGenerator[TaskUpdate, None]:
        """Each change of the status or its message, the end included."""
        last: TaskUpdate | None = None
        trouble = _Silence(self._asker.rest)
        while True:
            if self._result is None:
                await self._get_patiently(trouble)
            update = TaskUpdate(self.status, self.message)
            if update != last:
                last = update
                yield update
            if update.status in _ENDED:
                return
            if update.status == "input_required" and not self._asker.is_modern():
                # Questions of a 2025-11-25 task go to the caller that waits for its result, and to nobody else.
                with contextlib.suppress(CallError):
                    await self._wait()
                continue
            await self._asker.rest(asyncio.sleep(self._poll))

    async def cancel(self) -> None:
        """Ask the server to cancel the task. A task that has ended stays as it is."""
        if self._result is not None:
            return
        try:
            await self._asker.call("tasks/cancel", {"taskId": self.id}, self.id)
        except CallError:
            if not self._asker.is_modern() and (await self._get()).status in _ENDED:
                return  # 2025-11-25 calls that an error
            raise

    async def _get(self) -> _Wire:
        raw = await self._asker.call("tasks/get", {"taskId": self.id}, self.id)
        task = _read(raw)
        self.status, self.message = task.status, task.status_message
        self._poll = _pace(task)
        if task.input_requests:
            await self._answer(task.input_requests)
        return task

    async def _answer(self, requests: Mapping[str, Mapping[str, Any]]) -> None:
        """Each question once, however often it is shown before the server has taken the answer in."""
        for key, request in requests.items():
            if key in self._answered:
                continue
            self._answered.add(key)
            question: Mapping[str, Any] = request.get("params") or {}
            try:
                answer = await self._asker.ask(str(request.get("method")), question, key)
                params = {"taskId": self.id, "inputResponses": {key: answer}}
                await self._asker.call("tasks/update", params, self.id)
            except BaseException:
                self._answered.discard(key)  # whoever waits next answers it
                raise


def _never(*_: Any, **__: Any) -> Any:
    raise AssertionError("the task has ended, so it asks nothing")


_NO_CLIENT: Final = TaskClient(_never, _never, _never, _never)


def _pace(known: _Wire | None) -> float:
    wished = None if known is None else known.poll_interval_ms or known.poll_interval
    seconds = _USUAL_POLL if wished is None else wished / 1000
    return min(max(seconds, _POLL[0]), _POLL[1])
