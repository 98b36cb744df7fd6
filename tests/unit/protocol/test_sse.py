"""Server-sent events: what is written reads back, and any legal stream reads alike however it is cut."""

from __future__ import annotations

import pytest

from trimaran.errors import LocalProtocolError, RemoteProtocolError
from trimaran.protocol.sse import COMMENT, SseEvent, SSEParser, encode_event, encode_priming


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (encode_event(b"{}"), b"data: {}\n\n"),
        (encode_event(b""), b"data: \n\n"),
        (encode_event(b"a\nb\r\nc\rd"), b"data: a\ndata: b\ndata: c\ndata: d\n\n"),
        (encode_event(b"x", event="endpoint"), b"event: endpoint\ndata: x\n\n"),
        (encode_event(b"x", id="s:1"), b"id: s:1\ndata: x\n\n"),
        (encode_event(b"x", retry=0), b"retry: 0\ndata: x\n\n"),
        (encode_event(b"x", event="e", id="é", retry=5), "event: e\nid: é\nretry: 5\ndata: x\n\n".encode()),
        (encode_priming("s:0"), b"id: s:0\ndata: \n\n"),
        (encode_priming("s:0", 3000), b"id: s:0\nretry: 3000\ndata: \n\n"),
    ],
)
def test_an_event_is_written_field_by_field(written: bytes, expected: bytes) -> None:
    assert written == expected


@pytest.mark.parametrize("value", ["a\nb", "a\rb", "a\0b"])
def test_a_field_that_would_break_the_stream_is_refused(value: str) -> None:
    with pytest.raises(LocalProtocolError, match="line break or NUL"):
        encode_event(b"x", id=value)
    with pytest.raises(LocalProtocolError, match="line break or NUL"):
        encode_event(b"x", event=value)


STREAMS: list[tuple[bytes, list[SseEvent]]] = [
    (b"data: {}\n\n", [SseEvent(b"{}")]),
    (b"data: {}\r\n\r\n", [SseEvent(b"{}")]),
    (b"data: {}\r\r", [SseEvent(b"{}")]),
    (b"data: a\r\ndata: b\rdata: c\ndata\n\r\n", [SseEvent(b"a\nb\nc\n")]),
    (b"data:no space\n\n", [SseEvent(b"no space")]),
    (b"data:  two spaces\n\n", [SseEvent(b" two spaces")]),
    (b"data: a:b:c\n\n", [SseEvent(b"a:b:c")]),
    (b"\xef\xbb\xbfdata: bom\n\n", [SseEvent(b"bom")]),
    (b"data: 1\n\n\xef\xbb\xbfdata: 2\n\n", [SseEvent(b"1")]),
    (b": comment\n\ndata: a\n: inside\n\n" + COMMENT, [SseEvent(b"a")]),
    (b"event: endpoint\ndata: /x\n\ndata: y\n\n", [SseEvent(b"/x", "endpoint"), SseEvent(b"y")]),
    (b"event:\ndata: y\n\n", [SseEvent(b"y", "message")]),
    (b"event: lost\n\ndata: y\n\n", [SseEvent(b"y")]),
    (b"id: 1\ndata: a\n\ndata: b\n\nid\ndata: c\n\n", [SseEvent(b"a", id="1"), SseEvent(b"b", id="1"), SseEvent(b"c")]),
    (b"id: 1\ndata: a\n\nid: 2\0\ndata: b\n\n", [SseEvent(b"a", id="1"), SseEvent(b"b", id="1")]),
    (b"DATA: a\nfoo: b\ndata : c\n data: d\n\n", []),
    (b"data\n\n", []),
    (b"data:\n\n", []),
    (b"data\ndata\n\n", [SseEvent(b"\n")]),
    (b"\n\n\r\n\r", []),
    ("data: é€𝄞\n\n".encode(), [SseEvent("é€𝄞".encode())]),
    (b"data: \xff\n\n", [SseEvent(b"\xff")]),
    (b"event: \xff\nid: \xff\ndata: a\n\n", [SseEvent(b"a", "\ufffd", "\ufffd")]),
    (b"data: a\x0bb\x0cc\x85\xe2\x80\xa8d\n\n", [SseEvent(b"a\x0bb\x0cc\x85\xe2\x80\xa8d")]),
    (b"data: unfinished\n", []),
    (b"data: unfinished", []),
]


