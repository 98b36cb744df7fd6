"""Routes about messages and HTTP exchanges: lists with filters, bodies on demand, copies, and HAR."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from ..copying import copy_message
from ..har import har_of
from ..requests import NotThere
from ..wire import MessageRow, TracedExchange
from .routing import PageRequest, Reply, Route

_INLINE: Final = 256 * 1024
_EXCERPT: Final = 64 * 1024
_MEANINGS: Final = {
    "mcp-protocol-version": "the revision of the protocol",
    "mcp-session-id": "the session of a legacy server",
    "mcp-method": "the JSON-RPC method, for routers",
    "mcp-name": "the tool, prompt or URI, for routers",
    "last-event-id": "the event after which the stream goes on",
    "www-authenticate": "what credentials the server wants",
    "accept": "what the client can read: JSON, or an event stream",
    "content-type": "how the answer comes: at once (JSON) or as a stream of events",
    "retry-after": "seconds to wait before the next try",
    "dpop-nonce": "what the next proof of possession must contain",
    "authorization": "the credentials (masked)",
}


def _matcher(query: Any) -> Any:
    filters = {name: query[name] for name in ("server", "method", "direction", "kind", "call") if query.get(name)}
    needle = query.get("q", "").lower().encode()

    def matches(row: MessageRow, body: bytes | None) -> bool:
        if any(getattr(row, name) != value for name, value in filters.items()):
            return False
        if not needle:
            return True
        return needle in row.summary.lower().encode() or (body is not None and needle in body.lower())

    return matches


def select_messages(log: Any, request: PageRequest) -> dict[str, Any]:
    limit = request.limit(200, 5_000)
    rows, total = log.select(
        _matcher(request.query), after=request.number("after"), before=request.number("before"), limit=limit
    )
    return {"messages": rows, "total": total, "more": total > len(rows)}


async def list_messages(request: PageRequest) -> Any:
    return select_messages(request.inspector.log, request)


def _row(request: PageRequest) -> MessageRow:
    text = request.variables["seq"]
    row = request.inspector.log.row(int(text)) if text.isdecimal() else None
    if row is None:
        raise NotThere(f"there is no message {text!r}; the oldest are dropped to make room for newer ones")
    return row


def message_json(row: MessageRow, body: bytes | None, exchange: TracedExchange | None, mask: Any) -> dict[str, Any]:
    """A message whole, or the start of a large one."""
    whole: dict[str, Any] = msgspec.to_builtins(row)
    if body is None:
        whole["truncated"] = True
        whole["text"] = "the body was dropped to make room for newer ones"
    elif len(body) > _INLINE:
        whole["truncated"] = True
        whole["text"] = mask(body[:_EXCERPT].decode("utf-8", "replace"))
    else:
        text = mask(body.decode("utf-8", "replace"))
        try:
            msgspec.json.decode(text)
            whole["body"] = msgspec.Raw(text.encode())
        except (msgspec.DecodeError, RecursionError, UnicodeEncodeError):
            whole["text"] = text
    if exchange is not None:
        whole["exchange"] = exchange_json(exchange)
    return whole


def exchange_json(exchange: TracedExchange) -> dict[str, Any]:
    headers = [*exchange.request_headers, *exchange.response_headers]
    decoded = [
        {"header": name, "value": value, "meaning": _MEANINGS[name.lower()]}
        for name, value in headers
        if name.lower() in _MEANINGS or name.lower().startswith("mcp-param-")
        if name.lower() in _MEANINGS
    ]
    decoded += [
        {"header": name, "value": value, "meaning": "an argument of the tool, for routers"}
        for name, value in headers
        if name.lower().startswith("mcp-param-")
    ]
    whole: dict[str, Any] = {
        **msgspec.to_builtins(exchange.snapshot()),
        "requestHeaders": exchange.request_headers,
        "responseHeaders": exchange.response_headers,
        "decoded": decoded,
    }
    if exchange.error_body:
        whole["errorBody"] = exchange.error_body
    return whole


async def get_message(request: PageRequest) -> Any:
    row = _row(request)
    log = request.inspector.log
    exchange = log.exchanges.get(row.exchange or "")
    return message_json(row, log.body(row.seq), exchange, request.inspector.mask_for(row.server))


async def get_body(request: PageRequest) -> Any:
    row = _row(request)
    body = request.inspector.log.body(row.seq)
    if body is None:
        raise NotThere("the body was dropped to make room for newer ones")
    text = request.inspector.mask_for(row.server)(body.decode("utf-8", "replace"))
    return Reply(body=text.encode("utf-8", "replace"), content_type="text/plain; charset=utf-8")


async def copy(request: PageRequest) -> Any:
    text = copy_message(request.inspector, _row(request), request.query.get("as", "curl"))
    return Reply(body=text.encode(), content_type="text/plain; charset=utf-8")


async def clear_messages(request: PageRequest) -> Any:
    request.inspector.log.clear()
    return Reply(status=204, body=b"")


async def list_exchanges(request: PageRequest) -> Any:
    server, after = request.query.get("server"), request.query.get("after")
    rows = [e.snapshot() for e in request.inspector.log.exchanges.values() if server in (None, e.row.server)]
    if after:
        ids = [row.id for row in rows]
        rows = rows[ids.index(after) + 1 :] if after in ids else rows
    return {"exchanges": rows[-request.limit(500, 10_000) :]}


async def get_exchange(request: PageRequest) -> Any:
    exchange = request.inspector.log.exchanges.get(request.variables["id"])
    if exchange is None:
        raise NotThere(f"there is no exchange {request.variables['id']!r}")
    return exchange_json(exchange)


async def export_har(request: PageRequest) -> Any:
    har = har_of(request.inspector, request.query.get("server"))
    headers = {"content-disposition": 'attachment; filename="trimaran.har"'}
    return Reply(value=cast("Any", har), headers=headers)


ROUTES: Final = (
    Route("GET", "/api/messages", list_messages),
    Route("DELETE", "/api/messages", clear_messages),
    Route("GET", "/api/messages/{seq}", get_message),
    Route("GET", "/api/messages/{seq}/body", get_body),
    Route("GET", "/api/messages/{seq}/copy", copy),
    Route("GET", "/api/exchanges", list_exchanges),
    Route("GET", "/api/exchanges/{id}", get_exchange),
    Route("GET", "/api/export/har", export_har),
)
