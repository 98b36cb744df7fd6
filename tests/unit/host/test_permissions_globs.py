"""Globs: what fits, what fits perhaps, and that no glob takes long (R242, R243)."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimaran.host.permissions.globs import Fit, Glob, Wild, agree, many, meets, one

quick = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])

PIECES = st.lists(st.sampled_from(["a", "b", "/", "\n", Wild.ONE, Wild.RUN, Wild.DEEP]), max_size=7)
TEXTS = st.text("ab/\nc", max_size=9)


def made(text: str) -> Glob:
    """A glob without escapes."""
    wild: dict[str, str | Wild] = {"**": Wild.DEEP, "*": Wild.RUN, "?": Wild.ONE}
    pieces: list[str] = re.findall(r"\*\*|\*|\?|[^*?]+", text)
    return Glob([wild.get(piece, piece) for piece in pieces])


def as_regex(glob: Glob, *, strict: bool) -> re.Pattern[str]:
    """The same language, said in another way."""
    inner = r"[^/\n\r]" if strict else r"(?s:.)"
    text = ""
    pieces = glob.pieces
    for at, piece in enumerate(pieces):
        after = pieces[at + 1] if at + 1 < len(pieces) else None
        before = pieces[at - 1] if at else "/"
        slashes = isinstance(before, str) and before.endswith("/") and isinstance(after, str) and after.startswith("/")
        if isinstance(piece, str):
            skips = at and text.endswith("(?s:.*/)?")
            text += re.escape(piece[1:] if skips else piece)
        elif piece is Wild.DEEP:
            text += "(?s:.*/)?" if slashes else "(?s:.*)"
        else:
            text += inner + ("*" if piece is Wild.RUN else "")
    return re.compile(text)


@quick
@given(PIECES, TEXTS)
def test_a_glob_fits_what_a_regular_expression_of_the_same_meaning_fits(pieces: list[str | Wild], text: str) -> None:
    """R242: `*`, `?` and `**`; the three answers follow from the strict reading and the loose one."""
    try:
        glob = Glob(pieces)
    except ValueError:
        assert pieces.count(Wild.DEEP) > 4 or len(pieces) > 8
        return
    strictly = as_regex(glob, strict=True).fullmatch(text) is not None
    loosely = as_regex(glob, strict=False).fullmatch(text) is not None
    assert glob.fits_loosely(text) is loosely
    assert glob.fit(text) is (Fit.YES if strictly else Fit.PERHAPS if loosely else Fit.NO)


@pytest.mark.parametrize(
    ("glob", "text", "fit"),
    [
        ("git *", "git push", Fit.YES),
        ("git *", "git add src/x", Fit.PERHAPS),
        ("git **", "git add src/x", Fit.YES),
        ("git *", "gitk", Fit.NO),
        ("git *", "git log\nrm -rf x", Fit.PERHAPS),
        ("/srv/*", "/srv/a", Fit.YES),
        ("/srv/*", "/srv/a/b", Fit.PERHAPS),
        ("/srv/**", "/srv/a/b", Fit.YES),
        ("/srv/**", "/srv", Fit.NO),
        ("/srv/**/x", "/srv/x", Fit.YES),
        ("/srv/**/x", "/srv/a/b/x", Fit.YES),
        ("/srv/**/x", "/srvx", Fit.NO),
        ("**/x", "x", Fit.YES),
        ("/a/**/**/b", "/a/b", Fit.YES),
        ("a?c", "abc", Fit.YES),
        ("a?c", "a/c", Fit.PERHAPS),
        ("a?c", "ac", Fit.NO),
        ("", "", Fit.YES),
        ("*", "", Fit.YES),
        ("ß*", "ßtraße", Fit.YES),
        ("a.c", "abc", Fit.NO),
    ],
)
def test_what_a_glob_fits(glob: str, text: str, fit: Fit) -> None:
    """R242."""
    assert made(glob).fit(text) is fit


def test_a_star_that_would_swallow_a_slash_is_found_at_the_second_try() -> None:
    """The leftmost place is not always the right one once a run stops at `/`: **a*b on a/ab."""
    assert made("**a*b").fit("a/ab") is Fit.YES


@pytest.mark.parametrize(
    "glob",
    ["*a" * 200 + "*b", "?*" * 300, "**a" * 200 + "**b", "**/a*" * 4 + "*?b", "*" + "a" * 400 + "*"],
    ids=["stars", "questions", "globstars", "mixed", "long"],
)
@pytest.mark.parametrize("unit", ["a", "a/", "/"])
@pytest.mark.deadline(10)
def test_no_glob_takes_long(glob: str, unit: str) -> None:
    """R243: a matcher that backtracks would still be at it when the sun goes out; the deadline is a thousand times enough."""
    assert made(glob).fit(unit * (50_000 // len(unit))) in (Fit.NO, Fit.PERHAPS, Fit.YES)


def test_a_very_long_text_is_not_walked_through_and_fits_perhaps() -> None:
    assert made("/a/*").fit("/a/" + "b" * 100_000) is Fit.PERHAPS
    assert made("/a/**").fit("/a/" + "b" * 100_000) is Fit.YES
    assert made("/a/*").fit("/b/" + "b" * 100_000) is Fit.NO


@quick
@given(PIECES, PIECES, TEXTS)
def test_what_one_glob_covers_it_fits(first: list[str | Wild], second: list[str | Wild], text: str) -> None:
    try:
        one_, other = Glob(first), Glob(second)
    except ValueError:
        return
    if one_.covers(other) and other.fits_loosely(text):
        assert one_.fits_loosely(text)


@pytest.mark.parametrize(
    ("wide", "narrow"), [("*", "a*"), ("a*", "a*b"), ("a*", "a"), ("?", "a"), ("a*c", "a?c"), ("*", "*"), ("*?", "?*?")]
)
def test_a_wider_glob_covers_a_narrower_one(wide: str, narrow: str) -> None:
    assert made(wide).covers(made(narrow))
    assert wide == narrow or not made(narrow).covers(made(wide))


@quick
@given(st.lists(st.sampled_from(["a", "b", Wild.ONE, Wild.RUN]), max_size=5))
def test_a_glob_meets_a_shape_if_some_text_of_it_fits(pieces: list[str | Wild]) -> None:
    shape = (one("a"), many("ab"), one("bc"))
    texts = ("".join(t) for n in range(2, 7) for t in itertools.product("abc", repeat=n))
    regex = re.compile("a[ab]*[bc]")
    glob = Glob(pieces)
    assert meets(glob, shape) is any(glob.fits_loosely(text) for text in texts if regex.fullmatch(text))


def test_those_who_disagree_say_perhaps() -> None:
    assert agree([]) is Fit.NO
    assert agree([Fit.YES, Fit.YES]) is Fit.YES
    assert agree([Fit.NO, Fit.NO]) is Fit.NO
    assert agree([Fit.YES, Fit.NO]) is Fit.PERHAPS
    assert agree([Fit.PERHAPS, Fit.NO]) is Fit.PERHAPS


def test_globs_of_the_same_pieces_are_equal_and_print_alike() -> None:
    first, second = Glob(["a", "b", Wild.RUN]), Glob(["ab", "", Wild.RUN])
    assert first == second and hash(first) == hash(second) and str(first) == "ab*"
    assert first != Glob(["ab"]) and first != "ab*"
    assert repr(Glob(["a*"])) == r"Glob('a\\*')"
