"""`trimaran list`: what a server offers, as tables or as JSON.

Each kind is asked for by itself: one that the server cannot list is named with its reason, and hides none of the others.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast

import click
import msgspec
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from trimaran.errors import Error, ProtocolError, TransportError, Unauthorized, Unsupported
from trimaran.types import Prompt, Resource, ResourceTemplate, Tool, ToolAnnotations

from .completion import TargetWords
from .output import Screen, in_one_line
from .run import run
from .target import ClientCommand, client_options, read_settings, split_words

if TYPE_CHECKING:
    from trimaran import Client

KINDS: Final = ("tools", "resources", "templates", "prompts")
_TITLES: Final = {"templates": "Resource templates"}
_EVERY_KIND: Final = frozenset(("string", "number", "boolean", "object", "array", "null"))
_MOST_DESCRIPTION: Final = 400
_MOST_NAME: Final = 26  # beside which there is room for two thirds of a line


@click.command("list", cls=ClientCommand, short_help="List what a server offers.")
@click.argument("words", nargs=-1, metavar="TARGET", type=TargetWords())
@click.option("--tools", is_flag=True, help="Only tools.")
@click.option("--resources", is_flag=True, help="Only resources.")
@click.option("--templates", is_flag=True, help="Only resource templates.")
@click.option("--prompts", is_flag=True, help="Only prompts.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
@client_options()
@click.pass_context
def command(ctx: click.Context, words: Sequence[str], as_json: bool, **options: Any) -> int:
    """List the tools, resources, resource templates and prompts of a server.

    \b
      trimaran list boat.py                        a file, run by this Python
      trimaran list https://boats.example/mcp      a URL
      trimaran list -- npx -y boat-server          a command
      trimaran list "npx -y boat-server" --tools   a command, quoted
      trimaran list .mcp.json#boats --json         an entry of a configuration
    """
    target, rest = split_words(ctx, words)
    if rest:
        raise click.UsageError(f"list takes one TARGET, and {rest[0]!r} is one word too many; a command goes after --")
    settings = read_settings(target, options)
    screen = Screen(quiet=settings.quiet)
    chosen = [kind for kind in KINDS if options[kind]]

    async def work(client: Client) -> int:
        kinds = chosen or list(KINDS)
        listings, failures = await _collect(client, kinds)
        if failures and not listings:
            raise next(iter(failures.values()))
        if as_json:
            screen.raw(_as_json(client, listings, failures, kinds))
            return 0
        _show_server(screen, client)
        for kind, items in listings.items():
            _show_kind(screen, kind, items)
        for kind, error in failures.items():
            screen.note(f"The {_named(kind)} cannot be listed: {error}.")
        missing = [kind for kind in chosen if kind not in listings and kind not in failures]
        if missing or not listings:
            screen.note(f"The server offers no {' and no '.join(missing or KINDS[:1])}.")
        return 0

    return run(target, settings, screen, work)


async def _collect(client: Client, kinds: Sequence[str]) -> tuple[dict[str, list[Any]], dict[str, Error]]:
    """The server's entries of each kind, and the reason for each kind that it cannot list. Kinds that it does not offer are in neither."""
    ways: dict[str, Callable[[], Awaitable[list[Any]]]] = {
        "tools": client.list_tools_all,
        "resources": client.list_resources_all,
        "templates": client.list_resource_templates_all,
        "prompts": client.list_prompts_all,
    }
    listings: dict[str, list[Any]] = {}
    failures: dict[str, Error] = {}
    for kind in kinds:
        try:
            listings[kind] = await ways[kind]()
        except Unsupported:
            continue
        except Unauthorized:
            raise
        except (ProtocolError, TransportError) as error:
            failures[kind] = error
    return listings, failures


def _as_json(
    client: Client, entries: Mapping[str, list[Any]], failures: Mapping[str, Error], kinds: Sequence[str]
) -> dict[str, Any]:
    info = client.server_info
    return {
        "server": None if info is None else info.to_json(),
        "era": client.era,
        "version": client.version,
        "capabilities": client.server_capabilities,
        **{kind: msgspec.json.decode(msgspec.json.encode(entries.get(kind, []))) for kind in kinds},
        **({"failures": {kind: str(error) for kind, error in failures.items()}} if failures else {}),
    }


def _named(kind: str) -> str:
    return _TITLES.get(kind, kind).lower()


