"""Servers that are configured on this machine: in mcp.toml, and in the files of other programs.

The files are read each time somebody looks. Nothing is started: a project's file may name any program, and a person chooses.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, final

from msgspec import Struct

from trimaran.errors import Error
from trimaran.host.config import HostConfig, ServerEntry, Source, load_config
from trimaran.host.config.clients import CLIENTS, ClientApp
from trimaran.host.config.files import read_text
from trimaran.host.config.load import read_config
from trimaran.host.config.machine import Machine
from trimaran.host.config.transfer import import_servers, write_servers
from trimaran.host.connect_plan import ConnectPlan, plan_for
from trimaran.host.environment import read_environment
from trimaran.protocol.mask import Mask, mask_command, mask_url, secrets_in

from .requests import BadRequest, NotThere
from .servers import Reach, ServerSource

_MOST: Final = 500


class SourceRow(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """One configured server."""

    key: str
    name: str
    program: str
    file: str
    target: str
    transport: str
    problem: str | None = None
    used: str | None = None


def reach_of_entry(entry: ServerEntry) -> Reach:
    """The way to a server of a configuration."""
    plan: ConnectPlan = plan_for(entry.name, entry, read_environment(os.environ))
    hidden = [*secrets_in(entry.headers), *secrets_in(entry.env)]
    command = [entry.command, *entry.args] if entry.command else []
    transport = "stdio" if command else "sse" if entry.transport == "sse" else "http"
    return Reach(
        target=plan.target,
        name=entry.name,
        text=mask_command(command) if command else mask_url(entry.url or ""),
        transport=transport,
        options=dict(plan.options),
        mask=Mask(entry.url or "", command, hidden),
        details=entry,
    )


@final
class Sources:
    """The servers of all files."""

    def __init__(self, config: Path | None = None) -> None:
        self.config = config
        self._entries: dict[str, tuple[ServerEntry, str]] = {}
        self.used: dict[str, str] = {}
        """Ids of servers that were added, by key."""

    def list(self) -> list[SourceRow]:
        """Read the files."""
        self._entries.clear()
        rows: list[SourceRow] = []
        seen: set[tuple[str, str]] = set()  # several programs read `.mcp.json`
        for program, config, skipped in self._configs():
            if isinstance(config, str):
                rows.append(_problem_row(program, config))
                continue
            for entry in config.servers.values():
                place = (str(entry.source.file), entry.name)
                if place not in seen:
                    seen.add(place)
                    rows.append(self._row(entry, program))
            rows += [_problem_row(program, str(failed), name=name) for name, failed in config.failed.items()]
            rows += [_problem_row(program, reason, name=name) for name, reason in skipped.items()]
        return rows[:_MOST]

    def take(self, key: str) -> tuple[Reach, ServerSource]:
        """The way to a listed server.

        Raises:
            NotThere: no file has it any more.
        """
        if key not in self._entries:
            self.list()
        if key not in self._entries:
            raise NotThere("no configuration has this server any more: reload the list")
        entry, program = self._entries[key]
        try:
            reach = reach_of_entry(entry)
        except Error as error:
            raise BadRequest(str(error)) from None
        kind: Any = "config" if program == "mcp.toml" else "program"
        return reach, ServerSource(kind=kind, label=f"{program}: {entry.source.file}")

    def entries(self) -> dict[str, ServerEntry]:
        """The servers of mcp.toml, by name."""
        return dict(load_config(self.config, nearby=True).servers)

    def _configs(self) -> Iterator[tuple[str, HostConfig | str, Mapping[str, str]]]:
        """The servers of each program, or why they cannot be read; and which of them were skipped, with the reasons."""
        try:
            yield "mcp.toml", load_config(self.config, nearby=True), {}
        except (Error, OSError) as error:
            yield "mcp.toml", str(error), {}
        machine = Machine.here()
        for app in CLIENTS.values():
            for is_project in (False, True):
                read = _read_app(app, machine, is_project)
                if read is not None:
                    yield app.title, *read

    def _row(self, entry: ServerEntry, program: str) -> SourceRow:
        file = str(entry.source.file)
        key = hashlib.sha256(f"{program}\0{file}\0{entry.name}".encode()).hexdigest()[:16]
        self._entries[key] = (entry, program)
        try:
            reach = reach_of_entry(entry)
        except Error as error:
            return _problem_row(program, str(error), name=entry.name)
        return SourceRow(
            key=key,
            name=entry.name,
            program=program,
            file=file,
            target=reach.text,
            transport=reach.transport,
            used=self.used.get(key),
        )


def _read_app(app: ClientApp, machine: Machine, is_project: bool) -> tuple[HostConfig | str, Mapping[str, str]] | None:
    """The servers of another program; None if it has no such file."""
    if is_project and (app.project is None or app.user is None):
        return None
    try:
        files = [Path(file) for file in app.files(machine, project=is_project)]
        file = next((file for file in files if file.is_file()), None)
        text = None if file is None else read_text(file)
        if file is None or text is None:
            return None
        imported = import_servers(app, text, str(file), machine)
        config = read_config([(Source(str(file), "file"), write_servers(imported.tables))], machine)
    except (Error, OSError, ValueError) as error:
        return str(error), {}
    return config, imported.skipped


def _problem_row(program: str, problem: str, *, name: str = "") -> SourceRow:
    return SourceRow(key="", name=name, program=program, file="", target="", transport="", problem=problem)
