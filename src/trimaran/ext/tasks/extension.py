"""The tasks extension of 2026-07-28 and the tasks of 2025-11-25, over one model (protocol.md 5.1, 5.2).

It wraps `tools/call`: a tool declared `long_running` becomes a task for a client that understands tasks, and stays an
ordinary call for any other (C22). The body runs in a task of its own from the beginning, so that the request can be
answered, or left, while it goes on.

    model.py     a record, and how each protocol spells it        keeper.py    where records are, and how they change
    journal.py   what a resumable body has asked and done         origin.py    how its call is made again
    voice.py     how a body asks and tells                        run.py       one body at work
    crew.py      all of them, and the tasks that nobody runs

**Running elsewhere.** `Tasks(runner=...)` gives tasks to a `Runner` instead of running them: `begin(record)` takes one that is
made, durable, and held by nobody. Some other process, with the same server on the same store and no runner of its own, calls
`run_record(id)`, which claims the task, runs its body to the end, and returns whether it did. However often a task is handed
over or run, its body begins once; after that it is only ever resumed.
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
from trimaran.fleet import owner_text, unavailable
from trimaran.protocol.envelope import Envelope, legacy_result
from trimaran.protocol.inbound import Call
from trimaran.protocol.journal import require_answer
from trimaran.protocol.methods import Method, extend
from trimaran.protocol.versions import V2025_11
from trimaran.seconds import check_seconds
from trimaran.server.access import is_hidden
from trimaran.server.dispatch import Serve
from trimaran.server.flights import GoesOnElsewhere
from trimaran.server.results import call_result
from trimaran.server.tools import ToolEntry
from trimaran.state.contracts import StoreClosed, StoreError, TaskRecord
from trimaran.transports.place import place_of
from trimaran.types import CallToolResult, ListParams, Params
from trimaran.types.wire import Name

from .crew import Crew, Runner
from .journal import JournalFull, Reply, read_journal, write_journal
from .keeper import Keeper, store_errors
from .model import EXTENSION, RELATED, inputs_of, legacy_form, modern_form, read_error, unknown, write_inputs
from .origin import Extra, write_extra, write_origin
from .run import Run
from .voice import TaskVoice

if TYPE_CHECKING:
    from trimaran.server.server import Server

__all__ = ["Tasks"]

_PAGE: Final = 100
# What somebody who waits or listens is spared of a store that is away.
_PATIENCE: Final = 30.0
# Tasks that listeners have heard of, to be told again after a gap in the news.
_MOST_HEARD: Final = 10_000


class _TaskParams(Params, frozen=True, kw_only=True):
    task_id: Name


class _UpdateParams(Params, frozen=True, kw_only=True):
    task_id: Name
    input_responses: Raw | UnsetType = UNSET


class _Wish(msgspec.Struct, frozen=True):
    """What a 2025-11-25 client says beside the arguments: it wants a task."""

    ttl: Annotated[int, msgspec.Meta(ge=1)] | None = field(default=None)


class _Kept(msgspec.Struct, rename="camel"):
    """A tool's result, as far as it has to be looked at again."""

    content: list[Any]
    structured_content: Raw | UnsetType = UNSET
    is_error: bool = False
    meta: dict[str, Any] = field(name="_meta", default_factory=dict[str, Any])


# Weak in both: the server holds what is attached to it, and that holds the server.
_attached: WeakKeyDictionary[Server, ref[Tasks]] = WeakKeyDictionary()


