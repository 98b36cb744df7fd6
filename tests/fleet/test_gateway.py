"""Several gateways on one Redis, as processes: no request has to reach the one before's."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import find_port
from tests.support.program import listens
from tests.support.redis import redis_server
from tests.support.until import PATIENCE, wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "unit" / "apps" / "gateway"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}


class Replica:
    """A gateway process."""

    def __init__(self, config: Path, store: str) -> None:
        self.port = find_port()
        self._log = config.with_name(f"log-{self.port}")
        command = [sys.executable, "-m", "trimaran", "gateway", str(config), "--port", str(self.port), "--store", store]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_until(lambda: listens(self.port), "the gateway listens")

    def post(self, path: str, message: dict[str, Any], **headers: str) -> tuple[dict[str, str], Any]:
        """Headers and the JSON of the answer, be it plain or on a stream."""
        heads = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            json.dumps({"jsonrpc": "2.0", **message}).encode(),
            {"Content-Type": "application/json", "Accept": "application/json, text/event-stream", **heads},
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as reply:
                text, reply_headers = reply.read().decode(), dict(reply.headers)
        except urllib.error.HTTPError as error:
            with error:
                text, reply_headers = error.read().decode(), dict(error.headers)
        if "data: " in text:
            text = [line for line in text.splitlines() if line.startswith("data: ")][-1].removeprefix("data: ")
        return reply_headers, json.loads(text) if text else None

    def call(self, path: str, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> Any:
        """A `tools/call` of 2026-07-28."""
        params = {"name": tool, "arguments": arguments or {}, "_meta": META, **more}
        message = {"id": 1, "method": "tools/call", "params": params}
        marks = {"MCP_Protocol_Version": "2026-07-28", "Mcp_Method": "tools/call", "Mcp_Name": tool}
        return self.post(path, message, **marks)[1]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@contextlib.contextmanager
def two_replicas(folder: Path) -> Iterator[tuple[Replica, Replica]]:
    config = folder / "mcp.toml"
    boats, captain = FOLDER / "boats.py", FOLDER / "old_captain.py"
    config.write_text(f"""
[gateway]
secret_keys = ["the same key for all gateways"]
[[gateway.limit]]
tools = "mcp__boats__sink"
rate = "3/hour"
[server.boats]
command = "{sys.executable}"
args = ["{boats}"]
startup_timeout = 30
[server.old]
command = "{sys.executable}"
args = ["{captain}", "{folder / "calls"}"]
startup_timeout = 30
""")
    with redis_server(folder) as redis, contextlib.ExitStack() as stack:
        replicas: list[Replica] = []
        for _ in range(2):
            replica = Replica(config, redis.url)
            stack.callback(replica.kill)
            replicas.append(replica)
        yield replicas[0], replicas[1]


def ask(replica: Replica, path: str, tool: str) -> dict[str, Any]:
    """Begin a call that asks; what its retry has to bring."""
    result = replica.call(path, tool)["result"]
    assert result["resultType"] == "input_required"
    (key,) = result["inputRequests"]
    answer = {"action": "accept", "content": {"name": "Ann"}}
    return {"inputResponses": {key: answer}, "requestState": result["requestState"]}


def test_a_question_of_one_gateway_is_answered_at_another(tmp_path: Path) -> None:
    with two_replicas(tmp_path) as (first, second):
        for path, tool in (("/mcp", "old_captain"), ("/servers/old/mcp", "captain"), ("/mcp", "boats_captain")):
            retry = ask(first, path, tool)
            reply = second.call(path, tool, **retry)
            assert "result" in reply, reply
            assert reply["result"]["content"][0]["text"] == "captain Ann"
        assert (tmp_path / "calls").read_text() == "called\n" * 2

        retry = ask(first, "/mcp", "old_captain")
        first.kill()
        error = second.call("/mcp", "old_captain", **retry)["error"]
        assert error["data"] == {"kind": "parked_call_lost"}
        assert "It was not run again" in error["message"]
        assert (tmp_path / "calls").read_text() == "called\n" * 3
        # A server that speaks 2026-07-28 has nothing parked: any gateway can go on.
        retry = ask(second, "/mcp", "boats_captain")
        assert second.call("/mcp", "boats_captain", **retry)["result"]["content"][0]["text"] == "captain Ann"


def test_sessions_and_limits_are_those_of_all_gateways(tmp_path: Path) -> None:
    with two_replicas(tmp_path) as (first, second):
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
        headers, _ = first.post("/mcp", {"id": 1, "method": "initialize", "params": hello})
        session = {"Mcp_Session_Id": next(value for name, value in headers.items() if name.lower() == "mcp-session-id")}
        second.post("/mcp", {"method": "notifications/initialized"}, **session)
        sail = {"name": "boats_sail", "arguments": {"boat": "Ida"}}
        _, reply = second.post("/mcp", {"id": 2, "method": "tools/call", "params": sail}, **session)
        assert reply["result"]["content"][0]["text"] == "Ida sails"
        # A session belongs to its endpoint.
        _, reply = second.post("/servers/boats/mcp", {"id": 3, "method": "tools/list"}, **session)
        assert "error" in reply

        for replica in (first, second, first):
            assert replica.call("/mcp", "boats_sink", {"boat": "Ida"})["result"]["isError"]
        for replica in (first, second):
            assert replica.call("/mcp", "boats_sink", {"boat": "Ida"})["error"]["data"]["kind"] == "rate_limited"
