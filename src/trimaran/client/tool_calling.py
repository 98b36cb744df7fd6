"""Call a tool: with what its definition says, and once more if the reason of a refusal can be removed.

A tool's definition says which arguments travel in headers, whether a lost call may be repeated, and whether it may become
a task. A client that does not know the tool reads the list first. All callers that need the list at once share one reading.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from typing import Any, Final, cast, final

from msgspec import Raw

from trimaran.durations import check_seconds
from trimaran.errors import Closed, HeaderMismatch, ProtocolError, TimedOut, UrlElicitationRequired
from trimaran.protocol.headers import ParamHeaders
from trimaran.protocol.versions import V2025_11
from trimaran.types import Json

from .cache import Cache
from .capability_check import check_offered
from .connection import Connection, Unset
from .known_tools import KnownTool, KnownTools
from .lists import Lists
from .option_types import OnProgress

log: logging.Logger = logging.getLogger("trimaran.client")

Timeout = float | None | type[Unset]

_PASSING: Final = frozenset({429, 502, 503, 504})
_LOOKUPS: Final = 3  # readings of a list that keeps changing
_LOOKUP_PAGES: Final = 50  # to find one tool's definition before it is called


@final
class ToolCalling:
    """The calls of one client."""

    def __init__(self, connection: Connection, lists: Lists, tools: KnownTools, cache: Cache) -> None:
        self._connection = connection
        self._options = connection.options
        self._lists = lists
        self._tools = tools
        self._cache = cache
        self._looking: asyncio.Task[dict[str, KnownTool]] | None = None

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any] | None,
        meta: Mapping[str, Json] | None,
        *,
        idempotent: bool | None,
        timeout: Timeout,
        max_timeout: float | None = None,
        on_progress: OnProgress | None = None,
        extension: str | None = None,
        wish: dict[str, int] | None = None,
    ) -> tuple[Raw, KnownTool | None]:
        check_offered(self._connection, "tools/call")
        tool = self._tools.get(name)
        if tool is None and not self._tools.is_complete:
            tool, timeout = await self._look_up(name, timeout)
        params: dict[str, Any] = {"name": name}
        if wish is not None and self._may_request_task(tool):
            params["task"] = wish
        if arguments is not None:
            params["arguments"] = arguments
        if meta:
            params["_meta"] = meta
        repeatable = idempotent if idempotent is not None else tool is not None and tool.is_repeatable
        for attempt in (1, 2):
            try:
                raw, _ = await self._connection.call(
                    "tools/call",
                    params,
                    name=name,
                    headers=None if tool is None or tool.headers is None else _mirrored(tool.headers, arguments),
                    timeout=timeout,
                    max_timeout=max_timeout,
                    on_progress=on_progress,
                    repeatable=repeatable,
                    extension=extension,
                )
                return raw, tool
            except (HeaderMismatch, UrlElicitationRequired) as refusal:
                if attempt == 2:
                    raise
                tool, timeout = await self._recover(refusal, name, tool, timeout)
        raise AssertionError("unreachable")

    def _may_request_task(self, tool: KnownTool | None) -> bool:
        """True if the client may ask for a task: only on 2025-11-25. On later revisions the server decides."""
        welcome = self._connection.conversation.welcome
        has_tasks = welcome.version == V2025_11 and "tasks" in welcome.capabilities
        return has_tasks and (tool is None or tool.may_be_task)

    async def _recover(
        self, refusal: HeaderMismatch | UrlElicitationRequired, name: str, tool: KnownTool | None, timeout: Timeout
    ) -> tuple[KnownTool | None, Timeout]:
        """Remove the reason of a refusal, so that the call can be sent once more; raise the refusal if that is impossible."""
        if isinstance(refusal, HeaderMismatch):
            # REQ headers.relist: the schema the headers were made from may be stale.
            self._tools.forget()
            self._cache.drop("tools/list")
            return await self._look_up(name, timeout)
        if not await self._ask_to_visit(refusal):
            raise refusal
        return tool, timeout

    async def _ask_to_visit(self, refusal: UrlElicitationRequired) -> bool:
        """Ask a person to visit the URLs a call waits for (-32042); True if all were accepted."""
        if self._connection.asks.on_elicit is None or not refusal.elicitations:
            return False
        for params in refusal.elicitations:
            if not isinstance(params, dict):
                return False
            answer = await self._connection.ask("elicitation/create", {**params, "mode": "url"})
            if answer.action != "accept":
                return False
        return True

    async def _look_up(self, name: str, timeout: Timeout) -> tuple[KnownTool | None, Timeout]:
        """A tool's definition from the server's list, and the time that is left for the call.

        All who need the list at once share one reading of it. None: it is not there, or the list cannot be obtained.
        """
        seconds = cast("float | None", self._options.timeout if timeout is Unset else timeout)
        check_seconds("timeout", seconds)  # before what is left of it looks like nothing of the kind
        started = time.monotonic()
        if self._looking is None or self._looking.done():
            self._looking = self._connection.spawn(self._learn_tools())
            self._looking.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            async with asyncio.timeout(seconds):
                tools = await asyncio.shield(self._looking)
        except TimeoutError:
            raise TimedOut(
                f"the tools could not be listed within {seconds or 0:g} s, before {name} was called"
            ) from None
        except asyncio.CancelledError:
            if self._connection.is_closing:
                raise Closed("the client was closed") from None
            raise
        left = None if seconds is None else max(seconds - (time.monotonic() - started), 0.001)
        return tools.get(name), left

    async def _learn_tools(self) -> dict[str, KnownTool]:
        """Read the list; what it says. A change that is heard meanwhile makes the next call read it again, not this one."""
        is_whole = False
        for _ in range(_LOOKUPS):
            began = self._tools.generation
            is_whole = await self._read_tools()
            if self._tools.generation == began:
                self._tools.is_complete = is_whole
                break
        return self._tools.now(is_whole=is_whole)

    async def _read_tools(self) -> bool:
        """Take note of every page; False if the list cannot be obtained at the moment."""
        cursor: str | None = None
        seen: set[str] = set()
        try:
            for _ in range(_LOOKUP_PAGES):
                cursor = (await self._lists.fetch("tools/list", cursor, is_internal=True)).next_cursor
                if cursor is None or cursor in seen:
                    break
                seen.add(cursor)
        except ProtocolError as error:
            log.warning("the tools cannot be listed, so they are called without their schemas: %s", error)
            # A server that refuses for a moment is asked again with the next call; one that has no such list is not.
            return error.status not in _PASSING
        return True


def _mirrored(headers: ParamHeaders, arguments: Mapping[str, Any] | None) -> dict[str, str]:
    values: Any = arguments or {}
    if not isinstance(values, dict):
        from trimaran.schema.convert import to_jsonable

        values = to_jsonable(values)
    return dict(headers.mirror(cast("dict[str, Any]", values)))
