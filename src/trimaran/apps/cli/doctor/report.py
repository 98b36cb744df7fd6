"""The doctor's report: checks, each with an observation, why it matters, and what to do.

A check is told to whoever watches as soon as it is made, because some take seconds; the whole is kept for the summary and
for JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias, final

from msgspec import Struct, structs
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..output import Screen, safe

Status: TypeAlias = Literal["ok", "warn", "fail", "skipped"]
_LABELS: Final[dict[Status, tuple[str, str]]] = {
    "ok": ("ok", "green"),
    "warn": ("warn", "yellow"),
    "fail": ("FAIL", "bold red"),
    "skipped": ("skip", "dim"),
}
# How the report calls a check, where that is not its key.
_TITLES: Final = {
    "answer": "first request",
    "anthropic": "Anthropic",
    "authorization-server": "authorization server",
    "challenge": "WWW-Authenticate",
    "connect": "connection",
    "content-type": "content type",
    "cors": "CORS preflight",
    "delete": "DELETE",
    "dns": "name",
    "doctor": "the doctor",
    "eof": "end of input",
    "first-message": "first message",
    "gemini": "Gemini",
    "get": "GET",
    "header-mismatch": "header agreement",
    "host": "foreign Host",
    "legacy": "before 2026",
    "modern": "2026-07-28",
    "openai": "OpenAI",
    "origin": "foreign Origin",
    "resource-metadata": "resource metadata",
    "slash": "trailing slash",
    "stream": "streaming",
    "time-list": "tools/list",
    "time-ping": "ping",
    "tls": "TLS",
    "token": "credentials",
    "tool-descriptions": "descriptions",
    "tool-names": "tool names",
    "tool-schemas": "schemas",
    "tools-pages": "pages",
    "unknown-method": "unknown method",
    "version": "unknown version",
}
_TITLE_WIDTH: Final = 18
_MOST_DETAILS: Final = 6


@final
class Check(Struct, frozen=True, kw_only=True):
    """One thing that was looked at."""

    section: str
    key: str
    title: str
    status: Status
    seen: str
    """The observation; for a skipped check, the reason."""
    why: str = ""
    """Why it matters, where something is amiss."""
    fix: str = ""
    """The remedy."""
    details: tuple[str, ...] = ()
    """The places, or the lines, it is about."""


@final
class Report:
    """The checks so far. Methods are named after how the check ended."""

    def __init__(
        self, target: str, on_check: Callable[[Check], None] | None = None, *, waived: Sequence[str] = ()
    ) -> None:
        self.target = target
        self.checks: list[Check] = []
        self._waived = {name.strip().lower(): name for name in waived}
        self._on_check = on_check
        self._section = ""

    def section(self, name: str) -> None:
        """Begin a part of the examination."""
        self._section = name

    def ok(self, key: str, seen: str, *, details: Sequence[str] = ()) -> None:
        self._add(key, "ok", seen, details=details)

    def warn(self, key: str, seen: str, why: str, fix: str, *, details: Sequence[str] = ()) -> None:
        self._add(key, "warn", seen, why, fix, details)

    def fail(self, key: str, seen: str, why: str, fix: str, *, details: Sequence[str] = ()) -> None:
        self._add(key, "fail", seen, why, fix, details)

    def skip(self, key: str, reason: str) -> None:
        self._add(key, "skipped", reason)

    def _add(
        self, key: str, status: Status, seen: str, why: str = "", fix: str = "", details: Sequence[str] = ()
    ) -> None:
        title = _TITLES.get(key, key)
        if status in ("warn", "fail") and self._waived.keys() & {key.lower(), title.lower()}:
            status, seen, why, fix = "skipped", f"waived; {seen}", "", ""
        check = Check(
            section=self._section,
            key=key,
            title=title,
            status=status,
            seen=seen,
            why=why,
            fix=fix,
            details=tuple(details),
        )
        self.checks.append(check)
        if self._on_check is not None:
            self._on_check(check)

    def never_made(self) -> list[str]:
        """Names to waive that no check has."""
        known = {name.lower() for check in self.checks for name in (check.key, check.title)}
        return [name for lower, name in self._waived.items() if lower not in known]

    def names(self) -> list[str]:
        """The checks that were made, as the report calls them."""
        return list(dict.fromkeys(check.title for check in self.checks))

    def count(self, status: Status) -> int:
        return sum(check.status == status for check in self.checks)

    @property
    def is_healthy(self) -> bool:
        """True if no check failed."""
        return not self.count("fail")

    def to_json(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "healthy": self.is_healthy,
            "counts": {status: self.count(status) for status in _LABELS},
            "checks": [structs.asdict(check) for check in self.checks],
        }


def print_check(screen: Screen, check: Check, before: Check | None) -> None:
    """One check in its columns, under the name of its section if that is new."""
    if before is None or before.section != check.section:
        screen.out.print()
        screen.out.print(Text(check.section, style="bold cyan"))
    label, style = _LABELS[check.status]
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(width=6, no_wrap=True)
    table.add_column(width=_TITLE_WIDTH, overflow="fold")
    table.add_column(overflow="fold")
    quiet = "dim" if check.status == "skipped" else ""
    table.add_row(Text(f"  {label}", style=style), Text(check.title, style=quiet), Text(safe(check.seen), style=quiet))
    screen.lay_out(table)
    more = Table.grid(padding=(0, 1), pad_edge=False)
    more.add_column(width=4)
    more.add_column(overflow="fold")
    for detail in check.details[:_MOST_DETAILS]:
        more.add_row(Text("   -"), Text(safe(detail)))
    if len(check.details) > _MOST_DETAILS:
        more.add_row(Text("   -"), Text(f"and {len(check.details) - _MOST_DETAILS} more"))
    if check.status in ("warn", "fail"):
        more.add_row(Text("why:", style="dim"), Text(check.why, style="dim"))
        more.add_row(Text("fix:", style="bold"), Text(safe(check.fix)))
    if more.row_count:
        screen.lay_out(Padding(more, (0, 0, 0, 8), expand=False))


def print_summary(screen: Screen, report: Report) -> None:
    """The last line: how many of each, and what to begin with."""
    failed = [check.title for check in report.checks if check.status == "fail"]
    warned = [check.title for check in report.checks if check.status == "warn"]
    line = Text(f"{report.count('ok')} ok, {several(len(warned), 'warning')}, {several(len(failed), 'failure')}, ")
    line.append(f"{report.count('skipped')} skipped. ")
    if failed:
        line.append(f"Begin with: {failed[0]}.", style="bold red")
    elif any(check.key == "token" and check.status == "skipped" for check in report.checks):
        line.append("Pass credentials for the rest.", style="yellow")
    elif warned:
        line.append("It works.", style="yellow")
    else:
        line.append("All is well.", style="green")
    screen.out.print()
    screen.out.print(line)


def several(count: int, noun: str) -> str:
    """`1 line`, `2 lines`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
