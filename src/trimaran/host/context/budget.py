"""Decide how much of each tool's definition fits into a budget of tokens.

Pure: tools and what they cost come in, a plan comes out. The same tools and the same budget make the same plan, in whatever
order servers came up, so that a provider's cache of the prompt holds.

The ladder. Everything whole, if that fits. Else definitions are shortened, one step of `detail.py` at a time: on each step
first the tool that saves most. If even the last step does not fit, whole servers are left to search, the most expensive
first, so that a model sees a server's tools or none of them; a quarter of the budget is then kept for tools that a search
brings in. Visible tools are shortened only as far as necessary.

`always` tools stay whole. `lazy` tools are left to search from the start. A budget too small for what must be declared is
not met, and the plan says what it would take.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal, TypeAlias, final

from msgspec import Struct

from .detail import DETAILS, Detail

Choice: TypeAlias = Literal["always", "lazy"]
"""The configuration's choice for a tool: never cut, or found by search only."""

_SHORTEST: Final = len(DETAILS) - 2  # "sentence", the last step that is declared
_OWN_TOOLS: Final = 34  # those that search, and those that a search brings in
_RESERVE: Final = 4  # one part in so many is kept for tools that a search brings in


class BudgetTool(Struct, frozen=True):
    """A tool that wants room."""

    server: str
    name: str
    cost: Callable[[Detail], int]
    """The tokens of its declaration with this much detail. Called at most once for each."""
    choice: Choice | None = None


@final
class ToolCost(Struct, frozen=True, kw_only=True):
    """The outcome for one tool."""

    server: str
    name: str
    detail: Detail
    tokens: int
    """Tokens of the declared form; 0 if it is left to search."""
    whole: int
    """Tokens of the whole definition."""


@final
class BudgetPlan(Struct, frozen=True, kw_only=True):
    """The declared tools, and the cuts, for one budget."""

    budget: int | None
    """In tokens; None is no limit."""
    tokens: int
    """Of everything that is declared, the tools for searching included."""
    whole: int
    """Tokens of all tools, whole."""
    tools: tuple[ToolCost, ...]
    """In the order of the catalog."""
    needed: int | None = None
    """The smallest budget that could be met, if this one cannot."""
    reserve: int = 0
    """Tokens kept for tools that a search brings in; not in `tokens`."""

    @property
    def cut(self) -> tuple[ToolCost, ...]:
        """The tools that are not declared whole."""
        return tuple(tool for tool in self.tools if tool.detail != "whole")

    @property
    def hidden(self) -> dict[str, int]:
        """How many tools of each server are left to search."""
        counts: dict[str, int] = {}
        for tool in self.tools:
            if tool.detail == "search":
                counts[tool.server] = counts.get(tool.server, 0) + 1
        return counts

    def __str__(self) -> str:
        counts = [(sum(tool.detail == detail for tool in self.tools), detail) for detail in DETAILS]
        parts = [f"{count} {_WORDS[detail]}" for count, detail in counts if count]
        text = f"{self.tokens:,} tokens for {len(self.tools)} tools: {', '.join(parts) or 'none'}"
        if self.budget is None:
            return text
        text = f"{text}; the budget is {self.budget:,}, all of them whole are {self.whole:,}"
        if self.needed is None:
            return text
        return (
            f"{text}. The budget cannot be met: {self.needed:,} tokens are needed for the tools that must be declared"
        )


_WORDS: Final[Mapping[str, str]] = {
    "whole": "whole",
    "plain": "without schema noise",
    "signature": "as signature and description",
    "sentence": "as signature and first sentence",
    "search": "by search only",
}


