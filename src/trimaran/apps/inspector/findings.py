"""What is doubtful about a tool's definition: its schema, what providers refuse, characters that cannot be seen. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec
from msgspec import Struct

from trimaran.errors import DeclarationError, Error
from trimaran.format import lint
from trimaran.host.trust.scan import scan_tool
from trimaran.schema.validate import Validator, check_object_schema
from trimaran.types import Tool

Severity: TypeAlias = Literal["info", "warn", "fail"]
_PROVIDERS: Final = ("anthropic", "openai", "gemini")
_SEVERITIES: Final[dict[str, Severity]] = {"note": "info", "warn": "warn", "ask": "fail"}


class ToolFinding(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """One doubt about a definition."""

    severity: Severity
    where: str
    problem: str
    source: Literal["schema", "anthropic", "openai", "gemini", "scan"]
    remedy: str | None = None


def findings_of(tool: Mapping[str, Any]) -> list[ToolFinding]:
    """All doubts about one tool."""
    return [*_schema(tool), *_providers(tool), *_hidden(tool)]


def _schema(tool: Mapping[str, Any]) -> Iterator[ToolFinding]:
    for member in ("inputSchema", "outputSchema"):
        schema: Any = tool.get(member)
        if schema is None and member == "outputSchema":
            continue
        try:
            if member == "inputSchema":
                check_object_schema(schema, "inputSchema")
            if isinstance(schema, dict):
                Validator(cast("dict[str, Any]", schema))
        except DeclarationError as error:
            yield ToolFinding(severity="fail", where=member, problem=str(error), source="schema")
    if not tool.get("description"):
        remedy = "Say in a sentence what the tool does and when to use it."
        yield ToolFinding(severity="warn", where="description", problem="missing", remedy=remedy, source="schema")


def _providers(tool: Mapping[str, Any]) -> Iterator[ToolFinding]:
    for provider in _PROVIDERS:
        try:
            problems = lint(cast("Any", tool), provider)
        except (Error, ValueError, TypeError, RecursionError):
            continue  # a definition that cannot be read is reported by its schema
        for problem in problems:
            severity: Severity = "warn" if problem.weight == "refused" else "info"
            yield ToolFinding(
                severity=severity, where=problem.path, problem=problem.problem, remedy=problem.remedy, source=provider
            )


def _hidden(tool: Mapping[str, Any]) -> Iterator[ToolFinding]:
    """Words that mislead a model, and characters that a person does not see."""
    try:
        typed = msgspec.convert(tool, Tool)
    except msgspec.ValidationError:
        return
    for suspicion in scan_tool(typed):
        quoted = f": {suspicion.excerpt}" if suspicion.excerpt else ""
        yield ToolFinding(
            severity=_SEVERITIES[suspicion.severity],
            where=suspicion.where,
            problem=f"{suspicion.message}{quoted}",
            remedy=suspicion.remedy or None,
            source="scan",
        )
