"""HTTP/1.1 framing, the strict half of RFC 9112: heads in and out, chunked bodies both ways; a server's side and a client's.

Pure. It accepts what every correct client sends and refuses whatever two parsers could read differently, which is what
request smuggling lives on: a bare CR or LF, a folded header, blanks before a colon, two lengths, a length beside a
transfer coding, a coding other than chunked, two Hosts.

A client repeats the same head on every request of a connection, so `HeadReader` remembers what a head meant by its raw
bytes; a request from a known client costs one search and one dictionary look-up instead of a parse.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, final

from msgspec import Struct

from trimaran.errors import CODE_INVALID_REQUEST, LocalProtocolError, ProtocolError, RemoteProtocolError

__all__ = [
    "END_OF_BODY",
    "ChunkReader",
    "Head",
    "HeadReader",
    "PieceReader",
    "ResponseHead",
    "chunk",
    "read_length",
    "read_response_head",
    "request_head",
    "response_head",
]

END_OF_BODY: Final = b"0\r\n\r\n"

_TOKEN: Final = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_REQUEST_LINE: Final = re.compile(rb"(" + _TOKEN + rb") ([\x21-\x7e]+) HTTP/1\.([01])\r\n")
# One run of allowed bytes, stripped afterwards: blanks that two parts of a pattern may share cost their square.
_FIELD: Final = re.compile(rb"(" + _TOKEN + rb"):([^\x00-\x08\x0a-\x1f\x7f]*)\r\n")
_STATUS_LINE: Final = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([^\x00-\x08\x0a-\x1f\x7f]*))?\r?\n")
# A client takes what servers have always sent: a bare LF ends a line too, and what follows a name may hold any text.
_LENIENT_FIELD: Final = re.compile(rb"(" + _TOKEN + rb"):([^\x00\r\n]*)\r?\n")
_NAME: Final = re.compile(_TOKEN.decode())
# No blank before an extension: others refuse it, and what two readers read differently can be used against one of them.
_CHUNK_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,8})(?:[ \t]*|;[^\x00-\x08\x0a-\x1f\x7f]*)\r\n")
# Of a server we read what RFC 9112 lets it write: nobody stands between us who would read it otherwise.
_CHUNK_SIZE_OF_SERVER: Final = re.compile(rb"([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\x00-\x08\x0a-\x1f\x7f]*)?\r\n")
_MEMO_ENTRIES: Final = 1024
_MEMO_BYTES: Final = 2048
_MAX_TRAILER_BYTES: Final = 4096
_MAX_FIELDS: Final = 100  # what Apache and Node allow


def _refuse(reason: str, status: int = 400) -> ProtocolError:
    return ProtocolError.invalid_request(f"malformed HTTP request: {reason}", status=status)


@final
class Head:
    """A request's head. `headers` is by lower-case name; a repeated one is joined, as RFC 9110 has it."""

    __slots__ = (
        "admission",
        "expects_continue",
        "headers",
        "is_chunked",
        "keep_alive",
        "length",
        "method",
        "minor",
        "path",
        "query",
    )

    method: str
    path: str
    query: str
    minor: int
    headers: Mapping[str, str]
    length: int
    is_chunked: bool
    keep_alive: bool
    expects_continue: bool
    admission: Any
    """What a server has concluded from this head alone, kept with it; None at first."""


@final
class HeadReader:
    """Reads heads, remembering what identical bytes meant."""

    def __init__(self) -> None:
        self._memo: dict[bytes, Head] = {}
        self.known = self._memo.get
        """The head of bytes that have been read before, or None."""

    def read(self, raw: bytes) -> Head:
        """A head from its bytes, the empty line included; a 400 that says what is wrong with it."""
        found = self._memo.get(raw)
        if found is not None:
            return found
        head = _parse(raw)
        if len(raw) <= _MEMO_BYTES:
            if len(self._memo) >= _MEMO_ENTRIES:
                self._memo.clear()
            self._memo[raw] = head
        return head


def _parse(raw: bytes) -> Head:
    line = _REQUEST_LINE.match(raw)
    if line is None:
        raise _refuse("the request line is not `METHOD target HTTP/1.1`")
    headers = _fields(raw, line.end())
    head = Head()
    head.method = line[1].decode()
    target = line[2].decode()
    if target[:1] != "/":
        # The absolute form, which a client sends to a proxy; the path is what counts here.
        target = "/" + target.partition("://")[2].partition("/")[2] if "://" in target else target
    head.path, _, head.query = target.partition("?")
    head.minor = int(line[3])
    head.admission = None
    head.headers = headers
    _frame(head, headers)
    return head


def _fields(raw: bytes, position: int) -> dict[str, str]:
    headers: dict[str, str] = {}
    count = 0
    end = len(raw) - 2
    while position < end:
        field = _FIELD.match(raw, position)
        if field is None:
            raise _refuse(f"the header field at byte {position} is malformed")
        count += 1
        if count > _MAX_FIELDS:
            raise _refuse(f"more than {_MAX_FIELDS} header fields", 431)
        name, value = field[1].decode().lower(), field[2].strip(b" \t").decode("latin-1")
        if name in headers:
            if name in ("host", "content-length", "transfer-encoding"):
                raise _refuse(f"{name} is given twice")
            value = f"{headers[name]}, {value}"
        headers[name] = value
        position = field.end()
    return headers


