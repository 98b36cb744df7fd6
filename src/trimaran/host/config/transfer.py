"""Servers from another program's file to ours, and back. Pure: texts in, texts out.

An import is a table for each server, as `mcp.toml` has them, with what was left behind said in notes; a server
that cannot be brought is skipped with the reason, the others are not. An export is the other program's file with
the entries in it and everything else as it was; an entry that is there already stays unless it is to be replaced.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast, final

from msgspec import Struct

from ..names import name_problem
from .client_formats import NotExpressible
from .clients import ClientApp, read_content
from .entry import read_entry
from .expand import Unexpandable, expand, parts_of
from .jsontext import set_member
from .machine import Machine
from .model import UNATTENDED, ConfigUnusable, FailedEntry, Problem, Source
from .tomltext import read_toml, set_table, write_table
from .yamltext import set_entry


@final
class Imported(Struct, frozen=True, kw_only=True):
    """The servers in a file of another program, as tables of `mcp.toml`."""

    tables: dict[str, dict[str, Any]]
    skipped: dict[str, str]
    """Servers that cannot be brought, by their own names, and why."""
    notes: dict[str, list[str]]
    """Notes about the servers that can be imported."""
    lines: dict[str, int]
    """Where each stands, by the name here, or its own if it is skipped."""


@final
class Exported(Struct, frozen=True, kw_only=True):
    """A file with servers put in."""

    text: str
    written: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    """They were there, the same to the letter."""
    kept: tuple[str, ...] = ()
    """Others of these names are there, and stay."""
    skipped: dict[str, str] = {}
    notes: dict[str, list[str]] = {}


def name_for(text: str, used_names: Sequence[str] = ()) -> str:
    """A server's name made of any text (R226)."""
    plain = re.sub(r"[^a-z0-9_-]+|_{2,}", "-", text.lower()).strip("-_")[:32].strip("-_") or "server"
    name, number = plain, 2
    while name in used_names:
        name = f"{plain[: 32 - len(str(number)) - 1]}-{number}"
        number += 1
    return name


# --- bringing in -----------------------------------------------------------------------------------------------------


def import_servers(client: ClientApp, text: str, file: str, machine: Machine) -> Imported:
    """The servers in a client's file."""
    content = read_content(text, client.language, file)
    inputs, is_off = client.inputs(content), client.switched_off(content)
    imported = Imported(tables={}, skipped={}, notes={}, lines={})
    lines = client.lines(text, machine, file)
    entries = client.servers(content, machine, file)
    # A name that is good stays; another must not take it away.
    good = [name for name in entries if not name_problem(name)]
    for client_name, entry in entries.items():
        try:
            if not isinstance(entry, Mapping):
                raise NotExpressible("it is not an object")
            table, notes = client.form.read(cast("Mapping[str, Any]", entry), machine, inputs)
        except NotExpressible as error:
            imported.skipped[client_name] = str(error)
            imported.lines[client_name] = lines.get(client_name, 1)
            continue
        name = client_name if client_name in good else name_for(client_name, [*good, *imported.tables])
        if name != client_name:
            notes = [f"it is called {client_name!r} in {client.title}", *notes]
        if is_off(client_name):
            table["disabled"] = True
        imported.tables[name] = table
        imported.lines[name] = lines.get(client_name, 1)
        imported.notes[name] = [*notes, *_doubts(name, table, machine)]
    return imported


def project_folder(client: ClientApp, file: str, machine: Machine) -> str | None:
    """The project that a file of a client is about; None if it is the user's file."""
    path = machine.path(file)
    if client.project is not None and path.name in client.others:
        path = path.with_name(client.project[-1])
    if client.project is None or path.parts[-len(client.project) :] != client.project:
        return None
    if client.user is not None and path in (client.user(machine), machine.in_home(*client.project)):
        return None
    return str(path.parents[len(client.project) - 1])


def relative_paths(table: Mapping[str, Any], machine: Machine, is_there: Callable[[str], bool]) -> list[str]:
    """The words of a command that mean another file elsewhere; `is_there` says if there is one of that name."""

    def is_relative(text: str) -> bool:
        if text.startswith(("./", "../", ".\\", "..\\")) or text in (".", ".."):
            return True
        is_plain = bool(text) and text[0] not in "-~$" and "://" not in text and not machine.path(text).is_absolute()
        return is_plain and is_there(text)

    command, cwd = str(table.get("command", "")), table.get("cwd")
    words = [command] if {"/", "\\"} & {*command} else []
    words += [str(word) for word in table.get("args", ())]
    paths = [word for word in words if is_relative(word) or is_relative(word.partition("=")[2])]
    if isinstance(cwd, str):  # the others are below it
        is_fixed = cwd.startswith(("~", "$")) or machine.path(cwd).is_absolute()
        return [] if is_fixed else [cwd]
    return paths


def _doubts(name: str, table: Mapping[str, Any], machine: Machine) -> list[str]:
    """The problems of an imported entry. Unset variables are no problem yet."""
    variables = dict.fromkeys(_references(table), "x")
    set_here = Machine(
        home=machine.home,
        workspace=machine.workspace,
        environ={**variables, **machine.environ},
        platform=machine.platform,
    )
    read = read_entry(name, table, Source("mcp.toml", "file"), set_here, {})
    return [f"{p.key}: {p.message}" for p in read.problems] if isinstance(read, FailedEntry) else []


