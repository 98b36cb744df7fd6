"""Which arguments a glob is about, and the several ways to write one thing (R242, R243)."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.host.permissions import Fit, Glob
from trimaran.host.permissions.arguments import fit_key, fit_main, fit_value
from trimaran.host.permissions.patterns import parse_pattern


def glob(text: str) -> Glob:
    found = parse_pattern(f"mcp__a__b({text})").main
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("pattern", "value", "fit"),
    [
        ("true", True, Fit.YES),
        ("1", True, Fit.NO),
        ("null", None, Fit.YES),
        ("5", 5, Fit.YES),
        ("5", 5.0, Fit.PERHAPS),
        ("5*", 5.0, Fit.YES),
        ("0.5", 0.5, Fit.YES),
        pytest.param("*", 10**5000, Fit.PERHAPS, id="huge"),
        ("nan", float("nan"), Fit.YES),
        ("a*", ["ab", "ac"], Fit.YES),
        ("a*", ["ab", "b"], Fit.PERHAPS),
        ("a*", ["b", "c"], Fit.NO),
        ("a*", [], Fit.NO),
        ("a*", {"x": "ab"}, Fit.YES),
        ("a*", {"x": "ab", "y": {"z": "b"}}, Fit.PERHAPS),
        ("a*", {}, Fit.NO),
        pytest.param("*", object(), Fit.PERHAPS, id="no JSON"),
    ],
)
def test_values_that_are_no_texts(pattern: str, value: Any, fit: Fit) -> None:
    """R242: scalars as JSON writes them, lists and objects by what is in them."""
    assert fit_value(glob(pattern), value) is fit


@pytest.mark.parametrize(
    ("pattern", "value", "fit"),
    [
        # What a path leads to counts, and so does what it looks like.
        ("/srv/**", "/srv/../etc/passwd", Fit.PERHAPS),
        ("/etc/**", "/srv/../etc/passwd", Fit.PERHAPS),
        ("/srv/**", "/srv/a/../b", Fit.YES),
        ("/srv/**", "/srv/./b", Fit.YES),
        ("/etc/*", "/etc//passwd", Fit.PERHAPS),
        ("/etc/*", "//etc/passwd", Fit.PERHAPS),
        ("/etc/*", "/./etc/passwd", Fit.PERHAPS),
        ("/etc/*", "/../../etc/passwd", Fit.PERHAPS),
        ("src/**", "./src/x", Fit.PERHAPS),
        ("src/**", "src/../../x", Fit.PERHAPS),
        ("../**", "src/../../x", Fit.PERHAPS),
        ("src/**", "lib/x", Fit.NO),
        ("/srv/**", "/srv/..", Fit.PERHAPS),
        ("/srv/**", "/srv/..a/b", Fit.YES),
        (r"C:\\srv\\**", "C:\\srv\\..\\Windows", Fit.PERHAPS),
        (r"C:\\Windows\\**", "C:\\srv\\..\\Windows\\x", Fit.PERHAPS),
        (r"C:\\srv\\**", "C:\\srv\\a", Fit.YES),
        # A URL keeps its host.
        ("https://a.example/**", "https://a.example/x", Fit.YES),
        ("https://a.example/**", "https://a.example/x/../y", Fit.YES),
        ("https://b.example/**", "https://a.example/../b.example/x", Fit.NO),
        ("https://a.example/secret/**", "https://a.example/x/../secret/y", Fit.PERHAPS),
        # What looks the same.
        ("/etc/**", "/\uff45tc/passwd", Fit.PERHAPS),
        ("/etc/**", "\uff0fetc\uff0fpasswd", Fit.PERHAPS),
        ("/caf\u00e9/**", "/cafe\u0301/x", Fit.PERHAPS),
        ("/caf\u00e9/**", "/caf\u00e9/x", Fit.YES),
        ("rm **", "rm \u2116", Fit.YES),
        # Another letter that looks the same is another letter.
        ("/etc/**", "/\u0435tc/passwd", Fit.NO),
    ],
)
def test_roundabout_ways_are_seen_through_to_be_on_the_safe_side(pattern: str, value: str, fit: Fit) -> None:
    """R243: a deny holds for a detour too (it fits perhaps), and an allow does not."""
    assert fit_value(glob(pattern), value) is fit


def test_the_main_argument_or_all_of_them_where_it_is_not_known() -> None:
    arguments = {"command": "git push", "cwd": "/srv"}
    assert fit_main(glob("git *"), "command", arguments) is Fit.YES
    assert fit_main(glob("git *"), "cwd", arguments) is Fit.NO
    assert fit_main(glob("git *"), "other", arguments) is Fit.NO
    assert fit_main(glob("git *"), None, arguments) is Fit.PERHAPS
    assert fit_main(glob("git *"), None, {"command": "git push"}) is Fit.YES
    assert fit_main(glob("svn *"), None, arguments) is Fit.NO
    assert fit_main(glob("*"), None, {}) is Fit.NO


@pytest.mark.parametrize(
    ("key", "arguments", "fit"),
    [
        ("a", {"a": "x"}, Fit.YES),
        ("a", {}, Fit.NO),
        ("a", {"a": ""}, Fit.NO),
        ("a.b", {"a": {"b": "x"}}, Fit.YES),
        ("a.b", {"a.b": "x"}, Fit.YES),
        ("a.b", {"a.b": "x", "a": {"b": "y"}}, Fit.PERHAPS),
        ("a.b", {"a": {"c": "x"}}, Fit.NO),
        ("a.b", {"a": "x"}, Fit.NO),
        ("a.b", {"a": [{"b": "x"}, {"b": "x"}]}, Fit.YES),
        ("a.b", {"a": [{"b": "x"}, {"b": "y"}]}, Fit.PERHAPS),
        ("a.b", {"a": [{"b": "x"}, {"c": "y"}]}, Fit.PERHAPS),
        ("a.b", {"a": []}, Fit.NO),
        ("a.b.c", {"a": {"b.c": "x"}}, Fit.YES),
        ("a.0", {"a": ["x"]}, Fit.NO),
    ],
)
def test_dotted_keys(key: str, arguments: dict[str, Any], fit: Fit) -> None:
    """R242: through lists, every element's; a name may have dots of its own."""
    assert fit_key(glob("x"), key, arguments) is fit


def test_what_nests_too_deep_fits_perhaps() -> None:
    deep: Any = "x"
    for _ in range(5000):
        deep = [deep]
    assert fit_value(glob("y"), deep) is Fit.PERHAPS
    assert fit_key(glob("y"), "a.b", {"a": deep}) is Fit.PERHAPS
