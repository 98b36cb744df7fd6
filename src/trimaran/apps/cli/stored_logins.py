"""Logins that `trimaran auth login` has kept, for the commands that talk to a server.

A command uses the login for its URL if there is one. None of them asks a person for one: that is `auth login`'s affair,
so a command in a script fails at once instead of waiting (R254). A user who has never logged in pays for none of this.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import click

from .target import Settings, Target

if TYPE_CHECKING:
    from trimaran.oauth import OAuth
    from trimaran.state import TokenStore

logger: Final = logging.getLogger("trimaran.apps.cli")


def default_name(url: str) -> str:
    """The name of a login that was given none."""
    return urlsplit(url).netloc


def name_of(key: str) -> str:
    """The name in a key of the store."""
    return key.rpartition(":")[0]


def brings_own(target: Target, settings: Settings) -> bool:
    """True if the command line brings credentials of its own."""
    names = (name.lower() for name in (*target.headers, *settings.headers))
    return bool(settings.auth or settings.bearer) or "authorization" in names


def used_store() -> TokenStore | None:
    """The default store; None if it was never used, which is found out without loading a keyring."""
    from trimaran.state import FileTokens, default_tokens

    return default_tokens(warn=False) if FileTokens().is_used() else None


async def find_login(target: Target, settings: Settings) -> OAuth | None:
    """The login to use for the target, if any; UsageError if which one is not clear."""
    if not target.is_http or brings_own(target, settings):
        return None
    from trimaran.state import StoreUnusable

    try:
        return await _find(target, settings.login)
    except StoreUnusable as error:
        if settings.login is not None:
            raise click.UsageError(str(error)) from None
        # The server may want no login at all.
        logger.warning("no stored login is looked for: %s", error)
        return None


async def _find(target: Target, name: str | None) -> OAuth | None:
    from trimaran.state import keys_of_url

    store = used_store()
    keys = keys_of_url(await store.keys(), target.url) if store is not None else []
    key = _choose({name_of(key): key for key in keys}, target, name)
    record = await store.load(key) if store is not None and key is not None else None
    if key is None or record is None:
        return None
    from trimaran.oauth import Credentials, OAuth

    credentials = Credentials.from_bytes(record)
    if credentials is None:
        logger.warning("the login %r for %s cannot be read: log in again", name_of(key), target.url)
        return None
    return OAuth(store=store, name=name_of(key), dpop=credentials.proof_key is not None, allow_private=allow_private())


def _choose(keys: Mapping[str, str], target: Target, name: str | None) -> str | None:
    if name is not None:
        if name not in keys:
            raise click.UsageError(
                f"there is no login {name!r} for {target.url}: run trimaran auth login {target.text} --name {name}"
                + (f", or use {_any_of(keys)}" if keys else "")
            )
        return keys[name]
    if len(keys) > 1 and default_name(target.url) not in keys:
        raise click.UsageError(f"there are {len(keys)} logins for {target.url}: say which, {_any_of(keys)}")
    return keys.get(default_name(target.url)) or next(iter(keys.values()), None)


def _any_of(names: Iterable[str]) -> str:
    return " or ".join(f"--login {name}" for name in names)


def allow_private() -> bool:
    """May a login lead to private addresses? Then tokens are refreshed there, too: so a variable, not an option."""
    return os.environ.get("TRIMARAN_ALLOW_PRIVATE", "").strip().lower() in ("1", "true", "yes")


async def headers_of(login: Any, url: str) -> Mapping[str, str]:
    """The headers of a request with this login, refreshed if that is due; empty if there is no token."""
    from trimaran.transports.http_auth import authority_for

    authority = authority_for(login, url, None)
    assert authority is not None
    try:
        return (await authority.credentials("POST", url)).headers
    finally:
        await authority.close()
