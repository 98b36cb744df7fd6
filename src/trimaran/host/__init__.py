"""The host hull: what turns a model into an agent that may use tools. Configuration, permissions, one catalog of many servers.

Importing this loads nothing: each name is resolved when it is first used.
"""

from __future__ import annotations

# `typing` is not loaded by the interpreter itself.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .asking import PermissionDenied
    from .config import (
        ConfigUnusable,
        FailedEntry,
        HostConfig,
        Machine,
        OAuthEntry,
        Problem,
        RuleEntry,
        ServerEntry,
        Source,
        ToolEntry,
        load_config,
        read_config,
    )
    from .consent import Bridge, ConsentLost, Question, Questions
    from .forms import Field, Form
    from .host import AlreadyRegistered, Host, NotRegistered
    from .mentions import Expansion, Mention, ResourceUnknown, TemplateArity
    from .names import UnknownName
    from .output import OutputLimits, OutputMissing, OutputPage
    from .supervise import ServerStatus, ServerUnavailable
    from .trust import Trust
    from .untrusted import Untrusted

# name -> the module of this package where it lives
_HOMES = {
    "ConfigUnusable": "config",
    "FailedEntry": "config",
    "HostConfig": "config",
    "Machine": "config",
    "OAuthEntry": "config",
    "Problem": "config",
    "RuleEntry": "config",
    "ServerEntry": "config",
    "Source": "config",
    "ToolEntry": "config",
    "load_config": "config",
    "read_config": "config",
    "Bridge": "consent",
    "ConsentLost": "consent",
    "Question": "consent",
    "Questions": "consent",
    "Field": "forms",
    "Form": "forms",
    "AlreadyRegistered": "host",
    "Host": "host",
    "NotRegistered": "host",
    "PermissionDenied": "asking",
    "Expansion": "mentions",
    "Mention": "mentions",
    "ResourceUnknown": "mentions",
    "TemplateArity": "mentions",
    "UnknownName": "names",
    "OutputLimits": "output",
    "OutputMissing": "output",
    "OutputPage": "output",
    "ServerStatus": "supervise",
    "ServerUnavailable": "supervise",
    "Trust": "trust",
    "Untrusted": "untrusted",
}

__all__ = [
    "AlreadyRegistered",
    "Bridge",
    "ConfigUnusable",
    "ConsentLost",
    "Expansion",
    "FailedEntry",
    "Field",
    "Form",
    "Host",
    "HostConfig",
    "Machine",
    "Mention",
    "NotRegistered",
    "OAuthEntry",
    "OutputLimits",
    "OutputMissing",
    "OutputPage",
    "PermissionDenied",
    "Problem",
    "Question",
    "Questions",
    "ResourceUnknown",
    "RuleEntry",
    "ServerEntry",
    "ServerStatus",
    "ServerUnavailable",
    "Source",
    "TemplateArity",
    "ToolEntry",
    "Trust",
    "UnknownName",
    "Untrusted",
    "load_config",
    "read_config",
]


def __getattr__(name: str) -> Any:
    import importlib

    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
