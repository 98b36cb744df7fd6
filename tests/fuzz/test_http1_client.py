"""Answers as `plain.py` reads them, against h11 and against themselves.

However an answer is cut, it means the same. Whatever we accept, h11 accepts and reads the same way, but for what a client is
lenient about: a bare LF, trailers (skipped unread), an empty line behind an answer, a `Transfer-Encoding: chunked` said twice, which proxies are
known to do, and a senseless length or coding where there can be no body (204, 304).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import h11
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from trimaran.errors import Error, RemoteProtocolError
from trimaran.protocol.http1_framing import chunk
from trimaran.transports.http1_client import Line, PlainPool

from .inputs import damaged

LENIENCIES = ("illegal header line", "multiple Transfer-Encoding headers")
UNFRAMED = ("bad Content-Length", "Only Transfer-Encoding: chunked")
MANY = settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)


# --- our reader ------------------------------------------------------------------------------------------------------


class Wire:
    """A transport that goes nowhere."""

    def __init__(self) -> None:
        self.is_aborted = False

    def write(self, data: bytes) -> None: ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def is_closing(self) -> bool:
        return self.is_aborted

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self.is_aborted = True


class Answer(NamedTuple):
    status: int
    reason: str
    headers: dict[str, str]
    body: bytes
    is_reusable: bool


def ours(parts: Sequence[bytes], *, is_closed: bool = False) -> Answer | type[Error] | None:
    """What the client makes of these reads; the class of its error; or None while it waits for more."""
    return LOOP.run_until_complete(_ours(parts, is_closed))


async def _ours(parts: Sequence[bytes], is_closed: bool) -> Answer | type[Error] | None:
    pool, wire = PlainPool("http://h/", connect_seconds=1), Wire()
    line = Line(pool, asyncio.get_running_loop())
    line.connection_made(wire)
    asked = asyncio.ensure_future(line.request("http://h/", b""))
    await asyncio.sleep(0)
    for part in parts:
        if wire.is_aborted:
            break
        if part:
            line.data_received(part)
    if is_closed and not wire.is_aborted:
        line.connection_lost(None)
        wire.is_aborted = True
    await asyncio.sleep(0)
    if not asked.done():
        asked.cancel()
        await asyncio.wait([asked])
        return None
    try:
        response = asked.result()
        if not response.is_complete and not wire.is_aborted:
            return None
        body = await response.read()
    except Error as error:
        return type(error)
    return Answer(response.status, response.reason, dict(response.headers), body, not wire.is_aborted)


LOOP: asyncio.AbstractEventLoop


@pytest.fixture(scope="module", autouse=True)
def one_loop_for_all() -> Iterator[None]:
    global LOOP
    LOOP = asyncio.new_event_loop()
    yield
    LOOP.close()


# --- however it is cut -----------------------------------------------------------------------------------------------

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
GOOD: dict[str, tuple[bytes, bool]] = {
    "length": (OK + b"Content-Length: 5\r\n\r\nab\r\nc", True),
    "no body": (OK + b"Content-Length: 0\r\n\r\n", True),
    "head's end in the body": (OK + b"Content-Length: 8\r\n\r\n\r\n\r\n\n\n\r\n", True),
    "chunked": (OK + b"Transfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n4\r\n\r\n\r\n\r\n0\r\nX: y\r\n\r\n", True),
    "empty chunked": (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", True),
    "until the end": (b"HTTP/1.1 200 OK\r\n\r\nabc\r\n\r\ndef", False),
    "HTTP/1.0": (b"HTTP/1.0 200 OK\r\n\r\nabc", False),
    "HTTP/1.0, kept": (b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na", True),
    "closing": (OK + b"Connection: close\r\nContent-Length: 3\r\n\r\nabc", False),
    "204": (b"HTTP/1.1 204 No Content\r\n\r\n", True),
    "304": (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 10\r\n\r\n", True),
    "no reason": (b"HTTP/1.1 202\r\nContent-Length: 0\r\n\r\n", True),
    "after 100": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 2\r\n\r\nhi", True),
    "after three": (b"HTTP/1.1 100 C\r\n\r\nHTTP/1.1 102 P\r\n\r\nHTTP/1.1 103 E\r\nLink: a\r\n\r\nHTTP/1.1 204 N\r\n\r\n", True),
    "bare LF": (b"HTTP/1.1 200 OK\nA: b\nContent-Length: 3\n\nabc", True),
    "bare LF, CRLF in the body": (b"HTTP/1.1 200 OK\nA: b\nContent-Length: 11\n\nX: y\r\n\r\nabc", True),
    "bare LF, then CRLF": (b"HTTP/1.1 200 OK\r\nContent-Length: 3\n\r\nabc", True),
    "CRLF, then bare LF": (b"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\na\r\n\r\nbcd", True),
    "cookies": (OK + b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nContent-Length: 1\r\n\r\n!", True),
}  # fmt: skip
BODIES = {
    "length": b"ab\r\nc", "no body": b"", "head's end in the body": b"\r\n\r\n\n\n\r\n", "chunked": b"abc\r\n\r\n", "empty chunked": b"",
    "until the end": b"abc\r\n\r\ndef", "HTTP/1.0": b"abc", "HTTP/1.0, kept": b"a", "closing": b"abc", "204": b"", "304": b"", "no reason": b"",
    "after 100": b"hi", "after three": b"", "bare LF": b"abc", "bare LF, CRLF in the body": b"X: y\r\n\r\nabc", "bare LF, then CRLF": b"abc",
    "CRLF, then bare LF": b"a\r\n\r\nbcd", "cookies": b"!",
}  # fmt: skip


def split(raw: bytes, cuts: Sequence[int]) -> list[bytes]:
    edges = [0, *sorted(cut % (len(raw) + 1) for cut in cuts), len(raw)]
    return [raw[start:end] for start, end in zip(edges, edges[1:], strict=False)]


@pytest.mark.parametrize("name", GOOD)
def test_an_answer_cut_at_any_byte_is_the_answer_read_whole(name: str) -> None:
    raw, is_reusable = GOOD[name]
    whole = ours([raw], is_closed=not is_reusable)
    assert isinstance(whole, Answer), whole
    assert (whole.body, whole.is_reusable) == (BODIES[name], is_reusable)
    for cut in range(1, len(raw)):
        assert ours([raw[:cut], raw[cut:]], is_closed=not is_reusable) == whole, cut
    assert ours([bytes([byte]) for byte in raw], is_closed=not is_reusable) == whole


@pytest.mark.parametrize("name", [name for name, (_, is_reusable) in GOOD.items() if is_reusable])
def test_an_answer_that_lacks_its_end_is_waited_for_and_then_lost(name: str) -> None:
    raw, _ = GOOD[name]
    for cut in range(len(raw)):
        assert ours([raw[:cut]]) is None, cut
        found = ours([raw[:cut]], is_closed=True)
        assert found is not None, cut
        assert not isinstance(found, Answer), cut


@MANY
@given(st.sampled_from(sorted(GOOD)), st.lists(st.integers(0, 300), max_size=8))
def test_an_answer_does_not_depend_on_its_cuts(name: str, cuts: list[int]) -> None:
    raw, is_reusable = GOOD[name]
    assert ours(split(raw, cuts), is_closed=not is_reusable) == ours([raw], is_closed=not is_reusable)


@MANY
@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=8),
    st.lists(st.tuples(st.from_regex(r"[A-Za-z-]{1,12}", fullmatch=True), st.from_regex(r"([!-~][ -~]{0,20}[!-~])?", fullmatch=True)), max_size=5),
    st.sampled_from(["length", "chunked", "end"]),
    st.lists(st.integers(0, 2000), max_size=6),
)  # fmt: skip
def test_any_answer_is_read_as_it_was_written(
    pieces: list[bytes], fields: list[tuple[str, str]], framing: str, cuts: list[int]
) -> None:
    framers = ("content-length", "transfer-encoding", "connection", "set-cookie")
    fields = [(name, value) for name, value in fields if name.lower() not in framers]
    body = b"".join(pieces)
    if framing == "length":
        end, sent = f"Content-Length: {len(body)}\r\n", body
    elif framing == "chunked":
        end, sent = "Transfer-Encoding: chunked\r\n", b"".join(map(chunk, pieces)) + b"0\r\n\r\n"
    else:
        end, sent = "", body
    head = "HTTP/1.1 200 Fine\r\n" + "".join(f"{name}: {value}\r\n" for name, value in fields) + end + "\r\n"
    found = ours(split(head.encode() + sent, cuts), is_closed=framing == "end")
    assert isinstance(found, Answer), found
    expected: dict[str, str] = {}
    for name, value in fields:
        expected[name.lower()] = f"{expected[name.lower()]}, {value}" if name.lower() in expected else value
    assert (found.status, found.reason, found.body) == (200, "Fine", body)
    assert {name: value for name, value in found.headers.items() if name not in framers} == expected
    assert found.is_reusable is (framing != "end")


@pytest.mark.parametrize("size", [60_000, 70_000, 200_000])
def test_how_long_a_head_may_be_does_not_depend_on_its_cuts(size: int) -> None:
    raw = OK + b"X: " + b"a" * size + b"\r\nContent-Length: 0\r\n\r\n"
    whole = ours([raw])
    assert whole == ours([raw[at : at + 10_000] for at in range(0, len(raw), 10_000)])
    assert isinstance(whole, Answer) is (size < 64 * 1024)


def test_a_hundred_interim_answers_may_come_in_one_read_and_no_more() -> None:
    found = ours([b"HTTP/1.1 100 Continue\r\n\r\n" * 100 + OK + b"Content-Length: 2\r\n\r\nhi"])
    assert isinstance(found, Answer), found
    assert found.body == b"hi"
    assert ours([b"HTTP/1.1 100 Continue\r\n\r\n" * 101 + OK + b"Content-Length: 2\r\n\r\nhi"]) is RemoteProtocolError


@pytest.mark.parametrize("garbage", [b"x", b"\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", b"\0" * 1000])
@pytest.mark.parametrize("name", ["length", "chunked", "204"])
def test_a_connection_on_which_more_came_than_was_asked_for_is_not_used_again(name: str, garbage: bytes) -> None:
    raw, _ = GOOD[name]
    # llhttp skips an empty line that came with the end of an answer: it is gone, and nobody can take it for another.
    is_skipped = garbage == b"\r\n"
    for parts in ([raw + garbage], [raw, garbage], [raw[:-1], raw[-1:] + garbage]):
        found = ours(parts)
        assert isinstance(found, Answer), found
        assert (found.body, found.is_reusable) == (BODIES[name], is_skipped and len(parts[-1]) > 2)


def test_a_switch_of_protocols_nobody_asked_for_is_refused() -> None:
    """What follows it would not be HTTP."""
    assert ours([b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n"]) is RemoteProtocolError


# --- h11 -------------------------------------------------------------------------------------------------------------


def theirs(raw: bytes, *, is_closed: bool = False) -> Answer | str | None:
    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=1 << 20)
    connection.send(h11.Request(method="POST", target="/", headers=[("Host", "h"), ("Content-Length", "0")]))
    connection.send(h11.EndOfMessage())
    try:
        connection.receive_data(raw)
        if is_closed:
            connection.receive_data(b"")
        head, body = None, b""
        while True:
            event = connection.next_event()
            if isinstance(event, h11.Response):
                head = event
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                break
            elif event is h11.NEED_DATA or isinstance(event, h11.ConnectionClosed):
                return None
    except h11.RemoteProtocolError as error:
        return str(error)
    assert head is not None
    headers: dict[str, str] = {}
    for name, value in head.headers:
        key, text = name.decode().lower(), value.decode("latin-1")
        joint = "\n" if key == "set-cookie" else ", "
        headers[key] = f"{headers[key]}{joint}{text}" if key in headers else text
    # llhttp has skipped an empty line behind an answer; nobody can take it for another.
    is_reusable = connection.their_state is h11.DONE and not connection.trailing_data[0].strip(b"\r\n")
    return Answer(head.status_code, head.reason.decode("latin-1"), headers, body, is_reusable)


def agree(raw: bytes) -> bool:
    """If we accept, h11 must, with the same meaning. Says whether we did."""
    accepted = False
    for is_closed in (False, True):
        found = ours([raw], is_closed=is_closed)
        if not isinstance(found, Answer):
            continue
        accepted = True
        other = theirs(raw, is_closed=is_closed)
        if isinstance(other, str):
            is_framed = found.status not in (204, 304)
            assert other.startswith(LENIENCIES if is_framed else LENIENCIES + UNFRAMED), f"h11 refuses: {other}"
            continue
        assert other is not None, f"we accept what h11 waits for: {found}"
        assert (found.status, found.reason, found.body) == (other.status, other.reason, other.body)
        for name in found.headers.keys() | other.headers.keys():
            if name not in ("content-length", "transfer-encoding"):  # said twice and alike, h11 keeps one as we do
                assert found.headers.get(name) == other.headers.get(name), name
        if found.is_reusable:
            assert other.is_reusable or raw.find(b"HTTP/1.0") >= 0, "we use again what h11 closes"
    return accepted


LINES = st.sampled_from(
    [b"HTTP/1.1 200 OK", b"HTTP/1.1 404 Not Found", b"HTTP/1.0 200 OK", b"HTTP/1.1 204 No Content", b"HTTP/1.1 304 Not Modified", b"HTTP/1.1 202 "]
    + [b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK", b"HTTP/1.1 103 Hints\r\nA: b\r\n\r\nHTTP/1.1 500 Oh", b"HTTP/1.1 999 Odd", b"HTTP/1.1 200"]
    + [b"HTTP/1.1 99 OK", b"HTTP/1.1 2000 OK", b"HTTP/1.2 200 OK", b"HTTP/2 200", b"http/1.1 200 OK", b" HTTP/1.1 200 OK", b"HTTP/1.1  200 OK", b"\r\nHTTP/1.1 200 OK"]
)  # fmt: skip
NAMES = st.sampled_from(
    [b"Content-Length", b"content-length", b"Transfer-Encoding", b"Connection", b"X-A", b"Set-Cookie", b"Content-Type"]
    + [b"Content-Length ", b" Content-Length", b"Transfer-Encoding\t", b"X\0", b"X:Y", b"", b"\xc3\xa9", b"Content_Length"]
)  # fmt: skip
VALUES = st.sampled_from(
    [b"3", b"0", b"03", b"+3", b"-1", b"3,3", b"3, 3", b"0x3", b"3 ", b"\t3", b"chunked", b"Chunked", b"xchunked", b"chunked, chunked", b"identity"]
    + [b"gzip, chunked", b"chunked;q=1", b" chunked ", b"close", b"keep-alive", b"close, x", b"", b"a\0b", b"a\tb", b"\xff", b"3\x0b", b"\xb2", b"9" * 20, b"a\rb"]
)  # fmt: skip
COLONS = st.sampled_from([b": "] * 6 + [b":", b" : ", b":\t", b" :"])
ENDS = st.sampled_from([b"\r\n"] * 12 + [b"\n", b"\r", b"\r\r\n", b"\r\n ", b"\n\r\n", b"\n\n"])
FIELDS = st.lists(st.tuples(NAMES, COLONS, VALUES, ENDS).map(b"".join), max_size=4).map(b"".join)
KNOWN = st.sampled_from([b"", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n"])
FOLLOWING = st.sampled_from(
    [b"", b"abc", b"abcd", b"ab", b"3\r\nabc\r\n0\r\n\r\n", b"3\r\nabc\r\n0\r\n\r\nHTTP", b"0\r\n\r\n", b"3;x=y\r\nabc\r\n0\r\n\r\n", b"3\nabc\n0\n\n"]
    + [b"3\r\nabc0\r\n\r\n", b"0x3\r\nabc\r\n0\r\n\r\n", b"-3\r\nabc\r\n0\r\n\r\n", b"3 \r\nabc\r\n0\r\n\r\n", b"\r\n3\r\nabc\r\n0\r\n\r\n", b"3\r\nabcd\r\n0\r\n\r\n"]
    + [b"00000003\r\nabc\r\n0\r\n\r\n", b"3\r\nabc\r\n0\r\nX: y\r\n\r\n", b"3\r\nabc\r\n0\r\nX y\r\n\r\n", b"3\r\nabc\r\n0\r\n\n", b"3\r\nabc\r\n0;x\r\n\r\n", b"X: y\r\n\r\nabc"]
)  # fmt: skip


@settings(MANY, max_examples=1000)
@given(LINES, KNOWN, FIELDS, st.sampled_from([b"\r\n", b"\r\n", b"\n"]), FOLLOWING)
@example(b"HTTP/1.1 304 X", b"Transfer-Encoding: chunked\r\n", b"", b"\r\n", b"0\r\n\r\n")
@example(b"HTTP/1.1 200 OK\nContent-Length: 3", b"", b"", b"\n", b"X: y\r\n\r\nabc")
@example(b"HTTP/1.1 200 O\x0bK", b"Content-Length: 3\r\n", b"", b"\r\n", b"abc")
@example(b"HTTP/1.1 200 OK\x0c", b"Content-Length: 3\r\n", b"", b"\r\n", b"abc")
def test_what_we_accept_h11_reads_the_same_way(
    line: bytes, known: bytes, fields: bytes, end: bytes, following: bytes
) -> None:
    agree(line + b"\r\n" + known + fields + end + following)


@settings(MANY, max_examples=1000)
@given(
    st.sampled_from(sorted(GOOD)),
    st.lists(st.tuples(st.sampled_from("rid"), st.integers(0, 10_000), st.integers(0, 255)), max_size=3),
)
def test_damaged_answers_are_read_as_h11_reads_them_or_refused(name: str, damage: list[tuple[str, int, int]]) -> None:
    accepted = agree(damaged(GOOD[name][0], damage))
    assert accepted or damage, "a good answer was refused"


@MANY
@given(st.binary(max_size=80), st.lists(st.integers(0, 80), max_size=4))
@example(b"0\r\n\n", [])
def test_any_bytes_as_chunks_are_read_as_h11_reads_them_however_they_are_cut(body: bytes, cuts: list[int]) -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    agree(head + body)
    whole: Any = ours([head + body])
    parts: Any = ours([head, *split(body, cuts)])
    assert parts == whole


@MANY
@given(st.binary(max_size=60), st.booleans())
def test_any_bytes_at_all_end_in_an_answer_an_error_of_ours_or_a_wait(raw: bytes, is_prefixed: bool) -> None:
    found = ours([b"HTTP/1.1 200 OK\r\n" + raw if is_prefixed else raw], is_closed=True)
    assert isinstance(found, Answer) or (isinstance(found, type) and issubclass(found, Error))
