"""The servers of `console` and `ask`: those of `mcp.toml`, and those that `--server` adds.

An `mcp.toml` or `.mcp.json` in the current directory counts as the project's: these hosts ask whether it is trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from .target import Target, parse_target

if TYPE_CHECKING:
    from trimaran.host import HostConfig, ServerEntry

F = TypeVar("F", bound=Callable[..., Any])


def host_options(function: F) -> F:
    """The options of a command that is a host: servers, rules, and where decisions are written."""
    for option in reversed(
        (
            click.option(
                "--server",
                "servers",
                multiple=True,
                metavar="NAME=TARGET",
                help="Add a server: a URL, a file (server.py), or a command in quotes. Repeatable.",
            ),
            click.option("--allow", multiple=True, metavar="RULE", help="Add a rule that says allow; repeatable."),
            click.option("--ask", multiple=True, metavar="RULE", help="Add a rule that says ask; repeatable."),
            click.option("--deny", multiple=True, metavar="RULE", help="Add a rule that says deny; repeatable."),
            click.option(
                "--audit", type=click.Path(dir_okay=False), metavar="FILE", help="Write every decision to this file."
            ),
            click.option("--no-mcp", is_flag=True, help="Start no server, as TRIMARAN_NO_MCP does."),
        )
    ):
        function = option(function)
    return function


def configure(file: Path | None, servers: Sequence[str]) -> HostConfig:
    """The configuration, and what the command line adds to it; a name that is in both is the command line's."""
    from msgspec.structs import replace

    from trimaran.host.config import load_config

    config = load_config(file, nearby=True)
    added = {name: _entry(name, target) for name, target in map(_read, servers)}
    failed = {name: entry for name, entry in config.failed.items() if name not in added}
    return replace(config, servers={**config.servers, **added}, failed=failed)


def _read(text: str) -> tuple[str, Target]:
    from trimaran.host.names import check_server_name

    name, equals, target = text.partition("=")
    if not equals or not name or not target:
        raise click.UsageError(f"--server {text!r} names no server: write --server NAME=TARGET")
    return check_server_name(name), parse_target(target)


def _entry(name: str, target: Target) -> ServerEntry:
    from trimaran.host.config import ServerEntry, Source

    source = Source("--server", "file")
    if target.is_http:
        transport: Any = target.transport
        return ServerEntry(
            name=name, source=source, transport=transport, url=target.url, headers=target.headers, oauth="auto"
        )
    command, *arguments = target.command
    return ServerEntry(
        name=name,
        source=source,
        command=command,
        args=tuple(arguments),
        env=target.env,
        inherit_env=target.inherit_env,
        cwd=target.cwd,
        sandbox=target.sandbox,
    )
