"""HTTP/1.1 framing against h11: whatever we accept, h11 accepts and reads the same way; we may be stricter.

Request smuggling lives on two parsers that disagree; the corpus of its known forms is refused, and the connection closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from typing import Any

import h11
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from trimaran import Server
from trimaran.errors import ProtocolError
from trimaran.protocol.http1_framing import Head, RequestReader
from trimaran.serve import HttpServer

from .inputs import damaged

LIMIT = 1 << 20


# --- the two readers -------------------------------------------------------------------------------------------------


def read(stream: bytes, *, size: int) -> tuple[Head, bytes, bytes] | int:
    reader = RequestReader(max_head=LIMIT, max_body=LIMIT)
    try:
        for start in range(0, len(stream), size):
            reader.feed(stream[start : start + size])
            if reader.requests:
                return *reader.requests[0], stream[start + size :]
    except ProtocolError as error:
        if reader.requests:  # what follows it is wrong
            return *reader.requests[0], b""
        assert error.status in (400, 413, 431, 501, 505), error.status
        return error.status
    finally:
        reader.close()
    return 0


def ours(stream: bytes) -> tuple[Head, bytes, bytes] | int:
    """Head, body and what follows; or the status of the refusal, or 0 if more is needed. However the stream is cut."""
    whole, cut = read(stream, size=max(1, len(stream))), read(stream, size=1)
    if isinstance(whole, int) or isinstance(cut, int):
        assert whole == cut
    else:
        assert (whole[0].path, whole[0].headers, whole[1]) == (cut[0].path, cut[0].headers, cut[1])
    return cut


def theirs(stream: bytes) -> tuple[Any, bytes, bytes] | str:
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=LIMIT)
    connection.receive_data(stream)
    try:
        request = connection.next_event()
        if not isinstance(request, h11.Request):
            return "needs more"
        body = b""
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return request, body, connection.trailing_data[0]
            else:
                return "needs more"
    except h11.RemoteProtocolError as error:
        return str(error)


def agree(stream: bytes) -> bool:
    """If we accept, h11 must, with the same meaning. Says whether we did."""
    found = ours(stream)
    if isinstance(found, int):
        return False
    head, body, rest = found
    # RFC 9112 allows these, and h11 does not do them: several blanks around the target are one, empty lines are skipped.
    line, separator, fields = stream.lstrip(b"\r\n").partition(b"\r\n")
    other = theirs(re.sub(rb" +", b" ", line) + separator + fields)
    assert not isinstance(other, str), f"we accept what h11 refuses: {other}"
    request, their_body, their_rest = other
    assert head.method == request.method.decode()
    target = request.target.decode()
    if target.startswith("/"):
        assert target == head.path + ("?" + head.query if "?" in target else "")
    assert f"1.{head.minor}".encode() == request.http_version
    headers: dict[str, str] = {}
    for name, value in request.headers:
        key, text = name.decode().lower(), value.decode("latin-1")
        headers[key] = f"{headers[key]}, {text}" if key in headers else text
    assert dict(head.headers) == headers
    assert body == their_body
    assert rest == their_rest
    return True


# --- made-up requests ------------------------------------------------------------------------------------------------

LINES = st.sampled_from(
    [
        b"POST /mcp HTTP/1.1",
        b"GET /mcp?a=b HTTP/1.1",
        b"POST /mcp HTTP/1.0",
        b"POST http://h/mcp HTTP/1.1",
        b"OPTIONS * HTTP/1.1",
    ]
    + [
        b"POST  /mcp HTTP/1.1",
        b"POST /m cp HTTP/1.1",
        b"POST /mcp HTTP/1.2",
        b"POST /mcp HTTP/2.0",
        b"POST /mcp",
        b"P\xd6ST / HTTP/1.1",
    ]
    + [
        b"POST /\xff HTTP/1.1",
        b"POST /mcp HTTP/1.1 ",
        b" POST /mcp HTTP/1.1",
        b"POST\t/mcp\tHTTP/1.1",
        b"POST /mcp http/1.1",
    ]
)
NAMES = st.sampled_from(
    [
        b"Host",
        b"Content-Length",
        b"Transfer-Encoding",
        b"Content-Type",
        b"X-A",
        b"Connection",
        b"Expect",
        b"content-length",
        b"host",
    ]
    + [
        b"Content-Length ",
        b" Content-Length",
        b"Transfer-Encoding\t",
        b"X\x00",
        b"X:Y",
        b"",
        b"Content_Length",
        b"\xc3\xa9",
    ]
)
FIELD_VALUES = st.sampled_from(
    [
        b"h",
        b"3",
        b"0",
        b"03",
        b"+3",
        b"-1",
        b"3,3",
        b"3, 3",
        b"0x3",
        b"3 ",
        b"\t3",
        b"chunked",
        b"Chunked",
        b"xchunked",
        b"chunked, chunked",
    ]
    + [
        b"identity",
        b"gzip, chunked",
        b"chunked;q=1",
        b" chunked ",
        b"close",
        b"keep-alive",
        b"100-continue",
        b"",
        b"a\x00b",
        b"a\tb",
        b"\xff",
    ]
    + [b"3\x0b", b"\xb2", b"99999999999999999999", b"a\rb", b"chunked\x0b", b"\x0bchunked"]
)
COLONS = st.sampled_from([b": ", b":", b" : ", b":\t", b" :"])
ENDS = st.sampled_from([b"\r\n"] * 12 + [b"\n", b"\r", b"\r\r\n", b"\r\n ", b"\r\n\t"])
FIELDS = st.lists(st.tuples(NAMES, COLONS, FIELD_VALUES, ENDS).map(b"".join), max_size=4).map(b"".join)
BODIES = st.sampled_from(
    [
        b"",
        b"abc",
        b"abcGET / HTTP/1.1\r\n\r\n",
        b"3\r\nabc\r\n0\r\n\r\n",
        b"3\r\nabc\r\n0\r\n\r\nGET",
        b"0\r\n\r\n",
        b"3;x=y\r\nabc\r\n0\r\n\r\n",
    ]
    + [
        b"3\nabc\n0\n\n",
        b"3\r\nabc0\r\n\r\n",
        b"0x3\r\nabc\r\n0\r\n\r\n",
        b"-3\r\nabc\r\n0\r\n\r\n",
        b"+3\r\nabc\r\n0\r\n\r\n",
        b"3 \r\nabc\r\n0\r\n\r\n",
    ]
    + [
        b"\r\n3\r\nabc\r\n0\r\n\r\n",
        b"3\r\nabcd\r\n0\r\n\r\n",
        b"00000003\r\nabc\r\n0\r\n\r\n",
        b"ffffffffffffffff\r\nabc",
        b"3;a\nb\r\nabc\r\n0\r\n\r\n",
    ]
    + [
        b"3\r\nabc\r\n0\r\nX: y\r\n\r\n",
        b"3\r\nabc\r\n0\r\nX y\r\n\r\n",
        b"3\r\nabc\r\n0\r\nX: a\nY: b\r\n\r\n",
        b"3\r\nabc\r\n0\r\nContent-Length: 5\r\n\r\n",
    ]
    + [
        b"3\r\nabc\r\n0\r\n\n\r\n",
        b"3\r\nabc\r\n0\r\n X: y\r\n\r\n",
        b"3\r\nabc\r\n0;x\r\n\r\n",
        b"3\r\nabc\r\n000\r\n\r\n",
    ]
)

MANY = settings(max_examples=1500, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


@MANY
@given(
    LINES,
    FIELDS,
    st.sampled_from(
        [b"Host: h\r\n", b"Host: h\r\nTransfer-Encoding: chunked\r\n", b"Host: h\r\nContent-Length: 3\r\n", b""]
    ),
    BODIES,
)
def test_what_we_accept_h11_reads_the_same_way(line: bytes, fields: bytes, known: bytes, body: bytes) -> None:
    agree(line + b"\r\n" + known + fields + b"\r\n" + body)


GOOD = [
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc",
    b"POST /mcp?x=y HTTP/1.1\r\nHost: h\r\nAccept: a, b\r\nAccept: c\r\nX-Empty:\r\nContent-Length: 0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;e=1\r\nde\r\n0\r\nX: y\r\n\r\n",
    b"GET /mcp HTTP/1.0\r\n\r\n",
    b"DELETE /mcp HTTP/1.1\r\nHost: h\r\nMcp-Session-Id: \tmcp_1 \r\nConnection: close\r\n\r\n",
]


@MANY
@given(
    st.sampled_from(GOOD),
    st.lists(st.tuples(st.sampled_from("rid"), st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
)
def test_damaged_requests_are_read_as_h11_reads_them_or_refused(
    request: bytes, damage: list[tuple[str, int, int]]
) -> None:
    accepted = agree(damaged(request, damage))
    assert accepted or damage, "a good request was refused"


@MANY
@given(st.sampled_from([b"\r\n", b"\n", b"\r", b" ", b"\t", b"\x0b", b"\x0c", b"\x00", b"\x85", b"\xa0", b":", b",", b";", b"0", b"\r\n\r\n"]),
       st.sampled_from(GOOD), st.integers(0, 10_000))  # fmt: skip
def test_separators_put_anywhere_change_nothing_unseen(separator: bytes, request: bytes, where: int) -> None:
    where %= len(request) + 1
    agree(request[:where] + separator + request[where:])


@settings(max_examples=1000, deadline=None, derandomize=True)
@given(st.binary(max_size=80))
@example(b"3\r\nabc\r\n0\r\nX: a\nY: b\r\n\r\n")
@example(b"0\r\nno colon\r\n\r\n")
def test_any_bytes_as_chunks_are_read_as_h11_reads_them(body: bytes) -> None:
    agree(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + body)


# --- heads like the one before ---------------------------------------------------------------------------------------

VALUES = st.one_of(
    st.binary(max_size=12),
    st.text("0123456789abcdef- \t", max_size=12).map(str.encode),
    st.sampled_from([b" 3", b" 4", b"3\r\nX: y", b"", b" a\r\n b", b" a\r\n\r\n", b"\x0b", b" \x7f", b" 1,1"]),
)
FORMS = [
    (b"POST /mcp HTTP/1.1\r\nHost: h\r\nX-Id:", b"\r\nTraceparent:", b"\r\nContent-Length: 3\r\n\r\nabc"),
    (b"POST /mcp HTTP/1.1\r\nHost: h\r\nMcp-Name:", b"\r\nContent-Length:", b"\r\n\r\nabc"),
    (b"POST /mcp HTTP/1.1\r\nContent-Length: 3\r\nHost:", b"\r\nConnection:", b"\r\n\r\nabc"),
    (b"GET /mcp HTTP/1.1\r\nHost: h\r\nAccept:", b"\r\nLast-Event-Id:", b"\r\n\r\n"),
    (b"POST /mcp HTTP/1.1\r\nHost: h\r\nX-Id:", b"\r\nx-id:", b"\r\nContent-Length: 3\r\n\r\nabc"),
]


@MANY
@given(st.sampled_from(FORMS), st.lists(st.tuples(VALUES, VALUES), min_size=2, max_size=5), st.integers(0, 300))
def test_a_head_like_the_one_before_means_what_it_means_alone(
    form: tuple[bytes, bytes, bytes], values: list[tuple[bytes, bytes]], damaged: int
) -> None:
    """Whatever is read by comparison with the last head, the parser reads the same, from a connection of its own."""
    start, middle, end = form
    reader = RequestReader(max_head=LIMIT, max_body=LIMIT)
    with contextlib.closing(reader):
        for number, (first, second) in enumerate([(b" a", b" 3"), (b" b", b" 03"), *values]):
            stream = start + first + middle + second + end
            if damaged < len(stream) and number == len(values) + 1:
                stream = stream[:damaged] + b"\n" + stream[damaged + 1 :]
            request = None if reader.known is None or reader.is_reading else reader.known.read(stream)
            if request is None:
                with contextlib.suppress(ProtocolError):
                    reader.feed(stream)
                reader.requests.clear()
                continue
            head, body, headers = request
            alone = read(stream, size=len(stream))
            assert not isinstance(alone, int), (alone, stream)
            shared = [name for name in Head.__slots__ if name not in ("headers", "length")]
            assert {name: getattr(head, name) for name in shared} == {name: getattr(alone[0], name) for name in shared}
            assert (headers, body, b"") == (alone[0].headers, *alone[1:])


# --- smuggling -------------------------------------------------------------------------------------------------------

HOST = b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
CHUNKED = HOST + b"Transfer-Encoding: chunked\r\n\r\n"
SMUGGLED = b"GET /smuggled HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
CORPUS: dict[str, bytes] = {
    "length and coding": HOST + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "coding and length": HOST + b"Transfer-Encoding: chunked\r\nContent-Length: 6\r\n\r\n0\r\n\r\n",
    "two lengths": HOST + b"Content-Length: 0\r\nContent-Length: 5\r\n\r\n",
    "two equal lengths": HOST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde",
    "a list of lengths": HOST + b"Content-Length: 5, 5\r\n\r\nabcde",
    "negative length": HOST + b"Content-Length: -1\r\n\r\n",
    "signed length": HOST + b"Content-Length: +5\r\n\r\nabcde",
    "hex length": HOST + b"Content-Length: 0x5\r\n\r\nabcde",
    "length with underscore": HOST + b"Content-Length: 1_0\r\n\r\n",
    "length with blanks": HOST + b"Content-Length: 1 0\r\n\r\n",
    "superscript length": HOST + b"Content-Length: \xb2\r\n\r\n",
    "empty length": HOST + b"Content-Length:\r\n\r\n",
    "huge length": HOST + b"Content-Length: 99999999999999999999999999\r\n\r\n",
    "folded header": HOST + b"X: a\r\n b\r\nContent-Length: 0\r\n\r\n",
    "folded coding": HOST + b"Transfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
    "fold before all": b"POST /mcp HTTP/1.1\r\n Host: a\r\nHost: 127.0.0.1\r\n\r\n",
    "bare LF in head": HOST + b"Content-Length: 0\nX: y\r\n\r\n",
    "bare LF ends head": HOST[:-2] + b"\n\r\n\r\n",
    "bare CR in head": HOST + b"X: a\rTransfer-Encoding: chunked\r\n\r\n",
    "bare CR before name": HOST + b"\rTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "blank before colon": HOST + b"Content-Length : 5\r\n\r\nabcde",
    "tab before colon": HOST + b"Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n",
    "no colon": HOST + b"Content-Length\r\n\r\n",
    "empty name": HOST + b": x\r\n\r\n",
    "NUL in value": HOST + b"X: a\x00b\r\n\r\n",
    "NUL in name": HOST + b"X\x00: a\r\n\r\n",
    "xchunked": HOST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked twice": HOST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked, identity": HOST + b"Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    "identity": HOST + b"Transfer-Encoding: identity\r\n\r\n",
    "gzip, chunked": HOST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "quoted chunked": HOST + b'Transfer-Encoding: "chunked"\r\n\r\n0\r\n\r\n',
    "chunked with VT": HOST + b"Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
    "chunked with a trailing comma": HOST + b"Transfer-Encoding: chunked,\r\n\r\n0\r\n\r\n",
    "empty coding": HOST + b"Transfer-Encoding:\r\n\r\n",
    "chunked in HTTP/1.0": HOST.replace(b"1.1", b"1.0", 1) + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "two hosts": HOST + b"Host: 127.0.0.1\r\n\r\n",
    "no host": b"POST /mcp HTTP/1.1\r\n\r\n",
    "negative chunk": CHUNKED + b"-3\r\nabc\r\n0\r\n\r\n",
    "signed chunk": CHUNKED + b"+3\r\nabc\r\n0\r\n\r\n",
    "hex prefixed chunk": CHUNKED + b"0x3\r\nabc\r\n0\r\n\r\n",
    "chunk size with underscore": CHUNKED + b"0_3\r\nabc\r\n0\r\n\r\n",
    "empty chunk size": CHUNKED + b"\r\nabc\r\n0\r\n\r\n",
    "blank before chunk size": CHUNKED + b" 3\r\nabc\r\n0\r\n\r\n",
    "LF ends chunk size": CHUNKED + b"3\nabc\r\n0\r\n\r\n",
    "LF ends chunk": CHUNKED + b"3\r\nabc\n0\r\n\r\n",
    "CR ends chunk size": CHUNKED + b"3\rabc\r\n0\r\n\r\n",
    "chunk longer than it says": CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",
    "chunk shorter than it says": CHUNKED + b"5\r\nabc\r\n0\r\n\r\n",
    "LF in chunk extension": CHUNKED + b"3;a=\nb\r\nabc\r\n0\r\n\r\n",
    "CR in chunk extension": CHUNKED + b"3;a=\rb\r\nabc\r\n0\r\n\r\n",
    "NUL in chunk extension": CHUNKED + b"3;a=\x00b\r\nabc\r\n0\r\n\r\n",
    "endless chunk extension": CHUNKED + b"3;" + b"a" * 70_000,
    "LF in trailer": CHUNKED + b"0\r\nX: y\nZ: w\r\n\r\n",
    "trailer without colon": CHUNKED + b"0\r\nGET /smuggled HTTP/1.1\r\n\r\n",
    "folded trailer": CHUNKED + b"0\r\nX: y\r\n z\r\n\r\n",
    "blank after version": b"POST /mcp HTTP/1.1 \r\nHost: 127.0.0.1\r\n\r\n",
    "another's URL": b"POST http://evil.example?a=/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "our URL": b"POST http://127.0.0.1/mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "fragment": b"POST /mcp#x HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "asterisk": b"OPTIONS * HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "tunnel": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    "another protocol": b"SOURCE /mcp ICE/1.0\r\nHost: 127.0.0.1\r\n\r\n",
    "three empty lines": b"\r\n" * 3 + HOST + b"Content-Length: 0\r\n\r\n",
    "tab in request line": b"POST\t/mcp\tHTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "HTTP/0.9": b"GET /mcp\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "unknown version": b"POST /mcp HTTP/1.9\r\nHost: 127.0.0.1\r\n\r\n",
    "endless head": b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 70_000,
    "many headers": HOST + b"".join(b"X%d: y\r\n" % i for i in range(150)) + b"\r\n",
    "TLS hello": bytes.fromhex("160301020001000103030000") + b"\0" * 100 + b"\r\n\r\n",
}  # fmt: skip


async def answers(port: int, data: bytes, *, pieces: int = 0) -> bytes:
    """Everything the server says until it closes, or resets: what came before a reset counts."""
    loop = asyncio.get_running_loop()
    said = bytearray()

    async def speak(raw: socket.socket) -> None:
        await loop.sock_connect(raw, ("127.0.0.1", port))
        with contextlib.suppress(ConnectionError):
            for start in range(0, len(data), pieces or len(data)):
                await loop.sock_sendall(raw, data[start : start + (pieces or len(data))])
                await asyncio.sleep(0)
        with contextlib.suppress(ConnectionError):
            while chunk := await loop.sock_recv(raw, 65536):
                said.extend(chunk)

    with socket.socket() as raw:
        raw.setblocking(False)
        raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            await asyncio.wait_for(speak(raw), 20)
        except TimeoutError:
            pytest.fail(f"the connection stays open after {bytes(said)!r}")
    return bytes(said)


@pytest.mark.parametrize("name", CORPUS)
async def test_a_request_two_parsers_could_read_differently_is_refused_and_the_connection_closed(name: str) -> None:
    async with HttpServer(Server("smuggling"), port=0) as server:
        for pieces in (0, 1) if len(CORPUS[name]) < 1000 else (0,):
            said = await answers(server.port, CORPUS[name] + SMUGGLED, pieces=pieces)
            statuses = re.findall(rb"HTTP/1\.1 (\d+)", said)
            assert len(statuses) == 1, said
            assert statuses[0] in (b"400", b"405", b"413", b"414", b"431", b"501", b"505"), said
            assert b"smuggled" not in said.partition(b"\r\n\r\n")[2], said
            assert b"connection: close" in said.lower()
