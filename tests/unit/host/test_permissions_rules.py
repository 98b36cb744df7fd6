"""Plain data to rules, what is wrong with them, and which can have no effect (R238, R241, R243, R244)."""

from __future__ import annotations

import tomllib
from datetime import UTC, datetime
from typing import Any

import pytest

from trimaran.errors import ConfigError
from trimaran.host.config import Machine, Source, read_config
from trimaran.host.permissions import (
    Rule,
    RuleError,
    RuleProblem,
    RuleSource,
    RulesRead,
    check,
    read_config_rules,
    read_options,
    read_rules,
)

HERE = RuleSource("project", ".trimaran/mcp.toml", "permissions")


def reading(text: str, server: str | None = None) -> RulesRead:
    return read_rules(tomllib.loads(text), HERE, server=server)


# --- reading ----------------------------------------------------------------------------------------------------------


def test_a_table_becomes_rules_that_know_where_they_stand() -> None:
    """R240, R244."""
    found = reading(
        """
        deny = ["mcp__fs__write(/etc/**)", { pattern = "mcp__fs__rm", reason = "Never.", comment = "Ada, May" }]
        allow = ["mcp__fs__*"]
        ask = []
        """
    )
    assert found.problems == ()
    assert [(rule.action, rule.text, str(rule.source)) for rule in found.checked()] == [
        ("deny", "mcp__fs__write(/etc/**)", ".trimaran/mcp.toml, permissions.deny[0]"),
        ("deny", "mcp__fs__rm", ".trimaran/mcp.toml, permissions.deny[1]"),
        ("allow", "mcp__fs__*", ".trimaran/mcp.toml, permissions.allow[0]"),
    ]
    assert (found.rules[1].reason, found.rules[1].comment) == ("Never.", "Ada, May")


def test_a_servers_table_holds_globs_over_its_tools() -> None:
    """R238."""
    found = reading('ask = ["delete_*", "read.file"]', "fs")
    assert [(rule.server, rule.text, str(rule.pattern)) for rule in found.checked()] == [
        ("fs", "delete_*", "mcp__fs__delete_*"),
        ("fs", "read.file", "mcp__fs__read_file"),
    ]


def test_options_of_the_command_line_are_rules_too() -> None:
    """R244."""
    found = read_options(allow=["mcp__a__*"], deny=["mcp__a__b", "nonsense("])
    assert [(rule.action, str(rule.source)) for rule in found.rules] == [("allow", "--allow"), ("deny", "--deny")]
    assert [str(problem).splitlines()[0] for problem in found.errors] == [
        "--deny: the parenthesis that opens here is never closed"
    ]


def test_an_error_names_file_and_key_and_points_at_the_place() -> None:
    """R243."""
    found = reading('deny = ["mcp__fs__read", "mcp__fs__write(/etc/**"]')
    assert [rule.text for rule in found.rules] == ["mcp__fs__read"]
    assert [str(error) for error in found.errors] == [
        ".trimaran/mcp.toml, permissions.deny[1]: the parenthesis that opens here is never closed\n"
        "    mcp__fs__write(/etc/**\n"
        "                  ^\n"
        "  Write mcp__fs__write(/etc/**)"
    ]
    with pytest.raises(ConfigError, match=r"permissions\.deny\[1\]"):
        found.checked()


@pytest.mark.parametrize(
    ("text", "key", "said"),
    [
        ('alow = ["mcp__a__b"]', "permissions.alow", "Did you mean allow?"),
        ('deny = "mcp__a__b"', "permissions.deny", 'Write deny = ["mcp__a__b"]'),
        ("deny = 3", "permissions.deny", "a list of rules is expected, not a number"),
        ("deny = [3]", "permissions.deny[0]", "a rule is expected, not a number"),
        ("deny = [[]]", "permissions.deny[0]", "a rule is expected, not a list"),
        ("deny = [true]", "permissions.deny[0]", "a rule is expected, not true"),
        ('deny = [{ reason = "x" }]', "permissions.deny[0]", "a table without one"),
        ('deny = [{ pattern = "mcp__a__b", reson = "x" }]', "permissions.deny[0].reson", "Did you mean reason?"),
        ('deny = [{ pattern = "mcp__a__b", reason = 3 }]', "permissions.deny[0].reason", "a text is expected"),
        ('deny = [""]', "permissions.deny[0]", "the rule is empty"),
    ],
)
def test_what_is_no_rule_is_an_error_and_never_dropped_in_silence(text: str, key: str, said: str) -> None:
    """R243."""
    (problem,) = reading(text).problems
    assert (problem.severity, problem.source.key) == ("error", key)
    assert said in str(problem)


