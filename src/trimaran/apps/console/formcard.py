"""A form that a server wants filled in: its fields as widgets, what is wrong with an answer below the field it is about.

The fields, and how a text in one is read, are in `trimaran.host.form_fields`; here it only gets a widget. The form is judged when it
is submitted, and stays until it is right: the person may also decline, which is a no, or close it, which is neither. Enter
in a field goes to the next one, and submits nothing.

The words on the form are the server's, and it says so.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast, final

from rich.segment import Segment
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Button, Checkbox, Input, Select, SelectionList, Static

from trimaran.errors import Error
from trimaran.host.form_fields import Field, Form
from trimaran.host.terminal_text import in_one_line, safe

from .cards import SETTLE
from .questions import QuestionCard, show_warnings

if TYPE_CHECKING:
    from trimaran.host import Question

_MOST_FIELDS: Final = 100  # more is no form for a person
_TICKED: Final = "[x]"
_EMPTY: Final = "[ ]"
_MOST_WORDS: Final = 4000  # characters of the server's message


@final
class _Box(Checkbox):
    """A box that is empty when it is not ticked: Textual's own differ in colour alone."""

    @property
    def _button(self) -> Content:
        return Content(_TICKED if self.value else _EMPTY)


@final
class _Boxes(SelectionList[int]):
    """The same for several."""

    def render_line(self, y: int) -> Strip:
        # Three segments draw a box; the fourth is the blank after it, in the colours of the line.
        segments = list(super().render_line(y))
        if len(segments) < 4:
            return Strip(segments)
        box = _TICKED if self.scroll_offset.y + y in self.selected else _EMPTY
        return Strip([Segment(box, segments[3].style), *segments[3:]])


@final
class _Row(Vertical):
    """One field: its title, what it is about, its widget, and what is wrong with what is in it."""

    def __init__(self, field: Field) -> None:
        super().__init__(classes="field")
        self.field = field
        self.problem = Static(Text(""), classes="problem")
        self.problem.display = False
        self.widget = _widget(field)

    def compose(self) -> ComposeResult:
        field = self.field
        if field.kind != "boolean":
            title = Text(in_one_line(field.title, 200), style="bold")
            title.append(" *" if field.required else "", style="bold red")
            title.append(f"   {in_one_line(field.hint, 200)}" if field.hint else "", style="not bold dim")
            yield Static(title)
        if field.description:
            yield Static(Text(in_one_line(field.description, 600), style="dim"))
        yield self.widget
        yield self.problem

    @property
    def answer(self) -> str | bool | list[str] | None:
        """The person's input; None if nothing is chosen."""
        match self.widget:
            case Checkbox() as box:
                return box.value
            case Input() as entry:
                return entry.value
            case Select() as select:
                chosen = cast("int", select.value)
                return None if select.is_blank() else str(self.field.choices[chosen][0])
            case _Boxes() as many:
                selected = many.selected
                return [str(self.field.choices[at][0]) for at in sorted(selected)]
            case _:
                return None

    def complain(self, problem: str) -> None:
        self.problem.update(Text(f"✗ {safe(problem)}", style="red"))
        self.problem.display = bool(problem)


def _widget(field: Field) -> Widget:
    default = field.default
    match field.kind:
        case "boolean":
            label = in_one_line(field.title, 200) + (" *" if field.required else "")
            return _Box(Content(label), value=default is True, compact=True)
        case "choice" if field.choices:
            options: list[tuple[Any, int]] = [(Content(title), at) for at, (_, title) in enumerate(field.choices)]
            chosen = [at for at, (value, _) in enumerate(field.choices) if value == default and default is not None]
            start: dict[str, Any] = {"value": chosen[0]} if chosen else {}
            return Select[int](options, prompt="choose one", compact=True, **start)
        case "choices" if field.choices:
            defaults = cast("list[Any]", default) if isinstance(default, list) else []
            rows = [
                (Content(in_one_line(title, 200)), at, value in defaults)
                for at, (value, title) in enumerate(field.choices)
            ]
            return _Boxes(*rows, compact=True)
        case _:
            return Input(field.default_text, compact=True)


