"""Put a server's questions in the middle of a call to the person at the terminal.

A form is asked field by field: what is wanted, what is offered, what an empty line means. An answer that does not fit is
explained and asked again. Before anything is sent the person sees it whole and may refuse. A URL is shown in full with
its host; it is never opened from here. Ctrl-D cancels the question, Ctrl-C the call.

Without a terminal there is no person to ask: the question is declined, and stderr says so (R258).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, cast, final

from rich.text import Text

from trimaran.host.consent import split_as_browsers_do
from trimaran.host.form_fields import Field, Form, InvalidAnswer

from .output import Screen, in_one_line, safe, to_json

if TYPE_CHECKING:
    from trimaran.client.server_requests import Elicitation


class Terminal(Protocol):
    """The terminal's input, line by line."""

    async def line(self, prompt: str) -> str | None:
        """One line without its end; None when the person ended the input."""
        ...


# --- asking ----------------------------------------------------------------------------------------------------------


@final
class Answerer:
    """`answer` is the `on_elicit` of the command line. Questions that come at once are put one after the other.

    `terminal` is None if there is no person to ask; `answers` is `ask`, `yes` or `decline`.
    """

    def __init__(self, screen: Screen, terminal: Terminal | None, answers: str = "ask") -> None:
        self._screen = screen
        self._terminal = terminal
        self._answers = answers
        self._turn = asyncio.Lock()
        self.who: Callable[[], str] = lambda: "The server"

    async def answer(self, ask: Elicitation) -> Any:
        async with self._turn:
            with self._screen.progress.paused():
                if self._answers == "decline":
                    return self._decline(ask, "declined")
                if self._answers == "yes":
                    return self._accept_defaults(ask)
                if self._terminal is None:
                    return self._decline(ask, "declined, because there is no terminal to ask in (--yes accepts)")
                return await self._put(ask, self._terminal)

    def _decline(self, ask: Elicitation, how: str) -> Any:
        self._screen.note(f"{self.who()} asks: {in_one_line(ask.message)}\n  {how}", "yellow")
        return ask.decline()

    def _accept_defaults(self, ask: Elicitation) -> Any:
        self._screen.note(f"{self.who()} asks: {in_one_line(ask.message)}", "yellow")
        if ask.mode == "url":
            self._screen.note(f"  accepted (--yes): visit {safe(str(ask.url))}")
            return ask.accept()
        content = {field.name: field.default for field in Form(ask.schema).fields if field.has_default}
        open_fields = [field.name for field in Form(ask.schema).fields if field.required and not field.has_default]
        if open_fields:
            self._screen.note(f"  declined: the form gives no default for {', '.join(open_fields)}", "yellow")
            return ask.decline()
        self._screen.note(f"  accepted (--yes) with {_in_line(content)}")
        return ask.accept(content)

    async def _put(self, ask: Elicitation, terminal: Terminal) -> Any:
        say = self._screen.paragraph
        say("")
        say(Text(f"{self.who()} asks: ", style="bold").append(safe(ask.message).strip(), style="not bold"))
        answer = await (self._put_url(ask, terminal) if ask.mode == "url" else self._put_form(ask, terminal))
        if answer is None:
            say(Text("Cancelled.", style="dim"))
            return ask.cancel()
        return answer

    async def _put_url(self, ask: Elicitation, terminal: Terminal) -> Any:
        url = str(ask.url)
        say = self._screen.paragraph
        self._screen.note(f"  {url}", "bold")
        host, warnings = _look_at(url)
        say(Text("  on the host ").append(host, style="bold"))
        for warning in warnings:
            say(Text(f"Beware: {warning}", style="yellow"), indent=2)
        truth = await self._confirm(terminal, "  Do you agree to visit it? It is not opened for you. [y/N] ", False)
        if truth is None:
            return None
        if not truth:
            return ask.decline()
        done = await terminal.line("  Open it in a browser, and press Enter when you are done there. ")
        return None if done is None else ask.accept()

    async def _put_form(self, ask: Elicitation, terminal: Terminal) -> Any:
        fields = Form(ask.schema).fields
        if not fields:
            truth = await self._confirm(terminal, "  Do you accept? [y/N] ", False)
            return None if truth is None else ask.accept({}) if truth else ask.decline()
        content: dict[str, Any] = {}
        while True:
            for field in fields:
                if not await self._put_field(field, terminal, content):
                    return None
            self._screen.paragraph(Text(f"You answer: {_in_line(content)}"), indent=2)
            verdict = await self._choose(
                terminal, "  Send this? [Y]es, [n]o, [e]dit: ", {"": "y", "y": "y", "n": "n", "e": "e"}
            )
            if verdict is None:
                return None
            if verdict == "n":
                return ask.decline()
            if verdict == "y":
                return ask.accept(content)

    async def _put_field(self, field: Field, terminal: Terminal, content: dict[str, Any]) -> bool:
        """Ask until the answer fits and keep it; False if the person ended the input."""
        say = self._screen.paragraph
        line = Text(f"{field.title}", style="bold").append(f" ({_kind_in_words(field)})", style="not bold dim")
        say(line.append(f"  {field.description}" if field.description else "", style="not bold"), indent=2)
        for number, (value, label) in enumerate(field.choices, 1):
            more = f" ({in_one_line(value, 40)})" if label != str(value) else ""
            say(Text(f"{number:>2}  {label}").append(more, style="dim"), indent=4)
        if field.name in content:  # the form is edited: what was said before is what an empty line means
            offered, offer_text = content[field.name], _in_line(content[field.name])
        else:
            offered, offer_text = field.default, in_one_line(field.default_text, 60) if field.has_default else ""
        is_offered = field.has_default or field.name in content
        hint = f"[{offer_text}]" if is_offered else "" if field.required else "(may be empty)"
        while True:
            text = await terminal.line(f"  {hint}> " if not hint else f"  {hint} > ")
            if text is None:
                return False
            if not text.strip():
                if is_offered:
                    content[field.name] = offered
                    return True
                if not field.required:
                    return True
                say(Text("An answer is needed here; Ctrl-D cancels.", style="yellow"), indent=2)
                continue
            try:
                content[field.name] = field.read(text)
            except InvalidAnswer as error:
                say(Text(f"{error}: once more, please.", style="yellow"), indent=2)
                continue
            return True

    async def _confirm(self, terminal: Terminal, prompt: str, default: bool) -> bool | None:
        known = {"": "y" if default else "n", "y": "y", "yes": "y", "n": "n", "no": "n"}
        verdict = await self._choose(terminal, prompt, known)
        return None if verdict is None else verdict == "y"

    async def _choose(self, terminal: Terminal, prompt: str, known: dict[str, str]) -> str | None:
        while True:
            text = await terminal.line(prompt)
            if text is None:
                return None
            word = text.strip().lower()
            choice = known.get(word) or known.get(word[:1] if word in ("yes", "no", "edit") else word)
            if choice is not None:
                return choice


