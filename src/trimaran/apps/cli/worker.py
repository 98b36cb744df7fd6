"""`trimaran worker`: a process that runs the tasks of a server, which others serve (`trimaran serve ... --tasks docket`).

It loads the same file and uses the same store, but does not listen. One line on stderr says that it is ready. After SIGTERM,
Ctrl-C or the end of its terminal, running tasks have a while to end; a second signal does not wait. Another worker takes over the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from trimaran.transports.stop_signals import ENDS, hangup, hear

from .completion import TargetWords
from .load import load, parse
from .logs import log_to_stderr
from .serve import LEVELS

if TYPE_CHECKING:
    from trimaran.ext.tasks.docket import Docket

# How long a worker tries to stop bodies that ignore cancellation. When it is gone, others take its tasks over.
_LAST_SECONDS: Final = 20.0


@click.command("worker", short_help="Run the tasks of a Server in a Python file.")
@click.argument("target", metavar="FILE[:OBJ]", type=TargetWords())
@click.option("--store", metavar="URL", required=True, help="The store of the servers, on Redis: redis://localhost.")
@click.option("--concurrency", type=click.IntRange(1), default=10, show_default=True, help="Tasks at a time.")
@click.option(
    "--drain",
    type=click.FloatRange(0),
    default=30.0,
    show_default=True,
    metavar="SECONDS",
    help="How long tasks may go on after SIGTERM or Ctrl-C.",
)
@click.option("--debug", is_flag=True, help="Tell clients what went wrong inside a failed task.")
@click.option(
    "--log-level",
    type=click.Choice(LEVELS, case_sensitive=False),
    default="warning",
    show_default=True,
    help="The level of the log on stderr.",
)
def command(target: str, *, store: str, concurrency: int, drain: float, debug: bool, log_level: str) -> int:
    """Run the tasks of the Server object of a Python file or module.

    \b
      trimaran serve boat.py --port 9090 --store redis://localhost --tasks docket
      trimaran worker boat.py --store redis://localhost

    Servers and workers load the same file and have the same store. Start as many of each as you like, on as many machines.

    SIGTERM or Ctrl-C: nothing more is taken, and what runs may end within --drain seconds. After that a resumable task is
    left to another worker, and any other fails, with the reason. A second SIGTERM or Ctrl-C does not wait.
    """
    log_to_stderr(log_level)
    from trimaran.ext.tasks.docket import Docket
    from trimaran.serve import run_loop, share

    server = load(parse(target))
    if debug:
        server.expose_internal_errors = True
    share(server, store)
    docket = Docket.of(server)
    if docket is None:
        docket = Docket()
        server.enable_extension(docket)

    def announce() -> None:
        print(
            f"a worker of {server.info.name} takes {concurrency} tasks at a time (Ctrl-C ends it)",
            file=sys.stderr,
            flush=True,
        )

    docket.where()  # before there is a loop: what cannot work is said plainly
    run_loop(_work(docket, concurrency, drain, announce))
    return 0


async def _work(docket: Docket, concurrency: int, drain: float, announce: Callable[[], None]) -> None:
    stop = asyncio.Event()
    working = asyncio.ensure_future(docket.work(concurrency=concurrency, drain=drain, stop=stop, on_ready=announce))

    def end() -> None:
        if stop.is_set():
            working.cancel()
        else:
            stop.set()
            _end_in(drain + _LAST_SECONDS)

    hear((*ENDS, *hangup()), end)
    with contextlib.suppress(asyncio.CancelledError):
        await working


def _end_in(seconds: float) -> None:
    """A body in a thread, or one that cannot be cancelled, must not keep the process for ever."""

    def end() -> None:
        print("tasks that could not be stopped were left behind", file=sys.stderr, flush=True)
        os._exit(1)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
