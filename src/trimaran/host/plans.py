"""From what a configuration says about a server to a client of it: target, limits, login.

An HTTP server may turn out to want a login (`oauth`, R255, R256, C31). Until it says so nothing is looked up, and a host never
asks a person by itself (R254): the server is marked as needing one, and `Host.authorize` is what logs in. Tokens are kept by
the server's name and URL (C33).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast, final
from urllib.parse import urlsplit

from msgspec import Struct

from trimaran.client.client import Client
from trimaran.dialers import connect
from trimaran.errors import ConfigError
from trimaran.oauth.urls import is_loopback_host
from trimaran.protocol.mask import Mask, secrets_in

from .config.model import OAuthEntry, ServerEntry
from .environment import Environment

if TYPE_CHECKING:
    from trimaran.oauth import OAuth

__all__ = ["Logins", "Plan", "plan_for"]

log: Final = logging.getLogger("trimaran.host")

_PERSON: Final = 330.0  # seconds a login may take: the person's five minutes, and the flow around them


@final
class Plan(Struct, frozen=True, kw_only=True):
    """How one server is reached, and within which limits."""

    name: str
    target: Any
    transport: str
    startup_timeout: float
    call_timeout: float
    startup_limit: float | None = None
    tool_timeouts: Mapping[str, float] = {}
    output_limit: int | None = None
    """None: the host's own."""
    entry: ServerEntry | None = None
    """What was configured, if it was."""

    def __repr__(self) -> str:
        return f"<Plan {self.name!r}: {self.transport}>"  # a target holds secrets

    def mask(self, text: str) -> str:
        """The text without the secrets that the target's URL, arguments, variables and headers hold."""
        return _mask_of(self.target)(text)

    @property
    def can_log_in(self) -> bool:
        """May there be a login? Not where a token would travel in the clear; who asks for one there is told so."""
        entry = self.entry
        if entry is None or entry.transport == "stdio" or entry.oauth == "off":
            return False
        return entry.oauth == "manual" or entry.oauth_config is not None or _is_safe(entry.url)

    @property
    def where(self) -> str:
        return self.entry.where() if self.entry is not None else ""


def plan_for(name: str, given: Any, environment: Environment) -> Plan:
    """The plan for an entry of a configuration, or for anything else that `connect` takes."""
    if not isinstance(given, ServerEntry):
        return Plan(
            name=name,
            target=given,
            transport=_transport_of(given),
            startup_timeout=environment.startup_timeout,
            call_timeout=environment.call_timeout,
            startup_limit=environment.startup_limit,
        )
    return Plan(
        name=name,
        target=given.target(),
        transport=given.transport,
        startup_timeout=given.startup_timeout or environment.startup_timeout,
        call_timeout=given.timeout or environment.call_timeout,
        startup_limit=given.startup_limit or environment.startup_limit,
        tool_timeouts={tool: one.timeout for tool, one in given.tools.items() if one.timeout is not None},
        output_limit=given.output_limit,
        entry=given,
    )


def _is_safe(url: str) -> bool:
    return url.lower().startswith("https://") or is_loopback_host(urlsplit(url).hostname or "")


def _mask_of(target: Any) -> Mask:
    secrets: list[str] = []
    if isinstance(target, Mapping):
        entry: Mapping[str, Any] = target  # pyright: ignore[reportUnknownVariableType]
        url, arguments = entry.get("url"), [entry.get("command"), *(entry.get("args") or ())]
        for key in ("env", "headers"):
            secrets += secrets_in(entry.get(key))
    else:
        url, arguments = target, target
    command = cast("Sequence[Any]", arguments) if isinstance(arguments, (list, tuple)) else ()
    return Mask(url if isinstance(url, str) else "", command, secrets)


def _transport_of(target: Any) -> str:
    if isinstance(target, Mapping):
        entry: Mapping[str, Any] = target  # pyright: ignore[reportUnknownVariableType]
        said = entry.get("transport", entry.get("type"))
        return said if isinstance(said, str) else "http" if "url" in entry else "stdio"
    if isinstance(target, str):
        return "http" if "://" in target else "stdio"
    return "stdio" if isinstance(target, (list, tuple)) or hasattr(target, "__fspath__") else "memory"


@final
class Logins:
    """The logins of a host's servers.

    Args:
        tokens: Where they are kept: a store, a path, or None for the keyring of the system, or else a file.
    """

    def __init__(self, tokens: Any = None, *, allow_private: bool = False) -> None:
        self._tokens = tokens
        self._allow_private = allow_private

    def _store(self, *, is_needed: bool) -> Any:
        if self._tokens is not None:
            return self._tokens
        from trimaran.state import FileTokens, StoreUnusable, default_tokens

        if is_needed:
            return default_tokens()
        try:
            # Who has never logged in pays for no keyring.
            return default_tokens(warn=False) if FileTokens().is_used() else None
        except StoreUnusable as error:
            log.warning("no stored login is looked for: %s", error)  # the server may want none at all
            return None

    def grant(self, entry: ServerEntry, login: Any = None) -> OAuth:
        """The grant for a server: without `login`, one that never asks a person."""
        from trimaran.oauth import OAuth

        said = entry.oauth_config or OAuthEntry()
        return OAuth(
            client_id=said.client_id,
            client_secret=said.client_secret,
            scopes=said.scopes or None,
            login=login,
            store=self._store(is_needed=login is not None),
            name=entry.name,
            authorization_endpoint=said.auth_url,
            token_endpoint=said.token_url,
            resource=said.audience,
            allow_private=self._allow_private,
        )

    def client(self, plan: Plan, options: Mapping[str, Any]) -> Client:
        """A client of the server, not open yet, that uses the login there is."""
        made = dict(options)
        if plan.can_log_in and plan.entry is not None:
            made["auth"] = self.grant(plan.entry)
        return connect(plan.target, **made)

    async def log_in(self, plan: Plan, login: Any) -> None:
        """Have a person log in; the tokens are kept for later.

        Raises:
            ConfigError: a login is not for this server.
            AuthorizationFailed: it did not come to an end.
        """
        entry = plan.entry
        if entry is None or not plan.can_log_in:
            why = "it is not on HTTP"
            if entry is not None and entry.transport != "stdio":
                why = 'it says oauth = "off"' if entry.oauth == "off" else "its URL is not https"
            raise ConfigError(f"nobody can log in to the server {plan.name!r}: {why}")
        grant = self.grant(entry, login if login is not None else True)
        async with connect(plan.target, auth=grant, connect_timeout=_PERSON, timeout=_PERSON) as client:
            if "tools" in client.server_capabilities:
                await client.list_tools()  # some let in whoever comes, and ask who it is later
