"""Questions to the person, one at a time, each on a card in front of everything else.

`QuestionQueue` takes them from the host's bridge in the order they came. A card that nobody waits for any more vanishes: it was
withdrawn, or its time was up. Whatever ends the console ends the desk, and then nothing was allowed.

A server may ask as often as it likes, and a card is in front of everything else: so its forms and pages can be declined for
as long as the console runs, unseen.

The words of a form, of a page, of sampling and of definitions are the server's, and the cards say so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast
from urllib.parse import urlsplit

from rich.console import RenderableType
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget
from textual.widgets import Button, Static

from trimaran.host.terminal_text import in_one_line, safe, shortened, to_json

from .cards import SETTLE, Card

if TYPE_CHECKING:
    from textual.app import App

    from trimaran.host import ConsentBridge, Question

log: Final = logging.getLogger("trimaran.apps.console")

_MOST: Final = 20_000  # characters shown of arguments, or of a message
_LONGEST_URL: Final = 8000  # characters: browsers and servers agree on about as many
_MOST_MESSAGES: Final = 50
_MOST_REASONS: Final = 8
_LONGEST_REASON: Final = 400  # characters


class QuestionCard(Card[None]):
    """A card for a question of the bridge. The card closes when the question is closed, by anybody."""

    def __init__(self, question: Question, *, settle: float = SETTLE) -> None:
        super().__init__(settle=settle)
        self.question = question
        self.is_never: bool = False
        """True if every further question of this server is declined."""

    def on_screen_resume(self) -> None:
        if not self.question.is_open:  # it ended while something else was in front
            self.call_later(self.leave)

    def leave(self) -> None:
        """Go away, if nothing is in front; else later."""
        if self.is_in_front:
            self.dismiss()

    def decline_for_good(self) -> None:
        self.is_never = True
        self.question.decline()

    def count(self, waiting: int) -> None:
        """Say how many questions there are."""
        more = f"   1 of {waiting}" if waiting > 1 else ""
        self.entitle(self.title_text + more)

    def cancel(self) -> None:
        self.question.cancel()

    def body(self) -> Iterable[Widget]:
        yield from map(Static, show_warnings(self.question.reasons))
        yield from super().body()


def show_warnings(reasons: Sequence[str]) -> Iterable[Text]:
    """The findings about a question, before everything else: a person who reads one line reads this."""
    if not reasons:
        return
    yield Text("Careful", style="bold red")
    for reason in reasons[:_MOST_REASONS]:
        yield Text("! ", style="bold red").append(in_one_line(reason, _LONGEST_REASON), style="not bold yellow")
    if len(reasons) > _MOST_REASONS:
        yield Text(f"... and {len(reasons) - _MOST_REASONS} more reasons to be careful", style="yellow")
    yield Text("")


class _YesNoCard(QuestionCard):
    """A question that is answered by yes, always, no or never."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('yes')", show=False),
        Binding("a", "answer('always')", show=False),
        Binding("n", "answer('no')", show=False),
        Binding("d", "answer('never')", show=False),
    ]

    def buttons(self) -> Iterable[Button]:
        return (
            Button("y  Yes, once", id="yes", compact=True),
            Button("a  Always", id="always", compact=True),
            Button("n  No", id="no", compact=True, classes="safe"),
            Button("d  Never", id="never", compact=True),
        )

    def answer(self, how: str) -> None:
        match how:
            case "yes":
                self.question.allow("once")
            case "always":
                self.question.allow("always")
            case "never":
                self.question.deny("always")
            case _:
                self.question.deny("once")


