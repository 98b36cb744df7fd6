"""A model that uses the host's tools: `trimaran console --model NAME`, `trimaran ask`.

    conversation = open_model("claude-sonnet-5", host)
    async for event in conversation.send("What is on the shelves?"):
        match event:
            case Said(text): ...
            case Called(id, name, arguments): ...

One loop for every provider; what differs between them is in `providers/`:

    message -> model -> text, and calls -> host.call, all at once -> results, in the order asked -> model -> ... -> no more calls

Every call goes through the host, so rules and persons decide about it. Results of servers reach the model only as the
result of a call. The list of tools is read again for each request.

The history is valid at every moment, whatever ends a `send`: an error, a cancelled task, a generator that is dropped. Calls
without an answer get one that says so; text that came stays; a message that got no answer at all is forgotten.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, Final, NamedTuple, TypeAlias, cast, final

from msgspec import Struct

from trimaran.client import Sampling
from trimaran.client.results import ToolResult
from trimaran.errors import CallCancelled, ClientStateError, Closed, Error, LocalProtocolError, ProtocolError
from trimaran.format import ToolCall
from trimaran.host import BudgetPlan, ConsentLost, Host, PermissionDenied, UnknownName
from trimaran.types import CreateMessageResult

from .model_tools import ModelTools
from .providers.choice import open_driver
from .providers.driver import Driver, Message, ModelFailed, ModelReply, ModelRequest, ModelUnavailable, sound

__all__ = [
    "Conversation",
    "Event",
    "ModelFailed",
    "ModelUnavailable",
    "TextReceived",
    "ToolCallFailed",
    "ToolCallRefused",
    "ToolCallReturned",
    "ToolCallStarted",
    "TurnEnded",
    "UserNotice",
    "open_model",
]

log: Final = logging.getLogger("trimaran.apps.conversation")

_CANCELLED: Final = "cancelled by the person; how far it got is not known"
_CANCELLED_ELSEWHERE: Final = "the call was cancelled; how far it got is not known"
_NOT_MADE: Final = "cancelled by the person before it was made"
_BROKEN: Final = "the call failed inside the client"


# --- what happens ----------------------------------------------------------------------------------------------------


@final
class TextReceived(Struct, frozen=True):
    """A bit of the model's text."""

    text: str


@final
class ToolCallStarted(Struct, frozen=True):
    """The model wants a tool; it is called now, if that is allowed."""

    id: str
    name: str
    """As the catalog has it."""
    arguments: dict[str, Any]


@final
class ToolCallReturned(Struct, frozen=True):
    """A tool answered; `result.is_error` if it says that it failed."""

    id: str
    name: str
    result: ToolResult


@final
class ToolCallRefused(Struct, frozen=True):
    """A call was not made: not allowed, no such tool, or invalid arguments. The model gets the reason.

    Where there is no such tool, or the arguments are none, no Called came before.
    """

    id: str
    name: str
    reason: str
    error: Error


@final
class ToolCallFailed(Struct, frozen=True):
    """A call got no result: no connection, or no answer in time. The model gets the reason."""

    id: str
    name: str
    reason: str
    error: Error


@final
class UserNotice(Struct, frozen=True):
    """Something that the person should know and the model need not."""

    text: str


@final
class TurnEnded(Struct, frozen=True):
    """The last event: nothing more comes until the next message.

    `reason` is end_turn; max_tokens or refusal, if the answer is not whole; max_turns, if the model wanted to go on; or a
    word of the provider's. The figures are those of all requests since the message; 0 where the provider tells none.
    """

    reason: str
    input_tokens: int
    output_tokens: int


Event: TypeAlias = (
    TextReceived | ToolCallStarted | ToolCallReturned | ToolCallRefused | ToolCallFailed | UserNotice | TurnEnded
)


# --- the conversation ------------------------------------------------------------------------------------------------


class _Asked(NamedTuple):
    """A call of the model's, with what became of it, or is to."""

    call: ToolCall
    error: Error | None = None
    task: asyncio.Task[ToolResult] | None = None


