"""`trimaran serve URL` and `trimaran serve -- COMMAND`: the server that a proxy stands for, from the command line.

The target and its options (headers, tokens, kept logins, the child's environment) are read as for `trimaran list`.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from trimaran.errors import ConfigError, ConnectFailed, Unauthorized

from .target import ERA, REACH_OPTIONS, Settings, Target, is_behind_dashes, read_settings, split_words

if TYPE_CHECKING:
    from trimaran.oauth import OAuth
    from trimaran.server.server import Server

REACH: Final = ("headers", "bearer", "token_env", "login", "env", "inherit_env", "era")
"""The options that say how a target is reached, as click names them."""

F = TypeVar("F", bound=Callable[..., Any])


def proxy_options(function: F) -> F:
    for option in reversed((*REACH_OPTIONS, ERA)):
        function = option(function)
    return function


def is_remote(ctx: click.Context, words: Sequence[str]) -> bool:
    """True if the words name a server to stand for, and not a file of ours to import."""
    if is_behind_dashes(ctx):
        return True
    if len(words) != 1:
        return False
    word = words[0]
    is_quoted_command = " " in word and shutil.which(word.split()[0]) is not None
    return is_quoted_command or "://" in word or "#" in word or Path(word).suffix in (".json", ".toml")


class ProxySource(NamedTuple):
    """A server to stand for."""

    target: Target
    settings: Settings
    isolation: str

    @classmethod
    def read(
        cls, ctx: click.Context, words: Sequence[str], reach: Mapping[str, Any], *, per_caller: bool, debug: bool
    ) -> ProxySource:
        target, rest = split_words(ctx, words)
        if rest:
            raise click.UsageError(f"{rest[0]!r} is one word too many: serve takes one server")
        settings = read_settings(target, {**reach, "timeout": 0, "debug": debug})
        return cls(target, settings, "caller" if per_caller else "shared")

    def load(self) -> Server:
        from trimaran.proxy.server import open_proxy

        from .run import connect_options, connect_target

        settings = self.settings
        on_refused: Callable[[Unauthorized], Awaitable[object]] | None = None
        if self.target.is_http:
            from .stored_logins import brings_own, find_login

            settings = settings._replace(auth=settings.auth or asyncio.run(find_login(self.target, settings)))
            if not brings_own(self.target, settings):
                on_refused = self._look_for_login
        options = connect_options(self.target, settings)
        del options["timeout"]
        if not self.target.is_http:
            _check_command(self.target, options)
        options["isolation"] = self.isolation
        return open_proxy(connect_target(self.target), on_refused=on_refused, **options)[0]

    async def _look_for_login(self, refusal: Unauthorized) -> OAuth | None:
        """The login that a person has made since. Raises what to do, if there is none."""
        from .credentials import how_to_pass
        from .stored_logins import find_login

        try:
            login = await find_login(self.target, self.settings)
        except click.UsageError as error:
            raise Unauthorized(error.message) from None
        if login is None:
            ways = " or ".join(how_to_pass(refusal.www_authenticate, self.target.text))
            raise Unauthorized(f"{self.target.text} wants credentials (401): {ways}", status=refusal.status)
        return login


def _check_command(target: Target, options: Mapping[str, Any]) -> None:
    """Refuse a command that is not there, before anything is served.

    A server that was there and is gone comes back, after an update say, so the proxy looks for it again and again. A command
    that never was there is a slip of the pen.
    """
    from trimaran.transports.process import ChildChannel

    channel = ChildChannel(
        list(target.command),
        env=options.get("env"),
        cwd=options.get("cwd"),
        inherit_env=options.get("inherit_env", False),
    )
    try:
        channel.check()
    except ConnectFailed as error:
        raise ConfigError(f"nothing is served: {error}") from None