class PermissionCard(_YesNoCard):
    """Asks whether a tool may be called with these arguments."""

    title_text = "May this call be made?"

    def parts(self) -> Iterable[RenderableType]:
        question = self.question
        decision = question.decision
        yield _rows(
            ("server", question.server),
            ("tool", question.tool or ""),
            ("asked because", decision.because if decision is not None else ""),
        )
        if question.arguments:
            yield Text("arguments", style="bold")
            yield Text(shortened(_written(question.arguments), _MOST))
        else:
            yield Text("without arguments", style="bold")
        warned = "; always also answers these warnings" if question.reasons else ""
        yield Text(f"\nAlways and never are about this tool, until the console ends{warned}.", style="dim")


class SamplingCard(_YesNoCard):
    """Asks whether a server may use our model."""

    title_text = "May this server use your model?"

    def parts(self) -> Iterable[RenderableType]:
        ask: Any = self.question.request
        yield _rows(("server", self.question.server), ("at most", f"{getattr(ask, 'max_tokens', '?')} tokens"))
        yield Text("The text for your model, in the server's words:", style="bold")
        system = getattr(ask, "system_prompt", None)
        if system:
            yield _turn_of("system", system)
        messages: list[Any] = list(getattr(ask, "messages", None) or [])
        for message in messages[:_MOST_MESSAGES]:
            yield _turn_of(str(message.get("role", "?")), _words(message.get("content")))
        if len(messages) > _MOST_MESSAGES:
            yield Text(f"... and {len(messages) - _MOST_MESSAGES} more messages", style="dim")
        yield Text("\nAlways and never are about this server, until the console ends.", style="dim")


class PageCard(QuestionCard):
    """A server wants a page visited."""

    title_text = "A server wants you to visit a page"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,o", "answer('open')", show=False),
        Binding("n", "answer('no')", show=False),
        Binding("d", "answer('never')", show=False),
    ]

    def __init__(self, question: Question, open_page: Callable[[str], None], *, settle: float = SETTLE) -> None:
        super().__init__(question, settle=settle)
        self._open_page = open_page

    @property
    def refusal(self) -> str:
        """Why the page is not to be opened; empty if it may be."""
        url = self.question.url or ""
        try:
            scheme = urlsplit(url).scheme.lower()
        except ValueError:
            return "This is no address that can be read, so it is not opened."
        if scheme not in ("http", "https"):
            return f"Only pages on the web are opened from here, http and https; this is {scheme or 'none'!r}."
        if not self.question.host or any(not character.isprintable() or character.isspace() for character in url):
            return "This address is not written as addresses are, so it is not opened."
        if len(url) > _LONGEST_URL:
            return "This address is too long to be looked at, so it is not opened."
        return ""

    def parts(self) -> Iterable[RenderableType]:
        question = self.question
        yield _rows(("server", question.server))
        yield Text("It says:", style="bold")
        yield Text(shortened(question.message, _MOST))
        yield Text("\nThe page is on the host", style="bold")
        yield Text(safe(question.host) or "(none)", style="bold yellow")
        if not question.host.isascii():
            yield Text("Not all of its letters are plain ones: it may look like another host.", style="red")
        yield Text("The whole address", style="bold")
        yield Text(shortened(question.url or "", _MOST), overflow="fold")
        if self.refusal:
            yield Text(f"\n{safe(self.refusal)}", style="red")
        else:
            yield Text("\nNothing is opened unless you say so. Is this the host you expect?", style="dim")
        yield Text("Never declines whatever this server asks you, until the console ends.", style="dim")

    def buttons(self) -> Iterable[Button]:
        if not self.refusal:
            yield Button("y  Open it", id="open", compact=True)
        yield Button("n  No", id="no", compact=True, classes="safe")
        yield Button("d  Never", id="never", compact=True)

    def answer(self, how: str) -> None:
        if how == "never":
            self.decline_for_good()
        elif how != "open":
            self.question.decline()
        elif not self.refusal and self.question.accept():
            self._open_page(self.question.url or "")


def _rows(*rows: tuple[str, str]) -> Text:
    """Names and values, one below the other."""
    wide = max(len(name) for name, _ in rows)
    text = Text()
    for name, value in rows:
        text.append(f"{name:<{wide}}  ", style="dim").append(f"{in_one_line(value, 400)}\n")
    text.rstrip()
    return text.append("\n")


