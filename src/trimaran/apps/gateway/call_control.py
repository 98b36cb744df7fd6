"""One call to a server behind the gateway: may it be made, how often, what came of it, and a line about each.

    rules -> limit of the tool -> the server -> limit of the result -> figures and the audit line

A call that is refused never reaches the server. What is refused to a caller for any arguments is not listed to it either.
Rules are about tools. Reading resources and getting prompts go by the rules for the tools `resources_read` and
`prompts_get` of the same server, so that `mcp__github__*` is about the whole server.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, final

import msgspec
from msgspec import UNSET, Raw

from trimaran.auth.limits import Buckets, read_rate
from trimaran.errors import CODE_INTERNAL, CODE_INVALID_REQUEST, ProtocolError, ToolError
from trimaran.host.connect_plan import ConnectPlan
from trimaran.host.output_limits import OutputLimits, limit_output, surely_fits
from trimaran.host.permissions.audit import AuditLog
from trimaran.host.permissions.patterns import Pattern, parse_pattern
from trimaran.host.permissions.policy import Decision
from trimaran.host.permissions.subjects import Subject
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.mask import MASK, secrets_in
from trimaran.proxy.results import PlainReply
from trimaran.proxy.upstream import AdmittedCall, Upstream
from trimaran.server.access import owner_text
from trimaran.server.context import Context
from trimaran.server.limits import Limits
from trimaran.server.results import decode_result
from trimaran.state.contracts import StoreError
from trimaran.types import CallToolResult, as_object

from .callers import Access, caller_name
from .metrics import Metrics
from .settings import GatewaySettings, ToolLimit

if TYPE_CHECKING:
    from trimaran.ext.otel import Telemetry

    from .logins import ServerLogins

log: Final = logging.getLogger("trimaran.gateway")

Status: TypeAlias = Literal["ok", "tool_error", "input_required", "error", "denied", "limited", "cancelled"]

_MOST_RECENT: Final = 200  # calls; more than a page shows well
_STATE_SECONDS: Final = Limits().input_ttl  # as long as the state of a round is taken
_KINDS: Final = frozenset((
    "anonymous", "busy", "denied", "failed", "login", "lost", "parked_call_lost", "process_lost", "protocol", "rate_limited",
    "store_full", "store_unavailable", "task_lost", "timed_out", "unauthorized", "unreachable",
))  # fmt: skip
OTHER_SUBJECTS: Final = ("resources_read", "prompts_get")
"""The tools whose rules are about resources and prompts."""
_CALL: Final = "tools/call"
_BY_METHOD: Final = {
    "resources/read": "resources_read",
    "prompts/get": "prompts_get",
    "completion/complete": "prompts_get",
}
_BY_KIND: Final = {"resource": "resources_read", "template": "resources_read", "prompt": "prompts_get"}


class _Flags(msgspec.Struct):
    is_error: bool | None = msgspec.field(name="isError", default=None)


_decode_flags = msgspec.json.Decoder(_Flags).decode
_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.encode


class SharedRates(Protocol):
    """Token buckets that several processes share, as `RedisStore` has them."""

    async def check(self, key: str, interval: float, room: float) -> float: ...


@final
class _Limit:
    """How often each caller may call each of some tools: counted in the store, or here while there is none."""

    def __init__(self, limit: ToolLimit) -> None:
        self._pattern: Pattern = parse_pattern(limit.tools)
        self.text = limit.rate
        count, period = read_rate("rate", limit.rate)
        self._interval = period / count
        self._room = self._interval * (limit.burst or count)
        self._buckets = Buckets(count, period, limit.burst)
        self._name = f"{limit.tools} {limit.rate} {limit.burst}"

    def fits(self, act: Subject) -> bool:
        return self._pattern.fits_name(act)

    async def check(self, act: Subject, owner: str, shared: SharedRates | None) -> float:
        """In how many seconds the caller may call; 0.0 for now."""
        if shared is not None:
            try:
                return await shared.check(f"{self._name} {act.name} {owner}", self._interval, self._room)
            except StoreError as error:
                if not error.is_logged:
                    log.warning("limits are counted in this process alone: %s", error)
        return self._buckets.check((owner, act.name))


class RecentCall(msgspec.Struct, frozen=True):
    """A call that is over, for the page."""

    time: float
    caller: str
    act: str
    status: Status
    kind: str
    seconds: float


@final
class Controls:
    """What all servers of a gateway have in common: rules, limits, the audit log. Replaced as a whole by a reload."""

    def __init__(
        self,
        access: Access,
        settings: GatewaySettings,
        *,
        audit: AuditLog | None = None,
        metrics: Metrics | None = None,
        telemetry: Telemetry | None = None,
        rates: Callable[[], SharedRates | None] = lambda: None,
    ) -> None:
        self.access = access
        self.rates = rates
        self.recent: deque[RecentCall] = deque(maxlen=_MOST_RECENT)
        """The last calls of this process."""
        self.audit = audit
        self.metrics = metrics
        self.telemetry = telemetry
        self._limits = tuple(_Limit(limit) for limit in settings.limit)
        self._answered = Buckets(1, _STATE_SECONDS)

    def renewed(
        self, access: Access, settings: GatewaySettings, before: GatewaySettings, audit: AuditLog | None
    ) -> Controls:
        """The same for other settings; limits that are as before keep their counts."""
        renewed = Controls(
            access, settings, audit=audit, metrics=self.metrics, telemetry=self.telemetry, rates=self.rates
        )
        if settings.limit == before.limit:
            renewed._limits = self._limits
        renewed.recent = self.recent
        renewed._answered = self._answered
        return renewed

    async def goes_on(self, ctx: Context) -> bool:
        """Does this request go on with a call that was counted? Its state says so once; who sends it again calls again."""
        rounds, state = ctx.call.exchange.rounds, ctx.call.params.request_state
        if rounds is None or not (rounds.steps or rounds.answers) or state is UNSET:
            return False
        digest = hashlib.sha256(state.encode()).hexdigest()
        shared = self.rates()
        if shared is not None:
            try:
                return not await shared.check(f"answered {digest}", _STATE_SECONDS, _STATE_SECONDS)
            except StoreError as error:
                if not error.is_logged:
                    log.warning("limits are counted in this process alone: %s", error)
        return not self._answered.check(digest)

    @property
    def has_limits(self) -> bool:
        return bool(self._limits)

    def limits_of(self, act: Subject) -> Sequence[_Limit]:
        return [limit for limit in self._limits if limit.fits(act)] if self._limits else ()


@final
class ServerControl:
    """The calls of one server."""

    def __init__(self, plan: ConnectPlan, safe: str, controls: Controls) -> None:
        self.name: str = plan.name
        self._safe = safe
        self._prefix = f"mcp__{safe}__"
        self.controls = controls
        self.logins: ServerLogins | None = None
        """Set where callers may have to log in to the server themselves."""
        self.active: int = 0
        """Calls that are at work."""
        self._timeout = plan.call_timeout
        self._timeouts = plan.tool_timeouts
        self._output = OutputLimits(bytes=plan.output_limit, tokens=None)
        self._mask = plan.mask
        self._secrets = [form for secret in secrets_of(plan) for form in _spellings_in_json(secret)]
        self._tools: Mapping[str, Subject] = {}
        """What rules know of the tools that the server lists now: one that renames its tools must not fill the memory."""
        self._others = {name: self._subject(name) for name in OTHER_SUBJECTS}

    def adapt(self, kind: str, entries: Sequence[Any]) -> None:
        """Let those see the entries who may use them."""
        if kind != "tool":
            act = self._others[_BY_KIND[kind]]
            for entry in entries:
                self._show(entry, act)
            return
        self._tools = {entry.key: self._subject(entry.key, entry.definition.input_schema) for entry in entries}
        for entry in entries:
            # Work that the server calls long has no limit but one of its own.
            entry.task_timeout = self._timeouts.get(entry.key)
            entry.timeout = self._timeouts.get(entry.key, entry.timeout or self._timeout)
            entry.is_gated = True
            self._show(entry, self._tools[entry.key])

    def _show(self, entry: Any, act: Subject) -> None:
        entry.visible_to = _Visible(self, act)

    def refuse(self, act: Subject, call: IncomingCall) -> None:
        """Note a call by somebody who must not know what it is about. Raises, if the rule has a reason to be told."""
        decision = self._decide(act, call, _arguments({"arguments": call.params.arguments}))
        self._note(act, caller_name(call.principal), call.method, "denied", "denied", 0.0, None)
        if decision.rule is not None and decision.rule.reason:
            raise _denied(decision)

    def _decide(self, act: Subject, call: IncomingCall, arguments: dict[str, Any] | None) -> Decision:
        decision = self.controls.access.decide(call.principal, act, arguments)
        if (audit := self.controls.audit) is not None:
            caller, method = caller_name(call.principal), call.method
            audit.record(decision, self._hide_in(arguments), event="decision", caller=caller, method=method)
        return decision

    def _subject(self, tool: str, schema: object = None) -> Subject:
        return Subject.tool(self.name, tool, schema=schema, safe=self._safe)

    def _act(self, tool: str) -> Subject:
        return self._tools.get(tool) or self._subject(tool)

    def admits_at_once(self, call: IncomingCall, name: str) -> bool:
        """May a tool be called, and is there nothing to write down, to count or to read before?"""
        controls, access = self.controls, self.controls.access
        if controls.audit is not None or controls.telemetry is not None:
            return False
        if not access.rules and not controls.has_limits:
            return access.default == "allow"
        act = self._act(name)
        if controls.limits_of(act) or access.needs_arguments(call.principal, act):
            return False
        return access.decide(call.principal, act).is_allowed

    def note_plain_reply(self, call: IncomingCall, name: str, answer: PlainReply, began: float) -> bool:
        """Take note of a call that was admitted at once. False if its answer is too large, or holds a secret."""
        size, most = len(answer.result), self._output.bytes
        if most is not None and size > most:
            return False
        if self._secrets and any(secret in answer.result for secret in self._secrets):
            return False
        self.active -= 1
        status: Status = "tool_error" if answer.is_error else "ok"
        self._note(self._act(name), caller_name(call.principal), _CALL, status, "", time.perf_counter() - began, size)
        return True

    async def call(
        self,
        upstream: Upstream,
        ctx: Context,
        method: str,
        params: dict[str, Any],
        name: str,
        admitted: AdmittedCall | None = None,
    ) -> Any:
        other = _BY_METHOD.get(method)
        act = self._others[other] if other is not None else self._act(name)
        principal = ctx.call.principal
        started = time.perf_counter() if admitted is None else admitted.began
        status: Status = "error"
        kind = ""
        size: int | None = None
        self.active += admitted is None
        try:
            if admitted is None:
                limits = self._admit(act, ctx, method, params)
                if limits and not await self.controls.goes_on(ctx):
                    await self._count(limits, act, ctx)
                if self.logins is not None and upstream.is_personal and not await self.logins.ensure(ctx):
                    status = "input_required"
                    return None
                result = self._redact(await self._send(upstream, ctx, method, params, name))
            else:
                result = self._redact(await admitted.answer)
            size = memoryview(result).nbytes if isinstance(result, Raw) else None
            status, result = self._judge(result, method, name, size)
            return result
        except _Stopped as stopped:
            status, kind = stopped.status, stopped.status
            raise stopped.error from None
        except asyncio.CancelledError:
            if ctx.call.exchange.expired:
                kind = "timed_out"
                ctx.call.exchange.failure = self._late(ctx.call)
            else:
                status = "cancelled"
            raise
        except ProtocolError as error:
            kind = _kind_of(error)
            error.message = self._mask(error.message)
            error.data = self._hide_in(error.data)
            if kind == "unauthorized" and self.logins is not None:
                self.logins.forget(principal)
            raise
        finally:
            self.active -= 1
            self._note(act, caller_name(principal), method, status, kind, time.perf_counter() - started, size)

    def _late(self, call: IncomingCall) -> ProtocolError:
        text = f"{self.name} did not answer within {call.timeout or 0:g} s"
        return ProtocolError(CODE_INTERNAL, text, {"upstream": self.name, "kind": "timed_out"}, status=200)

    def _send(
        self, upstream: Upstream, ctx: Context, method: str, params: dict[str, Any], name: str
    ) -> Coroutine[Any, Any, Any]:
        telemetry, client = self.controls.telemetry, upstream.client
        if telemetry is None or client is None:
            return upstream.send(ctx, method, params, name)
        call = ctx.call

        async def send(meta: dict[str, Any]) -> Any:
            call.replace_meta({**call.meta, **meta})  # our span is the parent of what the server does
            return await upstream.send(ctx, method, params, name)

        return telemetry.observe(client, method, send, tool=name if method == "tools/call" else None)

    # --- before

    def _admit(self, act: Subject, ctx: Context, method: str, params: dict[str, Any]) -> Sequence[_Limit]:
        """The limits to count a call by. Raises _Stopped if a rule stops it."""
        controls, access = self.controls, self.controls.access
        arguments = None
        is_decisive = bool(access.rules) and access.needs_arguments(ctx.call.principal, act)
        if controls.audit is not None or is_decisive:
            arguments = _arguments(params)
        if is_decisive and isinstance(params.get("arguments"), Raw):
            # What was judged is sent: of a member that stands there twice, a server might read the other one.
            params["arguments"] = Raw(_encode(arguments))
        decision = self._decide(act, ctx.call, arguments)
        if not decision.is_allowed:
            raise _Stopped("denied", _refusal(decision, method))
        return controls.limits_of(act)

    async def _count(self, limits: Sequence[_Limit], act: Subject, ctx: Context) -> None:
        """Raise _Stopped if the caller has used up a limit."""
        for limit in limits:
            wait = await limit.check(act, _owner(ctx), self.controls.rates())
            if wait > 0:
                raise _Stopped("limited", _limited(act, limit.text, wait))

    # --- after

    def _redact(self, result: Any) -> Any:
        """A result without the secrets that the server was given: some print their whole environment."""
        if not self._secrets or result is None:
            return result
        if isinstance(result, Raw):
            return Raw(self._hide(bytes(result)))
        data = _encode(result)
        if self._hide(data) == data:
            return result
        # The caller speaks another revision than the server: the result was read, and will be written anew.
        values = msgspec.structs.asdict(result)
        return msgspec.structs.replace(result, **{key: self._hide_in(value) for key, value in values.items() if value})

    def _hide_in(self, value: Any) -> Any:
        if not self._secrets or value is None:
            return value
        return _decode(self._hide(_encode(value)))

    def _hide(self, data: bytes) -> bytes:
        """JSON without the secrets."""
        for secret in self._secrets:
            data = data.replace(secret, MASK.encode())
        return data

    def _judge(self, result: Any, method: str, name: str, size: int | None) -> tuple[Status, Any]:
        """How a call ended, and its result within the limit."""
        if result is None:
            return "input_required", None
        if method != "tools/call":
            return "ok", result
        most = self._output.bytes
        if isinstance(result, Raw):
            try:
                failed = _decode_flags(result).is_error
            except msgspec.DecodeError:
                failed = None  # whoever reads it finds out what is wrong
            if most is not None and size is not None and size > most:
                result = limit_output(decode_result(result), self._output, source=f"{self.name}: {name}").result
            return "tool_error" if failed else "ok", result
        if isinstance(result, CallToolResult):
            if most is not None and not surely_fits(result, most):
                result = limit_output(result, self._output, source=f"{self.name}: {name}").result
            return "tool_error" if result.is_error else "ok", result
        return "ok", result

    def _note(
        self, act: Subject, caller: str, method: str, status: Status, kind: str, seconds: float, size: int | None
    ) -> None:
        metrics, audit = self.controls.metrics, self.controls.audit
        self.controls.recent.append(RecentCall(time.time(), caller, act.name, status, kind, seconds))
        if metrics is not None:
            metrics.count(self.name, act.own.removeprefix(self._prefix), status, kind, seconds)
        if audit is None:
            return
        fields = {"caller": caller, "act": act.name, "server": self.name, "method": method, "status": status}
        more = {"kind": kind} if kind else {}
        audit.note("call", **fields, **more, seconds=round(seconds, 6), bytes=size)


@final
class _Visible:
    """Who may know of an entry."""

    __slots__ = ("_act", "_control")

    def __init__(self, control: ServerControl, act: Subject) -> None:
        self._control = control
        self._act = act

    def __call__(self, principal: Any) -> bool:
        return self._control.controls.access.may_see(principal, self._act)

    def refused(self, call: IncomingCall) -> None:
        self._control.refuse(self._act, call)


def _spellings_in_json(secret: str) -> dict[bytes, None]:
    """A secret in the forms that JSON has for it, longest first: some libraries escape slashes, or all that is not ASCII."""
    plain, in_ascii = msgspec.json.encode(secret).decode()[1:-1], json.dumps(secret)[1:-1]
    forms = {plain, in_ascii, plain.replace("/", "\\/"), in_ascii.replace("/", "\\/")}
    forms |= {json.dumps(form)[1:-1] for form in forms}  # JSON in a text of JSON
    return dict.fromkeys(form.encode() for form in sorted(forms, key=len, reverse=True))


def secrets_of(plan: ConnectPlan) -> list[str]:
    """The secrets that a server is given: in headers, variables and credentials."""
    entry = plan.entry
    if entry is None:
        return []
    details = entry.oauth_config
    own = details.secrets if details is not None else ()
    return [*secrets_in(entry.headers), *secrets_in(entry.env), *own]


def _kind_of(error: ProtocolError) -> str:
    """What went wrong, in a word. A server's errors pass as they are: its words must not become time series."""
    kind = (as_object(error.data) or {}).get("kind")
    if isinstance(kind, str) and kind in _KINDS:
        return kind
    return str(error.code) if -32_768 <= error.code <= -32_000 else "other"


