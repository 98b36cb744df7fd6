"""A person's standing answers: "allow always", "deny always".

No I/O: it lives and ends with the session, and nothing of it is written anywhere. The order of R239 stays as it is. An
answer settles a question: an allow counts only where the rules end in ask, so it never outvotes a deny; a deny counts
before everything, as one more global deny does. "Once" is not remembered at all: the decision that comes back is the permit.

An allow for one tool is bound to the definition the person saw. A server that describes the tool differently later, or
gives it other arguments, has a tool that nobody allowed, and the question is asked again.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, final, get_args

from msgspec import structs

from trimaran.errors import ConfigError

from .globs import Glob, Match
from .patterns import Pattern, RuleError, parse_pattern
from .policy import Decision, Tier
from .rules import Action, Rule, RuleSource
from .subjects import Subject

Answer = Literal["allow once", "allow always", "deny", "deny always"]

_SOURCE = RuleSource("session", "this session")


class _Remembered(NamedTuple):
    rule: Rule
    server: str
    definition: str | None
    """None where the answer was about more than one tool."""


@final
class RememberedAnswers:
    """The answers that stand. Not for several threads at once."""

    def __init__(self) -> None:
        self._answers: list[_Remembered] = []

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The answers as rules, the newest first."""
        return tuple(answer.rule for answer in reversed(self._answers))

    def settle(
        self, decision: Decision, answer: Answer, arguments: Mapping[str, object] | None = None, *, pattern: str = ""
    ) -> Decision:
        """The decision after a person's answer to it.

        Args:
            arguments: of the call, as in `Policy.decide`.
            pattern: what "always" is about, as a rule; without one, the tool, whatever its arguments. It must match the
                call it answers.
        """
        if answer not in get_args(Answer):
            raise ConfigError(f"no such answer: {answer!r}; there are {', '.join(get_args(Answer))}")
        action: Action = "allow" if answer.startswith("allow") else "deny"
        if decision.is_denied and action == "allow":
            raise ConfigError(f"{decision.act} is denied, and no answer changes that: {decision.because}")
        settled = structs.replace(decision, action=action, by="person")
        if answer.endswith("always"):
            rule = Rule(action, self._pattern(decision.act, arguments, pattern), _SOURCE)
            is_one = rule.pattern.name.is_plain and rule.pattern.kind == "tool"
            self._answers.append(_Remembered(rule, decision.act.server, decision.act.definition if is_one else None))
        return settled

    def denies(self, act: Subject, arguments: Mapping[str, object] | None = None) -> Decision | None:
        """The deny that stands against it, if one does."""
        rule = self._find("deny", act, arguments)
        return None if rule is None else Decision(act, "deny", Tier.GLOBAL_DENY, rule, by="remembered")

    def allows(self, decision: Decision, arguments: Mapping[str, object] | None = None) -> Decision:
        """The decision, or an allow in its place where it is a question that has been answered."""
        if decision.action != "ask" or (rule := self._find("allow", decision.act, arguments)) is None:
            return decision
        return structs.replace(decision, action="allow", rule=rule, is_certain=True, by="remembered")

    def withdraw(self, rule: Rule) -> None:
        """Take one answer back; the question is asked again."""
        self._answers = [answer for answer in self._answers if answer.rule is not rule]

    def forget(self, server: str | None = None, *, action: Action | None = None) -> None:
        """Take back all that was answered about a server, or about any: for one that was configured again.

        Args:
            action: only the answers of this kind. A denial may be about more than the server that it was given for.
        """
        self._answers = [
            answer
            for answer in self._answers
            if (server is not None and answer.server != server) or (action is not None and answer.rule.action != action)
        ]

    def _find(self, action: Action, act: Subject, arguments: Mapping[str, object] | None) -> Rule | None:
        needed = Match.YES if action == "allow" else Match.PERHAPS
        for rule, _, definition in reversed(self._answers):
            if rule.action != action or (action == "allow" and definition not in (None, act.definition)):
                continue
            if rule.pattern.fits_name(act) and rule.pattern.fit_arguments(act, arguments or {}) >= needed:
                return rule
        return None

    def _pattern(self, act: Subject, arguments: Mapping[str, object] | None, text: str) -> Pattern:
        if not text:
            if act.kind == "elicit":
                return Pattern("elicit", Glob([act.server]))
            return Pattern("tool", Glob([act.name]))
        pattern = parse_pattern(text)
        if not pattern.fits_name(act) or pattern.fit_arguments(act, arguments or {}) is not Match.YES:
            raise RuleError(f"this rule does not match {act}, the call that the person answered for", text, 0)
        return pattern