def _written(arguments: Any) -> str:
    """The arguments as JSON, or the reason why they have no JSON form."""
    try:
        return to_json(arguments)
    except (ValueError, TypeError, RecursionError) as error:
        return f"(they cannot be shown: {error}; say no)"


def _turn_of(role: str, words: str) -> Text:
    return Text(f"{in_one_line(role, 20)}: ", style="bold").append(shortened(words, _MOST), style="not bold")


def _words(content: Any) -> str:
    blocks = cast("list[Any]", content) if isinstance(content, list) else [content]
    return "\n".join(map(_word, blocks))


def _word(block: Any) -> str:
    """A block of a message: its text, or what it is."""
    fields = cast("dict[str, Any]", block) if isinstance(block, dict) else {}
    text = fields.get("text")
    return text if isinstance(text, str) else f"[{fields.get('type', 'something')}]"


def card_for(question: Question, open_page: Callable[[str], None], *, settle: float = SETTLE) -> QuestionCard:
    """The card that goes with the kind of question."""
    match question.kind:
        case "permission":
            return PermissionCard(question, settle=settle)
        case "sampling":
            return SamplingCard(question, settle=settle)
        case "url":
            return PageCard(question, open_page, settle=settle)
        case "elicit":
            from .formcard import FormCard

            return FormCard(question, settle=settle)
        case "definition":
            from .definitioncard import DefinitionCard

            return DefinitionCard(question, settle=settle)


class QuestionQueue:
    """Puts the host's questions to the person, one at a time.

    Args:
        told: Called with each question when it is over.
        is_typing: Is the person in the middle of something else?
    """

    def __init__(
        self,
        app: App[Any],
        bridge: ConsentBridge,
        *,
        open_page: Callable[[str], None],
        on_answered: Callable[[Question], None],
        is_typing: Callable[[], bool] = lambda: False,
        settle: float = SETTLE,
    ) -> None:
        self._app = app
        self._bridge = bridge
        self._open_page = open_page
        self._on_answered = on_answered
        self._is_typing = is_typing
        self._settle = settle
        self._was_next = False
        self._never: set[str] = set()
        """Servers whose forms and pages are declined unseen."""
        self.card: QuestionCard | None = None
        """The one that is shown."""

    @property
    def waiting(self) -> Sequence[Question]:
        """The questions that have no answer yet, shown or not."""
        return [question for question in self._bridge.waiting if question.is_open]

    async def attend(self, ready: asyncio.Event) -> None:
        """Put every question that comes, until the host is closed."""
        async with self._bridge.attend() as questions:
            ready.set()
            async for question in questions:
                await self._put(question)

    async def _put(self, question: Question) -> None:
        if question.server in self._never and question.kind in ("elicit", "url"):
            question.decline()
            return
        try:
            card = card_for(question, self._open_page, settle=self._settle)
        except Exception:
            # A form that cannot be drawn cannot be filled in.
            log.exception("a question of the server %r cannot be shown, and is declined", question.server)
            question.refuse("it cannot be shown")
            self._on_answered(question)
            return
        self.card = card
        # One that waited behind another comes to somebody who is answering, not typing.
        card.is_armed = self._was_next or not self._is_typing()
        card.covers_prompt = not self._was_next and len(self._app.screen_stack) == 1
        try:
            await self._app.push_screen(card)
            card.count(len(self._bridge.waiting))
            await question.wait_closed()
        finally:
            self.card = None
            self._was_next = bool(self.waiting)
            card.leave()
        if card.is_never:
            self._never.add(question.server)
        self._on_answered(question)

    def tick(self) -> None:
        """Update the number of waiting questions."""
        if self.card is not None:
            self.card.count(len(self._bridge.waiting))
