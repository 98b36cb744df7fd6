"""The transcript, from top to bottom: lines, results, and calls that still run.

A column of entries, each something that Rich can draw. An entry is drawn once for a width, and kept as lines: what is added
costs what it is long, however much stands above it, and scrolling costs a screen. Older entries go when there are too many.
It stays at its end unless the person scrolled up, and never takes the keyboard: that belongs to the prompt.

A plain string would be read as markup, and what servers say must not be: every entry is a renderable.
"""

from __future__ import annotations

import asyncio
import bisect
import itertools
import logging
from typing import Final, Literal, TypeAlias, final

from rich.console import RenderableType
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.scrollbar import ScrollTo
from textual.strip import Strip
from textual.timer import Timer

from trimaran.host.terminal_text import in_one_line

log: Final = logging.getLogger("trimaran.apps.console")

Kind: TypeAlias = Literal["", "result", "fault"]

_MOST: Final = 500  # entries: drawing them all again, when the terminal gets another width, takes about a second
_MOST_LINES: Final = 20_000
_REST: Final = 0.15  # seconds without another width until all is drawn again
_FRAMES: Final = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
_BAR: Final = 20  # cells
_LONGEST: Final = 200  # characters of a progress message; the line is cut at the edge anyway
_MARGINS: Final[dict[Kind, Segment]] = {
    "": Segment(" "),
    "result": Segment("   "),
    "fault": Segment("  ▌ ", Style(color="red")),
}


@final
class TranscriptEntry:
    """One thing in the transcript.

    Args:
        kind: Where it stands: at the margin, below a call, or beside a red line.
        has_gap: Is there an empty line above it?
    """

    __slots__ = ("has_gap", "kind", "lines", "part")

    def __init__(self, part: RenderableType, kind: Kind, *, has_gap: bool) -> None:
        self.part: RenderableType = part
        self.kind: Kind = kind
        self.has_gap: bool = has_gap
        self.lines: list[Strip] = []


@final
class TranscriptView(ScrollView, can_focus=False):
    """The column."""

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self._entries: list[TranscriptEntry] = []
        self._starts: list[int] = []
        """The line on which each entry begins."""
        self._width = 0
        self._follows = True
        self._widening: Timer | None = None

    def __len__(self) -> int:
        return len(self._entries)

    # --- what is in it -----------------------------------------------------------------------------------------------

    def add(
        self, *parts: RenderableType, kind: Kind = "", after: TranscriptEntry | None = None
    ) -> list[TranscriptEntry]:
        """Put entries at the end, or right after another one.

        Those given together are one thing, and no gap is between them; what went wrong stands close to what it is about.
        """
        has_gap = after is None and kind != "fault"
        added = [TranscriptEntry(part, kind, has_gap=has_gap and at == 0) for at, part in enumerate(parts)]
        at = self._entries.index(after) + 1 if after is not None and after in self._entries else len(self._entries)
        for entry in added:
            self._draw(entry)
        self._entries[at:at] = added
        self._drop_old()
        self._settle()
        return added

    def change(self, entry: TranscriptEntry, part: RenderableType) -> None:
        """Have something else in its place; no-op if it is gone already."""
        if entry in self._entries:
            before = len(entry.lines)
            entry.part = part
            self._draw(entry)
            if len(entry.lines) == before:
                self.refresh()
            else:
                self._settle()

    def remove_entry(self, entry: TranscriptEntry) -> None:
        """Take it out; no-op if it is gone already."""
        if entry in self._entries:
            self._entries.remove(entry)
            self._settle()

    def drop(self, *keep: TranscriptEntry) -> None:
        """Forget what is there, except for these."""
        self._entries = [entry for entry in self._entries if entry in keep]
        self._settle()

    def _drop_old(self) -> None:
        lines = sum(len(entry.lines) for entry in self._entries)
        gone = 0
        while len(self._entries) > _MOST or (lines > _MOST_LINES and len(self._entries) > 1):
            gone += len(self._entries[0].lines)
            lines -= len(self._entries[0].lines)
            del self._entries[0]
        if gone and not self._follows:
            self.scroll_to(y=max(self.scroll_offset.y - gone, 0), animate=False, immediate=True, force=True)

    # --- drawing -----------------------------------------------------------------------------------------------------

    def _draw(self, entry: TranscriptEntry) -> None:
        if not self._width:
            return  # its width is not known yet
        margin = _MARGINS[entry.kind]
        console = self.app.console  # pyright: ignore[reportUnknownMemberType] - of whatever application this is
        width = max(self._width - margin.cell_length - 1, 10)
        options = console.options.update_width(width)
        try:
            drawn = list(Segment.split_lines(console.render(entry.part, options)))
        except Exception as error:  # a library may fail to draw a server's content
            log.exception("something cannot be drawn")
            problem = Text(f"(cannot be drawn: {type(error).__name__})", style="yellow")
            drawn = list(Segment.split_lines(console.render(problem, options)))
        lines = [Strip([margin, *line]) for line in drawn]
        entry.lines = [Strip.blank(self._width), *lines] if entry.has_gap else lines

    def _settle(self) -> None:
        """After a change: where entries begin, how long it all is, and where we stand."""
        heights = [len(entry.lines) for entry in self._entries]
        self._starts = list(itertools.accumulate(heights, initial=0))[:-1]
        self.virtual_size: Size = Size(self._width, sum(heights))
        self.refresh()
        if self._follows:
            # Now, so that nothing flickers; and after the layout, which may have other ideas while a scrollbar comes or goes.
            self.scroll_end(animate=False, immediate=True, x_axis=False, force=True)
            self.call_after_refresh(self._keep_up)

    def _keep_up(self) -> None:
        if self._follows:
            self.scroll_end(animate=False, immediate=True, x_axis=False, force=True)
        if self.show_vertical_scrollbar:  # one that has just come does not know yet where we are
            self.vertical_scrollbar.position = self.scroll_y

    def render_line(self, y: int) -> Strip:
        line = self.scroll_offset.y + y
        at = bisect.bisect_right(self._starts, line) - 1
        width = self.size.width
        if at < 0 or line - self._starts[at] >= len(self._entries[at].lines):
            return Strip.blank(width, self.rich_style)
        strip = self._entries[at].lines[line - self._starts[at]]
        return strip.crop_extend(0, width, self.rich_style).apply_style(self.rich_style)

    def on_resize(self, event: events.Resize) -> None:
        width = self.scrollable_content_region.width
        if width == self._width:
            self._settle()
        elif not self._width:
            self._widen()
        else:
            # Somebody who pulls at a corner makes many widths; the last one counts.
            if self._widening is not None:
                self._widening.stop()
            self._widening = self.set_timer(_REST, self._widen)

    def _widen(self) -> None:
        self._width = self.scrollable_content_region.width
        for entry in self._entries:
            self._draw(entry)
        self._settle()

    # --- scrolling ---------------------------------------------------------------------------------------------------

    def follow(self) -> None:
        """Go to the end, and stay there."""
        self._follows = True
        self._keep_up()

    def scroll_page(self, pages: int) -> None:
        """Scroll by this many screens; two lines of the old screen stay in sight."""
        step = max(self.size.height - 2, 1) * pages
        self.scroll_to(y=self.scroll_offset.y + step, animate=False, immediate=True, force=True)
        self._follow_if_at_end()

    def scroll_first(self) -> None:
        """To the beginning."""
        self.scroll_to(y=0, animate=False, immediate=True, force=True)
        self._follow_if_at_end()

    def _follow_if_at_end(self) -> None:
        """After the person scrolled: follow new entries only from the end."""
        self._follows = self.scroll_offset.y >= self.max_scroll_y

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._follows = False
        self.call_after_refresh(self._follow_if_at_end)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self.call_after_refresh(self._follow_if_at_end)

    def on_scroll_to(self, event: ScrollTo) -> None:
        self._follows = False
        self.call_after_refresh(self._follow_if_at_end)


