"""Views of MCP Apps, each kept for one frame under a key that cannot be guessed.

A view is a stranger's program. It is served with a policy of its own and the `sandbox` directive, so it has an origin of its
own even if it is opened outside its frame, and neither the session's cookie nor the page can be reached from it.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, final

from msgspec import Struct

_MOST: Final = 64
_MOST_BYTES: Final = 64 * 1024 * 1024


class ViewFrame(Struct, frozen=True):
    """A view's document and its policy."""

    html: str
    csp: str


@final
class Frames:
    """The views that were opened lately."""

    def __init__(self) -> None:
        self._frames: OrderedDict[str, ViewFrame] = OrderedDict()
        self._bytes = 0

    def add(self, key: str, frame: ViewFrame) -> None:
        self._frames[key] = frame
        self._bytes += len(frame.html)
        while len(self._frames) > _MOST or (self._bytes > _MOST_BYTES and len(self._frames) > 1):
            _, old = self._frames.popitem(last=False)
            self._bytes -= len(old.html)

    def get(self, key: str) -> ViewFrame | None:
        return self._frames.get(key)
