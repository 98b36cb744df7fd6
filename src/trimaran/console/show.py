"""Results, resources, prompts and tools as things that Rich can draw.

Everything a server says is text, never markup: control characters are made visible, nothing is longer than a screen can
use, and a link is its address. A table is drawn where a value is one: a flat object, or a list of them. Markdown is laid
out where a text is plainly that; anything else stays line by line as it came.

Pictures are drawn in half blocks, which every terminal with colours can show, or by the terminal itself where it can and
`prepare_pictures` was called before anything took the terminal over. What cannot be drawn is a line that says why.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.highlighter import JSONHighlighter
from rich.markdown import Markdown
from rich.table import Table
from rich.text import Text

from trimaran.client.results import PromptResult, ResourceResult, ToolResult
from trimaran.depth import decode_json
from trimaran.host.plain import in_one_line, safe, shortened, to_json
from trimaran.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)

from .known import Argument, arguments_of
from .pictures import Easel, Picture, listed, picture_of, prepare_pictures, size_text

__all__ = [
    "Picture",
    "in_one_line",
    "prepare_pictures",
    "safe",
    "show_prompt",
    "show_resource",
    "show_result",
    "show_text",
    "show_tool",
    "show_value",
]

_MOST_TEXT: Final = 50_000  # characters of one block: some ten thousand lines on a narrow screen
_MOST_LAID_OUT: Final = 8000  # of Markdown: a table of more takes a second to draw
_MOST_COLOURED: Final = 20_000  # of JSON
_MOST_BLOCKS: Final = 200
_MOST_ROWS: Final = 200
_MOST_CELL: Final = 500
_MOST_ITEMS: Final = 500  # of a JSON array or object that is written out

_FENCE: Final = re.compile(r"^(?:```|~~~)[\w+-]*[ \t]*$", re.MULTILINE)
_TABLE: Final = re.compile(r"^\|?[ \t]*:?-{3,}:?[ \t]*\|[-:| \t]*$", re.MULTILINE)
# Signs that a text may have without being Markdown; two of them are no accident.
_SIGNS: Final = (
    re.compile(r"^#{1,6} \S[^\n]*$", re.MULTILINE),
    re.compile(r"^[ \t]*[-*+] \S[^\n]*\n(?:[^\n]*\n)?[ \t]*[-*+] \S", re.MULTILINE),
    re.compile(r"^1[.)] \S[^\n]*\n(?:[^\n]*\n)?2[.)] \S", re.MULTILINE),
    re.compile(r"\*\*[^*\s][^*\n]*\*\*"),
    re.compile(r"\[[^\[\]\n]{1,200}\]\((?:https?:|/|#)[^()\s]{0,500}\)"),
    re.compile(r"(?<!`)`[^`\n]+`(?!`)"),
)
_HINTS: Final = {
    "read_only_hint": ("only reads", "may change things"),
    "destructive_hint": ("may destroy things", "destroys nothing"),
    "idempotent_hint": ("does no more when called again", "does more when called again"),
    "open_world_hint": ("reaches the outside world", "stays in its own world"),
}


def show_result(result: ToolResult, *, width: int, pictures: bool) -> list[RenderableType]:
    """What a tool answered, block by block.

    Args:
        width: Columns there are.
        pictures: May pictures be drawn? Otherwise they are a line each.
    """
    shown: list[RenderableType] = [Text("The tool failed:", style="bold red")] if result.is_error else []
    style = "red" if result.is_error else ""
    blocks = result.content
    if result.structured is not None:
        # Servers are asked to send structured content as text, too: it is shown once, the better way.
        blocks = [block for block in blocks if not _tells(block, result.structured)]
    easel = Easel() if pictures else None
    for block in blocks[:_MOST_BLOCKS]:
        shown += _show_block(block, width=width, easel=easel, style=style)
    if len(blocks) > _MOST_BLOCKS:
        shown.append(_remark(f"... and {len(blocks) - _MOST_BLOCKS:,} more blocks"))
    if result.structured is not None:
        shown.append(show_value(result.data, width=width))
    return shown or [_remark("(nothing)")]


def show_resource(result: ResourceResult, *, width: int, pictures: bool) -> list[RenderableType]:
    """What a resource holds; where there are several contents, each under its URI."""
    shown: list[RenderableType] = []
    easel = Easel() if pictures else None
    for one in result.contents[:_MOST_BLOCKS]:
        if len(result.contents) > 1:
            shown.append(Text(in_one_line(one.uri), style="bold"))
        shown += _show_contents(one, width=width, easel=easel)
    if len(result.contents) > _MOST_BLOCKS:
        shown.append(_remark(f"... and {len(result.contents) - _MOST_BLOCKS:,} more"))
    return shown or [_remark("(nothing)")]


def show_prompt(result: PromptResult, *, width: int, pictures: bool) -> list[RenderableType]:
    """What a prompt says, and in whose voice."""
    shown: list[RenderableType] = []
    if result.description:
        shown.append(_remark(in_one_line(result.description, 400)))
    easel = Easel() if pictures else None
    for message in result.messages[:_MOST_BLOCKS]:
        shown.append(Text(f"{in_one_line(str(message.role), 20)}:", style="bold"))
        shown += _show_block(message.content, width=width, easel=easel, style="")
    if len(result.messages) > _MOST_BLOCKS:
        shown.append(_remark(f"... and {len(result.messages) - _MOST_BLOCKS:,} more messages"))
    return shown or [_remark("(no messages)")]


def show_tool(tool: Tool) -> list[RenderableType]:
    """A tool: how it is called, what it says about itself, its arguments. The words are its server's."""
    known = arguments_of(tool.input_schema)
    shown: list[RenderableType] = [_signature(tool, known)]
    if tool.title:
        shown.append(Text(in_one_line(tool.title), style="italic"))
    if tool.description:
        shown.append(show_text(tool.description))
    if known:
        shown.append(_parameters(known))
    hints: Any = tool.annotations
    if not isinstance(hints, Mapping):
        hints = msgspec.to_builtins(hints, str_keys=True) if hints is not None else {}
    said = [words[0] if truth else words[1] for words, truth in _hinted(cast("Mapping[str, Any]", hints))]
    if said:
        shown.append(_remark(f"It says that it {listed(said)}."))
    if isinstance(tool.output_schema, dict):
        fields = ", ".join(one.name for one in arguments_of(tool.output_schema))
        shown.append(_remark(f"Answers with {in_one_line(fields, 200) or 'structured content'}."))
    return shown


