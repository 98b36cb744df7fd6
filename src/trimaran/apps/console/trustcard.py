"""The card for a project's configuration that is not trusted yet: it shows what the file would start, and asks.

It names programs that run with all rights of the person, so it is asked about before anything of it is started. No is the
answer that Enter gives, and Esc. The servers of the user's own file start meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar, Final, final

from rich.console import RenderableType
from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widgets import Button

from trimaran.host.terminal_text import in_one_line

from .cards import SETTLE, Card

if TYPE_CHECKING:
    from trimaran.host import Host
    from trimaran.host.trust.untrusted import Untrusted

_MOST: Final = 100  # lines


@final
class TrustCard(Card[bool]):
    title_text = "Do you trust this project's configuration?"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer('yes')", show=False),
        Binding("n", "answer('no')", show=False),
    ]

    def __init__(self, host: Host, *, settle: float = SETTLE) -> None:
        super().__init__(settle=settle)
        self._host = host

    def parts(self) -> Iterable[RenderableType]:
        for file in self._host.untrusted_files:
            yield Text(in_one_line(file, 400), style="bold")
        yield Text("was not seen here before, or was changed. With your rights, it would\n", style="dim")
        servers = self._host.untrusted
        if not servers:
            yield Text("start nothing and allow nothing: it has settings alone")
        yield from map(_line, servers[:_MOST])
        if len(servers) > _MOST:
            yield Text(f"... and {len(servers) - _MOST} more: read the file first", style="yellow")
        yield Text("\nSay yes only if you know who wrote it. It is asked again when the file changes.", style="dim")

    def buttons(self) -> Iterable[Button]:
        yield Button("y  Yes, start them", id="yes", compact=True)
        yield Button("n  No", id="no", compact=True, classes="safe")

    def answer(self, how: str) -> None:
        self.dismiss(how == "yes")

    def cancel(self) -> None:
        self.dismiss(False)


def _line(server: Untrusted) -> Text:
    verb = "allow" if server.kind == "rule" else "start" if server.transport == "stdio" else "connect to"
    text = Text(f"{verb} ", style="bold").append(f"{server.name}: " if server.name else "", style="not bold")
    text.append(server.what, style="not bold")
    for variable in (*server.env, *server.headers):
        text.append(f"\n    with {variable}", style="not bold dim")
    if server.cwd:
        text.append(f"\n    in {server.cwd}", style="not bold dim")
    if server.sandbox:
        text.append(f"\n    in a sandbox: {server.sandbox}", style="not bold green")
    elif server.kind == "server" and server.transport == "stdio":
        text.append("\n    without a sandbox", style="not bold dim")
    for warning in server.warnings:
        text.append(f"\n    {warning}", style="not bold yellow")
    return text
