"""Keep a tool's output within bounds, say so where the model sees it, and keep what was cut for whoever asks (R268, R270).

Two limits (C35). Over the limit in bytes, output is cut: text at a line or a word, never inside a character; pictures and
sounds are left out whole; structured content, which cannot be cut and still be data, is left out too. A notice begins
`[truncated: <bytes>><limit>]`. Over the limit in tokens, output stays and a warning stands before it, unless
`cut_at_tokens` asks for a cut there as well. Notices come on top of the limit.

Tokens are counted by `count_tokens` of `context/tokens.py` unless a callable is given. Only text counts.

An `OutputStore`, if there is one, keeps the whole text of a cut output, under an id that only its owner can use, until it is old
or the room is needed. `OutputStore.page` reads it by offset and limit, in characters.

Nothing here knows a server or a connection. A `OutputStore` may be used from any thread of one process.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
import unicodedata
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, final

import msgspec
from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from trimaran.depth import decode_json
from trimaran.errors import ConfigError, Error
from trimaran.types import CallToolResult, EmbeddedResource, Json, TextContent, as_object

from .context.tokens import count_tokens
from .output_files import OutputFiles

__all__ = [
    "MAX_BYTES",
    "MAX_TOKENS",
    "LimitedOutput",
    "OutputLimits",
    "OutputMissing",
    "OutputPage",
    "OutputStore",
    "cut_text",
    "limit_output",
    "surely_fits",
    "without_warning",
]

logger: Final = logging.getLogger("trimaran.host")

# R230 and R268. Two MiB is more than any context window holds; ten thousand tokens is where hosts begin to warn.
MAX_BYTES: Final = 2 * 1024 * 1024
MAX_TOKENS: Final = 10_000
_VARIABLE: Final = "TRIMARAN_MAX_MCP_OUTPUT_TOKENS"
# How far back from the limit a line's end, or else a blank, is looked for: text without either is cut where it stands.
_NEAR: Final = 5
# Blocks named in a notice; a result of ten thousand pictures must not become ten thousand notices.
_MOST_NAMED: Final = 10


@final
class OutputLimits(Struct, frozen=True, kw_only=True):
    """How much output is passed on."""

    bytes: int | None = MAX_BYTES
    """Of text in UTF-8 and media in base64, together; None: any amount."""
    tokens: int | None = MAX_TOKENS
    """None: never warn."""
    cut_at_tokens: bool = False
    """Cut there, too, instead of warning."""
    count: Callable[[str], int] = count_tokens
    """How many tokens a text is."""

    def __post_init__(self) -> None:
        for name, value in (("bytes", self.bytes), ("tokens", self.tokens)):
            if value is not None and value < 1:
                raise ConfigError(f"the output limit in {name} is {value}: give 1 or more, or None for no limit")

    def with_environment(self, environment: Mapping[str, str]) -> OutputLimits:
        """The same with `TRIMARAN_MAX_MCP_OUTPUT_TOKENS`, where it is set. Without the prefix it is not read (R268)."""
        text = environment.get(_VARIABLE, "").strip()
        if not text:
            return self
        if not text.isascii() or not text.isdigit() or int(text) < 1:
            raise ConfigError(f"{_VARIABLE} is {text[:50]!r}: give a whole number of tokens, 1 or more")
        return replace(self, tokens=int(text))


# --- cutting ---------------------------------------------------------------------------------------------------------


def cut_text(text: str, most: int) -> str:
    """The longest good beginning of a text that is at most so many bytes of UTF-8.

    It ends after a line if one ends in its last fifth, else before a blank there, else at a character. It does not divide
    a visible character: no UTF-8 sequence, no surrogate pair, no letter from its accents, no `\\r` from its `\\n`.
    """
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= most:
        return text
    end = max(most, 0)
    while end > 0 and data[end] & 0xC0 == 0x80:
        end -= 1
    return text[: _good_end(text, len(data[:end].decode("utf-8", "surrogatepass")))]


def _good_end(text: str, end: int) -> int:
    """The best place to end at or before `end` characters."""
    near = end - end // _NEAR
    line = text.rfind("\n", near, end)
    if line >= 0:
        return line + 1
    if not text[end : end + 1].isspace():
        blank = max(text.rfind(" ", near, end), text.rfind("\t", near, end))
        if blank >= 0:
            return blank
    return _whole_end(text, end)


def _whole_end(text: str, end: int) -> int:
    """The same place, moved back where it would divide what shows as one character."""
    at = end
    # A run of accents longer than any writing has is noise, and is divided rather than walked through.
    while 0 < at < len(text) and end - at < 32 and _is_joined(text[at - 1], text[at]):
        at -= 1
    return at if at > 0 or end == 0 else end


def _is_joined(left: str, right: str) -> bool:
    if "\ud800" <= left <= "\udbff" and "\udc00" <= right <= "\udfff":
        return True
    if right in ("\u200d", "\ufe0e", "\ufe0f") or left == "\u200d" or (left, right) == ("\r", "\n"):
        return True
    return unicodedata.combining(right) != 0 or "\U0001f3fb" <= right <= "\U0001f3ff"


# --- what was cut ----------------------------------------------------------------------------------------------------


class OutputMissing(Error):
    """No output is kept under this id for this owner: it never was, it is too old, or its room was needed."""

    kind = "output_missing"


class OutputPage(NamedTuple):
    """A part of a kept output."""

    text: str
    offset: int
    next_offset: int | None
    """Where the next page begins; None: this was the last."""
    total: int
    """Characters in all."""


class _StoredOutput(NamedTuple):
    owner: str
    text: str
    size: int
    until: float


@final
class OutputStore:
    """Outputs that were cut, whole, for a while.

    Room is bounded in number and bytes. When it runs out, the oldest output goes of whoever has the most on the shelf, so
    that a server that floods its own outputs costs the others nothing.

    Args:
        most: Outputs kept at the same time.
        most_bytes: Bytes of UTF-8 kept at the same time. A larger output is not kept.
        ttl: Seconds an output is kept.
        clock: Returns the time, in seconds.
        folder: A directory in which outputs are kept as well, for other processes and for later. See `output_files.py`.
    """

    def __init__(
        self,
        *,
        most: int = 100,
        most_bytes: int = 64 * 1024 * 1024,
        ttl: float = 3600,
        clock: Callable[[], float] = time.monotonic,
        folder: Path | None = None,
    ) -> None:
        if most < 1 or most_bytes < 1 or ttl <= 0:
            raise ConfigError(
                "a shelf needs room for one output and a time to keep it: give most, most_bytes and ttl above 0"
            )
        self._most = most
        self._most_bytes = most_bytes
        self._ttl = ttl
        self._clock = clock
        self._outputs: OrderedDict[str, _StoredOutput] = OrderedDict()
        self._by_owner: dict[str, int] = {}
        self._lock = threading.Lock()
        self._files = None if folder is None else OutputFiles(folder, most=most, most_bytes=most_bytes, ttl=ttl)

    def keep(self, text: str, *, owner: str) -> str | None:
        """The id under which the owner finds the text again; None if it is larger than the whole shelf."""
        size = len(text.encode("utf-8", "surrogatepass"))
        if size > self._most_bytes:
            return None
        with self._lock:
            self._forget_old()
            while self._outputs and (len(self._outputs) >= self._most or self.size + size > self._most_bytes):
                self._make_room()
            output_id = secrets.token_urlsafe(16)
            self._outputs[output_id] = _StoredOutput(owner, text, size, self._clock() + self._ttl)
            self._by_owner[owner] = self._by_owner.get(owner, 0) + size
        if self._files is not None:
            self._files.keep(output_id, owner, text)
        return output_id

    def page(self, output_id: str, *, owner: str, offset: int = 0, limit: int = 20_000) -> OutputPage:
        """A part of an output: at most `limit` characters from `offset` on. It reads a file if another process kept it.

        Pages read one after the other, each from the `next_offset` of the one before, make up the whole.

        Raises:
            OutputMissing: there is none, or it is another owner's.
            ConfigError: the offset is negative, or the limit below 1.
        """
        if offset < 0 or limit < 1:
            raise ConfigError(
                f"a page begins at 0 or later and has 1 character or more, not offset={offset}, limit={limit}"
            )
        with self._lock:
            self._forget_old()
            stored = self._outputs.get(output_id)
        text = stored.text if stored is not None and stored.owner == owner else None
        if text is None and self._files is not None:
            text = self._files.read(output_id, owner)
        if text is None:
            raise OutputMissing(
                f"no output {output_id[:50]!r} is kept (any more): call the tool again, and ask it for less at a time"
            )
        total = len(text)
        end = min(offset + limit, total)
        if end < total:
            end = max(_whole_end(text, end), min(offset + 1, total))
        return OutputPage(text[offset:end], offset, end if end < total else None, total)

    def close(self) -> None:
        """Wait until the files are written. The outputs in memory stay."""
        if self._files is not None:
            self._files.close()

    def forget(self, owner: str) -> None:
        """Drop everything of this owner."""
        with self._lock:
            for output_id in [stored_id for stored_id, stored in self._outputs.items() if stored.owner == owner]:
                self._drop(output_id)

    @property
    def size(self) -> int:
        """Bytes kept now."""
        return sum(self._by_owner.values())

    def __len__(self) -> int:
        with self._lock:
            self._forget_old()
            return len(self._outputs)

    def _forget_old(self) -> None:
        now = self._clock()
        while self._outputs and next(iter(self._outputs.values())).until <= now:
            self._drop(next(iter(self._outputs)))

    def _make_room(self) -> None:
        greatest = max(self._by_owner, key=lambda owner: self._by_owner[owner])
        self._drop(next(stored_id for stored_id, stored in self._outputs.items() if stored.owner == greatest))

    def _drop(self, output_id: str) -> None:
        gone = self._outputs.pop(output_id)
        self._by_owner[gone.owner] -= gone.size
        if not any(stored.owner == gone.owner for stored in self._outputs.values()):
            del self._by_owner[gone.owner]


# --- a whole result --------------------------------------------------------------------------------------------------


class LimitedOutput(NamedTuple):
    """A result within its limits."""

    result: CallToolResult
    bytes: int
    """Its size before."""
    tokens: int
    notices: list[str]
    """The notices in it about the limits."""
    output_id: str | None
    """Where the whole text is kept, if anything was cut and there was a shelf for it."""
    length: int = 0
    """Characters of the whole text."""
    is_cut: bool = False
    left_out: tuple[str, ...] = ()
    """The parts beside text that are missing."""


def surely_fits(result: CallToolResult, most: int) -> bool:
    """Whether a result is within a limit in bytes, at a glance: False means that it has to be measured.

    Its JSON is at least as long as what `limit_output` counts.
    """
    try:
        return len(msgspec.json.encode(result)) <= most
    except UnicodeEncodeError:  # half a surrogate pair, which has no JSON
        return False


def limit_output(
    result: Any,
    limits: OutputLimits,
    *,
    shelf: OutputStore | None = None,
    owner: str = "",
    source: str = "a tool",
    how: str = "",
    earlier: LimitedOutput | None = None,
) -> LimitedOutput:
    """A tool's result, no larger than allowed.

    Args:
        result: A CallToolResult, or a client's result.
        limits: How much is allowed.
        shelf: Where the whole text is kept if it is cut.
        owner: The owner, for the store.
        source: The tool, for the log.
        how: How the reader of the notice goes on, such as " with the tool read_output".
        earlier: The cut that made this result, whose notice is left out of it.
    """
    work = _Limiter(result, limits)
    work.measure()
    cut = work.excess()
    if cut is None:
        notices = work.warning(work.text)
        content = [*(TextContent(text=notice) for notice in notices), *work.blocks]
        if earlier is not None:
            notices = [*notices, earlier.notices[-1]]
            content.append(TextContent(text=earlier.notices[-1]))
        elif notices:
            logger.warning("%s answered about %d tokens, more than %d", source, work.tokens, limits.tokens)
        limited = replace(work.result, content=content) if notices else work.result
        return LimitedOutput(limited, work.bytes, work.tokens, notices, None)
    logger.warning("the output of %s was cut: %s", source, cut)
    content, shown_length = work.cut()
    # Pictures are not kept, so there is nothing to go on with where only they are missing.
    output_id = earlier.output_id if earlier is not None else None
    if output_id is None and shelf is not None and shown_length < len(work.text):
        output_id = shelf.keep(work.text, owner=owner)
    notices = [*work.warning(work.text[:shown_length]), _notice(cut, work, output_id, shown_length, how, earlier)]
    first, last = [TextContent(text=notice) for notice in notices[:-1]], TextContent(text=notices[-1])
    limited = replace(work.result, content=[*first, *content, last])
    if not work.structured_fits:
        limited = replace(limited, structured_content=UNSET)
    return LimitedOutput(
        limited, work.bytes, work.tokens, notices, output_id, len(work.text), True, tuple(work.left_out)
    )


def _notice(
    cut: str, work: _Limiter, output_id: str | None, end: int, how: str, earlier: LimitedOutput | None = None
) -> str:
    sentences = [cut]
    if work.cut_json:
        sentences.append("The JSON above is cut and incomplete.")
    if left_out := [*(earlier.left_out if earlier is not None else ()), *work.left_out]:
        more = len(left_out) - _MOST_NAMED
        sentences.append(f"Left out: {', '.join(left_out[:_MOST_NAMED])}{f' and {more} more' if more > 0 else ''}.")
    length = len(work.text) if earlier is None else max(earlier.length, len(work.text))
    if output_id is not None and earlier is not None and earlier.output_id is None and length > len(work.text):
        sentences.append(
            f"The answer had {length} characters. The first {len(work.text)} are kept as output {output_id}, go on at "
            f"offset {end}{how}; the rest is lost: ask for less at a time."
        )
    elif output_id is not None:
        sentences.append(
            f"The whole text is kept as output {output_id}: {length} characters, go on at offset {end}{how}."
        )
    else:
        sentences.append("Ask for less at a time.")
    return " ".join(sentences)


_WARNING: Final = "[large output: about "


def without_warning(content: Sequence[Any]) -> list[Any]:
    """The blocks of a result without the warning that `limit_output` put before them."""
    blocks = list(content)
    if blocks and isinstance(blocks[0], TextContent) and blocks[0].text.startswith(_WARNING):
        del blocks[0]
    return blocks


class _Limiter:
    """One result on its way through."""

    def __init__(self, result: Any, limits: OutputLimits) -> None:
        self.result = _as_result(result)
        self.blocks: Sequence[Any] = self.result.content
        self._limits = limits
        self._texts = [_text_of(block) for block in self.blocks]
        structured: Json | UnsetType = self.result.structured_content
        self._structured = "" if structured is UNSET else msgspec.json.encode(structured).decode()
        # Servers are asked to send structured content as text, too: what is there twice counts, and is kept, once.
        self._extra = self._structured if self._structured and not self._is_told() else ""
        self.text = "\n".join(text for text in [*self._texts, self._extra] if text)
        self.bytes = self.tokens = 0
        self.cut_json = False
        self.structured_fits = True
        self.left_out: list[str] = []

    def _is_told(self) -> bool:
        value = msgspec.json.decode(self._structured)
        for text in self._texts:
            try:
                if decode_json(text) == value:
                    return True
            except ValueError:
                continue
        return False

    def measure(self) -> None:
        self.bytes = sum(map(_size_of, self.blocks)) + _bytes(self._extra)
        self.tokens = self._limits.count(self.text)

    def excess(self) -> str | None:
        """The beginning of the notice, if this must be cut."""
        limits = self._limits
        if limits.bytes is not None and self.bytes > limits.bytes:
            return f"[truncated: {self.bytes}>{limits.bytes}]"
        if limits.cut_at_tokens and limits.tokens is not None and self.tokens > limits.tokens:
            return f"[truncated: {self.tokens}>{limits.tokens} tokens]"
        return None

    def warning(self, text: str) -> list[str]:
        """The notice before output that stays, and is large."""
        most = None if self._limits.cut_at_tokens else self._limits.tokens
        if most is None or self.tokens <= most or (tokens := self._limits.count(text)) <= most:
            return []
        return [f"{_WARNING}{tokens} tokens, more than {most}. Ask for less at a time where the tool can.]"]

    def cut(self) -> tuple[list[Any], int]:
        """The blocks that fit, and how much of the whole text they show."""
        limits = self._limits
        room = limits.bytes if limits.bytes is not None else self.bytes
        tokens = limits.tokens if limits.cut_at_tokens else None
        blocks: list[Any] = []
        shown_length = 0
        whole = True
        for block, text in zip(self.blocks, self._texts, strict=True):
            size = _size_of(block)
            fits = size <= room and self._within(text, tokens)
            if fits and (whole or not text):
                blocks.append(block)
                room -= size
                shown_length += len(text) + 1 if text else 0
            elif text and whole:
                # The first text that does not fit is cut; what comes after it would read as if nothing were missing.
                whole = False
                part = self._fitting(cut_text(text, room), tokens)
                shown_length += len(part)
                self.cut_json = _is_json(text)
                if part:
                    blocks.append(_with_text(block, part))
            else:
                self.left_out.append(_describe_block(block))
                if not text and len(self.left_out) <= _MOST_NAMED:
                    blocks.append(TextContent(text=f"[left out: {_describe_block(block)}]"))
            if tokens is not None and text:
                tokens -= min(tokens, self._limits.count(text))
        if self._extra and (not whole or _bytes(self._extra) > room or not self._within(self._extra, tokens)):
            self.left_out.append("structured content")
        # Said once or twice, structured content is data: it is there whole, or not at all.
        self.structured_fits = whole and "structured content" not in self.left_out
        return blocks, min(shown_length, len(self.text))

    def _within(self, text: str, tokens: int | None) -> bool:
        return tokens is None or not text or self._limits.count(text) <= tokens

    def _fitting(self, text: str, tokens: int | None) -> str:
        """The longest good beginning with at most so many tokens, found by halving."""
        if tokens is None or self._limits.count(text) <= tokens:
            return text
        low, high = 0, len(text)
        while low < high:
            middle = (low + high + 1) // 2
            if self._limits.count(text[:middle]) <= tokens:
                low = middle
            else:
                high = middle - 1
        # A beginning may count for more than a longer text, where it ends within a word: halving comes near, then less is taken.
        end = _good_end(text, low)
        while end > 0 and self._limits.count(text[:end]) > tokens:
            end = _good_end(text, end - max(1, end // 50))
        return text[:end]


def _as_result(result: Any) -> CallToolResult:
    if isinstance(result, CallToolResult):
        return result
    structured = getattr(result, "structured", None)
    return CallToolResult(
        content=list(result.content),
        structured_content=UNSET if structured is None else structured,
        is_error=result.is_error,
        meta=getattr(result, "meta", None) or None,
    )


def _fields(block: Any) -> dict[str, Json]:
    return as_object(block) or as_object(msgspec.to_builtins(block)) or {}


def _text_of(block: Any) -> str:
    """The text in a block, also that of an embedded resource; nothing for media and links."""
    fields = _fields(block)
    source = as_object(fields.get("resource")) if fields.get("type") == "resource" else fields
    text = (source or {}).get("text")
    return text if isinstance(text, str) else ""


def _with_text(block: Any, text: str) -> Any:
    """The same block with less text."""
    fields = _fields(block)
    if fields.get("type") != "resource":
        return TextContent(text=text, annotations=fields.get("annotations"), meta=fields.get("_meta"))
    resource = {**(as_object(fields.get("resource")) or {}), "text": text}
    return EmbeddedResource(resource=resource, annotations=fields.get("annotations"), meta=fields.get("_meta"))


def _size_of(block: Any) -> int:
    text = _text_of(block)
    if text:
        return _bytes(text)
    fields = _fields(block)
    source = as_object(fields.get("resource")) or fields
    data = source.get("data") or source.get("blob")
    return len(data) if isinstance(data, str) else len(msgspec.json.encode(fields))


def _describe_block(block: Any) -> str:
    """A block in a few words."""
    fields = _fields(block)
    source = as_object(fields.get("resource")) or fields
    kind, mime_type = str(fields.get("type", "block")), source.get("mimeType")
    return f"{kind} {mime_type or ''}".strip() + f" ({_size_of(block)} bytes)"


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "["):
        return False
    try:
        return isinstance(decode_json(text), (dict, list))
    except ValueError:
        return False
