"""The HTTP exchanges as HAR 1.2, which browsers' network views and other tools read. Secrets are masked."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from trimaran import __version__

if TYPE_CHECKING:
    from .inspector import Inspector
    from .wire import TracedExchange


def har_of(inspector: Inspector, server: str | None) -> dict[str, Any]:
    """All exchanges, or those of one server."""
    exchanges = [e for e in inspector.log.exchanges.values() if server in (None, e.row.server)]
    creator = {"name": "trimaran inspect", "version": __version__}
    return {"log": {"version": "1.2", "creator": creator, "entries": [_entry(inspector, e) for e in exchanges]}}


def _entry(inspector: Inspector, exchange: TracedExchange) -> dict[str, Any]:
    row = exchange.row
    mask = inspector.mask_for(row.server)
    sent: list[str] = []
    received: list[str] = []
    for seq in row.messages:
        message, body = inspector.log.row(seq), inspector.log.body(seq)
        if message is not None and body is not None:
            (sent if message.direction == "out" else received).append(mask(body.decode("utf-8", "replace")))
    total = row.end_ms or row.head_ms or 0
    wait = row.head_ms or 0
    kind = next((value for name, value in exchange.response_headers if name.lower() == "content-type"), "")
    request: dict[str, Any] = {
        "method": row.verb,
        "url": row.url,
        "httpVersion": "HTTP/1.1",
        "cookies": [],
        "headers": _pairs(exchange.request_headers),
        "queryString": [],
        "headersSize": -1,
        "bodySize": row.sent,
    }
    if sent:
        request["postData"] = {"mimeType": "application/json", "text": sent[0]}
    return {
        "startedDateTime": datetime.fromtimestamp(row.at / 1000, UTC).isoformat(timespec="milliseconds"),
        "time": total,
        "request": request,
        "response": {
            "status": row.status or 0,
            "statusText": "",
            "httpVersion": "HTTP/1.1",
            "cookies": [],
            "headers": _pairs(exchange.response_headers),
            "content": {"size": row.received, "mimeType": kind, "text": "\n".join(received) or exchange.error_body},
            "redirectURL": "",
            "headersSize": -1,
            "bodySize": row.received,
        },
        "cache": {},
        "timings": {"send": 0, "wait": wait, "receive": max(0.0, total - wait)},
        "comment": row.failure or "",
    }


def _pairs(headers: list[tuple[str, str]]) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in headers]
