"""How it is with the servers: one line at the bottom, and a line in the transcript for each change.

Every state has its own word beside its glyph, for R273 has three glyphs for five states, and colour alone says nothing to
some people and some terminals. What does not fit into the line is counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from rich.text import Text
from textual.widgets import Static

from trimaran.host import ServerStatus
from trimaran.host.plain import in_one_line

from .faults import what_to_do

__all__ = ["StatusLine", "change_of", "style_of", "word_of"]

_STYLES: Final = {"connected": "green", "starting": "yellow", "needs_auth": "magenta", "failed": "red"}
_WORDS: Final = {"connected": "", "needs_auth": "log in", "disabled": "off"}


def style_of(status: ServerStatus) -> str:
    return _STYLES.get(status.state, "dim")


def word_of(status: ServerStatus) -> str:
    """The state in a word; nothing for the good one."""
    return _WORDS.get(status.state, status.state)


def change_of(before: ServerStatus | None, now: ServerStatus) -> Text | None:
    """What to say about a server that changed; None if that is not worth a line."""
    if before is not None and (before.state, before.reason, before.tools) == (now.state, now.reason, now.tools):
        return None
    if now.state in ("starting", "disabled") and (before is None or before.state == now.state == "starting"):
        return None  # that it is not there yet is to be seen in the line below, and its stderr in /mcp
    text = Text(f"{now.glyph} ", style=style_of(now)).append(f"{now.name}: ", style="bold default")
    text.append(
        in_one_line(now.text if now.state != "failed" else f"failed: {now.reason}", 1000), style="not bold default"
    )
    if now.state in ("failed", "needs_auth"):
        text.append(f"\n  {what_to_do(now)}", style="not bold default dim")
    return text


@final
class StatusLine(Static):
    """The line."""

    def __init__(self) -> None:
        super().__init__(Text(""), id="status")
        self._shown: tuple[object, ...] = ()

    def show(self, servers: Sequence[ServerStatus], *, calls: int, model: str, width: int) -> None:
        """Draw it, if anything is different."""
        wanted = (tuple(servers), calls, model, width)
        if wanted == self._shown:
            return
        self._shown = wanted
        right = Text()
        if calls:
            right.append(f"{calls} call{'' if calls == 1 else 's'} running", style="yellow")
        if model:
            right.append("  " if calls else "").append(in_one_line(model, 40), style="cyan")
        if not calls and not model:
            right.append("/help", style="dim")
        room = width - right.cell_len - 4
        left = _named(servers)
        if left.cell_len > room:
            left = _counted(servers)
        left.truncate(max(room, 0), overflow="ellipsis")
        gap = " " * max(width - 2 - left.cell_len - right.cell_len, 1)
        self.update(Text(no_wrap=True).append_text(left).append(gap).append_text(right), layout=False)


def _named(servers: Sequence[ServerStatus]) -> Text:
    text = Text()
    for at, one in enumerate(servers):
        word = word_of(one)
        text.append("  " if at else "").append(f"{one.glyph} ", style=style_of(one))
        text.append(one.name + (f" {word}" if word else ""))
    return text if servers else Text("no servers", style="dim")


def _counted(servers: Sequence[ServerStatus]) -> Text:
    text = Text()
    counts: dict[str, list[ServerStatus]] = {}
    for one in servers:
        counts.setdefault(one.state, []).append(one)
    for at, (state, those) in enumerate(sorted(counts.items())):
        text.append("  " if at else "").append(f"{those[0].glyph} ", style=style_of(those[0]))
        text.append(f"{len(those)} {'connected' if state == 'connected' else word_of(those[0])}")
    return text
