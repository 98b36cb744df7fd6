"""Where a person types: lines with a history, pasted texts of several lines, and completion of a word.

Enter sends the line. Tab completes: a single option is put in, several are listed above the prompt. In the list the arrows
choose, Enter or Tab takes the chosen option, and Esc closes. Typing narrows the list and chooses nothing: the next Enter sends.

The outcome depends on the keys and their order, and never on how fast they come. Tab and the arrows wait for the options, for
a server may have to be asked; keys that come meanwhile wait in the widget's queue. A server that takes longer than
`_PATIENCE` is not waited for. After a typed letter the list is narrowed in the background, and a late answer is dropped.

Up and down go through the history from the first and the last line of the text. Ctrl+J begins a new line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from rich.text import Text
from textual import events
from textual.message import Message
from textual.widgets import OptionList, TextArea
from textual.widgets.option_list import Option
from textual.worker import Worker, WorkerCancelled, WorkerFailed

from trimaran.host.terminal_text import in_one_line

from .history import History

if TYPE_CHECKING:
    from .completion import CompletionMenu

Result = TypeVar("Result")

_LONGEST: Final = 200_000  # characters: a text area is no place for a book
_NAME_WIDTH: Final = 40  # cells of the list for what is put in; the rest says what it is
_PATIENCE: Final = 1.5  # seconds that a key waits for options: beyond that a person takes the console for dead


@final
class Submitted(Message):
    """A line was sent."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text


@final
class Choices(OptionList, can_focus=False):
    """The options for the word at the cursor."""

    def offer(self, menu: CompletionMenu, *, is_chosen: bool) -> None:
        """List the options; `is_chosen` highlights the first."""
        self.clear_options()
        wide = min(_NAME_WIDTH, max(len(option.text) for option in menu.options))
        for option in menu.options:
            line = Text(no_wrap=True, overflow="ellipsis")
            line.append(f"{in_one_line(option.text, _NAME_WIDTH):<{wide}}  ", style="bold")
            line.append(in_one_line(option.help), style="dim")
            self.add_option(Option(line))
        self.highlighted = 0 if is_chosen else None
        self.display = True


