"""From what a handler returns to what goes on the wire: every return shape, for tools, resources and prompts.

Tools (R43-R47): a string is one text block; a content block is itself; a list of blocks is taken verbatim; a mapping or
any other value is JSON text, and `structuredContent` as well when the tool has an output schema; a `CallToolResult` says
everything itself. A value is encoded to JSON once: the same bytes serve as the text and as the structured content.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, Final, Union, cast, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw

from trimaran.content import message as prompt_message
from trimaran.errors import DeclarationError, ProtocolError, ToolError
from trimaran.protocol.surrogates import encode_repaired
from trimaran.schema import Validator, enc_hook
from trimaran.types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    EmbeddedResource,
    GetPromptResult,
    ImageContent,
    PromptMessage,
    ReadResourceResult,
    ResourceLink,
    TextContent,
    TextResourceContents,
    as_object,
)

BLOCKS: Final = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)
_BLOCK_TYPES: Final = frozenset({"text", "image", "audio", "resource_link", "resource"})

_encode: Callable[[Any], bytes] = msgspec.json.Encoder(enc_hook=enc_hook).encode


def encode(value: Any) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return encode_repaired(value, enc_hook)


_READY: Final = frozenset({*BLOCKS, CallToolResult, TextResourceContents, BlobResourceContents, GetPromptResult})


def is_content(annotation: Any) -> bool:
    """Is this return annotation content already, so that it promises no structure?"""
    if annotation in (str, bytes):
        return True
    return _is_ready(annotation)


def _is_ready(annotation: Any) -> bool:
    origin, members = get_origin(annotation), get_args(annotation)
    if origin is None:
        return isinstance(annotation, type) and annotation in _READY
    if origin is Annotated:
        return _is_ready(members[0])
    if origin in (Union, UnionType):
        rest = [m for m in members if m is not type(None)]
        return any(_is_ready(m) for m in rest) and all(is_content(m) for m in rest)
    if origin in (list, tuple, Sequence):
        rest = [m for m in members if m is not Ellipsis]
        return any(_is_ready(m) for m in rest) and all(is_content(m) for m in rest)
    return False


def _is_block(value: Any) -> bool:
    return isinstance(value, BLOCKS) or (isinstance(value, dict) and value.get("type") in _BLOCK_TYPES)  # pyright: ignore[reportUnknownMemberType]


def error_result(error: ToolError) -> CallToolResult:
    """The `isError` result of a deliberate failure."""
    content = error.content
    if content is None:
        content = str(error) or "the tool failed"
    elif _is_block(content):
        content = [content]
    return CallToolResult.error(content, meta=error.meta)


def exact_type(schema: Mapping[str, Any] | None) -> type | None:
    """The Python type every instance of which fits this output schema, if the schema is as simple as that."""
    if not schema or set(schema) != {"type"} or not isinstance(schema["type"], str):
        return None
    return {"integer": int, "number": float, "boolean": bool}.get(schema["type"])


def decode_result(raw: Raw) -> CallToolResult:
    """A result that another server has encoded, as a struct."""
    fields = as_object(msgspec.json.decode(raw)) or {}
    return CallToolResult(
        content=fields.get("content", []),
        structured_content=fields.get("structuredContent", UNSET),
        is_error=fields.get("isError", False),
        result_type=fields.get("resultType"),
        meta=fields.get("_meta"),
    )


def call_result(value: Any, output: Validator | None, exact: type | None = None) -> CallToolResult:
    """A tool's return value as its result. `output` is there when the tool promises structure.

    A value of the type `exact` fits `output` by construction and is not checked again.
    """
    kind: Any = type(value)  # pyright: ignore[reportUnknownVariableType]
    if kind is exact and (kind is not float or value - value == 0):  # JSON has no NaN and no infinity
        raw = _encode(value)
        return CallToolResult(content=[TextContent(text=raw.decode())], structured_content=Raw(raw))
    if kind is str and output is None:
        return CallToolResult(content=[TextContent(text=value)])
    if kind is CallToolResult:
        return _explicit(value, output)
    if kind is Raw:  # a result that another server has encoded
        return value
    if isinstance(value, (ToolError, ProtocolError)):
        if isinstance(value, ProtocolError):
            raise value
        return error_result(value)
    if output is not None:
        if kind is tuple and len(value) == 2 and isinstance(value[1], dict) and _is_object(output):
            return _with_structure(value[1], output, value[0])
        return _with_structure(value, output, value if _holds_blocks(value, output) else UNSET)
    if value is None:
        return CallToolResult(content=[])
    if _is_block(value):
        return CallToolResult(content=[value])
    if isinstance(value, (list, tuple)):
        items: Sequence[Any] = cast("Sequence[Any]", value)
        second = as_object(items[1]) if kind is tuple and len(items) == 2 else None
        if second is not None and not _is_block(second):
            return CallToolResult(content=_content(items[0]), structured_content=second)
        if items and all(_is_block(i) or isinstance(i, str) for i in items):
            return CallToolResult(content=_content(items))
    return CallToolResult(content=[TextContent(text=_json_text(value))])


def _is_object(output: Validator) -> bool:
    # A tool that promises an array may well return a pair.
    schema = as_object(output.schema)
    return schema is None or schema.get("type") != "array"


def _holds_blocks(value: Any, output: Validator) -> bool:
    """Whether it is a list of blocks and texts from a tool that promises a list of anything (`-> list`).

    Then the client is shown the blocks, a picture as a picture, and the structure beside them keeps the promise.
    """
    if not isinstance(value, (list, tuple)):
        return False
    schema = as_object(output.schema)
    if schema is None or schema.keys() & {"items", "prefixItems"}:
        return False
    items = cast("Sequence[Any]", value)
    return any(isinstance(item, BLOCKS) for item in items) and all(isinstance(item, (str, *BLOCKS)) for item in items)


def _content(value: Any) -> list[Any]:
    if isinstance(value, str):
        return [TextContent(text=value)]
    if _is_block(value):
        return [value]
    items: list[Any] = list(value or ())
    return [TextContent(text=v) if isinstance(v, str) else v for v in items]


def _json_text(value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        return b64encode(value).decode("ascii")
    return encode(value).decode()


def _explicit(result: CallToolResult, output: Validator | None) -> CallToolResult:
    # A copy: the object is the handler's own, which may return it again, to a peer of another era.
    copy = msgspec.structs.replace(result, content=list(result.content))
    structured = copy.structured_content
    if output is not None and not copy.is_error:
        if structured is UNSET:
            return _mismatch("the tool promises structured output and returned none")
        _check(structured, output)
    return copy


def _with_structure(value: Any, output: Validator, content: Any = UNSET) -> CallToolResult:
    raw = encode(value)
    # The check is made on what the client will see.
    if not output.is_valid(value if isinstance(value, (int, str)) else msgspec.json.decode(raw)):
        _fill_in_defaults(value)
        raw = encode(value)
        _check(msgspec.json.decode(raw), output)
    structured: Any = Raw(raw)
    blocks = (
        [TextContent(text=value if isinstance(value, str) else raw.decode())] if content is UNSET else _content(content)
    )
    return CallToolResult(content=blocks, structured_content=structured)


def _fill_in_defaults(value: Any) -> None:
    """A dataclass that msgspec decoded keeps its defaults on the class, where encoding does not see them: put them in."""
    if isinstance(value, (list, tuple)):
        for item in cast("Sequence[Any]", value):
            _fill_in_defaults(item)
    elif isinstance(value, dict):
        for item in cast("dict[Any, Any]", value).values():
            _fill_in_defaults(item)
    elif is_dataclass(value) and hasattr(value, "__dict__"):
        for field in fields(value):
            if hasattr(value, field.name):
                value.__dict__.setdefault(field.name, getattr(value, field.name))
                _fill_in_defaults(getattr(value, field.name))


class OutputMismatch(Exception):
    """The tool's own result does not fit its output schema. `told` says so without the value, which nobody meant to send."""

    def __init__(self, message: str, told: str = "") -> None:
        super().__init__(message)
        self.told: str = told or message


