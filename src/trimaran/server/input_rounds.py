"""Asking on the modern era: the call ends as `input_required`, comes back with answers, and its body meets its journal.

There are no server requests on 2026-07-28. So a body that asks something the journal cannot answer is suspended, and the
call ends with every question outstanding and a sealed journal. The retry runs the body from the top: asks that have
their answer return it, steps that are done return their result, and the body goes on where it stopped.

How a body is suspended. An unanswered ask registers its question and waits. Asks awaited together (`asyncio.gather`, a
TaskGroup) register one after the other within the same turn of the loop, so a few turns without a new question, and
with no step at work, mean that the body can go no further: then every waiting ask raises `Suspended`. It is a BaseException, so that a body's
`except Exception` does not eat it; and what ends the call is the fact that it was suspended, not the exception, so a
body that eats even that changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final, final

import msgspec
from msgspec import UNSET

from trimaran.errors import CODE_MISSING_CAPABILITY, Error, MissingCapability, ProtocolError, StateRejected
from trimaran.protocol.inbound import IncomingCall, read_json
from trimaran.protocol.journal import (
    InputRequest,
    Journal,
    ask_key,
    check_same_ask,
    digest,
    merge_responses,
    read_journal,
    write_journal,
)
from trimaran.protocol.meta import LOG_LEVELS
from trimaran.protocol.outbound import Writer
from trimaran.protocol.seal import Sealer
from trimaran.types import CallToolResult, InputRequiredResult

from .access import identity
from .exchange import Exchange

_PURPOSE: Final = b"trimaran/input-rounds"
_QUIET_TURNS: Final = 3  # turns of the loop without a new question before the body counts as stuck
ASKABLE: Final = frozenset({"elicitation/create", "sampling/createMessage", "roots/list"})


_in_step: ContextVar[bool] = ContextVar("trimaran_in_step", default=False)


class Suspended(BaseException):
    """Raised inside a body that waits for an answer which only the next round can bring. Let it pass."""


@final
class InputRounds:
    """The questions and steps of one call."""

    __slots__ = ("_counts", "_journal", "_outstanding", "_quiet", "_steps", "_waiting", "suspended")

    def __init__(self, journal: Journal | None) -> None:
        self._journal = journal or Journal()
        self._counts: dict[str, int] = {}
        self._outstanding: dict[str, tuple[InputRequest, dict[str, Any]]] = {}
        self._waiting: list[asyncio.Future[Any]] = []
        self._quiet = 0
        self._steps = 0
        self.suspended: bool = False

    def admit_early(self, key: str) -> None:
        """Let the question with this key take the answer that came with the call, unasked, if there is one."""
        journal = self._journal
        if key in journal.offered:
            answers = {**journal.answers, key: journal.offered[key]}
            self._journal = msgspec.structs.replace(journal, answers=answers)

    def _place(self, kind: str) -> int:
        self._counts[kind] = place = self._counts.get(kind, 0) + 1
        return place

    async def ask(self, method: str, params: dict[str, Any], key: str | None) -> Any:
        if _in_step.get():
            raise ProtocolError.internal_error(
                f"{method} was asked inside ctx.step(...), whose result is kept and never asked for again; ask first, then step"
            )
        if self.suspended:
            raise Suspended  # the round is over; what a body asks on its way out is not asked
        key = ask_key(self._place(method), method, key)
        ask = InputRequest(key, method, digest(method, params))
        check_same_ask(self._journal, ask)
        if key in self._journal.answers:
            return self._journal.answers[key]
        if key in self._outstanding:
            raise ProtocolError.internal_error(
                f"two questions of one call have the key {key!r}; give each its own key="
            )
        request: dict[str, Any] = {"method": method, "params": params}
        self._outstanding[key] = (ask, request)
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[Any] = loop.create_future()
        self._waiting.append(waiting)
        self._quiet = _QUIET_TURNS
        if len(self._waiting) == 1:
            loop.call_soon(self._settle, loop)
        return await waiting

    def _settle(self, loop: asyncio.AbstractEventLoop) -> None:
        self._quiet -= 1
        if self._quiet > 0:
            loop.call_soon(self._settle, loop)
            return
        if self._steps:
            return  # a step at work must get its result into the journal; it settles when it is done
        self.suspended = True
        for waiting in self._waiting:
            if not waiting.done():
                waiting.set_exception(Suspended())

    async def step(self, name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        place = self._place("step:" + name)
        key = name if place == 1 else f"{name}#{place}"
        if key in self._journal.steps:
            return self._journal.steps[key]
        if self._journal.stateless:
            raise ProtocolError.invalid_params(
                f"this retry answers questions but does not carry the requestState it was given, so step {name!r} could "
                "run twice; echo requestState as it was received"
            )
        if self.suspended:
            raise Suspended
        self._steps += 1
        mark = _in_step.set(True)
        try:
            result = await run()
            self._journal = msgspec.structs.replace(self._journal, steps={**self._journal.steps, key: result})
        finally:
            _in_step.reset(mark)
            self._steps -= 1
            if self._waiting and not self._steps:
                self._quiet = _QUIET_TURNS
                loop = asyncio.get_running_loop()
                loop.call_soon(self._settle, loop)
        return result

    @property
    def answers(self) -> Mapping[str, Any]:
        """The client's answers, by key."""
        return self._journal.answers

    @property
    def offered(self) -> Mapping[str, Any]:
        """Answers that came without a question: only a question that says so takes one."""
        return self._journal.offered

    @property
    def steps(self) -> Mapping[str, Any]:
        """The results of steps that are done, by name."""
        return self._journal.steps

    def end(self, requests: Mapping[str, dict[str, Any]], steps: dict[str, Any]) -> None:
        """End the round with these questions, for a body that keeps no journal: a proxy's, whose upstream has it.

        The next round finds `steps`, and the answers to these questions alone.
        """
        self._outstanding = {
            key: (InputRequest(key, request["method"], digest(request["method"], request.get("params"))), request)
            for key, request in requests.items()
        }
        self._journal = Journal(steps=steps)
        self.suspended = True

    def requests(self) -> dict[str, Any]:
        """Every question outstanding, by key, in the order asked."""
        return {key: request for key, (_, request) in self._outstanding.items()}

    def journal(self) -> Journal:
        questions = {**self._journal.asked, **{key: ask for key, (ask, _) in self._outstanding.items()}}
        return msgspec.structs.replace(self._journal, asked=questions, offered={}, stateless=False)


