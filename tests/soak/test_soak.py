"""`make soak` in small: some seconds of it, and the arithmetic of a leak."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from .__main__ import Soak
from .figures import Limit, Series, show


@pytest.mark.slow
@pytest.mark.deadline(120)
async def test_some_seconds_of_mixed_load_fail_nobody(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether something leaks takes longer to know."""
    soak = Soak(tmp_path, seconds=10)
    await soak.run()
    soak.report()
    report = capsys.readouterr().out
    assert not soak.account.errors, report
    assert not soak.faults, report
    assert soak.account.done["add"], report
    assert soak.account.done["vanish"], report
    assert soak.kills, report
    assert {"server: memory", "server: tasks", "client: descriptors", "supervisor: children"} <= soak.series.keys()


def series(values: list[float]) -> Series:
    made = Series("memory", Limit(per_minute=0.5, in_all=4.0), "MB")
    for second, value in enumerate(values):
        made.add(second, value)
    return made


def test_a_steady_growth_is_a_leak() -> None:
    leaking = series([50 + second / 60 + random.Random(second).uniform(-2, 2) for second in range(600)])
    assert leaking.leaks
    assert leaking.slope == pytest.approx(1.0, abs=0.2)
    assert "LEAKS" in show(leaking, 0)


def test_noise_steps_and_outliers_are_no_leak() -> None:
    noise = [50 + random.Random(second).uniform(-2, 2) for second in range(600)]
    assert not series(noise).leaks
    assert not series([*noise[:500], *[500.0] * 5, *noise[505:]]).leaks
    assert not series([40.0] * 100 + [60.0] * 500).after(150).leaks
    busier = [50 + random.Random(second).uniform(0, 10 + second / 20) for second in range(600)]
    assert series(busier).slope > 0.5
    assert not series(busier).leaks
    assert series([]).slope == 0


def test_bars_show_the_course() -> None:
    assert series([0, 1, 2, 3, 4, 5, 6, 7]).bars() == "▁▂▃▄▅▆▇█"
    assert series([5.0] * 90).bars() == "▁" * 30
