"""Results of calls as Python values, with everything the server sent still within reach.

Decoding is strict about structure and tolerant about content: an unknown kind of content block stays a mapping, a
malformed field of a definition is left out, a definition that lacks what it needs is dropped with a warning, the rest is
kept, and `raw` always holds what came (P32).
Only what makes a result unusable raises RemoteProtocolError.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, cast, final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, field

from trimaran.bounded_log import BoundedLog
from trimaran.errors import CODE_INVALID_REQUEST, InvalidOutput, RemoteProtocolError, ToolError
from trimaran.protocol.read_reply import excerpt
from trimaran.types import (
    BlobResourceContents,
    Completion,
    ContentBlock,
    EmbeddedResource,
    Json,
    Prompt,
    PromptMessage,
    Resource,
    ResourceContents,
    ResourceTemplate,
    Role,
    TextContent,
    TextResourceContents,
    Tool,
    ToolAnnotations,
)

log: Final = BoundedLog("trimaran.client")

T = TypeVar("T")
if TYPE_CHECKING:
    from typing_extensions import TypeVar as TypeVarWithDefault

    D = TypeVarWithDefault("D", default=Json)
else:
    D = TypeVar("D")


@final
class ToolResult(Generic[D]):
    """The result of a tool call. `ToolResult[Report]` is one that `into=Report` has converted."""

    __slots__ = ("__weakref__", "_data", "_is_converted", "_raw", "content", "is_error", "meta", "structured")

    def __init__(
        self,
        content: list[Json],
        structured: Json,
        is_error: bool,
        meta: dict[str, Json] | None,
        raw: Raw,
        *,
        unwrap: bool = False,
    ) -> None:
        self.content: list[Json] = content
        """Content blocks: `TextContent` and so on, and a mapping for an unknown kind. `Json`, so that `content[0].text` needs
        no isinstance where you know the tool."""
        self.structured: Json | None = None if structured is UNSET else structured
        """The structured result as sent."""
        self.is_error: bool = is_error
        """Did the tool say that it failed?"""
        self.meta: dict[str, Json] = meta or {}
        self._raw = raw
        self._data: Any = _plain(content, structured, unwrap=unwrap)
        self._is_converted = False

    @property
    def data(self) -> D:
        """The plain Python value: the structured result, unwrapped; else the text of a single text block; else the content.

        With `into=Report` it is a Report.

        Raises:
            ToolError: the tool failed, so there is no Report.
        """
        if self._is_converted and self.is_error:
            raise self.failure()
        return self._data

    @data.setter
    def data(self, value: D) -> None:
        self._data = value

    def failure(self, tool: str = "the tool") -> ToolError:
        """The exception that says what the tool said when it failed."""
        error = ToolError(self.text or f"{tool} failed without a reason", content=self.content)
        error.result = self
        return error

    def convert_into(self, kind: object, tool: str) -> None:
        """Make `data` a value of the type `kind`; InvalidOutput if it does not fit. A failed result stays as it is."""
        self._is_converted = True
        if self.is_error:
            return
        from trimaran.schema.convert import ConversionError, decoder_of

        value = self._data
        if self.structured is None and isinstance(value, str) and kind is not str:
            with contextlib.suppress(msgspec.DecodeError):
                value = _decode_any(value)  # a tool without structured output often writes JSON in its text
        try:
            self._data = decoder_of(kind)(value)
        except ConversionError as error:
            name = kind.__name__ if isinstance(kind, type) else str(kind)
            raise InvalidOutput(f"the result of {tool} is no {name}: {error}", result=self) from None

    @property
    def text(self) -> str:
        """The text of all text blocks, line by line."""
        return "\n".join(block.text for block in self.content if type(block) is TextContent)

    @property
    def raw(self) -> dict[str, Json]:
        """The result as it came."""
        return _decode_any(self._raw)

    def __repr__(self) -> str:
        return f"<ToolResult {'error ' if self.is_error else ''}{_cut(repr(self._data))}>"


def _plain(content: list[Any], structured: Any, *, unwrap: bool) -> Any:
    if structured is not UNSET:
        return structured["result"] if unwrap else structured
    if len(content) == 1 and type(content[0]) is TextContent:
        return content[0].text
    return content or None


@final
class ResourceResult:
    """The contents of a resource: usually one, several for a directory."""

    __slots__ = ("_raw", "contents", "meta")

    def __init__(self, contents: list[ResourceContents], meta: dict[str, Json] | None, raw: Raw) -> None:
        self.contents: list[ResourceContents] = contents
        self.meta: dict[str, Json] = meta or {}
        self._raw = raw

    @property
    def text(self) -> str:
        """All text, one content after the other."""
        return "\n".join(part.text for part in self.contents if isinstance(part, TextResourceContents))

    def copy(self) -> ResourceResult:
        """The same result with a list of its own."""
        return ResourceResult(list(self.contents), dict(self.meta), self._raw)

    @property
    def blob(self) -> bytes:
        """The bytes of the first content, decoded; text counts as UTF-8."""
        for contents in self.contents:
            if isinstance(contents, TextResourceContents):
                return contents.text.encode()
            try:
                return base64.b64decode(contents.blob, validate=True)
            except (binascii.Error, ValueError):
                raise _malformed(f"the blob of {contents.uri[:200]} is not base64") from None
        return b""

    @property
    def raw(self) -> dict[str, Json]:
        """The result as it came."""
        return _decode_any(self._raw)

    def __repr__(self) -> str:
        return f"<ResourceResult {_cut(', '.join(part.uri for part in self.contents))}>"


@final
class PromptResult:
    """The messages of a prompt."""

    __slots__ = ("_raw", "description", "messages", "meta")

    def __init__(
        self, messages: list[PromptMessage], description: str | None, meta: dict[str, Json] | None, raw: Raw
    ) -> None:
        self.messages: list[PromptMessage] = messages
        self.description: str | None = description
        self.meta: dict[str, Json] = meta or {}
        self._raw = raw

    @property
    def text(self) -> str:
        """The text of all messages, line by line."""
        return "\n".join(part.content.text for part in self.messages if type(part.content) is TextContent)

    @property
    def raw(self) -> dict[str, Json]:
        """The result as it came."""
        return _decode_any(self._raw)

    def __repr__(self) -> str:
        return f"<PromptResult {len(self.messages)} messages>"


class Page(list[T], Generic[T]):
    """One page of a list. `next_cursor` asks for the next one; None: this was the last. An empty string is a cursor."""

    next_cursor: str | None = None
    ttl_ms: int | None = None
    meta: dict[str, Json]
    _size: int = 0
    """Bytes on the wire."""

    def __init__(
        self,
        items: Iterable[T] = (),
        *,
        next_cursor: str | None = None,
        ttl_ms: int | None = None,
        meta: dict[str, Json] | None = None,
    ) -> None:
        super().__init__(items)
        self.next_cursor = next_cursor
        self.ttl_ms = ttl_ms
        self.meta = meta or {}

    def copy(self) -> Page[T]:
        """The same page as a list of its own."""
        return Page(self, next_cursor=self.next_cursor, ttl_ms=self.ttl_ms, meta=dict(self.meta))


# --- reading ---------------------------------------------------------------------------------------------------------


class _ToolReply(Struct):
    content: list[ContentBlock] = []
    structured: Any = field(name="structuredContent", default=UNSET)
    is_error: bool = field(name="isError", default=False)
    meta: dict[str, Any] | None = field(name="_meta", default=None)


class _LooseToolReply(Struct):
    content: list[Any] | None = None  # an empty list, as some libraries write it
    structured: Any = field(name="structuredContent", default=UNSET)
    is_error: bool | None = field(name="isError", default=None)
    meta: Any = field(name="_meta", default=None)


class _ResourceReply(Struct):
    contents: list[dict[str, Any]]
    ttl_ms: Any = field(name="ttlMs", default=None)
    meta: Any = field(name="_meta", default=None)


class _Message(Struct):
    role: Role
    content: Any


class _PromptReply(Struct):
    messages: list[_Message]
    description: Any = None
    meta: Any = field(name="_meta", default=None)


class _CompleteReply(Struct):
    completion: Completion


class _PageReply(Struct):
    tools: list[Raw] | UnsetType | None = UNSET
    resources: list[Raw] | UnsetType | None = UNSET
    templates: list[Raw] | UnsetType | None = field(name="resourceTemplates", default=UNSET)
    prompts: list[Raw] | UnsetType | None = UNSET
    next_cursor: str | None = field(name="nextCursor", default=None)
    ttl_ms: Any = field(name="ttlMs", default=None)
    meta: Any = field(name="_meta", default=None)


_decode_any = msgspec.json.Decoder().decode
_decode_tool_reply = msgspec.json.Decoder(_ToolReply).decode
_decode_loose_reply = msgspec.json.Decoder(_LooseToolReply).decode
_decode_resource_reply = msgspec.json.Decoder(_ResourceReply).decode
_decode_prompt_reply = msgspec.json.Decoder(_PromptReply).decode
_decode_complete_reply = msgspec.json.Decoder(_CompleteReply).decode
_decode_page = msgspec.json.Decoder(_PageReply).decode
_PATH: Final = re.compile(r"at `\$\.(\w+)")
_MISREAD: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)

_ITEMS: Final[dict[str, tuple[str, Callable[[Any], Any]]]] = {
    "tools/list": ("tools", msgspec.json.Decoder(Tool).decode),
    "resources/list": ("resources", msgspec.json.Decoder(Resource).decode),
    "resources/templates/list": ("templates", msgspec.json.Decoder(ResourceTemplate).decode),
    "prompts/list": ("prompts", msgspec.json.Decoder(Prompt).decode),
}


def read_tool(raw: Raw, *, unwrap: bool = False) -> ToolResult:
    """The result of tools/call. `unwrap`: the tool's schema says that a lone value travels as `{"result": value}`."""
    try:
        reply = _decode_tool_reply(raw)
        content: list[Any] = reply.content
        for index, block in enumerate(content):
            if type(block) is EmbeddedResource:
                content[index] = _with_contents(block)
        structured, is_error, meta = reply.structured, reply.is_error, reply.meta
    except _MISREAD:
        content, structured, is_error, meta = _read_loosely(raw)
    is_wrapped = unwrap and isinstance(structured, dict) and "result" in structured
    return ToolResult(content, structured, is_error, meta, raw, unwrap=is_wrapped)


