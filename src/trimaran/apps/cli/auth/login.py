"""`trimaran auth login`: a person logs in with a browser, and the login is kept for the other commands (R246-R255)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, final

import click
from rich.table import Table
from rich.text import Text

from trimaran.errors import Unsupported

from ..completion import TargetWords
from ..output import Screen, in_one_line
from ..run import run, show_log
from ..stored_logins import allow_private, brings_own, default_name
from ..target import ClientCommand, Settings, split_words
from .stored import expiry_in_words, require_url, scopes_of, where

if TYPE_CHECKING:
    from trimaran import Client
    from trimaran.oauth import Credentials
    from trimaran.state import TokenStore

_SECONDS: Final = 300.0  # R253


@click.command("login", cls=ClientCommand, short_help="Log in to a server, and keep the login.")
@click.argument("words", nargs=-1, metavar="TARGET", type=TargetWords())
@click.option("--name", metavar="NAME", help="A name for the login, to keep several for one URL.  [the host]")
@click.option("--scope", "scopes", multiple=True, metavar="SCOPE", help="Ask for this scope. Repeatable.")
@click.option("--client-id", metavar="ID", help="The client that was registered for you beforehand.")
@click.option("--client-secret-env", metavar="VAR", help="The variable that holds that client's secret.")
@click.option("--client-metadata-url", metavar="URL", help="The https URL of a document that describes the client.")
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="Listen here for the browser to come back.  [TRIMARAN_MCP_OAUTH_PORT, or any free one]",
)
@click.option("--no-browser", is_flag=True, help="Open no browser: only print the address of the page.")
@click.option("--dpop", is_flag=True, help="Get a token that is bound to a key, and of no use to a thief.")
@click.option(
    "--timeout",
    type=click.FloatRange(0, min_open=True),
    default=_SECONDS,
    metavar="SECONDS",
    help=f"How long to wait for you.  [{_SECONDS:g}]",
)
@click.option("--debug", is_flag=True, help="Show log lines, and tracebacks.")
@click.pass_context
def command(
    ctx: click.Context,
    words: Sequence[str],
    *,
    name: str | None,
    scopes: Sequence[str],
    client_id: str | None,
    client_secret_env: str | None,
    client_metadata_url: str | None,
    port: int | None,
    no_browser: bool,
    dpop: bool,
    timeout: float,
    debug: bool,
) -> int:
    """Log in to a server in a browser, and keep the login for the other commands.

    \b
      trimaran auth login https://boats.example/mcp
      trimaran auth login .mcp.json#boats --scope read --scope write
      trimaran auth login https://boats.example/mcp --no-browser --port 8765

    The page to log in on is printed, and opened if there is a browser. It comes back to this machine, so on a machine
    that you reach by ssh, choose a --port and forward it: ssh -L 8765:127.0.0.1:8765.

    The login is kept in the keyring of the system, if there is one, or in a file that only you can read. It is refreshed
    by itself for as long as the server allows. An earlier login of the same name is replaced once the new one is made.
    """
    target, rest = split_words(ctx, words)
    if rest:
        raise click.UsageError(f"login takes one TARGET, and {rest[0]!r} is one word too many")
    url = require_url(target)
    if brings_own(target, Settings()):
        raise click.UsageError(
            f"{target.text} comes with an Authorization header of its own: take it out to log in instead"
        )
    from trimaran.oauth import OAuth
    from trimaran.state import default_tokens
    from trimaran.transports.loopback_login import LoopbackLogin

    screen = Screen()

    def show(page: str) -> None:
        screen.note(f"To log in to {url}, open this page in a browser on this machine:")
        screen.note(f"  {page}", "bold")
        screen.note(f"Waiting for {_in_minutes(timeout)}; Ctrl-C gives up.", "dim")

    with show_log(screen, Settings()):
        keeper = _FreshLoginStore(default_tokens())
    grant = OAuth(
        client_id=client_id,
        client_secret=_secret(client_secret_env, client_id),
        client_metadata_url=client_metadata_url,
        scopes=[scope for text in scopes for scope in text.split()] or None,
        login=LoopbackLogin(port=port, open_browser=not no_browser, show=show, timeout=timeout),
        store=keeper,
        name=name or default_name(url),
        dpop=dpop,
        allow_private=allow_private(),
    )

    async def work(client: Client) -> int:
        with contextlib.suppress(Unsupported):
            await client.list_tools()
        credentials = keeper.received
        if credentials is None:
            screen.out.print(Text(f"{url} lists its tools without a login: none is needed, and none is kept."))
        else:
            _report(screen, url, credentials, where(keeper.store))
        return 0

    return run(target, Settings(auth=grant, debug=debug), screen, work)


def _secret(variable: str | None, client_id: str | None) -> str | None:
    if variable is None:
        return None
    if client_id is None:
        raise click.UsageError("--client-secret-env goes with --client-id, the client whose secret it is")
    secret = os.environ.get(variable)
    if not secret:
        raise click.UsageError(f"--client-secret-env {variable}: this variable is not set, or empty")
    return secret


def _in_minutes(seconds: float) -> str:
    return f"{seconds / 60:g} minutes" if seconds >= 120 else f"{seconds:g} seconds"


def _report(screen: Screen, url: str, credentials: Credentials, store_name: str) -> None:
    screen.out.print(Text("Logged in", style="bold green").append(f" to {url}", style="default not bold"))
    after = "then refreshed without you" if credentials.refresh_token else "then you have to log in again"
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for title, text in (
        ("issuer", credentials.issuer or "not known"),
        ("scopes", " ".join(scopes_of(credentials)) or "none named"),
        ("expires", f"{expiry_in_words(credentials.expires_at)}, {after}"),
        ("kept in", store_name),
    ):
        table.add_row(Text(f"  {title}", style="dim"), Text(in_one_line(text, 2000)))
    screen.lay_out(table)


@final
class _FreshLoginStore:
    """A store that gives no tokens before it was given some: so that a new login is made, and the old one kept until then.

    If there is a record, it gives the registered clients, which a new login may use again.
    """

    def __init__(self, store: TokenStore) -> None:
        self.store = store
        self.received: Credentials | None = None

    async def load(self, key: str) -> bytes | None:
        from trimaran.oauth import Credentials

        record = await self.store.load(key)
        if record is None or self.received is not None:
            return record
        old = Credentials.from_bytes(record)
        return old.without_tokens().to_bytes() if old is not None else None

    async def save(self, key: str, record: bytes) -> None:
        from trimaran.oauth import Credentials

        await self.store.save(key, record)
        self.received = Credentials.from_bytes(record)

    async def delete(self, key: str) -> bool:
        return await self.store.delete(key)

    async def keys(self) -> list[str]:
        return await self.store.keys()

    def lock(self, key: str) -> AbstractAsyncContextManager[Any]:
        return self.store.lock(key)
