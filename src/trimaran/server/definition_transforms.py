"""Definitions of tools: which ones are chosen, and what a transform makes of one.

Pure: a `Tool` in, a `Tool` out, and the plan for its arguments if they are changed. Servers use it for compiled tools
(`transforms.py`), hosts for the tools that a server lists.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Collection
from typing import Any, Final, final

import msgspec
from msgspec import Raw

from trimaran.errors import DeclarationError
from trimaran.schema import Schema
from trimaran.types import Json, Tool, ToolAnnotations, as_object
from trimaran.types.wire import TAGS_KEYS

from .argument_transforms import ArgumentPlan
from .transform_options import Choice, ToolChoice, TransformOptions, is_tool_name

_HINTS: Final = {field.name: field.encode_name for field in msgspec.structs.fields(ToolAnnotations)}


def matches(choice: Choice, tool: Tool) -> bool:
    if not isinstance(choice, str):
        return bool(choice(tool))
    if choice.startswith("tag:"):
        return any(fnmatch.fnmatchcase(tag, choice[4:]) for tag in tool.tags)
    return fnmatch.fnmatchcase(tool.name, choice)


@final
class ToolFilter:
    """Which tools are shown: `include`, `exclude` and `read_only` of `Server.mount`."""

    def __init__(
        self,
        include: ToolChoice | None = None,
        exclude: ToolChoice = (),
        *,
        read_only: bool = False,
    ) -> None:
        self._include = None if include is None else _choices(include, "include")
        self._exclude = _choices(exclude, "exclude")
        self._read_only = read_only

    def admits(self, tool: Tool) -> bool:
        if self._include is not None and not any(matches(choice, tool) for choice in self._include):
            return False
        if any(matches(choice, tool) for choice in self._exclude):
            return False
        return not self._read_only or _annotations(tool).get("readOnlyHint") is True

    @property
    def names(self) -> list[str]:
        """The names of single tools that it mentions."""
        return [
            choice
            for choice in (*(self._include or ()), *self._exclude)
            if isinstance(choice, str) and is_tool_name(choice)
        ]


def _choices(choices: ToolChoice, label: str) -> tuple[Choice, ...]:
    if callable(choices):
        return (choices,)
    if isinstance(choices, str) or not all(type(choice) is str and choice for choice in choices):
        raise DeclarationError(
            f'{label} must be a list of names, patterns and tags, {label}=["search_*", "tag:billing"], or a function of the '
            f"tool, not {choices!r}"
        )
    return tuple(choices)


def change_definition(tool: Tool, options: TransformOptions, *, is_exact: bool) -> tuple[Tool, ArgumentPlan | None]:
    """The definition that a transform makes of this one, and the plan for its arguments; None if they pass unread.

    Args:
        is_exact: The transform is for this very tool, so an argument that the tool does not have is a mistake.

    Raises:
        DeclarationError: the changes of the arguments do not fit the tool.
    """
    changed = msgspec.structs.replace(tool)
    changed.name = options.get("name", tool.name)
    changed.title = options.get("title", tool.title)
    changed.description = options.get("description", tool.description)
    if "annotations" in options:
        hints: dict[str, Json] = msgspec.to_builtins(options["annotations"])
        changed.annotations = {**_annotations(tool), **{_HINTS.get(name, name): hint for name, hint in hints.items()}}
    if "tags" in options:
        changed.meta = _with_tags(tool.meta or {}, options["tags"])
    arguments = options.get("arguments", {})
    has_wrap = "wrap" in options
    if not arguments and not has_wrap:
        return changed, None
    schema = plain_schema(tool.input_schema) or {"type": "object"}
    plan = ArgumentPlan(schema, arguments, f"tool {tool.name!r}", is_filled=has_wrap, skip_unknown=not is_exact)
    changed.input_schema = plan.schema
    return changed, plan


def plain_schema(schema: Any) -> Schema | None:
    """A schema that may have come as text."""
    return as_object(msgspec.json.decode(schema) if isinstance(schema, Raw) else schema)


def _annotations(tool: Tool) -> dict[str, Json]:
    return {} if tool.annotations is None else msgspec.to_builtins(tool.annotations)


def _with_tags(meta: dict[str, Json], tags: Collection[str]) -> dict[str, Json] | None:
    """The `_meta` of a definition with these tags in place of its own."""
    changed = {key: value for key, value in meta.items() if key not in TAGS_KEYS}
    for key in TAGS_KEYS:
        rest = {name: value for name, value in (as_object(meta.get(key)) or {}).items() if name != "tags"}
        if tags and key == TAGS_KEYS[0]:
            rest["tags"] = sorted(set(tags))
        if rest:
            changed[key] = rest
    return changed or None
