"""`trimaran call`: call a tool, show its progress, answer its questions, print what it returns."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from trimaran.depth import decode_json
from trimaran.errors import ProtocolError, Unsupported
from trimaran.schema.typed_values import properties_of, unknown_key
from trimaran.types import TextContent, as_object

from .arguments import FOLDER, fit, read_args, read_words
from .completion import TargetWords
from .exit_codes import Exit
from .output import Saver, Screen, holds_file, in_one_line
from .run import run
from .target import ClientCommand, client_options, missing_word, read_settings, split_words

if TYPE_CHECKING:
    from trimaran import Client
    from trimaran.client.results import ToolResult
    from trimaran.types import Tool


@click.command("call", cls=ClientCommand, short_help="Call a tool.")
@click.argument("words", nargs=-1, metavar="TARGET TOOL [KEY=VALUE]...", type=TargetWords())
@click.option(
    "--args", "args_option", metavar="JSON|@FILE|-", help="The arguments as a JSON object, here or in a file."
)
@click.option("--json", "as_json", is_flag=True, help="Print the raw result as JSON, and nothing else.")
@click.option(
    "--out",
    type=FOLDER,
    metavar="DIR",
    help="Where pictures, sounds and other files are saved.  [the current directory]",
)
@client_options(answers=True)
@click.pass_context
def command(
    ctx: click.Context, words: Sequence[str], args_option: str | None, as_json: bool, out: Path | None, **options: Any
) -> int:
    """Call a tool of a server and print what it returns.

    \b
      trimaran call boat.py add a=1 b=2
      trimaran call https://boats.example/mcp find name=Tern tags:='["red"]'
      trimaran call add a=1 b=2 -- npx -y boat-server
      trimaran call boat.py plot --args @plot.json --out charts

    KEY=VALUE is read by the tool's schema: text stays text, and where the tool wants a number, true or false, a list or
    an object, it is read as that. KEY:=JSON is JSON whatever the schema says. Both add to --args, which is sent as it is;
    a KEY that the tool does not have is refused.

    Structured data is printed as JSON. Pictures, sounds and other files are saved as TOOL-1.png and so on, never over a
    file that is there; with --json only if --out is given. Progress, log lines and questions go to stderr. Without a
    terminal questions are declined, unless --yes is given.
    """
    target, rest = split_words(ctx, words)
    if not rest:
        raise click.UsageError(missing_word("TOOL", "trimaran call", " [KEY=VALUE]..."))
    name = rest[0]
    typed = read_words(rest[1:])
    base = read_args(args_option)
    settings = read_settings(target, options)
    screen = Screen(quiet=settings.quiet)
    failures: list[str] = []
    saver = Saver(out or Path(), name)

    async def on_progress(progress: float, total: float | None, message: str | None) -> None:
        screen.progress.update(name, progress, total, message)

    async def work(client: Client) -> int:
        tool = await _find(client, name)
        schema = {} if tool is None else _schema_of(tool)
        unknown = unknown_key(typed, schema)
        if unknown is not None:
            raise click.UsageError(
                not_among("argument", unknown, list(properties_of(schema)), owner=f"the tool {name!r}")
            )
        arguments = {**base, **fit(typed, schema)}
        screen.progress.wait(f"waiting for {name}")
        result = await client.call_tool(name, arguments, on_progress=on_progress)
        screen.progress.stop()
        if result.is_error:
            failures.append(result.text)
        if as_json:
            screen.raw(result.raw)
            if out is not None:
                screen.files_on = screen.err
                screen.content([block for block in result.content if holds_file(block)], saver)
        else:
            _show(screen, result, saver)
        return Exit.TOOL_FAILED if result.is_error else Exit.OK

    return run(target, settings, screen, work, failures)


async def _find(client: Client, name: str) -> Tool | None:
    """The tool; None if the server does not list tools. A name that is not listed is a slip of the keyboard."""
    try:
        tools = await client.list_tools_all()
    except (Unsupported, ProtocolError):
        return None
    for tool in tools:
        if tool.name == name:
            return tool
    raise click.UsageError(not_among("tool", name, [tool.name for tool in tools]))


def not_among(kind: str, name: str, known: Sequence[str], *, owner: str = "the server") -> str:
    """The owner has no such thing; what it has, or what was meant."""
    near = difflib.get_close_matches(name, known, n=1)
    if near:
        return f"{owner} has no {kind} {name!r}; did you mean {near[0]!r}?"
    listing = ", ".join(in_one_line(entry, 60) for entry in known[:12]) + (", ..." if len(known) > 12 else "")
    return f"{owner} has no {kind} {name!r}; it has {listing or 'none at all'}"


def _schema_of(tool: Tool) -> dict[str, Any]:
    schema: Any = tool.input_schema
    if isinstance(schema, msgspec.Raw):
        schema = msgspec.json.decode(schema)
    return as_object(schema) or {}


def _show(screen: Screen, result: ToolResult, saver: Saver) -> None:
    if result.is_error:
        text = result.text.strip()
        screen.problem(f"the tool failed: {text}" if text else "the tool failed, and does not say why")
        screen.content([block for block in result.content if not isinstance(block, TextContent)], saver)
        return
    blocks = list(result.content)
    if "structuredContent" in result.raw:
        screen.value(result.data)
        blocks = [block for block in blocks if not _mirrors(block, result)]
    screen.content(blocks, saver)


def _mirrors(block: Any, result: ToolResult) -> bool:
    """True if a text block only repeats the structured result, as servers do for older clients."""
    if not isinstance(block, TextContent):
        return False
    if block.text == result.data:
        return True
    try:
        value = decode_json(block.text)
    except ValueError:
        return False
    return value in (result.data, result.structured)
