"""A large result without the rest of its long texts, so that a page can show what it is: pictures, links, structure. Pure."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec
from msgspec import Struct

from .pointers import step_of

__all__ = ["CutText", "Outline", "outline_of"]

_LONGEST: Final = 64 * 1024  # characters: more than the page draws of one text
_MOST_NODES: Final = 100_000  # about 50 ms; a result of more parts is large because of them


class CutText(Struct, frozen=True):
    """A text that is longer in the result."""

    path: str
    """JSON pointer into the result."""
    length: int


class Outline(Struct, frozen=True):
    """The result, its long texts cut."""

    value: Any
    cut: list[CutText]


def outline_of(result: Any, most: int) -> Outline | None:
    """The outline of a result; None if more than `most` bytes are left of it."""
    cut: list[CutText] = []
    nodes = 0

    def shorten(value: Any, path: str) -> Any:
        nonlocal nodes
        nodes += 1
        if nodes > _MOST_NODES:
            raise _TooManyParts
        if isinstance(value, str) and len(value) > _LONGEST:
            cut.append(CutText(path=path, length=len(value)))
            return value[:_LONGEST]
        if isinstance(value, dict):
            members = cast("dict[str, Any]", value)
            return {key: shorten(inner, path + step_of(key)) for key, inner in members.items()}
        if isinstance(value, list):
            return [shorten(inner, f"{path}/{index}") for index, inner in enumerate(cast("list[Any]", value))]
        return value

    try:
        outline = Outline(value=shorten(result, ""), cut=cut)
    except (_TooManyParts, RecursionError):
        return None
    return outline if cut and len(msgspec.json.encode(outline.value)) <= most else None


class _TooManyParts(Exception):
    pass
