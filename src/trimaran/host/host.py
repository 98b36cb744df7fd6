"""`Host`: many servers as one, with a person's consent.

    async with Host.load() as host:
        tools = host.tools(format="anthropic")
        result = await host.call("mcp__github__search", {"query": "sails"})

This is the facade. `config/` says which servers exist, `server_table.py` has them by name, `supervise.py` keeps each running,
`tool_catalog.py` names their tools, `provider_tools.py` declares them to models, `rules_in_force.py` gathers the rules,
`permissions/` decides by them, `approvals.py` and `consent.py` ask a person, `call_path.py` is the path of a call,
`long_results.py` shortens results, `held_definitions.py` has the definitions that wait for a person, `model_calls.py` reads and
writes for models, `host_tools.py` has the host's own tools, `answers.py` answers a model's reply, `mentions.py` reads resources.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, Unpack, cast, final, overload

from msgspec.structs import replace

from trimaran.client.client import Client
from trimaran.client.options import Options
from trimaran.client.results import PromptResult, ResourceResult, ToolResult
from trimaran.connecting import Target
from trimaran.errors import Closed, ConfigError, Error
from trimaran.option_names import check_options
from trimaran.types import CallToolResult, Json, TextContent, TextResourceContents, Tool

from .answers import answer_reply
from .approvals import Approvals
from .call_path import ServerCalls, copied_object
from .config import HostConfig, Machine, ServerEntry, load_config
from .config.model import Touch
from .connect_plan import OWN_HANDLERS, ConnectPlan, Logins
from .consent import ConsentBridge
from .context.activation import ActiveTools
from .context.own_tools import OwnCallOptions
from .environment import read_environment
from .held_definitions import HeldDefinitions
from .host_tools import HostTools
from .long_results import LongResults
from .mentions import Expansion, Mention, Mentions
from .model_calls import ModelCalls
from .names import Address, check_server_name
from .options import AnswerOptions, HostOptions, Login, ServerOptions
from .output_limits import OutputPage
from .oversight import Oversight
from .permissions import (
    AuditLog,
    DecisionLog,
    Explanation,
    Gate,
)
from .pin_settings import read_pins
from .provider_tools import ToolOffers
from .resource_blocks import fence, one_word, resource_text
from .rules_in_force import RulesInForce
from .server_table import ServerHooks, ServerTable, by_name, config_of
from .supervise import ServerStatus, SupervisedServer
from .tool_catalog import ToolCatalog
from .trust.review import CatalogReview, HeldDefinition
from .trust.trusted_files import UNTRUSTED
from .trust.untrusted import Untrusted

if TYPE_CHECKING:
    from trimaran.format import (
        AnthropicTool,
        Fit,
        Format,
        FormatOptions,
        GeminiTool,
        OpenAIResponsesTool,
        OpenAITool,
        ToolCall,
    )
    from trimaran.format.anthropic import AnthropicReply
    from trimaran.format.gemini import GeminiReply
    from trimaran.format.openai import ChatMessage, ChatReply, ResponsesReply

    from .context.budget import BudgetPlan
    from .context.code import CodeLimits, CodeResult
    from .context.report import ContextReport
    from .trust.flow import DataFlow
    from .trust.scan import ScanFinding

log: Final = logging.getLogger("trimaran.host")


class AlreadyRegistered(Error):
    """A server of this name exists already."""

    kind = "already_registered"


@final
class Host:
    """Many servers with one list of tools, and the rules about their use. Use `async with`, or `start` and `close`.

    Args:
        config: A loaded configuration; or a mapping from names to targets of `connect`: a URL, a command, a Server; the
            same with options, `{"url": ..., "auth": ...}`; or an unopened `connect(...)`. The content of another program's
            file, `{"mcpServers": {...}}`, is such a mapping.
        allow, ask, deny: Rules on top of the configured ones, as on a command line.
        bridge: The way to a person. Without one, no server may ask (R261), and the host denies each call that the rules
            would ask about. `on_question=` makes one.
        on_question: Called with each question; see `ConsentBridge`.
        on_sample: Called with (server, Sampling) after a person allows it; returns the text, or a CreateMessageResult. Make
            it a coroutine function, unless it is quick.
        auto_allow: Without a person to ask, allow instead of deny (R245): calls, and the use of our model. Dangerous.
        separator: The text between server and tool in the catalog's names, as in `github:search`. None uses the names for
            providers, `mcp__github__search`.
        limits: The largest result that is passed on. A configured server's `output_limit` replaces its bytes.
        outputs: Keep results that were cut as files, too, readable by you alone, for an hour: a directory, or True for
            `$XDG_CACHE_HOME/trimaran/outputs`. Other processes of yours with the same directory can read them on.
        budget: Tokens for the definitions of tools in `tools(format)`, instead of the `[context] budget` of the files.
        audit: The file for decisions, or a DecisionLog.
        tokens: The store of logins, or its path; None for the keyring, or a file where there is none.
        login: How `authorize` asks a person to log in; None opens a browser. See `OAuth`.
        allow_private: True lets a login lead to private addresses. None leaves it to TRIMARAN_ALLOW_PRIVATE.
        roots: The folders that every server is told of.
        trust: The files that may start programs. A `Trust`: a project's `mcp.toml` that is not in it starts and allows
            nothing, until `trust_project`. False: no project's file does. None or True: every file does, so read them
            first. The user's own file, and a file that you name, are always trusted.
        pins: How definitions that are not as a person agreed to them are treated: "ask", "refuse", "warn", "off"; or a
            `Pins`, with its place. None pins the servers of configuration files only, and asks. See `docs/guides/pins.md`.
        scan: The effect of a grave finding in a server's texts: "ask" (None: the same), "warn", "off". A server's own
            setting counts before it. See `docs/guides/scan.md`.
        flow: The effect on a call that could send private data where strangers' texts want it: "ask", "refuse", "warn",
            "off". None asks where a person can be asked, and logs elsewhere.
        environ: The variables to read; None for those of this process.
        wait: True makes `start` wait until every server was tried once.
        on_change: Called, without arguments, whenever a server's state or tools change. It must be quick.
        options: Options of every `connect`, such as `era` or `client_info`.

    Raises:
        ConfigError: an option, a variable of the environment or a global rule cannot be used; says which and why.
    """

    def __init__(
        self, config: HostConfig | Mapping[str, Target | Client] | None = None, **options: Unpack[HostOptions]
    ) -> None:
        check_options(options, HostOptions.__annotations__, "Host")
        get = options.get
        bridge, on_question, audit = get("bridge"), get("on_question"), get("audit")
        if bridge is not None and on_question is not None:
            raise ConfigError("give bridge= or on_question=, not both: a Bridge takes on_question itself")
        connect_options: dict[str, Any] = {**(get("options") or {})}
        for name in OWN_HANDLERS:  # such a handler would be asked before the rules are
            if name in connect_options or getattr(connect_options.get("handler"), name, None) is not None:
                raise ConfigError(
                    f"{name} is not for options=: a host's servers ask through bridge=, or on_question=, and on_sample="
                )
        variables = get("environ")
        variables = os.environ if variables is None else variables
        self._environment = read_environment(variables)
        servers = config.servers if isinstance(config, HostConfig) else by_name(config or {})
        self.config: Final = config if isinstance(config, HostConfig) else config_of(servers)
        self.bridge: Final = ConsentBridge(on_question=on_question) if on_question is not None else bridge
        """The way to a person, if there is one."""
        self._rules = RulesInForce(
            self.config, get("trust"), allow=get("allow", ()), ask=get("ask", ()), deny=get("deny", ())
        )
        self._kept_logins: frozenset[str] = frozenset()
        """The untrusted servers for which a login is stored."""
        self._audit: DecisionLog | None = AuditLog(audit) if isinstance(audit, (str, os.PathLike)) else audit
        self._owns_audit = self._audit is not audit
        self.gate: Final = Gate(
            self._rules.policy(), audit=self._audit, attended=False, auto_allow=get("auto_allow", False)
        )
        """The rules, and the answers that a person gave for good."""
        self._servers = ServerTable(self.config, self._environment, self._rules, auth=connect_options.get("auth"))
        self._oversight = Oversight(self._servers.plans.get, note=self._note, scan=get("scan"), flow=get("flow"))
        self._asking = Approvals(
            self.gate,
            self.bridge,
            audit=self._audit,
            on_sample=get("on_sample"),
            safe=self._servers.safe.get,
            look=self._oversight.look,
        )
        pins = read_pins(get("pins"))
        review = CatalogReview(
            lambda name: pins.setting(self._servers.plans.get(name)),
            note=self._note,
            others=self._servers.tools_of_others,
            scan=self._oversight.tools,
        )
        self._long_results = LongResults(get("limits"), get("outputs"), variables)
        allow_private = get("allow_private")
        self._logins = Logins(
            get("tokens"), allow_private=self._environment.allow_private if allow_private is None else allow_private
        )
        self._login = get("login")
        if (roots := get("roots")) is not None:
            connect_options["roots"] = roots
        self._options = connect_options
        self._wait = get("wait", True)
        self._on_change = get("on_change")
        self._catalog = ToolCatalog(self._servers, separator=get("separator"))
        self._held_definitions = HeldDefinitions(self._servers, self._catalog, review, pins, self.bridge)
        self._active = ActiveTools()
        self._calls = ServerCalls(
            self._servers,
            self._catalog,
            self._active,
            gate=self.gate,
            approvals=self._asking,
            oversight=self._oversight,
            held_definitions=self._held_definitions,
            long_results=self._long_results,
        )
        self._host_tools = HostTools(
            self._catalog,
            self._servers,
            self._active,
            call=self.call,
            call_for_code=partial(self._calls.call, is_for_code=True),
            read_output=self._long_results.run_read_output,
            require_open=self._require_open,
        )
        self._model_calls = ModelCalls(
            self._catalog, self._servers, self._host_tools, find=self.find, long_results=self._long_results
        )
        self._offers = ToolOffers(
            self._catalog,
            self._servers,
            self._active,
            self._model_calls,
            self._long_results,
            config=self.config,
            rules=self._rules,
            budget=get("budget"),
        )
        self._mentions = Mentions(
            lambda: {name: self._servers.safe[name] for name in self._servers},
            lambda name: self._servers.require(name).require(),
            self._as_block,
            wake=self.wake,
            failed=self._calls.suspect,
        )
        self._is_open = False
        self._logging_in: set[asyncio.Future[None]] = set()
        self._closing: asyncio.Task[None] | None = None
        self._hooks = ServerHooks(self._dial, review.tools, self._changed, self._mentions.forget)
        self._servers.fill(servers, self._hooks)
        self._renew()

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str] | None = None,
        *,
        workspace: str | os.PathLike[str] | None = None,
        **options: Unpack[HostOptions],
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
        return f"<Host: {len(self._servers)} servers, {len(self._catalog.tools)} tools>"

    # --- whose files -------------------------------------------------------------------------------------------------

    @property
    def untrusted(self) -> tuple[Untrusted, ...]:
        """Everything that the project's `mcp.toml` would start, allow and inherit; empty if it is trusted. Show it, and ask.

        Stored logins are known once the host has started.
        """
        return self._rules.describe_untrusted(self.gate.standing.rules, self._kept_logins)

    @property
    def untrusted_files(self) -> tuple[str, ...]:
        """The files that are not trusted."""
        return tuple(source.file for source in self._rules.untrusted)

    async def trust_project(self) -> list[ServerStatus]:
        """Trust the project's `mcp.toml` as it was read: start its servers and apply its rules. Call it for a person's yes.

        The `Trust` of this host remembers it until the file changes; without one, only this host does.

        Raises:
            ConfigError: the trust cannot be written; nothing was started.
        """
        if self._closing is not None:
            raise Closed("the host is closed")
        untrusted = [name for name in self._servers if self._servers.is_untrusted(name)]
        await self._rules.trust_files()
        self.gate.policy = self._rules.policy()
        names = [name for name in untrusted if name in self._servers]
        for name in names:
            server = self._servers[name]
            if server.reason != UNTRUSTED:
                continue  # a person has disabled it
            server.reason = ""
            if self._is_open and not self._environment.no_servers:
                self._begin(name)
        if self._wait and self._is_open:
            await self.ready()
        return [self._servers[name].status for name in names if name in self._servers]

    def _dial(self, plan: ConnectPlan, **more: Any) -> Client:
        return self._logins.client(plan, {**self._options, **self._asking.handlers(plan.name), **more})

    # --- life --------------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start every server that is not disabled, all at once.

        Returns when each is up, has failed, or has had its `startup_timeout`; with `wait=False` at once. A slower server goes
        on starting in the background, and its tools appear later. No server makes this fail: read `status()`.
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
        if self._rules.untrusted:
            self._kept_logins = await self._logins.kept(self._rules.untrusted_entries())
        for name in self._servers:
            if not self._servers.is_untrusted(name):
                self._begin(name)
        if self._wait:
            try:
                await self.ready()
            except BaseException:
                await self.close()
                raise

    def _begin(self, name: str) -> None:
        """Start a server; a lazy server waits for its first use."""
        server, plan = self._servers[name], self._servers.plans.get(name)
        if not self._servers.is_enabled(name):
            return
        if plan is not None and plan.entry is not None and plan.entry.lazy:
            server.rest()
        else:
            server.start()

    async def ready(self, within: float | None = None) -> None:
        """Wait until every started server is up, has failed, or has had its `startup_timeout` (R267).

        Args:
            within: Seconds to wait for each from now on, instead of its `startup_timeout`.
        """
        started = [server for server in self._servers.values() if server.state not in ("disabled", "idle")]
        await asyncio.gather(*(server.tried() if within is None else server.settled(within) for server in started))

    async def close(self) -> None:
        """End every connection and every child process. Any task may call it, also more than once."""
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
        await self._held_definitions.close()
        await asyncio.gather(*(server.stop(for_good=True) for server in tuple(self._servers.values())))
        if self._owns_audit and isinstance(self._audit, AuditLog):
            await asyncio.to_thread(self._audit.close)
        await asyncio.to_thread(self._long_results.close)

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

    def _require_startable(self, name: str, plan: ConnectPlan | None) -> None:
        if self._environment.no_servers:
            raise ConfigError(
                f"the server {name!r} is not started: TRIMARAN_NO_MCP is set; unset it, and make the host again"
            )
        self._rules.require_trusted(name, plan)

    # --- servers -----------------------------------------------------------------------------------------------------

    def status(self) -> list[ServerStatus]:
        """The status of each server, ordered by name (R273)."""
        return [self._servers[name].status for name in sorted(self._servers)]

    def stderr(self, name: str) -> list[str]:
        """The last 200 lines that a child process wrote to stderr."""
        return self._servers.require(name).stderr

    def problems(
        self, format: Format | None = None, *, budget: int | None = None, **options: Unpack[FormatOptions]
    ) -> list[str]:
        """Warnings about the configuration and its rules: unknown keys, rules without effect (R243).

        Args:
            format: Also name each tool of `tools(format, **options)` that this provider refuses or cuts.
            budget: As for `tools`; a budget that cannot be met is a problem.
        """
        catalog = {
            name: list(server.tools) if server.state == "connected" else None for name, server in self._servers.items()
        }
        rules = self._rules.warnings(catalog, self._servers.safe)
        offered = [] if format is None else self._offers.get(format, options, budget).problems
        return [*map(str, self.config.problems), *map(str, rules), *offered]

    async def start_server(
        self, name: str, target: Target | ServerEntry | Client, **options: Unpack[ServerOptions]
    ) -> None:
        """Add a server and connect to it. When this returns, its tools are in the catalog (R216).

        It waits for at most the `startup_limit`. Cancel it to wait less; that removes the server.

        Args:
            target: A target of `connect`, an entry of a configuration, or an unopened `connect(...)`.
            options: Options of `connect` for this server alone, such as `auth=`. `timeout` limits a call,
                `connect_timeout` the start.

        Raises:
            AlreadyRegistered: a server of this name exists, or is being started (R217).
            ConfigError: the name, the target, an option or a rule of the entry cannot be used, the entry is from an
                untrusted project's file, or TRIMARAN_NO_MCP is set.
            ServerUnavailable: the connection failed, and the server is removed. A server that wants a person to log in
                stays, in the state `needs_auth`: `authorize` it.
        """
        self._require_open()
        check_options(options, Options.names() | {"startup_timeout", "startup_limit"}, "start_server")
        check_server_name(name)
        if name in self._servers:
            raise AlreadyRegistered(f"there is a server {name!r} already: stop it first, or use another name")
        self._require_startable(name, self._servers.plan(name, target, options))
        self._rules.add_server(name, target)
        self.gate.policy = self._rules.policy()
        server = self._servers.add(name, target, self._hooks, options)
        try:
            server.start()
            await server.settled()
            server.require()
        except BaseException:
            # A server that wants a login stays, so that `authorize` can log in.
            if self._servers.get(name) is server and server.state != "needs_auth":
                await self._remove(name)
            raise

    async def stop_server(self, name: str) -> None:
        """End a server and take it out of the catalog.

        Raises:
            NotRegistered: no server has this name (R217).
        """
        self._servers.require(name)
        await self._remove(name)

    async def _remove(self, name: str) -> None:
        server = self._servers.remove(name)
        if server is not None:
            self._rules.remove_server(name)
            self.gate.policy = self._rules.policy()
            self._asking.forget(name)
            self._oversight.forget(name)
            self._renew()  # first: while it ends, the catalog is read already
            await server.stop(for_good=True)

    def whereis(self, name: str) -> Client | None:
        """The client of a server, while it is connected (R216, R218)."""
        server = self._servers.get(name)
        return server.client if server is not None and server.state == "connected" else None

    def connected(self) -> list[str]:
        """The names of the servers that are connected now (R218)."""
        return self._servers.connected()

    async def reload(self, name: str) -> ServerStatus:
        """End a server's connection and connect again, now. It reads no file again (R237).

        Raises:
            ConfigError: the server may not start: TRIMARAN_NO_MCP is set, or the project's file is not trusted.
        """
        self._require_open()
        server = self._servers.require(name)
        self._require_startable(name, self._servers.plans.get(name))
        await server.restart()
        await server.tried()
        return server.status

    async def enable(self, name: str) -> ServerStatus:
        """Start a disabled or lazy server, for as long as this host lives.

        Raises:
            ConfigError: as for `reload`.
        """
        self._require_open()
        server = self._servers.require(name)
        self._require_startable(name, self._servers.plans.get(name))
        if server.state in ("disabled", "idle"):
            server.start()
            await server.tried()
        return server.status

    async def wake(self, name: str) -> ServerStatus:
        """Start a lazy server, and wait for at most its `startup_timeout`.

        It also waits for a server that is starting. It leaves any other server alone.
        """
        self._require_open()
        server = self._servers.require(name)
        if server.state == "idle":
            server.start()
        if server.state == "starting":
            await server.tried()
        return server.status

    async def disable(self, name: str) -> ServerStatus:
        """End a server. It stays disabled until `enable` or `reload`."""
        server = self._servers.require(name)
        await server.stop("disabled")
        return server.status

    async def authorize(self, name: str, *, login: Login = None) -> ServerStatus:
        """Let a person log in to a server, then connect again. Call it when a person asks for it.

        Args:
            login: The way to log in, instead of the host's own: see `OAuth`.

        Raises:
            ConfigError: a login is not for this server.
            AuthorizationFailed: the login failed.
            Closed: the host was closed during the login.
        """
        self._require_open()
        self._servers.require(name)
        plan = self._servers.plans.get(name)
        self._require_startable(name, plan)
        if plan is None:
            raise ConfigError(f"nobody can log in to the server {name!r}: fix its configuration first")
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

    # --- the catalog -------------------------------------------------------------------------------------------------

    def _changed(self, server: SupervisedServer) -> None:
        if server.state == "connected":
            self._renew()
            self._held_definitions.ask_about(server)
        if self._on_change is not None:
            try:
                self._on_change()
            except Exception:
                log.exception("on_change failed")

    # --- definitions that are held -----------------------------------------------------------------------------------

    def _note(self, event: str, **fields: object) -> None:
        if isinstance(self._audit, AuditLog):
            self._audit.note(event, **fields)

    def held(self, name: str | None = None) -> list[HeldDefinition]:
        """The definitions that changed, or are new at a known server, and wait for a person to agree.

        They are neither offered nor called. Show `difference` of each, then `accept_definitions`.

        Args:
            name: A server; None for all.
        """
        return self._held_definitions.get(name)

    async def accept_definitions(self, name: str, definitions: Iterable[HeldDefinition] | None = None) -> ServerStatus:
        """Agree to definitions as they are in `held`: pin them, and offer them again. Call it for a person's yes.

        Args:
            name: The server.
            definitions: Those that the person has seen; None for all that are held.

        Raises:
            ConfigError: the pins cannot be written; nothing was changed.
        """
        self._require_open()
        server = self._servers.require(name)
        await self._held_definitions.accept(
            name, self._held_definitions.get(name) if definitions is None else definitions
        )
        return server.status

    def ask_about_held(self, name: str | None = None) -> None:
        """Ask the person about held definitions now, also about those that were declined before."""
        self._held_definitions.ask_again(name)

    def _renew(self) -> None:
        self._catalog.renew()
        self._active.keep(self._catalog.tools)

    @overload
    def tools(self, format: None = None) -> list[Tool]: ...
    @overload
    def tools(
        self, format: Literal["anthropic"], *, budget: int | None = None, fit: Fit = "auto", strict: bool = False
    ) -> list[AnthropicTool]: ...
    @overload
    def tools(
        self, format: Literal["openai"], *, budget: int | None = None, fit: Fit = "auto", strict: bool = False
    ) -> list[OpenAITool]: ...
    @overload
    def tools(
        self, format: Literal["openai-responses"], *, budget: int | None = None, fit: Fit = "auto", strict: bool = False
    ) -> list[OpenAIResponsesTool]: ...
    @overload
    def tools(
        self, format: Literal["gemini"], *, budget: int | None = None, fit: Fit = "auto", openapi: bool = False
    ) -> list[GeminiTool]: ...
    def tools(
        self, format: Format | None = None, *, budget: int | None = None, **options: Unpack[FormatOptions]
    ) -> Sequence[object]:
        """The tools of every connected server, under the catalog's names; or declared as a provider wants them (R219, R220).

        The host makes them once for each change of the catalog. The list is the caller's own.

        Args:
            format: "anthropic", "openai", "openai-responses" or "gemini"; without, `trimaran.types.Tool`s.
            budget: Tokens for all definitions together. Tools that do not fit are shortened, then found by search;
                `budget_plan(format, budget=...)` says what was cut. None: the host's own, if it has one.
            fit: How far schemas may be changed; "auto" is as little as the provider demands. See `trimaran.format`.
            strict: Ask for arguments that match the schema for certain, where the provider can do that.
            openapi: For "gemini": the older `parameters`.

        Raises:
            ConfigError: there is no such format, or it has no such option, or the budget is below 1.
        """
        return self._offers.tools(format, options, budget)

    @property
    def budget(self) -> int | None:
        """The tokens for the definitions of tools, if there is a limit: the host's own, else that of a trusted file."""
        return self._offers.budget

    # --- tools that are found when they are needed -------------------------------------------------------------------

    def deferred_tools(
        self,
        format: Literal["anthropic", "openai-responses"],
        *,
        budget: int | None = None,
        **options: Unpack[FormatOptions],
    ) -> list[dict[str, Json]]:
        """The tools for a provider that loads definitions when the model has found them, and a `tool_search` for it.

        `answer` answers the search. The model sees at once the tools that fit the budget, and those that `mcp.toml` marks
        `always`; without a budget, those alone.

        Args:
            format: The formats whose providers can defer.
            budget, options: As for `tools`.

        Raises:
            ConfigError: the provider cannot defer, or an option is wrong.
        """
        return self._offers.deferred(format, options, budget)

    async def search_tools(self, query: str, limit: int = 5) -> list[Tool]:
        """The tools that fit a description of what is to be done, best first, under the catalog's names.

            await host.search_tools("send a mail")

        It compares words: names, descriptions and arguments of tools, what servers say about themselves, and related words.
        It asks no model and no server. See `docs/guides/search.md`.

        Args:
            query: The task, in a few words or a sentence; in English, whatever the tools' language.
            limit: The largest number of tools.
        """
        return [
            self._catalog.named(address, self._catalog.names.catalog)
            for address in await self._host_tools.find(query, limit)
        ]

    def report(
        self, format: Format = "anthropic", *, budget: int | None = None, **options: Unpack[FormatOptions]
    ) -> ContextReport:
        """A report on the tools: their cost for a model in this format, the cuts of a budget, and their faults.

            print(host.report(budget=8000))

        Args:
            budget: As for `tools`.
        """
        return self._offers.report(format, options, budget)

    async def prepare(
        self,
        format: Format = "anthropic",
        *,
        budget: int | None = None,
        report: bool = False,
        **options: Unpack[FormatOptions],
    ) -> None:
        """Count what `tools(format, budget=...)` needs to know of thousands of tools, while the event loop goes on.

            await host.prepare("anthropic", budget=8000)
            tools = host.tools("anthropic", budget=8000)

        `tools` and `report` count by themselves, a third of a millisecond for each new tool, and nothing else runs meanwhile.
        The count of a definition is kept, so that later calls count only new ones.

        Args:
            budget, options: As for `tools`.
            report: Prepare `report` as well.
        """
        await self._offers.prepare(format, options, budget, report=report)

    def budget_plan(
        self, format: Format = "anthropic", *, budget: int | None = None, **options: Unpack[FormatOptions]
    ) -> BudgetPlan | None:
        """The detail at which `tools(format, budget=...)` declares each tool, and the cuts; None without a budget."""
        return self._offers.get(format, options, budget).plan

    # --- code instead of calls ---------------------------------------------------------------------------------------

    async def code(self, code: str, *, limits: CodeLimits | None = None, conversation: str = "") -> CodeResult:
        """Run Python over the tools, in a sandbox; needs the extra `code`.

            result = await host.code("sum([await shop__price(item=i) for i in ('tea', 'jam')])")

        Each tool is an async function, `SERVER__TOOL`. Each call of one is a `call` of this host: rules, questions and limits
        hold. Results are not shortened, since they stay in the sandbox. Errors of the code are in the result.

        Args:
            limits: Of time, memory, calls and output.
            conversation: As for `call`.

        Raises:
            ConfigError: the sandbox is not installed.
        """
        return await self._host_tools.code(code, limits, {"conversation": conversation})

    def code_tool(self, limits: CodeLimits | None = None) -> Tool:
        """The tool that lets a model write code instead of calls, with the signatures of all connected servers' tools.

        Declare it beside other tools, or alone: `to_anthropic(host.code_tool())`. `call` and `answer` run it.

        Args:
            limits: Those of every run that a model asks for from now on; None leaves them as they are.
        """
        return self._host_tools.code_tool(limits)

    def find(self, name: str) -> Address:
        """The server and the tool of a name, in either form.

        Raises:
            UnknownName: no tool has this name; `reason` says which part is unknown (R221).
            ServerUnavailable: the tool may belong to a server whose tools are not known yet.
            DefinitionHeld: the tool has changed, or is new, and nobody has agreed to it.
        """
        return self._calls.find(name)

    def catalog_name(self, name: str) -> str:
        """The catalog's name of a tool, given in either form.

        Raises:
            UnknownName: no tool has this name.
        """
        return self._catalog.names.catalog(*self._catalog.find(name))

    def from_call(self, call: object, format: Format) -> ToolCall:
        """Read a model's call, for `call`: unpacks into the catalog's name and the arguments (R223).

        Strict mode sends null for an argument that the model left out; this leaves it out again. It cannot do that for a
        lazy server, whose schemas are not known yet.

        Raises:
            LocalProtocolError: this is no call, or its arguments are no object; or a budget shortened the tool's
                definition, and they do not fit its schema, which the message has.
            UnknownName: no tool has this name.
            ServerUnavailable: the tool may belong to a server whose tools are not known now.
        """
        return self._model_calls.read(call, format)

    def to_result(
        self, result: ToolResult | Error, call: ToolCall, format: Format, *, media_follows: bool = False
    ) -> dict[str, Json]:
        """A result as the content that answers the model's call: a block, a message, an item or a part, by format.

        Args:
            result: The result of `call`; or the Error it raised, which becomes a failed result.
            call: The result of `from_call`.
            media_follows: For "openai": a later message carries the pictures; see `trimaran.format.media_to_openai`.
        """
        return self._model_calls.write(result, call, format, media_follows=media_follows)

    # --- calls -------------------------------------------------------------------------------------------------------

    async def call(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        timeout: float | None = None,
        max_timeout: float | None = None,
        on_progress: Callable[[float, float | None, str | None], object] | None = None,
        meta: Mapping[str, Json] | None = None,
        approved: bool = False,
        conversation: str = "",
    ) -> ToolResult:
        """Call a tool, if that is allowed (R221, R239, R274).

        Cancel the task to cancel the call: the server is told. A failed tool has `is_error` in its result.

        Args:
            name: The tool's name, in the catalog's or in a provider's form.
            arguments: An object; None is an empty one (R276).
            timeout: Seconds, instead of the configured ones. They include the start of a server, and not the time that a
                person takes to answer.
            max_timeout: Let progress extend the wait, up to this many seconds (C39).
            on_progress: Called with (progress, total, message).
            approved: A person asked for exactly this call, so a rule that says "ask" is answered. A rule that denies
                still denies. Never pass it for a call that a model makes.
            conversation: The conversation of the call, if one host serves several: the results of one tighten its own
                calls only.

        Raises:
            UnknownName: no tool has this name.
            LocalProtocolError: the arguments are no object, or do not fit the schema of a tool that mcp.toml transforms.
            PermissionDenied: the call is not allowed; names the rule. Nothing was sent.
            DefinitionHeld: the tool has changed, or is new, and nobody has agreed to it. Nothing was sent.
            ConsentLost: the person left before answering: about the call, and nothing was sent; or about a question of
                the server during the call, and the server failed for that reason.
            ServerUnavailable: the server cannot be used now, or is still starting when the time is over.
            Error: the client's own; see trimaran.errors.
        """
        self._require_open()
        options: OwnCallOptions = {
            "timeout": timeout,
            "max_timeout": max_timeout,
            "on_progress": on_progress,
            "meta": meta,
            "approved": approved,
            "conversation": conversation,
        }
        if (own_tool := self._host_tools.get(name)) is not None:
            return await own_tool(copied_object(name, arguments), options)
        return await self._calls.call(name, arguments, options)

    @overload
    async def answer(
        self, reply: AnthropicReply | GeminiReply, **options: Unpack[AnswerOptions]
    ) -> dict[str, Json] | None: ...
    @overload
    async def answer(
        self, reply: ChatReply | ChatMessage | ResponsesReply, **options: Unpack[AnswerOptions]
    ) -> list[dict[str, Json]] | None: ...
    @overload
    async def answer(
        self, reply: object, *, format: Literal["anthropic", "gemini"], **options: Unpack[AnswerOptions]
    ) -> dict[str, Json] | None: ...
    @overload
    async def answer(
        self, reply: object, *, format: Literal["openai", "openai-responses"], **options: Unpack[AnswerOptions]
    ) -> list[dict[str, Json]] | None: ...
    @overload
    async def answer(
        self, reply: object, *, format: None = None, **options: Unpack[AnswerOptions]
    ) -> dict[str, Json] | list[dict[str, Json]] | None: ...
    async def answer(
        self, reply: object, *, format: Format | None = None, **options: Unpack[AnswerOptions]
    ) -> dict[str, Json] | list[dict[str, Json]] | None:
        """Make every call in a model's reply, at the same time; the message that carries all results.

            messages.append(await host.answer(reply))    # Anthropic, Gemini: one message
            messages += await host.answer(reply)         # OpenAI: a list of messages or items

        None if the reply has no call: the turn is over. The model is told of each call that fails: no tool has the name,
        the arguments are no object, a rule or a person refuses, the server fails or is too slow.

        Args:
            reply: The object of the provider's library, or its JSON; the whole response or its message.
            format: The format of the reply; None detects it.
            timeout: Seconds for each call, as for `call`.
            media: For "openai": add a user message with the pictures, sounds and PDF files of the results. For models that
                take them.
            conversation: As for `call`.

        Raises:
            LocalProtocolError: this is no reply.
            ConfigError: the format is unknown, or the reply has several choices.
            Closed: the host is not open.
        """
        self._require_open()
        check_options(options, {*AnswerOptions.__annotations__, "format"}, "answer", TypeError)
        return await answer_reply(self, reply, format, options, suggest=self._catalog.names.similar)

    def explain(
        self, name: str, arguments: Mapping[str, object] | None = None, *, conversation: str = ""
    ) -> Explanation:
        """Why the rules allow, ask about or deny a call: every rule that applies, in order (R240). It calls nothing.

        Args:
            name: A tool; or `Elicit(server)`, for a server's questions.
            arguments: The arguments of the call; None if they are not known.
            conversation: As for `call`.
        """
        return self._calls.explain(name, arguments, conversation)

    def findings(self, server: str | None = None) -> list[ScanFinding]:
        """The findings of the scan: in the present definitions of servers, and in their recent messages.

        Args:
            server: Only the findings about this one.
        """
        return self._oversight.findings(server)

    def conversation(self, name: str = "") -> DataFlow:
        """The data in a conversation: which tools brought private data, and which brought strangers' texts.

        `clear()` it when the model's context is emptied.
        """
        return self._oversight.conversation(name)

    def touches(self, name: str) -> frozenset[Touch]:
        """The things that a call of a tool touches: private data, untrusted content, the outside, the machine.

        Raises:
            UnknownName: no tool has this name.
        """
        return self._calls.touches(name)

    def output(self, output_id: str, offset: int = 0, limit: int = 20_000) -> OutputPage:
        """A page of an output that was too large to pass on whole (R270).

        Raises:
            OutputMissing: the output is not stored, or no longer.
        """
        page = self._long_results.page(output_id, offset, limit)
        return page._replace(text=self._oversight.scanner.clean(page.text, ""))

    # --- resources ---------------------------------------------------------------------------------------------------

    async def expand(self, text: str) -> Expansion:
        """Replace each `@server:resource args` in a person's message by the resource's content (R264).

        A mention that cannot be resolved stays in the text, and `problems` says why.

        Raises:
            TemplateArity: too few words follow a template; nothing was sent (R265).
        """
        self._require_open()
        return await self._mentions.expand(text)

    async def complete_mention(self, prefix: str) -> list[str]:
        """The mentions that begin with this prefix: `@do` -> `@docs:`, `@docs:re` -> `@docs:readme` (R264)."""
        self._require_open()
        return await self._mentions.complete(prefix)

    async def complete_argument(self, server: str, name: str, words: Sequence[str], prefix: str) -> list[str]:
        """The server's completions for the next word after `@server:name word...`.

        Empty if no template has this name, it takes no more words, or the server does not answer soon.

        Args:
            name: The name of a template.
            words: The words before, which are the values of its first placeholders.
            prefix: The beginning of the word.
        """
        self._require_open()
        return await self._mentions.complete_argument(server, name, words, prefix)

    async def read_resource(self, server: str, resource: str, *words: str) -> ResourceResult:
        """Read a resource by name or URI, or a template by name with exactly the words it takes.

        Raises:
            ResourceUnknown, TemplateArity, ServerUnavailable: nothing was sent.
        """
        self._require_open()
        result = await self._mentions.read(server, await self._mentions.resolve(server, resource, words))
        result = result.copy()
        result.contents = [
            replace(part, text=self._oversight.resource(server, one_word(part.uri), part.text))
            if isinstance(part, TextResourceContents)
            else part
            for part in result.contents
        ]
        return result

    async def get_prompt(self, server: str, name: str, arguments: Mapping[str, str] | None = None) -> PromptResult:
        """The messages of a prompt, cleaned as results are.

        Raises:
            NotRegistered: there is no such server.
            ServerUnavailable: the server cannot be used now.
        """
        self._require_open()
        result = await self._servers.require(server).require().get_prompt(name, arguments)
        for number, message in enumerate(result.messages):
            if isinstance(message.content, TextContent):
                text = self._oversight.resource(server, name, message.content.text)
                result.messages[number] = replace(message, content=replace(message.content, text=text))
        return result

    def _as_block(self, mention: Mention, resource: ResourceResult) -> str:
        """A resource as a block of a message, within the limits of its server."""
        whole = CallToolResult(content=[TextContent(text=resource_text(resource))])
        shortened = self._long_results.limit(whole, self._servers.require(mention.server), mention.text).result
        text = "\n".join(block.text for block in cast("Iterable[Any]", shortened.content))
        text = self._oversight.resource(mention.server, one_word(mention.uri), text)
        return fence(mention.server, mention.uri, resource, text)