def read_length(text: str | None) -> int | None:
    """The value of a content-length, or None if it is not one."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= 15 else None


def _frame(head: Head, headers: Mapping[str, str]) -> None:
    """How long the body is and whether the connection goes on."""
    length, coding = headers.get("content-length"), headers.get("transfer-encoding")
    if head.minor == 1 and "host" not in headers:
        raise _refuse("HTTP/1.1 needs a Host header")
    if coding is not None:
        if coding.lower() != "chunked" or head.minor == 0:
            raise _refuse(f"the transfer coding {coding[:40]!r} is not supported; use chunked", 501)
        if length is not None:
            raise _refuse("content-length and transfer-encoding contradict each other")
    if length is not None and read_length(length) is None:
        raise _refuse("content-length is not a number")
    head.length = read_length(length) or 0
    head.is_chunked = coding is not None
    options = [o.strip().lower() for o in headers.get("connection", "").split(",")]
    head.keep_alive = "close" not in options if head.minor == 1 else "keep-alive" in options
    head.expects_continue = headers.get("expect", "").lower() == "100-continue" and head.minor == 1


@final
class ChunkReader:
    """Reads a chunked body. `feed` returns the rest of the input once the body is complete, None before."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._input = bytearray()
        self._parts: list[bytes] = []
        self._size = 0
        self._wanted = 0
        self._in_trailer = False

    @property
    def body(self) -> bytes:
        return b"".join(self._parts)

    def feed(self, data: bytes) -> bytes | None:
        self._input += data
        while True:
            if self._in_trailer:
                return self._trailer()
            if self._wanted:
                if not self._data():
                    return None
            elif not self._next_size():
                return None

    def _next_size(self) -> bool:
        end = self._input.find(b"\n")
        if end < 0:
            if len(self._input) > 256:
                raise _refuse("a chunk's size line is too long")
            return False
        line = _CHUNK_SIZE.fullmatch(self._input, 0, end + 1)
        if line is None:
            raise _refuse("a chunk's size line is malformed")
        size = int(line[1], 16)
        del line  # a match holds its buffer, which could then not shrink
        del self._input[: end + 1]
        self._size += size
        if self._size > self._limit:
            raise ProtocolError.invalid_request(
                f"the body is larger than {self._limit} bytes (max_body_bytes)", status=413
            )
        self._in_trailer = size == 0
        self._wanted = size
        return True

    def _data(self) -> bool:
        """Take the chunk once it is here whole, its line end included."""
        size = self._wanted
        if len(self._input) < size + 2:
            return False
        if not self._input.startswith(b"\r\n", size):
            raise _refuse("a chunk is longer than it says")
        self._parts.append(bytes(self._input[:size]))
        del self._input[: size + 2]
        self._wanted = 0
        return True

    def _trailer(self) -> bytes | None:
        """Trailers carry nothing the protocol reads; they are checked like any header, and skipped."""
        position = 0
        while not self._input.startswith(b"\r\n", position):
            end = self._input.find(b"\n", position)
            if end < 0:
                if len(self._input) > _MAX_TRAILER_BYTES:
                    raise _refuse("the trailer is too long", 431)
                return None
            if end > _MAX_TRAILER_BYTES:
                raise _refuse("the trailer is too long", 431)
            if _FIELD.fullmatch(bytes(self._input[position : end + 1])) is None:
                raise _refuse("the trailer is malformed")
            position = end + 1
        return bytes(self._input[position + 2 :])


@final
class ResponseHead(Struct, frozen=True):
    """A response's head, and how its body is framed."""

    status: int
    reason: str
    headers: Mapping[str, str]
    """By lower-case name; a repeated one is joined."""
    is_chunked: bool
    length: int | None
    """Of the body, where it is known."""
    keep_alive: bool


