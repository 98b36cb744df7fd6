"""The difference of two JSON values, or of two recordings, line by line. Pure."""

from __future__ import annotations

import difflib
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import Struct

from .recording import RecordedCall, RecordedSession

_MOST_LINES: Final = 5_000  # of one value; difflib takes the square of it
_CONTEXT: Final = 3
_OF_ERA: Final = frozenset({"resultType", "ttlMs", "cacheScope"})
_PROTOCOL: Final = "io.modelcontextprotocol/"


class DiffLine(Struct, frozen=True):
    """One line of a difference."""

    mark: Literal[" ", "-", "+"]
    text: str


def diff_json(before: Any, after: Any) -> list[DiffLine]:
    """The lines in which two values differ, with some around them; empty if they are equal."""
    if before == after:
        return []
    return diff_lines(_lines(before), _lines(after))


def diff_lines(before: list[str], after: list[str]) -> list[DiffLine]:
    """The same for texts."""
    lines = difflib.unified_diff(before[:_MOST_LINES], after[:_MOST_LINES], lineterm="", n=_CONTEXT)
    return [
        DiffLine(cast("Any", line[0]), line[1:])
        for line in lines
        if line[:1] in (" ", "-", "+") and not line.startswith(("---", "+++"))
    ]


def without_era(result: Any) -> Any:
    """A result without the members that only say which era it was spoken in, and how long it may be kept."""
    if not isinstance(result, dict):
        return result
    members = {name: part for name, part in cast("dict[str, Any]", result).items() if name not in _OF_ERA}
    meta: Any = members.pop("_meta", None)
    if isinstance(meta, dict):
        kept_meta = {k: v for k, v in cast("dict[str, Any]", meta).items() if not k.startswith(_PROTOCOL)}
        if kept_meta:
            members["_meta"] = kept_meta
    if members.get("isError") is False:
        del members["isError"]
    return members


def _lines(value: Any) -> list[str]:
    text = msgspec.json.format(msgspec.json.encode(value, order="sorted"), indent=2).decode()
    return text.splitlines()


def _outcome(call: RecordedCall | None) -> Any:
    if call is None:
        return None
    return {"state": call.state, "result": without_era(call.result), "failure": call.failure}


def compare_sessions(a: RecordedSession, b: RecordedSession) -> dict[str, Any]:
    """Calls and definitions of two recordings, side by side."""
    calls: list[dict[str, Any]] = []
    left = {_call_key(call, number): call for call, number in _numbered(a.calls)}
    right = {_call_key(call, number): call for call, number in _numbered(b.calls)}
    for key in dict.fromkeys((*left, *right)):
        before, after = _outcome(left.get(key)), _outcome(right.get(key))
        known = left.get(key) or right[key]
        difference = diff_json(before, after)
        calls.append(
            {
                "name": known.name,
                "arguments": known.arguments,
                "a": before,
                "b": after,
                "same": not difference,
                "difference": difference,
            }
        )
    definitions = diff_json(_definitions(a), _definitions(b))
    is_same = not definitions and all(call["same"] for call in calls)
    return {"same": is_same, "calls": calls, "definitions": definitions}


def _numbered(calls: list[RecordedCall]) -> list[tuple[RecordedCall, int]]:
    seen: dict[bytes, int] = {}
    numbered: list[tuple[RecordedCall, int]] = []
    for call in calls:
        key = _call_key(call, 0)
        seen[key] = seen.get(key, 0) + 1
        numbered.append((call, seen[key]))
    return numbered


def _call_key(call: RecordedCall, number: int) -> bytes:
    return msgspec.json.encode([call.kind, call.name, call.arguments, number], order="deterministic")


def _definitions(session: RecordedSession) -> Any:
    return [
        {"tools": server.tools, "resources": server.resources, "templates": server.templates, "prompts": server.prompts}
        for server in session.servers
    ]
