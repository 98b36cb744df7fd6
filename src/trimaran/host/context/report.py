"""The cost of servers' tools for a model, and their faults, which make them cost more or be found less: `host.report()`, `trimaran lint`.

Pure: tools in, a report out. It calls no server and no model. Tools come from strangers, so nothing in a definition makes it
raise: a definition that cannot be read is a finding.

Findings are errors (a provider refuses the tool, two tools have one name, the budget is exceeded), warnings (a model has it
harder: no description, names easily confused, a definition of thousands of tokens, a search that misses) and notes.
"""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast, final

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from trimaran.errors import Error
from trimaran.format.linting import lint
from trimaran.format.providers import profile_of, to_provider
from trimaran.format.trees import as_schema
from trimaran.types import Json, Tool

from ..trust.scan import scan_tool
from .budget import BudgetPlan, BudgetTool, plan_budget
from .detail import Detail, first_sentence, with_detail
from .facts import DefinitionFacts, cost_in, digest_of
from .search import ToolIndex
from .tokens import count_tokens

FindingKind: TypeAlias = Literal[
    "unreadable",
    "provider",
    "same_name",
    "confusable",
    "budget",
    "description",
    "arguments",
    "schema",
    "large",
    "noise",
    "search",
    "words",
]
Severity: TypeAlias = Literal["error", "warning", "note"]

_SEVERITIES: Final[Mapping[FindingKind, Severity]] = {
    "unreadable": "error",
    "provider": "error",
    "same_name": "error",
    "budget": "error",
    "words": "error",
    "confusable": "warning",
    "description": "warning",
    "schema": "warning",
    "large": "warning",
    "search": "warning",
    "arguments": "note",
    "noise": "note",
}
_LARGE: Final = 2000  # tokens; of 1,095 real tools, one in fifty is larger
_NOISY: Final = 0.1  # of a definition
_LEAST_NOISE: Final = 20  # tokens; less is not worth a line
_MOST_SEARCHED: Final = 2000  # tools; a search of each takes about a millisecond
_MOST_NAMED: Final = 5
_SAYS_ARGUMENTS: Final = frozenset(
    {"type", "properties", "patternProperties", "additionalProperties", "$ref", "allOf", "anyOf", "oneOf"}
)  # a schema with none of these was lost on its way: a tool that takes nothing says so by its type
_RANK: Final = 5  # a tool is found if it is among so many
FORMATS: Final = ("anthropic", "openai", "gemini")
_UNREADABLE: Final = (Error, TypeError, ValueError, RecursionError, AttributeError)  # of definitions by strangers


class ToolOfServer(NamedTuple):
    """A tool, and the server that lists it."""

    server: str
    tool: Tool


class _Listed(NamedTuple):
    server: str
    tool: Tool
    digest: bytes | None


@final
class ContextFinding(Struct, frozen=True, kw_only=True):
    """One thing about the tools, and its remedy."""

    kind: FindingKind
    server: str = ""
    tool: str = ""
    message: str
    tokens: int = 0
    """The tokens that a remedy would save, if that is known."""

    @property
    def severity(self) -> Severity:
        return _SEVERITIES[self.kind]

    def __str__(self) -> str:
        place = ".".join(part for part in (self.server, self.tool) if part)
        return f"{self.severity}: {place + ': ' if place else ''}{self.message}"


@final
class ServerCost(Struct, frozen=True, kw_only=True):
    """The cost of the tools of one server, whole and as they are declared."""

    name: str
    tools: int
    whole: int
    tokens: int


