"""The messages of both sides, as text for people and golden files.

    -- client --
    {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    -- server --
    {"jsonrpc": "2.0", "id": 1, "result": {"tools": []}}

Each message is JSON; a long one is spread over lines. Other bytes are printed as a Python literal.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from typing import Any, Literal, TypeAlias, cast, final

from trimaran.depth import decode_json
from trimaran.types import Json

Side: TypeAlias = Literal["client", "server"]

# A message that fits on a line of an editor stays on one.
_LINE = 110


@final
class Transcript:
    """The messages of a conversation in order; `str()` gives them as text."""

    def __init__(self) -> None:
        self._messages: list[tuple[Side, bytes]] = []

    def add(self, who: Side, message: bytes) -> None:
        self._messages.append((who, message))

    def messages(self, who: Side | None = None) -> list[Json]:
        """The messages of one side, or of both, decoded; bytes if a message was not JSON."""
        return [parse(message) for side, message in self._messages if who in (None, side)]

    def methods(self, who: Side | None = None) -> list[str]:
        """The methods one side named, or both, in order; replies have none and are left out."""
        requests = [cast("dict[str, Any]", message) for message in self.messages(who) if isinstance(message, dict)]
        return [str(message["method"]) for message in requests if "method" in message]

    def __iter__(self) -> Iterator[tuple[Side, bytes]]:
        return iter(self._messages)

    def __len__(self) -> int:
        return len(self._messages)

    def __str__(self) -> str:
        lines: list[str] = []
        last: Side | None = None
        for who, message in self._messages:
            if who != last:
                lines.append(f"-- {who} --")
                last = who
            lines.append(pretty(parse(message)))
        return "\n".join(lines)


def parse(message: bytes) -> Any:
    """The message decoded; the bytes themselves if they are not JSON."""
    try:
        return decode_json(message)
    except ValueError:
        return message


def pretty(value: Any, *, spread: bool = False) -> str:
    """JSON for people: one line if it fits, unless it is to be spread in any case."""
    if isinstance(value, bytes):
        return repr(value)
    line = json.dumps(value, ensure_ascii=False)
    return json.dumps(value, ensure_ascii=False, indent=2) if spread or len(line) > _LINE else line


def diff(expected: Any, sent: Any, *, names: tuple[str, str] = ("expected", "sent")) -> str:
    """A line-by-line difference of two JSON values, keys in order."""
    before, after = (pretty(_sorted(value), spread=True).splitlines() for value in (expected, sent))
    return "\n".join(difflib.unified_diff(before, after, *names, lineterm="", n=3))


def _sorted(value: Any) -> Any:
    if isinstance(value, Mapping):
        members = cast("Mapping[str, Any]", value)
        return {key: _sorted(members[key]) for key in sorted(members, key=str)}
    if isinstance(value, list):
        return [_sorted(item) for item in cast("list[Any]", value)]
    return value
