"""Many tools for a model, few tokens: a budget, what it cuts, and a search that finds the rest.

    python examples/budgeted_host.py
    claude mcp add harbour -- python examples/budgeted_host.py --serve     # one of its servers, by itself

The host declares what fits. A model that needs more calls `search_tools`; what it finds is declared from then on.
"""

import asyncio
import sys

from trimaran import Host, Server

FLEETS = {"harbour": 40, "weather": 12, "crew": 3}


def make_server(name: str, count: int) -> Server:
    server = Server(name, version="1.0.0")

    def add(number: int) -> None:
        @server.tool(
            name=f"{name}_report_{number}", description=f"Report number {number} about the {name}. It is made daily."
        )
        def report(since: str, until: str | None = None, limit: int = 100) -> list[dict[str, object]]:
            return [{"day": day, "report": number, "value": day * number} for day in range(5)]

    for number in range(count):
        add(number)
    return server


async def main() -> None:
    servers = {name: make_server(name, count) for name, count in FLEETS.items()}
    async with Host(servers, allow=["*"], budget=1500) as host:
        print(host.budget_plan("anthropic"))
        block = {
            "type": "tool_use",
            "id": "1",
            "name": "search_tools",
            "input": {"query": "report 7 about the harbour", "limit": 1},
        }
        await host.answer({"role": "assistant", "content": [block]}, format="anthropic")
        print("declared after a search:", host.tools(format="anthropic")[-1]["name"])
        call = {
            "type": "tool_use",
            "id": "2",
            "name": "mcp__harbour__harbour_report_7",
            "input": {"since": "2026-11-01"},
        }
        message = await host.answer({"role": "assistant", "content": [call]}, format="anthropic")
        assert message is not None
        print(message["content"][0]["content"][0]["text"])  # type: ignore[index, call-overload]


if __name__ == "__main__":
    if "--serve" in sys.argv:
        make_server("harbour", FLEETS["harbour"]).run()
    else:
        asyncio.run(main())
