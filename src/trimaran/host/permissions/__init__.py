"""What a model may do, and who says so: rules, the order they are asked in, answers that stand, a log of decisions.

    gate = Gate(Policy(read_rules(config["permissions"], RuleSource("user", "mcp.toml", "permissions")).checked()))
    decision = gate.decide(Act.tool("github", "create_issue", schema=tool.input_schema), arguments)

globs.py        * ** ?, and three answers          patterns.py    the grammar of rules
arguments.py    which values a glob is about       rules.py       plain data to rules, with what is wrong with it
acts.py         what needs permission              policy.py      the seven tiers
explanation.py  why                                checks.py      rules that can have no effect
standing.py     what a person said for good        gate.py        all of it in one place
configured.py   the rules of a mcp.toml            audit.py       the log

All but audit.py is pure: no I/O, no clock.
"""

from __future__ import annotations

# `typing` is not loaded by the interpreter itself.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .acts import Act, main_argument
    from .audit import AuditLog
    from .checks import Catalog, check
    from .configured import read_config_rules
    from .explanation import Explanation, Verdict, explain
    from .gate import Gate, Recorder
    from .globs import Fit, Glob
    from .patterns import Pattern, RuleError, parse_pattern, parse_tool_glob
    from .policy import Decision, Policy, Tier
    from .rules import Action, Reading, Rule, RuleProblem, RuleSource, read_entries, read_options, read_rules
    from .standing import Answer, Standing

_HOMES = {
    "acts": ("Act", "main_argument"),
    "audit": ("AuditLog",),
    "checks": ("Catalog", "check"),
    "configured": ("read_config_rules",),
    "explanation": ("Explanation", "Verdict", "explain"),
    "gate": ("Gate", "Recorder"),
    "globs": ("Fit", "Glob"),
    "patterns": ("Pattern", "RuleError", "parse_pattern", "parse_tool_glob"),
    "policy": ("Decision", "Policy", "Tier"),
    "rules": (
        "Action",
        "Reading",
        "Rule",
        "RuleProblem",
        "RuleSource",
        "read_entries",
        "read_options",
        "read_rules",
    ),
    "standing": ("Answer", "Standing"),
}

__all__ = [
    "Act",
    "Action",
    "Answer",
    "AuditLog",
    "Catalog",
    "Decision",
    "Explanation",
    "Fit",
    "Gate",
    "Glob",
    "Pattern",
    "Policy",
    "Reading",
    "Recorder",
    "Rule",
    "RuleError",
    "RuleProblem",
    "RuleSource",
    "Standing",
    "Tier",
    "Verdict",
    "check",
    "explain",
    "main_argument",
    "parse_pattern",
    "parse_tool_glob",
    "read_config_rules",
    "read_entries",
    "read_options",
    "read_rules",
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
