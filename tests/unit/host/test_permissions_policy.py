"""The order of the seven tiers, and what a decision says (R238-R241, R244, R245)."""

from __future__ import annotations

import ast
import fnmatch
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimaran.host import permissions
from trimaran.host.permissions import Action, Decision, Policy, Rule, RuleSource, Subject, Tier
from trimaran.host.permissions.rules import SourceKind

quick = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

WRITE = Subject.tool("fs", "write_file", schema={"required": ["path"], "properties": {"path": {}, "mode": {}}})

# One rule for each tier, all matching WRITE.
TIERS: dict[Tier, tuple[Action, str, str | None]] = {
    Tier.GLOBAL_DENY: ("deny", "mcp__fs__*", None),
    Tier.SERVER_DENY: ("deny", "write_*", "fs"),
    Tier.SERVER_ASK: ("ask", "write_*", "fs"),
    Tier.SERVER_ALLOW: ("allow", "write_*", "fs"),
    Tier.GLOBAL_ASK: ("ask", "mcp__fs__write_file", None),
    Tier.GLOBAL_ALLOW: ("allow", "*", None),
}


def rule(tier: Tier, kind: SourceKind = "user") -> Rule:
    action, text, server = TIERS[tier]
    return Rule.of(action, text, server=server, source=RuleSource(kind, kind))


def decide(*rules: Rule, act: Subject = WRITE, **arguments: Any) -> Decision:
    return Policy(rules).decide(act, arguments)


# --- the order --------------------------------------------------------------------------------------------------------


def test_the_tiers_are_the_seven_of_the_requirement_in_its_order() -> None:
    """R239."""
    assert [tier.label for tier in Tier] == [
        "global deny",
        "server deny",
        "server ask",
        "server allow",
        "global ask",
        "global allow",
        "default",
    ]


@pytest.mark.parametrize("tier", TIERS, ids=lambda tier: tier.label)
def test_each_tier_decides_before_all_that_come_after_it(tier: Tier) -> None:
    """R239: first hit wins, however the rules are written down."""
    later = [rule(other) for other in TIERS if other >= tier]
    for rules in (later, later[::-1]):
        decision = decide(*rules)
        assert (decision.tier, decision.action) == (tier, TIERS[tier][0])
        assert decision.rule is not None and decision.rule.text == TIERS[tier][1]
        assert decision.by == "rule"


def test_without_a_rule_the_default_is_ask() -> None:
    """R239; C36: the default is a tier of its own."""
    decision = decide()
    assert (decision.action, decision.tier, decision.rule, decision.by) == ("ask", Tier.DEFAULT, None, "default")


ORDER = [(None, "deny"), ("fs", "deny"), ("fs", "ask"), ("fs", "allow"), (None, "ask"), (None, "allow")]
NAMES = ["read_file", "write_file", "list"]
GLOBAL = ["*", "mcp__fs__*", "mcp__fs__write_file", "mcp__*__read_*", "mcp__git__*", "mcp__fs__?ist"]
OWN = ["*", "write_*", "read_file", "l?st", "nothing"]
ACTIONS: list[Action] = ["allow", "ask", "deny"]
# Made once: what takes time is reading a rule, not asking it.
EVERY = [Rule.of(action, text) for action in ACTIONS for text in GLOBAL]
EVERY += [Rule.of(action, text, server=server) for action in ACTIONS for text in OWN for server in ("fs", "git")]
RULES = st.lists(st.sampled_from(EVERY), max_size=8)


def by_the_book(rules: list[Rule], tool: str) -> str:
    """R239, as it is written there."""
    for server, action in ORDER:
        for one in rules:
            if one.server != server or one.action != action:
                continue
            name = tool if server else f"mcp__fs__{tool}"
            if fnmatch.fnmatchcase(name, one.text):
                return action
    return "ask"


@quick
@given(RULES, st.sampled_from(NAMES))
def test_the_decision_is_the_one_of_the_book(rules: list[Rule], tool: str) -> None:
    """R239."""
    assert decide(*rules, act=Subject.tool("fs", tool)).action == by_the_book(rules, tool)


@quick
@given(RULES, st.sampled_from(NAMES), st.randoms())
def test_neither_source_nor_written_order_changes_what_is_decided(rules: list[Rule], tool: str, dice: Any) -> None:
    """R239, R244: sources say which rule is named, never what is allowed."""
    act = Subject.tool("fs", tool)
    kinds: list[SourceKind] = ["cli", "project", "user", "built-in"]
    shuffled = [Rule(r.action, r.pattern, RuleSource(dice.choice(kinds)), r.server, r.written) for r in rules]
    dice.shuffle(shuffled)
    first, second = decide(*rules, act=act), decide(*shuffled, act=act)
    assert (first.action, first.tier) == (second.action, second.tier)


@quick
@given(RULES, st.sampled_from(NAMES))
def test_one_more_global_deny_denies_whatever_else_there_is(rules: list[Rule], tool: str) -> None:
    """R239: all global denies count wherever they were written."""
    denied = Rule.of("deny", f"mcp__fs__{tool}", source=RuleSource("built-in"))
    assert decide(*rules, denied, act=Subject.tool("fs", tool)).is_denied