@final
class FormCard(QuestionCard):
    title_text = "A server asks you to fill in a form"
    BINDINGS: ClassVar[list[BindingType]] = [
        # No priority: it is to come after the letters that were typed before it.
        Binding("ctrl+s", "answer('submit')", show=False),
        Binding("ctrl+n", "answer('never')", show=False),
        # In a field the arrows are the field's.
        Binding("up", "app.focus_previous", show=False),
        Binding("down", "app.focus_next", show=False),
        Binding("left", "noop", show=False),
        Binding("right", "noop", show=False),
    ]

    def __init__(self, question: Question, *, settle: float = SETTLE) -> None:
        super().__init__(question, settle=settle)
        self._form = Form(question.schema)
        self._is_too_long = len(self._form.fields) > _MOST_FIELDS
        self._rows = [] if self._is_too_long else [_Row(field) for field in self._form.fields]
        self._wrong = Static(Text(""), classes="problem")
        self._wrong.display = False

    def body(self) -> Iterable[Widget]:
        warnings = map(Static, show_warnings(self.question.reasons))
        return (*warnings, Static(self._head()), *self._rows, self._wrong)

    def _head(self) -> Text:
        message = safe(self.question.message)
        message = message if len(message) <= _MOST_WORDS else f"{message[:_MOST_WORDS]}..."
        text = Text(f"The server {self.question.server} asks, in its own words:\n", style="dim")
        text.append(message, style="not dim")
        if self._is_too_long:
            text.append(
                f"\nThis form has {len(self._form.fields):,} fields, more than can be filled in here: decline it.",
                style="red",
            )
        elif any(row.field.required for row in self._rows):
            text.append("\n* has to be filled in. Do not give secrets to a server you do not trust.", style="dim")
        text.append("\nNever declines whatever this server asks you, until the console ends.", style="dim")
        return text.append("\n")

    def buttons(self) -> Iterable[Button]:
        if not self._is_too_long:
            yield Button("^s Submit", id="submit", compact=True)
        yield Button("Decline", id="decline", compact=True, classes="safe" if not self._rows else "")
        yield Button("^n Never", id="never", compact=True)
        yield Button("esc Close", id="cancel", compact=True)

    def focus_first(self) -> None:
        if self._rows:
            self._rows[0].widget.focus(scroll_visible=False)  # the server's text stands above it
        else:
            super().focus_first()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """A field is seen with its title, and with what is wrong with it."""
        for row in event.widget.ancestors:
            if isinstance(row, _Row) and row is not self._rows[0]:
                self.call_after_refresh(row.scroll_visible, animate=False)
            elif isinstance(row, _Row):
                self.call_after_refresh(self.query_one(".card-body").scroll_home, animate=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.focus_next()

    def action_noop(self) -> None:
        """A key that means nothing between fields."""

    def answer(self, how: str) -> None:
        match how:
            case "submit" if not self._is_too_long:
                self._submit()
            case "decline":
                self.question.decline()
            case "never":
                self.decline_for_good()
            case "cancel":
                self.question.cancel()
            case _:
                pass

    def _submit(self) -> None:
        values = {row.field.name: row.answer for row in self._rows}
        content, problems = self._form.read({name: value for name, value in values.items() if value is not None})
        if not problems:
            try:
                self.question.accept(content)
            except Error as error:
                problems = {"": str(error)}
        for row in self._rows:
            row.complain(problems.get(row.field.name, ""))
        known = {row.field.name for row in self._rows}
        general = [problem for name, problem in problems.items() if name not in known]
        self._wrong.update(Text("\n".join(f"✗ {safe(problem)}" for problem in general), style="red"))
        self._wrong.display = bool(general)
        for row in self._rows:
            if row.field.name in problems:
                row.widget.focus(scroll_visible=False)
                self.call_after_refresh(row.scroll_visible, animate=False)
                break
