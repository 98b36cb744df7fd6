"""Tools as each provider wants them declared (R220, R222).

A schema is fitted exactly unless told otherwise: changed where the provider would refuse it and the change loses nothing
(`fit.py`), the same object where it is fine as it is. A description that is too long for the provider is cut. Names of
tools are taken as they are: a host's names fit already, and `lint` says which others do not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Final, Literal, TypeAlias, overload

from trimaran.errors import ConfigError
from trimaran.types import Json

from .definitions import AnyTool, AnyTools, Definition, is_one, read_tools
from .fit import Fit, fit_as_far
from .profiles import profile_named
from .trees import Schema

__all__ = [
    "FORMATS",
    "Format",
    "profile_of",
    "to_anthropic",
    "to_gemini",
    "to_openai",
    "to_openai_responses",
    "to_provider",
]

Format: TypeAlias = Literal["anthropic", "openai", "openai-responses", "gemini"]
"""Whose shape: Anthropic Messages, OpenAI Chat Completions, OpenAI Responses, Gemini generateContent."""

Shape: TypeAlias = dict[str, Json]

_DOTS: Final = " ..."


def _declared(tools: AnyTools, write: Callable[[Definition], Shape]) -> Any:
    shapes = [write(definition) for definition in read_tools(tools)]
    return shapes[0] if is_one(tools) else shapes


def _fitted(schema: Schema, profile: str, fit: Fit) -> Schema:
    return schema if fit is None else fit_as_far(schema, profile, fit).schema


def _described(tool: Definition, profile: str, fit: Fit) -> str:
    most = profile_named(profile).most_description
    if fit is None or most is None or len(tool.description) <= most:
        return tool.description
    cut = tool.description[: most - len(_DOTS)]
    whole_words = cut.rpartition(" ")[0]
    return (whole_words if len(whole_words) > most // 2 else cut).rstrip() + _DOTS


def _strict(schema: Schema, profile: str, fit: Fit, *, wanted: bool) -> Schema | None:
    """The schema for strict mode, or None where strict mode is not wanted, or not possible as far as it may be changed."""
    if not wanted:
        return None
    fitted = fit_as_far(schema, profile, fit or "exact")
    if fitted.left or (fit is None and fitted.schema is not schema):
        return None
    return fitted.schema


@overload
def to_anthropic(tools: AnyTool, *, fit: Fit = "exact", strict: bool = False) -> Shape: ...
@overload
def to_anthropic(tools: Iterable[AnyTool], *, fit: Fit = "exact", strict: bool = False) -> list[Shape]: ...
def to_anthropic(tools: AnyTools, *, fit: Fit = "exact", strict: bool = False) -> Any:
    """A tool, or tools, for the `tools` of a Messages request.

    Args:
        tools: One tool or several; the answer is one shape or a list.
        fit: How far schemas may be changed: "exact", "loose", "auto" (loose where exact is not enough), or None for not at
            all.
        strict: Ask for arguments that match the schema for certain, for each tool whose schema can be made to allow it.
    """

    def write(tool: Definition) -> Shape:
        shape: Shape = {"name": tool.name, "description": tool.description}
        held = _strict(tool.schema, "anthropic-strict", fit, wanted=strict)
        shape["input_schema"] = _fitted(tool.schema, "anthropic", fit) if held is None else held
        return shape if held is None else {**shape, "strict": True}

    return _declared(tools, write)


def _function(tool: Definition, fit: Fit, *, strict: bool) -> tuple[Shape, bool]:
    held = _strict(tool.schema, "openai-strict", fit, wanted=strict)
    schema = _fitted(tool.schema, "openai", fit) if held is None else held
    described = _described(tool, "openai", fit)
    return {"name": tool.name, "description": described, "parameters": schema}, held is not None


@overload
def to_openai(tools: AnyTool, *, fit: Fit = "exact", strict: bool = False) -> Shape: ...
@overload
def to_openai(tools: Iterable[AnyTool], *, fit: Fit = "exact", strict: bool = False) -> list[Shape]: ...
def to_openai(tools: AnyTools, *, fit: Fit = "exact", strict: bool = False) -> Any:
    """A tool, or tools, for the `tools` of a Chat Completions request. See `to_anthropic` for the options.

    With `strict`, optional arguments come back as null: pass the tool's schema to `restore_arguments`.
    """

    def write(tool: Definition) -> Shape:
        function, held = _function(tool, fit, strict=strict)
        return {"type": "function", "function": {**function, "strict": True} if held else function}

    return _declared(tools, write)


@overload
def to_openai_responses(tools: AnyTool, *, fit: Fit = "exact", strict: bool = False) -> Shape: ...
@overload
def to_openai_responses(tools: Iterable[AnyTool], *, fit: Fit = "exact", strict: bool = False) -> list[Shape]: ...
def to_openai_responses(tools: AnyTools, *, fit: Fit = "exact", strict: bool = False) -> Any:
    """A tool, or tools, for the `tools` of a Responses request. See `to_openai` for the options."""

    def write(tool: Definition) -> Shape:
        function, held = _function(tool, fit, strict=strict)
        # Said in either case: this API is strict when nothing is said, and most schemas are not made for that.
        return {"type": "function", **function, "strict": held}

    return _declared(tools, write)


@overload
def to_gemini(tools: AnyTool, *, fit: Fit = "exact", openapi: bool = False) -> Shape: ...
@overload
def to_gemini(tools: Iterable[AnyTool], *, fit: Fit = "exact", openapi: bool = False) -> list[Shape]: ...
def to_gemini(tools: AnyTools, *, fit: Fit = "exact", openapi: bool = False) -> Any:
    """A function declaration, or several, for `{"functionDeclarations": [...]}` in the `tools` of a Gemini request.

    Args:
        tools: One tool or several; the answer is one shape or a list.
        fit: How far schemas may be changed: "exact", "loose", "auto" (loose where exact is not enough), or None for not at
            all.
        openapi: Use the older `parameters`, for endpoints that do not know `parametersJsonSchema`. Fewer schemas fit.
    """

    def write(tool: Definition) -> Shape:
        shape: Shape = {"name": tool.name, "description": tool.description}
        if not openapi:
            return {**shape, "parametersJsonSchema": _fitted(tool.schema, "gemini", fit)}
        schema = _fitted(tool.schema, "gemini-openapi", fit)
        # An object without properties is refused there; a function without parameters leaves them out.
        return {**shape, "parameters": schema} if schema.get("properties") else shape

    return _declared(tools, write)


_WRITERS: Final[dict[str, Callable[..., list[Shape]]]] = {
    "anthropic": to_anthropic,
    "openai": to_openai,
    "openai-responses": to_openai_responses,
    "gemini": to_gemini,
}
FORMATS: Final = tuple(_WRITERS)
"""The names of all formats."""


def profile_of(format: Format | str, **options: Any) -> str:
    """The profile whose rules hold for tools in this format, strict or not."""
    if format == "gemini" and options.get("openapi"):
        return "gemini-openapi"
    return "openai" if format == "openai-responses" else str(format)


def to_provider(tools: Iterable[AnyTool], format: Format | str, *, fit: Fit = "exact", **options: bool) -> list[Shape]:
    """Tools in the shape of this provider.

    Raises:
        ConfigError: the format is not one of `FORMATS`.
    """
    if format not in _WRITERS:
        raise ConfigError(f"there is no format {format!r}; the known ones are {', '.join(FORMATS)}")
    return _WRITERS[format](list(tools), fit=fit, **options)
