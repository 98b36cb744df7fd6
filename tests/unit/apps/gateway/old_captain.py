"""A server of 2025-11-25 that asks in the middle of a call, without any library: `python old_captain.py LOG`.

It writes a line to LOG for every call that it begins.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

INFO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "old captain", "version": "1.0.0"},
}
TOOLS = {"tools": [{"name": "captain", "inputSchema": {"type": "object", "properties": {}}}]}
QUESTION = {
    "message": "Who is the captain?",
    "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}},
}


def say(**message: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def main() -> None:
    asked: dict[str, Any] = {}
    for line in sys.stdin:
        message = json.loads(line)
        method, id = message.get("method"), message.get("id")
        if method == "initialize":
            say(id=id, result=INFO)
        elif method == "tools/list":
            say(id=id, result=TOOLS)
        elif method == "tools/call":
            with Path(sys.argv[1]).open("a") as log:
                log.write("called\n")
            asked[f"q{id}"] = id
            say(id=f"q{id}", method="elicitation/create", params=QUESTION)
        elif method is None and id in asked:
            name = message["result"]["content"]["name"]
            say(id=asked.pop(id), result={"content": [{"type": "text", "text": f"captain {name}"}]})
        elif id is not None:
            say(id=id, error={"code": -32601, "message": "no such method"})


if __name__ == "__main__":
    main()
