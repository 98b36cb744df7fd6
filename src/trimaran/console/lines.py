"""What becomes of a line that was typed: a call, a command, or a message.

Each is a task of its own, so several may be under way; Esc ends the one that began last. What goes wrong in one is shown, and
ends nothing else.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, final

from rich.text import Text

from trimaran.host.plain import in_one_line, shortened

from .calls import Calls
from .commands import Commands, Screenful
from .turns import Turn
from .words import Asleep, Call, Command, LineError, Message, read_line

if TYPE_CHECKING:
    from trimaran.conversation.model import Conversation

    from .transcript import Transcript

__all__ = ["Bench", "Lines", "Work"]

# Made when it is begun: a coroutine that is never begun complains.
Work: TypeAlias = Callable[[], Coroutine[Any, Any, None]]

_ECHOED: Final = 2000  # characters of what was typed


class Bench(Screenful, Protocol):
    """What lines need of the application, besides what commands do."""

    transcript: Transcript
    conversation: Conversation | None

    def fault(self, error: BaseException) -> None: ...
    def start(self, work: Work) -> None: ...


@final
class Lines:
    """What was typed and is not over yet."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self.calls: Final = Calls(bench)
        self._commands = Commands(bench)
        self._turns: list[Turn] = []
        self._tasks: list[asyncio.Task[Any]] = []

    @property
    def is_answering(self) -> bool:
        """Does a model answer?"""
        return bool(self._turns)

    def take(self, text: str, *, may_wake: bool = True) -> None:
        """A line was sent. `may_wake`: a server that is not there yet may be waited for."""
        try:
            line = read_line(text, self._bench.host, is_message_default=self._bench.conversation is not None)
        except Exception as error:
            if isinstance(error, Asleep) and may_wake:
                self._start(partial(self._wake, error.server, text))
                return
            self._echo(text)
            self._bench.fault(error)
            return
        match line:
            case Call():
                self._start(partial(self.calls.run, line.name, line.arguments))
            case Command():
                self._echo(text)
                self._start(partial(self._command, line))
            case Message():
                self._echo(text)
                self._start(partial(self._message, line.text))

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

    def _start(self, work: Work) -> None:
        self._bench.start(partial(self._watched, work))

    async def _watched(self, work: Work) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.append(task)
        try:
            await work()
        except Exception as error:
            self._bench.fault(error)
        finally:
            self._tasks.remove(task)

    async def _wake(self, server: str, text: str) -> None:
        """The server of a call is not there yet: what its tools take is known once it is."""
        (waiting,) = self._bench.transcript.add(Text(f"◐ {server} is being started ...", style="yellow"))
        try:
            await self._bench.host.wake(server)
        except Exception:
            self._echo(text)
            raise
        finally:
            self._bench.transcript.remove_entry(waiting)
        self.take(text, may_wake=False)

    def _echo(self, text: str) -> None:
        self._bench.say(Text().append("> ", style="cyan").append(shortened(text, _ECHOED), style="bold"))

    async def _command(self, line: Command) -> None:
        try:
            await self._commands.run(line.name, line.words)
        except asyncio.CancelledError:
            self._bench.say(Text("cancelled", style="yellow"))
            raise

    async def _message(self, text: str) -> None:
        bench = self._bench
        found = await bench.host.expand(text)
        for problem in found.problems:
            bench.say(Text(f"! {in_one_line(problem, 500)}", style="yellow"))
        if found.mentions:
            put = ", ".join(f"{one.text} ({in_one_line(one.uri, 100)})" for one in found.mentions)
            bench.say(Text(f"Put in: {in_one_line(put, 1000)}", style="dim"))
        if bench.conversation is not None:
            await self._turn(bench.conversation, found.text)
            return
        if found.mentions:
            bench.say(*bench.pages.begin(found.text))
        bench.say(Text("There is no model to send this to: /model NAME takes one. A call is server:tool.", style="dim"))

    async def _turn(self, conversation: Conversation, text: str) -> None:
        if any(turn.is_with(conversation) for turn in self._turns):
            raise LineError(
                "The model is still answering. Esc stops it; or wait, and send this again: Up brings it back."
            )
        turn = Turn(self._bench, self.calls, conversation)
        self._turns.append(turn)
        try:
            await turn.run(text)
        finally:
            self._turns.remove(turn)
