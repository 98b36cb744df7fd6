"""Where a person types: lines with a history, pasted texts of several lines, and what a begun word may become.

Enter sends. Tab asks what fits; one answer is put in, several are listed above the prompt, where the arrows choose, Enter or
Tab takes, Esc closes, and typing on narrows. Asking may mean asking a server, so it happens behind: an answer to a question
that is no longer what stands there is dropped.

Up and down go through the history from the first and the last line of the text. Ctrl+J begins a new line.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, final

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option
from textual.worker import Worker

from trimaran.host.plain import in_one_line

from .history import History

if TYPE_CHECKING:
    from .words import Completion

__all__ = ["Choices", "Left", "Prompt", "Scrolled", "Submitted"]

_LONGEST: Final = 200_000  # characters: a text area is no place for a book
_NAME_WIDTH: Final = 40  # cells of the list for what is put in; the rest says what it is


@final
class Submitted(Message):
    """A line was sent."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


@final
class Choices(OptionList, can_focus=False):
    """What a begun word may become."""

    def offer(self, completion: Completion) -> None:
        self.clear_options()
        wide = min(_NAME_WIDTH, max(len(one.text) for one in completion.options))
        for one in completion.options:
            line = Text(no_wrap=True, overflow="ellipsis")
            line.append(f"{in_one_line(one.text, _NAME_WIDTH):<{wide}}  ", style="bold")
            line.append(in_one_line(one.help), style="dim")
            self.add_option(Option(line))
        self.highlighted = 0
        self.display = True


@final
class Prompt(TextArea):
    """The input.

    Args:
        complete: Called with the text and where the cursor is in it.
    """

    def __init__(
        self,
        complete: Callable[[str, int], Awaitable[Completion]],
        history: History,
        choices: Choices,
        *,
        placeholder: str,
    ) -> None:
        super().__init__(
            placeholder=placeholder,
            compact=True,
            highlight_cursor_line=False,
            show_line_numbers=False,
            soft_wrap=True,
            max_checkpoints=50,
            id="prompt",
        )
        self._complete = complete
        self._history = history
        self._choices = choices
        self._offered: Completion | None = None
        self._asking: Worker[None] | None = None

    # --- keys --------------------------------------------------------------------------------------------------------

    async def _on_key(self, event: events.Key) -> None:
        # The text area's own handler comes after this one, unless it is prevented.
        handled = self._keys_of_the_list(event.key) if self._offered is not None else False
        if not handled:
            handled = self._own_keys(event.key)
        if handled:
            event.stop()
            event.prevent_default()

    def _keys_of_the_list(self, key: str) -> bool:
        match key:
            case "up":
                self._choices.action_cursor_up()
            case "down":
                self._choices.action_cursor_down()
            case "enter" | "tab":
                self._take(self._choices.highlighted or 0)
            case "escape":
                self.close_choices()
            case _:
                return False
        return True

    def _own_keys(self, key: str) -> bool:
        row = self.cursor_location[0]
        match key:
            case "enter":
                self._send()
            case "ctrl+j" | "shift+enter" | "alt+enter":
                self.insert("\n")
            case "tab":
                self.ask()
            case "up" if row == 0:
                self._recall(self._history.older(self.text))
            case "down" if row == self.document.line_count - 1:
                self._recall(self._history.newer())
            case "ctrl+d" if not self.text:
                self.post_message(Left())
            case "pageup" | "pagedown" | "ctrl+home" | "ctrl+end":
                self.post_message(Scrolled(key))
            case _:
                return False
        return True

    async def _on_paste(self, event: events.Paste) -> None:
        # A text area takes what a terminal sends; control characters in a paste would be sent to a server as they are.
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        text = "".join(one for one in text if one in "\n\t" or one.isprintable())
        room = max(_LONGEST - len(self.text), 0)
        if len(text) > room:
            self.notify(f"Only the first {room:,} characters were pasted.", severity="warning", markup=False)
        event.stop()
        event.prevent_default()
        self.insert(text[:room])

    def _send(self) -> None:
        text = self.text.strip()
        if text:
            self.close_choices()
            self.clear()
            self.post_message(Submitted(text))

    def _recall(self, line: str | None) -> None:
        if line is not None:
            self.put(line)

    def put(self, text: str) -> None:
        """Have this text, the cursor at its end."""
        self.text = text
        self.move_cursor(self.document.end)

    # --- completion --------------------------------------------------------------------------------------------------

    @property
    def is_choosing(self) -> bool:
        """Is the list open?"""
        return self._offered is not None

    @property
    def place(self) -> int:
        """Where the cursor is in the text."""
        row, column = self.cursor_location
        return sum(len(self.document.get_line(at)) + 1 for at in range(row)) + column

    def ask(self) -> None:
        """Ask what fits at the cursor."""
        self._start(is_first=True)

    def _start(self, *, is_first: bool) -> None:
        work = partial(self._ask, is_first=is_first)
        self._asking = self.run_worker(work, group="complete", exclusive=True, exit_on_error=False)

    async def _ask(self, *, is_first: bool) -> None:
        text, at = self.text, self.place
        found = await self._complete(text, at)
        if (text, at) != (self.text, self.place):
            return
        if not found.options:
            self.close_choices()
        elif is_first and len(found.options) == 1:
            self._offered = found
            self._take(0)
        else:
            self._offered = found
            self._choices.offer(found)

    def _take(self, at: int) -> None:
        found = self._offered
        self.close_choices()
        if found is None or at >= len(found.options):
            return
        put = found.options[at].text
        # What opens something goes on; the rest is a whole word.
        rest = self.text[found.end :]
        if not put.endswith(("=", ":", "/", " ")) and not rest[:1].isspace():
            put += " "
        self.text = self.text[: found.start] + put + rest
        self.move_cursor(self._location(found.start + len(put)))

    def _location(self, place: int) -> tuple[int, int]:
        before = self.text[:place]
        return before.count("\n"), place - (before.rfind("\n") + 1)

    def close_choices(self) -> None:
        """Close the list, and forget what was asked."""
        self._offered = None
        self._choices.display = False
        if self._asking is not None:
            self._asking.cancel()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        if self._offered is not None:
            self._start(is_first=False)


@final
class Left(Message):
    """The person is done."""


@final
class Scrolled(Message):
    """A key that scrolls was pressed: the transcript's affair."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key
