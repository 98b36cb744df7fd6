"""Tasks by the hundred thousand: making one and looking one up must take what it takes with a thousand of them.

Flat is judged by processor time, of the server or the store and of Redis together: that is what more tasks could cost, and it
can be told apart on a busy machine when times by the clock cannot. Those are in the notes and the JSON.

First a store by itself (`probes/task_store.py`), one operation after the other. Then a server on it: tools/call of a
long-running tool by a client that understands tasks, which makes the task, runs it and writes its result; and tasks/get.
The crowd is there before the measuring begins. A call that makes a task adds it to both, in short rounds: the small store has
four thousand in the end.
"""

import contextlib
import dataclasses
import json
import random
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import contenders as who
import load
import messages
import procs
from databases import Redis, sqlite_folder, sqlite_url
from plan import CONNECTIONS, Live, Plan, rounds, served, unavailable
from procs import exact_cpu_seconds
from report import Section, compare, number

FEW = 1_000
AT_MOST = 1.2
FILL_SECONDS = 600
LABELS = {"memory": "memory", "sqlite": "SQLite", "redis": "Redis"}
EXTENSION = "io.modelcontextprotocol/tasks"
META = {**messages.META, "io.modelcontextprotocol/clientCapabilities": {"extensions": {EXTENSION: {}}}}
MADE = b'"resultType":"task"'
DONE = b'"status":"completed"'
STEPS = {"create": "tools/call as a task", "get": "tasks/get"}
KNOWN = 16
SHORT = 5  # as many rounds more, and shorter ones, for steps of microseconds
PROBE = who.PROBES / "task_store.py"


class Keeper(procs.Conversation):
    """`probes/task_store.py`, as the bench sees it."""

    def __init__(self, url: str) -> None:
        super().__init__([who.OURS.python, PROBE, url])

    def ask(self, step: str, count: int) -> dict[str, Any]:
        self.send(f"{step} {count}\n".encode())
        return json.loads(self.receive(FILL_SECONDS))


class Places:
    """Where stores are: each with many tasks in it once, and new ones with a few."""

    def __init__(self, redis: Redis, folder: Path) -> None:
        self.redis = redis
        self._folder = folder
        self._made = 0

    def store_seconds(self, kind: str) -> float:
        """The processor time of a store that is a process of its own."""
        return self.redis.used_seconds() if kind == "redis" else 0.0

    def new(self, kind: str) -> str:
        self._made += 1
        if kind == "redis":
            return self.redis.url()
        return "memory://" if kind == "memory" else sqlite_url(self._folder / f"tasks{self._made}.db")


def run(plan: Plan) -> Section:
    many = 20_000 if plan.quick else 100_000
    section = Section("tasks", f"Tasks, {many:,} stored against {FEW:,}: processor time of one call")
    with contextlib.ExitStack() as stack:
        places = Places(stack.enter_context(Redis()), stack.enter_context(sqlite_folder()))
        filled = _add_stores(section, plan, places, many)
        _add_servers(section, plan, places, filled, many)
    section.notes.append(
        "Looked up are some hundreds of the tasks, chosen by chance among all, again and again, as clients do."
    )
    section.notes.append(
        "SQLite files lie in memory here (where the system has /dev/shm): on a disk, making a task waits for it, "
        "however many there are."
    )
    return section


# --- by itself -------------------------------------------------------------------------------------------------------


def _add_stores(section: Section, plan: Plan, places: Places, many: int) -> dict[str, tuple[str, list[str]]]:
    """Measure the stores; return the URL of each, filled as it is, and ids of some of its tasks."""
    filled: dict[str, tuple[str, list[str]]] = {}
    measures = {}
    clock: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        for kind in LABELS:
            for count in (FEW, many):
                url = places.new(kind)
                keeper = stack.enter_context(Keeper(url))
                filled[f"{kind} {count}"] = url, keeper.ask("fill", count)["ids"]
                for step in STEPS:
                    key = f"{kind} {step} {count}"
                    clock[key] = []
                    measures[key] = (f"{count:,} stored", _step(keeper, plan, kind, step, clock[key]))
        series = rounds(SHORT * plan.rounds, measures)
    section.series["stores"] = {"cpu_us": series, "us": clock}
    section.rows += [
        compare(
            f"{label} by itself, {step}",
            series[f"{kind} {step} {FEW}"],
            series[f"{kind} {step} {many}"],
            unit="us",
            at_most=None if kind == "memory" else AT_MOST,
        )
        for kind, label in LABELS.items()
        for step in STEPS
    ]
    section.notes.append(
        "A store in memory by itself takes a microsecond or some; there the caches of the processor show, which hold a "
        "thousand tasks and not a hundred thousand. So it has its budget behind a server."
    )
    return filled


