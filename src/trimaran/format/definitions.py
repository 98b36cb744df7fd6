"""A tool as a provider sees it: a name, a description, an input schema. Read from whatever holds a tool's definition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, TypeAlias, cast

import msgspec

from trimaran.errors import DeclarationError
from trimaran.types import Json, Tool

from .trees import Schema, as_schema

AnyTool: TypeAlias = Tool | Mapping[str, Json]
"""A tool's definition: the struct, or the mapping it is on the wire."""
AnyTools: TypeAlias = AnyTool | Iterable[AnyTool]


class Definition(NamedTuple):
    name: str
    description: str
    schema: Schema


def is_one(tools: AnyTools) -> bool:
    return isinstance(tools, (Tool, Mapping))


def read_tools(tools: AnyTools) -> list[Definition]:
    listed = [tools] if is_one(tools) else tools
    return [_read(tool) for tool in cast("Iterable[AnyTool]", listed)]


def _read(tool: AnyTool) -> Definition:
    if isinstance(tool, Tool):
        name, description, schema = tool.name, tool.description, tool.input_schema
    else:
        name, description = tool.get("name"), tool.get("description")
        schema = tool.get("inputSchema", tool.get("input_schema"))
    if isinstance(schema, msgspec.Raw):
        schema = msgspec.json.decode(schema)
    schema = {"type": "object"} if schema is None else as_schema(schema)
    if not isinstance(name, str) or not name:
        raise DeclarationError(f"a tool has a name, and this one has none: {str(tool)[:200]}")
    if schema is None:
        raise DeclarationError(f"the input schema of the tool {name!r} is not an object")
    return Definition(name, description if isinstance(description, str) else "", schema)
