"""HTTP/1.1 framing, the strict half of RFC 9112: heads in and out, chunked bodies both ways; a server's side and a client's.

Pure. llhttp (httptools), the parser of Node, reads both: its cost per byte is small and the same for every byte,
so no framing that a peer chooses can hold up the others. It accepts what every correct client sends and refuses most of
what two parsers could read differently, which is what request smuggling lives on: a bare CR or LF, a folded header,
blanks before a colon, two lengths, a length beside a transfer coding. `RequestReader` refuses the rest: a coding other
than chunked, two Hosts, targets that are no path, heads and framing without bounds. `ResponseReader` does the same for
answers, and takes a bare LF in a head, as servers have always sent it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any, Final, final

from httptools import (
    HttpParserCallbackError,
    HttpParserError,
    HttpParserInvalidMethodError,
    HttpParserUpgrade,
    HttpRequestParser,
    HttpResponseParser,
)
from msgspec import Struct
from msgspec.structs import replace

from trimaran.errors import CODE_INVALID_REQUEST, LocalProtocolError, ProtocolError, RemoteProtocolError

END_OF_BODY: Final = b"0\r\n\r\n"

_NAME: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_LENGTH: Final = re.compile(rb"(?<=\r\ncontent-length: )[0-9]+(?=\r\n)", re.IGNORECASE)
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_MAX_FIELDS: Final = 100  # the limit of Apache and Node
_MAX_EMPTY_BYTES: Final = 4  # two empty lines: some old clients send one behind a body
# A chunk of one byte takes five more; extensions and trailers, which are ignored, must be bounded.
_MAX_FRAMING_BYTES: Final = 64 * 1024
_MAX_FRAMING_RATIO: Final = 8

_METHODS: Final = {
    name.encode(): name for name in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
}
# Clients have few ways to write a name; the bound is for clients that invent names.
_LOWER_NAMES: Final[dict[bytes, str]] = {}
_MAX_NAMES: Final = 1024

_KNOWN_BYTES: Final = 2048  # of a head that is kept to compare the next one with
# Headers that frame a request or decide who may send it. If one changes, `KnownHead` leaves the head to the parser.
_DECISIVE: Final = frozenset(
    {
        "accept",
        "connection",
        "content-type",
        "expect",
        "host",
        "origin",
        "proxy-connection",
        "transfer-encoding",
        "upgrade",
    }
)

# Leaves printable ASCII as it is, and nothing else.
_PRINTABLE: Final = bytes(byte if 0x20 <= byte < 0x7F else ord("?") for byte in range(256))

_NO_LIMIT: Final = 1 << 60
_MOST_DIGITS: Final = 15  # of a length: a petabyte

TOO_LARGE: Final = b"\0too large"
"""In the place of a body that is not read."""


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
    headers: dict[str, str]
    length: int
    is_chunked: bool
    keep_alive: bool
    expects_continue: bool
    admission: Any
    """Conclusions of a server from this head alone; None at first."""


def share_values(headers: dict[str, str]) -> None:
    """Let equal values of many heads be one object. For heads that live long: of 10,000 streams most say the same."""
    for name, value in headers.items():
        headers[name] = sys.intern(value)


@final
class RequestReader:
    """Reads the requests of one connection from pieces of any size.

    `feed` puts each whole request into `requests`, with its body, or `TOO_LARGE` in place of one over the limit; nothing
    is read after that. llhttp does the reading. Our stricter rules are checked as it reads: the parser
    calls the `on_...` methods.
    """

    __slots__ = (
        "_body",
        "_empty",
        "_head",
        "_headers",
        "_is_last",
        "_max_body",
        "_max_head",
        "_parser",
        "_repeated",
        "_url",
        "_wire",
        "is_over",
        "is_reading",
        "known",
        "requests",
    )

    def __init__(self, *, max_head: int, max_body: int) -> None:
        self.requests: list[tuple[Head, bytes]] = []
        self.is_reading: bool = False
        """Whether a request has begun and is not complete."""
        self.is_over: bool = False
        """A request was refused or abandoned: the bytes after it mean nothing."""
        self.known: KnownHead | None = None
        """For the next request, where one is not being read."""
        self._is_last = False  # a request announced that it is the last, so further bytes are ignored
        self._max_head = max_head
        self._max_body = max_body
        self._parser: HttpRequestParser | None = None
        self._clear()

    def _clear(self) -> None:
        self._head: Head | None = None
        self._headers: dict[str, str] = {}
        self._url = b""
        self._body: bytes | bytearray = b""
        self._repeated = 0  # fields whose name came before
        self._empty = 0  # bytes of empty lines before the request
        self._wire = 0  # bytes of the message that `feed` was given, from the end of the head on if that is here

    def feed(self, data: bytes) -> None:
        """Read on.

        Raises:
            ProtocolError: the request is invalid; its status is the one to answer with.
        """
        if self._is_last:
            self.is_over = True
        if self.is_over:
            return
        is_new = not self.is_reading
        last, self.known = self.known, None
        if is_new and data[:1] in (b"\r", b"\n"):
            data = self._skip_empty_lines(data)
        parser = self._parser
        if parser is None:
            parser = self._parser = HttpRequestParser(self)
        self._wire += len(data)
        rest = None
        try:
            parser.feed_data(data)
        except HttpParserUpgrade as pause:
            rest = data[pause.args[0] :]
        except HttpParserError as error:
            self._fail(error, data[:1])
        if rest is not None:  # not in the handler above: later errors would have this pause as their context
            self._go_on(rest)
        if self.is_reading:
            self._check_overhead()
        elif is_new and len(self.requests) == 1:
            self._know(self.requests[0][0], data, last)

    def take_head(self) -> Head:
        """The head of the first request, whether or not its body is here."""
        head = self.requests[0][0] if self.requests else self._head
        if head is None:
            raise self._refusal("the head ends too early")
        return head

    def close(self) -> None:
        """Let go of the parser, which refers back to us. Reading on makes a new one: only between two requests."""
        self._parser = self.known = None

    @property
    def body_size(self) -> int:
        """Bytes of an unfinished body that are here."""
        return len(self._body)

    def abandon(self) -> None:
        """Drop the request that is being read; nothing is read after it."""
        self._clear()
        self.is_reading = False
        self.is_over = True

    def take_expectation(self) -> bool:
        """Does the client wait for a 100 before it sends the body? True once per request."""
        head = self._head
        if head is None or not head.expects_continue or self._body:
            return False
        head.expects_continue = False
        return True

    def _know(self, head: Head, data: bytes, last: KnownHead | None) -> None:
        """Remember the head of a request that came whole and alone, if the next one can be compared with it."""
        headers, raw = head.headers, data[: len(data) - head.length]
        if self.is_over or len(raw) > _KNOWN_BYTES or not raw.endswith(b"\r\n\r\n") or head.expects_continue:
            return
        if raw.count(b"\r\n") != len(headers) + 2 or "upgrade" in headers:
            return  # a field that comes twice would be two lines and one value
        changing = frozenset[str]() if last is None else last.changes(headers)
        max_head = min(_KNOWN_BYTES, self._max_head)
        self.known = KnownHead(head, raw, changing, max_head=max_head, max_body=self._max_body)

    def _skip_empty_lines(self, data: bytes) -> bytes:
        """RFC 9112, 2.2: a server should ignore at least one empty line before a request. The parser ignores any number."""
        rest = data.lstrip(b"\r\n")
        self._empty += len(data) - len(rest)
        if self._empty > _MAX_EMPTY_BYTES:
            raise self._refusal("more than two empty lines before a request")
        return rest

    def _go_on(self, rest: bytes) -> None:
        """Read on behind the head of a request that offers to switch protocols (`Upgrade: h2c`), which we never do.

        The parser takes what follows for the other protocol's. A new one is told how the body is framed, if there is one.
        """
        parser = self._parser = HttpRequestParser(self)
        head = self._head
        if head is not None:
            framing = b"Transfer-Encoding: chunked" if head.is_chunked else b"Content-Length: %d" % head.length
            parser.feed_data(b"POST / HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n" % framing)
        if rest:
            self.feed(rest)

    def _fail(self, error: HttpParserError, first: bytes) -> None:
        cause = error.__context__
        if isinstance(cause, _Stop):
            return
        if isinstance(error, HttpParserCallbackError) and cause is not None:
            self.is_over = True
            raise cause
        if self._is_last:
            self.is_over = True
            return
        if isinstance(error, HttpParserInvalidMethodError):
            is_tls = first == b"\x16"  # the first byte of a handshake
            raise self._refusal(
                "it is TLS, and this port speaks plain HTTP: use http:// in the URL, or serve with tls="
                if is_tls
                else "it does not begin with a method of HTTP"
            )
        if "PRI/Upgrade" in str(error):
            raise self._refusal("HTTP/2 is not served here; use HTTP/1.1")
        raise self._refusal(str(error)[:1].lower() + str(error)[1:])

    def _refusal(self, reason: str, status: int = 400) -> ProtocolError:
        self.is_over = True
        return ProtocolError.invalid_request(f"malformed HTTP request: {reason}", status=status)

    def _check_overhead(self) -> None:
        head = self._head
        if head is None:
            if self._wire > self._max_head:
                raise self._head_too_large()
        elif head.is_chunked and self._wire > _MAX_FRAMING_BYTES + _MAX_FRAMING_RATIO * len(self._body):
            raise self._refusal("the chunk headers are larger than the data")

    def _measure(self) -> int:
        """The size of a head that has been read, blanks aside."""
        fields = sum(len(name) + len(value) + 4 for name, value in self._headers.items())
        return fields + len(self._url) + len("POST  HTTP/1.1\r\n\r\n")

    def _too_many_fields(self) -> ProtocolError:
        return self._refusal(f"more than {_MAX_FIELDS} header fields", 431)

    def _head_too_large(self) -> ProtocolError:
        self.is_over = True
        return ProtocolError.invalid_request(
            f"the request's head is larger than {self._max_head} bytes (max_header_bytes)", status=431
        )

    # Called by the parser

    def on_message_begin(self) -> None:
        if self._head is None:  # else it is the artificial head of `_go_on`
            self.is_reading = True

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._head is not None:
            return  # a trailer, or an artificial head: ignored
        key = _LOWER_NAMES.get(name)
        if key is None:
            key = name.decode().lower()
            if len(_LOWER_NAMES) < _MAX_NAMES:
                _LOWER_NAMES[name] = key
        text = value.strip(b" \t").decode("latin-1")
        headers = self._headers
        if key in headers:
            if key in ("host", "content-length", "transfer-encoding"):
                raise self._refusal(f"{key} is given twice")
            self._repeated += 1
            if self._repeated > _MAX_FIELDS:  # joining costs the square of how often it is done
                raise self._too_many_fields()
            text = f"{headers[key]}, {text}"
        headers[key] = text

    def on_headers_complete(self) -> None:
        if self._head is not None:
            return
        parser = self._parser
        assert parser is not None
        method = _METHODS.get(parser.get_method())
        if method is None:
            raise self._refusal("the method is not served here", 501)
        version = parser.get_http_version()
        if version not in ("1.1", "1.0"):
            raise self._refusal(f"HTTP/{version} is not spoken here", 505)
        if len(self._headers) + self._repeated > _MAX_FIELDS:
            raise self._too_many_fields()
        if self._wire > self._max_head and self._measure() > self._max_head:
            raise self._head_too_large()
        head = Head()
        head.method = method
        head.path, head.query = self._split_target(self._url)
        head.minor = 1 if version == "1.1" else 0
        head.admission = None
        head.headers = self._headers
        self._frame(head, self._headers)
        self._head = head
        self._wire = 0
        if head.length > self._max_body:
            self._give_up(head)

    def on_body(self, data: bytes) -> None:
        body = self._body
        if not body:
            self._body = data
        elif type(body) is bytearray:
            body += data  # in place: bytes would be copied whole for every chunk
        else:
            self._body = bytearray(body) + data
        if len(self._body) > self._max_body:
            head = self._head
            assert head is not None
            self._give_up(head)

    def on_message_complete(self) -> None:
        head, body = self._head, self._body
        assert head is not None
        parser = self._parser
        if parser is not None and parser.should_upgrade() and (head.length or head.is_chunked):
            return  # the body is still to come, see `_go_on`
        self._clear()
        self.is_reading = False
        self._is_last = not head.keep_alive
        self.requests.append((head, body if type(body) is bytes else bytes(body)))

    # The meaning of a head

    def _split_target(self, target: bytes) -> tuple[str, str]:
        """RFC 9112, 3.2.1: only the origin form is served, a path and a query. The others are a proxy's."""
        if target[:1] != b"/" or b"#" in target:
            raise self._refusal("the target is not a path that begins with a slash")
        path, _, query = target.decode("ascii").partition("?")
        return path, query

    def _frame(self, head: Head, headers: Mapping[str, str]) -> None:
        """How long the body is and whether the connection goes on."""
        length, coding = headers.get("content-length"), headers.get("transfer-encoding")
        if head.minor == 1 and "host" not in headers:
            raise self._refusal("HTTP/1.1 needs a Host header")
        if coding is not None:
            if coding.lower() != "chunked" or head.minor == 0:
                raise self._refusal(f"the transfer coding {coding[:40]!r} is not supported; use chunked", 501)
            if length is not None:
                raise self._refusal("content-length and transfer-encoding contradict each other")
        if length is None:
            head.length = 0
        else:
            size = read_length(length)
            if size is None:
                raise self._refusal("content-length is not a number")
            head.length = size
        head.is_chunked = coding is not None
        connection = headers.get("connection")
        head.keep_alive = head.minor == 1
        if connection is not None:
            options = [option.strip() for option in connection.lower().split(",")]
            head.keep_alive = "close" not in options and (head.minor == 1 or "keep-alive" in options)
        head.expects_continue = head.minor == 1 and headers.get("expect", "").lower() == "100-continue"

    def _give_up(self, head: Head) -> None:
        """Leave a body unread: the server first authenticates the caller, on whom the size limit depends."""
        self.abandon()
        self.requests.append((head, TOO_LARGE))
        raise _Stop


