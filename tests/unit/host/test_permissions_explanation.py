"""Why: which rule decides, in which tier, and what the others would have said (R240)."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimaran.host.permissions import Action, Policy, Rule, RuleSource, Subject, Tier, explain

WRITE = Subject.tool("fs", "write_file", schema={"required": ["path"]})
FILE = RuleSource("project", "mcp.toml", "permissions")


def rule(action: Action, text: str, key: str, server: str | None = None) -> Rule:
    return Rule.of(action, text, server=server, source=FILE.at(key))


POLICY = Policy(
    [
        rule("deny", "mcp__fs__write_file(/etc/**)", "deny"),
        rule("ask", "write_*", "ask", "fs"),
        rule("allow", "mcp__fs__*", "allow"),
        rule("allow", "mcp__git__*", "allow"),
    ]
)


def test_the_text_shows_the_order_what_decides_and_what_the_others_say() -> None:
    """R240: tier, pattern, source."""
    assert (
        explain(POLICY, WRITE, {"path": "/srv/x"}).text()
        == """\
mcp__fs__write_file: ask

  1 global deny   mcp__fs__write_file(/etc/**)  does not match these arguments
                  mcp.toml, permissions.deny
> 3 server ask    write_*                       decides: ask
                  mcp.toml, permissions.ask
  6 global allow  mcp__fs__*                    would allow, but comes later
                  mcp.toml, permissions.allow
  7 default                                     would ask, but comes later

1 other rule is not about it."""
    )


def test_without_arguments_it_is_about_the_tool_as_such() -> None:
    """R240: what the overlay shows for the focused tool."""
    found = explain(POLICY, WRITE)
    assert found.depends and not found.has_arguments
    assert found.decision.tier is Tier.SERVER_ASK
    lines = found.text().splitlines()
    assert lines[0] == "mcp__fs__write_file: ask, unless the arguments say otherwise"
    assert lines[2].endswith("would deny, if the arguments match")
    assert not explain(POLICY, Subject.tool("git", "log")).depends


def test_a_match_that_is_not_certain_is_said_to_be_so() -> None:
    denied = explain(POLICY, WRITE, {"path": "/srv/../etc/x"})
    assert denied.decision.is_denied and not denied.decision.is_certain
    assert "decides: deny, as it matches perhaps" in denied.text()
    policy = Policy([rule("allow", "mcp__fs__write_file(/srv/*)", "allow")])
    assert "matches perhaps, which is not enough to allow" in explain(policy, WRITE, {"path": "/srv/a/b"}).text()


def test_reasons_and_comments_are_shown() -> None:
    first = Rule("deny", rule("deny", "mcp__fs__*", "deny").pattern, FILE, None, "mcp__fs__*", reason="Ask Ada first.")
    second = Rule("allow", first.pattern, FILE, None, "mcp__fs__*", comment="since May")
    text = explain(Policy([first, second]), WRITE).text()
    assert "Ask Ada first." in text and "since May" in text


def test_the_json_says_the_same() -> None:
    """R240."""
    found = json.loads(json.dumps(explain(POLICY, WRITE, {"path": "/etc/x"}).to_json()))
    assert (found["action"], found["tier"], found["tier_name"]) == ("deny", 1, "global deny")
    assert found["rule"]["source"] == {"kind": "project", "where": "mcp.toml", "key": "permissions.deny"}
    assert [(v["tier"], v["action"], v["match"], v["decides"]) for v in found["verdicts"]] == [
        (1, "deny", "yes", True),
        (3, "ask", "yes", False),
        (6, "allow", "yes", False),
        (7, "ask", "yes", False),
    ]
    assert (found["other_rules"], found["depends"]) == (1, False)


def test_an_elicitation_is_explained_too() -> None:
    """R241."""
    policy = Policy([rule("deny", "Elicit(fs)", "deny")])
    assert explain(policy, Subject.elicit("fs")).text().startswith("Elicit(fs): deny\n")


EVERY = [
    rule(action, text, action, server)
    for action in ("allow", "ask", "deny")
    for text, server in (
        ("*", None),
        ("mcp__fs__write_file(/etc/**)", None),
        ("mcp__fs__*:path=/srv/*", None),
        ("write_*", "fs"),
        ("x", "fs"),
        ("*", "git"),
    )
]


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.sampled_from(EVERY), max_size=6),
    st.sampled_from(["/etc/x", "/srv/a", "/srv/a/b", "/a/../etc/x", ["/etc/a", "/srv/b"], 3]),
)
def test_what_is_explained_is_what_is_decided(rules: list[Rule], path: object) -> None:
    """R240: the explanation walks through the rules by another way, and comes to the same end."""
    policy = Policy(rules)
    found = explain(policy, WRITE, {"path": path})
    assert found.decision == policy.decide(WRITE, {"path": path})
    assert [verdict.decides for verdict in found.verdicts].count(True) == 1
    assert [verdict.tier for verdict in found.verdicts] == sorted(verdict.tier for verdict in found.verdicts)
    assert len(found.verdicts) - 1 + found.other_rules == len(rules)
