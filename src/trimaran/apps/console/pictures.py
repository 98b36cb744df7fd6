"""Pictures in a terminal, from bytes that somebody else made.

Decoding is the dangerous part: only the usual formats are tried, none of them runs anything, and the size a picture claims
is looked at before a pixel is unpacked. A picture that cannot be drawn is a line that says what it is and why.

Every terminal with colours can show half blocks, two pixels to a cell. Some can do better: `typeahead.py` asks, and
`prepare_pictures` is told.
"""

from __future__ import annotations

import base64
import binascii
import io
import sys
import warnings
from collections.abc import Sequence
from typing import Any, Final, final

from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.text import Text

from trimaran.host.terminal_text import in_one_line

_FORMATS: Final = ("PNG", "JPEG", "GIF", "WEBP", "BMP")
_MOST_BYTES: Final = 20_000_000
_MOST_PIXELS: Final = 16_000_000  # 4,000 by 4,000: half a second to unpack, 64 MB for a moment
_MOST_COLUMNS: Final = 80
_MOST_LINES: Final = 16  # so that a picture and what is said about it fit on a screen of 24
_KEPT: Final = (1200, 1200)  # pixels that are kept, for a terminal that draws by itself
_KEPT_FOR_BLOCKS: Final = (2 * _MOST_COLUMNS, 4 * _MOST_LINES)  # twice as fine as what is drawn

_graphics: Any = None


def prepare_pictures() -> None:
    """Let the terminal draw pictures by itself: it says that it can (kitty's graphics protocol)."""
    global _graphics
    stdout = sys.__stdout__
    sys.__stdout__ = None  # pyright: ignore[reportAttributeAccessIssue]  # or the library asks the terminal as it is imported
    try:
        from textual_image.renderable import TGPImage

        _graphics = TGPImage
    finally:
        sys.__stdout__ = stdout  # pyright: ignore[reportAttributeAccessIssue]


@final
class DrawingBudget:
    """The remaining budget for the pictures of one result: unpacking many small pictures takes time, too."""

    def __init__(self) -> None:
        self.pixels = _MOST_PIXELS


@final
class Picture:
    """A decoded picture, to be drawn by Rich. `image` is the Pillow image, for widgets that draw it in other ways."""

    def __init__(self, image: Any, *, columns: int = _MOST_COLUMNS, lines: int = _MOST_LINES) -> None:
        self.image: Final = image
        # Two pixels stand on each other in a cell, and a cell is about twice as high as it is wide.
        width, height = image.size
        scale = min(columns / width, 2 * lines / height, 1.0)
        self.columns: Final = max(1, round(width * scale))
        self.lines: Final = max(1, round(height * scale / 2))
        self._drawn: Any = None
        self._cells: list[list[Segment]] | None = None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if _graphics is not None:
            if self._drawn is None:
                self._drawn = _graphics(self.image, width=self.columns, height=self.lines)
            yield self._drawn
            return
        if self._cells is None:
            self._cells = _half_blocks(self.image, self.columns, self.lines)
        for line in self._cells:
            yield from line[: options.max_width]
            yield Segment.line()

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        width = min(self.columns, options.max_width)
        return Measurement(width, width)


def _half_blocks(image: Any, columns: int, lines: int) -> list[list[Segment]]:
    small = image.resize((columns, 2 * lines))
    pixels = small.load()
    colours: dict[tuple[int, int, int], Color] = {}

    def colour(x: int, y: int) -> Color:
        rgb = pixels[x, y]
        if rgb not in colours:
            colours[rgb] = Color.from_rgb(*rgb)
        return colours[rgb]

    return [
        [Segment("▀", Style(color=colour(x, 2 * y), bgcolor=colour(x, 2 * y + 1))) for x in range(columns)]
        for y in range(lines)
    ]


def picture_of(
    data: str, mime: str, *, width: int, is_drawn: bool, easel: DrawingBudget | None = None
) -> list[RenderableType]:
    """A line about base64 data that claims to be a picture, and the picture if it can be drawn."""
    about = f"{in_one_line(mime, 60)}, {size_text(data)}"
    if not is_drawn:
        return [Text(about, style="dim")]
    try:
        image = _decode(data, easel or DrawingBudget())
    except _Unshowable as error:
        return [Text(f"{about}: cannot be shown: {error}", style="yellow")]
    size = f"{image.info['claimed'][0]} x {image.info['claimed'][1]}"
    return [Text(f"{about}, {size}", style="dim"), Picture(image, columns=max(1, min(width, _MOST_COLUMNS)))]


def size_text(data: str) -> str:
    """The size of base64 data, for people."""
    size = max(0, len(data) * 3 // 4 - data[-2:].count("="))
    for unit in ("bytes", "KB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


class _Unshowable(Exception):
    """Why a picture is not drawn."""


def _decode(data: str, easel: DrawingBudget) -> Any:
    """The picture, small enough to be kept, in plain colours."""
    if len(data) > _MOST_BYTES * 4 // 3:
        raise _Unshowable(f"it is larger than {_MOST_BYTES // 1_000_000} MB")
    try:
        octets = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise _Unshowable("it is not base64") from None
    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise _Unshowable("pip install 'trimaran[console]' brings what draws it") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of sizes and metadata
            with Image.open(io.BytesIO(octets), formats=_FORMATS) as opened:
                width, height = opened.size
                if width * height > _MOST_PIXELS:
                    raise _Unshowable(f"{width} x {height} is more than {_MOST_PIXELS // 1_000_000} million pixels")
                if width * height > easel.pixels:
                    raise _Unshowable(
                        f"with those before it, it is more than {_MOST_PIXELS // 1_000_000} million pixels"
                    )
                easel.pixels -= width * height
                most_pixels = _KEPT if _graphics is not None else _KEPT_FOR_BLOCKS
                opened.draft("RGB", most_pixels)
                opened.thumbnail(most_pixels)
                image = _on_white(opened)
    except UnidentifiedImageError:
        raise _Unshowable(f"it is none of {listed(_FORMATS)}") from None
    except Image.DecompressionBombError:
        raise _Unshowable(f"it has more than {_MOST_PIXELS // 1_000_000} million pixels") from None
    except _Unshowable:
        raise
    except Exception as error:  # decoders fail in many ways on broken files
        raise _Unshowable(f"it is broken ({in_one_line(str(error) or type(error).__name__, 100)})") from None
    image.info["claimed"] = (width, height)
    return image


def _on_white(image: Any) -> Any:
    """Plain colours. Transparent parts become white: most such pictures were drawn for a page."""
    from PIL import Image

    if image.mode not in ("RGBA", "LA", "PA", "P") and "transparency" not in image.info:
        return image.convert("RGB")
    layer = image.convert("RGBA")
    page = Image.new("RGBA", layer.size, "white")
    page.alpha_composite(layer)
    return page.convert("RGB")


def listed(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
