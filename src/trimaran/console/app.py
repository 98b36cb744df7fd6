"""`trimaran console`: the servers of a host at a person's fingertips, in a terminal of 80 by 24 and up.

    transcript          what was typed and what came of it; state changes of servers
    status line         servers, calls that run, the model
    prompt              a call, a message, a command

Here the parts meet: what becomes of a line is `lines.py`, with `calls.py`, `commands.py` and, for a model's answers, `turns.py`;
questions are `questions.py`, the servers `overlay.py`. The screen is there before the servers are; each comes up behind.

Ten times a second the screen is brought up to date (`_tick`): states, bars, a model's text. What servers send in between is
only noted, so that none can make the screen slower by sending more.

However the console ends, by a key, by SIGTERM, with its terminal or by a mistake of ours, the host is closed, no child is left, and the terminal
is as it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

from rich.console import Group, RenderableType
from rich.text import Text
from rich.traceback import Traceback
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.worker import Worker, WorkerState

from trimaran.host import Bridge, Host, Question, ServerStatus
from trimaran.host.plain import in_one_line, safe

from .cards import SETTLE, Card
from .faults import show_fault
from .history import History
from .lines import Lines, Work
from .overlay import ServersScreen
from .pages import Pages
from .prompt import Choices, Left, Prompt, Scrolled, Submitted
from .questions import Desk
from .status import StatusLine, change_of
from .transcript import Kind, Transcript
from .trustcard import TrustCard
from .words import Completion, LineError, complete, is_unnamed_secret

if TYPE_CHECKING:
    from trimaran.client import Sampling
    from trimaran.conversation.model import Conversation

__all__ = ["ConsoleApp", "run_console"]

_TICK: Final = 0.1  # seconds between two drawings
_BROKEN: Final = 70  # as the other commands end after a mistake of ours
# The terminal went away, or somebody wants an end; Windows knows no SIGHUP.
_ENDS: Final = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None)) is not None]


@final
class ConsoleApp(App[None]):
    """The application.

    Args:
        open_host: Makes the host, given the options that are the console's: bridge, separator, wait, on_change, on_sample.
        model: The name of a model that messages go to, or nothing.
        pictures: May pictures be drawn?
        history: The file for the lines that were typed; None keeps them in memory.
        settle: Seconds without a key until a question takes an answer.
        open_page: Opens a page in a browser; True if it could.
    """

    TITLE = "trimaran"
    CSS_PATH = "console.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True),
        Binding("ctrl+c", "interrupt", "Cancel", show=False, priority=True),
        Binding("escape", "interrupt", "Cancel", show=False),
    ]

    def __init__(
        self,
        open_host: Callable[..., Host],
        *,
        model: str = "",
        pictures: bool = True,
        history: Path | None = None,
        settle: float = SETTLE,
        open_page: Callable[[str], bool] | None = None,
    ) -> None:
        super().__init__()
        self.is_broken = False
        """Did a mistake of ours end it?"""
        self._changes = 1
        self._told = 0
        bridge = Bridge()
        self.host: Host = open_host(
            bridge=bridge,
            separator=":",
            wait=False,
            on_change=self._note_change,
            on_sample=self._sample if model else None,
        )
        self.conversation: Conversation | None = _open_model(model, self.host) if model else None
        self.pages = Pages()
        self.transcript = Transcript()
        self._pictures = pictures
        self._history = History(history)
        self._choices = Choices(id="choices", compact=True)
        self._status = StatusLine()
        self._lines = Lines(self)
        self._desk = Desk(
            self,
            bridge,
            open_page=self._open_page,
            told=self._answered,
            is_typing=self._is_typing,
            settle=settle,
        )
        self._settle = settle
        self._opener = open_page or _open_in_browser
        self._seen: dict[str, ServerStatus] = {}

    def compose(self) -> ComposeResult:
        yield self.transcript
        yield self._choices
        yield self._status
        yield Prompt(
            self._complete,
            self._history,
            self._choices,
            placeholder="a message, !server:tool key=value, or /help"
            if self.conversation is not None
            else "server:tool key=value, text with @server:resource, or /help",
        )

    def on_mount(self) -> None:
        self._choices.display = False
        self._greet()
        self.query_one(Prompt).focus()
        self.set_interval(_TICK, self._tick)
        self.run_worker(self._begin, exit_on_error=False, group="host")

    async def _begin(self) -> None:
        """Questions can be answered before anything is started that may ask one."""
        ready = asyncio.Event()
        self.run_worker(partial(self._desk.attend, ready), exit_on_error=False, group="desk")
        await ready.wait()
        if self.host.untrusted_files:
            self.push_screen(TrustCard(self.host, settle=self._settle), self._trusted)
        try:
            await self.host.start()
        except Exception as error:
            self.fault(error)

    def _trusted(self, is_trusted: bool | None) -> None:
        if is_trusted:
            self.run_worker(self._trust, exit_on_error=False, group="host")
        else:
            self.say(
                Text("The project's mcp.toml is not trusted: its servers are not started.", style="yellow"),
                Text("To trust it: /mcp, then e on one of them. Or `trimaran config trust`.", style="dim"),
            )

    async def _trust(self) -> None:
        try:
            await self.host.trust_project()
        except Exception as error:
            self.fault(error)

    def _fatal_error(self) -> None:
        """A mistake of ours. Textual's own way shows local variables as well, and those may hold secrets."""
        self.is_broken = True
        told = Text(
            "trimaran: this is a mistake in trimaran itself; please tell us what it says here", style="bold red"
        )
        self.panic(Group(told, Traceback(show_locals=False, width=None)))

    async def aclose(self) -> None:
        """End what the console holds; the screen is gone by then."""
        self._history.save()
        try:
            if self.conversation is not None:
                await self.conversation.close()
        finally:
            await self.host.close()

    # --- saying things -----------------------------------------------------------------------------------------------

    def _greet(self) -> None:
        count = len(self.host.status())
        text = Text("trimaran console", style="bold")
        text.append(f", {count} server{'' if count == 1 else 's'}", style="not bold")
        if self.conversation is not None:
            text.append(f", messages go to {self.model_name}", style="not bold")
        text.append("\n/help says what can be typed. Tab completes. Ctrl+Q ends it.", style="not bold dim")
        self.say(text)
        for problem in self.host.problems()[:10]:
            self.say(Text(f"! {in_one_line(problem, 500)}", style="yellow"))
        if not count:
            self.say(
                Text(
                    "No server is configured. `trimaran console --server NAME=TARGET` takes one from the command line;"
                ),
                Text("`trimaran config import` takes over those of another program."),
            )

    def say(self, *parts: RenderableType, kind: Kind = "") -> None:
        """Put something into the transcript."""
        self.transcript.add(*parts, kind=kind)

    def fault(self, error: BaseException) -> None:
        """Say what went wrong."""
        if isinstance(error, LineError):
            self.say(Text(f"✗ {safe(str(error))}", style="red"), kind="fault")
        else:
            self.say(show_fault(error, self.host), kind="fault")

    @property
    def columns(self) -> int:
        return max(self.size.width - 4, 20)

    @property
    def has_pictures(self) -> bool:
        return self._pictures

    @property
    def model_name(self) -> str:
        return self.conversation.name if self.conversation is not None else ""

    def start(self, work: Work) -> None:
        """Do something behind the screen."""
        self.run_worker(work, exit_on_error=False, group="lines")

    def open_servers(self, first: str = "") -> None:
        self.push_screen(ServersScreen(self.host, lambda: self._changes, first=first))

    def clear_all(self) -> None:
        self.transcript.drop(*self._lines.calls.entries())
        self.pages.forget()
        if self.conversation is not None:
            self.conversation.clear()

    async def change_model(self, name: str) -> None:
        """Send messages to another model from now on."""
        made = await asyncio.to_thread(_open_model, name, self.host)
        before, self.conversation = self.conversation, made
        if before is not None:
            self._lines.cancel_turns()
            await before.close()

    # --- what changes by itself --------------------------------------------------------------------------------------

    def _note_change(self) -> None:
        self._changes += 1

    def _tick(self) -> None:
        if self._told != self._changes:
            self._told = self._changes
            self._tell_changes()
        self._lines.calls.note(self._desk.waiting)
        self._lines.tick()
        self._desk.tick()
        self._status.show(
            self.host.status(),
            calls=len(self._lines.calls),
            model=f"{self.model_name} answers" if self._lines.is_answering else self.model_name,
            width=self._status.size.width,
        )

    def _tell_changes(self) -> None:
        for now in self.host.status():
            said = change_of(self._seen.get(now.name), now)
            self._seen[now.name] = now
            if said is not None:
                self.say(said)

    def _is_typing(self) -> bool:
        return len(self.screen_stack) == 1 and bool(self.query_one(Prompt).text.strip())

    def _answered(self, question: Question) -> None:
        """A question is over. A call says itself what came of it; the rest is said here."""
        self._lines.calls.note(self._desk.waiting)
        if question.note:
            self.say(Text(f"A question of {question.server} was declined: {question.note}.", style="yellow"))
        elif question.kind != "permission" and question.reply is not None:
            self.say(Text(f"You answered {question.server}: {question.reply}.", style="dim"))

    async def _sample(self, server: str, ask: Sampling) -> Any:
        if self.conversation is None:
            return None
        return await self.conversation.sample(server, ask)

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        """What goes wrong behind the screen is said, not swallowed."""
        worker: Worker[Any] = event.worker  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if event.state is WorkerState.ERROR and worker.error is not None:
            self.fault(worker.error)

    # --- what is typed -----------------------------------------------------------------------------------------------

    async def _complete(self, text: str, cursor: int) -> Completion:
        return await complete(text, cursor, self.host, is_message_default=self.conversation is not None)

    def on_submitted(self, event: Submitted) -> None:
        event.stop()
        self._history.add(event.text, is_written=not is_unnamed_secret(event.text, self.host))
        self.transcript.follow()
        self._lines.take(event.text)

    # --- keys --------------------------------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """What is typed while a card appears was not meant for it, nor for a field on it; only the way out is open."""
        card = self.screen if self.screen_stack and isinstance(self.screen, Card) else None
        is_input = isinstance(event, (events.Key, events.Paste)) and not event.is_forwarded
        is_way_out = isinstance(event, events.Key) and event.key == "ctrl+q"
        if card is not None and is_input and not is_way_out and not card.takes_key():
            return
        await super().on_event(event)

    def on_scrolled(self, event: Scrolled) -> None:
        event.stop()
        match event.key:
            case "pageup":
                self.transcript.scroll_page(-1)
            case "pagedown":
                self.transcript.scroll_page(1)
            case "ctrl+home":
                self.transcript.scroll_first()
            case _:
                self.transcript.follow()

    def on_left(self, event: Left) -> None:
        event.stop()
        self.exit()

    def action_interrupt(self) -> None:
        """Close what is open, or end what began last."""
        if isinstance(self.screen, Card):
            self.screen.action_cancel()
        elif len(self.screen_stack) > 1:
            self.screen.dismiss()
        elif self.query_one(Prompt).is_choosing:
            self.query_one(Prompt).close_choices()
        elif not self._lines.cancel_last():
            self.notify("Nothing runs. Ctrl+Q ends the console.", timeout=3, markup=False)

    def _open_page(self, url: str) -> None:
        if self._opener(url):
            self.say(Text("The page was opened in your browser.", style="dim"))
        else:
            self.say(Text("No browser can be opened here. Open this page yourself:"), Text(safe(url), overflow="fold"))


