"""Gemini's generateContent: tools, calls and results in its shape."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NotRequired, Protocol, TypedDict, cast, overload

from msgspec import UNSET, UnsetType

from trimaran.types import CallToolResult, Json

from .calls import ToolCall, build_call, get_field, items_of
from .declaring import declare, fit_tool_schema
from .definitions import AnyTool, AnyTools, Definition
from .fit import Fit
from .results import PDF, AnyResult, Media, Part, Shape, build_result, is_told, json_text, parts_of, read_result
from .trees import Schema, as_schema

_MEDIA: Final = frozenset(("image/png", "image/jpeg", "image/webp", PDF, "text/plain"))


# --- tools


class GeminiTool(TypedDict):
    """A function declaration in a Gemini request: one of the two schemas, or none."""

    name: str
    description: str
    parametersJsonSchema: NotRequired[Schema]
    parameters: NotRequired[Schema]


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
            return {**shape, "parametersJsonSchema": fit_tool_schema(tool.schema, "gemini", fit)}
        schema = fit_tool_schema(tool.schema, "gemini-openapi", fit)
        # An object without properties is refused there; a function without parameters leaves them out.
        return {**shape, "parameters": schema} if schema.get("properties") else shape

    return declare(tools, write)


# --- calls


class GeminiReply(Protocol):
    """Looks like a GenerateContentResponse of Google's library."""

    @property
    def candidates(self) -> object: ...


def gemini_blocks(reply: Any) -> Iterator[Any]:
    candidates = get_field(reply, "candidates")
    for candidate in cast("list[Any]", candidates) if isinstance(candidates, list) else [reply]:
        content = get_field(candidate, "content")
        for part in items_of(candidate if content is None else content, "parts"):
            if get_field(part, "functionCall", "function_call") is not None:
                yield part


def from_gemini_call(part: object) -> ToolCall:
    """The call in a part with a `functionCall`, or in that `functionCall` itself."""
    inner = get_field(part, "functionCall", "function_call")
    call = part if inner is None else inner
    return build_call(call, get_field(call, "name"), get_field(call, "args"), get_field(call, "id"), "a functionCall")


# --- results


def result_to_gemini(result: AnyResult, name: str, call_id: str = "") -> Shape:
    """The part with a `functionResponse` that answers a `functionCall`. Pictures and PDF files go along.

    The response is `{"output": ...}`, or `{"error": ...}` for a failed call: the structured content where the text says
    the same, else the text, or a list where there are several, with the structured content beside it.
    """
    content = read_result(result)
    parts = list(parts_of(content, _MEDIA.__contains__, "left out: Gemini takes no such content from a function"))
    texts = [part for part in parts if isinstance(part, str)]
    key = "error" if content.is_error else "output"
    response: Shape = {key: texts[0] if len(texts) == 1 else texts}
    if content.structured is not UNSET:
        if not texts or (len(texts) == 1 and is_told(content.structured, parts)):
            response = {key: content.structured}
        else:
            response["structured"] = content.structured
    shape: Shape = {"name": name, "response": response}
    if call_id:
        shape["id"] = call_id
    if media := [{"inlineData": {"mimeType": p.mime_type, "data": p.data}} for p in parts if isinstance(p, Media)]:
        shape["parts"] = media
    return {"functionResponse": shape}


def result_from_gemini(part: Mapping[str, Json]) -> CallToolResult:
    """The result in a part with a `functionResponse`, or in that `functionResponse` itself."""
    reply = as_schema(part.get("functionResponse")) or part
    response = as_schema(reply.get("response")) or {}
    is_error = "error" in response
    value: Any = response.get("error" if is_error else "output", [] if "structured" in response else dict(response))
    structured: Json | UnsetType = response.get("structured", UNSET)
    parts: list[Part] = []
    if isinstance(value, str):
        parts = [value]
    elif isinstance(value, list) and all(isinstance(line, str) for line in cast("list[Any]", value)):
        parts = list(cast("list[str]", value))
    else:
        structured = cast("Json", value)
        parts = [json_text(structured)]
    for item in cast("list[Any]", reply.get("parts") or []):
        data = as_schema((as_schema(item) or {}).get("inlineData")) or {}
        parts.append(Media(str(data.get("mimeType")), str(data.get("data"))))
    return build_result(parts, is_error=is_error, structured=structured)
