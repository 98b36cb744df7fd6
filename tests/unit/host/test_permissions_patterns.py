"""The grammar of rules: every form is read, every mistake is pointed at, and what is read can be written again (R242, R243)."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimaran.errors import ConfigError
from trimaran.host.permissions.globs import Glob, Match, Wildcard
from trimaran.host.permissions.patterns import Pattern, RuleError, parse_pattern, parse_tool_glob, pointed_at
from trimaran.host.permissions.subjects import Subject, main_argument, plain_name

quick = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])

SEARCH = Subject.tool("github", "search", schema={"required": ["query"], "properties": {"repo": {}, "query": {}}})


def matches(rule: str, act: Subject, **arguments: object) -> bool:
    pattern = parse_pattern(rule)
    return pattern.fits_name(act) and pattern.fit_arguments(act, arguments) is Match.YES


# --- forms ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule", ["*", "**", "mcp__github__search", "mcp__github__*", "mcp__*", "*search", "mcp__g?thub__s*ch", "*__search"]
)
def test_a_rule_names_a_tool_or_several(rule: str) -> None:
    """R242: Tool, and `*`."""
    assert matches(rule, SEARCH)
    assert matches(rule, SEARCH, query="x")


@pytest.mark.parametrize("rule", ["mcp__github__sear", "mcp__gitlab__*", "mcp__github__search_", "mcp__github__?"])
def test_a_rule_for_other_tools_does_not_match(rule: str) -> None:
    assert not matches(rule, SEARCH)


@pytest.mark.parametrize("rule", ["mcp__github__search:cats *", "mcp__github__search(cats *)", "*:cats *", "*(cats *)"])
def test_a_glob_is_about_the_main_argument(rule: str) -> None:
    """R242: Tool:<glob> and Tool(<glob>)."""
    assert matches(rule, SEARCH, query="cats and dogs", repo="dogs")
    assert not matches(rule, SEARCH, query="dogs", repo="cats and dogs")
    assert not matches(rule, SEARCH, repo="cats and dogs")
    assert not matches(rule, SEARCH)


def test_keys_are_about_arguments_by_name_and_all_of_them_must_fit() -> None:
    """R242: Tool:key=<glob>[,k2=<glob>]."""
    rule = "mcp__github__search:repo=acme/*,query=is:open *"
    assert matches(rule, SEARCH, repo="acme/boats", query="is:open tiller")
    assert not matches(rule, SEARCH, repo="acme/boats", query="is:closed")
    assert not matches(rule, SEARCH, query="is:open tiller")


def test_dotted_keys_reach_into_objects() -> None:
    """R242."""
    rule = "mcp__github__search:filter.owner.name=acme"
    assert matches(rule, SEARCH, filter={"owner": {"name": "acme"}})
    assert matches(rule, SEARCH, **{"filter.owner": {"name": "acme"}})
    assert not matches(rule, SEARCH, filter={"owner": {"name": "other"}})
    assert not matches(rule, SEARCH, filter={"owner": "acme"})
    assert not matches(rule, SEARCH, filter="acme")


def test_a_colon_before_the_parenthesis_selects_the_colon_form() -> None:
    """R242."""
    assert parse_pattern("mcp__a__b:f(x)").main == Glob(["f(x)"])
    assert parse_pattern("mcp__a__b(a:b)").main == Glob(["a:b"])


def test_parentheses_reach_from_the_first_to_the_last() -> None:
    """R242."""
    assert parse_pattern("mcp__a__b(f(x) + g(y))").main == Glob(["f(x) + g(y)"])
    assert parse_pattern("mcp__a__b()))").main == Glob(["))"])


@pytest.mark.parametrize("rule", ["Elicit(github)", "Elicit:github", "Elicit(git*)", "Elicit", "Elicit(*)", "*"])
def test_elicitations_are_a_subject_of_rules(rule: str) -> None:
    """R241: both forms are the same."""
    assert matches(rule, Subject.elicit("github"))
    assert matches(rule, Subject.elicit("gitlab")) is (rule not in ("Elicit(github)", "Elicit:github"))


def test_rules_for_tools_say_nothing_about_elicitations_and_the_reverse() -> None:
    """R241."""
    assert parse_pattern("Elicit(github)") == parse_pattern("Elicit:github")
    assert not matches("Elicit(github)", SEARCH)
    assert not matches("mcp__*", Subject.elicit("github"))
    assert not matches("*(x)", Subject.elicit("github"), a="x")
    assert not matches("Elicit(git)", Subject.elicit("github"))


@pytest.mark.parametrize(
    ("rule", "value"),
    [
        (r"mcp__a__b:k=a\,b", "a,b"),
        (r"mcp__a__b:k=a\=b", "a=b"),
        ("mcp__a__b:k=a=b", "a=b"),
        (r"mcp__a__b:k=\*\?\[\]\{\}", "*?[]{}"),
        (r"mcp__a__b:k=C:\\dir", "C:\\dir"),
        ("mcp__a__b:k=(x)", "(x)"),
        ("mcp__a__b:k=é", "é"),
    ],
)
def test_a_backslash_makes_an_ordinary_character(rule: str, value: str) -> None:
    assert matches(rule, Subject.tool("a", "b"), k=value)


# --- mistakes ---------------------------------------------------------------------------------------------------------

MISTAKES = {
    "": (0, "empty"),
    " mcp__a__b": (0, "blank"),
    "mcp__a__b ": (9, "blank"),
    "mcp__a__b(": (9, "never closed"),
    "mcp__a__b(x": (9, "never closed"),
    "mcp__a__b)": (9, "cannot hold"),
    "mcp__a__b(x) y": (12, "nothing can follow"),
    "mcp__a__b()": (10, "glob is empty"),
    "mcp__a__b:": (10, "glob is empty"),
    "mcp__a__b:k=": (12, "glob is empty"),
    "mcp__a__b:k=,j=x": (12, "glob is empty"),
    "mcp__a__b:=x": (10, "name of the argument is missing"),
    "mcp__a__b:k=x,": (14, "key=glob is expected"),
    "mcp__a__b:k=x,y": (14, "key=glob is expected"),
    "mcp__a__b:k=x, j=y": (14, "cannot hold ' '"),
    "mcp__a__b:make X=1": (14, "cannot hold ' '"),
    "mcp__a__b:a..b=x": (10, "dotted key"),
    "mcp__a__b:.a=x": (10, "dotted key"),
    "mcp__a__b:" + "a." * 20 + "a=x": (10, "at most 16"),
    "mcp__a__b:k*=x": (11, "cannot hold '*'"),
    ":x": (0, "name of the tool is missing"),
    "(x)": (0, "name of the tool is missing"),
    "mcp__a__b(***)": (10, "is no glob"),
    "***": (0, "is no glob"),
    "mcp__a__b(/etc/[ps]*)": (15, "not part of a glob"),
    "mcp__a__b(x{1,2})": (11, "not part of a glob"),
    "mcp__a__b(C:\\dir)": (12, "backslash"),
    "mcp__a__b(x\\)": (11, "backslash"),
    "mcp__a__b(" + "/**" * 9 + "/)": (10, "more than 4 times"),
    "Bash(git *)": (0, "can never match"),
    "Elict(github)": (0, "can never match"),
    "mcp__github": (0, "can never match"),
    "mcp__github__": (0, "can never match"),
    "mcp____x": (0, "can never match"),
    "github__x": (0, "can never match"),
    "mcp__git hub__x": (8, "cannot hold ' '"),
    "mcp__fs__read.file": (13, "cannot hold '.'"),
    "mcp__g\u0456thub__*": (6, "U+0456 CYRILLIC SMALL LETTER"),
    "mcp__\uff47ithub__*": (5, "U+FF47 FULLWIDTH LATIN SMALL LETTER G"),
    "mcp__git\u200bhub__*": (8, "U+200B ZERO WIDTH SPACE"),
    "mcp__a__b\x00": (9, "U+0000"),
    "\ufeffmcp__a__b": (0, "U+FEFF"),
    "Elicit()": (7, "glob is empty"),
    "Elicit:k=x": (8, "cannot hold '='"),
    "Elicit(a\u200bb)": (8, "U+200B"),
    "x" * 2000: (1000, "at most 1000"),
}


@pytest.mark.parametrize("rule", MISTAKES, ids=lambda rule: ascii(rule)[1:-1][:40])
def test_a_mistake_is_pointed_at(rule: str) -> None:
    """R243: never taken for something else."""
    at, said = MISTAKES[rule]
    with pytest.raises(RuleError) as caught:
        parse_pattern(rule)
    assert (caught.value.at, caught.value.text) == (at, rule)
    assert said in caught.value.problem
    assert isinstance(caught.value, ConfigError)


@pytest.mark.parametrize(
    ("rule", "hint"),
    [
        ("mcp__github", "mcp__github__*"),
        ("mcp__awslabs.aws-docs__read_page", "mcp__awslabs_aws-docs__read_page"),
        ("mcp__größe__x", "mcp__gro_e__x"),
        ("mcp__@scope/pkg__x", "mcp__scope_pkg__x"),
        ("search", "mcp__*__search"),
        ("Elict(github)", "Elicit(server)"),
        ("mcp__fs__read.file", "mcp__fs__read_file"),
        ("mcp__a__b(x", "mcp__a__b(x)"),
    ],
)
def test_a_mistake_comes_with_what_to_write_instead(rule: str, hint: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_pattern(rule)
    assert hint in caught.value.hint


def test_the_message_shows_the_place() -> None:
    with pytest.raises(RuleError) as caught:
        parse_pattern("mcp__fs__write(/etc/[a]*)")
    assert str(caught.value).splitlines() == [
        "[ is not part of a glob here: use * and ** and ?",
        "    mcp__fs__write(/etc/[a]*)",
        "                        ^",
        "  Write \\[ for the character itself.",
    ]


def test_the_mark_stands_under_its_character_also_after_characters_that_cannot_be_seen() -> None:
    shown, mark = pointed_at("a\u200bb\x00c", 4)
    assert shown == "    a\\u200bb\\x00c"
    assert shown[mark.index("^")] == "c"
    shown, mark = pointed_at("x" * 500 + "!" + "y" * 500, 500)
    assert shown[mark.index("^")] == "!" and len(shown) < 140


# --- one server's globs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("glob", "compiled"),
    [
        ("search", "mcp__fs__search"),
        ("read_*", "mcp__fs__read_*"),
        ("read.file", "mcp__fs__read_file"),
        ("a/b:c d", "mcp__fs__a_b_c_d"),
        ("é?*", "mcp__fs___?*"),
        ("*", "mcp__fs__*"),
        ("**", "mcp__fs__*"),
        ("a\\*", "mcp__fs__a_*"),
        ("[ab]", "mcp__fs___ab_"),
        ("Elicit", "mcp__fs__Elicit"),
    ],
)
def test_a_servers_glob_compiles_to_the_names_its_tools_have(glob: str, compiled: str) -> None:
    """R238: characters outside [A-Za-z0-9_-] become _, * and ? are kept."""
    assert str(parse_tool_glob(glob, "fs")) == compiled


@pytest.mark.parametrize("glob", ["", "***", "x" * 2000], ids=["empty", "stars", "long"])
def test_a_servers_glob_that_is_none_is_refused(glob: str) -> None:
    """R243."""
    with pytest.raises(RuleError):
        parse_tool_glob(glob, "fs")


@quick
@given(st.text(max_size=12))
def test_a_servers_glob_that_is_the_name_of_a_tool_matches_it(name: str) -> None:
    """R238, R271: names are made plain on both sides, whatever a server calls its tools."""
    if not name or "***" in name:
        return
    assert parse_tool_glob(name, "fs").fits_name(Subject.tool("fs", name))


# --- names ------------------------------------------------------------------------------------------------------------


def test_names_are_made_plain() -> None:
    """R271."""
    assert Subject.tool("fs", "read.file").name == "mcp__fs__read_file"
    assert plain_name("a b/c:d\u0456") == "a_b_c_d_"
    assert re.fullmatch(r"[A-Za-z0-9_-]+", plain_name("x\n\x00é"))


@pytest.mark.parametrize(
    ("schema", "main"),
    [
        ({"required": ["b"], "properties": {"a": {}, "b": {}}}, "b"),
        ({"properties": {"a": {}, "b": {}}}, "a"),
        ({"required": [], "properties": {}}, None),
        ({"required": "b", "properties": 3}, None),
        ({"required": [1, "b"]}, "b"),
        (None, None),
        (True, None),
    ],
)
def test_the_main_argument_is_the_first_required_one(schema: object, main: str | None) -> None:
    assert main_argument(schema) == main


def test_rules_know_a_tool_by_its_usual_name_and_by_the_one_a_catalog_gave_it() -> None:
    """R238: a name that had to be shortened for a provider does not take the tool away from its rules."""
    act = Subject.tool("fs", "a.b", name="mcp__fs__a_b_1234abcd")
    assert act.name == "mcp__fs__a_b_1234abcd"
    assert all(parse_pattern(rule).fits_name(act) for rule in ("mcp__fs__a_b", "mcp__fs__a_b_1234abcd", "mcp__fs__*"))
    assert not parse_pattern("mcp__fs__a_b_1").fits_name(act)


# --- there and back ---------------------------------------------------------------------------------------------------

RUNS = [Wildcard.ONE, Wildcard.RUN, Wildcard.DEEP]


def is_glob(pieces: list[str | Wildcard]) -> bool:
    try:
        glob = Glob(pieces)
    except ValueError:
        return False
    runs = (Wildcard.RUN, Wildcard.DEEP)
    return bool(glob.pieces) and not any(a in runs and b in runs for a, b in zip(pieces, pieces[1:], strict=False))


ORDINARY = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
GLOBS = st.lists(st.one_of(ORDINARY, st.sampled_from(RUNS)), min_size=1, max_size=5).filter(is_glob).map(Glob)
NAMES = st.lists(st.sampled_from(["a", "B", "_", "-", Wildcard.ONE, Wildcard.RUN]), max_size=4).filter(
    lambda p: not p or is_glob(p)
)
TOOLS = NAMES.map(lambda pieces: Glob(["mcp__fs__x", *pieces]))
KEYS = st.from_regex(r"[a-zé$@_][a-z0-9-]*(\.[a-z]+){0,3}", fullmatch=True)
PATTERNS = st.one_of(
    st.builds(lambda name: Pattern("tool", name), TOOLS),
    st.builds(lambda name, main: Pattern("tool", name, main), TOOLS, GLOBS),
    st.builds(
        lambda name, keys: Pattern("tool", name, None, tuple(keys)),
        TOOLS,
        st.lists(st.tuples(KEYS, GLOBS), min_size=1, max_size=3),
    ),
    st.builds(lambda main: Pattern("all", Glob([Wildcard.RUN]), main), GLOBS),
    st.just(Pattern("all", Glob([Wildcard.RUN]))),
    st.builds(
        lambda text: Pattern("elicit", Glob([text, Wildcard.RUN])), st.from_regex("[a-z0-9_-]{1,9}", fullmatch=True)
    ),
)


@pytest.mark.slow
@quick
@given(PATTERNS)
def test_what_is_written_is_read_as_what_it_was(pattern: Pattern) -> None:
    """R242: parse and print."""
    written = str(pattern)
    if written[-1].isspace():  # a blank at the end cannot be written in the colon form
        return
    assert parse_pattern(written) == pattern


@pytest.mark.slow
@settings(quick, max_examples=200)
@given(
    st.one_of(
        st.text(max_size=20),
        st.text("mcp_a*?()[]:=,\\. \u0456", max_size=20),
        st.text("ab*?()[]:=,\\. /", max_size=14).map("mcp__a__b".__add__),
        st.text("ab*?():=,", max_size=8).map("Elicit".__add__),
    )
)
def test_any_text_is_a_rule_or_an_error_that_points_into_it(text: str) -> None:
    """R243."""
    try:
        pattern = parse_pattern(text)
    except RuleError as error:
        assert 0 <= error.at <= len(text)
        assert error.problem and "^" in str(error)
        return
    assert parse_pattern(str(pattern)) == pattern
