"""A client: list a server's tools, and call one of them.

python examples/echo_client.py                             starts a server by itself, as a child process
python examples/echo_client.py http://127.0.0.1:9090/mcp   or any other server with a tool named echo
python examples/echo_client.py --serve                     is that server, on stdio
claude mcp add echo -- python /path/to/examples/echo_client.py --serve
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from trimaran import Server, ToolError, connect
from trimaran.errors import Error

server = Server("echo", version="1.0.0")


@server.tool(annotations={"readOnlyHint": True})
def echo(text: str) -> str:
    """Say it again.

    Args:
        text: What to say.
    """
    if not text:
        raise ToolError("There is nothing to repeat. Pass some text.")
    return text


async def main(target: Any) -> int:
    try:
        async with connect(target, timeout=10) as client:
            info = client.server_info
            print(f"{info.name if info else 'a server'} speaks {client.version}")
            for tool in await client.list_tools_all():
                print(f"- {tool.name}: {(tool.description or '').partition('.')[0]}")
            result = await client.call_tool("echo", {"text": "hello, harbour"}, raise_on_error=True)
            print(result.data)
    except Error as error:
        # Refused, timed out, lost, not found: each says what happened and what to do.
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    if sys.argv[1:] == ["--serve"]:
        server.run()
    else:
        given = sys.argv[1] if len(sys.argv) > 1 else [sys.executable, __file__, "--serve"]
        sys.exit(asyncio.run(main(given)))