def _step(keeper: Keeper, plan: Plan, kind: str, step: str, clock: list[float]) -> Callable[[], float]:
    count = 50 if plan.quick else 150
    if kind == "memory":
        count *= 20 if step == "create" else 100
    keeper.ask(step, count)

    def measure() -> float:
        took = keeper.ask(step, count)
        clock.append(took["us"])
        return took["cpu_us"]

    return measure


# --- behind a server -------------------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Served:
    """A server with tasks in its store, and the ids of some of them."""

    live: Live
    ids: list[str]


def _add_servers(
    section: Section, plan: Plan, places: Places, urls: Mapping[str, tuple[str, list[str]]], many: int
) -> None:
    measures: dict[str, tuple[str, Callable[[], float]]] = {}
    rates: dict[str, list[float]] = {}
    with contextlib.ExitStack() as stack:
        for kind in LABELS:
            for count in (FEW, many):
                server = _started(stack, plan, kind, count, *urls[f"{kind} {count}"])
                for step in STEPS:
                    key = f"{kind} {step} {count}"
                    rates[key] = []
                    measures[key] = (f"{count:,} stored", _cost(server, plan, places, kind, step, rates[key]))
        series = rounds(3 * plan.rounds, measures)
    section.series["servers"] = {"cpu_us": series, "rates": rates}
    section.rows += [
        compare(
            f"server with {label}, {name}",
            series[f"{kind} {step} {FEW}"],
            series[f"{kind} {step} {many}"],
            unit="us",
            at_most=AT_MOST,
        )
        for kind, label in LABELS.items()
        for step, name in STEPS.items()
    ]
    section.notes += [_speeds(kind, rates, many) for kind in LABELS]


def _speeds(kind: str, rates: Mapping[str, list[float]], many: int) -> str:
    """How fast it was by the clock."""

    def middle(step: str, count: int) -> str:
        values = rates[f"{kind} {step} {count}"]
        return number(statistics.median(values)) if values else "?"

    said = [
        f"{name} {middle(step, FEW)} a second with {FEW:,} stored, {middle(step, many)} with {many:,}"
        for step, name in STEPS.items()
    ]
    return f"Server with {LABELS[kind]}, {CONNECTIONS} connections: {'; '.join(said)}."


def _started(stack: contextlib.ExitStack, plan: Plan, kind: str, count: int, url: str, ids: list[str]) -> Served | str:
    try:
        live = stack.enter_context(served(who.FLEET, plan, "--store", url))
        return Served(live, _fill(live.port, count) if kind == "memory" else ids)
    except Exception as error:
        return str(error) or type(error).__name__


def _fill(port: int, count: int) -> list[str]:
    """Make tasks by way of the server, some of them with their ids known: at the beginning, in the middle, at the end."""
    call = _call(port)
    ids: list[str] = []
    for _ in range(2):
        ids += [messages.ask(port, call)["taskId"] for _ in range(KNOWN)]
        load.measure(
            port, [call] * CONNECTIONS, expected=MADE, seconds=FILL_SECONDS, limit=max(1, count // 2 - 2 * KNOWN)
        )
        ids += [messages.ask(port, call)["taskId"] for _ in range(KNOWN)]
    return ids


def _call(port: int) -> messages.Template:
    params = {"name": "job", "arguments": messages.ARGUMENTS, "_meta": META}
    return messages.http_template(port, "tools/call", params, era="modern")


def _look(port: int, id: str) -> messages.Template:
    params = {"taskId": id, "_meta": META}
    return messages.http_template(port, "tasks/get", params, era="modern", more={"Mcp-Name": id})


def _cost(
    server: Served | str, plan: Plan, places: Places, kind: str, step: str, rates: list[float]
) -> Callable[[], float]:
    """Return a function that gives the processor time of one call, of the server and its Redis together."""
    if isinstance(server, str):
        return unavailable(server)
    port, pid = server.live.port, server.live.process.pid
    limit = 60 if plan.quick else 100
    if step == "create":
        templates, expected = [_call(port)] * CONNECTIONS, MADE
    else:
        templates, expected = [_look(port, id) for id in random.choices(server.ids, k=CONNECTIONS)], DONE
        limit *= 3
    load.measure(port, templates, expected=expected, seconds=10, limit=100)  # what a first call needs is loaded

    def measure() -> float:
        used = exact_cpu_seconds(pid) + places.store_seconds(kind)
        outcome = load.measure(port, templates, expected=expected, seconds=60, limit=limit)
        rates.append(outcome.rate)
        return (exact_cpu_seconds(pid) + places.store_seconds(kind) - used) / outcome.sent * 1e6

    return measure
