"""HTTP/1.1 as a client reads it: what servers send is taken, a framing that could be read in two ways is not (RFC 9112)."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimaran.errors import LocalProtocolError, RemoteProtocolError
from trimaran.protocol.http1_framing import ResponseHead, ResponseReader, chunk, know_response, request_head


def read_head(raw: bytes) -> ResponseHead:
    reader = ResponseReader(max_head=1 << 60, max_interim=0)
    try:
        reader.feed(raw)
        assert reader.head is not None
        return reader.head
    finally:
        reader.close()


def head(*lines: bytes, first: bytes = b"HTTP/1.1 200 OK", end: bytes = b"\r\n") -> ResponseHead:
    return read_head(end.join([first, *lines, b"", b""]))


def refused(*lines: bytes, first: bytes = b"HTTP/1.1 200 OK") -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        head(*lines, first=first)
    assert caught.value.code == -32600
    return caught.value.message


# --- heads -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [b"\r\n", b"\n"], ids=["CRLF", "LF"])
def test_a_head_is_read_whole(end: bytes) -> None:
    found = head(b"Content-Type: application/json", b"CONTENT-LENGTH:12", b"X-Empty:", b"X: \t a: b \t", end=end)
    assert (found.status, found.reason) == (200, "OK")
    assert found.headers == {"content-type": "application/json", "content-length": "12", "x-empty": "", "x": "a: b"}
    assert (found.length, found.is_chunked, found.keep_alive) == (12, False, True)


def test_a_head_may_mix_its_line_ends() -> None:
    for raw in (
        b"HTTP/1.1 200 OK\nA: 1\r\nContent-Length: 0\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: 1\nContent-Length: 0\r\n\n",
    ):
        assert read_head(raw).headers == {"a": "1", "content-length": "0"}


@pytest.mark.parametrize(
    ("line", "status", "reason"),
    [
        (b"HTTP/1.1 200 OK", 200, "OK"),
        (b"HTTP/1.1 404 Not Found", 404, "Not Found"),
        (b"HTTP/1.1 200 ", 200, ""),
        (b"HTTP/1.1 200", 200, ""),
        (b"HTTP/1.0 503 Busy", 503, "Busy"),
        (b"HTTP/1.1 999 N\xf8", 999, "Nø"),
    ],
)
def test_the_status_line_gives_status_and_reason(line: bytes, status: int, reason: str) -> None:
    found = head(first=line)
    assert (found.status, found.reason) == (status, reason)


@pytest.mark.parametrize(
    "line",
    [b"", b"HTTP/1.1", b"HTTP/1.1 ", b"HTTP/1.1 20 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.1 020 OK", b"HTTP/1.1 abc", b"HTTP/1.1  200 OK"]
    + [b"HTTP/2 200", b"HTTP/1.2 200 OK", b"http/1.1 200 OK", b" HTTP/1.1 200 OK", b"ICY 200 OK", b"HTTP/1.1 200 a\0b", b"HTTP/1.1 200 a\rb"]
    + [b"HTTP/1.1 +20 OK", b"HTTP/1.1 2\xb20 OK", b"HTTP/1.1 200OK", b"SSH-2.0-OpenSSH_9.2", b"\x15\x03\x01\x00\x02\x02\x16"],
)  # fmt: skip
def test_a_malformed_status_line_is_refused(line: bytes) -> None:
    assert "malformed" in refused(first=line)


@pytest.mark.parametrize(
    "field",
    [b"no colon", b": no name", b"Na me: x", b"Name : x", b" Folded: x", b"X\0: y", b"X: a\0b", b"X: a\rb", b"\xc3\xa9: x", b"X", b"X\t: y"],
)  # fmt: skip
def test_a_malformed_field_is_refused(field: bytes) -> None:
    assert "the head is malformed" in refused(b"A:1", field)


def test_a_folded_field_is_refused() -> None:
    assert "the head is malformed" in refused(b"X: a", b" b")


def test_repeated_fields_are_joined_and_cookies_kept_apart() -> None:
    found = head(b"Vary: a", b"vary: b", b"Set-Cookie: a=1; Expires=Wed, 21 Oct", b"VARY: c", b"set-cookie: b=2")
    assert found.headers == {"vary": "a, b, c", "set-cookie": "a=1; Expires=Wed, 21 Oct\nb=2"}


def test_values_are_latin_1_without_control_characters() -> None:
    assert head(b"X: \xe9\xff\tz").headers == {"x": "éÿ\tz"}
    for control in (b"\x01", b"\x7f", b"\x0b"):
        assert "the head is malformed" in refused(b"X: a" + control)


def test_a_hundred_fields_are_taken_and_one_more_is_not() -> None:
    fields = [b"X-%d: y" % number for number in range(100)]
    assert len(head(*fields).headers) == 100
    assert "more than 100" in refused(*fields, b"X-100: y")


def test_one_field_repeated_without_end_is_refused_too() -> None:
    """What is joined again and again costs the square of its length."""
    assert "more than 100" in refused(*[b"X: y"] * 101)


@pytest.mark.parametrize(
    "field",
    [
        b"X:" + b" " * 300_000 + b"\0",
        b"X:" + b"\t" * 300_000 + b"\r" + b"y",
        b"X: a" + b" " * 300_000 + b"b",
        b"X: " + b"a " * 300_000 + b"\0",
        b"X" * 300_000,
    ],
    ids=["blanks and NUL", "tabs and CR", "blanks inside", "words and NUL", "a name without end"],
)
def test_no_field_takes_longer_than_its_length_allows(field: bytes) -> None:
    """A server must not be able to hold its client's loop with a few kilobytes of blanks."""
    # At these lengths a pattern that looks at a byte twice would outlast any deadline.
    with contextlib.suppress(RemoteProtocolError):
        head(field)


