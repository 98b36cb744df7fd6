"""OpenAI's Chat Completions and Responses: tools, calls and results in their shapes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, Literal, NotRequired, Protocol, TypedDict, cast, overload

from trimaran.types import CallToolResult, Json

from .calls import ToolCall, build_call, get_field, items_of, not_a_call
from .declaring import declare, fit_description, fit_tool_schema, strict_schema_of
from .deferred import TOOL_SEARCH
from .definitions import AnyTool, AnyTools, Definition
from .fit import Fit
from .results import PDF, PICTURES, AnyResult, Media, Part, Shape, all_parts, build_result, json_text
from .trees import Schema, as_schema

ERROR_MARK: Final = "[tool error] "
_SOUNDS: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_DATA_URL: Final = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)
_MEDIA: Final = PICTURES | {PDF}


# --- tools


class OpenAIFunction(TypedDict):
    """The function of a tool in a Chat Completions request."""

    name: str
    description: str
    parameters: Schema
    strict: NotRequired[bool]


class OpenAITool(TypedDict):
    """A tool in a Chat Completions request."""

    type: Literal["function"]
    function: OpenAIFunction


class OpenAIResponsesTool(TypedDict):
    """A tool in a Responses request."""

    type: Literal["function"]
    name: str
    description: str
    parameters: Schema
    strict: bool


def _function(tool: Definition, fit: Fit, *, strict: bool) -> tuple[Shape, bool]:
    strict_schema = strict_schema_of(tool.schema, "openai-strict", fit, is_strict=strict)
    schema = fit_tool_schema(tool.schema, "openai", fit) if strict_schema is None else strict_schema
    described = fit_description(tool, "openai", fit)
    return {"name": tool.name, "description": described, "parameters": schema}, strict_schema is not None


@overload
def to_openai(tools: AnyTool, *, fit: Fit = "exact", strict: bool = False) -> Shape: ...
@overload
def to_openai(tools: Iterable[AnyTool], *, fit: Fit = "exact", strict: bool = False) -> list[Shape]: ...
def to_openai(tools: AnyTools, *, fit: Fit = "exact", strict: bool = False) -> Any:
    """A tool, or tools, for the `tools` of a Chat Completions request. See `to_anthropic` for the options.

    With `strict`, optional arguments come back as null: pass the tool's schema to `restore_arguments`.
    """

    def write(tool: Definition) -> Shape:
        function, strict_schema = _function(tool, fit, strict=strict)
        return {"type": "function", "function": {**function, "strict": True} if strict_schema else function}

    return declare(tools, write)


@overload
def to_openai_responses(tools: AnyTool, *, fit: Fit = "exact", strict: bool = False) -> Shape: ...
@overload
def to_openai_responses(tools: Iterable[AnyTool], *, fit: Fit = "exact", strict: bool = False) -> list[Shape]: ...
def to_openai_responses(tools: AnyTools, *, fit: Fit = "exact", strict: bool = False) -> Any:
    """A tool, or tools, for the `tools` of a Responses request. See `to_openai` for the options."""

    def write(tool: Definition) -> Shape:
        function, strict_schema = _function(tool, fit, strict=strict)
        # Said in either case: this API is strict when nothing is said, and most schemas are not made for that.
        return {"type": "function", **function, "strict": strict_schema}

    return declare(tools, write)


# --- calls


class ChatReply(Protocol):
    """Looks like a ChatCompletion of OpenAI's library."""

    @property
    def choices(self) -> object: ...


class ChatMessage(Protocol):
    """Looks like the message in a ChatCompletion."""

    @property
    def tool_calls(self) -> object: ...


class ResponsesReply(Protocol):
    """Looks like a Response of OpenAI's library."""

    @property
    def output(self) -> object: ...


def chat_blocks(reply: Any) -> Iterator[Any]:
    choices = get_field(reply, "choices")
    for choice in cast("list[Any]", choices) if isinstance(choices, list) else [reply]:
        message = get_field(choice, "message")
        yield from items_of(choice if message is None else message, "tool_calls")


def responses_blocks(reply: Any) -> Iterator[Any]:
    return (
        item for item in items_of(reply, "output") if get_field(item, "type") == "function_call" or _is_search(item)
    )


def _is_search(item: Any) -> bool:
    """True for a search of tools that we, not OpenAI, are to execute."""
    return get_field(item, "type") == "tool_search_call" and get_field(item, "execution") == "client"


