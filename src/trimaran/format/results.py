"""Results of tools as each provider takes them, and back.

A result becomes parts, text or media, in the order of its blocks; each provider has its own spelling of a part:

    text                text
    image, audio        media where the provider takes that kind in a tool's result, else a notice: what, how large
    resource link       text: `[resource_link] {"uri": ..., "name": ...}`
    embedded resource   `[resource] {"uri": ..., "mimeType": ...}`, then its text, or media where the provider takes it
    structured content  JSON text, unless a text block says the same already; Gemini takes it as it is
    isError             the provider's own flag; OpenAI has none, so the text begins with `[tool error]`

Reading a provider's shape gives the same blocks again, but for what was a notice, and but for annotations and `_meta`, which
no provider takes. Nothing is cut here; `trimaran.host.output` does that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias, cast

import msgspec
from msgspec import UNSET, UnsetType

from trimaran.depth import decode_json
from trimaran.errors import LocalProtocolError
from trimaran.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    ImageContent,
    Json,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from .trees import Schema, as_schema, same

__all__ = [
    "media_to_openai",
    "result_from_anthropic",
    "result_from_gemini",
    "result_from_openai",
    "result_to_anthropic",
    "result_to_gemini",
    "result_to_openai",
    "result_to_openai_responses",
]

ERROR_MARK: Final = "[tool error] "
_PDF: Final = "application/pdf"
_PICTURES: Final = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
_ANTHROPIC: Final = _PICTURES | {_PDF}
_RESPONSES: Final = _PICTURES | {_PDF}
_GEMINI: Final = frozenset(("image/png", "image/jpeg", "image/webp", _PDF, "text/plain"))
_SOUNDS: Final = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}
_MARKED: Final = re.compile(r"\[(resource_link|resource)\] (\{[^\n]*\})(?:\n(.*))?", re.DOTALL)
_DATA_URL: Final = re.compile(r"data:([^;,]+);base64,(.*)", re.DOTALL)
_LINK_FIELDS: Final = ("uri", "name", "title", "description", "mimeType", "size")


class Media(NamedTuple):
    mime_type: str
    data: str
    """base64"""


Part: TypeAlias = str | Media
Shape: TypeAlias = dict[str, Json]


# --- a result, whatever holds it -------------------------------------------------------------------------------------


class _Result(NamedTuple):
    blocks: list[Schema]
    structured: Json | UnsetType
    is_error: bool


def _read(result: Any) -> _Result:
    """The blocks as on the wire, from a CallToolResult, a client's result, or the mapping on the wire."""
    if isinstance(result, Mapping):
        wire = cast("Mapping[str, Any]", result)
        content, structured, is_error = wire.get("content"), wire.get("structuredContent", UNSET), wire.get("isError")
    else:
        content, is_error = getattr(result, "content", None), getattr(result, "is_error", False)
        structured = getattr(result, "structured_content", UNSET)
        if structured is UNSET and getattr(result, "structured", None) is not None:
            structured = result.structured
    if isinstance(content, str) or not hasattr(content, "__iter__"):
        raise LocalProtocolError.invalid_params(
            f"this is no result of a tool: it has no content blocks: {str(cast('object', result))[:200]}"
        )
    blocks = [as_schema(msgspec.to_builtins(block)) or {} for block in cast("list[Any]", content)]
    return _Result(blocks, structured, is_error is True)


def _parts(result: _Result, takes: Callable[[str], bool], why: str) -> Iterator[Part]:
    for block in result.blocks:
        kind = str(block.get("type"))
        if kind == "text":
            yield str(block.get("text", ""))
        elif kind in ("image", "audio"):
            yield _media(kind, str(block.get("mimeType", "")), str(block.get("data", "")), takes, why)
        elif kind == "resource_link":
            yield f"[resource_link] {_json({key: block[key] for key in _LINK_FIELDS if key in block})}"
        elif kind == "resource":
            yield from _embedded(as_schema(block.get("resource")) or {}, takes, why)
        else:
            yield f"[{kind}] {_json(block)}"


def _embedded(resource: Schema, takes: Callable[[str], bool], why: str) -> Iterator[Part]:
    head = f"[resource] {_json({key: resource[key] for key in ('uri', 'mimeType') if key in resource})}"
    if isinstance(resource.get("text"), str):
        yield f"{head}\n{resource['text']}"
        return
    media = _media("resource", str(resource.get("mimeType", "")), str(resource.get("blob", "")), takes, why)
    if isinstance(media, Media):
        yield head
        yield media
    else:
        yield f"{head} {media.partition('] ')[2]}"


def _media(kind: str, mime_type: str, data: str, takes: Callable[[str], bool], why: str) -> Part:
    if takes(mime_type):
        return Media(mime_type, data)
    size = len(data) * 3 // 4 - data[-2:].count("=")
    return f"[{kind}] {_json({'mimeType': mime_type, 'bytes': size})} {why}"


def _json(value: Json) -> str:
    return msgspec.json.encode(value).decode()


