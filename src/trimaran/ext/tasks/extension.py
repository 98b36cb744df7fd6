"""The tasks extension of 2026-07-28 and the tasks of 2025-11-25, over one keeper (protocol.md 5.1, 5.2).

It wraps `tools/call`: a tool declared `long_running` becomes a task for a client that understands tasks, and stays an
ordinary call for any other (C22). The body runs in a task of its own from the beginning, so that the request can be
answered, or left, while it goes on.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Final, cast, final

import msgspec
from msgspec import UNSET, Raw, UnsetType, field

from trimaran.errors import (
    CODE_METHOD_NOT_FOUND,
    CODE_MISSING_CAPABILITY,
    DeclarationError,
    MissingCapability,
    ProtocolError,
    ToolError,
)
from trimaran.protocol.inbound import Call
from trimaran.protocol.methods import Method, extend
from trimaran.protocol.versions import V2025_11
from trimaran.server.access import identity, is_hidden
from trimaran.server.dispatch import Serve
from trimaran.server.exchange import Exchange
from trimaran.server.flights import timed_out
from trimaran.server.handlers import incident
from trimaran.server.results import call_result, error_result
from trimaran.types import CallToolResult, ListParams, Params

from .keeper import Keeper
from .model import EXTENSION, RELATED, Task, legacy_form, modern_form
from .voice import TaskSink, TaskVoice

if TYPE_CHECKING:
    from trimaran.server.server import Server

__all__ = ["Tasks"]

_PAGE: Final = 100
_STATUS: Final = "notifications/tasks/status"


class _TaskParams(Params, frozen=True, kw_only=True):
    task_id: str


class _UpdateParams(Params, frozen=True, kw_only=True):
    task_id: str
    input_responses: Raw | UnsetType = UNSET


class _Wish(msgspec.Struct, frozen=True):
    """What a 2025-11-25 client says beside the arguments: it wants a task."""

    ttl: Annotated[int, msgspec.Meta(ge=1)] | None = field(default=None)


@final
class Tasks:
    """Tasks for a server's long-running tools, and for the host's own work (R73-R81).

    Args:
        ttl: seconds a task is promised to be kept, from its beginning; None without end.
        poll: seconds a client should let pass between two looks.
        most_per_caller: how many tasks of one caller are kept.
    """

    def __init__(self, *, ttl: float | None = 3600.0, poll: float = 1.0, most_per_caller: int = 1000) -> None:
        self.keeper = Keeper(ttl=ttl, poll=poll, most_per_owner=most_per_caller, on_change=self._changed)
        self.running: dict[str, _Run] = {}
        self._sessions: dict[str, Any] = {}
        self._server: Server | None = None

    def __len__(self) -> int:
        return len(self.keeper)

    def attach(self, server: Server) -> None:
        """Serve tasks on this server."""
        if server.has_extension(EXTENSION):
            raise DeclarationError(
                "tasks are on already: enable_extension(Tasks(...)) comes before the first long_running tool"
            )
        self._server = server
        server.enable_extension(EXTENSION, {}, self._methods(), modern_only=True)
        server.legacy_capabilities["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        server.dispatcher.use(self._around, frozenset({"tools/call"}))
        server.dispatcher.use(self._around_listen, frozenset({"subscriptions/listen"}))
        server.changes.announcers["task"] = self._announce
        server.on_stop.append(self.close)

    def _methods(self) -> list[tuple[Method, Serve]]:
        def by_id(name: str, **more: Any) -> Method:
            return extend(name, _TaskParams, since=V2025_11, routing_name="task_id", **more)

        update = extend("tasks/update", _UpdateParams, routing_name="task_id")
        listing = extend("tasks/list", ListParams, modern=False, since=V2025_11)
        return [
            (by_id("tasks/get"), self._get),
            (by_id("tasks/cancel"), self._cancel),
            (update, self._update),
            (by_id("tasks/result", modern=False), self._result),
            (listing, self._list),
        ]

    # --- beginning

    async def _around(self, call: Call, call_next: Serve, /) -> Any:
        server = self._server
        assert server is not None
        entry = server.tools.view.get(call.params.name)
        if entry is not None and is_hidden(entry, call.principal):
            entry = None
        support = entry.long_running if entry is not None else False
        if support and entry is not None and entry.is_gated:
            server.dispatcher.tools.gate(entry, call)  # before anything is made of it
        wish = _wish(call)
        is_wanted = wish is not None if not call.modern else call.peer.extension(EXTENSION) is not None
        if wish is not None and not support:
            raise ProtocolError(CODE_METHOD_NOT_FOUND, f"{call.params.name[:200]!r} does not run as a task", status=200)
        if not is_wanted or not support:
            if support == "required":
                raise _required(call)
            return await call_next(call)
        assert entry is not None
        run = _Run(self, call, call_next, wish.ttl if wish is not None else None, entry.timeout)
        # Who asks for a task gets one, whatever the body would do.
        return await run.begin(at_once=support != "on_detach" or wish is not None)

    async def _around_listen(self, call: Call, call_next: Serve, /) -> Any:
        if call.params.notifications.task_ids and call.peer.extension(EXTENSION) is None:
            raise _required(call)
        return await call_next(call)

    def owner_of(self, call: Call) -> Any:
        """Whose a call's tasks are: the caller's; without authentication the session's, or whoever knows the id."""
        if call.principal is not None:
            return identity(call.principal)
        return ("session", call.session.id) if call.session is not None and call.session.id else None

    def create(self, call: Call, name: str, ttl_ms: int | None) -> Task:
        task = self.keeper.create(self.owner_of(call), name, ttl_ms)
        if call.session is not None:
            self._sessions[task.id] = call.session
        return task

    # --- the methods

    def _find(self, call: Call) -> Task:
        if call.modern and call.peer.extension(EXTENSION) is None:
            raise _required(call)
        return self.keeper.find(call.params.task_id, self.owner_of(call))

    async def _get(self, call: Call) -> dict[str, Any]:
        task = self._find(call)
        return modern_form(task, details=True) if call.modern else legacy_form(task)

    async def _cancel(self, call: Call) -> dict[str, Any]:
        task = self._find(call)
        if task.is_over and not call.modern:
            raise ProtocolError.invalid_params(f"the task {task.id} has ended as {task.status}: it cannot be cancelled")
        self.end(task, "cancelled", "it was cancelled by its client")
        return {} if call.modern else legacy_form(task)

    async def _update(self, call: Call) -> dict[str, Any]:
        task = self._find(call)
        raw = call.params.input_responses
        answers: Any = {} if raw is UNSET else msgspec.json.decode(raw)
        if not isinstance(answers, dict):
            raise ProtocolError.invalid_params("inputResponses is an object of answers by key")
        run = self.running.get(task.id)
        if run is not None:
            run.voice.answer(cast("Mapping[str, Any]", answers))
        return {}

    async def _list(self, call: Call) -> dict[str, Any]:
        owner = self.owner_of(call)
        # Without a session and a name there is no telling whose they are: nobody's are listed.
        mine = () if owner is None else self.keeper.of(owner)
        tasks = sorted(mine, key=lambda task: (task.created_at, task.id))
        ids = [task.id for task in tasks]
        cursor: str | None = call.params.cursor
        if cursor is not None and cursor not in ids:
            raise ProtocolError.invalid_params("the cursor is unknown; begin without one")
        start = ids.index(cursor) + 1 if cursor is not None else 0
        page = tasks[start : start + _PAGE]
        found: dict[str, Any] = {"tasks": [legacy_form(task) for task in page]}
        if start + _PAGE < len(tasks):
            found["nextCursor"] = page[-1].id
        return found

    async def _result(self, call: Call) -> Any:
        """Wait for the end (R81). Whoever waits here is asked what the task wants to know."""
        task = self._find(call)
        call.timeout = float("inf")
        asking: dict[str, asyncio.Task[None]] = {}
        try:
            while not task.is_over:
                for key, request in task.inputs.items():
                    if key not in asking:
                        asking[key] = asyncio.ensure_future(self._put(call, task, key, request))
                await self.keeper.changed(task)
        finally:
            for one in asking.values():
                one.cancel()
            if asking:
                await asyncio.wait(asking.values())
        if task.error is not None:
            raise task.error
        if task.status == "cancelled":
            raise ProtocolError.invalid_params(f"the task {task.id} was cancelled")
        return _related(task)

    async def _put(self, call: Call, task: Task, key: str, request: dict[str, Any]) -> None:
        params = {**request["params"], "_meta": {RELATED: {"taskId": task.id}}}
        try:
            answer = await call.exchange.voice.ask(call.exchange, request["method"], params, None, None)
        except ProtocolError as error:
            answer = error  # the body's to deal with, as on a plain call
        run = self.running.get(task.id)
        if run is not None:
            run.voice.answer({key: answer})

    # --- the end

    def end(self, task: Task, status: Any, message: str | None = None, error: ProtocolError | None = None) -> bool:
        """End a task from outside its own body, which is cancelled."""
        is_first = self.keeper.move(task, status, message, error=error)
        run = self.running.get(task.id)
        if run is not None and is_first:
            run.cancel()
        return is_first

    async def close(self) -> None:
        """The server stops. What lives in its memory ends with it, and says so."""
        runs = tuple(self.running.values())
        stopped = ProtocolError.internal_error("the server stopped before the task was done")
        for run in runs:
            if run.voice.task is not None:
                self.end(run.voice.task, "failed", stopped.message, stopped)
            run.cancel()  # also one that has swallowed it before
        tasks = [run.body for run in runs if run.body is not None]
        if tasks:
            await asyncio.wait(tasks, timeout=2.0)

    # --- telling

    def _changed(self, task: Task) -> None:
        server = self._server
        if server is None:
            return
        server.changes.publish("task", task.id)
        session = self._sessions.get(task.id)
        if session is not None:
            if not session.closed:
                session.send(_STATUS, legacy_form(task))
            if task.is_over:
                self._sessions.pop(task.id, None)

    def _announce(self, id: str, call: Call) -> tuple[str, dict[str, Any]] | None:
        """What a listen stream is told of a task; None if it is none of its business."""
        if call.peer.extension(EXTENSION) is None:
            return None
        try:
            task = self.keeper.find(id, self.owner_of(call))
        except ProtocolError:
            return None
        return "notifications/tasks", modern_form(task, details=True)

    # --- for the host (R78)

    def begin(self, name: str, *, owner: Any = None, ttl: float | None = None) -> str:
        """Begin a task whose work is done elsewhere; its id. `owner` is the principal that may see it."""
        who = None if owner is None else identity(owner)
        return self.keeper.create(who, name, None if ttl is None else round(ttl * 1000)).id

    def finish(self, id: str, result: Any) -> bool:
        """It is done, with what a tool would return. False if it had ended before."""
        return self.keeper.move(self.keeper.get(id), "completed", result=call_result(result, None))

    def fail(self, id: str, reason: str) -> bool:
        """It failed, for this reason."""
        error = ProtocolError.internal_error(reason)
        return self.end(self.keeper.get(id), "failed", reason, error)

    def cancel(self, id: str, reason: str | None = None) -> bool:
        """It is not wanted any more."""
        return self.end(self.keeper.get(id), "cancelled", reason)


