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

from trimaran.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .clients import CLIENTS as CLIENTS, ClientApp as ClientApp
    from .load import load_config as load_config, read_config as read_config
    from .machine import Machine as Machine
    from .mask import masked as masked
    from .model import (
        ConfigUnusable as ConfigUnusable,
        ContextEntry as ContextEntry,
        FailedEntry as FailedEntry,
        HostConfig as HostConfig,
        OAuthEntry as OAuthEntry,
        Problem as Problem,
        RuleEntry as RuleEntry,
        ServerEntry as ServerEntry,
        Source as Source,
        ToolSettings as ToolSettings,
    )
    from .transfer import (
        Exported as Exported,
        Imported as Imported,
        export_servers as export_servers,
        import_servers as import_servers,
        merge_servers as merge_servers,
        write_servers as write_servers,
    )
    from .values import read_duration as read_duration, read_size as read_size
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "clients": "CLIENTS ClientApp",
            "load": "load_config read_config",
            "machine": "Machine",
            "mask": "masked",
            "model": (
                "ConfigUnusable ContextEntry FailedEntry HostConfig OAuthEntry Problem RuleEntry ServerEntry Source ToolSettings"
            ),
            "transfer": "Exported Imported export_servers import_servers merge_servers write_servers",
            "values": "read_duration read_size",
        },
    )
