"""The flow of data through one conversation: what came in by which tool, and when a call must ask for it.

Pure. An attacker's words, private data and a way out are harmless in pairs and dangerous together: the words make the model
carry the data out. A host sees all three pass. So a conversation remembers which tools brought private data, and which brought
words of strangers; once both are there, a call that can reach outside asks, and says by which way the data came.

Words that were found to give orders (`scan.py`) tighten it. After grave ones every call asks, because the model has read them;
after lesser ones a call that acts or reaches outside does.

    one conversation = one host, unless `call` and `answer` are given the names of several

It forgets nothing by itself: what a model has read it has read. `clear` is for a conversation that begins anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Final, final

from msgspec import Struct

from trimaran.types import Json

from ..config.model import Touch
from .scan import ScanFinding
from .scan_rules import Severity

_MOST_NAMED: Final = 4  # tools in one sentence
_MOST_ARRIVALS: Final = 256  # of one conversation; the labels stay when the list is full
_MOST_CONVERSATIONS: Final = 1024  # of one host; the one that was used longest ago is forgotten


@final
class Arrival(Struct, frozen=True, kw_only=True):
    """A result that came into a conversation."""

    tool: str
    touches: frozenset[Touch]
    findings: tuple[ScanFinding, ...] = ()

    def to_json(self) -> dict[str, Json]:
        return {"tool": self.tool, "touches": sorted(self.touches), "findings": [item.id for item in self.findings]}


@final
class DataFlow:
    """The data that a model has read so far. Not for several threads at once."""

    def __init__(self, name: str = "") -> None:
        self.name: Final = name
        self.arrivals: list[Arrival] = []
        """The arrivals, the oldest first; at most 256."""
        self._by_touch: dict[Touch, dict[str, None]] = {}
        self._orders: dict[Severity, dict[tuple[str, str, str], ScanFinding]] = {"ask": {}, "warn": {}}

    def __repr__(self) -> str:
        touches = ", ".join(sorted(self._by_touch)) or "nothing"
        return f"<DataFlow {self.name!r}: {touches}, {sum(map(len, self._orders.values()))} findings>"

    def add(self, tool: str, touches: frozenset[Touch], findings: Sequence[ScanFinding] = ()) -> None:
        """A result of this tool was given to the model."""
        for touch in ("private", "untrusted"):
            if touch in touches:
                self._name(touch, tool)
        grave = tuple(item for item in findings if item.severity != "note")
        for item in grave:
            self._name("untrusted", tool)
            known = self._orders[item.severity]  # apart, so that lesser findings leave room for grave ones
            if len(known) < _MOST_ARRIVALS:
                known.setdefault((tool, item.id, item.excerpt), item)
        if (touches or grave) and len(self.arrivals) < _MOST_ARRIVALS:
            self.arrivals.append(Arrival(tool=tool, touches=touches, findings=grave))

    def _name(self, touch: Touch, tool: str) -> None:
        tools = self._by_touch.setdefault(touch, {})
        if len(tools) < _MOST_ARRIVALS:
            tools.setdefault(tool)

    @property
    def touched(self) -> frozenset[Touch]:
        """The kinds of data in the conversation: private data, untrusted content, or both."""
        return frozenset(self._by_touch)

    def orders(self, touches: frozenset[Touch] | None) -> list[str]:
        """Why a call asks because of words that the model has read, in sentences.

        Args:
            touches: The things that the call touches; None if nothing is known of it. A call that is configured to touch nothing
                does not ask.
        """
        if touches is not None and not touches:
            return []
        can_harm = touches is None or bool(touches & {"outside", "acts"})
        sentences: dict[str, None] = {}
        for severity in ("ask", "warn") if can_harm else ("ask",):
            for (tool, _, _), item in self._orders[severity].items():
                sentences.setdefault(f"the result of {tool} {item.message} [{item.id}]: “{item.excerpt}”")
        return list(sentences)[:_MOST_NAMED]

    def leak(self, tool: str, touches: frozenset[Touch]) -> str:
        """Why a call asks because of where its data may go; empty if it need not."""
        if "outside" not in touches or not self.touched >= {"private", "untrusted"}:
            return ""
        private, untrusted = (_named(self._by_touch[touch]) for touch in ("private", "untrusted"))
        return (
            f"{tool} can send data outside, and this conversation holds private data (from {private}) beside "
            f"content of strangers (from {untrusted}), which may have told the model to send it [flow]"
        )

    def clear(self) -> None:
        """Forget everything: the model's context was emptied too."""
        self.arrivals.clear()
        self._by_touch.clear()
        for known in self._orders.values():
            known.clear()

    def to_json(self) -> dict[str, Json]:
        return {"name": self.name, "arrivals": [arrival.to_json() for arrival in self.arrivals]}


@final
class DataFlows:
    """The conversations of one host, by name."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, DataFlow] = OrderedDict()

    def get(self, name: str = "") -> DataFlow:
        """The conversation of this name; a new one, if there is none."""
        conversation = self._known.get(name)
        if conversation is None:
            conversation = self._known[name] = DataFlow(name)
            if len(self._known) > _MOST_CONVERSATIONS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(name)
        return conversation


def _named(tools: Iterable[str]) -> str:
    names = list(tools)
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