@final
class ModernVoice:
    """How 2026-07-28 is spoken: results completed and signed, questions by rounds."""

    def __init__(self, writer: Writer, sealer: Callable[[], Sealer], *, input_ttl: float) -> None:
        self._writer = writer
        self._encode_result = writer.modern_result
        self._sealer = sealer
        self._input_ttl = input_ttl

    def notification(self, method: str, params: dict[str, Any]) -> bytes:
        return self._writer.notification(method, params)

    def result(self, call: IncomingCall, result: Any) -> bytes:
        return self._encode_result(call.id, result)

    def error(self, call: IncomingCall, error: ProtocolError) -> bytes:
        return self._writer.error(call.id, error)

    def logs(self, exchange: Exchange, level: str) -> bool:
        # REQ logging.optin: without logLevel on the request the server MUST NOT send notifications/message.
        least = exchange.call.log_level
        return least is not None and LOG_LEVELS.index(level) >= LOG_LEVELS.index(least)

    def lacks(self, capability: str, required: dict[str, Any]) -> ProtocolError:
        return MissingCapability(
            CODE_MISSING_CAPABILITY,
            f"this call needs the client capability {capability!r}, which the request does not declare",
            {"requiredCapabilities": required},
        )

    def open_rounds(self, exchange: Exchange) -> None:
        """Read what a retry brought along. Before the body runs, so that forged state never reaches it."""
        params = exchange.call.params
        journal = None
        if params.request_state is not UNSET:
            try:
                plain = self._sealer().open(
                    params.request_state, purpose=_PURPOSE, binding=_binding(exchange.call), now=time.time()
                )
                journal = read_journal(plain)
            except StateRejected as error:
                raise ProtocolError.invalid_params(f"requestState was not accepted: {error}") from None
        if params.input_responses is not UNSET:
            responses = read_json(params.input_responses)
            if not isinstance(responses, dict):
                raise ProtocolError.invalid_params("inputResponses must be an object of answers by key")
            journal = merge_responses(journal, responses)  # pyright: ignore[reportUnknownArgumentType]
        exchange.rounds = InputRounds(journal)

    async def ask(
        self, exchange: Exchange, method: str, params: dict[str, Any], key: str | None, timeout: float | None
    ) -> Any:
        if method not in ASKABLE:
            raise ProtocolError.internal_error(
                f"{method} cannot be sent to a {exchange.call.peer.version} client: it answers only {', '.join(sorted(ASKABLE))}"
            )
        if not exchange.call.row or not exchange.call.row.input_rounds:
            raise ProtocolError.internal_error(f"{exchange.call.method} may not ask for input on this revision")
        return await self._rounds(exchange).ask(method, params, key)

    async def step(self, exchange: Exchange, name: str, run: Callable[[], Awaitable[Any]]) -> Any:
        return await self._rounds(exchange).step(name, run)

    def end_round(self, exchange: Exchange, requests: Mapping[str, dict[str, Any]], steps: dict[str, Any]) -> None:
        """End this round with questions that come from elsewhere; see `InputRounds.end`."""
        self._rounds(exchange).end(requests, steps)

    @staticmethod
    def _rounds(exchange: Exchange) -> InputRounds:
        if exchange.rounds is None:
            exchange.rounds = InputRounds(None)
        return exchange.rounds

    def bad_arguments(self, message: str) -> CallToolResult:
        return CallToolResult.error(message)

    def suspended(self, exchange: Exchange) -> InputRequiredResult | None:
        """The end of this round: what is asked, and the sealed journal to come back with."""
        rounds: InputRounds | None = exchange.rounds
        if rounds is None or not rounds.suspended:
            return None
        try:
            plain = write_journal(rounds.journal())
        except Error as error:
            raise ProtocolError.internal_error(str(error)) from error
        state = self._sealer().seal(
            plain, purpose=_PURPOSE, binding=_binding(exchange.call), expires_at=time.time() + self._input_ttl
        )
        return InputRequiredResult(input_requests=rounds.requests(), request_state=state)


def _binding(call: IncomingCall) -> bytes:
    """The scope of a state: this caller, this method, these arguments."""
    params = call.params
    name = getattr(params, "name", None) or getattr(params, "uri", "")
    arguments = getattr(params, "arguments", UNSET)
    value: Any = {} if arguments is UNSET else read_json(arguments)
    canonical = msgspec.json.encode(value, order="sorted")
    who = "" if call.principal is None else repr(identity(call.principal))
    return b"\0".join((who.encode(), call.method.encode(), name.encode(), hashlib.sha256(canonical).digest()))
