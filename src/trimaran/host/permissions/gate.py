"""The one place that every act passes on its way to a server: rules, remembered answers, the case without a person, the audit log.

It decides and records; it does not ask. If its decision is an ask, the caller asks a person and passes the
answer to `settle`. Nothing may be sent to a server unless the last decision is an allow.

    decision = gate.decide(act, arguments)
    if decision.action == "ask":
        decision = gate.settle(decision, await ask_the_person(...), arguments)
    if not decision.is_allowed:
        ...                                          # decision.refusal says why
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, final

from msgspec import structs

from .explanation import Explanation, explain
from .policy import Decision, Policy
from .remembered import Answer, RememberedAnswers
from .rules import Rule
from .subjects import Subject


class DecisionLog(Protocol):
    """Keeps decisions. It neither raises nor waits."""

    def record(self, decision: Decision, arguments: Mapping[str, object] | None = None) -> None: ...


@final
class Gate:
    """Decides about acts, for one session of one person."""

    def __init__(
        self,
        policy: Policy,
        *,
        standing: RememberedAnswers | None = None,
        audit: DecisionLog | None = None,
        attended: bool = True,
        auto_allow: bool = False,
    ) -> None:
        """
        Args:
            attended: is there a person to ask? It may change at any time, as they come and go.
            auto_allow: without a person, allow instead of asking (R245). Dangerous, and never the default.
        """
        self.policy = policy
        self.standing: RememberedAnswers = standing if standing is not None else RememberedAnswers()
        self.attended = attended
        self.auto_allow = auto_allow
        self._audit = audit

    def decide(
        self,
        act: Subject,
        arguments: Mapping[str, object] | None = None,
        *,
        reasons: tuple[str, ...] = (),
        refuse: bool = False,
    ) -> Decision:
        """The decision about an act. It is an ask only while there is a person.

        Args:
            reasons: Why a person must be asked even if the rules allow it.
            refuse: With reasons, deny instead of asking.
        """
        decision = self._decide(act, arguments, reasons)
        if refuse and reasons and not decision.is_denied:
            decision = structs.replace(decision, action="deny", by="trust")
        if self._audit is not None:
            self._audit.record(decision, arguments)
        return decision

    def settle(
        self, decision: Decision, answer: Answer, arguments: Mapping[str, object] | None = None, *, pattern: str = ""
    ) -> Decision:
        """The decision after a person's answer; see `RememberedAnswers.settle`."""
        settled = self.standing.settle(decision, answer, arguments, pattern=pattern)
        if self._audit is not None:
            self._audit.record(settled, arguments)
        return settled

    def explain(
        self, act: Subject, arguments: Mapping[str, object] | None = None, *, reasons: tuple[str, ...] = ()
    ) -> Explanation:
        """The rules and remembered answers about an act, and the reasons to ask. Records nothing."""
        denies: list[Rule] = [rule for rule in self.standing.rules if rule.action == "deny"]
        explanation = explain(Policy([*denies, *self.policy.rules]) if denies else self.policy, act, arguments)
        decision = self.standing.allows(explanation.decision, arguments).with_reasons(reasons)
        return structs.replace(explanation, decision=decision)

    def _decide(self, act: Subject, arguments: Mapping[str, object] | None, reasons: tuple[str, ...]) -> Decision:
        denied = self.standing.denies(act, arguments)
        if denied is not None:
            return denied
        decision = self.standing.allows(self.policy.decide(act, arguments), arguments).with_reasons(reasons)
        return decision if self.attended else decision.unattended(auto_allow=self.auto_allow)
