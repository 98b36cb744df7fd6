"""Why an act is allowed, asked about or denied: the rule that decides, and the decisions of the others (R240).

Pure. For people as text, for programs as JSON. Without arguments it is about the tool as such: what then depends on
arguments is shown as that, and the decision is the one that holds where no such rule matches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from msgspec import Struct

from trimaran.types import Json

from .globs import Match
from .policy import Decision, Policy, Tier, rule_to_json, tier_of
from .rules import Action, Rule
from .subjects import Subject

MatchWord = Literal["yes", "perhaps", "no", "depends"]
_MATCHES: Final[dict[Match, MatchWord]] = {Match.YES: "yes", Match.PERHAPS: "perhaps", Match.NO: "no"}


class Verdict(Struct, frozen=True):
    """The decision of one rule about the act; `rule` is None for the default."""

    tier: Tier
    action: Action
    rule: Rule | None
    match: MatchWord
    """"depends": on arguments, which were not given."""
    decides: bool = False

    @property
    def holds(self) -> bool:
        """Whether it would decide, if it came first. A possible match restricts, and does not permit."""
        return self.match == "yes" or (self.match == "perhaps" and self.action != "allow")


class Explanation(Struct, frozen=True):
    """A decision, and every rule that is about the act."""

    decision: Decision
    verdicts: tuple[Verdict, ...]
    """In the order they are asked; the default is the last."""
    other_rules: int = 0
    """How many rules are about something else."""
    has_arguments: bool = True

    @property
    def depends(self) -> bool:
        """Whether arguments can change the decision."""
        for verdict in self.verdicts:
            if verdict.decides:
                return False
            if verdict.match == "depends":
                return True
        return False

    def text(self) -> str:
        """For a person, about 80 columns wide."""
        decision = self.decision
        head = f"{decision.act}: {decision.action}"
        if decision.by == "remembered" and not decision.reasons:
            head += ", as was answered before in this session"
        elif self.depends:
            head += ", unless the arguments say otherwise"
        rows = [
            (f"{v.tier.value} {v.tier.label}", v.rule.text if v.rule else "", self._remark(v), v) for v in self.verdicts
        ]
        first = max(len(row[0]) for row in rows)
        second = min(40, max(len(row[1]) for row in rows))
        lines = [head, ""]
        for place, pattern, remark, verdict in rows:
            mark = ">" if verdict.decides else " "
            lines.append(f"{mark} {place:<{first}}  {pattern:<{second}}  {remark}".rstrip())
            if verdict.rule is not None:
                lines.append(f"  {'':<{first}}  {verdict.rule.source}")
                comment = verdict.rule.reason or verdict.rule.comment
                lines += [f"  {'':<{first}}  {comment}"] if comment else []
        if decision.reasons:
            lines += ["", "It asks whatever the rules allow, because", *(f"- {reason}" for reason in decision.reasons)]
        if self.other_rules:
            lines.append(f"\n{self.other_rules} other rule{'s are' if self.other_rules > 1 else ' is'} not about it.")
        return "\n".join(lines)

    def _remark(self, verdict: Verdict) -> str:
        if verdict.decides:
            sure = "" if verdict.match == "yes" else ", as it matches perhaps"
            return f"decides: {verdict.action}{sure}"
        if verdict.match == "no":
            return "does not match these arguments"
        if verdict.match == "depends":
            return f"would {verdict.action}, if the arguments match"
        if not verdict.holds:
            return "matches perhaps, which is not enough to allow"
        return f"would {verdict.action}, but comes later"

    def to_json(self) -> dict[str, Json]:
        return {
            **self.decision.to_json(),
            "depends": self.depends,
            "verdicts": [
                {
                    "tier": int(v.tier),
                    "tier_name": v.tier.label,
                    "action": v.action,
                    "match": v.match,
                    "decides": v.decides,
                    "rule": None if v.rule is None else rule_to_json(v.rule),
                }
                for v in self.verdicts
            ],
            "other_rules": self.other_rules,
        }


def explain(policy: Policy, act: Subject, arguments: Mapping[str, object] | None = None) -> Explanation:
    """Explain a decision. `arguments=None` is "not known": an empty mapping is a call without any."""
    about = [verdict for rule in policy.rules if (verdict := _verdict(rule, act, arguments)) is not None]
    about.append(Verdict(Tier.DEFAULT, "ask", None, "yes"))
    deciding = next(at for at, verdict in enumerate(about) if verdict.holds)
    chosen = about[deciding]
    about[deciding] = Verdict(chosen.tier, chosen.action, chosen.rule, chosen.match, decides=True)
    decision = Decision(
        act,
        chosen.action,
        chosen.tier,
        chosen.rule,
        chosen.match == "yes",
        "default" if chosen.rule is None else "rule",
    )
    return Explanation(decision, tuple(about), len(policy.rules) - len(about) + 1, arguments is not None)


def _verdict(rule: Rule, act: Subject, arguments: Mapping[str, object] | None) -> Verdict | None:
    if not rule.fits_name(act):
        return None
    match: MatchWord = "yes"
    if rule.pattern.has_conditions:
        match = "depends" if arguments is None else _MATCHES[rule.pattern.fit_arguments(act, arguments)]
    return Verdict(tier_of(rule), rule.action, rule, match)