@final
class Conversation:
    """A conversation between a person and a model. Made by `open_model`; `close` it.

    One `send` at a time. `sample` may run at any time and shares nothing with it but the connection.
    """

    on_progress: Callable[[str, float, float | None, str | None], Any] | None = None
    """Called with (call id, progress, total, message) while a tool works."""

    def __init__(
        self,
        driver: Driver,
        host: Host,
        provider: str,
        *,
        max_tokens: int,
        max_turns: int,
        system: str,
        code: bool = False,
    ) -> None:
        self._driver = driver
        self._host = host
        self._max_tokens = max_tokens
        self._max_turns = max_turns
        self._system = system
        self._offers = ModelTools(host, driver.format, code=code)
        self._history: list[Message] = []
        self._notices: set[str] = set()
        self._is_answering = False
        self._is_closed = False
        self.name: Final = driver.model
        """The model, without its provider."""
        self.provider: Final = provider
        """anthropic or openai."""

    def __repr__(self) -> str:
        return f"<Conversation with {self.provider}:{self.name}, {len(self._history)} messages>"

    @property
    def budget_plan(self) -> BudgetPlan | None:
        """The cuts of a budget among the tools in the last request; None without a budget, and before the first request."""
        return self._offers.plan

    def clear(self) -> None:
        """Forget what was said. A `send` under way goes on, and is forgotten too."""
        self._history = []
        self._notices = set()

    async def close(self) -> None:
        """End the connections. Cancel what is under way first."""
        self._is_closed = True
        await self._driver.close()

    async def send(self, text: str) -> AsyncGenerator[Event, None]:
        """Say something to the model: what happens, as it happens, with `TurnEnded` at the end.

        Cancel the task to stop it: tools under way are cancelled, and the next `send` works.

        Raises:
            ModelFailed: the provider did not answer, or not to the end.
            ClientStateError: another message is being answered, or the conversation is closed.
            Error: the message is empty.
        """
        if self._is_closed:
            raise Closed("the conversation is closed; open another")
        if self._is_answering:
            raise ClientStateError("the model is still answering; wait until it ends, or cancel that")
        if not text.strip():
            raise Error("the message is empty: write something to send")
        history = self._history  # `clear` makes another one
        before = list(history)
        self._is_answering = True
        self._driver.say(history, sound(text))
        messages = list(history)
        try:
            async with aclosing(self._take_turns(history)) as events:
                async for event in events:
                    yield event
        except BaseException:
            if history == messages:
                history[:] = before
            raise
        finally:
            self._is_answering = False

    async def _take_turns(self, history: list[Message]) -> AsyncGenerator[Event, None]:
        spent = [0, 0]
        for _ in range(self._max_turns):
            reply: ModelReply | None = None
            async with aclosing(self._ask(history)) as parts:
                async for part in parts:
                    if isinstance(part, ModelReply):
                        reply = part
                    else:
                        yield part
            assert reply is not None  # a driver's last part, unless it raises
            spent = [spent[0] + reply.input_tokens, spent[1] + reply.output_tokens]
            if reply.message is not None:
                history.append(reply.message)
            if not reply.calls:
                yield TurnEnded(reply.reason, *spent)
                return
            async with aclosing(self._call_all(history, reply.calls)) as events:
                async for event in events:
                    yield event
        yield TurnEnded("max_turns", *spent)

    async def _ask(self, history: list[Message]) -> AsyncGenerator[TextReceived | UserNotice | ModelReply, None]:
        """One request. Text that came before it broke off, or was cancelled, is kept."""
        await self._offers.prepare()
        offer = self._offers.make()
        for notice in offer.notices:
            if notice not in self._notices:
                self._notices.add(notice)
                yield UserNotice(notice)
        text = ""
        is_whole = False
        try:
            while True:
                request = ModelRequest(
                    messages=history, max_tokens=self._max_tokens, system=self._system, tools=offer.tools
                )
                try:
                    async with aclosing(self._driver.stream(request)) as parts:
                        async for part in parts:
                            if isinstance(part, str):
                                text += part
                                yield TextReceived(part)
                            else:
                                is_whole = True
                                yield part
                    return
                except ModelFailed as error:
                    # A picture that is too large, or for a model that sees none, would make every later request fail too.
                    if text or error.status not in (400, 413, 422) or not self._driver.without_media(history):
                        raise
                    yield UserNotice("the model refused what tools returned besides text: asked again without it")
        finally:
            if not is_whole and text.strip():
                history.append(self._driver.user_message(text))

    # --- tools -------------------------------------------------------------------------------------------------------

    async def _call_all(self, history: list[Message], blocks: Sequence[dict[str, Any]]) -> AsyncGenerator[Event, None]:
        """Call the tools that a reply asks for, all at once; afterwards the history has an answer for each."""
        calls = [self._read(block) for block in blocks]
        try:
            for call, error, _ in calls:
                yield ToolCallStarted(call.id, call.name, call.arguments) if error is None else _refusal(call, error)
            calls = [call if call.error is not None else call._replace(task=self._start(call.call)) for call in calls]
            waiting = {call.task: call.call for call in calls if call.task is not None}
            while waiting:
                done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in [task for task in waiting if task in done]:
                    yield _outcome(waiting.pop(task), task)
        finally:
            tasks = [call.task for call in calls if call.task is not None]
            for task in tasks:
                task.cancel()
            try:
                await asyncio.gather(*tasks, return_exceptions=True)
            finally:
                self._answer(history, calls)

    def _read(self, block: dict[str, Any]) -> _Asked:
        try:
            return _Asked(self._host.from_call(block, self._driver.format))
        except Error as error:
            refusal = error
        except Exception:  # a call without an answer would make every later request fail
            log.exception("a call of the model's cannot be read")
            refusal = Error(_BROKEN)
        fields = cast("dict[str, Any]", block.get("function", block))
        return _Asked(ToolCall(str(fields.get("name") or "?"), {}, str(block["id"])), refusal)

    def _start(self, call: ToolCall) -> asyncio.Task[ToolResult]:
        def report(progress: float, total: float | None, message: str | None) -> None:
            if self.on_progress is not None:
                self.on_progress(call.id, progress, total, message)

        return asyncio.create_task(self._host.call(call.name, call.arguments, on_progress=report))

    def _answer(self, history: list[Message], calls: Sequence[_Asked]) -> None:
        answers: list[dict[str, Any]] = []
        results: list[ToolResult | None] = []
        for call in calls:
            outcome = _result(call)
            try:
                answers.append(self._host.to_result(outcome, call.call, self._driver.format))
            except Exception:
                log.exception("the result of %s cannot be passed to the model", call.call.name)
                outcome = Error(_BROKEN)
                answers.append(self._host.to_result(outcome, call.call, self._driver.format))
            results.append(outcome if isinstance(outcome, ToolResult) else None)
        history += self._driver.answer(answers, results)

    # --- for servers -------------------------------------------------------------------------------------------------

    async def sample(self, server: str, ask: Sampling) -> CreateMessageResult:
        """Let a server use the model: for `Host(on_sample=...)`. No tools, and nothing of the conversation.

        At most as many tokens as a conversation may use for an answer. Temperature, preferences and context are hints, and
        not taken: several models refuse them.

        Raises:
            ProtocolError: what the server is told; why a provider failed is in the log.
        """
        if ask.tools:
            raise LocalProtocolError.invalid_params(
                "the server may use the model without tools only: `sampling.tools` was not declared"
            )
        try:
            messages = [self._driver.ask(_role(message), _blocks(message)) for message in ask.messages]
        except ValueError as error:
            raise LocalProtocolError.invalid_params(f"the model does not take {error}") from None
        if not messages:
            raise LocalProtocolError.invalid_params("there are no messages to go on from")
        request = ModelRequest(
            messages=messages,
            max_tokens=max(1, min(ask.max_tokens, self._max_tokens)),
            system=ask.system_prompt or "",
        )
        try:
            return await self._sample(request, [stop for stop in ask.stop_sequences or () if stop])
        except ModelFailed as error:
            log.warning("the server %r wanted to use the model, and it failed: %s", server, error)
            raise ProtocolError.internal_error("the model could not answer") from None

    async def _sample(self, request: ModelRequest, stops: Sequence[str]) -> CreateMessageResult:
        text, reason, model = "", "end_turn", self.name
        async with aclosing(self._driver.stream(request)) as parts:
            async for part in parts:
                if isinstance(part, ModelReply):
                    reason, model = part.reason, part.model
                    break
                text += part
                # Looked for here, since not every model takes them.
                places = [at for stop in stops if (at := text.find(stop)) >= 0]
                if places:
                    text, reason = text[: min(places)], "stop_sequence"
                    break
        return CreateMessageResult(
            role="assistant",
            content={"type": "text", "text": text},
            model=model,
            stop_reason=_STOPPED.get(reason, reason),
        )


