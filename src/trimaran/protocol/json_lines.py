"""Frame newline-delimited JSON, the way stdio carries messages.

Pure: bytes in, whole lines out; it neither decodes JSON nor decides about bad lines. `transports/stdio.py`
and `transports/process.py` feed it.

A line ends at LF, with or without a CR before it; blank lines are skipped. Each byte is looked at once and copied
once, however the peer's writes are cut. A line past the limit is dropped as it arrives, so the memory held is bounded
by the limit and the conversation goes on with the next line. LineTooLong stands in its place: at once for a server,
which cannot answer it by id anyway; or, for a client that wants to know which answer it was, when the line has ended
and both its ends are known, because peers put the id at either.
"""

from __future__ import annotations

from typing import Final, final

import msgspec

from trimaran.errors import LocalProtocolError

# Base64 images and audio travel inside one line; larger content belongs behind a resource link.
MAX_LINE_BYTES: Final = 16 * 1024 * 1024

_END_BYTES: Final = 256  # of either end of a line too long: an envelope without its params or result is shorter


@final
class LineTooLong(msgspec.Struct, frozen=True):
    """Stands in the place of a line that was longer than allowed."""

    limit: int
    head: bytes = b""
    """Its first 256 bytes, from a reader that follows the line to its end."""
    tail: bytes = b""
    """Its last 256 bytes, from the same; they may overlap the first ones."""


@final
class LineReader:
    """Cut a byte stream into lines; one reader per stream.

    Args:
        max_line_bytes: The longest line, without its terminator.
        to_the_end: Report a longer line when it ends, with its head and its tail, not as soon as it is too long.
    """

    __slots__ = ("_head", "_limit", "_partial", "_skipping", "_tail", "_to_the_end")

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES, *, to_the_end: bool = False) -> None:
        self._limit = max_line_bytes
        self._to_the_end = to_the_end
        self._partial = bytearray()
        self._skipping = False
        self._head = b""
        self._tail = b""

    @property
    def is_skipping(self) -> bool:
        """Whether the incoming line is already too long."""
        return self._skipping

    def feed(self, chunk: bytes) -> list[bytes | LineTooLong]:
        """Take the next bytes; return the lines they complete, without terminators."""
        lines: list[bytes | LineTooLong] = []
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            line = self._end(piece)
            if line is not None:
                lines.append(line)
        if not rest:
            return lines
        if self._skipping:
            self._follow(rest)
            return lines
        self._partial += rest
        if self._is_over():
            self._skipping = True
            if self._to_the_end:
                self._follow(self._partial)
            else:
                lines.append(LineTooLong(self._limit))
            self._partial.clear()
        return lines

    def close(self) -> bytes | None:
        """End the stream; return the last line if it lacked its terminator."""
        line = self._end(b"")
        return line if isinstance(line, bytes) else None

    def _end(self, piece: bytes) -> bytes | LineTooLong | None:
        if self._skipping:
            self._skipping = False
            self._follow(piece)
            return self._too_long() if self._to_the_end else None
        if self._partial:
            self._partial += piece
            piece = bytes(self._partial)
            self._partial.clear()
        line = piece.removesuffix(b"\r")
        if len(line) > self._limit:
            self._follow(piece)
            return self._too_long()
        return line if line and not line.isspace() else None

    def _follow(self, piece: bytes | bytearray) -> None:
        # One byte more than is told: the last may turn out to be the CR of the terminator.
        if self._to_the_end:
            if len(self._head) <= _END_BYTES:
                self._head += piece[: _END_BYTES + 1 - len(self._head)]
            self._tail = (self._tail + piece[-_END_BYTES - 1 :])[-_END_BYTES - 1 :]

    def _too_long(self) -> LineTooLong:
        head, tail = self._head, self._tail
        self._head = self._tail = b""
        if len(head) <= _END_BYTES:
            head = head.removesuffix(b"\r")
        return LineTooLong(self._limit, head[:_END_BYTES], tail.removesuffix(b"\r")[-_END_BYTES:])

    def _is_over(self) -> bool:
        # One byte more is still fine when it may be the CR of the terminator.
        excess = len(self._partial) - self._limit
        return excess > 1 or (excess == 1 and self._partial[-1] != 0x0D)


def write_line(message: bytes) -> bytes:
    """Frame one message.

    Raises:
        LocalProtocolError: the message holds a raw newline, so that the peer would read two.
    """
    # CR too: a peer that reads in text mode takes it for a line end.
    if b"\n" in message or b"\r" in message:
        raise LocalProtocolError.internal_error(
            "a message for stdio must be one line of JSON: encode it compactly, without raw newlines"
        )
    return message + b"\n"
