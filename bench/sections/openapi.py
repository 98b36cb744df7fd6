"""OpenAPI documents as servers: which load, how many schemas are valid, bytes and processor time, against FastMCP."""

import contextlib
import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import contenders as who
import jsonschema_rs
from plan import Plan
from procs import Conversation, UnavailableError
from report import Row, Section, Series, compare

from trimaran.format import lint

DOCUMENTS = 200
PATIENCE = 300
PROVIDERS = ("anthropic", "openai", "gemini")
WARM_UP = {
    "openapi": "3.0.0",
    "info": {"title": "t", "version": "1"},
    "paths": {"/a": {"get": {"responses": {"200": {"description": "ok"}}}}},
}


@dataclass
class Totals:
    """What one library made of all documents."""

    label: str
    seconds: Series = field(init=False)
    failures: list[str] = field(default_factory=list[str])
    tools: int = 0
    schemas: int = 0
    schema_bytes: int = 0
    description_bytes: int = 0
    invalid: list[str] = field(default_factory=list[str])
    refused: list[str] = field(default_factory=list[str])

    def __post_init__(self) -> None:
        self.seconds = Series(self.label)

    def count(self, document: str, tools: Sequence[dict[str, Any]]) -> None:
        for tool in tools:
            self.tools += 1
            self.description_bytes += len((tool.get("description") or "").encode())
            for key in ("inputSchema", "outputSchema"):
                if key in tool:
                    self.schemas += 1
                    self.schema_bytes += len(json.dumps(tool[key], separators=(",", ":"), ensure_ascii=False).encode())
                    if not is_valid(tool[key]):
                        self.invalid.append(f"{document}: {tool['name']}.{key}")
            if not tool["name"]:
                self.refused += [f"{document}: {provider}: a tool without a name" for provider in PROVIDERS]
                continue
            definition = {"name": tool["name"], "description": "", "inputSchema": tool["inputSchema"]}
            for provider in PROVIDERS:
                self.refused += [
                    f"{document}: {tool['name']}: {provider}: {finding}"
                    for finding in lint([definition], provider)
                    if finding.weight == "refused"
                ]

    @property
    def size(self) -> Series:
        return Series(self.label, [(self.schema_bytes + self.description_bytes) / 1e6])


def is_valid(schema: Any) -> bool:
    """Whether it is JSON Schema 2020-12, with references that lead somewhere."""
    try:
        jsonschema_rs.Draft202012Validator(schema)
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError):
        return False
    return True


def run(plan: Plan) -> Section:
    section = Section("openapi", "OpenAPI documents as servers")
    if plan.openapi is None:
        section.rows.append(Row("OpenAPI documents", "-", "not measured: --openapi FOLDER names the documents"))
        return section
    paths = choose(plan.openapi, DOCUMENTS // 4 if plan.quick else DOCUMENTS)
    ours, rival = Totals("trimaran"), Totals("FastMCP")
    measure(paths, [(ours, who.OURS), (rival, who.FASTMCP)], 1 if plan.quick else 3)
    section.rows += [
        _bounded("documents that do not load", rival.failures, ours.failures, len(paths)),
        Row(
            "tools made",
            f"FastMCP: {rival.tools:,}",
            f"{ours.tools:,}",
            budget=">= FastMCP",
            ok=ours.tools >= rival.tools,
        ),
        _bounded("schemas that are not JSON Schema 2020-12", rival.invalid, ours.invalid, ours.schemas),
        _bounded(f"schemas that {', '.join(PROVIDERS)} refuse", rival.refused, ours.refused, ours.tools),
        compare("descriptions and schemas", rival.size, ours.size, unit="MB", at_most=0.334),
        compare("processor time from file to list", rival.seconds, ours.seconds, unit="s", at_most=0.2),
    ]
    section.notes = [
        f"{len(paths)} documents, evenly from those below `{plan.openapi}`, sorted by path",
        f"schemas alone: {ours.schema_bytes / 1e6:.1f} MB, FastMCP {rival.schema_bytes / 1e6:.1f} MB",
    ]
    section.series = {one.label: one for one in (ours, rival)}
    return section


def choose(folder: Path, count: int) -> list[Path]:
    """`count` documents, evenly from all that are below the folder."""
    paths = sorted(path for path in folder.rglob("*") if path.suffix in (".json", ".yaml", ".yml"))
    return [paths[number * len(paths) // count] for number in range(min(count, len(paths)))]


def measure(paths: Sequence[Path], libraries: Sequence[tuple[Totals, who.Contender]], rounds: int) -> None:
    """Give each document to each library in turn; the first round is also counted and checked."""
    for turn in range(rounds):
        with contextlib.ExitStack() as stack:
            children: list[tuple[Totals, Conversation]] = []
            for totals, contender in libraries:
                try:
                    contender.check()
                except UnavailableError as error:
                    totals.seconds.failure = str(error)
                    continue
                command = [contender.python, who.PROBES / f"openapi_{contender.label.lower()}.py"]
                children.append((totals, stack.enter_context(Conversation(command, env=contender.environment()))))
            _one_round(paths, children, is_counted=turn == 0)


def _one_round(paths: Sequence[Path], children: Sequence[tuple[Totals, Conversation]], *, is_counted: bool) -> None:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as warm_up:
        json.dump(WARM_UP, warm_up)
        warm_up.flush()
        for _, child in children:
            _ask(child, Path(warm_up.name))
    seconds = dict.fromkeys((totals.label for totals, _ in children), 0.0)
    for path in paths:
        for totals, child in children:
            answer = _ask(child, path)
            if "error" not in answer:
                seconds[totals.label] += answer["seconds"]
            elif is_counted:
                totals.failures.append(f"{path.name}: {answer['error']}")
            if is_counted:
                totals.count(path.name, answer.get("tools", ()))
    for totals, _ in children:
        totals.seconds.values.append(seconds[totals.label])


def _ask(child: Conversation, path: Path) -> dict[str, Any]:
    child.send(f"{path}\n".encode())
    return json.loads(child.receive(PATIENCE))


def _bounded(what: str, rival: Sequence[str], ours: Sequence[str], total: int) -> Row:
    return Row(what, f"FastMCP: {len(rival)}", f"{len(ours)} of {total:,}", budget="0", ok=not ours)