def _told(structured: Json | UnsetType, parts: list[Part]) -> bool:
    """Is the structured content in one of the texts already, as servers are asked to put it?"""
    if structured is UNSET:
        return True
    wrapped = as_schema(structured)
    inner: Json | UnsetType = wrapped["result"] if wrapped is not None and wrapped.keys() == {"result"} else UNSET
    for part in parts:
        if not isinstance(part, str):
            continue
        if inner is not UNSET and same(part, inner):
            return True
        try:
            said = decode_json(part)
        except ValueError:
            continue
        if same(said, structured) or (inner is not UNSET and same(said, inner)):
            return True
    return False


def _all_parts(result: Any, takes: Callable[[str], bool], why: str) -> tuple[list[Part], bool]:
    held = _read(result)
    parts = list(_parts(held, takes, why))
    if not _told(held.structured, parts):
        parts.append(_json(held.structured))
    return parts, held.is_error


def _result(parts: list[Part], *, is_error: bool, structured: Json | UnsetType = UNSET) -> CallToolResult:
    """The blocks these parts were made of."""
    waiting = list(parts)
    blocks: list[Any] = []
    while waiting:
        part = waiting.pop(0)
        if isinstance(part, Media):
            blocks.append(_block(part, len(blocks)))
        else:
            blocks.append(_marked(part, waiting) or TextContent(text=part))
    return CallToolResult(content=blocks, structured_content=structured, is_error=is_error)


def _block(media: Media, number: int) -> Any:
    kind = media.mime_type.partition("/")[0]
    if kind == "image":
        return ImageContent(data=media.data, mime_type=media.mime_type)
    if kind == "audio":
        return AudioContent(data=media.data, mime_type=media.mime_type)
    contents = BlobResourceContents(uri=f"attachment:{number}", blob=media.data, mime_type=media.mime_type)
    return EmbeddedResource(resource=contents)


def _marked(text: str, waiting: list[Part]) -> Any:
    found = _MARKED.fullmatch(text)
    if found is None:
        return None
    try:
        fields: Any = decode_json(found[2])
        if found[1] == "resource_link":
            return None if found[3] is not None else msgspec.convert({"type": "resource_link", **fields}, ResourceLink)
        if found[3] is not None:
            return EmbeddedResource(resource=msgspec.convert({**fields, "text": found[3]}, TextResourceContents))
        for part in waiting:
            if isinstance(part, Media) and part.mime_type == fields.get("mimeType"):
                waiting.remove(part)
                return EmbeddedResource(resource=msgspec.convert({**fields, "blob": part.data}, BlobResourceContents))
    except (msgspec.MsgspecError, RecursionError, UnicodeEncodeError):
        pass
    return None


# --- Anthropic -------------------------------------------------------------------------------------------------------


def result_to_anthropic(result: Any, tool_use_id: str) -> Shape:
    """A `tool_result` block for the user message that answers a `tool_use`. Pictures and PDF files go along."""
    parts, is_error = _all_parts(
        result, _ANTHROPIC.__contains__, "left out: Anthropic takes no such content from a tool"
    )
    shape: Shape = {"type": "tool_result", "tool_use_id": tool_use_id}
    # An empty text block is refused; an empty result has no content.
    if content := [_anthropic_block(part) for part in parts if part]:
        shape["content"] = content
    if is_error:
        shape["is_error"] = True
    return shape


def _anthropic_block(part: Part) -> Shape:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    source = {"type": "base64", "media_type": part.mime_type, "data": part.data}
    return {"type": "document" if part.mime_type == _PDF else "image", "source": source}


def result_from_anthropic(block: Mapping[str, Json]) -> CallToolResult:
    """The result in a `tool_result` block."""
    content = block.get("content")
    parts: list[Part] = [content] if isinstance(content, str) else []
    for one in cast("list[Any]", content) if isinstance(content, list) else []:
        held = as_schema(one) or {}
        source = as_schema(held.get("source")) or {}
        if isinstance(held.get("text"), str):
            parts.append(held["text"])
        elif source.get("type") == "base64":
            parts.append(Media(str(source.get("media_type")), str(source.get("data"))))
        else:
            parts.append(f"[{held.get('type')}] {_json(held)}")
    return _result(parts, is_error=block.get("is_error") is True)


# --- OpenAI ----------------------------------------------------------------------------------------------------------


def _openai_parts(result: Any, takes: Callable[[str], bool], why: str) -> list[Part]:
    parts, is_error = _all_parts(result, takes, why)
    if is_error:
        first = next((number for number, part in enumerate(parts) if isinstance(part, str)), None)
        if first is None:
            parts.insert(0, ERROR_MARK)
        else:
            parts[first] = f"{ERROR_MARK}{parts[first]}"
    return parts


def result_to_openai(result: Any, tool_call_id: str, *, media_follows: bool = False) -> Shape:
    """The `tool` message that answers a call in Chat Completions: text only, since it takes nothing else.

    With `media_follows`, a notice says that the picture is in a later message: the one that `media_to_openai` makes.
    """
    why = "follows in the next message" if media_follows else "left out: Chat Completions takes only text from a tool"
    parts = [part for part in _openai_parts(result, lambda _: False, why) if isinstance(part, str)]
    content = parts[0] if len(parts) == 1 else [{"type": "text", "text": part} for part in parts] or ""
    return {"role": "tool", "tool_call_id": tool_call_id, "content": content}


