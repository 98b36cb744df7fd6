"""Variables in a configuration: `${NAME}` and `${NAME:-default}`, anywhere in a text (R232).

Pure. A text is split once into literal parts and references; filling in, masking and writing it in
another program's spelling work on the parts. There is no escape: put a text with `${` into a variable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, TypeAlias

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# References of other programs, and their names here.
_FOREIGN: Final = {"env": "${{{}}}", "input": "${{{}}} and set that variable"}


class Unexpandable(ValueError):
    """The text has an unknown or unreadable reference. The message names it, never the values of other variables."""

    kind: Literal["missing_env", "invalid_reference"] = "invalid_reference"


class Reference(NamedTuple):
    """`${name}` or `${name:-default}`."""

    name: str
    default: str | None = None

    def __str__(self) -> str:
        return f"${{{self.name}}}" if self.default is None else f"${{{self.name}:-{self.default}}}"


Part: TypeAlias = str | Reference


def parts_of(text: str) -> list[Part]:
    """The text as plain pieces and references."""
    parts: list[Part] = []
    at = 0
    while (start := text.find("${", at)) >= 0:
        end = text.find("}", start)
        if end < 0:
            raise Unexpandable("a `${` is never closed: write ${NAME} or ${NAME:-default}")
        if start > at:
            parts.append(text[at:start])
        parts.append(_reference(text[start + 2 : end]))
        at = end + 1
    if at < len(text) or not parts:
        parts.append(text[at:])
    return parts


def _reference(inside: str) -> Reference:
    if "${" in inside:
        raise Unexpandable("a default cannot hold another ${...}: give the variable a plain default")
    name, mark, default = inside.partition(":-")
    if _NAME.fullmatch(name):
        return Reference(name, default if mark else None)
    kind, colon, rest = inside.partition(":")
    if colon and kind in _FOREIGN and _NAME.fullmatch(rest):
        raise Unexpandable(f"${{{inside}}} is how other programs write it: write {_FOREIGN[kind].format(rest)}")
    raise Unexpandable(f"${{{name[:60]}}} names no variable: a name is letters, digits and _, as in ${{API_KEY}}")


def expand(text: str, variables: Mapping[str, str]) -> str:
    """The text with every reference filled in."""
    pieces: list[str] = []
    for part in parts_of(text):
        if isinstance(part, str):
            pieces.append(part)
            continue
        known = variables.get(part.name, part.default)
        if known is None:
            unset = Unexpandable(f"${{{part.name}}} is not set: set it, or write a default, ${{{part.name}:-...}}")
            unset.kind = "missing_env"
            raise unset
        pieces.append(known)
    return "".join(pieces)
