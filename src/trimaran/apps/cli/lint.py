"""`trimaran lint`: what the tools of servers cost a model, and what makes them cost more or be found less.

It lists tools and calls none. With an `mcp.toml` it starts every server of it, as a host does; else the one TARGET.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.table import Table
from rich.text import Text

from .completion import TargetWords
from .doctor.report import several
from .exit_codes import Exit
from .output import Screen, in_one_line
from .run import run
from .target import ClientCommand, client_options, read_settings, split_words

if TYPE_CHECKING:
    from trimaran import Client
    from trimaran.host.context.report import ContextReport, ToolOfServer

_WIDTH: Final = 30  # cells of the longest bar
_MOST_TOOLS: Final = 25  # bars of single tools; --all draws every one
_MOST_NOTES: Final = 10
_PATIENCE: Final = 60.0  # seconds for every server of a file: npx and uvx install at the first start
_STYLES: Final = {"error": "red", "warning": "yellow", "note": "dim"}


@click.command("lint", cls=ClientCommand, short_help="Say what tools cost a model, and what is wrong with them.")
@click.argument("words", nargs=-1, metavar="TARGET|mcp.toml", type=TargetWords())
@click.option(
    "--budget", type=click.IntRange(min=1), metavar="N", help="Fail if the definitions are more than N tokens."
)
@click.option(
    "--format", "output", type=click.Choice(["text", "json"]), default="text", help="How to print it.  [text]"
)
@click.option(
    "--provider",
    type=click.Choice(["anthropic", "openai", "openai-responses", "gemini"]),
    default="anthropic",
    help="Count the tokens of this provider's form.  [anthropic]",
)
@click.option("--all", "is_whole", is_flag=True, help="Show every tool and every note.")
@client_options()
@click.pass_context
def command(
    ctx: click.Context,
    words: Sequence[str],
    budget: int | None,
    output: str,
    provider: str,
    is_whole: bool,
    **options: Any,
) -> int:
    """Count the tokens of every tool, and look for what costs a model more than it must, or leads it astray.

    \b
      trimaran lint boat.py                        the tools of one server
      trimaran lint mcp.toml --budget 8000         those of every server in the file
      trimaran lint boat.py --format json          for programs

    It ends with 1 if there is an error: a tool that a provider refuses, two tools with one name, a budget that is exceeded;
    and with 3 if a server of a file could not be counted.
    """
    if len(words) == 1 and words[0].endswith(".toml"):
        screen = Screen(quiet=bool(options.get("quiet")))
        report, is_complete = asyncio.run(_of_file(Path(words[0]), provider, budget, screen))
        code = _show(screen, report, output, is_whole=is_whole)
        return code if is_complete or code != Exit.OK else Exit.NO_CONNECTION
    target, rest = split_words(ctx, words)
    if rest:
        raise click.UsageError(f"lint takes one TARGET, and {rest[0]!r} is one word too many; a command goes after --")
    settings = read_settings(target, options)
    screen = Screen(quiet=settings.quiet)

    async def work(client: Client) -> int:
        from trimaran.host.context.report import ToolOfServer

        info = client.server_info
        name = "server" if info is None else info.name
        tools = [ToolOfServer(name, tool) for tool in await client.list_tools_all()]
        return _show(screen, _report(tools, provider, budget), output, is_whole=is_whole)

    return run(target, settings, screen, work)


async def _of_file(path: Path, provider: str, budget: int | None, screen: Screen) -> tuple[ContextReport, bool]:
    """The report of every server that a file has, and whether all were counted. Those that do not start are named."""
    from trimaran.host import Host
    from trimaran.host.context.report import ToolOfServer

    async with Host.load(path) as host:
        await host.ready(within=_PATIENCE)
        tools = [
            ToolOfServer(status.name, tool)
            for status in host.status()
            if (client := host.whereis(status.name)) is not None
            for tool in await client.list_tools_all()
        ]
        missing = [status for status in host.status() if status.state not in ("connected", "disabled")]
        for status in missing:
            screen.note(f"Not counted: {in_one_line(str(status), 300)}")
        return _report(tools, provider, host.budget if budget is None else budget), all(
            status.state == "idle" for status in missing
        )


def _report(tools: list[ToolOfServer], provider: str, budget: int | None) -> ContextReport:
    from trimaran.host.context.report import make_report

    return make_report(tools, format=provider, budget=budget)


# --- showing it ------------------------------------------------------------------------------------------------------


def _show(screen: Screen, report: ContextReport, output: str, *, is_whole: bool) -> int:
    if output == "json":
        screen.raw(report.to_json())
    else:
        _show_bars(screen, report, is_whole=is_whole)
        _show_findings(screen, report, is_whole=is_whole)
    return Exit.OK if report.is_good else Exit.TOOL_FAILED


def _show_bars(screen: Screen, report: ContextReport, *, is_whole: bool) -> None:
    servers = [(server.name, server.whole, f"{server.tools} tools") for server in report.servers]
    tools = sorted(report.plan.tools, key=lambda tool: (-tool.whole, tool.server, tool.name))
    drawn = tools if is_whole else tools[:_MOST_TOOLS]
    if len(servers) > 1:
        screen.lay_out(_bars(servers))
        screen.text("")
    many = len(servers) > 1
    screen.lay_out(_bars([(f"{tool.server}.{tool.name}" if many else tool.name, tool.whole, "") for tool in drawn]))
    if len(tools) > len(drawn):
        screen.text(f"... and {len(tools) - len(drawn)} more tools; --all shows them.")
    counted = "" if _is_exact() else " (an estimate that errs high; install trimaran[tokens] to count)"
    of_servers = f" of {len(servers)} servers" if many else ""
    screen.text(f"\n{report.plan.whole:,} tokens in {several(len(tools), 'tool')}{of_servers}{counted}")


def _bars(rows: Sequence[tuple[str, int, str]]) -> Table:
    longest = max((tokens for _, tokens, _ in rows), default=1) or 1
    table = Table.grid(padding=(0, 1))
    table.add_column(max_width=48, no_wrap=True, overflow="ellipsis")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(no_wrap=True)
    for name, tokens, note in rows:
        bar = Text("█" * max(1, round(tokens / longest * _WIDTH)) if tokens else "", style="cyan")
        table.add_row(Text(in_one_line(name, 100)), f"{tokens:,}", bar.append(f" {note}" if note else "", style="dim"))
    return table


def _show_findings(screen: Screen, report: ContextReport, *, is_whole: bool) -> None:
    left_out = 0
    notes = 0
    for finding in report.findings:
        if finding.severity == "note" and not is_whole:
            notes += 1
            if notes > _MOST_NOTES:
                left_out += 1
                continue
        style = _STYLES[finding.severity]
        rest = in_one_line(str(finding).removeprefix(finding.severity), 500)
        screen.lay_out(Text(finding.severity, style=style).append(rest, style="default"))
    if left_out:
        screen.text(f"... and {left_out} more notes; --all shows them.")


def _is_exact() -> bool:
    from trimaran.host.context.tokens import has_tokenizer

    return has_tokenizer()
