"""What a budget cut, in the console's status line."""

from __future__ import annotations

from collections.abc import Mapping

from trimaran.apps.console.status import budget_of
from trimaran.host.context.budget import BudgetTool, plan_budget
from trimaran.host.context.detail import Detail

COSTS: Mapping[Detail, int] = {"whole": 100, "plain": 90, "signature": 50, "sentence": 30}


def words(count: int, budget: int) -> str:
    tools = [BudgetTool(f"s{number}", f"t{number}", COSTS.__getitem__) for number in range(count)]
    return budget_of(plan_budget(tools, budget, search_cost=lambda hidden: 20))


def test_the_line_says_tokens_and_what_was_shortened_or_left_to_search() -> None:
    assert words(3, 280) == "tools 280 of 280 tokens, 2 shortened"
    assert words(10, 200) == "tools 140 of 200 tokens, 4 shortened, 6 by search"
    assert words(3, 10) == "tools need 27 tokens of 10, 3 by search"