def plan_budget(
    tools: Sequence[BudgetTool],
    budget: int | None,
    *,
    most: int | None = None,
    search_cost: Callable[[Mapping[str, int]], int] | None = None,
) -> BudgetPlan:
    """The detail of every tool.

    Args:
        tools: In the order of the catalog.
        most: The largest number of tools that the provider takes.
        search_cost: The tokens of the tools that search, for the number of hidden tools of each server. None: there is no
            search, so nothing is hidden.
    """
    costs = _Costs(tools)
    whole = sum(costs.of(at, 0) for at in range(len(tools)))
    if budget is None:
        return _plan(costs, None, whole, [0] * len(tools))
    hidden = {at for at, tool in enumerate(tools) if tool.choice == "lazy"} if search_cost is not None else set[int]()
    is_too_many = most is not None and search_cost is not None and len(tools) > most
    steps = _shorten(costs, budget, range(len(tools))) if not hidden and not is_too_many else None
    if steps is not None:
        return _plan(costs, budget, whole, steps)
    if search_cost is None:
        steps = _shortest(costs, range(len(tools)))
        return _plan(costs, budget, whole, steps, needed=costs.total(steps))
    reserve = budget // _RESERVE
    room = budget - reserve
    least = sum(costs.of(at, _least_step(tool)) for at, tool in enumerate(tools) if at not in hidden)
    fee = 0
    for server in (None, *_by_cost(costs, hidden)):
        for at, tool in enumerate(tools) if server is not None else ():
            if tool.server == server and tool.choice != "always" and at not in hidden:
                hidden.add(at)
                least -= costs.of(at, _SHORTEST)
        fee = search_cost(_counts(tools, hidden)) if hidden else 0
        if least + fee <= room and (most is None or len(tools) - len(hidden) <= most - _OWN_TOOLS):
            steps = _shorten(costs, room - fee, [at for at in range(len(tools)) if at not in hidden])
            if steps is not None:
                return _plan(costs, budget, whole, steps, fee=fee, reserve=reserve)
    steps = _shortest(costs, [at for at in range(len(tools)) if at not in hidden])
    needed = -(-(least + fee) * _RESERVE // (_RESERVE - 1))
    return _plan(costs, budget, whole, steps, fee=fee, needed=needed)


def _least_step(tool: BudgetTool) -> int:
    return 0 if tool.choice == "always" else _SHORTEST


@final
class _Costs:
    """The cost of each tool at each step, computed once."""

    def __init__(self, tools: Sequence[BudgetTool]) -> None:
        self.tools = tools
        self._costs: list[list[tuple[int, Detail]]] = [[] for _ in tools]

    def of(self, at: int, step: int) -> int:
        """The tokens of a tool at a step of `DETAILS`."""
        return self._at(at, step)[0]

    def detail(self, at: int, step: int) -> Detail:
        """The detail to declare: that of an earlier step where the later one saves nothing."""
        return self._at(at, step)[1]

    def _at(self, at: int, step: int) -> tuple[int, Detail]:
        if step > _SHORTEST:
            return 0, DETAILS[step]
        known = self._costs[at]
        while len(known) <= step:
            detail = DETAILS[len(known)]
            cost = self.tools[at].cost(detail)
            known.append(known[-1] if known and known[-1][0] <= cost else (cost, detail))
        return known[step]

    def total(self, steps: Sequence[int]) -> int:
        return sum(self.of(at, step) for at, step in enumerate(steps))


def _shorten(costs: _Costs, room: int, visible: Sequence[int]) -> list[int] | None:
    """The step of every tool, so that the visible ones fit; None if they do not."""
    steps = [_SHORTEST + 1] * len(costs.tools)
    for at in visible:
        steps[at] = 0
    total = sum(costs.of(at, 0) for at in visible)
    if total <= room:
        return steps
    may_be_cut = [at for at in visible if costs.tools[at].choice != "always"]
    if sum(costs.of(at, _SHORTEST) - costs.of(at, 0) for at in may_be_cut) + total > room:
        return None
    for step in range(_SHORTEST):
        savings = {at: costs.of(at, step) - costs.of(at, step + 1) for at in may_be_cut}
        for at in sorted(may_be_cut, key=lambda at: (-savings[at], costs.tools[at].server, costs.tools[at].name)):
            if total <= room:
                return steps
            steps[at] = step + 1
            total -= savings[at]
    return steps


def _shortest(costs: _Costs, visible: Iterable[int]) -> list[int]:
    steps = [_SHORTEST + 1] * len(costs.tools)
    for at in visible:
        steps[at] = _least_step(costs.tools[at])
    return steps


def _by_cost(costs: _Costs, hidden: set[int]) -> list[str]:
    """The servers with tools that may be hidden, the most expensive first."""
    totals: defaultdict[str, int] = defaultdict(int)
    for at, tool in enumerate(costs.tools):
        if at not in hidden and tool.choice != "always":
            totals[tool.server] += costs.of(at, _SHORTEST)
    return sorted(totals, key=lambda server: (-totals[server], server))


def _counts(tools: Sequence[BudgetTool], hidden: set[int]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for at in sorted(hidden):
        counts[tools[at].server] = counts.get(tools[at].server, 0) + 1
    return counts


def _plan(
    costs: _Costs,
    budget: int | None,
    whole: int,
    steps: Sequence[int],
    *,
    fee: int = 0,
    needed: int | None = None,
    reserve: int = 0,
) -> BudgetPlan:
    return BudgetPlan(
        budget=budget,
        tokens=costs.total(steps) + fee,
        whole=whole,
        tools=tuple(
            ToolCost(
                server=tool.server,
                name=tool.name,
                detail=costs.detail(at, steps[at]),
                tokens=costs.of(at, steps[at]),
                whole=costs.of(at, 0),
            )
            for at, tool in enumerate(costs.tools)
        ),
        needed=needed,
        reserve=reserve,
    )
