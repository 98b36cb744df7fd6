"""A login under way: where to go, and how long it has taken.

A browser is opened only because somebody pressed the key for it, and the address is shown as well: on another machine it has
to be opened by hand. Esc gives it up.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, final

from rich.text import Text
from textual.widget import Widget
from textual.widgets import Button, Static
from textual.worker import Worker

from trimaran.host.terminal_text import safe

from .cards import Card

if TYPE_CHECKING:
    from trimaran.host import Host

_EVERY: Final = 0.5  # seconds between two looks at the clock


@final
class LoginCard(Card["Exception | None"]):
    """A login under way: where to go, and how long it has taken."""

    def __init__(self, host: Host, server: str) -> None:
        super().__init__(settle=0.0)
        self._host = host
        self._server = server
        self._url = ""
        self._is_over = False
        self._error: Exception | None = None
        self._work: Worker[None] | None = None
        self._began = asyncio.get_running_loop().time()

    def body(self) -> Iterable[Widget]:
        yield Static(Text(""), id="login")

    def buttons(self) -> Iterable[Button]:
        yield Button("esc  Give up", id="cancel", compact=True, classes="safe")

    def on_mount(self) -> None:
        super().on_mount()
        self.entitle(f"Log in to {self._server}")
        self._tell()
        self.set_interval(_EVERY, self._tell)
        self._work = self.run_worker(self._log_in, exit_on_error=False)

    async def _log_in(self) -> None:
        from trimaran.transports.loopback_login import LoopbackLogin

        try:
            await self._host.authorize(self._server, login=LoopbackLogin(show=self._show))
        except Exception as error:
            self._error = error
        self._is_over = True
        self._tell()

    def _show(self, url: str) -> None:
        self._url = url

    def _tell(self) -> None:
        if self._is_over:
            if self.is_in_front:  # a question may have come in front of it
                self.dismiss(self._error)
            return
        passed = asyncio.get_running_loop().time() - self._began
        text = Text(f"Waiting for you to log in, {passed:.0f} s.\n")
        if self._url:
            text.append("\nIf no browser opened, open this page yourself:\n", style="dim").append(safe(self._url))
        else:
            text.append("\nAsking the server where to log in ...", style="dim")
        self.query_one("#login", Static).update(text)

    def answer(self, how: str) -> None:
        self.cancel()

    def cancel(self) -> None:
        if self._work is not None:
            self._work.cancel()
        self.dismiss(None)
