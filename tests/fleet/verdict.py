"""What the storm did: the clients' reports held against the ledger, as a table and as a list of what must not be.

- *lost*: a call was answered, and what it did is not in the ledger; a task, or a session, that nobody knows any more; a
  change that was announced and that a listening client was never told of.
- *doubled*: the ledger has the same thing twice. A call that failed may be there or not: nobody can know; but not twice, since
  neither the clients nor nginx send a call again that may have been read.
- *misled*: somebody who waited for a task was told something else than what came of it.
- *late*: a call that ended after its deadline, however it ended.
- *untyped*: a call that failed, and its error does not say what kind of failure it was.
- *unexplained*: a call that failed while nothing was being done to the fleet, or that failed for want of the store although it
  needs none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from .jobs import TASKS, Job, Report
from .rig import Fault

# What a kind of call leaves in the ledger, each once.
LEAVES = {"record": ("record",), "slow": ("slow",), "order": ("reserve", "order")}
LEAVES |= {"announce": ("announce",), "post": ("post",)}
LEGS = 5
# And a task, if it came to a good end.
ARRIVED = {"errand": ["errand", "errand done"], "voyage": [f"leg {leg}" for leg in range(1, LEGS + 1)]}
PATIENCE = {
    "kill": 0.5,
    "term": 0.5,
    "roll": 0.5,
    "orphan": 0.5,
    "child": 0.5,
    "upstream": 0.5,
    "redis": 5.0,
    "cut": 5.0,
}
"""Seconds after a fault is over in which calls may still fail for it: the store is tried again with a growing pause."""
OUTAGES = ("redis", "cut")
"""Faults of the store. All others befall a process."""
HEARING = 30.0
"""Seconds within which a change must have been heard: the SDK comes back for a broken stream after one."""
RELISTENING = 30.0
"""The same after the store was away: a client that could not listen for want of it comes back with growing pauses."""


KINDS = ("lost", "doubled", "misled", "late", "wrong", "untyped", "unexplained", "unheard")


@dataclass
class Verdict:
    reports: list[Report]
    faults: list[Fault]
    entries: list[dict[str, Any]]
    lost: list[str] = field(default_factory=list[str])
    doubled: list[str] = field(default_factory=list[str])
    misled: list[str] = field(default_factory=list[str])
    late: list[str] = field(default_factory=list[str])
    wrong: list[str] = field(default_factory=list[str])
    untyped: list[str] = field(default_factory=list[str])
    unexplained: list[str] = field(default_factory=list[str])
    unheard: list[str] = field(default_factory=list[str])

    @property
    def jobs(self) -> list[Job]:
        return [job for report in self.reports for job in report.jobs]

    @property
    def calls(self) -> int:
        return sum(job.kind != "task" for job in self.jobs)

    @property
    def problems(self) -> list[str]:
        return [f"{kind}: {what}" for kind in KINDS for what in getattr(self, kind)]

    @property
    def failures(self) -> list[str]:
        """Every call that failed, rightly or not."""
        start = min((job.began for job in self.jobs), default=0.0)
        return [
            f"failed: {job.client} {job.kind} {job.key} at {job.began - start:.1f} s, after {job.seconds:.1f} s: {job.detail}"
            for job in self.jobs
            if job.error is not None
        ]

    @property
    def kills(self) -> int:
        return sum(fault.what == "kill" for fault in self.faults)


def judge(reports: list[Report], faults: list[Fault], entries: list[dict[str, Any]]) -> Verdict:
    verdict = Verdict(reports, faults, entries)
    ledger = Counter((entry["kind"], entry["key"]) for entry in entries)
    _tasks(verdict, ledger)
    for (kind, key), times in ledger.items():
        # A body that is resumed begins again, up to the steps it has done: only those count.
        if times > 1 and kind != "voyage":
            verdict.doubled.append(f"{kind} {key}: {times} times")
    for report in reports:
        for job in report.jobs:
            _one(verdict, job, ledger)
        _hearing(verdict, report)
        verdict.lost += [f"a session of {report.client}: {why}" for why in report.sessions]
    return verdict


def _one(verdict: Verdict, job: Job, ledger: Counter[tuple[str, str]]) -> None:
    words = f"{job.kind} {job.key}: {job.detail} ({job.seconds:.1f} s)"
    if job.is_late or job.error == "unfinished":
        verdict.late.append(words)
    if job.error == "wrong":
        verdict.wrong.append(words)
    elif job.error == "session lost":
        verdict.lost.append(words)
    elif job.error is not None:
        if job.error == "untyped":
            verdict.untyped.append(words)
        if job.kind != "task" and not _is_explained(job, verdict.faults):
            verdict.unexplained.append(words)
    elif missing := [kind for kind in LEAVES.get(job.kind, ()) if not ledger[kind, job.key]]:
        verdict.lost.append(f"{words}: answered, but the ledger has no {missing[0]}")


def _is_explained(job: Job, faults: Iterable[Fault]) -> bool:
    # A gateway finds the process that waits for the answer to an older server's question by way of the store.
    needs_store = job.client != "modern" or job.kind in TASKS or (job.kind == "order" and job.server.startswith("old"))
    return any(
        job.began <= fault.ended + PATIENCE[fault.what] and job.ended >= fault.began
        for fault in faults
        if fault.what not in OUTAGES or needs_store
    )


def _tasks(verdict: Verdict, ledger: Counter[tuple[str, str]]) -> None:
    """Each task that was acknowledged came to an end, and all it did is there if that was a good one."""
    for report in verdict.reports:
        followed = {job.key: job for job in report.jobs if job.kind == "task"}
        for job in report.jobs:
            if job.kind not in TASKS or job.error is not None:
                continue
            missing = [kind for kind in ARRIVED[job.kind] if not ledger[kind, job.key]]
            end = followed.get(job.key, job)
            if end.error is None and missing:
                verdict.lost.append(f"{job.kind} {job.key}: completed, and the ledger has no {missing[0]}")
            elif end.error == "Misled":
                verdict.misled.append(f"{job.kind} {job.key}: {end.detail}")
            elif end.error not in (None, "Failed", "wrong"):
                verdict.lost.append(f"task {job.key}: {end.detail}")


def _hearing(verdict: Verdict, report: Report) -> None:
    """Every change that anybody announced was heard, if there was somebody to hear it and somebody left to tell it."""
    by_key = {entry["key"]: entry for entry in verdict.entries if entry["kind"] in ("announce", "post")}
    for job in verdict.jobs:
        if job.change is None or job.error is not None or job.key not in by_key:
            continue
        outages = (fault for fault in verdict.faults if fault.what in OUTAGES and fault.ended > job.began - RELISTENING)
        until = job.ended + HEARING + sum(fault.seconds + RELISTENING for fault in outages)
        if report.deaf_since is not None and report.deaf_since < until:
            continue
        if _may_be_untold(by_key[job.key], verdict.faults):
            continue
        wanted = (job.change, "again")
        if not any(job.began <= at <= until and what in wanted for at, what in report.heard):
            verdict.unheard.append(f"{report.client} did not hear of {job.kind} {job.key}")


def _may_be_untold(entry: dict[str, Any], faults: Iterable[Fault]) -> bool:
    """A change is told after the call is answered, and when the store can take it: it goes with a process killed before."""
    until = entry["at"] + 0.5
    for fault in faults:
        over = fault.ended + PATIENCE[fault.what]
        if fault.what in OUTAGES and fault.began - 1 <= entry["at"] <= over:
            until = max(until, over)
    kills = (fault for fault in faults if fault.what == "kill" and fault.pid == entry["pid"])
    return any(entry["at"] <= kill.began <= until for kill in kills)


NAMES = {
    "kill": "kills",
    "term": "SIGTERMs",
    "roll": "rolling restarts",
    "orphan": "kills of a supervisor",
    "child": "kills of a child",
    "upstream": "kills of a server behind the gateways",
    "redis": "restarts of Redis",
    "cut": "cuts of the network",
}


# --- the table -------------------------------------------------------------------------------------------------------


def table(verdict: Verdict) -> str:
    rows: list[tuple[str, ...]] = [("client", "calls", "answered", "errors", "p50 ms", "p99 ms", "max ms")]
    for report in verdict.reports:
        jobs = [job for job in report.jobs if job.kind != "task"]
        rows.append((report.client, *_figures(jobs)))
    rows.append(("all", *_figures([job for job in verdict.jobs if job.kind != "task"])))
    lines = _aligned(rows)
    errors = Counter(
        f"{job.client} {job.kind} {job.error}" for job in verdict.jobs if job.error is not None and job.kind != "task"
    )
    lines.append("errors by kind: " + (", ".join(f"{k} {n}" for k, n in errors.most_common()) or "none"))
    tasks = [job for job in verdict.jobs if job.kind == "task"]
    begun = Counter(entry["key"] for entry in verdict.entries if entry["kind"] == "voyage")
    resumed = sum(begun[job.key] > 1 for job in tasks)
    ends = Counter("completed" if job.error is None else job.error for job in tasks)
    said = ", ".join(f"{k.lower()} {n}" for k, n in ends.most_common())
    lines.append(f"tasks: {len(tasks)} ({said or 'none'}), resumed by another process {resumed}")
    for what, name in NAMES.items():
        found = sorted(fault.seconds for fault in verdict.faults if fault.what == what)
        if found:
            lines.append(f"{name}: {len(found)}, back after {found[len(found) // 2]:.2f} s (most {found[-1]:.2f} s)")
    lines.append(", ".join(f"{kind} = {len(getattr(verdict, kind))}" for kind in KINDS))
    return "\n".join(lines)


def _figures(jobs: list[Job]) -> tuple[str, ...]:
    good = sorted(job.seconds for job in jobs if job.error is None)
    errors = len(jobs) - len(good)
    if not good:
        return str(len(jobs)), "0", str(errors), "-", "-", "-"
    spots = (good[len(good) // 2], good[min(len(good) - 1, len(good) * 99 // 100)], max(job.seconds for job in jobs))
    return str(len(jobs)), str(len(good)), str(errors), *(f"{1000 * spot:.0f}" for spot in spots)


def _aligned(rows: list[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
