"""Groups of commands: each command loaded when it is run, and a misspelt one answered with the one that was probably meant."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem


class CommandGroup(click.Group):
    """A group that suggests a command in place of one it does not have, and says where an option of a command belongs."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            names = [name for name in self.list_commands(ctx) if name in words]
            if not names:
                raise
            ctx.fail(
                f"there is no option {error.option_name!r} here; options of `{names[0]}` go behind it: "
                f"`{ctx.command_path} {names[0]} {error.option_name} ...`"
            )

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None and not ctx.resilient_parsing:
            ctx.fail(self._suggestion(ctx, name))
        return super().resolve_command(ctx, args)

    def _suggestion(self, ctx: click.Context, name: str) -> str:
        names = self.list_commands(ctx)
        near = difflib.get_close_matches(name, names, n=1)
        missing = f"there is no command {name!r}"
        if near:
            return f"{missing}; did you mean `{ctx.command_path} {near[0]}`?"
        if ctx.parent is None and name.endswith(".py") and Path(name).is_file():
            return f"{missing}; to serve this file, write `{ctx.command_path} serve {name}`"
        return f"{missing}; there are {', '.join(names)}"


class LazyGroup(CommandGroup):
    """A group whose commands are loaded when they are run; listing and completing them loads none.

    Args:
        table: For each name, the module that has it as `command`, and what the list of commands says.
    """

    def __init__(self, *args: Any, table: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        self._table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._table:
            return None
        return importlib.import_module(self._table[cmd_name][0]).command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in self._table.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        names = [
            CompletionItem(name, help=summary)
            for name, (_, summary) in self._table.items()
            if name.startswith(incomplete)
        ]
        return names or click.Command.shell_complete(self, ctx, incomplete)
