"""A server of somebody else's, shown the way your model needs it: fewer tools, plainer names, a smaller result.

    trimaran list examples/transforms.py
    trimaran call examples/transforms.py find_boats kind=ketch

Add it to Claude Code:

    claude mcp add harbour -- python /path/to/examples/transforms.py
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from trimaran import Context, Server, ToolError

# The server as its authors wrote it.
registry = Server("registry", version="1.0.0")
BOATS = [
    {"name": "Tern", "kind": "ketch", "length": 8.5, "owner": "Ada"},
    {"name": "Auk", "kind": "ketch", "length": 11.0, "owner": "Bo"},
    {"name": "Skua", "kind": "sloop", "length": 7.0, "owner": "Cy"},
]


@registry.tool(annotations={"readOnlyHint": True})
def qry(t: str, tenant: str, mx: int = 1000) -> list[dict[str, Any]]:
    """Query by t."""
    if tenant != "harbour-7":
        raise ToolError(f"there is no tenant {tenant!r}")
    return [boat for boat in BOATS if boat["kind"] == t][:mx]


@registry.tool
def purge(tenant: str) -> str:
    """Delete every boat."""
    return "gone"


# The server that you show.
server = Server("harbour", version="1.0.0")


async def count_calls(
    call_next: Callable[[Mapping[str, Any]], Awaitable[Any]], arguments: dict[str, Any], ctx: Context
) -> Any:
    await ctx.info(f"looking for {arguments['t']}")
    return await call_next(arguments)


def names_only(boats: list[dict[str, Any]]) -> list[str]:
    return [f"{boat['name']} ({boat['length']} m)" for boat in boats]


server.mount(
    registry,
    read_only=True,
    transforms={
        "qry": {
            "name": "find_boats",
            "description": "Find the boats of a kind.",
            "arguments": {
                "t": {"name": "kind", "description": "The kind of boat.", "examples": ["ketch", "sloop"]},
                "tenant": {"value": "harbour-7"},
                "mx": {"name": "limit", "default": 10},
            },
            "wrap": count_calls,
            "result": names_only,
        }
    },
)

if __name__ == "__main__":
    server.run()