def _read_loosely(raw: Raw) -> tuple[list[Any], Any, bool, dict[str, Json] | None]:
    try:
        reply = _decode_loose_reply(raw)
    except _MISREAD as error:
        raise _malformed(f"the result of tools/call is malformed ({error}): {excerpt(bytes(raw))}") from None
    content = [_as_block(value) for value in reply.content or ()]
    return content, reply.structured, bool(reply.is_error), _mapping(reply.meta)


def _as_block(value: Any) -> Any:
    """A typed content block; what is of an unknown kind or malformed stays as it came."""
    try:
        block = msgspec.convert(value, ContentBlock)
    except msgspec.ValidationError as error:
        log.warning("a content block was kept as it came: %s", error)
        return value
    return _with_contents(block) if type(block) is EmbeddedResource else block


def _with_contents(block: EmbeddedResource) -> EmbeddedResource:
    contents = type_contents(block.resource)
    return block if contents is None else msgspec.structs.replace(block, resource=contents)


def type_contents(value: Any) -> ResourceContents | None:
    """Typed resource contents, by the field that tells text from blob; None if neither fits."""
    if not isinstance(value, dict):
        return None
    kind: type[ResourceContents] = BlobResourceContents if "blob" in value else TextResourceContents
    try:
        return msgspec.convert(cast("Any", value), kind)
    except msgspec.ValidationError:
        return None