@final
class ContextReport(Struct, frozen=True, kw_only=True):
    """The cost of tools for a model, and their faults."""

    format: str
    plan: BudgetPlan
    """The cost of each tool, and the cuts of a budget."""
    servers: tuple[ServerCost, ...]
    """The most expensive first."""
    findings: tuple[ContextFinding, ...]
    """Errors first."""

    @property
    def tokens(self) -> int:
        """Tokens of the declared forms."""
        return self.plan.tokens

    @property
    def is_good(self) -> bool:
        """Whether there is no error among the findings."""
        return all(finding.severity != "error" for finding in self.findings)

    def __str__(self) -> str:
        return "\n".join([str(self.plan), *map(str, self.findings)])

    def to_json(self) -> dict[str, Json]:
        """For programs."""
        findings = [
            {"severity": finding.severity, **cast("dict[str, Json]", msgspec.to_builtins(finding))}
            for finding in self.findings
        ]
        return {
            "format": self.format,
            "budget": self.plan.budget,
            "needed": self.plan.needed,
            "tokens": self.plan.tokens,
            "whole": self.plan.whole,
            "servers": msgspec.to_builtins(self.servers),
            "tools": msgspec.to_builtins(self.plan.tools),
            "findings": cast("Json", findings),
        }


def make_report(
    tools: Iterable[ToolOfServer],
    *,
    format: str = "anthropic",
    budget: int | None = None,
    plan: BudgetPlan | None = None,
    formats: Sequence[str] = FORMATS,
    facts: DefinitionFacts | None = None,
) -> ContextReport:
    """The cost of these tools in a format, and their faults.

    Args:
        budget: Tokens that the whole definitions should not exceed.
        plan: The plan of a host; None makes a plan of the tools as they are, whole.
        formats: The providers whose rules are applied.
        facts: The known facts of definitions from earlier.
    """
    facts = facts or DefinitionFacts()
    listed = [_Listed(*entry, digest_of(entry.tool)) for entry in tools]
    unreadable: list[ContextFinding] = []
    readable: list[_Listed] = []
    sizes: list[dict[Detail, int]] = []
    for entry in listed:
        try:
            sizes.append(_sizes(entry, format, facts))
            readable.append(entry)
        except _UNREADABLE as error:
            message = f"the definition cannot be read: {str(error)[:200]}"
            unreadable.append(
                ContextFinding(kind="unreadable", server=entry.server, tool=_name(entry.tool), message=message)
            )
    if plan is None:
        costs = [
            BudgetTool(entry.server, entry.tool.name, lambda detail, size=size: size[detail])
            for entry, size in zip(readable, sizes, strict=True)
        ]
        plan = plan_budget(costs, None)
    findings = [
        *unreadable,
        *_of_names(readable),
        *(finding for format in formats for entry in readable for finding in _of_provider(entry, format, facts)),
        *(finding for entry, size in zip(readable, sizes, strict=True) for finding in _of_tool(entry, size, facts)),
        *_of_search(readable, facts),
        *_of_budget(plan, budget, sum(size["whole"] for size in sizes)),
    ]
    order = ("error", "warning", "note")
    return ContextReport(
        format=format,
        plan=plan,
        servers=_servers(plan),
        findings=tuple(sorted(findings, key=lambda finding: order.index(finding.severity))),
    )


def examine(
    tools: Iterable[ToolOfServer],
    facts: DefinitionFacts,
    *,
    format: str = "anthropic",
    formats: Sequence[str] = FORMATS,
) -> Iterator[None]:
    """Find out all that a report says of each tool, in small steps, so that `make_report` need not."""
    readable: list[_Listed] = []
    for tool in tools:
        entry = _Listed(*tool, digest_of(tool.tool))
        with contextlib.suppress(*_UNREADABLE):
            size = _sizes(entry, format, facts)
            yield
            for name in formats:
                _of_provider(entry, name, facts)
                yield
            _of_tool(entry, size, facts)
            readable.append(entry)
        yield
    yield from _search_all(readable, facts)


def _sizes(entry: _Listed, format: str, facts: DefinitionFacts) -> dict[Detail, int]:
    details: tuple[Detail, ...] = ("whole", "plain")
    return {
        detail: facts.get(
            entry.digest,
            cost_in(format, {"fit": "auto"}, detail),
            lambda detail=detail: _size(entry.tool, format, detail),
        )
        for detail in details
    }


def _size(tool: Tool, format: str, detail: Detail) -> int:
    shape = to_provider([with_detail(tool, detail)], format, fit="auto")[0]
    return count_tokens(msgspec.json.encode(shape).decode()) + 1


