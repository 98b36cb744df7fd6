"""A catalog that is too large for a model: it sees two tools, searches, and calls what it found.

    python examples/find_tools.py                  the host; no network, no cost
    python examples/find_tools.py --serve          the server alone, on stdio
    claude mcp add shop -- python /path/to/examples/find_tools.py --serve

The model is a script here; a real one gets the same definitions and sends the same calls.
"""

import asyncio
import sys

from trimaran import Host, Server
from trimaran.format import to_anthropic
from trimaran.host.context import count_tokens, search_declarations

SUBJECTS = (
    "invoice",
    "customer",
    "order",
    "product",
    "shipment",
    "refund",
    "coupon",
    "supplier",
    "warehouse",
    "review",
)
VERBS = {
    "create": "Create a new",
    "get": "Return one",
    "list": "List every",
    "update": "Change a",
    "delete": "Delete a",
}


def make_shop() -> Server:
    shop = Server("shop", version="1", instructions="An online shop.")
    for subject in SUBJECTS:
        for verb, sentence in VERBS.items():
            shop.add_tool(
                lambda id="", verb=verb, subject=subject: f"{verb} {subject} {id}".strip(),
                name=f"{verb}_{subject}",
                description=f"{sentence} {subject}.",
                input_schema={
                    "type": "object",
                    "properties": {"id": {"type": "string", "description": f"The {subject}"}},
                },
            )
    return shop


def tokens(definitions: object) -> int:
    return count_tokens(str(definitions))


async def main() -> None:
    async with Host({"shop": make_shop()}, allow=["mcp__shop__*"], deny=["mcp__shop__delete_*"]) as host:
        everything = host.tools(format="anthropic")
        small = to_anthropic(search_declarations({"shop": len(everything)}))
        print(f"{len(everything)} tools: {tokens(everything)} tokens; {len(small)} tools: {tokens(small)} tokens")

        search = {
            "type": "tool_use",
            "id": "1",
            "name": "search_tools",
            "input": {"query": "remove an old voucher", "limit": 3},
        }
        print(await host.answer({"content": [search], "stop_reason": "tool_use"}, format="anthropic"))

        for name in (
            "mcp__shop__get_coupon",
            "mcp__shop__delete_coupon",
        ):  # the second is denied, as it would be directly
            call = {
                "type": "tool_use",
                "id": "2",
                "name": "call_tool",
                "input": {"name": name, "arguments": {"id": "A7"}},
            }
            print(await host.answer({"content": [call], "stop_reason": "tool_use"}, format="anthropic"))


if __name__ == "__main__":
    if "--serve" in sys.argv:
        make_shop().run()
    else:
        asyncio.run(main())
