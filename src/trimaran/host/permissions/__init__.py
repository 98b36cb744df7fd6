"""Permissions of a model: rules, the order they are asked in, answers that stand, a log of decisions.

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

from trimaran.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .audit import AuditLog as AuditLog
    from .checks import Catalog as Catalog, check as check
    from .explanation import Explanation as Explanation, Verdict as Verdict, explain as explain
    from .from_config import read_config_rules as read_config_rules
    from .gate import DecisionLog as DecisionLog, Gate as Gate
    from .globs import Glob as Glob, Match as Match
    from .patterns import (
        Pattern as Pattern,
        RuleError as RuleError,
        parse_pattern as parse_pattern,
        parse_tool_glob as parse_tool_glob,
    )
    from .policy import Decision as Decision, Policy as Policy, Tier as Tier
    from .remembered import Answer as Answer, RememberedAnswers as RememberedAnswers
    from .rules import (
        Action as Action,
        Rule as Rule,
        RuleProblem as RuleProblem,
        RuleSource as RuleSource,
        RulesRead as RulesRead,
        read_entries as read_entries,
        read_options as read_options,
        read_rules as read_rules,
    )
    from .subjects import Subject as Subject, main_argument as main_argument
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "audit": "AuditLog",
            "checks": "Catalog check",
            "explanation": "Explanation Verdict explain",
            "from_config": "read_config_rules",
            "gate": "DecisionLog Gate",
            "globs": "Glob Match",
            "patterns": "Pattern RuleError parse_pattern parse_tool_glob",
            "policy": "Decision Policy Tier",
            "remembered": "Answer RememberedAnswers",
            "rules": "Action Rule RuleProblem RuleSource RulesRead read_entries read_options read_rules",
            "subjects": "Subject main_argument",
        },
    )
