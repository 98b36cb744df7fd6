"""A gateway: every server of a configuration at a path of its own, and all of them as one catalog at `/mcp`.

    /mcp                   all servers; tools and prompts have the name of their server before them: github_search
    /servers/NAME/mcp      one server
    /views/NAME/mcp        a part of them, as `[view.NAME]` says

Each server is one proxy (`trimaran.proxy`), started once and mounted wherever it is shown. A server that cannot be reached
stops nothing: it has no tools until it answers, and its state is told by the log, by `/readyz` and by `/health`.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Container, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast, final

import msgspec

from trimaran.auth.limits import RateLimit
from trimaran.auth.provider import Provider
from trimaran.errors import ConfigError, DeclarationError
from trimaran.host.config.machine import Machine
from trimaran.host.config.model import HostConfig, ServerEntry, Source
from trimaran.host.connect_plan import ConnectPlan, plan_for
from trimaran.host.environment import Environment, read_environment
from trimaran.host.names import safe_names
from trimaran.host.permissions import AuditLog, Rule, RuleSource, check, read_config_rules
from trimaran.host.trust.pins import Pins
from trimaran.proxy.connections import ConnectionBudget
from trimaran.proxy.server import open_proxy
from trimaran.proxy.upstream import Upstream
from trimaran.serve import HttpServer, Tls
from trimaran.server.registry import Adapt
from trimaran.server.server import Server
from trimaran.server.tools import ToolEntry
from trimaran.server.transforms import adapt_mounted
from trimaran.transports.engine import Engine
from trimaran.transports.fetch import Fetcher, load_http_library
from trimaran.transports.guard import is_loopback

from .authentication import Authentication, ViewAuthentication, read_provider
from .call_control import OTHER_SUBJECTS, Controls, ServerControl, secrets_of
from .callers import Access
from .credentials import UpstreamCredentials, credentials_of
from .logins import LoginDesk, ServerLogins
from .logs import configuration_secrets
from .metrics import Metrics, Observed
from .pinned import PinnedDefinitions
from .routes import Routes
from .settings import GatewaySettings, ServerSettings, ViewSettings, read_settings, read_views
from .views import ServedView, build_view, mount_in_view

if TYPE_CHECKING:
    from trimaran.ext.otel import Telemetry
    from trimaran.server.transform_options import TransformOptions

log: Final = logging.getLogger("trimaran.gateway")

# What endpoints are made with; a reload cannot change it.
_FIXED: Final = (
    "public_url",
    "store",
    "secret_keys",
    "rate_limit",
    "allowed_origins",
    "allow_missing_origin",
    "allowed_hosts",
    "telemetry",
    "max_connections",
    "max_connections_per_caller",
)
_NOWHERE: Final = Source("", "file")
# A call of a server that was removed may go on this long; as long as any call may take.
_RETIRE_SECONDS: Final = 600.0
_MOST_INSTRUCTIONS: Final = 4000  # characters of each server's; a host shows them to a model with every request


@final
class ServedUpstream:
    """One server of the configuration, as the gateway serves it."""

    def __init__(
        self,
        plan: ConnectPlan,
        safe: str,
        server: Server,
        upstream: Upstream,
        engine: Engine,
        credentials: UpstreamCredentials,
        control: ServerControl,
        pinned: PinnedDefinitions,
    ) -> None:
        self.plan = plan
        self.pinned = pinned
        self.control = control
        self.credentials = credentials
        self.name: str = plan.name
        self.safe = safe
        """The name in paths, prefixes and rules."""
        self.server: Server = server
        self.upstream = upstream
        self.engine = engine

    @property
    def is_up(self) -> bool:
        return self.upstream.client is not None


@final
class Gateway:
    """The endpoints of one port, as an async context manager: `async with Gateway(config, port=0) as gateway: gateway.url`.

    Args:
        store: In place of the store that the configuration names.
    """

    def __init__(
        self,
        config: HostConfig,
        *,
        host: str = "127.0.0.1",
        port: int = 8080,
        tls: Tls | None = None,
        store: str | None = None,
        machine: Machine | None = None,
    ) -> None:
        self._machine = machine or Machine.here()
        self._environment: Environment = read_environment(self._machine.variables)
        self.settings: GatewaySettings = read_settings(config, self._machine)
        self._store = store or self.settings.store
        if self._store not in (None, "memory://") and not self.settings.secret_keys:
            raise ConfigError(
                "gateway.secret_keys is missing: processes that share a store must seal the state of calls with the same keys; "
                'make one with `openssl rand -hex 32`, and write secret_keys = ["${GATEWAY_KEY}"]'
            )
        self._host = host
        self._rate_limit = _rate_limit(self.settings)
        provider = read_provider(self.settings)
        self.auth: Authentication | None = None if provider is None else Authentication(provider)
        """Who may call; None if nobody is asked."""
        self._audit = _open_audit(self.settings)
        self._budget = ConnectionBudget(self.settings.max_connections, self.settings.max_connections_per_caller)
        self._fetcher = Fetcher(allow_private=True)  # of URLs that the configuration names
        self._desk = LoginDesk(self.settings.secret_keys, self._base_url, lambda: self.server.runtime.fleet)
        self.metrics: Metrics | None = _open_metrics(self.observe)
        self._telemetry = _open_telemetry(self.settings)
        self.controls: Controls = self._read_controls(config)
        _check_reach(host, self.settings)
        self.server: Server = Server("gateway", title="Gateway", secret_keys=self.settings.secret_keys or None)
        self.server.runtime.shortages.append(self._name_those_down)
        self.served: dict[str, ServedUpstream] = {}
        """By the name of the configuration."""
        self.views: dict[str, ServedView] = {}
        self.failed: dict[str, str] = {name: entry.reason for name, entry in config.failed.items()}
        """Servers whose entry cannot be used, and why."""
        Routes(self).declare(self.server)
        self._desk.declare(self.server)
        if self._telemetry is not None:
            self._telemetry.attach(self.server)
        options = self._endpoint_options("mcp", "/mcp")
        self.http: HttpServer = HttpServer(self.server, host=host, port=port, tls=tls, **options)
        self._endpoints = self.http.open_endpoints()
        self._reloading = asyncio.Lock()
        self._retiring: set[asyncio.Task[None]] = set()
        safe = safe_names(config.servers)
        for name, entry in _enabled(config).items():
            self._add(self._serve_entry(entry, safe[name]))
        for name, view in read_views(config, self._machine).items():
            self._add_view(self._serve_view(name, view))
        for name, reason in self.failed.items():
            log.error("the server %r cannot be used: %s", name, reason)

    # --- its life

    @property
    def url(self) -> str:
        """The address of all servers together."""
        return self.http.url

    def _base_url(self) -> str:
        """The address of the gateway as browsers know it."""
        return (self.settings.public_url or self.http.url.removesuffix("/mcp")).rstrip("/")

    async def start(self) -> None:
        """Connect to all servers at the same time, then listen. One that does not answer is waited for a moment only."""
        await asyncio.gather(load_http_library(), *(self._start(served) for served in self.served.values()))
        await self.http.start()
        self.report_rules()

    async def _start(self, served: ServedUpstream) -> None:
        if served.credentials.exchange is not None:
            await served.credentials.exchange.start(self._fetcher)
        await served.server.start()

    async def stop(self) -> None:
        for task in self._retiring:
            task.cancel()
        await asyncio.gather(*self._retiring, return_exceptions=True)
        for served in self.served.values():
            if served.control.logins is not None:
                await served.control.logins.close()
        await self.http.stop()
        await self._fetcher.close()
        if self._audit is not None:
            self._audit.close()

    async def __aenter__(self) -> Gateway:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    # --- another configuration

    async def reload(self, config: HostConfig) -> None:
        """Serve what another configuration says. Calls at work go on; a server that did not change keeps its connections.

        Raises:
            ConfigError: it cannot be used, or changes what needs a new process. Then everything stays as it was.
        """
        async with self._reloading:
            settings, views = read_settings(config, self._machine), read_views(config, self._machine)
            access = Access(read_config_rules(config).checked(), settings)
            _check_unchanged(self.settings, settings)
            for name, view in views.items():
                self._check_view(name, view)
            before, self.settings = self.settings, settings
            try:
                servers = self._compare(config, before)
                if self.auth is not None and settings.auth != before.auth:
                    await self.auth.replace(cast("Provider", read_provider(settings)))
            except BaseException:
                self.settings = before
                raise
            self._renew_controls(access, before)
            await self._replace_servers(config, servers)
            await self._look_again_at_pins(before, servers)
            await self._replace_views(views)
            self.failed = {name: entry.reason for name, entry in config.failed.items()}
            self._describe()
            self.report_rules()

    def _compare(self, config: HostConfig, before: GatewaySettings) -> dict[str, ServedUpstream]:
        """The servers that are new, or whose entry has changed, ready to be added."""
        safe = safe_names(config.servers)
        return {
            name: self._serve_entry(entry, safe[name])
            for name, entry in _enabled(config).items()
            if (served := self.served.get(name)) is None
            or served.safe != safe[name]
            or _essence(served.plan.entry) != _essence(entry)
            or before.server.get(name) != self.settings.server.get(name)
        }

    def _renew_controls(self, access: Access, before: GatewaySettings) -> None:
        settings, audit = self.settings, self._audit
        if (settings.audit, settings.audit_arguments) != (before.audit, before.audit_arguments):
            self._audit = _open_audit(settings)
        self.controls = self.controls.renewed(access, settings, before, self._audit)
        for served in self.served.values():
            served.control.controls = self.controls
        if audit is not None and audit is not self._audit:
            audit.close()

    async def _replace_servers(self, config: HostConfig, servers: Mapping[str, ServedUpstream]) -> None:
        """Serve the new ones. A server that has changed serves as it was until the new one has started, or failed to."""
        remaining = _enabled(config)
        for name in [name for name in self.served if name not in remaining]:
            await self._remove(name)
        for served in servers.values():
            served.control.controls = self.controls
        await asyncio.gather(*(self._start(served) for served in servers.values()))
        for served in servers.values():
            if served.name in self.served:
                await self._remove(served.name)
            self._add(served)
            for view in self.views.values():
                if served.name in view.settings.servers:
                    mount_in_view(view.server, view.name, view.settings, served)
        for served in servers.values():
            await served.engine.start()

    async def _remove(self, name: str) -> None:
        gone = self.served.pop(name)
        self._endpoints.remove(gone.engine)
        for user in (self.server, *(view.server for view in self.views.values())):
            if gone.server in user.runtime.mounted:
                await user.unmount(gone.server)
        self._spawn(self._retire(gone))

    async def _look_again_at_pins(self, before: GatewaySettings, new: Container[str]) -> None:
        """Read lists again where an operator may have agreed meanwhile, or where pins are treated otherwise now."""
        is_changed = (before.pins, before.pins_path) != (self.settings.pins, self.settings.pins_path)
        for name, served in self.served.items():
            if name not in new and (is_changed or served.pinned.withheld):
                await served.upstream.list_again()

    async def _replace_views(self, views: Mapping[str, ViewSettings]) -> None:
        for name in [name for name, view in self.views.items() if views.get(name) != view.settings]:
            gone = self.views.pop(name)
            self._endpoints.remove(gone.engine)
            self._spawn(_retire_view(gone))
        for name, settings in views.items():
            if name in self.views:
                continue
            try:
                view = self._serve_view(name, settings)
            except DeclarationError as error:  # it does not fit the tools that there are; the rest is served
                log.error("the view %r is not served: %s", name, error)
                continue
            self._add_view(view)
            await view.engine.start()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._retiring.add(task)
        task.add_done_callback(self._retiring.discard)

    async def _retire(self, served: ServedUpstream) -> None:
        """Stop a server that is served no longer, once its calls are over."""
        try:
            async with asyncio.timeout(_RETIRE_SECONDS):
                while served.control.active or served.upstream.parked:
                    await asyncio.sleep(0.05)
        except TimeoutError:
            log.warning("the server %r is stopped while calls are running", served.name)
        finally:
            if served.control.logins is not None:
                await served.control.logins.close()
            await served.engine.drain(1.0)
            await served.server.stop()

    def problems(self) -> list[str]:
        """What an operator has to fix: tools that are left out since another one has their name, and the like."""
        servers = [self.server, *(view.server for view in self.views.values())]
        faults = {fault for server in servers for fault in _faults(server)}
        store = Pins(self.settings.pins_path)
        waiting = {
            f"{item}: {store.diff_command(item.server)}"
            for served in self.served.values()
            for item in served.pinned.withheld
        }
        return sorted(faults | waiting)

    def _note(self, event: str, **fields: object) -> None:
        if self._audit is not None:
            self._audit.note(event, **fields)

    def report_rules(self) -> list[str]:
        """Log the rules, limits and views that can match nothing, as far as the servers that answer tell, and return them."""
        catalog = {
            name: [*served.server.tools.view, *OTHER_SUBJECTS] if served.is_up else None
            for name, served in self.served.items()
        }
        safe = {name: served.safe for name, served in self.served.items()}
        problems = [str(problem) for problem in check(self.controls.access.rules, catalog, safe)]
        problems += [problem for view in self.views.values() for problem in view.problems(self.served)]
        for at, limit in enumerate(self.settings.limit):
            rule = Rule.of("allow", limit.tools, source=RuleSource("file", f"gateway.limit[{at}]"))
            problems += map(str, check([rule], catalog, safe))
        problems += self.settings.group_problems()
        for problem in problems:
            log.warning("%s", problem)
        return problems

    # --- servers

    def _serve_entry(self, entry: ServerEntry, safe: str) -> ServedUpstream:
        plan = plan_for(entry.name, entry, self._environment)
        credentials = credentials_of(entry, allow_private=self._environment.allow_private)
        if credentials.exchange is not None and self.auth is None:
            raise ConfigError(
                f'{plan.where}: oauth = "token_exchange" exchanges the tokens of callers, and callers are not asked for '
                "tokens; say in [gateway.auth] how they authenticate"
            )
        settings = self.settings.server.get(entry.name, ServerSettings())
        control = ServerControl(plan, safe, self.controls)
        logins = None
        if self.auth is not None and entry.oauth in ("auto", "manual") and entry.transport != "stdio":
            logins = ServerLogins(
                plan,
                self._desk,
                lambda: self.settings.shared_logins,
                allow_private=self._environment.allow_private,
            )
        connect: dict[str, Any] = {} if plan.startup_limit is None else {"connect_timeout": plan.startup_limit}
        pinned = PinnedDefinitions(plan, lambda: self.settings, self._note)
        server, upstream = open_proxy(
            plan.target,
            name=entry.name,
            review=pinned.review,
            start_timeout=plan.startup_timeout,
            server_options={
                "secret_keys": self.settings.secret_keys or None,
                "request_timeout": plan.call_timeout,
            },
            control=control,
            caller_auth=credentials.caller_auth if logins is None else logins.auth_for,
            is_personal=logins is None or entry.oauth == "manual",
            budget=self._budget,
            isolation=settings.connections,
            max_connections=settings.max_connections,
            auth=credentials.shared,
            timeout=plan.call_timeout,
            **connect,
        )
        if logins is not None:
            control.logins = logins
            logins.upstream = upstream
            server.mount(logins.server)
        if plan.transforms is not None:
            server.tools.transform(_configured_transform(entry, server))
        if self._telemetry is not None:
            self._telemetry.attach(server)
        path = f"/servers/{safe}/mcp"
        engine = server.engine(path, host=self._host, health=False, **self._endpoint_options(f"servers.{safe}", path))
        return ServedUpstream(plan, safe, server, upstream, engine, credentials, control, pinned)

    def _add(self, served: ServedUpstream) -> None:
        self.served[served.name] = served
        if served.credentials.exchange is not None and self.auth is not None:
            self.auth.keeps_token = True
        self.server.mount(served.server, prefix=served.safe)
        served.server.tools.watch(self._describe)
        self._endpoints.add(served.engine)

    def _check_view(self, name: str, view: ViewSettings) -> None:
        if view.to and self.auth is None:
            raise ConfigError(
                f"view.{name}.to: callers are not asked who they are; say in [gateway.auth] how they authenticate"
            )

    def _serve_view(self, name: str, view: ViewSettings) -> ServedView:
        self._check_view(name, view)
        server = build_view(name, view, self.served, secret_keys=self.settings.secret_keys or None)
        if self._telemetry is not None:
            self._telemetry.attach(server)
        path = f"/views/{name}/mcp"
        options = self._endpoint_options(f"views.{name}", path)
        if view.to and self.auth is not None:
            options["auth"] = ViewAuthentication(
                self.auth, lambda principal: self.controls.access.is_one_of(view.to, principal)
            )
        engine = server.engine(path, host=self._host, health=False, **options)
        return ServedView(name, view, server, engine)

    def _add_view(self, view: ServedView) -> None:
        self.views[view.name] = view
        self._endpoints.add(view.engine)

    def _endpoint_options(self, label: str, path: str) -> dict[str, Any]:
        settings = self.settings
        return {
            "auth": self.auth,
            "rate_limit": self._rate_limit,
            "public_url": None if settings.public_url is None else settings.public_url.rstrip("/") + path,
            "store": None if self._store is None else _store_of(self._store, label),
            "allowed_origins": settings.allowed_origins,
            "allow_missing_origin": settings.allow_missing_origin,
            "allowed_hosts": settings.allowed_hosts,
        }

    def _read_controls(self, config: HostConfig) -> Controls:
        access = Access(read_config_rules(config).checked(), self.settings)
        return Controls(
            access,
            self.settings,
            audit=self._audit,
            metrics=self.metrics,
            telemetry=self._telemetry,
            rates=self._shared_rates,
        )

    def _shared_rates(self) -> Any:
        fleet = self.server.runtime.fleet
        return None if fleet is None else getattr(fleet.store, "rates", None)

    def secrets(self) -> list[str]:
        """All secrets of the configuration, for a mask of the log."""
        settings = msgspec.to_builtins(self.settings)
        own = [secret for served in self.served.values() for secret in secrets_of(served.plan)]
        return [*own, *configuration_secrets(settings), *re.findall(r"://[^/@]*:([^/@]+)@", self._store or "")]

    def observe(self) -> Iterable[tuple[str, dict[str, str], float]]:
        """What is open and at work, for `/metrics`."""
        for name, served in self.served.items():
            label, client = {"server": name}, served.upstream.client
            yield "server_up", label, served.is_up
            yield "tools", label, len(served.server.tools)
            yield "children", label, _children(served)
            yield "connections", {**label, "kind": "shared"}, client is not None
            yield "connections", {**label, "kind": "caller"}, served.upstream.own_clients
            yield "parked_calls", label, served.upstream.parked
        for engine in self._endpoints:
            gauges = engine.gauges()
            yield "sessions", {"endpoint": engine.path}, gauges.sessions
            yield "streams", {"endpoint": engine.path}, gauges.streams

    def _describe(self) -> None:
        """Say which servers stand behind `/mcp`, in their own words."""
        texts = [
            f"# {served.name} (names begin with {served.safe}_)\n{(served.server.instructions or '')[:_MOST_INSTRUCTIONS]}"
            for served in self.served.values()
            if served.server.instructions
        ]
        self.server.instructions = "\n\n".join(texts) or None

    def _name_those_down(self) -> str | None:
        count = sum(not served.is_up for served in self.served.values())
        return f"{count} of {len(self.served)} servers cannot be reached" if count else None


def _faults(server: Server) -> Iterable[str]:
    for registry in (server.tools, server.prompts, server.resources, server.templates):
        yield from registry.faults


async def _retire_view(view: ServedView) -> None:
    await view.engine.drain(_RETIRE_SECONDS)
    for mounted in tuple(view.server.runtime.mounted):
        await view.server.unmount(mounted)
    await view.server.stop()


def _enabled(config: HostConfig) -> dict[str, ServerEntry]:
    return {name: entry for name, entry in config.servers.items() if entry.enabled}


def _essence(entry: ServerEntry | None) -> ServerEntry | None:
    """An entry without what does not concern its connection: where it stands, and its rules."""
    if entry is None:
        return None
    return msgspec.structs.replace(entry, source=_NOWHERE, lines={}, table={}, permissions=())


def _check_unchanged(before: GatewaySettings, after: GatewaySettings) -> None:
    """Refuse a reload that changes what endpoints were made with."""
    changed = [key for key in _FIXED if getattr(before, key) != getattr(after, key)]
    if before.is_open != after.is_open:
        changed.append("auth")
    if changed:
        raise ConfigError(f"gateway.{changed[0]} has changed, which needs a new process: start the gateway again")


def _open_audit(settings: GatewaySettings) -> AuditLog | None:
    return None if settings.audit is None else AuditLog(settings.audit, arguments=settings.audit_arguments)


def _configured_transform(entry: ServerEntry, server: Server) -> Adapt[ToolEntry]:
    """How `[server.NAME]` has the tools shown, at every endpoint."""
    tables = {
        tool: cast("TransformOptions", settings.transform)
        for tool, settings in entry.tools.items()
        if settings.transform
    }
    return adapt_mounted(
        server.tools,
        lambda name: name,
        include=entry.include,
        exclude=entry.exclude,
        read_only=entry.read_only,
        transforms=tables,
    )


def _rate_limit(settings: GatewaySettings) -> RateLimit | None:
    rates = settings.rate_limit
    if rates is None:
        return None
    return RateLimit(
        principal=rates.principal, address=rates.address, burst=rates.burst, trusted_proxies=rates.trusted_proxies
    )


def _children(served: ServedUpstream) -> int:
    if served.plan.transport != "stdio":
        return 0
    return served.is_up + served.upstream.own_clients


def _open_metrics(observe: Observed) -> Metrics | None:
    try:
        return Metrics(observe)
    except ConfigError as error:
        log.info("no figures are counted: %s", error)
        return None


def _open_telemetry(settings: GatewaySettings) -> Telemetry | None:
    if not settings.telemetry:
        return None
    from trimaran.ext.otel import Telemetry

    return Telemetry()


def _store_of(url: str, label: str) -> str:
    """The store of one endpoint: its own namespace on the Redis of all, or its own SQLite file beside the others."""
    if url == "memory://":
        return url
    if url.startswith("sqlite://"):
        stem, dot, ending = url.rpartition(".")
        return f"{stem}-{label}.{ending}" if dot and "/" not in ending else f"{url}-{label}"
    if "namespace=" in url:
        return url.replace("namespace=", f"namespace={label}.")
    return f"{url}{'&' if '?' in url else '?'}namespace={label}"


def _check_reach(host: str, settings: GatewaySettings) -> None:
    if is_loopback(host):
        return
    if settings.auth is None:
        raise ConfigError(
            f"{host} can be reached from other machines, and the gateway would lend its credentials to all of them: say in "
            '[gateway.auth] who may call, or write auth = "none" if something else decides'
        )
    if settings.allowed_origins is None:
        raise ConfigError(
            f"{host} can be reached from other machines, so say which web pages may call: allowed_origins = [] or "
            '["https://app.example.com"] in [gateway]; programs that are not browsers need allow_missing_origin = true'
        )
