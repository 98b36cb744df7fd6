"""`trimaran console`: a host in the terminal. `trimaran.apps.console` has the application; this module has its options."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from trimaran.errors import ConfigError

from .arguments import FILE
from .host_options import configure, host_options

if TYPE_CHECKING:
    from trimaran.host import Host

_EXTRA: Final = ("textual", "textual_image")


@click.command("console", short_help="Use the tools of many servers in the terminal, by hand or with a model.")
@click.argument("file", type=FILE, required=False)
@host_options
@click.option("--model", default="", metavar="NAME", help="Send messages to this model, which may use the tools.")
@click.option(
    "--code", is_flag=True, help="The model writes Python over the tools, run in a sandbox, instead of calls."
)
@click.option(
    "--mcp-oauth-port",
    "oauth_port",
    type=click.IntRange(1, 65535),
    help="The port that a login comes back to, instead of a free one or TRIMARAN_MCP_OAUTH_PORT.",
)
@click.option("--no-pictures", is_flag=True, help="Name pictures instead of drawing them.")
@click.option("--no-history", is_flag=True, help="Keep the lines that were typed in memory only.")
def command(
    file: Path | None,
    servers: Sequence[str],
    allow: Sequence[str],
    ask: Sequence[str],
    deny: Sequence[str],
    model: str,
    code: bool,
    audit: str | None,
    no_mcp: bool,
    oauth_port: int | None,
    no_pictures: bool,
    no_history: bool,
) -> int:
    """Use the tools of many servers in the terminal: call them by hand, or let a model use them.

    \b
      trimaran console                                  the servers of mcp.toml
      trimaran console mcp.toml --deny 'mcp__*__delete_*'
      trimaran console --server boat=boat.py --server sea=https://sea.example/mcp
      trimaran console --server fs='npx -y @modelcontextprotocol/server-filesystem .'
      trimaran console --model anthropic:claude-sonnet-5

    FILE is an mcp.toml, read alone; without it, those of the user and of the project. The servers of --server come on top. A
    project's file is asked about before anything in it is started, once for each version of it.

    A call that you type is made, unless a rule denies it. A call by a model is asked about, unless a rule allows it. Type /help in the console for what can be typed.
    """
    _require_extra()
    _require_terminal()
    from trimaran.apps.console import run_console
    from trimaran.apps.console.history import default_file

    config = configure(file, servers)
    if no_mcp:
        os.environ["TRIMARAN_NO_MCP"] = "1"
    if oauth_port is not None:
        os.environ["TRIMARAN_MCP_OAUTH_PORT"] = str(oauth_port)

    def open_host(**options: Any) -> Host:
        from trimaran.host import Host
        from trimaran.host.trust import Trust

        # A file that was named was meant; what lies in a project is asked about.
        return Host(config, allow=allow, ask=ask, deny=deny, audit=audit, trust=Trust(), **options)

    history = None if no_history else default_file()
    return run_console(open_host, model=model, code=code, pictures=not no_pictures, history=history)


def _require_extra() -> None:
    import importlib.util

    missing = [name for name in _EXTRA if importlib.util.find_spec(name) is None]
    if missing:
        raise ConfigError("the console needs Textual, which is not installed: pip install 'trimaran[console]'")


def _require_terminal() -> None:
    if not (sys.stdin.isatty() and sys.stdout.isatty() and sys.stderr.isatty()):
        raise ConfigError("the console needs a terminal: without one, use `trimaran call TARGET TOOL KEY=VALUE`")
