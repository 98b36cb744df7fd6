"""Several workers share one port; without a shared store they serve the modern era only, and say so (P9)."""

from __future__ import annotations

import json
import os
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from trimaran import Server
from trimaran.errors import ConfigError

SCRIPT = """
import os, sys
from trimaran import Server
server = Server("many", version="1")
@server.tool
async def pid() -> int:
    return os.getpid()
tls = {"certfile": sys.argv[2], "keyfile": sys.argv[3]} if len(sys.argv) > 2 else None
server.run("http", port=int(sys.argv[1]), workers=2, tls=tls)
"""
META = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
HEADERS = {
    "content-type": "application/json",
    "accept": "application/json, text/event-stream",
    "mcp-protocol-version": "2026-07-28",
    "mcp-method": "tools/call",
    "mcp-name": "pid",
}
CALL = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "pid", "_meta": META}}
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


def post(port: int, body: dict[str, object], headers: dict[str, str], scheme: str = "http") -> dict[str, object]:
    request = urllib.request.Request(f"{scheme}://127.0.0.1:{port}/mcp", json.dumps(body).encode(), headers)
    trust = ssl.create_default_context()
    trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(request, timeout=5, context=trust if scheme == "https" else None) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as error:
        with error:
            return json.load(error)


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="workers need fork")
@pytest.mark.parametrize("scheme", ["http", "https"])
def test_two_workers_share_a_port_and_end_together(
    tmp_path: Path, free_port: int, scheme: str, certificate: tuple[Path, Path]
) -> None:
    script = tmp_path / "many.py"
    script.write_text(SCRIPT)
    files = [str(file) for file in certificate] if scheme == "https" else []
    process = subprocess.Popen([sys.executable, str(script), str(free_port), *files], stderr=subprocess.DEVNULL)
    try:
        seen: set[object] = set()
        until = time.monotonic() + 15
        while len(seen) < 2 and time.monotonic() < until:
            try:
                seen.add(post(free_port, CALL, HEADERS, scheme)["result"]["structuredContent"])  # type: ignore[index]
            except (urllib.error.URLError, ConnectionError):
                continue
        assert len(seen) == 2
        assert process.pid not in seen
        refused = post(free_port, INITIALIZE, {k: v for k, v in HEADERS.items() if not k.startswith("mcp")}, scheme)
        assert refused["error"]["data"]["supported"] == ["2026-07-28"]  # type: ignore[index]
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_legacy_sessions_on_several_workers_are_refused_at_start() -> None:
    with pytest.raises(ConfigError, match="workers=1"):
        Server("many", version="1").run("http", port=0, workers=2, legacy=True)
