"""The reader of YAML frontmatter: what it reads, what it refuses, and on which line."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import yaml  # pyright: ignore[reportMissingModuleSource]
from hypothesis import given
from hypothesis import strategies as st

from trimaran.errors import ConfigError
from trimaran.ext.skills.frontmatter import Unreadable, read_frontmatter, same


@pytest.fixture(params=["C", "Python"])
def parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both parsers of PyYAML: it may be installed without the one in C."""
    if request.param == "Python":
        monkeypatch.delattr(yaml, "CSafeLoader")


def read(body: str) -> dict[str, Any]:
    return read_frontmatter(f"---\n{body}\n---\n\nText.\n").values


def refusal(body: str) -> Unreadable:
    with pytest.raises(Unreadable) as caught:
        read(body)
    return caught.value


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("plain text", "plain text"),
        ("with:colon:inside", "with:colon:inside"),
        ("http://example.com/a#b", "http://example.com/a#b"),
        ("text # a comment", "text"),
        ("a#b", "a#b"),
        ("'it''s'", "it's"),
        ("'a: b # c'  # a comment", "a: b # c"),
        (r'"tab\t\"quoted\" \u00e9 \x41 \U0001F600 \/ \\"', 'tab\t"quoted" é A 😀 / \\'),
        ("''", ""),
        ("", None),
        ("~", None),
        ("null", None),
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("on", "on"),
        ("12", 12),
        ("-7", -7),
        ("007", 7),
        ("0o17", 15),
        ("0xfF", 255),
        ("1.5", 1.5),
        ("1.0", 1.0),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("1.2.3", "1.2.3"),
        ("2026-07-28", "2026-07-28"),
        ("1_000", "1_000"),
        ("[]", []),
        ("{}", {}),
        ("[a, 'b, c', 3, true, ~]", ["a", "b, c", 3, True, None]),
        ("[a, b,]", ["a", "b"]),
        ("[[1, 2], {a: b}]  # nested", [[1, 2], {"a": "b"}]),
        ('{a: 1, "b":2, c: [x], d}', {"a": 1, "b": 2, "c": ["x"], "d": None}),
        ("[http://a.b/c, x:y]", ["http://a.b/c", "x:y"]),
        ("-5 apples", "-5 apples"),
        ("?what", "?what"),
        (":smile", ":smile"),
    ],
)
@pytest.mark.usefixtures("parser")
def test_a_value_on_its_line_means_what_yaml_says(written: str, meant: Any) -> None:
    found = read(f"key: {written}")["key"]
    assert found == meant
    assert type(found) is type(meant)


@pytest.mark.parametrize(
    ("body", "meant"),
    [
        ("a: 1\nb: 2", {"a": 1, "b": 2}),
        ("a:\n  b:\n    c: deep\nd: 1", {"a": {"b": {"c": "deep"}}, "d": 1}),
        ("a:\n  - x\n  - y\nb: 1", {"a": ["x", "y"], "b": 1}),
        ("a:\n- x\n- y\nb: 1", {"a": ["x", "y"], "b": 1}),
        ("a:\n  - k: 1\n    l: 2\n  - k: 3", {"a": [{"k": 1, "l": 2}, {"k": 3}]}),
        ("a:\n  -\n    k: 1\n  - - x\n    - y", {"a": [{"k": 1}, ["x", "y"]]}),
        ("a:\n  -\n  - x", {"a": [None, "x"]}),
        ("a:\n\n  # a comment\n  b: 1\n\n# another\nc: 2", {"a": {"b": 1}, "c": 2}),
        ("a:\nb: 1", {"a": None, "b": 1}),
        ("a:\n  long text\n  on two lines\nb: 1", {"a": "long text on two lines", "b": 1}),
        (
            "a: long text\n  on two lines\n\n  and a paragraph\nb: 1",
            {"a": "long text on two lines\nand a paragraph", "b": 1},
        ),
        ("a: 1\n  2", {"a": "1 2"}),
        ("a: |\n  one\n    two\n\n  three\nb: 1", {"a": "one\n  two\n\nthree\n", "b": 1}),
        ("a: |-\n  one\n  two\n\nb: 1", {"a": "one\ntwo", "b": 1}),
        ("a: >\n  one\n  two\n\n  three\nb: 1", {"a": "one two\nthree\n", "b": 1}),
        ("a: >-\n  one\n  two # no comment\n  key: no key", {"a": "one two # no comment key: no key"}),
        ("a: >-\n  one\n    kept\n  two", {"a": "one\n  kept\ntwo"}),
        ("a: >-\n\n  one", {"a": "\none"}),
        ("a: |\nb: 1", {"a": "", "b": 1}),
        ("a:\n  - |\n    text\n  - >-\n    more\n    text", {"a": ["text\n", "more text"]}),
        ("'a b': 1\n\"c:d\": 2", {"a b": 1, "c:d": 2}),
        ("a b-c.d: 1", {"a b-c.d": 1}),
        ("'1': x\n\"true\": y", {"1": "x", "true": "y"}),
        ("a:   \n  'text'", {"a": "text"}),
        ("a:\n  [x,\n   y]", {"a": ["x", "y"]}),
        ('a: "x\n  y"', {"a": "x y"}),
        ("a: |+\n  x\n\nb: 1", {"a": "x\n\n", "b": 1}),
    ],
)
@pytest.mark.usefixtures("parser")
def test_lines_make_maps_lists_and_texts(body: str, meant: dict[str, Any]) -> None:
    assert read(body) == meant


