"""The console: `trimaran console`, a workbench for the tools of many servers, in a terminal.

Importing this loads nothing: each name is resolved when it is first used.
"""

from trimaran.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .app import run_console as run_console
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "app": "run_console",
        },
    )
