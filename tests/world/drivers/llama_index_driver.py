# pyright: basic, reportMissingImports=false
"""LlamaIndex: tools as its agents get them. It opens a session per call."""

from contract import Job, main
from llama_index.tools.mcp import BasicMCPClient, McpToolSpec


async def drive(job: Job) -> None:
    client = BasicMCPClient(job.url, timeout=30)
    if job.is_stdio:
        client = BasicMCPClient(job.command, args=job.args, timeout=30)
    tools = await McpToolSpec(client=client).to_tool_list_async()
    await job.use((tool.metadata.name, caller(tool)) for tool in tools)


def caller(tool):
    return lambda arguments: tool.acall(**arguments)


main(drive)
