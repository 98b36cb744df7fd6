"""Groups of commands that help with what was typed: a misspelt command is answered with the one that was probably meant."""

from __future__ import annotations

import difflib
from pathlib import Path

import click

__all__ = ["CommandGroup"]


class CommandGroup(click.Group):
    """A group that suggests a command in place of one it does not have."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            ctx.fail(self._suggestion(ctx, args[0]))
        return super().resolve_command(ctx, args)

    def _suggestion(self, ctx: click.Context, name: str) -> str:
        names = self.list_commands(ctx)
        near = difflib.get_close_matches(name, names, n=1)
        missing = f"there is no command {name!r}"
        if near:
            return f"{missing}; did you mean `{ctx.command_path} {near[0]}`?"
        if ctx.parent is None and Path(name).suffix == ".py" and Path(name).is_file():
            return f"{missing}; to serve this file, write `{ctx.command_path} serve {name}`"
        return f"{missing}; there are {', '.join(names)}"