@final
class Bar:
    """How far a call is: follows what is told by `tell`, and is drawn as often as somebody asks.

    Telling is cheap, so a server may report as often as it likes: it is drawn with the screen, not with the reports.
    """

    def __init__(self) -> None:
        self._began = now()
        self._done = 0.0
        self._total: float | None = None
        self._message = ""
        self._has_report = False
        self._asked_at: float | None = None
        self._seconds_asking = 0.0

    @property
    def seconds(self) -> float:
        """Since the call began, without the time in which it waited for the person."""
        end = now() if self._asked_at is None else self._asked_at
        return end - self._began - self._seconds_asking

    def wait_for_person(self, is_waiting: bool) -> None:
        """Stop the clock while the call waits for the person's answer."""
        if is_waiting and self._asked_at is None:
            self._asked_at = now()
        elif not is_waiting and self._asked_at is not None:
            self._seconds_asking += now() - self._asked_at
            self._asked_at = None

    def tell(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """The server says how far it is."""
        self._done, self._total, self._has_report = done, total, True
        if message is not None:
            self._message = message

    def drawn(self) -> Text:
        """The bar as a line of text."""
        text = Text("  ", no_wrap=True, overflow="ellipsis")
        if self._asked_at is not None:
            text.append("?", style="bold yellow").append(" waits for your answer")
        elif self._total is not None and self._total > 0 and self._has_report:
            share = min(max(self._done / self._total, 0.0), 1.0)
            full = round(share * _BAR)
            text.append("━" * full, style="green").append("─" * (_BAR - full), style="dim")
            text.append(f" {share:4.0%}  {self._done:g}/{self._total:g}")
        else:
            text.append(spinner(), style="yellow")
            text.append(f" {self._done:g} done" if self._has_report else " running")
        text.append(f"  {duration(self.seconds)}", style="dim")
        if self._message:
            text.append("  " + in_one_line(self._message, _LONGEST))
        return text


def now() -> float:
    """The clock of the event loop."""
    return asyncio.get_running_loop().time()


def spinner() -> str:
    """One cell that turns, as often as it is drawn."""
    return _FRAMES[int(now() * 10) % len(_FRAMES)]


def duration(seconds: float) -> str:
    """`0.3 s`, `12 s`, `2 min 5 s`."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    return f"{seconds:.0f} s" if seconds < 60 else f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
