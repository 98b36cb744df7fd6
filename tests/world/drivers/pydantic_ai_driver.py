# pyright: basic, reportMissingImports=false
"""Pydantic AI: a toolset, whose client comes from FastMCP."""

from contract import Job, main
from pydantic_ai.mcp import MCPToolset


async def drive(job: Job) -> None:
    entry = {"command": job.command, "args": job.args} if job.is_stdio else {"url": job.url, "transport": "http"}
    async with MCPToolset({"mcpServers": {"harbour": entry}}) as toolset:
        tools = await toolset.list_tools()
        await job.use((tool.name, caller(toolset, tool.name)) for tool in tools)


def caller(toolset, name):
    return lambda arguments: toolset.direct_call_tool(name, arguments)


main(drive)
