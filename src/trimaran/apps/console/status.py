"""The state of the servers: one line at the bottom, and a line in the transcript for each change.

Every state has its own word beside its glyph, for R273 has three glyphs for five states, and colour alone says nothing to
some people and some terminals. Servers that do not fit into the line are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

from rich.text import Text
from textual.widgets import Static

from trimaran.host import BudgetPlan, ServerStatus
from trimaran.host.terminal_text import in_one_line

from .errors import what_to_do
from .transcript import spinner

_STYLES: Final = {"connected": "green", "starting": "yellow", "needs_auth": "magenta", "failed": "red"}
_WORDS: Final = {"connected": "", "needs_auth": "log in", "disabled": "off"}


def style_of(status: ServerStatus) -> str:
    return _STYLES.get(status.state, "dim")


def word_of(status: ServerStatus) -> str:
    """The state in a word; nothing for the good one."""
    return _WORDS.get(status.state, status.state)


def change_of(before: ServerStatus | None, now: ServerStatus) -> Text | None:
    """The transcript's line about a server that changed; None if the change is not worth a line."""
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


def budget_of(plan: BudgetPlan) -> str:
    """The cuts of a budget, in a few words."""
    hidden = sum(plan.hidden.values())
    by_search = f", {hidden} by search" if hidden else ""
    if plan.needed is not None:
        return f"tools need {plan.needed:,} tokens of {plan.budget:,}{by_search}"
    return f"tools {plan.tokens:,} of {plan.budget:,} tokens, {len(plan.cut) - hidden} shortened{by_search}"


@final
class StatusLine(Static):
    def __init__(self) -> None:
        super().__init__(Text(""), id="status")
        self._content: tuple[object, ...] = ()

    def show(
        self,
        servers: Sequence[ServerStatus],
        *,
        calls: int,
        model: str,
        waiting: str,
        width: int,
        plan: BudgetPlan | None = None,
    ) -> None:
        """Draw the line, if anything is different.

        Args:
            waiting: The line that the person typed and that is not done yet; empty if there is none.
            plan: The cuts of a budget among the tools that the model got.
        """
        turns = waiting or any(status.state == "starting" for status in servers)
        content = (tuple(servers), calls, model, waiting, width, spinner() if turns else "", plan)
        if content == self._content:
            return
        self._content = content
        right = Text()
        if waiting:
            right.append(f"{spinner()} {in_one_line(waiting, 40)}", style="yellow")
        elif calls:
            right.append(f"{calls} call{'' if calls == 1 else 's'} running", style="yellow")
        if model:
            right.append("  " if right else "").append(in_one_line(model, 40), style="cyan")
        if plan is not None and plan.cut:
            right.append("  " if right else "").append(budget_of(plan), style="dim" if plan.needed is None else "red")
        if not right:
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
    for at, status in enumerate(servers):
        word = word_of(status)
        text.append("  " if at else "").append(f"{_glyph(status)} ", style=style_of(status))
        text.append(status.name + (f" {word}" if word else ""))
    return text if servers else Text("no servers", style="dim")


def _counted(servers: Sequence[ServerStatus]) -> Text:
    text = Text()
    by_state: dict[str, list[ServerStatus]] = {}
    for status in servers:
        by_state.setdefault(status.state, []).append(status)
    for at, (state, group) in enumerate(sorted(by_state.items())):
        text.append("  " if at else "").append(f"{_glyph(group[0])} ", style=style_of(group[0]))
        text.append(f"{len(group)} {'connected' if state == 'connected' else word_of(group[0])}")
    return text


def _glyph(status: ServerStatus) -> str:
    """The glyph of the state; a server that starts is waited for, so its glyph turns."""
    return spinner() if status.state == "starting" else status.glyph
