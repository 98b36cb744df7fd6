"""Providers' own deferred loading: definitions that cost no context until a search returns them.

Pure. Anthropic takes every definition with `defer_loading` and does not show it to the model until a result refers to it by
name. OpenAI's Responses takes a `tool_search` that we execute and whose output carries the definitions. Both put what was found
behind the conversation so far, so that the cached beginning of the prompt stays valid. The other formats have nothing like it.

In both, the search is ours (`trimaran.host.context.search`). Anthropic offers a search of its own, which compares words only.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, Final, cast

from trimaran.errors import ConfigError
from trimaran.types import Json

from .results import Shape

TOOL_SEARCH: Final = "tool_search"
"""The name of the search whose results are references; a search with definitions in its results has another."""
DEFERRING_FORMATS: Final = ("anthropic", "openai-responses")


def defer_tools(
    tools: Sequence[Mapping[str, Any]], search: Mapping[str, Any], keep: Container[str], format: str
) -> list[Shape]:
    """The `tools` of a request that loads most of them when they are needed.

    Args:
        tools: Every tool, in this format.
        search: The search tool, in this format; its name is replaced.
        keep: The names of the tools that the model sees at once.

    Raises:
        ConfigError: the provider cannot defer.
    """
    if format == "anthropic":
        deferred = [dict(tool) if tool["name"] in keep else {**tool, "defer_loading": True} for tool in tools]
        return [{**search, "name": TOOL_SEARCH}, *deferred]
    if format == "openai-responses":
        shape = {"type": TOOL_SEARCH, "execution": "client"}
        declared = {**shape, "description": search["description"], "parameters": search["parameters"]}
        return [declared, *(dict(tool) for tool in tools if tool["name"] in keep)]
    raise ConfigError(
        f"the format {format!r} cannot defer tools: those that can are {', '.join(DEFERRING_FORMATS)}; "
        'with search="tool", every format can search'
    )


def is_deferred_search(name: str, format: str) -> bool:
    return name == TOOL_SEARCH and format in DEFERRING_FORMATS


def search_to_provider(tools: Iterable[Mapping[str, Json]], call_id: str, format: str) -> Shape:
    """The result of a search: what the provider loads now.

    Args:
        tools: The tools that were found, in this format.
    """
    if format == "anthropic":
        references = [{"type": "tool_reference", "tool_name": tool["name"]} for tool in tools]
        content: Any = references or "no tool fits; use other words"
        return {"type": "tool_result", "tool_use_id": call_id, "content": content}
    output = {"type": "tool_search_output", "execution": "client", "call_id": call_id, "status": "completed"}
    return cast("Shape", {**output, "tools": [{**tool, "defer_loading": True} for tool in tools]})
