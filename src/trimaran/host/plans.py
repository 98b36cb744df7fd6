"""From what is said about a server to a client of it: target, options, limits, login.

A server is an entry of a configuration, whatever `connect` takes, the same with options beside it, or a client that `connect`
made and nobody opened (R216). A prepared client is a description: a host connects more than once.

An HTTP server may turn out to want a login (R255, R256, C31), be it configured or given in Python. Until it says so nothing is
looked up, and a host never asks a person by itself (R254): the server is marked as needing one, and `Host.authorize` is what
logs in. Tokens are kept by the server's name and URL (C33). Credentials that need no person are `grants.py`'s.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, cast, final
from urllib.parse import urlsplit

from msgspec import Struct

from trimaran.client.client import Client, recipe_of
from trimaran.dialers import connect, take_apart
from trimaran.errors import ConfigError
from trimaran.oauth.urls import is_loopback_host
from trimaran.protocol.mask import Mask, secrets_in
from trimaran.transports.inheritance import child_environment, missing_variables

from .config.model import UNATTENDED, ServerEntry, ToolEntry
from .config.values import read_duration
from .environment import Environment
from .grants import asks_a_person, for_person, login_grant, unattended_grant

__all__ = ["OWN_HANDLERS", "Logins", "Plan", "plan_for"]

log: Final = logging.getLogger("trimaran.host")

OWN_HANDLERS: Final = ("on_elicit", "on_sample")
"""Options of `connect` that a host has for itself."""
_REMOTE: Final = ("http", "sse", "streamable-http", "streamableHttp")
_WATCHED: Final = frozenset({"on_state", "on_stderr"})  # what the host listens to, and a server's own options may too
_LIMITS: Final = frozenset({"timeout", "connect_timeout", "startup_timeout", "startup_limit"})
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
    options: Mapping[str, Any] = {}
    """What `connect` is given for this server alone."""

    def __repr__(self) -> str:
        return f"<Plan {self.name!r}: {self.transport}>"  # a target holds secrets

    def mask(self, text: str) -> str:
        """The text without the secrets that the target's URL, arguments, variables, headers and credentials hold."""
        auth = self.options.get("auth")
        details = self.entry.oauth_config if self.entry is not None else None
        secrets = [*([auth] if isinstance(auth, str) else []), *(details.secrets if details is not None else ())]
        return _mask_of(self.target, [*secrets, *secrets_in(self.options.get("headers"))])(text)

    def missing(self, text: str) -> list[str]:
        """The variables that the text names, that are set here, and that a child of this plan does not get."""
        target: Any = self.target
        table: Mapping[str, Any] = cast("Mapping[str, Any]", target) if isinstance(target, Mapping) else {}
        names = missing_variables(text, os.environ, ())
        if not names or self.transport != "stdio" or self.options.get("inherit_env") or table.get("inherit_env"):
            return []
        env: dict[str, str] = {**(table.get("env") or {}), **(self.options.get("env") or {})}
        passed = child_environment(os.environ, env)
        return [name for name in names if name not in passed]

    @property
    def no_login(self) -> str:
        """Why a person's login is not for this server; empty if it may be."""
        if self.transport not in _REMOTE:
            return "it is not on HTTP"
        if (auth := self.options.get("auth")) is not None:
            if asks_a_person(auth):
                return ""
            kind = "a fixed token" if isinstance(auth, str) else type(auth).__name__
            return f"its credentials are those it was given, auth={kind}; mend them, then host.reload({self.name!r})"
        entry = self.entry
        if entry is not None and entry.oauth in UNATTENDED:
            return f'it says oauth = "{entry.oauth}", which needs nobody; mend that, then host.reload({self.name!r})'
        if entry is not None and entry.oauth == "off":
            return 'it says oauth = "off"'
        if entry is not None and (entry.oauth == "manual" or entry.oauth_config is not None):
            return ""
        if entry is None and _has_authorization(self.target, self.options):
            return "it is given an Authorization header"
        # A token must not travel in the clear; whoever asks for a login there is told so.
        return "" if _is_safe(_url_of(self.target)) else "its URL is not https"

    @property
    def can_log_in(self) -> bool:
        """Could a person's login help where the server wants credentials?"""
        return not self.no_login

    @property
    def where(self) -> str:
        return self.entry.where() if self.entry is not None else ""


def plan_for(
    name: str, given: Any, environment: Environment, more: Mapping[str, Any] | None = None, auth: Any = None
) -> Plan:
    """The plan for an entry of a configuration, a prepared client, or anything else that `connect` takes.

    Args:
        more: Options for this server alone, on top of those that `given` holds.
        auth: The host's own credentials, for what was given in Python and brings none.

    Raises:
        ConfigError: an option that the host needs for itself, a time limit that cannot be, a client that is in use.
    """
    if isinstance(given, ServerEntry):
        target: Any = given.target()
        options: dict[str, Any] = {}
        limits: dict[str, Any] = {key: getattr(given, key) for key in ("timeout", "startup_timeout", "startup_limit")}
    else:
        target, options = _taken_apart(name, given)
        limits = {}
    options |= more or {}
    if auth is not None and not isinstance(given, ServerEntry):
        options.setdefault("auth", auth)
    _refuse_handlers(name, options)
    limits |= {
        "startup_limit" if key == "connect_timeout" else key: options.pop(key) for key in _LIMITS & options.keys()
    }
    seconds = {key: _seconds(name, key, value) for key, value in limits.items()}
    entry = given if isinstance(given, ServerEntry) else None
    tools: Mapping[str, ToolEntry] = entry.tools if entry is not None else {}
    return Plan(
        name=name,
        target=target,
        transport=entry.transport if entry is not None else _transport_of(target),
        startup_timeout=seconds.get("startup_timeout") or environment.startup_timeout,
        call_timeout=seconds.get("timeout") or environment.call_timeout,
        startup_limit=seconds.get("startup_limit") or environment.startup_limit,
        tool_timeouts={tool: one.timeout for tool, one in tools.items() if one.timeout is not None},
        output_limit=entry.output_limit if entry is not None else None,
        entry=entry,
        options=options,
    )


