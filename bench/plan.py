"""How long and how often to measure, and the rounds themselves.

Rounds are interleaved, A B C A B C: whatever else the machine does meets every contender alike.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import load
import messages
from contenders import Contender
from procs import Process, UnavailableError, cpu_seconds, free_port, running
from report import Series

CONNECTIONS = 16


@dataclass(frozen=True)
class Plan:
    quick: bool = False
    pin: bool = False
    """Servers on core 0, load on core 1. Off by default: one core halves a server that has threads of its own."""
    streams: int = 10_000
    closing_streams: int = 1_000
    openapi: Path | None = None
    """A folder of OpenAPI documents."""
    search_data: Path | None = None
    """A folder with livemcpbench-tools.json and livemcpbench-tasks.json."""
    catalogs: Path | None = None
    """A folder of definitions of real servers."""

    @property
    def rounds(self) -> int:
        return 4 if self.quick else 9

    @property
    def seconds(self) -> float:
        """Seconds of load per contender and round: many short rounds beat few long ones on a machine with neighbours."""
        return 0.6 if self.quick else 1.2

    @property
    def spawns(self) -> int:
        return 3 if self.quick else 7

    @property
    def imports(self) -> int:
        return 3 if self.quick else 9

    @property
    def server_cores(self) -> set[int] | None:
        return {0} if self.pin else None


@dataclass(frozen=True)
class Live:
    """A contender's running server."""

    process: Process
    port: int


@contextlib.contextmanager
def served(contender: Contender, plan: Plan, *extra: str) -> Iterator[Live]:
    port = free_port()
    command = contender.command("--port", str(port), *extra)
    with running(command, port, env=contender.environment(), cores=plan.server_cores) as process:
        yield Live(process, port)


@contextlib.contextmanager
def serve_all(contenders: Sequence[Contender], plan: Plan, *extra: str) -> Iterator[dict[str, Live | str]]:
    """Start every contender's server; one that does not start is represented by the reason."""
    live: dict[str, Live | str] = {}
    with contextlib.ExitStack() as stack:
        for contender in contenders:
            try:
                live[contender.key] = stack.enter_context(served(contender, plan, *extra))
            except UnavailableError as error:
                live[contender.key] = str(error)
        yield live


def rounds(count: int, measures: Mapping[str, tuple[str, Callable[[], float]]]) -> dict[str, Series]:
    """Measure key -> (label, function) in interleaved rounds; a contender that fails once is not tried again.

    Each round begins with another contender, so that nobody always follows the same neighbour's cooling down.
    """
    series = {key: Series(label) for key, (label, _) in measures.items()}
    keys = list(measures)
    for turn in range(count):
        first = turn % len(keys)
        for key in keys[first:] + keys[:first]:
            if series[key].failure is None:
                try:
                    series[key].values.append(measures[key][1]())
                except Exception as error:
                    series[key].failure = str(error).replace("\n", " ")[:200] or type(error).__name__
    return series


def unavailable(reason: str) -> Callable[[], float]:
    def measure() -> float:
        raise UnavailableError(reason)

    return measure


def call_rate(
    live: Live | str,
    plan: Plan,
    tool: str,
    era: messages.Era,
    costs: list[float] | None = None,
    more: Mapping[str, str] | None = None,
    tls: bool = False,
    behind: Live | None = None,
    costs_behind: list[float] | None = None,
) -> Callable[[], float]:
    """Return a function that loads the server for one slice and returns answers per second; warms it up here.

    `costs` collects, per slice, the server's processor time per answer in microseconds, `costs_behind` that of the server
    `behind` it; `more` headers go with each call.
    """
    if isinstance(live, str):
        return unavailable(live)
    try:
        templates = load.call_templates(live.port, tool, era, CONNECTIONS, more)
        load.measure(live.port, templates, seconds=0.3, tls=tls)
    except Exception as error:
        return unavailable(str(error) or type(error).__name__)

    def measure() -> float:
        before = cpu_seconds(live.process.pid)
        before_behind = 0.0 if behind is None else cpu_seconds(behind.process.pid)
        outcome = load.measure(live.port, templates, seconds=plan.seconds, tls=tls)
        if costs is not None:
            costs.append((cpu_seconds(live.process.pid) - before) / outcome.answers * 1e6)
        if costs_behind is not None and behind is not None:
            costs_behind.append((cpu_seconds(behind.process.pid) - before_behind) / outcome.answers * 1e6)
        return outcome.rate

    return measure
