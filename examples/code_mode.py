"""A model writes code instead of calls: the rows stay in the sandbox, and it reads one line of them.

    pip install 'trimaran[code,tokens]'
    python examples/code_mode.py                  the host; no network, no cost
    python examples/code_mode.py --serve          the server alone, on stdio
    claude mcp add orders -- python /path/to/examples/code_mode.py --serve

The task: the three customers who owe most. With calls, the model reads every page of orders and adds in its head. With code, it
sends one program. The model is a script here; the tokens are those that a real one would read and write.
"""

import asyncio
import json
import sys

from trimaran import Host, Server
from trimaran.host.context import count_tokens

PAGES, ROWS = 12, 50
CODE = """
owed = {}
for page in range(1, 13):
    for order in await orders__list_orders(page=page):
        if not order["paid"]:
            owed[order["customer"]] = owed.get(order["customer"], 0) + order["total"]
sorted(owed.items(), key=lambda item: -item[1])[:3]
"""


def make_server() -> Server:
    server = Server("orders", version="1")

    @server.tool
    def list_orders(page: int) -> list[dict[str, object]]:
        """List the orders of a page, 50 each. There are 12 pages."""
        first = (page - 1) * ROWS
        return [
            {
                "id": f"A-{number:05}",
                "customer": f"customer {number * 7919 % 40}",
                "total": number * 31 % 500,
                "paid": number % 3 != 0,
                "note": "leave it at the door",
            }
            for number in range(first, first + ROWS)
        ]

    return server


async def main() -> None:
    async with Host({"orders": make_server()}, allow=["mcp__orders__*"]) as host:
        results = [await host.call("mcp__orders__list_orders", {"page": page}) for page in range(1, PAGES + 1)]
        calls = sum(count_tokens(json.dumps(result.data)) for result in results)
        print(f"{PAGES} calls: {calls} tokens of results")

        declared = count_tokens(host.code_tool().description or "")
        answer = await host.call("run_code", {"code": CODE})
        print(
            f"code: {declared + count_tokens(CODE) + count_tokens(answer.text)} tokens, declaration and program included"
        )
        print(answer.text)


if __name__ == "__main__":
    if "--serve" in sys.argv:
        make_server().run()
    else:
        asyncio.run(main())
