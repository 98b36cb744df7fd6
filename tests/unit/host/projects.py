"""Projects with files of servers that somebody else wrote."""

from __future__ import annotations

from typing import Any

from trimaran import Host
from trimaran.host import (
    HostConfig,
    Machine,
    Source,
    read_config,
)


def read(text: str, level: Any = "file", **environ: str) -> HostConfig:
    machine = Machine(home="/home/ada", workspace="/work", environ=environ)
    return read_config([(Source("mcp.toml", level), text)], machine)


def states(host: Host) -> dict[str, str]:
    return {status.name: status.state for status in host.status()}
