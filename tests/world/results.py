"""The results of all runs, kept in results.json, and the page that is rendered from them.

A run of some programs replaces their rows and leaves the others alone. `tests/docs` checks that the page is what the
results say.
"""

from __future__ import annotations

import fcntl
import json
import re
import sys
from dataclasses import asdict, dataclass, field
from typing import Any

from .sandbox import HERE, ROOT
from .scenario import CALLS

RESULTS = HERE / "results.json"
PAGE = ROOT / "docs" / "compatibility.md"
KINDS = {
    "agent": "Agents",
    "framework": "Frameworks",
    "bridge": "Bridges",
    "server": "Servers",
}
_INTRODUCTION = """# Compatibility

Programs that nobody here wrote, run against Trimaran by `make world`: agents and frameworks as clients of a Trimaran server, bridges between our client and our server, and real servers under our client. `make world` writes this page. Edit nothing here: the rows come from `tests/world/results.json`.

Every agent and every framework makes the same {calls} calls to one server ([`tests/world/server.py`](../tests/world/server.py)), on each transport. A call counts if its result reaches the model, or the framework's caller, with the words it must have. The agents run headless, with a scripted model in place of their provider's.
"""
_SERVERS = """Each server is started by our client and by the official Python SDK's (mcp 2.3.0, in the better of its two modes), at least twice each, in turn; the best time of each side counts. "Works" means: connects and lists as much as with the official client. The ratio is our time from nothing to ready by the official client's; both include the start of the server, so small ones are noisy. The servers get dummy keys, so some do not start at all, with either client.
"""
_KNOWN = """## Faults of their own

The cause of each is in the program itself, so none counts as a failure above. The run leaves out what would hide the rest.
"""


@dataclass(frozen=True)
class Run:
    """One program on one transport."""

    works: bool
    faults: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    """Reasons of faults that are the program's own (known.toml)."""


@dataclass(frozen=True)
class Row:
    """One program: what was run, when, and what came of it."""

    kind: str
    name: str
    title: str
    package: str
    version: str
    date: str
    runs: dict[str, Run] = field(default_factory=dict)
    skipped: str = ""
    facts: dict[str, Any] = field(default_factory=dict)
    """Of servers: revision, tools, seconds, ratio, note."""

    @property
    def failed(self) -> bool:
        return any(not run.works for run in self.runs.values())


def scrub(text: str) -> str:
    """A text without the folders of this machine, so that the results are the same anywhere."""
    for folder in sorted({str(ROOT), str((ROOT / ".tools").resolve().parent), sys.base_prefix}, key=len, reverse=True):
        text = text.replace(folder, "...")
    return re.sub(r"/tmp/world-\w+", "...", text)  # noqa: S108


def read_results() -> dict[str, Row]:
    text = RESULTS.read_text(encoding="utf-8") if RESULTS.exists() else ""
    rows: dict[str, dict[str, Any]] = json.loads(text or "{}")
    return {
        name: Row(**{**row, "runs": {transport: Run(**run) for transport, run in row["runs"].items()}})
        for name, row in rows.items()
    }


def save(row: Row) -> None:
    """Put one row among the others, and write the page again. Two runs may do so at the same time."""
    with RESULTS.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        write_results({**read_results(), row.name: row})


def write_results(rows: dict[str, Row]) -> None:
    """Write the results and the page."""
    order = list(KINDS)
    ordered = dict(sorted(rows.items(), key=lambda item: (order.index(item[1].kind), item[0])))
    text = json.dumps({name: asdict(row) for name, row in ordered.items()}, indent=1, ensure_ascii=False)
    RESULTS.write_text(text + "\n", encoding="utf-8")
    PAGE.write_text(render(ordered), encoding="utf-8")


def render(rows: dict[str, Row]) -> str:
    """The page."""
    parts = [_INTRODUCTION.format(calls=len(CALLS))]
    for kind, heading in KINDS.items():
        of_kind = [row for row in rows.values() if row.kind == kind]
        if of_kind:
            table = _server_table(of_kind) if kind == "server" else _program_table(of_kind)
            parts.append(f"## {heading}\n\n" + (_SERVERS + "\n" if kind == "server" else "") + table)
    known = sorted({(row.title, reason) for row in rows.values() for run in row.runs.values() for reason in run.known})
    if known:
        lines = [f"| {title} | {_cell(reason)} |" for title, reason in known]
        parts.append(_KNOWN + "\n| program | what |\n|---|---|\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def verdict(run: Run) -> str:
    if not run.works:
        return f"**fails**: {_cell('; '.join(run.faults)[:300])}"
    return "works, but see below" if run.known else "works"


def _program_table(rows: list[Row]) -> str:
    lines = ["| program | package | version | date | result |", "|---|---|---|---|---|"]
    for row in rows:
        result = "; ".join(f"{transport}: {verdict(run)}" for transport, run in row.runs.items())
        result = result or f"skipped: {_cell(row.skipped)}"
        lines.append(f"| {row.title} | `{row.package}` | {row.version} | {row.date} | {result} |")
    return "\n".join(lines) + "\n"


def _server_table(rows: list[Row]) -> str:
    columns = "| server | version | date | revision | tools | result | seconds, ours / official | ratio |"
    lines = [columns, "|---|---|---|---|---|---|---|---|"]
    for row in rows:
        facts = row.facts
        result = "; ".join(verdict(run) for run in row.runs.values()) or f"skipped: {_cell(row.skipped)}"
        if facts.get("official_failure"):
            result = "does not start with dummy keys, with either client"
        note = f" ({facts['note']})" if facts.get("note") else ""
        times = f"{facts['ours_s']:.2f} / {facts['official_s']:.2f}" if "ours_s" in facts else ""
        ratio = f"{facts['ratio']:.2f}" if facts.get("ratio") else ""
        cells = [
            f"`{row.package}`{note}",
            row.version,
            row.date,
            facts.get("revision", ""),
            str(facts.get("tools", "")),
        ]
        lines.append("| " + " | ".join([*cells, result, times, ratio]) + " |")
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
