"""The card for definitions that are not as the person agreed to them: what differs, word by word, and whether to use it.

The words are the server's, and may be meant for the model: they are shown as text, with what nobody sees spelled out. No is
the answer that Enter gives, and Esc; then nothing of it is offered or called.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Final, final

from rich.console import RenderableType
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import Button

from trimaran.host.terminal_text import in_one_line, visible
from trimaran.host.trust.pins_diff import MARKS

from .questions import QuestionCard

if TYPE_CHECKING:
    from trimaran.host import HeldDefinition

_MOST: Final = 50  # definitions on a card; `trimaran pins diff` has them all
_MOST_TEXT: Final = 4000  # characters of one piece
_STYLES: Final = {"same": "dim", "removed": "red strike", "added": "green"}
_WORDS: Final = {
    "changed": ("changed", "yellow"),
    "new": ("new", "green"),
    "unverified": ("not verified", "red"),
}


@final
class DefinitionCard(QuestionCard):
    """Asks whether changed and new definitions of a server may be used."""

    title_text = "This server is not as you agreed to it"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('yes')", show=False),
        Binding("n", "answer('no')", show=False),
    ]

    def parts(self) -> Iterable[RenderableType]:
        definitions = self.question.held
        yield Text("server  ", style="dim").append(in_one_line(self.question.server, 200), style="bold not dim")
        problem = next((item.problem for item in definitions if item.problem), "")
        if problem:
            yield Text(f"\n{visible(problem)}", style="red")
        yield Text("\n[-So-] it was when you agreed, {+so+} it is now, in the server's words.", style="dim")
        for item in definitions[:_MOST]:
            yield from show_difference(item)
        if len(definitions) > _MOST:
            yield Text(f"\n... and {len(definitions) - _MOST} more: trimaran pins diff shows them all", style="yellow")
        yield Text(
            "\nYes pins them as they are here, and lets the model see and use them. Until then it does neither.",
            style="dim",
        )

    def buttons(self) -> Iterable[Button]:
        yield Button("y  Yes, I have read it", id="yes", compact=True)
        yield Button("n  No", id="no", compact=True, classes="safe")

    def answer(self, how: str) -> None:
        if how == "yes":
            self.question.agree()
        else:
            self.question.decline()


def show_difference(item: HeldDefinition) -> Iterable[Text]:
    """The difference of one definition: a heading, and a line for each field."""
    word, style = _WORDS[item.state]
    heading = Text(f"\n{item.kind} ", style="bold").append(in_one_line(item.name, 100))
    yield heading.append(f"  {word}", style=f"not bold {style}")
    changes = item.difference
    if not changes:
        yield Text(item.text(), style="yellow")
    for change in changes:
        line = Text(f"{visible(change.path)}: " if change.path else "", style="bold")
        for kind, text in change.pieces:
            words = visible(text[:_MOST_TEXT]) + (f" ... {len(text):,} characters" if len(text) > _MOST_TEXT else "")
            line.append(f"{MARKS[kind][0]}{words}{MARKS[kind][1]}", style=f"not bold {_STYLES[kind]}")
        yield line