def _taken_apart(name: str, given: Any) -> tuple[Any, dict[str, Any]]:
    """The target and its options. A client that `connect` made is both: it is not used itself, since a host connects anew."""
    if not isinstance(given, Client):
        target, options = take_apart(given)
        if isinstance(target, Mapping):
            entry = dict(target)
            options |= {key: entry.pop(key) for key in _LIMITS & entry.keys()}
            target = entry
        return target, options
    recipe = recipe_of(given)
    if recipe is None or given.state != "new":
        raise ConfigError(
            f"the server {name!r} is given as a client that is {given.state}: give connect(...) itself, not opened, "
            "or what connect takes"
        )
    target, more = recipe
    bare, options = take_apart(target)
    return bare, {**options, **more}


def _refuse_handlers(name: str, options: Mapping[str, Any]) -> None:
    """What a server asks goes through the rules of the host first; a handler of its own would be asked before them."""
    handler = options.get("handler")
    for option in OWN_HANDLERS:
        if options.get(option) is not None or getattr(handler, option, None) is not None:
            raise ConfigError(
                f"{option} is not for the server {name!r} alone: a host's servers ask through bridge=, or on_question=, "
                "and on_sample="
            )


def _seconds(name: str, key: str, value: Any) -> float | None:
    if value is None:
        return None
    try:
        return read_duration(value)
    except ValueError as error:
        raise ConfigError(f"{key} of the server {name!r}: {error}") from None


def _both(ours: Callable[[Any], Any], theirs: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def tell(event: Any) -> Any:
        ours(event)
        return theirs(event)  # it may be awaitable, and whoever calls awaits it

    return tell


def _is_safe(url: str) -> bool:
    return url.lower().startswith("https://") or is_loopback_host(urlsplit(url).hostname or "")


def _url_of(target: Any) -> str:
    url: Any = cast("Mapping[str, Any]", target).get("url") if isinstance(target, Mapping) else target
    return url if isinstance(url, str) else ""


def _has_authorization(target: Any, options: Mapping[str, Any]) -> bool:
    """C31: whoever brings credentials along needs no others."""
    headers: list[Any] = [options.get("headers")]
    if isinstance(target, Mapping):
        headers.append(cast("Mapping[str, Any]", target).get("headers"))
    maps = [cast("Mapping[Any, Any]", one) for one in headers if isinstance(one, Mapping)]
    return any(str(key).lower() == "authorization" for one in maps for key in one)


def _mask_of(target: Any, secrets: list[str]) -> Mask:
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

    async def kept(self, entries: Iterable[ServerEntry]) -> frozenset[str]:
        """The names of the servers for which a login is kept. No token is read."""
        from trimaran.state import FileTokens, StoreUnusable
        from trimaran.state.tokens import token_key

        keys = {token_key(entry.name, entry.url): entry.name for entry in entries if entry.url}
        store = self._store(is_needed=False) if keys else None
        if store is None:
            return frozenset()
        if isinstance(store, (str, os.PathLike)):
            store = FileTokens(cast("str", store))
        try:
            stored: list[str] = await store.keys()
        except StoreUnusable as error:
            log.warning("whether a login is kept cannot be told: %s", error)
            return frozenset()
        return frozenset(keys[key] for key in stored if key in keys)

    def grant(self, plan: Plan, login: Any = None) -> Any:
        """The grant by which a person logs in: without `login`, one that never asks."""
        store = self._store(is_needed=login is not None)
        if (own := plan.options.get("auth")) is not None:
            return for_person(own, name=plan.name, login=login, store=store)
        details = plan.entry.oauth_config if plan.entry is not None else None
        return login_grant(details, name=plan.name, login=login, store=store, allow_private=self._allow_private)

    def client(self, plan: Plan, options: Mapping[str, Any]) -> Client:
        """A client of the server, not open yet, that uses the credentials there are."""
        merged = {**options, **plan.options}
        for key in _WATCHED & options.keys() & plan.options.keys():
            merged[key] = _both(options[key], plan.options[key])
        if plan.can_log_in:
            merged["auth"] = self.grant(plan)
        elif plan.entry is not None and merged.get("auth") is None:
            merged["auth"] = unattended_grant(plan.entry, allow_private=self._allow_private)
        return connect(plan.target, **merged)

    async def log_in(self, plan: Plan, login: Any, options: Mapping[str, Any]) -> None:
        """Have a person log in; the tokens are kept for later.

        Args:
            login: How; None for the way of the server's own grant, or else a browser.

        Raises:
            ConfigError: a login is not for this server.
            AuthorizationFailed: it did not come to an end.
        """
        if why := plan.no_login:
            raise ConfigError(f"nobody can log in to the server {plan.name!r}: {why}")
        way = next(one for one in (login, getattr(plan.options.get("auth"), "login", None), True) if one is not None)
        limits = {"connect_timeout": _PERSON, "timeout": _PERSON}
        merged = {**options, **plan.options, **limits, "auth": self.grant(plan, way)}
        async with connect(plan.target, **merged) as client:
            if "tools" in client.server_capabilities:
                await client.list_tools()  # some let in whoever comes, and ask who it is later
