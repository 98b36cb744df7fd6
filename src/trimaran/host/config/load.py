"""Read `mcp.toml` of the user, then of the project, and put one over the other (R225, R226).

A `[server.X]` of the project replaces the user's X as a whole, be it good or failed. Bad TOML, a bad name and rules that
cannot be read stop the load: what was meant is not known then, and a rule that was dropped would allow more than was
said. Any other mistake concerns one server, which is marked failed while the others work.

`read_config` is pure; `load_config` reads the files. An `.mcp.json`, the file that many programs share, is translated first.
"""

from __future__ import annotations

import difflib
import hashlib
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePath
from typing import Any, Final, NoReturn, cast

from ..names import name_problem
from .entry import read_entry, read_pin_mode, read_rules
from .files import read_text
from .machine import Machine
from .model import (
    ConfigUnusable,
    ContextEntry,
    FailedEntry,
    HostConfig,
    Level,
    PinMode,
    Problem,
    ProblemKind,
    RuleEntry,
    ServerEntry,
    Source,
    TrustEntry,
)
from .tomltext import Path as KeyPath
from .tomltext import key_text, lines_of, read_toml
from .trust_entry import read_trust

log: Final = logging.getLogger("trimaran.host")

_TOP: Final = ("server", "permissions", "pins", "trust", "context")
# Tables that applications read by themselves: `trimaran gateway`.
_APPLICATIONS: Final = ("gateway", "view")
# The keys of servers in other programs' files.
_MISNOMERS: Final = frozenset({"servers", "mcpServers", "mcp_servers", "mcp", "context_servers", "mcp-servers"})


def load_config(
    path: str | os.PathLike[str] | None = None, *, machine: Machine | None = None, nearby: bool = False
) -> HostConfig:
    """The configuration of this user and this workspace; with a path, of that file alone.

    Args:
        nearby: Where the project has no `.trimaran/mcp.toml`, take the `mcp.toml` or `.mcp.json` in the workspace. Only for
            hosts that ask whether the file is trusted: such files come with any repository.

    Raises:
        ConfigUnusable: a file cannot be read, is no TOML, names a server in a way that is not allowed, or has
            permission rules that cannot be read; names file, line and key.
    """
    machine = Machine.here() if machine is None else machine
    if path is not None:
        file = Path(path).expanduser()
        text = read_text(file)
        if text is None:
            raise ConfigUnusable(Problem(str(file), "there is no such file", kind="io"))
        return read_config([(Source(str(file), "file"), _as_toml(text, file, machine))], machine)
    texts: list[tuple[Source, str]] = []
    places: dict[Level, tuple[PurePath, ...]] = {
        "user": (machine.user_file,),
        "project": machine.project_files if nearby else (machine.project_file,),
    }
    for level, candidates in places.items():
        for place in candidates:
            text = read_text(place)
            if text is not None:
                texts.append((Source(str(place), level), _as_toml(text, place, machine)))
                break
    return read_config(texts, machine)


def _as_toml(text: str, place: PurePath, machine: Machine) -> str:
    """The text of an `mcp.toml` with the same content as this file."""
    if place.suffix != ".json":
        return text
    from .clients import CLIENTS
    from .transfer import import_servers, write_servers

    imported = import_servers(CLIENTS["mcp-json"], text, str(place), machine)
    for name, reason in imported.skipped.items():
        log.warning("%s:%d: the server %r is left out: %s", place, imported.lines[name], name, reason)
    return write_servers(imported.tables)


def read_config(texts: Sequence[tuple[Source, str]], machine: Machine) -> HostConfig:
    """The configuration that these files make, the weakest first."""
    read: dict[str, ServerEntry | FailedEntry] = {}
    replaced: dict[str, ServerEntry | FailedEntry] = {}
    rules: list[RuleEntry] = []
    contexts: list[ContextEntry] = []
    problems: list[Problem] = []
    applications: dict[str, Any] = {}
    places: dict[str, str] = {}
    for source, text in texts:
        whole = read_toml(text, source.file)
        # The lines of a translation mean nothing.
        lines = {} if source.file.endswith(".json") else lines_of(text)
        lines_by_server = _by_server(lines)
        problems += _unknown(whole, source, lines)
        rules = [*_global_rules(whole, source, lines), *rules]
        pins = _pin_mode(whole, source, lines)
        trust = _trust(whole, source, lines)
        if (context := _context(whole, source, lines, problems)) is not None:
            contexts.insert(0, context)
        own = {key: whole[key] for key in _APPLICATIONS if key in whole}
        applications |= own
        places = {key: place for key, place in places.items() if key.partition(".")[0] not in own}
        places |= {".".join(path): f"{source.file}:{line}" for path, line in lines.items() if path[0] in own}
        for name, table in _servers(whole, source, lines).items():
            if name in read:
                replaced[name] = read[name]
            read[name] = read_entry(name, table, source, machine, lines_by_server.get(name, {}), pins, trust)
    return HostConfig(
        sources=tuple(source for source, _ in texts),
        digests={
            source.file: hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest() for source, text in texts
        },
        servers={name: entry for name, entry in read.items() if isinstance(entry, ServerEntry)},
        failed={name: entry for name, entry in read.items() if isinstance(entry, FailedEntry)},
        replaced=replaced,
        rules=tuple(rules),
        contexts=tuple(contexts),
        problems=tuple(problems),
        applications=applications,
        application_places=places,
    )


