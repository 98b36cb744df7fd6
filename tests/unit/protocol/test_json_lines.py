"""Newline-delimited framing: whole lines come out, however the bytes came in."""

from __future__ import annotations

import pytest

from trimaran.errors import LocalProtocolError
from trimaran.protocol.json_lines import LineReader, LineTooLong, write_line


@pytest.mark.parametrize(
    ("stream", "lines"),
    [
        (b"", []),
        (b'{"a":1}\n', [b'{"a":1}']),
        (b'{"a":1}\r\n', [b'{"a":1}']),
        (b"a\nb\r\nc\n", [b"a", b"b", b"c"]),
        (b"\n\r\n \t\n\na\n\n", [b"a"]),
        (b"a\rb\n", [b"a\rb"]),
        (b"a\r\r\n", [b"a\r"]),
        (b" a \n", [b" a "]),
        ("{'é'}\n".encode(), ["{'é'}".encode()]),
        (b"\xff\x00\n", [b"\xff\x00"]),
        (b"unfinished", []),
    ],
)
def test_lines_come_out_without_terminators_and_blank_ones_are_skipped(stream: bytes, lines: list[bytes]) -> None:
    assert LineReader().feed(stream) == lines


def test_a_stream_cut_at_every_byte_gives_the_same_lines() -> None:
    stream = '{"a":1}\r\n\n{"é":2}\nshort\n'.encode()
    whole = LineReader().feed(stream)
    assert len(whole) == 3
    for cut in range(len(stream) + 1):
        reader = LineReader()
        assert reader.feed(stream[:cut]) + reader.feed(stream[cut:]) == whole


@pytest.mark.parametrize(
    ("rest", "last"),
    [(b"", None), (b"a\n", None), (b"a\nlast", b"last"), (b"last\r", b"last"), (b"  ", None), (b"\r", None)],
)
def test_closing_gives_the_unterminated_last_line_once(rest: bytes, last: bytes | None) -> None:
    reader = LineReader()
    reader.feed(rest)
    assert reader.close() == last
    assert reader.close() is None


@pytest.mark.parametrize(
    ("stream", "found"),
    [
        (b"12345\n", [b"12345"]),
        (b"12345\r\n", [b"12345"]),
        (b"123456\nok\n", [LineTooLong(5), b"ok"]),
        (b"123456\r\nok\n", [LineTooLong(5), b"ok"]),
        (b"12345\r6\nok\n", [LineTooLong(5), b"ok"]),
        (b"1234567890" * 5 + b"\n\nok\n", [LineTooLong(5), b"ok"]),
        (b"123456", [LineTooLong(5)]),
        (b"ok\n123456\n123456\n", [b"ok", LineTooLong(5), LineTooLong(5)]),
    ],
)
def test_a_line_over_the_limit_leaves_one_marker_however_it_is_cut(stream: bytes, found: list[object]) -> None:
    assert LineReader(5).feed(stream) == found
    for cut in range(len(stream) + 1):
        reader = LineReader(5)
        assert reader.feed(stream[:cut]) + reader.feed(stream[cut:]) == found
    reader = LineReader(5)
    assert [item for byte in stream for item in reader.feed(bytes([byte]))] == found


def test_a_line_over_the_limit_is_reported_before_it_ends_and_not_kept() -> None:
    reader = LineReader(10)
    assert reader.feed(b"x" * 11) == [LineTooLong(10)]
    for _ in range(1000):
        assert reader.feed(b"x" * 1000) == []
    assert reader.close() is None
    assert reader.feed(b"next\n") == [b"next"]


@pytest.mark.parametrize("terminator", [b"\n", b"\r\n"])
@pytest.mark.parametrize("length", [11, 255, 256, 257, 258, 1000])
def test_a_line_followed_to_its_end_is_reported_with_both_its_ends(length: int, terminator: bytes) -> None:
    """So that a client can tell which answer it was: some peers write the id first, some last."""
    line = bytes(33 + i % 90 for i in range(length))
    stream = b"short\n" + line + terminator + b"ok\n"
    found = [b"short", LineTooLong(10, line[:256], line[-256:]), b"ok"]
    assert LineReader(10, to_the_end=True).feed(stream) == found
    for cut in range(len(stream) + 1):
        reader = LineReader(10, to_the_end=True)
        assert reader.feed(stream[:cut]) + reader.feed(stream[cut:]) == found
    reader = LineReader(10, to_the_end=True)
    assert [item for byte in stream for item in reader.feed(bytes([byte]))] == found


def test_a_line_followed_to_its_end_shows_while_it_comes_in_and_is_not_kept() -> None:
    reader = LineReader(10, to_the_end=True)
    for _ in range(1000):
        assert reader.feed(b"x" * 1000) == []
        assert reader.is_skipping
    assert reader.feed(b"end\nnext\n") == [LineTooLong(10, b"x" * 256, b"x" * 253 + b"end"), b"next"]
    assert not reader.is_skipping
    reader.feed(b"x" * 1000)
    assert reader.close() is None


@pytest.mark.slow
def test_a_megabyte_fed_byte_by_byte_is_one_line() -> None:
    reader = LineReader()
    for _ in range(1_000_000):
        reader.feed(b"x")
    assert reader.feed(b"\n") == [b"x" * 1_000_000]


def test_a_written_line_reads_back() -> None:
    assert write_line(b'{"a":"\\n"}') == b'{"a":"\\n"}\n'
    assert LineReader().feed(write_line(b"{}") * 3) == [b"{}"] * 3


@pytest.mark.parametrize("message", [b"{\n}", b"{}\n", b"{\r}"])
def test_a_message_with_a_raw_newline_is_never_written(message: bytes) -> None:
    with pytest.raises(LocalProtocolError, match="one line of JSON"):
        write_line(message)


def test_the_marker_is_a_frozen_value() -> None:
    with pytest.raises(AttributeError):
        LineTooLong(5).limit = 6  # pyright: ignore[reportAttributeAccessIssue]