def _show_server(screen: Screen, client: Client) -> None:
    info = client.server_info
    line = Text()
    if info is not None:
        line.append(in_one_line(info.title or info.name, 60), style="bold")
        line.append(f" {in_one_line(info.version, 40)}, " if info.version else ", ")
    screen.out.print(line.append(f"speaks {client.version} ({client.era})"))
    if client.instructions:
        screen.lay_out(Padding(Text(in_one_line(client.instructions, 300), style="dim"), (0, 0, 0, 2), expand=False))


def _show_kind(screen: Screen, kind: str, items: Sequence[Any]) -> None:
    screen.out.print()
    screen.out.print(Text(f"{_TITLES.get(kind, kind.capitalize())} ({len(items)})", style="bold cyan"))
    if not items:
        return
    rows = [_row(item) for item in items]
    if max(len(name) for name, _ in rows) > _MOST_NAME:
        # Names and URIs are there to be copied, so they are not cut: each gets a line of its own.
        for name, about in rows:
            screen.lay_out(Padding(name, (0, 0, 0, 2), expand=False))
            if about:
                screen.lay_out(Padding(about, (0, 0, 0, 6), expand=False))
        return
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, about in rows:
        table.add_row(name, about)
    screen.lay_out(Padding(table, (0, 0, 0, 2), expand=False))


def _row(item: Any) -> tuple[Text, Text]:
    match item:
        case Tool():
            return _cells(item.name, item.description or item.title, _signature(item.input_schema), _hints(item))
        case Resource():
            size = "" if item.size is None else f"{item.size:,} bytes"
            return _cells(item.uri, item.description or item.title or item.name, item.mime_type or "", size)
        case ResourceTemplate():
            return _cells(item.uri_template, item.description or item.title or item.name, item.mime_type or "")
        case Prompt():
            listed = item.arguments or []
            return _cells(
                item.name,
                item.description or item.title,
                ", ".join(argument.name if argument.required else f"[{argument.name}]" for argument in listed),
            )
        case _:
            return _cells(str(item), "")


def _cells(name: str, description: str | None, *more: str) -> tuple[Text, Text]:
    text = Text(in_one_line(description or "", _MOST_DESCRIPTION))
    details = "; ".join(in_one_line(detail, 600) for detail in more if detail)
    if details:
        text.append(("\n" if text else "") + details, style="dim")
    return Text(in_one_line(name, 500), style="green"), text


def _signature(schema: Any) -> str:
    """`a integer, [b string]`: names and types, brackets around what may be left out."""
    whole: Any = msgspec.json.decode(schema) if isinstance(schema, msgspec.Raw) else schema
    properties: Any = whole.get("properties") if isinstance(whole, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if not isinstance(properties, dict):
        return ""
    required: Any = cast("dict[str, Any]", whole).get("required")
    needed = cast("list[Any]", required) if isinstance(required, list) else []
    parts: list[str] = []
    for name, field in cast("dict[str, Any]", properties).items():
        part = f"{name} {_kind(field)}".strip()
        parts.append(part if name in needed else f"[{part}]")
    return ", ".join(parts)


def _kind(field: Any) -> str:
    if not isinstance(field, dict):
        return ""
    node = cast("dict[str, Any]", field)
    listed: Any = node.get("enum")
    if isinstance(listed, list) and 0 < len(cast("list[Any]", listed)) <= 5:
        return "|".join(str(choice) for choice in cast("list[Any]", listed))
    declared: Any = node.get("type")
    if isinstance(declared, list):
        return "|".join(str(kind) for kind in cast("list[Any]", declared))
    options: Any = node.get("anyOf", node.get("oneOf"))
    if declared is None and isinstance(options, list):
        kinds = dict.fromkeys(_kind(option) or "any" for option in cast("list[Any]", options))
        return "any" if kinds.keys() >= _EVERY_KIND else "|".join(kinds)
    return str(declared or "")


def _hints(tool: Tool) -> str:
    notes = tool.annotations
    if isinstance(notes, dict):
        hints = (notes.get("readOnlyHint"), notes.get("destructiveHint"))
    else:
        hints = (notes.read_only_hint, notes.destructive_hint) if isinstance(notes, ToolAnnotations) else (None, None)
    return "reads only" if hints[0] is True else "destructive" if hints[1] is True else ""
