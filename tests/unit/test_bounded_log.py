from __future__ import annotations

import logging

import pytest

from trimaran import bounded_log
from trimaran.bounded_log import MOST, PERIOD, BoundedLog


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(bounded_log.time, "monotonic", lambda: now[0])
    return now


def test_lines_of_one_kind_are_counted_after_the_first_few(
    caplog: pytest.LogCaptureFixture, clock: list[float]
) -> None:
    caplog.set_level(logging.INFO)
    log = BoundedLog("trimaran.test")
    for number in range(1000):
        log.info("refused: %s", number, kind="a")
    assert [record.getMessage() for record in caplog.records[: MOST - 1]] == [f"refused: {n}" for n in range(MOST - 1)]
    assert len(caplog.records) == MOST
    assert caplog.messages[-1] == f"refused: {MOST - 1} (more like this in the next {PERIOD:.0f} s are counted only)"
    log.info("refused: %s", "another kind", kind="b")
    log.warning("another text")
    assert caplog.messages[-2:] == ["refused: another kind", "another text"]
    clock[0] += PERIOD
    log.info("refused: %s", "again", kind="a")
    assert caplog.messages[-1] == f"refused: again ({1000 - MOST} more like this were left out)"
    assert caplog.records[-1].funcName == "test_lines_of_one_kind_are_counted_after_the_first_few"


def test_few_lines_are_as_they_were(caplog: pytest.LogCaptureFixture, clock: list[float]) -> None:
    log = BoundedLog("trimaran.test")
    for _ in range(5):
        log.error("100 %% %s", "sure")
        clock[0] += PERIOD
    assert caplog.messages == ["100 % sure"] * 5


def test_kinds_that_a_peer_makes_up_are_not_kept_without_end() -> None:
    log = BoundedLog("trimaran.test")
    for number in range(5000):
        log.warning("refused", kind=str(number))
    assert len(bounded_log._kinds) <= 1000
