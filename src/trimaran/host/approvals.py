"""Approve calls of tools, questions of servers, and servers' use of our model.

The rules decide (`permissions/`), a person answers where the rules say ask (`consent.py`), and the audit log records both.
Only a yes allows anything. No answer, a late answer, no person to ask, and a person who left all deny.

An answer is about one server. If another server takes its name before the answer comes, the answer allows nothing. A person
is asked to visit web pages only, because other kinds of URL may start any program.
"""

from __future__ import annotations

import copy
import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, final

from msgspec.structs import replace

from trimaran.errors import Error, LocalProtocolError, ProtocolError
from trimaran.types import Tool

from .consent import ConsentBridge, ConsentLost, Question, split_as_browsers_do
from .permissions import Decision, DecisionLog, Gate, Subject, Tier
from .trust.nested_texts import texts_in

if TYPE_CHECKING:
    from trimaran.client import Elicitation, Sampling

log: Final = logging.getLogger("trimaran.host")

_MOST_SAMPLED: Final = 25  # uses of our model by "always": more than a tool needs, and fewer than a runaway wants
_WEB: Final = re.compile(r"https?://[^\s/?#\\]", re.IGNORECASE)


class PermissionDenied(Error):
    """A call was not made: a rule forbids it, a person refused, or there was no person to ask. The message is for the model."""

    kind = "permission_denied"

    def __init__(self, decision: Decision, note: str = "") -> None:
        super().__init__(decision.refusal + (f" ({note})" if note else ""))
        self.decision = decision


