"""What a host lets happen, and whom it asks: calls of tools, servers that want to know something, or to use our model.

The rules decide (`permissions/`), a person answers where they say ask (`consent.py`), and both are written down. Nothing is
done on anything but a yes: no answer, an answer too late, nobody there and a person who left are all noes.

An answer is about the server that it was asked for. One that is given after another took that server's name allows nothing.
A page that a server wants visited is a web page, or nobody is asked: what else a system opens by a URL may do anything.
"""

from __future__ import annotations

import copy
import inspect
import logging
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, final
from urllib.parse import urlsplit

from msgspec.structs import replace

from trimaran.errors import Error, LocalProtocolError, ProtocolError
from trimaran.types import Tool

from .consent import Bridge, ConsentLost, Question
from .permissions import Act, Decision, Gate, Recorder, Tier

if TYPE_CHECKING:
    from trimaran.client import Elicitation, Sampling

__all__ = ["Asking", "PermissionDenied"]

log: Final = logging.getLogger("trimaran.host")

_WEB: Final = re.compile(r"https?://[^\s/?#\\]", re.IGNORECASE)


class PermissionDenied(Error):
    """A call was not made: a rule forbids it, a person said no, or nobody could be asked. The message is for the model."""

    kind = "permission_denied"

    def __init__(self, decision: Decision, note: str = "") -> None:
        super().__init__(decision.refusal + (f" ({note})" if note else ""))
        self.decision = decision


