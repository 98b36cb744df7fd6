"""`trimaran prompt`: fill in a prompt and print its messages."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from trimaran.errors import ProtocolError, Unsupported

from .arguments import FOLDER, read_words
from .call import not_among
from .completion import TargetWords
from .output import Saver, Screen, in_one_line
from .run import run
from .target import ClientCommand, client_options, missing_word, read_settings, split_words

if TYPE_CHECKING:
    from trimaran import Client


@click.command("prompt", cls=ClientCommand, short_help="Get a prompt.")
@click.argument("words", nargs=-1, metavar="TARGET NAME [KEY=VALUE]...", type=TargetWords())
@click.option("--json", "as_json", is_flag=True, help="Print the raw result as JSON, and nothing else.")
@click.option(
    "--out",
    type=FOLDER,
    default=Path(),
    metavar="DIR",
    help="Where pictures and other files are saved.  [the current directory]",
)
@client_options(answers=True)
@click.pass_context
def command(ctx: click.Context, words: Sequence[str], as_json: bool, out: Path, **options: Any) -> int:
    """Fill in a prompt of a server and print its messages.

    \b
      trimaran prompt boat.py plan_passage destination="Gull Rock"
      trimaran prompt plan_passage destination=Kelp -- npx -y boat-server

    The arguments of a prompt are texts.
    """
    target, rest = split_words(ctx, words)
    if not rest:
        raise click.UsageError(missing_word("NAME", "trimaran prompt", " [KEY=VALUE]..."))
    name = rest[0]
    typed = read_words(rest[1:])
    for word in typed:
        if word.is_json:
            raise click.UsageError(f"{word.key}:= is for tools; the arguments of a prompt are texts: {word.key}=...")
    arguments = {word.key: word.text for word in typed}
    settings = read_settings(target, options)
    screen = Screen(quiet=settings.quiet)
    saver = Saver(out, name)

    async def work(client: Client) -> int:
        await _check(client, name, arguments)
        result = await client.get_prompt(name, arguments)
        if as_json:
            screen.raw(result.raw)
            return 0
        for number, message in enumerate(result.messages):
            if number:
                screen.out.print()
            screen.out.print(Text(f"{in_one_line(message.role, 20)}:", style="bold cyan"))
            screen.block(message.content, saver)
        return 0

    return run(target, settings, screen, work)


async def _check(client: Client, name: str, arguments: dict[str, str]) -> None:
    """Refuse what cannot work before it is sent, with what would; a server that does not list its prompts is trusted."""
    try:
        prompts = await client.list_prompts_all()
    except (Unsupported, ProtocolError):
        return
    prompt = next((listed for listed in prompts if listed.name == name), None)
    if prompt is None:
        raise click.UsageError(not_among("prompt", name, [listed.name for listed in prompts]))
    names = [argument.name for argument in prompt.arguments or []]
    unknown = next((key for key in arguments if key not in names), None)
    if unknown is not None:
        raise click.UsageError(not_among("argument", unknown, names, owner=f"the prompt {name!r}"))
    missing = [
        argument.name for argument in prompt.arguments or [] if argument.required and argument.name not in arguments
    ]
    if missing:
        words = " ".join(f"{in_one_line(argument, 60)}=..." for argument in missing)
        raise click.UsageError(f"the prompt {name!r} needs more: add {words}")
