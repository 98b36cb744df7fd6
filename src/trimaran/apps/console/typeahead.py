"""Keys that the person typed before the console was on the screen.

The terminal keeps them. It is in line mode until then, and turns Enter into a line feed, which means Ctrl+J to a console. So
`typed_ahead` reads those keys before Textual does, and `as_keys` turns them into what was pressed.
"""

from __future__ import annotations

import contextlib
import os
import select
import sys
from collections.abc import Generator, Iterable
from typing import Final

from textual import events

__all__ = ["as_keys", "typed_ahead"]

_MOST: Final = 65536  # bytes; a terminal in line mode keeps 4096
_NAMED: Final = {"\n": "enter", "\r": "enter", "\t": "tab", "\x7f": "backspace"}


@contextlib.contextmanager
def typed_ahead() -> Generator[str]:
    """Take the terminal out of line mode, and yield the text typed so far; afterwards the terminal is as it was."""
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield ""
        return
    import termios

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    changed = [*before]
    changed[0] &= ~termios.ICRNL
    changed[3] &= ~(termios.ICANON | termios.ECHO)
    try:
        termios.tcsetattr(terminal, termios.TCSANOW, changed)
        is_waiting = bool(select.select([terminal], [], [], 0)[0])
        yield os.read(terminal, _MOST).decode(errors="ignore") if is_waiting else ""
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(terminal, termios.TCSANOW, before)


def as_keys(text: str) -> Iterable[events.Key]:
    """The keys that a person pressed to type this; escape sequences and control characters are left out."""
    for character in text:
        if character in _NAMED or character.isprintable():
            yield events.Key(_NAMED.get(character, character), character)
