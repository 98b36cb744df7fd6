"""Calls that run: a line and a bar for each in the transcript, then what came of it.

Any number may run at the same time, begun by the person or by a model.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol, final

from rich.console import RenderableType
from rich.text import Text

from trimaran.client.stderr_summary import failure_numbers, lines_of_failure
from trimaran.errors import Error
from trimaran.host import NotRegistered
from trimaran.host.terminal_text import in_one_line

from .errors import show_fault
from .rendering import show_result
from .shell_words import quote
from .transcript import Bar, Kind, TranscriptEntry, TranscriptView, duration

if TYPE_CHECKING:
    from trimaran.client.results import ToolResult
    from trimaran.host import Host, Question

    from .pages import Pages

_LONGEST: Final = 400  # characters of arguments in the line of a call
_LOG_SECONDS: Final = 1.0  # for the log of a failure to come


class CallsApp(Protocol):
    """The parts of the application that calls use."""

    host: Host
    pages: Pages
    transcript: TranscriptView

    @property
    def columns(self) -> int: ...
    @property
    def has_pictures(self) -> bool: ...


@final
class CallView:
    def __init__(self, place: CallsApp, name: str, arguments: Mapping[str, Any]) -> None:
        self._place = place
        self._title = Text().append(in_one_line(name, 200), style="bold")
        if arguments:
            self._title.append(f" {in_one_line(_describe_arguments(arguments), _LONGEST)}")
        self.bar: Bar = Bar()
        self.is_over: bool = False
        self._name = name
        self._arguments = arguments
        self.entries: list[TranscriptEntry] = place.transcript.add(self._marked("▸", "yellow"), self.bar.drawn())

    def _marked(self, mark: str, style: str) -> Text:
        return Text().append(f"{mark} ", style=style).append_text(self._title)

    def _end(self, mark: str, style: str, parts: Sequence[RenderableType], kind: Kind = "result") -> None:
        if self.is_over:
            return
        self.is_over = True
        transcript = self._place.transcript
        line, bar = self.entries
        took = Text(f"  {duration(self.bar.seconds)}", style="dim")
        transcript.change(line, self._marked(mark, style).append_text(took))
        transcript.add(*parts, kind=kind, after=bar)
        transcript.remove_entry(bar)

    def is_asked_about(self, question: Question) -> bool:
        """True if the question asks for permission for this call."""
        return (
            question.kind == "permission"
            and question.tool == self._name
            and question.arguments == dict(self._arguments)
        )

    @property
    def server(self) -> str:
        """The server of the tool; empty if it is gone."""
        try:
            return self._place.host.find(self._name).server
        except Error:
            return ""

    def tick(self) -> None:
        """Draw the bar as it is now."""
        if not self.is_over:
            self._place.transcript.change(self.entries[1], self.bar.drawn())

    def show(self, result: ToolResult) -> None:
        place = self._place
        parts = place.pages.first(result)
        if parts is None:
            parts = show_result(result, width=place.columns, pictures=place.has_pictures)
        if result.is_error:
            parts = [*parts, *self._log_of(result)]
        mark, style = ("✗", "red") if result.is_error else ("✓", "green")
        self._end(mark, style, parts)

    def _log_of(self, result: ToolResult) -> Iterable[Text]:
        """Where the tool failed, if this host started its server and so has the server's log."""
        with suppress(NotRegistered):
            for line in lines_of_failure([result.text], self._place.host.stderr(self.server)):
                yield Text(in_one_line(line, _LONGEST), style="dim")

    async def wait_for_log(self, result: ToolResult) -> None:
        """The server's log of a failure comes by another pipe than its result, if it comes here at all."""
        is_child = any(
            status.name == self.server and status.transport == "stdio" for status in self._place.host.status()
        )
        until = asyncio.get_running_loop().time() + (_LOG_SECONDS if is_child else 0)
        while not [*self._log_of(result)] and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(0.02)

    def fail(self, error: BaseException) -> None:
        """Show why the call failed, or was not made."""
        self._end("✗", "red", [show_fault(error, self._place.host)], "fault")

    def cancelled(self) -> None:
        """Show that the call was cancelled."""
        self._end("✗", "yellow", [Text("cancelled; the server was told, if it had begun", style="yellow")])


def _describe_arguments(arguments: Mapping[str, Any]) -> str:
    """The arguments as a person would type them."""
    return " ".join(
        f"{key}={quote(value) if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)}"
        for key, value in arguments.items()
    )


@final
class RunningCallViews:
    """The running calls, the oldest first."""

    def __init__(self, place: CallsApp) -> None:
        self._place = place
        self._running: list[CallView] = []

    def __len__(self) -> int:
        return len(self._running)

    def begin(self, name: str, arguments: Mapping[str, Any]) -> CallView:
        """Show a call that begins. The caller reports its end to the view, and then calls `end`."""
        view = CallView(self._place, name, arguments)
        self._running.append(view)
        return view

    def end(self, view: CallView) -> None:
        if view in self._running:
            self._running.remove(view)

    async def run(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Make a call that the person typed, and show its result or its error. Cancel the task to give it up.

        Typing the call is the permission for it: only a rule that denies stops it.
        """
        view = self.begin(name, arguments)
        try:
            result = await self._place.host.call(name, arguments, on_progress=view.bar.tell, approved=True)
            if failure_numbers(result.text):
                await view.wait_for_log(result)
            view.show(result)
        except asyncio.CancelledError:
            view.cancelled()
            raise
        except Exception as error:
            view.fail(error)
        finally:
            self.end(view)

    def note(self, questions: Sequence[Question]) -> None:
        """These wait for an answer, and calls may wait with them.

        A server does not say which call its form is about; where only one of its tools is at work, it is that one.
        """
        servers = [question.server for question in questions if question.kind != "permission"]
        for view in self._running:
            is_waiting = any(view.is_asked_about(question) for question in questions)
            if not is_waiting and servers and (server := view.server) in servers:
                is_waiting = sum(other.server == server for other in self._running) == 1
            view.bar.wait_for_person(is_waiting)

    def tick(self) -> None:
        """Draw the bars."""
        for view in self._running:
            view.tick()

    def entries(self) -> list[TranscriptEntry]:
        """The transcript's entries about running calls."""
        return [entry for view in self._running for entry in view.entries]
