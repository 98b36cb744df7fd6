"""Durations, sizes and variables as texts (R230, R232, C34)."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.host.config import read_duration, read_size
from trimaran.host.config.expand import Reference, Unexpandable, expand, parts_of
from trimaran.host.config.values import write_duration


@pytest.mark.parametrize(
    ("given", "seconds"),
    [("60s", 60), ("5", 5), (5, 5), (0.5, 0.5), ("500ms", 0.5), ("2m", 120), ("2 min", 120), ("1m30s", 90), ("1m 30s", 90), (" 1s ", 1), ("1.5s", 1.5)],
    ids=repr,
)  # fmt: skip
def test_a_duration_is_read(given: Any, seconds: float) -> None:
    """R230, C34: a text with units, or seconds."""
    assert read_duration(given) == seconds


@pytest.mark.parametrize(
    "given", ["", "s", "1x", "1s2", "-1s", "1e3", None, [], True, float("inf"), float("nan"), 0, "0s"], ids=repr
)
def test_what_is_no_duration_is_refused(given: Any) -> None:
    with pytest.raises(ValueError):
        read_duration(given)


def test_a_duration_may_be_limited_or_not() -> None:
    """R230."""
    with pytest.raises(ValueError, match="10m"):
        read_duration("1h")
    assert read_duration("1h", longest=None) == 3600


@pytest.mark.parametrize("seconds", [0.05, 0.5, 1.0, 1.5, 60.0, 90.0, 600.0, 123.25])
def test_a_duration_that_is_written_reads_the_same(seconds: float) -> None:
    assert read_duration(write_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("given", "octets"),
    [(1, 1), ("4096", 4096), ("2 MiB", 2 << 20), ("2mib", 2 << 20), ("500KB", 500_000), ("1.5 KiB", 1536), ("1 b", 1)],
    ids=repr,
)
def test_a_size_is_read(given: Any, octets: int) -> None:
    """R230."""
    assert read_size(given) == octets


@pytest.mark.parametrize("given", [0, -1, 1.5, True, "", "MiB", "1 XB", None, "0", 2**60], ids=repr)
def test_what_is_no_size_is_refused(given: Any) -> None:
    with pytest.raises(ValueError):
        read_size(given)


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("", ""),
        ("plain", "plain"),
        ("$A", "$A"),
        ("$", "$"),
        ("}{", "}{"),
        ("${A}", "1"),
        ("x${A}y${A}z", "x1y1z"),
        ("${N:-d}", "d"),
        ("${N:-}", ""),
        ("${A:-d}", "1"),
        ("${E:-d}", ""),
        ("${N:-a:-b}", "a:-b"),
        ("ü${N:-日本}é", "ü日本é"),
        ("${A}}", "1}"),
    ],
)
def test_references_are_filled_in(text: str, made: str) -> None:
    """R232. A variable that is set to nothing is set."""
    assert expand(text, {"A": "1", "E": ""}) == made


def test_what_a_variable_holds_is_not_expanded_again() -> None:
    """R232: the environment is data."""
    assert expand("${A}", {"A": "${B}", "B": "x"}) == "${B}"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("${", "never closed"),
        ("a${A", "never closed"),
        ("${A:-x", "never closed"),
        ("${}", "names no variable"),
        ("${a b}", "names no variable"),
        ("${1A}", "names no variable"),
        ("${A-x}", "names no variable"),
        ("${A:-${B}}", "cannot hold another"),
        ("${env:KEY}", r"write \$\{KEY\}"),
        ("${input:key}", r"write \$\{key\} and set"),
        ("${N}", r"\$\{N\} is not set"),
    ],
)
def test_what_cannot_be_filled_in_says_why(text: str, said: str) -> None:
    """R232."""
    with pytest.raises(Unexpandable, match=said):
        expand(text, {})


def test_a_text_is_its_parts() -> None:
    parts = parts_of("a${B}c${D:-e}")
    assert parts == ["a", Reference("B"), "c", Reference("D", "e")]
    assert "".join(map(str, parts)) == "a${B}c${D:-e}"
