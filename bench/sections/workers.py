"""Two workers against one: does a second process give what a second core can?

On two cores the load generator must not be what is measured: it needs a part of a core itself. So the tool works for a third
to half of a millisecond, the generator's own share is shown beside, and so is what it leaves to be had at best. The other
honest figure is processor time per call: a second worker must not make a call dearer.

Two workers cannot show what they do while others use the cores, so with much of that the ratio is shown and not judged.
"""

import contextlib
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import contenders as who
import load
import messages
from databases import Redis
from messages import Era
from plan import CONNECTIONS, Live, Plan, rounds, served, unavailable
from procs import BUSY, Neighbours, UnavailableError, exact_cpu_seconds
from report import Section, Series, compare

WORKERS = 2
FOUND_SECONDS = 20


@dataclass
class Account:
    """Where the processor time went, a value per round."""

    server_us: list[float] = field(default_factory=list)
    """Per call: the server's, all its processes together."""
    load_us: list[float] = field(default_factory=list)
    """Per call: the load generator's."""
    others: list[float] = field(default_factory=list)
    """Of the machine: everybody else's part."""


def run(plan: Plan) -> Section:
    section = Section("workers", f"HTTP tools/call, {WORKERS} workers against 1, {CONNECTIONS} connections")
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(Redis())
        modern = {count: _started(stack, plan, count) for count in (1, WORKERS)}
        legacy = {count: _started(stack, plan, count, redis.url()) for count in (1, WORKERS)}
        accounts: dict[str, Account] = {}
        measures = {}
        cases: tuple[tuple[str, dict[int, Live | str], str, Era], ...] = (
            ("modern", modern, "work", "modern"),
            ("legacy", legacy, "work", "legacy"),
            ("nothing", modern, "add", "modern"),
        )
        for case, servers, tool, era in cases:
            for count, live in servers.items():
                key = f"{case} {count}"
                accounts[key] = Account()
                label = f"{count} worker" + ("s" if count > 1 else "")
                measures[key] = (label, _call_rate(live, plan, tool, era, accounts[key], redis.pid))
        series = rounds(plan.rounds, measures)
    costs = {key: Series(series[key].label, one.server_us, series[key].failure) for key, one in accounts.items()}
    two = f" {WORKERS}"
    section.rows += [
        compare("tool that works, modern", series["modern 1"], series["modern" + two], unit="req/s", at_least=1.6),
        compare(
            "tool that works, legacy, sessions in Redis",
            series["legacy 1"],
            series["legacy" + two],
            unit="req/s",
            at_least=1.6,
        ),
        compare("server processor time per call, modern", costs["modern 1"], costs["modern" + two], unit="us"),
        compare("server processor time per call, legacy", costs["legacy 1"], costs["legacy" + two], unit="us"),
        compare("tool that does nothing, modern", series["nothing 1"], series["nothing" + two], unit="req/s"),
        compare("its server processor time per call", costs["nothing 1"], costs["nothing" + two], unit="us"),
    ]
    for row, case in zip(section.rows, ("modern", "legacy"), strict=False):
        if _foreign(accounts[case + two]) > BUSY:
            row.ok = None
            section.notes.append(f"Not judged: {row.what}. The machine was busy with other things; run it again.")
    section.notes.append(
        f"What it means: with {os.cpu_count()} cores for the workers, the load generator and all else, so much more is "
        "served by two processes than by one, on one port that the kernel divides among them. A tool that does nothing is "
        "the generator's case as much as the server's: no budget."
    )
    section.notes += [_explained(case, accounts[case + two]) for case in ("modern", "legacy", "nothing")]
    section.series = {
        "rates": series,
        "server_us": costs,
        "load_us": {key: one.load_us for key, one in accounts.items()},
        "others": {key: one.others for key, one in accounts.items()},
    }
    return section


def _foreign(account: Account) -> float:
    return statistics.median(account.others) if account.others else 0.0


def _explained(case: str, account: Account) -> str:
    if not account.server_us:
        return f"{case}: nothing was measured."
    server, generator = statistics.median(account.server_us), statistics.median(account.load_us)
    cores = os.cpu_count() or 1
    best = min(WORKERS, cores * server / (server + generator))
    return (
        f"{case}, {WORKERS} workers: {server:.0f} us of server and {generator:.0f} us of load generator per call, so that "
        f"{cores} cores can give {best:.2g}x of one worker at best; other processes took {_foreign(account):.0%} of the machine."
    )


def _started(stack: contextlib.ExitStack, plan: Plan, count: int, store: str | None = None) -> Live | str:
    extra = ["--workers", str(count), *(["--store", store] if store else [])]
    try:
        live = stack.enter_context(served(who.FLEET, plan, *extra))
        _wait_for_all(live.port, count)
    except UnavailableError as error:
        return str(error)
    return live


def _wait_for_all(port: int, count: int) -> None:
    """Wait until every worker has answered once: the port is open as soon as one of them is there."""
    template = messages.http_template(port, "tools/call", {"name": "where", "arguments": {}}, era="modern")
    deadline = time.monotonic() + FOUND_SECONDS
    seen: set[int] = set()
    while len(seen) < count:
        if time.monotonic() > deadline:
            raise UnavailableError(f"only {len(seen)} of {count} workers answer")
        seen.add(int(messages.ask(port, template)["content"][0]["text"]))


def _call_rate(live: Live | str, plan: Plan, tool: str, era: Era, account: Account, *also: int) -> Callable[[], float]:
    """`also` are processes that work for it."""
    if isinstance(live, str):
        return unavailable(live)
    try:
        templates = load.call_templates(live.port, tool, era, CONNECTIONS)
        load.measure(live.port, templates, seconds=0.3)
    except Exception as error:
        return unavailable(str(error) or type(error).__name__)

    def measure() -> float:
        neighbours = Neighbours(live.process.pid, *also)
        server, generator = exact_cpu_seconds(live.process.pid), time.process_time()
        outcome = load.measure(live.port, templates, seconds=plan.seconds)
        account.load_us.append((time.process_time() - generator) / outcome.sent * 1e6)
        account.server_us.append((exact_cpu_seconds(live.process.pid) - server) / outcome.sent * 1e6)
        account.others.append(neighbours.share())
        return outcome.rate

    return measure
