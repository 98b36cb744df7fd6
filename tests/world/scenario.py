"""What a real program does with our server, and what its model must be shown.

Every program gets the same calls. A call passes if the words in `shows` reach the model (or the framework's caller),
in whatever form the program gives results. The words are chosen so that a client that drops the structured result, the
text, or the whole result after a failed validation cannot pass.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

SCRIPT_MARK = "<<CALLS"


@dataclass(frozen=True)
class Call:
    """One tool call. `shows`: words that must be in the result; `tells_failure`: the call fails, and must be told."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict)
    shows: tuple[str, ...] = ()
    tells_failure: bool = False


_LEG = {
    "start": {"name": "Faro", "latitude": 37.0, "longitude": -7.9},
    "end": {"name": "Sines", "latitude": 37.9, "longitude": -8.8},
    "miles": 80.0,
}

CALLS = (
    Call("add", {"a": 19, "b": 23}, ("42",)),
    Call("echo", {"text": "größe 你好 🚢"}, ("größe 你好 🚢",)),
    Call("long_text", {}, ("0123456789abcdef",)),
    Call("nothing"),
    Call("dotted.name-with_all", {}, ("dotted-reached",)),
    Call("journey", {}, ("Lisbon", "Porto", "150.5")),
    Call("place_or_none", {"known": True}, ("Lisbon", "38.7")),
    Call("place_or_none", {"known": False}),
    Call("number_or_place", {"number": True}, ("4711",)),
    Call("number_or_place", {"number": False}, ("Porto",)),
    Call("moments", {}, ("2026-11-16T12:30:00",)),
    Call("kinds", {}, ("2026-11-16T09:15:30", "19.9", "green", "12345678-1234-5678-1234-567812345678")),
    Call("took", {}, ("1.25",)),
    Call("tree", {}, ("leaf-folder",)),
    Call("explicit", {}, ("42",)),
    Call("measure", {"leg": _LEG, "factor": 2, "colour": "green"}, ("Faro to Sines: 160 miles, green",)),
    Call("measure", {"leg": _LEG}, ("Faro to Sines: 80 miles, red",)),
    Call("schedule", {"at": "2026-12-24T18:00:00", "price": "19.90"}, ("at 2026-12-24T18:00:00 for 19.90",)),
    Call("walk", {"folder": {"name": "a", "children": [{"name": "b", "children": []}]}}, ("2",)),
    Call("picture"),
    Call("captioned", {}, ("caption-of-the-picture",)),
    Call("count", {"to": 3}, ("3",)),
    Call("fail", {"reason": "storm"}, ("the tool failed: storm",), tells_failure=True),
    Call("crash", {}, ("failed",), tells_failure=True),
    Call("book", {}, ("booking",)),
)
BATCH = 5  # calls per turn of the model: some programs run them at the same time, all must take more than one


def calls_without(tools: Collection[str]) -> list[Call]:
    """The calls, less those of tools that the server leaves out."""
    return [call for call in CALLS if call.tool not in tools]


def tools_of(calls: Iterable[Call]) -> list[str]:
    return list(dict.fromkeys(call.tool for call in calls))


def as_prompt(calls: Sequence[Call]) -> str:
    """The user's prompt for an agent: a script for the model, in base64, since some agents quote the prompt again."""
    steps = [[{"tool": c.tool, "args": c.arguments} for c in calls[i : i + BATCH]] for i in range(0, len(calls), BATCH)]
    return f"Follow the script. {SCRIPT_MARK} {base64.b64encode(json.dumps(steps).encode()).decode()} >>"


def read_prompt(text: str) -> list[list[dict[str, Any]]]:
    """The steps of the script in a prompt, each a list of calls; none if there is no script."""
    _, mark, rest = text.partition(SCRIPT_MARK)
    return json.loads(base64.b64decode(rest.split()[0])) if mark else []


def check(results: Sequence[tuple[str, str]], calls: Iterable[Call]) -> list[str]:
    """What is wrong with the results, in order of the calls: (tool, what was shown) each."""
    faults: list[str] = []
    remaining = list(results)
    for call in calls:
        position = next((i for i, (tool, _) in enumerate(remaining) if is_name_of(call.tool, tool)), None)
        if position is None:
            faults.append(f"{call.tool}: no result")
            continue
        shown = remaining.pop(position)[1]
        plain = shown.replace("\\u00f6", "ö").replace("\\u00df", "ß")
        absent = [word for word in call.shows if word not in plain and word not in _unescaped(shown)]
        if absent:
            faults.append(f"{call.tool}: {absent[0]!r} is not in {shown[:300]!r}")
    return faults


def is_name_of(tool: str, name: str) -> bool:
    """Is this program's `name` for a tool our `tool`? Programs add prefixes, replace or drop characters, append a digest."""
    if fold(name).replace("_", "") == fold(tool).replace("_", ""):
        return True
    return re.search(rf"(^|_){fold(tool)}(_[0-9a-z]{{7}})?$", fold(name)) is not None


def fold(name: str) -> str:
    return "".join(character if character.isalnum() else "_" for character in name.lower())


def _unescaped(text: str) -> str:
    """The text with JSON's escapes read, however often it was quoted."""
    try:
        return text.encode().decode("unicode_escape").encode("utf-16", "surrogatepass").decode("utf-16")
    except (UnicodeDecodeError, UnicodeEncodeError):
        return text
