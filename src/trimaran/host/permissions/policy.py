"""The decision about an act by the rules, in the order of R239.

Pure: no I/O, no clock, nothing remembered but what follows from the rules.

    1 global deny    2 server deny    3 server ask    4 server allow    5 global ask    6 global allow    7 default: ask

The first rule that matches decides. Within a tier all rules say the same, so their order (by source, then as written)
only settles which of them is named. A rule that matches *perhaps* (see `globs.py`, `arguments.py`) counts as matching if
it denies or asks, and as not matching if it allows: what cannot be told is never allowed.

The part of a rule about names is worked out once per act and kept; a decision then looks at arguments, where a rule does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final, Literal, NamedTuple, final

from msgspec import Struct, structs

from trimaran.types import Json

from .arguments import plain_text
from .globs import Match
from .rules import Action, Rule
from .subjects import Subject

_MOST_KEPT: Final = 4096  # acts; a model that invents names must not fill the memory
_NO_ARGUMENTS: Final[Mapping[str, Any]] = {}


class Tier(IntEnum):
    """The seven places of a rule, in the order they are asked (R239)."""

    GLOBAL_DENY = 1
    SERVER_DENY = 2
    SERVER_ASK = 3
    SERVER_ALLOW = 4
    GLOBAL_ASK = 5
    GLOBAL_ALLOW = 6
    DEFAULT = 7

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", " ")


_TIERS: Final[dict[tuple[bool, Action], Tier]] = {
    (False, "deny"): Tier.GLOBAL_DENY,
    (True, "deny"): Tier.SERVER_DENY,
    (True, "ask"): Tier.SERVER_ASK,
    (True, "allow"): Tier.SERVER_ALLOW,
    (False, "ask"): Tier.GLOBAL_ASK,
    (False, "allow"): Tier.GLOBAL_ALLOW,
}


def tier_of(rule: Rule) -> Tier:
    return _TIERS[rule.server is not None, rule.action]


By = Literal["rule", "default", "person", "remembered", "nobody", "auto-allow", "trust"]


class Decision(Struct, frozen=True):
    """The decision about an act, and its reason."""

    act: Subject
    action: Action
    tier: Tier
    rule: Rule | None
    """The rule that decided; None for the default."""
    is_certain: bool = True
    """False where the rule fits perhaps, and holds to be on the safe side."""
    by: By = "rule"
    """The source. Beyond rules and the default: a person asked just now, one asked before whose answer stands, or, where
    nobody could be asked, the setting for that case. "trust" is a finding or the flow of data that is set to refuse."""
    reasons: tuple[str, ...] = ()
    """Why a person is asked although the rules allow it, or what else they should know: findings, and the flow of data."""

    @property
    def is_allowed(self) -> bool:
        return self.action == "allow"

    @property
    def is_denied(self) -> bool:
        return self.action == "deny"

    def with_reasons(self, reasons: tuple[str, ...]) -> Decision:
        """The same where there are reasons to ask: an allow becomes an ask."""
        if not reasons or self.is_denied:
            return self
        return structs.replace(self, action="ask", reasons=reasons)

    def unattended(self, *, auto_allow: bool = False) -> Decision:
        """The same where no person can be asked (R245): an ask becomes a deny, or an allow if that was asked for.

        A setting never answers a server's question to a person, nor a question about what was found.
        """
        if self.action != "ask":
            return self
        if auto_allow and self.act.kind == "tool" and not self.reasons:
            return structs.replace(self, action="allow", by="auto-allow")
        return structs.replace(self, action="deny", by="nobody")

    @property
    def because(self) -> str:
        """The rule in one line: tier, pattern, source (R240)."""
        if self.rule is None:
            return "no rule matches it, and the default is ask"
        certain = "" if self.is_certain else ", which fits perhaps"
        return f"{self.tier.label} {self.rule.text}{certain} ({self.rule.source})"

    @property
    def refusal(self) -> str:
        """The message for the model about a call that is not made."""
        if self.reasons and self.by in ("nobody", "trust"):
            why = "and nobody is here to ask" if self.by == "nobody" else "and this host refuses such calls"
            return f"{self.act} was not called, {why}: {'; '.join(self.reasons)}. Do not try another way."
        if self.by == "nobody" and self.act.kind != "tool":
            return f"{self.act} needs a person to answer, and nobody is here."
        if self.by == "nobody":
            rule = self.act.names[-1]  # the catalog may call it by a name that is no rule
            return (
                f"{self.act} needs a person's consent ({self.because}), and nobody is here to ask. "
                f'To allow it, add allow = ["{rule}"] under [permissions] in mcp.toml, run with --allow {rule}, '
                f'or pass allow=["{rule}"] to Host.'
            )
        if self.by in ("person", "remembered"):
            return f"{self.act} was refused by the person at the keyboard. Do not try it again unless they ask for it."
        reason = self.rule.reason if self.rule is not None else ""
        return f"{self.act} is denied by a rule: {self.because}.{f' {reason}' if reason else ''}"

    def to_json(self) -> dict[str, Json]:
        return {
            "act": self.act.name,
            "kind": self.act.kind,
            "server": self.act.server,
            "action": self.action,
            "tier": int(self.tier),
            "tier_name": self.tier.label,
            "by": self.by,
            "certain": self.is_certain,
            "rule": None if self.rule is None else rule_to_json(self.rule),
            **({"reasons": list(self.reasons)} if self.reasons else {}),
        }


def rule_to_json(rule: Rule) -> dict[str, Any]:
    source = rule.source
    fields = {
        "action": rule.action,
        "pattern": rule.text,
        "compiled": str(rule.pattern),
        "server": rule.server,
        "source": {"kind": source.kind, "where": source.where, "key": source.key},
    }
    more = {"comment": rule.comment, "reason": rule.reason, "expires_at": rule.expires_at}
    return {**fields, **{key: value for key, value in more.items() if value}}


class _Candidate(NamedTuple):
    """A rule whose name matches, and its two possible decisions."""

    rule: Rule
    certain: Decision
    perhaps: Decision | None
    quick: tuple[str, str] | None
    """An argument, and how it must begin if it is a plain text: most rules are done with that."""


class _KnownRules(NamedTuple):
    """The rules about one act: those that depend on its arguments, in order, then the decision without them."""

    conditional: tuple[_Candidate, ...]
    otherwise: Decision


@final
class Policy:
    """The rules, in order. Immutable; safe to use from several threads.

    Args:
        applies: Whether a rule that names its callers is for the caller of this policy; None where nobody knows.
    """

    __slots__ = ("_known", "_knows_caller", "rules")

    def __init__(self, rules: Iterable[Rule] = (), *, applies: Callable[[Rule], bool] | None = None) -> None:
        self._knows_caller = applies is not None
        if applies is not None:
            rules = [rule for rule in rules if not rule.callers or applies(rule)]
        # Stable: within tier and source the written order stays.
        self.rules: Final = tuple(sorted(rules, key=lambda rule: (tier_of(rule), rule.source.rank)))
        """In the order they are asked."""
        self._known: dict[Subject, _KnownRules] = {}

    def decide(self, act: Subject, arguments: Mapping[str, object] | None = None) -> Decision:
        """The decision about a call with these arguments; None means no arguments (R276)."""
        known = self._known.get(act)
        if known is None:
            known = self._learn(act)
        if known.conditional:
            known_arguments = _NO_ARGUMENTS if arguments is None else arguments
            plain: dict[str, str | None] = {}
            for candidate in known.conditional:
                if candidate.quick is not None:
                    key, start = candidate.quick
                    text = plain[key] if key in plain else plain.setdefault(key, plain_text(known_arguments.get(key)))
                    if text is not None and not text.startswith(start):
                        continue
                fit = candidate.rule.pattern.fit_arguments(act, known_arguments)
                if fit is Match.YES:
                    return candidate.certain
                if fit is not Match.NO and candidate.perhaps is not None:
                    return candidate.perhaps
        return known.otherwise

    def deciding(self, act: Subject) -> tuple[Rule, ...]:
        """The rules that can decide about it with some arguments, in order."""
        conditional, otherwise = self._known.get(act) or self._learn(act)
        last = () if otherwise.rule is None else (otherwise.rule,)
        return (*(candidate.rule for candidate in conditional), *last)

    def _learn(self, act: Subject) -> _KnownRules:
        if len(self._known) >= _MOST_KEPT:
            self._known.clear()
        self._known[act] = known = self._work_out(act)
        return known

    def _work_out(self, act: Subject) -> _KnownRules:
        conditional: list[_Candidate] = []
        for rule in self.rules:
            is_certain = self._knows_caller or not rule.callers
            if not rule.fits_name(act) or (rule.action == "allow" and not is_certain):
                continue
            certain = Decision(act, rule.action, tier_of(rule), rule, is_certain)
            if not rule.pattern.has_conditions:
                return _KnownRules(tuple(conditional), certain)
            perhaps = None if rule.action == "allow" else structs.replace(certain, is_certain=False)
            conditional.append(_Candidate(rule, certain, perhaps, _quick(rule, act)))
        return _KnownRules(tuple(conditional), Decision(act, "ask", Tier.DEFAULT, None, by="default"))


def _quick(rule: Rule, act: Subject) -> tuple[str, str] | None:
    pattern = rule.pattern
    if pattern.main is not None:
        return None if act.main is None or not pattern.main.start else (act.main, pattern.main.start)
    return next(((key, glob.start) for key, glob in pattern.keys if "." not in key and glob.start), None)