class _Stop(Exception):
    """Ends the parser's run."""


@final
class KnownHead:
    """The head of the last request on a connection: the next one nearly always differs only in a few values.

    Ids of tracing, a length, the name of a tool change with each call. `read` takes such a request apart without the
    parser. The fields that change are learned from the heads before, which the parser has read. The rest of the head must
    be the same, byte for byte. A header that frames a request or decides who may send it is never taken for a value that changes,
    and a new value must be printable ASCII: so the parser would read the same. It reads or refuses whatever does not fit.
    """

    __slots__ = (
        "_changing",
        "_head",
        "_is_length_last",
        "_length_changes",
        "_max_body",
        "_max_head",
        "_parts",
        "_start",
    )

    def __init__(self, head: Head, raw: bytes, changing: frozenset[str], *, max_head: int, max_body: int) -> None:
        self._head = head
        self._changing = changing
        self._length_changes = "content-length" in changing
        self._max_head = max_head
        self._max_body = max_body
        self._start, self._parts = _cut(raw, changing)
        self._is_length_last = self._parts == [("content-length", b"\r\n\r\n")]
        """Nothing changes but the length, as with clients that put it last."""

    def changes(self, headers: Mapping[str, str]) -> frozenset[str]:
        """The fields that have changed until now, those of this next head included."""
        known = self._head.headers
        if list(known) != list(headers):
            return frozenset()
        return self._changing.union(name for name in headers if headers[name] != known[name]) - _DECISIVE

    def read(self, data: bytes) -> tuple[Head, bytes, dict[str, str]] | None:
        """The known head, the body and the headers, if these bytes are one whole request with a head like the known one.

        Where values change, the headers are a copy: those of the head itself are the values of the request before.
        """
        head, start = self._head, self._start
        if not data.startswith(start):
            return None
        position, length = len(start), head.length
        if not self._parts:
            return (head, data[position:], head.headers) if len(data) - position == length else None
        end = data.find(b"\r\n\r\n", position) + 4 if self._length_changes else len(data) - length
        if end > self._max_head:
            return None
        values = data[position:end]
        headers = head.headers.copy()
        if self._is_length_last:
            digits = values[:-4]
            if not (
                digits.isdigit() and len(digits) <= _MOST_DIGITS and int(digits) == len(data) - end <= self._max_body
            ):
                return None
            headers["content-length"] = digits.decode()
            return head, data[end:], headers
        for name, rest in self._parts:
            value, separator, values = values.partition(rest)
            # A line break before `rest` is not printable either. `partition` and `translate` are the fastest there are.
            if not separator or value.translate(_PRINTABLE) != value:
                return None
            headers[name] = value.decode().strip()
        if values or (self._length_changes and not self._is_length(headers["content-length"], len(data) - end)):
            return None
        return head, data[end:], headers

    def _is_length(self, text: str, size: int) -> bool:
        return read_length(text) == size <= self._max_body