@quick
@given(RULES, st.sampled_from(NAMES), st.sampled_from(OWN), st.sampled_from(["deny", "ask"]))
def test_a_rule_that_restricts_never_makes_anything_allowed(
    rules: list[Rule], tool: str, glob: str, action: Action
) -> None:
    act = Subject.tool("fs", tool)
    before = decide(*rules, act=act)
    after = decide(*rules, Rule.of(action, glob, server="fs"), act=act)
    assert before.is_allowed or not after.is_allowed


def test_within_a_tier_the_source_says_which_rule_is_named() -> None:
    """R244: CLI, project, user, built-in; then as written (C36)."""
    kinds: list[SourceKind] = ["built-in", "user", "project", "cli"]
    rules = [rule(Tier.GLOBAL_DENY, kind) for kind in kinds]
    for left in range(len(rules), 0, -1):
        found = decide(*rules[:left]).rule
        assert found is not None and found.source.kind == kinds[left - 1]
    first, second = Rule.of("deny", "mcp__fs__*"), Rule.of("deny", "mcp__fs__write_file")
    assert decide(first, second).rule is first


# --- whose rules ------------------------------------------------------------------------------------------------------


def test_a_servers_rules_are_about_its_own_tools() -> None:
    """R238."""
    allowed = Rule.of("allow", "*", server="fs")
    assert decide(allowed).is_allowed
    assert not decide(allowed, act=Subject.tool("fs2", "write_file")).is_allowed
    assert not decide(allowed, act=Subject.elicit("fs")).is_allowed


def test_a_server_whose_name_looks_like_anothers_tool_does_not_get_its_rules() -> None:
    """`mcp__fs__x__y` is tool x__y of fs, or tool y of fs__x: a server's rules go by who it is."""
    allowed = Rule.of("allow", "*", server="fs")
    assert decide(allowed, act=Subject.tool("fs", "x__y")).is_allowed
    assert not decide(allowed, act=Subject.tool("fs__x", "y")).is_allowed
    denied = Rule.of("deny", "x__*", server="fs")
    assert not decide(denied, act=Subject.tool("fs__x", "y")).is_denied


@pytest.mark.parametrize("tool", ["", "a/b", "../x", "mcp__other__y", "x\ny", "\u0456", "*", "a b", "__", "Elicit(fs)"])
def test_a_strange_name_of_a_tool_reaches_no_other_rules_than_its_own(tool: str) -> None:
    """R271: names are made plain before rules see them."""
    act = Subject.tool("fs", tool)
    assert decide(Rule.of("deny", "*", server="fs"), act=act).is_denied or tool == ""
    assert not decide(Rule.of("allow", "mcp__other__*"), Rule.of("allow", "Elicit"), act=act).is_allowed


def test_elicitations_go_through_the_global_tiers() -> None:
    """R241."""
    act = Subject.elicit("github")
    deny, ask, allow = (Rule.of(action, "Elicit(github)") for action in ("deny", "ask", "allow"))
    assert decide(deny, ask, allow, act=act).tier is Tier.GLOBAL_DENY
    assert decide(ask, allow, act=act).tier is Tier.GLOBAL_ASK
    assert decide(allow, act=act).is_allowed
    assert decide(act=act).tier is Tier.DEFAULT
    assert decide(Rule.of("deny", "*"), act=act).is_denied
    assert not decide(deny, act=Subject.elicit("gitlab")).is_denied
    assert not decide(Rule.of("deny", "*", server="github"), act=act).is_denied


# --- arguments --------------------------------------------------------------------------------------------------------


def test_the_first_rule_whose_condition_holds_decides() -> None:
    """R242."""
    rules = [
        Rule.of("deny", "mcp__fs__write_file(/etc/**)"),
        Rule.of("ask", "mcp__fs__write_file:mode=append"),
        Rule.of("allow", "mcp__fs__write_file(/srv/**)"),
    ]
    assert decide(*rules, path="/etc/passwd").is_denied
    assert decide(*rules, path="/srv/x", mode="append").tier is Tier.GLOBAL_ASK
    assert decide(*rules, path="/srv/x").is_allowed
    assert decide(*rules, path="/home").tier is Tier.DEFAULT
    assert decide(*rules).tier is Tier.DEFAULT
    assert Policy(rules).decide(WRITE, None) == Policy(rules).decide(WRITE, {})


@pytest.mark.parametrize("action", ["deny", "ask"])
def test_what_fits_perhaps_restricts_and_does_not_permit(action: Action) -> None:
    """R243: what cannot be told is never taken for the wider thing."""
    restricting, permitting = (
        Rule.of(action, "mcp__fs__write_file(/srv/*)"),
        Rule.of("allow", "mcp__fs__write_file(/srv/*)"),
    )
    decision = decide(restricting, path="/srv/a/b")
    assert decision.action == action and decision.tier is not Tier.DEFAULT and not decision.is_certain
    assert "perhaps" in decision.because
    assert decide(permitting, path="/srv/a/b").tier is Tier.DEFAULT
    assert decide(permitting, path="/srv/a").is_allowed