_STOPPED: Final[Mapping[str, str]] = {"end_turn": "endTurn", "max_tokens": "maxTokens", "stop_sequence": "stopSequence"}


def _role(message: Mapping[str, Any]) -> str:
    role = message.get("role")
    if role not in ("user", "assistant"):
        raise ValueError(f"a message of the role {role!r}")
    return role


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content: Any = message.get("content")
    items = cast("list[Any]", content if isinstance(content, list) else [content])
    blocks = [cast("Mapping[str, Any]", item) for item in items if isinstance(item, Mapping)]
    if not blocks:
        raise ValueError("a message without content")
    return blocks


def _refusal(call: ToolCall, error: Error) -> ToolCallRefused:
    return ToolCallRefused(call.id, call.name, str(error), error)


def _outcome(call: ToolCall, task: asyncio.Task[ToolResult]) -> Event:
    if task.cancelled():  # by no one here: what was cancelled with the message tells of nothing any more
        error = CallCancelled(_CANCELLED_ELSEWHERE)
        return ToolCallFailed(call.id, call.name, str(error), error)
    try:
        return ToolCallReturned(call.id, call.name, task.result())
    except (PermissionDenied, ConsentLost, UnknownName, LocalProtocolError) as error:
        return _refusal(call, error)
    except Error as error:
        return ToolCallFailed(call.id, call.name, str(error), error)