def read_resource(raw: Raw) -> ResourceResult:
    """The result of resources/read."""
    try:
        reply = _decode_resource_reply(raw)
    except _MISREAD as error:
        raise _malformed(f"the result of resources/read is malformed ({error}): {excerpt(bytes(raw))}") from None
    contents: list[ResourceContents] = []
    for value in reply.contents:
        typed = type_contents(value)
        if typed is None:
            raise _malformed("the result of resources/read holds contents with neither text nor blob, or without uri")
        contents.append(typed)
    return ResourceResult(contents, _mapping(reply.meta), raw)


def read_prompt(raw: Raw) -> PromptResult:
    """The result of prompts/get."""
    try:
        reply = _decode_prompt_reply(raw)
    except _MISREAD as error:
        raise _malformed(f"the result of prompts/get is malformed ({error}): {excerpt(bytes(raw))}") from None
    messages = [PromptMessage(role=message.role, content=_as_block(message.content)) for message in reply.messages]
    description = reply.description if isinstance(reply.description, str) else None
    return PromptResult(messages, description, _mapping(reply.meta), raw)


def read_completion(raw: Raw) -> Completion:
    """The result of completion/complete."""
    try:
        return _decode_complete_reply(raw).completion
    except _MISREAD as error:
        raise _malformed(f"the result of completion/complete is malformed ({error}): {excerpt(bytes(raw))}") from None