@final
class PromptInput(TextArea):
    """The input.

    Args:
        complete: Called with the text and where the cursor is in it.
    """

    def __init__(
        self,
        complete: Callable[[str, int], Coroutine[Any, Any, CompletionMenu]],
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
        self._menu: CompletionMenu | None = None
        """The options in the list; None while it is closed."""
        self._menu_for: tuple[str, int] = ("", 0)
        """The text and the cursor that the options are for."""
        self._narrowing: Worker[None] | None = None
        self._asking: Worker[CompletionMenu] | None = None

    # --- keys --------------------------------------------------------------------------------------------------------

    def receive(self, event: events.Event) -> None:
        """Take a key that was pressed while something else had the focus. Keys are handled in the order in which they come."""
        self._forward_event(event)

    async def _on_key(self, event: events.Key) -> None:
        # The text area's own handler comes after this one, unless it is prevented.
        is_handled = (self._menu is not None and await self._list_key(event.key)) or await self._own_key(event.key)
        if not is_handled:
            self._choices.highlighted = None
            is_handled = await self._bound_key(event.key)
        if is_handled:
            event.stop()
            event.prevent_default()

    async def _bound_key(self, key: str) -> bool:
        """Do what the text area binds to a key, such as Backspace. False if nothing is bound to the key.

        Textual leaves that to the application's queue, and so does it after letters that were typed later.
        """
        bindings = self._bindings.key_to_bindings.get(key, [])
        for binding in bindings:
            await self.run_action(binding.action)
        return bool(bindings)

    async def _list_key(self, key: str) -> bool:
        """A key while the list is open. False if the key is not for the list."""
        match key:
            case "up" | "down":
                if self._menu_for == self._here or await self._list_options(is_chosen=False):
                    self._choices.action_cursor_up() if key == "up" else self._choices.action_cursor_down()
            case "enter" | "tab" if self._choices.highlighted is not None and self._menu_for == self._here:
                self._take(self._choices.highlighted)
            case "escape":
                self.close_choices()
            case _:
                return False
        return True

    async def _own_key(self, key: str) -> bool:
        row = self.cursor_location[0]
        match key:
            case "enter":
                self._send()
            case "ctrl+j" | "shift+enter" | "alt+enter":
                self.insert("\n")
            case "tab":
                await self.complete_word()
            case "up" if row == 0:
                self._recall(self._history.older(self.text))
            case "down" if row == self.document.line_count - 1:
                self._recall(self._history.newer())
            case "ctrl+d" if not self.text:
                self.post_message(QuitRequested())
            case "pageup" | "pagedown" | "ctrl+home" | "ctrl+end":
                self.post_message(Scrolled(key))
            case _:
                return False
        return True

    async def _on_paste(self, event: events.Paste) -> None:
        # A text area takes what a terminal sends; control characters in a paste would be sent to a server as they are.
        text = event.text.replace("\r\n", "\n").replace("\r", "\n")
        text = "".join(character for character in text if character in "\n\t" or character.isprintable())
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
        """True if the list is open, or its options are awaited."""
        return self._menu is not None or self._asking is not None

    @property
    def place(self) -> int:
        """The cursor's offset in the text."""
        row, column = self.cursor_location
        return sum(len(self.document.get_line(at)) + 1 for at in range(row)) + column

    @property
    def _here(self) -> tuple[str, int]:
        return self.text, self.place

    async def complete_word(self) -> None:
        """Put in the only option for the word at the cursor, or list the options."""
        if await self._list_options(is_chosen=True) and self._menu is not None and len(self._menu.options) == 1:
            self._take(0)

    async def _list_options(self, *, is_chosen: bool) -> bool:
        """Wait for the options at the cursor, and list them. True if there are some."""
        here = self._here
        self._asking = self._start(self._complete(*here))
        try:
            self._offer(await asyncio.wait_for(self._asking.wait(), _PATIENCE), here, is_chosen=is_chosen)
        except TimeoutError:
            self.close_choices()
            self.notify("The server takes too long to complete this. Type it, or press Tab again.", markup=False)
        except (WorkerCancelled, WorkerFailed):  # by Ctrl+C; the application says why it failed
            self.close_choices()
        finally:
            self._asking = None
        return self._menu is not None

    async def _narrow(self) -> None:
        """List the options for the text after a typed letter, unless the person has typed on meanwhile."""
        here = self._here
        menu = await self._complete(*here)
        if here == self._here and self._menu is not None and self._menu_for != here:
            self._offer(menu, here, is_chosen=False)

    def _offer(self, menu: CompletionMenu, here: tuple[str, int], *, is_chosen: bool) -> None:
        if menu.options:
            self._menu, self._menu_for = menu, here
            self._choices.offer(menu, is_chosen=is_chosen)
        else:
            self.close_choices()

    def _start(self, work: Coroutine[Any, Any, Result]) -> Worker[Result]:
        return self.run_worker(work, group="complete", exclusive=True, exit_on_error=False)

    def _take(self, at: int) -> None:
        menu = self._menu
        self.close_choices()
        if menu is None or at >= len(menu.options):
            return
        word = menu.options[at].text
        rest = self.text[menu.end :]
        # A word that opens something is continued; any other is complete.
        if not word.endswith(("=", ":", "/", " ")) and not rest[:1].isspace():
            word += " "
        self.text = self.text[: menu.start] + word + rest
        self.move_cursor(self._location(menu.start + len(word)))

    def _location(self, place: int) -> tuple[int, int]:
        before = self.text[:place]
        return before.count("\n"), place - (before.rfind("\n") + 1)

    def close_choices(self) -> None:
        """Close the list, and wait for no options."""
        self._menu = None
        self._choices.display = False
        for pending in (self._narrowing, self._asking):
            if pending is not None:
                pending.cancel()

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        if self._menu is not None and self._menu_for != self._here:
            self._narrowing = self._start(self._narrow())


@final
class QuitRequested(Message):
    """The person is done."""


@final
class Scrolled(Message):
    """A key that scrolls was pressed: the transcript's affair."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self.key = key
