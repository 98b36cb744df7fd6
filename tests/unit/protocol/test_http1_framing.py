"""HTTP/1.1 framing: what correct clients send is taken, what two parsers could read differently is refused (RFC 9112)."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.errors import ProtocolError
from trimaran.protocol.http1_framing import (
    END_OF_BODY,
    TOO_LARGE,
    Head,
    RequestReader,
    chunk,
    read_head,
    response_head,
    share_values,
)


def head(*lines: bytes, first: bytes = b"POST /mcp HTTP/1.1", host: bool = True) -> Head:
    fields = [b"Host: a", *lines] if host else list(lines)
    return read_head(b"\r\n".join([first, *fields]) + b"\r\n\r\n")


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
        (b"/a%20b", "/a%20b", ""),
        (b"/a?b?c", "/a", "b?c"),
    ],
)
def test_the_target_gives_path_and_query(target: bytes, path: str, query: str) -> None:
    found = head(first=b"GET " + target + b" HTTP/1.1")
    assert (found.path, found.query) == (path, query)


@pytest.mark.parametrize("target", [b"http://host/mcp", b"http://evil.example?a=/mcp", b"*", b"host:80", b"/mcp#x"])
def test_a_target_that_is_not_a_path_is_refused(target: bytes) -> None:
    """RFC 9112, 3.2: those forms are for proxies, and nobody who means us sends them."""
    assert refused(first=b"OPTIONS " + target + b" HTTP/1.1").status == 400


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
    assert refused(first=first).status in (400, 501, 505)


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
        ([b"Transfer-Encoding:"], 400),
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


# --- requests, one after the other -----------------------------------------------------------------------------------

HEAD = b"POST /mcp HTTP/1.1\r\nHost: a\r\n"


def reader(*, max_head: int = 1000, max_body: int = 100) -> RequestReader:
    return RequestReader(max_head=max_head, max_body=max_body)


def bodies(found: RequestReader) -> list[bytes]:
    return [body for _, body in found.requests]


def test_requests_that_come_together_are_told_apart() -> None:
    found = reader()
    found.feed(HEAD + b"Content-Length: 2\r\n\r\nab" + HEAD + b"\r\n" + b"GET /x HTTP/1.1\r\nHo")
    assert [(head.path, body) for head, body in found.requests] == [("/mcp", b"ab"), ("/mcp", b"")]
    assert found.is_reading
    found.feed(b"st: a\r\n\r\n")
    assert found.requests[2][0].path == "/x"
    assert not found.is_reading


def test_what_follows_a_bad_request_is_not_read() -> None:
    found = reader()
    with pytest.raises(ProtocolError):
        found.feed(HEAD + b"\r\n" + b"nonsense\r\n" + HEAD + b"\r\n")
    assert len(found.requests) == 1
    found.feed(HEAD + b"\r\n")
    assert len(found.requests) == 1
    assert found.is_over


def test_what_follows_the_last_request_is_not_read() -> None:
    found = reader()
    found.feed(HEAD + b"Connection: close\r\n\r\n" + HEAD + b"\r\n")
    assert len(found.requests) == 1


@pytest.mark.parametrize("body", [b"", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n"])
@pytest.mark.parametrize("size", [1, 1000])
def test_an_offer_to_switch_protocols_is_ignored(body: bytes, size: int) -> None:
    """RFC 9110, 7.8. Java's HttpClient and `curl --http2` make it with every first request, its body included."""
    content = {b"C": b"abc", b"T": b"3\r\nabc\r\n0\r\n\r\n"}.get(body[:1], b"")
    offer = (
        HEAD + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAA\r\n" + body + b"\r\n"
    )
    stream = (offer + content) * 2 + HEAD + b"\r\n"
    found = reader()
    for at in range(0, len(stream), size):
        found.feed(stream[at : at + size])
    assert bodies(found) == [b"abc" if body else b""] * 2 + [b""]
    assert found.requests[0][0].headers["upgrade"] == "h2c"


@pytest.mark.parametrize("size", [1, 1000])
def test_a_bad_request_behind_an_offer_to_switch_protocols_is_refused_as_any_other(size: int) -> None:
    """Found by the fuzzer: what came out was the parser's own exception."""
    offer = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: h2c\r\nConnection: Upgrade\r\nContent-Length: 2\r\n\r\nab"
    stream = offer + b"GET /!HTTP/1.1\r\nHost: a\r\n\r\n"
    reader = RequestReader(max_head=1000, max_body=1000)
    with pytest.raises(ProtocolError, match="HTTP/0.9"):
        for start in range(0, len(stream), size):
            reader.feed(stream[start : start + size])
    assert [body for _, body in reader.requests] == [b"ab"]
    reader.close()


