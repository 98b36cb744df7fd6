"""Every message and every HTTP exchange of every server, in order and within bounds.

`ServerTap` is the tap of one server's clients. It gives each message a number, pairs answers with their requests, and finds
the call a message belongs to: by the context in which it was sent, by the stream it came on, or by its progress token.
Listeners (calls, catalog) hear of each message as it passes.

The rows are bounded by number and the bodies by bytes. The oldest go first; a row whose body is gone says so.
"""

from __future__ import annotations

import itertools
import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from typing import Any, Final, Literal, final

from msgspec import Struct, structs

from trimaran.host.terminal_text import in_one_line
from trimaran.protocol.mask import MASK, Mask, mask_url

from .events import PageEvents, now_ms
from .summaries import MessageHead, read_envelope, summarise

MOST_MESSAGES: Final = 100_000
"""As many as the page shows; about 40 MB of rows."""
MOST_BYTES: Final = 128 * 1024 * 1024
"""Of bodies. One result may be 16 MB, and a session of work is a few."""
_MOST_EXCHANGES: Final = 10_000
_MOST_PENDING: Final = 10_000  # requests that wait for an answer; beyond, the oldest is not paired
_ERROR_BODY: Final = 64 * 1024
_SECRET_HEADERS: Final = frozenset(
    {"authorization", "cookie", "set-cookie", "proxy-authorization", "x-api-key", "dpop", "mcp-session-id"}
)
_SHOWN_OF_SESSION: Final = 8  # characters: enough to tell two sessions apart

CALL: Final[ContextVar[str | None]] = ContextVar("trimaran_inspected_call", default=None)
"""The call that the current task works for."""
REPLIES: Final[ContextVar[list[bytes] | None]] = ContextVar("trimaran_inspected_replies", default=None)
"""Collects the answers to requests sent in this context, as they came."""
_EXCHANGE: Final[ContextVar[TracedExchange | None]] = ContextVar("trimaran_inspected_exchange", default=None)
_LAST_OUT: Final[ContextVar[tuple[bytes, MessageRow] | None]] = ContextVar("trimaran_inspected_out", default=None)


