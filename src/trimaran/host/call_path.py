"""Calls of servers' tools: from a name and arguments to a result that may be passed on.

    name -> server and tool -> decision -> question, if the rules say ask -> call -> limits -> result

Nothing is sent before the decision is an allow. The host sends exactly what was decided about: it copies the arguments first, and
a tool that changed while a person thought about it is not called.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, cast, final

from trimaran.client.client import Client
from trimaran.client.results import ToolResult
from trimaran.errors import Error, LocalProtocolError

from .approvals import Approvals
from .config.model import Touch
from .config.values import LONGEST
from .consent import ConsentLost
from .context.activation import ActiveTools
from .context.own_tools import OwnCallOptions
from .held_definitions import HeldDefinitions
from .long_results import LongResults
from .names import Address, UnknownName
from .oversight import Oversight
from .permissions import Explanation, Gate, Subject
from .server_table import ServerTable
from .supervise import SupervisedServer
from .tool_catalog import ToolCatalog

# Seconds left for a call whose server came up at the last moment: it is sent, and times out as a call.
_LEAST: Final = 0.01


@final
class ServerCalls:
    """The calls that one host makes."""

    def __init__(
        self,
        servers: ServerTable,
        catalog: ToolCatalog,
        active: ActiveTools,
        *,
        gate: Gate,
        approvals: Approvals,
        oversight: Oversight,
        held_definitions: HeldDefinitions,
        long_results: LongResults,
    ) -> None:
        self._servers = servers
        self._catalog = catalog
        self._active = active
        self._gate = gate
        self._approvals = approvals
        self._oversight = oversight
        self._held_definitions = held_definitions
        self._long_results = long_results

    def find(self, name: str) -> Address:
        """See `Host.find`."""
        try:
            return self._catalog.find(name)
        except UnknownName:
            self._held_definitions.refuse(name)
            for server in self._servers.values():
                if (
                    not server.tools
                    and server.state != "connected"
                    and self._catalog.tool_part(server.name, name) is not None
                ):
                    server.require()
            raise

    async def _find_awake(
        self, name: str, arguments: Mapping[str, object], timeout: float | None
    ) -> tuple[Address, float]:
        """The address of the tool, and the seconds that its server took to start.

        It starts a lazy server, and waits for a starting one as long as the call may take. It does neither if the rules
        forbid the call for certain.
        """
        waited = 0.0
        for server in sorted(self._servers.coming(), key=lambda server: -len(server.name)):
            tool = self._catalog.tool_part(server.name, name)
            if tool is None:
                continue
            if name in self._catalog:
                break
            self._approvals.forbid(Subject.tool(server.name, tool, safe=self._servers.safe[server.name]), arguments)
            waited += await _wait_for(server, _limit_of(server, tool, timeout) - waited)
        address = self.find(name)
        server = self._servers.require(address.server)
        if server.state == "starting":  # its tools are known from before it was started again
            listed = self._catalog.tools[address]
            self._approvals.forbid(listed.act, listed.guess_arguments(arguments))
            waited += await _wait_for(server, _limit_of(server, listed.original.name, timeout) - waited)
        return address, waited

    async def call(
        self, name: str, arguments: Mapping[str, object] | None, options: OwnCallOptions, *, is_for_code: bool = False
    ) -> ToolResult:
        """See `Host.call`.

        Args:
            is_for_code: The result stays outside of every context, so it is not shortened.
        """
        sent_arguments = copied_object(name, arguments)
        timeout, max_timeout = options.get("timeout"), options.get("max_timeout")
        conversation = options.get("conversation", "")
        address, waited = await self._find_awake(name, sent_arguments, timeout)
        self._active.touch(address)
        server = self._servers.require(address.server)
        server.require()
        listed = self._catalog.tools[address]
        if listed.transformed is not None:
            sent_arguments = listed.transformed.map_arguments(sent_arguments, name)
        why = self._oversight.before(
            address.server,
            listed.original,
            name,
            sent_arguments,
            listed.reasons,
            conversation,
            attended=self._approvals.is_attended,
        )
        await self._approvals.permit(
            listed.act,
            listed.original,
            sent_arguments,
            approved=options.get("approved", False),
            reasons=why.reasons,
            refuse=why.refuse,
        )
        known = self._catalog.tools.get(address)
        if known is None or known.act != listed.act or self._servers.get(address.server) is not server:
            raise LocalProtocolError.invalid_params(
                f"{name} changed while it was decided whether it may be called; look at it again, and call it again"
            )
        limit = _limit_of(server, listed.original.name, timeout)
        if waited:
            limit = max(limit - waited, _LEAST)
        client = server.require()
        lost_before = self._approvals.lost(address.server)
        try:
            result = await client.call_tool(
                listed.original.name,
                sent_arguments,
                timeout=limit,
                max_timeout=limit if max_timeout is None else max(min(max_timeout, LONGEST), limit),
                on_progress=options.get("on_progress"),
                meta=options.get("meta"),
                raise_on_error=False,
            )
        except Error as error:
            self.suspect(address.server, client, error)
            self._raise_lost(address.server, lost_before, str(error))
            self._oversight.failed(address.server, name, str(error), conversation)
            raise
        if result.is_error:
            self._raise_lost(address.server, lost_before, result.text)
            server.look_for_missing(result.text)
        passed_on = result if is_for_code else self._long_results.shorten(result, server, name)
        return await self._oversight.after(address.server, listed.original, name, passed_on, conversation)

    def _raise_lost(self, server: str, before: ConsentLost | None, text: str) -> None:
        """Raise ConsentLost if the call failed because a person left during a question of the server.

        The text of the failure must say so, because the question may belong to another call of the same server.
        """
        lost = self._approvals.lost(server)
        if lost is not None and lost is not before and str(lost) in text:
            raise ConsentLost(str(lost))

    def suspect(self, name: str, client: Client, error: Error) -> None:
        """Have a server looked at that failed to answer."""
        server = self._servers.get(name)
        if server is not None and server.client is client:  # one that is gone says nothing about the next
            server.suspect(error)

    def explain(self, name: str, arguments: Mapping[str, object] | None, conversation: str) -> Explanation:
        """See `Host.explain`."""
        if name.startswith("Elicit(") and name.endswith(")"):
            server = name[7:-1]
            return self._gate.explain(Subject.elicit(server, safe=self._servers.safe.get(server, "")))
        address = self.find(name)
        listed = self._catalog.tools[address]
        known_arguments = None if arguments is None else listed.guess_arguments(copied_object(name, arguments))
        why = self._oversight.before(
            address.server, listed.original, name, known_arguments or {}, listed.reasons, conversation, attended=True
        )
        reasons = self._approvals.unanswered(listed.act, why.reasons)
        return self._gate.explain(listed.act, known_arguments, reasons=reasons)

    def touches(self, name: str) -> frozenset[Touch]:
        """See `Host.touches`."""
        address = self.find(name)
        return self._oversight.touches(address.server, self._catalog.tools[address].original)


async def _wait_for(server: SupervisedServer, within: float) -> float:
    """Start the server if it is idle, and wait for it; returns the seconds that passed."""
    clock = asyncio.get_running_loop().time
    began = clock()
    if server.state == "idle":
        server.start()
    await server.settled(max(within, 0.0))
    return clock() - began


def _limit_of(server: SupervisedServer, tool: str, timeout: float | None) -> float:
    """The limit of a call of this tool, in seconds."""
    return min(server.tool_timeouts.get(tool, server.call_timeout) if timeout is None else timeout, LONGEST)


def copied_object(name: str, arguments: Any) -> dict[str, Any]:
    """A copy of the arguments as plain JSON, so that the host sends exactly those that the rules have checked."""
    if arguments is None:
        return {}
    if not isinstance(arguments, Mapping):
        raise LocalProtocolError.invalid_params(
            f"the arguments of {name} are a {type(arguments).__name__}: give an object, or None for none"
        )
    from trimaran.schema.convert import to_jsonable

    try:
        return cast("dict[str, Any]", to_jsonable(dict(cast("Mapping[str, Any]", arguments))))
    except (TypeError, ValueError, RecursionError) as error:
        raise LocalProtocolError.invalid_params(f"the arguments of {name} have no JSON form: {error}") from None
