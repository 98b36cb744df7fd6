"""Apps: user interfaces that a server brings along and a host shows in a sandbox (`io.modelcontextprotocol/ui`, 2026-01-26).

Servers declare views with `Apps` and link tools to them with `ui_tool`. Hosts filter tools (`for_model`), read a view
(`read_view`), show it under its `policy`, and talk to it through a `Bridge`. Nothing here renders.
"""

from __future__ import annotations

# `typing` is not loaded by the interpreter itself.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .bridge import (
        Bridge,
        Cancelled,
        DisplayMode,
        Event,
        Initialized,
        Logged,
        ModelContext,
        OpenLink,
        Refused,
        ResourceRead,
        Said,
        SizeChanged,
        ToolCall,
        TornDown,
        forward,
    )
    from .declare import Apps, supports_ui
    from .metadata import IDENTIFIER, MIME_TYPE, UiTool, ui_of, ui_tool
    from .policy import Csp, allow_attribute
    from .views import CAPABILITY, View, for_model, may_app_call, read_view, view_from

_HOMES = {
    "bridge": (
        "Bridge",
        "Cancelled",
        "DisplayMode",
        "Event",
        "Initialized",
        "Logged",
        "ModelContext",
        "OpenLink",
        "Refused",
        "ResourceRead",
        "Said",
        "SizeChanged",
        "ToolCall",
        "TornDown",
        "forward",
    ),
    "declare": ("Apps", "supports_ui"),
    "metadata": ("IDENTIFIER", "MIME_TYPE", "UiTool", "ui_of", "ui_tool"),
    "policy": ("Csp", "allow_attribute"),
    "views": ("CAPABILITY", "View", "for_model", "may_app_call", "read_view", "view_from"),
}

__all__ = [
    "CAPABILITY",
    "IDENTIFIER",
    "MIME_TYPE",
    "Apps",
    "Bridge",
    "Cancelled",
    "Csp",
    "DisplayMode",
    "Event",
    "Initialized",
    "Logged",
    "ModelContext",
    "OpenLink",
    "Refused",
    "ResourceRead",
    "Said",
    "SizeChanged",
    "ToolCall",
    "TornDown",
    "UiTool",
    "View",
    "allow_attribute",
    "for_model",
    "forward",
    "may_app_call",
    "read_view",
    "supports_ui",
    "ui_of",
    "ui_tool",
    "view_from",
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
