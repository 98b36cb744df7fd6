# pyright: basic, reportMissingImports=false
"""The Microsoft Agent Framework: functions as its agents get them."""

from agent_framework import MCPStdioTool, MCPStreamableHTTPTool
from contract import Job, main


async def drive(job: Job) -> None:
    tool = MCPStreamableHTTPTool(name="harbour", url=job.url)
    if job.is_stdio:
        tool = MCPStdioTool(name="harbour", command=job.command, args=job.args)
    async with tool:
        await job.use((function.name, caller(tool, function.name)) for function in tool.functions)


def caller(tool, name):
    async def call(arguments):
        contents = await tool.call_tool(name, **arguments)
        return contents if isinstance(contents, str) else "\n".join(str(content.to_dict()) for content in contents)

    return call


main(drive)
