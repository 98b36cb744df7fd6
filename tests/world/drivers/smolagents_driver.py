# pyright: basic, reportMissingImports=false
"""smolagents, with structured output, which is its default to come."""

from contract import Job, main
from mcp import StdioServerParameters
from smolagents import MCPClient


async def drive(job: Job) -> None:
    server = {"url": job.url, "transport": "streamable-http"}
    if job.is_stdio:
        server = StdioServerParameters(command=job.command, args=job.args)
    with MCPClient(server, structured_output=True) as tools:
        await job.use((tool.name, caller(tool)) for tool in tools)


def caller(tool):
    return lambda arguments: tool.forward(**arguments)


main(drive)