def test_many_rules_with_conditions_are_all_looked_at() -> None:
    """The quick way past rules that begin otherwise is only that."""
    rules = [Rule.of("deny", f"mcp__fs__write_file:path=/d{i}/**,mode=*") for i in range(50)]
    for path in ("/d7/x", "/d49/x", "/a/../d7/x", "/\uff447/x"):
        assert decide(*rules, path=path, mode="w").is_denied
    assert decide(*rules, path=["/a", "/d7/x"], mode="w").is_denied
    assert not decide(*rules, path="/d7/x").is_denied
    assert not decide(*rules, path="/e7/x", mode="w").is_denied


CONDITIONS = ("*:a*", "mcp__fs__write_file(**)", "*:path.a.b=?*", "*:path=x,mode=*")
CONDITIONAL = {action: Policy(Rule.of(action, text) for text in CONDITIONS) for action in ACTIONS}


@quick
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from(["allow", "deny"]),
)
def test_any_arguments_get_a_decision(value: Any, action: Action) -> None:
    for arguments in ({"path": value}, {"other": value}, value if isinstance(value, dict) else {}):
        assert CONDITIONAL[action].decide(WRITE, arguments).action in (action, "ask")


def test_a_model_that_invents_names_does_not_fill_the_memory() -> None:
    policy = Policy([rule(Tier.GLOBAL_DENY)])
    for number in range(5000):
        assert policy.decide(Subject.tool("fs", f"t{number}")).is_denied
    assert len(policy._known) <= 4096  # pyright: ignore[reportPrivateUsage]


# --- what a decision says ---------------------------------------------------------------------------------------------


def test_a_refusal_names_rule_tier_source_and_reason() -> None:
    """R240, R244: the reason is for the model."""
    source = RuleSource("project", ".trimaran/mcp.toml", "permissions.deny[2]")
    denied = Rule("deny", Rule.of("deny", "mcp__fs__*").pattern, source, None, "mcp__fs__*", reason="Ask Ada first.")
    assert decide(denied).refusal == (
        "mcp__fs__write_file is denied by a rule: global deny mcp__fs__* (.trimaran/mcp.toml, permissions.deny[2]). "
        "Ask Ada first."
    )


def test_an_ask_that_nobody_can_answer_is_a_deny_with_advice() -> None:
    """R245."""
    asked = decide(rule(Tier.SERVER_ASK))
    denied = asked.unattended()
    assert denied.is_denied and denied.by == "nobody" and denied.tier is Tier.SERVER_ASK
    assert "nobody is here to ask" in denied.refusal
    assert 'allow = ["mcp__fs__write_file"] under [permissions]' in denied.refusal
    assert "--allow mcp__fs__write_file" in denied.refusal
    assert 'allow=["mcp__fs__write_file"] to Host' in denied.refusal


def test_auto_allow_allows_what_would_be_asked_and_nothing_that_is_denied() -> None:
    """R245."""
    allowed = decide(rule(Tier.SERVER_ASK)).unattended(auto_allow=True)
    assert allowed.is_allowed and allowed.by == "auto-allow"
    assert decide(rule(Tier.GLOBAL_DENY)).unattended(auto_allow=True).is_denied
    assert decide(rule(Tier.GLOBAL_ALLOW)).unattended().is_allowed


def test_a_question_of_a_server_is_never_answered_by_a_setting() -> None:
    """R245, R258."""
    denied = decide(act=Subject.elicit("fs")).unattended(auto_allow=True)
    assert denied.is_denied and denied.refusal == "Elicit(fs) needs a person to answer, and nobody is here."


def test_a_decision_can_be_written_as_json() -> None:
    assert decide(rule(Tier.SERVER_DENY, "project")).to_json() == {
        "act": "mcp__fs__write_file",
        "kind": "tool",
        "server": "fs",
        "action": "deny",
        "tier": 2,
        "tier_name": "server deny",
        "by": "rule",
        "certain": True,
        "rule": {
            "action": "deny",
            "pattern": "write_*",
            "compiled": "mcp__fs__write_*",
            "server": "fs",
            "source": {"kind": "project", "where": "project", "key": ""},
        },
    }


# --- the package ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [p for p in sorted(Path(permissions.__file__).parent.glob("*.py")) if p.name != "audit.py"],
    ids=lambda p: p.stem,
)
def test_all_but_the_audit_log_is_pure(path: Path) -> None:
    """Whose rule: ours. A decision depends on rules and arguments, and on nothing else."""
    banned = {
        "asyncio",
        "os",
        "io",
        "pathlib",
        "socket",
        "subprocess",
        "threading",
        "time",
        "random",
        "secrets",
        "logging",
    }
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            assert not banned & {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert (node.module or "").split(".")[0] not in banned
