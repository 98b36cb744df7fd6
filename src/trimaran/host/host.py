"""`Host`: many servers as one, with a person's consent.

    async with Host.load() as host:
        tools = host.tools(format="anthropic")
        result = await host.call("mcp__github__search", {"query": "sails"})

This is the facade. What servers there are is `config/`, how each is kept running `supervise.py`, what a tool is called
`names.py`, who may do what `permissions/`, how a person is asked `asking.py` and `consent.py`, how much of a result is passed on `output.py`,
what a message mentions `mentions.py`, whose files may start anything `trust.py`. Here they meet, in one path for every call:

    name -> server and tool -> decision -> question, if the rules say ask -> call -> limits -> result

Nothing is sent to a server before the decision is an allow, and what is sent is what was decided about: arguments are copied
first, and a tool that changed while a person thought about it is not called.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, cast, final

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from trimaran.client.client import Client
from trimaran.client.results import ResourceResult, ToolResult
from trimaran.errors import Closed, ConfigError, Error, LocalProtocolError
from trimaran.types import CallToolResult, TextContent, TextResourceContents, Tool

from .asking import Asking
from .config import FailedEntry, HostConfig, Machine, ServerEntry, Source, load_config
from .config.values import LONGEST
from .consent import Bridge, ConsentLost, Question
from .environment import read_environment
from .mentions import Expansion, Mention, Mentions
from .names import PREFIX, Address, Names, UnknownName, check_server_name, safe_names
from .offers import Offer, Offers
from .output import OutputLimits, OutputPage, Shelf, limit_output
from .permissions import (
    Act,
    AuditLog,
    Explanation,
    Gate,
    Policy,
    Reading,
    Recorder,
    Rule,
    RuleProblem,
    check,
    read_config_rules,
    read_options,
)
from .plans import OWN_HANDLERS, Logins, Plan, plan_for
from .supervise import ServerStatus, Supervised
from .trust import UNTRUSTED, Trust
from .untrusted import Untrusted, configured_names, trust_digest, untrusted_in

if TYPE_CHECKING:
    from trimaran.client import Sampling
    from trimaran.dialers import Target
    from trimaran.format import Format, ToolCall

__all__ = ["AlreadyRegistered", "Host", "NotRegistered"]

log: Final = logging.getLogger("trimaran.host")

_OWNER: Final = "host"
_LONGEST_WORD: Final = 1000  # characters
_LEAST: Final = (
    0.01  # seconds left for a call whose server came up at the last moment: it is sent, and times out as a call
)


class AlreadyRegistered(Error):
    """A server of this name is there already."""

    kind = "already_registered"


class NotRegistered(Error):
    """There is no server of this name."""

    kind = "not_registered"


class _Listed(NamedTuple):
    """A tool of the catalog, and what it is to the rules."""

    tool: Tool
    act: Act


@final
class Host:
    """Servers, their tools under one roof, and who may use them. Use it as `async with`, or `start` and `close` it.

    Args:
        config: A loaded configuration; or a mapping of names to whatever `connect` takes: a URL, a command, a Server; to
            the same with options beside it, `{"url": ..., "auth": ...}`; or to `connect(...)` itself, not opened.
        allow, ask, deny: Rules on top of the configured ones, as on a command line.
        bridge: The way to a person. With one, servers are told that they may ask (R261); without, no server may, and what
            the rules would ask about is denied. `on_question=` makes one.
        on_question: Called with each question; see `Bridge`.
        on_sample: Called with (server, Sampling) once a person allowed it; returns the text, or a CreateMessageResult. A
            coroutine function, unless it is quick.
        auto_allow: With nobody there, allow what a person would be asked about (R245): calls, and the use of our model.
            Dangerous.
        separator: What stands between server and tool in the catalog's names, as in `github:search`; without, they are
            the names for providers, `mcp__github__search`.
        limits: How much of a result is passed on; of configured servers, as many bytes as the configuration says.
        audit: The file for decisions, or a Recorder.
        tokens: Where logins are kept: a store, a path; None for the keyring, or else a file.
        login: How `authorize` asks a person to log in; None opens a browser. See `OAuth`.
        allow_private: May a login lead to private addresses? None leaves it to TRIMARAN_ALLOW_PRIVATE.
        roots: Folders that every server is told of.
        trust: Whose files may start anything. A `Trust`: a project's `mcp.toml` that is not in it starts nothing and allows
            nothing, until `trust_project`. False: the same for any project's. None or True: all files are taken as they
            are, so look at them first. A file that was named, and the user's own, are always taken.
        environ: The variables to read; None for those of this process.
        wait: Has entering to wait until every server was tried once?
        on_change: Called, without arguments, whenever a server's state or tools changed. It must be quick.
        options: Given to every `connect`, such as `era` or `client_info`.

    Raises:
        ConfigError: an option, a variable of the environment or a global rule cannot be used; says which and why.
    """

    def __init__(
        self,
        config: HostConfig | Mapping[str, Target | Client] | None = None,
        *,
        allow: Iterable[str] = (),
        ask: Iterable[str] = (),
        deny: Iterable[str] = (),
        bridge: Bridge | None = None,
        on_question: Callable[[Question], Any] | None = None,
        on_sample: Callable[[str, Sampling], Any] | None = None,
        auto_allow: bool = False,
        separator: str | None = None,
        limits: OutputLimits | None = None,
        audit: Recorder | str | os.PathLike[str] | None = None,
        tokens: Any = None,
        login: Any = None,
        allow_private: bool | None = None,
        roots: Any = None,
        trust: Trust | bool | None = None,
        environ: Mapping[str, str] | None = None,
        wait: bool = True,
        on_change: Callable[[], Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        if bridge is not None and on_question is not None:
            raise ConfigError("give bridge= or on_question=, not both: a Bridge takes on_question itself")
        for name in OWN_HANDLERS:
            handler = (options or {}).get("handler")
            if (
                name in (options or {}) or getattr(handler, name, None) is not None
            ):  # it would be asked before the rules are
                raise ConfigError(
                    f"{name} is not for options=: a host's servers ask through bridge=, or on_question=, and on_sample="
                )
        variables = os.environ if environ is None else environ
        self._environment = read_environment(variables)
        self.config: Final = config if isinstance(config, HostConfig) else _config_of(config or {})
        self.bridge: Final = Bridge(on_question=on_question) if on_question is not None else bridge
        """The way to a person; None where there is none."""
        self._trust = trust if isinstance(trust, Trust) else None
        self._is_trusting = trust is None or trust is True
        self._untrusted = self._suspicious(trust)
        self._kept_logins: frozenset[str] = frozenset()
        """The servers of such files for which a login is kept."""
        self._reading = self._read_rules(allow, ask, deny)
        self._brought: dict[str, tuple[Rule, ...]] = {}
        """The rules of entries that `start_server` was given."""
        self._audit: Recorder | None = AuditLog(audit) if isinstance(audit, (str, os.PathLike)) else audit
        self._owns_audit = self._audit is not audit
        self.gate: Final = Gate(self._policy(), audit=self._audit, attended=False, auto_allow=auto_allow)
        """Rules, and the answers that stand."""
        self._safe: dict[str, str] = {}
        """The safe name of each server; it stays for as long as the host lives."""
        self._asking = Asking(self.gate, self.bridge, audit=self._audit, on_sample=on_sample, safe=self._safe.get)
        self._limits = (limits or OutputLimits()).with_environment(variables)
        self._shelf = Shelf()
        self._logins = Logins(
            tokens, allow_private=self._environment.allow_private if allow_private is None else allow_private
        )
        self._login = login
        self._options = {**(options or {}), **({} if roots is None else {"roots": roots})}
        self._wait = wait
        self._on_change = on_change
        self._names = Names({}, separator=separator)
        self._separator = separator
        self._listed: dict[Address, _Listed] = {}
        self._offers: Offers | None = None
        self._servers: dict[str, Supervised] = {}
        self._plans: dict[str, Plan] = {}
        self._mentions = Mentions(
            lambda: {name: self._safe[name] for name in self._servers},
            lambda name: self._server(name).require(),
            self._shown,
            wake=self.wake,
            failed=self._suspect,
        )
        self._is_open = False
        self._logging_in: set[asyncio.Future[None]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._configure(config)
        self._renew()

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        workspace: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Self:
        """A host for `mcp.toml` of this user and this workspace; with a path, for that file alone.

        The project's file starts programs as this user: where others write it, pass `trust=Trust()`.

        Args:
            workspace: The directory of the project, instead of the current one.
            options: As for `Host`.

        Raises:
            ConfigUnusable: a file cannot be used; names file, line and key.
            ConfigError: as `Host` does.
        """
        return cls(load_config(path, machine=Machine.here(workspace)), **options)

    def __repr__(self) -> str:
        return f"<Host: {len(self._servers)} servers, {len(self._listed)} tools>"

    # --- whose files -------------------------------------------------------------------------------------------------

    def _suspicious(self, trust: Trust | bool | None) -> tuple[Source, ...]:
        """The files that are not trusted. What one of them says is not done; what it forbids still holds."""
        if trust is None or trust is True:
            return ()
        if trust is not False and not isinstance(cast("Any", trust), Trust):
            raise ConfigError(f"trust is a Trust, True or False, not {type(trust).__name__}: write trust=Trust(path)")
        config = self.config
        # Whoever puts a configuration together from entries may leave out where they came from: they know it themselves.
        entries = (*config.servers.values(), *config.failed.values(), *config.rules)
        sources = dict.fromkeys((*config.sources, *(one.source for one in entries)))
        found = [source for source in sources if source.level == "project"]
        if trust is not False:
            found = [one for one in found if not trust.is_trusted(one.file, trust_digest(config, one))]
        return tuple(found)

    def _policy(self) -> Policy:
        """The rules that hold. Of a file that is not trusted those that allow do not, and its words reach no model."""
        rules = [*self._reading.rules, *(rule for rules in self._brought.values() for rule in rules)]
        if self._untrusted:
            rules = [
                rule if rule.source.kind != "project" else replace(rule, reason="")
                for rule in rules
                if rule.source.kind != "project" or rule.action != "allow"
            ]
        return Policy(rules)

    def _is_untrusted(self, name: str) -> bool:
        plan = self._plans.get(name)
        return plan is not None and plan.entry is not None and plan.entry.source in self._untrusted

    @property
    def untrusted(self) -> tuple[Untrusted, ...]:
        """What the project's `mcp.toml` would start, allow and inherit, if it were trusted; empty if it is. Show it, and ask.

        Kept logins are known once the host has started.
        """
        rules = (*self._reading.rules, *self.gate.standing.rules)
        return untrusted_in(self.config, self._untrusted, rules=rules, logins=self._kept_logins)

    @property
    def untrusted_files(self) -> tuple[str, ...]:
        """The files that are not trusted."""
        return tuple(source.file for source in self._untrusted)

    async def trust_project(self) -> list[ServerStatus]:
        """A person trusts the project's `mcp.toml`, as it was when it was read: start its servers, and let its rules hold.

        That is remembered in the `Trust` that the host was given, until the file changes; without one, by this host alone.

        Raises:
            ConfigError: it cannot be remembered; nothing was started.
        """
        if self._closing is not None:
            raise Closed("the host is closed")
        trusted = self._untrusted
        if self._trust is not None:
            digests = {source.file: trust_digest(self.config, source) for source in trusted}
            for file, digest in digests.items():
                if digest:
                    await asyncio.to_thread(self._trust.add, file, digest)
        names = [name for name in self._servers if self._is_untrusted(name)]
        self._untrusted = tuple(one for one in self._untrusted if one not in trusted)
        self.gate.policy = self._policy()
        for name in names:
            server = self._servers[name]
            if server.reason != UNTRUSTED:
                continue  # a person disabled it meanwhile
            server.reason = ""
            if self._is_open and not self._environment.no_servers:
                self._begin(name)
        if self._wait and self._is_open:
            await self.ready()
        return [self._servers[name].status for name in names if name in self._servers]

    # --- what is configured ------------------------------------------------------------------------------------------

    def _read_rules(self, allow: Iterable[str], ask: Iterable[str], deny: Iterable[str]) -> Reading:
        for action, texts in (("allow", allow), ("ask", ask), ("deny", deny)):
            if isinstance(texts, str):  # its characters would be rules, and "*" is one
                raise ConfigError(f"{action} is a list of rules: write {action}=[{texts!r}]")
        reading = read_config_rules(self.config) + read_options(allow=allow, ask=ask, deny=deny)
        general = [problem for problem in reading.errors if problem.server is None]
        if general:
            raise ConfigError("\n".join(map(str, general)))
        for problem in reading.problems:
            if problem.severity == "warning":
                log.warning("%s", problem)
        return reading

    def _configure(self, config: HostConfig | Mapping[str, Target | Client] | None) -> None:
        """Make what is to run. A server with a mistake in it, or in its rules, has failed before it began."""
        given: Mapping[str, Any] = (
            self.config.servers if config is None or config is self.config else cast("Any", config)
        )
        for name in (*given, *self.config.failed):
            check_server_name(name)
        self._safe.update(safe_names((*given, *self.config.failed), configured_names(self.config)))
        for name, target in given.items():
            self._add(name, target)
        for name, failed in self.config.failed.items():
            self._add_failed(name, failed)

    def _add(self, name: str, target: Any, options: Mapping[str, Any] | None = None) -> Supervised:
        plan = plan_for(check_server_name(name), target, self._environment, options, self._options.get("auth"))
        self._safe.update(safe_names((name,), self._safe))
        # Rules that could not be read hold for whatever runs under this name: one of them might be the one that denies.
        failed = self.config.failed.get(name)
        errors = [failed.reason] if failed is not None else []
        problem = "\n".join([*errors, *(str(one) for one in self._reading.errors if one.server == name)])

        def dial(**more: Any) -> Client:
            return self._logins.client(plan, {**self._options, **self._asking.handlers(name), **more})

        made = Supervised(
            name,
            plan.transport,
            None if problem else dial,
            startup_timeout=plan.startup_timeout,
            startup_limit=plan.startup_limit,
            call_timeout=plan.call_timeout,
            tool_timeouts=plan.tool_timeouts,
            output_limit=plan.output_limit,
            can_log_in=plan.can_log_in,
            where=plan.where,
            problem=problem,
            problem_kind=failed.problems[0].kind if failed is not None and failed.problems else "invalid_rule",
            mask=plan.mask,
            missing=plan.missing,
            changed=self._changed,
            forgotten=self._mentions.forget,
        )
        self._plans[name] = plan
        self._servers[name] = made
        if self._is_untrusted(name):
            made.reason = UNTRUSTED
        return made

    def _add_failed(self, name: str, failed: FailedEntry) -> None:
        said = failed.table.get("transport", failed.table.get("type", "http" if "url" in failed.table else "stdio"))
        place = failed.source.file if failed.line is None else f"{failed.source.file}:{failed.line}"
        self._servers[name] = Supervised(
            name,
            said if said in ("stdio", "http", "sse") else "http" if "url" in failed.table else "stdio",
            None,
            startup_timeout=self._environment.startup_timeout,
            call_timeout=self._environment.call_timeout,
            where=place,
            problem=failed.reason,
            problem_kind=failed.problems[0].kind if failed.problems else "config",
            changed=self._changed,
        )

    def _is_enabled(self, name: str) -> bool:
        entry = self.config.servers.get(name) or self.config.failed.get(name)
        return entry is None or not entry.disabled

    # --- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start every server that is not disabled, all at once.

        Returns when each is up, has failed, or has had its `startup_timeout`; with `wait=False` at once. One that is
        not up by then goes on starting in the background, and its tools appear when it is. No server can make this fail: how it went is in `status()`.
        """
        if self._closing is not None:
            raise Closed("the host is closed; make a new one")
        if self._is_open:
            return
        self._is_open = True
        if self._environment.no_servers:
            for server in self._servers.values():
                await server.stop("disabled", "TRIMARAN_NO_MCP is set")
            return
        if self._untrusted:
            untrusted = [entry for entry in self.config.servers.values() if entry.source in self._untrusted]
            self._kept_logins = await self._logins.kept(untrusted)
        for name in self._servers:
            if not self._is_untrusted(name):
                self._begin(name)
        if self._wait:
            try:
                await self.ready()
            except BaseException:
                await self.close()
                raise

    def _begin(self, name: str) -> None:
        """Start a server, or let it wait until it is needed, as the configuration says."""
        server, plan = self._servers[name], self._plans.get(name)
        if not self._is_enabled(name):
            return
        if plan is not None and plan.entry is not None and plan.entry.lazy:
            server.rest()
        else:
            server.start()

    async def ready(self, within: float | None = None) -> None:
        """Returns when every server that was started is up, has failed, or has had its `startup_timeout` (R267).

        Args:
            within: Seconds to wait for each, from now on, instead.
        """
        started = [one for one in self._servers.values() if one.state not in ("disabled", "idle")]
        await asyncio.gather(*(one.tried() if within is None else one.settled(within) for one in started))

    async def close(self) -> None:
        """End every connection and every child process; from any task, any number of times."""
        if self._closing is None:
            self._closing = asyncio.create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        if self.bridge is not None:
            await self.bridge.close()
        logging_in = tuple(self._logging_in)
        for work in logging_in:
            work.cancel()
        await asyncio.gather(*logging_in, return_exceptions=True)
        await asyncio.gather(*(one.stop(for_good=True) for one in tuple(self._servers.values())))
        if self._owns_audit and isinstance(self._audit, AuditLog):
            await asyncio.to_thread(self._audit.close)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _require_open(self) -> None:
        if self._closing is not None:
            raise Closed("the host is closed")
        if not self._is_open:
            raise Closed("the host is not started yet: use `async with`, or await host.start()")

    def _require_startable(self, name: str, plan: Plan | None) -> None:
        if self._environment.no_servers:
            raise ConfigError(
                f"the server {name!r} is not started: TRIMARAN_NO_MCP is set; unset it, and make the host anew"
            )
        if plan is None or plan.entry is None:
            return
        if plan.entry.source in self._untrusted:
            raise ConfigError(
                f"the server {name!r} is not started: {UNTRUSTED} ({plan.entry.source.file}); once a person has read it, "
                "await host.trust_project()"
            )
        is_others = not self._is_trusting and plan.entry.source.level == "project"
        if is_others and plan.entry not in self.config.servers.values():
            raise ConfigError(
                f"the server {name!r} is not started: {plan.entry.where()} is not what this host was made with, and nobody "
                "was asked about it; make a new Host of the new configuration, with trust=Trust()"
            )

    # --- servers -----------------------------------------------------------------------------------------------------

    def status(self) -> list[ServerStatus]:
        """How it is with each server, in the order of their names (R273)."""
        return [self._servers[name].status for name in sorted(self._servers)]

    def stderr(self, name: str) -> list[str]:
        """The last 200 lines that a server wrote to stderr, where it is our child."""
        return self._server(name).stderr

    def problems(self, format: Format | str | None = None, **options: Any) -> list[str]:
        """What is odd about the configuration and its rules, and stops nothing: unknown keys, rules without effect (R243).

        Args:
            format: Say also what this provider would refuse, or cut, of `tools(format, **options)`.
        """
        catalog = {name: list(one.tools) if one.state == "connected" else None for name, one in self._servers.items()}
        rules: list[RuleProblem] = [one for one in self._reading.problems if one.severity == "warning"]
        rules += check(self._reading.rules, catalog)
        offered = [] if format is None else self._offer(format, options).problems
        return [*map(str, self.config.problems), *map(str, rules), *offered]

    async def start_server(self, name: str, target: Target | ServerEntry | Client, **options: Any) -> None:
        """Add a server, and connect to it: once this returns its tools are in the catalog (R216).

        That may take as long as the `startup_limit`: cancel it to wait less, and the server is removed.

        Args:
            target: Whatever `connect` takes; an entry of a configuration; or `connect(...)` itself, not opened.
            options: As for `connect`, such as `auth=`: for this server alone. `timeout` is the limit of a call,
                `connect_timeout` that of the start, whoever waits for it.

        Raises:
            AlreadyRegistered: there is one of this name, or one is being started (R217).
            ConfigError: the name or the target cannot be used, a rule of an entry cannot be read, the entry is of a
                project's file that is not trusted, or no server may be started (TRIMARAN_NO_MCP).
            ServerUnavailable: no connection came about; the server is not there then. One that wants a person to log in
                stays, in the state `needs_auth`: `authorize` it.
        """
        self._require_open()
        check_server_name(name)
        if name in self._servers:
            raise AlreadyRegistered(f"there is a server {name!r} already: stop it first, or use another name")
        self._require_startable(name, plan_for(name, target, self._environment, options, self._options.get("auth")))
        self._bring(name, target)
        server = self._add(name, target, options)
        try:
            server.start()
            await server.settled()
            server.require()
        except BaseException:
            # One that wants a login stays: `authorize` is what it needs, and not to be added again.
            if self._servers.get(name) is server and server.state != "needs_auth":
                await self._remove(name)
            raise

    def _bring(self, name: str, target: Any) -> None:
        """An entry comes with its rules, also one that is not of this host's configuration."""
        if not isinstance(target, ServerEntry) or target is self.config.servers.get(name) or not target.permissions:
            return
        self._brought[name] = read_config_rules(HostConfig(servers={name: target})).checked()
        self.gate.policy = self._policy()

    async def stop_server(self, name: str) -> None:
        """End a server and take it out of the catalog.

        Raises:
            NotRegistered: there is none of this name (R217).
        """
        self._server(name)
        await self._remove(name)

    async def _remove(self, name: str) -> None:
        server = self._servers.pop(name, None)
        if server is not None:
            self._plans.pop(name, None)
            if self._brought.pop(name, None) is not None:
                self.gate.policy = self._policy()
            self._asking.forget(name)
            self._renew()  # first: while it ends, the catalog is read already
            await server.stop(for_good=True)

    def whereis(self, name: str) -> Client | None:
        """The client of a server, while it is connected (R216, R218)."""
        found = self._servers.get(name)
        return found.client if found is not None and found.state == "connected" else None

    def connected(self) -> list[str]:
        """The names of the servers that are connected now; one that crashes is no longer among them (R218)."""
        return sorted(name for name, one in self._servers.items() if one.state == "connected")

    # The names that R216 gives them.
    start_client = start_server
    stop_client = stop_server
    whereis_client = whereis
    list_clients = connected

    async def reload(self, name: str) -> ServerStatus:
        """End a server's connection and make it anew, now. What is in files is not read again (R237).

        Raises:
            ConfigError: it may not be started: TRIMARAN_NO_MCP is set, or the project's file is not trusted.
        """
        self._require_open()
        server = self._server(name)
        self._require_startable(name, self._plans.get(name))
        await server.restart()
        await server.tried()
        return server.status

    async def enable(self, name: str) -> ServerStatus:
        """Start a server that is disabled, or waits to be needed, for as long as this host lives.

        Raises:
            ConfigError: as for `reload`.
        """
        self._require_open()
        server = self._server(name)
        self._require_startable(name, self._plans.get(name))
        if server.state in ("disabled", "idle"):
            server.start()
            await server.tried()
        return server.status

    async def wake(self, name: str) -> ServerStatus:
        """Start a server that waits to be needed (`lazy = true`), and wait for it for its `startup_timeout`.

        One that is being started is waited for; any other is left as it is.
        """
        self._require_open()
        server = self._server(name)
        if server.state == "idle":
            server.start()
        if server.state == "starting":
            await server.tried()
        return server.status

    async def disable(self, name: str) -> ServerStatus:
        """End a server, and leave it so."""
        server = self._server(name)
        await server.stop("disabled")
        return server.status

    async def authorize(self, name: str, *, login: Any = None) -> ServerStatus:
        """Have a person log in to a server, then connect to it anew. Call it when a person asked for it.

        Args:
            login: How, instead of the host's way: see `OAuth`.

        Raises:
            ConfigError: nobody can log in there.
            AuthorizationFailed: the login did not come to an end.
            Closed: the host was closed meanwhile.
        """
        self._require_open()
        self._server(name)
        plan = self._plans.get(name)
        self._require_startable(name, plan)
        if plan is None:
            raise ConfigError(f"nobody can log in to the server {name!r}: mend its configuration first")
        way = login if login is not None else self._login
        work = asyncio.ensure_future(self._logins.log_in(plan, way, self._options))
        self._logging_in.add(work)
        try:
            await work
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if self._closing is None or (task is not None and task.cancelling()):
                raise
            raise Closed("the host was closed during the login") from None
        finally:
            self._logging_in.discard(work)
        return await self.reload(name)

    def _server(self, name: str) -> Supervised:
        found = self._servers.get(name)
        if found is None:
            known = ", ".join(sorted(self._servers)) or "none"
            raise NotRegistered(f"there is no server {name!r}; there are: {known}")
        return found

    # --- the catalog -------------------------------------------------------------------------------------------------

    def _changed(self, server: Supervised) -> None:
        if server.state == "connected":
            self._renew()
        if self._on_change is not None:
            try:
                self._on_change()
            except Exception:
                log.exception("on_change failed")

    def _renew(self) -> None:
        """Names for what there is now. Those of a server that is away stay known: it may be back in a moment (C40)."""
        self._names = self._names.renewed({name: list(one.tools) for name, one in self._servers.items()}, self._safe)
        listed: dict[Address, _Listed] = {}
        for name, server in self._servers.items():
            for tool in server.tools.values():
                address = Address(name, tool.name)
                known = self._listed.get(address)
                listed[address] = known if known is not None and known.tool is tool else self._list(address, tool)
        self._listed = listed

    def _list(self, address: Address, tool: Tool) -> _Listed:
        catalog = self._names.catalog(*address)
        act = Act.tool(
            *address,
            schema=tool.input_schema,
            definition=_definition(tool),
            name=catalog,
            safe=self._safe[address.server],
        )
        return _Listed(tool, act)

    def tools(self, format: Format | str | None = None, **options: Any) -> list[Any]:
        """The tools of every connected server, under the catalog's names; or declared as a provider wants them (R219, R220).

        They are made once for each change of the catalog. The list is the caller's own.

        Args:
            format: "anthropic", "openai", "openai-responses" or "gemini"; without, `trimaran.types.Tool`s.
            options: for the format, such as `strict=True`; see `trimaran.format`. `fit` is "auto" unless said: a schema is
                changed as little as its provider demands.
        """
        return self._offer(format, options).tools()

    def _offer(self, format: Format | str | None, options: Mapping[str, Any]) -> Offer:
        """The tools in this format, as last made if nothing changed since."""
        connected = tuple(name for name, server in self._servers.items() if server.state == "connected")
        if self._offers is None or not self._offers.are_of(self._listed, connected):
            self._offers = Offers(self._listed, connected)
        return self._offers.get(format, options, self._tools_of)

    def _tools_of(self, connected: Container[str], is_for_provider: bool) -> list[Tool]:
        named = self._names.provider if is_for_provider else self._names.catalog
        return [
            replace(self._listed[address].tool, name=named(*address))
            for address in self._names
            if address in self._listed and address.server in connected
        ]

    def find(self, name: str) -> Address:
        """Server and tool of a name, in either form.

        Raises:
            UnknownName: no tool has it; its `reason` says how far it could be read (R221).
            ServerUnavailable: it may be a tool of a server that could not be asked for its tools yet.
        """
        try:
            return self._names.find(name)
        except UnknownName:
            for server in self._servers.values():
                if not server.tools and server.state != "connected" and self._may_be_of(server, name):
                    server.require()
            raise

    def _may_be_of(self, server: Supervised, name: str) -> bool:
        return self._tool_of(server, name) is not None

    def _tool_of(self, server: Supervised, name: str) -> str | None:
        """What the tool would be called, if the name is one of this server's."""
        safe = self._safe[server.name]
        for start in (f"{PREFIX}{safe}__", f"{safe}__", f"{server.name}{self._separator or '__'}"):
            if name.startswith(start):
                return name.removeprefix(start)
        return None

    def _is_coming(self, name: str) -> bool:
        """May it be a tool of a server that `call` would start, or wait for, first?"""
        return name not in self._names and any(self._may_be_of(one, name) for one in self._coming())

    def _coming(self) -> list[Supervised]:
        return [one for one in self._servers.values() if one.state in ("idle", "starting") and not one.tools]

    async def _find_awake(
        self, name: str, arguments: Mapping[str, Any], timeout: float | None
    ) -> tuple[Address, float]:
        """As `find`, and the seconds that it took. A server that waits to be needed is started first.

        One that is being started is waited for, as long as the call may take; none, if the rules forbid the call whatever
        the tool is.
        """
        waited = 0.0
        for server in sorted(self._coming(), key=lambda one: -len(one.name)):
            tool = self._tool_of(server, name)
            if tool is None:
                continue
            if name in self._names:
                break
            self._asking.forbid(Act.tool(server.name, tool, safe=self._safe[server.name]), arguments)
            waited += await self._wait_for(server, _limit_of(server, tool, timeout) - waited)
        address = self.find(name)
        server = self._server(address.server)
        if server.state == "starting":  # its tools are known from before it was started again
            self._asking.forbid(self._listed[address].act, arguments)
            waited += await self._wait_for(server, _limit_of(server, address.tool, timeout) - waited)
        return address, waited

    async def _wait_for(self, server: Supervised, within: float) -> float:
        """Start a server that is needed, wait until that was tried or the time is over; the seconds it took."""
        clock = asyncio.get_running_loop().time
        began = clock()
        if server.state == "idle":
            server.start()
        await server.settled(max(within, 0.0))
        return clock() - began

    def from_call(self, call: Any, format: Format | str) -> ToolCall:
        """A call that a model made, for `call`: unpacks into the catalog's name, and arguments (R223).

        Arguments that strict mode made null, because the model left them out, are left out again; not those for a server
        that waits to be needed, whose schemas are not known yet.

        Raises:
            LocalProtocolError: it is no call, or its arguments are no object.
            UnknownName: no tool has this name.
            ServerUnavailable: it may be a tool of a server that cannot be asked for its tools now.
        """
        from trimaran.format import (
            FORMATS,
            ToolCall,
            from_anthropic_call,
            from_gemini_call,
            from_openai_call,
            restore_arguments,
        )

        readers = {
            "anthropic": from_anthropic_call,
            "openai": from_openai_call,
            "openai-responses": from_openai_call,
            "gemini": from_gemini_call,
        }
        if format not in readers:
            raise ConfigError(f"there is no format {format!r}; the known ones are {', '.join(FORMATS)}")
        read = readers[format](call)
        if self._is_coming(read.name):
            return read  # `call` starts its server; what it takes is not known before
        address = self.find(read.name)
        schema: Any = self._listed[address].tool.input_schema
        arguments = restore_arguments(read.arguments, schema)
        return ToolCall(self._names.catalog(*address), arguments, read.id)

    def to_result(self, result: Any, call: ToolCall, format: Format | str) -> dict[str, Any]:
        """A result as the content that answers the model's call: a block, a message, an item or a part, by format.

        Args:
            result: What `call` returned; or the Error it raised, which the model is told of as the tool's failure.
            call: What `from_call` returned.
        """
        from trimaran.format import (
            FORMATS,
            result_to_anthropic,
            result_to_gemini,
            result_to_openai,
            result_to_openai_responses,
        )

        if isinstance(result, Error):
            told = str(result)
            for plan in self._plans.values():
                told = plan.mask(told)  # a client's error may name the whole command, or the whole URL
            result = CallToolResult(content=[TextContent(text=told)], is_error=True)
        if format == "gemini":
            # A name that no tool has yet is as the model said it.
            called = self._names.provider(*self._names.find(call.name)) if call.name in self._names else call.name
            return result_to_gemini(result, called, call.id)
        writers = {
            "anthropic": result_to_anthropic,
            "openai": result_to_openai,
            "openai-responses": result_to_openai_responses,
        }
        if format not in writers:
            raise ConfigError(f"there is no format {format!r}; the known ones are {', '.join(FORMATS)}")
        return writers[format](result, call.id)

    # --- calls -------------------------------------------------------------------------------------------------------

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: float | None = None,
        max_timeout: float | None = None,
        on_progress: Callable[[float, float | None, str | None], Any] | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolResult:
        """Call a tool, if that is allowed (R221, R239, R274).

        Cancel the task to give it up: the server is told. A tool that fails says so in the result, `is_error`.

        Args:
            name: What the catalog, or a provider, calls it.
            arguments: An object; None for none (R276).
            timeout: Seconds, instead of the configured ones. They include the wait for a server that is still
                starting; the time a person takes to answer does not count.
            max_timeout: Let progress extend the wait, up to this many seconds (C39).
            on_progress: Called with (progress, total, message).

        Raises:
            UnknownName: no tool has this name.
            LocalProtocolError: the arguments are no object.
            PermissionDenied: it is not allowed; names the rule. Nothing was sent.
            ConsentLost: whoever was to be asked left: about the call, and nothing was sent; or about what the server
                asked in the middle of it, and the server gave up over that.
            ServerUnavailable: the server cannot be used now, or is still starting when the time is over.
            Error: the client's own; see trimaran.errors.
        """
        self._require_open()
        given = _object(name, arguments)
        address, waited = await self._find_awake(name, given, timeout)
        server = self._server(address.server)
        server.require()
        listed = self._listed[address]
        await self._asking.permit(listed.act, listed.tool, given)
        known = self._listed.get(address)
        if known is None or known.act != listed.act or self._servers.get(address.server) is not server:
            raise LocalProtocolError.invalid_params(
                f"{name} changed while it was decided whether it may be called; look at it again, and call it anew"
            )
        limit = _limit_of(server, address.tool, timeout)
        if waited:
            limit = max(limit - waited, _LEAST)
        client = server.require()
        lost_before = self._asking.lost(address.server)
        try:
            result = await client.call_tool(
                address.tool,
                given,
                timeout=limit,
                max_timeout=limit if max_timeout is None else max(min(max_timeout, LONGEST), limit),
                on_progress=on_progress,
                meta=meta,
                raise_on_error=False,
            )
        except Error as error:
            self._suspect(address.server, client, error)
            self._raise_lost(address.server, lost_before, str(error))
            raise
        if result.is_error:
            self._raise_lost(address.server, lost_before, result.text)
            server.look_for_missing(result.text)
        return self._limited(result, server, name)

    def _raise_lost(self, server: str, before: ConsentLost | None, text: str) -> None:
        """Raise ConsentLost if a call failed because the person left whom the server asked in the middle of it.

        The text of the failure must say so: another call of the same server may be the one whose person left.
        """
        lost = self._asking.lost(server)
        if lost is not None and lost is not before and str(lost) in text:
            raise ConsentLost(str(lost))

    def _suspect(self, name: str, client: Client, error: Error) -> None:
        server = self._servers.get(name)
        if server is not None and server.client is client:  # one that is gone says nothing about the next
            server.suspect(error)

    def explain(self, name: str, arguments: Mapping[str, Any] | None = None) -> Explanation:
        """Why a call would be allowed, asked about or denied: the rules that have a say, in order (R240). Nothing is done.

        Args:
            name: A tool; or `Elicit(server)`, for a server's questions.
            arguments: Of the call; None where they are not known.
        """
        if name.startswith("Elicit(") and name.endswith(")"):
            server = name[7:-1]
            return self.gate.explain(Act.elicit(server, safe=self._safe.get(server, "")))
        given = None if arguments is None else _object(name, arguments)
        return self.gate.explain(self._listed[self.find(name)].act, given)

    def output(self, output_id: str, offset: int = 0, limit: int = 20_000) -> OutputPage:
        """A page of an output that was too large to be passed on whole (R270).

        Raises:
            OutputMissing: it is not kept, or no longer.
        """
        return self._shelf.page(output_id, owner=_OWNER, offset=offset, limit=limit)

    def _limits_of(self, server: Supervised) -> OutputLimits:
        return self._limits if server.output_limit is None else replace(self._limits, bytes=server.output_limit)

    def _limited(self, result: ToolResult, server: Supervised, source: str) -> ToolResult:
        found = limit_output(result, self._limits_of(server), shelf=self._shelf, owner=_OWNER, source=source)
        if not found.notices:
            return result
        kept = found.result
        made = ToolResult(
            list(cast("Iterable[Any]", kept.content)),
            kept.structured_content,
            result.is_error,
            result.meta,
            Raw(msgspec.json.encode(kept)),
        )
        if kept.structured_content is not UNSET:
            made.data = result.data
        elif isinstance(result.data, str):
            made.data = made.text
        return made

    # --- resources ---------------------------------------------------------------------------------------------------

    async def expand(self, text: str) -> Expansion:
        """A person's message with each `@server:resource args` replaced by what it holds (R264).

        What cannot be found is left as it stands, and told in `problems`.

        Raises:
            TemplateArity: a template is followed by too few words; nothing was sent (R265).
        """
        self._require_open()
        return await self._mentions.expand(text)

    async def complete_mention(self, prefix: str) -> list[str]:
        """What a mention that begins so may become: `@do` -> `@docs:`, `@docs:re` -> `@docs:readme` (R264)."""
        self._require_open()
        return await self._mentions.complete(prefix)

    async def complete_argument(self, server: str, name: str, words: Sequence[str], prefix: str) -> list[str]:
        """What the next word after `@server:name word...` may be, by the server's own completion.

        Nothing, where there is no such template, it takes no more words, or the server knows no answer soon enough.

        Args:
            name: Of a template.
            words: Those before it, which are the values of its first placeholders.
            prefix: What is written of it so far.
        """
        self._require_open()
        return await self._mentions.complete_argument(server, name, words, prefix)

    async def read_resource(self, server: str, resource: str, *words: str) -> ResourceResult:
        """Read a resource by name or URI, or a template by name with exactly the words it takes.

        Raises:
            ResourceUnknown, TemplateArity, ServerUnavailable: nothing was sent.
        """
        self._require_open()
        return await self._mentions.read(server, await self._mentions.resolve(server, resource, words))

    def _shown(self, mention: Mention, found: ResourceResult) -> str:
        """A resource as a block of a message, within the limits of its server."""
        parts: list[str] = []
        for one in found.contents:
            if isinstance(one, TextResourceContents):
                parts.append(one.text)
            else:
                size = len(one.blob) * 3 // 4 - one.blob[-2:].count("=")
                parts.append(f"[{one.mime_type or 'binary data'}, {size} bytes: not shown]")
        whole = CallToolResult(content=[TextContent(text="\n".join(parts))])
        limits = self._limits_of(self._server(mention.server))
        kept = limit_output(whole, limits, shelf=self._shelf, owner=_OWNER, source=mention.text).result
        text = "\n".join(block.text for block in cast("Iterable[Any]", kept.content))
        kind = next((one.mime_type for one in found.contents if one.mime_type), "text/plain")
        fence = "`" * max(3, _longest_run(text) + 1)
        return f"\n[{_word(mention.uri)} of the server {mention.server}, {_word(kind)}]\n{fence}\n{text}\n{fence}\n"


