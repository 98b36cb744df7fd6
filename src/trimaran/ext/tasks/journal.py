"""The questions and steps of a resumable task, kept in its record, so that its body can run again after a crash.

    begun      steps that may have begun, with an unknown outcome
    steps      the outcome of steps that ended: a result or an exception
    asked      every question, by key, with a digest of its content
    answers    the client's answers to them, by the same key

A step is written into `begun` before it runs and moves to `steps` when it has. So a body that runs again meets the results of
all that was done, and a step in `begun` when nobody runs it is one of which it is not known whether it was done: nothing but a
person can tell, and the task fails.

It differs from the journal of a call (`protocol/journal.py`) in that it need not travel, and in `begun`: a call that fails half
way is its client's to repeat, a task is nobody's.

The answers of any task pass through here, on their way from the process that was brought them to the one that asked.
"""

from __future__ import annotations

from typing import Any, Final, final

import msgspec
from msgspec import Struct, field

from trimaran.errors import Error, ProtocolError, ToolError
from trimaran.protocol.journal import InputRequest

MAX_JOURNAL_BYTES: Final = 1_000_000
"""The whole journal is written with every step: beyond this size the store would do little else."""


class JournalFull(Error):
    """The journal is too large."""


@final
class JournalReply(Struct, frozen=True, omit_defaults=True):
    """The outcome of a step or a question: a value, or an error."""

    value: Any = None
    code: int | None = None
    """The code of a ProtocolError."""
    message: str | None = None
    data: Any = None
    kind: str = ""
    """Of any other exception: its class."""

    @classmethod
    def raised(cls, error: Exception) -> JournalReply:
        if isinstance(error, ProtocolError):
            return cls(code=error.code, message=error.message, data=_plain(error.data))
        if isinstance(error, ToolError):
            return cls(kind="ToolError", message=str(error), data=_plain(error.content))
        return cls(kind=type(error).__name__, message=str(error))

    def get(self) -> Any:
        """The value. An error is raised again, as far as it could be stored."""
        if self.code is not None:
            raise ProtocolError(self.code, self.message or "", self.data)
        if self.kind == "ToolError":
            raise ToolError(self.message or "", content=self.data)
        if self.kind:
            raise RuntimeError(f"{self.kind}: {self.message} (raised when this step was run, before it was resumed)")
        return self.value


def _plain(value: Any) -> Any:
    try:
        return msgspec.json.decode(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return None


@final
class TaskJournal(Struct, frozen=True, omit_defaults=True):
    begun: list[str] = field(default_factory=list[str])
    steps: dict[str, JournalReply] = field(default_factory=dict[str, JournalReply])
    asked: dict[str, InputRequest] = field(default_factory=dict[str, InputRequest])
    answers: dict[str, JournalReply] = field(default_factory=dict[str, JournalReply])


EMPTY: Final = TaskJournal()

_decode: Final = msgspec.json.Decoder(TaskJournal).decode


def read_journal(data: bytes) -> TaskJournal:
    """Raises msgspec.MsgspecError if it is not one, as when another version of this library wrote it."""
    return _decode(data) if data else EMPTY


def write_journal(journal: TaskJournal) -> bytes:
    """Raises JournalFull."""
    data = b"" if journal == EMPTY else msgspec.json.encode(journal)
    if len(data) > MAX_JOURNAL_BYTES:
        parts = {f"the result of step {key!r}": reply for key, reply in journal.steps.items()}
        parts |= {f"the answer to {key!r}": reply for key, reply in journal.answers.items()}
        sizes = {label: len(msgspec.json.encode(reply)) for label, reply in parts.items()}
        largest = max(sizes, key=sizes.__getitem__, default="what was asked")
        raise JournalFull(
            f"the journal of this task has grown to {len(data)} bytes, and {MAX_JOURNAL_BYTES} are kept; {largest} takes "
            f"{sizes.get(largest, len(data))} of them: return a handle from a step, and store the rest"
        )
    return data
