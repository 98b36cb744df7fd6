"""Judge the tools a server lists: what a model or a client will stumble over.

Works on the definitions as they came over the wire, because a client hides what it cannot use.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from trimaran.errors import DeclarationError
from trimaran.format import lint
from trimaran.protocol.headers import compile_param_headers
from trimaran.schema import Validator, check_object_schema
from trimaran.types import Tool, as_object

from ..output import in_one_line
from .report import Report, several

_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,128}")
# Past this the definitions crowd out the conversation: a tenth of a 200k window (P19).
_MANY_TOKENS: Final = 20_000
_PROVIDERS: Final = ("anthropic", "openai", "gemini")
_BYTES_PER_TOKEN: Final = 4  # of JSON in English, near enough to plan by


def lint_tools(report: Report, tools: Sequence[Any]) -> None:
    """Report on a list of tool definitions."""
    if not tools:
        report.ok("tools", "none")
        return
    tokens = len(msgspec.json.encode(tools)) // _BYTES_PER_TOKEN
    count = f"{several(len(tools), 'tool')}, about {tokens:,} tokens"
    if tokens > _MANY_TOKENS:
        report.warn(
            "tools",
            count,
            "The definitions go to the model with every request, and crowd out what it should think about.",
            "Shorten descriptions, or offer fewer tools.",
        )
    else:
        report.ok("tools", count)
    _names(report, tools)
    _descriptions(report, tools)
    _schemas(report, tools)
    _headers(report, tools)
    _words(report, tools)
    for profile in _PROVIDERS:
        _provider(report, tools, profile)


def _names(report: Report, tools: Sequence[Any]) -> None:
    counts = Counter(_name(tool) for tool in tools)
    bad = [f"{in_one_line(name, 60)!r}" for name in counts if not _NAME.fullmatch(name)]
    bad += [f"{in_one_line(name, 60)!r} is listed {n} times" for name, n in counts.items() if n > 1]
    if bad:
        report.fail(
            "tool-names",
            f"{len(bad)} that clients refuse",
            "Hosts pass names on to models, which take A-Z a-z 0-9 _ . - only, at most 128 of them, each once.",
            "Rename them.",
            details=bad,
        )
    else:
        report.ok("tool-names", "all usable")


def _descriptions(report: Report, tools: Sequence[Any]) -> None:
    bare = [_name(tool) for tool in tools if not str((as_object(tool) or {}).get("description") or "").strip()]
    if bare:
        report.warn(
            "tool-descriptions",
            f"missing on {len(bare)} of {len(tools)} tools",
            "The description is all a model has to decide whether and how to call a tool.",
            "Say in a sentence what the tool does and when to use it.",
            details=bare,
        )
    else:
        report.ok("tool-descriptions", "on every tool")


def _schemas(report: Report, tools: Sequence[Any]) -> None:
    faults = [fault for tool in tools for fault in _schema_faults(tool)]
    if faults:
        report.fail(
            "tool-schemas",
            f"{len(faults)} that cannot be used",
            "One bad schema can make a model's provider refuse the whole request, all tools included.",
            "Fix the schemas named here.",
            details=faults,
        )
    else:
        report.ok("tool-schemas", "all valid")


def _schema_faults(tool: Any) -> Iterator[str]:
    definition = as_object(tool)
    if definition is None:
        yield f"a tool is not an object: {in_one_line(str(tool), 60)}"
        return
    for key in ("inputSchema", "outputSchema"):
        if key not in definition and key == "outputSchema":
            continue
        schema = definition.get(key)
        try:
            if key == "inputSchema":
                # Without a type at its root it is used by every client; what the providers say of it is told below.
                fields = as_object(schema)
                schema = schema if fields is None else {"type": "object", **fields}
                check_object_schema(schema, key)
            Validator(schema)  # pyright: ignore[reportArgumentType] - what it is not, it says
        except (DeclarationError, TypeError) as error:
            yield f"{_name(tool)}: {in_one_line(str(error), 2000)}"


def _headers(report: Report, tools: Sequence[Any]) -> None:
    faults: list[str] = []
    annotated = 0
    for tool in tools:
        schema = as_object((as_object(tool) or {}).get("inputSchema")) or {}
        try:
            annotated += compile_param_headers(schema) is not None
        except DeclarationError as error:
            faults.append(f"{_name(tool)}: {in_one_line(str(error), 2000)}")
    if faults:
        report.fail(
            "x-mcp-header",
            f"annotations that cannot be honoured, on {len(faults)} of {len(tools)} tools",
            "Over HTTP a client must drop such a tool: nobody can call it.",
            "Annotate string, integer or boolean properties only, each with a header name of its own.",
            details=faults,
        )
    elif annotated:
        report.ok("x-mcp-header", f"valid, on {annotated} of {len(tools)} tools")
    else:
        report.skip("x-mcp-header", "no tool uses it")


def _words(report: Report, tools: Sequence[Any]) -> None:
    """The findings of a host's scan in the definitions."""
    from trimaran.host.trust.scan import scan_tool

    findings = [finding for tool in tools for finding in scan_tool(_as_tool(tool)) if finding.severity != "note"]
    if not findings:
        report.ok("words", "nothing hidden, no orders to the model")
        return
    details = [in_one_line(f"{finding.severity}: {finding}; {finding.remedy}", 400) for finding in findings]
    is_grave = any(finding.severity == "ask" for finding in findings)
    (report.fail if is_grave else report.warn)(
        "words",
        several(len(findings), "finding"),
        "A host withholds such words from the model, and asks a person before it calls the tool.",
        "Say what the tool does, in plain text; docs/guides/scan.md has the rules.",
        details=details,
    )


def _as_tool(definition: Any) -> Tool:
    """The texts of a definition, whatever else is wrong with it."""
    fields = as_object(definition) or {}
    title, description = fields.get("title"), fields.get("description")
    return Tool(
        name=_name(definition),
        title=title if isinstance(title, str) else None,
        description=description if isinstance(description, str) else None,
        input_schema=as_object(fields.get("inputSchema")) or {},
        output_schema=as_object(fields.get("outputSchema")),
    )


def _provider(report: Report, tools: Sequence[Any], profile: str) -> None:
    """The tools that this provider refuses, if it gets them unchanged."""
    whole = [tool for tool in tools if isinstance((as_object(tool) or {}).get("name"), str)]
    try:
        # Names are the host's to make: each makes them fit its provider, and unlike those of other servers.
        refused = [
            finding for finding in lint(whole, profile) if finding.weight == "refused" and finding.rule != "name"
        ]
    except DeclarationError as error:  # told of above
        report.skip(profile, in_one_line(str(error), 300))
        return
    if refused:
        report.warn(
            profile,
            f"{several(len(refused), 'thing')} it refuses",
            "A host that hands the tools on as they are gets an error for the whole request, all tools included.",
            "Fix what is named here; the remedy stands beside it.",
            details=[str(finding) for finding in refused],
        )
    else:
        report.ok(profile, "takes all of them")


def _name(tool: Any) -> str:
    return str((as_object(tool) or {}).get("name", "?"))
