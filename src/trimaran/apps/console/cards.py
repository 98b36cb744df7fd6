"""A card: a question in front of everything else, with its answers as buttons and as keys.

A question may come while the person is typing, and those keys are not meant for it. So a card takes no answer until no key
was pressed for a moment, counted from when it could be seen. Keys and pastes until then go on into the prompt, if the person
was typing there, and nowhere else (`ConsoleApp.on_event`). A person who thinks in the middle of a line makes longer pauses:
while an unfinished line stands in the prompt, the card does not take the first key after the pause either, and says so.
The answer that does nothing has the focus, and Enter alone allows nothing.

A long text is scrolled, and the card says that there is more: a person must not agree to a part that looks like the whole.
On a small terminal the answers stay on the card, and what is asked gets the lines that are left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, ClassVar, Final, Generic, TypeVar

from rich.console import RenderableType
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Static

_FRAME: Final = 6  # lines of a card besides what is asked: its border, its title, its answers, and a gap after each
_SHORT: Final = 16  # lines of a terminal on which there is no room for gaps
_NARROW: Final = 70  # columns of one on which the answers stand close

SETTLE: Final = 0.5  # seconds without a key until a card takes an answer: between two letters of a word pass 0.2

T = TypeVar("T")


class Card(ModalScreen[T], Generic[T]):
    """A question. Subclasses say what is on it, and what answers it.

    Args:
        settle: Seconds without a key until it takes an answer.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "cancel", "Close", show=False),
        Binding("left", "app.focus_previous", show=False),
        Binding("right", "app.focus_next", show=False),
        Binding("up", "scroll(-1)", show=False),
        Binding("down", "scroll(1)", show=False),
        Binding("pageup", "scroll(-10)", show=False),
        Binding("pagedown", "scroll(10)", show=False),
    ]
    title_text: ClassVar[str] = ""

    def __init__(self, *, settle: float = SETTLE) -> None:
        super().__init__()
        self._settle = settle
        self._touched: float | None = None  # until it can be seen
        self.is_armed: bool = True
        """False: the person was typing, and the next key may still be part of that."""
        self.covers_prompt = False
        """True: the person was at the prompt when the card came, so early keys belong there."""
        self._title = Static(Text(self.title_text), classes="card-title")

    def entitle(self, title: str) -> None:
        """Have another title."""
        if self._title.is_mounted:
            self._title.update(Text(title))

    def compose(self) -> ComposeResult:
        with Vertical(classes="card"):
            yield self._title
            with VerticalScroll(classes="card-body", can_focus=False):
                yield from self.body()
            with Horizontal(classes="card-keys"):
                yield from self.buttons()

    def body(self) -> Iterable[Widget]:
        """The content of the card, as widgets."""
        return (Static(part) for part in self.parts())

    def parts(self) -> Iterable[RenderableType]:
        """The content of the card, where it is only text."""
        return ()

    def buttons(self) -> Iterable[Button]:
        """The answers. Their ids are what `answer` is given; the one with the class `safe` has the focus."""
        return ()

    def answer(self, how: str) -> None:
        """An answer was given."""

    def cancel(self) -> None:
        """The card was closed without one."""

    def on_mount(self) -> None:
        self.call_after_refresh(self.touch)
        body = self.query_one(".card-body")
        self.watch(body, "scroll_y", self._update_more_mark, init=False)
        self.watch(body, "virtual_size", self._update_more_mark)
        self.focus_first()

    def focus_first(self) -> None:
        """Give the keyboard to the answer that does nothing."""
        for button in self.query("Button.safe"):
            button.focus()

    def on_resize(self, event: events.Resize) -> None:
        width, height = event.size
        is_narrow, is_short = width < _NARROW, height < _SHORT
        self.set_class(is_narrow, "-narrow")
        self.set_class(is_short, "-short")
        room = height - _FRAME + 2 if is_short else height * 95 // 100 - _FRAME
        for body in self.query(".card-body"):  # none, as long as nothing of the card is there
            body.styles.max_height = max(room, 1)
        for button in self.query(".card-keys Button").results(Button):
            button.styles.line_pad = 0 if is_narrow else 1
            button.styles.width = len(str(button.label)) if is_narrow else "auto"
        self._update_more_mark()

    def _update_more_mark(self) -> None:
        self.call_after_refresh(self._tell_more)

    def _tell_more(self) -> None:
        for body in self.query(".card-body"):  # none, if the card went away meanwhile
            is_more = body.scroll_offset.y < body.max_scroll_y
            self.query_one(".card").border_subtitle = "more below: PgDn" if is_more else ""

    # --- keys --------------------------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """True once the person has had the time to see the question."""
        if self._settle <= 0:
            return True
        return self._touched is not None and asyncio.get_running_loop().time() - self._touched >= self._settle

    @property
    def is_in_front(self) -> bool:
        """True if the card gets the keys. Textual's `is_current` is about visibility, and `dismiss` removes the screen in front."""
        app: App[Any] = self.app  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType] - of whatever application this is
        return bool(app.screen_stack) and app.screen is self

    def takes_key(self) -> bool:
        """Whether a pressed key was meant for this card."""
        is_settled = self.is_settled
        if is_settled and self.is_armed:
            return True
        self.touch()
        if is_settled:
            self.is_armed = True
            self.query_one(".card").border_title = "that key was not taken, since you were typing: press it again"
        return False

    def touch(self) -> None:
        """A key was pressed, or the card was drawn: from now on there has to be silence."""
        self._touched = asyncio.get_running_loop().time()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        event.stop()
        if self.is_settled and event.button.id is not None:
            self.answer(event.button.id)

    def action_answer(self, how: str) -> None:
        if self.is_settled:
            self.answer(how)

    def action_cancel(self) -> None:
        if self.is_settled:
            self.cancel()

    def action_scroll(self, lines: int) -> None:
        self.query_one(".card-body").scroll_relative(y=lines, animate=False)
