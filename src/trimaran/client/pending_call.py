"""One call that waits for its result: its deadline, the id of its latest request, and its reports of progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, final

import msgspec
from msgspec import Struct, field

from trimaran.protocol.inbound import RequestId
from trimaran.protocol.read_reply import Frame

from .callback_queue import CallbackQueue
from .deadline import Deadline

if TYPE_CHECKING:
    from .peer_session import PeerSession
    from .relaying import Relay


class Progress(Struct):
    token: RequestId = field(name="progressToken")
    progress: float
    total: float | None = None
    message: str | None = None


_decode_progress = msgspec.json.Decoder(Progress).decode


def read_progress(frame: Frame) -> Progress | None:
    """The report in a notification; None if it is malformed."""
    try:
        return _decode_progress(frame.params)  # pyright: ignore[reportArgumentType]
    except (msgspec.DecodeError, UnicodeDecodeError, TypeError):
        return None


@final
class PendingCall:
    """A call, from its first request to its result."""

    # Defaults live on the class: most calls touch few of them.
    progress_queue: CallbackQueue | None = None
    on_id: Callable[[int], None] | None = None
    extension: str | None = None
    """An extension that its requests declare; its result may be of that extension's kind."""
    is_internal: bool = False
    """The client itself made it, for its own ends."""
    id: int = 0
    """The id of its latest request."""
    questions: int = 0
    """How many questions of the server stopped its deadline."""
    session: PeerSession | None = None
    relay: Relay | None = None
    """Whom it is made for, where that is a caller of our own server."""
    task_id: object = None
    """The task that it is about."""

    def __init__(self, method: str, deadline: Deadline, on_progress: Callable[..., Any] | None) -> None:
        self.method: str = method
        self.deadline: Deadline = deadline
        self.on_progress: Callable[..., object] | None = on_progress
        if on_progress is not None:
            self.progress_queue = CallbackQueue()

    def report(self, report: Progress) -> None:
        """Extend the deadline and tell `on_progress`."""
        self.deadline.extend()
        if self.relay is not None:
            self.relay.progress(report)
        if self.progress_queue is not None and self.on_progress is not None:
            size = 0 if report.message is None else len(report.message)
            self.progress_queue.post(self.on_progress, report.progress, report.total, report.message, size=size)