@final
class Tasks:
    """Tasks for a server's long-running tools, and for the host's own work (R73-R81).

    Args:
        ttl: seconds a task is promised to be kept, from its beginning; None without end.
        poll: seconds a client should let pass between two looks.
        most_per_caller: how many tasks of one caller are kept.
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
            raise ConfigError(f"lease is a positive number of seconds, not {lease!r}")
        for name, value in (("ttl", ttl), ("poll", poll), ("lease", lease)):
            check_seconds(name, value)
        self.keeper = Keeper(ttl=ttl, poll=poll, most_per_owner=most_per_caller)
        self._crew = Crew(self.keeper, lease=float(lease), runner=runner)
        self._heard: dict[str, None] = {}
        self._server: Server | None = None

    @classmethod
    def of(cls, server: Server) -> Tasks | None:
        """The tasks of a server; None if it has none."""
        found = _attached.get(server)
        return None if found is None else found()

    @property
    def runner(self) -> Runner | None:
        """Who is given the tasks to run; None if it is this process."""
        return self._crew.runner

    @runner.setter
    def runner(self, runner: Runner | None) -> None:
        self._crew.runner = runner

    @property
    def running(self) -> int:
        """How many bodies are at work in this process, those that wait for an answer included."""
        return len(self._crew.running)

    @property
    def waiting(self) -> int:
        """How many of them wait for an answer of their client."""
        return sum(run.voice.is_asking for run in tuple(self._crew.running.values()))

    @property
    def refused(self) -> int:
        """How many tasks of anonymous callers found no room, or gave way, since the start."""
        return self._crew.room.refused

    def _shortage(self) -> str | None:
        return "there is no room for more tasks of anonymous callers" if self._crew.room.is_full else None

    def attach(self, server: Server) -> None:
        """Serve tasks on this server."""
        if server.has_extension(EXTENSION):
            raise DeclarationError(
                "tasks are on already: enable_extension(Tasks(...)) comes before the first long_running tool"
            )
        self._server = self.keeper.server = server
        _attached[server] = ref(self)
        server.enable_extension(EXTENSION, {}, self._methods(), modern_only=True)
        server.legacy_capabilities["tasks"] = {"list": {}, "cancel": {}, "requests": {"tools": {"call": {}}}}
        server.dispatcher.use(self._around, frozenset({"tools/call"}))
        server.dispatcher.use(self._around_listen, frozenset({"subscriptions/listen"}))
        server.changes.announcers["task"] = self._announce
        server.shortages.append(self._shortage)
        server.on_start.append(self._start)
        server.on_stop.append(self.close)

    def _start(self) -> None:
        self._crew.start(self._look_again)

    async def close(self) -> None:
        """The server stops. What can go on elsewhere is left to others; the rest ends with the process, and says so."""
        await self._crew.close()

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
        if isinstance(call.exchange.voice, TaskVoice):
            return await call_next(call)  # a task already, and now its body
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
        if owner_text(call.principal) != owner_text(call.principal):
            # It would be a task that nobody can ever look at.
            if wish is None and support != "required":
                return await call_next(call)
            raise ProtocolError.internal_error(
                "tasks need a caller that can be known again: the principal its authenticator gives has no subject"
            )
        ttl_ms = wish.ttl if wish is not None else None
        # Who asks for a task gets one, whatever the body would do.
        at_once = support != "on_detach" or wish is not None
        if at_once and self.runner is not None and self.keeper.is_shared:
            draft = self._draft(call, entry, ttl_ms, is_handed=True)
            return _receipt(call, await self._crew.hand(draft, self.runner))
        return await self._run(call, call_next, entry, ttl_ms, at_once=at_once)

    def _draft(self, call: Call, entry: ToolEntry, ttl_ms: int | None, *, is_handed: bool = False) -> TaskRecord:
        more: dict[str, Any] = {}
        if self.keeper.is_shared and (is_handed or entry.resumable):
            arguments = call.params.arguments
            extra = Extra(starts=0 if is_handed else 1, is_mortal=ttl_ms is not None, origin=write_origin(call))
            more = {
                "arguments": b"{}" if arguments is UNSET else bytes(arguments),
                "is_resumable": entry.resumable,
                "extra": write_extra(extra),
            }
        session = call.session.id if call.session is not None and call.session.id else ""
        return self.keeper.draft(entry.key, owner=self.owner_of(call), session=session, ttl_ms=ttl_ms, **more)

    async def _run(self, call: Call, call_next: Serve, entry: ToolEntry, ttl_ms: int | None, *, at_once: bool) -> Any:
        """The answer to the request: the task, or what came of it before it became one."""

        def draft(run: Run) -> TaskRecord:
            made = self._draft(run.call, entry, ttl_ms)
            try:
                return replace(made, journal=write_journal(run.voice.early)) if made.is_resumable else made
            except JournalFull as error:
                raise ProtocolError.internal_error(str(error)) from None

        is_resumable = entry.resumable and self.keeper.is_shared
        outer = call.exchange
        run = Run(
            self._crew,
            call,
            call_next,
            outer.voice,
            draft,
            timeout=entry.timeout,
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

    async def _around_listen(self, call: Call, call_next: Serve, /) -> Any:
        if call.params.notifications.task_ids and call.peer.extension(EXTENSION) is None:
            raise _required(call)
        return await call_next(call)

    def owner_of(self, call: Call) -> str:
        """Whose a call's tasks are: the caller's; without authentication the session's, or whoever knows the id."""
        if call.principal is not None:
            return owner_text(call.principal)
        return f"session:{call.session.id}" if call.session is not None and call.session.id else ""

    # --- the methods

    async def _find(self, call: Call) -> TaskRecord:
        if call.modern and call.peer.extension(EXTENSION) is None:
            raise _required(call)
        with store_errors():
            await self.keeper.ready()
            record = await self.keeper.find(call.params.task_id, self.owner_of(call))
        self._look_after(record)
        return record

    def _look_after(self, record: TaskRecord) -> None:
        """One that waits for input is not found by those who look for work: whoever looks at it does."""
        if record.status != "input_required" or not self.keeper.is_shared:
            return
        if record.lease_ms <= self.keeper.now_ms() and self._crew.may_take(record):
            self._crew.deal(record)

    async def _get(self, call: Call) -> dict[str, Any]:
        record = await self._find(call)
        return modern_form(record, details=True) if call.modern else legacy_form(record)

    async def _cancel(self, call: Call) -> dict[str, Any]:
        record = await self._find(call)
        ended = None
        if not record.is_terminal:
            with store_errors():
                ended = await self._end(record.id, "cancelled", "it was cancelled by its client")
        if ended is None and not call.modern:
            with store_errors():
                record = await self.keeper.get(record.id)
            raise ProtocolError.invalid_params(
                f"the task {record.id} has ended as {record.status}: it cannot be cancelled"
            )
        return {} if ended is None or call.modern else legacy_form(ended)

    async def _update(self, call: Call) -> dict[str, Any]:
        record = await self._find(call)
        raw = call.params.input_responses
        answers: Any = {} if raw is UNSET else msgspec.json.decode(raw)
        if not isinstance(answers, dict):
            raise ProtocolError.invalid_params("inputResponses is an object of answers by key")
        for key, answer in cast("Mapping[str, Any]", answers).items():
            require_answer(key, answer)
        replies = {key: Reply(answer) for key, answer in cast("Mapping[str, Any]", answers).items()}
        with store_errors():
            await self._answer(record.id, replies)
        return {}

    async def _answer(self, id: str, replies: Mapping[str, Reply]) -> None:
        """Answers by key; what was not asked, or has been answered, is passed over."""

        def answered(record: TaskRecord) -> TaskRecord | None:
            inputs = inputs_of(record)
            taken = {key: reply for key, reply in replies.items() if inputs.pop(key, None) is not None}
            if not taken:
                return None
            journal = read_journal(record.journal)
            return self.keeper.moved(
                record,
                "input_required" if inputs else "working",
                inputs=write_inputs(inputs),
                journal=write_journal(replace(journal, answers={**journal.answers, **taken})),
            )

        try:
            await self.keeper.change(id, answered)
        except JournalFull as error:
            raise ProtocolError.invalid_params(f"the answer cannot be kept: {error}") from None
        run = self._crew.running.get(id)
        if run is not None:
            await run.refresh()

    async def _list(self, call: Call) -> dict[str, Any]:
        with store_errors():
            await self.keeper.ready()
            page = await self.keeper.page(self.owner_of(call), call.params.cursor, _PAGE)
        found: dict[str, Any] = {"tasks": [legacy_form(record) for record in page.tasks]}
        if page.cursor is not None:
            found["nextCursor"] = page.cursor
        return found

    async def _result(self, call: Call) -> Any:
        """Wait for the end (R81). Whoever waits here is asked what the task wants to know."""
        call.exchange.limit(float("inf"))
        closings = self._crew.closings
        record = await self._find(call)
        asking: dict[str, asyncio.Task[None]] = {}
        is_leaving = False

        def leave() -> None:
            nonlocal is_leaving
            is_leaving = True
            bell.set()

        try:
            with self.keeper.watch(record.id) as bell:
                if not record.is_terminal and await self._can_leave(call, record.id):
                    call.exchange.on_close = leave
                while not (record := await self._again(record.id, bell)).is_terminal:
                    for key, request in inputs_of(record).items():
                        if key not in asking:
                            asking[key] = asyncio.ensure_future(self._put(call, record.id, key, request))
                            asking[key].add_done_callback(lambda _: bell.set())
                    for one in asking.values():
                        if one.done() and not one.cancelled():
                            one.result()  # what went wrong there would be waited for in vain here
                    if self._crew.closings != closings:
                        raise ProtocolError.internal_error("the server stops; ask again for the result", status=503)
                    self._look_after(record)
                    await self._news(bell)
                    if is_leaving:
                        raise GoesOnElsewhere
        finally:
            for one in asking.values():
                one.cancel()
            await asyncio.gather(*asking.values(), return_exceptions=True)
        if record.error is not None:
            raise read_error(record.error)
        if record.status == "cancelled":
            raise ProtocolError.invalid_params(f"the task {record.id} was cancelled")
        entry = self._server.tools.view.get(record.name) if self._server is not None else None
        return _related(record, None if entry is None else entry.envelope)

    async def _can_leave(self, call: Call, id: str) -> bool:
        """Could the client go on waiting by way of another process, if this one ends before the task?"""
        stand_by = getattr(call.exchange.sink, "await_task", None)
        return stand_by is not None and self.keeper.is_shared and await stand_by(id)

    async def _news(self, bell: asyncio.Event) -> None:
        """Wait for news, which may be missed where they come from another process."""
        try:
            async with asyncio.timeout(max(0.05, self.keeper.poll) if self.keeper.is_shared else None):
                await bell.wait()
        except TimeoutError:
            return

    async def _again(self, id: str, bell: asyncio.Event) -> TaskRecord:
        """The record as it is now. For one who waits anyway, a store that is away is waited for."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            bell.clear()
            try:
                record = await self.keeper.tasks.get(id)
            except StoreError as error:
                if time.monotonic() > deadline or self._crew.is_closing or isinstance(error, StoreClosed):
                    raise unavailable(error) from error
                await asyncio.sleep(max(0.05, error.retry_after))
                continue
            if record is None:
                raise unknown(id)
            return record

    async def _put(self, call: Call, id: str, key: str, request: dict[str, Any]) -> None:
        params = {**request["params"], "_meta": {RELATED: {"taskId": id}}}
        try:
            reply = Reply(await call.exchange.voice.ask(call.exchange, request["method"], params, None, None))
        except ProtocolError as error:
            reply = Reply.raised(error)  # the body's to deal with, as on a plain call
        except (Disconnected, TimedOut):
            return  # it cannot be asked here; another one who waits may be
        # The client has answered, and will not do so again: it is kept until it can be written.
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
                    reply = Reply.raised(error)  # that it cannot be kept is an answer too
                else:
                    await asyncio.sleep(0.05)

    # --- the end

    async def _end(self, id: str, status: Any, message: str | None = None, **changes: Any) -> TaskRecord | None:
        """End a task from outside its own body, which is cancelled; None if it had ended before."""
        ended = await self.keeper.change(id, lambda record: self.keeper.ended(record, status, message, **changes))
        run = self._crew.running.get(id)
        if run is not None and ended is not None:
            run.lose()
        return ended

    # --- telling

    async def _announce(self, id: str, call: Call) -> tuple[str, dict[str, Any]] | None:
        """What a listen stream is told of a task; None if it is none of its business."""
        if call.peer.extension(EXTENSION) is None:
            return None
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                await self.keeper.ready()
                record = await self.keeper.find(id, self.owner_of(call))
            except ProtocolError:
                return None
            except StoreError as error:
                if time.monotonic() > deadline or self._crew.is_closing or isinstance(error, StoreClosed):
                    raise unavailable(error) from error
                await asyncio.sleep(max(0.05, error.retry_after))
            else:
                break
        self._look_after(record)
        self._heard.pop(id, None)
        if not record.is_terminal and self.keeper.is_shared:
            self._heard[id] = None
            if len(self._heard) > _MOST_HEARD:
                del self._heard[next(iter(self._heard))]
        return "notifications/tasks", modern_form(record, details=True)

    def _look_again(self) -> None:
        """News may have been missed: let those who listen be told how things stand."""
        if self._server is not None:
            for id in tuple(self._heard):
                self._server.changes.deliver("task", id)

    # --- running, for another process (see the head of this file)

    async def run_record(self, id: str) -> bool:
        """Claim a task and run it to its end in this process; False if it is not ours to run, or was lost on the way.

        What the tool raises is in the task. A task that cannot be gone on with is failed, with the reason. Cancelled, it
        stops the body, and leaves a resumable task to another process.

        Raises:
            StoreUnavailable: It could not be claimed. Nothing was run.
        """
        return await self._crew.run_record(id)

    # --- for the host (R78)

    async def begin(self, name: str, *, owner: Any = None, session: Any = None, ttl: float | None = None) -> str:
        """Begin a task whose work is done elsewhere; its id.

        Args:
            name: what it is.
            owner: the principal that may see it, `ctx.auth` in a tool.
            session: a legacy session, or its id (`ctx.session_id`). Its client hears of the task; if the client is anonymous,
                the task belongs to the session. With neither owner nor session, whoever knows the id may see it.
            ttl: seconds it is kept.

        Raises:
            ConfigError: nobody could ever see it.
        """
        check_seconds("ttl", ttl)
        key, session_id = await self._place(owner, session)
        draft = self.keeper.draft(
            name,
            owner=key,
            session=session_id,
            ttl_ms=None if ttl is None else round(ttl * 1000),
            extra=write_extra(Extra(is_host=True)),
        )
        return (await self._crew.begin_for_host(draft)).id

    async def _place(self, owner: Any, session: Any) -> tuple[str, str]:
        """Whose a task of the host is, and the session that hears of it; both as text."""
        key = owner_text(owner)
        if key != owner_text(owner):  # equal to nobody, not even to itself when it comes again
            raise ConfigError(
                f"owner={type(owner).__name__} can be matched by nobody, so nobody could see the task: pass the principal "
                "of the caller, ctx.auth, which has a subject; for an anonymous caller pass session=ctx.session_id"
            )
        if session is None:
            return key, ""
        id: Any = session if isinstance(session, str) else getattr(session, "id", None)
        sessions = None if self._server is None else self._server.sessions
        known = None if sessions is None or not isinstance(id, str) else await sessions.reach(id)
        if known is None:
            shown = repr(id) if isinstance(id, str) else type(session).__name__
            raise ConfigError(f"session={shown} is no live session; pass ctx.session_id of a legacy call, or None")
        if not key:
            key = (known.owner_key if known.owner_key is not None else owner_text(known.principal)) or f"session:{id}"
        return key, known.id

    async def get(self, id: str) -> TaskRecord:
        """How a task stands, whoever's it is."""
        with store_errors():
            await self.keeper.ready()
            return await self.keeper.get(id)

    async def finish(self, id: str, result: Any) -> bool:
        """It is done, with what a tool would return. False if it had ended before."""
        assert self._server is not None
        data = self._server.writer.encode(call_result(result, None))
        return await self._end_for_host(id, "completed", result=data)

    async def fail(self, id: str, reason: str) -> bool:
        """It failed, for this reason."""
        return await self._end_for_host(id, "failed", reason, error=ProtocolError.internal_error(reason))

    async def cancel(self, id: str, reason: str | None = None) -> bool:
        """It is not wanted any more."""
        return await self._end_for_host(id, "cancelled", reason)

    async def _end_for_host(self, id: str, status: Any, message: str | None = None, **changes: Any) -> bool:
        with store_errors():
            await self.keeper.ready()
            await self.keeper.get(id)
            return await self._end(id, status, message, **changes) is not None

    async def count(self) -> int:
        """How many tasks are kept."""
        with store_errors():
            await self.keeper.ready()
            return await self.keeper.tasks.count()


def _receipt(call: Call, record: TaskRecord) -> dict[str, Any]:
    if call.modern:
        return {"resultType": "task", **modern_form(record, details=False)}
    return {"task": legacy_form(record)}


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


def _related(record: TaskRecord, envelope: Envelope | None) -> Any:
    """The very result of the call, marked with the task it came from."""
    raw = record.result or b"null"
    try:
        kept = msgspec.json.decode(raw, type=_Kept)
    except msgspec.ValidationError:  # middleware may answer with anything
        return msgspec.json.decode(raw)
    result = CallToolResult(
        content=kept.content,
        structured_content=kept.structured_content,
        is_error=kept.is_error,
        meta={**kept.meta, RELATED: {"taskId": record.id}},
    )
    return legacy_result(result, envelope, msgspec.json.encode)
