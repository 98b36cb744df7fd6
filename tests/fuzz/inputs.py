"""The corpus: one file per target, one input per line, written as Python writes bytes, shortest first."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from typing import Final

__all__ = ["FOLDER", "read_corpus", "write_corpus"]

FOLDER: Final = Path(__file__).with_name("corpus")


def read_corpus(name: str) -> list[bytes]:
    path = FOLDER / f"{name}.txt"
    return [ast.literal_eval(line) for line in path.read_text().splitlines()] if path.exists() else []


def write_corpus(inputs: Iterable[bytes]) -> str:
    return "".join(f"{data!r}\n" for data in sorted(set(inputs), key=lambda data: (len(data), data)))
