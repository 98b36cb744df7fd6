"""`trimaran config`: is the host's configuration good, what does it say, and servers from other programs' files and back.

Nothing is connected to and nothing started: `check` reads files, and looks whether commands are there. The output is
masked: names of variables and headers, not their values. Files are changed in place and whole, with a backup beside them.

`trust` is the exception: a person who is to trust a file sees the commands in it whole, since a command could be made to
look like a secret.
"""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from trimaran.host.config import CLIENTS, ClientApp, HostConfig, Machine, ServerEntry, load_config, masked
from trimaran.host.config.clients import client_of, read_content
from trimaran.host.config.files import read_text, replace_text
from trimaran.host.config.model import ConfigUnusable, Problem, Source
from trimaran.host.config.tomltext import write_table
from trimaran.host.config.transfer import (
    Exported,
    export_servers,
    import_servers,
    merge_servers,
    project_folder,
    relative_paths,
    write_servers,
)
from trimaran.host.trust import Trust
from trimaran.host.trust.untrusted import trust_digest, untrusted_in

from .arguments import FILE, WORKSPACE
from .command_groups import CommandGroup
from .output import Screen, in_one_line

if TYPE_CHECKING:
    from trimaran.host.permissions import RuleProblem

FAILED: Final = 1
UNUSABLE: Final = 2

_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
_REPLACE: Final = click.option("--replace", is_flag=True, help="Write over servers of the same name.")
_DRY_RUN: Final = click.option(
    "--dry-run", is_flag=True, help="Show what would be written, secrets masked; write nothing."
)


@click.group(
    "config", cls=CommandGroup, short_help="Check, show, import, export and trust which servers the host uses."
)
def command() -> None:
    """The host's configuration: mcp.toml of the user and of the project.

    \b
      trimaran config check                    is it good?
      trimaran config show                     what it says, secrets masked
      trimaran config import cursor            take over the servers of another program
      trimaran config import .mcp.json
      trimaran config export vscode linear     and give it one of ours
      trimaran config trust                    the project's file may start what it names

    The user's file is ~/.config/trimaran/mcp.toml ($XDG_CONFIG_HOME), the project's is .trimaran/mcp.toml.
    """


# --- check -----------------------------------------------------------------------------------------------------------


@command.command("check", short_help="Say whether the configuration is good.")
@click.argument("file", type=FILE, required=False)
@WORKSPACE
@_JSON
def check(file: Path | None, workspace: Path | None, as_json: bool) -> int:
    """Read the configuration, FILE or that of the user and the project, and say what is wrong with it.

    The exit code is 0 if all servers and permission rules can be used as far as files tell, 1 if one cannot, 2 if nothing
    can be read.
    """
    screen = Screen()
    machine = Machine.here(workspace)
    try:
        config = load_config(file, machine=machine, nearby=True)
    except ConfigUnusable as error:
        if not as_json:
            raise
        screen.raw({"good": False, "files": [], "servers": {}, "problems": [error.problem.to_json()], "rules": []})
        return UNUSABLE
    rules = _rule_problems(config)
    missing = _unusable(config, machine, rules)
    off = {name for name, entry in config.servers.items() if entry.disabled}
    bad = [problem for problem in rules if problem.severity == "error" and problem.server not in off]
    is_good = not (config.problems or missing or bad or any(not failed.disabled for failed in config.failed.values()))
    trusted = {source.file: _is_trusted(config, source) for source in config.sources if source.level == "project"}
    if as_json:
        screen.raw(_report(config, missing, rules, trusted, is_good))
        return 0 if is_good else FAILED
    _say_sources(screen, config, machine, trusted)
    for state in _states(config, missing):
        screen.text(str(state))
    for problem in config.problems:
        screen.text(f"{'ignored':<8}  {problem}")
    for problem in rules:
        if problem.severity == "warning" or problem.server not in missing:
            screen.text(f"{'rule' if problem.severity == 'error' else 'warning':<8}  {problem}")
    return 0 if is_good else FAILED


def _rule_problems(config: HostConfig) -> list[RuleProblem]:
    """Rules that cannot be read or could never match, and those without effect, whatever tools the servers have (R243)."""
    from trimaran.host.permissions import check as check_rules
    from trimaran.host.permissions import read_config_rules

    reading = read_config_rules(config)
    servers = dict.fromkeys((*config.servers, *config.failed))
    return [
        *reading.errors,
        *(problem for problem in reading.problems if problem.severity == "warning"),
        *check_rules(reading.rules, servers),
    ]


