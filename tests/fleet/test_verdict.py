"""The verdict can find fault: each thing that must not be is seen when it is there."""

from __future__ import annotations

from typing import Any

import pytest

from .jobs import BOARDS, SLACK, Job, Report
from .rig import Fault
from .verdict import LEGS, judge, table

KILL = Fault("kill", 100.0, 101.0, pid=7)
KEY = "modern-1"
LATER = Fault("kill", 214.0, 214.5, pid=8)
CUT = Fault("cut", 200.0, 210.0)
FAULTS = [KILL, CUT, LATER]


def job(kind: str = "record", client: str = "modern", at: float = 50.0, seconds: float = 1.0, **more: Any) -> Job:
    more.setdefault("error", None)
    return Job(client, kind, KEY, 15.0, began=at, ended=at + seconds, seconds=seconds, **more)


def entry(kind: str = "record", key: str = KEY, at: float = 50.0, pid: int = 1) -> dict[str, Any]:
    return {"kind": kind, "key": key, "at": at, "pid": pid}


def voyage(legs: int = LEGS) -> list[dict[str, Any]]:
    return [entry("voyage"), *(entry(f"leg {leg}") for leg in range(1, legs + 1))]


GOOD: list[tuple[str, list[Job], list[dict[str, Any]]]] = [
    ("answered and done", [job()], [entry()]),
    ("failed for a kill, not done", [job(at=99.5, error="HTTP 502")], []),
    ("failed for a kill, done", [job(at=99.5, error="HTTP 502")], [entry()]),
    ("failed for want of the store", [job(client="sdk", at=205, error="refused -32603")], []),
    ("a task that arrived", [job("voyage"), job("task")], voyage()),
    ("a task that arrived at the second attempt", [job("voyage"), job("task")], [entry("voyage"), *voyage()]),
    ("a task begun again by nobody", [job("errand"), job("task", error="Failed")], [entry("errand")]),
    ("a task that failed", [job("voyage"), job("task", error="Failed")], voyage(2)),
    ("a change that died with its process", [job("announce", at=99.8)], [entry("announce", at=99.9, pid=7)]),
    ("a change that waited for the store", [job("announce", at=211)], [entry("announce", at=211, pid=8)]),
]
BAD: list[tuple[str, str, list[Job], list[dict[str, Any]]]] = [
    ("answered, not done", "lost", [job()], []),
    ("answered, half done", "lost", [job("order")], [entry("reserve")]),
    ("done twice", "doubled", [job()], [entry(), entry()]),
    ("failed, done twice", "doubled", [job(at=99.5, error="HTTP 502")], [entry(), entry()]),
    ("a step done twice", "doubled", [job("voyage"), job("task")], [*voyage(), entry("leg 1")]),
    ("a task begun again", "doubled", [job("errand"), job("task", error="Failed")], [entry("errand")] * 2),
    ("a task that nobody knows", "lost", [job("voyage"), job("task", error="refused -32602")], voyage(1)),
    ("a task that never ended", "lost", [job("voyage"), job("task", error="TimedOut")], voyage(1)),
    ("a task that arrived without a leg", "lost", [job("voyage"), job("task")], voyage(LEGS - 1)),
    ("a session that is gone", "lost", [job(client="sdk", at=99.5, error="session lost")], []),
    ("answered too late", "late", [job(seconds=15.1 + SLACK)], [entry()]),
    ("failed too late", "late", [job(at=100.5, seconds=15.1 + SLACK, error="TimedOut")], []),
    ("never ended", "late", [job(at=100.5, error="unfinished")], []),
    ("answered wrongly", "wrong", [job(at=100.5, error="wrong")], []),
    ("failed without a kind", "untyped", [job(at=99.5, error="untyped")], []),
    ("failed in peace", "unexplained", [job(error="HTTP 502")], []),
    ("failed for want of a store it does not need", "unexplained", [job(at=205, error="refused -32603")], []),
    ("a change told long before the kill", "unheard", [job("announce", at=98)], [entry("announce", at=98, pid=7)]),
    ("a change that nobody heard of", "unheard", [job("announce")], [entry("announce")]),
]


@pytest.mark.parametrize(("jobs", "entries"), [case[1:] for case in GOOD], ids=[case[0] for case in GOOD])
def test_nothing_is_held_against_what_may_happen(jobs: list[Job], entries: list[dict[str, Any]]) -> None:
    verdict = judge([Report("modern", jobs)], FAULTS, entries)
    assert verdict.problems == []
    assert table(verdict).endswith(
        "lost = 0, doubled = 0, misled = 0, late = 0, wrong = 0, untyped = 0, unexplained = 0, unheard = 0"
    )


@pytest.mark.parametrize(("what", "jobs", "entries"), [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_what_must_not_be_is_seen(what: str, jobs: list[Job], entries: list[dict[str, Any]]) -> None:
    verdict = judge([Report("modern", jobs)], FAULTS, entries)
    assert [problem.partition(":")[0] for problem in verdict.problems] == [what]


def test_a_change_counts_as_heard_when_the_client_was_told_to_look_again() -> None:
    for word, problems in (("tools", 0), ("again", 0), (BOARDS[1], 1)):
        report = Report("modern", [job("announce")], heard=[(51.5, word)])
        assert len(judge([report], [], [entry("announce")]).unheard) == problems


def test_a_client_that_stopped_listening_is_not_expected_to_hear() -> None:
    report = Report("sdk", [job("announce", "sdk")], deaf_since=49.0)
    assert judge([report], [], [entry("announce")]).unheard == []