@pytest.mark.parametrize("table", [None, [], "x", 3])
def test_what_is_no_table_is_an_error(table: Any) -> None:
    (problem,) = read_rules(table, HERE).problems
    assert problem.severity == "error" and "a table is expected" in problem.message


@pytest.mark.parametrize("value", ["2027-01-01T00:00:00Z", datetime(2027, 1, 1, tzinfo=UTC)], ids=["text", "date"])
def test_an_expiry_is_kept_and_said_not_to_work_yet(value: object) -> None:
    """R244: reserved."""
    found = read_rules({"allow": [{"pattern": "mcp__a__b", "expires_at": value}]}, HERE)
    assert found.rules[0].expires_at.startswith("2027-01-01T00:00:00")
    (problem,) = found.problems
    assert problem.severity == "warning" and "stays in force" in problem.message


@pytest.mark.parametrize(
    ("text", "server", "said"),
    [
        ("mcp__a__b(path=/etc/**)", None, "write mcp__a__b:path=/etc/**"),
        ("mcp__a__b(x\u200by)", None, "U+200B"),
        ("write(/etc/**)", "fs", "belongs under [permissions]: mcp__fs__write(/etc/**)"),
        ("write:path=x", "fs", "in which : is read as _"),
    ],
)
def test_a_likely_slip_is_a_warning_and_the_rule_holds_as_written(text: str, server: str | None, said: str) -> None:
    """R243."""
    found = read_rules({"deny": [text]}, HERE, server=server)
    (problem,) = found.problems
    assert (problem.severity, problem.server) == ("warning", server)
    assert said in str(problem)
    assert len(found.checked()) == 1


def test_a_reason_is_for_denies() -> None:
    """R244."""
    (problem,) = reading('allow = [{ pattern = "mcp__a__b", reason = "x" }]').problems
    assert "only a deny tells its reason" in problem.message


def test_a_problem_can_be_written_as_json() -> None:
    (problem,) = read_rules({"ask": ["***"]}, HERE, server="fs").problems
    assert problem.to_json() == {
        "kind": "invalid_rule",
        "severity": "error",
        "source": {"kind": "project", "where": ".trimaran/mcp.toml", "key": "permissions.ask[0]"},
        "message": "*** is no glob: * or ** is",
        "text": "***",
        "at": 0,
        "hint": "",
        "server": "fs",
    }


def test_a_rule_of_a_programs_own() -> None:
    assert Rule.of("deny", "mcp__fs__*").source == RuleSource("code")
    assert Rule.of("deny", "*", server="fs").server == "fs"
    with pytest.raises(RuleError):
        Rule.of("deny", "fs")


# --- of a configuration -----------------------------------------------------------------------------------------------

MACHINE = Machine(home="/h", workspace="/w", environ={})
USER = """
[permissions]
deny = ["mcp__fs__rm"]
[server.fs]
command = "fs"
[server.fs.permissions]
allow = ["*"]
[server.git]
command = "git"
[server.git.permissions]
ask = ["push", "***"]
"""
PROJECT = """
[permissions]
allow = [
  { pattern = "mcp__git__log", comment = "harmless" },
]
[server.fs]
command = "other"
[server.fs.permissions]
deny = ["write_*"]
"""


def test_the_rules_of_both_files_are_read_and_a_projects_server_brings_its_own() -> None:
    """R225, R244: the user's rules for a server that the project replaces are gone with it."""
    config = read_config([(Source("user.toml", "user"), USER), (Source("project.toml", "project"), PROJECT)], MACHINE)
    found = read_config_rules(config)
    assert {(rule.action, rule.text, rule.server, str(rule.source)) for rule in found.rules} == {
        ("allow", "mcp__git__log", None, "project.toml:3, permissions.allow"),
        ("deny", "mcp__fs__rm", None, "user.toml:3, permissions.deny"),
        ("deny", "write_*", "fs", "project.toml:9, server.fs.permissions.deny"),
        ("ask", "push", "git", "user.toml:11, server.git.permissions.ask"),
    }
    assert {rule.source.kind for rule in found.rules} == {"user", "project"}
    (error,) = found.errors
    assert error.server == "git" and "***" in str(error)


# --- rules without effect ---------------------------------------------------------------------------------------------


def said(problems: list[RuleProblem]) -> list[tuple[str, str]]:
    return [(problem.text, problem.message.partition(":")[0]) for problem in problems]


def rules_of(**tables: list[str]) -> list[Rule]:
    """`deny=[...]` for global rules, `fs_deny=[...]` for those of server fs."""
    made: list[Rule] = []
    for key, texts in tables.items():
        server, _, action = key.rpartition("_")
        made += [Rule.of(action, text, server=server or None) for text in texts]  # pyright: ignore[reportArgumentType]
    return made


