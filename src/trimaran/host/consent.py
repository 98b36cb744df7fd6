"""The way to a person: questions go out, answers come back, and no question waits for ever (R257-R261).

There are five kinds of question: a form that a server wants filled in, a page that it wants visited, a call that the rules
say to ask about, a server that wants to use our model, and definitions of a server that are not as they were agreed to. One party answers a `ConsentBridge`: a subscriber,

    async with bridge.attend() as questions:
        async for question in questions:
            question.decline()

or a function, `ConsentBridge(on_question=...)`. While there is a subscriber, the function is not called.

Silence is never consent. If nobody is there, the bridge declines at once. It declines with a warning after five minutes, or
when 64 questions wait already. When a subscriber leaves, its open questions fail with `ConsentLost`. The bridge never opens
a page: it passes on the whole URL, and the person visits it.

Questions are answered on the event loop that asks them.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Literal, Self, TypeAlias, final
from urllib.parse import SplitResult, urlsplit

from trimaran.client.server_requests import Elicitation, Sampling
from trimaran.errors import ConfigError, DeclarationError, Error, LocalProtocolError
from trimaran.types import Json, Tool

from .permissions import Decision, RememberedAnswers
from .trust.review import HeldDefinition

log: Final = logging.getLogger("trimaran.host")

CAP: Final = 300.0  # R259: seconds until a question counts as declined
MOST_WAITING: Final = 64  # R259: questions without an answer
_LAST_WORDS: Final = 2.0  # seconds for a dialog to put its things away

Kind: TypeAlias = Literal["elicit", "url", "permission", "sampling", "definition"]
Reply: TypeAlias = Literal["accept", "decline", "cancel", "allow once", "allow always", "deny", "deny always"]

_FORM: Final[frozenset[Kind]] = frozenset({"elicit", "url"})
_DECLINED: Final[frozenset[Kind]] = frozenset({"elicit", "url", "definition"})
"""Kinds whose no is `decline`; that of the others is `deny`."""


class ConsentLost(Error):
    """The person left before answering a question. Nothing was done."""

    kind = "consent_lost"


def split_as_browsers_do(url: str) -> SplitResult:
    """Where a browser goes. It reads "\\" as "/": the text after it is not part of the host, even if "@" follows.

    Raises:
        ValueError: this is no URL.
    """
    return urlsplit(url.replace("\\", "/"))


@final
class Question:
    """One question to a person. Answer it once; a second or late answer has no effect.

    A form (`elicit`) and a page (`url`) are answered by `accept`, `decline` or `cancel`; a call (`permission`) and the use of
    our model (`sampling`) by `allow` or `deny`; changed definitions (`definition`) by `agree` or `decline`. The texts of a
    form, a page, sampling and definitions are the server's words: show them as such.
    """

    def __init__(
        self,
        kind: Kind,
        server: str,
        message: str,
        *,
        schema: Mapping[str, Json] | None = None,
        url: str | None = None,
        tool: str | None = None,
        arguments: Mapping[str, object] | None = None,
        decision: Decision | None = None,
        request: Elicitation | Sampling | Tool | None = None,
        held: Sequence[HeldDefinition] = (),
        reasons: Sequence[str] = (),
    ) -> None:
        self.kind: Final = kind
        self.server: Final = server
        """The server that asks."""
        self.message: Final = message
        self.schema: Final[Mapping[str, Json]] = schema or {}
        """The form: a flat object schema."""
        self.url: Final = url
        """The page to visit, whole. Show it, ask, and open it only after a yes."""
        self.tool: Final = tool
        """The catalog's name of the tool to call."""
        self.arguments: Final = arguments
        """The arguments of the call."""
        self.decision: Final = decision
        """Why a person is asked: the rule, its tier and where it is written."""
        self.request: Final = request
        """The subject: the `Elicitation`, the `Sampling`, or the `Tool` to call."""
        self.held: Final = tuple(held)
        """The definitions that are not as they were agreed to. Show the `difference` of each."""
        self.reasons: Final = tuple(reasons)
        """Warnings about it: what was found in the words of the server, and where data may go. Show them prominently."""
        self.id: int = 0
        self.reply: Reply | None = None
        self.content: dict[str, Json] = {}
        """The fields of an accepted form."""
        self.pattern: str = ""
        """The rule of an "always", if it is about more than this tool."""
        self.note: str = ""
        """Why there was no answer, if there was none."""
        self._future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def __repr__(self) -> str:
        return f"<Question {self.id}: {self.kind} of {self.server!r}, {self.reply or ('open' if self.is_open else 'gone')}>"

    @property
    def host(self) -> str:
        """The host of the page to visit, for the person's decision. Punycode stays as it is."""
        try:
            return split_as_browsers_do(self.url or "").netloc.rpartition("@")[2]
        except ValueError:
            return ""

    @property
    def is_open(self) -> bool:
        """True while somebody waits for the answer."""
        return not self._future.done()

    async def wait_closed(self) -> None:
        """Wait until the question is closed: answered, too late, or withdrawn."""
        await asyncio.wait((self._future,))

    @property
    def defaults(self) -> dict[str, Json]:
        """The form's default values."""
        properties: Any = self.schema.get("properties")
        if not isinstance(properties, Mapping):
            return {}
        fields: Mapping[str, Any] = properties  # pyright: ignore[reportUnknownVariableType]
        return {
            name: field["default"]
            for name, field in fields.items()
            if isinstance(field, Mapping) and "default" in field
        }

    def problems(self, content: Mapping[str, Json]) -> list[str]:
        """The violations of the form in these fields; empty if they may be sent."""
        if not self.schema:
            return []
        from trimaran.schema.validate import Validator

        try:
            violations = Validator(dict(self.schema)).errors({**self.defaults, **content})
        except DeclarationError:
            return []  # a form that cannot be checked is the server's to check
        return [str(violation) for violation in violations if not violation.is_unchecked]

    # --- answers -----------------------------------------------------------------------------------------------------

    def accept(self, content: Mapping[str, Json] | None = None) -> bool:
        """Accept a form with these fields, and defaults for the others; or promise to visit a page.

        Returns True if the answer came in time.

        Raises:
            LocalProtocolError: a field does not fit the form; the question stays open.
        """
        self._must_be(_FORM, "accept", "agree" if self.kind == "definition" else "allow")
        answer = dict(content or {})
        if self.kind == "elicit" and (wrong := self.problems(answer)):
            raise LocalProtocolError.invalid_params("the answer does not fit the form: " + "; ".join(wrong))
        return self._answer("accept", content={} if self.kind == "url" else {**self.defaults, **answer})

    def decline(self) -> bool:
        """Decline. A call is denied, this once."""
        return self._answer("decline" if self.kind in _DECLINED else "deny")

    def cancel(self) -> bool:
        """Close the question without an answer. A call is denied, this once."""
        return self._answer("cancel" if self.kind in _DECLINED else "deny")

    def agree(self) -> bool:
        """Agree to the definitions of `held`, exactly as they are there. They are pinned, and used from now on."""
        self._must_be({"definition"}, "agree", "accept, or allow")
        return self._answer("accept")

    def allow(self, how: Literal["once", "always"] = "once", *, pattern: str = "") -> bool:
        """Allow a call, or sampling: now, or for the rest of the session.

        Args:
            pattern: for "always", the rule to remember, such as `mcp__files__read_*`; without one, this tool.
        """
        self._must_be({"permission", "sampling"}, "allow", "accept")
        return self._answer("allow always" if _always(how) else "allow once", pattern=pattern)

    def deny(self, how: Literal["once", "always"] = "once", *, pattern: str = "") -> bool:
        """Deny a call, or sampling: now, or for the rest of the session."""
        self._must_be({"permission", "sampling"}, "deny", "decline")
        return self._answer("deny always" if _always(how) else "deny", pattern=pattern)

    def _must_be(self, kinds: frozenset[Kind] | set[Kind], method: str, better: str) -> None:
        if self.kind not in kinds:
            raise ConfigError(f"a question of the kind {self.kind!r} has no {method}(): use {better}()")

    def _answer(self, reply: Reply, *, content: dict[str, Json] | None = None, pattern: str = "") -> bool:
        if not self.is_open:
            return False
        if pattern:
            self._try(reply, pattern)
        self.reply, self.content, self.pattern = reply, content or {}, pattern
        self._future.set_result(None)
        return True

    def _try(self, reply: Any, pattern: str) -> None:
        """Raise RuleError or ConfigError for an unusable pattern, while the person can still fix it."""
        if self.decision is None or not reply.endswith("always"):
            raise ConfigError(f'a pattern is for "always", and for a call: not for {reply!r} to {self.kind!r}')
        RememberedAnswers().settle(self.decision, reply, self.arguments, pattern=pattern)

    # --- for the bridge ----------------------------------------------------------------------------------------------

    def refuse(self, note: str) -> None:
        """Decline because there was no answer; `note` says why."""
        if self.decline():
            self.note = note

    def fail(self, error: Error) -> None:
        if self.is_open:
            self._future.set_exception(error)
            self._future.exception()  # mark it as retrieved

    async def answered(self) -> None:
        """Wait for the answer. Cancelling the wait withdraws the question."""
        await self._future


