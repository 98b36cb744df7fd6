"""`trimaran read`: print a resource, or save it if it is not text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from trimaran.types import BlobResourceContents

from .arguments import FOLDER
from .completion import TargetWords
from .output import Saver, Screen
from .run import run
from .target import ClientCommand, client_options, missing_word, read_settings, split_words

if TYPE_CHECKING:
    from trimaran import Client


@click.command("read", cls=ClientCommand, short_help="Read a resource.")
@click.argument("words", nargs=-1, metavar="TARGET URI", type=TargetWords())
@click.option("--json", "as_json", is_flag=True, help="Print the raw result as JSON, and nothing else.")
@click.option("--out", type=FOLDER, metavar="DIR", help="Where what is not text is saved.  [the current directory]")
@client_options(answers=True)
@click.pass_context
def command(ctx: click.Context, words: Sequence[str], as_json: bool, out: Path | None, **options: Any) -> int:
    """Read a resource of a server and print it.

    \b
      trimaran read boat.py harbour://guide
      trimaran read https://boats.example/mcp harbour://chart.png > chart.png
      trimaran read harbour://guide -- npx -y boat-server

    Text is printed as it is. Bytes go to stdout as they are when that is redirected; at a terminal, or with --out, they
    are saved in a file named after the resource, never over one that is there.
    """
    target, rest = split_words(ctx, words)
    if not rest:
        raise click.UsageError(missing_word("URI", "trimaran read"))
    if len(rest) > 1:
        raise click.UsageError(f"{rest[1]!r} is one word too many: trimaran read TARGET URI")
    uri = rest[0]
    if not re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", uri):
        raise click.UsageError(f"{uri!r} is not a URI: `trimaran list TARGET --resources` shows those of the server")
    if "{" in uri:
        raise click.UsageError(f"{uri!r} is a template, not a URI: write a value in the place of each {{...}}")
    settings = read_settings(target, options)
    screen = Screen(quiet=settings.quiet)
    saver = Saver(out or Path(), _stem(uri))

    async def work(client: Client) -> int:
        result = await client.read_resource(uri)
        blobs = [content for content in result.contents if isinstance(content, BlobResourceContents)]
        if as_json:
            screen.raw(result.raw)
            screen.files_on = screen.err
            for content in blobs if out is not None else ():
                screen.contents(content, saver)
        elif len(blobs) == len(result.contents) == 1 and out is None and not screen.out.is_terminal:
            screen.write_bytes(result.blob)
        else:
            for content in result.contents:
                screen.contents(content, saver)
        return 0

    return run(target, settings, screen, work)


def _stem(uri: str) -> str:
    """A file name's beginning from a URI: its last part, without the ending."""
    try:
        parts = urlsplit(uri)
        path, host = parts.path, parts.netloc
    except ValueError:
        return "resource"
    return PurePosixPath(path.rstrip("/")).stem or host.partition(".")[0] or "resource"
