"""The tools that a model gets: those of the host that its provider accepts.

One tool that a provider refuses takes the whole request with it (P25), and catalogs are made by servers, not by us. So each
tool is judged as it would be sent, schemas made to fit as far as they can be, and what would still be refused is left out. What
was left out, and why, is for the person: a model is not told of tools it cannot have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast, final

import jsonschema_rs

from trimaran.format import Format, lint, profile_named
from trimaran.format.providers import to_provider
from trimaran.host import BudgetPlan, Host, UnknownName

_DOTS: Final = "..."
# One validator for the schema of schemas: a validator for each schema would fetch any address that a server names as `$schema`.
_SCHEMA_OF_SCHEMAS: Final = jsonschema_rs.Draft202012Validator({"$ref": "https://json-schema.org/draft/2020-12/schema"})


class ModelToolList(NamedTuple):
    tools: list[dict[str, Any]]
    """As the provider wants them declared."""
    notices: list[str]
    """The tools that are left out, each with the reason."""


@final
class ModelTools:
    """The tools of a host for a model, now. Checking hundreds of schemas takes a tenth of a second, so it is done once for each list."""

    def __init__(self, host: Host, format: Format, *, code: bool = False) -> None:
        self._host = host
        self._format: Format = format
        self._code = code
        """True: the model writes code over the tools, and gets `run_code` alone."""
        self._declared: list[dict[str, Any]] | None = None
        self._offer = ModelToolList([], [])
        self.plan: BudgetPlan | None = None
        """The cuts of a budget in the last list, if there is one."""

    async def prepare(self) -> None:
        """Count what many tools cost, so that `make` holds up nobody."""
        if not self._code:
            await self._host.prepare(self._format, fit="loose")

    def make(self) -> ModelToolList:
        if self._code:
            return ModelToolList(to_provider([self._host.code_tool()], self._format), [])
        declared = cast("list[dict[str, Any]]", self._host.tools(format=self._format, fit="loose"))
        if declared != self._declared:
            self._declared = declared
            offer = _judged(
                declared, [self._catalog_name(_definition(tool)["name"]) for tool in declared], self._format
            )
            self.plan = plan = self._host.budget_plan(self._format, fit="loose")
            cut = [f"for a budget, the model gets {plan}"] if plan is not None and plan.cut else []
            self._offer = ModelToolList(offer.tools, [*cut, *offer.notices])
        return self._offer

    def _catalog_name(self, declared: str) -> str:
        """The name that the person knows; one of the host's own tools has no other."""
        try:
            return self._host.catalog_name(declared)
        except UnknownName:
            return declared


def _judged(declared: Sequence[dict[str, Any]], catalog: Sequence[str], format: Format) -> ModelToolList:
    """Those that will be taken. `catalog` has their names for the person."""
    profile = profile_named(format)
    shortened = [_shortened(tool, profile.most_description) for tool in declared]
    definitions = [_definition(tool) for tool in shortened]
    refused: dict[str, str] = {}
    for finding in lint(definitions, profile):
        if finding.weight == "refused" and finding.tool:
            refused.setdefault(finding.tool, f"{finding.problem} (at {finding.path})")
    for definition in definitions:
        if not _SCHEMA_OF_SCHEMAS.is_valid(definition["inputSchema"]):
            refused.setdefault(
                definition["name"], "its input schema is no JSON Schema of 2020-12, which providers hold it to"
            )
    tools: list[dict[str, Any]] = []
    over: list[str] = []
    notices: list[str] = []
    for tool, definition, name in zip(shortened, definitions, catalog, strict=True):
        if (reason := refused.get(definition["name"])) is not None:
            notices.append(f"the model is not told of {name}: {reason}")
        elif profile.most_tools is not None and len(tools) == profile.most_tools:
            over.append(name)
        else:
            tools.append(tool)
    if over:
        notices.append(
            f"the model is told of {len(tools)} tools, all that its provider takes; {len(over)} are left out, "
            f"from {over[0]} to {over[-1]}. Disable servers that are not needed."
        )
    return ModelToolList(tools, notices)


def _definition(tool: dict[str, Any]) -> dict[str, Any]:
    """The tool as `lint` reads it, from either shape."""
    definition = tool.get("function", tool)
    schema = definition.get("parameters", definition.get("input_schema"))
    return {"name": definition["name"], "description": definition["description"], "inputSchema": schema}


def _shortened(tool: dict[str, Any], most: int | None) -> dict[str, Any]:
    if most is None or len(_definition(tool)["description"]) <= most:
        return tool
    definition = tool.get("function", tool)
    shortened = {**definition, "description": definition["description"][: most - len(_DOTS)] + _DOTS}
    return {**tool, "function": shortened} if "function" in tool else shortened
