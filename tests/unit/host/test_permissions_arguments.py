"""Which arguments a glob is about, and the several ways to write one thing (R242, R243)."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.host.permissions import Glob, Match
from trimaran.host.permissions.arguments import fit_key, fit_main, fit_value
from trimaran.host.permissions.patterns import parse_pattern


def glob(text: str) -> Glob:
    found = parse_pattern(f"mcp__a__b({text})").main
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("pattern", "value", "fit"),
    [
        ("true", True, Match.YES),
        ("1", True, Match.NO),
        ("null", None, Match.YES),
        ("5", 5, Match.YES),
        ("5", 5.0, Match.PERHAPS),
        ("5*", 5.0, Match.YES),
        ("0.5", 0.5, Match.YES),
        pytest.param("*", 10**5000, Match.PERHAPS, id="huge"),
        ("nan", float("nan"), Match.YES),
        ("a*", ["ab", "ac"], Match.YES),
        ("a*", ["ab", "b"], Match.PERHAPS),
        ("a*", ["b", "c"], Match.NO),
        ("a*", [], Match.NO),
        ("a*", {"x": "ab"}, Match.YES),
        ("a*", {"x": "ab", "y": {"z": "b"}}, Match.PERHAPS),
        ("a*", {}, Match.NO),
        pytest.param("*", object(), Match.PERHAPS, id="no JSON"),
    ],
)
def test_values_that_are_no_texts(pattern: str, value: Any, fit: Match) -> None:
    """R242: scalars as JSON writes them, lists and objects by what is in them."""
    assert fit_value(glob(pattern), value) is fit


@pytest.mark.parametrize(
    ("pattern", "value", "fit"),
    [
        # What a path leads to counts, and so does what it looks like.
        ("/srv/**", "/srv/../etc/passwd", Match.PERHAPS),
        ("/etc/**", "/srv/../etc/passwd", Match.PERHAPS),
        ("/srv/**", "/srv/a/../b", Match.YES),
        ("/srv/**", "/srv/./b", Match.YES),
        ("/etc/*", "/etc//passwd", Match.PERHAPS),
        ("/etc/*", "//etc/passwd", Match.PERHAPS),
        ("/etc/*", "/./etc/passwd", Match.PERHAPS),
        ("/etc/*", "/../../etc/passwd", Match.PERHAPS),
        ("src/**", "./src/x", Match.PERHAPS),
        ("src/**", "src/../../x", Match.PERHAPS),
        ("../**", "src/../../x", Match.PERHAPS),
        ("src/**", "lib/x", Match.NO),
        ("/srv/**", "/srv/..", Match.PERHAPS),
        ("/srv/**", "/srv/..a/b", Match.YES),
        (r"C:\\srv\\**", "C:\\srv\\..\\Windows", Match.PERHAPS),
        (r"C:\\Windows\\**", "C:\\srv\\..\\Windows\\x", Match.PERHAPS),
        (r"C:\\srv\\**", "C:\\srv\\a", Match.YES),
        # A URL keeps its host.
        ("https://a.example/**", "https://a.example/x", Match.YES),
        ("https://a.example/**", "https://a.example/x/../y", Match.YES),
        ("https://b.example/**", "https://a.example/../b.example/x", Match.NO),
        ("https://a.example/secret/**", "https://a.example/x/../secret/y", Match.PERHAPS),
        # What looks the same.
        ("/etc/**", "/\uff45tc/passwd", Match.PERHAPS),
        ("/etc/**", "\uff0fetc\uff0fpasswd", Match.PERHAPS),
        ("/caf\u00e9/**", "/cafe\u0301/x", Match.PERHAPS),
        ("/caf\u00e9/**", "/caf\u00e9/x", Match.YES),
        ("rm **", "rm \u2116", Match.YES),
        # Another letter that looks the same is another letter.
        ("/etc/**", "/\u0435tc/passwd", Match.NO),
    ],
)
def test_roundabout_ways_are_seen_through_to_be_on_the_safe_side(pattern: str, value: str, fit: Match) -> None:
    """R243: a deny holds for a detour too (it fits perhaps), and an allow does not."""
    assert fit_value(glob(pattern), value) is fit


def test_the_main_argument_or_all_of_them_where_it_is_not_known() -> None:
    arguments = {"command": "git push", "cwd": "/srv"}
    assert fit_main(glob("git *"), "command", arguments) is Match.YES
    assert fit_main(glob("git *"), "cwd", arguments) is Match.NO
    assert fit_main(glob("git *"), "other", arguments) is Match.NO
    assert fit_main(glob("git *"), None, arguments) is Match.PERHAPS
    assert fit_main(glob("git *"), None, {"command": "git push"}) is Match.YES
    assert fit_main(glob("svn *"), None, arguments) is Match.NO
    assert fit_main(glob("*"), None, {}) is Match.NO


@pytest.mark.parametrize(
    ("key", "arguments", "fit"),
    [
        ("a", {"a": "x"}, Match.YES),
        ("a", {}, Match.NO),
        ("a", {"a": ""}, Match.NO),
        ("a.b", {"a": {"b": "x"}}, Match.YES),
        ("a.b", {"a.b": "x"}, Match.YES),
        ("a.b", {"a.b": "x", "a": {"b": "y"}}, Match.PERHAPS),
        ("a.b", {"a": {"c": "x"}}, Match.NO),
        ("a.b", {"a": "x"}, Match.NO),
        ("a.b", {"a": [{"b": "x"}, {"b": "x"}]}, Match.YES),
        ("a.b", {"a": [{"b": "x"}, {"b": "y"}]}, Match.PERHAPS),
        ("a.b", {"a": [{"b": "x"}, {"c": "y"}]}, Match.PERHAPS),
        ("a.b", {"a": []}, Match.NO),
        ("a.b.c", {"a": {"b.c": "x"}}, Match.YES),
        ("a.0", {"a": ["x"]}, Match.NO),
    ],
)
def test_dotted_keys(key: str, arguments: dict[str, Any], fit: Match) -> None:
    """R242: through lists, every element's; a name may have dots of its own."""
    assert fit_key(glob("x"), key, arguments) is fit


def test_what_nests_too_deep_fits_perhaps() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    assert fit_value(glob("y"), deep) is Match.PERHAPS
    assert fit_key(glob("y"), "a.b", {"a": deep}) is Match.PERHAPS
