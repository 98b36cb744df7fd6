"""The path of a call stays short: few library frames stand above the user's function."""

from __future__ import annotations

import json
import sys
from collections.abc import MutableMapping
from pathlib import Path
from typing import Any

import trimaran

LIBRARY = str(Path(trimaran.__file__).parent)
MOST = 4  # decision 0001: asgi, dispatch, tools, and one to spare
REVISION = "2026-07-28"


async def test_at_most_four_library_frames_stand_above_a_tool() -> None:
    """Whose rule: ours (decision 0001)."""
    server = trimaran.Server("frames", version="1.0.0")
    above: list[str] = []

    @server.tool
    async def look() -> str:
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename.startswith(LIBRARY):
                above.append(f"{Path(frame.f_code.co_filename).name}:{frame.f_code.co_name}")
            frame = frame.f_back
        return "seen"

    status, body = await post(server.asgi(path="/mcp"), "tools/call", {"name": "look", "arguments": {}})
    assert status == 200, body
    assert b"seen" in body
    assert 1 <= len(above) <= MOST, f"{len(above)} library frames, innermost first: {above}"


async def post(app: Any, method: str, params: dict[str, Any]) -> tuple[int, bytes]:
    """Send one modern request to an ASGI app by hand; return status and body."""
    meta = {"protocolVersion": REVISION, "clientInfo": {"name": "t", "version": "0"}, "clientCapabilities": {}}
    params = {**params, "_meta": {f"io.modelcontextprotocol/{key}": value for key, value in meta.items()}}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    headers = {
        "host": "127.0.0.1:8000",
        "content-type": "application/json",
        "content-length": str(len(body)),
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": REVISION,
        "mcp-method": method,
        "mcp-name": params["name"],
    }
    scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/mcp",
        "raw_path": b"/mcp",
        "query_string": b"",
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
    }
    incoming = [{"type": "http.request", "body": body, "more_body": False}]
    sent: list[MutableMapping[str, Any]] = []

    async def receive() -> MutableMapping[str, Any]:
        return incoming.pop(0) if incoming else {"type": "http.disconnect"}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent[1:])
