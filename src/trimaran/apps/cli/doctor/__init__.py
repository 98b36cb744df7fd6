"""`trimaran doctor`: start or reach a server, look at it from all sides, and say what to fix.

    process.py   a command: found, started, timed, heard, ended        http.py, auth.py   a URL: the way there, who may come in
    eras.py      both eras through our own client, timing              lint.py            the tools
    report.py    the findings

Each check ends as ok, warn, fail or skipped with its reason. Nothing is changed on the server: it is asked who it is and
what it offers, and never to call a tool.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Sequence
from typing import Any, Final

import click

from trimaran.errors import Error

from ..completion import TargetWords
from ..output import Screen
from ..run import run_loop, show_log
from ..target import ClientCommand, Settings, Target, client_options, read_settings, split_words
from .report import Check, Report, print_check, print_summary

__all__ = ["command", "examine"]

_PATIENCE: Final = 30.0  # for one that waits for ever, where it knows nothing of that

_EPILOG: Final = "\b\nExit codes:\n    0  nothing failed\n    1  at least one check failed\n    2  the command cannot work as it was typed\n  130  interrupted with Ctrl-C"


@click.command("doctor", cls=ClientCommand, epilog=_EPILOG, short_help="Find out what is wrong with a server.")
@click.argument("words", nargs=-1, metavar="TARGET", type=TargetWords())
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON, and nothing else.")
@click.option(
    "--skip",
    "waived",
    multiple=True,
    metavar="CHECK",
    help="Do not count this check, by its name in the report: one that cannot apply to this server. Repeatable.",
)
@client_options(examines=True)
@click.pass_context
def command(ctx: click.Context, words: Sequence[str], as_json: bool, waived: Sequence[str], **options: Any) -> int:
    """Examine a server and say what is wrong, why it matters and what to do.

    \b
      trimaran doctor boat.py
      trimaran doctor -- npx -y boat-server
      trimaran doctor https://boats.example/mcp --bearer "$TOKEN"
      trimaran doctor boat.py --skip "end of input"

    A command is found, started, timed and ended. A URL is resolved, reached, and asked in ways that clients ask, and in
    ways that must be refused. Both are met in both eras of the protocol, and their tools are examined, also for what
    Anthropic, OpenAI and Gemini would refuse. No tool is called.
    """
    target, rest = split_words(ctx, words)
    if rest:
        raise click.UsageError(
            f"doctor takes one TARGET, and {rest[0]!r} is one word too many; a command goes after --"
        )
    settings = read_settings(target, options)
    screen = Screen()
    printed: list[Check] = []

    def show(check: Check) -> None:
        screen.progress.stop()
        print_check(screen, check, printed[-1] if printed else None)
        printed.append(check)
        screen.progress.wait(f"examining {target.text}")

    async def work() -> int:
        screen.progress.wait(f"examining {target.text}")
        try:
            return await examine(report, target, settings)
        finally:
            screen.progress.stop()

    report = Report(target.text, None if as_json else show, waived=waived)
    try:
        # The report covers the library's own warnings.
        with show_log(screen, settings, least=logging.CRITICAL):
            if (ended_by_signal := run_loop(work())) != 0:
                return ended_by_signal
    except (click.ClickException, KeyboardInterrupt):
        raise
    except Exception as error:
        if settings.debug:
            screen.note(traceback.format_exc())
        report.section("Doctor")
        report.fail(
            "doctor",
            f"{type(error).__name__}: {error}",
            "This is a mistake in trimaran, not in the server.",
            "Run it with --debug, and tell us what it says.",
        )
    for name in report.never_made():
        screen.note(f"--skip {name}: the report has no such check. It has: {', '.join(report.names())}.")
    if as_json:
        screen.raw(report.to_json())
    else:
        print_summary(screen, report)
    return 0 if report.is_healthy else 1


async def examine(report: Report, target: Target, settings: Settings) -> int:
    """Make every check that fits the target, into the report."""
    from .eras import meet_both

    if not target.is_http:
        from .process import examine_process

        known = await examine_process(report, target, settings)
        if known is not None:
            await meet_both(report, target, settings, not_modern=known.not_modern)
        else:
            _skip_rest(report, "the server gives no answer")
        return 0
    from ..stored_logins import find_login
    from .http import Endpoint, reach, wire_for

    if not await reach(report, target.url, settings.timeout or _PATIENCE):
        _skip_rest(report, "there is no connection")
        return 0
    login = await find_login(target, settings)
    if login is not None:
        settings = await _with_login(target, settings, login)
    async with wire_for(target, settings) as wire:
        endpoint = Endpoint(report, target.url, wire)
        if not await endpoint.knock():
            _skip_rest(report, "see above")
            return 0
        met = await meet_both(report, target, settings)
        await endpoint.examine(modern=met.modern, legacy=met.legacy)
    return 0


async def _with_login(target: Target, settings: Settings, login: Any) -> Settings:
    """The settings with the token of a login, which bare requests can carry; or with the login, if they cannot (DPoP)."""
    from ..stored_logins import headers_of

    try:
        scheme, _, token = (await headers_of(login, target.url)).get("Authorization", "").partition(" ")
    except Error:  # no fresh token is to be had: the report will say that one is needed
        return settings
    return settings._replace(bearer=token) if scheme == "Bearer" else settings._replace(auth=login)


def _skip_rest(report: Report, reason: str) -> None:
    for section, key in (("Protocol", "modern"), ("Protocol", "legacy"), ("Tools", "tools")):
        report.section(section)
        report.skip(key, reason)
