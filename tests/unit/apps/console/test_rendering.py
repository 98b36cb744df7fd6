"""What a person sees of results, resources, prompts and tools: drawn where it can be, safe in every case."""

from __future__ import annotations

import base64
import io
import struct
import sys
import zlib
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console, RenderableType
from rich.markdown import Markdown
from rich.table import Table

from trimaran.apps.console import pictures
from trimaran.apps.console.pictures import Picture
from trimaran.apps.console.rendering import (
    looks_like_markdown,
    show_prompt,
    show_resource,
    show_result,
    show_tool,
)
from trimaran.client.results import PromptResult, ResourceResult, ToolResult
from trimaran.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    PromptMessage,
    ResourceLink,
    TextContent,
    TextResourceContents,
    Tool,
)

RAW = msgspec.Raw(b"{}")
EVIL = "\x1b]0;owned\x07[red]no[/red] \x9b2J\u202e\r"


def result(*blocks: Any, structured: Any = msgspec.UNSET, is_error: bool = False, unwrap: bool = False) -> ToolResult:
    return ToolResult(list(blocks), structured, is_error, None, RAW, unwrap=unwrap)


def drawn(parts: list[RenderableType], *, width: int = 80, colours: bool = False) -> str:
    """What a terminal of this width is sent."""
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=colours, color_system="truecolor" if colours else None)
    for part in parts:
        console.print(part)
    return file.getvalue()


def seen(*blocks: Any, width: int = 80, **more: Any) -> str:
    return drawn(show_result(result(*blocks, **more), width=width, pictures=False), width=width)


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def png(width: int = 4, height: int = 4, mode: str = "RGB", colour: Any = (255, 0, 0)) -> bytes:
    file = io.BytesIO()
    Image.new(mode, (width, height), colour).save(file, "PNG")
    return file.getvalue()


