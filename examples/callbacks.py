"""A server written as one object with callback methods, for catalogues that are not known when the program starts.

    python examples/callbacks.py
    claude mcp add units -- python /path/to/examples/callbacks.py

Only `server_info` is needed; each feature exists if its method does. Declared tools may stand beside it.
"""

from __future__ import annotations

from typing import Any

from trimaran import Context, Server, ToolError

FACTORS = {"km_to_miles": 0.621371, "kg_to_pounds": 2.204623, "litres_to_gallons": 0.264172}


class Units:
    """Conversions from a table; in a real server it would be a database."""

    def server_info(self) -> dict[str, str]:
        return {"name": "units", "version": "1.0.0"}

    def instructions(self) -> str:
        return "Converts metric units."

    async def list_tools(self, cursor: str | None, ctx: Context) -> tuple[list[dict[str, Any]], str | None]:
        # One page per call: the second value is the cursor of the next page, None on the last.
        names = sorted(FACTORS)
        start = int(cursor or 0)
        page = [
            {
                "name": name,
                "description": f"Convert {name.replace('_', ' ')}.",
                "inputSchema": {"type": "object", "properties": {"value": {"type": "number"}}, "required": ["value"]},
            }
            for name in names[start : start + 2]
        ]
        return page, str(start + 2) if start + 2 < len(names) else None

    async def call_tool(self, name: str, arguments: dict[str, Any], ctx: Context) -> str:
        # A callback checks its own arguments: the library does not know its schemas.
        if name not in FACTORS:
            raise ToolError(f"There is no conversion {name!r}. Known: {', '.join(sorted(FACTORS))}.")
        value = arguments.get("value")
        if not isinstance(value, (int, float)):
            raise ToolError("Pass the number to convert as `value`.")
        return f"{value * FACTORS[name]:g}"


server = Server(callbacks=Units())


@server.tool
def known_units() -> list[str]:
    """The names of all conversions."""
    return sorted(FACTORS)


if __name__ == "__main__":
    server.run()
