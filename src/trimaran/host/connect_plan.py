"""Turn the description of a server into a client: target, options, limits, login.

A description is an entry of a configuration, a target of `connect`, a target with options, or an unopened client of `connect`
(R216). The host makes new clients from it, one for each connection.

An HTTP server may want a login (R255, R256, C31). The host looks nothing up before the server says so, and it never asks a
person by itself (R254): it marks the server, and `Host.authorize` logs in. Tokens are stored by the server's name and URL
(C33). `oauth_config.py` makes the credentials that need no person.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast, final
from urllib.parse import urlsplit

from msgspec import Struct

from trimaran.client.client import Client, recipe_of
from trimaran.client.sandbox_policy import read_sandbox
from trimaran.connecting import connect, take_apart
from trimaran.errors import ConfigError
from trimaran.oauth.urls import is_loopback_host
from trimaran.protocol.mask import Mask, secrets_in
from trimaran.transports.child_environment import child_environment, missing_variables

from .config.model import UNATTENDED, ServerEntry, ToolSettings
from .config.values import read_duration
from .environment import Environment
from .oauth_config import asks_a_person, for_person, login_grant, unattended_grant

if TYPE_CHECKING:
    from trimaran.server.transform_options import TransformOptions

    from .transforms import ToolTransforms

log: Final = logging.getLogger("trimaran.host")

OWN_HANDLERS: Final = ("on_elicit", "on_sample")
"""Options of `connect` that the host sets itself."""
_REMOTE: Final = ("http", "sse", "streamable-http", "streamableHttp")
_WATCHED: Final = frozenset({"on_state", "on_stderr"})  # the host listens to these, beside a server's own callback
_LIMITS: Final = frozenset({"timeout", "connect_timeout", "startup_timeout", "startup_limit"})
_PERSON: Final = 330.0  # seconds a login may take: the person's five minutes, and the flow around them


@final
class ConnectPlan(Struct, frozen=True, kw_only=True):
    """How one server is reached, and within which limits."""

    name: str
    target: Any
    transport: str
    startup_timeout: float
    call_timeout: float
    startup_limit: float | None = None
    tool_timeouts: Mapping[str, float] = {}
    """By the server's own names."""
    output_limit: int | None = None
    """None: the host's own."""
    entry: ServerEntry | None = None
    """The configured entry, if there is one."""
    options: Mapping[str, Any] = {}
    """Options of `connect` for this server alone."""

    def __repr__(self) -> str:
        return f"<Plan {self.name!r}: {self.transport}>"  # a target holds secrets

    def mask(self, text: str) -> str:
        """The text without the secrets that the target's URL, arguments, variables, headers and credentials hold."""
        auth = self.options.get("auth")
        details = self.entry.oauth_config if self.entry is not None else None
        secrets = [*([auth] if isinstance(auth, str) else []), *(details.secrets if details is not None else ())]
        return _mask_of(self.target, [*secrets, *secrets_in(self.options.get("headers"))])(text)

    def missing(self, text: str) -> list[str]:
        """The variables that the text names and that are set here, but not passed to the child."""
        target: Any = self.target
        table: Mapping[str, Any] = cast("Mapping[str, Any]", target) if isinstance(target, Mapping) else {}
        names = missing_variables(text, os.environ, ())
        if not names or self.transport != "stdio" or self.options.get("inherit_env") or table.get("inherit_env"):
            return []
        env: dict[str, str] = {**(table.get("env") or {}), **(self.options.get("env") or {})}
        passed = child_environment(os.environ, env)
        return [name for name in names if name not in passed]

    @property
    def transforms(self) -> ToolTransforms | None:
        """How the tools of this server are shown; None if as they are."""
        entry = self.entry
        if entry is None:
            return None
        table = {
            tool: cast("TransformOptions", settings.transform)
            for tool, settings in entry.tools.items()
            if settings.transform
        }
        if not (table or entry.exclude or entry.read_only) and entry.include is None:
            return None
        from .transforms import ToolTransforms  # it needs JSON Schema, and most entries do not

        return ToolTransforms(self.name, table, include=entry.include, exclude=entry.exclude, read_only=entry.read_only)

    @property
    def no_login(self) -> str:
        """Why a person cannot log in to this server; empty if a person can."""
        if self.transport not in _REMOTE:
            return "it is not on HTTP"
        if (auth := self.options.get("auth")) is not None:
            if asks_a_person(auth):
                return ""
            kind = "a fixed token" if isinstance(auth, str) else type(auth).__name__
            return f"its credentials are those it was given, auth={kind}; fix them, then host.reload({self.name!r})"
        entry = self.entry
        if entry is not None and entry.oauth in UNATTENDED:
            return f'it says oauth = "{entry.oauth}", which needs nobody; fix that, then host.reload({self.name!r})'
        if entry is not None and entry.oauth == "off":
            return 'it says oauth = "off"'
        if entry is not None and entry.oauth == "token_exchange":
            return 'it says oauth = "token_exchange", and only a gateway has callers whose tokens can be exchanged'
        if entry is not None and (entry.oauth == "manual" or entry.oauth_config is not None):
            return ""
        if entry is None and _has_authorization(self.target, self.options):
            return "it is given an Authorization header"
        # A token must not travel in the clear.
        return "" if _is_safe(_url_of(self.target)) else "its URL is not https"

    @property
    def can_log_in(self) -> bool:
        """True if a person can log in."""
        return not self.no_login

    @property
    def sandbox(self) -> str:
        """The sandbox of the server's process, in words; empty if it has none."""
        target: Any = self.target
        table: Mapping[str, Any] = cast("Mapping[str, Any]", target) if isinstance(target, Mapping) else {}
        policy = read_sandbox(self.options.get("sandbox") or table.get("sandbox"))
        return "" if policy is None else str(policy)

    @property
    def where(self) -> str:
        return self.entry.where() if self.entry is not None else ""