def test_a_byte_order_mark_and_carriage_returns_are_not_part_of_it() -> None:
    text = "\ufeff---\r\nname: a\r\ntext: |\r\n  one\r\n  two\r\n--- \r\nBody"
    assert read_frontmatter(text).values == {"name": "a", "text": "one\ntwo\n"}


def test_the_lines_of_keys_are_known() -> None:
    assert read_frontmatter("---\n# c\nname: a\nmetadata:\n  name: b\nlast: 1\n---").lines == {
        "name": 3,
        "metadata": 4,
        "last": 6,
    }


@pytest.mark.parametrize(
    ("body", "line", "words"),
    [
        ("a: &anchor x", 2, "an anchor"),
        ("a: 1\nb: *anchor", 3, "an alias"),
        ("a: !!str 1", 2, "a tag"),
        ("<<: x", 2, "not a plain key"),
        ("? [a]\n: b", 2, "not a plain key"),
        ("a: 1\na: 2", 3, "twice"),
        ("a: {b: 1, b: 2}", 2, "twice"),
        ("a:\n\tb: 1", 3, "not valid YAML"),
        ("a: use when: always", 2, "put the text in quotes"),
        ("a: text\n  key: value", 3, "put the text in quotes"),
        ("a: 'open", 2, "not valid YAML"),
        (r'a: "\q"', 2, "unknown escape"),
        (r'a: "\ud83d\ude00"', 2, "escape"),
        ("a: 'b' c", 2, "not valid YAML"),
        ("a: [x, y", 2, "not valid YAML"),
        ("a: ]", 2, "not valid YAML"),
        ("a: @x", 2, "put the text in quotes"),
        ("a: - x", 2, "not valid YAML"),
        ("1: x", 2, "not a plain key"),
        ("~: x", 2, "not a plain key"),
        ("a: {true: x}", 2, "not a plain key"),
        ("a:\n\t", 3, "not valid YAML"),
        ("a: |\n    x\n  y", 4, "not valid YAML"),
        ("a: 1\n b: 2", 3, ""),
        ("a: x # c\n  y", 3, "not valid YAML"),
        ("a: .inf", 2, "JSON"),
        ("a: 9007199254740993", 2, "too large"),
        ("a: " + "9" * 5000, 2, "too large"),
        ("a: 1e999", 2, "too large"),
        ("a: x\x07", 2, "control"),
        ("- a\n- b", 2, "a map"),
        ("just text", 2, "a map"),
        ("a:\n  - x\n  b: 1", 4, ""),
        ("a: 1\n...", 3, "document"),
        ("a: " + "[" * 30, 2, "deep"),
        ("\n".join(f"{' ' * n}k:" for n in range(30)), 22, "deep"),
        ("", 1, "empty"),
        ("# only a comment", 1, "empty"),
        ("a: " + "x" * 70_000, 2, "longer"),
    ],
)
@pytest.mark.usefixtures("parser")
def test_what_it_does_not_read_is_refused_by_line(body: str, line: int, words: str) -> None:
    """Whose rule: ours: the same text must mean the same to server and host."""
    refused = refusal(body)
    assert refused.line == line, refused
    assert words in refused.reason


@pytest.mark.parametrize("text", ["", "name: a\n---\n", "# Title\n", " ---\na: 1\n---\n", "---\na: 1\n"])
def test_a_file_without_frontmatter_is_refused(text: str) -> None:
    with pytest.raises(Unreadable, match="---"):
        read_frontmatter(text)


@pytest.mark.parametrize("body", ["[" * 60_000, "- " * 30_000, "? " * 30_000, "a: &x " + "*x " * 20_000, "{" * 60_000])
@pytest.mark.usefixtures("parser")
def test_nesting_and_aliases_cannot_make_it_large(body: str) -> None:
    """Whose rule: ours: the text comes from a server that nobody trusts."""
    assert refusal(body).line >= 1


@pytest.mark.usefixtures("parser")
def test_an_escape_of_no_character_is_refused() -> None:
    assert "escape" in refusal(r'a: "\U00110000"').reason


def test_the_extra_is_named_where_pyyaml_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(ConfigError, match=r'pip install "trimaran\[skills\]"'):
        read("a: 1")


@given(st.text(alphabet="ab:-#[]{}'\"|>&*!,?\\ \t\n\r0.~", max_size=60))
def test_any_text_is_read_or_refused_and_nothing_else(body: str) -> None:
    try:
        found = read(body)
    except Unreadable as refused:
        assert refused.line >= 1
    else:
        assert isinstance(found, dict)


_texts = st.text(st.characters(blacklist_categories=("Cs", "Cc"), blacklist_characters="\x85\u2028\u2029"), max_size=8)
_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53) + 1, 2**53 - 1) | _texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_texts, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.slow
@given(st.dictionaries(_texts, _values, min_size=1, max_size=3))
def test_json_on_one_line_is_yaml(value: dict[str, Any]) -> None:
    import json

    body = "\n".join(
        f"{json.dumps(k, ensure_ascii=False)}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items()
    )
    assert same(read(body), value)


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (1, 1.0, True),
        (1, True, False),
        (0, False, False),
        (None, False, False),
        ("1", 1, False),
        ([1, 2], [1, 2], True),
        ([1, 2], [2, 1], False),
        ([1], [1, 1], False),
        ({"a": [True]}, {"a": [1]}, False),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1.0}, True),
        ({"a": None}, {}, False),
        ({}, [], False),
    ],
)
def test_contents_are_compared_as_json(one: Any, other: Any, equal: bool) -> None:
    assert same(one, other) is equal
    assert same(other, one) is equal
