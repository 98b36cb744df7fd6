"""A client's knowledge of a server's tools, compiled once per definition.

Needed before a call (which arguments travel in headers too, may it be repeated) and after it (what the result should look
like, is it a lone value in an envelope). A client that has not listed the tools yet lists them before its first call of
one it does not know.
"""

from __future__ import annotations

import logging
from typing import Any, Final, cast, final

from trimaran.bounded_log import BoundedLog
from trimaran.errors import DeclarationError, InvalidOutput
from trimaran.protocol.headers import ParamHeaders, compile_param_headers
from trimaran.types import Tool, ToolAnnotations

from .options import SchemaCheck
from .results import ToolResult

log: logging.Logger = logging.getLogger("trimaran.client")
_bounded: Final = BoundedLog("trimaran.client")

_WRAP_MARKER: Final = "x-fastmcp-wrap-result"
_MOST: Final = 100_000  # an honest server has hundreds
_MOST_BYTES: Final = 64 * 1024 * 1024  # of all definitions, on the wire


@final
class KnownTool:
    __slots__ = (
        "_checked",
        "_fault",
        "_is_mentioned",
        "_validator",
        "headers",
        "is_repeatable",
        "may_be_task",
        "name",
        "output",
        "unwraps",
    )

    def __init__(self, tool: Tool, headers: ParamHeaders | None, *, legacy: bool) -> None:
        self.name: str = tool.name
        self.headers: ParamHeaders | None = headers
        output: Any = tool.output_schema
        self.output: dict[str, Any] | None = cast("dict[str, Any]", output) if isinstance(output, dict) else None
        self.unwraps: bool = self.output is not None and _is_envelope(self.output, legacy=legacy)
        hints = tool.annotations
        self.is_repeatable: bool = isinstance(hints, ToolAnnotations) and bool(
            hints.idempotent_hint or hints.read_only_hint
        )
        self.may_be_task: bool = (tool.execution or {}).get("taskSupport") in ("optional", "required")
        self._validator: Any = None
        self._fault: str | None = None
        self._is_mentioned = False
        self._checked = False

    def check(self, result: ToolResult, mode: SchemaCheck) -> None:
        """Hold a result against the declared schema; InvalidOutput if it differs and that is to be fatal."""
        if self.output is None or mode == "off" or result.is_error:
            return
        complaint = self._complaint(result, mode)
        if complaint is None:
            return
        if mode == "strict":
            raise InvalidOutput(
                f"the result of {self.name} does not match its output schema: {complaint}", result=result
            )
        log.warning("the result of %s does not match its output schema: %s", self.name, complaint)

    def _complaint(self, result: ToolResult, mode: SchemaCheck) -> str | None:
        if result.structured is None and "structuredContent" not in result.raw:
            return "there is no structured content"
        if not self._checked:
            self._checked = True
            from trimaran.schema.validate import Validator

            try:
                self._validator = Validator(cast("dict[str, Any]", self.output))
            except DeclarationError as error:
                self._fault = str(error)
        violations: list[Any] = (
            [] if self._fault or self._is_valid(result) else self._validator.errors(result.structured)
        )
        fault = violations[0].reason if violations and violations[0].is_unchecked else self._fault
        if fault is not None:
            return f"the schema cannot be checked: {fault}" if mode == "strict" else self._mention(fault)
        return "; ".join(map(str, violations[:3])) or None

    def _is_valid(self, result: ToolResult) -> bool:
        return self._validator is None or self._validator.is_valid(result.structured)

    def _mention(self, fault: str) -> None:
        if not self._is_mentioned:
            self._is_mentioned = True
            log.warning("the output schema of %s cannot be checked: %s", self.name, fault)


def _is_envelope(schema: dict[str, Any], *, legacy: bool) -> bool:
    """Does this schema wrap a lone value in `{"result": value}`, because the era or the library knows objects only?

    There is a marker for it. Without one: the official Python SDK titles the model it makes up `...Output`; the TypeScript
    SDK, for legacy clients, writes the bare minimum, without the `additionalProperties` its own objects have.
    """
    if schema.get(_WRAP_MARKER) is True:
        return True
    properties: Any = schema.get("properties")
    if not isinstance(properties, dict) or properties.keys() != {"result"} or schema.get("required") != ["result"]:
        return False
    title: Any = schema.get("title")
    if isinstance(title, str):
        return title.endswith("Output")
    return legacy and schema.keys() <= {"type", "properties", "required", "$schema"}


@final
class KnownTools:
    def __init__(self) -> None:
        self._known: dict[str, KnownTool] = {}
        self._bytes = 0
        self._before: dict[str, KnownTool] = {}
        """The tools known before the last `forget`: better than nothing, if the list cannot be obtained."""
        self.generation: int = 0
        """Grows whenever what was known is forgotten."""
        self.is_complete: bool = False
        """Has the whole list been seen since it last changed?"""

    def get(self, name: str) -> KnownTool | None:
        return self._known.get(name)

    def learn(self, tools: list[Tool], *, over_http: bool, legacy: bool, size: int = 0) -> list[Tool]:
        """Take note of listed tools; those left whose header annotations can be honoured. `size`: their bytes on the wire."""
        usable: list[Tool] = []
        self._bytes += size
        for tool in tools:
            headers = None
            if over_http:
                try:
                    headers = compile_param_headers(tool.input_schema) if isinstance(tool.input_schema, dict) else None
                except DeclarationError as error:
                    # REQ headers.drop-tool: over HTTP a client MUST leave such a tool out of its view, and keep the rest.
                    _bounded.warning("the tool %s was left out: %s", tool.name, error)
                    self._known.pop(tool.name, None)
                    continue
            if len(self._known) < _MOST and self._bytes <= _MOST_BYTES:
                self._known[tool.name] = KnownTool(tool, headers, legacy=legacy)
            usable.append(tool)
        return usable

    def now(self, *, is_whole: bool) -> dict[str, KnownTool]:
        """The tools known at this moment; later changes do not touch the copy.

        If it is not the whole list, what was known before fills the gaps.
        """
        return dict(self._known) if is_whole else {**self._before, **self._known}

    def forget(self) -> None:
        self._before = {**self._before, **self._known} if not self.is_complete else dict(self._known)
        self._known.clear()
        self._bytes = 0
        self.is_complete = False
        self.generation += 1