def test_a_rule_that_an_earlier_one_always_forestalls_is_reported() -> None:
    """R243: without any catalog."""
    problems = check(rules_of(deny=["mcp__fs__*"], allow=["mcp__fs__read", "mcp__git__*"], fs_ask=["write_*"]))
    assert said(problems) == [
        ("write_*", "the rule is never reached"),
        ("mcp__fs__read", "the rule is never reached"),
    ]
    assert "global deny mcp__fs__*" in problems[0].message
    assert problems[1].hint == "As it stands, the answer is deny, not allow."


@pytest.mark.parametrize(
    ("tables", "reported"),
    [
        ({"deny": ["mcp__a__b", "mcp__a__b"]}, ["mcp__a__b"]),
        ({"deny": ["mcp__a__b(x)", "mcp__a__b(x)"]}, ["mcp__a__b(x)"]),
        ({"deny": ["mcp__a__b(x)", "mcp__a__b"]}, []),
        ({"deny": ["mcp__a__b", "mcp__a__b(x)"]}, ["mcp__a__b(x)"]),
        ({"ask": ["mcp__a__b(x)"], "allow": ["mcp__a__b"]}, []),
        ({"deny": ["*"], "allow": ["Elicit(a)", "mcp__a__b"]}, ["Elicit(a)", "mcp__a__b"]),
        ({"deny": ["mcp__*"], "allow": ["Elicit(a)"]}, []),
        ({"allow": ["mcp__a__*", "*"], "ask": ["mcp__a__b"]}, []),
        ({"a_allow": ["*"], "allow": ["mcp__a__b"]}, []),
        ({"a_allow": ["*", "b"]}, ["b"]),
        ({"a_allow": ["*"], "b_allow": ["*"]}, []),
        ({"deny": ["*(x)"], "allow": ["Elicit"]}, []),
    ],
)
def test_only_what_is_sure_to_be_forestalled_is_reported(tables: dict[str, list[str]], reported: list[str]) -> None:
    """R243."""
    assert [problem.text for problem in check(rules_of(**tables))] == reported


CATALOG = {"github": ["search", "create_issue"], "fs": ["read.file", "write_file"]}


@pytest.mark.parametrize(
    ("tables", "message", "hint"),
    [
        ({"deny": ["mcp__gihub__*"]}, "the rule matches no tool there is", "Did you mean mcp__github__*?"),
        ({"deny": ["mcp__github__serch"]}, "the rule matches no tool there is", "Did you mean mcp__github__search?"),
        ({"fs_ask": ["write_fil"]}, "the rule matches no tool there is", "Did you mean write_file?"),
        ({"gitub_ask": ["*"]}, "no server is called gitub", "Did you mean github?"),
        ({"deny": ["Elicit(gitub)"]}, "the rule matches no server there is", "Did you mean github?"),
        ({"deny": ["mcp__x__y"]}, "the rule matches no tool there is", ""),
    ],
)
def test_a_rule_that_matches_nothing_in_the_catalog_is_reported(
    tables: dict[str, list[str]], message: str, hint: str
) -> None:
    """R243."""
    (problem,) = check(rules_of(**tables), CATALOG)
    assert (problem.severity, problem.message, problem.hint) == ("warning", message, hint)


def test_a_rule_that_several_together_forestall_is_reported_with_a_catalog() -> None:
    """R243."""
    rules = rules_of(github_allow=["search", "create_issue"], ask=["mcp__github__*"])
    assert check(rules) == []
    (problem,) = check(rules, CATALOG)
    assert problem.text == "mcp__github__*"
    assert "server allow search" in problem.message and "and by 1 more" in problem.message
    assert check(rules, {**CATALOG, "github": [*CATALOG["github"], "fork"]}) == []


def test_rules_that_do_something_are_not_reported() -> None:
    rules = rules_of(
        deny=["mcp__fs__write_file(/etc/**)", "mcp__*__create_*"],
        fs_ask=["read.file"],
        allow=["mcp__github__*", "Elicit(github)", "*"],
    )
    assert check(rules, CATALOG) == []


def test_nothing_is_said_about_the_tools_of_a_server_that_is_not_there() -> None:
    rules = rules_of(deny=["mcp__slack__post", "mcp__*__unheard_of"], slack_ask=["x"], allow=["mcp__fs__none"])
    assert said(check(rules, {**CATALOG, "slack": None})) == [("mcp__fs__none", "the rule matches no tool there is")]


def test_tools_that_rules_cannot_tell_apart_are_reported() -> None:
    """R238: a.b and a_b have one name here."""
    rules = rules_of(fs_allow=["read.file"])
    (problem,) = check(rules, {"fs": ["read.file", "read_file", "other"]})
    assert problem.message == "the rule cannot tell these tools of fs apart: read.file, read_file"
    assert check(rules, {"fs": ["read.file", "other"]}) == []
