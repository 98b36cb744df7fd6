"""The acts that need permission: a tool call, a server's question to the person, and the use of our model.

Pure. Rules know a tool as `mcp__<server>__<tool>` (R271), with the safe name of the server, and by the name that the
catalog gave it where that is another. A server's own rules are about that server, whatever its safe name is.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, Literal, cast

from msgspec import Struct

from ..names import rule_name, safe_name

NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_-ABCDEFGHIJKLMNOPQRSTUVWXYZ")

_OTHER: Final = re.compile(r"[^A-Za-z0-9_-]")


def plain_name(name: str) -> str:
    """A name with `_` in place of every character that is not allowed (R271)."""
    return _OTHER.sub("_", name)


def main_argument(schema: object) -> str | None:
    """The argument that `Tool(<glob>)` looks at: the first that the schema requires, else the first that it has."""
    if not isinstance(schema, Mapping):
        return None
    node = cast("Mapping[str, Any]", schema)
    properties: Any = node.get("properties")
    known: list[Any] = list(cast("Mapping[str, Any]", properties)) if isinstance(properties, Mapping) else []
    required: Any = node.get("required")
    named: list[Any] = cast("list[Any]", required) if isinstance(required, list) else []
    for name in (*named, *known):
        if isinstance(name, str):
            return name
    return None


class Subject(Struct, frozen=True):
    """One thing that needs permission. Make it once per tool and keep it: `Subject.tool(...)`, `Subject.elicit(...)`."""

    kind: Literal["tool", "elicit", "sample"]
    """No rule is about a `sample`: it is a person's to decide, and is an act so that it can be recorded."""
    server: str
    name: str
    """The label; for an elicitation `Elicit(<server>)`, for sampling `Sample(<server>)`."""
    names: tuple[str, ...]
    """The names that global rules compare: those of a tool; of an elicitation those of the server."""
    main: str | None = None
    """The argument that `Tool(<glob>)` looks at; where it is not known, all of them are looked at."""
    definition: str = ""
    """A digest of the tool's definition. A standing permission holds for this definition only."""
    own: str = ""
    """The names that a server's own rules compare: the tool's name, with the safe name that the server has by itself."""

    @classmethod
    def tool(
        cls,
        server: str,
        tool: str,
        *,
        schema: object = None,
        definition: str = "",
        name: str = "",
        safe: str = "",
    ) -> Subject:
        """A call of a tool, by its original name.

        Args:
            safe: the safe name of the server, where that is not `safe_name(server)`.
            schema: its input schema, which decides its main argument.
            definition: a digest of all it says about itself.
            name: its name in the catalog, if that is not `mcp__<server>__<tool>`.
        """
        own = rule_name(safe_name(server), tool)
        usual = rule_name(safe, tool) if safe else own
        names = (usual,) if name in ("", usual) else (name, usual)
        return cls("tool", server, names[0], names, main_argument(schema), definition, own)

    @classmethod
    def elicit(cls, server: str, *, safe: str = "") -> Subject:
        """A question of a server's to the person (R241, R260)."""
        safe = safe or safe_name(server)
        return cls("elicit", server, f"Elicit({server})", (server,) if safe == server else (server, safe))

    @classmethod
    def sample(cls, server: str) -> Subject:
        """A server's use of our model."""
        return cls("sample", server, f"Sample({server})", (server,))

    def __str__(self) -> str:
        return self.name
