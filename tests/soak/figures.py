"""Samples of a process over time, and what they say: a slope by robust fit, and a line of small bars.

The slope is the median of the slopes between all pairs of samples (Theil and Sen): a few wild samples do not move it.
"""

from __future__ import annotations

import os
import statistics
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

BARS = "▁▂▃▄▅▆▇█"
MOST_SAMPLES = 240  # of a fit: 28,680 pairs


@dataclass(frozen=True)
class Limit:
    """A leak grows all the time, and by much: both are asked for, so that noise is not taken for one."""

    per_minute: float
    in_all: float


@dataclass
class Series:
    name: str
    limit: Limit
    unit: str = ""
    times: list[float] = field(default_factory=list[float])
    values: list[float] = field(default_factory=list[float])

    def add(self, time: float, value: float) -> None:
        self.times.append(time)
        self.values.append(value)

    def after(self, warm_up: float) -> Series:
        """Without what was before."""
        kept = [(time, value) for time, value in zip(self.times, self.values, strict=True) if time >= warm_up]
        step = len(kept) // MOST_SAMPLES + 1
        series = Series(self.name, self.limit, self.unit)
        for time, value in kept[::step]:
            series.add(time, value)
        return series

    @property
    def slope(self) -> float:
        """Per minute."""
        pairs = combinations(zip(self.times, self.values, strict=True), 2)
        slopes = [(late[1] - early[1]) / (late[0] - early[0]) for early, late in pairs if late[0] > early[0]]
        return statistics.median(slopes) * 60 if slopes else 0.0

    @property
    def growth(self) -> float:
        """From the first third to the last, by the floor of each: a busier machine lifts the middle, a leak the floor too."""
        third = max(1, len(self.values) // 3)
        return _floor(self.values[-third:]) - _floor(self.values[:third]) if self.values else 0.0

    @property
    def leaks(self) -> bool:
        return self.slope > self.limit.per_minute and self.growth > self.limit.in_all

    def bars(self, width: int = 30) -> str:
        if not self.values:
            return ""
        size = max(1, -(-len(self.values) // width))
        means = [statistics.fmean(self.values[at : at + size]) for at in range(0, len(self.values), size)]
        low, high = min(means), max(means)
        scale = (len(BARS) - 1) / (high - low) if high > low else 0
        return "".join(BARS[int((mean - low) * scale)] for mean in means)


def _floor(values: list[float]) -> float:
    """The value that a tenth of them stay below."""
    return sorted(values)[len(values) // 10]


def show(series: Series, warm_up: float) -> str:
    fitted = series.after(warm_up)
    if not fitted.values:
        return f"{series.name:34} never measured"
    middle = statistics.median(fitted.values)
    return (
        f"{series.name:34} {middle:9.1f} {series.unit:3} {fitted.slope:+8.2f}/min {fitted.growth:+8.1f}  "
        f"{'LEAKS' if fitted.leaks else 'ok':6} {series.bars()}"
    )


def measure_process(pid: int) -> dict[str, float]:
    """Resident memory in MB, descriptors, threads, children."""
    folder = Path(f"/proc/{pid}")
    pages = int((folder / "statm").read_text().split()[1])
    tasks = os.listdir(folder / "task")
    children = sum(len((folder / "task" / task / "children").read_text().split()) for task in tasks)
    return {
        "memory": pages * os.sysconf("SC_PAGESIZE") / 1e6,
        "descriptors": len(os.listdir(folder / "fd")),
        "threads": len(tasks),
        "children": children,
    }
