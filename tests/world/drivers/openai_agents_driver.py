# pyright: basic, reportMissingImports=false
"""The OpenAI Agents SDK: tools as its agents get them, strict schemas tried."""

from agents.mcp import MCPServerSse, MCPServerStdio, MCPServerStreamableHttp
from agents.mcp.util import MCPUtil
from contract import Job, main


async def drive(job: Job) -> None:
    if job.is_stdio:
        server = MCPServerStdio({"command": job.command, "args": job.args}, client_session_timeout_seconds=30)
    elif job.transport == "sse":
        server = MCPServerSse({"url": job.url}, client_session_timeout_seconds=30)
    else:
        server = MCPServerStreamableHttp({"url": job.url}, client_session_timeout_seconds=30)
    async with server:
        tools = await server.list_tools()
        for tool in tools:
            MCPUtil.to_function_tool(tool, server, convert_schemas_to_strict=True)
        await job.use((tool.name, caller(server, tool.name)) for tool in tools)


def caller(server, name):
    return lambda arguments: server.call_tool(name, arguments)


main(drive)
