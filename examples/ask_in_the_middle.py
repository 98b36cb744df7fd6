"""Ask a person in the middle of a tool, in either era of the protocol, with one body.

    python examples/ask_in_the_middle.py            HTTP, http://127.0.0.1:9090/mcp
    python examples/ask_in_the_middle.py --stdio
    claude mcp add shop -- python /path/to/examples/ask_in_the_middle.py --stdio

A client of 2025-11-25 and older is asked by a request on the open connection, and the body waits. A client of 2026-07-28
gets the question as the end of this call and comes back with the answer in a new one: the body then runs again from its
beginning, and `ctx.step` sees to it that the stock is reserved only once.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Annotated, Literal

import msgspec

from trimaran import Context, Server, ToolError

server = Server("shop", version="1.0.0")

stock = {"kettle": 2, "teapot": 1}
reservations: list[str] = []


@dataclass
class Delivery:
    """What we need to know before we send something."""

    name: Annotated[str, msgspec.Meta(min_length=1, description="Who takes the parcel?")]
    speed: Literal["standard", "express"] = "standard"


def reserve(item: str) -> int:
    """The side effect: one fewer on the shelf. Returns the number of the reservation."""
    if stock.get(item, 0) < 1:
        raise ToolError(f"There is no {item} left. In stock: {', '.join(k for k, n in stock.items() if n)}.")
    stock[item] -= 1
    reservations.append(item)
    return len(reservations)


def release(item: str) -> None:
    stock[item] += 1


@server.tool
async def order(item: str, ctx: Context) -> str:
    """Order something from the shop. The buyer is asked where it goes before the order is placed.

    Args:
        item: What to order: kettle or teapot.
    """
    number: int = await ctx.step("reserve", reserve, item)
    answer = await ctx.elicit(f"One {item} is reserved for you. Where shall it go?", Delivery)
    if answer.action != "accept":
        await ctx.step("release", release, item)
        return f"Nothing was ordered; the {item} is back on the shelf."
    delivery: Delivery = answer.content
    return f"Order {number}: one {item} for {delivery.name}, {delivery.speed}."


if __name__ == "__main__":
    if "--stdio" in sys.argv:
        server.run()
    else:
        server.run("http", port=int(os.environ.get("PORT", "9090")))