@pytest.mark.parametrize(("stream", "events"), STREAMS, ids=lambda value: ascii(value)[:50])
def test_a_stream_reads_alike_whole_cut_anywhere_and_byte_by_byte(stream: bytes, events: list[SseEvent]) -> None:
    assert SSEParser().feed(stream) == events
    for cut in range(len(stream) + 1):
        parser = SSEParser()
        assert parser.feed(stream[:cut]) + parser.feed(b"") + parser.feed(stream[cut:]) == events
    parser = SSEParser()
    assert [event for byte in stream for event in parser.feed(bytes([byte]))] == events


def test_a_priming_event_is_no_message_but_leaves_its_id_and_delay() -> None:
    """Ours: WHATWG would dispatch it with empty data; 2025-11-25 says it only primes a resumption."""
    parser = SSEParser()
    assert parser.feed(encode_priming("s:0", 2500)) == []
    assert (parser.last_event_id, parser.retry) == ("s:0", 2500)


def test_an_id_counts_only_once_its_event_has_ended() -> None:
    parser = SSEParser(last_event_id="before")
    parser.feed(b"id: 7\n")
    assert parser.last_event_id == "before"
    parser.feed(b"\n")
    assert parser.last_event_id == "7"


def test_an_id_given_at_the_start_is_that_of_the_first_events() -> None:
    assert SSEParser(last_event_id="9").feed(b"data: a\n\n") == [SseEvent(b"a", id="9")]


@pytest.mark.parametrize("text", [b"", b"-1", b"1.5", b"1e3", b" 5", b"5 ", b"soon", "٣".encode(), b"9" * 5000])
def test_a_retry_that_is_not_plain_digits_is_ignored(text: bytes) -> None:
    parser = SSEParser()
    parser.feed(b"retry: 100\n\nretry: " + text + b"\n\n")
    assert parser.retry == 100


def test_closing_drops_the_unfinished_event_and_its_id() -> None:
    parser = SSEParser()
    parser.feed(b"id: 1\ndata: a\n\nid: 2\ndata: b\n")
    parser.close()
    assert parser.last_event_id == "1"
    assert parser.feed(b"\n") == []
    assert parser.last_event_id == "1"


@pytest.mark.parametrize(
    "stream",
    [
        b"data: " + b"x" * 200,
        b"data: " + b"x" * 200 + b"\n\n",
        b"data: 0123456789\n" * 20,
        b"data\n" * 200,
        b": " + b"x" * 200,
        b"x" * 200,
    ],
    ids=lambda value: ascii(value)[:20],
)
def test_an_event_over_the_limit_is_refused_whole_or_byte_by_byte(stream: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="larger than the 100 bytes"):
        SSEParser(100).feed(stream)
    parser = SSEParser(100)
    with pytest.raises(RemoteProtocolError):
        for byte in stream:
            parser.feed(bytes([byte]))


def test_events_before_one_too_large_are_not_lost_with_it() -> None:
    parser = SSEParser(100)
    assert parser.feed(b"data: a\n\ndata: " + b"x" * 200) == [SseEvent(b"a")]
    for _ in range(2):
        with pytest.raises(RemoteProtocolError):
            parser.feed(b"data: b\n\n")


def test_many_small_events_and_comments_never_reach_the_limit() -> None:
    parser = SSEParser(100)
    assert len(parser.feed((b"data: 0123456789\n\n" + COMMENT) * 1000)) == 1000


@pytest.mark.slow
def test_a_megabyte_fed_byte_by_byte_is_one_event() -> None:
    parser = SSEParser()
    parser.feed(b"data: ")
    for _ in range(1_000_000):
        parser.feed(b"x")
    assert parser.feed(b"\n\n") == [SseEvent(b"x" * 1_000_000)]
