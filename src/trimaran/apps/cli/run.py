"""Run one piece of work against a server, and turn however it ends into an exit code.

Here a target becomes an open client with the command line's handlers, and every error becomes two sentences on stderr.
Ctrl-C and SIGTERM cancel the work; the client still ends its child and its connections.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import traceback
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, Final, cast

import click

from trimaran.client.stderr_summary import lines_of_failure
from trimaran.errors import CallError, Error, RemoteProtocolError, TimedOut
from trimaran.transports.child_environment import child_environment, describe_missing, missing_variables

from .exit_codes import Exit, advice, code_of, in_our_words, is_output_error
from .output import Screen
from .questions import Answerer, TerminalLines
from .target import Settings, Target

if TYPE_CHECKING:
    from trimaran import Client
    from trimaran.client.option_types import LogLevel
    from trimaran.client.server_requests import LogEntry

Work = Callable[["Client"], Awaitable[int]]

_STDERR_LINES: Final = 200  # as many as the transport of children keeps
_POLITE: Final = 0.3  # seconds for a child to end after Ctrl-C: a person who waits longer presses it again
_TERMINATED: Final = 128 + 15  # a shell's exit code for a process that SIGTERM ended


def connect_target(target: Target) -> Any:
    if not target.is_http:
        return list(target.command)
    return {"url": target.url, "transport": target.transport} if target.transport != "http" else target.url


def connect_options(target: Target, settings: Settings) -> dict[str, Any]:
    """The options of `connect` that say how to reach the target."""
    options: dict[str, Any] = {"timeout": settings.timeout, "era": settings.era}
    if settings.timeout is not None:
        options["connect_timeout"] = settings.timeout
    if target.is_http:
        options["headers"] = {**target.headers, **settings.headers}
        options["auth"] = settings.auth or settings.bearer
    else:
        options["env"] = {**target.env, **settings.env}
        if target.inherit_env or settings.inherit_env:
            options["inherit_env"] = True
        options["cwd"] = target.cwd
        options["sandbox"] = target.sandbox
    return {name: value for name, value in options.items() if value not in ({}, None) or name == "timeout"}


def run(target: Target, settings: Settings, screen: Screen, work: Work, failures: list[str] | None = None) -> int:
    """Open a client, do the work, close it; the exit code.

    Args:
        failures: Where `work` puts what a tool says of its failure, which may name a variable that it misses.
    """
    connected: list[Client] = []
    lines: deque[str] = deque(maxlen=_STDERR_LINES)
    try:
        with show_log(screen, settings, hides_children=True):
            client_work = _with_client(target, settings, screen, work, connected, lines.append)
            code = run_loop(client_work, kill_after=_POLITE)
        if not settings.debug:  # which has shown all of it
            for line in lines_of_failure(failures or (), list(lines)):
                screen.child_line(line)
        _tell_missing(target, settings, screen, [*lines, *(failures or ())])
        return code
    except Error as error:
        if settings.debug:
            screen.note(traceback.format_exc())
        message = in_our_words(error)
        screen.problem(message, advice(error, target.text, is_http=target.is_http))
        if not getattr(error, "stderr", ()):  # else its message has told
            _tell_missing(target, settings, screen, [*lines, message])
        return code_of(error, connected=bool(connected))
    except click.UsageError as error:
        # Found out with the server's help, so the command line as such is good, and its usage no news.
        screen.problem(error.message)
        return Exit.USAGE
    except Exception as error:
        if settings.debug or is_output_error(error):
            raise
        screen.problem(
            f"this is a mistake in trimaran: {type(error).__name__}: {error}",
            "Run it with --debug, and tell us what it says.",
        )
        return Exit.BUG


def _tell_missing(target: Target, settings: Settings, screen: Screen, texts: list[str]) -> None:
    """Say which variables the server seems to miss."""
    options = connect_options(target, settings)
    if target.is_http or "inherit_env" in options:
        return
    passed = child_environment(os.environ, options.get("env", {}))
    names = missing_variables("\n".join(texts), os.environ, passed)
    if names:
        flags = " ".join(f"--env {name}" for name in names)
        screen.note(f"trimaran: {describe_missing(names)}; on this command line: {flags}", "yellow")


async def _with_client(
    target: Target,
    settings: Settings,
    screen: Screen,
    work: Work,
    connected: list[Client],
    hear: Callable[[str], None],
) -> int:
    from trimaran import connect

    terminal = TerminalLines(screen) if TerminalLines.is_there(screen) else None
    answerer = Answerer(screen, terminal, settings.answers)

    async def on_log(entry: LogEntry) -> None:
        screen.log(entry.level, entry.logger, entry.data)

    if target.is_http:
        from .stored_logins import find_login

        settings = settings._replace(auth=settings.auth or await find_login(target, settings))
    options = connect_options(target, settings)
    if not target.is_http:

        def on_stderr(line: str) -> None:
            hear(line)
            if settings.debug:
                screen.child_line(line)

        options["on_stderr"] = on_stderr
    screen.progress.wait(f"{'connecting to' if target.is_http else 'starting'} {target.text}")
    try:
        async with connect(connect_target(target), on_elicit=answerer.answer, on_log=on_log, **options) as client:
            screen.progress.stop()
            connected.append(client)
            info = client.server_info
            if info is not None:
                answerer.who = lambda: info.title or info.name
            if not settings.quiet and "logging" in client.server_capabilities:
                await _set_log_level(client, settings.log_level, screen)
            return await work(client)
    finally:
        screen.progress.stop()


async def _set_log_level(client: Client, level: str, screen: Screen) -> None:
    """Ask for log lines. A server that declares them and cannot be asked is used all the same."""
    try:
        await client.set_log_level(cast("LogLevel", level))
    except (CallError, RemoteProtocolError, TimedOut) as error:
        screen.log("warning", "trimaran", f"the server declares logging, but not logging/setLevel: {error}")


def run_loop(main: Any, *, kill_after: float | None = None) -> int:
    """asyncio.run, with SIGTERM as a way out that leaves no child behind.

    Args:
        kill_after: Seconds after Ctrl-C at which a child that has not ended by itself is killed; None leaves it the time
            that its transport gives it.
    """
    signals: list[int] = []

    async def whole() -> int:
        task, loop = asyncio.current_task(), asyncio.get_running_loop()
        assert task is not None

        def end(number: int) -> None:
            signals.append(number)
            task.cancel()
            if number == signal.SIGINT and kill_after is not None:
                loop.call_later(kill_after, task.cancel)  # a transport whose close is cancelled kills its child

        with contextlib.suppress(NotImplementedError, RuntimeError):  # Windows; a thread that is not the main one
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, end, number)
        return await main

    try:
        return asyncio.run(whole())
    except asyncio.CancelledError:
        if signal.SIGINT in signals:
            raise KeyboardInterrupt from None
        if signals:
            return _TERMINATED
        raise


@contextlib.contextmanager
def show_log(
    screen: Screen, settings: Settings, *, least: int = logging.WARNING, hides_children: bool = False
) -> Generator[None]:
    """Show the library's log as lines on stderr while a command runs.

    Args:
        hides_children: Leave out what child processes write: somebody else shows that.
    """
    logger = logging.getLogger("trimaran")
    handler = _ScreenHandler(screen)
    if hides_children:
        handler.addFilter(lambda record: record.name != "trimaran.child")
    before = logger.level, logger.propagate
    logger.setLevel(logging.DEBUG if settings.debug else least)
    logger.propagate = False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before[0])
        logger.propagate = before[1]


class _ScreenHandler(logging.Handler):
    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        self._screen.log(record.levelname.lower(), record.name, record.getMessage())
