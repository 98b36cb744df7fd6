"""The console: `trimaran console`, a workbench for the tools of many servers, in a terminal.

Importing this loads nothing: each name is resolved when it is first used.
"""

from __future__ import annotations

# `typing` is not loaded by the interpreter itself.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .app import run_console

# name -> the module of this package where it lives
_HOMES = {"run_console": "app"}

__all__ = ["run_console"]


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