def test_two_empty_lines_before_a_request_are_skipped_and_no_more() -> None:
    found = reader()
    found.feed(b"\r\n")
    found.feed(b"\r\n" + HEAD + b"\r\n")
    assert len(found.requests) == 1
    with pytest.raises(ProtocolError, match="empty lines"):
        reader().feed(b"\r\n\r\n\r\n" + HEAD + b"\r\n")
    found = reader()
    found.feed(b"\r\n\r\n")
    with pytest.raises(ProtocolError, match="empty lines"):
        found.feed(b"\r\n")


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_a_head_over_the_limit_is_refused(size: int) -> None:
    stream = HEAD + b"X: " + b"x" * 2000 + b"\r\n\r\n"
    found = reader()
    with pytest.raises(ProtocolError) as caught:
        for at in range(0, len(stream), size):
            found.feed(stream[at : at + size])
    assert caught.value.status == 431


# --- bodies ----------------------------------------------------------------------------------------------------------

CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
CHUNKS = b"5\r\nhello\r\n1;ext=1\r\n,\r\n00A\r\n 0123456\r\n\r\n0\r\n\r\n"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_a_chunked_body_may_be_cut_anywhere(size: int) -> None:
    found, stream = reader(), CHUNKED + CHUNKS
    for at in range(0, len(stream), size):
        assert not found.requests
        found.feed(stream[at : at + size])
    assert bodies(found) == [b"hello, 0123456\r\n"]


def test_what_the_server_chunks_it_can_read() -> None:
    found = reader()
    found.feed(CHUNKED + chunk(b"abc") + chunk(b"x" * 17) + END_OF_BODY)
    assert bodies(found) == [b"abc" + b"x" * 17]


def test_trailers_are_skipped() -> None:
    found = reader()
    found.feed(CHUNKED + b"1\r\na\r\n0\r\nX-T: 1\r\n")
    assert not found.requests
    found.feed(b"Host: evil\r\n\r\n")
    (head, body), *_ = found.requests
    assert (body, head.headers["host"], "x-t" in head.headers) == (b"a", "a", False)


@pytest.mark.parametrize(
    "data",
    [
        b"x\r\n",
        b"\r\n",
        b"-1\r\n",
        b"5\nhello",
        b"1\r\nab\r\n",
        b"1\r\na\nb",
        b"9" * 300,
        b"1\x00\r\n",
        b"2 ;e=1\r\nde\r\n",
        b"2 \r\nde\r\n",
    ],
)
def test_a_malformed_chunk_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        reader().feed(CHUNKED + data)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "stream",
    [
        HEAD + b"Content-Length: 101\r\n\r\n",
        CHUNKED + b"65\r\n" + b"x" * 101,
        CHUNKED + chunk(b"x" * 100) + b"1\r\nx",
        CHUNKED + chunk(b"x") * 101,
    ],
)
def test_a_body_over_the_limit_is_given_up(stream: bytes) -> None:
    """P47: who may know the limit is told it; nothing more is read."""
    found = reader()
    found.feed(stream)
    assert bodies(found) == [TOO_LARGE]
    assert found.is_over
    found.feed(b"x" * 1000)
    assert bodies(found) == [TOO_LARGE]


@pytest.mark.parametrize(
    "filler", [b"1;" + b"e" * 4000 + b"\r\nx\r\n", b"0\r\n" + b"X: y\r\n"], ids=["extensions", "trailers"]
)
def test_framing_must_not_outgrow_what_it_carries(filler: bytes) -> None:
    found = reader(max_body=1_000_000)
    found.feed(CHUNKED)
    with pytest.raises(ProtocolError, match="larger than the data"):
        for _ in range(20_000):
            found.feed(filler)
            filler = filler.removeprefix(b"0\r\n")


def test_chunks_of_one_byte_are_slow_but_honest() -> None:
    found = reader(max_body=100_000)
    found.feed(CHUNKED)
    for _ in range(100):
        found.feed(chunk(b"x") * 1000)
    found.feed(END_OF_BODY)
    assert bodies(found) == [b"x" * 100_000]


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


def test_heads_of_long_streams_share_their_values() -> None:
    """Ten thousand streams of one client's kind hold each text once."""
    first, second = (head(b"X-Kind: " + b"of the same kind") for _ in range(2))
    assert first.headers["x-kind"] is not second.headers["x-kind"]
    headers = first.headers
    share_values(first.headers)
    share_values(second.headers)
    assert first.headers is headers  # a request refers to it
    assert first.headers["x-kind"] is second.headers["x-kind"]
    assert first.headers["x-kind"] == "of the same kind"


