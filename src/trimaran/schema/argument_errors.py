"""The message that a model gets for wrong arguments: which argument, what is wrong with it, what was expected."""

from __future__ import annotations

from typing import Any, cast, final

import msgspec

from .validate import Schema, Violation


@final
class ArgumentError(ValueError):
    """Arguments that do not fit; the message tells a model how to correct the call."""

    def __init__(self, message: str, violations: list[Violation]) -> None:
        super().__init__(message)
        self.violations = violations


def refuse(violations: list[Violation], schema: Schema) -> ArgumentError:
    return ArgumentError(_advice(violations[0], schema), violations)


def _advice(violation: Violation, schema: Schema) -> str:
    properties: dict[str, Any] = schema.get("properties", {})
    if violation.path == "$":
        if violation.keyword == "required":
            expected = _expected(properties.get(violation.subject))
            return f"missing required argument {violation.subject!r}{expected}"
        if violation.keyword == "additionalProperties":
            names = ", ".join(map(repr, properties)) or "no arguments"
            return f"unknown argument {violation.subject!r}; expected: {names}"
        return f"arguments: {violation.reason}"
    for key in properties:
        if violation.path == f"$.{key}" or violation.path.startswith((f"$.{key}.", f"$.{key}[")):
            return f"argument {key!r}: {violation}"
    return str(violation)


def _expected(shape: Any) -> str:
    if not isinstance(shape, dict):
        return ""
    node = cast("Schema", shape)
    kind: Any = node.get("type")
    if "enum" in node:
        words = "one of " + ", ".join(msgspec.json.encode(choice).decode() for choice in node["enum"])
    elif isinstance(kind, str):
        words = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind}"
    else:
        words = ""
    hint = ": ".join(filter(None, (words, node.get("description"))))
    return f" ({hint})" if hint else ""
