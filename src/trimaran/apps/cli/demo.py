"""`trimaran demo`: the demo server on HTTP, a tour of it, and how to add it to the programs people use.

The server and its tour share one process and one loop; the tour still goes through the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import shutil
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from rich.console import Console
from rich.markup import escape

from trimaran.errors import ConfigError

if TYPE_CHECKING:
    from trimaran.serve import HttpServer

DEMO: Final = "trimaran.apps.demo.server"
_WIDTH: Final = 80


@click.command("demo", short_help="Run the demo server and take a tour of it.")
@click.option("--once", is_flag=True, help="Exit after the tour.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=9090, show_default=True, help="The port; 0 takes a free one."
)
def command(once: bool, host: str, port: int) -> int:
    """Run the demo, a small harbour, and take a tour of it: tools, progress, images, questions, resources, prompts.

    Then it serves until Ctrl-C, and says how to add it to Claude, Cursor, VS Code and the Inspector.
    """
    from trimaran.serve import run_loop

    _check_port(host, port)
    console = _console()
    code: list[int] = []

    async def whole() -> None:
        code.append(await _run(console, host, port, once))

    run_loop(whole())
    return code[0]


def _console() -> Console:
    # On a pipe rich would take the width from the environment, and a log is read at eighty columns.
    console = Console(highlight=False)
    width = min(console.width, _WIDTH) if console.is_terminal else _WIDTH
    return Console(highlight=False, width=width)


def _check_port(host: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        if sys.platform != "win32":  # where it means something else: to share the port
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            other = _free_port(family, host)
            hint = f"; try another: trimaran demo --port {other}" if other else ""
            raise ConfigError(f"cannot listen on {host} port {port}: {error.strerror or error}{hint}") from None


def _free_port(family: int, host: str) -> int | None:
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        try:
            probe.bind((host, 0))
        except OSError:
            return None
        return probe.getsockname()[1]


async def _run(console: Console, host: str, port: int, once: bool) -> int:
    from trimaran.serve import HttpServer
    from trimaran.transports.guard import is_loopback

    # By name, as `trimaran serve` finds it: the demo is an application beside this one.
    server: Any = importlib.import_module(DEMO).server
    # A harbour has no secrets: on a public address, programs may come in, and web pages may not.
    public: dict[str, Any] = {} if is_loopback(host) else {"allowed_origins": [], "allow_missing_origin": True}
    task = asyncio.current_task()
    assert task is not None
    stop = _cancel_on_signal(task)
    try:
        async with HttpServer(server, host=host, port=port, **public) as http:
            return await _show(console, http, once)
    except asyncio.CancelledError:
        if not stop.is_set():
            raise
        task.uncancel()
        console.print("\nFair winds.")
        return 0


def _cancel_on_signal(task: asyncio.Task[Any]) -> asyncio.Event:
    """Ctrl-C and SIGTERM cancel the task, wherever it is, once."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()

    def end() -> None:
        if not stop.is_set():
            stop.set()
            task.cancel()

    for number in (signal.SIGINT, signal.SIGTERM):
        try:
            loop.add_signal_handler(number, end)
        except NotImplementedError:  # Windows
            signal.signal(number, lambda number, frame: _soon(loop, end))
    return stop


def _soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(callback)


async def _show(console: Console, http: HttpServer, once: bool) -> int:
    from .tour import Tour, TourFailed

    url = http.url.replace("//0.0.0.0:", "//127.0.0.1:").replace("//[::]:", "//[::1]:")
    console.print(f"[bold]Port Trimaran[/] is open at [link={url}]{url}[/link]")
    try:
        await Tour(url, console).walk()
    except TourFailed as error:
        console.print(f"\n[bold red]The tour failed[/] at {escape(str(error))}")
        return 1
    if once:
        console.print("\nThe tour is over, all is well. `trimaran demo` keeps the harbour open for your own client.")
        return 0
    _print_invitations(console, url)
    async with _inspecting(url) as link:
        console.print("\n[bold]The inspector, in your browser[/] (the link works once)")
        console.print(f"  {link}", markup=False, soft_wrap=True)
        console.print("\nServing until Ctrl-C.")
        await asyncio.get_running_loop().create_future()
    return 0


@contextlib.asynccontextmanager
async def _inspecting(url: str) -> AsyncGenerator[str, None]:
    """The harbour in the inspector: the link, or what to run for one."""
    from trimaran.apps.inspector.servers import ServerSource
    from trimaran.apps.inspector.site import Site

    from .inspect import make_inspector

    inspector = make_inspector(None)
    async with Site(inspector) as site:
        source = ServerSource(kind="command-line", label="trimaran demo")
        inspector.add(inspector.parse_target(url), source).begin_connecting()
        yield site.link if site.has_page else "Its page is not built here: run `make page`, which needs Node and npm."


def _print_invitations(console: Console, url: str) -> None:
    """How to add the demo to the programs people use. Lines to be copied are not wrapped."""

    def show(title: str, *lines: str) -> None:
        console.print(f"\n[bold]{title}[/]")
        for line in lines:
            console.print(f"  {line}", markup=False, soft_wrap=True)

    words = _serve_words()
    desktop = {"mcpServers": {"demo": {"command": words[0], "args": [*words[1:], f"{DEMO}:server"]}}}
    console.print()
    console.rule("Your turn")
    show("Claude Code", f"claude mcp add --transport http demo {url}")
    show("Claude Desktop, in claude_desktop_config.json (it starts the server itself)", json.dumps(desktop))
    show("Cursor, in .cursor/mcp.json", json.dumps({"mcpServers": {"demo": {"url": url}}}))
    show("VS Code, in .vscode/mcp.json", json.dumps({"servers": {"demo": {"type": "http", "url": url}}}))
    show("MCP Inspector", f"npx @modelcontextprotocol/inspector --transport http --server-url {url}")


def _serve_words() -> list[str]:
    """`trimaran serve` in words that work from any directory."""
    beside = shutil.which("trimaran", path=str(Path(sys.executable).parent)) or shutil.which("trimaran")
    return [beside, "serve"] if beside else [sys.executable, "-m", "trimaran.apps.cli", "serve"]
