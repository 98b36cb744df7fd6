# pyright: basic, reportMissingImports=false
"""Agno: functions as its agents get them."""

import shlex

from agno.tools.mcp import MCPTools
from contract import Job, main


async def drive(job: Job) -> None:
    tools = MCPTools(url=job.url, transport="streamable-http", timeout_seconds=30)
    if job.is_stdio:
        tools = MCPTools(shlex.join([job.command, *job.args]), timeout_seconds=30)
    async with tools:
        functions = {**tools.functions, **tools.async_functions}
        await job.use((name, caller(function)) for name, function in functions.items())


def caller(function):
    async def call(arguments):
        result = await function.entrypoint(**arguments)
        return str(result.content) if hasattr(result, "content") else str(result)

    return call


main(drive)
