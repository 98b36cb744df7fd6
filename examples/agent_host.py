"""A host: two servers as one catalogue, calls routed by name, a person asked before anything is changed.

python examples/agent_host.py              runs once, with answers of its own
python examples/agent_host.py --serve NAME is one of its servers, on stdio: stock or till
claude mcp add till -- python /path/to/examples/agent_host.py --serve till
"""

from __future__ import annotations

import asyncio
import json
import sys

from trimaran import Host, Server
from trimaran.host import PermissionDenied, Question

stock = Server("stock", version="1.0.0")
till = Server("till", version="1.0.0")
shelves = {"rope": 12, "anchor": 2}


@stock.tool(annotations={"readOnlyHint": True})
def count(item: str) -> int:
    """How many there are.

    Args:
        item: What to count.
    """
    return shelves.get(item, 0)


@stock.resource("stock://list", name="list", mime_type="application/json")
def listing() -> str:
    """All that is on the shelves."""
    return json.dumps(shelves)


@till.tool
def sell(item: str, price: float) -> str:
    """Sell one.

    Args:
        item: What is sold.
        price: What it costs.
    """
    return f"sold one {item} for {price:.2f}"


@till.tool(annotations={"destructiveHint": True})
def refund(item: str) -> str:
    """Give the money back.

    Args:
        item: What was brought back.
    """
    return f"took back one {item}"


def answer(question: Question) -> None:
    """The person. A real one would be asked; see docs/guides/host.md."""
    print(f"? {question.message} {json.dumps(question.arguments)}")
    question.allow("once")


def model_says(name: str, **arguments: object) -> dict[str, object]:
    """What a model's provider would send; shaped like a block of Anthropic's."""
    return {"type": "tool_use", "id": "call_1", "name": name, "input": arguments}


async def main() -> int:
    me = [sys.executable, __file__, "--serve"]
    async with Host(
        {"stock": [*me, "stock"], "till": [*me, "till"]},
        allow=["mcp__stock__*"],
        deny=["mcp__till__refund"],
        on_question=answer,
    ) as host:
        for status in host.status():
            print(status)
        for tool in host.tools(format="anthropic"):
            print(f"- {tool['name']}: {tool['description'].partition('.')[0]}")
        blocks = [
            model_says("mcp__stock__count", item="rope"),
            model_says("mcp__till__sell", item="rope", price=9.5),
            model_says("mcp__till__refund", item="rope"),
        ]
        for block in blocks:
            call = host.from_call(block, "anthropic")
            try:
                result = await host.call(*call)
            except PermissionDenied as refusal:
                print(f"refused: {refusal}")
            else:
                print(host.to_result(result, call, "anthropic")["content"][0]["text"])
        print((await host.expand("What is left? @stock:list")).text)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        {"stock": stock, "till": till}[sys.argv[2]].run()
    else:
        sys.exit(asyncio.run(main()))
