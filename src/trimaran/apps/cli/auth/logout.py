"""`trimaran auth logout`: forget a login here, and have its tokens withdrawn where they came from (RFC 7009).

The tokens are deleted from this machine first, before the authorization server is asked to withdraw them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click
from rich.text import Text

from trimaran.errors import Error

from ..completion import TargetWords
from ..output import Screen
from ..run import run_loop, show_log
from ..stored_logins import allow_private, used_store
from ..target import ClientCommand, Settings, split_words
from .stored import StoredLogin, expiry_in_words, read_all, require_url

if TYPE_CHECKING:
    from trimaran.oauth import Credentials
    from trimaran.state import TokenStore

_SECONDS: Final = 10.0  # for the authorization server to agree; logging out must not hang

_EPILOG: Final = "\b\nExit codes:\n    0  done\n    1  there is no such login\n    2  the command cannot work as it was typed\n  130  interrupted with Ctrl-C"


@click.command("logout", cls=ClientCommand, epilog=_EPILOG, short_help="Withdraw a login, and forget it.")
@click.argument("words", nargs=-1, metavar="TARGET", type=TargetWords())
@click.option("--all", "everything", is_flag=True, help="All logins on all servers, instead of a TARGET.")
@click.option("--name", metavar="NAME", help="Only the login of this name.")
@click.pass_context
def command(ctx: click.Context, words: Sequence[str], *, everything: bool, name: str | None) -> int:
    """Forget the logins on a server, and have their tokens withdrawn if the authorization server does that.

    \b
      trimaran auth logout https://boats.example/mcp
      trimaran auth logout --all
    """
    if everything and words:
        raise click.UsageError("--all and a TARGET contradict each other: give one")
    url = None
    if not everything:
        target, rest = split_words(ctx, words)
        if rest:
            raise click.UsageError(f"logout takes one TARGET, and {rest[0]!r} is one word too many")
        url = require_url(target)
    screen = Screen()
    with show_log(screen, Settings()):
        return run_loop(_log_out(screen, url, name))


async def _log_out(screen: Screen, url: str | None, name: str | None) -> int:
    from trimaran.state import keys_of_url

    store = used_store()
    logins = await read_all(store) if store is not None else []
    if url is not None:
        logins = [login for login in logins if keys_of_url([login.key], url)]
    if name is not None:
        logins = [login for login in logins if login.name == name]
    if not logins or store is None:
        which = f"login {name!r}" if name is not None else "login"
        screen.note(f"There is no {which} to forget" + (f" for {url}." if url is not None else "."))
        return 0 if url is None and name is None else 1
    for login in logins:
        await _forget(screen, store, login)
    return 0


async def _forget(screen: Screen, store: TokenStore, login: StoredLogin) -> None:
    from trimaran.oauth import Credentials

    async with store.lock(login.key):
        # Read again: it may have been refreshed meanwhile, and then the old tokens are not the ones to withdraw.
        record = await store.load(login.key)
        await store.delete(login.key)
    credentials = Credentials.from_bytes(record) if record is not None else None
    url = credentials.server_url if credentials is not None else login.name
    outcome = await _withdraw(credentials) if credentials is not None else "what was kept could not be read"
    screen.out.print(Text("Logged out", style="bold").append(f" of {url}: {outcome}.", style="not bold"))


async def _withdraw(credentials: Credentials) -> str:
    """Have the tokens withdrawn, as far as possible; what came of it."""
    tokens = [
        (kind, token)
        for kind, token in (("refresh_token", credentials.refresh_token), ("access_token", credentials.access_token))
        if token is not None
    ]
    if not tokens:
        return "forgotten here, and there were no tokens to withdraw"
    lasting = (
        f"the access token is good for whoever has it until it expires ({expiry_in_words(credentials.expires_at)})"
    )
    endpoint = credentials.metadata.revocation_endpoint if credentials.metadata is not None else None
    if endpoint is None:
        return f"forgotten here; {credentials.issuer or 'its issuer'} withdraws no tokens, so {lasting}"
    from trimaran.oauth import revoke_token
    from trimaran.transports.fetch import Fetcher
    from trimaran.transports.oauth_driver import perform

    fetcher = Fetcher(allow_private=allow_private(), timeout=_SECONDS)
    try:
        agreed = True
        async with asyncio.timeout(_SECONDS):
            for kind, token in tokens:
                flow = revoke_token(
                    endpoint, token, kind=kind, client=credentials.client, server_url=credentials.server_url
                )
                agreed = await perform(flow, fetcher) and agreed
    except (Error, TimeoutError) as error:
        return f"forgotten here, but not withdrawn ({error or 'no answer in time'}); {lasting}"
    finally:
        await fetcher.close()
    if not agreed:
        return f"forgotten here, but {credentials.issuer} did not agree to withdraw it; {lasting}"
    return "forgotten here, and withdrawn there"