_MOST_MALFORMED: Final = 100  # each costs a line in the log


def read_page(method: str, raw: Raw) -> Page[Any]:
    """One page of a list method; a malformed item is dropped with a warning."""
    key, decode = _ITEMS[method]
    try:
        reply = _decode_page(raw)
    except _MISREAD as error:
        raise _malformed(f"the result of {method} is malformed ({error}): {excerpt(bytes(raw))}") from None
    listed: list[Raw] | UnsetType | None = getattr(reply, key)
    if listed is UNSET:
        raise _malformed(f"the result of {method} has no list: {excerpt(bytes(raw))}")
    items: list[Any] = []
    malformed = 0
    for item_json in listed or ():
        try:
            item = _read_item(decode, item_json, method)
        except _MISREAD as error:
            malformed += 1
            if malformed > _MOST_MALFORMED:
                raise _malformed(f"{method} lists more than {_MOST_MALFORMED} malformed items on one page") from None
            log.warning("%s: an item was dropped, it is malformed (%s): %s", method, error, excerpt(bytes(item_json)))
            continue
        if type(item) is Tool and isinstance(item.annotations, dict):
            with contextlib.suppress(msgspec.ValidationError):  # hints that are no hints stay as they came
                item.annotations = msgspec.convert(item.annotations, ToolAnnotations)
        items.append(item)
    ttl = reply.ttl_ms if isinstance(reply.ttl_ms, int) and not isinstance(reply.ttl_ms, bool) else None
    page = Page(items, next_cursor=reply.next_cursor, ttl_ms=ttl, meta=_mapping(reply.meta))
    page._size = len(memoryview(raw))  # pyright: ignore[reportPrivateUsage]
    return page


def _read_item(decode: Callable[[Any], Any], raw: Raw, method: str) -> Any:
    """One definition of a list. A field that is malformed is left out: an icon without an address hides no tool."""
    try:
        return decode(raw)
    except msgspec.ValidationError as error:
        fields = _mapping(_decode_any(raw)) or {}
        while path := _PATH.search(str(error)):
            if path[1] not in fields:
                break
            del fields[path[1]]
            log.warning("%s: a field was left out, it is malformed (%s): %s", method, error, excerpt(bytes(raw)))
            try:
                return decode(msgspec.json.encode(fields))
            except msgspec.ValidationError as another:
                error = another
        raise error


def _mapping(value: Any) -> dict[str, Json] | None:
    return cast("dict[str, Json]", value) if isinstance(value, dict) else None


def _malformed(message: str) -> RemoteProtocolError:
    return RemoteProtocolError(CODE_INVALID_REQUEST, message)


def _cut(text: str) -> str:
    return text if len(text) <= 80 else text[:77] + "..."
