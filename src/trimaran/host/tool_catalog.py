"""The tools of all servers as one catalog: their names, what the rules decide about, and what `mcp.toml` says of each.

`renew` reads what the servers list at present; in between the catalog stays as it is. It starts no server and decides
nothing: `host.py` does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import msgspec
from msgspec.structs import replace

from trimaran.types import Tool

from .names import PREFIX, Address, Names, rule_name
from .permissions import Subject
from .server_table import ServerTable
from .supervise import SupervisedServer
from .tool_formats import CatalogEntry

if TYPE_CHECKING:
    from .context.budget import Choice
    from .transforms import TransformedTool


class CatalogTool(NamedTuple):
    """A tool of the catalog, and the subject that the rules decide about."""

    tool: Tool
    act: Subject
    original: Tool
    """As the server lists it; the same tool, if it is not transformed."""
    transformed: TransformedTool | None
    reasons: tuple[str, ...] = ()
    """Why a call of it asks, whatever the rules say."""

    def guess_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments as they would be sent, if they are complete."""
        return arguments if self.transformed is None else self.transformed.guess_arguments(dict(arguments))


@final
class ToolCatalog:
    """The tools of these servers, by address.

    Args:
        servers: Those of the host, which change.
        separator: As for `Host`.
    """

    def __init__(
        self,
        servers: ServerTable,
        *,
        separator: str | None,
    ) -> None:
        self._servers = servers
        self._separator: Final = separator
        self.names: Names = Names({}, separator=separator)
        self.tools: dict[Address, CatalogTool] = {}
        """A new dict after each `renew`, so that it can be told from the one before."""

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def find(self, name: str) -> Address:
        """The server and the tool of a name, in either form.

        Raises:
            UnknownName: no tool has this name.
        """
        return self.names.find(name)

    def renew(self) -> None:
        """Name all tools again. The tools of a lost server keep their names: it may be back in a moment (C40)."""
        self.names = self.names.renewed(
            {name: list(server.tools) for name, server in self._servers.items()}, self._servers.safe
        )
        tools: dict[Address, CatalogTool] = {}
        for name, server in self._servers.items():
            for tool in server.tools.values():
                address = Address(name, tool.name)
                known = self.tools.get(address)
                reasons = server.reasons.get(known.original.name, ()) if known is not None else ()
                is_known = known is not None and known.tool is tool and known.reasons == reasons
                tools[address] = known if known is not None and is_known else self._list(address, tool, server)
        self.tools = tools

    def _list(self, address: Address, tool: Tool, server: SupervisedServer) -> CatalogTool:
        transformed = server.transformed.get(tool.name)
        # The rules are about the server's own tool, whatever it is called here.
        original = tool if transformed is None else transformed.original
        act = Subject.tool(
            address.server,
            original.name,
            schema=original.input_schema,
            definition=_digest_definition(original),
            name=self.names.catalog(*address),
            safe=self._servers.safe[address.server],
        )
        return CatalogTool(tool, act, original, transformed, server.reasons.get(original.name, ()))

    def named(self, address: Address, naming: Callable[[str, str], str]) -> Tool:
        """The tool under the name that `naming` gives it."""
        return replace(self.tools[address].tool, name=naming(*address))

    def entries(self, connected: Container[str], is_for_provider: bool) -> list[CatalogEntry]:
        """The tools of the connected servers, in the order of their names."""
        naming = self.names.provider if is_for_provider else self.names.catalog
        return [
            CatalogEntry(address, self.named(address, naming), self._choice(address))
            for address in self.names
            if address in self.tools and address.server in connected
        ]

    def _choice(self, address: Address) -> Choice | None:
        """The choice of `mcp.toml` for a tool under a budget; the tool's own entry goes before that of the server."""
        plan = self._servers.plans.get(address.server)
        entry = None if plan is None else plan.entry
        if entry is None:
            return None
        chosen = {pattern: settings for pattern, settings in entry.tools.items() if settings.always or settings.lazy}
        if chosen:
            from trimaran.server.definition_transforms import matches

            for pattern, settings in chosen.items():
                if matches(pattern, self.tools[address].original):
                    return "always" if settings.always else "lazy"
        return "always" if entry.always else "lazy" if entry.lazy else None

    def names_for(self, server: str, tool: str) -> tuple[str, str, str]:
        """The names under which a tool would be called, in the catalog or not."""
        whole = rule_name(self._servers.safe[server], tool)
        return whole, whole.removeprefix(PREFIX), f"{server}{self._separator or '__'}{tool}"

    def tool_part(self, server: str, name: str) -> str | None:
        """The tool's part of the name, if the name begins with this server's."""
        safe = self._servers.safe[server]
        for start in (f"{PREFIX}{safe}__", f"{safe}__", f"{server}{self._separator or '__'}"):
            if name.startswith(start):
                return name.removeprefix(start)
        return None


def _digest_definition(tool: Tool) -> str:
    """A digest of the fields that say what a tool does; icons and the like are left out."""
    definition = [tool.name, tool.title, tool.description, tool.input_schema, tool.output_schema, tool.annotations]
    return hashlib.sha256(msgspec.json.encode(definition, order="deterministic")).hexdigest()