# --- framing ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("first", "fields", "length", "is_chunked", "keep_alive"),
    [
        (b"HTTP/1.1 200 OK", [b"Content-Length: 5"], 5, False, True),
        (b"HTTP/1.1 200 OK", [b"Content-Length: 0"], 0, False, True),
        (b"HTTP/1.1 200 OK", [b"Content-Length: 005"], 5, False, True),
        (b"HTTP/1.1 200 OK", [b"Content-Length: 999999999999999"], 999_999_999_999_999, False, True),
        (b"HTTP/1.1 200 OK", [b"Transfer-Encoding: chunked"], None, True, True),
        (b"HTTP/1.1 200 OK", [b"transfer-encoding:\tCHUNKED "], None, True, True),
        (b"HTTP/1.1 200 OK", [], None, False, False),
        (b"HTTP/1.1 500 Oh", [], None, False, False),
        (b"HTTP/1.1 204 No Content", [], 0, False, True),
        (b"HTTP/1.1 304 Not Modified", [b"Content-Length: 500"], 0, False, True),
        (b"HTTP/1.1 204 No Content", [b"Content-Length: 5"], 0, False, True),
        (b"HTTP/1.1 100 Continue", [], 0, False, True),
        (b"HTTP/1.1 103 Early Hints", [b"Link: </a>"], 0, False, True),
    ],
)
def test_how_a_body_is_framed(
    first: bytes, fields: list[bytes], length: int | None, is_chunked: bool, keep_alive: bool
) -> None:
    found = head(*fields, first=first)
    assert (found.length, found.is_chunked, found.keep_alive) == (length, is_chunked, keep_alive)


@pytest.mark.parametrize("status", [204, 304])
def test_a_status_without_a_body_has_none_whatever_the_fields_say(status: int) -> None:
    """RFC 9112 6.3: these end with their head, regardless of the fields in it."""
    found = head(b"Transfer-Encoding: chunked", first=b"HTTP/1.1 %d X" % status)
    assert (found.length, found.is_chunked) == (0, False)


@pytest.mark.parametrize(
    ("first", "connection", "goes_on"),
    [
        (b"HTTP/1.1 200 OK", None, True),
        (b"HTTP/1.1 200 OK", b"close", False),
        (b"HTTP/1.1 200 OK", b"Keep-Alive, Close", False),
        (b"HTTP/1.1 200 OK", b"keep-alive", True),
        (b"HTTP/1.0 200 OK", None, False),
        (b"HTTP/1.0 200 OK", b"Keep-Alive", True),
    ],
)
def test_whether_the_connection_goes_on(first: bytes, connection: bytes | None, goes_on: bool) -> None:
    fields = [b"Content-Length: 0"] + ([b"Connection: " + connection] if connection else [])
    assert head(*fields, first=first).keep_alive is goes_on


def test_a_connection_that_ends_its_body_does_not_go_on_whatever_it_says() -> None:
    assert not head(b"Connection: keep-alive").keep_alive


@pytest.mark.parametrize(
    "value", [b"-1", b"+5", b"0x5", b"5 5", b"5,5", b"5, 5", b"1_0", b"\xb2", b"", b"5.0", b"9" * 16, b"five"]
)
def test_a_length_that_is_no_number_is_refused(value: bytes) -> None:
    assert "ontent-length" in refused(b"Content-Length: " + value).replace("Content-Length", "content-length")


def test_two_lengths_that_differ_are_refused() -> None:
    assert "Duplicate Content-Length" in refused(b"Content-Length: 5", b"Content-Length: 6")
    assert "Duplicate Content-Length" in refused(b"Content-Length: 5", b"Content-Length: 5")


