"""One server made of two: tools of its own, and those of another server behind a prefix.

Run it on stdio or HTTP:

    python examples/proxy_server.py
    trimaran serve examples/proxy_server.py --port 9090

Add it to Claude Code (absolute paths are safest, since Claude starts it from anywhere):

    claude mcp add front -- python /path/to/examples/proxy_server.py
"""

import sys
from pathlib import Path

from trimaran import Server

OTHER = Path(__file__).with_name("calculator.py")

server = Server("front", version="1.0.0", instructions="Sums come from another process.")
server.mount([sys.executable, str(OTHER)], prefix="sums")


@server.tool
def hello(name: str) -> str:
    """Greet somebody."""
    return f"Hello, {name}!"


if __name__ == "__main__":
    server.run()
