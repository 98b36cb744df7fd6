"""Events do not depend on how the stream was cut, and what is written reads back."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimaran.errors import RemoteProtocolError
from trimaran.protocol.sse import SseEvent, SSEParser, encode_event

PIECES = [
    b"\n",
    b"\r\n",
    b"\r",
    b"data: ",
    b"data",
    b":",
    b"id: 1",
    b"id:",
    b"event: e",
    b"retry: 5",
    b"\0",
    b" ",
    b"x",
    "é€".encode(),
]
STREAMS = st.lists(st.sampled_from([*PIECES, b"\xef\xbb\xbf"]), max_size=40).map(b"".join)


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(point % (len(stream) + 1) for point in cuts), len(stream)]
    return [stream[start:end] for start, end in zip(edges, edges[1:], strict=False)]


@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STREAMS, st.lists(st.integers(min_value=0), max_size=12))
def test_any_cutting_gives_the_same_events(stream: bytes, cuts: list[int]) -> None:
    whole, pieces = SSEParser(), SSEParser()
    expected = whole.feed(stream)
    assert [event for piece in cut(stream, cuts) for event in pieces.feed(piece)] == expected
    assert (pieces.last_event_id, pieces.retry) == (whole.last_event_id, whole.retry)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STREAMS, st.lists(st.integers(min_value=0), max_size=12), st.integers(0, 20))
def test_any_cutting_meets_the_limit_after_the_same_events(stream: bytes, cuts: list[int], limit: int) -> None:
    def read(chunks: list[bytes]) -> tuple[list[SseEvent], bool]:
        parser, found = SSEParser(limit), list[SseEvent]()
        try:
            for chunk in [*chunks, b""]:
                found += parser.feed(chunk)
        except RemoteProtocolError:
            return found, True
        return found, False

    assert read(cut(stream, cuts)) == read([stream])


FIELD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), min_size=1)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.binary(min_size=1).filter(lambda data: b"\r" not in data),
    FIELD | st.none(),
    FIELD | st.none(),
    st.integers(0, 10**12 - 1) | st.none(),
)
def test_what_is_written_reads_back(data: bytes, event: str | None, id: str | None, retry: int | None) -> None:
    parser = SSEParser()
    assert parser.feed(encode_event(data, event=event, id=id, retry=retry)) == [
        SseEvent(data, event or "message", id or "")
    ]
    assert parser.retry == retry