@final
class Approvals:
    """Decides for a host's servers, by its rules and its person.

    Args:
        on_sample: Called with (server, Sampling) when that is allowed.
        safe: The safe name that the host gives a server, if any.
        look: Called with (server, place, text) for what a server asks; returns warnings about its words.
    """

    def __init__(
        self,
        gate: Gate,
        bridge: ConsentBridge | None,
        *,
        audit: DecisionLog | None = None,
        on_sample: Callable[[str, Sampling], Any] | None = None,
        safe: Callable[[str], str | None] = lambda server: None,
        look: Callable[
            [str, Literal["elicitation", "sampling"], str], tuple[str, ...]
        ] = lambda server, place, text: (),
    ) -> None:
        self._gate = gate
        self._look = look
        self._safe = safe
        self._bridge = bridge
        self._audit = audit
        self._on_sample = on_sample
        self._sampling: dict[str, bool] = {}
        """A person's "always" answers to servers that want to use our model."""
        self._replaced: dict[str, int] = {}
        """The number of times that each name was freed. A change while a question is open means that its server is gone."""
        self._sampled_since: dict[str, int] = {}
        """How often each server used our model since a person was asked."""
        self._accepted: set[tuple[str, str, str, str]] = set()
        """The reasons that a person answered with "always", each for a tool with the definition that they saw."""
        self._lost: dict[str, ConsentLost] = {}
        """For each server, the last of its questions whose person left."""

    @property
    def _is_attended(self) -> bool:
        return self._bridge is not None and self._bridge.is_attended

    @property
    def is_attended(self) -> bool:
        """True if a person can be asked now."""
        return self._is_attended

    def _decide(
        self,
        act: Subject,
        arguments: Mapping[str, object] | None,
        *,
        approved: bool = False,
        reasons: tuple[str, ...] = (),
        refuse: bool = False,
    ) -> Decision:
        self._gate.attended = approved or self._is_attended
        return self._gate.decide(act, arguments, reasons=reasons, refuse=refuse)

    def unanswered(self, act: Subject, reasons: Iterable[str]) -> tuple[str, ...]:
        """Those of the reasons that no person has answered with "always" for this tool."""
        return tuple(
            reason
            for reason in dict.fromkeys(reasons)
            if (act.server, act.name, act.definition, reason) not in self._accepted
        )

    async def permit(
        self,
        act: Subject,
        tool: Tool,
        arguments: dict[str, Any],
        *,
        approved: bool = False,
        reasons: Iterable[str] = (),
        refuse: bool = False,
    ) -> None:
        """Return if the call is allowed.

        Args:
            approved: The person asked for this very call, which answers the question that a rule would ask.
            reasons: Why a person is asked even if the rules allow the call.
            refuse: With reasons, deny instead of asking.

        Raises:
            PermissionDenied: it may not.
            ConsentLost: the person left before answering.
            LocalProtocolError: another server took the name while a person was asked.
        """
        unanswered = () if approved else self.unanswered(act, reasons)
        decision = self._decide(act, arguments, approved=approved, reasons=unanswered, refuse=refuse)
        note = ""
        if decision.action == "ask" and approved:
            decision = self._gate.settle(decision, "allow once", arguments)
        elif decision.action == "ask":
            permission_question = Question(
                "permission",
                act.server,
                f"Call {act.name}?",
                tool=act.name,
                arguments=copy.deepcopy(arguments),  # a dialog must not change the sent arguments
                decision=decision,
                request=tool,
                reasons=decision.reasons,
            )
            before = self._replaced.get(act.server, 0)
            question = await self._ask(permission_question, decision, arguments)
            if before != self._replaced.get(act.server, 0) and _is_yes(question):
                self._record(replace(decision, action="deny", by="nobody"), arguments)
                raise LocalProtocolError.invalid_params(
                    f"the server {act.server!r} was replaced while it was decided whether {act} may be called; call it again"
                )
            decision, note = self._settle(decision, question, arguments), question.note
            if question.reply == "allow always":
                self._accepted.update((act.server, act.name, act.definition, reason) for reason in decision.reasons)
        if not decision.is_allowed:
            raise PermissionDenied(decision, note)

    def forbid(self, act: Subject, arguments: Mapping[str, object]) -> None:
        """Raise PermissionDenied if a rule forbids the call for certain, even before the tool is known."""
        decision = self._gate.explain(act, arguments).decision
        if decision.is_denied and decision.is_certain:
            self._record(decision, arguments)
            raise PermissionDenied(decision)

    def _record(self, decision: Decision, arguments: Mapping[str, object] | None = None) -> Decision:
        if self._audit is not None:
            self._audit.record(decision, arguments)
        return decision

    async def _ask(
        self, question: Question, decision: Decision, arguments: Mapping[str, object] | None = None
    ) -> Question:
        """Ask a question. If the person leaves, record that as a denial."""
        assert self._bridge is not None
        try:
            return await self._bridge.ask(question)
        except ConsentLost:
            self._record(replace(decision, action="deny", by="nobody"), arguments)
            raise

    def _settle(self, decision: Decision, question: Question, arguments: Mapping[str, object] | None) -> Decision:
        """The decision after a question. An unanswered question is denied, and no setting changes that."""
        if question.note:
            return self._record(replace(decision, action="deny", by="nobody"), arguments)
        answer: Any = question.reply
        if question.kind in ("elicit", "url"):
            answer = "allow once" if question.reply == "accept" else "deny"
        return self._gate.settle(decision, answer, arguments, pattern=question.pattern)

    def forget(self, server: str) -> None:
        """Forget the standing permissions under this name, since another server may take it. Denials stay."""
        self._replaced[server] = self._replaced.get(server, 0) + 1
        self._lost.pop(server, None)
        self._accepted = {key for key in self._accepted if key[0] != server}
        self._gate.standing.forget(server, action="allow")
        if self._sampling.get(server):
            del self._sampling[server]

    # --- servers -----------------------------------------------------------------------------------------------------

    def handlers(self, server: str) -> dict[str, Any]:
        """The handlers of a server's requests (R261): for a person if there is a bridge, for our model if there is one."""
        callbacks: dict[str, Any] = {}

        async def on_elicit(ask: Elicitation) -> Any:
            return await self._elicit(server, ask)

        async def on_sample(ask: Sampling) -> Any:
            return await self._sample(server, ask)

        if self._bridge is not None:
            callbacks["on_elicit"] = on_elicit
        if self._on_sample is not None and (self._bridge is not None or self._gate.auto_allow):
            callbacks["on_sample"] = on_sample
        return callbacks

    async def _ask_for_server(self, question: Question, decision: Decision) -> Question:
        """Like `_ask`, but if the person leaves, the server gets an error."""
        try:
            return await self._ask(question, decision)
        except ConsentLost as error:
            self._lost[question.server] = error
            raise ProtocolError.internal_error(str(error)) from None

    def lost(self, server: str) -> ConsentLost | None:
        """The last question of this server whose person left before answering."""
        return self._lost.get(server)

    async def _elicit(self, server: str, ask: Elicitation) -> Any:
        """Ask the person a server's question, unless a rule forbids it (R260)."""
        if ask.mode == "url" and not _is_web(ask.url or ""):
            log.warning(
                "the server %r asks for a visit of something that is not a web page (%r...), and was declined",
                server,
                (ask.url or "").partition(":")[0][:20],
            )
            return ask.decline()
        decision = self._decide(Subject.elicit(server, safe=self._safe(server) or ""), None)
        if decision.is_denied:
            log.info("the server %r asked, and was declined: %s", server, decision.refusal)
            return ask.decline()
        question = await self._ask_for_server(
            Question(
                "url" if ask.mode == "url" else "elicit",
                server,
                ask.message,
                schema=ask.schema,
                url=ask.url,
                request=ask,
                reasons=self._look(server, "elicitation", texts_in([ask.message, ask.schema])),
            ),
            decision,
        )
        if decision.action == "ask":
            self._settle(decision, question, None)
        if question.reply == "accept":
            return ask.accept(question.content)
        return ask.cancel() if question.reply == "cancel" else ask.decline()

    async def _sample(self, server: str, ask: Sampling) -> Any:
        """Let a server use our model if a person allows it, once or for good. None refuses."""
        assert self._on_sample is not None
        if not await self._may_sample(server, ask):
            return None
        answer = self._on_sample(server, ask)
        return await answer if inspect.isawaitable(answer) else answer

    async def _may_sample(self, server: str, ask: Sampling) -> bool:
        reasons = self._look(server, "sampling", texts_in([ask.system_prompt, ask.messages]))
        if (remembered := self._sampling.get(server)) is not None and not (remembered and reasons):
            self._sampled_since[server] = self._sampled_since.get(server, 0) + 1
            if not remembered or self._sampled_since[server] <= _MOST_SAMPLED or not self._is_attended:
                return self._sampled(server, remembered, "remembered")
            reasons = (f"it has used the model {_MOST_SAMPLED} times since you allowed it",)
        if not self._is_attended:
            is_allowed = self._gate.auto_allow and not reasons
            return self._sampled(server, is_allowed, "auto-allow" if is_allowed else "nobody")
        asking = Decision(Subject.sample(server), "ask", Tier.DEFAULT, None, by="default")
        before = self._replaced.get(server, 0)
        self._sampled_since.pop(server, None)
        sampling_question = Question("sampling", server, ask.text, request=ask, reasons=reasons)
        question = await self._ask_for_server(sampling_question, asking)
        is_replaced = before != self._replaced.get(server, 0)
        is_allowed = _is_yes(question) and not is_replaced
        if question.reply == "deny always" or (question.reply == "allow always" and not is_replaced):
            self._sampling[server] = is_allowed
        return self._sampled(server, is_allowed, "nobody" if question.note or is_replaced else "person")

    def _sampled(
        self, server: str, is_allowed: bool, by: Literal["person", "remembered", "nobody", "auto-allow"]
    ) -> bool:
        act = Subject.sample(server)
        self._record(Decision(act, "allow" if is_allowed else "deny", Tier.DEFAULT, None, by=by))
        return is_allowed


def _is_yes(question: Question) -> bool:
    return question.reply in ("accept", "allow once", "allow always")


def _is_web(url: str) -> bool:
    if _WEB.match(url) is None or not url.isprintable():
        return False
    try:
        return bool(split_as_browsers_do(url).hostname)  # the person must see the host of the page
    except ValueError:
        return False
