# pyright: basic, reportMissingImports=false
"""LangChain's adapters: every tool as LangChain makes it, in one session."""

from contract import Job, main
from langchain_mcp_adapters.client import MultiServerMCPClient
from langchain_mcp_adapters.tools import load_mcp_tools


async def drive(job: Job) -> None:
    entry = {"transport": "stdio", "command": job.command, "args": job.args}
    if not job.is_stdio:
        entry = {"transport": "sse" if job.transport == "sse" else "streamable_http", "url": job.url}
    client = MultiServerMCPClient({"harbour": entry})
    async with client.session("harbour") as session:
        tools = await load_mcp_tools(session)
        await job.use((tool.name, caller(tool)) for tool in tools)


def caller(tool):
    return lambda arguments: tool.ainvoke({"name": tool.name, "args": arguments, "id": "1", "type": "tool_call"})


main(drive)
