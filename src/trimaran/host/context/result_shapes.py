"""A tool's result in the form that costs a model least and loses nothing.

Text that is JSON, and structured content, become a table where they are uniform rows, and minified JSON where they are not:
one format for everything is longer for half of all data. Pictures are scaled to the size that the provider would scale them
to (`images.py`). Other text is left alone; `output_limits.py` cuts what is too long.

A table is lossless. Its first line has the names of the columns. A cell is a JSON value, except that a text which could not
be mistaken for anything else stands without quotes.

Pure. A result that is very large is not looked into, so the cost is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from trimaran.depth import check_depth
from trimaran.format.results import is_told
from trimaran.format.trees import as_schema
from trimaran.types import CallToolResult, ImageContent, Json, TextContent

_LEAST_ROWS: Final = 3  # two rows are as short as JSON
_LARGEST: Final = 2 * 1024 * 1024  # characters of JSON that are looked into: what a host passes on, a fifth of a second
# A text that needs no quotes: nothing that JSON, a column or a line could begin or end with.
_BARE: Final = re.compile(r'[^\s",\[\]{}][^",\r\n]*(?<!\s)')

# Numbers with a fraction stay as they are written: a double would round an amount of twenty digits.
_EXACT: Final = msgspec.json.Decoder(float_hook=lambda digits: msgspec.Raw(digits.encode()))

# A text that without quotes would read as another value.
_SCALAR: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?|true|false|null")


def shape_result(result: CallToolResult, format: str) -> CallToolResult:
    """The result as a model should read it; the same object if nothing is to be gained.

    Args:
        format: The provider, whose picture sizes count.
    """
    blocks: Sequence[Any] = result.content
    shaped = [_shape_block(block, format) for block in blocks]
    structured: Json | UnsetType = result.structured_content
    if structured is not UNSET and not is_told(structured, [b.text for b in blocks if isinstance(b, TextContent)]):
        if (table := _shorter_table(structured)) is not None:
            return replace(result, content=[*shaped, TextContent(text=table)], structured_content=UNSET)
    elif structured is not UNSET and any(
        isinstance(new, TextContent) and new is not old for new, old in zip(shaped, blocks, strict=True)
    ):
        # The text says it in fewer tokens; with the structured content beside it, the model would read both.
        return replace(result, content=shaped, structured_content=UNSET)
    if all(new is old for new, old in zip(shaped, blocks, strict=True)):
        return result
    return replace(result, content=shaped)


def _shape_block(block: Any, format: str) -> Any:
    if isinstance(block, TextContent):
        text = _shape_text(block.text)
        return block if text is None else replace(block, text=text)
    if isinstance(block, ImageContent):
        from .images import scale_image

        return scale_image(block, format)
    return block


def _shape_text(text: str) -> str | None:
    """The shorter form of a text that is JSON; None if it has none."""
    if len(text) > _LARGEST or text.lstrip()[:1] not in ("{", "["):
        return None
    try:
        check_depth(text)
        value: Json = _EXACT.decode(text)
    except (ValueError, RecursionError):
        return None
    shorter = compact_json(value)
    return shorter if len(shorter) < len(text) else None


def compact_json(value: Json) -> str:
    """The value as a table if it is uniform rows and that is shorter, else as minified JSON."""
    table = _shorter_table(value)
    return msgspec.json.encode(value).decode() if table is None else table


def _shorter_table(value: Json) -> str | None:
    table = _as_table(value)
    return table if table is not None and len(table) < len(msgspec.json.encode(value)) else None


def _as_table(value: Json) -> str | None:
    if isinstance(value, list):
        return write_table(cast("list[Json]", value))
    if not isinstance(value, dict):
        return None
    # Rows under one name, with some values beside them: `{"items": [...], "total": 3}`.
    fields = cast("Mapping[str, Json]", value)
    lists = {name: cast("list[Json]", child) for name, child in fields.items() if isinstance(child, list)}
    tables = {name: table for name, rows in lists.items() if (table := write_table(rows))}
    if len(tables) != 1:
        return None
    ((name, table),) = tables.items()
    rest = {key: child for key, child in fields.items() if key != name}
    head = msgspec.json.encode(rest).decode() + "\n" if rest else ""
    return f"{head}{name}:\n{table}"


# --- tables ----------------------------------------------------------------------------------------------------------


def write_table(rows: Sequence[Json]) -> str | None:
    """A list of objects with the same names and plain values, a line each; None if it is something else."""
    if len(rows) < _LEAST_ROWS or not isinstance(rows[0], dict) or not rows[0]:
        return None
    names = list(cast("dict[str, Json]", rows[0]))
    lines = [",".join(map(_cell, names))]
    for row in rows:
        fields = as_schema(row)
        if fields is None or len(fields) != len(names) or any(name not in fields for name in names):
            return None
        values = [fields[name] for name in names]
        if any(isinstance(value, (dict, list)) for value in values):
            return None
        lines.append(",".join(map(_cell, values)))
    return "\n".join(lines)


def _cell(value: Json) -> str:
    if isinstance(value, str) and _BARE.fullmatch(value) and not _SCALAR.fullmatch(value):
        return value
    return msgspec.json.encode(value).decode()
