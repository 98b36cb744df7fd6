# pyright: basic, reportMissingImports=false
"""Haystack: a toolset, which is synchronous."""

from contract import Job, main
from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo, StreamableHttpServerInfo


async def drive(job: Job) -> None:
    if job.is_stdio:
        server = StdioServerInfo(command=job.command, args=job.args)
    else:
        server = StreamableHttpServerInfo(url=job.url)
    toolset = MCPToolset(server, connection_timeout=30, invocation_timeout=30, eager_connect=True)
    try:
        await job.use((tool.name, caller(tool)) for tool in toolset)
    finally:
        toolset.close()


def caller(tool):
    return lambda arguments: tool.invoke(**arguments)


main(drive)
