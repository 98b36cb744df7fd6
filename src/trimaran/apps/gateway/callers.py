"""Who is calling, and what the rules let a caller do.

A caller is known by the subject, the groups and the scopes of what it authenticated with. Rules that name callers
(`to group:dev`) leave one policy for each set of them; a policy is made once for all callers it is the same for.

Nobody can be asked here, so `ask` refuses. A call that no rule matches is allowed while no rule allows anything, unless the
configuration says otherwise: whoever writes down what is allowed means nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, cast, final

from msgspec import structs

from trimaran.host.permissions.callers import Caller, fits_caller
from trimaran.host.permissions.policy import Decision, Policy
from trimaran.host.permissions.rules import Rule
from trimaran.host.permissions.subjects import Subject

from .settings import GatewaySettings

_MOST_POLICIES: Final = 1024
_MOST_CALLERS: Final = 4096


def caller_name(principal: Any) -> str:
    """What a caller is called in logs and audit lines."""
    if principal is None:
        return "anonymous"
    return str(getattr(principal, "subject", None) or "unnamed")


@final
class Access:
    """The rules of a gateway."""

    def __init__(self, rules: Iterable[Rule], settings: GatewaySettings) -> None:
        self.rules: tuple[Rule, ...] = tuple(rules)
        self._groups_claim = settings.groups_claim
        self._groups = settings.groups
        allows = any(rule.action == "allow" for rule in self.rules)
        self.default: Final = settings.default or ("deny" if allows else "allow")
        self._named = tuple(at for at, rule in enumerate(self.rules) if rule.callers)
        self._policies: dict[frozenset[int], Policy] = {}
        # By the identity of the principal, which lives as long as it is here: providers hand out one object per token.
        self._known: dict[int, tuple[Any, Policy]] = {}
        self._everybody = self._policy(Caller())

    def caller(self, principal: Any) -> Caller:
        """The caller, as rules know it."""
        if principal is None:
            return Caller()
        user = str(getattr(principal, "subject", None) or "")
        claims: Mapping[str, Any] = getattr(principal, "claims", None) or {}
        listed: Any = claims.get(self._groups_claim) or ()
        named = [listed] if isinstance(listed, str) else cast("Iterable[Any]", listed)
        groups = {group for group in named if isinstance(group, str)}
        groups |= {group for group, users in self._groups.items() if user and user in users}
        return Caller(user, frozenset(groups), frozenset(getattr(principal, "scopes", None) or ()))

    def is_one_of(self, callers: Iterable[str], principal: Any) -> bool:
        return fits_caller(callers, self.caller(principal))

    def policy(self, principal: Any) -> Policy:
        """The rules that are about a caller."""
        if not self._named or principal is None:
            return self._everybody
        known = self._known.get(id(principal))
        if known is not None and known[0] is principal:
            return known[1]
        policy = self._policy(self.caller(principal))
        if len(self._known) >= _MOST_CALLERS:
            self._known.clear()
        self._known[id(principal)] = (principal, policy)
        return policy

    def _policy(self, caller: Caller) -> Policy:
        fitting = frozenset(at for at in self._named if fits_caller(self.rules[at].callers, caller))
        policy = self._policies.get(fitting)
        if policy is None:
            if len(self._policies) >= _MOST_POLICIES:
                self._policies.clear()
            names = {self.rules[at].callers for at in fitting}
            policy = self._policies[fitting] = Policy(self.rules, applies=lambda rule: rule.callers in names)
        return policy

    def decide(self, principal: Any, act: Subject, arguments: Mapping[str, Any] | None = None) -> Decision:
        """What is to happen with a call: it is allowed, or denied."""
        return self._settle(self.policy(principal).decide(act, arguments))

    def needs_arguments(self, principal: Any, act: Subject) -> bool:
        """Does the decision depend on arguments?"""
        return any(rule.pattern.has_conditions for rule in self.policy(principal).deciding(act))

    def may_see(self, principal: Any, act: Subject) -> bool:
        """Is there a call of it, with some arguments, that is allowed?"""
        if not self.rules:
            return self.default == "allow"
        policy = self.policy(principal)
        if self._settle(policy.decide(act)).is_allowed:
            return True
        return any(rule.action == "allow" for rule in policy.deciding(act))

    def _settle(self, decision: Decision) -> Decision:
        if decision.action != "ask":
            return decision
        if decision.rule is None:
            return structs.replace(decision, action=self.default)
        return structs.replace(decision, action="deny", by="nobody")
