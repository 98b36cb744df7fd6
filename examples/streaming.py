"""Results as they come: a tool that is an async generator.

    python examples/streaming.py
    claude mcp add countdown -- python /path/to/examples/streaming.py

Each text that is yielded goes out at once as a progress notification, if the caller asked for progress; all of them
together are the result.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

import msgspec

from trimaran import Server

server = Server("countdown", version="1.0.0")


@server.tool
async def countdown(start: Annotated[int, msgspec.Meta(ge=1, le=20)] = 3) -> AsyncIterator[str]:
    """Count down to zero, slowly enough to watch.

    Args:
        start: The number to begin with.
    """
    for number in range(start, 0, -1):
        yield f"{number}...\n"
        await asyncio.sleep(0.05)
    yield "lift-off\n"


if __name__ == "__main__":
    server.run()