def _unusable(
    config: HostConfig, machine: Machine, rules: Sequence[RuleProblem]
) -> dict[str, list[Problem | RuleProblem]]:
    """Servers whose entries can be read but not used: a command is missing, or a rule is not valid."""
    unusable: dict[str, list[Problem | RuleProblem]] = {}
    for name, entry in config.servers.items():
        problems: list[Problem | RuleProblem] = [
            rule for rule in rules if rule.server == name and rule.severity == "error" and not entry.disabled
        ]
        if (missing := _missing(entry, machine)) is not None:
            problems.append(missing)
        if problems:
            unusable[name] = problems
    return unusable


def _is_trusted(config: HostConfig, source: Source) -> bool:
    return Trust().is_trusted(source.file, trust_digest(config, source))


def _say_sources(
    screen: Screen, config: HostConfig, machine: Machine, trusted: Mapping[str, bool] | None = None
) -> None:
    for source in config.sources:
        level = "" if source.level == "file" else f" ({source.level})"
        if trusted is not None and source.file in trusted:
            level = " (project, trusted)" if trusted[source.file] else " (project, not trusted: trimaran config trust)"
        screen.note(f"{source.file}{level}", "dim")
    if not config.sources:
        screen.note(
            f"There is no configuration. These places were looked at: {machine.user_file}, {machine.project_file}, "
            f"and mcp.toml and .mcp.json in {machine.workspace}. "
            "Write one, or take over the servers of another program with `trimaran config import`."
        )


def _missing(entry: ServerEntry, machine: Machine) -> Problem | None:
    """The command or the variables that a server needs and that are missing."""
    if entry.transport != "stdio" or entry.disabled:
        return None

    def problem(key: str, message: str) -> Problem:
        line = entry.lines.get(key, entry.lines.get(""))
        return Problem(entry.source.file, message, f"server.{entry.name}.{key}", line, "spawn")

    cwd = Path(entry.cwd) if entry.cwd else Path(machine.workspace)
    if not cwd.is_dir():
        return problem("cwd", f"there is no directory {str(cwd)!r}")
    path = entry.env.get("PATH", machine.environ.get("PATH"))
    # A path is looked for from where the server starts, a bare name along PATH.
    is_path = Path(entry.command).name != entry.command
    if shutil.which(str(cwd / entry.command) if is_path else entry.command, path=path) is None:
        return problem("command", f"{entry.command!r} is not found: install it, or write its whole path")
    return None


class _State(NamedTuple):
    name: str
    state: str
    transport: str = ""
    problem: Problem | RuleProblem | None = None

    def __str__(self) -> str:
        about = self.transport if self.problem is None else str(self.problem)
        return f"{self.state:<8}  {self.name}: {about}" if about else f"{self.state:<8}  {self.name}"


def _states(config: HostConfig, unusable: Mapping[str, Sequence[Problem | RuleProblem]]) -> list[_State]:
    """One line for each server, and one for each of its problems where it has any."""
    states: list[_State] = []
    for name, entry in config.servers.items():
        if entry.disabled:
            states.append(_State(name, "disabled"))
        elif name in unusable:
            states += [_State(name, "failed", problem=problem) for problem in unusable[name]]
        else:
            states.append(_State(name, "ok", entry.transport))
    for name, failed in config.failed.items():
        state = "disabled" if failed.disabled else "failed"
        states += [_State(name, state, problem=problem) for problem in failed.problems]
    return states


def _report(
    config: HostConfig,
    unusable: Mapping[str, Sequence[Problem | RuleProblem]],
    rules: Sequence[RuleProblem],
    trusted: Mapping[str, bool],
    is_good: bool,
) -> dict[str, Any]:
    servers: dict[str, dict[str, Any]] = {}
    for name, state, transport, problem in _states(config, unusable):
        server = servers.setdefault(name, {"state": state, "problems": []})
        if transport:
            server["transport"] = transport
        if problem is not None:
            server["problems"].append(problem.to_json())
    return {
        "good": is_good,
        "files": [
            {"file": source.file, "level": source.level}
            | ({"trusted": trusted[source.file]} if source.file in trusted else {})
            for source in config.sources
        ],
        "servers": servers,
        "problems": [problem.to_json() for problem in config.problems],
        "rules": [problem.to_json() for problem in rules],
    }