def plan_for(
    name: str, source: Any, environment: Environment, more: Mapping[str, Any] | None = None, auth: Any = None
) -> ConnectPlan:
    """The plan for an entry of a configuration, a prepared client, or anything else that `connect` takes.

    Args:
        more: Options for this server alone, on top of those of `source`.
        auth: The host's own credentials, for targets without any.

    Raises:
        ConfigError: an option belongs to the host, a time limit is invalid, or a client is in use.
    """
    if isinstance(source, ServerEntry):
        target: Any = source.target()
        options: dict[str, Any] = {}
        limits: dict[str, Any] = {key: getattr(source, key) for key in ("timeout", "startup_timeout", "startup_limit")}
    else:
        target, options = _taken_apart(name, source)
        limits = {}
    options |= more or {}
    if auth is not None and not isinstance(source, ServerEntry):
        options.setdefault("auth", auth)
    _refuse_handlers(name, options)
    limits |= {
        "startup_limit" if key == "connect_timeout" else key: options.pop(key) for key in _LIMITS & options.keys()
    }
    seconds = {key: _seconds(name, key, value) for key, value in limits.items()}
    entry = source if isinstance(source, ServerEntry) else None
    tools: Mapping[str, ToolSettings] = entry.tools if entry is not None else {}
    return ConnectPlan(
        name=name,
        target=target,
        transport=entry.transport if entry is not None else _transport_of(target),
        startup_timeout=seconds.get("startup_timeout") or environment.startup_timeout,
        call_timeout=seconds.get("timeout") or environment.call_timeout,
        startup_limit=seconds.get("startup_limit") or environment.startup_limit,
        tool_timeouts={tool: settings.timeout for tool, settings in tools.items() if settings.timeout is not None},
        output_limit=entry.output_limit if entry is not None else None,
        entry=entry,
        options=options,
    )


def _taken_apart(name: str, source: Any) -> tuple[Any, dict[str, Any]]:
    """The target and its options. A client of `connect` describes both; the host does not use the client itself."""
    if not isinstance(source, Client):
        target, options = take_apart(source)
        if isinstance(target, Mapping):
            entry = dict(target)
            options |= {key: entry.pop(key) for key in _LIMITS & entry.keys()}
            target = entry
        return target, options
    recipe = recipe_of(source)
    if recipe is None or source.state != "new":
        raise ConfigError(
            f"the server {name!r} is given as a client that is {source.state}: give connect(...) itself, not opened, "
            "or what connect takes"
        )
    target, more = recipe
    bare, options = take_apart(target)
    return bare, {**options, **more}


