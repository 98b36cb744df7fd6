"""`trimaran console`: the servers of a host at a person's fingertips, in a terminal of 80 by 24 and up.

    transcript          what was typed and what came of it; state changes of servers
    status line         servers, calls that run, the model
    prompt              a call, a message, a command

Here the parts meet: what becomes of a line is `running_lines.py`, with `calls.py`, `commands.py` and, for a model's answers, `model_turn.py`;
questions are `questions.py`, the servers `server_screens.py`. The screen is there before the servers are; each comes up behind.

Ten times a second the screen is brought up to date (`_tick`): states, bars, a model's text. Messages of servers in between are
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

from trimaran.host import ConsentBridge, Host, Question, ServerStatus
from trimaran.host.terminal_text import in_one_line, safe

from .cards import SETTLE, Card
from .completion import CompletionMenu, complete
from .errors import show_fault
from .history import History
from .input import LineError, is_unnamed_secret
from .pages import Pages
from .pictures import prepare_pictures
from .prompt import Choices, PromptInput, QuitRequested, Scrolled, Submitted
from .questions import QuestionQueue
from .running_lines import RunningLines, Work
from .server_screens import ServersScreen
from .status import StatusLine, change_of
from .transcript import Kind, TranscriptView
from .trustcard import TrustCard
from .typeahead import as_keys, typed_ahead

if TYPE_CHECKING:
    from trimaran.apps.conversation.model import Conversation
    from trimaran.client import Sampling

_TICK: Final = 0.1  # seconds between two drawings
_BROKEN: Final = 70  # as the other commands end after a mistake of ours
# The terminal went away, or somebody wants an end; Windows knows no SIGHUP.
_ENDS: Final = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


@final
class ConsoleApp(App[None]):
    """The application.

    Args:
        open_host: Makes the host, given the options that are the console's: bridge, separator, wait, on_change, on_sample.
        model: The name of a model that messages go to, or nothing.
        code: Let the model write code over the tools, instead of calls.
        pictures: May pictures be drawn?
        history: The file for the lines that were typed; None keeps them in memory.
        settle: Seconds without a key until a question takes an answer.
        open_page: Opens a page in a browser; True if it could.
        typed_ahead: The text that the person typed before the console was ready.
    """

    TITLE: str | None = "trimaran"
    ENABLE_COMMAND_PALETTE: ClassVar[bool] = False
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
        code: bool = False,
        pictures: bool = True,
        history: Path | None = None,
        settle: float = SETTLE,
        open_page: Callable[[str], bool] | None = None,
        typed_ahead: str = "",
    ) -> None:
        super().__init__(css_path="console.tcss")
        self.is_broken: bool = False
        """True if a mistake of ours ended the console."""
        self._changes = 1
        self._drawn_changes = 0
        bridge = ConsentBridge()
        self.host: Host = open_host(
            bridge=bridge,
            separator=":",
            wait=False,
            on_change=self._note_change,
            on_sample=self._sample if model else None,
        )
        self._model_options: dict[str, bool] = {"code": True} if code else {}
        self.conversation: Conversation | None = _open_model(model, self.host, **self._model_options) if model else None
        self.pages: Pages = Pages()
        self.transcript: TranscriptView = TranscriptView()
        self._pictures = pictures
        self._history = History(history)
        self._choices = Choices(id="choices", compact=True)
        self._prompt = PromptInput(
            self._complete,
            self._history,
            self._choices,
            placeholder="a message, !server:tool key=value, or /help"
            if self.conversation is not None
            else "server:tool key=value, text with @server:resource, or /help",
        )
        self._early_keys: list[events.Event] = [*as_keys(typed_ahead)]
        """Keys that came before the prompt could take them."""
        self._is_ready = False
        self._status = StatusLine()
        self._lines = RunningLines(self)
        self._desk = QuestionQueue(
            self,
            bridge,
            open_page=self._open_page,
            on_answered=self._answered,
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
        yield self._prompt

    def on_mount(self) -> None:
        self._choices.display = False
        self._greet()
        self._prompt.focus()
        self.call_after_refresh(self._release_early_keys)
        self.set_interval(_TICK, self._tick)
        self.run_worker(self._begin, exit_on_error=False, group="host")

    async def _begin(self) -> None:
        """Questions can be answered before anything is started that may ask one."""
        ready = asyncio.Event()
        self.run_worker(partial(self._desk.attend, ready), exit_on_error=False, group="desk")
        await ready.wait()
        if self.host.untrusted_files:
            card = TrustCard(self.host, settle=self._settle)
            card.covers_prompt = True
            self.push_screen(card, self._trusted)
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
        heading = Text(
            "trimaran: this is a mistake in trimaran itself; please tell us what it says here", style="bold red"
        )
        self.panic(Group(heading, Traceback(show_locals=False, width=None)))

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
    def running_calls(self) -> int:
        """How many calls have no result yet."""
        return len(self._lines.calls)

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
        conversation = await asyncio.to_thread(_open_model, name, self.host, **self._model_options)
        before, self.conversation = self.conversation, conversation
        if before is not None:
            self._lines.cancel_turns()
            await before.close()

    # --- what changes by itself --------------------------------------------------------------------------------------

    def _note_change(self) -> None:
        self._changes += 1

    def _tick(self) -> None:
        if self._drawn_changes != self._changes:
            self._drawn_changes = self._changes
            self._tell_changes()
        self._lines.calls.note(self._desk.waiting)
        self._lines.tick()
        self._desk.tick()
        self._status.show(
            self.host.status(),
            calls=self.running_calls,
            plan=None if self.conversation is None else self.conversation.budget_plan,
            model=f"{self.model_name} answers" if self._lines.is_answering else self.model_name,
            waiting=self._lines.waiting,
            width=self._status.size.width,
        )

    def _tell_changes(self) -> None:
        for now in self.host.status():
            line = change_of(self._seen.get(now.name), now)
            self._seen[now.name] = now
            if line is not None:
                self.say(line)

    def _is_typing(self) -> bool:
        return len(self.screen_stack) == 1 and bool(self._prompt.text.strip())

    def _answered(self, question: Question) -> None:
        """Report a question that is over; a call reports its own outcome."""
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
        """Show an error that happens in the background."""
        worker: Worker[Any] = event.worker  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if event.state is WorkerState.ERROR and worker.error is not None:
            self.fault(worker.error)

    # --- what is typed -----------------------------------------------------------------------------------------------

    async def _complete(self, text: str, cursor: int) -> CompletionMenu:
        return await complete(text, cursor, self.host, is_message_default=self.conversation is not None)

    def on_submitted(self, event: Submitted) -> None:
        event.stop()
        self._history.add(event.text, is_written=not is_unnamed_secret(event.text, self.host))
        self.transcript.follow()
        self._lines.take(event.text)

    # --- keys --------------------------------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """Lead keys and pastes to where the person types.

        Before the prompt is there they wait for it. While a card appears they go on into the prompt; only Ctrl+Q works at once.
        """
        is_quit = isinstance(event, events.Key) and event.key == "ctrl+q"
        is_typed = isinstance(event, (events.Key, events.Paste)) and not event.is_forwarded and not is_quit
        if not (is_typed and self._leads_elsewhere(event)):
            await super().on_event(event)

    def _leads_elsewhere(self, event: events.Event) -> bool:
        if not self._is_ready:
            self._early_keys.append(event)
            return True
        if not isinstance(card := self.screen, Card):
            return False
        was_settled = card.is_settled
        if card.takes_key():
            return False
        if card.covers_prompt and not was_settled:
            self._prompt.receive(event)
        return True

    def _release_early_keys(self) -> None:
        self._is_ready = True
        for event in self._early_keys:
            self._prompt.receive(event)
        self._early_keys.clear()

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

    def on_quit_requested(self, event: QuitRequested) -> None:
        event.stop()
        self.exit()

    def action_interrupt(self) -> None:
        """Close what is open, or end what began last."""
        if isinstance(self.screen, Card):
            self.screen.action_cancel()
        elif len(self.screen_stack) > 1:
            self.screen.dismiss()
        elif self._prompt.is_choosing:
            self._prompt.close_choices()
        elif not self._lines.cancel_last():
            self.notify("Nothing runs. Ctrl+Q ends the console.", timeout=3, markup=False)

    def _open_page(self, url: str) -> None:
        if self._opener(url):
            self.say(Text("The page was opened in your browser.", style="dim"))
        else:
            self.say(Text("No browser can be opened here. Open this page yourself:"), Text(safe(url), overflow="fold"))


def _open_model(name: str, host: Host, *, code: bool = False) -> Conversation:
    from trimaran.apps.conversation.model import open_model

    return open_model(name, host, code=code)


def _open_in_browser(url: str) -> bool:
    """Open a page where a window can appear; a browser for terminals would take this one away."""
    import webbrowser

    try:
        browser = webbrowser.get()
    except webbrowser.Error:
        return False
    if type(browser) is webbrowser.GenericBrowser and not os.environ.get("BROWSER"):
        return False
    # Some browsers return only when their window is closed, so this does not wait.
    threading.Thread(target=browser.open, args=(url,), name="trimaran-browser", daemon=True).start()
    return True


def run_console(open_host: Callable[..., Host], *, pictures: bool = True, **options: Any) -> int:
    """Run the console in this terminal until the person leaves; returns the exit code.

    Args:
        open_host, pictures, options: As for `ConsoleApp`.

    Raises:
        Error: the host or the model cannot be made as asked.
    """
    with typed_ahead(asks=pictures) as typed:
        if typed.draws_pictures:
            prepare_pictures()
        return _run(ConsoleApp(open_host, typed_ahead=typed.text, pictures=pictures, **options))


def _run(app: ConsoleApp) -> int:
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
