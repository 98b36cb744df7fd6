"""Calls that a person makes: begun at once, told of as they go, and judged when they end.

Each call runs in a task of its own, in a context that names it, so the wire log knows which messages are the call's. Progress
and log messages are taken from the wire, where they cannot be missed. The outcome says who failed: the server, the way
there, our check of its answer, or a person who cancelled.

The time of a call has three parts: on the wire, waiting for a person, and our own.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias, cast, final

import msgspec
from msgspec import Struct, structs

from trimaran.client.results import ToolResult
from trimaran.errors import Error
from trimaran.host.context.tokens import count_tokens

from .catalog import SchemaViolation
from .events import PageEvents, now_ms
from .failures import PageFailure, failure_of
from .outline import Outline, outline_of
from .questions import PersonQuestion
from .requests import BadRequest, NotThere
from .servers import InspectedServer, Servers
from .summaries import MessageHead
from .wire import CALL, MessageRow

_MOST_CALLS: Final = 2_000
_MOST_RESULT_BYTES: Final = 128 * 1024 * 1024  # of all results; the oldest are forgotten first
_MOST_LINES: Final = 1_000  # of progress and of log, for one call
_MOST_LISTED: Final = 200  # message numbers in a row
_COUNTED: Final = 1024 * 1024  # characters of a result whose tokens are counted
INLINE_RESULT: Final = 1024 * 1024  # bytes that a page loads with the call; it asks for the rest

CallState: TypeAlias = Literal["running", "waiting", "cancelling", "ok", "tool-error", "invalid", "failed", "cancelled"]
_METHODS: Final = {"tool": "tools/call", "resource": "resources/read", "prompt": "prompts/get"}


class NewCall(Struct, kw_only=True, rename="camel"):
    """What to call."""

    server: str
    kind: Literal["tool", "resource", "prompt", "request"]
    name: str
    arguments: Any = None
    send_anyway: bool = False
    as_task: bool = False
    timeout_ms: float | msgspec.UnsetType | None = msgspec.UNSET
    meta: dict[str, Any] | None = None
    by: str = "page"
    fresh: bool = False


class CallRow(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A call as lists show it."""

    id: str
    server: str
    kind: str
    name: str
    by: str
    at: float
    state: CallState
    rounds: int
    request_ids: list[int | str]
    messages: list[int]
    logs: int
    ended_at: float | None = None
    failure: PageFailure | None = None
    ms: float | None = None
    wire_ms: float | None = None
    own_ms: float | None = None
    wait_ms: float | None = None
    progress: dict[str, Any] | None = None
    size: int | None = None
    task: str | None = None
    result_tokens: int | None = None


@final
class InspectedCall:
    """One call: its row, and what the row leaves out."""

    def __init__(self, row: CallRow, arguments: Any) -> None:
        self.row = row
        self.arguments = arguments
        self.violations: list[SchemaViolation] = []
        self.result: bytes | None = None
        self.outline: Outline | None = None
        """The result with its long texts cut, if it is too large for a page and they are why."""
        self.structured_check: dict[str, Any] | None = None
        self.progress_log: list[dict[str, Any]] = []
        self.log_lines: list[dict[str, Any]] = []
        self.task: asyncio.Task[None] | None = None
        self.method: str = _METHODS.get(row.kind, row.name)
        self._began = time.perf_counter()
        self._sent: float | None = None
        self._wire = 0.0
        self._waits = 0
        self._wait_began = 0.0
        self._waited = 0.0
        self._waited_on_wire = 0.0

    @property
    def is_over(self) -> bool:
        return self.row.ended_at is not None

    def begin_wire(self) -> None:
        self._sent = time.perf_counter()

    def add_wire(self, ms: float) -> None:
        self._wire += ms
        self._sent = None

    def begin_wait(self) -> None:
        self._waits += 1
        if self._waits == 1:
            self._wait_began = time.perf_counter()

    def end_wait(self, *, on_wire: bool) -> None:
        """A person answered. In a legacy call the server's answer was due meanwhile: that time is not the wire's."""
        self._waits -= 1
        if self._waits == 0:
            waited = (time.perf_counter() - self._wait_began) * 1000
            self._waited += waited
            self._waited_on_wire += waited if on_wire else 0.0

    @property
    def is_waiting(self) -> bool:
        return self._waits > 0

    def stop_clock(self) -> None:
        row = self.row
        row.ended_at = now_ms()
        if self._sent is not None:  # it was cancelled, cut, or answered by what is no answer: the wire had it until now
            self.add_wire((time.perf_counter() - self._sent) * 1000)
        row.ms = round((time.perf_counter() - self._began) * 1000, 3)
        row.wire_ms = round(max(0.0, self._wire - self._waited_on_wire), 3)
        row.wait_ms = round(self._waited, 3) if self._waited else None
        row.own_ms = round(max(0.0, row.ms - row.wire_ms - self._waited), 3)