@final
class Asking:
    """Between the servers of a host, its rules and its person.

    Args:
        on_sample: Called with (server, Sampling), once that is allowed.
        safe: The safe name of a server, where it has one of its own here.
    """

    def __init__(
        self,
        gate: Gate,
        bridge: Bridge | None,
        *,
        audit: Recorder | None = None,
        on_sample: Callable[[str, Sampling], Any] | None = None,
        safe: Callable[[str], str | None] = lambda server: None,
    ) -> None:
        self._gate = gate
        self._safe = safe
        self._bridge = bridge
        self._audit = audit
        self._on_sample = on_sample
        self._sampling: dict[str, bool] = {}
        """What a person said for good about servers that want to use our model."""
        self._replaced: dict[str, int] = {}
        """How often a name was given up: an answer that took longer is about a server that is gone."""
        self._lost: dict[str, ConsentLost] = {}
        """For each server, the last of its questions whose person left."""

    @property
    def _is_attended(self) -> bool:
        return self._bridge is not None and self._bridge.is_attended

    def _decide(self, act: Act, arguments: Mapping[str, Any] | None) -> Decision:
        self._gate.attended = self._is_attended
        return self._gate.decide(act, arguments)

    async def permit(self, act: Act, tool: Tool, arguments: dict[str, Any]) -> None:
        """Returns if the call may be made.

        Raises:
            PermissionDenied: it may not.
            ConsentLost: whoever was asked left.
            LocalProtocolError: another server took the name while a person was asked.
        """
        decision = self._decide(act, arguments)
        note = ""
        if decision.action == "ask":
            asked = Question(
                "permission",
                act.server,
                f"Call {act.name}?",
                tool=act.name,
                arguments=copy.deepcopy(arguments),  # whoever shows them cannot change what is sent
                decision=decision,
                request=tool,
            )
            before = self._replaced.get(act.server, 0)
            question = await self._ask(asked, decision, arguments)
            if before != self._replaced.get(act.server, 0) and _is_yes(question):
                self._record(replace(decision, action="deny", by="nobody"), arguments)
                raise LocalProtocolError.invalid_params(
                    f"the server {act.server!r} was replaced while it was decided whether {act} may be called; call it anew"
                )
            decision, note = self._settle(decision, question, arguments), question.note
        if not decision.is_allowed:
            raise PermissionDenied(decision, note)

    def forbid(self, act: Act, arguments: Mapping[str, Any]) -> None:
        """PermissionDenied where a rule forbids the call for certain, whatever may come to be known of the tool."""
        decision = self._gate.explain(act, arguments).decision
        if decision.is_denied and decision.is_certain:
            self._record(decision, arguments)
            raise PermissionDenied(decision)

    def _record(self, decision: Decision, arguments: Mapping[str, Any] | None = None) -> Decision:
        if self._audit is not None:
            self._audit.record(decision, arguments)
        return decision

    async def _ask(
        self, question: Question, decision: Decision, arguments: Mapping[str, Any] | None = None
    ) -> Question:
        """Put a question; where whoever was to answer left, that is a no, and is written down as one."""
        assert self._bridge is not None
        try:
            return await self._bridge.ask(question)
        except ConsentLost:
            self._record(replace(decision, action="deny", by="nobody"), arguments)
            raise

    def _settle(self, decision: Decision, question: Question, arguments: Mapping[str, Any] | None) -> Decision:
        """The decision after a question. What nobody answered is denied, and no setting changes that."""
        if question.note:
            return self._record(replace(decision, action="deny", by="nobody"), arguments)
        answer: Any = question.reply
        if question.kind in ("elicit", "url"):
            answer = "allow once" if question.reply == "accept" else "deny"
        return self._gate.settle(decision, answer, arguments, pattern=question.pattern)

    def forget(self, server: str) -> None:
        """Another server may come under this name: what was allowed for good was not about that one. Denials stand."""
        self._replaced[server] = self._replaced.get(server, 0) + 1
        self._lost.pop(server, None)
        self._gate.standing.forget(server, action="allow")
        if self._sampling.get(server):
            del self._sampling[server]

    # --- servers -----------------------------------------------------------------------------------------------------

    def handlers(self, server: str) -> dict[str, Any]:
        """What a server may ask of us (R261): a person only where there can be one, our model only where we have one."""
        made: dict[str, Any] = {}

        async def on_elicit(ask: Elicitation) -> Any:
            return await self._elicit(server, ask)

        async def on_sample(ask: Sampling) -> Any:
            return await self._sample(server, ask)

        if self._bridge is not None:
            made["on_elicit"] = on_elicit
        if self._on_sample is not None and (self._bridge is not None or self._gate.auto_allow):
            made["on_sample"] = on_sample
        return made

    async def _ask_for_server(self, question: Question, decision: Decision) -> Question:
        """As `_ask`; a server whose person left is told so by an error."""
        try:
            return await self._ask(question, decision)
        except ConsentLost as error:
            self._lost[question.server] = error
            raise ProtocolError.internal_error(str(error)) from None

    def lost(self, server: str) -> ConsentLost | None:
        """The last question of this server whose person left before answering."""
        return self._lost.get(server)

    async def _elicit(self, server: str, ask: Elicitation) -> Any:
        """A server's question to the person. A rule may forbid it, and then nobody sees it (R260)."""
        if ask.mode == "url" and not _is_web(ask.url or ""):
            log.warning(
                "the server %r wants a page visited that is no web page (%r...), and was declined",
                server,
                (ask.url or "").partition(":")[0][:20],
            )
            return ask.decline()
        decision = self._decide(Act.elicit(server, safe=self._safe(server) or ""), None)
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
            ),
            decision,
        )
        if decision.action == "ask":
            self._settle(decision, question, None)
        if question.reply == "accept":
            return ask.accept(question.content)
        return ask.cancel() if question.reply == "cancel" else ask.decline()

    async def _sample(self, server: str, ask: Sampling) -> Any:
        """A server wants to use our model: a person allows it, each time or for good. None: no."""
        assert self._on_sample is not None
        if not await self._may_sample(server, ask):
            return None
        made = self._on_sample(server, ask)
        return await made if inspect.isawaitable(made) else made

    async def _may_sample(self, server: str, ask: Sampling) -> bool:
        if (said := self._sampling.get(server)) is not None:
            return self._sampled(server, said, "remembered")
        if not self._is_attended:
            is_allowed = self._gate.auto_allow
            return self._sampled(server, is_allowed, "auto-allow" if is_allowed else "nobody")
        asking = Decision(Act.sample(server), "ask", Tier.DEFAULT, None, by="default")
        before = self._replaced.get(server, 0)
        question = await self._ask_for_server(Question("sampling", server, ask.text, request=ask), asking)
        is_replaced = before != self._replaced.get(server, 0)
        is_allowed = _is_yes(question) and not is_replaced
        if question.reply == "deny always" or (question.reply == "allow always" and not is_replaced):
            self._sampling[server] = is_allowed
        return self._sampled(server, is_allowed, "nobody" if question.note or is_replaced else "person")

    def _sampled(
        self, server: str, is_allowed: bool, by: Literal["person", "remembered", "nobody", "auto-allow"]
    ) -> bool:
        act = Act.sample(server)
        self._record(Decision(act, "allow" if is_allowed else "deny", Tier.DEFAULT, None, by=by))
        return is_allowed


def _is_yes(question: Question) -> bool:
    return question.reply in ("accept", "allow once", "allow always")


def _is_web(url: str) -> bool:
    if _WEB.match(url) is None or not url.isprintable():
        return False
    try:
        return bool(urlsplit(url).hostname)  # what a person is to look at before they say yes
    except ValueError:
        return False