def _open_model(name: str, host: Host) -> Conversation:
    from trimaran.conversation.model import open_model

    return open_model(name, host)


def _open_in_browser(url: str) -> bool:
    """Open a page where a window can appear; a browser for terminals would take this one away."""
    import webbrowser

    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    if type(browser) is webbrowser.GenericBrowser and not os.environ.get("BROWSER"):
        return False
    # Some return only when their window is closed, so nobody waits for it.
    threading.Thread(target=browser.open, args=(url,), name="trimaran-browser", daemon=True).start()
    return True


def run_console(open_host: Callable[..., Host], **options: Any) -> int:
    """Run the console in this terminal until the person leaves; returns the exit code.

    Args:
        open_host, options: As for `ConsoleApp`.

    Raises:
        Error: the host or the model cannot be made as asked.
    """
    app = ConsoleApp(open_host, **options)

    async def whole() -> None:
        with contextlib.suppress(NotImplementedError, RuntimeError):  # Windows; a thread that is not the main one
            loop = asyncio.get_running_loop()
            for number in _ENDS:  # 128 and more is what a shell says of a process that a signal ended
                loop.add_signal_handler(number, partial(app.exit, return_code=128 + number))
        try:
            await app.run_async()
        finally:
            await app.aclose()

    asyncio.run(whole())
    return _BROKEN if app.is_broken else app.return_code or 0