def _refuse_handlers(name: str, options: Mapping[str, Any]) -> None:
    """Refuse a server's own handlers: they would answer before the host's rules decide."""
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


def _both(ours: Callable[[Any], Any], callback: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def tell(event: Any) -> Any:
        ours(event)
        return callback(event)  # the caller awaits it if need be

    return tell


def _is_safe(url: str) -> bool:
    return url.lower().startswith("https://") or is_loopback_host(urlsplit(url).hostname or "")


def _url_of(target: Any) -> str:
    url: Any = cast("Mapping[str, Any]", target).get("url") if isinstance(target, Mapping) else target
    return url if isinstance(url, str) else ""


def _has_authorization(target: Any, options: Mapping[str, Any]) -> bool:
    """True if the target or its options bring an Authorization header (C31)."""
    headers: list[Any] = [options.get("headers")]
    if isinstance(target, Mapping):
        headers.append(cast("Mapping[str, Any]", target).get("headers"))
    maps = [cast("Mapping[Any, Any]", table) for table in headers if isinstance(table, Mapping)]
    return any(str(key).lower() == "authorization" for table in maps for key in table)


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
        transport = entry.get("transport", entry.get("type"))
        return transport if isinstance(transport, str) else "http" if "url" in entry else "stdio"
    if isinstance(target, str):
        return "http" if "://" in target else "stdio"
    return "stdio" if isinstance(target, (list, tuple)) or hasattr(target, "__fspath__") else "memory"


@final
class Logins:
    """The logins of a host's servers.

    Args:
        tokens: The store, or its path; None for the system's keyring, or a file where there is none.
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
            # Opening the keyring is slow, so do that only after a first login.
            return default_tokens(warn=False) if FileTokens().is_used() else None
        except StoreUnusable as error:
            log.warning("no stored login is looked for: %s", error)  # the server may want none at all
            return None

    async def kept(self, entries: Iterable[ServerEntry]) -> frozenset[str]:
        """The names of the servers for which a login is stored. It reads no token."""
        from trimaran.state import FileTokens, StoreUnusable
        from trimaran.state.token_storage import token_key

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

    def grant(self, plan: ConnectPlan, login: Any = None) -> Any:
        """The grant for a person's login; without `login`, it never asks."""
        store = self._store(is_needed=login is not None)
        if (own := plan.options.get("auth")) is not None:
            return for_person(own, name=plan.name, login=login, store=store)
        details = plan.entry.oauth_config if plan.entry is not None else None
        return login_grant(details, name=plan.name, login=login, store=store, allow_private=self._allow_private)

    def client(self, plan: ConnectPlan, options: Mapping[str, Any]) -> Client:
        """An unopened client of the server, with the credentials that exist."""
        merged = {**options, **plan.options}
        for key in _WATCHED & options.keys() & plan.options.keys():
            merged[key] = _both(options[key], plan.options[key])
        if plan.can_log_in:
            merged["auth"] = self.grant(plan)
        elif plan.entry is not None and merged.get("auth") is None:
            merged["auth"] = unattended_grant(plan.entry, allow_private=self._allow_private)
        return connect(plan.target, **merged)

    async def log_in(self, plan: ConnectPlan, login: Any, options: Mapping[str, Any]) -> None:
        """Let a person log in, and store the tokens.

        Args:
            login: The way to log in; None for that of the server's own grant, or a browser.

        Raises:
            ConfigError: a login is not for this server.
            AuthorizationFailed: the login failed.
        """
        if why := plan.no_login:
            raise ConfigError(f"nobody can log in to the server {plan.name!r}: {why}")
        ways = (login, getattr(plan.options.get("auth"), "login", None), True)
        way = next(way for way in ways if way is not None)
        limits = {"connect_timeout": _PERSON, "timeout": _PERSON}
        merged: dict[str, Any] = {**options, **plan.options, **limits, "auth": self.grant(plan, way)}
        async with connect(plan.target, **merged) as client:
            if "tools" in client.server_capabilities:
                await client.list_tools()  # some servers ask for a login only here