def show_text(text: str, *, style: str = "", mime: str = "") -> RenderableType:
    """A server's text: laid out where it is Markdown, else as it stands."""
    is_markdown = mime.partition(";")[0].strip().lower() == "text/markdown" or looks_like_markdown(text)
    if not style and is_markdown and len(text) <= _MOST_LAID_OUT:
        return Markdown(safe(text), hyperlinks=False, code_theme="ansi_dark")
    return Text(shortened(text, _MOST_TEXT).rstrip("\n"), style=style)


def looks_like_markdown(text: str) -> bool:
    """Is this plainly Markdown? When in doubt it is not: laid out wrongly, lines run together."""
    if len(text) > _MOST_LAID_OUT:
        return False
    if len(_FENCE.findall(text)) >= 2 or _TABLE.search(text):
        return True
    return sum(sign.search(text) is not None for sign in _SIGNS) >= 2


def show_value(value: Any, *, width: int) -> RenderableType:
    """A plain value: a table where it is one, a text as text, everything else as JSON."""
    if isinstance(value, str):
        return show_text(value)
    if isinstance(value, Mapping) and _is_flat(cast("Mapping[str, Any]", value)):
        return _pairs(cast("Mapping[str, Any]", value))
    if isinstance(value, list) and (columns := _columns(cast("list[Any]", value), width)):
        return _rows(cast("list[dict[str, Any]]", value), columns)
    return _json(value)


# --- blocks ----------------------------------------------------------------------------------------------------------


def _show_block(block: Any, *, width: int, easel: Easel | None, style: str) -> list[RenderableType]:
    match block:
        case TextContent():
            return [show_text(block.text, style=style)] if block.text else []
        case ImageContent():
            return picture_of(block.data, block.mime_type, width=width, is_drawn=easel is not None, easel=easel)
        case AudioContent():
            return [_remark(f"{in_one_line(block.mime_type, 60)}, {size_text(block.data)}: sound, not played here")]
        case ResourceLink():
            return [_link(block)]
        case EmbeddedResource():
            return _show_contents(block.resource, width=width, easel=easel, style=style)
        case _:
            return [_json(block)]


def _show_contents(contents: Any, *, width: int, easel: Easel | None, style: str = "") -> list[RenderableType]:
    match contents:
        case TextResourceContents():
            return [show_text(contents.text, style=style, mime=contents.mime_type or "")]
        case BlobResourceContents():
            mime = contents.mime_type or "binary data"
            if mime.startswith("image/"):
                return picture_of(contents.blob, mime, width=width, is_drawn=easel is not None, easel=easel)
            return [_remark(f"{in_one_line(mime, 60)}, {size_text(contents.blob)}: not shown")]
        case _:
            return [_json(contents)]


def _link(link: ResourceLink) -> Text:
    shown = Text(in_one_line(link.title or link.name, 100), style="bold")
    shown.append(f": {in_one_line(link.uri, 400)}", style="not bold")
    about = [in_one_line(part, 200) for part in (link.mime_type, link.description) if part]
    return shown.append(f" ({', '.join(about)})", style="not bold dim") if about else shown


def _remark(text: str) -> Text:
    return Text(text, style="dim")


def _tells(block: Any, structured: Any) -> bool:
    """Is this text the same value again?"""
    if not isinstance(block, TextContent) or block.text[:1] not in tuple('{["-0123456789tfn'):
        return False
    try:
        value = decode_json(block.text)
    except ValueError:
        return False
    return value == structured or (isinstance(structured, dict) and structured == {"result": value})


