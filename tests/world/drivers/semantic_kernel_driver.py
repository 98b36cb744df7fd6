# pyright: basic, reportMissingImports=false
"""Semantic Kernel: a plugin per server."""

from contract import Job, main
from semantic_kernel.connectors.mcp import MCPStdioPlugin, MCPStreamableHttpPlugin


async def drive(job: Job) -> None:
    plugin = MCPStreamableHttpPlugin(name="harbour", url=job.url)
    if job.is_stdio:
        plugin = MCPStdioPlugin(name="harbour", command=job.command, args=job.args)
    async with plugin:
        tools = (await plugin.session.list_tools()).tools
        await job.use((tool.name, caller(plugin, tool.name)) for tool in tools)


def caller(plugin, name):
    async def call(arguments):
        contents = await plugin.call_tool(name, **arguments)
        return "\n".join(str(content) for content in contents)

    return call


main(drive)