def _kind_in_words(field: Field) -> str:
    return f"{field.hint}, with commas between" if field.kind == "choices" else field.hint


def _in_line(value: Any) -> str:
    if isinstance(value, dict):
        pairs = cast("dict[str, Any]", value).items()
        return ", ".join(f"{name} = {_in_line(member)}" for name, member in pairs) or "nothing"
    if isinstance(value, list):
        return ", ".join(_in_line(item) for item in cast("list[Any]", value)) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return in_one_line(value if isinstance(value, str) else to_json(value), 120)


def _look_at(url: str) -> tuple[str, list[str]]:
    """The host of a URL as it will be asked for, and what a person should know before going there."""
    try:
        parts = split_as_browsers_do(url)
        host = parts.hostname or ""
    except ValueError:
        return "?", ["this is not a proper URL."]
    warnings: list[str] = []
    if parts.scheme != "https":
        warnings.append(f"it is not https but {safe(parts.scheme) or 'nothing'}: others can read along.")
    if parts.username is not None:
        warnings.append(f"the part before the @ is not the host; the host is {safe(host)}.")
    if not host.isascii() or "xn--" in host:
        spelt = host if host.isascii() else ascii(host)[1:-1]
        warnings.append(f"the name has letters that may look like others ({safe(spelt)}).")
    return safe(host) or "?", warnings


# --- the terminal ----------------------------------------------------------------------------------------------------


@final
class TerminalLines:
    """Lines typed at the terminal, read by the event loop: a thread stuck in a read could not be interrupted."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._pending = b""

    @staticmethod
    def is_there(screen: Screen) -> bool:
        """Whether a person can both read the question and answer it."""
        return sys.stdin is not None and sys.stdin.isatty() and screen.err.is_terminal  # pyright: ignore[reportUnnecessaryComparison]

    async def line(self, prompt: str) -> str | None:
        self._screen.err.file.write(prompt)
        self._screen.err.file.flush()
        loop = asyncio.get_running_loop()
        fd = sys.stdin.fileno()
        while b"\n" not in self._pending:
            ready: asyncio.Future[None] = loop.create_future()
            try:
                loop.add_reader(fd, _set, ready)
            except NotImplementedError:  # Windows
                return await self._line_from_thread()
            try:
                await ready
            finally:
                loop.remove_reader(fd)
            chunk = os.read(fd, 65536)
            if not chunk:
                self._screen.err.file.write("\n")
                return None
            self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode("utf-8", "replace").rstrip("\r")

    async def _line_from_thread(self) -> str | None:
        line = await asyncio.to_thread(sys.stdin.readline)
        return line.rstrip("\r\n") if line else None


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
