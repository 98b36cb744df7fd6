"""A card: a question in front of everything else, with its answers as buttons and as keys.

A question may come while somebody is typing, and what they type was not meant for it. So a card takes no answer until no key
was pressed for a moment. The answer that does nothing has the focus, and Enter alone allows nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import ClassVar, Final, Generic, TypeVar

from rich.console import RenderableType
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Static

__all__ = ["SETTLE", "Card"]

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
        self._touched = asyncio.get_running_loop().time()
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
        """What is on the card, as widgets."""
        return (Static(part) for part in self.parts())

    def parts(self) -> Iterable[RenderableType]:
        """What is on the card, where it is only to be read."""
        return ()

    def buttons(self) -> Iterable[Button]:
        """The answers. Their ids are what `answer` is given; the one with the class `safe` has the focus."""
        return ()

    def answer(self, how: str) -> None:
        """An answer was given."""

    def cancel(self) -> None:
        """The card was closed without one."""

    def on_mount(self) -> None:
        for button in self.query("Button.safe"):
            button.focus()

    # --- keys --------------------------------------------------------------------------------------------------------

    @property
    def is_settled(self) -> bool:
        """Has the person had the time to see that there is a question?"""
        return asyncio.get_running_loop().time() - self._touched >= self._settle

    def on_key(self, event: events.Key) -> None:
        # Every key passes here before any binding is looked at.
        if not self.is_settled:
            self._touched = asyncio.get_running_loop().time()
            event.stop()
            event.prevent_default()

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
