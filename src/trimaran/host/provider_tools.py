"""The tools of a host as a model is offered them: in a provider's format, within a budget, with a report on their cost.

`tool_formats.py` converts the tools of one catalog; here are the host's budget, and the formats of the catalog that is current.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Literal, final

from trimaran.errors import ConfigError
from trimaran.option_names import check_options
from trimaran.types import Json

from .config import HostConfig
from .context.activation import ActiveTools
from .context.facts import DefinitionFacts
from .context.read_output import READ_OUTPUT_TOOL
from .long_results import LongResults
from .model_calls import ModelCalls
from .rules_in_force import RulesInForce
from .server_table import ServerTable
from .tool_catalog import ToolCatalog
from .tool_formats import CatalogEntry, FormattedTools, ToolFormats

if TYPE_CHECKING:
    from trimaran.format import Format, FormatOptions

    from .context.budget import BudgetPlan
    from .context.report import ContextReport, ToolOfServer

_COUNTING: Final = 0.01  # seconds that `prepare` computes before others get their turn


@final
class ToolOffers:
    """The tools that one host offers to models.

    Args:
        budget: The host's own, before that of its files.
    """

    def __init__(
        self,
        catalog: ToolCatalog,
        servers: ServerTable,
        active: ActiveTools,
        model_calls: ModelCalls,
        long_results: LongResults,
        *,
        config: HostConfig,
        rules: RulesInForce,
        budget: int | None,
    ) -> None:
        self._catalog = catalog
        self._servers = servers
        self._active = active
        self._model_calls = model_calls
        self._long_results = long_results
        self._config = config
        self._rules = rules
        self._own_budget = _checked_budget(budget)
        self._facts: Final = DefinitionFacts()
        self._formats: ToolFormats | None = None

    @property
    def budget(self) -> int | None:
        """The host's own budget, else that of a trusted file."""
        if self._own_budget is not None:
            return self._own_budget
        budgets = (context.budget for context in self._config.contexts if context.source not in self._rules.untrusted)
        return next((budget for budget in budgets if budget is not None), None)

    def _budget_or(self, budget: int | None) -> int | None:
        return self.budget if budget is None else _checked_budget(budget)

    def get(self, format: Format | None, options: FormatOptions, budget: int | None) -> FormattedTools:
        """The tools in this format; the same object until the catalog changes."""
        if format is None and budget is not None:
            raise ConfigError('a budget is for tools in a format: write tools(format="anthropic", budget=8000)')
        if format is not None and options:
            from trimaran.format.providers import FormatOptions

            check_options(options, {*FormatOptions.__annotations__, "format", "budget"}, "a host's list of tools")
        budget = None if format is None else self._budget_or(budget)
        offer = self._current().get(format, options, self._catalog.entries, budget=budget)
        if not offer.shortened <= self._model_calls.shortened:
            self._model_calls.shortened |= offer.shortened
        return offer

    def tools(self, format: Format | None, options: FormatOptions, budget: int | None) -> list[Any]:
        """See `Host.tools`."""
        tools = self.get(format, options, budget).tools(self._active.addresses())
        if format is not None and self._long_results.has_cut_for_model:
            from trimaran.format.providers import to_provider

            tools += to_provider([READ_OUTPUT_TOOL], format)  # last, for what stands before is cached
        return tools

    def _current(self) -> ToolFormats:
        """The formats of the present catalog."""
        connected = tuple(name for name, server in self._servers.items() if server.state == "connected")
        if self._formats is None or not self._formats.are_of(self._catalog.tools, connected):
            self._formats = ToolFormats(self._catalog.tools, connected, self._facts)
        return self._formats

    def _entries(self) -> list[CatalogEntry]:
        return self._catalog.entries(self._servers.connected(), is_for_provider=True)

    def deferred(
        self, format: Literal["anthropic", "openai-responses"], options: FormatOptions, budget: int | None
    ) -> list[dict[str, Json]]:
        """See `Host.deferred_tools`."""
        from trimaran.format.deferred import defer_tools
        from trimaran.format.providers import to_provider

        from .context.search_tool import search_declarations

        plan = self.get(format, options, budget).plan
        entries = self._entries()
        details = ["search"] * len(entries) if plan is None else [cost.detail for cost in plan.tools]
        is_kept = [
            entry.choice == "always" or detail != "search" for entry, detail in zip(entries, details, strict=True)
        ]
        keep = {entry.tool.name for entry, kept_at_once in zip(entries, is_kept, strict=True) if kept_at_once}
        hidden = Counter(entry.address.server for entry in entries if entry.tool.name not in keep)
        fitted: dict[str, Any] = {"fit": "auto", **options}
        tools = to_provider([entry.tool for entry in entries], format, **fitted)
        search = to_provider(search_declarations(hidden)[:1], format, **fitted)[0]
        return defer_tools(tools, search, keep, format)

    # --- the report --------------------------------------------------------------------------------------------------

    def report(self, format: Format, options: FormatOptions, budget: int | None) -> ContextReport:
        """See `Host.report`."""
        budget = self._budget_or(budget)
        plan = self.get(format, options, budget).plan
        return self._report(self._current(), format, budget, options, plan)

    def _report(
        self,
        formats: ToolFormats,
        format: Format,
        budget: int | None,
        options: FormatOptions,
        plan: BudgetPlan | None,
    ) -> ContextReport:
        from .context.report import make_report

        def make() -> ContextReport:
            return make_report(self._by_server(), format=format, plan=plan, facts=self._facts)

        return formats.report(format, options, budget, make)

    def _by_server(self) -> list[ToolOfServer]:
        from .context.report import ToolOfServer

        return [ToolOfServer(entry.address.server, entry.tool) for entry in self._entries()]

    async def prepare(self, format: Format, options: FormatOptions, budget: int | None, *, report: bool) -> None:
        """See `Host.prepare`."""
        from .context.report import examine

        budget = self._budget_or(budget)
        formats = self._current()
        entries = self._catalog.entries
        steps: list[Iterator[None]] = []
        if budget is not None:
            steps.append(formats.count(format, options, entries))
        if report:
            steps.append(examine(self._by_server(), self._facts, format=format))
        pause_at = time.monotonic() + _COUNTING
        for _ in itertools.chain.from_iterable(steps):
            if time.monotonic() >= pause_at:
                await asyncio.sleep(0)
                pause_at = time.monotonic() + _COUNTING

        def finish() -> None:
            plan = formats.get(format, options, entries, budget=budget).plan
            if report:
                self._report(formats, format, budget, options, plan)

        # The rest is Python without long calls, so a thread holds the loop for milliseconds at a time.
        await asyncio.to_thread(finish)


def _checked_budget(budget: int | None) -> int | None:
    if budget is not None and budget < 1:
        raise ConfigError(f"a budget must be a number of tokens, 1 or more, not {budget}")
    return budget
