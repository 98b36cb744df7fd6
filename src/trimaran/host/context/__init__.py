"""A model's context: how many tokens a host's tools and results cost, and which of them are passed on.

Importing this loads nothing: each name is resolved when it is first used.
"""

from trimaran.lazy_names import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .budget import BudgetPlan as BudgetPlan, ToolCost as ToolCost
    from .report import ContextFinding as ContextFinding, ContextReport as ContextReport, ServerCost as ServerCost
    from .code import CodeLimits as CodeLimits, CodeResult as CodeResult
    from .search_tool import search_declarations as search_declarations
    from .tokens import count_tokens as count_tokens, estimate_tokens as estimate_tokens
else:
    __all__, __getattr__, __dir__ = lazy_names(
        __name__,
        {
            "budget": "BudgetPlan ToolCost",
            "report": "ContextFinding ContextReport ServerCost",
            "code": "CodeLimits CodeResult",
            "search_tool": "search_declarations",
            "tokens": "count_tokens estimate_tokens",
        },
    )
