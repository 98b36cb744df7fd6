"""What a typed word means by a schema that anybody may have written. The table of values is with the command line's tests."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.schema.typed_values import (
    Word,
    WordError,
    fit,
    kinds_of,
    parse_json,
    properties_of,
    read_words,
    target_of,
    truth_of,
)


def test_words_become_the_arguments_of_a_schema() -> None:
    schema = {"properties": {"n": {"type": "integer"}, "flag": {"type": "boolean"}, "text": {"type": "string"}}}
    words = read_words(["n=3", "flag=yes", "text=3", "more:=[1]"])
    assert words[0] == Word("n", "3", False)
    assert fit(words, schema) == {"n": 3, "flag": True, "text": "3", "more": [1]}


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("n", "'n' is not an argument: write key=value, or key:=JSON"),
        ("n=x", "n='x': the tool wants an integer here"),
        ("n=NaN", "n='NaN': the tool wants an integer here"),
        ("n:=NaN", "n:=NaN is not JSON: JSON has no NaN"),
        ("n:=" + "[" * 100_000, "n:=["),
        ("none=x", "none='x': the tool wants nothing at all here"),
    ],
    ids=["bare", "text", "nan", "forced", "deep", "nothing"],
)
def test_a_word_that_cannot_be_meant_is_an_error_that_says_what_would_do(word: str, said: str) -> None:
    schema = {"properties": {"n": {"type": "integer"}, "none": {"type": []}}}
    with pytest.raises(WordError) as caught:
        fit(read_words([word]), schema)
    assert str(caught.value).startswith(said)


@pytest.mark.parametrize(
    ("schema", "kinds"),
    [
        ({"type": "number"}, {"number", "integer"}),
        ({"type": ["string", "null", {}, 3]}, {"string", "null"}),
        (
            {"enum": [1, "a", None, 2.5, True, [], {}]},
            {"integer", "number", "string", "null", "boolean", "array", "object"},
        ),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, set[str]()),
        ({"anyOf": [{"const": "a"}, {"type": "array"}]}, {"string", "array"}),
        ({"$ref": "#/$defs/a~1b"}, {"boolean"}),
    ],
)
def test_the_kinds_of_a_schema_are_those_it_lets_through(schema: Any, kinds: set[str]) -> None:
    assert kinds_of(schema, {"$defs": {"a/b": {"type": "boolean"}}}) == kinds


@pytest.mark.parametrize(
    "schema", [None, True, 3, {"type": {}}, {"enum": 3}, {"anyOf": "x"}, {"$ref": "#/a/b"}], ids=str
)
def test_a_schema_that_says_nothing_lets_everything_through(schema: Any) -> None:
    assert len(kinds_of(schema, {})) == 7


def test_a_schema_that_refers_to_itself_nine_times_over_has_an_end() -> None:
    root = {"$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}] * 9}}}
    assert len(kinds_of({"$ref": "#/$defs/A"}, root)) == 7


def test_what_is_no_object_schema_has_no_properties() -> None:
    for schema in (None, [], {}, {"properties": []}):
        assert properties_of(schema) == {}
    assert target_of("https://elsewhere.example/", {}) is True


@pytest.mark.parametrize(("text", "truth"), [(" Yes ", True), ("0", False), ("perhaps", None)])
def test_truth_has_many_words(text: str, truth: bool | None) -> None:
    assert truth_of(text) is truth


def test_json_is_parsed_and_the_complaint_says_where() -> None:
    assert parse_json("[1]", "this") == [1]
    with pytest.raises(WordError, match="^this is not JSON: "):
        parse_json("[", "this")
