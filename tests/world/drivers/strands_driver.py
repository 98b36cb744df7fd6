# pyright: basic, reportMissingImports=false
"""Strands Agents, whose client is synchronous."""

from contract import Job, main
from mcp import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from strands.tools.mcp import MCPClient


async def drive(job: Job) -> None:
    def connect():
        if job.is_stdio:
            return stdio_client(StdioServerParameters(command=job.command, args=job.args))
        return streamable_http_client(job.url)

    with MCPClient(connect) as client:
        tools = client.list_tools_sync()
        await job.use((tool.tool_name, caller(client, tool)) for tool in tools)


def caller(client, tool):
    return lambda arguments: client.call_tool_sync("1", tool.mcp_tool.name, arguments)


main(drive)
