"""Protocol extensions: off until enabled on a server, used by a client only where the server offers them.

Each has a module of its own; the names here are the ones to begin with.
"""

from __future__ import annotations

# `typing` is not loaded by the interpreter itself.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .apps import Apps, supports_ui, ui_tool
    from .otel import AccessLog, Telemetry
    from .skills import SKILLS_CAPABILITY, SkillRejected, Skills, SkillsClient, SkillTampered
    from .tasks import Runner, Tasks
    from .tasks.docket import Docket

_HOMES = {
    "apps": ("Apps", "supports_ui", "ui_tool"),
    "otel": ("AccessLog", "Telemetry"),
    "skills": ("SKILLS_CAPABILITY", "SkillRejected", "SkillTampered", "Skills", "SkillsClient"),
    "tasks": ("Runner", "Tasks"),
    "tasks.docket": ("Docket",),
}

__all__ = [
    "SKILLS_CAPABILITY",
    "AccessLog",
    "Apps",
    "Docket",
    "Runner",
    "SkillRejected",
    "SkillTampered",
    "Skills",
    "SkillsClient",
    "Tasks",
    "Telemetry",
    "supports_ui",
    "ui_tool",
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
