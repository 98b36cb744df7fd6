"""Results, resources, prompts and tools as things that Rich can draw.

Everything a server says is text, never markup: control characters are made visible, nothing is longer than a screen can
use, and a link is its address. A table is drawn where a value is one: a flat object, or a list of them. Markdown is laid
out where a text is plainly that; anything else stays line by line as it came.

Pictures are drawn in half blocks, which every terminal with colours can show, or by the terminal itself where it can. A
picture that cannot be drawn becomes a line that says why.
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
from trimaran.host.terminal_text import in_one_line, safe, shortened, to_json
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

from .lookup import Argument, arguments_of
from .pictures import DrawingBudget, listed, picture_of, size_text

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
    """The result of a tool, block by block.

    Args:
        width: Columns there are.
        pictures: May pictures be drawn? Otherwise they are a line each.
    """
    parts: list[RenderableType] = [Text("The tool failed:", style="bold red")] if result.is_error else []
    style = "red" if result.is_error else ""
    blocks = result.content
    if result.structured is not None:
        # Servers are asked to send structured content as text, too: it is shown once, the better way.
        blocks = [block for block in blocks if not _tells(block, result.structured)]
    easel = DrawingBudget() if pictures else None
    for block in blocks[:_MOST_BLOCKS]:
        parts += _show_block(block, width=width, easel=easel, style=style)
    if len(blocks) > _MOST_BLOCKS:
        parts.append(_remark(f"... and {len(blocks) - _MOST_BLOCKS:,} more blocks"))
    if result.structured is not None:
        parts.append(show_value(result.data, width=width))
    return parts or [_remark("(nothing)")]


def show_resource(result: ResourceResult, *, width: int, pictures: bool) -> list[RenderableType]:
    """The contents of a resource; several contents each stand under their URI."""
    parts: list[RenderableType] = []
    easel = DrawingBudget() if pictures else None
    for contents in result.contents[:_MOST_BLOCKS]:
        if len(result.contents) > 1:
            parts.append(Text(in_one_line(contents.uri), style="bold"))
        parts += _show_contents(contents, width=width, easel=easel)
    if len(result.contents) > _MOST_BLOCKS:
        parts.append(_remark(f"... and {len(result.contents) - _MOST_BLOCKS:,} more"))
    return parts or [_remark("(nothing)")]


def show_prompt(result: PromptResult, *, width: int, pictures: bool) -> list[RenderableType]:
    """The messages of a prompt, each with its role."""
    parts: list[RenderableType] = []
    if result.description:
        parts.append(_remark(in_one_line(result.description, 400)))
    easel = DrawingBudget() if pictures else None
    for message in result.messages[:_MOST_BLOCKS]:
        parts.append(Text(f"{in_one_line(str(message.role), 20)}:", style="bold"))
        parts += _show_block(message.content, width=width, easel=easel, style="")
    if len(result.messages) > _MOST_BLOCKS:
        parts.append(_remark(f"... and {len(result.messages) - _MOST_BLOCKS:,} more messages"))
    return parts or [_remark("(no messages)")]


def show_tool(tool: Tool) -> list[RenderableType]:
    """A tool: how it is called, what it says about itself, its arguments. The words are its server's."""
    known = arguments_of(tool.input_schema)
    parts: list[RenderableType] = [_signature(tool, known)]
    if tool.title:
        parts.append(Text(in_one_line(tool.title), style="italic"))
    if tool.description:
        parts.append(show_text(tool.description))
    if known:
        parts.append(_parameters(known))
    hints: Any = tool.annotations
    if not isinstance(hints, Mapping):
        hints = msgspec.to_builtins(hints, str_keys=True) if hints is not None else {}
    hint_words = [words[0] if truth else words[1] for words, truth in _hinted(cast("Mapping[str, Any]", hints))]
    if hint_words:
        parts.append(_remark(f"It says that it {listed(hint_words)}."))
    if isinstance(tool.output_schema, dict):
        fields = ", ".join(field.name for field in arguments_of(tool.output_schema))
        parts.append(_remark(f"Answers with {in_one_line(fields, 200) or 'structured content'}."))
    return parts


def show_text(text: str, *, style: str = "", mime: str = "") -> RenderableType:
    """A server's text: laid out where it is Markdown, else as it stands."""
    is_markdown = mime.partition(";")[0].strip().lower() == "text/markdown" or looks_like_markdown(text)
    if not style and is_markdown and len(text) <= _MOST_LAID_OUT:
        return Markdown(safe(text), hyperlinks=False, code_theme="ansi_dark")
    return Text(shortened(text, _MOST_TEXT).rstrip("\n"), style=style)


def looks_like_markdown(text: str) -> bool:
    """True if the text is plainly Markdown. In doubt it is not: lines of other text would run together."""
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


def _show_block(block: Any, *, width: int, easel: DrawingBudget | None, style: str) -> list[RenderableType]:
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