@final
class CallBook:
    """All calls, the newest last."""

    def __init__(self, events: PageEvents) -> None:
        self._events = events
        self._calls: dict[str, InspectedCall] = {}
        self._ids = itertools.count(1)
        self._result_bytes = 0
        self.servers: Servers

    # Looking

    def get(self, id: str) -> InspectedCall:
        call = self._calls.get(id)
        if call is None:
            raise NotThere(f"there is no call {id!r}")
        return call

    def find(self, id: str | None) -> InspectedCall | None:
        return None if id is None else self._calls.get(id)

    def rows(self, *, server: str | None = None, before: str | None = None, limit: int = 500) -> list[CallRow]:
        rows = [call.row for call in self._calls.values() if server is None or call.row.server == server]
        if before is not None:
            ids = [row.id for row in rows]
            rows = rows[: ids.index(before)] if before in ids else []
        return rows[-limit:]

    def all(self) -> list[InspectedCall]:
        return list(self._calls.values())

    # Calling

    def start(self, new: NewCall, typed: Any = None) -> InspectedCall:
        """Begin a call. `typed` are its arguments as they are sent, if they are not simply `new.arguments`.

        Raises:
            NotThere, WrongState: there is no such server, or it is not connected.
            BadRequest: the arguments break the tool's schema, and `send_anyway` is not set.
        """
        server = self.servers.get(new.server)
        server.ready_client()
        violations: list[SchemaViolation] = []
        if new.kind == "tool":
            arguments: Any = {} if new.arguments is None else new.arguments
            violations = server.catalog.violations(new.name, "inputSchema", arguments)
            if violations and not new.send_anyway:
                raise BadRequest(
                    f"the arguments of {new.name} break its schema: {violations[0].message}",
                    status=422,
                    violations=violations,
                )
        elif new.kind == "prompt" and not new.send_anyway:
            violations = server.catalog.prompt_violations(new.name, new.arguments)
            if violations:
                message = f"the arguments of {new.name} do not fit: {violations[0].message}"
                raise BadRequest(message, status=422, violations=violations)
        row = CallRow(
            id=f"c{next(self._ids)}",
            server=server.id,
            kind=new.kind,
            name=new.name,
            by=new.by,
            at=now_ms(),
            state="running",
            rounds=0,
            request_ids=[],
            messages=[],
            logs=0,
        )
        call = self._calls[row.id] = InspectedCall(row, new.arguments)
        call.violations = violations
        self._drop_old()
        self._tell(call)
        sent = new if typed is None else structs.replace(new, arguments=typed)
        call.task = self.servers.spawn(self._run(call, server, sent))
        return call

    async def run(self, new: NewCall) -> InspectedCall:
        """Begin a call and wait for its end."""
        call = self.start(new)
        assert call.task is not None
        await asyncio.wait((call.task,))
        return call

    async def _run(self, call: InspectedCall, server: InspectedServer, new: NewCall) -> None:
        CALL.set(call.row.id)
        try:
            outcome = await self._send(call, server, new)
            self._judge(call, server, outcome)
        except asyncio.CancelledError as error:
            self._end(call, "cancelled", failure_of(error))
            task = asyncio.current_task()
            if task is not None and task.cancelling() and call.row.state != "cancelled":
                raise
        except Exception as error:  # whatever it is, the call must end for the page
            state: CallState = "cancelled" if call.row.state == "cancelling" else "failed"
            self._end(call, state, failure_of(error))
            if not isinstance(error, Error):
                raise

    async def _send(self, call: InspectedCall, server: InspectedServer, new: NewCall) -> Any:
        client = server.ready_client()
        options: dict[str, Any] = {}
        if new.timeout_ms is not msgspec.UNSET:
            options["timeout"] = None if new.timeout_ms is None else new.timeout_ms / 1000
        arguments: Any = new.arguments
        if new.kind == "tool" and (arguments is None or isinstance(arguments, dict)):
            if new.as_task:
                handle = await client.start_task(new.name, cast("Any", arguments), meta=new.meta, **options)
                call.row.task = handle.id or None
                self._tell(call)
                return await handle
            return await client.call_tool(
                new.name, cast("Any", arguments), on_progress=_ignore_progress, meta=new.meta, **options
            )
        params: dict[str, Any]
        if new.kind == "tool":
            params = {"name": new.name, "arguments": arguments}
        elif new.kind == "resource":
            params = {"uri": new.name}
        elif new.kind == "prompt":
            params = {"name": new.name, **({} if arguments is None else {"arguments": arguments})}
        else:
            params = cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {}
        if new.meta:
            params = {**params, "_meta": new.meta}
        return await client.request(call.method, params, on_progress=_ignore_progress, **options)

    def _judge(self, call: InspectedCall, server: InspectedServer, outcome: Any) -> None:
        """Say how an answered call ended."""
        result: dict[str, Any] = dict(outcome.raw) if isinstance(outcome, ToolResult) else outcome
        self._keep_result(call, msgspec.json.encode(result))
        if call.row.size and call.row.size > INLINE_RESULT:
            call.outline = outline_of(result, INLINE_RESULT)
        if call.row.kind != "tool":
            self._end(call, "ok")
            return
        if result.get("isError") is True:
            text = outcome.text if isinstance(outcome, ToolResult) else ""
            failure = PageFailure(blame="server", kind="ToolError", message=text or "the tool says that it failed")
            self._end(call, "tool-error", failure)
            return
        tool = server.catalog.tool(call.row.name)
        if tool is None or not isinstance(tool.get("outputSchema"), dict):
            self._end(call, "ok")
            return
        if "structuredContent" in result:
            violations = server.catalog.violations(call.row.name, "outputSchema", result["structuredContent"])
        else:
            violations = [SchemaViolation(path="", message="there is no structured content", keyword="required")]
        call.structured_check = {"ok": not violations, "violations": violations}
        if violations:
            message = f"the result breaks the tool's output schema: {violations[0].message}"
            hint = "The server answered; its answer does not fit the schema that the server itself declares."
            self._end(call, "invalid", PageFailure(blame="check", kind="InvalidOutput", message=message, hint=hint))
        else:
            self._end(call, "ok")

    def _keep_result(self, call: InspectedCall, result: bytes) -> None:
        call.result = result
        call.row.size = len(result)
        if len(result) <= _COUNTED:
            call.row.result_tokens = count_tokens(result.decode())
        self._result_bytes += len(result)
        for old in self._calls.values():
            if self._result_bytes <= _MOST_RESULT_BYTES:
                break
            if old is not call and old.result is not None:
                self._result_bytes -= len(old.result)
                old.result = old.outline = None

    def _end(self, call: InspectedCall, state: CallState, failure: PageFailure | None = None) -> None:
        call.stop_clock()
        call.row.state = state
        call.row.failure = failure
        self._tell(call)

    def _drop_old(self) -> None:
        while len(self._calls) > _MOST_CALLS:
            oldest = next((call for call in self._calls.values() if call.is_over), None)
            if oldest is None:
                return
            self._result_bytes -= len(oldest.result or b"")
            del self._calls[oldest.row.id]
            self._events.forget("call", oldest.row.id)

    def cancel(self, id: str, reason: str | None) -> InspectedCall:
        """Give up a call; the server is told."""
        call = self.get(id)
        if call.is_over:
            return call
        call.row.state = "cancelling"
        self._tell(call)
        client = self.servers.get(call.row.server).client
        ids = call.row.request_ids[-1:]
        if client is None or not ids or not client.cancel(ids[0], reason):
            assert call.task is not None
            call.task.cancel()
        return call

    def _tell(self, call: InspectedCall) -> None:
        row = call.row
        copy = structs.replace(row, messages=row.messages[-_MOST_LISTED:], request_ids=list(row.request_ids))
        self._events.emit("call", key=row.id, size=1_500, call=copy)

    # Heard on the wire

    def hear(self, row: MessageRow, body: bytes, envelope: MessageHead | None) -> None:
        """A message passed: add it to its call; tell of progress, log messages, tasks and changes."""
        try:
            server = self.servers.get(row.server)
        except NotThere:
            return
        if envelope is not None and row.direction == "in" and row.kind == "notification":
            self._hear_notification(server, row, envelope)
        call = None if row.call is None else self._calls.get(row.call)
        if call is not None and not call.is_over:
            if len(call.row.messages) < _MOST_LISTED:
                call.row.messages.append(row.seq)
            if row.direction == "out" and row.kind == "request" and row.id is not None:
                call.row.request_ids = [*call.row.request_ids[-50:], row.id]
                call.row.rounds += row.method == call.method
                call.begin_wire()
            elif row.direction == "in" and row.ms is not None:
                call.add_wire(row.ms)
        if envelope is not None and row.kind == "response" and b'"taskId"' in body[:65536]:
            self._hear_task(server, row, envelope)

    def _hear_notification(self, server: InspectedServer, row: MessageRow, envelope: MessageHead) -> None:
        method = envelope.method or ""
        if method == "notifications/progress":
            self._hear_progress(server, row, _params(envelope))
        elif method == "notifications/message":
            self._hear_log(server, row, _params(envelope))
        elif method == "notifications/resources/updated":
            uri = _params(envelope).get("uri")
            self._events.emit("resource-updated", key=f"{server.id} {uri}", server=server.id, uri=uri)
        elif method.startswith("notifications/tasks"):
            params = _params(envelope)
            server.catalog.see_task(params.get("task", params), row.call)
        else:
            server.catalog.announce(method)

    def _hear_progress(self, server: InspectedServer, row: MessageRow, params: Mapping[str, Any]) -> None:
        token: Any = params.get("progressToken")
        id = server.tap.call_of_request(token) if isinstance(token, (int, str)) else None
        row.call = id or row.call
        call = None if row.call is None else self._calls.get(row.call)
        if call is None:
            return
        report = {key: params[key] for key in ("progress", "total", "message") if params.get(key) is not None}
        call.row.progress = report
        if len(call.progress_log) < _MOST_LINES:
            call.progress_log.append({"at": row.at, **report})
        self._events.emit("progress", key=call.row.id, call=call.row.id, **report)

    def _hear_log(self, server: InspectedServer, row: MessageRow, params: Mapping[str, Any]) -> None:
        if row.call is None:
            row.call = self.call_for(server.id)
        call = None if row.call is None else self._calls.get(row.call)
        entry: dict[str, Any] = {"level": str(params.get("level", "")), "data": params.get("data")}
        if params.get("logger") is not None:
            entry["logger"] = str(params["logger"])
        if row.size > 8_192:  # the message itself is on the wire page
            entry["data"] = f"{row.summary} ({row.size:,} bytes)"
        if call is not None:
            call.row.logs += 1
            entry["call"] = call.row.id
            if len(call.log_lines) < _MOST_LINES:
                call.log_lines.append({"at": row.at, **entry})
        self._events.emit("log", size=200 + min(row.size, 8_192), server=server.id, **entry)

    def _hear_task(self, server: InspectedServer, row: MessageRow, envelope: MessageHead) -> None:
        try:
            result: Any = msgspec.json.decode(envelope.result)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return
        task: Any = cast("dict[str, Any]", result).get("task", result) if isinstance(result, dict) else None
        card = server.catalog.see_task(task, row.call)
        call = self._calls.get(row.call or "")
        if card is not None and call is not None and call.row.task is None:
            call.row.task = card.id
            self._tell(call)

    # Waiting for people

    def call_for(self, server: str) -> str | None:
        """The call that the current task works for; else the only one that runs on this server."""
        current = CALL.get()
        if current is not None:
            return current
        running = [call.row.id for call in self._calls.values() if call.row.server == server and not call.is_over]
        return running[0] if len(running) == 1 else None

    def round_of(self, call: str | None) -> int | None:
        known = self._calls.get(call or "")
        return None if known is None else known.row.rounds

    def begin_wait(self, call: str | None, era: str) -> None:
        known = self._calls.get(call or "")
        if known is not None and not known.is_over:
            known.begin_wait()
            known.row.state = "waiting"
            self._tell(known)

    def end_wait(self, call: str | None, era: str) -> None:
        known = self._calls.get(call or "")
        if known is not None and not known.is_over:
            known.end_wait(on_wire=era == "legacy")
            if known.row.state == "waiting" and not known.is_waiting:
                known.row.state = "running"
                self._tell(known)

    def to_json(self, call: InspectedCall, questions: list[PersonQuestion]) -> dict[str, Any]:
        """A call whole; of a large result what `outline_of` leaves."""
        whole: dict[str, Any] = {
            **msgspec.to_builtins(call.row),
            "arguments": call.arguments,
            "violations": call.violations,
            "progressLog": call.progress_log,
            "logLines": call.log_lines,
            "questions": questions,
        }
        if call.structured_check is not None:
            whole["structuredCheck"] = call.structured_check
        if call.result is not None:
            if len(call.result) <= INLINE_RESULT:
                whole["result"] = msgspec.Raw(call.result)
            else:
                whole["resultTruncated"] = True
                if call.outline is not None:
                    whole["result"], whole["cut"] = call.outline.value, call.outline.cut
        return whole


def _ignore_progress(progress: float, total: float | None, message: str | None) -> None:
    """The wish for progress is what matters; the reports are taken from the wire."""


def _params(envelope: MessageHead) -> dict[str, Any]:
    try:
        params: Any = msgspec.json.decode(envelope.params) if bytes(envelope.params) else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}
    return cast("dict[str, Any]", params) if isinstance(params, dict) else {}
