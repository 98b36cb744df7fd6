"""Tools, calls and results in the shapes that models' providers use: Anthropic, OpenAI, Gemini. Pure, and no SDK needed.

    tools = to_anthropic(await client.list_tools())
    name, arguments = from_anthropic_call(block)
    message = {"role": "user", "content": [result_to_anthropic(await client.call_tool(name, arguments), block["id"])]}

Everything is plain JSON values: what goes into a provider's request, and what came in its response. There is no agent
loop and no provider's library here (R224).

What providers accept differs, so each has a profile of JSON Schema. `lint` says what a provider would refuse, by tool and
path; the functions that make tools change a schema where that loses nothing, and leave it alone where nothing is wrong.
"""

from __future__ import annotations

# `typing` is not loaded by the interpreter itself.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .calls import (
        ToolCall,
        from_anthropic_call,
        from_gemini_call,
        from_openai_call,
        read_calls,
        restore_arguments,
    )
    from .fit import Fit, Fitted, fit_schema
    from .linting import lint
    from .profiles import PROFILES, Profile, profile_named
    from .results import (
        media_to_openai,
        result_from_anthropic,
        result_from_gemini,
        result_from_openai,
        result_to_anthropic,
        result_to_gemini,
        result_to_openai,
        result_to_openai_responses,
    )
    from .rules import Finding
    from .tools import FORMATS, Format, to_anthropic, to_gemini, to_openai, to_openai_responses, to_provider

_HOMES = {
    "calls": (
        "ToolCall",
        "from_anthropic_call",
        "from_gemini_call",
        "from_openai_call",
        "read_calls",
        "restore_arguments",
    ),
    "fit": ("Fit", "Fitted", "fit_schema"),
    "linting": ("lint",),
    "profiles": ("PROFILES", "Profile", "profile_named"),
    "results": (
        "media_to_openai",
        "result_from_anthropic",
        "result_from_gemini",
        "result_from_openai",
        "result_to_anthropic",
        "result_to_gemini",
        "result_to_openai",
        "result_to_openai_responses",
    ),
    "rules": ("Finding",),
    "tools": ("FORMATS", "Format", "to_anthropic", "to_gemini", "to_openai", "to_openai_responses", "to_provider"),
}

__all__ = [
    "FORMATS",
    "PROFILES",
    "Finding",
    "Fit",
    "Fitted",
    "Format",
    "Profile",
    "ToolCall",
    "fit_schema",
    "from_anthropic_call",
    "from_gemini_call",
    "from_openai_call",
    "lint",
    "media_to_openai",
    "profile_named",
    "read_calls",
    "restore_arguments",
    "result_from_anthropic",
    "result_from_gemini",
    "result_from_openai",
    "result_to_anthropic",
    "result_to_gemini",
    "result_to_openai",
    "result_to_openai_responses",
    "to_anthropic",
    "to_gemini",
    "to_openai",
    "to_openai_responses",
    "to_provider",
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