def _check(value: Any, output: Validator) -> None:
    if isinstance(value, (Raw, msgspec.Struct)):
        value = msgspec.json.decode(encode(value))
    if not output.is_valid(value):
        fault = output.first(value)
        if fault is not None and fault.is_unchecked:  # schema and value are the author's own: nobody attacks here
            return
        where = f"{fault.reason} (at {fault.path})" if fault else "it does not validate"
        problem = "the tool's result does not match its output schema"
        raise OutputMismatch(f"{problem}: {where}", f"{problem} at {fault.path}" if fault else problem)


def _mismatch(message: str) -> CallToolResult:
    raise OutputMismatch(message)


def read_result(value: Any, uri: str, mime_type: str | None) -> ReadResourceResult:
    """A resource handler's return value as the contents of that URI (R51)."""
    if isinstance(value, ReadResourceResult):
        return msgspec.structs.replace(value)
    if isinstance(value, (ProtocolError, ToolError)):
        raise value
    items: list[Any] = cast("list[Any]", value) if isinstance(value, list) else []
    if not _are_contents(items):
        items = [value]
    return ReadResourceResult(contents=[_contents(v, uri, mime_type) for v in items])


def _are_contents(items: list[Any]) -> bool:
    return bool(items) and all(
        isinstance(i, (TextResourceContents, BlobResourceContents))
        or (
            (plain := as_object(i)) is not None
            and ("text" in plain or "blob" in plain)
            and set(plain) <= _CONTENTS_KEYS
        )
        for i in items
    )


