"""A legacy server that lacks what it declares, as real ones do: `python odd_server.py JSON`.

The JSON says what it answers by method: a result, `{"error": CODE}`, or null for silence. Anything else is -32601.
"""

from __future__ import annotations

import json
import sys
from typing import Any

TOOL = {"name": "add", "inputSchema": {"type": "object", "properties": {"a": {"type": "integer"}}}}
USUAL: dict[str, Any] = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}, "resources": {}, "prompts": {}, "logging": {}},
        "serverInfo": {"name": "odd", "version": "1.0.0"},
    },
    "tools/list": {"tools": [TOOL]},
    "tools/call": {"content": [{"type": "text", "text": "3"}]},
    "resources/list": {"resources": [{"uri": "odd://one", "name": "one"}]},
    "resources/read": {"contents": [{"uri": "odd://one", "text": "hello"}]},
    "prompts/list": {"prompts": [{"name": "plan"}]},
    "prompts/get": {"messages": [{"role": "user", "content": {"type": "text", "text": "go"}}]},
}


def main() -> None:
    answers = {**USUAL, **json.loads(sys.argv[1] if len(sys.argv) > 1 else "{}")}
    for line in sys.stdin:
        message = json.loads(line)
        answer = answers.get(message["method"], {"error": -32601})
        if "id" not in message or answer is None:
            continue
        reply: dict[str, Any] = {"jsonrpc": "2.0", "id": message["id"]}
        if "error" in answer:
            reply["error"] = {"code": answer["error"], "message": "Method not found"}
        else:
            reply["result"] = answer
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