# --- trust -----------------------------------------------------------------------------------------------------------


@command.command("trust", short_help="Let the project's file start what it names.")
@WORKSPACE
def trust(workspace: Path | None) -> int:
    """Trust the project's mcp.toml: a host may start the servers it names, and heed what it allows.

    The command prints the file, with what its servers inherit and replace of yours. It holds until one of these changes.
    """
    screen = Screen()
    machine, config, source = _project(workspace)
    store = Trust(machine.trust_file)
    digest = trust_digest(config, source)
    if store.is_trusted(source.file, digest):
        screen.note(f"{source.file} is trusted already.")
        return 0
    from trimaran.host.connect_plan import Logins

    logins = asyncio.run(Logins().kept(entry for entry in config.servers.values() if entry.source == source))
    for untrusted in untrusted_in(config, (source,), logins=logins):
        screen.text(str(untrusted))
    store.add(source.file, digest)
    screen.note(f"{source.file} is trusted, until it changes. Take that back with: trimaran config untrust")
    return 0


@command.command("untrust", short_help="Let the project's file start nothing any more.")
@WORKSPACE
def untrust(workspace: Path | None) -> int:
    """Stop trusting the project's mcp.toml. The next host asks again."""
    screen = Screen()
    machine = Machine.here(workspace)
    store = Trust(machine.trust_file)
    files = [str(file) for file in machine.project_files if store.remove(str(file))]
    for file in files:
        screen.note(f"{file} is no longer trusted.")
    if not files:
        screen.note(f"{machine.project_file} was not trusted.")
    return 0


def _project(workspace: Path | None) -> tuple[Machine, HostConfig, Source]:
    machine = Machine.here(workspace)
    config = load_config(machine=machine, nearby=True)
    for source in config.sources:
        if source.level == "project":
            return machine, config, source
    raise ConfigUnusable(
        Problem(str(machine.project_file), "there is no such file: the project has nothing to trust", kind="io")
    )


# --- show ------------------------------------------------------------------------------------------------------------


@command.command("show", short_help="Print the configuration, secrets masked.")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--file", type=FILE, metavar="FILE", help="This file, not those of the user and the project.")
@WORKSPACE
@_JSON
def show(names: Sequence[str], file: Path | None, workspace: Path | None, as_json: bool) -> int:
    """Print what the files say together, and where each server stands. Values of headers and variables are masked."""
    screen = Screen()
    machine = Machine.here(workspace)
    config = load_config(file, machine=machine, nearby=True)
    entries = {**config.servers, **config.failed}
    chosen = _chosen(names, list(entries))
    if as_json:
        screen.raw(
            {
                "files": [{"file": source.file, "level": source.level} for source in config.sources],
                "servers": {name: _described(config, name) for name in chosen},
                "permissions": [] if names else [_rule(rule) for rule in config.rules],
            }
        )
        return 0
    _say_sources(screen, config, machine)
    blocks: list[str] = []
    if config.rules and not names:
        rules = (f"# {rule.source.file}:{rule.line}\n# {rule.action} {rule.pattern}\n" for rule in config.rules)
        blocks.append("".join(rules))
    for name in chosen:
        description = _described(config, name)
        failed = config.failed.get(name)
        problems = failed.problems if failed is not None else ()
        head = "".join(f"# failed: {in_one_line(str(problem), 500)}\n" for problem in problems)
        blocks.append(f"# {description['where']}\n{head}{write_table(('server', name), description['entry'])}")
    if blocks:
        screen.text("\n".join(blocks))
    return 0


def _described(config: HostConfig, name: str) -> dict[str, Any]:
    entry = config.servers.get(name)
    if entry is not None:
        return {"where": entry.where(), "problems": [], "entry": masked(entry.table)}
    failed = config.failed[name]
    where = failed.source.file if failed.line is None else f"{failed.source.file}:{failed.line}"
    return {
        "where": where,
        "problems": [problem.to_json() for problem in failed.problems],
        "entry": masked(failed.table),
    }


def _rule(rule: Any) -> dict[str, Any]:
    return {"action": rule.action, "pattern": rule.pattern, "file": rule.source.file, "line": rule.line}


