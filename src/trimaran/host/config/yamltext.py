"""Goose's YAML as text: read it, and put one entry into it without touching the rest.

Pure. It is read by the small strict reader that skills have, which refuses what it does not know by line; so a file that
uses more of YAML than Goose itself writes is left alone, and the entry is shown to be added by hand. The result is
read again before anybody sees it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

from .mask import masked
from .model import ConfigUnusable, Problem

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_WORDS: Final = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})


def read_yaml(text: str, file: str) -> dict[str, Any]:
    """The file's content; ConfigUnusable names the line."""
    from trimaran.ext.skills.frontmatter import Unreadable, read_frontmatter

    body = text.removeprefix("\ufeff")
    if not re.search(r"^[ \t]*[^#\s]", body, re.MULTILINE):
        return {}
    if body.startswith("---"):
        body = re.sub(r"\A---[ \t]*\r?\n", "#\n", body)  # the mark of a document's begin; the lines keep their numbers
    try:
        return dict(read_frontmatter(f"---\n{body.rstrip()}\n---\n").values)
    except Unreadable as error:
        raise ConfigUnusable(
            Problem(
                file,
                "this YAML is not read here: " + error.reason.replace("frontmatter", "file"),
                line=max(1, error.line - 1),
                kind="config_parse",
            )
        ) from None


def lines_of(text: str, section: str) -> dict[str, int]:
    """On which line each entry of a section stands."""
    lines = text.split("\n")
    place = _section(lines, section)
    return {name: start + 1 for name, (start, _) in _entries(lines, place).items()} if place is not None else {}


def _section(lines: list[str], section: str) -> tuple[int, int] | None:
    """The line of a key at the left edge, and the line after its last."""
    start = next((n for n, line in enumerate(lines) if re.match(rf"{re.escape(section)}[ \t]*:(\s|$)", line)), None)
    if start is None:
        return None
    end = start + 1
    for number in range(start + 1, len(lines)):
        line = lines[number]
        if line[:1] not in ("", " ", "\t", "\r", "#"):
            break
        if line.strip() and not line.startswith("#"):
            end = number + 1
    return start, end


def _entries(lines: list[str], place: tuple[int, int]) -> dict[str, tuple[int, int]]:
    """The keys one step inside a section, each with its lines."""
    spans: dict[str, tuple[int, int]] = {}
    inner: int | None = None
    name = ""
    for number in range(place[0] + 1, place[1]):
        line = lines[number]
        text = line.lstrip(" ")
        if not text.strip() or text.startswith("#"):
            continue
        depth = len(line) - len(text)
        inner = depth if inner is None else inner
        key = re.match(r"(\"[^\"]*\"|'[^']*'|[^\s:#][^:#]*?)[ \t]*:(\s|$)", text)
        if depth == inner and key:
            name = key[1].strip("\"'")
            spans[name] = (number, number + 1)
        elif name:
            spans[name] = (spans[name][0], number + 1)
    return spans


def set_entry(text: str, section: str, name: str, entry: Mapping[str, Any], file: str) -> str:
    """The text with this entry in the section, in place of the one it had, if any."""
    before = read_yaml(text, file)
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = text.replace("\r\n", "\n").split("\n")
    place = _section(lines, section)
    if place is None:
        while lines and not lines[-1].strip():
            lines.pop()
        edited = [*lines, f"{section}:", *_written(name, entry, "  "), ""]
    else:
        start, end = place
        if re.search(r":[ \t]*(\{[ \t]*\}|~|null)?[ \t]*(#.*)?$", lines[start]):
            lines[start] = re.sub(r":.*", ":", lines[start], count=1)
        there = _entries(lines, place)
        indent = "  "
        if there:
            first = lines[next(iter(there.values()))[0]]
            indent = first[: len(first) - len(first.lstrip(" "))]
        cut = there.get(name, (end, end))
        edited = [*lines[: cut[0]], *_written(name, entry, indent), *lines[cut[1] :]]
    result = newline.join(edited)
    _check(before, result, section, name, entry, file)
    return result


def _written(name: str, entry: Mapping[str, Any], indent: str) -> list[str]:
    written = [f"{indent}{_key(name)}:"]
    for key, value in entry.items():
        if value is None:
            continue
        if isinstance(value, Mapping) and value:
            written.append(f"{indent}  {_key(key)}:")
            written += [f"{indent}    {_key(k)}: {_scalar(v)}" for k, v in cast("Mapping[str, Any]", value).items()]
        elif isinstance(value, (list, tuple)) and value:
            written.append(f"{indent}  {_key(key)}:")
            written += [f"{indent}  - {_scalar(item)}" for item in cast("Sequence[Any]", value)]
        else:
            written.append(f"{indent}  {_key(key)}: {_scalar(value)}")
    return written


def _key(name: str) -> str:
    return name if _PLAIN_KEY.fullmatch(name) and name.lower() not in _WORDS else json.dumps(name)


def _scalar(value: Any) -> str:
    # JSON is YAML, and a text in quotes cannot be taken for anything else.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _check(before: dict[str, Any], edited: str, section: str, name: str, entry: Mapping[str, Any], file: str) -> None:
    listed: Any = before.get(section)
    expected = {
        k: list(cast("Sequence[Any]", v)) if isinstance(v, tuple) else v for k, v in entry.items() if v is not None
    }
    before[section] = {**(cast("dict[str, Any]", listed) if isinstance(listed, dict) else {}), name: expected}
    try:
        after: Any = read_yaml(edited, file)
    except ConfigUnusable:
        after = None
    if after != before:
        snippet = "\n".join(_written(name, masked(entry), "  "))
        raise ConfigUnusable(
            Problem(
                file,
                f"this cannot be put in without changing the rest; add it by hand:\n{section}:\n{snippet}",
                f"{section}.{name}",
                kind="config_parse",
            )
        )
