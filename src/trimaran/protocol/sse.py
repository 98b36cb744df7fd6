"""Write and read server-sent events (WHATWG HTML, section 9.2).

Pure: bytes in, events out. The transports reconnect, resume and interpret events.

The reader takes lines ended by CR, LF or CRLF, cut anywhere. Data stays bytes: the JSON decoder behind it is the one
that judges UTF-8. Each byte is looked at once, and what is held is bounded by `max_event_bytes`.

One departure from WHATWG: an event whose data is empty is not returned. In MCP such an event is the priming event of
2025-11-25, which is no message; its `id` and `retry` still arrive in `last_event_id` and `retry`.
"""

from __future__ import annotations

import re
from typing import Final, final

import msgspec

from trimaran.errors import LocalProtocolError, RemoteProtocolError

# One event is one JSON-RPC message: the same bound as one line on stdio.
MAX_EVENT_BYTES: Final = 16 * 1024 * 1024

COMMENT: Final = b": \n\n"
"""Keeps an idle stream alive; every reader ignores it."""

_BOM: Final = b"\xef\xbb\xbf"
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
# Longer is no delay anyone means, and int() itself balks at thousands of digits.
_MAX_RETRY_DIGITS: Final = 12


@final
class SseEvent(msgspec.Struct, frozen=True):
    data: bytes
    event: str = "message"
    id: str = ""
    """The last event id of the stream when this event ended, set by this event or an earlier one."""


def encode_event(data: bytes, *, event: str | None = None, id: str | None = None, retry: int | None = None) -> bytes:
    """Write one event; line breaks in the data become several `data` lines.

    Raises:
        LocalProtocolError: `event` or `id` holds a line break, or `id` holds NUL.
    """
    if event is None and id is None and retry is None and b"\n" not in data and b"\r" not in data:
        return b"data: " + data + b"\n\n"
    head = b""
    if event is not None:
        head += b"event: " + _field("event", event) + b"\n"
    if id is not None:
        head += b"id: " + _field("id", id) + b"\n"
    if retry is not None:
        head += b"retry: %d\n" % retry
    return head + b"".join(b"data: " + line + b"\n" for line in _LINE_END.split(data)) + b"\n"


def encode_priming(id: str, retry: int | None = None) -> bytes:
    """Write the event that only gives a client an id to resume from: an id and empty data."""
    return encode_event(b"", id=id, retry=retry)


def _field(name: str, value: str) -> bytes:
    if "\n" in value or "\r" in value or "\0" in value:
        raise LocalProtocolError.internal_error(f"an SSE {name} cannot hold a line break or NUL: {value!r}")
    return value.encode()


@final
class SSEParser:
    """Read a stream of events; one parser per connection.

    `last_event_id` and `retry` (milliseconds) follow the stream, whether or not an event was returned.
    """

    __slots__ = (
        "_after_cr",
        "_at_start",
        "_data",
        "_event",
        "_failure",
        "_id",
        "_limit",
        "_partial",
        "last_event_id",
        "retry",
    )

    def __init__(self, max_event_bytes: int = MAX_EVENT_BYTES, *, last_event_id: str = "") -> None:
        self._limit = max_event_bytes
        self._partial = bytearray()
        self._data = bytearray()
        self._event = ""
        self._id = last_event_id
        self._at_start = True
        self._after_cr = False
        self._failure: RemoteProtocolError | None = None
        self.last_event_id: str = last_event_id
        self.retry: int | None = None

    def feed(self, chunk: bytes) -> list[SseEvent]:
        """Take the next bytes; return the events they complete.

        Raises:
            RemoteProtocolError: an event is too large. Events completed before it are returned first, and the
                error comes with the next call; after it the parser stays failed.
        """
        if self._failure is not None:
            raise self._failure
        events: list[SseEvent] = []
        try:
            self._read(chunk, events)
        except RemoteProtocolError as error:
            self._failure = error
            if not events:
                raise
        return events

    def close(self) -> None:
        """End the stream; an event without its blank line is dropped, as WHATWG asks."""
        self._partial.clear()
        self._data.clear()
        self._event = ""
        self._id = self.last_event_id

    def _read(self, chunk: bytes, events: list[SseEvent]) -> None:
        if not chunk:
            return
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        # On bytes, splitlines knows exactly the three line ends of the format.
        for piece in chunk.splitlines(keepends=True):
            if piece.endswith((b"\n", b"\r")):
                line = piece.rstrip(b"\r\n")
                if self._partial:
                    self._partial += line
                    line = bytes(self._partial)
                    self._partial.clear()
                self._guard(len(line))
                self._take(line, events)
            else:
                self._partial += piece
                self._guard(len(self._partial))

    def _guard(self, line_bytes: int) -> None:
        if len(self._data) + line_bytes > self._limit:
            self.close()
            raise RemoteProtocolError.invalid_request(f"an SSE event is larger than the {self._limit} bytes allowed")

    def _take(self, line: bytes, events: list[SseEvent]) -> None:
        if self._at_start:
            self._at_start = False
            line = line.removeprefix(_BOM)
        if not line:
            self._dispatch(events)
            return
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if name == b"data":
            self._data += value
            self._data += b"\n"
        elif name == b"event":
            self._event = value.decode(errors="replace")
        elif name == b"id":
            if b"\0" not in value:
                self._id = value.decode(errors="replace")
        elif name == b"retry" and value.isdigit() and len(value) <= _MAX_RETRY_DIGITS:
            self.retry = int(value)

    def _dispatch(self, events: list[SseEvent]) -> None:
        self.last_event_id = self._id
        if len(self._data) > 1:
            events.append(SseEvent(bytes(self._data[:-1]), self._event or "message", self._id))
        self._data.clear()
        self._event = ""
