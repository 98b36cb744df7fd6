"""The bytes a client sends: prebuilt HTTP requests and stdio lines of both protocol eras.

A `Template` is a request cut at its JSON-RPC id, and at every other place that holds the id. Ids have a fixed width, so
Content-Length stays true and a sender only joins byte strings; every request of a run has its own id, as the protocol
demands.
"""

import http.client
import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Era = Literal["modern", "legacy"]

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}

FIRST_ID = 1_000_000
LAST_ID = 9_999_999
_MARK = 7_654_321

ARGUMENTS = {"a": 20_000, "b": 22_222}
ANSWER = b"42222"
"""What the body of a right answer to `add(**ARGUMENTS)` contains, whatever the server's shape of a result."""

VARIED = {
    "traceparent": f"00-4bf92f3577b34da6a3ce92900{_MARK}-00f067aa0{_MARK}-01",
    "X-Request-Id": f"5b1ff0a2-8c0f-4c39-9d1e-00000{_MARK}",
}
"""What clients with tracing send along: no two requests have the same head."""
REPEATED = {name: value.replace(str(_MARK), str(LAST_ID)) for name, value in VARIED.items()}
"""The same fields, and always the same values."""


@dataclass(frozen=True)
class Template:
    pieces: tuple[bytes, ...]
    """What stands between the places that hold the id."""

    def fill(self, request_id: int) -> bytes:
        return (b"%d" % request_id).join(self.pieces)


def http_template(
    port: int,
    method: str,
    params: dict[str, Any],
    *,
    era: Era,
    session: str | None = None,
    more: Mapping[str, str] | None = None,
) -> Template:
    """Build the POST of one request, with some more headers, ready to be filled with ids."""
    if era == "modern":
        params = {**params, "_meta": params.get("_meta", META)}
    body = _encode({"jsonrpc": "2.0", "id": _MARK, "method": method, "params": params})
    headers = {**request_headers(method, params, era=era, session=session), **(more or {})}
    head = [f"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}"]
    head += [f"{name}: {value}" for name, value in headers.items()]
    head.append(f"Content-Length: {len(body)}\r\n\r\n")
    whole = "\r\n".join(head).encode() + body
    return Template(tuple(whole.split(str(_MARK).encode())))


def call_template(
    port: int, tool: str, *, era: Era, session: str | None = None, more: Mapping[str, str] | None = None
) -> Template:
    params = {"name": tool, "arguments": ARGUMENTS}
    return http_template(port, "tools/call", params, era=era, session=session, more=more)


def request_headers(method: str, params: dict[str, Any], *, era: Era, session: str | None = None) -> dict[str, str]:
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    if era == "modern":
        headers |= {"MCP-Protocol-Version": MODERN, "Mcp-Method": method}
        if "name" in params:
            headers["Mcp-Name"] = params["name"]
        return headers
    headers["MCP-Protocol-Version"] = LEGACY
    if session:
        headers["Mcp-Session-Id"] = session
    return headers


def ask(port: int, template: Template) -> dict[str, Any]:
    """Send one request on a connection of its own; return its result."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        connection.sendall(template.fill(FIRST_ID))
        response = http.client.HTTPResponse(connection)
        response.begin()
        body = response.read()
    answer = json.loads(body) if response.status == 200 else {}
    if "result" not in answer:
        raise RuntimeError(f"answered {response.status}: {body[:200]!r}")
    return answer["result"]


def open_session(port: int) -> str | None:
    """Do the legacy handshake over HTTP; return the session id, None from a server that keeps no sessions."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("POST", "/mcp", _encode(initialize(1)), request_headers("initialize", {}, era="legacy"))
        response = connection.getresponse()
        body = response.read()
        if response.status != 200:
            raise RuntimeError(f"initialize answered {response.status}: {body[:200]!r}")
        session = response.getheader("mcp-session-id")
        headers = request_headers("notifications/initialized", {}, era="legacy", session=session)
        connection.request("POST", "/mcp", _encode(initialized()), headers)
        response = connection.getresponse()
        body = response.read()
        if response.status != 202:
            raise RuntimeError(f"notifications/initialized answered {response.status}: {body[:200]!r}")
        return session
    finally:
        connection.close()


def initialize(request_id: int) -> dict[str, Any]:
    params = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    return {"jsonrpc": "2.0", "id": request_id, "method": "initialize", "params": params}


def initialized() -> dict[str, Any]:
    return {"jsonrpc": "2.0", "method": "notifications/initialized"}


def legacy_call(request_id: int, tool: str) -> dict[str, Any]:
    params = {"name": tool, "arguments": ARGUMENTS}
    return {"jsonrpc": "2.0", "id": request_id, "method": "tools/call", "params": params}


def line(message: dict[str, Any]) -> bytes:
    return _encode(message) + b"\n"


def _encode(message: dict[str, Any]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode()