def from_openai_call(call: object) -> ToolCall:
    """The call in an entry of `tool_calls` (Chat Completions), or in a `function_call` item (Responses)."""
    function = get_field(call, "function")
    if function is None:
        if _is_search(call):
            arguments, call_id = get_field(call, "arguments"), get_field(call, "call_id")
            return build_call(call, TOOL_SEARCH, arguments, call_id, "a tool_search_call item")
        if get_field(call, "type") not in ("function_call", None):
            raise not_a_call(call, 'an item with "type": "function_call"')
        return build_call(
            call,
            get_field(call, "name"),
            get_field(call, "arguments"),
            get_field(call, "call_id"),
            "a function_call item",
        )
    return build_call(
        call,
        get_field(function, "name"),
        get_field(function, "arguments"),
        get_field(call, "id"),
        "an entry of tool_calls",
    )


# --- results


def _openai_parts(result: AnyResult, takes: Callable[[str], bool], why: str) -> list[Part]:
    parts, is_error = all_parts(result, takes, why)
    if is_error:
        first = next((number for number, part in enumerate(parts) if isinstance(part, str)), None)
        if first is None:
            parts.insert(0, ERROR_MARK)
        else:
            parts[first] = f"{ERROR_MARK}{parts[first]}"
    return parts


def result_to_openai(result: AnyResult, tool_call_id: str, *, media_follows: bool = False) -> Shape:
    """The `tool` message that answers a call in Chat Completions: text only, since it takes nothing else.

    With `media_follows`, a notice says that the picture is in a later message: the one that `media_to_openai` makes.
    """
    why = "follows in the next message" if media_follows else "left out: Chat Completions takes only text from a tool"
    parts = [part for part in _openai_parts(result, lambda _: False, why) if isinstance(part, str)]
    content = parts[0] if len(parts) == 1 else [{"type": "text", "text": part} for part in parts] or ""
    return {"role": "tool", "tool_call_id": tool_call_id, "content": content}


def media_to_openai(*results: AnyResult) -> Shape | None:
    """A `user` message with the pictures, sounds and PDF files of these results; None if there are none.

    Chat Completions wants the answers to all calls of a turn first: put this message after the last of them.
    """
    content: list[Shape] = []
    for result in results:
        parts, _ = all_parts(result, {*_MEDIA, *_SOUNDS}.__contains__, "")
        content += [_chat_media(part) for part in parts if isinstance(part, Media)]
    return {"role": "user", "content": content} if content else None


def _chat_media(media: Media) -> Shape:
    url = f"data:{media.mime_type};base64,{media.data}"
    if media.mime_type in PICTURES:
        return {"type": "image_url", "image_url": {"url": url}}
    if media.mime_type in _SOUNDS:
        return {"type": "input_audio", "input_audio": {"data": media.data, "format": _SOUNDS[media.mime_type]}}
    return {"type": "file", "file": {"filename": "document.pdf", "file_data": url}}


def result_to_openai_responses(result: AnyResult, call_id: str) -> Shape:
    """The `function_call_output` item that answers a call in Responses. Pictures and PDF files go along."""
    why = "left out: Responses takes no such content from a tool"
    parts = _openai_parts(result, _MEDIA.__contains__, why)
    plain = len(parts) == 1 and isinstance(parts[0], str)
    output = parts[0] if plain else [_responses_part(part) for part in parts] or ""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _responses_part(part: Part) -> Shape:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    url = f"data:{part.mime_type};base64,{part.data}"
    if part.mime_type == PDF:
        return {"type": "input_file", "filename": "document.pdf", "file_data": url}
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def result_from_openai(message: Mapping[str, Json]) -> CallToolResult:
    """The result in a `tool` message (Chat Completions) or a `function_call_output` item (Responses)."""
    content = message.get("output") if message.get("type") == "function_call_output" else message.get("content")
    parts: list[Part] = [content] if isinstance(content, str) and content else []
    for item in cast("list[Any]", content) if isinstance(content, list) else []:
        block = as_schema(item) or {}
        url = _DATA_URL.fullmatch(str(block.get("image_url") or block.get("file_data") or ""))
        if url is not None:
            parts.append(Media(url[1], url[2]))
        elif isinstance(block.get("text"), str):
            parts.append(block["text"])
        else:
            parts.append(f"[{block.get('type')}] {json_text(block)}")
    first = next((number for number, part in enumerate(parts) if isinstance(part, str)), None)
    if first is None or not str(parts[first]).startswith(ERROR_MARK):
        return build_result(parts, is_error=False)
    text = str(parts[first]).removeprefix(ERROR_MARK)
    return build_result([*parts[:first], *([text] if text else []), *parts[first + 1 :]], is_error=True)
