"""The corpus: one file per target, one input per line, written as Python writes bytes, shortest first."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).with_name("corpus")


def read_corpus(name: str) -> list[bytes]:
    path = FOLDER / f"{name}.txt"
    return [ast.literal_eval(line) for line in path.read_text().splitlines()] if path.exists() else []


def damaged(data: bytes, damage: Iterable[tuple[str, int, int]]) -> bytes:
    """The data with bytes replaced, inserted and dropped: each by its first letter, with a place and a byte."""
    stream = bytearray(data)
    for what, where, byte in damage:
        where %= len(stream)
        if what == "r":
            stream[where] = byte
        elif what == "i":
            stream.insert(where, byte)
        else:
            del stream[where]
    return bytes(stream)


def write_corpus(inputs: Iterable[bytes]) -> str:
    return "".join(f"{data!r}\n" for data in sorted(set(inputs), key=lambda data: (len(data), data)))
