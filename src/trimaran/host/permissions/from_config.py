"""The rules of a loaded configuration: `mcp.toml` of the user and of the project, as `trimaran.host.config` reads them.

Pure. Files, merging and lines are that package's affair; what a pattern means is said here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ..config.model import HostConfig, RuleEntry
from ..config.tomltext import key_text
from .rules import Action, RuleSource, RulesRead, read_entries


def read_config_rules(config: HostConfig) -> RulesRead:
    """All rules of a configuration. A problem with a server's own rules names the server, so that only it need fail."""
    reading = read_entries(_entries(config.rules, "permissions"))
    for name, entry in config.servers.items():
        reading += read_entries(_entries(entry.permissions, f"server.{key_text(name)}.permissions"), server=name)
    return reading


def _entries(entries: Iterable[RuleEntry], key: str) -> Iterator[tuple[Action, object, RuleSource]]:
    for entry in entries:
        where = entry.source.file if entry.line is None else f"{entry.source.file}:{entry.line}"
        table = {
            "pattern": entry.pattern,
            "comment": entry.comment,
            "reason": entry.reason,
            "expires_at": entry.expires_at,
        }
        yield entry.action, table, RuleSource(entry.source.level, where, f"{key}.{entry.action}")
