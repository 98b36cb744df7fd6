# pyright: basic, reportMissingImports=false
"""mcp-use: its session, and its tools as LangChain gets them."""

from contract import Job, main
from mcp_use import MCPClient


async def drive(job: Job) -> None:
    entry = {"command": job.command, "args": job.args} if job.is_stdio else {"url": job.url}
    client = MCPClient.from_dict({"mcpServers": {"harbour": entry}})
    session = await client.create_session("harbour")
    try:
        tools = await session.list_tools()
        await job.use((tool.name, caller(session, tool.name)) for tool in tools)
    finally:
        await client.close_all_sessions()


def caller(session, name):
    return lambda arguments: session.call_tool(name, arguments)


main(drive)
