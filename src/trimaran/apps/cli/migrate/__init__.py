"""`trimaran migrate FILE...`: rewrite servers of FastMCP and of the official SDK to Trimaran.

It shows a diff and writes only with `--write`. What it cannot decide stays as it is and is listed with its line. Exit
codes: 0 nothing is left to do, 1 something is left to a person, 2 the command cannot work as given.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import Final

import click

from trimaran.files import read_file

__all__ = ["command"]

# The largest module of the standard library has 0.3 MB; more than this is no program that a person wrote.
_MOST_BYTES: Final = 4 * 1024 * 1024


@click.command("migrate")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--write", is_flag=True, help="Change the files. Without it, nothing is written.")
def command(files: tuple[Path, ...], write: bool) -> int:
    """Rewrite FILES that use FastMCP or the official SDK (mcp) so that they use Trimaran.

    Shows what changes as a diff, and lists what is left to you, with line numbers of the file as it was.
    """
    try:
        from .rewrite import TooNested, migrate_source
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "libcst":
            raise
        raise click.UsageError('migrate needs libcst: pip install "trimaran[migrate]"') from None
    from libcst import ParserSyntaxError

    count = 0
    for file in files:
        try:
            source = read_file(file, _MOST_BYTES).decode()
            migration = migrate_source(source)
        except (UnicodeDecodeError, ParserSyntaxError, TooNested) as error:
            raise click.UsageError(f"{file} cannot be read as Python: {str(error).splitlines()[0]}") from None
        except OSError as error:
            raise click.UsageError(f"{file} cannot be read: {error.strerror}") from None
        if migration.code != source:
            _show_diff(file, source, migration.code)
            if write:
                file.write_bytes(migration.code.encode())
        for leftover in migration.left:
            click.echo(f"{file}:{leftover.line}: {leftover.text}", err=True)
        count += len(migration.left)
    if count:
        click.echo(f"{count} left to you", err=True)
    return 1 if count else 0


def _show_diff(file: Path, before: str, after: str) -> None:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), str(file), f"{file} (Trimaran)"
    )
    click.echo("".join(lines), nl=False)