class _Stopped(Exception):
    def __init__(self, status: Status, error: Exception) -> None:
        self.status: Status = status
        self.error = error


def _arguments(params: Mapping[str, Any]) -> dict[str, Any]:
    value = params.get("arguments")
    if isinstance(value, Raw):
        try:
            value = _decode(value)
        except msgspec.DecodeError:
            value = None
    known = as_object(value)
    return known if known is not None else {key: params[key] for key in ("uri",) if key in params}


def _refusal(decision: Decision, method: str) -> Exception:
    """What the caller is told. Which rule it was is for the audit log."""
    refusal = _denied(decision)
    if method == "tools/call":
        return ToolError(refusal.message)  # for the model, which may choose another way
    return refusal


def _denied(decision: Decision) -> ProtocolError:
    reason = decision.rule.reason if decision.rule is not None else ""
    text = f"you may not use {decision.act} here.{f' {reason}' if reason else ''}"
    return ProtocolError(CODE_INVALID_REQUEST, text, {"kind": "denied"}, status=200)


def _limited(act: Subject, rate: str, wait: float) -> Exception:
    seconds = max(1, round(wait + 0.5))
    return ProtocolError(
        CODE_INVALID_REQUEST,
        f"{act} may be called {rate}, and you have reached that limit; try again in {seconds} s",
        {"kind": "rate_limited", "retry_after": seconds},
        status=200,
    )


def _owner(ctx: Context) -> str:
    principal = ctx.call.principal
    if principal is not None:
        return owner_text(principal)
    return str(getattr(ctx.call.exchange.sink, "address", None) or "")
