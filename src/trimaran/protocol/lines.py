"""Frame newline-delimited JSON, the way stdio carries messages.

Pure: bytes in, whole lines out; it neither decodes JSON nor decides what a bad line deserves. `transports/stdio.py`
and `transports/process.py` feed it.

A line ends at LF, with or without a CR before it; blank lines are skipped. Each byte is looked at once and copied
once, however the peer's writes are cut. A line past the limit is reported at once as LineTooLong and the rest of it
is dropped as it arrives, so the memory held is bounded by the limit and the conversation goes on with the next line.
"""

from __future__ import annotations

from typing import Final, final

import msgspec

from trimaran.errors import LocalProtocolError

__all__ = ["MAX_LINE_BYTES", "LineReader", "LineTooLong", "write_line"]

# Base64 images and audio travel inside one line; what is larger belongs behind a resource link.
MAX_LINE_BYTES: Final = 16 * 1024 * 1024


@final
class LineTooLong(msgspec.Struct, frozen=True):
    """Stands in the place of a line that was longer than allowed."""

    limit: int


@final
class LineReader:
    """Cut a byte stream into lines; one reader per stream."""

    __slots__ = ("_limit", "_partial", "_skipping")

    def __init__(self, max_line_bytes: int = MAX_LINE_BYTES) -> None:
        self._limit = max_line_bytes
        self._partial = bytearray()
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes | LineTooLong]:
        """Take the next bytes; return the lines they complete, without terminators."""
        found: list[bytes | LineTooLong] = []
        *ended, rest = chunk.split(b"\n")
        for piece in ended:
            line = self._end(piece)
            if line is not None:
                found.append(line)
        if rest and not self._skipping:
            self._partial += rest
            if self._is_over():
                self._partial.clear()
                self._skipping = True
                found.append(LineTooLong(self._limit))
        return found

    def close(self) -> bytes | None:
        """End the stream; return the last line if it lacked its terminator."""
        line = self._end(b"")
        return line if isinstance(line, bytes) else None

    def _end(self, piece: bytes) -> bytes | LineTooLong | None:
        if self._skipping:
            self._skipping = False
            return None
        if self._partial:
            self._partial += piece
            piece = bytes(self._partial)
            self._partial.clear()
        line = piece.removesuffix(b"\r")
        if len(line) > self._limit:
            return LineTooLong(self._limit)
        return line if line and not line.isspace() else None

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