# --- values ----------------------------------------------------------------------------------------------------------


def _is_flat(value: Mapping[str, Any]) -> bool:
    return 0 < len(value) <= _MOST_ROWS and not any(isinstance(one, (Mapping, list)) for one in value.values())


def _columns(rows: list[Any], width: int) -> list[str]:
    """The columns of a table of these; none where they are no table, or one too wide to be read."""
    columns: dict[str, None] = {}
    for row in rows[:_MOST_ROWS]:
        if not isinstance(row, dict) or not _is_flat(cast("dict[str, Any]", row)):
            return []
        columns.update(dict.fromkeys(cast("dict[str, Any]", row)))
        if len(columns) > max(1, width // 9):  # narrower columns are a letter salad
            return []
    return list(columns)


def _pairs(value: Mapping[str, Any]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", overflow="fold")
    table.add_column(overflow="fold")
    for name, one in value.items():
        table.add_row(Text(in_one_line(name, 60)), _cell(one))
    return table


def _rows(rows: Sequence[Mapping[str, Any]], columns: list[str]) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in columns:
        numbers = [row[name] for row in rows[:_MOST_ROWS] if row.get(name) is not None]
        is_number = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in numbers)
        justify = "right" if numbers and is_number else "left"
        table.add_column(Text(in_one_line(name, 60)), justify=justify, overflow="fold")
    for row in rows[:_MOST_ROWS]:
        table.add_row(*(_cell(row[name]) if name in row else Text() for name in columns))
    if len(rows) > _MOST_ROWS:
        return Group(table, _remark(f"... and {len(rows) - _MOST_ROWS:,} more rows"))
    return table


def _cell(value: Any) -> Text:
    if isinstance(value, str):
        return Text(shortened(value, _MOST_CELL))
    said = "yes" if value is True else "no" if value is False else "-" if value is None else str(value)
    return Text(in_one_line(said, _MOST_CELL), style="cyan" if isinstance(value, (bool, int, float)) else "dim")


def _json(value: Any) -> Text:
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=str)
        text = to_json(_bounded(plain))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        text = "(a value that cannot be shown)"
    shown = Text(shortened(text, _MOST_TEXT))
    return JSONHighlighter()(shown) if len(text) <= _MOST_COLOURED else shown


def _bounded(value: Any, depth: int = 0) -> Any:
    """So much of a value as anybody reads, and no deeper than a screen is wide."""
    if isinstance(value, dict):
        pairs = list(cast("dict[str, Any]", value).items())
        made = {name: _bounded(one, depth + 1) for name, one in pairs[:_MOST_ITEMS]} if depth < 40 else {"...": "..."}
        return made if len(pairs) <= _MOST_ITEMS else {**made, "...": f"and {len(pairs) - _MOST_ITEMS:,} more"}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        made_list = [_bounded(one, depth + 1) for one in items[:_MOST_ITEMS]] if depth < 40 else ["..."]
        return made_list if len(items) <= _MOST_ITEMS else [*made_list, f"... and {len(items) - _MOST_ITEMS:,} more"]
    return value


# --- tools -----------------------------------------------------------------------------------------------------------


def _signature(tool: Tool, known: list[Argument]) -> Text:
    shown = Text(in_one_line(tool.name, 200), style="bold")
    for one in sorted(known, key=lambda one: not one.is_required)[:20]:
        word = f"{in_one_line(one.name, 60)}={one.kind.partition(' ')[0].upper()}"
        shown.append(f" {word}" if one.is_required else f" [{word}]", style="not bold" if one.is_required else "dim")
    return shown.append(" ...", style="dim") if len(known) > 20 else shown


def _parameters(known: list[Argument]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", overflow="fold")
    table.add_column(overflow="fold")
    table.add_column(overflow="fold", ratio=1)
    for one in known[:_MOST_ROWS]:
        kind = Text(one.kind).append(", required" if one.is_required else "", style="yellow")
        named = one.values[:20] if one.kind != "boolean" else ()
        values = f"One of {in_one_line(', '.join(map(_spelt, named)), 400)}." if named else ""
        said = " ".join(part for part in (one.description, values) if part)
        table.add_row(Text(in_one_line(one.name, 60)), kind, Text(said))
    if len(known) > _MOST_ROWS:
        table.add_row(_remark(f"... and {len(known) - _MOST_ROWS:,} more"))
    return table


def _spelt(value: Any) -> str:
    return in_one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 40)


def _hinted(hints: Mapping[str, Any]) -> list[tuple[tuple[str, str], bool]]:
    """What a tool says of its effects, where it says yes or no."""
    found: list[tuple[tuple[str, str], bool]] = []
    for name, words in _HINTS.items():
        camel = re.sub(r"_(.)", lambda letter: letter[1].upper(), name)
        truth = hints.get(name, hints.get(camel))
        if isinstance(truth, bool):
            found.append((words, truth))
    return found
