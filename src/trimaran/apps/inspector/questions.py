"""What servers ask a person: forms, pages to visit, a model's answer. Each waits as a card until somebody answers.

The client stops the call's deadline meanwhile, so a person may take any time. Nobody declines for the person. A question
whose server is gone, or whose call is cancelled, is withdrawn.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, Literal, Protocol, cast, final

import msgspec
from msgspec import Struct

from trimaran.client.server_requests import Elicitation, Sampling
from trimaran.errors import DeclarationError, ProtocolError
from trimaran.host.consent import split_as_browsers_do
from trimaran.host.form_fields import Field, Form
from trimaran.schema.validate import Validator
from trimaran.types import Json

from .events import PageEvents, now_ms
from .requests import BadRequest, NotThere

_MOST_KEPT: Final = 1_000  # answered ones, for the calls that show them

Kind = Literal["elicit", "url", "sampling", "request"]
SampleByModel = Callable[[Sampling], Awaitable[Any]]


class FieldCard(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """One field of a form."""

    name: str
    title: str
    description: str
    hint: str
    kind: str
    required: bool
    choices: list[dict[str, Any]]
    schema: Mapping[str, Any]
    default: Any = None


class AnsweredQuestion(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """What a person answered."""

    action: str
    at: float
    content: Any = None


class PersonQuestion(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """One question, as the page shows it."""

    id: str
    server: str
    at: float
    era: str
    kind: Kind
    message: str
    raw: Any
    call: str | None = None
    round: int | None = None
    schema: Any = None
    fields: list[FieldCard] | None = None
    url: str | None = None
    host: str | None = None
    elicitation_id: str | None = None
    sampling: Any = None
    answer: AnsweredQuestion | None = None


class WaitingCalls(Protocol):
    """Who is told that a call waits for a person."""

    def call_for(self, server: str) -> str | None: ...
    def begin_wait(self, call: str | None, era: str) -> None: ...
    def end_wait(self, call: str | None, era: str) -> None: ...
    def round_of(self, call: str | None) -> int | None: ...


@final
class _Open:
    def __init__(self, card: PersonQuestion, form: Form | None, sampling: Sampling | None = None) -> None:
        self.card = card
        self.sampling = sampling
        self.form = form
        self.answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()


@final
class QuestionDesk:
    """The questions that wait, and those that were answered."""

    def __init__(self, events: PageEvents, calls: WaitingCalls) -> None:
        self._events = events
        self._calls = calls
        self._ids = itertools.count(1)
        self._open: dict[str, _Open] = {}
        self._answered: dict[str, PersonQuestion] = {}
        self.declines: bool = False
        """Nobody is there to answer: decline at once."""
        self.sample_by_model: SampleByModel | None = None
        """Asks a model with a key; None without one."""

    def waiting(self) -> list[PersonQuestion]:
        return [entry.card for entry in self._open.values()]

    def of_call(self, call: str) -> list[PersonQuestion]:
        cards = [*self._answered.values(), *self.waiting()]
        return [card for card in cards if card.call == call]

    # Asked by a client

    async def elicit(self, server: str, era: str, elicitation: Elicitation) -> Any:
        """Have a form filled in, or a page visited."""
        card = self._card(
            server, era, "url" if elicitation.mode == "url" else "elicit", elicitation.message, elicitation.raw
        )
        form = None
        if elicitation.mode == "url":
            card.url, card.elicitation_id = elicitation.url, elicitation.elicitation_id
            card.host = _host_of(elicitation.url or "")
        else:
            card.schema = elicitation.schema
            form = _form_of(elicitation.schema)
            card.fields = [] if form is None else [_field_card(field) for field in form.fields]
        return await self._ask(card, form)

    async def sample(self, server: str, era: str, sampling: Sampling) -> Any:
        """Have a model's turn written, by a person or by a model."""
        card = self._card(server, era, "sampling", sampling.text, sampling.raw)
        card.sampling = dict(sampling.raw)
        return await self._ask(card, None, sampling)

    async def request(self, server: str, era: str, method: str, params: Mapping[str, Json]) -> Any:
        """Have a request answered that this library has no name for."""
        return await self._ask(self._card(server, era, "request", method, {"method": method, "params": params}), None)

    def _card(self, server: str, era: str, kind: Kind, message: str, raw: Any) -> PersonQuestion:
        call = self._calls.call_for(server)
        round = self._calls.round_of(call)
        id = f"q{next(self._ids)}"
        return PersonQuestion(
            id=id, server=server, at=now_ms(), era=era, kind=kind, message=message, raw=raw, call=call, round=round
        )

    async def _ask(self, card: PersonQuestion, form: Form | None, sampling: Sampling | None = None) -> Any:
        if self.declines:
            return self._result(card, "decline", None)
        entry = self._open[card.id] = _Open(card, form, sampling)
        self._events.emit("question", key=card.id, size=2_000, question=card)
        self._calls.begin_wait(card.call, card.era)
        try:
            return await entry.answer
        except asyncio.CancelledError:
            self._close(card, AnsweredQuestion(action="withdrawn", at=now_ms()))
            raise
        finally:
            self._calls.end_wait(card.call, card.era)

    def _close(self, card: PersonQuestion, answer: AnsweredQuestion) -> None:
        if self._open.pop(card.id, None) is None:
            return
        card.answer = answer
        self._answered[card.id] = card
        while len(self._answered) > _MOST_KEPT:
            del self._answered[next(iter(self._answered))]
        self._events.forget("question", card.id)
        self._events.emit("question-closed", id=card.id, answer=answer.action)

    # Answered by a person

    async def answer(self, id: str, body: Mapping[str, Any]) -> None:
        """Answer a question.

        Raises:
            NotThere: it does not wait any more.
            BadRequest: the answer does not fit; says which field and why.
        """
        entry = self._open.get(id)
        if entry is None:
            raise NotThere(f"the question {id!r} is not open any more: it was answered or withdrawn")
        action = body.get("action")
        if action not in ("accept", "decline", "cancel"):
            raise BadRequest('action must be "accept", "decline" or "cancel"')
        card = entry.card
        content: Any = None
        if action == "accept":
            content = await self._content(entry, body)
        result = self._result(card, str(action), content)
        if entry.answer.done():
            raise NotThere(f"the question {id!r} was withdrawn meanwhile")
        self._close(card, AnsweredQuestion(action=str(action), at=now_ms(), content=content))
        if isinstance(result, BaseException):
            entry.answer.set_exception(result)
        else:
            entry.answer.set_result(result)

    def _result(self, card: PersonQuestion, action: str, content: Any) -> Any:
        if card.kind in ("elicit", "url"):
            return {"action": action, "content": content} if action == "accept" and content else {"action": action}
        if action == "accept":
            return content
        return ProtocolError(-1, "the person declined") if card.kind == "request" else None

    async def _content(self, entry: _Open, body: Mapping[str, Any]) -> Any:
        kind = entry.card.kind
        if kind == "url":
            return None
        if kind == "request":
            return _object_in(body, "result")
        if kind == "sampling":
            return await self._sampled(entry, body)
        form = entry.form
        if "typed" in body:
            if form is None:
                raise BadRequest("this form has a schema that cannot be read; send content")
            content, problems = form.read(_object_in(body, "typed"))
            if problems:
                raise BadRequest("the answer does not fit the form", status=422, problems=problems)
            return content
        content = _object_in(body, "content")
        if not body.get("unchecked"):
            problems = _problems_in(entry.card.schema, content)
            if problems:
                raise BadRequest("the answer does not fit the form", status=422, problems=problems)
        return content

    async def _sampled(self, entry: _Open, body: Mapping[str, Any]) -> Any:
        if body.get("by") == "model":
            if self.sample_by_model is None:
                raise BadRequest("there is no model: start the inspector with --model NAME")
            assert entry.sampling is not None
            return msgspec.to_builtins(await self.sample_by_model(entry.sampling))
        if "result" in body:
            return _object_in(body, "result")
        text = body.get("text")
        if not isinstance(text, str):
            raise BadRequest('a sampling answer needs "text", "result" or "by": "model"')
        model = body.get("model") or "a person at the inspector"
        content = {"type": "text", "text": text}
        return {"role": "assistant", "content": content, "model": str(model), "stopReason": "endTurn"}


def _field_card(field: Field) -> FieldCard:
    return FieldCard(
        name=field.name,
        title=field.title,
        description=field.description,
        hint=field.hint,
        kind=field.kind,
        required=field.required,
        default=field.default,
        choices=[{"value": value, "title": title} for value, title in field.choices],
        schema=field.schema,
    )


def _form_of(schema: Mapping[str, Json]) -> Form | None:
    try:
        return Form(schema)
    except (DeclarationError, ValueError, RecursionError):
        return None


def _problems_in(schema: Any, content: Any) -> dict[str, str]:
    """What is wrong with an answer, by field."""
    try:
        violations = Validator(schema).errors(content)
    except DeclarationError:
        return {}
    problems: dict[str, str] = {}
    for violation in violations:
        field = violation.subject or violation.path.removeprefix("$").lstrip(".").partition(".")[0].partition("[")[0]
        problems.setdefault(field, violation.reason)
    return problems


def _object_in(body: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = body.get(key, {})
    if not isinstance(value, dict):
        raise BadRequest(f"{key} must be an object")
    return cast("dict[str, Any]", value)


def _host_of(url: str) -> str:
    try:
        return split_as_browsers_do(url).hostname or ""
    except ValueError:
        return ""