def _show_contents(contents: Any, *, width: int, easel: DrawingBudget | None, style: str = "") -> list[RenderableType]:
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
    text = Text(in_one_line(link.title or link.name, 100), style="bold")
    text.append(f": {in_one_line(link.uri, 400)}", style="not bold")
    about = [in_one_line(part, 200) for part in (link.mime_type, link.description) if part]
    return text.append(f" ({', '.join(about)})", style="not bold dim") if about else text


def _remark(text: str) -> Text:
    return Text(text, style="dim")


def _tells(block: Any, structured: Any) -> bool:
    """True if the text repeats the value."""
    if not isinstance(block, TextContent) or block.text[:1] not in tuple('{["-0123456789tfn'):
        return False
    try:
        value = decode_json(block.text)
    except ValueError:
        return False
    return value == structured or (isinstance(structured, dict) and structured == {"result": value})


# --- values ----------------------------------------------------------------------------------------------------------


def _is_flat(value: Mapping[str, Any]) -> bool:
    return 0 < len(value) <= _MOST_ROWS and not any(isinstance(item, (Mapping, list)) for item in value.values())


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
    for name, item in value.items():
        table.add_row(Text(in_one_line(name, 60)), _cell(item))
    return table


def _rows(rows: Sequence[Mapping[str, Any]], columns: list[str]) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, pad_edge=False, header_style="bold")
    for name in columns:
        numbers = [row[name] for row in rows[:_MOST_ROWS] if row.get(name) is not None]
        is_number = all(isinstance(number, (int, float)) and not isinstance(number, bool) for number in numbers)
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
    text = "yes" if value is True else "no" if value is False else "-" if value is None else str(value)
    return Text(in_one_line(text, _MOST_CELL), style="cyan" if isinstance(value, (bool, int, float)) else "dim")


def _json(value: Any) -> Text:
    try:
        plain = msgspec.to_builtins(value, str_keys=True, enc_hook=str)
        text = to_json(_bounded(plain))
    except (TypeError, ValueError, RecursionError, msgspec.MsgspecError):
        text = "(a value that cannot be shown)"
    drawn = Text(shortened(text, _MOST_TEXT))
    return JSONHighlighter()(drawn) if len(text) <= _MOST_COLOURED else drawn


def _bounded(value: Any, depth: int = 0) -> Any:
    """So much of a value as anybody reads, and no deeper than a screen is wide."""
    if isinstance(value, dict):
        pairs = list(cast("dict[str, Any]", value).items())
        bounded = (
            {name: _bounded(item, depth + 1) for name, item in pairs[:_MOST_ITEMS]} if depth < 40 else {"...": "..."}
        )
        return bounded if len(pairs) <= _MOST_ITEMS else {**bounded, "...": f"and {len(pairs) - _MOST_ITEMS:,} more"}
    if isinstance(value, list):
        items = cast("list[Any]", value)
        made_list = [_bounded(item, depth + 1) for item in items[:_MOST_ITEMS]] if depth < 40 else ["..."]
        return made_list if len(items) <= _MOST_ITEMS else [*made_list, f"... and {len(items) - _MOST_ITEMS:,} more"]
    return value


# --- tools -----------------------------------------------------------------------------------------------------------


def _signature(tool: Tool, known: list[Argument]) -> Text:
    text = Text(in_one_line(tool.name, 200), style="bold")
    for argument in sorted(known, key=lambda argument: not argument.is_required)[:20]:
        word = f"{in_one_line(argument.name, 60)}={argument.kind.partition(' ')[0].upper()}"
        text.append(
            f" {word}" if argument.is_required else f" [{word}]", style="not bold" if argument.is_required else "dim"
        )
    return text.append(" ...", style="dim") if len(known) > 20 else text


def _parameters(known: list[Argument]) -> Table:
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(style="bold", overflow="fold")
    table.add_column(overflow="fold")
    table.add_column(overflow="fold", ratio=1)
    for argument in known[:_MOST_ROWS]:
        kind = Text(argument.kind).append(", required" if argument.is_required else "", style="yellow")
        named = argument.values[:20] if argument.kind != "boolean" else ()
        values = f"One of {in_one_line(', '.join(map(_spelt, named)), 400)}." if named else ""
        help_text = " ".join(part for part in (argument.description, values) if part)
        table.add_row(Text(in_one_line(argument.name, 60)), kind, Text(help_text))
    if len(known) > _MOST_ROWS:
        table.add_row(_remark(f"... and {len(known) - _MOST_ROWS:,} more"))
    return table


def _spelt(value: Any) -> str:
    return in_one_line(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 40)


def _hinted(hints: Mapping[str, Any]) -> list[tuple[tuple[str, str], bool]]:
    """The hints of a tool about its effects that are yes or no."""
    claims: list[tuple[tuple[str, str], bool]] = []
    for name, words in _HINTS.items():
        camel = re.sub(r"_(.)", lambda letter: letter[1].upper(), name)
        truth = hints.get(name, hints.get(camel))
        if isinstance(truth, bool):
            claims.append((words, truth))
    return claims
