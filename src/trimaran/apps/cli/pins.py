"""`trimaran pins`: the definitions of servers that you agreed to, what differs from them, and your yes. No server is started."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import click

from trimaran.host.terminal_text import in_one_line, safe, to_json
from trimaran.host.trust.pins import PinFile, PinnedServer, Pins, PinTarget, accepted, file_prefix
from trimaran.host.trust.review import HeldDefinition

from .command_groups import CommandGroup
from .exit_codes import Exit
from .output import Screen

if TYPE_CHECKING:
    from trimaran.host.trust.review import DefinitionKind

_JSON: Final = click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")


def _pins_in(context: click.Context, option: click.Parameter, folder: str | None) -> Pins:
    return Pins(folder)


_FOLDER: Final = click.option(
    "--path",
    "store",
    metavar="FOLDER",
    callback=_pins_in,
    help="The folder of the pins, such as a gateway's `pins_path`.  [the user's own]",
)


@click.group("pins", cls=CommandGroup, short_help="See what servers changed since you agreed to them, and agree.")
def command() -> None:
    """The definitions of servers that you agreed to, and what differs from them.

    \b
      trimaran pins list                 which servers are pinned, and what is held
      trimaran pins show files           every pinned definition of a server
      trimaran pins diff files           what differs, word by word
      trimaran pins accept files         agree to what differs; `accept files read_file` to one definition
      trimaran pins forget files         move the pins away: the next use is the first

    A host holds what differs: it is neither offered to a model nor called until you agree, here or on the console's card.
    """


@command.command("list", short_help="The servers that are pinned, and what is held.")
@_JSON
@_FOLDER
def list_command(as_json: bool, store: Pins) -> int:
    """List the servers that are pinned: how many definitions, since when, and what waits for you."""
    screen, files = Screen(), asyncio.run(store.files())
    if as_json:
        screen.raw([_summary(file) for file in files])
        return Exit.OK
    if not files:
        screen.note("Nothing is pinned yet: the first list of each server of mcp.toml is, when a host uses it.")
    for file in files:
        server = file.server
        if server is None:
            screen.text(f"damaged  {file.path.name}: {file.problem}")
            continue
        waiting = f", {len(server.pending)} held" if server.pending else ""
        state = "held" if server.pending else "pinned"
        screen.text(f"{state:<7}  {server.name}  {len(server.pins)} definitions{waiting}  since {server.first_seen}")
        screen.text(f"         {in_one_line(server.address, 300)}")
    return Exit.OK


@command.command("show", short_help="Every pinned definition of a server.")
@click.argument("name", metavar="SERVER")
@click.argument("definition", required=False)
@_JSON
@_FOLDER
def show_command(name: str, definition: str | None, as_json: bool, store: Pins) -> int:
    """Show the definitions of SERVER that you agreed to; with DEFINITION, that one whole."""
    screen = Screen()
    for server in _servers(name, store):
        chosen = {key: pin for key, pin in server.pins.items() if definition in (None, key, key.partition(":")[2])}
        if not chosen and definition is not None:
            raise click.UsageError(f"the server {name!r} has no pinned definition {definition!r}")
        if as_json:
            screen.raw({key: {"digest": pin.digest, "definition": pin.definition} for key, pin in chosen.items()})
            continue
        screen.text(f"{server.name}: {in_one_line(server.address, 300)}")
        for key, pin in chosen.items():
            if definition is not None:
                screen.text(f"{key}  {pin.digest}\n{safe(to_json(pin.definition))}")
                continue
            words: Any = (pin.definition or {}).get("description", "")
            screen.text(f"  {in_one_line(key, 80)}  {pin.digest[:19]}  {in_one_line(str(words), 100)}")
    return Exit.OK


@command.command("diff", short_help="The difference from the definitions that you agreed to, word by word.")
@click.argument("name", metavar="SERVER", required=False)
@_JSON
@_FOLDER
def diff_command(name: str | None, as_json: bool, store: Pins) -> int:
    """Show what SERVER, or each server, lists otherwise than you agreed to: removed words as [-so-], added ones as {+so+}.

    The exit code is 1 if something differs.
    """
    screen, files = Screen(), _files(name, store)
    differing = [item for file in files if file.server is not None for item in _held_definitions(file.server)]
    if as_json:
        screen.raw([_described(item) for item in differing])
    else:
        _show(screen, differing)
    _refuse_damaged(files)
    if not differing and not as_json:
        screen.note("No server has listed other definitions so far.")
    return 1 if differing else Exit.OK


@command.command("accept", short_help="Agree to what differs.")
@click.argument("name", metavar="SERVER")
@click.argument("definitions", nargs=-1, metavar="[DEFINITION]...")
@click.option("--yes", is_flag=True, help="Do not ask: you have seen the difference.")
@_FOLDER
def accept_command(name: str, definitions: Sequence[str], yes: bool, store: Pins) -> int:
    """Agree to what SERVER lists now, or to some DEFINITIONs of it. The difference is shown first.

    You agree to what is shown. If the server lists something else by then, that is held again.
    """
    screen, servers = Screen(), _servers(name, store)
    known = {word for server in servers for item in _held_definitions(server) for word in (item.key, item.name)}
    if unknown := [word for word in definitions if word not in known]:
        raise click.UsageError(
            f"nothing of {name} waits for you under {', '.join(map(repr, unknown))}; nothing was changed"
        )
    for server in servers:
        items = [
            item for item in _held_definitions(server) if not definitions or {item.key, item.name} & set(definitions)
        ]
        if not items:
            if len(servers) == 1:
                screen.note(f"{name} has no definitions that wait for you.")
            continue
        _show(screen, items)
        if not yes and not _is_agreed(f"Agree to these {len(items)} definitions of {name}?"):
            screen.note("Nothing was changed.")
            return 1
        asyncio.run(_accept(server, items, store))
        count = "1 definition" if len(items) == 1 else f"{len(items)} definitions"
        screen.note(f"Pinned {count} of {name}. A host that runs takes them over when it reloads it.")
    return Exit.OK


@command.command("forget", short_help="Move the pins of a server away: its next use is the first.")
@click.argument("name", metavar="SERVER")
@_FOLDER
def forget_command(name: str, store: Pins) -> int:
    """Move the pins of SERVER aside, damaged ones too. Its next list is pinned as it is.

    Do it if the pins are damaged, or if you know that everything has changed. The old file stays beside the new one.
    """
    screen = Screen()
    for file in _files(name, store):
        aside = asyncio.run(store.forget(file.path))
        screen.note(f"{file.path.name} is now {aside.name}")
    return Exit.OK


def _is_agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise click.UsageError("there is no terminal to ask in: read the difference above, then say --yes")
    return click.confirm(question, err=True)


def _is_of(file: PinFile, name: str) -> bool:
    """Only the name of a damaged file tells whose it was."""
    if file.server is not None:
        return file.server.name == name
    return name == file.path.name or file.path.name.startswith(file_prefix(name))


def _files(name: str | None, store: Pins) -> list[PinFile]:
    """The files of this server, or all; complains if there is none of a name."""
    files = [file for file in asyncio.run(store.files()) if name is None or _is_of(file, name)]
    if not files and name is not None:
        raise click.UsageError(f"no server {name!r} is pinned; see `trimaran pins list`")
    return files


def _refuse_damaged(files: Iterable[PinFile]) -> None:
    if damaged := [file.problem for file in files if file.server is None]:
        raise click.ClickException("\n".join(damaged))


def _servers(name: str, store: Pins) -> list[PinnedServer]:
    """The servers of this name; complains if there is none, or if its pins are damaged."""
    files = _files(name, store)
    _refuse_damaged(files)
    return [file.server for file in files if file.server is not None]


def _held_definitions(server: PinnedServer) -> list[HeldDefinition]:
    items: list[HeldDefinition] = []
    for key, pin in server.pending.items():
        kind, _, name = key.partition(":")
        old = server.pins.get(key)
        items.append(
            HeldDefinition(
                server=server.name,
                kind=_kind(kind),
                name=name,
                state="new" if old is None else "changed",
                new=pin,
                old=old,
            )
        )
    return items


def _kind(word: str) -> DefinitionKind:
    return "prompt" if word == "prompt" else "template" if word == "template" else "tool"


async def _accept(server: PinnedServer, items: Iterable[HeldDefinition], store: Pins) -> None:
    digests = {item.key: item.new.digest for item in items}
    now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")

    def change(before: PinnedServer | None) -> PinnedServer | None:
        if before is None:
            return None
        same = frozenset(key for key, pin in before.pending.items() if digests.get(key) == pin.digest)
        return accepted(before, same, now)

    await store.update(PinTarget(server.name, server.address, server.fingerprint), change)


def _show(screen: Screen, items: Iterable[HeldDefinition]) -> None:
    for item in items:
        screen.text(f"{item.server}: {item.kind} {in_one_line(item.name, 100)} ({item.state})")
        screen.text("\n".join(f"  {line}" for line in item.text().splitlines()))


def _summary(file: PinFile) -> dict[str, Any]:
    server = file.server
    if server is None:
        return {"file": str(file.path), "problem": file.problem}
    return {
        "server": server.name,
        "address": server.address,
        "fingerprint": server.fingerprint,
        "first_seen": server.first_seen,
        "changed": server.changed or None,
        "definitions": len(server.pins),
        "held": sorted(server.pending),
        "file": str(file.path),
    }


def _described(item: HeldDefinition) -> dict[str, Any]:
    return {
        "server": item.server,
        "definition": item.key,
        "state": item.state,
        "pinned": item.old.digest if item.old is not None else None,
        "digest": item.new.digest,
        "difference": [
            {"field": change.path, "pieces": [list(piece) for piece in change.pieces]} for change in item.changes(None)
        ],
    }
