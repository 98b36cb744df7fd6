"""Signal flags and the harbour's chart, as PNG images.

Each is a painter: a function that says which colour stands at a point of the unit square, `(0, 0)` being the upper left
corner. The flags are the twenty-six letters of the International Code of Signals. A and B have their swallowtails.

PNG is written here, in a few lines: the demo needs no imaging library, and so the core has no such dependency.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final

Colour = tuple[int, int, int]
Painter = Callable[[float, float], Colour]

FLAG_SIDE: Final = 48
_GAP: Final = 8

WHITE: Final = (255, 255, 255)
BLACK: Final = (20, 20, 24)
RED: Final = (206, 17, 38)
BLUE: Final = (0, 56, 147)
YELLOW: Final = (252, 209, 22)
SKY: Final = (226, 240, 248)


def _columns(*colours: Colour) -> Painter:
    return lambda x, y: colours[int(x * len(colours))]


def _rows(*colours: Colour) -> Painter:
    return lambda x, y: colours[int(y * len(colours))]


def _checks(side: int, first: Colour, second: Colour) -> Painter:
    return lambda x, y: (first, second)[(int(x * side) + int(y * side)) % 2]


def _cross(field: Colour, bars: Colour) -> Painter:
    return lambda x, y: bars if min(abs(x - 0.5), abs(y - 0.5)) < 0.1 else field


def _saltire(field: Colour, bars: Colour) -> Painter:
    return lambda x, y: bars if min(abs(x - y), abs(x + y - 1)) < 0.13 else field


def _square(field: Colour, middle: Colour) -> Painter:
    return lambda x, y: middle if max(abs(x - 0.5), abs(y - 0.5)) < 1 / 6 else field


def _swallowtail(inside: Painter) -> Painter:
    return lambda x, y: SKY if x > 0.75 and abs(y - 0.5) < (x - 0.75) * 2 else inside(x, y)


def _z(x: float, y: float) -> Colour:
    if y < min(x, 1 - x):
        return YELLOW
    if y > max(x, 1 - x):
        return RED
    return BLACK if x < 0.5 else BLUE


def _w(x: float, y: float) -> Colour:
    away = max(abs(x - 0.5), abs(y - 0.5))
    return RED if away < 1 / 6 else WHITE if away < 1 / 3 else BLUE


FLAGS: Final[dict[str, Painter]] = {
    "A": _swallowtail(_columns(WHITE, BLUE)),
    "B": _swallowtail(_columns(RED)),
    "C": _rows(BLUE, WHITE, RED, WHITE, BLUE),
    "D": _rows(YELLOW, BLUE, BLUE, YELLOW),
    "E": _rows(BLUE, RED),
    "F": lambda x, y: RED if abs(x - 0.5) + abs(y - 0.5) < 0.5 else WHITE,
    "G": _columns(YELLOW, BLUE, YELLOW, BLUE, YELLOW, BLUE),
    "H": _columns(WHITE, RED),
    "I": lambda x, y: BLACK if (x - 0.5) ** 2 + (y - 0.5) ** 2 < 0.0625 else YELLOW,
    "J": _rows(BLUE, WHITE, BLUE),
    "K": _columns(YELLOW, BLUE),
    "L": _checks(2, YELLOW, BLACK),
    "M": _saltire(BLUE, WHITE),
    "N": _checks(4, BLUE, WHITE),
    "O": lambda x, y: RED if x > y else YELLOW,
    "P": _square(BLUE, WHITE),
    "Q": _columns(YELLOW),
    "R": _cross(RED, YELLOW),
    "S": _square(WHITE, BLUE),
    "T": _columns(RED, WHITE, BLUE),
    "U": _checks(2, RED, WHITE),
    "V": _saltire(WHITE, RED),
    "W": _w,
    "X": _cross(WHITE, BLUE),
    "Y": lambda x, y: (YELLOW, RED)[int((x + y) * 5) % 2],
    "Z": _z,
}


def picture(width: int, height: int, paint: Painter) -> bytes:
    """A PNG of this size with a palette of at most 256 colours, one byte for each pixel."""
    palette: dict[Colour, int] = {}
    rows = bytearray()
    for y in range(height):
        rows.append(0)  # each row begins with its filter: none
        for x in range(width):
            rows.append(palette.setdefault(paint((x + 0.5) / width, (y + 0.5) / height), len(palette)))
    png = b"\x89PNG\r\n\x1a\n"
    for kind, data in (
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),  # 8 bits, type 3: a palette
        (b"PLTE", b"".join(map(bytes, palette))),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    ):
        png += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return png


def hoist(word: str) -> bytes:
    """A PNG of the word in signal flags, side by side on the halyard; other characters are left out."""
    letters = [letter for letter in word.upper() if letter in FLAGS]
    width = _GAP + len(letters) * (FLAG_SIDE + _GAP)
    height = FLAG_SIDE + 2 * _GAP

    def paint(x: float, y: float) -> Colour:
        column, across = divmod(x * width - _GAP, FLAG_SIDE + _GAP)
        down = y * height - _GAP
        if not 0 <= column < len(letters) or across >= FLAG_SIDE or not 0 <= down < FLAG_SIDE:
            return SKY
        return FLAGS[letters[int(column)]](across / FLAG_SIDE, down / FLAG_SIDE)

    return picture(width, height, paint)


def chart() -> bytes:
    """A PNG of the harbour: land, shallows, two moles and the light."""
    sea, shallows, land, stone = (112, 178, 214), (176, 216, 230), (214, 196, 148), (110, 106, 100)

    def paint(x: float, y: float) -> Colour:
        shore = 0.3 + 0.08 * (x - 0.5) ** 2 + (0.12 if 0.3 < x < 0.7 else 0) * -1
        if (x - 0.68) ** 2 + (y - 0.62) ** 2 < 0.0009:
            return RED
        if min(abs(x - 0.3), abs(x - 0.68)) < 0.015 and shore < y < 0.62:
            return stone
        return land if y < shore else shallows if y < shore + 0.12 else sea

    return picture(160, 120, paint)
