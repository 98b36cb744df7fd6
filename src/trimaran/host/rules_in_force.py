"""The rules of a host, and which of its files a person has trusted.

Rules come with the options of the host, from its files, and with the entries of servers that are started later. A project's
file that nobody has trusted starts and allows nothing, but what it denies is denied. `permissions/` decides about calls by
these rules; `host.py` starts the servers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, cast, final

from msgspec.structs import replace

from trimaran.errors import ConfigError

from .config import HostConfig, ServerEntry, Source
from .permissions import Policy, Rule, RuleProblem, RulesRead, check, read_config_rules, read_options
from .trust.trusted_files import UNTRUSTED, Trust
from .trust.untrusted import Untrusted, trust_digest, untrusted_in

if TYPE_CHECKING:
    from .connect_plan import ConnectPlan

log: Final = logging.getLogger("trimaran.host")


@final
class RulesInForce:
    """The rules of one host. `trust`, `allow`, `ask` and `deny` are the host's options."""

    def __init__(
        self,
        config: HostConfig,
        trust: Trust | bool | None,
        *,
        allow: Iterable[str],
        ask: Iterable[str],
        deny: Iterable[str],
    ) -> None:
        if trust is not None and not isinstance(cast("Any", trust), (Trust, bool)):
            raise ConfigError(f"trust is a Trust, True or False, not {type(trust).__name__}: write trust=Trust(path)")
        self._config = config
        self._trust = trust if isinstance(trust, Trust) else None
        self._trusts_all = trust is None or trust is True
        self.untrusted: tuple[Source, ...] = () if self._trusts_all else self._unknown_files()
        """The files of the project that nobody has trusted."""
        self._read = _read(config, allow, ask, deny)
        self._later: dict[str, tuple[Rule, ...]] = {}
        """The rules of servers that were started later, by server."""

    def _unknown_files(self) -> tuple[Source, ...]:
        config = self._config
        # A configuration that a program puts together may name no sources; its entries do.
        entries = (*config.servers.values(), *config.failed.values(), *config.rules)
        sources = dict.fromkeys((*config.sources, *(entry.source for entry in entries)))
        return tuple(
            source
            for source in sources
            if source.level == "project"
            and not (self._trust and self._trust.is_trusted(source.file, trust_digest(config, source)))
        )

    # --- the rules ---------------------------------------------------------------------------------------------------

    def policy(self) -> Policy:
        """The rules in force. An untrusted file's rules allow nothing, and their reasons reach no model."""
        rules = [*self._read.rules, *(rule for rules in self._later.values() for rule in rules)]
        if self.untrusted:
            rules = [
                rule if rule.source.kind != "project" else replace(rule, reason="")
                for rule in rules
                if rule.source.kind != "project" or rule.action != "allow"
            ]
        return Policy(rules)

    def add_server(self, name: str, target: object) -> None:
        """Take the rules of an entry that is not in the host's configuration."""
        if isinstance(target, ServerEntry) and target is not self._config.servers.get(name) and target.permissions:
            self._later[name] = read_config_rules(HostConfig(servers={name: target})).checked()

    def remove_server(self, name: str) -> None:
        """Drop the rules that came with a server."""
        self._later.pop(name, None)

    def errors_about(self, name: str) -> list[str]:
        """The server's rules that cannot be read: one of them might be the one that denies."""
        return [str(problem) for problem in self._read.errors if problem.server == name]

    def warnings(self, catalog: Mapping[str, Sequence[str] | None], safe: Mapping[str, str]) -> list[RuleProblem]:
        """Rules without effect, given the tools of each server and its safe name."""
        warnings = [problem for problem in self._read.problems if problem.severity == "warning"]
        return [*warnings, *check(self._read.rules, catalog, safe)]

    # --- whose files -------------------------------------------------------------------------------------------------

    def is_untrusted(self, plan: ConnectPlan | None) -> bool:
        """Is this a server of a file that nobody has trusted?"""
        return plan is not None and plan.entry is not None and plan.entry.source in self.untrusted

    def require_trusted(self, name: str, plan: ConnectPlan | None) -> None:
        """Raise ConfigError for a server that nobody has trusted."""
        if plan is None or plan.entry is None:
            return
        if self.is_untrusted(plan):
            raise ConfigError(
                f"the server {name!r} is not started: {UNTRUSTED} ({plan.entry.source.file}); once a person has read it, "
                "await host.trust_project()"
            )
        is_others = not self._trusts_all and plan.entry.source.level == "project"
        if is_others and plan.entry not in self._config.servers.values():
            raise ConfigError(
                f"the server {name!r} is not started: this host was made without {plan.entry.where()}, so no person trusted "
                "it; make a new Host of the new configuration, with trust=Trust()"
            )

    def untrusted_entries(self) -> list[ServerEntry]:
        """The servers of untrusted files."""
        return [entry for entry in self._config.servers.values() if entry.source in self.untrusted]

    def describe_untrusted(self, remembered: Iterable[Rule], logins: frozenset[str]) -> tuple[Untrusted, ...]:
        """Everything that the untrusted files would start, allow and inherit.

        Args:
            remembered: The rules that a person made by answering "always".
            logins: The servers for which a login is stored.
        """
        return untrusted_in(self._config, self.untrusted, rules=(*self._read.rules, *remembered), logins=logins)

    async def trust_files(self) -> None:
        """Trust the untrusted files as they were read, and write that down.

        Raises:
            ConfigError: it cannot be written; nothing is trusted.
        """
        trusted = self.untrusted
        if self._trust is not None:
            for source in trusted:
                if digest := trust_digest(self._config, source):
                    await asyncio.to_thread(self._trust.add, source.file, digest)
        self.untrusted = tuple(file for file in self.untrusted if file not in trusted)


def _read(config: HostConfig, allow: Iterable[str], ask: Iterable[str], deny: Iterable[str]) -> RulesRead:
    for action, texts in (("allow", allow), ("ask", ask), ("deny", deny)):
        if isinstance(texts, str):  # its characters would be rules, and "*" is one
            raise ConfigError(f"{action} must be a list of rules: write {action}=[{texts!r}]")
    rules_read = read_config_rules(config) + read_options(allow=allow, ask=ask, deny=deny)
    general = [problem for problem in rules_read.errors if problem.server is None]
    if general:
        raise ConfigError("\n".join(map(str, general)))
    for problem in rules_read.problems:
        if problem.severity == "warning":
            log.warning("%s", problem)
    return rules_read
