"""The tools that a host itself offers to models: search, call by name, code, the rest of a long output.

They have plain names and no server. A server's tool of the same name goes first. `context/` has the code of each;
here they meet the servers. A call that one of them makes is a call of the host: rules, questions and limits hold.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, final

from trimaran.client.results import ToolResult
from trimaran.errors import LocalProtocolError
from trimaran.types import Tool

from .context.activation import ActiveTools
from .context.own_tools import OwnCallOptions, OwnTool
from .context.read_output import READ_OUTPUT
from .names import Address
from .server_table import ServerTable
from .supervise import SupervisedServer
from .tool_catalog import ToolCatalog

if TYPE_CHECKING:
    from .context.code import CodeLimits, CodeResult, CodeTools
    from .context.search_tool import ToolFinder


@final
class HostTools:
    """The own tools of one host.

    Args:
        catalog, servers, active: Those of the host, which change.
        call: `Host.call`.
        call_for_code: Calls a server's tool, and shortens nothing.
        read_output: Runs the tool that reads a stored output on.
        require_open: Raises if the host is not open.
    """

    def __init__(
        self,
        catalog: ToolCatalog,
        servers: ServerTable,
        active: ActiveTools,
        *,
        call: Callable[..., Awaitable[ToolResult]],
        call_for_code: Callable[[str, dict[str, Any], OwnCallOptions], Awaitable[ToolResult]],
        read_output: OwnTool,
        require_open: Callable[[], None],
    ) -> None:
        self._catalog = catalog
        self._servers = servers
        self._active = active
        self._call = call
        self._call_for_code = call_for_code
        self._require_open = require_open
        self._tools: dict[str, OwnTool] = {
            "search_tools": self._run_search,
            "tool_search": self._run_search,
            "call_tool": self._run_call,
            "run_code": self._run_code,
            READ_OUTPUT: read_output,
        }
        self._finder: ToolFinder | None = None
        self._functions: tuple[object, list[str], CodeTools] | None = None
        """The catalog, the connected servers, and their tools as functions."""
        self._code_limits: CodeLimits | None = None

    def get(self, name: str) -> OwnTool | None:
        """The own tool of this name, unless a server has one."""
        return None if name in self._catalog else self._tools.get(name)

    # --- search ------------------------------------------------------------------------------------------------------

    async def find(self, query: str, limit: int) -> list[Address]:
        """The addresses of the tools that fit a description best."""
        from .context.search_tool import ServerTexts, ToolFinder

        self._require_open()
        if self._finder is None:
            self._finder = ToolFinder()
        connected = {name: server for name, server in self._servers.items() if server.state == "connected"}
        texts = {name: ServerTexts(tuple(server.tools.values()), _about(server)) for name, server in connected.items()}
        addresses = await self._finder.find(query, limit, texts, self._catalog.tools.__contains__)
        return [address for address in addresses if address in self._catalog.tools]  # it may have changed meanwhile

    async def _run_search(self, arguments: dict[str, Any], options: OwnCallOptions) -> ToolResult:
        from .context.search_tool import run_search

        async def search(query: str, limit: int) -> list[Tool]:
            addresses = await self.find(query, limit)
            self._active.add(addresses)
            return [self._catalog.named(address, self._catalog.names.provider) for address in addresses]

        return await run_search(arguments, search, len(self._servers.connected()))

    async def _run_call(self, arguments: dict[str, Any], options: OwnCallOptions) -> ToolResult:
        from .context.search_tool import run_call

        result = await run_call(arguments, options, self._call, self._tools)
        name = str(arguments["name"])
        if name in self._catalog:
            self._active.add([self._catalog.find(name)])
        return result

    # --- code instead of calls ---------------------------------------------------------------------------------------

    async def code(self, code: str, limits: CodeLimits | None, options: OwnCallOptions) -> CodeResult:
        """Run Python over the tools, in a sandbox."""
        from .context.code import run_code

        self._require_open()

        async def call(name: str, arguments: dict[str, Any]) -> ToolResult:
            return await self._call_for_code(name, arguments, options)

        async def search(query: str, limit: int) -> list[str]:
            return [self._catalog.names.provider(*address) for address in await self.find(query, limit)]

        return await run_code(code, self._code_tools(), call, search=search, limits=limits)

    def code_tool(self, limits: CodeLimits | None) -> Tool:
        """The declaration of `run_code`. The limits are those of every run that a model asks for from now on."""
        from .context.code import code_declaration

        self._code_limits = limits or self._code_limits
        return code_declaration(self._code_tools(), self._code_limits)

    def _code_tools(self) -> CodeTools:
        from .context.code import CodeTools

        connected = self._servers.connected()
        if self._functions is None or self._functions[0] is not self._catalog.tools or self._functions[1] != connected:
            entries = self._catalog.entries(connected, is_for_provider=True)
            tools = {entry.tool.name: entry.tool for entry in entries}
            self._functions = (self._catalog.tools, connected, CodeTools(tools))
        return self._functions[2]

    async def _run_code(self, arguments: dict[str, Any], options: OwnCallOptions) -> ToolResult:
        from .context.code import CodeLimits, code_result

        code = arguments.get("code")
        if not isinstance(code, str) or not code.strip():
            raise LocalProtocolError.invalid_params(
                'run_code needs code, such as {"code": "print(await server__tool())"}'
            )
        limits = self._code_limits or CodeLimits()
        # A person who approves code has not seen its calls, so each is decided by the rules.
        inner: OwnCallOptions = {**options, "approved": False, "meta": None, "on_progress": None}
        return code_result(await self.code(code, limits, inner), limits)


def _about(server: SupervisedServer) -> str:
    """The server's words about itself."""
    client = server.client
    if client is None:
        return ""
    info = client.server_info
    parts = [info.title, info.description] if info is not None else []
    return "\n".join(part for part in (*parts, client.instructions) if part)