def _result(call: _Asked) -> ToolResult | Error:
    """The message to the model about a call that is over."""
    if call.error is not None:
        return call.error
    if call.task is None:
        return Error(_NOT_MADE)
    if call.task.cancelled() or not call.task.done():
        return Error(_CANCELLED)
    error = call.task.exception()
    if error is None:
        return call.task.result()
    return error if isinstance(error, Error) else Error(_BROKEN)


# --- which model -----------------------------------------------------------------------------------------------------


def open_model(
    name: str,
    host: Host,
    *,
    environ: Mapping[str, str] | None = None,
    max_tokens: int = 4096,
    max_turns: int = 50,
    system: str = "",
    code: bool = False,
) -> Conversation:
    """A model that may use the host's tools. Its provider's library is imported here, which takes a second or more.

    Args:
        name: `anthropic:claude-...`, `openai:gpt-...`, or a model alone where its name tells the provider.
        environ: The variables to read; None for those of this process.
        max_tokens: The longest answer to one request.
        max_turns: How many requests one message may lead to.
        system: The system prompt.
        code: Let the model write code over the tools, instead of calls; needs the extra `code`.

    Raises:
        ModelUnavailable: the name tells no provider, or its library or key is missing.
    """
    provider, driver = open_driver(name, os.environ if environ is None else environ)
    return Conversation(driver, host, provider, max_tokens=max_tokens, max_turns=max_turns, system=system, code=code)
