"""The command line: `trimaran demo`, `trimaran serve FILE`, `trimaran list|call|read|prompt|doctor TARGET`,
`trimaran auth login|logout|list|hash`, `trimaran install FILE`, `trimaran console`, `trimaran ask`, `trimaran config check|show|import|export`, `trimaran migrate FILE`, `trimaran pins`, `trimaran completion`.

Each command lives in a module of its own and is imported when it is run, so that `trimaran serve` on stdio pays for
nothing but itself. Standard output belongs to what a command produces; complaints and logs go to standard error.

Exit codes: 0 done, 1 what was run failed, 2 the command cannot work as given, 130 interrupted; those of the commands
that talk to a server stand in `exit_codes.py`.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from typing import Any, Final

import click

from trimaran import __version__
from trimaran.errors import Error

from .exit_codes import code_of, is_output_error
from .command_groups import LazyGroup

__all__ = ["main"]

# name -> (where it lives, what the list of commands says)
COMMANDS: Final = {
    "demo": ("trimaran.apps.cli.demo", "Run the demo server and take a tour of it."),
    "serve": ("trimaran.apps.cli.serve", "Serve the Server in a Python file, on stdio or HTTP."),
    "worker": ("trimaran.apps.cli.worker", "Run the tasks of a server that others serve."),
    "list": ("trimaran.apps.cli.listing", "List what a server offers."),
    "call": ("trimaran.apps.cli.call", "Call a tool."),
    "read": ("trimaran.apps.cli.read", "Read a resource."),
    "prompt": ("trimaran.apps.cli.prompt", "Get a prompt."),
    "doctor": ("trimaran.apps.cli.doctor", "Find out what is wrong with a server."),
    "inspect": ("trimaran.apps.cli.inspect", "See and try any server in a browser."),
    "lint": ("trimaran.apps.cli.lint", "Say what tools cost a model, and what is wrong with them."),
    "auth": ("trimaran.apps.cli.auth", "Log in to servers, and make stored forms of secrets."),
    "permissions": ("trimaran.apps.cli.permissions", "Say what a tool may do, and which rule says so."),
    "pins": ("trimaran.apps.cli.pins", "See what servers changed since you agreed to them, and agree."),
    "install": (
        "trimaran.apps.cli.install",
        "Register a server of yours in Claude Desktop, Cursor, VS Code and others.",
    ),
    "gateway": ("trimaran.apps.cli.gateway", "Serve the servers of an mcp.toml behind one port, for many callers."),
    "console": ("trimaran.apps.cli.console", "Use the tools of many servers in the terminal, by hand or with a model."),
    "ask": ("trimaran.apps.cli.ask", "Let a model answer one prompt with the tools of many servers, and end."),
    "config": ("trimaran.apps.cli.config", "Check, show, import and export which servers the host uses."),
    "migrate": ("trimaran.apps.cli.migrate", "Rewrite a server of FastMCP or the official SDK to Trimaran."),
    "completion": ("trimaran.apps.cli.completion", "Complete commands and options with Tab, in bash, zsh or fish."),
}


@click.group(
    cls=LazyGroup,
    table=COMMANDS,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, "-V", "--version", prog_name="trimaran", message="%(prog)s %(version)s")
@click.pass_context
def commands(ctx: click.Context) -> None:
    """Trimaran: the Model Context Protocol for Python, on three hulls.

    Start with `trimaran demo`. Then write a server, run `trimaran serve my_server.py`, and try it with `trimaran list`
    and `trimaran call`. `trimaran doctor` says why a server cannot be reached, and `trimaran auth login` logs you in.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    return _flush_output(_run(arguments))


def _run(arguments: Sequence[str] | None) -> int:
    try:
        result: Any = commands.main(
            list(arguments) if arguments is not None else None, prog_name="trimaran", standalone_mode=False
        )
    except click.ClickException as error:
        error.message = _safe(error.message)  # pyright: ignore[reportAttributeAccessIssue]  (it may quote a file)
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return 130
    except Error as error:
        print(f"trimaran: {_safe(str(error))}", file=sys.stderr)
        return code_of(error)
    except OSError as error:
        if not is_output_error(error):
            raise
        return _report_lost_output(error)
    return result if isinstance(result, int) else 0


def _safe(text: str) -> str:
    from trimaran.host.terminal_text import safe

    return safe(text)


def _flush_output(code: int) -> int:
    """Flush what the command printed; return `code`, or 1 in place of 0 if output was lost.

    Python flushes once more at exit. If that fails, because the reader or the terminal is gone or the disk is full, the
    process ends with 120 and a complaint about an ignored exception, whatever the command returned.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            if stream is not None:
                stream.flush()
        except OSError as error:
            setattr(sys, name, None)
            code = code or _report_lost_output(error)
    return code


def _report_lost_output(error: OSError) -> int:
    sys.stdout = None  # its buffer cannot be written either
    if not isinstance(error, BrokenPipeError):  # else the reader has read enough, and need not be told
        with contextlib.suppress(OSError):
            print(f"trimaran: cannot write the output: {error.strerror or error}", file=sys.stderr)
    return 1
