"""Read a docstring: the description of a function, of each parameter and of the result.

Google, NumPy and Sphinx styles, told apart line by line, so a docstring that mixes them is read too. The summary is
everything before the first section. Types written in a docstring are dropped: the annotation is the one that counts.
It never fails: a text with no known structure is all summary.
"""

from __future__ import annotations

from typing import Final, final

import msgspec

_PARAMS: Final = frozenset(
    ("args", "arguments", "parameters", "params", "other parameters", "keyword args", "keyword arguments", "attributes")
)
_RETURNS: Final = frozenset(("returns", "return", "yields", "yield"))
_OTHERS: Final = frozenset(
    (
        "raises",
        "raise",
        "warns",
        "warnings",
        "examples",
        "example",
        "notes",
        "note",
        "see also",
        "references",
        "todo",
        "methods",
    )
)
_HEADERS: Final = _PARAMS | _RETURNS | _OTHERS
_FIELD_PARAMS: Final = frozenset(("param", "parameter", "arg", "argument", "key", "keyword", "ivar", "var"))
_FIELD_RETURNS: Final = frozenset(("return", "returns", "yield", "yields"))
_FIELD_OTHERS: Final = frozenset(("type", "rtype", "raises", "raise", "except", "exception", "meta"))


@final
class Doc(msgspec.Struct, frozen=True):
    """The parts of a docstring."""

    summary: str = ""
    params: dict[str, str] = {}
    returns: str | None = None


def parse_docstring(text: str | None) -> Doc:
    """Read `text`, written in any of the three styles; no text is an empty `Doc`."""
    if not text:
        return Doc()
    lines = _dedent(text)
    summary: list[str] = []
    params: dict[str, str] = {}
    returns: str | None = None
    seen_section = False
    at = 0
    while at < len(lines):
        if (field := _sphinx_field(lines[at])) is not None:
            at, body = _sphinx_body(lines, at, field[2])
            seen_section = True
            if field[0] in _FIELD_PARAMS and field[1]:
                params[field[1]] = body
            elif field[0] in _FIELD_RETURNS and body:
                returns = body
        elif (header := _header(lines, at)) is not None:
            name, start, is_numpy = header
            at, block = _block(lines, start, is_numpy)
            seen_section = True
            if name in _PARAMS:
                params.update(_numpy_params(block) if is_numpy else _google_params(block))
            elif name in _RETURNS:
                returns = (_numpy_returns(block) if is_numpy else _google_returns(block)) or returns
        else:
            if not seen_section:
                summary.append(lines[at])
            at += 1
    return Doc("\n".join(summary).strip(), params, returns)


def _dedent(text: str) -> list[str]:
    # As `inspect.cleandoc` does: the first line stands beside the quotes, so it tells nothing of the margin.
    first, *rest = text.expandtabs().splitlines() or [""]
    margin = min((len(line) - len(line.lstrip()) for line in rest if line.strip()), default=0)
    return [first.strip(), *(line[margin:].rstrip() for line in rest)]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _header(lines: list[str], at: int) -> tuple[str, int, bool] | None:
    """The section that opens at this line: its name, where its body starts, and whether it is NumPy's."""
    line = lines[at].strip()
    if line.endswith(":") and line[:-1].lower() in _HEADERS:
        return line[:-1].lower(), at + 1, False
    if line.lower() in _HEADERS and at + 1 < len(lines):
        rule = lines[at + 1].strip()
        if len(rule) >= 3 and not rule.strip("-="):
            return line.lower(), at + 2, True
    return None


def _block(lines: list[str], start: int, is_numpy: bool) -> tuple[int, list[str]]:
    """The lines of a section's body, dedented, and where the next one starts."""
    margin = _indent(lines[start - (2 if is_numpy else 1)])
    body: list[str] = []
    at = start
    while at < len(lines):
        line = lines[at]
        if line.strip():
            ends = _header(lines, at) is not None or _sphinx_field(line) is not None
            # A Google body is indented under its header; prose back at the margin belongs to no argument.
            if (ends and _indent(line) <= margin) or (
                not is_numpy and body and _indent(line) <= margin and _is_loose(body)
            ):
                break
        body.append(line)
        at += 1
    inner = min((_indent(line) for line in body if line.strip()), default=0)
    return at, [line[inner:] for line in body]


def _is_loose(body: list[str]) -> bool:
    return not body[-1].strip()


def _google_params(block: list[str]) -> dict[str, str]:
    params: dict[str, str] = {}
    name = ""
    for line in block:
        if line.strip() and not line[0].isspace() and (entry := _google_entry(line)) is not None:
            name, params[entry[0]] = entry
        elif name and line.strip():
            params[name] = f"{params[name]} {line.strip()}".strip()
    return params


def _google_entry(line: str) -> tuple[str, str] | None:
    depth = 0
    for position, letter in enumerate(line):
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif letter == ":" and depth == 0:
            name = line[:position].split("(", 1)[0].strip().lstrip("*")
            return (name, line[position + 1 :].strip()) if name.isidentifier() else None
    return None


def _numpy_params(block: list[str]) -> dict[str, str]:
    params: dict[str, str] = {}
    names: list[str] = []
    for line in block:
        if not line.strip():
            continue
        if not line[0].isspace():
            names = [name.strip().lstrip("*") for name in line.split(":", 1)[0].split(",")]
            names = [name for name in names if name.isidentifier()]
            params.update(dict.fromkeys(names, ""))
        else:
            for name in names:
                params[name] = f"{params[name]} {line.strip()}".strip()
    return params


def _google_returns(block: list[str]) -> str:
    text = " ".join(line.strip() for line in block if line.strip())
    head, colon, tail = text.partition(": ")
    # `int: the total` names a type first; a sentence with a colon in it does not.
    return tail.strip() if colon and " " not in head.replace(", ", ",").replace(" | ", "|") else text


def _numpy_returns(block: list[str]) -> str:
    described = [line.strip() for line in block if line.strip() and line[0].isspace()]
    return " ".join(described or [line.strip() for line in block if line.strip()])


def _sphinx_field(line: str) -> tuple[str, str, str] | None:
    """A `:kind type name: text` line as (kind, name, text)."""
    stripped = line.strip()
    if not stripped.startswith(":"):
        return None
    head, colon, text = stripped[1:].partition(":")
    words = head.split()
    if not colon or not words or words[0] not in _FIELD_PARAMS | _FIELD_RETURNS | _FIELD_OTHERS:
        return None
    return words[0], words[-1].lstrip("*") if len(words) > 1 else "", text.strip()


def _sphinx_body(lines: list[str], at: int, text: str) -> tuple[int, str]:
    margin = _indent(lines[at])
    parts = [text]
    at += 1
    while at < len(lines):
        line = lines[at]
        if line.strip() and (_indent(line) <= margin or _sphinx_field(line) is not None):
            break
        parts.append(line.strip())
        at += 1
    return at, " ".join(part for part in parts if part)
