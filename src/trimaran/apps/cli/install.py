"""`trimaran install`: put a server of yours into another program's configuration, so that it starts it.

The file is imported here, once: a mistake in it is better heard now than looked for in the other program's log. The
entry has whole paths, since those programs start servers from a directory of their own, with little in PATH.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from trimaran.host.config import CLIENTS, Machine
from trimaran.host.config.transfer import name_for

from .arguments import WORKSPACE
from .completion import TargetWords
from .config import read_variables, send_out
from .load import load, parse
from .output import Screen


@click.command("install", short_help="Register a server of yours in Claude Desktop, Cursor, VS Code and others.")
@click.argument("target", metavar="FILE[:OBJ]", type=TargetWords())
@click.option(
    "--client",
    type=click.Choice(list(CLIENTS)),
    required=True,
    metavar="NAME",
    help="The program whose configuration is written; see above.",
)
@click.option("--name", metavar="NAME", help="The name of the server there.  [the name of the server]")
@click.option("--project", is_flag=True, help="Write to its file for this project, not for the user.")
@click.option("--env", multiple=True, metavar="K=V", help="Set this variable for the server. Repeatable.")
@click.option("--replace", is_flag=True, help="Write over a server of the same name.")
@click.option("--dry-run", is_flag=True, help="Show what would be written, secrets masked; write nothing.")
@WORKSPACE
def command(
    target: str,
    *,
    client: str,
    name: str | None,
    project: bool,
    env: Sequence[str],
    replace: bool,
    dry_run: bool,
    workspace: Path | None,
) -> int:
    """Register `trimaran serve FILE` in another program's configuration.

    \b
      trimaran install boat.py --client claude-desktop
      trimaran install boat.py --client cursor --project
      trimaran install boat.py:harbour --client vscode --name harbour --env TIDE_KEY=abc

    NAME is one of: claude-desktop, claude-code, cursor, vscode, codex, gemini, qwen, copilot, opencode, goose, windsurf,
    zed, and mcp-json for a .mcp.json in the project. The rest of its file stays as it is, comments included, and a copy is
    kept beside it.
    """
    where = parse(target)
    if where.file is None:
        raise click.UsageError(
            f"{target!r} is a module, which is found from here only: name its file, as in {target.partition(':')[0].replace('.', '/')}.py"
        )
    if name is not None and (wrong := _name_problem(name)):
        raise click.UsageError(f"--name {wrong}")
    variables = read_variables(env)
    server = load(where)
    table: dict[str, Any] = {}
    words = [*program(), "serve", str(where.file) + (f":{where.obj}" if where.obj else "")]
    table["command"], table["args"] = words[0], words[1:]
    if variables:
        table["env"] = variables
    called = name or name_for(re.sub(r"[\s/]+", "-", server.info.name))
    return send_out(
        Screen(),
        CLIENTS[client],
        {called: table},
        Machine.here(workspace),
        project=project,
        replace=replace,
        dry_run=dry_run,
        remedy="Give it with --env NAME=value.",
    )


def program() -> list[str]:
    """The command that starts this trimaran from any directory: its script beside Python, or Python with the module."""
    script = Path(sys.executable).with_name("trimaran.exe" if sys.platform == "win32" else "trimaran")
    return [str(script)] if script.is_file() else [sys.executable, "-m", "trimaran.apps.cli"]


def _name_problem(name: str) -> str:
    """Why other programs may not take a server of this name; empty if they do. `mcp.toml` allows more."""
    if re.fullmatch(r"[A-Za-z0-9_-]{1,32}", name):
        return ""
    better = re.sub(r"[^a-z0-9_-]+", "-", name.lower()).strip("-")[:32]
    hint = f", such as {better!r}" if better else ""
    return f"{name[:60]!r} is a name that some programs refuse: use 1 to 32 letters, digits, _ and -{hint}"