def _cut(raw: bytes, changing: frozenset[str]) -> tuple[bytes, list[tuple[str, bytes]]]:
    """A head's bytes up to the first value that changes; then each such field's name, with the bytes up to the next value."""
    names: list[str] = []
    pieces = [b""]
    for line in raw.splitlines(keepends=True):
        name, colon, value = line.partition(b":")
        key = name.decode("latin-1").lower()
        if key in changing:
            names.append(key)
            pieces[-1] += name + colon + value[: value.startswith(b" ")]
            pieces.append(b"\r\n")
        else:
            pieces[-1] += line
    return pieces[0], list(zip(names, pieces[1:], strict=True))


def read_head(raw: bytes) -> Head:
    """A request's head from its bytes, including the empty line. An invalid head is a 400 with the reason."""
    reader = RequestReader(max_head=_NO_LIMIT, max_body=_NO_LIMIT)
    try:
        reader.feed(raw)
        return reader.take_head()
    finally:
        reader.close()


def read_length(text: str | None) -> int | None:
    """The value of a content-length, or None if it is not one."""
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


@final
class ResponseHead(Struct, frozen=True):
    """A response's head, and how its body is framed."""

    status: int
    reason: str
    headers: Mapping[str, str]
    """By lower-case name; a repeated one is joined."""
    is_chunked: bool
    length: int | None
    """The length of the body, if it is known."""
    keep_alive: bool
    is_plain_json: bool
    """The body is JSON, and nothing has to be unpacked."""


