"""Run the lines that the person typed: calls, commands and messages.

Each is a task of its own, so several may be under way; Esc ends the one that began last. A failure in one is shown, and
ends nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, final

from rich.text import Text

from trimaran.host.terminal_text import in_one_line, shortened

from .calls import RunningCallViews
from .commands import Commands, CommandsApp
from .input import CallLine, CommandLine, LineError, MessageLine, ServerNotStarted, read_line
from .model_turn import ModelTurn
from .transcript import now

if TYPE_CHECKING:
    from trimaran.apps.conversation.model import Conversation

    from .transcript import TranscriptView

# Made when it is begun: a coroutine that is never begun complains.
Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

_ECHOED: Final = 2000  # characters of what was typed
_MOMENT: Final = 0.5  # seconds: a shorter wait is not announced


def _echo(text: str) -> Text:
    return Text().append("> ", style="cyan").append(shortened(text, _ECHOED), style="bold")


class LinesApp(CommandsApp, Protocol):
    """The parts of the application that lines use, besides those that commands use."""

    transcript: TranscriptView
    conversation: Conversation | None

    def fault(self, error: BaseException) -> None: ...
    def start(self, work: Work) -> None: ...


@final
class RunningLines:
    """The lines that are not done yet."""

    def __init__(self, bench: LinesApp) -> None:
        self._bench = bench
        self.calls: Final = RunningCallViews(bench)
        self._commands = Commands(bench)
        self._turns: list[ModelTurn] = []
        self._tasks: list[asyncio.Task[Any]] = []
        self._waiting: dict[str, float] = {}
        """The lines, other than calls, that are under way, and when each began. Calls have bars of their own."""

    @property
    def is_answering(self) -> bool:
        """True while a model answers."""
        return bool(self._turns)

    @property
    def waiting(self) -> str:
        """The line that has run longest, if it takes more than a moment, with its seconds: `/read @docs:log 3 s`."""
        for text, began in self._waiting.items():
            if (seconds := now() - began) > _MOMENT:
                return f"{in_one_line(text, 30)} {seconds:.0f} s"
        return ""

    def take(self, text: str, *, may_wake: bool = True) -> None:
        """A line was sent. `may_wake`: a server that is not there yet may be waited for."""
        try:
            line = read_line(text, self._bench.host, is_message_default=self._bench.conversation is not None)
        except Exception as error:
            if isinstance(error, ServerNotStarted) and may_wake:
                self._start(partial(self._wake, error.server, text), f"starting {error.server}")
                return
            self._echo(text)
            self._bench.fault(error)
            return
        match line:
            case CallLine():
                self._start(partial(self.calls.run, line.name, line.arguments))
            case CommandLine():
                self._echo(text)
                self._start(partial(self._command, line), text)
            case MessageLine():
                self._echo(text)
                self._start(partial(self._message, line.text), text)

    def cancel_last(self) -> bool:
        """End what began last; False if there is nothing to end."""
        for task in reversed(self._tasks):
            if not task.cancelling():
                task.cancel()
                return True
        return False

    def cancel_turns(self) -> None:
        """End every answer."""
        for turn in self._turns:
            turn.cancel()

    def tick(self) -> None:
        """Draw what came since the last time."""
        self.calls.tick()
        for turn in self._turns:
            turn.tick()

    def _start(self, work: Work, waiting: str = "") -> None:
        self._bench.start(partial(self._watched, work, waiting))

    async def _watched(self, work: Work, waiting: str) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        if waiting:
            self._waiting[waiting] = now()
        try:
            await work()
        except Exception as error:
            self._bench.fault(error)
        finally:
            self._tasks.remove(task)
            self._waiting.pop(waiting, None)

    async def _wake(self, server: str, text: str) -> None:
        """The server of a call is not there yet: what its tools take is known once it is."""
        (entry,) = self._bench.transcript.add(_echo(text))
        try:
            await self._bench.host.wake(server)
        except Exception:
            self._echo(text)
            raise
        finally:
            self._bench.transcript.remove_entry(entry)
        self.take(text, may_wake=False)

    def _echo(self, text: str) -> None:
        self._bench.say(_echo(text))

    async def _command(self, line: CommandLine) -> None:
        try:
            await self._commands.run(line.name, line.words)
        except asyncio.CancelledError:
            self._bench.say(Text("cancelled", style="yellow"))
            raise

    async def _message(self, text: str) -> None:
        bench = self._bench
        expanded = await bench.host.expand(text)
        for problem in expanded.problems:
            bench.say(Text(f"! {in_one_line(problem, 500)}", style="yellow"))
        if expanded.mentions:
            put = ", ".join(f"{mention.text} ({in_one_line(mention.uri, 100)})" for mention in expanded.mentions)
            bench.say(Text(f"Put in: {in_one_line(put, 1000)}", style="dim"))
        if bench.conversation is not None:
            await self._turn(bench.conversation, expanded.text)
            return
        if expanded.mentions:
            bench.say(*bench.pages.begin(expanded.text))
        bench.say(Text("There is no model to send this to: /model NAME takes one. A call is server:tool.", style="dim"))

    async def _turn(self, conversation: Conversation, text: str) -> None:
        if any(turn.is_with(conversation) for turn in self._turns):
            raise LineError(
                "The model is still answering. Esc stops it; or wait, and send this again: Up brings it back."
            )
        turn = ModelTurn(self._bench, self.calls, conversation)
        self._turns.append(turn)
        try:
            await turn.run(text)
        finally:
            self._turns.remove(turn)
