"""The tasks extension of 2026-07-28 and the tasks of 2025-11-25, over one model (protocol.md 5.1, 5.2).

The extension wraps `tools/call`. For a client that understands tasks, a tool declared `long_running` becomes a task; for any
other it stays an ordinary call (C22). The body runs in an asyncio task of its own from the beginning, so that the request
can be answered, or abandoned, while the body goes on.

    model.py     a record, and its form in each protocol       records.py     the store of records, and changes to them
    journal.py   the questions and steps of a resumable body   saved_call.py  a call, saved so that it can run again
    voice.py     how a body asks and reports                   run.py         one running body
    scheduler.py all running bodies, and tasks that nobody runs

**Running elsewhere.** `Tasks(runner=...)` gives tasks to a `Runner` instead of running them: `begin(record)` receives a task
that is durable and that nobody runs. Another process, with the same server on the same store and no runner of its own, calls
`run_record(id)`, which claims the task, runs its body to the end, and returns whether it did. However often a task is handed
over or run, its body begins once. After that it is only resumed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, Final, cast, final
from weakref import WeakKeyDictionary, ref

import msgspec
from msgspec import UNSET, Raw, UnsetType, field
from msgspec.structs import replace

from trimaran.durations import check_seconds
from trimaran.errors import (
    CODE_INVALID_PARAMS,
    CODE_METHOD_NOT_FOUND,
    CODE_MISSING_CAPABILITY,
    ConfigError,
    DeclarationError,
    Disconnected,
    MissingCapability,
    ProtocolError,
    TimedOut,
)
from trimaran.fleet import unavailable
from trimaran.protocol.envelope import Envelope, legacy_result
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.journal import require_answer
from trimaran.protocol.methods import Method, extend
from trimaran.protocol.versions import V2025_11
from trimaran.server.access import is_hidden, owner_text
from trimaran.server.dispatch import Serve
from trimaran.server.results import call_result
from trimaran.server.running_calls import ContinuesElsewhere
from trimaran.server.tools import ToolEntry
from trimaran.state.contracts import StoreClosed, StoreError, TaskRecord
from trimaran.transports.caller_address import place_of
from trimaran.types import CallToolResult, ListParams, Params
from trimaran.types.wire import Name

from .journal import JournalFull, JournalReply, read_journal, write_journal
from .model import EXTENSION, RELATED, inputs_of, legacy_form, modern_form, read_error, unknown, write_inputs
from .records import TaskRecords, store_errors
from .run import TaskRun
from .saved_call import RunnerNotes, write_extra, write_origin
from .scheduler import Runner, Scheduler
from .voice import TaskVoice

if TYPE_CHECKING:
    from trimaran.server.server import Server

_PAGE: Final = 100
# How long a client that waits or listens does not notice that the store is away.
_PATIENCE: Final = 30.0
# Tasks that listeners have heard of, to be told again after a gap in the news.
_MOST_HEARD: Final = 10_000


class _TaskParams(Params, frozen=True, kw_only=True):
    task_id: Name


class _UpdateParams(Params, frozen=True, kw_only=True):
    task_id: Name
    input_responses: Raw | UnsetType = UNSET


class _TaskRequest(msgspec.Struct, frozen=True):
    """The `task` member of a 2025-11-25 request: the client wants a task."""

    ttl: Annotated[int, msgspec.Meta(ge=1)] | None = field(default=None)


class _StoredResult(msgspec.Struct, rename="camel"):
    """The parts of a stored tool result that are read again."""

    content: list[Any]
    structured_content: Raw | UnsetType = UNSET
    is_error: bool = False
    meta: dict[str, Any] = field(name="_meta", default_factory=dict[str, Any])


# Weak in both directions: the server holds its extension, which holds the server.
_attached: WeakKeyDictionary[Server, ref[Tasks]] = WeakKeyDictionary()


@final
class Tasks:
    """Tasks for a server's long-running tools, and for the host's own work (R73-R81).

    Args:
        ttl: seconds that a task is kept, from its beginning; None without end.
        poll: seconds a client should let pass between two looks.
        most_per_caller: the most tasks of one caller.
        lease: seconds after which a task whose process is gone, or has lost the store, may be taken by another.
        runner: takes tasks to be run by another process; None runs them in this one.
    """

    def __init__(
        self,
        *,
        ttl: float | None = 3600.0,
        poll: float = 1.0,
        most_per_caller: int = 1000,
        lease: float = 30.0,
        runner: Runner | None = None,
    ) -> None:
        if not 0 < lease < float("inf"):
            raise ConfigError(f"lease must be a positive number of seconds, not {lease!r}")
        for name, value in (("ttl", ttl), ("poll", poll), ("lease", lease)):
            check_seconds(name, value)
        self.records: TaskRecords = TaskRecords(ttl=ttl, poll=poll, most_per_owner=most_per_caller)
        self._scheduler = Scheduler(self.records, lease=float(lease), runner=runner)
        self._changed_ids: dict[str, None] = {}
        self._server: Server | None = None

    @classmethod
    def of(cls, server: Server) -> Tasks | None:
        """The tasks of a server; None if it has none."""
        tasks = _attached.get(server)
        return None if tasks is None else tasks()

    @property
    def runner(self) -> Runner | None:
        """The runner that receives the tasks; None if this process runs them."""
        return self._scheduler.runner

    @runner.setter
    def runner(self, runner: Runner | None) -> None:
        self._scheduler.runner = runner

    @property
    def running(self) -> int:
        """How many bodies run in this process, including those that wait for an answer."""
        return len(self._scheduler.running)

    @property
    def waiting(self) -> int:
        """How many of them wait for an answer of their client."""
        return sum(run.voice.is_asking for run in tuple(self._scheduler.running.values()))

    @property
    def refused(self) -> int:
        """How many tasks of anonymous callers found no room, or gave way, since the start."""
        return self._scheduler.anonymous.refused

    def _shortage(self) -> str | None:
        return "there is no room for more tasks of anonymous callers" if self._scheduler.anonymous.is_full else None

    def attach(self, server: Server) -> None:
        """Serve tasks on this server."""
        if server.has_extension(EXTENSION):
            raise DeclarationError(
                "tasks are on already: enable_extension(Tasks(...)) comes before the first long_running tool"
            )
        self._server = self.records.server = server
        _attached[server] = ref(self)
        server.enable_extension(EXTENSION, {}, self._methods(), modern_only=True)
        server.runtime.legacy_capabilities["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        server.runtime.dispatcher.use(self._around, frozenset({"tools/call"}))
        server.runtime.dispatcher.use(self._around_listen, frozenset({"subscriptions/listen"}))
        server.runtime.changes.announcers["task"] = self._announce
        server.runtime.shortages.append(self._shortage)
        server.runtime.on_start.append(self._start)
        server.runtime.on_stop.append(self.close)

    def _start(self) -> None:
        self._scheduler.start(self._look_again)

    async def close(self) -> None:
        """The server stops. Resumable tasks are left to other processes; the others fail with that reason."""
        await self._scheduler.close()

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

    async def _around(self, call: IncomingCall, call_next: Serve, /) -> Any:
        server = self._server
        assert server is not None
        if isinstance(call.exchange.voice, TaskVoice):
            return await call_next(call)  # a task already, and now its body
        entry = server.tools.view.get(call.params.name)
        if entry is not None and is_hidden(entry, call.principal):
            entry = None
        support = entry.long_running if entry is not None else False
        if support and entry is not None and entry.is_gated:
            server.runtime.dispatcher.tools.gate(entry, call)  # before it is used
        wish = _wish(call)
        is_wanted = wish is not None if not call.modern else call.peer.extension(EXTENSION) is not None
        if wish is not None and not support:
            raise ProtocolError(CODE_METHOD_NOT_FOUND, f"{call.params.name[:200]!r} does not run as a task", status=200)
        if not is_wanted or not support:
            if support == "required":
                raise _required(call)
            return await call_next(call)
        assert entry is not None
        if owner_text(call.principal) != owner_text(call.principal):
            # No caller could ever read such a task.
            if wish is None and support != "required":
                return await call_next(call)
            raise ProtocolError.internal_error(
                "tasks need a caller that can be known again: the principal its authenticator gives has no subject"
            )
        ttl_ms = wish.ttl if wish is not None else None
        # A client that asks for a task gets one, even if the body is quick.
        at_once = support != "on_detach" or wish is not None
        if at_once and self.runner is not None and self.records.is_shared:
            draft = self._draft(call, entry, ttl_ms, is_handed=True)
            return _receipt(call, await self._scheduler.hand(draft, self.runner))
        return await self._run(call, call_next, entry, ttl_ms, at_once=at_once)

    def _draft(
        self, call: IncomingCall, entry: ToolEntry, ttl_ms: int | None, *, is_handed: bool = False
    ) -> TaskRecord:
        more: dict[str, Any] = {}
        if self.records.is_shared and (is_handed or entry.resumable):
            arguments = call.params.arguments
            extra = RunnerNotes(starts=0 if is_handed else 1, is_mortal=ttl_ms is not None, origin=write_origin(call))
            more = {
                "arguments": b"{}" if arguments is UNSET else bytes(arguments),
                "is_resumable": entry.resumable,
                "extra": write_extra(extra),
            }
        session = call.session.id if call.session is not None and call.session.id else ""
        return self.records.draft(entry.key, owner=self.owner_of(call), session=session, ttl_ms=ttl_ms, **more)

    async def _run(
        self, call: IncomingCall, call_next: Serve, entry: ToolEntry, ttl_ms: int | None, *, at_once: bool
    ) -> Any:
        """The answer to the request: the task, or the result if the body ended before."""

        def draft(run: TaskRun) -> TaskRecord:
            record = self._draft(run.call, entry, ttl_ms)
            try:
                return replace(record, journal=write_journal(run.voice.early)) if record.is_resumable else record
            except JournalFull as error:
                raise ProtocolError.internal_error(str(error)) from None

        is_resumable = entry.resumable and self.records.is_shared
        outer = call.exchange
        run = TaskRun(
            self._scheduler,
            call,
            call_next,
            outer.voice,
            draft,
            timeout=entry.task_timeout,
            is_resumable=is_resumable,
            is_mortal=ttl_ms is not None,
            place=place_of(getattr(outer.sink, "address", None)),
        )
        if at_once:
            await run.voice.detach()
        else:
            run.exchange.sink = outer.sink
            outer.limit(inf)  # the body has its own limit, and the request waits for it
        body = run.begin()
        try:
            await asyncio.wait((body, run.voice.detached), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            if run.record is None:
                run.cancel()
            raise
        record = run.record
        if record is None:
            return body.result()
        return _receipt(call, record)

    async def _around_listen(self, call: IncomingCall, call_next: Serve, /) -> Any:
        if call.params.notifications.task_ids and call.peer.extension(EXTENSION) is None:
            raise _required(call)
        return await call_next(call)

    def owner_of(self, call: IncomingCall) -> str:
        """The owner of a call's tasks: the caller. Without authentication the session, or anybody who knows the id."""
        if call.principal is not None:
            return owner_text(call.principal)
        return f"session:{call.session.id}" if call.session is not None and call.session.id else ""

    # --- the methods

    async def _find(self, call: IncomingCall) -> TaskRecord:
        if call.modern and call.peer.extension(EXTENSION) is None:
            raise _required(call)
        with store_errors():
            await self.records.ready()
            record = await self.records.find(call.params.task_id, self.owner_of(call))
        self._look_after(record)
        return record

    def _look_after(self, record: TaskRecord) -> None:
        """Resume a task that waits for input, if nobody runs it: the search for tasks does not find it."""
        if record.status != "input_required" or not self.records.is_shared:
            return
        if record.lease_ms <= self.records.now_ms() and self._scheduler.may_take(record):
            self._scheduler.deal(record)

    async def _get(self, call: IncomingCall) -> dict[str, Any]:
        record = await self._find(call)
        return modern_form(record, details=True) if call.modern else legacy_form(record)

    async def _cancel(self, call: IncomingCall) -> dict[str, Any]:
        record = await self._find(call)
        ended = None
        if not record.is_terminal:
            with store_errors():
                ended = await self._end(record.id, "cancelled", "it was cancelled by its client")
        if ended is None and not call.modern:
            with store_errors():
                record = await self.records.get(record.id)
            raise ProtocolError.invalid_params(
                f"the task {record.id} has ended as {record.status}: it cannot be cancelled"
            )
        return {} if ended is None or call.modern else legacy_form(ended)

    async def _update(self, call: IncomingCall) -> dict[str, Any]:
        record = await self._find(call)
        raw = call.params.input_responses
        answers: Any = {} if raw is UNSET else msgspec.json.decode(raw)
        if not isinstance(answers, dict):
            raise ProtocolError.invalid_params("inputResponses is an object of answers by key")
        for key, answer in cast("Mapping[str, Any]", answers).items():
            require_answer(key, answer)
        replies = {key: JournalReply(answer) for key, answer in cast("Mapping[str, Any]", answers).items()}
        with store_errors():
            await self._answer(record.id, replies)
        return {}

    async def _answer(self, id: str, replies: Mapping[str, JournalReply]) -> None:
        """Store answers by key. Answers to no open question are ignored."""

        def answered(record: TaskRecord) -> TaskRecord | None:
            inputs = inputs_of(record)
            accepted = {key: reply for key, reply in replies.items() if inputs.pop(key, None) is not None}
            if not accepted:
                return None
            journal = read_journal(record.journal)
            return self.records.moved(
                record,
                "input_required" if inputs else "working",
                inputs=write_inputs(inputs),
                journal=write_journal(replace(journal, answers={**journal.answers, **accepted})),
            )

        try:
            await self.records.change(id, answered)
        except JournalFull as error:
            raise ProtocolError.invalid_params(f"the answer cannot be kept: {error}") from None
        run = self._scheduler.running.get(id)
        if run is not None:
            await run.refresh()

    async def _list(self, call: IncomingCall) -> dict[str, Any]:
        with store_errors():
            await self.records.ready()
            page = await self.records.page(self.owner_of(call), call.params.cursor, _PAGE)
        result: dict[str, Any] = {"tasks": [legacy_form(record) for record in page.tasks]}
        if page.cursor is not None:
            result["nextCursor"] = page.cursor
        return result

    async def _result(self, call: IncomingCall) -> Any:
        """Wait for the end (R81). The waiting client is asked the questions of the task."""
        call.exchange.limit(float("inf"))
        closings = self._scheduler.closings
        record = await self._find(call)
        asking: dict[str, asyncio.Task[None]] = {}
        is_leaving = False

        def leave() -> None:
            nonlocal is_leaving
            is_leaving = True
            bell.set()

        try:
            with self.records.watch(record.id) as bell:
                if not record.is_terminal and await self._can_leave(call, record.id):
                    call.exchange.on_close = leave
                while not (record := await self._again(record.id, bell)).is_terminal:
                    for key, request in inputs_of(record).items():
                        if key not in asking:
                            asking[key] = asyncio.ensure_future(self._put(call, record.id, key, request))
                            asking[key].add_done_callback(lambda _: bell.set())
                    for task in asking.values():
                        if task.done() and not task.cancelled():
                            task.result()  # raises its error
                    if self._scheduler.closings != closings:
                        raise ProtocolError.internal_error("the server stops; ask again for the result", status=503)
                    self._look_after(record)
                    await self._news(bell)
                    if is_leaving:
                        raise ContinuesElsewhere
        finally:
            for task in asking.values():
                task.cancel()
            await asyncio.gather(*asking.values(), return_exceptions=True)
        if record.error is not None:
            raise read_error(record.error)
        if record.status == "cancelled":
            raise ProtocolError.invalid_params(f"the task {record.id} was cancelled")
        entry = self._server.tools.view.get(record.name) if self._server is not None else None
        return _related(record, None if entry is None else entry.envelope)

    async def _can_leave(self, call: IncomingCall, id: str) -> bool:
        """Whether the client can go on waiting through another process, if this one ends before the task."""
        stand_by = getattr(call.exchange.sink, "await_task", None)
        return stand_by is not None and self.records.is_shared and await stand_by(id)

    async def _news(self, bell: asyncio.Event) -> None:
        """Wait for news, which may be missed where they come from another process."""
        try:
            async with asyncio.timeout(max(0.05, self.records.poll) if self.records.is_shared else None):
                await bell.wait()
        except TimeoutError:
            return

    async def _again(self, id: str, bell: asyncio.Event) -> TaskRecord:
        """The current record. A caller that waits anyway also waits for a store that is away."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            bell.clear()
            try:
                record = await self.records.tasks.get(id)
            except StoreError as error:
                if time.monotonic() > deadline or self._scheduler.is_closing or isinstance(error, StoreClosed):
                    raise unavailable(error) from error
                await asyncio.sleep(max(0.05, error.retry_after))
                continue
            if record is None:
                raise unknown(id)
            return record

    async def _put(self, call: IncomingCall, id: str, key: str, request: dict[str, Any]) -> None:
        params = {**request["params"], "_meta": {RELATED: {"taskId": id}}}
        try:
            reply = JournalReply(await call.exchange.voice.ask(call.exchange, request["method"], params, None, None))
        except ProtocolError as error:
            reply = JournalReply.raised(error)  # the body's to deal with, as on a plain call
        except (Disconnected, TimedOut):
            return  # this client cannot be asked; another one that waits may be
        # The client does not answer twice: retry until the answer is stored.
        while True:
            try:
                await self._answer(id, {key: reply})
                return
            except StoreClosed:
                return
            except StoreError as error:
                await asyncio.sleep(max(0.05, error.retry_after))
            except ProtocolError as error:
                if reply.code is not None:
                    raise
                if error.code == CODE_INVALID_PARAMS:
                    reply = JournalReply.raised(error)  # an answer that cannot be stored fails the question
                else:
                    await asyncio.sleep(0.05)

    # --- the end

    async def _end(self, id: str, status: Any, message: str | None = None, **changes: Any) -> TaskRecord | None:
        """End a task from outside its own body, which is cancelled; None if it had ended before."""
        ended = await self.records.change(id, lambda record: self.records.ended(record, status, message, **changes))
        run = self._scheduler.running.get(id)
        if run is not None and ended is not None:
            run.lose()
        return ended

    # --- telling

    async def _announce(self, id: str, call: IncomingCall) -> tuple[str, dict[str, Any]] | None:
        """The notification about a task for a listen stream; None if the stream may not know of the task."""
        if call.peer.extension(EXTENSION) is None:
            return None
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                await self.records.ready()
                record = await self.records.find(id, self.owner_of(call))
            except ProtocolError:
                return None
            except StoreError as error:
                if time.monotonic() > deadline or self._scheduler.is_closing or isinstance(error, StoreClosed):
                    raise unavailable(error) from error
                await asyncio.sleep(max(0.05, error.retry_after))
            else:
                break
        self._look_after(record)
        self._changed_ids.pop(id, None)
        if not record.is_terminal and self.records.is_shared:
            self._changed_ids[id] = None
            if len(self._changed_ids) > _MOST_HEARD:
                del self._changed_ids[next(iter(self._changed_ids))]
        return "notifications/tasks", modern_form(record, details=True)

    def _look_again(self) -> None:
        """Messages may have been missed: tell every listener the current state."""
        if self._server is not None:
            for id in tuple(self._changed_ids):
                self._server.runtime.changes.deliver("task", id)

    # --- running, for another process (see the head of this file)

    async def run_record(self, id: str) -> bool:
        """Claim a task and run it to its end in this process; False if it is not ours to run, or was lost on the way.

        An exception of the tool is in the task. A task that cannot be gone on with is failed, with the reason. Cancelled, it
        stops the body, and leaves a resumable task to another process.

        Raises:
            StoreUnavailable: It could not be claimed. Nothing was run.
        """
        return await self._scheduler.run_record(id)

    # --- for the host (R78)

    async def begin(self, name: str, *, owner: object = None, session: object = None, ttl: float | None = None) -> str:
        """Begin a task whose work is done elsewhere. Returns its id.

        Args:
            name: the name of the task.
            owner: the principal that may see it, `ctx.auth` in a tool.
            session: a legacy session, or its id (`ctx.session_id`). Its client hears of the task; if the client is anonymous,
                the task belongs to the session. With neither owner nor session, anyone with the id may see it.
            ttl: seconds it is kept.

        Raises:
            ConfigError: no caller could ever see it.
        """
        check_seconds("ttl", ttl)
        key, session_id = await self._place(owner, session)
        draft = self.records.draft(
            name,
            owner=key,
            session=session_id,
            ttl_ms=None if ttl is None else round(ttl * 1000),
            extra=write_extra(RunnerNotes(is_host=True)),
        )
        return (await self._scheduler.begin_for_host(draft)).id

    async def _place(self, owner: object, session: object) -> tuple[str, str]:
        """The owner of a host's task, and the session to notify; both as text."""
        key = owner_text(owner)
        if key != owner_text(owner):  # the text differs each time, so no later caller could match it
            raise ConfigError(
                f"owner={type(owner).__name__} has no subject that stays the same, so no caller could see the task: pass the principal "
                "of the caller, ctx.auth, which has a subject; for an anonymous caller pass session=ctx.session_id"
            )
        if session is None:
            return key, ""
        id: Any = session if isinstance(session, str) else getattr(session, "id", None)
        sessions = None if self._server is None else self._server.runtime.sessions
        known = None if sessions is None or not isinstance(id, str) else await sessions.reach(id)
        if known is None:
            label = repr(id) if isinstance(id, str) else type(session).__name__
            raise ConfigError(f"session={label} is not a live session; pass ctx.session_id of a legacy call, or None")
        if not key:
            key = (known.owner_key if known.owner_key is not None else owner_text(known.principal)) or f"session:{id}"
        return key, known.id

    async def get(self, id: str) -> TaskRecord:
        """The state of a task of any owner."""
        with store_errors():
            await self.records.ready()
            return await self.records.get(id)

    async def finish(self, id: str, result: object) -> bool:
        """Complete a task, with a value that a tool could return. False if it had ended before."""
        assert self._server is not None
        data = self._server.runtime.writer.encode(call_result(result, None))
        return await self._end_for_host(id, "completed", result=data)

    async def fail(self, id: str, reason: str) -> bool:
        """Fail a task with this reason."""
        return await self._end_for_host(id, "failed", reason, error=ProtocolError.internal_error(reason))

    async def cancel(self, id: str, reason: str | None = None) -> bool:
        """Cancel a task."""
        return await self._end_for_host(id, "cancelled", reason)

    async def _end_for_host(self, id: str, status: Any, message: str | None = None, **changes: Any) -> bool:
        with store_errors():
            await self.records.ready()
            await self.records.get(id)
            return await self._end(id, status, message, **changes) is not None

    async def count(self) -> int:
        """The number of tasks."""
        with store_errors():
            await self.records.ready()
            return await self.records.tasks.count()


