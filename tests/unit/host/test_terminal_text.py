"""A server's words on a terminal: nothing in them is obeyed, nothing hidden, nothing endless."""

from __future__ import annotations

import pytest

from trimaran.host.terminal_text import in_one_line, safe, shortened, to_json


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\tb\nc", "a\tb\nc"),
        ("a\r\nb", "a\nb"),
        ("žluť 帆 ⛵", "žluť 帆 ⛵"),
        ("\x1b[2J\x07\x00\r", "\\x1b[2J\\x07\\x00\\r"),
        ("\x9b31m\x7f", "\\x9b31m\\x7f"),
        ("a\u202eb\u2066c\u200fd\u061c", "a\\u202eb\\u2066c\\u200fd\\u061c"),
        ("a\u2028b", "a\\u2028b"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
    ],
    ids=["plain", "lines", "letters", "escape", "c1", "direction", "separator", "half", "tag"],
)
def test_what_is_not_text_is_made_visible(text: str, shown: str) -> None:
    assert safe(text) == shown


def test_a_line_is_one_and_short() -> None:
    assert in_one_line("  a \n\t b\x07 ") == "a b\\x07"
    assert in_one_line("x" * 300) == "x" * 197 + "..."
    assert in_one_line("x" * 10, 10) == "x" * 10
    assert in_one_line("a" + " " * 1000 + "b", 10) == "a..."
    assert len(in_one_line("\x00" * 1000, 50)) == 50


def test_what_is_left_out_is_counted() -> None:
    assert shortened("abc", 3) == "abc"
    assert shortened("ab\x07" + "x" * 1500, 3) == "ab\\x07\n... and 1,500 more characters"


def test_json_is_written_for_people() -> None:
    assert to_json({"ž": [1]}) == '{\n  "ž": [\n    1\n  ]\n}'
