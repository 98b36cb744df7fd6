"""`trimaran inspect --run calls.toml`: saved calls without a page, for CI. One line for each call; JUnit XML if asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click

from trimaran.errors import Error
from trimaran.files import read_file

from .exit_codes import Exit
from .output import Screen, in_one_line

if TYPE_CHECKING:
    from trimaran.apps.inspector.inspector import Inspector
    from trimaran.apps.inspector.saved_calls import CallsFile, RunResult
    from trimaran.apps.inspector.servers import Reach

_LARGEST: Final = 16 * 1024 * 1024


def run_calls(
    file: Path, junit: Path | None, reaches: Sequence[Reach], options: Mapping[str, Any], make: Callable[[], Inspector]
) -> int:
    """Run the calls of a file; 0 if all went as expected, 1 if not, 2 if the file cannot be used."""
    from trimaran.apps.inspector.saved_calls import junit_of, read_calls
    from trimaran.serve import run_loop

    try:
        saved = read_calls(read_file(file, _LARGEST).decode(), str(file))
    except (OSError, UnicodeDecodeError, Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise click.UsageError(f"{file} cannot be used: {reason}") from None
    if junit is not None and not junit.parent.is_dir():
        raise click.UsageError(f"{junit} cannot be written: there is no folder {junit.parent}")
    screen = Screen()
    results: list[RunResult] = []
    run_loop(_run(make(), saved, reaches, options, file, screen, results))
    failed = sum(not result.passed for result in results)
    screen.text(f"{len(results) - failed} passed, {failed} failed")
    if junit is not None:
        junit.write_text(junit_of(results, file.name), encoding="utf-8")
    return 1 if failed else Exit.OK


async def _run(
    inspector: Inspector,
    saved: CallsFile,
    reaches: Sequence[Reach],
    options: Mapping[str, Any],
    file: Path,
    screen: Screen,
    results: list[RunResult],
) -> None:
    from trimaran.apps.inspector.servers import ServerSource

    inspector.questions.declines = True
    source = ServerSource(kind="command-line", label="the command line")
    try:
        for reach in reaches:
            inspector.add(reach, source, options)
        for name, table in saved.servers.items():
            server = inspector.add(_reach(inspector, name, table, file), source, options)
            server.name = name
        await asyncio.gather(*(server.connect() for server in inspector.servers))
        await asyncio.gather(*(server.look_around() for server in inspector.servers))
        for call in saved.calls:
            result = await inspector.saved.run_call(call)
            results.append(result)
            screen.text(f"{'ok  ' if result.passed else 'FAIL'} {in_one_line(result.title, 80)} ({result.ms:.0f} ms)")
            for failure in result.failures:
                screen.text(f"       {in_one_line(failure, 400)}")
    finally:
        await inspector.close()


def _reach(inspector: Inspector, name: str, table: Any, file: Path) -> Reach:
    """The way to a server of the file; a path is relative to the file."""
    from trimaran.apps.inspector.requests import BadRequest

    entry = cast("dict[str, Any]", table) if isinstance(table, dict) else {}
    target = entry.get("target")
    if not isinstance(target, str) or len(entry) != 1:
        raise click.UsageError(
            f'{file}: [server.{name}] needs target = "...", as on the command line, and nothing else'
        )
    beside = file.parent / target.partition(":")[0]
    if "://" not in target and beside.is_file():
        target = str(file.parent / target)
    try:
        return inspector.parse_target(target)
    except BadRequest as error:
        raise click.UsageError(f"{file}: [server.{name}]: {error}") from None
