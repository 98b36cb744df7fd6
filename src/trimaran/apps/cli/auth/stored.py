"""`trimaran auth list`: the stored logins, described in words. It never shows a token."""

from __future__ import annotations

import datetime
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import click
from rich.table import Table
from rich.text import Text

from ..output import Screen, in_one_line
from ..run import run_loop, show_log
from ..stored_logins import name_of, used_store
from ..target import Settings, Target

if TYPE_CHECKING:
    from trimaran.oauth import Credentials
    from trimaran.state import TokenStore

_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))


class StoredLogin(NamedTuple):
    """A login in the store; without `credentials` if its record cannot be read."""

    key: str
    credentials: Credentials | None

    @property
    def name(self) -> str:
        return name_of(self.key)


@click.command("list", short_help="List the logins that are kept.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, and nothing else.")
def command(as_json: bool) -> int:
    """List the logins that are kept: on which servers, from whom, for what, and until when. No token is shown."""
    screen = Screen()
    store = used_store()
    logins: list[StoredLogin] = []

    async def read() -> int:
        if store is not None:
            logins.extend(await read_all(store))
        return 0

    with show_log(screen, Settings()):
        code = run_loop(read())
    if as_json:
        screen.raw([_as_json(login) for login in logins])
    elif not logins:
        screen.note("No logins are kept. `trimaran auth login URL` makes one.")
    else:
        screen.lay_out(_table(logins))
    return code


async def read_all(store: TokenStore) -> list[StoredLogin]:
    from trimaran.oauth import Credentials

    logins: list[StoredLogin] = []
    for key in sorted(await store.keys()):
        record = await store.load(key)
        if record is not None:
            logins.append(StoredLogin(key, Credentials.from_bytes(record)))
    return logins


def require_url(target: Target) -> str:
    """The URL of a target; a command has no logins."""
    if not target.is_http:
        raise click.UsageError("a login goes with a URL: a command that runs here gets its secrets in its environment")
    return target.url


def where(store: Any) -> str:
    """Where logins are kept, in words."""
    from trimaran.state import FileTokens

    return str(store.path) if isinstance(store, FileTokens) else "the keyring of this system"


def scopes_of(credentials: Credentials) -> tuple[str, ...]:
    """The granted scopes; the requested ones if the server did not say."""
    return credentials.granted if credentials.granted is not None else credentials.scopes


def expiry_in_words(moment: float | None, now: float | None = None) -> str:
    """`in 59 minutes`, `2 days ago`."""
    if moment is None:
        return "at a time nobody named"
    left = round(moment - (time.time() if now is None else now))
    size, unit = next(((size, unit) for size, unit in _UNITS if abs(left) >= size), (1, "second"))
    count = abs(left) // size
    words = f"{count} {unit}" if count == 1 else f"{count} {unit}s"
    return f"in {words}" if left > 0 else f"{words} ago"


def _table(logins: list[StoredLogin]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="bold cyan")
    for title in ("name", "server, issuer", "scopes", "expires", "refreshable"):
        table.add_column(title, overflow="fold")
    for login in logins:
        credentials = login.credentials
        if credentials is None:
            table.add_row(Text(in_one_line(login.name)), Text("cannot be read: log in again", style="yellow"))
            continue
        about = Text(in_one_line(credentials.server_url, 500)).append(
            f"\n{in_one_line(credentials.issuer or '?', 500)}", style="dim"
        )
        table.add_row(
            Text(in_one_line(login.name), style="green"),
            about,
            Text(in_one_line(" ".join(scopes_of(credentials)), 500)),
            Text(expiry_in_words(credentials.expires_at) if credentials.access_token else "no token"),
            Text("yes" if credentials.refresh_token else "no"),
        )
    return table


def _as_json(login: StoredLogin) -> dict[str, Any]:
    credentials = login.credentials
    if credentials is None:
        return {"name": login.name, "readable": False}
    moment = credentials.expires_at
    expires = None if moment is None else datetime.datetime.fromtimestamp(int(moment), datetime.UTC)
    return {
        "name": login.name,
        "readable": True,
        "url": credentials.server_url,
        "issuer": credentials.issuer,
        "scopes": list(scopes_of(credentials)),
        "expires_at": None if expires is None else expires.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "expired": moment is not None and moment <= time.time(),
        "refreshable": credentials.refresh_token is not None,
    }
