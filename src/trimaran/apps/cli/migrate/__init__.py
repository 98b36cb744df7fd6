"""`trimaran migrate FILE...`: rewrite servers of FastMCP and of the official SDK to Trimaran.

It shows a diff and writes only with `--write`. Code that it cannot decide about stays as it is and is listed with its line. Exit
codes: 0 nothing is left to do, 1 something is left to a person, 2 the command cannot work as given.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import click

from trimaran.files import read_file

__all__ = ["command"]

# The largest module of the standard library has 0.3 MB; more than this is no program that a person wrote.
_MOST_BYTES: Final = 4 * 1024 * 1024


@click.command("migrate")
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--write", is_flag=True, help="Change the files. Without it, nothing is written.")
def command(files: tuple[Path, ...], write: bool) -> int:
    """Rewrite FILES that use FastMCP or the official SDK (mcp) so that they use Trimaran. A folder stands for the
    Python files in it.

    Give all files of a program at once: if its server cannot be rewritten, its other files stay as they are.
    Shows what changes as a diff, and lists what is left to you, with line numbers of the file as it was.
    """
    try:
        from .rewrite import NotPython, migrate_program
    except ImportError as error:
        if (error.name or "").partition(".")[0] != "libcst":
            raise
        raise click.UsageError('migrate needs libcst: pip install "trimaran[migrate]"') from None
    sources: dict[str, str] = {}
    for file in _python_files(files):
        try:
            sources[str(file)] = read_file(file, _MOST_BYTES).decode()
        except UnicodeDecodeError as error:
            raise click.UsageError(f"{file} cannot be read as Python: {error}") from None
        except OSError as error:
            raise click.UsageError(f"{file} cannot be read: {error.strerror}") from None
    try:
        migrations = migrate_program(sources)
    except NotPython as error:
        raise click.UsageError(str(error)) from None
    count = 0
    for name, migration in migrations.items():
        if migration.code != sources[name]:
            _show_diff(name, sources[name], migration.code)
            if write:
                Path(name).write_bytes(migration.code.encode())
        for leftover in migration.left:
            click.echo(f"{name}:{leftover.line}: {leftover.text}", err=True)
        count += len(migration.left)
    if count:
        click.echo(f"{count} left to you", err=True)
    return 1 if count else 0


def _python_files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        if not path.is_dir():
            yield path
            continue
        for file in sorted(path.rglob("*.py")):
            parts = file.relative_to(path).parts
            if not any(part.startswith(".") or part in ("site-packages", "node_modules") for part in parts):
                yield file


def _show_diff(file: str, before: str, after: str) -> None:
    lines = difflib.unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), file, f"{file} (Trimaran)"
    )
    click.echo("".join(lines), nl=False)
