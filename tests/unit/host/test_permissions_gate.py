"""Answers that stand for the session, and the one place everything passes (R239, R245, R260)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from trimaran.errors import ConfigError
from trimaran.host.permissions import Decision, Gate, Policy, RememberedAnswers, Rule, RuleError, Subject, Tier

READ = Subject.tool("fs", "read_file", schema={"required": ["path"]}, definition="one")
OTHER = Subject.tool("fs", "list", definition="one")


class Kept:
    """A recorder that keeps what it is given."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, Any]] = []

    def record(self, decision: Decision, arguments: Mapping[str, Any] | None = None) -> None:
        self.seen.append((decision.action, decision.by, arguments))


def gate(*rules: Rule, **options: Any) -> Gate:
    return Gate(Policy(rules), **options)


# --- answers ----------------------------------------------------------------------------------------------------------


def test_an_answer_for_once_holds_for_this_call_and_is_not_remembered() -> None:
    passing = gate()
    for answer, action in (("allow once", "allow"), ("deny", "deny")):
        settled = passing.settle(passing.decide(READ), answer)  # pyright: ignore[reportArgumentType]
        assert (settled.action, settled.by) == (action, "person")
        assert passing.decide(READ).action == "ask"
    assert passing.standing.rules == ()


def test_allow_always_settles_the_question_for_this_tool() -> None:
    passing = gate()
    assert passing.settle(passing.decide(READ, {"path": "/a"}), "allow always").is_allowed
    decision = passing.decide(READ, {"path": "/b"})
    assert decision.is_allowed and decision.by == "remembered" and decision.tier is Tier.DEFAULT
    assert decision.rule is not None and str(decision.rule.source) == "this session"
    assert passing.decide(OTHER).action == "ask"
    assert gate().decide(READ).action == "ask"


def test_allow_always_can_be_about_less_or_more_than_the_tool() -> None:
    passing = gate()
    passing.settle(
        passing.decide(READ, {"path": "/srv/a"}),
        "allow always",
        {"path": "/srv/a"},
        pattern="mcp__fs__read_file(/srv/**)",
    )
    assert passing.decide(READ, {"path": "/srv/b"}).is_allowed
    assert passing.decide(READ, {"path": "/etc/b"}).action == "ask"
    assert passing.decide(READ, {"path": "/srv/../etc/b"}).action == "ask"
    passing.settle(passing.decide(OTHER), "allow always", pattern="mcp__fs__*")
    assert passing.decide(READ, {"path": "/etc/b"}).is_allowed


@pytest.mark.parametrize("pattern", ["mcp__git__*", "mcp__fs__read_file(/etc/**)", "mcp__fs__read_file(/*)"])
def test_an_answer_must_be_about_the_call_it_answers(pattern: str) -> None:
    passing = gate()
    with pytest.raises(RuleError, match="does not match"):
        passing.settle(passing.decide(READ), "allow always", {"path": "/srv/a"}, pattern=pattern)
    with pytest.raises(RuleError, match="never closed"):
        passing.settle(passing.decide(READ), "allow always", {}, pattern="mcp__fs__read_file(")
    assert passing.standing.rules == ()


def test_what_was_allowed_for_good_was_allowed_as_it_was_described() -> None:
    """A server that changes a tool after it was allowed has a tool that nobody allowed."""
    passing = gate()
    passing.settle(passing.decide(READ), "allow always")
    changed = Subject.tool("fs", "read_file", schema={"required": ["path"]}, definition="two")
    assert passing.decide(READ).is_allowed
    assert passing.decide(changed).action == "ask"


def test_an_allow_of_a_person_outvotes_no_deny_and_survives_an_ask() -> None:
    """R239: the order stays; an answer settles a question."""
    asking = gate(Rule.of("ask", "read_*", server="fs"))
    asking.settle(asking.decide(READ), "allow always")
    assert asking.decide(READ).is_allowed
    asking.policy = Policy([Rule.of("deny", "mcp__fs__*")])
    assert asking.decide(READ).is_denied
    with pytest.raises(ConfigError, match="no answer changes that"):
        asking.settle(asking.decide(READ), "allow once")


def test_deny_always_counts_before_everything() -> None:
    """R239: it is one more global deny."""
    allowing = gate(Rule.of("allow", "*"))
    allowing.settle(allowing.decide(READ), "deny always")
    decision = allowing.decide(READ)
    assert decision.is_denied and decision.tier is Tier.GLOBAL_DENY and decision.by == "remembered"
    assert "refused by the person" in decision.refusal
    assert allowing.decide(OTHER).is_allowed
    assert allowing.decide(Subject.tool("fs", "read_file", definition="two")).is_denied


