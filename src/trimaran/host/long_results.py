"""Results that are too long for the host's limits: shortened, kept, and read on.

`output_limits.py` cuts and keeps; here are the limits of each server, and what the host knows about how a result of `call` was
cut, for a model's shorter form of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, Final, cast, final
from weakref import WeakKeyDictionary

import msgspec
from msgspec import UNSET, Raw
from msgspec.structs import replace

from trimaran.client.results import ToolResult
from trimaran.types import CallToolResult

from .context.own_tools import OwnCallOptions
from .context.read_output import READ_OUTPUT, output_folder, run_read_output
from .output_limits import LimitedOutput, OutputLimits, OutputPage, OutputStore, limit_output
from .supervise import SupervisedServer

_OWNER: Final = "host"


@final
class LongResults:
    """The limits for results of one host, and what was cut.

    Args:
        limits, outputs: As for `Host`.
        variables: The environment.
    """

    def __init__(
        self,
        limits: OutputLimits | None,
        outputs: bool | str | os.PathLike[str] | None,
        variables: Mapping[str, str],
    ) -> None:
        self._limits = (limits or OutputLimits()).with_environment(variables)
        self._store = OutputStore(folder=output_folder(outputs, variables))
        self._cuts: Final[WeakKeyDictionary[ToolResult, LimitedOutput]] = WeakKeyDictionary()
        self.has_cut_for_model: bool = False
        """Was a result cut, so that a model may want to read it on?"""

    def _limits_of(self, server: SupervisedServer | None) -> OutputLimits:
        own = None if server is None else server.output_limit
        return self._limits if own is None else replace(self._limits, bytes=own)

    def limit(self, result: CallToolResult | ToolResult, server: SupervisedServer, source: str) -> LimitedOutput:
        """A result within the limits of its server."""
        return limit_output(result, self._limits_of(server), shelf=self._store, owner=_OWNER, source=source)

    def shorten(self, result: ToolResult, server: SupervisedServer, source: str) -> ToolResult:
        """A result of a call within the limits of its server."""
        limited = self.limit(result, server, source)
        if not limited.notices:
            return result
        shortened = limited.result
        passed_on = ToolResult(
            list(cast("Iterable[Any]", shortened.content)),
            shortened.structured_content,
            result.is_error,
            result.meta,
            Raw(msgspec.json.encode(shortened)),
        )
        if limited.is_cut:
            self._cuts[passed_on] = limited._replace(result=CallToolResult(content=[]))
        if shortened.structured_content is not UNSET:
            passed_on.data = result.data
        elif isinstance(result.data, str):
            passed_on.data = passed_on.text
        return passed_on

    def cut_of(self, result: ToolResult) -> LimitedOutput | None:
        """How `shorten` cut this result."""
        return self._cuts.get(result)

    def cut_for_model(
        self, result: CallToolResult, server: SupervisedServer | None, source: str, earlier: LimitedOutput | None
    ) -> CallToolResult:
        """A result cut to the tokens that a model may get, with the way to read it on.

        Args:
            earlier: How it was cut before.
        """
        limited = limit_output(
            result,
            replace(self._limits_of(server), cut_at_tokens=True),
            shelf=self._store,
            owner=_OWNER,
            source=source,
            how=f" with the tool {READ_OUTPUT}",
            earlier=earlier,
        )
        if limited.output_id is not None:
            self.has_cut_for_model = True
        return limited.result

    def page(self, output_id: str, offset: int, limit: int) -> OutputPage:
        """A page of a result that was cut.

        Raises:
            OutputMissing: it is not kept, or no longer.
        """
        return self._store.page(output_id, owner=_OWNER, offset=offset, limit=limit)

    async def run_read_output(self, arguments: dict[str, Any], options: OwnCallOptions) -> ToolResult:
        """The tool `read_output`."""
        return await run_read_output(arguments, self._store, _OWNER, self._limits)

    def close(self) -> None:
        self._store.close()
