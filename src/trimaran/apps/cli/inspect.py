"""`trimaran inspect`: see and try any server in a browser. The work is done in `trimaran.apps.inspector`."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import click

from trimaran.client.sandbox_policy import read_sandbox

from .arguments import FILE
from .completion import TargetWords
from .target import (
    ClientCommand,
    Settings,
    Target,
    client_options,
    is_behind_dashes,
    parse_target,
    read_settings,
    split_words,
)

if TYPE_CHECKING:
    from trimaran.apps.inspector.inspector import Inspector
    from trimaran.apps.inspector.servers import Reach
    from trimaran.client.server_requests import Sampling

_NO_PAGE: Final = "The page is not built: run `make page` (it needs Node and npm). The interface works without it."
_FROM_AFAR: Final = (
    "For a browser on your own machine, run there: ssh -N -L {port}:127.0.0.1:{port} and this machine's name"
)


@click.command("inspect", cls=ClientCommand, short_help="See and try any server in a browser.")
@click.argument("words", nargs=-1, metavar="[TARGET]...", type=TargetWords())
@click.option("--port", type=click.IntRange(0, 65535), default=0, metavar="N", help="Where to listen.  [a free port]")
@click.option("--no-open", is_flag=True, help="Print the link and open no browser.")
@click.option("--config", type=FILE, metavar="FILE", help="Offer the servers of this mcp.toml.")
@click.option(
    "--model",
    metavar="NAME",
    help="Offer this model to answer sampling, on a click: claude-..., gpt-...; its key is read from the usual variable.",
)
@click.option(
    "--run",
    "calls_file",
    type=FILE,
    metavar="FILE",
    help="Make the saved calls of this file, compare, and end: no page. Exit code 1 if one failed.",
)
@click.option("--junit", type=FILE, metavar="FILE", help="With --run: write the results as JUnit XML.")
@client_options(seconds=60)
@click.pass_context
def command(
    ctx: click.Context,
    words: Sequence[str],
    port: int,
    no_open: bool,
    config: Path | None,
    model: str | None,
    calls_file: Path | None,
    junit: Path | None,
    **connect_options: Any,
) -> int:
    """Open a page on which you see everything a server says, call its tools, and answer its questions.

    \b
      trimaran inspect                                 servers are chosen on the page
      trimaran inspect boat.py https://boats.example/mcp
      trimaran inspect -- npx -y boat-server
      trimaran inspect --run calls.toml --junit report.xml

    The link works once, in one browser. Only this machine can reach the page, and nothing leaves it but what goes to the
    servers.
    """
    targets = _targets(ctx, words)
    reaches = [reach_of(target, _settings(target, connect_options, len(targets))) for target in targets]
    if junit is not None and calls_file is None:
        raise click.UsageError("--junit goes with --run")
    options = {"era": connect_options["era"], "timeout": connect_options["timeout"] * 1000}
    if calls_file is not None:
        from .inspect_run import run_calls

        return run_calls(calls_file, junit, reaches, options, lambda: make_inspector(config))
    from trimaran.serve import run_loop

    run_loop(_serve(reaches, options, port, config, model=model, opens=not no_open))
    return 0


def _targets(ctx: click.Context, words: Sequence[str]) -> list[Target]:
    """Every word is a target; a command stands behind `--`."""
    if is_behind_dashes(ctx):
        target, rest = split_words(ctx, words)
        return [*map(parse_target, rest), target]
    return [parse_target(word) for word in words]


def _settings(target: Target, options: dict[str, Any], count: int) -> Settings:
    """The settings of one of several targets: options that do not go with it are the others'."""
    if count > 1:
        names = ("headers", "bearer", "token_env", "login") if not target.is_http else ("env", "inherit_env")
        return read_settings(
            target, {**options, **{name: () if name in ("headers", "env") else None for name in names}}
        )
    return read_settings(target, options)


def reach_of(target: Target, settings: Settings) -> Reach:
    """A target of the command line as the inspector takes it."""
    from trimaran.apps.inspector.servers import Reach
    from trimaran.protocol.mask import Mask, mask_command, mask_url, secrets_in

    from .run import connect_options, connect_target

    options = {
        k: v for k, v in connect_options(target, settings).items() if k not in ("timeout", "era", "connect_timeout")
    }
    hidden = [*secrets_in(options.get("headers")), *secrets_in(options.get("env"))]
    if isinstance(options.get("auth"), str):
        hidden.append(options["auth"])
    return Reach(
        target=connect_target(target),
        name=_name_of(target),
        text=mask_url(target.url) if target.is_http else mask_command(target.command),
        transport=target.transport if target.is_http else "stdio",
        options=options,
        mask=Mask(target.url, target.command, hidden),
        details=(target, settings),
    )


_SCRIPTS: Final = (".js", ".mjs", ".cjs", ".ts", ".py")
_ENTRY_FILES: Final = ("index", "main", "__main__", "server", "app", "cli")
_BUILD_FOLDERS: Final = ("/", ".", "..", "dist", "build", "out", "src", "lib", "bin")


