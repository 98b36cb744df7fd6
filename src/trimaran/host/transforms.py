"""The tools of one server as its entry in `mcp.toml` shows them: chosen, renamed, described, with fewer arguments.

The rules decide about the tool itself: its own name, its own definition, and the arguments that are sent. So a rename
escapes no rule, and what a person allowed holds until the server changes the tool.

Nobody is there to be told when a server lists its tools. A tool that a transform does not fit, or whose new name is taken,
is left out and logged, once.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple, final

import msgspec

from trimaran.errors import DeclarationError, LocalProtocolError
from trimaran.option_names import suggestion
from trimaran.schema import ArgumentError
from trimaran.server.argument_transforms import ArgumentPlan
from trimaran.server.definition_transforms import ToolFilter, change_definition, matches
from trimaran.server.transform_options import TransformOptions, is_tool_name
from trimaran.types import Tool

log: Final = logging.getLogger("trimaran.host")


class TransformedTool(NamedTuple):
    """A tool as it is shown, and the server's own."""

    tool: Tool
    original: Tool
    plans: tuple[ArgumentPlan, ...]

    def map_arguments(self, arguments: dict[str, Any], name: str) -> dict[str, Any]:
        """The arguments that are sent.

        Raises:
            LocalProtocolError: the arguments do not fit the schema that is shown.
        """
        for plan in self.plans:
            try:
                arguments = msgspec.json.decode(plan.read(msgspec.json.encode(arguments)))
            except ArgumentError as error:
                raise LocalProtocolError.invalid_params(f"invalid arguments for {name}: {error}") from None
        return arguments

    def guess_arguments(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The same for arguments that may be incomplete, to ask the rules about."""
        for plan in self.plans:
            arguments = msgspec.json.decode(plan.map(arguments))
        return arguments


@final
class ToolTransforms:
    """The transforms that an entry gives the tools of its server."""

    def __init__(
        self,
        server: str,
        transforms: Mapping[str, TransformOptions],
        *,
        include: Collection[str] | None = None,
        exclude: Collection[str] = (),
        read_only: bool = False,
    ) -> None:
        self._server = server
        self._transforms = transforms
        self._chosen = ToolFilter(include, exclude, read_only=read_only)
        self._logged: set[str] = set()

    def show(self, tools: Iterable[Tool]) -> dict[str, TransformedTool]:
        """The tools that are shown, by the names under which they are."""
        listed = {tool.name: tool for tool in tools}
        for name in (*self._chosen.names, *filter(is_tool_name, self._transforms)):
            if listed and name not in listed:
                hint = suggestion(name, listed)
                self._log(f"mcp.toml names the tool {name!r}, which the server does not have{hint and ';' + hint}")
        visible: dict[str, TransformedTool] = {}
        for tool in listed.values():
            try:
                changed = self._change(tool)
            except DeclarationError as error:
                self._log(f"the tool {tool.name!r} is left out: {error}")
                continue
            if changed is None:
                continue
            holder = visible.setdefault(changed.tool.name, changed)
            if holder is not changed:
                self._log(
                    f"the tools {holder.original.name!r} and {tool.name!r} would both be called {changed.tool.name!r}, so the "
                    "second is left out; give one of them another name in mcp.toml"
                )
        return visible

    def _change(self, tool: Tool) -> TransformedTool | None:
        if not self._chosen.admits(tool):
            return None
        plans: list[ArgumentPlan] = []
        current = tool
        for choice, options in self._transforms.items():
            if matches(choice, current):
                if options.get("hidden"):
                    return None
                current, plan = change_definition(current, options, is_exact=is_tool_name(choice))
                if plan is not None:
                    plans.insert(0, plan)  # the last change is the first that the caller's arguments meet
        return TransformedTool(current, tool, tuple(plans))

    def _log(self, message: str) -> None:
        if message not in self._logged:
            self._logged.add(message)
            log.error("the server %r: %s", self._server, message)
