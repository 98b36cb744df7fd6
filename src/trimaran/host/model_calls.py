"""A model's calls as this host's calls, and results as what a model reads (R223).

`trimaran.format` knows the shapes of the providers; here they meet the catalog: its names, its schemas, and the limits of each
server. It calls nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast, final

import msgspec
from msgspec import UNSET

from trimaran.client.results import ToolResult
from trimaran.errors import DeclarationError, Error, LocalProtocolError
from trimaran.types import CallToolResult, Json, TextContent

from .context.read_output import READ_OUTPUT
from .host_tools import HostTools
from .long_results import LongResults
from .names import Address
from .output_limits import without_warning
from .server_table import ServerTable
from .tool_catalog import ToolCatalog

if TYPE_CHECKING:
    from trimaran.format import Format, ToolCall


_LONGEST_SCHEMA: Final = 8000  # characters of a schema that a model is shown after a mistake: about 2,000 tokens


@final
class ModelCalls:
    """Translates between the models of one host and its calls.

    Args:
        catalog, servers: Those of the host, which change.
        host_tools: The host's own tools.
        find: `Host.find`.
        long_results: Cuts what is too long for a model.
    """

    def __init__(
        self,
        catalog: ToolCatalog,
        servers: ServerTable,
        host_tools: HostTools,
        *,
        find: Callable[[str], Address],
        long_results: LongResults,
    ) -> None:
        self._catalog = catalog
        self._servers = servers
        self._host_tools = host_tools
        self._find = find
        self._long_results = long_results
        self.shortened: frozenset[Address] = frozenset()
        """The tools of which a model got less than the whole schema, so that their arguments are checked here."""

    def read(self, call: object, format: Format) -> ToolCall:
        """See `Host.from_call`."""
        from trimaran.format import ToolCall, restore_arguments
        from trimaran.format.providers import read_call

        read = read_call(call, format)
        if self._host_tools.get(read.name) is not None or self._is_coming(read.name):
            return read  # `call` starts its server; its schema is not known before
        address = self._find(read.name)
        schema: Any = self._catalog.tools[address].tool.input_schema
        arguments = restore_arguments(read.arguments, schema)
        if address in self.shortened:
            _check_arguments(read.name, arguments, schema)
        return ToolCall(self._catalog.names.catalog(*address), arguments, read.id)

    def _is_coming(self, name: str) -> bool:
        return name not in self._catalog and any(
            self._catalog.tool_part(server.name, name) is not None for server in self._servers.coming()
        )

    def write(
        self, result: ToolResult | Error, call: ToolCall, format: Format, *, media_follows: bool = False
    ) -> dict[str, Json]:
        """See `Host.to_result`."""
        from trimaran.format.deferred import is_deferred_search, search_to_provider
        from trimaran.format.providers import to_provider, write_result

        from .context.search_tool import TOOLS_META

        if isinstance(result, ToolResult) and is_deferred_search(call.name, format) and self._host_tools.get(call.name):
            names = cast("list[str]", result.meta[TOOLS_META])
            tools = [
                self._catalog.named(self._catalog.find(name), self._catalog.names.provider)
                for name in names
                if name in self._catalog
            ]
            return search_to_provider(to_provider(tools, format, fit="auto"), call.id, format)
        content: Any = result
        if isinstance(result, Error):
            text = str(result)
            for plan in self._servers.plans.values():
                text = plan.mask(text)  # a client's error may name the whole command or URL
            content = CallToolResult(content=[TextContent(text=text)], is_error=True)
        else:
            content = self._shorten(result, call.name, format)
        # A name that no tool has yet stays as the model wrote it.
        name = self._catalog.names.provider(*self._catalog.find(call.name)) if call.name in self._catalog else call.name
        return write_result(content, format, name=name, call_id=call.id, media_follows=media_follows)

    def _shorten(self, result: ToolResult, name: str, format: str) -> CallToolResult:
        """A result in the form that costs a model least, cut where it is too long for one."""
        from .context.result_shapes import shape_result

        structured: Any = result.structured
        content = without_warning(result.content)
        if (earlier := self._long_results.cut_of(result)) is not None:
            content.pop()  # its notice
        whole = CallToolResult(
            content=content,
            structured_content=UNSET if structured is None else structured,
            is_error=result.is_error,
        )
        if name == READ_OUTPUT:
            return whole  # a page is small already, and a cut page would be kept again
        shaped = shape_result(whole, format)
        server = self._servers.get(self._catalog.find(name).server) if name in self._catalog else None
        return self._long_results.cut_for_model(shaped, server, name, earlier)


def _check_arguments(name: str, arguments: dict[str, Any], schema: dict[str, Any]) -> None:
    """Check the arguments of a tool whose definition was shortened, and show the schema to the model if they do not fit."""
    from trimaran.schema import validate

    try:
        violations = [violation for violation in validate(arguments, schema) if not violation.is_unchecked]
    except DeclarationError:  # not a schema that can be checked: its server decides
        return
    if violations:
        text = msgspec.json.encode(schema).decode()
        excerpt = text if len(text) <= _LONGEST_SCHEMA else text[:_LONGEST_SCHEMA] + " ..."
        raise LocalProtocolError.invalid_params(
            f"invalid arguments for {name}: {violations[0]}. Its whole schema: {excerpt}"
        )
