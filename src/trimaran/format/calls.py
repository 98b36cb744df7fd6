"""Calls that a model made: a name and arguments (R223). The files of the providers read them from their shapes.

Responses as JSON values and the objects of the providers' own libraries are both read. Arguments may be a mapping or JSON
text; absent, null or empty text are no arguments (R276). Anything that cannot be a call raises LocalProtocolError with a text made to
be shown to the model: nothing was sent to any server.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, final

from trimaran.depth import decode_json
from trimaran.errors import LocalProtocolError
from trimaran.types import Json

from .profiles import Profile, profile_named
from .properties import original_names
from .trees import MAX_DEPTH, Schema, admits_null, as_schema, list_of, resolve, strings_of


@final
class ToolCall(tuple[str, dict[str, Json]]):
    """A call a model made: unpacks into name and arguments.

    name, arguments = call
    """

    id: str
    """The provider's id; the result must carry it. Empty where the provider gives none."""

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


def get_field(source: Any, *names: str) -> Any:
    """A field of a mapping or of an object; None if there is none of these names."""
    for name in names:
        value = (
            cast("Mapping[str, Any]", source).get(name) if isinstance(source, Mapping) else getattr(source, name, None)
        )
        if value is not None:
            return value
    return None


def items_of(reply: Any, field: str) -> list[Any]:
    items = cast("Any", reply) if isinstance(reply, list) else get_field(reply, field)
    return cast("list[Any]", items) if isinstance(items, list) else []


def build_call(block: Any, name: Any, arguments: Any, call_id: Any, description: str) -> ToolCall:
    if not isinstance(name, str) or not name:
        raise not_a_call(block, f"{description} with a name")
    return ToolCall(name, _arguments(name, arguments), call_id if isinstance(call_id, str) else "")


def _arguments(name: str, arguments: Any) -> dict[str, Json]:
    if isinstance(arguments, str):
        if not arguments.strip():
            return {}
        try:
            arguments = decode_json(arguments)
        except ValueError as error:
            raise LocalProtocolError.invalid_params(
                f"the arguments of {name} are not valid JSON ({error}): send one JSON object"
            ) from None
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        kind = type(cast("object", arguments)).__name__
        raise LocalProtocolError.invalid_params(f"the arguments of {name} are a {kind}: send one JSON object")
    return dict(cast("Mapping[str, Json]", arguments))


def not_a_call(block: Any, expected: str) -> LocalProtocolError:
    return LocalProtocolError.invalid_request(f"this is not a call: expected {expected}, got {str(block)[:200]}")


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
        profile: The profile whose rules the names follow; no other format of ours renames, so the default serves for all.
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
