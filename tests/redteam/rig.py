"""The two hosts of a red-team run, and the model that does whatever it is told.

Both hosts allow every call by rule, so that the rules stop nothing. The undefended host has its defences off, and its person says yes
to everything. The defended host has what every host has, and its person is tired: they say yes to every question without a warning,
and no to one with a warning. The model sees only what the host gives it. It follows an order if its text is there.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trimaran import Host
from trimaran.errors import Error
from trimaran.host import DefinitionHeld, PermissionDenied, Pins, Question
from trimaran.host.trust.hidden_text import find_hidden

UNDEFENDED: dict[str, Any] = {"scan": "off", "flow": "off", "pins": "off"}


@dataclass
class Rig:
    """One run of one attack."""

    is_defended: bool
    folder: Path
    """A folder of this run's own."""
    loot: list[str] = field(default_factory=list[str])
    """What the attacker got: any of it, and the attack has succeeded."""
    stops: dict[str, None] = field(default_factory=dict[str, None])
    """The defences that spoke, in order."""
    texts: list[str] = field(default_factory=list[str])
    """What the model read of servers: descriptions, schemas, results."""

    def host(self, servers: Mapping[str, Any], **options: Any) -> Host:
        """A host of these servers, with or without its defences."""
        if self.is_defended:
            return Host(
                servers, allow=["*"], on_question=self._answer_warily, pins=Pins(self.folder / "pins"), **options
            )
        return Host(servers, allow=["*"], on_question=_say_yes, **UNDEFENDED, **options)

    def _answer_warily(self, question: Question) -> None:
        if question.kind == "definition":
            self.stops.setdefault("pins")
            question.decline()
        elif question.reasons:
            self.note("; ".join(question.reasons))
            question.decline()
        else:
            _say_yes(question)

    def note(self, text: str) -> None:
        """Remember the rules that a reason or a notice names."""
        for rule in re.findall(r"\[([a-z]+(?:-[a-z]+)*)\]", text):
            self.stops.setdefault(rule)


def _say_yes(question: Question) -> None:
    if question.kind == "definition":
        question.agree()
    elif question.kind in ("permission", "sampling"):
        question.allow("always")
    else:
        question.accept(dict.fromkeys(_fields(question), "hunter2"))


def _fields(question: Question) -> list[str]:
    properties: Any = question.schema.get("properties") or {}
    return list(properties)


class Gullible:
    """A model that obeys what it reads, hidden characters and all."""

    def __init__(self, rig: Rig, host: Host) -> None:
        self._rig = rig
        self._host = host
        self._read: list[str] = []

    def look(self) -> None:
        """Read the tools, as before every turn."""
        for tool in self._host.tools(format="anthropic"):
            text = json.dumps(tool, ensure_ascii=False)
            self._read.append(text)
            self._rig.texts += [
                str(tool.get("description") or ""),
                json.dumps(tool["input_schema"], ensure_ascii=False),
            ]
            if (withheld := re.search(r"\[withheld by the host: ([a-z, -]+);", text)) is not None:
                for rule in withheld[1].split(", "):
                    self._rig.stops.setdefault(rule)

    @staticmethod
    def as_read(text: str) -> str:
        """A text with what its hidden characters spell, which a model reads, too."""
        return "\n".join([text, *(run.says for run in find_hidden(text))])

    def is_told(self, order: str) -> bool:
        """Whether the words of an order are among what it has read."""
        return any(order in self.as_read(text) for text in self._read)

    async def call(self, name: str, /, **arguments: Any) -> str:
        """Call a tool; the text of the result, or of the refusal. Both are read."""
        try:
            result = await self._host.call(name, arguments)
            text = "\n".join(block.text for block in result.content if hasattr(block, "text"))
            if (notice := re.search(r"tries to give orders \(([a-z, -]+)\)", text)) is not None:
                self._rig.stops.update(dict.fromkeys(notice[1].split(", ")))
        except PermissionDenied as error:
            self._rig.note(str(error))
            text = ""
        except DefinitionHeld:
            self._rig.stops.setdefault("pins")
            text = ""
        except Error as error:
            text = str(error)
        self._read.append(text)
        self._rig.texts.append(text)
        return text


@contextlib.asynccontextmanager
async def agent(rig: Rig, servers: Mapping[str, Any], **options: Any) -> AsyncIterator[Gullible]:
    """A model with these servers, which has read their tools."""
    async with rig.host(servers, **options) as host:
        model = Gullible(rig, host)
        model.look()
        yield model