def test_a_deny_that_fits_perhaps_holds() -> None:
    passing = gate(Rule.of("allow", "*"))
    passing.settle(passing.decide(READ), "deny always", {"path": "/etc/a"}, pattern="mcp__fs__read_file(/etc/**)")
    assert passing.decide(READ, {"path": "/srv/../etc/a"}).is_denied
    assert passing.decide(READ, {"path": "/srv/a"}).is_allowed


def test_answers_can_be_taken_back() -> None:
    passing = gate()
    git = Subject.tool("git", "log")
    for act in (READ, OTHER, git):
        passing.settle(passing.decide(act), "allow always")
    newest = passing.standing.rules[0]
    assert newest.text == "mcp__git__log"
    passing.standing.withdraw(newest)
    assert passing.decide(git).action == "ask"
    passing.settle(passing.decide(git), "allow always")
    passing.standing.forget("fs")
    assert [passing.decide(act).action for act in (READ, OTHER, git)] == ["ask", "ask", "allow"]
    passing.standing.forget()
    assert passing.standing.rules == ()


def test_an_unknown_answer_is_refused() -> None:
    passing = gate()
    with pytest.raises(ConfigError, match="there are allow once, allow always, deny, deny always"):
        passing.settle(passing.decide(READ), "yes")  # pyright: ignore[reportArgumentType]


def test_answers_about_elicitation_stand_too() -> None:
    """R241, R260."""
    passing = gate()
    passing.settle(passing.decide(Subject.elicit("github")), "deny always")
    assert passing.decide(Subject.elicit("github")).is_denied
    assert passing.decide(Subject.elicit("gitlab")).action == "ask"
    assert passing.decide(Subject.tool("github", "search")).action == "ask"


# --- nobody there -----------------------------------------------------------------------------------------------------


def test_without_a_person_an_ask_is_a_deny() -> None:
    """R245."""
    unattended = gate(Rule.of("allow", "mcp__fs__list"), attended=False)
    assert unattended.decide(READ).by == "nobody" and unattended.decide(READ).is_denied
    assert unattended.decide(OTHER).is_allowed
    unattended.attended = True
    assert unattended.decide(READ).action == "ask"


def test_auto_allow_is_asked_for_and_leaves_denies_alone() -> None:
    """R245."""
    daring = gate(Rule.of("deny", "mcp__fs__list"), attended=False, auto_allow=True)
    assert daring.decide(READ).is_allowed and daring.decide(READ).by == "auto-allow"
    assert daring.decide(OTHER).is_denied
    daring.attended = True
    assert daring.decide(READ).action == "ask"


def test_what_a_person_said_before_they_left_still_stands() -> None:
    standing = RememberedAnswers()
    attended = gate(standing=standing)
    attended.settle(attended.decide(READ), "allow always")
    assert gate(standing=standing, attended=False).decide(READ).is_allowed


# --- the record -------------------------------------------------------------------------------------------------------


def test_every_decision_and_every_answer_is_recorded() -> None:
    kept = Kept()
    passing = gate(Rule.of("deny", "mcp__fs__list"), audit=kept)
    passing.settle(passing.decide(READ, {"path": "/a"}), "allow always", {"path": "/a"})
    passing.decide(READ)
    passing.decide(OTHER)
    assert kept.seen == [
        ("ask", "default", {"path": "/a"}),
        ("allow", "person", {"path": "/a"}),
        ("allow", "remembered", None),
        ("deny", "rule", None),
    ]


def test_an_explanation_shows_denies_that_stand_and_records_nothing() -> None:
    """R240."""
    kept = Kept()
    passing = gate(Rule.of("allow", "*"), audit=kept)
    assert passing.explain(READ).decision.is_allowed
    passing.settle(passing.policy.decide(READ), "deny always")
    found = passing.explain(READ)
    assert found.decision.is_denied and "this session" in found.text()
    assert [action for action, _, _ in kept.seen] == ["deny"]


def test_an_explanation_shows_that_a_question_has_been_answered() -> None:
    """R240: what the overlay shows is what would happen."""
    passing = gate()
    passing.settle(passing.decide(READ), "allow always")
    found = passing.explain(READ)
    assert found.decision == passing.decide(READ)
    assert found.text().splitlines()[0] == "mcp__fs__read_file: allow, as was answered before in this session"
