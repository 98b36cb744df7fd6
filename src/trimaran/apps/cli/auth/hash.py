"""`trimaran auth hash`: a secret as a server stores it (R158-R161).

The secret is typed unseen, or comes through a pipe: never from the command line, where everybody on the machine and the
shell's history would see it.
"""

from __future__ import annotations

import getpass
import os
import secrets
import sys
from typing import Any, Final

import click

PEPPER: Final = "TRIMARAN_API_KEY_PEPPER"
_MOST: Final = 64 * 1024
_SHORT: Final = 16  # characters of a key; the stored form of a shorter one can be guessed


@click.command("hash", short_help="Make the stored form of an API key or a password.")
@click.option("--key", "kind", flag_value="key", default="key", help="An API key: the default.")
@click.option("--password", "kind", flag_value="password", help="A password.")
@click.option("--generate", is_flag=True, help="Key: make a random one; it goes to stderr, its stored form to stdout.")
@click.option(
    "--pepper-env", metavar="VAR", help=f"Key: the variable that holds the server's pepper.  [{PEPPER}, if it is set]"
)
@click.option(
    "--algorithm",
    type=click.Choice(["pbkdf2-sha256", "sha256-hex"]),
    metavar="NAME",
    help="Password: pbkdf2-sha256, or sha256-hex for old stores.  [pbkdf2-sha256]",
)
@click.option("--iterations", type=click.IntRange(100_000), metavar="N", help="Password: rounds of PBKDF2.  [600000]")
def command(*, kind: str, generate: bool, pepper_env: str | None, algorithm: Any, iterations: int | None) -> int:
    """Make the stored form of an API key or a password, which is asked for at the terminal, or read from a pipe.

    \b
      trimaran auth hash --generate >> keys.txt          a new key, shown once
      trimaran auth hash                                 a key that you type
      trimaran auth hash --password < password.txt

    A line of keys.txt is a stored form, and after it, if you like, who it belongs to and the scopes: it is what
    `trimaran serve FILE --auth apikeys:keys.txt` reads.
    """
    _check(kind, {"--generate": generate, "--pepper-env": pepper_env}, "key")
    _check(kind, {"--algorithm": algorithm, "--iterations": iterations}, "password")
    from trimaran.auth import hash_key, hash_password

    if kind == "password":
        options: dict[str, Any] = {"algorithm": algorithm, "iterations": iterations}
        print(hash_password(_read("Password"), **{k: v for k, v in options.items() if v is not None}))
        return 0
    pepper = _pepper(pepper_env)
    if generate:
        key = secrets.token_urlsafe(32)
        print(hash_key(key, pepper))
        print(f"The key, which is shown this once and stored nowhere:\n{key}", file=sys.stderr)
        return 0
    key = _read("API key")
    if len(key) < _SHORT:
        print(f"trimaran: a key of {len(key)} characters can be guessed; --generate makes a good one", file=sys.stderr)
    print(hash_key(key, pepper))
    return 0


def _check(kind: str, options: dict[str, Any], needed: str) -> None:
    for flag, value in options.items():
        if value and kind != needed:
            raise click.UsageError(f"{flag} goes with --{needed}")


def _pepper(variable: str | None) -> str | None:
    pepper = os.environ.get(variable or PEPPER) or None
    if variable is not None and pepper is None:
        raise click.UsageError(f"--pepper-env {variable}: this variable is not set, or empty")
    return pepper


def _read(name: str) -> str:
    """The secret: typed twice, or all of standard input without its line end."""
    if sys.stdin.isatty():
        try:
            secret = getpass.getpass(f"{name}: ")
            if secret and getpass.getpass(f"{name}, once more: ") != secret:
                raise click.UsageError("the two secrets differ: run this again, and type the same one twice")
        except EOFError:
            secret = ""
    else:
        raw = sys.stdin.buffer.read(_MOST + 1)
        try:
            secret = raw.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError:
            raise click.UsageError("the input from the pipe is not text (UTF-8)") from None
        if len(raw) > _MOST or "\n" in secret:
            raise click.UsageError("the input from the pipe has more than one line: give one secret at a time")
    if not secret:
        raise click.UsageError("there is no secret: type it, or let it come from a file, trimaran auth hash < FILE")
    return secret
