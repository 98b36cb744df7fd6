"""Write PNG images with nothing but zlib: an indexed picture, a colour per pixel, no files.

A painter says which colour stands at a point of the unit square, `(0, 0)` being the upper left corner. `picture` asks
it once for each pixel and writes the answer as an 8-bit palette image.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final

__all__ = ["Colour", "Painter", "picture"]

Colour = tuple[int, int, int]
Painter = Callable[[float, float], Colour]

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_INDEXED: Final = 3  # the colour type that needs a PLTE chunk
_MOST_COLOURS: Final = 256  # what one byte can number


def picture(width: int, height: int, paint: Painter) -> bytes:
    """A PNG of this size."""
    palette: dict[Colour, int] = {}
    rows = bytearray()
    for y in range(height):
        rows.append(0)  # each row begins with its filter: none
        for x in range(width):
            colour = paint((x + 0.5) / width, (y + 0.5) / height)
            index = palette.setdefault(colour, len(palette))
            if index == _MOST_COLOURS:
                raise ValueError(f"a palette holds {_MOST_COLOURS} colours; this picture has more")
            rows.append(index)
    header = struct.pack(">IIBBBBB", width, height, 8, _INDEXED, 0, 0, 0)
    colours = b"".join(bytes(colour) for colour in palette)
    chunks = ((b"IHDR", header), (b"PLTE", colours), (b"IDAT", zlib.compress(bytes(rows), 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
