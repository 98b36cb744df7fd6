"""Which tools are cut for a budget: as little as possible, the same each time, as the configuration says."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest

from trimaran.host.context.budget import BudgetPlan, BudgetTool, Choice, plan_budget
from trimaran.host.context.detail import Detail

STEPS: Mapping[Detail, float] = {"whole": 1.0, "plain": 0.9, "signature": 0.5, "sentence": 0.3}


def tool(name: str, whole: int, choice: Choice | None = None, server: str = "s") -> BudgetTool:
    return BudgetTool(server, name, lambda detail: round(whole * STEPS[detail]), choice)


def search_cost(hidden: Mapping[str, int]) -> int:
    return 50 + len(hidden)


def details(plan: BudgetPlan) -> dict[str, str]:
    return {cost.name: cost.detail for cost in plan.tools}


def plan(tools: list[BudgetTool], budget: int | None) -> BudgetPlan:
    return plan_budget(tools, budget, search_cost=search_cost)


def test_everything_is_whole_while_it_fits() -> None:
    report = plan([tool("a", 100), tool("b", 200)], 300)
    assert details(report) == {"a": "whole", "b": "whole"}
    assert (report.tokens, report.whole, report.cut, report.needed) == (300, 300, (), None)


def test_the_tool_that_saves_most_is_cut_first() -> None:
    assert details(plan([tool("a", 100), tool("b", 200)], 290)) == {"a": "whole", "b": "plain"}
    assert details(plan([tool("a", 100), tool("b", 200)], 200)) == {"a": "plain", "b": "signature"}
    assert details(plan([tool("a", 100), tool("b", 200)], 90)) == {"a": "sentence", "b": "sentence"}


def test_what_does_not_fit_even_shortened_is_left_to_search_by_whole_servers() -> None:
    tools = [
        tool(f"{server}{number}", 400, server=server)
        for server, count in (("big", 9), ("small", 2))
        for number in range(count)
    ]
    report = plan(tools, 800)
    assert report.hidden == {"big": 9}
    assert {cost.detail for cost in report.tools if cost.server == "small"} <= {"signature", "sentence", "plain"}
    assert report.tokens <= 800 - report.reserve
    assert report.reserve == 200


def test_always_stays_whole_and_lazy_is_left_to_search() -> None:
    report = plan([tool("a", 300, "always"), tool("b", 100, "lazy"), tool("c", 300)], 500)
    assert details(report) == {"a": "whole", "b": "search", "c": "search"}
    assert details(plan([tool("a", 10, "lazy")], 10_000)) == {"a": "search"}


def test_a_budget_that_cannot_be_met_says_what_it_would_take() -> None:
    report = plan([tool("a", 900, "always"), tool("b", 500)], 300)
    assert details(report) == {"a": "whole", "b": "search"}
    assert report.needed is not None
    assert f"{report.needed:,} tokens are needed" in str(report)
    assert plan([tool("a", 900, "always"), tool("b", 500)], report.needed).needed is None


def test_without_a_search_nothing_is_hidden() -> None:
    report = plan_budget([tool("a", 100), tool("b", 100, "lazy")], 10)
    assert details(report) == {"a": "sentence", "b": "sentence"}
    assert report.needed == 60


def test_no_more_tools_are_declared_than_the_provider_takes() -> None:
    tools = [tool(f"t{number}", 1, server=f"s{number // 10}") for number in range(200)]
    report = plan_budget(tools, 100_000, most=128, search_cost=search_cost)
    assert 0 < sum(cost.detail != "search" for cost in report.tools) <= 128 - 34


def test_the_order_of_servers_does_not_change_what_is_cut() -> None:
    """Whose rule: ours. A provider's cache of the prompt holds only for the same bytes."""
    tools = [tool(f"t{number}", 50 + number % 7 * 10, server=f"s{number % 9}") for number in range(90)]
    expected = details(plan(tools, 1500))
    for seed in range(5):
        shuffled = list(tools)
        random.Random(seed).shuffle(shuffled)
        assert details(plan(shuffled, 1500)) == expected


def test_a_step_that_would_cost_more_is_not_taken() -> None:
    costs: Mapping[Detail, int] = {"whole": 50, "plain": 50, "signature": 70, "sentence": 40}
    assert details(plan([BudgetTool("s", "t", costs.__getitem__)], 45)) == {"t": "sentence"}
    grows: Mapping[Detail, int] = {"whole": 50, "plain": 49, "signature": 70, "sentence": 60}
    assert details(plan([BudgetTool("s", "t", grows.__getitem__)], 49)) == {"t": "plain"}


@pytest.mark.parametrize("budget", [1, 100, 1000, 30_000, 10**9])
def test_every_budget_is_held_or_its_price_is_named(budget: int) -> None:
    dice = random.Random(budget)
    choices: list[Choice | None] = [None, None, None, None, "always", "lazy"]
    tools = [
        tool(f"t{number}", dice.randrange(20, 900), dice.choice(choices), f"s{dice.randrange(12)}")
        for number in range(120)
    ]
    report = plan(tools, budget)
    assert report.needed is not None or report.tokens + report.reserve <= budget
    assert all(
        cost.detail == "whole" for cost, wanted in zip(report.tools, tools, strict=True) if wanted.choice == "always"
    )


def test_ten_thousand_tools_are_planned_without_a_cost_for_each_pair() -> None:
    asked = 0

    def cost(detail: Detail) -> int:
        nonlocal asked
        asked += 1
        return round(200 * STEPS[detail])

    tools = [BudgetTool(f"s{number % 300}", f"t{number}", cost) for number in range(10_000)]
    report = plan(tools, 8000)
    assert report.tokens <= 8000
    assert asked <= 4 * len(tools)
