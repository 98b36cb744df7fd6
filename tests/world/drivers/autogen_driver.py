# pyright: basic, reportMissingImports=false
"""AutoGen: tools as its agents get them, in one session."""

from autogen_core import CancellationToken
from autogen_ext.tools.mcp import (
    StdioServerParams,
    StreamableHttpServerParams,
    create_mcp_server_session,
    mcp_server_tools,
)
from contract import Job, main


async def drive(job: Job) -> None:
    server = StreamableHttpServerParams(url=job.url)
    if job.is_stdio:
        server = StdioServerParams(command=job.command, args=job.args, read_timeout_seconds=30)
    async with create_mcp_server_session(server) as session:
        await session.initialize()
        tools = await mcp_server_tools(server, session=session)
        await job.use((tool.name, caller(tool)) for tool in tools)


def caller(tool):
    async def call(arguments):
        return tool.return_value_as_string(await tool.run_json(arguments, CancellationToken()))

    return call


main(drive)
