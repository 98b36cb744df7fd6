"""How often the defences speak up about honest servers: their definitions, their example arguments, and ordinary texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.metadata import distributions
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec

from trimaran.host.trust.scan import scan_arguments, scan_text, scan_tool
from trimaran.host.trust.shadowing import scan_names
from trimaran.host.trust.touches import touches_of
from trimaran.types import Tool


class Alarms(NamedTuple):
    defence: str
    looked_at: int
    asks: int
    warns: int
    examples: tuple[str, ...] = ()


def read_tools(file: Path) -> dict[str, list[Tool]]:
    """The tools of a file, by server: `[{"server": NAME, "tools": [...]}, ...]`."""
    entries = json.loads(file.read_text())
    return {
        f"{entry['server']} ({number})": [msgspec.convert(tool, Tool, strict=False) for tool in entry["tools"]]
        for number, entry in enumerate(entries)
    }


def count_alarms(servers: Mapping[str, list[Tool]]) -> Iterator[Alarms]:
    """The false alarms on these servers; each is honest."""
    tools = [(server, tool) for server, listed in servers.items() for tool in listed]
    words = [(f"{server}.{tool.name}", scan_tool(tool)) for server, tool in tools]
    yield _alarms("words of definitions", words)
    catalog = [(server, tool.name) for server, tool in tools]
    names = [
        (
            server,
            list(
                scan_names(
                    server, {tool.name: tool for tool in listed}, [name for name in catalog if name[0] != server]
                )
            ),
        )
        for server, listed in servers.items()
    ]
    yield _alarms("names beside all others", names, len(tools))
    arguments = [(f"{server}.{tool.name}", scan_arguments(_examples(tool))) for server, tool in tools]
    yield _alarms("example arguments", arguments)
    both = [
        server
        for server, listed in servers.items()
        if {"private", "untrusted", "outside"} <= set().union(*(touches_of(tool) for tool in listed))
    ]
    yield Alarms("flow: servers with all three", len(servers), len(both), 0, tuple(both[:5]))


def count_text_alarms() -> Alarms:
    """The false alarms on the descriptions of the installed packages: pages that strangers wrote."""
    texts: dict[str, str] = {}
    for package in distributions():
        metadata: Any = package.metadata  # a message of the email library
        texts[package.name] = str(metadata.get_payload() or metadata.get("Description") or "")
    return _alarms(
        "results: package pages", [(name, scan_text(text, "result")) for name, text in texts.items() if text]
    )


def _alarms(defence: str, items: list[tuple[str, Any]], count: int | None = None) -> Alarms:
    asks = [name for name, findings in items if any(finding.severity == "ask" for finding in findings)]
    warns = [name for name, findings in items if any(finding.severity == "warn" for finding in findings)]
    return Alarms(defence, len(items) if count is None else count, len(asks), len(warns), tuple(asks[:5]))


def _examples(tool: Tool) -> dict[str, object]:
    """The defaults and examples of a tool's arguments."""
    schema = cast("dict[str, Any]", tool.input_schema)
    fields: dict[str, Any] = schema.get("properties") or {}
    return {
        name: [field.get("default"), field.get("examples"), field.get("example")]
        for name, field in fields.items()
        if isinstance(field, dict)
    }