def read_response_head(raw: bytes) -> ResponseHead:
    """A response's head from its bytes, the empty line included.

    Raises:
        RemoteProtocolError: it is not HTTP/1, or its framing can be read in two ways.
    """
    line = _STATUS_LINE.match(raw)
    if line is None:
        raise _garbled("the status line is malformed")
    headers: dict[str, str] = {}
    position, end, count = line.end(), len(raw) - (2 if raw.endswith(b"\r\n") else 1), 0
    while position < end:
        field = _LENIENT_FIELD.match(raw, position)
        if field is None:
            raise _garbled(f"the header field at byte {position} is malformed")
        name, value = field[1].decode().lower(), field[2].strip(b" \t").decode("latin-1")
        if name in headers:
            if name in ("content-length", "transfer-encoding") and headers[name] != value:
                raise _garbled(f"{name} is given twice")
            if name == "set-cookie":
                value = f"{headers[name]}\n{value}"  # the one field whose values hold commas of their own
            elif name not in ("content-length", "transfer-encoding"):
                value = f"{headers[name]}, {value}"
        headers[name] = value
        position = field.end()
        count += 1
        if count > _MAX_FIELDS:
            raise _garbled(f"more than {_MAX_FIELDS} header fields")
    status, coding = int(line[2]), headers.get("transfer-encoding")
    length = None
    if status == 101:
        raise _garbled("it switches to a protocol nobody asked for")
    if status < 200 or status in (204, 304):
        length, coding = 0, None
    elif coding is not None:
        if coding.lower() != "chunked":
            raise _garbled(f"the transfer coding {coding[:40]!r} is not known")
    elif "content-length" in headers:
        length = read_length(headers["content-length"])
    if "content-length" in headers and read_length(headers["content-length"]) is None:
        raise _garbled("content-length is not a number")
    options = [option.strip().lower() for option in headers.get("connection", "").split(",")]
    keep_alive = "close" not in options if line[1] == b"1" else "keep-alive" in options
    # A length beside a coding counts for nothing, and whoever sends both is not trusted with a second answer.
    is_clear = (length is not None) != (coding is not None) and not (coding and "content-length" in headers)
    reason = (line[3] or b"").decode("latin-1")
    return ResponseHead(status, reason, headers, coding is not None, length, keep_alive and is_clear)


def _garbled(reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(CODE_INVALID_REQUEST, f"malformed HTTP response: {reason}")


@final
class PieceReader:
    """Reads a chunked body piece by piece, as it comes: for a client, who may be reading a stream.

    `feed` returns the pieces; `rest` is what followed the body, once `is_done`.
    """

    def __init__(self) -> None:
        self._input = b""
        self._left = 0
        self._state = "size"
        self._trailer = 0
        self.is_done = False
        self.rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        data = self._input + data if self._input else data
        pieces: list[bytes] = []
        position = 0
        while not self.is_done:
            if self._state == "data":
                piece = data[position : position + self._left]
                if not piece:
                    break
                pieces.append(piece)
                position += len(piece)
                self._left -= len(piece)
                if self._left:
                    break
                self._state = "end"
                continue
            end = data.find(b"\n", position) + 1
            if (end or len(data)) - position > _MAX_TRAILER_BYTES:
                raise _garbled("a line of a chunked body is too long")
            if not end:
                break
            self._line(data[position:end])
            position = end
        self._input = data[position:]
        if self.is_done:
            self.rest, self._input = self._input, b""
        return pieces

    def _line(self, line: bytes) -> None:
        if self._state == "size":
            size = _CHUNK_SIZE_OF_SERVER.fullmatch(line)
            if size is None:
                raise _garbled("a chunk's size line is malformed")
            self._left = int(size[1], 16)
            self._state = "data" if self._left else "trailer"
        elif self._state == "end":
            if line != b"\r\n":
                raise _garbled("a chunk is longer than it says")
            self._state = "size"
        elif line in (b"\r\n", b"\n"):
            self.is_done = True
        else:
            self._trailer += len(line)
            if self._trailer > _MAX_TRAILER_BYTES:
                raise _garbled("the trailer is too long")
            if _LENIENT_FIELD.fullmatch(line) is None:
                raise _garbled("the trailer is malformed")


def request_head(verb: str, target: str, host: str, headers: Mapping[str, str], length: int | None) -> bytes:
    """A request's head, the empty line included.

    Raises:
        LocalProtocolError: a header would break the request apart.
    """
    lines = [f"{verb} {target} HTTP/1.1"]
    if not any(name.lower() == "host" for name in headers):
        lines.append(f"Host: {host}")
    for name, value in headers.items():
        if _NAME.fullmatch(name) is None:
            raise LocalProtocolError.invalid_params(f"{name!r} is not the name of a header")
        if "\r" in value or "\n" in value or "\0" in value:
            raise LocalProtocolError.invalid_params(f"the header {name} holds a line break")
        lines.append(f"{name}: {value}")
    if length is not None:
        lines.append(f"Content-Length: {length}")
    try:
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    except UnicodeEncodeError:
        raise LocalProtocolError.invalid_params("a header holds what no header can carry; encode it first") from None


def chunk(data: bytes) -> bytes:
    """One piece of a chunked response."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def response_head(status: int, headers: list[tuple[str, str]], framing: str) -> bytes:
    """A response's head up to, not including, the empty line; `framing` is the header that ends the body."""
    try:
        reason = HTTPStatus(status).phrase
    except ValueError:
        reason = ""
    lines = [f"HTTP/1.1 {status} {reason}"]
    for name, value in headers:
        if "\r" in value or "\n" in value or "\0" in value:
            raise ProtocolError.internal_error(f"the header {name} would break the response apart")
        lines.append(f"{name}: {value}")
    if framing:
        lines.append(framing)
    return "\r\n".join(lines).encode("latin-1") + b"\r\n"