def _name_of(target: Target) -> str:
    """A short name: that of an entry, the host of a URL, the file or the package of a command."""
    file, _, entry = target.text.rpartition("#")
    if file and entry and "://" not in file:
        return entry.rstrip("'")  # the text is quoted for a shell
    if target.is_http:
        from urllib.parse import urlsplit

        return urlsplit(target.url).netloc.rpartition("@")[2]  # a URL may carry a password
    command = target.text.removeprefix("-- ").partition(" -c ")[0]  # not a word of a program in place of a file
    words = [word for word in command.split() if not word.startswith("-")]
    runners = ("npx", "uvx", "node", "python", "python3", "uv", "run")
    chosen = next((word for word in words if Path(word.strip("'\"")).name not in runners), words[0] if words else "")
    file = Path(chosen.strip("'\""))
    if file.suffix in _SCRIPTS and file.stem in _ENTRY_FILES:  # of half of all servers: the folder says which
        folders = [part for part in file.parent.parts if part not in _BUILD_FOLDERS]
        return folders[-1] if folders else file.stem
    return file.name.removesuffix(".py") or "server"


def make_inspector(config: Path | None = None) -> Inspector:
    """An inspector that reads targets and examines servers as the command line does."""
    from trimaran.apps.inspector.inspector import Inspector
    from trimaran.apps.inspector.requests import BadRequest

    def parse(text: str) -> Reach:
        try:
            target = parse_target(text)
            settings = Settings(bearer=None)
            return reach_of(target, settings)
        except click.ClickException as error:
            raise BadRequest(error.message) from None

    return Inspector(parse_target=parse, examine=_examine, config=config)


async def _examine(reach: Reach, on_check: Callable[[Any], None]) -> None:
    """Examine a server as `trimaran doctor` does."""
    from .doctor import examine
    from .doctor.report import Report

    target, settings = _target_of(reach)
    await examine(Report(target.text, on_check), target, settings)


def _target_of(reach: Reach) -> tuple[Target, Settings]:
    """The target and settings that lead where the inspector's own connection leads."""
    options, goal = reach.options, reach.target
    auth = options.get("auth")
    settings = Settings(
        headers=options.get("headers") or {},
        bearer=auth if isinstance(auth, str) else None,
        auth=None if isinstance(auth, str) else auth,
        env=options.get("env") or {},
        inherit_env=bool(options.get("inherit_env")),
    )
    entry = cast("dict[str, Any]", goal) if isinstance(goal, dict) else {}
    if isinstance(goal, str) or "url" in entry:
        url = goal if isinstance(goal, str) else str(entry["url"])
        headers: dict[str, str] = entry.get("headers") or {}
        transport = "sse" if entry.get("transport") == "sse" else "http"
        return Target(reach.text, url=url, transport=transport, headers=headers), settings
    words: list[str] = (
        [str(entry.get("command")), *map(str, entry.get("args") or ())] if entry else list(cast("list[str]", goal))
    )
    env: dict[str, str] = entry.get("env") or {}
    sandbox = read_sandbox(options.get("sandbox") or entry.get("sandbox"))
    cwd = options.get("cwd") or entry.get("cwd")
    return Target(reach.text, command=tuple(words), env=env, cwd=cwd, sandbox=sandbox), settings


async def _with_login(reach: Reach) -> Reach:
    """The way to a server with the login that `trimaran auth login` keeps for it, if there is one."""
    from msgspec.structs import replace

    from .stored_logins import find_login

    target, settings = reach.details
    login = await find_login(target, settings)
    return reach if login is None else replace(reach, options={**reach.options, "auth": login})


def _sampler(model: str) -> Callable[[Sampling], Awaitable[Any]]:
    """Asks a model, for the questions that a person hands on to it."""
    from trimaran.apps.conversation.model import open_model
    from trimaran.host import Host

    conversation = open_model(model, Host({}))
    return lambda question: conversation.sample("the inspected server", question)


async def _serve(
    reaches: Sequence[Reach], options: dict[str, Any], port: int, config: Path | None, *, model: str | None, opens: bool
) -> None:
    from trimaran.apps.inspector.servers import ServerSource
    from trimaran.apps.inspector.site import Site
    from trimaran.transports.stop_signals import ENDS, hear

    stopping = asyncio.Event()
    hear(ENDS, stopping.set)
    inspector = make_inspector(config)
    if model is not None:
        inspector.questions.sample_by_model = _sampler(model)
    async with Site(inspector, port=port) as site:
        for reach in reaches:
            source = ServerSource(kind="command-line", label="the command line")
            inspector.add(await _with_login(reach), source, options).begin_connecting()
        click.echo(site.link)
        sys.stdout.flush()
        if not site.has_page:
            click.echo(_NO_PAGE, err=True)
        if opens and site.has_page:
            from trimaran.transports.loopback_login import open_in_browser

            if os.environ.get("SSH_CONNECTION"):
                click.echo(_FROM_AFAR.format(port=site.port), err=True)
            open_in_browser(site.opening_link)
        await stopping.wait()
