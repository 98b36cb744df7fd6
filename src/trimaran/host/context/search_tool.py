"""Let a model find tools that are not in its list, and use them: `search_tools` and `call_tool`.

    model: search_tools(query="send a mail")      -> the definitions of the best tools, which are active from now on
    model: mcp__mail__send(...)                   if the program declares active tools (`host.tools(budget=...)` does)
    model: call_tool(name="mcp__mail__send", ...) if it does not

Both are own tools of the host. Searching needs no permission: it sends nothing to a server, and finds only what the model might
be offered anyway. `call_tool` is `Host.call` with another name, so rules, questions and limits hold as for a direct call.
`ToolFinder` keeps the index up to date; `search.py` ranks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, cast, final

import msgspec

from trimaran.client.results import ToolResult
from trimaran.errors import LocalProtocolError
from trimaran.host.names import Address
from trimaran.types import Tool

from .own_tools import OwnCallOptions, own_result
from .search import ToolIndex

SEARCH_TOOLS: Final = "search_tools"
CALL_TOOL: Final = "call_tool"
TOOLS_META: Final = "trimaran/tools"
"""The names of the tools that were found, in the `meta` of a search's result."""
USUAL_FOUND: Final = 5
MOST_FOUND: Final = 20  # definitions in one result; more would cost what search is there to save
_MOST_SERVERS: Final = 40  # named in the declaration
_AT_ONCE: Final = 300  # tools that are indexed at once, some 10 ms; more are indexed in a thread


def search_declarations(hidden: Mapping[str, int]) -> list[Tool]:
    """The definitions of `search_tools` and `call_tool`, for a model.

    Args:
        hidden: How many tools of each server the model does not see.
    """
    servers = sorted(hidden)
    named = ", ".join(f"{server} ({hidden[server]})" for server in servers[:_MOST_SERVERS])
    more = f" and {len(servers) - _MOST_SERVERS} more servers" if len(servers) > _MOST_SERVERS else ""
    return [
        Tool(
            name=SEARCH_TOOLS,
            description=(
                f"Find tools that are not listed here. There are {sum(hidden.values())} more, of these servers: "
                f"{named}{more}. Say in a few words what is to be done. Returns definitions, best first."
            ),
            input_schema={
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "What is to be done, such as: send an email"},
                    "limit": {"type": "integer", "minimum": 1, "maximum": MOST_FOUND, "default": USUAL_FOUND},
                },
                "required": ["query"],
            },
        ),
        Tool(
            name=CALL_TOOL,
            description=f"Call a tool that {SEARCH_TOOLS} returned and that is not listed here.",
            input_schema={
                "type": "object",
                "properties": {
                    "name": {"type": "string", "description": "The tool's whole name"},
                    "arguments": {"type": "object", "description": "As its inputSchema says"},
                },
                "required": ["name"],
            },
        ),
    ]


class ServerTexts(NamedTuple):
    """The indexed texts of one server."""

    tools: Sequence[Tool]
    about: str


@final
class ToolFinder:
    """The index of a host's tools. Searches may overlap; the index is brought up to date by one at a time."""

    def __init__(self) -> None:
        self._index = ToolIndex()
        self._indexed: dict[str, tuple[tuple[int, ...], str]] = {}
        """Of each server: the identities of its tools, and its text."""
        self._tools: dict[str, Sequence[Tool]] = {}
        """The indexed tools; held, so that no other object gets the identity of one."""
        self._lock = asyncio.Lock()

    async def find(
        self, query: str, limit: int, servers: Mapping[str, ServerTexts], among: Callable[[Address], bool]
    ) -> list[Address]:
        """The tools that fit, best first, of these servers as they are now."""
        async with self._lock:
            changes = self._changes(servers)
            if sum(len(texts.tools) for texts in changes.values()) > _AT_ONCE:
                await asyncio.to_thread(self._apply, servers, changes)
            elif changes or len(self._indexed) != len(servers):
                self._apply(servers, changes)
            return [match.address for match in self._index.search(query, limit, among=among)]

    def _changes(self, servers: Mapping[str, ServerTexts]) -> dict[str, ServerTexts]:
        return {name: texts for name, texts in servers.items() if self._indexed.get(name) != _state(texts)}

    def _apply(self, servers: Mapping[str, ServerTexts], changes: Mapping[str, ServerTexts]) -> None:
        for name in [name for name in self._indexed if name not in servers]:
            self._index.remove(name)
            del self._indexed[name], self._tools[name]
        for name, texts in changes.items():
            self._index.update(name, texts.tools, about=texts.about)
            self._indexed[name], self._tools[name] = _state(texts), texts.tools
        self._index.prepare()


def _state(texts: ServerTexts) -> tuple[tuple[int, ...], str]:
    return tuple(map(id, texts.tools)), texts.about


# --- what a model is told --------------------------------------------------------------------------------------------


async def run_search(
    arguments: Mapping[str, Any], search: Callable[[str, int], Awaitable[list[Tool]]], servers: int
) -> ToolResult:
    """The result of a model's `search_tools`.

    Args:
        search: Finds tools, under the names that the model must use, and activates them.
        servers: How many servers were searched.
    """
    query, limit = arguments.get("query"), arguments.get("limit", USUAL_FOUND)
    if not isinstance(query, str) or not query.strip():
        raise LocalProtocolError.invalid_params(f'{SEARCH_TOOLS} needs a query, such as {{"query": "send an email"}}')
    if isinstance(limit, bool) or not isinstance(limit, int):
        limit = USUAL_FOUND
    return _search_result(query, await search(query, min(max(limit, 1), MOST_FOUND)), servers)


def _search_result(query: str, tools: Sequence[Tool], servers: int) -> ToolResult:
    if not tools:
        text = f"No tool of {servers} servers has a word of {query[:200]!r}. Use other words: a verb and a noun, in English."
        return own_result(text, {TOOLS_META: []})
    definitions = [
        {
            "name": tool.name,
            **({"description": tool.description} if tool.description else {}),
            "inputSchema": cast("Any", tool.input_schema),
        }
        for tool in tools
    ]
    text = "\n".join(msgspec.json.encode(definition).decode() for definition in definitions)
    return own_result(text, {TOOLS_META: [tool.name for tool in tools]})


async def run_call(
    arguments: Mapping[str, Any],
    options: OwnCallOptions,
    call: Callable[..., Awaitable[ToolResult]],
    own: Mapping[str, object],
) -> ToolResult:
    """The result of a model's `call_tool`.

    Args:
        call: `Host.call`.
        own: The host's own tools, which are called directly.
    """
    name, inner = arguments.get("name"), arguments.get("arguments")
    if not isinstance(name, str) or not name:
        raise LocalProtocolError.invalid_params(
            f'{CALL_TOOL} needs the name of a tool: {{"name": "mcp__mail__send", "arguments": {{}}}}; {SEARCH_TOOLS} finds names'
        )
    if name in own:
        raise LocalProtocolError.invalid_params(f"call {name} itself, not through {CALL_TOOL}")
    return await call(name, inner, **options)