def _servers(whole: Mapping[str, Any], source: Source, lines: Mapping[KeyPath, int]) -> dict[str, Any]:
    servers: Any = whole.get("server", {})
    if not isinstance(servers, Mapping):
        _stop(source, "server", lines.get(("server",)), "tables are expected, [server.NAME], one for each server")
    named = cast("Mapping[str, Any]", servers)
    for name in named:
        if wrong := name_problem(name):
            _stop(source, f"server.{key_text(name)}", lines.get(("server", name)), wrong, "invalid_server_name")
    if "command" in named and not isinstance(named["command"], Mapping):
        _stop(
            source,
            "server",
            lines.get(("server",)),
            "the server has no name: write [server.NAME], not [server]",
            "invalid_server_name",
        )
    return dict(named)


def _global_rules(whole: Mapping[str, Any], source: Source, lines: Mapping[KeyPath, int]) -> tuple[RuleEntry, ...]:
    table: Any = whole.get("permissions", {})
    if not isinstance(table, Mapping):
        line = lines.get(("permissions",))
        _stop(
            source, "permissions", line, "a table is expected, [permissions], with allow, deny and ask", "invalid_rule"
        )

    def line_of(key: str) -> int | None:
        return lines.get(tuple(key.partition("[")[0].split(".")[:2]), lines.get(("permissions",)))

    def complain(key: str, message: str) -> None:
        _stop(source, key, line_of(key), message, "invalid_rule")

    return read_rules(cast("Mapping[str, Any]", table), source, complain, line_of)


def _pin_mode(whole: Mapping[str, Any], source: Source, lines: Mapping[KeyPath, int]) -> PinMode | None:
    """The file's setting for the pins of its own servers: a project's file does not loosen the user's."""
    if "pins" not in whole:
        return None
    try:
        return read_pin_mode(whole["pins"])
    except ValueError as error:
        _stop(source, "pins", lines.get(("pins",)), str(error), "invalid_value")


def _trust(whole: Mapping[str, Any], source: Source, lines: Mapping[KeyPath, int]) -> TrustEntry:
    """The file's settings for the words and the data of its own servers."""

    def complain(key: str, message: str) -> None:
        path = ("trust", key) if key else ("trust",)
        _stop(source, ".".join(path), lines.get(path, lines.get(("trust",))), message, "invalid_value")

    return read_trust(whole.get("trust", {}), TrustEntry(), complain)


def _context(
    whole: Mapping[str, Any], source: Source, lines: Mapping[KeyPath, int], problems: list[Problem]
) -> ContextEntry | None:
    """The table `[context]`. A mistake in it is noted, and costs the budget alone."""
    table: Any = whole.get("context")
    if table is None:
        return None
    if not isinstance(table, Mapping):
        message = "a table is expected, [context], with budget"
        problems.append(Problem(source.file, message, "context", lines.get(("context",))))
        return None
    budget: int | None = None
    for key, value in cast("Mapping[str, Any]", table).items():
        at = lines.get(("context", key), lines.get(("context",)))
        if key != "budget":
            message = "this key is not known; known is budget"
            problems.append(Problem(source.file, message, f"context.{key}", at, "unknown_key"))
        elif not isinstance(value, int) or isinstance(value, bool) or value < 1:
            message = "a number of tokens is expected, 1 or more: budget = 8000"
            problems.append(Problem(source.file, message, "context.budget", at))
        else:
            budget = value
    return ContextEntry(budget=budget, source=source)


def _unknown(whole: Mapping[str, Any], source: Source, lines: Mapping[KeyPath, int]) -> list[Problem]:
    problems: list[Problem] = []
    for key in whole:
        if key in _TOP or key in _APPLICATIONS:
            continue
        near = difflib.get_close_matches(key, (*_TOP, *_APPLICATIONS), n=1)
        if key in _MISNOMERS:
            hint = "servers are written as [server.NAME] here"
        else:
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join((*_TOP, *_APPLICATIONS))}"
        message = f"this key is not known, and ignored; {hint}"
        problems.append(Problem(source.file, message, key, lines.get((key,)), "unknown_key"))
    return problems


def _by_server(lines: Mapping[KeyPath, int]) -> dict[str, dict[str, int]]:
    """The lines of what is below each server, by the dotted rest."""
    servers: dict[str, dict[str, int]] = {}
    for key, line in lines.items():
        if len(key) > 1 and key[0] == "server":
            servers.setdefault(key[1], {})[".".join(key[2:])] = line
    return servers


def _stop(source: Source, key: str, line: int | None, message: str, kind: ProblemKind = "config_parse") -> NoReturn:
    raise ConfigUnusable(Problem(source.file, message, key, line, kind))