def _chosen(names: Sequence[str], known: Sequence[str]) -> list[str]:
    for name in names:
        if name not in known:
            raise click.UsageError(f"there is no server {name!r}; there is {', '.join(sorted(known)) or 'none at all'}")
    return list(dict.fromkeys(names)) if names else sorted(known)


# --- import ----------------------------------------------------------------------------------------------------------


@command.command("import", short_help="Take over the servers of another program.")
@click.argument("source", metavar="CLIENT|FILE")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--client", type=click.Choice(list(CLIENTS)), metavar="CLIENT", help="FILE: whose file it is.  [guessed]")
@click.option("--from-project", is_flag=True, help="CLIENT: read its file for this project, not for the user.")
@click.option("--project", is_flag=True, help="Write to the project's mcp.toml, not the user's.")
@_REPLACE
@_DRY_RUN
@WORKSPACE
def take_over(
    source: str,
    names: Sequence[str],
    *,
    client: str | None,
    from_project: bool,
    project: bool,
    replace: bool,
    dry_run: bool,
    workspace: Path | None,
) -> int:
    """Copy servers from another program's file into mcp.toml: all of them, or those named.

    CLIENT is one of: mcp-json, claude-desktop, claude-code, cursor, vscode, codex, gemini,
    qwen, copilot, opencode, goose, windsurf, zed.

    Names stay as they are, variables are written as ${NAME}, and what cannot be carried over is said.
    Secrets that the file holds are copied as they are.
    """
    screen = Screen()
    machine = Machine.here(workspace)
    whose, place, text = _find(source, client, machine, from_project)
    imported = import_servers(whose, text, str(place), machine)
    known = [*imported.tables, *imported.skipped]
    if not known:
        screen.note(f"{place} has no servers.")
        return 0
    chosen = _chosen(names, known)
    for name in chosen:
        where = f"{place}:{imported.lines[name]}"
        if name in imported.skipped:
            screen.note(f"{where}: {name} is not taken over: {imported.skipped[name]}", "yellow")
        for note in imported.notes.get(name, ()):
            screen.note(f"{where}: {name}: {note}", "dim")
        if note := _anchor(imported.tables.get(name, {}), whose, place, machine, in_project=project):
            screen.note(f"{where}: {name}: {note}", "yellow")
    tables = {name: imported.tables[name] for name in chosen if name in imported.tables}
    target = machine.project_file if project else machine.user_file
    before = read_text(target)
    merged = merge_servers(before or "", str(target), tables, replace=replace)
    if dry_run:
        if merged.written:
            screen.text(write_servers({name: masked(tables[name]) for name in merged.written}))
    elif merged.written:
        backup = replace_text(target, merged.text, before)
        screen.text(f"{target} now has {', '.join(merged.written)}.")
        _say_backup(screen, backup)
    return _ended(screen, merged, str(target))


def _anchor(table: dict[str, Any], client: ClientApp, file: Path, machine: Machine, *, in_project: bool) -> str:
    """Let relative paths mean the files that they meant for the other program. Returns what a person should know of it."""
    folder = project_folder(client, os.path.abspath(file), machine)
    paths = relative_paths(table, machine, lambda text: folder is not None and (Path(folder) / text).exists())
    if not paths:
        return ""
    if folder is None:
        return f"{paths[0]!r} is looked for where the host runs; write its whole path, or set cwd"
    start = "${CLAUDE_PROJECT_DIR}" if in_project and folder == machine.workspace else folder
    below = machine.path(str(table.get("cwd", ""))).as_posix()
    table["cwd"] = start if below == "." else f"{start}/{below}"
    return f"cwd is {table['cwd']}, since {paths[0]!r} is below it"


def _place(client: ClientApp, machine: Machine, *, project: bool) -> Path:
    """A program's file: the one that is there, where it may have several names."""
    places = [Path(place) for place in client.files(machine, project=project)]
    return next((place for place in places if place.is_file()), places[0])


