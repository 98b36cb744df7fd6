# pyright: basic, reportMissingImports=false
"""Google ADK: tools with their declarations for Gemini."""

from contract import Job, main
from google.adk.tools.mcp_tool.mcp_session_manager import StdioConnectionParams, StreamableHTTPConnectionParams
from google.adk.tools.mcp_tool.mcp_toolset import McpToolset
from mcp import StdioServerParameters


async def drive(job: Job) -> None:
    server = StreamableHTTPConnectionParams(url=job.url, timeout=30)
    if job.is_stdio:
        parameters = StdioServerParameters(command=job.command, args=job.args)
        server = StdioConnectionParams(server_params=parameters, timeout=30)
    toolset = McpToolset(connection_params=server)
    try:
        tools = await toolset.get_tools()
        for tool in tools:
            tool._get_declaration()
        await job.use((tool.name, caller(tool)) for tool in tools)
    finally:
        await toolset.close()


def caller(tool):
    return lambda arguments: tool._run_async_impl(args=arguments, tool_context=None, credential=None)


main(drive)