def _config_of(given: Mapping[str, Any]) -> HostConfig:
    """What is configured, where servers were given by name: their entries, if that is what they are."""
    return HostConfig(servers={name: one for name, one in given.items() if isinstance(one, ServerEntry)})


def _limit_of(server: Supervised, tool: str, timeout: float | None) -> float:
    """How many seconds a call of this tool may take."""
    return min(server.tool_timeouts.get(tool, server.call_timeout) if timeout is None else timeout, LONGEST)


def _object(name: str, arguments: Any) -> dict[str, Any]:
    """Arguments as plain JSON values of our own, so that what is decided about is what is sent."""
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise LocalProtocolError.invalid_params(
            f"the arguments of {name} are a {type(arguments).__name__}: give an object, or None for none"
        )
    from trimaran.schema.convert import to_jsonable

    try:
        return cast("dict[str, Any]", to_jsonable(dict(cast("Mapping[str, Any]", arguments))))
    except (TypeError, ValueError, RecursionError) as error:
        raise LocalProtocolError.invalid_params(f"the arguments of {name} have no JSON form: {error}") from None


def _definition(tool: Tool) -> str:
    """A digest of what a tool says about itself; what has no say in what it does is left out."""
    said = [tool.name, tool.title, tool.description, tool.input_schema, tool.output_schema, tool.annotations]
    return hashlib.sha256(msgspec.json.encode(said, order="deterministic")).hexdigest()


def _word(text: str) -> str:
    """What a server says, where it stands outside a fence: one short word, so that it cannot say anything else there."""
    kept = "".join(one if one.isprintable() and one not in " `[]" else "_" for one in text)
    return kept if len(kept) <= _LONGEST_WORD else kept[:_LONGEST_WORD] + "..."


def _longest_run(text: str) -> int:
    """Of backticks: the fence around a text has more than any in it."""
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest
