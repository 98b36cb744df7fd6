"""What reaches stdout and stderr, by kind of content, on a pipe."""

from __future__ import annotations

import base64
import io
from pathlib import Path
from typing import Any

import pytest

from trimaran.apps.cli.output import Saver, Screen, in_one_line, safe
from trimaran.types import (
    AudioContent,
    BlobResourceContents,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)


@pytest.fixture
def screen() -> Screen:
    return Screen(out=io.StringIO(), err=io.StringIO())


def out(screen: Screen) -> str:
    assert isinstance(screen.out.file, io.StringIO)
    return screen.out.file.getvalue()


def err(screen: Screen) -> str:
    assert isinstance(screen.err.file, io.StringIO)
    return screen.err.file.getvalue()


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def test_control_characters_are_shown_and_layout_is_kept() -> None:
    assert safe("a\tb\r\nc\x1b[0m\x07\x9b\u202e\x00") == "a\tb\nc\\x1b[0m\\x07\\x9b\\u202e\\x00"
    assert safe("Grüße, 世界 🛥") == "Grüße, 世界 🛥"


def test_one_line_is_short_and_has_no_line_ends() -> None:
    assert in_one_line("a\n  b\tc") == "a b c"
    assert in_one_line("x" * 300, 10) == "xxxxxxx..."


@pytest.mark.parametrize(
    ("value", "printed"),
    [("text", "text\n"), ("text\n", "text\n"), (5, "5\n"), (None, "null\n"), ([1], "[\n  1\n]\n"), ({}, "{}\n")],
)
def test_a_value_is_text_or_json(screen: Screen, value: Any, printed: str) -> None:
    screen.value(value)
    assert out(screen) == printed


def test_text_is_neither_wrapped_nor_read_as_markup(screen: Screen) -> None:
    text = "[bold]x[/bold] :smile: " + "long " * 100
    screen.text(text)
    assert out(screen) == text + "\n"


def test_every_kind_of_block_is_shown(screen: Screen, tmp_path: Path) -> None:
    screen.content(
        [
            TextContent(text="words"),
            ImageContent(data=b64(b"png"), mime_type="image/png"),
            AudioContent(data=b64(b"mp3"), mime_type="audio/mpeg"),
            ResourceLink(uri="harbour://guide", name="guide", mime_type="text/plain", description="How to come in"),
            EmbeddedResource(resource=TextResourceContents(uri="a:b", text="inside")),
            EmbeddedResource(resource=BlobResourceContents(uri="a:b", blob=b64(b"raw"))),
            {"type": "hologram", "data": 1},
        ],
        Saver(tmp_path, "tool"),
    )
    assert out(screen).splitlines() == [
        "words",
        f"{tmp_path / 'tool-1.png'} (image/png, 3 bytes)",
        f"{tmp_path / 'tool-2.mp3'} (audio/mpeg, 3 bytes)",
        "guide: harbour://guide (text/plain, How to come in)",
        "inside",
        f"{tmp_path / 'tool-3.bin'} (application/octet-stream, 3 bytes)",
        "{",
        '  "type": "hologram",',
        '  "data": 1',
        "}",
    ]


def test_what_is_not_base64_is_reported_and_not_saved(screen: Screen, tmp_path: Path) -> None:
    screen.block(ImageContent(data="!!!", mime_type="image/png"), Saver(tmp_path, "tool"))
    assert out(screen) == ""
    assert "is not base64" in err(screen)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("stem", "name"),
    [
        ("draw", "draw-1.png"),
        ("../../etc/passwd", "etc_passwd-1.png"),
        ("..", "result-1.png"),
        ("a b/ü", "a_b-1.png"),
        ("", "result-1.png"),
        ("x" * 500, "x" * 80 + "-1.png"),
    ],
    ids=["plain", "traversal", "dots", "letters", "empty", "long"],
)
def test_a_file_is_named_safely_whatever_the_tool_is_called(tmp_path: Path, stem: str, name: str) -> None:
    """protocol.md 6.9: no path is taken from a server."""
    path = Saver(tmp_path, stem).save(b"", "image/png; charset=x")
    assert path == tmp_path / name


def test_log_lines_name_level_and_source_and_stay_lines(screen: Screen) -> None:
    screen.log("warning", "rigging", {"mast": "bent"})
    screen.log("info", None, "a\x1b[2Jb")
    assert err(screen) == 'warning: rigging: {"mast": "bent"}\ninfo: a\\x1b[2Jb\n'


def test_progress_lines_are_few_however_many_reports_come(screen: Screen) -> None:
    for step in range(1, 10_001):
        screen.progress.update("count", step, 10_000, None)
    lines = err(screen).splitlines()
    assert len(lines) <= 101
    assert lines[-1] == "10000/10000 count"


def test_progress_without_a_total_and_with_a_message(screen: Screen) -> None:
    screen.progress.update("count", 1.5, None, "half way\n there")
    assert err(screen) == "1.5 half way there\n"


def test_quiet_leaves_out_progress_and_logs_but_not_problems() -> None:
    screen = Screen(quiet=True, out=io.StringIO(), err=io.StringIO())
    screen.log("error", None, "x")
    screen.progress.update("x", 1, 2, None)
    screen.problem("it broke", "fix it")
    assert err(screen) == "trimaran: it broke\nfix it\n"
