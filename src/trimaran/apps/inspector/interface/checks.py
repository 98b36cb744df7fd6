"""Routes about a server's health and cost: the doctor, schema lint, tokens, and what permission rules say."""

from __future__ import annotations

from typing import Any, Final, cast

import msgspec

from trimaran.errors import Error
from trimaran.host.config import load_config
from trimaran.host.context.tokens import count_tokens, has_tokenizer
from trimaran.host.permissions import Policy, Subject, explain, read_config_rules, read_options

from ..findings import findings_of
from ..requests import BadRequest
from .routing import PageRequest, Reply, Route


async def start_doctor(request: PageRequest) -> Any:
    return Reply(status=202, value={"run": request.inspector.doctors.start(request.server)})


async def get_doctor(request: PageRequest) -> Any:
    return request.inspector.doctors.report(request.server.id)


async def lint_tools(request: PageRequest) -> Any:
    findings: list[dict[str, Any]] = []
    for tool in request.server.catalog.definitions:
        name = str(tool.get("name", ""))
        findings += [{"tool": name, **msgspec.to_builtins(finding)} for finding in findings_of(tool)]
    return {"findings": findings}


async def count_cost(request: PageRequest) -> Any:
    server = request.server
    tools = [
        {
            "name": str(tool.get("name", "")),
            "tokens": _tokens(tool),
            "description": count_tokens(str(tool.get("description") or "")),
            "schema": _tokens(tool.get("inputSchema")),
        }
        for tool in server.catalog.definitions
    ]
    return {
        "counter": "o200k, counted" if has_tokenizer() else "estimated; install trimaran[tokens] to count",
        "total": sum(cast("int", tool["tokens"]) for tool in tools),
        "tools": tools,
        "instructions": count_tokens(server.view().instructions or ""),
    }


def _tokens(value: Any) -> int:
    return count_tokens(msgspec.json.encode(value).decode())


async def explain_permission(request: PageRequest) -> Any:
    rules: Any = request.body.get("rules") or {}
    options: dict[str, list[str]] = {}
    for action in ("allow", "ask", "deny"):
        patterns = rules.get(action, []) if isinstance(rules, dict) else None  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        if not isinstance(patterns, list) or not all(isinstance(p, str) for p in cast("list[Any]", patterns)):
            raise BadRequest('rules must be like {"allow": ["mcp__boats__*"], "deny": []}')
        options[action] = cast("list[str]", patterns)
    arguments: Any = request.body.get("arguments")
    if arguments is not None and not isinstance(arguments, dict):
        raise BadRequest("arguments must be an object")
    problems: list[str] = []
    try:
        reading = read_options(**options)
        try:
            reading += read_config_rules(load_config(request.inspector.sources.config, nearby=True))
        except Error as error:
            problems.append(str(error))
        act = Subject.tool(request.server.name, request.text("tool"))
        explanation = explain(Policy(reading.rules), act, cast("Any", arguments))
    except Error as error:
        raise BadRequest(str(error)) from None
    problems += [str(problem) for problem in reading.problems]
    return {
        "act": str(explanation.decision.act),
        "action": explanation.decision.action,
        "text": explanation.text(),
        "problems": problems,
        "verdicts": [
            {
                "tier": verdict.tier.label,
                "action": verdict.action,
                "rule": None if verdict.rule is None else verdict.rule.text,
                "where": None if verdict.rule is None else str(verdict.rule.source),
                "match": verdict.match,
                "decides": verdict.decides,
            }
            for verdict in explanation.verdicts
        ],
    }


_ONE: Final = "/api/servers/{id}"
ROUTES: Final = (
    Route("POST", f"{_ONE}/doctor", start_doctor),
    Route("GET", f"{_ONE}/doctor", get_doctor),
    Route("GET", f"{_ONE}/lint", lint_tools),
    Route("GET", f"{_ONE}/cost", count_cost),
    Route("POST", f"{_ONE}/permissions", explain_permission),
)
