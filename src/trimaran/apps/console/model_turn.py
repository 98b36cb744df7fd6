"""A message and a model's answer to it: text as it comes, calls with their bars, and what it took.

The text arrives in bits, many a second; it is drawn with the screen (`tick`). Esc ends the answer and the calls it made.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, final

from rich.text import Text

from trimaran.host.terminal_text import shortened

from .calls import CallsApp, CallView, RunningCallViews
from .errors import show_fault
from .rendering import show_text
from .transcript import TranscriptEntry

if TYPE_CHECKING:
    from trimaran.apps.conversation.model import Conversation, Event, TurnEnded

_LONGEST: Final = 40_000  # characters of one answer on the screen
_ENDS: Final = {
    "max_tokens": "The answer was cut: it reached the most tokens of one answer.",
    "max_turns": "The model wanted to go on, and was stopped: it used tools too often for one message.",
    "refusal": "The model declined to answer.",
}


@final
class ModelTurn:
    """One message, until the model has nothing more to say."""

    def __init__(self, place: CallsApp, calls: RunningCallViews, conversation: Conversation) -> None:
        self._place = place
        self._calls = calls
        self._conversation = conversation
        self._views: dict[str, CallView] = {}
        self._line: TranscriptEntry | None = None
        self._text = ""
        self._is_dirty = False
        self._task: asyncio.Task[None] | None = None

    async def run(self, text: str) -> None:
        """Send it, and show what comes. Nothing is raised: what goes wrong is shown."""
        self._task = asyncio.current_task()
        conversation = self._conversation
        conversation.on_progress = self._tell
        try:
            async with aclosing(conversation.send(text)) as events:
                async for event in events:
                    self._take(event)
        except asyncio.CancelledError:
            self._close_text()
            for view in self._views.values():
                view.cancelled()
            self._place.transcript.add(Text("the answer was stopped", style="yellow"))
            raise
        except Exception as error:
            self._close_text()
            self._place.transcript.add(show_fault(error, self._place.host), kind="fault")
        finally:
            for view in self._views.values():
                self._calls.end(view)
            self._close_text()

    def is_with(self, conversation: Conversation) -> bool:
        """True if the turn is part of this conversation."""
        return self._conversation is conversation

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _take(self, event: Event) -> None:
        from trimaran.apps.conversation.model import (
            TextReceived,
            ToolCallFailed,
            ToolCallRefused,
            ToolCallReturned,
            ToolCallStarted,
            UserNotice,
        )

        match event:
            case TextReceived():
                self._text += event.text
                self._is_dirty = True
            case ToolCallStarted():
                self._close_text()
                self._views[event.id] = self._calls.begin(event.name, event.arguments)
            case ToolCallReturned():
                view = self._over(event.id, event.name)
                view.show(event.result)
            case ToolCallRefused() | ToolCallFailed():
                view = self._over(event.id, event.name)
                view.fail(event.error)
            case UserNotice():
                self._place.transcript.add(Text(shortened(event.text, 1000), style="yellow"))
            case _:
                self._close_text()
                self._place.transcript.add(_ended(event))

    def _over(self, id: str, name: str) -> CallView:
        view = self._views.get(id)
        if view is None:  # refused before it was a call
            view = self._views[id] = self._calls.begin(name, {})
        self._calls.end(view)
        return view

    def _tell(self, id: str, done: float, total: float | None, message: str | None) -> None:
        if (view := self._views.get(id)) is not None:
            view.bar.tell(done, total, message)

    def tick(self) -> None:
        """Draw the text that came since the last time."""
        if not self._is_dirty:
            return
        self._is_dirty = False
        text = Text(shortened(self._text, _LONGEST))
        if self._line is None:
            (self._line,) = self._place.transcript.add(text)
        else:
            self._place.transcript.change(self._line, text)

    def _close_text(self) -> None:
        """End the current text. It is complete, and is laid out if it is Markdown."""
        self.tick()
        if self._line is not None:
            self._place.transcript.change(self._line, show_text(self._text))
        self._line, self._text = None, ""


def _ended(event: TurnEnded) -> Text:
    text = Text(_ENDS.get(event.reason, ""), style="yellow")
    if event.input_tokens or event.output_tokens:
        gap = "  " if text else ""
        text.append(f"{gap}{event.input_tokens:,} tokens read, {event.output_tokens:,} written", style="dim not bold")
    return text
