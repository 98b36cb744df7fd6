"""Texts are short and plain."""

from __future__ import annotations

import pytest

from trimaran.openapi.descriptions import describe, shorten


@pytest.mark.parametrize(
    ("text", "most", "expected"),
    [
        ("  two\n lines ", 100, "two lines"),
        ("<p>The <code>name</code>.</p><br/>", 100, "The name."),
        ("GET /users/<id>, if a < b", 100, "GET /users/<id>, if a < b"),
        ("See [the guide](https://x.example/a) and ![x](y).", 100, "See the guide and x."),
        ("One two. Three four five six", 12, "One two."),
        ("One two, i.e. three. Four", 22, "One two, i.e. three."),
        ("One two, (i.e. three four) five", 20, "One two, (i.e. ..."),
        ("onetwothree four five six seven", 20, "onetwothree ..."),
    ],
)
def test_a_text_becomes_one_short_line(text: str, most: int, expected: str) -> None:
    assert shorten(text, most) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("user_id", ""),
        ("The user ID.", ""),
        ("user-id", ""),
        ("The user", "The user"),
        ("The user ID, as in the URL.", "The user ID, as in the URL."),
        ("", ""),
    ],
)
def test_a_text_that_only_repeats_the_name_is_left_out(text: str, expected: str) -> None:
    assert describe(text, "user_id") == expected
