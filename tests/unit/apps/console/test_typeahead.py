"""What the terminal says before the console is there: keys, and its answers, in any order."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Iterator

import pytest
from tests.support.until import PATIENCE

from trimaran.apps.console.typeahead import TypedAhead, typed_ahead

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="no pseudo-terminals")
OK, KITTY, SIXEL = "\x1b_Gi=31;OK\x1b\\", "\x1b[?62c", "\x1b[?62;4;22c"


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The side of a terminal where a person types."""
    master, slave = os.openpty()
    with open(slave) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield master
    os.close(master)


@pytest.mark.parametrize(
    ("said", "understood"),
    [
        ("", TypedAhead()),
        ("/tools\r", TypedAhead("/tools\n")),
        (f"/to{OK}ol{KITTY}s", TypedAhead("/tools", draws_pictures=True)),
        (f"{OK}{SIXEL}", TypedAhead()),
        (f"{KITTY}a", TypedAhead("a")),
        ("\x1b_Gi=31;ENOTSUPPORTED\x1b\\\x1b[?1;2cab", TypedAhead("ab")),
    ],
)
def test_keys_and_answers_are_told_apart(person: int, said: str, understood: TypedAhead) -> None:
    os.write(person, said.encode())
    assert not said or select.select([person], [], [], PATIENCE)[0]  # the echo: the terminal has it all now
    with typed_ahead(asks=True) as typed:
        assert typed == understood


def test_a_terminal_that_is_not_asked_is_not_written_to(person: int) -> None:
    os.write(person, b"ab")
    assert _read(person, 2) == b"ab"  # the echo: the terminal has the keys now
    with typed_ahead() as typed:
        assert typed == TypedAhead("ab")
    assert not select.select([person], [], [], 0)[0]


def _read(terminal: int, count: int) -> bytes:
    data = b""
    while len(data) < count:
        assert select.select([terminal], [], [], PATIENCE)[0], f"the terminal wrote {data!r} and no more"
        data += os.read(terminal, count - len(data))
    return data