@final
class KnownResponseHead:
    """The head of an answer that has been read: the next one often differs only in the length of its body."""

    __slots__ = ("_head", "_rest", "_start")

    def __init__(self, head: ResponseHead, start: bytes, rest: bytes) -> None:
        self._head = head
        self._start = start
        self._rest = rest

    def read(self, raw: bytes, size: int) -> ResponseHead | None:
        """The head in these bytes, if it is like the known one and says that so many bytes follow."""
        start, rest = self._start, self._rest
        digits = raw[len(start) : -len(rest)]
        is_like = digits.isdigit() and len(digits) <= _MOST_DIGITS and raw.startswith(start) and raw.endswith(rest)
        if not is_like or int(digits) != size:
            return None
        headers = {**self._head.headers, "content-length": digits.decode()}
        return replace(self._head, headers=headers, length=size)


def know_response(head: ResponseHead, raw: bytes) -> KnownResponseHead | None:
    """A head to compare the next one with; None if it does not give the length of its body in one plain line."""
    if raw.count(b"\r\n") != len(head.headers) + 2:
        return None  # a field that comes twice would be two lines and one value
    match = _LENGTH.search(raw)
    return None if match is None else KnownResponseHead(head, raw[: match.start()], raw[match.end() :])


def _garbled(reason: str) -> RemoteProtocolError:
    return RemoteProtocolError(CODE_INVALID_REQUEST, f"malformed HTTP response: {reason}")


