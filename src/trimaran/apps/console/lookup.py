"""Look up the names on a line: commands, and the tools of a host with their arguments.

Reads the host and changes nothing. Names and schemas are the servers', so a word of ours about them is bounded and made safe.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, cast

from trimaran.host import Host, UnknownName
from trimaran.host.names import PREFIX, Address
from trimaran.host.terminal_text import in_one_line
from trimaran.schema.typed_values import kinds_of, properties_of, target_of
from trimaran.types import Tool

# name -> (what may follow it, what it does)
COMMANDS: Final[dict[str, tuple[str, str]]] = {
    "/help": ("", "what can be typed here, and the keys"),
    "/mcp": ("", "the servers: how they are, their tools, their rules"),
    "/tools": ("[TEXT]", "list the tools, or those with this text in them"),
    "/tool": ("NAME", "a tool's arguments and what it says about itself"),
    "/resources": ("[SERVER]", "list the resources that can be mentioned"),
    "/read": ("@SERVER:RESOURCE [WORDS]", "show a resource"),
    "/prompts": ("[SERVER]", "list the prompts"),
    "/prompt": ("SERVER:NAME [KEY=VALUE]", "show what a prompt says"),
    "/explain": ("NAME", "the permission rules that have a say about a tool"),
    "/more": ("", "the next page of a result that was cut"),
    "/clear": ("", "empty the screen, and begin a new conversation with the model"),
    "/model": ("[NAME]", "the model that answers messages"),
    "/quit": ("", "end the servers, and leave"),
}

_MOST_COMPARED: Final = 2000  # names that a misspelt one is compared with: a tenth of a second
_MOST_VALUES: Final = 200
_MAX_DEPTH: Final = 8  # of references and unions


class Argument(NamedTuple):
    name: str
    kind: str
    """Its type, in a word."""
    is_required: bool
    description: str
    values: tuple[Any, ...]
    """The allowed values, if the schema lists them."""

    @property
    def help(self) -> str:
        kind = f"{self.kind}, required" if self.is_required else self.kind
        return in_one_line(f"{kind}: {self.description}" if self.description else kind, 80)


def tools_of(host: Host) -> list[Tool]:
    """The tools that can be called now, under the names of the catalog."""
    return host.tools()


def find_address(host: Host, name: str) -> Address:
    """Server and tool of a name in any form: the catalog's, a provider's, or the one of permission rules.

    Raises:
        UnknownName, ServerUnavailable: as `Host.find` does.
    """
    try:
        return host.find(name)
    except UnknownName:
        if not name.startswith(PREFIX):
            raise
        return host.find(name.removeprefix(PREFIX))


def find_tool(host: Host, address: Address) -> Tool | None:
    """The tool, if its server is connected."""
    for tool in tools_of(host):
        if host.find(tool.name) == address:
            return tool
    return None


def nearest(word: str, names: Iterable[str]) -> str:
    """The known name that is most like a misspelt one, or nothing; also where the server's name was left out."""
    known: dict[str, str] = {}
    for name in names:
        if len(known) >= _MOST_COMPARED:
            break
        if len(name) <= 200:
            known.setdefault(name, name)
            known.setdefault(name.partition(":")[2] or name, name)
    matches = difflib.get_close_matches(word[:200], known, n=1, cutoff=0.6)
    return known[matches[0]] if matches else ""


def arguments_of(schema: Any) -> list[Argument]:
    """The arguments a tool declares, in its order."""
    root: Mapping[str, Any] = cast("Any", schema) if isinstance(schema, Mapping) else {}
    listed: Any = root.get("required")
    required = {name for name in cast("list[Any]", listed) if isinstance(name, str)} if isinstance(listed, list) else ()
    return [
        _argument(name, property_schema, root, is_required=name in required)
        for name, property_schema in properties_of(schema).items()
    ]


def _argument(name: str, schema: Any, root: Mapping[str, Any], *, is_required: bool) -> Argument:
    kinds = kinds_of(schema, root)
    if len(kinds) == 7:
        kind = "anything"
    else:
        kind = " or ".join(sorted(kinds - {"integer"} if "number" in kinds else kinds)) or "nothing"
    description: Any = cast("dict[str, Any]", schema).get("description") if isinstance(schema, dict) else None
    values = tuple(_values(schema, root, 0))[:_MOST_VALUES]
    if not values and kinds == frozenset({"boolean"}):
        values = (True, False)
    return Argument(
        name, kind, is_required, in_one_line(description, 200) if isinstance(description, str) else "", values
    )


def _values(schema: Any, root: Mapping[str, Any], depth: int) -> list[Any]:
    """The values a schema names, if it names them all."""
    if not isinstance(schema, dict) or depth > _MAX_DEPTH:
        return []
    node = cast("dict[str, Any]", schema)
    if isinstance(node.get("enum"), list):
        return list(node["enum"][:_MOST_VALUES])
    if "const" in node:
        return [node["const"]]
    for key in ("anyOf", "oneOf"):
        branches: Any = node.get(key)
        if isinstance(branches, list):
            values: list[Any] = []
            for branch in cast("list[Any]", branches)[:_MOST_VALUES]:
                values += _values(branch, root, depth + 4)  # deeper unions are not meant as choices
            return values
    if isinstance(node.get("$ref"), str):
        return _values(target_of(node["$ref"], root), root, depth + 1)
    return []


def main_argument(arguments: Iterable[Argument]) -> str | None:
    """The only one that is required, if it may be a string: it needs no name."""
    required = [argument for argument in arguments if argument.is_required]
    if len(required) == 1 and required[0].kind in ("string", "anything", "null or string"):
        return required[0].name
    return None
