"""A Trimaran server that lets nobody in without the header `X-API-Key: sesame`.

    python tests/world/guarded.py PORT TOOL      http://127.0.0.1:PORT/mcp, and /sse for 2024-11-05

Its one tool is called TOOL and returns `let in`, so that a program that has two such servers shows which one it reached.
"""

from __future__ import annotations

import sys

from trimaran import Server
from trimaran.auth import ApiKey

KEY = "sesame"


def main() -> None:
    port, tool = sys.argv[1:]
    server = Server("guarded", version="1.0.0")
    server.add_tool(lambda: "let in", name=tool, description="Ask to be let in.")
    server.run("http", port=int(port), sse_path="/sse", auth=ApiKey([KEY]))


if __name__ == "__main__":
    main()