def claiming(width: int, height: int) -> bytes:
    """A small file that says it is a picture of this size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b"")


# Text


def test_text_stands_as_it_came_and_is_never_markup() -> None:
    assert seen(TextContent(text="a  b\n  [bold]c[/bold] :smile:\n")) == "a  b\n  [bold]c[/bold] :smile:\n"


def test_control_characters_of_a_server_are_shown_and_not_obeyed() -> None:
    """Ours: whatever a server says, the terminal is not its to command."""
    shown = seen(TextContent(text=EVIL))
    assert shown == "\\x1b]0;owned\\x07[red]no[/red] \\x9b2J\\u202e\\r\n"
    page = seen(
        TextContent(text="# Title\n\n- **one** \x1b[2J\n- two\n\n`\x1b[1m`\n\n[\x9b](https://host.example/\x1b[1m)")
    )
    assert "•" in page
    assert not {"\x1b", "\x9b"} & set(page)


def test_markdown_is_laid_out_where_it_plainly_is_some() -> None:
    text = "# Title\n\nSome **bold** words.\n\n- one\n- two\n"
    (part,) = show_result(result(TextContent(text=text)), width=80, pictures=True)
    assert isinstance(part, Markdown)
    assert "•" in drawn([part])
    assert "https://host.example/x" in drawn(
        show_result(result(TextContent(text=f"{text}[link](https://host.example/x)")), width=80, pictures=True)
    )


@pytest.mark.parametrize(
    ("text", "is_markdown"),
    [
        ("Two lines\nof prose.", False),
        ("# a comment\nx = 1", False),
        ("- one\n- two", False),
        ("2 * 3 * 4", False),
        ("call `this`", False),
        ('{"a": [1](x)}', False),
        ("# Title\n\n- one\n- two", True),
        ("```python\npass\n```", True),
        ("| a | b |\n|---|---|\n| 1 | 2 |", True),
        ("See **here**: [this](https://host.example/)", True),
        ("# T\n**b**" + "x" * 50_000, False),
    ],
    ids=["prose", "comment", "list", "stars", "code", "json", "page", "fence", "table", "link", "long"],
)
def test_when_in_doubt_a_text_is_not_markdown(text: str, is_markdown: bool) -> None:
    assert looks_like_markdown(text) is is_markdown


def test_a_text_without_end_is_cut_and_says_so() -> None:
    shown = seen(TextContent(text="x" * 1_000_000))
    assert len(shown) < 60_000
    assert "... and 950,000 more characters" in shown
    assert "... and 1,800 more blocks" in seen(*[TextContent(text="x")] * 2000)


def test_a_failure_is_red_and_says_that_it_is_one() -> None:
    shown = show_result(result(TextContent(text="**No** such [file](/x)"), is_error=True), width=80, pictures=True)
    assert drawn(shown) == "The tool failed:\n**No** such [file](/x)\n"
    assert drawn(shown, colours=True) == "\x1b[1;31mThe tool failed:\x1b[0m\n\x1b[31m**No** such [file](/x)\x1b[0m\n"


def test_nothing_is_said_to_be_nothing() -> None:
    assert seen() == seen(TextContent(text="")) == "(nothing)\n"


# Structured content


def test_a_list_of_flat_objects_is_a_table() -> None:
    rows = [{"name": "Tern", "length": 7.5}, {"name": EVIL, "sold": True, "length": None}]
    text = TextContent(text=msgspec.json.encode({"result": rows}).decode())
    shown = seen(text, structured={"result": rows}, unwrap=True)
    lines = [line.split() for line in shown.splitlines()]
    assert ["name", "length", "sold"] in lines
    assert ["Tern", "7.5"] in lines
    assert "[red]no[/red]" in shown
    assert "\x1b" not in shown
    assert shown.count("Tern") == 1  # not in the text that says the same


def test_a_flat_object_is_a_list_of_its_fields() -> None:
    shown = seen(structured={"boat": "Tern", "length": 7, "sold": False, "owner": None})
    assert [line.split() for line in shown.splitlines()] == [
        ["boat", "Tern"],
        ["length", "7"],
        ["sold", "no"],
        ["owner", "-"],
    ]


@pytest.mark.parametrize(
    "value",
    [{"a": {"b": 1}}, [1, 2], [{"a": 1}, 2], [{"a": [1]}], [{f"c{n}": n for n in range(40)}], {}, [{}]],
    ids=["nested", "numbers", "mixed", "deep", "wide", "empty", "blank"],
)
def test_everything_else_is_json(value: Any) -> None:
    shown = seen(structured={"result": value}, unwrap=True, width=80)
    assert msgspec.json.decode(shown) == value


def test_a_lone_value_is_itself_and_a_text_that_says_something_else_stays() -> None:
    assert seen(TextContent(text="5"), structured={"result": 5}, unwrap=True) == "5\n"
    assert seen(TextContent(text="five"), structured={"result": 5}, unwrap=True) == "five\n5\n"
    assert seen(structured={"result": "a\x07"}, unwrap=True) == "a\\x07\n"


def test_tables_and_json_have_an_end() -> None:
    shown = seen(structured={"result": [{"n": n} for n in range(100_000)]}, unwrap=True)
    assert len(shown.splitlines()) < 250
    assert "99,800 more rows" in shown
    assert len(seen(structured={"a": list(range(100_000))})) < 60_000
    deep: Any = "bottom"
    for _ in range(60):
        deep = [deep]
    assert '"..."' in seen(structured={"a": deep})
    assert "bottom" not in seen(structured={"a": deep})


# Pictures


def picture(data: bytes | str, mime: str = "image/png", *, width: int = 80) -> list[RenderableType]:
    block = ImageContent(data=data if isinstance(data, str) else b64(data), mime_type=mime)
    return show_result(result(block), width=width, pictures=True)


def test_a_picture_is_drawn_in_half_blocks_under_a_line_about_it() -> None:
    line, drawing = picture(png(4, 4))
    assert drawn([line]).startswith("image/png, ")
    assert drawn([line]).endswith(" bytes, 4 x 4\n")
    assert isinstance(drawing, Picture)
    assert drawn([drawing], colours=True) == ("\x1b[38;2;255;0;0;48;2;255;0;0m▀\x1b[0m" * 4 + "\n") * 2


@pytest.mark.parametrize(("size", "cells"), [((1000, 500), (40, 10)), ((10, 3000), (1, 16)), ((3000, 1), (40, 1))])
def test_a_picture_is_made_to_fit(size: tuple[int, int], cells: tuple[int, int]) -> None:
    _, drawing = picture(png(*size), width=40)
    assert isinstance(drawing, Picture)
    assert (drawing.columns, drawing.lines) == cells
    assert max(map(len, drawn([drawing], width=30).splitlines())) <= 30


def test_a_terminal_that_draws_by_itself_is_given_the_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[Any] = []

    def draw(image: Image.Image, **size: int) -> str:
        given.append((image.size, size))
        return "[drawn]"

    monkeypatch.setattr(pictures, "_graphics", None)
    monkeypatch.setitem(sys.modules, "textual_image.renderable", SimpleNamespace(TGPImage=draw))
    pictures.prepare_pictures()
    (_, drawing) = picture(png(100, 50))
    file = io.StringIO()
    Console(file=file, markup=False).print(drawing)
    assert file.getvalue() == "[drawn]\n"
    assert given == [((100, 50), {"width": 64, "height": 16})]


def test_what_is_transparent_is_white() -> None:
    _, drawing = picture(png(1, 2, "RGBA", (0, 0, 0, 0)))
    assert "38;2;255;255;255;48;2;255;255;255m" in drawn([drawing], colours=True)


@pytest.mark.parametrize("kind", ["JPEG", "GIF", "WEBP", "BMP"])
def test_the_usual_kinds_of_pictures_are_drawn(kind: str) -> None:
    file = io.BytesIO()
    Image.new("RGB", (8, 8), (0, 0, 255)).save(file, kind)
    assert isinstance(picture(file.getvalue(), f"image/{kind.lower()}")[1], Picture)


@pytest.mark.parametrize(
    ("data", "mime", "reason"),
    [
        ("not base64!", "image/png", "cannot be shown: it is not base64"),
        (b"", "image/png", "cannot be shown: it is none of PNG, JPEG, GIF, WEBP and BMP"),
        (b"<svg/>", "image/svg+xml", "image/svg+xml, 6 bytes: cannot be shown: it is none of"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "image/eps", "cannot be shown: it is none of"),
        (png(64, 64)[:80], "image/png", "cannot be shown: it is broken"),
        (claiming(5000, 5000), "image/png", "cannot be shown: 5000 x 5000 is more than 16 million pixels"),
        (claiming(10_000, 10_000), "image/png", "cannot be shown: 10000 x 10000 is more than 16 million pixels"),
        (claiming(60_000, 60_000), "image/png", "more than 16 million pixels"),
        (claiming(100, 100), "image/png", "cannot be shown: it is broken"),
        (png(), "\x1b[2J" + "x" * 99, "\\x1b[2Jxxx"),
        ("A" * 30_000_000, "image/png", "image/png, 22 MB: cannot be shown: it is larger than 20 MB"),
    ],
    ids=["text", "empty", "svg", "eps", "cut", "large", "larger", "bomb", "lie", "type", "bytes"],
)
def test_a_picture_that_cannot_be_drawn_is_a_line_that_says_why(data: Any, mime: str, reason: str) -> None:
    shown = drawn(picture(data, mime)[:1], width=200)
    assert reason in shown
    assert shown.count("\n") == 1
    assert "\x1b" not in shown


def test_without_pictures_there_is_a_line_for_each() -> None:
    block = ImageContent(data=b64(png()), mime_type="image/png")
    assert seen(block).startswith("image/png, ")
    assert "▀" not in seen(block)


# Other blocks


def test_sounds_links_and_data_are_a_line_each() -> None:
    shown = seen(
        AudioContent(data=b64(b"x" * 12_345), mime_type="audio/wav"),
        ResourceLink(uri="docs://a", name="a", title="The \x1b[1ma", mime_type="text/plain", description="About a."),
        EmbeddedResource(resource=BlobResourceContents(uri="docs://b", blob=b64(b"xyz"), mime_type=None)),
        EmbeddedResource(resource=TextResourceContents(uri="docs://c", text="held")),
        {"type": "hologram", "depth": 3},
    )
    assert shown.splitlines()[:4] == [
        "audio/wav, 12 KB: sound, not played here",
        "The \\x1b[1ma: docs://a (text/plain, About a.)",
        "binary data, 3 bytes: not shown",
        "held",
    ]
    assert msgspec.json.decode("".join(shown.splitlines()[4:])) == {"type": "hologram", "depth": 3}


# Resources, prompts, tools


def test_a_resource_is_shown_by_its_type_and_several_under_their_names() -> None:
    page = TextResourceContents(uri="docs://page", text="plain *words*", mime_type="text/markdown")
    chart = BlobResourceContents(uri="docs://chart", blob=b64(png()), mime_type="image/png")
    (part,) = show_resource(ResourceResult([page], None, RAW), width=80, pictures=True)
    assert isinstance(part, Markdown)
    parts = show_resource(ResourceResult([page, chart], None, RAW), width=80, pictures=True)
    assert [line for line in drawn(parts).splitlines() if "docs://" in line] == ["docs://page", "docs://chart"]
    assert isinstance(parts[-1], Picture)
    assert drawn(show_resource(ResourceResult([], None, RAW), width=80, pictures=True)) == "(nothing)\n"


def test_a_prompt_is_shown_with_who_says_what() -> None:
    said = [
        PromptMessage(role="user", content=TextContent(text="Hello [b]")),
        PromptMessage(role="assistant", content={"type": "x"}),
    ]
    shown = drawn(show_prompt(PromptResult(said, "A \x07greeting.", None, RAW), width=80, pictures=True))
    assert shown.startswith("A \\x07greeting.\nuser:\nHello [b]\nassistant:\n{")


def test_a_tool_is_shown_with_how_it_is_called_and_what_it_says_about_itself() -> None:
    tool = Tool(
        name="files:read",
        title="Read",
        description="Reads [a] file.",
        input_schema={
            "type": "object",
            "properties": {
                "mode": {"enum": ["fast", "slow"], "description": "How."},
                "path": {"type": "string", "description": "Where it is."},
                "deep": {"type": "boolean"},
            },
            "required": ["path"],
        },
        output_schema={"type": "object", "properties": {"text": {}}},
        annotations={"readOnlyHint": True, "openWorldHint": False, "destructiveHint": None},
    )
    lines = [" ".join(line.split()) for line in drawn(show_tool(tool)).splitlines()]
    assert lines == [
        "files:read path=STRING [mode=STRING] [deep=BOOLEAN]",
        "Read",
        "Reads [a] file.",
        "mode string How. One of fast, slow.",
        "path string, required Where it is.",
        "deep boolean",
        "It says that it only reads and stays in its own world.",
        "Answers with text.",
    ]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just(EVIL),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just(EVIL), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(JSON, st.text(max_size=40), st.integers(1, 120))
def test_whatever_a_server_sends_the_terminal_gets_text(value: Any, text: str, width: int) -> None:
    shown = show_result(result(TextContent(text=text), value, structured=value), width=width, pictures=True)
    tool = Tool(name=text, description=text, input_schema={"properties": {text: value}, "required": value})
    sent = drawn([*shown, *show_tool(tool)], width=width)
    assert [character for character in sent if ord(character) < 32 and character != "\n"] == []
    assert not {"\x7f", "\x9b", "\u202e"} & set(sent)
    assert isinstance(shown[-1], Table) or sent