def media_to_openai(*results: Any) -> Shape | None:
    """A `user` message with the pictures, sounds and PDF files of these results; None if there are none.

    Chat Completions wants the answers to all calls of a turn first: put this message after the last of them.
    """
    content: list[Shape] = []
    for result in results:
        parts, _ = _all_parts(result, {*_PICTURES, *_SOUNDS, _PDF}.__contains__, "")
        content += [_openai_media(part) for part in parts if isinstance(part, Media)]
    return {"role": "user", "content": content} if content else None


def _openai_media(media: Media) -> Shape:
    url = f"data:{media.mime_type};base64,{media.data}"
    if media.mime_type in _PICTURES:
        return {"type": "image_url", "image_url": {"url": url}}
    if media.mime_type in _SOUNDS:
        return {"type": "input_audio", "input_audio": {"data": media.data, "format": _SOUNDS[media.mime_type]}}
    return {"type": "file", "file": {"filename": "document.pdf", "file_data": url}}


def result_to_openai_responses(result: Any, call_id: str) -> Shape:
    """The `function_call_output` item that answers a call in Responses. Pictures and PDF files go along."""
    why = "left out: Responses takes no such content from a tool"
    parts = _openai_parts(result, _RESPONSES.__contains__, why)
    plain = len(parts) == 1 and isinstance(parts[0], str)
    output = parts[0] if plain else [_responses_part(part) for part in parts] or ""
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def _responses_part(part: Part) -> Shape:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    url = f"data:{part.mime_type};base64,{part.data}"
    if part.mime_type == _PDF:
        return {"type": "input_file", "filename": "document.pdf", "file_data": url}
    return {"type": "input_image", "image_url": url, "detail": "auto"}


def result_from_openai(message: Mapping[str, Json]) -> CallToolResult:
    """The result in a `tool` message (Chat Completions) or a `function_call_output` item (Responses)."""
    content = message.get("output") if message.get("type") == "function_call_output" else message.get("content")
    parts: list[Part] = [content] if isinstance(content, str) and content else []
    for one in cast("list[Any]", content) if isinstance(content, list) else []:
        held = as_schema(one) or {}
        url = _DATA_URL.fullmatch(str(held.get("image_url") or held.get("file_data") or ""))
        if url is not None:
            parts.append(Media(url[1], url[2]))
        elif isinstance(held.get("text"), str):
            parts.append(held["text"])
        else:
            parts.append(f"[{held.get('type')}] {_json(held)}")
    first = next((number for number, part in enumerate(parts) if isinstance(part, str)), None)
    if first is None or not str(parts[first]).startswith(ERROR_MARK):
        return _result(parts, is_error=False)
    text = str(parts[first]).removeprefix(ERROR_MARK)
    return _result([*parts[:first], *([text] if text else []), *parts[first + 1 :]], is_error=True)


# --- Gemini ----------------------------------------------------------------------------------------------------------


def result_to_gemini(result: Any, name: str, call_id: str = "") -> Shape:
    """The part with a `functionResponse` that answers a `functionCall`. Pictures and PDF files go along.

    The response is `{"output": ...}`, or `{"error": ...}` for a failed call: the structured content where the text says
    the same, else the text, or a list where there are several, with the structured content beside it.
    """
    held = _read(result)
    parts = list(_parts(held, _GEMINI.__contains__, "left out: Gemini takes no such content from a function"))
    texts = [part for part in parts if isinstance(part, str)]
    key = "error" if held.is_error else "output"
    response: Shape = {key: texts[0] if len(texts) == 1 else texts}
    if held.structured is not UNSET:
        if not texts or (len(texts) == 1 and _told(held.structured, parts)):
            response = {key: held.structured}
        else:
            response["structured"] = held.structured
    shape: Shape = {"name": name, "response": response}
    if call_id:
        shape["id"] = call_id
    if media := [{"inlineData": {"mimeType": p.mime_type, "data": p.data}} for p in parts if isinstance(p, Media)]:
        shape["parts"] = media
    return {"functionResponse": shape}


def result_from_gemini(part: Mapping[str, Json]) -> CallToolResult:
    """The result in a part with a `functionResponse`, or in that `functionResponse` itself."""
    held = as_schema(part.get("functionResponse")) or part
    response = as_schema(held.get("response")) or {}
    is_error = "error" in response
    said: Any = response.get("error" if is_error else "output", [] if "structured" in response else dict(response))
    structured: Json | UnsetType = response.get("structured", UNSET)
    parts: list[Part] = []
    if isinstance(said, str):
        parts = [said]
    elif isinstance(said, list) and all(isinstance(line, str) for line in cast("list[Any]", said)):
        parts = list(cast("list[str]", said))
    else:
        structured = cast("Json", said)
        parts = [_json(structured)]
    for one in cast("list[Any]", held.get("parts") or []):
        data = as_schema((as_schema(one) or {}).get("inlineData")) or {}
        parts.append(Media(str(data.get("mimeType")), str(data.get("data"))))
    return _result(parts, is_error=is_error, structured=structured)
