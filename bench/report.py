"""Rows, tables and the JSON file: what a section hands back and how it is shown.

A measured series keeps one value per round. A ratio is the median of the per-round ratios, not the ratio of medians:
neighbours in one round met the same machine, so its slow seconds cancel out.
"""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Series:
    """The values of one contender, one per round, or the reason there are none."""

    label: str
    values: list[float] = field(default_factory=list)
    failure: str | None = None

    @property
    def median(self) -> float | None:
        return statistics.median(self.values) if self.values and not self.failure else None

    def show(self, unit: str) -> str:
        middle = self.median
        return failed(self.failure) if middle is None else f"{number(middle)} {unit}".rstrip()


@dataclass
class Row:
    what: str
    anchor: str
    ours: str
    ratio: str = "-"
    budget: str = "-"
    ok: bool | None = None


@dataclass
class Section:
    key: str
    title: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    series: dict[str, Any] = field(default_factory=dict)
    seconds: float = 0.0


def failed(reason: str | None) -> str:
    """Say in a table cell why there is no number; the JSON file has the reason in full."""
    text = (reason or "nothing was measured").replace("|", "/").replace("\n", " ")
    return f"failed: {text[:117]}..." if len(text) > 120 else f"failed: {text}"


def number(value: float) -> str:
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def best(candidates: Sequence[Series], *, pick: Callable[[list[float]], float] = max) -> Series:
    """Return the series with the best median: a rival is judged by its best configuration."""
    measured = [series for series in candidates if series.median is not None]
    if not measured:
        return candidates[0]
    winner = pick([series.median for series in measured if series.median is not None])
    return next(series for series in measured if series.median == winner)


def ratios(ours: Series, anchor: Series) -> list[float]:
    """Return ours against the anchor, round by round."""
    if ours.median is None or anchor.median is None:
        return []
    if len(ours.values) == len(anchor.values):
        return [a / b for a, b in zip(ours.values, anchor.values, strict=True)]
    return [ours.median / anchor.median]


def show_ratio(values: Sequence[float]) -> str:
    """Show the median, and where the middle half of the rounds lay."""
    if not values:
        return "-"
    middle = f"{number(statistics.median(values))}x"
    if len(values) < 4:
        return middle
    low, _, high = statistics.quantiles(values, n=4)
    return f"{middle} ({number(low)} to {number(high)})"


def compare(
    what: str, anchor: Series, ours: Series, *, unit: str, at_least: float | None = None, at_most: float | None = None
) -> Row:
    """Make the row that holds ours against an anchor by their ratio."""
    series = ratios(ours, anchor)
    ratio = statistics.median(series) if series else None
    budget, ok = "-", None
    if at_least is not None:
        budget = f">= {at_least:g}x"
        ok = None if ratio is None else ratio >= at_least
    if at_most is not None:
        budget = f"<= {at_most:g}x"
        ok = None if ratio is None else ratio <= at_most
    return Row(
        what=what,
        anchor=f"{anchor.label}: {anchor.show(unit)}",
        ours=ours.show(unit),
        ratio=show_ratio(series),
        budget=budget,
        ok=ok,
    )


def limit(what: str, ours: Series, *, unit: str, at_most: float, anchor: str = "-") -> Row:
    """Make the row that holds ours against an absolute number."""
    middle = ours.median
    return Row(
        what=what,
        anchor=anchor,
        ours=ours.show(unit),
        budget=f"<= {number(at_most)} {unit}",
        ok=None if middle is None else middle <= at_most,
    )


def table(rows: Sequence[Row]) -> str:
    lines = ["| what | anchor | ours | ratio | budget | ok |", "|---|---|---|---|---|---|"]
    verdicts = {True: "yes", False: "NO", None: "-"}
    lines += [f"| {r.what} | {r.anchor} | {r.ours} | {r.ratio} | {r.budget} | {verdicts[r.ok]} |" for r in rows]
    return "\n".join(lines)


def markdown(section: Section) -> str:
    parts = [f"## {section.title}", table(section.rows)]
    parts += [f"- {note}" for note in section.notes]
    return "\n\n".join(parts[:2]) + ("\n\n" + "\n".join(parts[2:]) if section.notes else "")


def write_json(path: Path, facts: Mapping[str, Any], sections: Sequence[Section]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    document = {**facts, "sections": [asdict(section) for section in sections]}
    path.write_text(json.dumps(document, indent=1, default=str) + "\n")
