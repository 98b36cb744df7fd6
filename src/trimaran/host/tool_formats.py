"""The tools of a host in each provider's format: converted once for each catalog, copied for each caller.

Pure, except for one warning for each format and catalog, if the provider refuses or cuts a tool, or a budget cannot be met.
`host.py` knows when the catalog changes; `trimaran.format` knows the formats; `context/budget.py` decides what is shortened.

Under a budget the list has three parts: the tools that search, the catalog's tools in its order, and the tools that a
search brought in. The first two depend on the catalog, the budget and the configuration alone, so a provider's cache of
the prompt holds while the third grows.

A list is stored as JSON and decoded for each caller, so that no caller changes another's list. Decoding is cheaper than a
copy of a thousand schemas.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar, final

import msgspec

from trimaran.option_names import check_options
from trimaran.types import Tool

from .names import Address

if TYPE_CHECKING:
    from .context.budget import BudgetPlan, Choice
    from .context.detail import Detail
    from .context.facts import DefinitionFacts

log: Final = logging.getLogger("trimaran.host")

T = TypeVar("T")

_MOST_NAMED: Final = 10  # tools in one warning
_MOST_KEPT: Final = 32  # formats with their options; real programs use fewer
# Providers that fill in no argument that the schema does not list.
_LISTED_ONLY: Final = frozenset({"gemini"})


class CatalogEntry(NamedTuple):
    """A tool of the catalog under the name that is declared, and what the configuration says about it."""

    address: Address
    tool: Tool
    choice: Choice | None


@final
class FormattedTools:
    """The tools of a catalog in one format."""

    __slots__ = ("_kind", "_more", "_text", "plan", "problems", "shortened")

    def __init__(
        self,
        tools: list[Any],
        kind: Any,
        problems: list[str],
        *,
        plan: BudgetPlan | None = None,
        shortened: frozenset[Address] = frozenset(),
        more: Callable[[Sequence[Address]], list[Any]] | None = None,
    ) -> None:
        self._text = msgspec.json.encode(tools)
        self._kind = kind
        self._more = more
        self.problems: list[str] = problems
        """The tools that the provider refuses or cuts, and why."""
        self.plan: BudgetPlan | None = plan
        """The cuts for a budget."""
        self.shortened: frozenset[Address] = shortened
        """The tools whose declared schema is not the whole one, or which are not declared."""

    def tools(self, active: Sequence[Address] = ()) -> list[Any]:
        """A list of the caller's own, with the tools that a search brought in at its end."""
        tools: list[Any] = msgspec.json.decode(self._text, type=self._kind)
        return tools + self._more(active) if active and self._more is not None else tools


@final
class ToolFormats:
    """The formatted tools of one catalog.

    Args:
        catalog: The host's catalog; another catalog is another object.
        connected: The servers whose tools can be called now.
        facts: The known costs of definitions, this catalog's and earlier ones'.
    """

    def __init__(self, catalog: object, connected: Collection[str], facts: DefinitionFacts) -> None:
        self._catalog = catalog
        self._facts = facts
        self._connected = connected
        self._by_options: dict[Any, FormattedTools] = {}
        self._reports: dict[Any, Any] = {}

    def are_of(self, catalog: object, connected: Collection[str]) -> bool:
        return self._catalog is catalog and self._connected == connected

    def get(
        self,
        format: str | None,
        options: Mapping[str, Any],
        entries_of: Callable[[Collection[str], bool], list[CatalogEntry]],
        *,
        budget: int | None = None,
    ) -> FormattedTools:
        """The tools in this format; without one, as they are."""
        key = (format, repr(sorted(options.items())), budget)
        offer = self._by_options.get(key)
        if offer is None:
            if format is None:
                check_options(options, (), "tools() without a format")
            entries = entries_of(self._connected, format is not None)
            if format is None:
                offer = FormattedTools([entry.tool for entry in entries], list[Tool], [])
            elif budget is None:
                offer = _declared([entry.tool for entry in entries], format, dict(options))
            else:
                offer = _Budgeted(entries, format, dict(options), self._facts).offer(budget)
            if len(self._by_options) < _MOST_KEPT:
                self._by_options[key] = offer
        return offer

    def report(self, format: str, options: Mapping[str, Any], budget: int | None, make: Callable[[], T]) -> T:
        """The report about the tools in this format; it is made once."""
        key = (format, repr(sorted(options.items())), budget)
        report = self._reports.get(key)
        if report is None:
            report = make()
            if len(self._reports) < _MOST_KEPT:
                self._reports[key] = report
        return report

    def count(
        self,
        format: str,
        options: Mapping[str, Any],
        entries_of: Callable[[Collection[str], bool], list[CatalogEntry]],
    ) -> Iterator[None]:
        """Count the tokens of every tool in small steps, so that `get` with a budget need not."""
        return _Budgeted(entries_of(self._connected, True), format, dict(options), self._facts).count()


