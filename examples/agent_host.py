"""An agent: a host with two servers, a model, and the loop between them. A person is asked before anything is changed.

python examples/agent_host.py              runs once; the model is a script, so no key is needed
python examples/agent_host.py --serve NAME is one of its servers, on stdio: stock or till
claude mcp add till -- python /path/to/examples/agent_host.py --serve till
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from trimaran import Host, Server
from trimaran.host import Question

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


async def run_agent(host: Host, prompt: str) -> list[Any]:
    """The loop. With a real model, `ask_model` is `client.messages.create` of the library `anthropic`."""
    messages: list[Any] = [{"role": "user", "content": prompt}]
    while True:
        reply = await ask_model(messages=messages, tools=host.tools(format="anthropic"))
        messages.append({"role": "assistant", "content": reply["content"]})
        results = await host.answer(reply, format="anthropic")
        if results is None:
            return messages
        messages.append(results)


async def ask_model(messages: list[Any], tools: list[Any]) -> dict[str, Any]:
    """A model with a script: three calls at once, of which one has a wrong name, then a refund, then an end."""
    print(f"model: {len(messages)} messages, {len(tools)} tools")
    turns: list[list[tuple[str, dict[str, Any]]]] = [
        [
            ("mcp__stock__count", {"item": "rope"}),
            ("mcp__till__sell", {"item": "rope", "price": 9.5}),
            ("mcp__stock__counts", {"item": "rope"}),
        ],
        [("mcp__till__refund", {"item": "rope"})],
    ]
    number = len(messages) // 2
    calls = turns[number] if number < len(turns) else []
    blocks = [{"type": "tool_use", "id": f"call_{name}", "name": name, "input": value} for name, value in calls]
    return {"role": "assistant", "content": blocks or [{"type": "text", "text": "Done."}]}


def person(question: Question) -> None:
    """A real person would be asked; see docs/guides/host.md."""
    print(f"? {question.message} {json.dumps(question.arguments)}")
    question.allow("once")


async def main() -> int:
    me = [sys.executable, __file__, "--serve"]
    servers = {"stock": [*me, "stock"], "till": [*me, "till"]}
    async with Host(servers, allow=["mcp__stock__*"], deny=["mcp__till__refund"], on_question=person) as host:
        print(*host.status(), sep="\n")
        for message in await run_agent(host, "Sell a rope, then take it back."):
            for block in message["content"]:
                if isinstance(block, dict) and block["type"] == "tool_result":
                    print("error:" if block.get("is_error") else "result:", block["content"][0]["text"])
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        {"stock": stock, "till": till}[sys.argv[2]].run()
    else:
        sys.exit(asyncio.run(main()))
