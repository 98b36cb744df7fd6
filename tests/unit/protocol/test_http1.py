"""HTTP/1.1 framing: what correct clients send is taken, what two parsers could read differently is refused (RFC 9112)."""

from __future__ import annotations

import pytest

from trimaran.errors import ProtocolError
from trimaran.protocol.http1 import END_OF_BODY, ChunkReader, Head, HeadReader, chunk, response_head


def head(*lines: bytes, first: bytes = b"POST /mcp HTTP/1.1", host: bool = True) -> Head:
    fields = [b"Host: a", *lines] if host else list(lines)
    return HeadReader().read(b"\r\n".join([first, *fields]) + b"\r\n\r\n")


def refused(*lines: bytes, first: bytes = b"POST /mcp HTTP/1.1", host: bool = True) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        head(*lines, first=first, host=host)
    assert caught.value.code == -32600
    return caught.value


# --- heads -----------------------------------------------------------------------------------------------------------


def test_a_head_is_read_whole() -> None:
    found = head(b"Content-Length: 12", b"X-One:1", b"x-one: \t 2 \t", first=b"POST /mcp?a=1&b=?2 HTTP/1.1")
    assert (found.method, found.path, found.query, found.minor) == ("POST", "/mcp", "a=1&b=?2", 1)
    assert found.headers == {"host": "a", "content-length": "12", "x-one": "1, 2"}
    assert (found.length, found.is_chunked, found.keep_alive, found.expects_continue) == (12, False, True, False)


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"/", "/", ""),
        (b"/mcp/", "/mcp/", ""),
        (b"http://host:80/mcp?x=1", "/mcp", "x=1"),
        (b"http://host", "/", ""),
        (b"*", "*", ""),
        (b"/a%20b", "/a%20b", ""),
    ],
)
def test_the_target_gives_path_and_query_in_every_form(target: bytes, path: str, query: str) -> None:
    found = head(first=b"GET " + target + b" HTTP/1.1")
    assert (found.path, found.query) == (path, query)


@pytest.mark.parametrize(
    ("first", "connection", "goes_on"),
    [
        (b"GET / HTTP/1.1", None, True),
        (b"GET / HTTP/1.1", b"close", False),
        (b"GET / HTTP/1.1", b"Keep-Alive, Close", False),
        (b"GET / HTTP/1.1", b"upgrade", True),
        (b"GET / HTTP/1.0", None, False),
        (b"GET / HTTP/1.0", b"Keep-Alive", True),
    ],
)
def test_whether_the_connection_goes_on(first: bytes, connection: bytes | None, goes_on: bool) -> None:
    lines = [] if connection is None else [b"Connection: " + connection]
    assert head(*lines, first=first).keep_alive is goes_on


def test_a_chunked_body_has_no_length() -> None:
    found = head(b"Transfer-Encoding: Chunked")
    assert found.is_chunked
    assert found.length == 0


def test_a_client_may_wait_for_a_go_ahead() -> None:
    assert head(b"Expect: 100-Continue").expects_continue
    assert not head(b"Expect: something").expects_continue
    assert not head(b"Expect: 100-continue", first=b"POST / HTTP/1.0").expects_continue


def test_http_1_0_needs_no_host() -> None:
    assert head(first=b"GET / HTTP/1.0", host=False).minor == 0


def test_an_obsolete_byte_in_a_value_is_latin_1() -> None:
    assert head(b"X-A: caf\xe9").headers["x-a"] == "café"


def test_an_empty_value_is_a_value() -> None:
    assert head(b"X-A:", b"X-B: ").headers["x-a"] == head(b"X-B:  ").headers["x-b"] == ""


@pytest.mark.parametrize(
    "first",
    [
        b"POST /mcp",
        b"POST  /mcp HTTP/1.1",
        b"POST /mcp HTTP/1.1 ",
        b" POST /mcp HTTP/1.1",
        b"POST /m cp HTTP/1.1",
        b"POST /mcp HTTP/2.0",
        b"POST /mcp http/1.1",
        b"PO\tST /mcp HTTP/1.1",
        b"POST /mcp\xff HTTP/1.1",
        b"",
    ],
)
def test_a_request_line_of_another_shape_is_refused(first: bytes) -> None:
    assert refused(first=first).status == 400


@pytest.mark.parametrize(
    "line",
    [
        b"No-Colon",
        b"Blank-Before : x",
        b": x",
        b" Folded: x",
        b"A: x\r\n\tfolded",
        b"A: x\ny",
        b"A: x\ry",
        b"A: x\0y",
        b"A\xff: x",
        b"A B: x",
    ],
)
def test_a_field_two_parsers_could_read_differently_is_refused(line: bytes) -> None:
    assert refused(line).status == 400


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        ([b"Host: b"], 400),
        ([b"Content-Length: 1", b"Content-Length: 1"], 400),
        ([b"Transfer-Encoding: chunked", b"Transfer-Encoding: chunked"], 400),
        ([b"Transfer-Encoding: chunked", b"Content-Length: 1"], 400),
        ([b"Transfer-Encoding: gzip, chunked"], 501),
        ([b"Transfer-Encoding: identity"], 501),
        ([b"Transfer-Encoding:"], 501),
        ([b"Content-Length: -1"], 400),
        ([b"Content-Length: +1"], 400),
        ([b"Content-Length: 1, 1"], 400),
        ([b"Content-Length: 0x1"], 400),
        ([b"Content-Length: \xb2"], 400),
        ([b"Content-Length:"], 400),
        ([b"Content-Length: 1111111111111111"], 400),
    ],
)
def test_framing_that_contradicts_itself_is_refused(lines: list[bytes], status: int) -> None:
    """What request smuggling lives on."""
    assert refused(*lines).status == status