def _declared(tools: list[Tool], format: str, options: dict[str, Any]) -> FormattedTools:
    from trimaran.format.providers import to_provider

    options.setdefault("fit", "auto")
    return FormattedTools(to_provider(tools, format, **options), list[Any], _problems(tools, format, options))


def _problems(tools: list[Tool], format: str, options: dict[str, Any]) -> list[str]:
    from trimaran.format.linting import lint
    from trimaran.format.providers import profile_of

    findings = lint(tools, profile_of(format, **options), fit=options["fit"])
    relevant = [finding for finding in findings if finding.weight == "refused" or finding.rule == "size"]
    problems = [f"{format}: {finding}" for finding in relevant]
    if problems:
        more = f" (and {len(problems) - _MOST_NAMED} more)" if len(problems) > _MOST_NAMED else ""
        log.warning("not all tools are taken as they are: %s%s", "; ".join(problems[:_MOST_NAMED]), more)
    return problems


@final
class _Budgeted:
    """The tools of a catalog in one format, shortened to a budget."""

    def __init__(
        self, entries: list[CatalogEntry], format: str, options: dict[str, Any], facts: DefinitionFacts
    ) -> None:
        from .context.detail import DETAILS, with_detail
        from .context.facts import cost_in, digest_of

        options.setdefault("fit", "auto")
        self._entries = entries
        self._facts = facts
        self._digests: dict[int, bytes | None] = {}
        self._digest_of = digest_of
        self._cost_in = {detail: cost_in(format, options, detail) for detail in DETAILS}
        self._format = format
        self._options = options
        self._with_detail = functools.partial(
            with_detail, is_listed=format in _LISTED_ONLY, says_open=format.startswith("openai")
        )
        self._at = {entry.address: at for at, entry in enumerate(entries)}

    def _declare(self, tool: Tool) -> Any:
        from trimaran.format.providers import to_provider

        return to_provider([tool], self._format, **self._options)[0]

    def _shape(self, at: int, detail: Detail) -> Any:
        return self._declare(self._with_detail(self._entries[at].tool, detail))

    def _cost(self, at: int, detail: Detail) -> int:
        if at not in self._digests:
            self._digests[at] = self._digest_of(self._entries[at].tool)
        return self._facts.get(self._digests[at], self._cost_in[detail], lambda: _count(self._shape(at, detail)))

    def count(self) -> Iterator[None]:
        """Count every tool at every detail, one at a step."""
        from .context.detail import DETAILS

        for at in range(len(self._entries)):
            for detail in DETAILS[:-1]:
                self._cost(at, detail)
                yield

    def offer(self, budget: int) -> FormattedTools:
        from trimaran.format.profiles import profile_named
        from trimaran.format.providers import profile_of

        from .context.budget import BudgetTool, plan_budget
        from .context.search_tool import search_declarations

        def search_cost(hidden: Mapping[str, int]) -> int:
            return sum(_count(self._declare(tool)) for tool in search_declarations(hidden))

        wanted_tools = [
            BudgetTool(entry.address.server, entry.tool.name, functools.partial(self._cost, at), entry.choice)
            for at, entry in enumerate(self._entries)
        ]
        most = profile_named(profile_of(self._format, **self._options)).most_tools
        plan = plan_budget(wanted_tools, budget, most=most, search_cost=search_cost)
        declared = [self._declare(tool) for tool in (search_declarations(plan.hidden) if plan.hidden else ())]
        visible: list[Tool] = []
        for at, cost in enumerate(plan.tools):
            if cost.detail != "search":
                declared.append(self._shape(at, cost.detail))
                visible.append(self._with_detail(self._entries[at].tool, cost.detail))
        if plan.needed is not None:
            log.warning("%s", plan)
        problems = _problems(visible, self._format, self._options)
        return FormattedTools(
            declared,
            list[Any],
            [str(plan), *problems] if plan.needed is not None else problems,
            plan=plan,
            shortened=frozenset(
                entry.address for entry, cost in zip(self._entries, plan.tools, strict=True) if cost.detail != "whole"
            ),
            more=functools.partial(self._brought_in, plan),
        )

    def _brought_in(self, plan: BudgetPlan, active: Sequence[Address]) -> list[Any]:
        """The hidden tools that a search brought in, as much of each as the reserve has room for."""
        room = plan.reserve
        shapes: list[Any] = []
        for address in reversed(active):  # the latest has the first claim to the room
            at = self._at.get(address)
            if at is None or plan.tools[at].detail != "search":
                continue
            for detail in ("whole", "plain", "signature", "sentence"):
                cost = self._cost(at, detail)
                if cost <= room:
                    shapes.append(msgspec.json.decode(msgspec.json.encode(self._shape(at, detail))))
                    room -= cost
                    break
        return shapes[::-1]


def _count(shape: Any) -> int:
    """The tokens of a tool in a list."""
    from .context.tokens import count_tokens

    return count_tokens(msgspec.json.encode(shape).decode()) + 1  # the comma