def _references(value: Any) -> set[str]:
    if isinstance(value, str):
        try:
            return {part.name for part in parts_of(value) if not isinstance(part, str)}
        except Unexpandable:
            return set()
    if isinstance(value, Mapping):
        return set[str]().union(*map(_references, cast("Mapping[str, Any]", value).values()))
    if isinstance(value, (list, tuple)):
        return set[str]().union(*map(_references, cast("Sequence[Any]", value)))
    return set()


def merge_servers(text: str, file: str, tables: Mapping[str, Mapping[str, Any]], *, replace: bool = False) -> Exported:
    """An `mcp.toml` with these tables in it."""
    whole: Any = read_toml(text, file).get("server", {})
    there: Mapping[str, Any] = cast("Mapping[str, Any]", whole) if isinstance(whole, Mapping) else {}
    written: list[str] = []
    unchanged: list[str] = []
    kept_names: list[str] = []
    for name, table in tables.items():
        if there.get(name) == table:
            unchanged.append(name)
        elif name in there and not replace:
            kept_names.append(name)
        else:
            text = set_table(text, ("server", name), table, file)
            written.append(name)
    return Exported(text=text, written=tuple(written), unchanged=tuple(unchanged), kept=tuple(kept_names))


def write_servers(tables: Mapping[str, Mapping[str, Any]]) -> str:
    """The tables as an `mcp.toml` of their own."""
    return "\n".join(write_table(("server", name), table) for name, table in tables.items())


# --- sending out -----------------------------------------------------------------------------------------------------


def export_servers(
    client: ClientApp,
    text: str,
    file: str,
    tables: Mapping[str, Mapping[str, Any]],
    machine: Machine,
    *,
    replace: bool = False,
    values: bool = False,
) -> Exported:
    """The client's file with these servers in it; one that would not work here is not given to others. `values` writes what variables hold today in their place."""
    content = read_content(text, client.language, file)
    there: Any = content.get(client.key)
    if there is not None and not isinstance(there, Mapping):
        raise ConfigUnusable(
            Problem(file, "an object is expected here, with a member for each server", client.key, kind="config_parse")
        )
    entries = cast("Mapping[str, Any]", there or {})
    if client.servers(content, machine, file).keys() - entries.keys() and client.name == "opencode":
        message = "the servers stand one level deeper than this version writes them; add it by hand"
        raise ConfigUnusable(Problem(file, message, f"{client.key}.servers", kind="config_parse"))
    written: list[str] = []
    unchanged: list[str] = []
    kept_names: list[str] = []
    skipped: dict[str, str] = {}
    notes: dict[str, list[str]] = {}
    for name, table in tables.items():
        if doubts := _doubts(name, table, machine):
            skipped[name] = "; ".join(doubts)
            continue
        if mode := _unattended(table):
            skipped[name] = f'it says oauth = "{mode}", which {client.title} cannot say in this file'
            continue
        try:
            entry, entry_notes = client.form.write(name, _filled(table, machine) if values else table)
        except (NotExpressible, Unexpandable) as error:
            skipped[name] = str(error)
            continue
        notes[name] = entry_notes
        if entries.get(name) == entry:
            unchanged.append(name)
        elif name in entries and not replace:
            kept_names.append(name)
        else:
            text = _put(client, text, name, entry, file)
            written.append(name)
    return Exported(
        text=text,
        written=tuple(written),
        unchanged=tuple(unchanged),
        kept=tuple(kept_names),
        skipped=skipped,
        notes=notes,
    )


def _unattended(table: Mapping[str, Any]) -> str:
    """The mode of a server that gets its tokens without a person; empty if it has another."""
    oauth: Any = table.get("oauth")
    mode: Any = cast("Mapping[str, Any]", oauth).get("mode") if isinstance(oauth, Mapping) else oauth
    return mode if mode in UNATTENDED else ""


def _put(client: ClientApp, text: str, name: str, entry: Mapping[str, Any], file: str) -> str:
    if client.language == "toml":
        return set_table(text, (client.key, name), entry, file)
    if client.language == "yaml":
        return set_entry(text, client.key, name, entry, file)
    return set_member(text, (client.key, name), entry, file)


def _filled(table: Mapping[str, Any], machine: Machine) -> dict[str, Any]:
    """The table with the values of its variables, in the fields that allow variables (R232)."""
    variables = machine.variables

    def fill(value: Any) -> Any:
        if isinstance(value, str):
            return expand(value, variables)
        if isinstance(value, Mapping):
            return {key: fill(item) for key, item in cast("Mapping[str, Any]", value).items()}
        if isinstance(value, (list, tuple)):
            return [fill(item) for item in cast("Sequence[Any]", value)]
        return value

    filled = ("command", "args", "env", "cwd", "url", "headers", "oauth", "oauth_config")
    return {key: fill(value) if key in filled else value for key, value in table.items()}