def _always(how: str) -> bool:
    if how not in ("once", "always"):
        raise ConfigError(f'an answer must hold "once" or "always", not {how!r}')
    return how == "always"


@final
class Questions:
    """The questions of one subscriber, as they come."""

    def __init__(self) -> None:
        self._coming: deque[Question] = deque()
        self._wake = asyncio.Event()
        self._is_over = False

    def put(self, question: Question) -> None:
        self._coming.append(question)
        self._wake.set()

    def end(self) -> None:
        self._is_over = True
        self._wake.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Question:
        while True:
            while self._coming:
                question = self._coming.popleft()
                if question.is_open:
                    return question
            if self._is_over:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()


@final
class ConsentBridge:
    """Passes a host's questions to the person who answers them. It belongs to one host, which closes it.

    Args:
        on_question: Called with each question while no subscriber is there. It answers by the question's methods, at once
            or later; a coroutine function may take its time. A plain function must not block.
        cap: Seconds until a question counts as declined.
        most: Questions that may wait at the same time.
    """

    def __init__(
        self,
        *,
        on_question: Callable[[Question], object] | None = None,
        cap: float = CAP,
        most: int = MOST_WAITING,
    ) -> None:
        if on_question is not None and not callable(on_question):
            raise ConfigError(f"on_question must be a function, not {type(on_question).__name__}")
        if cap <= 0 or most < 1:
            raise ConfigError(f"a bridge needs time and room: cap and most above 0, not cap={cap}, most={most}")
        self.on_question = on_question
        self.cap = cap
        self.most = most
        self._subscriber: Questions | None = None
        self._open: dict[int, Question] = {}
        self._ids = itertools.count(1)
        self._running: set[asyncio.Task[None]] = set()
        self._is_closed = False

    def __repr__(self) -> str:
        return f"<Bridge, {'attended' if self.is_attended else 'nobody there'}, {len(self._open)} questions open>"

    @property
    def is_attended(self) -> bool:
        """True if somebody can answer."""
        return not self._is_closed and (self._subscriber is not None or self.on_question is not None)

    @property
    def waiting(self) -> tuple[Question, ...]:
        """The open questions, the oldest first."""
        return tuple(self._open.values())

    @asynccontextmanager
    async def attend(self) -> AsyncGenerator[Questions]:
        """Answer the questions while the block lasts.

        Raises:
            ConfigError: there is another subscriber.
        """
        if self._subscriber is not None:
            raise ConfigError("somebody answers the questions of this bridge already: one at a time")
        questions = self._subscriber = Questions()
        if self._is_closed:
            questions.end()
        before = set(self._open)
        try:
            yield questions
        finally:
            self._subscriber = None
            questions.end()
            for number, question in tuple(self._open.items()):
                if number not in before:
                    question.fail(
                        ConsentLost(f"the one who answers questions left: {_describe(question)} was not answered")
                    )

    async def ask(self, question: Question) -> Question:
        """Ask a question and wait. When this returns, the question has a `reply`.

        Raises:
            ConsentLost: the subscriber left while the question was open.
        """
        if not self.is_attended:
            question.refuse("nobody is here to ask")
            return question
        if len(self._open) >= self.most:
            log.warning("%s is declined: %d questions wait for an answer already", _describe(question), self.most)
            question.refuse(f"{self.most} questions wait for an answer already")
            return question
        question.id = next(self._ids)
        self._open[question.id] = question
        try:
            self._show(question)
            async with asyncio.timeout(self.cap):
                await question.answered()
        except TimeoutError:
            # The timeout cancelled the question's future; an answer at the last moment still counts.
            if question.reply is None:
                log.warning("%s is declined: nobody answered within %g s", _describe(question), self.cap)
                question.reply, question.note = _no(question), f"nobody answered within {self.cap:g} s"
        finally:
            del self._open[question.id]
        return question

    def _show(self, question: Question) -> None:
        if self._subscriber is not None:
            self._subscriber.put(question)
            return
        assert self.on_question is not None
        try:
            promised = self.on_question(question)
        except Exception:
            log.exception("on_question failed, and %s is declined", _describe(question))
            question.refuse("on_question failed")
            return
        if inspect.isawaitable(promised):
            task = asyncio.ensure_future(self._run(promised, question))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _run(self, promised: Any, question: Question) -> None:
        work = asyncio.ensure_future(promised)
        try:
            closing = asyncio.ensure_future(question.wait_closed())
            try:
                # If withdrawn, cancel the dialog; if answered, let it finish.
                await asyncio.wait((work, closing), return_when=asyncio.FIRST_COMPLETED)
                if question.is_open or (question.reply is not None and not question.note):
                    await work
            finally:
                closing.cancel()
        except asyncio.CancelledError:
            question.refuse("the dialog was ended")  # no effect if the question ended first
            raise
        except Exception:
            log.exception("on_question failed, and %s is declined", _describe(question))
            question.refuse("on_question failed")
        finally:
            work.cancel()
            await asyncio.wait((work,), timeout=_LAST_WORDS)
            if work.done() and not work.cancelled():
                work.exception()  # logged above, or not needed any more

    async def close(self) -> None:
        """Fail all open questions, end the subscriber, and take no more questions."""
        self._is_closed = True
        if self._subscriber is not None:
            self._subscriber.end()
        for question in tuple(self._open.values()):
            question.fail(ConsentLost(f"the host was closed: {_describe(question)} was not answered"))
        running = tuple(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def _no(question: Question) -> Reply:
    return "decline" if question.kind in _DECLINED else "deny"


def _describe(question: Question) -> str:
    if question.kind == "permission":
        return f"the call of {question.tool}"
    return f"the question of the server {question.server!r}"