# --- a head like the one before --------------------------------------------------------------------------------------

FIELDS = {
    "Host": "a",
    "Accept": "*/*",
    "Mcp-Name": "add",
    "traceparent": "00-1-2-01",
    "Content-Length": "2",
}


def request(body: bytes = b"{}", line: bytes = b"POST /mcp HTTP/1.1", **changes: str) -> bytes:
    values = FIELDS | {name.replace("_", "-"): value for name, value in changes.items()}
    fields = b"".join(f"{name}: {value}\r\n".encode("latin-1") for name, value in values.items())
    return line + b"\r\n" + fields + b"\r\n" + body


def acquainted(*streams: bytes, max_body: int = 1000) -> RequestReader:
    """A reader that has read these requests, with its parser."""
    reader = RequestReader(max_head=1000, max_body=max_body)
    for stream in streams:
        reader.feed(stream)
        reader.requests.clear()
    return reader


def read_by_comparison(reader: RequestReader, data: bytes) -> tuple[Head, bytes, dict[str, str]] | None:
    try:
        return None if reader.known is None else reader.known.read(data)
    finally:
        reader.close()


def test_a_head_that_is_repeated_is_not_parsed_again() -> None:
    reader = acquainted(request())
    found = read_by_comparison(reader, request(b"[]"))
    assert found is not None
    head, body, headers = found
    assert headers is head.headers
    assert (headers["mcp-name"], body) == ("add", b"[]")


def test_values_that_were_seen_to_change_are_read_without_the_parser() -> None:
    reader = acquainted(request(), request(b"[1]", traceparent="00-3-4-01", Mcp_Name="x", Content_Length="3"))
    found = read_by_comparison(reader, request(b"[1,2]", traceparent=" 00-5-6-01 ", Mcp_Name="", Content_Length="5"))
    assert found is not None
    head, body, headers = found
    assert headers == {
        "host": "a",
        "accept": "*/*",
        "mcp-name": "",
        "traceparent": "00-5-6-01",
        "content-length": "5",
    }
    assert (head.method, head.path, head.keep_alive, body) == ("POST", "/mcp", True, b"[1,2]")
    assert head.headers["content-length"] == "3", "the headers of the request before belong to that request"


@pytest.mark.parametrize("name", ["Host", "Accept", "Connection", "Content-Type", "Origin", "Expect", "Upgrade"])
def test_what_decides_about_a_request_is_always_parsed(name: str) -> None:
    build: Any = request
    streams = [build(**{name.replace("-", "_"): value}) for value in "xyz"]
    assert read_by_comparison(acquainted(*streams[:2]), streams[2]) is None


@pytest.mark.parametrize(
    "data",
    [
        request(traceparent="a\x7f"),
        request(traceparent="a\0"),
        request(traceparent="a\tb"),
        request().replace(b"traceparent: ", b"traceparent:"),
        request(traceparent="a\xe9"),
        request(traceparent="a\x0b"),
        request(traceparent="a\rb"),
        request(traceparent="a\nb"),
        request(traceparent="a\r\n b"),
        request(traceparent="a\r\nX: b"),
        request(traceparent="a\r\n"),
        request(Content_Length="3"),
        request(Content_Length="+2"),
        request(Content_Length=""),
        request(b"{}{}"),
        request(b"{"),
        request(b"x" * 11, Content_Length="11"),
        request(traceparent="x" * 1000),
        request(line=b"POST /other HTTP/1.1"),
        b"",
        b"\r\n" + request(),
    ],
)
def test_a_request_that_is_not_like_the_one_before_is_left_to_the_parser(data: bytes) -> None:
    reader = acquainted(request(), request(b"[1]", traceparent="x", Content_Length="3"), max_body=10)
    assert read_by_comparison(reader, data) is None


@pytest.mark.parametrize(
    "data",
    [
        request() + request(),
        request().replace(b"Mcp-Name: add", b"X: 1\r\nX: 2"),
        request(Upgrade="h2c", Connection="Upgrade"),
        request(Filler="x" * 3000).replace(b"Filler", b"F"),
    ],
)
def test_a_head_the_next_one_cannot_be_compared_with_is_not_kept(data: bytes) -> None:
    reader = RequestReader(max_head=10_000, max_body=1000)
    reader.feed(data)
    assert reader.requests
    assert reader.known is None
    reader.close()


def test_after_a_refusal_nothing_is_read_by_comparison() -> None:
    reader = acquainted(request())
    with pytest.raises(ProtocolError):
        reader.feed(request(Content_Length="x"))
    assert reader.known is None
    reader.close()
