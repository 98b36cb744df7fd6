"""Scale pictures to the size that a provider uses: it would scale a larger one itself, and be sent bytes for nothing.

Pillow does it, where it is installed (extra `images`). Without it, and for what Pillow cannot read, a picture stays as it is.
A picture is data of a stranger: its size is read from its header first, and one that would unpack to too much is left alone.
"""

from __future__ import annotations

import base64
import binascii
import functools
import io
import logging
from collections.abc import Mapping
from typing import Any, Final

from msgspec.structs import replace

from trimaran.types import ImageContent

log: Final = logging.getLogger("trimaran.host")

# The longest edge that each provider looks at, in pixels, as of autumn 2026: it scales anything larger down to it.
_EDGES: Final[Mapping[str, int]] = {"anthropic": 1568, "openai": 2048, "openai-responses": 2048, "gemini": 3072}
_MOST_PIXELS: Final = 50_000_000  # unpacked, 200 MB; a larger picture is not worth the memory
_KINDS: Final[Mapping[str, str]] = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP"}


@functools.cache
def _pillow() -> Any:
    try:
        from PIL import Image
    except ImportError:
        log.info("pictures are passed on at full size: install trimaran[images] to scale large ones down")
        return None
    return Image


def scale_image(block: ImageContent, format: str) -> ImageContent:
    """The picture no larger than the provider uses; the same block if it is small, or cannot be scaled."""
    edge, kind = _EDGES.get(format), _KINDS.get(block.mime_type)
    if edge is None or kind is None or len(block.data) < edge:  # a picture of more pixels than this has more bytes
        return block
    pillow = _pillow()
    if pillow is None:
        return block
    try:
        scaled = _scaled(pillow, base64.b64decode(block.data, validate=True), edge, kind)
    except (binascii.Error, ValueError, OSError, SyntaxError, pillow.DecompressionBombError, MemoryError) as error:
        log.info("a tool's picture is passed on at full size: %s", error)
        return block
    if scaled is None:
        return block
    return replace(block, data=base64.b64encode(scaled).decode())


def _scaled(pillow: Any, data: bytes, edge: int, kind: str) -> bytes | None:
    with pillow.open(io.BytesIO(data), formats=[kind]) as picture:
        width, height = picture.size
        if max(width, height) <= edge or width * height > _MOST_PIXELS:
            return None
        picture.thumbnail((edge, edge))
        written = io.BytesIO()
        picture.save(written, kind)
    return written.getvalue() if written.tell() < len(data) else None
