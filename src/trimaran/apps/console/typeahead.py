"""Keys that the person typed before the console was on the screen.

The terminal keeps them. It is in line mode until then, and turns Enter into a line feed, which means Ctrl+J to a console. So
`typed_ahead` reads those keys before Textual does, and `as_keys` turns them into what was pressed. The terminal's answer to
what it can draw comes the same way as the keys, so it is asked here: whoever else asks takes a key for an answer.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import sys
import time
from collections.abc import Generator, Iterable
from typing import Final, NamedTuple

from textual import events

_MOST: Final = 65536  # bytes; a terminal in line mode keeps 4096
_NAMED: Final = {"\n": "enter", "\r": "enter", "\t": "tab", "\x7f": "backspace"}
# Does it draw pictures by itself (kitty's graphics protocol)? What kind of terminal is it, which every one answers?
_QUESTION: Final = b"\x1b_Gi=31,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\\x1b[c"
_PICTURES: Final = re.compile(rb"\x1b_G[^\x1b]*;OK\x1b\\")
_KIND: Final = re.compile(rb"\x1b\[\?([\d;]*)c")
_ANSWER: Final = re.compile(rb"\x1b_G[^\x1b]*\x1b\\|" + _KIND.pattern)
_SIXEL: Final = b"4"  # a terminal with these does kitty's protocol in part
_ANSWER_SECONDS: Final = 0.2


class TypedAhead(NamedTuple):
    """The bytes that the terminal sent before the console was there."""

    text: str = ""
    """The keys."""
    draws_pictures: bool = False


@contextlib.contextmanager
def typed_ahead(*, asks: bool = False) -> Generator[TypedAhead]:
    """Take the terminal out of line mode, and yield the text typed so far; afterwards the terminal is as it was.

    Args:
        asks: Ask the terminal if it draws pictures, too.
    """
    if sys.platform == "win32" or not sys.stdin.isatty():
        yield TypedAhead()
        return
    import termios

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    changed = [*before]
    changed[0] &= ~termios.ICRNL
    changed[3] &= ~(termios.ICANON | termios.ECHO)
    try:
        termios.tcsetattr(terminal, termios.TCSANOW, changed)
        yield _read(terminal, asks=asks)
    finally:
        with contextlib.suppress(termios.error):  # the terminal is gone
            termios.tcsetattr(terminal, termios.TCSANOW, before)


def _read(terminal: int, *, asks: bool) -> TypedAhead:
    if asks:
        os.write(terminal, _QUESTION)
    limit = time.monotonic() + (_ANSWER_SECONDS if asks else 0)
    received = b""
    while len(received) < _MOST and select.select([terminal], [], [], max(0.0, limit - time.monotonic()))[0]:
        chunk = os.read(terminal, _MOST)
        received += chunk
        if not chunk or _KIND.search(received):
            break
    kind = _KIND.search(received)
    draws = bool(_PICTURES.search(received)) and kind is not None and _SIXEL not in kind[1].split(b";")
    return TypedAhead(_ANSWER.sub(b"", received).decode(errors="ignore"), draws)


def as_keys(text: str) -> Iterable[events.Key]:
    """The keys that a person pressed to type this; escape sequences and control characters are left out."""
    for character in text:
        if character in _NAMED or character.isprintable():
            yield events.Key(_NAMED.get(character, character), character)
