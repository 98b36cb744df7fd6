"""The servers of one host by name: how each is reached, its safe name, and the task that keeps it running.

`host.py` decides when a server starts, `supervise.py` runs it, `connect_plan.py` says how it is reached. A server with a
mistake in its entry or its rules is in the table as well, as failed: its status says why.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast, final

from trimaran.client.client import Client
from trimaran.errors import ConfigError, Error
from trimaran.types import Tool

from .config import FailedEntry, HostConfig, ServerEntry
from .connect_plan import ConnectPlan, plan_for
from .environment import Environment
from .names import check_server_name, safe_names
from .rules_in_force import RulesInForce
from .supervise import SupervisedServer
from .trust.review import Reviewed
from .trust.trusted_files import UNTRUSTED
from .trust.untrusted import configured_names


class NotRegistered(Error):
    """There is no server of this name."""

    kind = "not_registered"


class ServerHooks(NamedTuple):
    """The functions that a host gives each of its servers."""

    dial: Callable[..., Client]
    """Called with the plan and more options of `connect`: an unopened client."""
    review: Callable[[str, Mapping[str, Tool]], Awaitable[Reviewed]]
    changed: Callable[[SupervisedServer], None]
    forgotten: Callable[[str], None]


@final
class ServerTable(Mapping[str, SupervisedServer]):
    """The servers of one host.

    Args:
        auth: The host's own credentials, for servers without any.
    """

    def __init__(self, config: HostConfig, environment: Environment, rules: RulesInForce, *, auth: Any) -> None:
        self._config = config
        self._environment = environment
        self._rules = rules
        self._auth = auth
        self._servers: dict[str, SupervisedServer] = {}
        self.plans: Final[dict[str, ConnectPlan]] = {}
        self.safe: Final[dict[str, str]] = {}
        """The safe name of each server. It never changes while the host lives."""

    def __getitem__(self, name: str) -> SupervisedServer:
        return self._servers[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._servers)

    def __len__(self) -> int:
        return len(self._servers)

    def require(self, name: str) -> SupervisedServer:
        """The server of this name.

        Raises:
            NotRegistered: there is none.
        """
        server = self._servers.get(name)
        if server is None:
            known = ", ".join(sorted(self._servers)) or "none"
            raise NotRegistered(f"there is no server {name!r}; there are: {known}")
        return server

    def connected(self) -> list[str]:
        """The names of the servers that are connected now."""
        return sorted(name for name, server in self._servers.items() if server.state == "connected")

    def coming(self) -> list[SupervisedServer]:
        """The servers whose tools are not known yet, and that a call starts or waits for."""
        return [
            server for server in self._servers.values() if server.state in ("idle", "starting") and not server.tools
        ]

    def tools_of_others(self, name: str) -> list[tuple[str, str]]:
        """The tools of all servers but this one."""
        return [
            (other, tool.name)
            for other, server in self._servers.items()
            if other != name
            for tool in server.tools.values()
        ]

    def is_enabled(self, name: str) -> bool:
        entry = self._config.servers.get(name) or self._config.failed.get(name)
        return entry is None or not entry.disabled

    def is_untrusted(self, name: str) -> bool:
        """Is this a server of a file that nobody has trusted?"""
        return self._rules.is_untrusted(self.plans.get(name))

    def plan(self, name: str, target: Any, options: Mapping[str, Any] | None = None) -> ConnectPlan:
        """How a server is reached.

        Raises:
            ConfigError: the name, the target or an option cannot be used.
        """
        return plan_for(check_server_name(name), target, self._environment, options, self._auth)

    # --- changes -----------------------------------------------------------------------------------------------------

    def fill(self, servers: Mapping[str, Any], hooks: ServerHooks) -> None:
        """Add the servers that a host is made with. Those whose entry is broken are added as failed."""
        failed = self._config.failed
        for name in (*servers, *failed):
            check_server_name(name)
        self.safe.update(safe_names((*servers, *failed), configured_names(self._config)))
        for name, target in servers.items():
            self.add(name, target, hooks)
        for name, entry in failed.items():
            self._servers[name] = self._failed(name, entry, hooks)

    def add(
        self, name: str, target: Any, hooks: ServerHooks, options: Mapping[str, Any] | None = None
    ) -> SupervisedServer:
        """Add a server, and do not start it."""
        plan = self.plan(name, target, options)
        self.safe.update(safe_names((name,), self.safe))
        # A rule that cannot be read might be the one that denies, so no server may run under its name.
        failed = self._config.failed.get(name)
        errors = [failed.reason] if failed is not None else []
        problem = "\n".join([*errors, *self._rules.errors_about(name)])

        def dial(**more: Any) -> Client:
            return hooks.dial(plan, **more)

        server = SupervisedServer(
            name,
            plan.transport,
            None if problem else dial,
            startup_timeout=plan.startup_timeout,
            startup_limit=plan.startup_limit,
            call_timeout=plan.call_timeout,
            tool_timeouts=plan.tool_timeouts,
            transforms=plan.transforms,
            output_limit=plan.output_limit,
            can_log_in=plan.can_log_in,
            where=plan.where,
            problem=problem,
            problem_kind=failed.problems[0].kind if failed is not None and failed.problems else "invalid_rule",
            mask=plan.mask,
            missing=plan.missing,
            review=hooks.review,
            sandbox=plan.sandbox,
            changed=hooks.changed,
            forgotten=hooks.forgotten,
        )
        self.plans[name] = plan
        self._servers[name] = server
        if self.is_untrusted(name):
            server.reason = UNTRUSTED
        return server

    def _failed(self, name: str, failed: FailedEntry, hooks: ServerHooks) -> SupervisedServer:
        transport = failed.table.get(
            "transport", failed.table.get("type", "http" if "url" in failed.table else "stdio")
        )
        place = failed.source.file if failed.line is None else f"{failed.source.file}:{failed.line}"
        return SupervisedServer(
            name,
            transport if transport in ("stdio", "http", "sse") else "http" if "url" in failed.table else "stdio",
            None,
            startup_timeout=self._environment.startup_timeout,
            call_timeout=self._environment.call_timeout,
            where=place,
            problem=failed.reason,
            problem_kind=failed.problems[0].kind if failed.problems else "config",
            changed=hooks.changed,
        )

    def remove(self, name: str) -> SupervisedServer | None:
        """Take a server out of the table; its safe name stays."""
        self.plans.pop(name, None)
        return self._servers.pop(name, None)


def by_name(servers: Mapping[str, Any]) -> Mapping[str, Any]:
    """The servers of a mapping, which may be the content of another program's file: `{"mcpServers": {...}}`."""
    if not isinstance(cast("Any", servers), Mapping):
        raise ConfigError(f'Host takes its servers by name: Host({{"files": target}}), not a {type(servers).__name__}')
    if len(servers) == 1:
        key, inner = next(iter(servers.items()))
        if key in ("mcpServers", "servers") and isinstance(inner, Mapping):
            entries = cast("Mapping[str, Any]", inner)
            if all(isinstance(entry, Mapping) for entry in entries.values()):
                return entries
    return servers


def config_of(servers: Mapping[str, Any]) -> HostConfig:
    """The configuration of a mapping of servers: the entries among its values."""
    return HostConfig(servers={name: target for name, target in servers.items() if isinstance(target, ServerEntry)})
