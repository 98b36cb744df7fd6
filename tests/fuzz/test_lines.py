"""Lines do not depend on how the stream was cut."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimaran.protocol.json_lines import LineReader, write_line

STREAMS = st.lists(
    st.sampled_from([b"\n", b"\r\n", b"\r", b" ", b"a", b"bcd", b"\xc3", b"0123456789"]), max_size=40
).map(b"".join)


def cut(stream: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(point % (len(stream) + 1) for point in cuts), len(stream)]
    return [stream[start:end] for start, end in zip(edges, edges[1:], strict=False)]


@settings(max_examples=500, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STREAMS, st.lists(st.integers(min_value=0), max_size=10), st.integers(0, 15), st.booleans())
def test_any_cutting_gives_the_same_lines(stream: bytes, cuts: list[int], limit: int, to_the_end: bool) -> None:
    whole, pieces = LineReader(limit, to_the_end=to_the_end), LineReader(limit, to_the_end=to_the_end)
    expected = whole.feed(stream)
    assert [line for piece in cut(stream, cuts) for line in pieces.feed(piece)] == expected
    assert pieces.close() == whole.close()


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(STREAMS)
def test_lines_are_what_splitting_says(stream: bytes) -> None:
    reader = LineReader()
    *ended, last = [line.removesuffix(b"\r") for line in stream.split(b"\n")]
    assert reader.feed(stream) == [line for line in ended if line.strip()]
    assert reader.close() == (last if last.strip() else None)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.binary(min_size=1).filter(lambda m: not m.isspace() and b"\n" not in m and b"\r" not in m)))
def test_what_is_written_reads_back(messages: list[bytes]) -> None:
    assert LineReader().feed(b"".join(map(write_line, messages))) == messages