@pytest.mark.parametrize(
    "value",
    [b"gzip", b"gzip, chunked", b"chunked, gzip", b"identity", b"", b"xchunked", b"chunked;q=1", b"\x0bchunked"],
)
def test_a_coding_nobody_asked_for_is_refused(value: bytes) -> None:
    message = refused(b"Transfer-Encoding: " + value)
    assert "transfer coding" in message or "the head is malformed" in message


@pytest.mark.parametrize("is_reversed", [False, True])
def test_a_length_beside_a_coding_is_refused_or_ends_the_connection(is_reversed: bool) -> None:
    """RFC 9112 6.1: two readings of one framing; whoever takes it must close the connection after it."""
    fields = [b"Content-Length: 3", b"Transfer-Encoding: chunked"]
    try:
        found = head(*(reversed(fields) if is_reversed else fields))
    except RemoteProtocolError:
        return
    assert (found.is_chunked, found.length, found.keep_alive) == (True, None, False)


# --- chunks ----------------------------------------------------------------------------------------------------------


def chunked_reader() -> ResponseReader:
    """One that has read the head of a chunked answer."""
    reader = ResponseReader(max_head=1000, max_interim=1)
    assert reader.feed(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n") == []
    return reader


def read(*inputs: bytes) -> tuple[bytes, bool | None]:
    """The body of a chunked answer, and whether something followed it; None where it has not ended."""
    reader, body = chunked_reader(), b""
    try:
        for data in inputs:
            body += b"".join(reader.feed(data))
        return body, reader.has_rest if reader.is_done else None
    finally:
        reader.close()


BODIES: dict[str, tuple[bytes, bytes, bool]] = {
    "plain": (b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde", False),
    "empty": (b"0\r\n\r\n", b"", False),
    "zeros": (b"0003\r\nabc\r\n000\r\n\r\n", b"abc", False),
    "upper case": (b"A\r\n0123456789\r\n0\r\n\r\n", b"0123456789", False),
    "extensions": (b'3;a=b;c="d e"\r\nabc\r\n2 ;x\r\nde\r\n0;last\r\n\r\n', b"abcde", False),
    "trailers": (b"3\r\nabc\r\n0\r\nX: y\r\nZ: w\r\n\r\n", b"abc", False),
    "line ends inside": (b"7\r\n\r\n0\r\n\r\n\r\n0\r\n\r\n", b"\r\n0\r\n\r\n", False),
    "followed": (b"3\r\nabc\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", b"abc", True),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_chunked_body_is_read_whole_and_cut_at_every_byte(name: str) -> None:
    raw, body, has_rest = BODIES[name]
    assert read(raw) == (body, has_rest)
    for cut in range(len(raw) + 1):
        assert read(raw[:cut], raw[cut:]) == (body, has_rest), cut
    assert read(*(raw[at : at + 1] for at in range(len(raw)))) == (body, has_rest)


def test_a_chunked_body_is_not_done_before_its_last_byte() -> None:
    raw = b"3;x\r\nabc\r\n0\r\nX: y\r\n\r\n"
    for cut in range(len(raw)):
        assert read(raw[:cut])[1] is None, cut


def test_pieces_are_handed_over_as_they_come() -> None:
    reader = chunked_reader()
    assert reader.feed(b"6\r\nab") == [b"ab"]
    assert reader.feed(b"cd") == [b"cd"]
    assert reader.feed(b"ef") == [b"ef"]
    assert reader.feed(b"\r\n1\r\ng\r\n1\r\nh") == [b"gh"]
    assert not reader.is_done
    reader.close()


@pytest.mark.parametrize(
    "raw",
    [b"-3\r\nabc\r\n", b"+3\r\nabc\r\n", b"0x3\r\nabc\r\n", b" 3\r\nabc\r\n", b"\r\nabc\r\n", b"xyz\r\n", b"3_0\r\n", b"3\nabc\r\n", b"3\rabc\r\n\r\n"]
    + [b"10000000000000000\r\n", b"3\r\nabcd\r\n", b"3\r\nabc\n", b"3\r\nab\r\n\r\n", b"3\r\nabc0\r\n\r\n", b"3;a=\0b\r\nabc\r\n", b"3;a=\rb\r\nabc\r\n", b"\xb2\r\n"],
)  # fmt: skip
def test_malformed_chunks_are_refused_however_they_are_cut(raw: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="chunk"):
        read(raw)
    for cut in range(len(raw)):
        with pytest.raises(RemoteProtocolError, match="chunk"):
            read(raw[:cut], raw[cut:])


@pytest.mark.parametrize("start", [b"3;", b"0\r\nX: "], ids=["extension", "trailer"])
@pytest.mark.parametrize("step", [100, 1000, 100_000], ids=["by 100", "by 1000", "whole"])
def test_a_line_without_end_is_refused_however_it_is_cut(start: bytes, step: int) -> None:
    raw = start + b"a" * 80_000
    with pytest.raises(RemoteProtocolError, match="larger than the data"):
        read(*(raw[at : at + step] for at in range(0, len(raw), step)))


def test_a_trailer_without_end_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="larger than the data"):
        read(b"0\r\n", *[b"X: y\r\n"] * 20_000)


def test_many_small_chunks_of_one_read_are_one_piece() -> None:
    """One read of the loop may hold 256 KiB: tens of thousands of chunks, which nobody wants one by one."""
    reader = chunked_reader()
    assert reader.feed(chunk(b"a") * 40_000) == [b"a" * 40_000]
    reader.close()


# --- requests --------------------------------------------------------------------------------------------------------


def test_a_request_is_written_in_one_piece() -> None:
    assert request_head("POST", "/mcp?a=b", "h:81", {"Accept": "a, b", "X": "é"}) == (
        b"POST /mcp?a=b HTTP/1.1\r\nHost: h:81\r\nAccept: a, b\r\nX: \xe9\r\n"
    )
    assert request_head("GET", "/", "h", {}) == b"GET / HTTP/1.1\r\nHost: h\r\n"


@pytest.mark.parametrize("value", ["a\r\nX: y", "a\nb", "a\rb", "a\0b"])
def test_a_value_that_would_break_the_request_apart_is_refused(value: str) -> None:
    with pytest.raises(LocalProtocolError, match="X-Mine"):
        request_head("POST", "/", "h", {"X-Mine": value})


@pytest.mark.parametrize("name", ["A\r\nB", "A\nB", "A: b\r\nC", "A\0", "", "A B", "A:"])
def test_a_name_that_would_break_the_request_apart_is_refused(name: str) -> None:
    with pytest.raises(LocalProtocolError):
        request_head("POST", "/", "h", {name: "x"})


def test_a_value_no_header_can_carry_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="encode it first"):
        request_head("POST", "/", "h", {"X": "日本"})


@pytest.mark.parametrize("name", ["Host", "host", "HOST"])
def test_a_host_the_caller_gives_takes_the_place_of_ours(name: str) -> None:
    """Two are refused by every strict server (ours too, RFC 9112 3.2); behind a tunnel, theirs is the one that counts."""
    raw = request_head("POST", "/", "h", {name: "theirs"})
    hosts = [line for line in raw.split(b"\r\n") if line.lower().startswith(b"host:")]
    assert [line.partition(b":")[2].strip() for line in hosts] == [b"theirs"]


KNOWN = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 12\r\nDate: now\r\n\r\n"


def read_response_head(raw: bytes) -> ResponseHead:
    reader = ResponseReader(max_head=1 << 60, max_interim=0)
    reader.feed(raw)
    assert reader.head is not None
    return reader.head


def test_a_head_that_differs_only_in_its_length_is_read_as_the_parser_reads_it() -> None:
    known = know_response(read_response_head(KNOWN), KNOWN)
    assert known is not None
    for size in (0, 7, 12, 4711):
        raw = KNOWN.replace(b"12", b"%d" % size)
        assert known.read(raw, size) == read_response_head(raw)
        assert known.read(raw, size + 1) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"200 OK", b"500 OK"),
        (b"now", b"later"),
        (b": 12", b": +12"),
        (b": 12", b": 1_2"),
        (b": 12", b": "),
        (b": 12", b": 12, 12"),
        (b": 12", b": 12\r\nContent-Length: 12"),
        (b": 12", b": " + b"0" * 20 + b"12"),
        (b"Date", b"Transfer-Encoding: chunked\r\nDate"),
    ],
)
def test_a_head_that_differs_in_more_is_left_to_the_parser(old: bytes, new: bytes) -> None:
    known = know_response(read_response_head(KNOWN), KNOWN)
    assert known is not None
    assert known.read(KNOWN.replace(old, new), 12) is None


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length:12\r\n\r\n",
        b"HTTP/1.1 200 OK\nContent-Length: 12\r\n\r\n",
    ],
)
def test_a_head_whose_length_is_not_one_plain_line_is_not_kept(raw: bytes) -> None:
    assert know_response(read_response_head(raw), raw) is None


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(0, len(KNOWN)),
    st.integers(0, 12),
    st.sampled_from([b"", b"0", b"12", b" ", b"\r\n", b"\n", b"x: y\r\n", b"\x00"]),
)
def test_whatever_is_read_without_the_parser_the_parser_reads_alike(place: int, length: int, piece: bytes) -> None:
    known = know_response(read_response_head(KNOWN), KNOWN)
    assert known is not None
    raw = KNOWN[:place] + piece + KNOWN[place + length :]
    for size in (0, 2, 12, 120, 1212):
        head = known.read(raw, size)
        if head is not None:
            assert head == read_response_head(raw)
