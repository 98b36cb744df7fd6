"""A child of an older revision on a pipe, without any library, so that a caller can have one of its own: `old_child.py LEDGER`.

Its tools are those of server.py that a gateway's callers use. It asks while it waits, as older servers do.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

INFO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "old child", "version": "1.0.0"},
}
KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
NUMBERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
TOOLS = [{"name": name, "inputSchema": KEY} for name in ("record", "slow", "order")]
TOOLS += [{"name": "add", "inputSchema": NUMBERS}]
COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}, "required": ["count"]}


def say(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def answer(id: Any, text: str) -> None:
    say(id=id, result={"content": [{"type": "text", "text": text}]})


def main() -> None:
    ledger = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    asked: dict[str, tuple[Any, str]] = {}

    def enter(kind: str, key: str) -> str:
        os.write(ledger, json.dumps({"kind": kind, "key": key, "pid": os.getpid(), "at": time.time()}).encode() + b"\n")
        return key

    def call(id: Any, params: dict[str, Any]) -> None:
        name, arguments = params["name"], params["arguments"]
        if name == "add":
            answer(id, str(arguments["a"] + arguments["b"]))
        elif name == "order":
            key = enter("reserve", arguments["key"])
            asked[f"q{id}"] = (id, key)
            say(
                id=f"q{id}",
                method="elicitation/create",
                params={"message": f"How many for {key}?", "requestedSchema": COUNT},
            )
        else:
            token = params.get("_meta", {}).get("progressToken")
            for done in range(1, 6) if name == "slow" and token is not None else ():
                time.sleep(0.03)
                say(method="notifications/progress", params={"progressToken": token, "progress": done, "total": 5})
            answer(id, enter(name, arguments["key"]))

    for line in sys.stdin:
        message = json.loads(line)
        method, id = message.get("method"), message.get("id")
        if method == "initialize":
            say(id=id, result=INFO)
        elif method == "tools/list":
            say(id=id, result={"tools": TOOLS})
        elif method == "tools/call":
            call(id, message["params"])
        elif method is None and id in asked:
            about, key = asked.pop(id)
            if "result" not in message:
                say(id=about, error={"code": -32000, "message": f"nobody answered: {message.get('error')}"})
                continue
            enter("order", key)
            answer(about, f"{message['result']['content']['count']} for {key}")
        elif id is not None:
            say(id=id, result={}) if method == "ping" else say(
                id=id, error={"code": -32601, "message": "no such method"}
            )


if __name__ == "__main__":
    main()
