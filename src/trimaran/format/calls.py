"""Calls that a model made, read from its provider's shape: a name and arguments (R223).

Responses as JSON values and the objects of the providers' own libraries are both read. Arguments may be a mapping or JSON
text; absent, null or empty text are no arguments (R276). What cannot be a call raises LocalProtocolError with a text made to
be shown to the model: nothing was sent to any server.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, cast, final

from trimaran.depth import decode_json
from trimaran.errors import ConfigError, LocalProtocolError
from trimaran.types import Json

from .profiles import Profile, profile_named
from .properties import original_names
from .tools import FORMATS, Format
from .trees import MAX_DEPTH, Schema, admits_null, as_schema, list_of, resolve, strings_of

__all__ = [
    "ToolCall",
    "from_anthropic_call",
    "from_gemini_call",
    "from_openai_call",
    "read_calls",
    "restore_arguments",
]


@final
class ToolCall(tuple[str, dict[str, Json]]):
    """A call a model made: unpacks into name and arguments.

    name, arguments = call
    """

    id: str
    """What the provider called it; the result must carry it. Empty where the provider gives none."""

    def __new__(cls, name: str, arguments: dict[str, Json], id: str = "") -> ToolCall:
        call = super().__new__(cls, (name, arguments))
        call.id = id
        return call

    @property
    def name(self) -> str:
        """The name of the tool, as the model was told it."""
        return self[0]

    @property
    def arguments(self) -> dict[str, Json]:
        return self[1]

    def __repr__(self) -> str:
        return f"ToolCall({self.name!r}, {self.arguments!r}, id={self.id!r})"


def from_anthropic_call(block: Any) -> ToolCall:
    """The call in a `tool_use` block."""
    if _get(block, "type") not in ("tool_use", None):
        raise _not_a_call(block, 'a block with "type": "tool_use"')
    return _call(block, _get(block, "name"), _get(block, "input"), _get(block, "id"), "a tool_use block")


def from_openai_call(call: Any) -> ToolCall:
    """The call in an entry of `tool_calls` (Chat Completions), or in a `function_call` item (Responses)."""
    function = _get(call, "function")
    if function is None:
        if _get(call, "type") not in ("function_call", None):
            raise _not_a_call(call, 'an item with "type": "function_call"')
        return _call(call, _get(call, "name"), _get(call, "arguments"), _get(call, "call_id"), "a function_call item")
    return _call(call, _get(function, "name"), _get(function, "arguments"), _get(call, "id"), "an entry of tool_calls")


def from_gemini_call(part: Any) -> ToolCall:
    """The call in a part with a `functionCall`, or in that `functionCall` itself."""
    inner = _get(part, "functionCall", "function_call")
    held = part if inner is None else inner
    return _call(held, _get(held, "name"), _get(held, "args"), _get(held, "id"), "a functionCall")


def read_calls(message: Any, format: Format | str) -> list[ToolCall]:
    """Every call in what a provider answered: the whole response, a message of it, or its content.

    Raises:
        ConfigError: the format is not one of `FORMATS`.
        LocalProtocolError: one of them is malformed.
    """
    if format not in _READERS:
        raise ConfigError(f"there is no format {format!r}; the known ones are {', '.join(FORMATS)}")
    return list(_READERS[format](message))


def _anthropic_calls(message: Any) -> Iterator[ToolCall]:
    for block in _list(message, "content"):
        if _get(block, "type") == "tool_use":
            yield from_anthropic_call(block)


def _openai_calls(message: Any) -> Iterator[ToolCall]:
    choices = _get(message, "choices")
    for choice in cast("list[Any]", choices) if isinstance(choices, list) else [message]:
        answer = _get(choice, "message")
        for call in _list(choice if answer is None else answer, "tool_calls"):
            yield from_openai_call(call)


def _responses_calls(message: Any) -> Iterator[ToolCall]:
    for item in _list(message, "output"):
        if _get(item, "type") == "function_call":
            yield from_openai_call(item)


def _gemini_calls(message: Any) -> Iterator[ToolCall]:
    candidates = _get(message, "candidates")
    for candidate in cast("list[Any]", candidates) if isinstance(candidates, list) else [message]:
        content = _get(candidate, "content")
        for part in _list(candidate if content is None else content, "parts"):
            if _get(part, "functionCall", "function_call") is not None:
                yield from_gemini_call(part)


_READERS: Final[dict[str, Callable[[Any], Iterable[ToolCall]]]] = {
    "anthropic": _anthropic_calls,
    "openai": _openai_calls,
    "openai-responses": _responses_calls,
    "gemini": _gemini_calls,
}


def _get(thing: Any, *names: str) -> Any:
    """A field of a mapping or of an object; None if there is none of these names."""
    for name in names:
        value = cast("Mapping[str, Any]", thing).get(name) if isinstance(thing, Mapping) else getattr(thing, name, None)
        if value is not None:
            return value
    return None


def _list(thing: Any, field: str) -> list[Any]:
    items = cast("Any", thing) if isinstance(thing, list) else _get(thing, field)
    return cast("list[Any]", items) if isinstance(items, list) else []


def _call(held: Any, name: Any, arguments: Any, call_id: Any, what: str) -> ToolCall:
    if not isinstance(name, str) or not name:
        raise _not_a_call(held, f"{what} with a name")
    return ToolCall(name, _arguments(name, arguments), call_id if isinstance(call_id, str) else "")


def _arguments(name: str, given: Any) -> dict[str, Json]:
    if isinstance(given, str):
        if not given.strip():
            return {}
        try:
            given = decode_json(given)
        except ValueError as error:
            raise LocalProtocolError.invalid_params(
                f"the arguments of {name} are not valid JSON ({error}): send one JSON object"
            ) from None
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        kind = type(cast("object", given)).__name__
        raise LocalProtocolError.invalid_params(f"the arguments of {name} are a {kind}: send one JSON object")
    return dict(cast("Mapping[str, Json]", given))


def _not_a_call(held: Any, expected: str) -> LocalProtocolError:
    return LocalProtocolError.invalid_request(f"this is no call: expected {expected}, got {str(held)[:200]}")


# --- arguments of strict calls ---------------------------------------------------------------------------------------


def restore_arguments(
    arguments: dict[str, Json], schema: Schema, profile: str | Profile = "anthropic"
) -> dict[str, Json]:
    """The arguments of a call as the tool takes them, by its own schema. The input is not altered.

    An argument that was renamed, because its provider refuses its name, has its own name again. And the nulls that stand
    for "not given" go: OpenAI's strict mode has no optional arguments, they are required and may be null. A null that the
    schema itself allows stays.

    Args:
        schema: The input schema of the tool, as its server lists it.
        profile: Whose rules names were made for; no other format of ours renames, so the default does for all of them.
    """
    pattern = profile_named(profile).property_pattern
    names = {} if pattern is None else original_names(schema, pattern)
    # An argument that is called so by the tool itself is none that was renamed: new names are never those of others.
    renamed = {names.get(name, name): value for name, value in arguments.items()} if names else arguments
    return cast("dict[str, Json]", _restored(schema, [schema], renamed, 0))


def _restored(root: Schema, schemas: list[Any], value: Any, depth: int) -> Any:
    views = _views(root, schemas) if depth <= MAX_DEPTH else []
    if isinstance(value, list):
        items = [view["items"] for view in views if "items" in view]
        return [_restored(root, items, item, depth + 1) for item in cast("list[Any]", value)]
    if not isinstance(value, dict):
        return value
    restored: dict[str, Json] = {}
    for name, inner in cast("dict[str, Json]", value).items():
        known = [view for view in views if name in (as_schema(view.get("properties")) or {})]
        shapes = [view["properties"][name] for view in known]
        optional = any(name not in strings_of(view.get("required")) for view in known)
        if inner is None and optional and not any(admits_null(root, shape) for shape in shapes):
            continue
        restored[name] = _restored(root, shapes, inner, depth + 1)
    return restored


def _views(root: Schema, schemas: list[Any]) -> list[Schema]:
    """The schemas a value may be held against: these, what they refer to, their branches; each once."""
    views: dict[int, Schema] = {}
    waiting = list(schemas)
    while waiting:
        node = as_schema(waiting.pop())
        if node is None or id(node) in views:
            continue
        views[id(node)] = node
        waiting.append(resolve(root, node.get("$ref")))
        for key in ("anyOf", "oneOf", "allOf"):
            waiting.extend(list_of(node.get(key)))
    return list(views.values())
