# pyright: basic, reportMissingImports=false
"""CrewAI's adapter, which is synchronous."""

from contract import Job, main
from crewai_tools import MCPServerAdapter
from mcp import StdioServerParameters


async def drive(job: Job) -> None:
    server = {"url": job.url, "transport": "streamable-http"}
    if job.is_stdio:
        server = StdioServerParameters(command=job.command, args=job.args)
    with MCPServerAdapter(server, connect_timeout=60) as tools:
        await job.use((tool.name, caller(tool)) for tool in tools)


def caller(tool):
    return lambda arguments: tool.run(**arguments)


main(drive)
