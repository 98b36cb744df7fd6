"""Long results: the first page, and `/more` for the others.

A long text is shown by pages, cut at a line. Where the host cut a result that was over its limit (R270), it keeps the whole
under an id that it names in a notice at the end: the pages then go on there. Only the last long thing is remembered.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, final

from rich.console import RenderableType
from rich.text import Text

from trimaran.host.terminal_text import safe, to_json
from trimaran.types import TextContent

if TYPE_CHECKING:
    from trimaran.client.results import ToolResult
    from trimaran.host import Host

PAGE: Final = 6000  # characters: three or four screens of 80 by 24
# The host's own notices. A server that writes such a line itself names an output that is not kept.
_CUT: Final = re.compile(
    r"\[truncated: .*The whole text is kept as output ([\w-]{1,80}): (\d{1,15}) characters, go on at offset \d+\."
)
_LARGE: Final = "[large output: "


@final
class Pages:
    """The place in what was too long last."""

    def __init__(self) -> None:
        self._output_id = ""
        self._text = ""
        self._at = 0
        self._total = 0

    @property
    def is_open(self) -> bool:
        """True if there is another page."""
        return self._at < self._total

    def forget(self) -> None:
        """There is nothing to go on with."""
        self._output_id, self._text, self._at, self._total = "", "", 0, 0

    def begin(self, text: str) -> list[RenderableType]:
        """A text: its first page, and what is to be done for the next."""
        self.forget()
        self._text, self._total = text, len(text)
        return self._page(self._take())

    def first(self, result: ToolResult) -> list[RenderableType] | None:
        """The first page of a result; None if it is short enough to be shown as what it is."""
        texts = [block.text for block in result.content if isinstance(block, TextContent)]
        notice = _CUT.fullmatch(texts[-1].strip()) if texts else None
        if notice is not None:
            self.forget()
            self._output_id, self._total = notice[1], int(notice[2])
            self._text = "\n".join(text for text in texts[:-1] if not text.startswith(_LARGE))
            return [*self._failed(result), *self._page(self._take())]
        if len(texts) < len(result.content):
            return None  # pictures and the like, which have limits of their own
        whole = "\n".join(texts) if result.structured is None else to_json(result.data)
        if result.structured is not None and isinstance(result.data, str):
            whole = result.data
        if len(whole) <= 2 * PAGE:
            return None
        return [*self._failed(result), *self.begin(whole)]

    @staticmethod
    def _failed(result: Any) -> list[RenderableType]:
        return [Text("The tool failed:", style="bold red")] if result.is_error else []

    def next(self, host: Host) -> list[RenderableType]:
        """The next page.

        Raises:
            OutputMissing: the host does not keep it any more.
        """
        if not self.is_open:
            return [Text("There is nothing more to show.")]
        if self._at < len(self._text) or not self._output_id:
            return self._page(self._take())
        page = host.output(self._output_id, self._at, PAGE)
        self._total = page.total
        self._at = page.next_offset if page.next_offset is not None else page.total
        return self._page(page.text)

    def _take(self) -> str:
        """The next page of the text that is here: up to a line end, if there is one not far before."""
        end = min(self._at + PAGE, len(self._text))
        if end < len(self._text):
            line_end = self._text.rfind("\n", self._at + PAGE // 2, end)
            end = line_end + 1 if line_end >= 0 else end
        text = self._text[self._at : end]
        self._at = end
        return text

    def _page(self, text: str) -> list[RenderableType]:
        parts: list[RenderableType] = [Text(safe(text.removesuffix("\n")))]
        left = self._total - self._at
        if left > 0:
            parts.append(Text(f"{left:,} of {self._total:,} characters are not shown: /more goes on", style="yellow"))
        return parts
