"""Warnings about valid rules: those that match nothing, and those that never decide (R243).

Pure. Without a catalog, only warnings that hold for every catalog; with one, names are compared with its tools.
The rules work as written, but probably not as meant.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from ..names import safe_names
from .policy import Policy, tier_of
from .rules import Rule, RuleProblem
from .subjects import Subject, plain_name

Catalog = Mapping[str, Iterable[str] | None]
"""The tools of each server, by their original names; None for a server whose tools are not known."""


def check(
    rules: Iterable[Rule], catalog: Catalog | None = None, safe: Mapping[str, str] | None = None
) -> list[RuleProblem]:
    """Find rules that can have no effect.

    Args:
        catalog: The tools that exist. Without it, only rules that are hidden for every catalog are found.
        safe: The safe name of each server, as the host uses them; without it, those of `safe_names`.
    """
    rules = tuple(rules)
    policy = Policy(rules)
    hidden = {id(rule): by for rule, by in _hidden(policy)}
    problems = [_hides(rule, [hidden[id(rule)]]) for rule in policy.rules if id(rule) in hidden]
    if catalog is None:
        return problems
    known = {server: list(tools) for server, tools in catalog.items() if tools is not None}
    safe = safe_names(catalog) if safe is None else safe
    problems += _collisions(policy, known, safe)
    acts = [Subject.tool(server, tool, safe=safe[server]) for server, tools in known.items() for tool in tools]
    acts += [Subject.elicit(server, safe=safe[server]) for server in catalog]
    reached = _reached(rules, acts)
    unknown = [server for server in catalog if server not in known]
    for rule in policy.rules:
        if id(rule) in hidden or id(rule) in reached:
            continue
        about = [act for act in acts if rule.fits_name(act)]
        if any(_may_be_of(rule, server, safe[server]) for server in unknown):
            continue
        if about:
            problems.append(_hides(rule, [by for act in about if (by := policy.decide(act).rule) is not None]))
        else:
            problems.append(_matches_nothing(rule, catalog, known, safe))
    return problems


def _hidden(policy: Policy) -> Iterator[tuple[Rule, Rule]]:
    """Rules that an earlier one always forestalls. A server's own rules hide none but its own: names can be of two servers."""
    for at, rule in enumerate(policy.rules):
        for earlier in policy.rules[:at]:
            is_for_all = not earlier.callers or earlier.callers == rule.callers
            if is_for_all and earlier.server in (None, rule.server) and earlier.pattern.covers(rule.pattern):
                yield rule, earlier
                break


def _reached(rules: Iterable[Rule], acts: Iterable[Subject]) -> set[int]:
    """The rules that can decide about one of these, for some caller."""
    reached: set[int] = set()
    for callers in {(), *(rule.callers for rule in rules)}:
        policy = Policy(rules, applies=lambda rule, callers=callers: rule.callers == callers)
        reached |= {id(rule) for act in acts for rule in policy.deciding(act)}
    return reached


def _may_be_of(rule: Rule, server: str, safe: str) -> bool:
    """Whether it could match a tool of this server, whose tools are unknown."""
    if rule.server is not None:
        return rule.server == server
    return rule.pattern.may_be_of(server, safe)


def _hides(rule: Rule, by: list[Rule]) -> RuleProblem:
    first, count = by[0], len({id(hiding) for hiding in by})
    others = f", and by {count - 1} more" if count > 1 else ""
    message = (
        f"the rule is never reached: what it matches is decided before by {tier_of(first).label} "
        f"{first.text} ({first.source}){others}"
    )
    same = first.action == rule.action
    hint = (
        "It changes nothing, and can go." if same else f"As it stands, the answer is {first.action}, not {rule.action}."
    )
    return RuleProblem("warning", rule.source, message, rule.text, None, hint, rule.server)


def _matches_nothing(
    rule: Rule, catalog: Catalog, known: Mapping[str, list[str]], safe: Mapping[str, str]
) -> RuleProblem:
    servers = list(catalog)
    if rule.server is not None and rule.server not in catalog:
        message, hint = f"no server is called {rule.server}", _closest(rule.server, servers)
    elif rule.pattern.kind == "elicit":
        message, hint = "the rule matches no server there is", _closest(str(rule.pattern.name), servers)
    else:
        message = "the rule matches no tool there is"
        if rule.server is not None:
            hint = _closest(rule.text, known.get(rule.server, []))
        else:
            names = [f"{safe[server]}__{plain_name(tool)}" for server, tools in known.items() for tool in tools]
            names += [f"{safe[server]}__*" for server in servers]
            # Without what all names begin with, which would make all of them alike.
            hint = _closest(str(rule.pattern.name).removeprefix("mcp__"), names, "mcp__")
    return RuleProblem("warning", rule.source, message, rule.text, None, hint, rule.server)


def _closest(text: str, names: Iterable[str], prefix: str = "") -> str:
    close = difflib.get_close_matches(text, list(names), n=1, cutoff=0.7)
    return f"Did you mean {prefix}{close[0]}?" if close else ""


def _collisions(policy: Policy, known: Mapping[str, list[str]], safe: Mapping[str, str]) -> Iterator[RuleProblem]:
    """Tools that rules cannot tell apart: characters that names cannot hold are `_` in all of them."""
    for server, tools in known.items():
        for plain, count in Counter(map(plain_name, dict.fromkeys(tools))).items():
            if count == 1:
                continue
            act = Subject.tool(server, plain, safe=safe[server])
            rule = next((rule for rule in policy.rules if rule.fits_name(act)), None)
            if rule is not None:
                alike = ", ".join(tool for tool in tools if plain_name(tool) == plain)
                message = f"the rule cannot tell these tools of {server} apart: {alike}"
                yield RuleProblem("warning", rule.source, message, rule.text, server=rule.server)
