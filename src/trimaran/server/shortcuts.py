"""Shortcuts: calls that are only passed on, without a task, a coroutine or an exchange, until something is unusual.

    request -> `Tools.take_shortcut` -> `Shortcut` -> the target ... its answer -> `CallReceiver.receive` -> reply

A call of a tool that lives on another server waits for that server, and does nothing else. The machinery of a waiting call (a
task, a deadline, a watch on its client, signs of life, a stream) costs more than the passing on, and nearly no call needs it.

A call may take a shortcut if nothing has to be decided about it but what can be decided at once, and if its deadline is far.
It leaves the shortcut in one way only: `CallReceiver.promote` makes the usual call of it, with a task, whose handler is
`SentCall.finish`. The request is not sent again: the handler waits for the answer to the one that was sent. That happens when

- the answer is anything but a plain result that came in one read: an error, a question, a stream, another status, a lost
  connection;
- a second has passed (`RunningCalls`), so every deadline, sign of life and limit of slow calls is that of the usual way;
- its client leaves or cancels it, its session ends, or the server stops.

The contracts only. `proxy/shortcuts.py` sends and reads, `transports/relayed_request.py` replies.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from trimaran.errors import ProtocolError
from trimaran.protocol.envelope import Envelope
from trimaran.protocol.inbound import IncomingCall

if TYPE_CHECKING:
    from .context import Context
    from .exchange import Exchange


class CallReceiver(Protocol):
    """Replies to a call that took a shortcut."""

    def receive(self, result: bytes) -> None:
        """Reply with the target's result, which is written as this caller reads it."""
        ...

    def promote(self) -> Exchange | None:
        """Make the usual call of it; None if it is over, or promoted already."""
        ...


class SentCall(Protocol):
    """A call that was sent to its target."""

    def wait(self) -> None:
        """Call back no more: `finish` waits for the answer."""
        ...

    def finish(self, ctx: Context) -> Coroutine[Any, Any, Any]:
        """The handler of the call from its promotion on."""
        ...


class Shortcut(Protocol):
    """Sends a call of one tool at once. None if the call has to take the usual way; nothing has been sent then.

    `envelope` is how structure travels to callers of older revisions.
    """

    def __call__(self, call: IncomingCall, envelope: Envelope | None, receiver: CallReceiver, /) -> SentCall | None: ...


class RunningCall(Protocol):
    """A call at work, as its session ends it."""

    def cancel(self, reason: str | None = None) -> None: ...
    def fail(self, error: ProtocolError) -> None: ...
