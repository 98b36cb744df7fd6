"""Tables of the JSON Schema that each provider accepts.

A profile is data; `rules.py` applies it. The figures come from the providers' references and from the errors their APIs
answer with, as of autumn 2026:

    anthropic           Messages API: JSON Schema 2020-12, but no anyOf, oneOf or allOf at the top
    anthropic-strict    the same with `strict: true`: a grammar is made of the schema, so a subset of the keywords
    openai              Chat Completions and Responses without `strict`: an object at the top, arrays say their items
    openai-strict       Structured Outputs: every property required, every object closed
    gemini              `parametersJsonSchema`: JSON Schema is taken, but only some keywords are heeded
    gemini-openapi      `parameters`: the older subset of OpenAPI 3.0; an unknown keyword refuses the whole request

One tool that a provider refuses takes the whole request with it, and the error seldom names the tool (P25).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias, final

from msgspec import Struct

from trimaran.errors import ConfigError

Weight: TypeAlias = Literal["refused", "ignored"]
"""The effect of a finding: the provider refuses the request, or accepts it and ignores that part."""


@final
class Profile(Struct, frozen=True, kw_only=True):
    """The part of JSON Schema that one provider takes. None means no limit, or no documented one."""

    name: str
    keywords: frozenset[str] | None = None
    """The keywords it knows; None: all of JSON Schema."""
    unknown: Weight = "refused"
    """The treatment of any other keyword."""
    root_refuses: frozenset[str] = frozenset()
    """Keywords it refuses at the top, though it may take them further down."""
    root_lists_properties: bool = False
    """Whether the top must have `properties`, even if empty."""
    name_pattern: str = r"[a-zA-Z0-9_-]{1,64}"
    """The pattern of tool names."""
    property_pattern: str | None = None
    """The pattern of argument names."""
    most_tools: int | None = None
    most_description: int | None = None
    """Characters in a tool's description."""
    most_levels: int | None = None
    """Objects within objects."""
    most_properties: int | None = None
    most_enum_values: int | None = None
    most_text: int | None = None
    """Characters in all names and listed values together."""
    most_optional: int | None = None
    """Properties that are not required."""
    most_unions: int | None = None
    """Places with `anyOf` or several types."""
    formats: frozenset[str] | None = None
    type_lists: bool = True
    """Whether `"type": ["string", "null"]` is accepted."""
    enum_kinds: frozenset[str] | None = None
    """JSON types of listed values."""
    needs_type: bool = False
    needs_items: bool = False
    needs_properties: bool = False
    """Whether an object inside the schema must list at least one property."""
    required_are_defined: bool = False
    few_items: bool = False
    """Only 0 and 1 are taken for `minItems`."""
    closed: bool = False
    """Whether every object must have `additionalProperties: false`."""
    all_required: bool = False
    recursion: Literal["yes", "optional", "no"] = "yes"
    """Where a schema may contain itself: anywhere, within optional properties, or nowhere."""
    ref_siblings: bool = True
    """Whether other keywords may stand beside `$ref`."""
    all_of_refs: bool = True
    """Whether `allOf` may hold references."""


_JSON_FORMATS: Final = frozenset(("date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"))
_COMMON: Final = frozenset(
    (
        "type",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "enum",
        "anyOf",
        "format",
        "title",
        "description",
    )
)
_REFS: Final = frozenset(("$ref", "$defs"))

_ALL: Final = (
    Profile(
        name="anthropic",
        root_refuses=frozenset(("anyOf", "oneOf", "allOf")),
        property_pattern=r"[a-zA-Z0-9_.-]{1,64}",
    ),
    Profile(
        name="anthropic-strict",
        keywords=_COMMON | _REFS | {"definitions", "const", "allOf", "default", "pattern", "minItems"},
        root_refuses=frozenset(("anyOf", "oneOf", "allOf")),
        property_pattern=r"[a-zA-Z0-9_.-]{1,64}",
        most_tools=20,
        most_optional=24,
        most_unions=16,
        formats=_JSON_FORMATS | {"uri"},
        enum_kinds=frozenset(("string", "integer", "number", "boolean", "null")),
        few_items=True,
        closed=True,
        recursion="no",
        all_of_refs=False,
    ),
    Profile(
        name="openai",
        root_refuses=frozenset(("anyOf", "oneOf", "allOf", "enum", "not")),
        root_lists_properties=True,
        most_tools=128,
        # Older models and Azure refuse more; the newest take it.
        most_description=1024,
        needs_items=True,
    ),
    Profile(
        name="openai-strict",
        keywords=_COMMON
        | _REFS
        | {"definitions", "const", "pattern", "multipleOf", "minimum", "maximum", "exclusiveMinimum"}
        | {"exclusiveMaximum", "minItems", "maxItems"},
        root_refuses=frozenset(("anyOf", "oneOf", "allOf", "enum", "not")),
        root_lists_properties=True,
        most_tools=128,
        most_description=1024,
        most_levels=10,
        most_properties=5000,
        most_enum_values=1000,
        most_text=120_000,
        formats=_JSON_FORMATS,
        needs_type=True,
        needs_items=True,
        required_are_defined=True,
        closed=True,
        all_required=True,
    ),
    Profile(
        name="gemini",
        keywords=_COMMON
        | _REFS
        | {"$id", "$anchor", "prefixItems", "minItems", "maxItems", "minimum", "maximum", "oneOf", "propertyOrdering"},
        unknown="ignored",
        name_pattern=r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}",
        enum_kinds=frozenset(("string", "integer", "number")),
        recursion="optional",
        ref_siblings=False,
    ),
    Profile(
        name="gemini-openapi",
        keywords=(_COMMON - {"additionalProperties"})
        | {"nullable", "maxItems", "minItems", "minProperties", "maxProperties", "minLength", "maxLength", "pattern"}
        | {"example", "propertyOrdering", "default", "minimum", "maximum"},
        name_pattern=r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}",
        formats=frozenset(("enum", "date-time", "float", "double", "int32", "int64")),
        type_lists=False,
        enum_kinds=frozenset(("string",)),
        needs_type=True,
        needs_items=True,
        needs_properties=True,
        required_are_defined=True,
        recursion="no",
    ),
)

PROFILES: Final[Mapping[str, Profile]] = MappingProxyType({profile.name: profile for profile in _ALL})
"""Every profile by its name."""


def profile_named(name: str | Profile) -> Profile:
    """The profile of this name.

    Raises:
        ConfigError: there is none.
    """
    if isinstance(name, Profile):
        return name
    if name not in PROFILES:
        raise ConfigError(f"there is no schema profile {name!r}; the known ones are {', '.join(sorted(PROFILES))}")
    return PROFILES[name]