def _name(tool: object) -> str:
    name = getattr(tool, "name", "")
    return name if isinstance(name, str) else ""


def _servers(plan: BudgetPlan) -> tuple[ServerCost, ...]:
    totals: dict[str, list[int]] = {}
    for tool in plan.tools:
        total = totals.setdefault(tool.server, [0, 0, 0])
        total[0] += 1
        total[1] += tool.whole
        total[2] += tool.tokens
    costs = [
        ServerCost(name=name, tools=count, whole=whole, tokens=tokens)
        for name, (count, whole, tokens) in totals.items()
    ]
    return tuple(sorted(costs, key=lambda server: (-server.whole, server.name)))


# --- findings --------------------------------------------------------------------------------------------------------


def _of_tool(entry: _Listed, size: Mapping[Detail, int], facts: DefinitionFacts) -> list[ContextFinding]:
    sizes = size["whole"], size["plain"]
    words = facts.get(entry.digest, "words", lambda: tuple(_of_words(entry.tool)))  # the same in every format
    findings = facts.get(entry.digest, ("definition", *sizes), lambda: tuple(_of_definition(entry.tool, *sizes)))
    return [replace(finding, server=entry.server) for finding in (*words, *findings)]


def _of_words(tool: Tool) -> Iterator[ContextFinding]:
    for finding in dict.fromkeys(str(item) for item in scan_tool(tool) if item.severity == "ask"):
        message = f"a host hides its description from the model and asks before each call: {finding}"
        yield ContextFinding(kind="words", tool=tool.name, message=message)


def _of_definition(tool: Tool, whole: int, plain: int) -> Iterator[ContextFinding]:
    def find(kind: FindingKind, message: str, tokens: int = 0) -> ContextFinding:
        return ContextFinding(kind=kind, tool=tool.name, message=message, tokens=tokens)

    if not (tool.description or "").strip():
        yield find("description", "it has no description, so a model can only guess")
    schema: Any = tool.input_schema
    if isinstance(schema, dict) and _SAYS_ARGUMENTS.isdisjoint(cast("dict[str, Any]", schema)):
        yield find(
            "schema", "its inputSchema says nothing about arguments, not even `type: object`: a model cannot know any"
        )
    properties: Any = cast("dict[str, Any]", schema).get("properties") if isinstance(schema, dict) else None
    if isinstance(properties, dict):
        silent = [str(name) for name, child in cast("dict[str, Any]", properties).items() if _is_silent(child)]
        if silent:
            more = f" and {len(silent) - _MOST_NAMED} more" if len(silent) > _MOST_NAMED else ""
            names = ", ".join(name[:40] for name in silent[:_MOST_NAMED])
            yield find("arguments", f"arguments without a description: {names}{more}")
    noise = whole - plain
    if whole > _LARGE:
        yield find("large", f"its definition is {whole:,} tokens; shorten it, or divide the tool", whole)
    if noise >= _LEAST_NOISE and noise >= whole * _NOISY:
        message = f"{noise:,} of {whole:,} tokens are schema noise: titles, $schema, nulls as defaults, and the like"
        yield find("noise", message, noise)


def _is_silent(argument: Any) -> bool:
    schema = as_schema(argument)
    return schema is not None and not schema.get("description") and "$ref" not in schema


def _of_names(tools: Sequence[_Listed]) -> Iterator[ContextFinding]:
    by_name: defaultdict[tuple[str, str], int] = defaultdict(int)
    by_look: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
    for server, tool, _ in tools:
        by_name[server, tool.name] += 1
        by_look[server, _look(tool.name)][tool.name] = None
    for (server, name), count in by_name.items():
        if count > 1:
            yield ContextFinding(kind="same_name", server=server, tool=name, message=f"{count} tools have this name")
    for (server, _), names in by_look.items():
        if len(names) > 1:
            message = f"easily confused: {', '.join(sorted(names)[:_MOST_NAMED])}; rename all but one"
            yield ContextFinding(kind="confusable", server=server, tool=sorted(names)[0], message=message)


