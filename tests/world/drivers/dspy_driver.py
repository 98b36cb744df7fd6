# pyright: basic, reportMissingImports=false
"""DSPy: tools as its modules get them, over the official SDK's session."""

import dspy
from contract import Job, main
from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client import streamable_http


async def drive(job: Job) -> None:
    # The name that mcp 2 has, else that of mcp 1.
    http_client = getattr(streamable_http, "streamable_http_client", None) or streamable_http.streamablehttp_client
    transport = http_client(job.url)
    if job.is_stdio:
        transport = stdio_client(StdioServerParameters(command=job.command, args=job.args))
    async with transport as streams, ClientSession(streams[0], streams[1]) as session:
        await session.initialize()
        tools = [dspy.Tool.from_mcp_tool(session, tool) for tool in (await session.list_tools()).tools]
        await job.use((tool.name, caller(tool)) for tool in tools)


def caller(tool):
    return lambda arguments: tool.acall(**arguments)


main(drive)
