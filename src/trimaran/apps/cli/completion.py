"""`trimaran completion`: print the script that teaches a shell to complete our commands.

The script asks `trimaran` itself at every Tab; that happens before any command runs, in click. `TargetWords` is what a word
that names a server or a file may become.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

import click
import click.types

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_SHELLS: Final = ("bash", "zsh", "fish")
_HARMLESS: Final = re.compile(r"[\w.@/-]+")
VARIABLE: Final = "_TRIMARAN_COMPLETE"


@click.command("completion", short_help="Complete commands and options with Tab, in bash, zsh or fish.")
@click.argument("shell", type=click.Choice(_SHELLS), required=False)
@click.pass_context
def command(ctx: click.Context, shell: str | None) -> None:
    """Print the script that teaches your shell to complete `trimaran`. Without SHELL it is the one you use.

    \b
      bash   echo 'eval "$(trimaran completion bash)"' >> ~/.bashrc
      zsh    echo 'eval "$(trimaran completion zsh)"' >> ~/.zshrc
      fish   trimaran completion fish > ~/.config/fish/completions/trimaran.fish

    Then open a new terminal.
    """
    from click.shell_completion import get_completion_class

    chosen = shell or os.path.basename(os.environ.get("SHELL", ""))
    completion = get_completion_class(chosen) if chosen in _SHELLS else None
    if completion is None:
        raise click.UsageError(
            f"SHELL is missing: write `trimaran completion {_SHELLS[0]}`, or {' or '.join(_SHELLS[1:])}"
        )
    click.echo(completion(ctx.find_root().command, {}, "trimaran", VARIABLE).source())


class TargetWords(click.types.StringParamType):
    """A text that names a file, or a server of the current directory; completed as such."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        from .target import names_nearby

        # A file that came with a repository must not put `$(...)` on anybody's command line.
        names = [name for name in names_nearby() if name.startswith(incomplete) and _HARMLESS.fullmatch(name)]
        return [CompletionItem(incomplete, type="file"), *map(CompletionItem, names)]
