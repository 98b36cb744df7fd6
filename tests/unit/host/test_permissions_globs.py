"""Globs: what fits, what fits perhaps, and that no glob takes long (R242, R243)."""

from __future__ import annotations

import itertools
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimaran.host.permissions.globs import Glob, Match, Wildcard, agree, many, meets, one

quick = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])

PIECES = st.lists(st.sampled_from(["a", "b", "/", "\n", Wildcard.ONE, Wildcard.RUN, Wildcard.DEEP]), max_size=7)
TEXTS = st.text("ab/\nc", max_size=9)


def made(text: str) -> Glob:
    """A glob without escapes."""
    wild: dict[str, str | Wildcard] = {"**": Wildcard.DEEP, "*": Wildcard.RUN, "?": Wildcard.ONE}
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
        elif piece is Wildcard.DEEP:
            text += "(?s:.*/)?" if slashes else "(?s:.*)"
        else:
            text += inner + ("*" if piece is Wildcard.RUN else "")
    return re.compile(text)


@quick
@given(PIECES, TEXTS)
def test_a_glob_fits_what_a_regular_expression_of_the_same_meaning_fits(
    pieces: list[str | Wildcard], text: str
) -> None:
    """R242: `*`, `?` and `**`; the three answers follow from the strict reading and the loose one."""
    try:
        glob = Glob(pieces)
    except ValueError:
        assert pieces.count(Wildcard.DEEP) > 4 or len(pieces) > 8
        return
    strictly = as_regex(glob, strict=True).fullmatch(text) is not None
    loosely = as_regex(glob, strict=False).fullmatch(text) is not None
    assert glob.fits_loosely(text) is loosely
    assert glob.fit(text) is (Match.YES if strictly else Match.PERHAPS if loosely else Match.NO)


@pytest.mark.parametrize(
    ("glob", "text", "fit"),
    [
        ("git *", "git push", Match.YES),
        ("git *", "git add src/x", Match.PERHAPS),
        ("git **", "git add src/x", Match.YES),
        ("git *", "gitk", Match.NO),
        ("git *", "git log\nrm -rf x", Match.PERHAPS),
        ("/srv/*", "/srv/a", Match.YES),
        ("/srv/*", "/srv/a/b", Match.PERHAPS),
        ("/srv/**", "/srv/a/b", Match.YES),
        ("/srv/**", "/srv", Match.NO),
        ("/srv/**/x", "/srv/x", Match.YES),
        ("/srv/**/x", "/srv/a/b/x", Match.YES),
        ("/srv/**/x", "/srvx", Match.NO),
        ("**/x", "x", Match.YES),
        ("/a/**/**/b", "/a/b", Match.YES),
        ("a?c", "abc", Match.YES),
        ("a?c", "a/c", Match.PERHAPS),
        ("a?c", "ac", Match.NO),
        ("", "", Match.YES),
        ("*", "", Match.YES),
        ("ß*", "ßtraße", Match.YES),
        ("a.c", "abc", Match.NO),
    ],
)
def test_what_a_glob_fits(glob: str, text: str, fit: Match) -> None:
    """R242."""
    assert made(glob).fit(text) is fit


def test_a_star_that_would_swallow_a_slash_is_found_at_the_second_try() -> None:
    """The leftmost place is not always the right one once a run stops at `/`: **a*b on a/ab."""
    assert made("**a*b").fit("a/ab") is Match.YES


@pytest.mark.parametrize(
    "glob",
    ["*a" * 200 + "*b", "?*" * 300, "**a" * 200 + "**b", "**/a*" * 4 + "*?b", "*" + "a" * 400 + "*"],
    ids=["stars", "questions", "globstars", "mixed", "long"],
)
@pytest.mark.parametrize("unit", ["a", "a/", "/"])
@pytest.mark.deadline(10)
def test_no_glob_takes_long(glob: str, unit: str) -> None:
    """R243: a matcher that backtracks would still be at it when the sun goes out; the deadline is a thousand times enough."""
    assert made(glob).fit(unit * (50_000 // len(unit))) in (Match.NO, Match.PERHAPS, Match.YES)


def test_a_very_long_text_is_not_walked_through_and_fits_perhaps() -> None:
    assert made("/a/*").fit("/a/" + "b" * 100_000) is Match.PERHAPS
    assert made("/a/**").fit("/a/" + "b" * 100_000) is Match.YES
    assert made("/a/*").fit("/b/" + "b" * 100_000) is Match.NO


@quick
@given(PIECES, PIECES, TEXTS)
def test_what_one_glob_covers_it_fits(first: list[str | Wildcard], second: list[str | Wildcard], text: str) -> None:
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
@given(st.lists(st.sampled_from(["a", "b", Wildcard.ONE, Wildcard.RUN]), max_size=5))
def test_a_glob_meets_a_shape_if_some_text_of_it_fits(pieces: list[str | Wildcard]) -> None:
    shape = (one("a"), many("ab"), one("bc"))
    texts = ("".join(t) for n in range(2, 7) for t in itertools.product("abc", repeat=n))
    regex = re.compile("a[ab]*[bc]")
    glob = Glob(pieces)
    assert meets(glob, shape) is any(glob.fits_loosely(text) for text in texts if regex.fullmatch(text))


def test_those_who_disagree_say_perhaps() -> None:
    assert agree([]) is Match.NO
    assert agree([Match.YES, Match.YES]) is Match.YES
    assert agree([Match.NO, Match.NO]) is Match.NO
    assert agree([Match.YES, Match.NO]) is Match.PERHAPS
    assert agree([Match.PERHAPS, Match.NO]) is Match.PERHAPS


def test_globs_of_the_same_pieces_are_equal_and_print_alike() -> None:
    first, second = Glob(["a", "b", Wildcard.RUN]), Glob(["ab", "", Wildcard.RUN])
    assert first == second and hash(first) == hash(second) and str(first) == "ab*"
    assert first != Glob(["ab"]) and first != "ab*"
    assert repr(Glob(["a*"])) == r"Glob('a\\*')"
