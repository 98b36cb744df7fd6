"""Which servers a host talks to, and how: `mcp.toml` of the user and of the project, and the files of other programs (R225-R237).

    config = load_config()
    config.servers["linear"].command      an entry that can be used
    config.failed["notion"].problems      one that cannot: file, line, key, what was expected, what to do

model.py     what a configuration is                    load.py       both files, one over the other
machine.py   where files are, on which platform         entry.py      a table becomes an entry, or fails
values.py    durations and sizes                        expand.py     ${NAME} and ${NAME:-default}
mask.py      what a person may see of it                files.py      reading; replacing whole, with a backup
clients.py   the programs that have such files too      forms.py      how each of them writes an entry
transfer.py  from their files to ours, and back         *text.py      TOML, JSON and YAML, changed in place

Only load.py and files.py touch the disk; nothing here connects to anything or starts a process. A
configuration is a value: a change of a file is seen by the next load (R237).
"""

from __future__ import annotations

# `typing` is not loaded by the interpreter itself.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .clients import CLIENTS, Client
    from .load import load_config, read_config
    from .machine import Machine
    from .mask import masked
    from .model import (
        ConfigUnusable,
        FailedEntry,
        HostConfig,
        OAuthEntry,
        Problem,
        RuleEntry,
        ServerEntry,
        Source,
        ToolEntry,
    )
    from .transfer import Exported, Imported, export_servers, import_servers, merge_servers, write_servers
    from .values import read_duration, read_size

_HOMES = {
    "clients": ("CLIENTS", "Client"),
    "load": ("load_config", "read_config"),
    "machine": ("Machine",),
    "mask": ("masked",),
    "model": (
        "ConfigUnusable",
        "FailedEntry",
        "HostConfig",
        "OAuthEntry",
        "Problem",
        "RuleEntry",
        "ServerEntry",
        "Source",
        "ToolEntry",
    ),
    "transfer": ("Exported", "Imported", "export_servers", "import_servers", "merge_servers", "write_servers"),
    "values": ("read_duration", "read_size"),
}

__all__ = [
    "CLIENTS",
    "Client",
    "ConfigUnusable",
    "Exported",
    "FailedEntry",
    "HostConfig",
    "Imported",
    "Machine",
    "OAuthEntry",
    "Problem",
    "RuleEntry",
    "ServerEntry",
    "Source",
    "ToolEntry",
    "export_servers",
    "import_servers",
    "load_config",
    "masked",
    "merge_servers",
    "read_config",
    "read_duration",
    "read_size",
    "write_servers",
]


def __getattr__(name: str) -> Any:
    import importlib

    for home, names in _HOMES.items():
        if name in names:
            value = getattr(importlib.import_module(f"{__name__}.{home}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