@final
class _Run:
    """One tool call that is, or may become, a task."""

    body: asyncio.Task[Any] | None = None

    def __init__(self, tasks: Tasks, call: Call, call_next: Serve, ttl_ms: int | None, timeout: float | None) -> None:
        self._tasks = tasks
        self._timeout = timeout
        self._call_next = call_next
        # The request's own exchange ends with its answer; what goes on has one to itself.
        self._call = copy.copy(call)
        self._ttl_ms = ttl_ms
        self.voice = TaskVoice(call.exchange.voice, tasks.keeper, self._begin_task, modern=call.modern)
        self._exchange = Exchange(self._call, TaskSink(call.session), self.voice)
        self._outer = call.exchange

    def _begin_task(self) -> Task:
        task = self._tasks.create(self._call, self._call.params.name, self._ttl_ms)
        self._tasks.running[task.id] = self
        return task

    async def begin(self, *, at_once: bool) -> Any:
        """The answer to the request: the task, or what came of it before it became one."""
        if at_once:
            self.voice.detach()
        else:
            self._exchange.sink = self._outer.sink
        self.body = asyncio.ensure_future(self._run())
        self.body.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may be waiting
        self._exchange.task = self.body
        try:
            await asyncio.wait((self.body, self.voice.detached), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if self.voice.task is None:
                self.cancel()
            raise
        task = self.voice.task
        if task is None:
            return self.body.result()
        self._exchange.sink = TaskSink(self._call.session)
        if self._call.modern:
            return {"resultType": "task", **modern_form(task, details=False)}
        return {"task": legacy_form(task)}

    def cancel(self) -> None:
        self._exchange.cancelled = True
        if self.body is not None:
            self.body.cancel()

    async def _run(self) -> Any:
        scope = asyncio.timeout(self._timeout)
        try:
            async with scope:
                result = await self._call_next(self._call)
        except ProtocolError as error:
            if self.voice.task is None:
                raise
            self._finish("failed", error.message, error=error)
        except ToolError as error:  # of middleware; a tool's own are results already
            if self.voice.task is None:
                raise
            self._finish("completed", result=error_result(error))
        except TimeoutError as error:
            late = timed_out(self._call) if scope.expired() else error
            if self.voice.task is None or not isinstance(late, ProtocolError):
                raise late from None
            self._finish("failed", late.message, error=late)
        except asyncio.CancelledError:
            if self.voice.task is None:
                raise
            self._finish("cancelled")
        except Exception as error:
            if self.voice.task is None:
                raise
            number = incident(f"task {self._call.params.name!r}", error)
            failure = ProtocolError.internal_error(f"internal error (error {number})")
            self._finish("failed", failure.message, error=failure)
        else:
            if self.voice.task is None:
                return result
            self._finish("completed", result=result)
        return None

    def _finish(self, status: Any, message: str | None = None, **changes: Any) -> None:
        task = self.voice.task
        assert task is not None
        self._tasks.keeper.move(task, status, message, **changes)
        self._tasks.running.pop(task.id, None)
        self._exchange.end()


def _wish(call: Call) -> _Wish | None:
    """Does a 2025-11-25 client ask for a task? What a modern one says by the same name means nothing."""
    raw = UNSET if call.modern or call.peer.version != V2025_11 else call.params.task
    if raw is UNSET:
        return None
    try:
        return msgspec.json.decode(raw, type=_Wish)
    except msgspec.ValidationError as error:
        raise ProtocolError.invalid_params(f"task: {error}") from None


def _required(call: Call) -> ProtocolError:
    if not call.modern:
        return ProtocolError(CODE_METHOD_NOT_FOUND, "this runs only as a task; send `task` along", status=200)
    return MissingCapability(
        CODE_MISSING_CAPABILITY,
        f"this needs the client to declare the extension {EXTENSION!r}",
        {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
    )


def _related(task: Task) -> Any:
    """The very result of the call, marked with the task it came from."""
    mark = {RELATED: {"taskId": task.id}}
    result = task.result
    if isinstance(result, CallToolResult):
        meta = result.meta if isinstance(result.meta, Mapping) else {}
        return msgspec.structs.replace(result, meta={**meta, **mark})
    return result