def _contents(value: Any, uri: str, mime_type: str | None) -> Any:
    if isinstance(value, (TextResourceContents, BlobResourceContents)):
        return value
    if isinstance(value, str):
        return TextResourceContents(uri=uri, text=value, mime_type=mime_type or "text/plain")
    if isinstance(value, (bytes, bytearray, memoryview)):
        blob = b64encode(bytes(cast("bytes", value))).decode("ascii")
        return BlobResourceContents(uri=uri, blob=blob, mime_type=mime_type or "application/octet-stream")
    if isinstance(value, dict):
        mapping = cast("dict[str, Any]", value)
        if isinstance(mapping.get("text"), str) and set(mapping) <= _CONTENTS_KEYS:
            return {"uri": uri, "mimeType": mime_type or "text/plain", **mapping}
        if isinstance(mapping.get("blob"), (bytes, str)) and set(mapping) <= _CONTENTS_KEYS:
            blob = mapping["blob"]
            plain = {**mapping, "blob": b64encode(blob).decode("ascii") if isinstance(blob, bytes) else blob}
            return {"uri": uri, "mimeType": mime_type or "application/octet-stream", **plain}
    return TextResourceContents(uri=uri, text=encode(value).decode(), mime_type=mime_type or "application/json")


_CONTENTS_KEYS: Final = frozenset({"uri", "text", "blob", "mimeType", "annotations", "_meta"})


def prompt_result(value: Any, description: str | None) -> GetPromptResult:
    """A prompt handler's return value as messages (R52)."""
    if isinstance(value, GetPromptResult):
        return msgspec.structs.replace(value)
    if isinstance(value, (ProtocolError, ToolError)):
        raise value
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], str):  # pyright: ignore[reportUnknownArgumentType]
        value, description = cast("tuple[Any, str]", value)
    elif isinstance(value, Mapping) and "messages" in value:
        mapping = cast("Mapping[str, Any]", value)
        description = mapping.get("description", description)
        value = mapping["messages"]
    items: list[Any] = list(cast("Sequence[Any]", value)) if isinstance(value, (list, tuple)) else [value]
    return GetPromptResult(messages=[_message(m) for m in items], description=description)


def _message(value: Any) -> Any:
    if isinstance(value, PromptMessage):
        return value
    if isinstance(value, str) or _is_block(value):
        return prompt_message("user", value)
    if isinstance(value, Mapping):
        mapping = cast("Mapping[str, Any]", value)
        if "role" in mapping and "content" in mapping:
            return prompt_message(mapping["role"], mapping["content"])
    raise DeclarationError(
        f"a prompt returns text, messages, or (messages, description); this returned a {type(cast('object', value)).__name__}"
    )