def test_http_1_1_needs_a_host() -> None:
    assert refused(host=False).status == 400


def test_a_coding_on_http_1_0_is_refused() -> None:
    assert refused(b"Transfer-Encoding: chunked", first=b"POST / HTTP/1.0").status == 501


def test_a_hundred_fields_are_enough() -> None:
    assert len(head(*(b"X-%d: 1" % n for n in range(99))).headers) == 100
    assert refused(*(b"X-%d: 1" % n for n in range(100))).status == 431


def test_the_same_bytes_are_parsed_once_and_the_memory_is_bounded() -> None:
    """P8."""
    reader = HeadReader()
    raw = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    assert reader.read(raw) is reader.read(raw)
    long = b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"x" * 3000 + b"\r\n\r\n"
    assert reader.read(long) is not reader.read(long)
    for number in range(1500):
        reader.read(b"GET /%d HTTP/1.1\r\nHost: a\r\n\r\n" % number)
    assert len(reader._memo) <= 1024


# --- chunked bodies --------------------------------------------------------------------------------------------------


BODY = b"5\r\nhello\r\n1;ext=1\r\n,\r\n00A \r\n 0123456\r\n\r\n0\r\n\r\n"


def test_a_chunked_body_is_put_together_and_the_rest_handed_back() -> None:
    reader = ChunkReader(100)
    assert reader.feed(BODY + b"GET /") == b"GET /"
    assert reader.body == b"hello, 0123456\r\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_body_may_be_cut_anywhere(size: int) -> None:
    reader = ChunkReader(100)
    pieces = [BODY[at : at + size] for at in range(0, len(BODY), size)]
    assert [reader.feed(piece) for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert reader.feed(pieces[-1]) == b""
    assert reader.body == b"hello, 0123456\r\n"


def test_what_the_server_chunks_it_can_read() -> None:
    reader = ChunkReader(100)
    assert reader.feed(chunk(b"abc") + chunk(b"x" * 17) + END_OF_BODY) == b""
    assert reader.body == b"abc" + b"x" * 17


def test_trailers_are_skipped() -> None:
    reader = ChunkReader(100)
    assert reader.feed(b"1\r\na\r\n0\r\nX-T: 1\r\n") is None
    assert reader.feed(b"X-U: 2\r\n\r\nrest") == b"rest"
    assert reader.body == b"a"


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"x\r\n", 400),
        (b"\r\n", 400),
        (b"-1\r\n", 400),
        (b"5\nhello", 400),
        (b"000000005\r\n", 400),
        (b"1\r\nab\r\n", 400),
        (b"1\r\na\nb", 400),
        (b"9" * 300, 400),
        (b"1\x00\r\n", 400),
        (b"2 ;e=1\r\nde\r\n", 400),
        (b"65\r\n", 413),
        (b"ffffffff\r\n", 413),
        (b"0\r\n" + b"X: y\r\n" * 1000, 431),
    ],
)
def test_a_malformed_or_oversized_chunk_is_refused(data: bytes, status: int) -> None:
    """P47: the limit is told before the data is read."""
    with pytest.raises(ProtocolError) as caught:
        ChunkReader(100).feed(data)
    assert caught.value.status == status


def test_the_limit_counts_all_chunks() -> None:
    reader = ChunkReader(10)
    assert reader.feed(chunk(b"x" * 10)) is None
    with pytest.raises(ProtocolError):
        reader.feed(b"1\r\n")


# --- responses -------------------------------------------------------------------------------------------------------


def test_a_response_head_is_written_in_order() -> None:
    assert response_head(200, [("a", "1"), ("b", "2")], "content-length: 3") == (
        b"HTTP/1.1 200 OK\r\na: 1\r\nb: 2\r\ncontent-length: 3\r\n"
    )
    assert response_head(299, [], "") == b"HTTP/1.1 299 \r\n"


@pytest.mark.parametrize("value", ["a\rb", "a\nb", "a\0b", "x\r\nSet-Cookie: y"])
def test_a_header_cannot_break_the_response_apart(value: str) -> None:
    """P44: by construction."""
    with pytest.raises(ProtocolError):
        response_head(200, [("x", value)], "")


@pytest.mark.parametrize("value", [b" " * 300_000 + b"\0", b"a" + b" " * 300_000 + b"\0"], ids=["blanks", "a, blanks"])
def test_a_head_of_blanks_holds_up_nobody(value: bytes) -> None:
    """At this length a pattern that looks at a byte twice would outlast any deadline."""
    assert "malformed" in refused(b"X:" + value).message
