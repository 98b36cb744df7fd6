"""All texts of a JSON value, keys too: a model reads every one of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast


def texts_in(value: object) -> str:
    """Every text in a value, one below the other."""
    texts: list[str] = []
    waiting: list[object] = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, str):
            texts.append(item)
        elif isinstance(item, Mapping):
            waiting += [part for pair in cast("Mapping[str, Any]", item).items() for part in pair]
        elif isinstance(item, list):
            waiting += cast("list[Any]", item)
    texts.reverse()
    return "\n".join(texts)