def _find(source: str, client: str | None, machine: Machine, from_project: bool) -> tuple[ClientApp, Path, str]:
    """The file to read, and whose it is."""
    if source in CLIENTS and client is None:
        whose = CLIENTS[source]
        place = _place(whose, machine, project=from_project)
        text = read_text(place)
        if text is None:
            raise ConfigUnusable(
                Problem(
                    str(place), f"{whose.title} has no such file here; name the file, if it is elsewhere", kind="io"
                )
            )
        return whose, place, text
    if from_project:
        raise click.UsageError("--from-project goes with the name of a program, not with a file")
    place = Path(source).expanduser()
    text = read_text(place)
    if text is None:
        known = ", ".join(CLIENTS)
        raise click.UsageError(f"{source!r} is neither a file that is there nor one of {known}")
    return (CLIENTS[client] if client is not None else client_of(place, text)), place, text


# --- export ----------------------------------------------------------------------------------------------------------


@command.command("export", short_help="Give servers of ours to another program.")
@click.argument("client", type=click.Choice(list(CLIENTS)), metavar="CLIENT")
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option("--project", is_flag=True, help="Write to its file for this project, not for the user.")
@click.option("--expand", "values", is_flag=True, help="Write what variables hold today, where it fills in none.")
@_REPLACE
@_DRY_RUN
@WORKSPACE
def give(
    client: str,
    names: Sequence[str],
    *,
    project: bool,
    values: bool,
    replace: bool,
    dry_run: bool,
    workspace: Path | None,
) -> int:
    """Write servers of mcp.toml into another program's file: all that are not disabled, or those named.

    CLIENT is one of: mcp-json, claude-desktop, claude-code, cursor, vscode, codex, gemini,
    qwen, copilot, opencode, goose, windsurf, zed.

    The rest of its file stays as it is, comments included.
    """
    screen = Screen()
    machine = Machine.here(workspace)
    config = load_config(machine=machine, nearby=True)
    entries = {**config.servers, **config.failed}
    chosen = _chosen(names, list(entries))
    tables = {name: entries[name].table for name in chosen if names or not entries[name].disabled}
    return send_out(
        screen,
        CLIENTS[client],
        tables,
        machine,
        project=project,
        replace=replace,
        dry_run=dry_run,
        values=values,
        remedy="Write what variables hold today with --expand.",
    )


def send_out(
    screen: Screen,
    client: ClientApp,
    tables: Mapping[str, Mapping[str, Any]],
    machine: Machine,
    *,
    project: bool,
    replace: bool,
    dry_run: bool,
    values: bool = False,
    remedy: str = "",
) -> int:
    """Put servers into a program's file, and say so; the exit code."""
    place = _place(client, machine, project=project)
    before = read_text(place)
    exported = export_servers(client, before or "", str(place), tables, machine, replace=replace, values=values)
    for name, reason in exported.skipped.items():
        screen.problem(f"{name}: {reason}", remedy if "the value itself" in reason else "")
    for name in exported.written:
        for note in exported.notes.get(name, ()):
            screen.note(f"{name}: {note}", "dim")
    if not dry_run and exported.written:
        if before is None and not Path(place).parent.is_dir() and client.user is not None and not project:
            screen.note(f"{Path(place).parent} is not there yet: is {client.title} installed?", "yellow")
        backup = replace_text(place, exported.text, before)
        screen.text(f"{client.title} now has {', '.join(exported.written)}: {place}")
        _say_backup(screen, backup)
        screen.note(f"{client.after}.")
    elif exported.written:
        content = read_content(exported.text, client.language, str(place))
        entries = {name: masked(content[client.key][name]) for name in exported.written}
        screen.note(f"This would go to {place}:")
        screen.raw({client.key: entries})
    return _ended(screen, exported, client.title) or (FAILED if exported.skipped else 0)


def _say_backup(screen: Screen, backup: Path | None) -> None:
    if backup is not None:
        screen.note(f"The file as it was is {backup}.", "dim")


def _ended(screen: Screen, exported: Exported, where: str) -> int:
    if exported.unchanged:
        screen.note(f"{where} has {', '.join(exported.unchanged)} already.")
    if exported.kept:
        screen.problem(
            f"{where} has another server of the name {' and '.join(exported.kept)}, which stays as it is",
            "Write over it with --replace.",
        )
        return FAILED
    return 0


def read_variables(assignments: Sequence[str]) -> dict[str, str]:
    """`--env NAME=value`, each."""
    variables: dict[str, str] = {}
    for text in assignments:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise click.UsageError(f"--env {name!r} is not a variable: write --env NAME=value")
        variables[name] = value
    return variables