class MessageRow(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """One message without its body."""

    seq: int
    at: float
    server: str
    direction: Literal["out", "in"]
    kind: str
    size: int
    summary: str = ""
    connection: int
    method: str | None = None
    id: int | str | None = None
    pair: int | None = None
    ms: float | None = None
    call: str | None = None
    exchange: str | None = None
    era: str | None = None
    revision: str | None = None


class ExchangeRow(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """One HTTP request and its response, without headers."""

    id: str
    at: float
    server: str
    verb: str
    url: str
    stream: bool
    events: int
    sent: int
    received: int
    messages: list[int]
    status: int | None = None
    head_ms: float | None = None
    end_ms: float | None = None
    call: str | None = None
    failure: str | None = None


class _Pending(Struct):
    row: MessageRow
    began: float
    replies: list[bytes] | None


@final
class MessageLog:
    """The messages of all servers."""

    def __init__(self, events: PageEvents, *, most_messages: int = MOST_MESSAGES, most_bytes: int = MOST_BYTES) -> None:
        self._events = events
        self._most_messages = most_messages
        self._most_bytes = most_bytes
        self._rows: list[MessageRow] = []
        self._bodies: list[bytes | None] = []
        self._bodies_floor = 0
        """Rows before this index have no body any more."""
        self.bytes: int = 0
        self.dropped: int = 0
        """Rows that gave way to newer ones."""
        self.exchanges: OrderedDict[str, TracedExchange] = OrderedDict()
        self._exchange_ids = itertools.count(1)
        self.listeners: list[Callable[[MessageRow, bytes, MessageHead | None], None]] = []
        events.messages_after = self.rows_after

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[tuple[MessageRow, bytes | None]]:
        return zip(list(self._rows), list(self._bodies), strict=True)

    @property
    def first(self) -> int:
        return self._rows[0].seq if self._rows else 0

    @property
    def last(self) -> int:
        return self._rows[-1].seq if self._rows else 0

    def next_seq(self) -> int:
        return self._events.next_seq()

    def add(self, row: MessageRow, body: bytes, envelope: MessageHead | None) -> None:
        self._rows.append(row)
        self._bodies.append(body)
        self.bytes += len(body)
        while self.bytes > self._most_bytes and self._bodies_floor < len(self._bodies) - 1:
            self._drop_body(self._bodies_floor)
            self._bodies_floor += 1
        if len(self._rows) > self._most_messages + self._most_messages // 10:  # a tenth at once: a list is cut in O(n)
            self._trim(len(self._rows) - self._most_messages)
        for listener in self.listeners:
            listener(row, body, envelope)

    def _drop_body(self, index: int) -> None:
        body, self._bodies[index] = self._bodies[index], None
        self.bytes -= len(body or b"")

    def _trim(self, count: int) -> None:
        for index in range(self._bodies_floor, count):
            self._drop_body(index)
        del self._rows[:count], self._bodies[:count]
        self._bodies_floor = max(0, self._bodies_floor - count)
        self.dropped += count

    def clear(self) -> None:
        """Forget all messages and exchanges."""
        self._trim(len(self._rows))
        self.exchanges.clear()

    def body(self, seq: int) -> bytes | None:
        """The body of a message; None if it is no longer here."""
        index = self._index(seq)
        return None if index is None else self._bodies[index]

    def row(self, seq: int) -> MessageRow | None:
        index = self._index(seq)
        return None if index is None else self._rows[index]

    def _index(self, seq: int) -> int | None:
        index = bisect_right(self._rows, seq, key=lambda row: row.seq) - 1
        return index if index >= 0 and self._rows[index].seq == seq else None

    def rows_after(self, seq: int, limit: int) -> tuple[list[MessageRow], int, int]:
        """The newest rows after a number, how many older ones were left out, and the last of those."""
        start = bisect_right(self._rows, seq, key=lambda row: row.seq)
        skipped = max(0, len(self._rows) - start - limit)
        last_skipped = self._rows[start + skipped - 1].seq if skipped else 0
        return self._rows[start + skipped :], skipped, last_skipped

    def select(
        self,
        matches: Callable[[MessageRow, bytes | None], bool],
        *,
        after: int | None = None,
        before: int | None = None,
        limit: int = 200,
    ) -> tuple[list[MessageRow], int]:
        """Rows that match, the oldest first, and how many match in all: the first after `after`, else the newest."""
        start = 0 if after is None else bisect_right(self._rows, after, key=lambda row: row.seq)
        stop = len(self._rows) if before is None else bisect_right(self._rows, before - 1, key=lambda row: row.seq)
        matching = [
            self._rows[index] for index in range(start, stop) if matches(self._rows[index], self._bodies[index])
        ]
        return (matching[:limit] if after is not None else matching[-limit:]), len(matching)

    # HTTP

    def begin_exchange(self, server: str, verb: str, url: str, mask: Mask) -> TracedExchange:
        id = f"x{next(self._exchange_ids)}"
        exchange = self.exchanges[id] = TracedExchange(self, id, server, verb, url, mask)
        while len(self.exchanges) > _MOST_EXCHANGES:
            old, _ = self.exchanges.popitem(last=False)
            self._events.forget("exchange", old)
        return exchange

    def tell_exchange(self, exchange: TracedExchange) -> None:
        self._events.emit("exchange", key=exchange.row.id, size=600, exchange=exchange.snapshot())


@final
class TracedExchange:
    """One HTTP request and its response, as they pass: the `HttpExchange` of our tap."""

    def __init__(self, log: MessageLog, id: str, server: str, verb: str, url: str, mask: Mask) -> None:
        self._log = log
        self._mask = mask
        self._began = time.perf_counter()
        self._is_over = False
        self._error_body = bytearray()
        self.request_headers: list[tuple[str, str]] = []
        self.response_headers: list[tuple[str, str]] = []
        self.row: ExchangeRow = ExchangeRow(
            id=id,
            at=now_ms(),
            server=server,
            verb=verb,
            url=mask_url(url),
            stream=False,
            events=0,
            sent=0,
            received=0,
            messages=[],
            call=CALL.get(),
        )

    def snapshot(self) -> ExchangeRow:
        return structs.replace(self.row, messages=self.row.messages[:50])

    @property
    def error_body(self) -> str:
        """The start of a body that carried no message."""
        return self._mask(self._error_body.decode("utf-8", "replace"))

    def sends(self, headers: Mapping[str, str], body: bytes | None) -> None:
        self.request_headers = self._masked(headers)
        self.row.sent = len(body or b"")

    def answered(self, status: int, headers: Mapping[str, str]) -> None:
        self.response_headers = self._masked(headers)
        self.row.status = status
        self.row.head_ms = self._elapsed()
        self.row.stream = headers.get("content-type", "").startswith("text/event-stream")
        self._log.tell_exchange(self)

    def received(self, piece: bytes) -> None:
        self.row.received += len(piece)
        if (self.row.status or 0) >= 300 and len(self._error_body) < _ERROR_BODY:
            self._error_body += piece[:_ERROR_BODY]

    def ended(self, failure: str | None = None) -> None:
        if not self._is_over:
            self._is_over = True
            self.row.end_ms = self._elapsed()
            self.row.failure = None if failure is None else self._mask(failure)
            self._log.tell_exchange(self)

    def _elapsed(self) -> float:
        return round((time.perf_counter() - self._began) * 1000, 3)

    def _masked(self, headers: Mapping[str, str]) -> list[tuple[str, str]]:
        return [(name, mask_header(name, self._mask(value))) for name, value in headers.items()]


def mask_header(name: str, value: str) -> str:
    """A header's value without its secret; the scheme of credentials and the start of a session id stay."""
    lower = name.lower()
    if lower not in _SECRET_HEADERS:
        return value
    if lower == "mcp-session-id":
        return value if len(value) <= _SHOWN_OF_SESSION else f"{value[:_SHOWN_OF_SESSION]}{MASK}"
    scheme, blank, _ = value.partition(" ")
    return f"{scheme} {MASK}" if blank and lower.endswith("authorization") else MASK


@final
class ServerTap:
    """The tap of one server's clients, over all of its connections."""

    def __init__(self, log: MessageLog, server: str) -> None:
        self._log = log
        self._server = server
        self._pending: dict[tuple[str, int, Any], _Pending] = {}
        """Requests without an answer, by direction, connection and id."""
        self.mask: Mask = Mask()
        self.connection: int = 0
        self.era: str | None = None
        self.revision: str | None = None

    def begin(self, mask: Mask) -> None:
        """A new connection: ids start anew."""
        self.connection += 1
        self._pending.clear()
        self.mask = mask
        self.era = self.revision = None

    def __call__(self, direction: Literal["out", "in"], message: bytes) -> None:
        envelope = read_envelope(message)
        exchange = _EXCHANGE.get() if direction == "in" else None
        row = MessageRow(
            seq=self._log.next_seq(),
            at=now_ms(),
            server=self._server,
            direction=direction,
            kind="invalid" if envelope is None else envelope.kind,
            size=len(message),
            connection=self.connection,
            era=self.era,
            revision=self.revision,
            call=CALL.get(),
            exchange=None if exchange is None else exchange.row.id,
        )
        if exchange is not None:
            exchange.row.events += exchange.row.stream
            if len(exchange.row.messages) < 1000:  # a standing stream may carry any number
                exchange.row.messages.append(row.seq)
        if envelope is None:
            row.summary = f"not a message: {message[:120].decode('utf-8', 'replace')}"
        else:
            self._read(row, message, envelope)
        if direction == "out":
            _LAST_OUT.set((message, row))
            _EXCHANGE.set(None)
        self._log.add(row, message, envelope)

    def on_odd(self, what: str) -> None:
        """What came is no message: a line of another protocol, or one beyond the limit. Its text says what."""
        body = what.encode("utf-8", "replace")
        row = MessageRow(
            seq=self._log.next_seq(),
            at=now_ms(),
            server=self._server,
            direction="in",
            kind="invalid",
            size=len(body),
            connection=self.connection,
            summary=in_one_line(f"it {what}", 160),
        )
        self._log.add(row, body, None)

    def _read(self, row: MessageRow, message: bytes, envelope: MessageHead) -> None:
        row.id, row.method = envelope.id, envelope.method
        if row.kind == "request":
            while len(self._pending) >= _MOST_PENDING:
                del self._pending[next(iter(self._pending))]
            key = (row.direction, self.connection, envelope.id)
            self._pending[key] = _Pending(row, time.perf_counter(), REPLIES.get() if row.direction == "out" else None)
        elif row.kind in ("response", "error"):
            other = "in" if row.direction == "out" else "out"
            pending = self._pending.pop((other, self.connection, envelope.id), None)
            if pending is not None:
                row.pair, row.method = pending.row.seq, pending.row.method
                row.ms = round((time.perf_counter() - pending.began) * 1000, 3)
                row.call = pending.row.call or row.call
                if pending.replies is not None:
                    pending.replies.append(message)
        row.summary = summarise(envelope, row.method)

    def call_of_request(self, id: Any) -> str | None:
        """The call that sent a request which is still open: a progress token is the id of its request."""
        pending = self._pending.get(("out", self.connection, id))
        return None if pending is None else pending.row.call

    def on_http(self, verb: str, url: str, headers: Mapping[str, str], body: bytes | None) -> TracedExchange:
        exchange = self._log.begin_exchange(self._server, verb, url, self.mask)
        exchange.sends(headers, body)
        last = _LAST_OUT.get()
        if body is not None and last is not None and last[0] is body:
            last[1].exchange = exchange.row.id
            exchange.row.messages.append(last[1].seq)
            exchange.row.call = last[1].call
        _EXCHANGE.set(exchange)
        return exchange
