"""Arguments of a command: `key=value` read by a schema, `key:=JSON`, and `--args JSON|@file|-`.

`trimaran.schema.typed_values` decides the meaning of a word; this module adds the parts of a command line: files, stdin, and errors that
are usage errors.
"""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import click

from trimaran.schema import typed_values as typed
from trimaran.schema.typed_values import Word, WordError, parse_json

FILE: Final = click.Path(dir_okay=False, path_type=Path)
FOLDER: Final = click.Path(file_okay=False, path_type=Path)
WORKSPACE: Final = click.option(
    "--workspace", type=FOLDER, metavar="DIR", help="The directory of the project.  [the current one]"
)
_LARGEST: Final = 16 * 1024 * 1024  # a server takes half of it, unless it was told otherwise


@contextmanager
def _usage() -> Generator[None]:
    try:
        yield
    except WordError as error:
        raise click.UsageError(str(error)) from None


def read_words(words: Iterable[str]) -> list[Word]:
    """Split `key=value` and `key:=JSON`; UsageError for anything else, and for a key given twice."""
    listed = list(words)
    if len(listed) == 1 and listed[0].lstrip().startswith("{"):
        raise click.UsageError('a JSON object is given with --args: write --args \'{"key": "value"}\'')
    with _usage():
        return typed.read_words(listed)


def fit(words: Sequence[Word], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The words as the arguments a tool with this input schema wants."""
    with _usage():
        return typed.fit(words, schema)


def read_args(option: str | None) -> dict[str, Any]:
    """The value of --args: a JSON object, here, in @file, or - for stdin."""
    if option is None:
        return {}
    try:
        if option == "-":
            where, text = "stdin", sys.stdin.read(_LARGEST + 1)
        elif option.startswith("@"):
            where = repr(option[1:])
            with Path(option[1:]).expanduser().open("rb") as file:  # a pipe will do: @<(jq ...)
                text = file.read(_LARGEST + 1).decode()
        else:
            where, text = "--args", option
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise click.UsageError(f"--args {option}: {reason}") from None
    if len(text) > _LARGEST:
        raise click.UsageError(f"{where} holds more than {_LARGEST >> 20} MiB, which is more than a server takes")
    with _usage():
        value = parse_json(text, where)
    if not isinstance(value, dict):
        raise click.UsageError(f'{where} holds no JSON object: write --args \'{{"key": "value"}}\'')
    return cast("dict[str, Any]", value)