# Letters that look like Latin ones, and that servers with nothing to hide do not mix with them.
_LOOKALIKES: Final = str.maketrans(
    "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456\u0458\u0455\u0501\u0578\u03bf\u03b10|1l", "aeopcyxijsdnoaoiii"
)


def _look(name: str) -> str:
    """A name as a hasty reader sees it: no case, no separators, no plural, look-alikes as one."""
    plain = unicodedata.normalize("NFKC", name).casefold().translate(_LOOKALIKES)
    return re.sub(r"[\W_]+", "", plain).rstrip("s")


def _of_provider(entry: _Listed, format: str, facts: DefinitionFacts) -> list[ContextFinding]:
    message = facts.get(entry.digest, ("provider", format), lambda: _refusal(entry.tool, format))
    return (
        [ContextFinding(kind="provider", server=entry.server, tool=entry.tool.name, message=message)] if message else []
    )


def _refusal(tool: Tool, format: str) -> str:
    """Why a provider refuses a tool; empty if it does not."""
    try:
        problems = lint(tool, profile_of(format), fit="auto")
    except (Error, RecursionError) as error:
        return f"it cannot be written for {format}: {str(error)[:200]}"
    refused = [problem for problem in problems if problem.weight == "refused" and problem.rule != "name"]
    if not refused:
        return ""
    more = f" (and {len(refused) - 1} more)" if len(refused) > 1 else ""
    return f"{format} refuses it: {refused[0].problem}, at {refused[0].path}; {refused[0].remedy}{more}"


def _of_search(tools: Sequence[_Listed], facts: DefinitionFacts) -> Iterator[ContextFinding]:
    """Tools that a search for their own first sentence does not find."""
    deque(_search_all(tools, facts), maxlen=0)
    for at, is_missed in facts.missed[1].items():
        if is_missed:
            server, tool, _ = tools[at]
            message = (
                f"a search for its own first sentence does not find it among the first {_RANK}: say what sets it apart"
            )
            yield ContextFinding(kind="search", server=server, tool=tool.name, message=message)


def _search_all(tools: Sequence[_Listed], facts: DefinitionFacts) -> Iterator[None]:
    """Search for each tool among the others, one at a step."""
    is_short = 1 < len(tools) <= _MOST_SEARCHED
    # The same tools of the same servers: whether a search finds one depends on all others.
    catalog = hash(tuple((server, digest or id(tool)) for server, tool, digest in tools)) if is_short else 0
    if facts.missed[0] != catalog or not is_short:
        facts.missed = (catalog, {})
    if not is_short:
        return
    missed = facts.missed[1]
    index: ToolIndex | None = None

    def is_missed(server: str, tool: Tool) -> bool:
        nonlocal index
        query = first_sentence(tool.description or "")
        if not query:
            return False  # without a description it has a finding already
        if index is None:
            index = _index_of(tools)
        matches = index.search(query, _RANK)
        return all((match.address.server, match.address.tool) != (server, tool.name) for match in matches)

    for at, (server, tool, _) in enumerate(tools):
        if at not in missed:
            missed[at] = is_missed(server, tool)
            yield


def _index_of(tools: Sequence[_Listed]) -> ToolIndex:
    index = ToolIndex()
    by_server: dict[str, list[Tool]] = {}
    for server, tool, _ in tools:
        by_server.setdefault(server, []).append(tool)
    for server, own in by_server.items():
        index.update(server, own)
    return index


def _of_budget(plan: BudgetPlan, budget: int | None, whole: int) -> Iterator[ContextFinding]:
    if plan.needed is not None:
        message = f"the budget of {plan.budget:,} tokens cannot be met: {plan.needed:,} are needed"
        yield ContextFinding(kind="budget", message=message, tokens=plan.needed)
    elif budget is not None and whole > budget:
        message = f"the definitions are {whole:,} tokens, {whole - budget:,} over the budget of {budget:,}"
        yield ContextFinding(kind="budget", message=message, tokens=whole - budget)
