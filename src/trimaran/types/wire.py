"""The ground every wire type stands on: the struct options, the JSON alias, the shapes shared by several spec pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType, field

# A JSON value. `Any` because a recursive alias would make every handler's signature unreadable.
Json: TypeAlias = Any

Role: TypeAlias = Literal["user", "assistant"]

MAX_URI: Final = 8192
"""Characters of a URI or a URI template. RFC 9110 wants 8,000 at least; nginx and Apache have about that."""
MAX_NAME: Final = 1024
"""Characters of what a request names: a tool, a prompt, an argument, a task, itself. Models are offered 64 or 128."""

# Names in a request are looked up, kept and repeated in messages; so their length is checked while they are decoded.
Name: TypeAlias = Annotated[str, Meta(max_length=MAX_NAME)]
Uri: TypeAlias = Annotated[str, Meta(max_length=MAX_URI)]
Cursor: TypeAlias = Annotated[str, Meta(max_length=MAX_URI)]
Text: TypeAlias = Annotated[str, Meta(max_length=MAX_URI)]  # what a person types, to be completed

TAGS_KEYS: Final = ("fastmcp", "_fastmcp")
"""Where `_meta` has tags: under the key of FastMCP since 3.0, whose clients look there, or under the key before that."""


def as_object(value: object) -> dict[str, Json] | None:
    """A decoded JSON value if it is an object, else None."""
    return value if isinstance(value, dict) else None  # pyright: ignore[reportUnknownVariableType]


class Wire(Struct, kw_only=True, omit_defaults=True, rename="camel"):
    """A value that travels: camelCase on the wire, snake_case here, unset fields left out."""

    def to_json(self) -> dict[str, Json]:
        """The value as the mapping that goes on the wire."""
        return msgspec.to_builtins(self)


class Tagged(Wire):
    """A tool, a resource, a template or a prompt, as a list shows it."""

    @property
    def tags(self) -> frozenset[str]:
        """The tags its author gave it; servers of FastMCP tell theirs the same way, under either key."""
        meta: dict[str, Json] = getattr(self, "meta", None) or {}
        for key in TAGS_KEYS:
            tags: Json = (as_object(meta.get(key)) or {}).get("tags")
            if isinstance(tags, list):
                return frozenset(tag for tag in cast("list[Json]", tags) if isinstance(tag, str))
        return frozenset()


class Value(Struct, kw_only=True, omit_defaults=True, rename="camel", frozen=True):
    """The same for what nobody changes once it is made."""

    def to_json(self) -> dict[str, Json]:
        """The value as the mapping that goes on the wire."""
        return msgspec.to_builtins(self)


class Params(Value, frozen=True):
    """The params of a request. `_meta` stays raw: the reader has its own, memoised, way with it."""

    meta: Raw | UnsetType = field(name="_meta", default=UNSET)


class Icon(Value, frozen=True):
    """A picture a client may show beside a name."""

    src: str
    mime_type: str | None = None
    sizes: list[str] | None = None
    theme: Literal["light", "dark"] | None = None


class Annotations(Value, frozen=True):
    """Hints on who a piece of content is for and how much it matters (0 to 1)."""

    audience: list[Role] | None = None
    priority: float | None = None
    last_modified: str | None = None


if TYPE_CHECKING:
    Hints: TypeAlias = Annotations | dict[str, Json]
    """Annotations, or the mapping they are on the wire: senders may give either, receivers get the mapping."""
else:
    # msgspec decodes no union of a struct and a mapping, and what a peer sends need not fit the struct.
    Hints = Any


class Implementation(Value, frozen=True):
    """The name and version a program gives itself. Display only: nothing may be decided by it."""

    name: str
    version: str
    title: str | None = None
    description: str | None = None
    website_url: str | None = None
    icons: list[Icon] | None = None
    meta: dict[str, Json] | None = field(name="_meta", default=None)