@final
class ResponseReader:
    """Reads one response piece by piece: for a client, which may be reading a stream.

    `feed` returns the pieces of the body, those of one read joined. `head` is there once it is read; interim answers (1xx)
    before it are skipped. Once `is_done`, `has_rest` says whether something followed. Where neither length nor coding
    frames the body, it goes on until the connection ends, and `is_done` stays false.
    """

    def __init__(self, *, max_head: int, max_interim: int) -> None:
        self.head: ResponseHead | None = None
        self.is_done: bool = False
        self.has_rest: bool = False
        self._max_head = max_head
        self._max_interim = max_interim
        self._interim = 0
        self._head_bytes = 0
        self._pieces: list[bytes] = []
        self._payload = 0
        self._framing = 0
        self._clear()
        self._parser = HttpResponseParser(self)
        # A client takes what servers have always sent: a bare LF ends a line of the head too. And RFC 9112, 7.1.1 lets
        # blanks stand behind the size of a chunk. Nobody stands between us who would read either otherwise.
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True)

    def _clear(self) -> None:
        self._headers: dict[str, str] = {}
        self._reason = b""
        self._number = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Read on.

        Raises:
            RemoteProtocolError: it is not HTTP/1, can be read in two ways, or carries less than it weighs.
        """
        has_head = self.head is not None
        if not has_head and not self._head_bytes and data[:1] in (b"\r", b"\n"):
            raise _garbled("an empty line where the status line should be")  # llhttp skips any number of them
        try:
            self._parser.feed_data(data)
        except HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except HttpParserError as error:
            if not self.is_done:
                where = "the head is malformed" if self.head is None else "in a chunked body"
                raise _garbled(f"{where}: {error}") from None
            self.has_rest = True
        if self.head is None:
            self._head_bytes += len(data)
            self._check_head(self._head_bytes // (1 + self._interim))
        pieces, self._pieces = self._pieces, []
        if has_head and not self.is_done:
            self._check_framing(len(data), pieces)
        return pieces if len(pieces) < 2 else [b"".join(pieces)]

    def _check_framing(self, read: int, pieces: list[bytes]) -> None:
        size = sum(map(len, pieces))
        self._payload += size
        self._framing += read - size
        if self._framing > _MAX_FRAMING_BYTES + _MAX_FRAMING_RATIO * self._payload:
            raise _garbled("the chunk headers are larger than the data")

    def _check_head(self, size: int) -> None:
        if size > self._max_head:
            raise _garbled(f"a head of more than {self._max_head} bytes")

    def close(self) -> None:
        """Let go of the parser, which refers back to us."""
        del self._parser

    # Called by the parser

    def on_message_begin(self) -> None:
        self.has_rest = self.is_done

    def on_status(self, status: bytes) -> None:
        self._reason += status

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head is not None:
            return  # a trailer
        key, text = name.decode("ascii").lower(), value.strip(b" \t").decode("latin-1")
        headers = self._headers
        self._number += 1
        if self._number > _MAX_FIELDS:
            raise _garbled(f"more than {_MAX_FIELDS} header fields")
        if key in headers:
            if key in ("content-length", "transfer-encoding"):
                if headers[key] != text:
                    raise _garbled(f"{key} is given twice")
            else:
                # The values of set-cookie, and of no other field, contain commas.
                text = f"{headers[key]}{chr(10) if key == 'set-cookie' else ', '}{text}"
        headers[key] = text

    def on_headers_complete(self) -> None:
        if self.is_done:
            return
        status = self._parser.get_status_code()
        if status < 100 or _CONTROL.search(self._reason) is not None:
            raise _garbled("the status line is malformed")
        self._check_head(sum(len(name) + len(value) + 4 for name, value in self._headers.items()))
        if status == 101:
            raise _garbled("it switches to a protocol that was not requested")
        if status < 200 and self._max_interim:
            self._interim += 1
            if self._interim > self._max_interim:
                raise _garbled(f"more than {self._max_interim} interim answers (1xx)")
            self._clear()
            return
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=False)  # in the head only
        self.head = _framed(
            status, self._reason.decode("latin-1"), self._headers, is_old=self._parser.get_http_version() == "1.0"
        )

    def on_body(self, data: bytes) -> None:
        if not self.is_done:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        self.is_done = self.head is not None


def _framed(status: int, reason: str, headers: Mapping[str, str], *, is_old: bool) -> ResponseHead:
    """A head, and the framing of its body."""
    coding, length = headers.get("transfer-encoding"), None
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
    keep_alive = "keep-alive" in options if is_old else "close" not in options
    return ResponseHead(
        status,
        reason,
        headers,
        coding is not None,
        length,
        keep_alive and (length is not None or coding is not None),
        headers.get("content-type") == "application/json" and "content-encoding" not in headers,
    )


def request_head(verb: str, target: str, host: str, headers: Mapping[str, str]) -> bytes:
    """A request's head up to, not including, the length of the body and the empty line.

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
    try:
        return ("\r\n".join(lines) + "\r\n").encode("latin-1")
    except UnicodeEncodeError:
        raise LocalProtocolError.invalid_params(
            "a header has characters that no header can carry; encode it first"
        ) from None


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
            raise ProtocolError.internal_error(
                f"the header {name} has a line break or a null byte in its value: remove it"
            )
        lines.append(f"{name}: {value}")
    if framing:
        lines.append(framing)
    return "\r\n".join(lines).encode("latin-1") + b"\r\n"
