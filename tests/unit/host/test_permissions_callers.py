from __future__ import annotations

import pytest

from trimaran.errors import ConfigError
from trimaran.host.permissions import Policy, Rule, Subject, check
from trimaran.host.permissions.callers import Caller, fits_caller, split_callers


@pytest.mark.parametrize(
    ("text", "rule", "callers"),
    [
        ("mcp__a__b to group:dev", "mcp__a__b", ("group:dev",)),
        ("mcp__a__* to group:dev, user:ann", "mcp__a__*", ("group:dev", "user:ann")),
        ("mcp__a__b(x to y) to scope:mail:send", "mcp__a__b(x to y)", ("scope:mail:send",)),
        ("mcp__a__b", "mcp__a__b", ()),
        ("mcp__a__b(hand over to bob)", "mcp__a__b(hand over to bob)", ()),
        ("mcp__a__b(to group:dev)", "mcp__a__b(to group:dev)", ()),
    ],
)
def test_callers_stand_after_the_rule(text: str, rule: str, callers: tuple[str, ...]) -> None:
    assert split_callers(text) == (rule, callers)


@pytest.mark.parametrize(
    "callers", ["group:", "group:dev,", "group:dev, ann", "grp:dev", "dev", "dev, user:ann", "https://example.com"]
)
def test_a_caller_that_cannot_be_read_is_an_error(callers: str) -> None:
    with pytest.raises(ConfigError, match="is not a caller: write group:NAME"):
        split_callers(f"mcp__a__b to {callers}")


def test_one_of_several_callers_is_enough_and_a_star_stands_for_anything() -> None:
    ann = Caller("ann@example.com", frozenset({"crew"}), frozenset({"boats:read"}))
    assert fits_caller(("group:dev", "user:*@example.com"), ann)
    assert fits_caller(("scope:boats:*",), ann)
    assert not fits_caller(("group:dev", "user:ann", "scope:mail:*"), ann)
    assert not fits_caller(("user:*", "group:*", "scope:*"), Caller())


def test_where_nobody_knows_the_caller_a_rule_denies_but_does_not_allow() -> None:
    act = Subject.tool("a", "b")
    allow, deny = Rule.of("allow", "mcp__a__b to group:dev"), Rule.of("deny", "mcp__a__b to group:dev")
    assert Policy([allow]).decide(act).action == "ask"
    decision = Policy([deny]).decide(act)
    assert decision.is_denied
    assert not decision.is_certain
    assert Policy([allow], applies=lambda rule: True).decide(act).is_allowed
    assert Policy([deny], applies=lambda rule: False).decide(act).action == "ask"


def test_a_rule_for_some_callers_does_not_hide_one_for_others() -> None:
    rules = [
        Rule.of("allow", "mcp__a__* to group:dev"),
        Rule.of("allow", "mcp__a__b to group:ops"),
        Rule.of("allow", "mcp__a__c"),
    ]
    assert check(rules, {"a": ["b", "c"]}) == []
