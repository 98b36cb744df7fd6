"""Arguments from words: the schema decides what a text means."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import click
import pytest

from trimaran.apps.cli.arguments import Word, fit, read_args, read_words

SCHEMA = {
    "type": "object",
    "properties": {
        "text": {"type": "string"},
        "whole": {"type": "integer", "minimum": 10},
        "real": {"type": "number"},
        "flag": {"type": "boolean"},
        "list": {"type": "array", "items": {"type": "integer"}},
        "map": {"type": "object"},
        "maybe": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "mode": {"anyOf": [{"enum": ["auto"]}, {"type": "integer"}]},
        "size": {"enum": [1, 2]},
        "port": {"$ref": "#/$defs/Port"},
        "strict": {"type": "string", "pattern": "^x"},
        "types": {"type": ["integer", "null"]},
        "any": {},
        "lost": {"$ref": "https://elsewhere.example/schema"},
        "loop": {"$ref": "#/$defs/Loop"},
        "both": {"allOf": [{"type": ["integer", "string"]}, {"type": "integer"}]},
        "fixed": {"const": True},
    },
    "$defs": {"Port": {"type": "integer"}, "Loop": {"$ref": "#/$defs/Loop"}},
}


def value(word: str, schema: Any = SCHEMA) -> Any:
    (found,) = fit(read_words([word]), schema).values()
    return found


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("text=5", "5"),
        ("text=true", "true"),
        ("text=", ""),
        ("text=a=b", "a=b"),
        ("text=[1]", "[1]"),
        ("whole=12", 12),
        ("whole=5", 5),  # too small, which is for the server to say
        ("whole=12.0", 12),
        ("whole=1e3", 1000),
        ("real=12", 12),
        ("real=1.5", 1.5),
        ("flag=true", True),
        ("flag=NO", False),
        ("flag=on", True),
        ("list=[1, 2]", [1, 2]),
        ('list=["a"]', ["a"]),
        ('map={"a": 1}', {"a": 1}),
        ("maybe=3", 3),
        ("maybe=null", None),
        ("either=5", "5"),
        ("mode=auto", "auto"),
        ("mode=5", 5),
        ("mode=other", "other"),
        ("size=2", 2),
        ("port=80", 80),
        ("strict=5", "5"),
        ("types=5", 5),
        ("any=5", "5"),
        ("lost=5", "5"),
        ("loop=5", "5"),
        ("both=5", 5),
        ("fixed=true", True),
        ("unknown=5", "5"),
    ],
)
def test_a_value_is_read_by_the_schema(word: str, expected: Any) -> None:
    """P24: text stays text wherever a string is allowed."""
    found = value(word)
    assert (found, type(found)) == (expected, type(expected))


@pytest.mark.parametrize("word", ["text:=5", "whole:=5", "any:=5", "unknown:=5"])
def test_forced_json_is_json_whatever_the_schema_says(word: str) -> None:
    assert value(word) == 5


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("whole=x", "an integer"),
        ("whole=1.5", "an integer"),
        ("whole=", "an integer"),
        ("whole=true", "an integer"),
        ("real=ten", "a number"),
        ("flag=maybe", "true or false"),
        ("list=a,b", "a JSON array here, such as list='[1, 2]'"),
        ("map=[1]", "a JSON object"),
        ("maybe=x", "an integer or null"),
    ],
)
def test_a_value_that_cannot_be_meant_is_refused_with_what_is_wanted(word: str, said: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        value(word)
    assert said in caught.value.message
    assert word.partition("=")[0] in caught.value.message


def test_without_a_usable_schema_everything_is_text() -> None:
    for schema in ({}, {"properties": None}, {"properties": {"a": True}}, {"properties": {"a": "x"}}):
        assert value("a=5", schema) == "5"


def test_words_are_split_at_the_first_equals_sign() -> None:
    assert read_words(["a=1=2", "b:=[1]", "c=:=x"]) == [
        Word("a", "1=2", False),
        Word("b", "[1]", True),
        Word("c", ":=x", False),
    ]


@pytest.mark.parametrize(
    ("words", "said"), [(["a"], "write key=value"), (["=x"], "write key=value"), (["a=1", "a=2"], "occurs twice")]
)
def test_words_that_are_no_arguments_are_refused(words: list[str], said: str) -> None:
    with pytest.raises(click.UsageError, match=said):
        read_words(words)


def test_bad_forced_json_names_its_key() -> None:
    with pytest.raises(click.UsageError, match=r"list:=\[1 is not JSON"):
        value("list:=[1")


# --args


def test_args_come_from_the_option_a_file_or_stdin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_args(None) == {}
    assert read_args('{"a": 1}') == {"a": 1}
    path = tmp_path / "args.json"
    path.write_text('{"a": "é"}', encoding="utf-8")
    assert read_args(f"@{path}") == {"a": "é"}
    monkeypatch.setattr("sys.stdin", io.StringIO('{"b": 2}'))
    assert read_args("-") == {"b": 2}


@pytest.mark.parametrize(
    ("option", "said"),
    [("{", "is not JSON"), ("[1]", "holds no JSON object"), ("@/no/such/file", "No such file"), ("5", "JSON object")],
)
def test_args_that_are_no_object_are_refused(option: str, said: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        read_args(option)
    assert said in caught.value.message
