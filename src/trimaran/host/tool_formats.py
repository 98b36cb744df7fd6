"""The tools of a host in each provider's format: converted once for each catalog, copied for each caller.

Pure, except for one warning for each format and catalog, if the provider refuses or cuts a tool. `host.py` knows when the
catalog changes; `trimaran.format` knows the formats.

A list is stored as JSON and decoded for each caller, so that no caller changes another's list. Decoding is cheaper than a
copy of a thousand schemas.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, final

import msgspec

from trimaran.option_names import check_options
from trimaran.types import Tool

__all__ = ["FormattedTools", "ToolFormats"]

log: Final = logging.getLogger("trimaran.host")

_MOST_NAMED: Final = 10  # tools in one warning
_MOST_KEPT: Final = 32  # formats with their options; real programs use fewer


@final
class FormattedTools:
    """The tools of a catalog in one format."""

    __slots__ = ("_kind", "_text", "problems")

    def __init__(self, tools: list[Any], kind: Any, problems: list[str]) -> None:
        self._text = msgspec.json.encode(tools)
        self._kind = kind
        self.problems: list[str] = problems
        """The tools that the provider refuses or cuts, and why."""

    def tools(self) -> list[Any]:
        return msgspec.json.decode(self._text, type=self._kind)


@final
class ToolFormats:
    """The formatted tools of one catalog.

    Args:
        catalog: The host's catalog; another catalog is another object.
        connected: The servers whose tools can be called now.
    """

    def __init__(self, catalog: object, connected: Collection[str]) -> None:
        self._catalog = catalog
        self._connected = connected
        self._made: dict[Any, FormattedTools] = {}

    def are_of(self, catalog: object, connected: Collection[str]) -> bool:
        return self._catalog is catalog and self._connected == connected

    def get(
        self,
        format: str | None,
        options: Mapping[str, Any],
        tools_of: Callable[[Collection[str], bool], list[Tool]],
    ) -> FormattedTools:
        """The tools in this format; without one, as they are."""
        key = (format, repr(sorted(options.items())))
        offer = self._made.get(key)
        if offer is None:
            if format is None:
                check_options(options, (), "tools() without a format")
            tools = tools_of(self._connected, format is not None)
            offer = FormattedTools(tools, list[Tool], []) if format is None else _declared(tools, format, dict(options))
            if len(self._made) < _MOST_KEPT:
                self._made[key] = offer
        return offer


def _declared(tools: list[Tool], format: str, options: dict[str, Any]) -> FormattedTools:
    from trimaran.format.linting import lint
    from trimaran.format.providers import profile_of, to_provider

    options.setdefault("fit", "auto")
    declared = to_provider(tools, format, **options)
    findings = lint(tools, profile_of(format, **options), fit=options["fit"])
    relevant = [finding for finding in findings if finding.weight == "refused" or finding.rule == "size"]
    problems = [f"{format}: {finding}" for finding in relevant]
    if problems:
        more = f" (and {len(problems) - _MOST_NAMED} more)" if len(problems) > _MOST_NAMED else ""
        log.warning("not all tools are taken as they are: %s%s", "; ".join(problems[:_MOST_NAMED]), more)
    return FormattedTools(declared, list[Any], problems)
