"""The options that show a tool otherwise than its author declared it, and their mistakes.

The same options are keywords of `server.transform`, values of `mount(transforms=...)` and, as far as they are data, tables
in configuration. Here they are only checked, each by itself. Whether they fit a tool is found out by `transforms.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypedDict, cast

from trimaran.errors import ConfigError
from trimaran.option_names import suggestion
from trimaran.types import Json, Tool, ToolAnnotations

from .argument_transforms import ArgumentOptions

if TYPE_CHECKING:
    from .context import Context

Choice: TypeAlias = str | Callable[[Tool], bool]
"""Which tools: a name, a pattern such as "search_*", a tag as "tag:billing", or a function of the definition."""
ToolChoice: TypeAlias = Collection[str] | Callable[[Tool], bool]
"""The same for several: a list of names, patterns and tags, or a function."""
CallNext: TypeAlias = Callable[[Mapping[str, Any]], Awaitable[Any]]
"""Calls the tool with arguments under its own names; returns what its function returned, or a remote tool's CallToolResult."""


class Wrap(Protocol):
    """Code around a tool."""

    def __call__(self, call_next: CallNext, arguments: dict[str, Any], ctx: Context, /) -> Awaitable[object]: ...


class TransformOptions(TypedDict, total=False):
    """The changes to a tool."""

    name: str
    title: str
    description: str
    tags: Collection[str]
    annotations: ToolAnnotations | Mapping[str, Json]
    """Laid over the tool's own."""
    hidden: bool
    """Neither list nor serve it."""
    arguments: Mapping[str, ArgumentOptions]
    """By the tool's own names."""
    wrap: Wrap
    """An async function `(call_next, arguments, ctx)` that is called in place of the tool."""
    result: Callable[[Any], object]
    """A function of what the tool returned, plain or async; its value takes the place. Failures do not pass through it."""
    output_schema: Mapping[str, Json] | None
    """The schema of the new result, or None for no schema."""


_IN_CODE: Final = ("wrap", "result", "output_schema")
CONFIG_KEYS: Final = tuple(name for name in TransformOptions.__annotations__ if name not in _IN_CODE)
"""The options that configuration may have: those that are data, without functions and what belongs to functions."""


def is_tool_name(choice: Choice) -> bool:
    """Whether it is the name of one tool, and no pattern, tag or function."""
    return isinstance(choice, str) and not choice.startswith("tag:") and not set(choice) & set("*?[")


def read_transforms(table: Mapping[str, Json], where: str) -> dict[str, TransformOptions]:
    """Transforms as configuration has them: tables by tool, with the options of `server.transform` that are data.

    Args:
        where: The file and the table, for messages: "mcp.toml: server.github.tools".

    Raises:
        ConfigError: the message has the path of the key, what was expected and what to do.
    """
    for tool, options in table.items():
        place = f"{where}.{tool}"
        if not isinstance(options, Mapping):
            raise ConfigError(f"{place}: a table of options is expected, not {_kind(options)}")
        for name in cast("Mapping[str, Any]", options):
            if name in _IN_CODE:
                raise ConfigError(f"{place}.{name}: this goes into code: server.transform({tool!r}, {name}=...)")
            if name not in CONFIG_KEYS:
                raise ConfigError(
                    f"{place}.{name}: this key is not known;{suggestion(name, CONFIG_KEYS)} known are {', '.join(CONFIG_KEYS)}"
                )
        fault = find_fault(cast("Mapping[str, Any]", options))
        if fault is not None:
            key, reason = fault
            raise ConfigError(f"{place}.{key}: {reason}")
        if "name" in options and not is_tool_name(tool):
            raise ConfigError(f"{place}.name: a name is for one tool, and {tool!r} may be several")
    return cast("dict[str, TransformOptions]", dict(table))


def find_fault(options: Mapping[str, Any]) -> tuple[str, str] | None:
    """The key of an option that is wrong, and why."""
    for key in ("name", "title", "description"):
        if key in options and (not isinstance(options[key], str) or not options[key]):
            return key, f"a text that is not empty is expected, not {_kind(options[key])}"
    if not isinstance(options.get("hidden", False), bool):
        return "hidden", f"true or false is expected, not {_kind(options.get('hidden'))}"
    tags: Any = options.get("tags", ())
    if isinstance(tags, str | Mapping) or not all(type(tag) is str for tag in tags):
        return "tags", f'a list of texts is expected, ["billing"], not {_kind(tags)}'
    if not isinstance(options.get("annotations", {}), Mapping | ToolAnnotations):
        return "annotations", f'a table is expected, {{"readOnlyHint": true}}, not {_kind(options.get("annotations"))}'
    if not isinstance(options.get("output_schema") or {}, Mapping):
        return "output_schema", f"a JSON Schema is expected, not {_kind(options.get('output_schema'))}"
    for key in ("wrap", "result"):
        if key in options and not callable(options[key]):
            return key, f"a function is expected, not {_kind(options[key])}"
    arguments: Any = options.get("arguments", {})
    if not isinstance(arguments, Mapping):
        return "arguments", f'a table by argument is expected, {{"q": {{"name": "query"}}}}, not {_kind(arguments)}'
    for name, argument in cast("Mapping[str, Any]", arguments).items():
        fault = _argument_fault(argument)
        if fault is not None:
            return ".".join(filter(None, ("arguments", name, fault[0]))), fault[1]
    return None


def _argument_fault(argument: Any) -> tuple[str, str] | None:
    if not isinstance(argument, Mapping):
        return "", f'a table is expected, {{"name": "query"}}, not {_kind(argument)}'
    options = cast("Mapping[str, Any]", argument)
    known = ArgumentOptions.__annotations__
    for key in options:
        if key not in known:
            return key, f"this key is not known;{suggestion(key, known)} known are {', '.join(known)}"
    for key in ("name", "description"):
        if key in options and (not isinstance(options[key], str) or not options[key]):
            return key, f"a text that is not empty is expected, not {_kind(options[key])}"
    if not isinstance(options.get("hidden", False), bool):
        return "hidden", f"true or false is expected, not {_kind(options['hidden'])}"
    if not isinstance(options.get("examples", []), list | tuple):
        return "examples", f"a list is expected, not {_kind(options['examples'])}"
    if "value" in options or options.get("hidden"):
        for key in ("name", "description", "examples"):
            if key in options:
                return key, "nobody sees this argument, since it is hidden or has a fixed value; remove this key"
        if "default" in options:
            return "default", "nobody can set this argument; write value in place of default"
    return None


def _kind(value: Any) -> str:
    """The type of a value, without the value itself, which may be a secret in the wrong place."""
    if value is None:
        return "nothing"
    if isinstance(value, str):
        return "a text" if value else "an empty text"
    if isinstance(value, bool | int | float):
        return f"{value!r}"
    if isinstance(value, Mapping):
        return "a table"
    return "a list" if isinstance(value, list | tuple) else f"a {type(value).__name__}"