def _receipt(call: IncomingCall, record: TaskRecord) -> dict[str, Any]:
    if call.modern:
        return {"resultType": "task", **modern_form(record, details=False)}
    return {"task": legacy_form(record)}


def _wish(call: IncomingCall) -> _TaskRequest | None:
    """Whether a 2025-11-25 client asks for a task. The same member of a modern request means nothing."""
    raw = UNSET if call.modern or call.peer.version != V2025_11 else call.params.task
    if raw is UNSET:
        return None
    try:
        return msgspec.json.decode(raw, type=_TaskRequest)
    except msgspec.ValidationError as error:
        raise ProtocolError.invalid_params(f"task: {error}") from None


def _required(call: IncomingCall) -> ProtocolError:
    if not call.modern:
        return ProtocolError(CODE_METHOD_NOT_FOUND, "this runs only as a task; send `task` along", status=200)
    return MissingCapability(
        CODE_MISSING_CAPABILITY,
        f"this needs the client to declare the extension {EXTENSION!r}",
        {"requiredCapabilities": {"extensions": {EXTENSION: {}}}},
    )


def _related(record: TaskRecord, envelope: Envelope | None) -> Any:
    """The very result of the call, marked with the task it came from."""
    raw = record.result or b"null"
    try:
        stored = msgspec.json.decode(raw, type=_StoredResult)
    except msgspec.ValidationError:  # middleware may answer with anything
        return msgspec.json.decode(raw)
    result = CallToolResult(
        content=stored.content,
        structured_content=stored.structured_content,
        is_error=stored.is_error,
        meta={**stored.meta, RELATED: {"taskId": record.id}},
    )
    return legacy_result(result, envelope, msgspec.json.encode)
