"""The watch of a host beside its rules: over the texts of servers, and the flow of data through its conversations.

`trust/scan.py` finds words, `trust/flow.py` knows what met in a conversation, `permissions/` decides. Here is what ties them to a
host: how closely each server is watched, what a call must be asked about, and what of a result is passed on.

    definition     grave findings, withheld from the model          -> every call of that tool asks
    arguments      keys, paths, addresses that should not leave     -> this call asks
    result, error  orders to the model                              -> later calls of the conversation ask
    flow           private data and strangers' words have met       -> a call that can reach outside asks

The scan is loaded with the first definitions, and not with the host: its table of patterns takes a while to compile.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, cast, final

from trimaran.client.results import ToolResult
from trimaran.errors import ConfigError
from trimaran.types import Tool

from .config.model import FLOW_MODES, SCAN_MODES, FlowMode, ScanMode, Touch, TrustEntry
from .connect_plan import ConnectPlan

if TYPE_CHECKING:
    from .trust.flow import DataFlow, DataFlows
    from .trust.scan import ScanFinding
    from .trust.scanner import Scanned, Scanner, ScanSetting

log: Final = logging.getLogger("trimaran.host")

_LARGE: Final = 65_536  # characters of a result that is looked at in a thread: a hostile megabyte takes a second


class CallReasons(NamedTuple):
    """Why a call asks, whatever the rules allow."""

    reasons: tuple[str, ...] = ()
    refuse: bool = False
    """The host does not ask: it refuses."""


@final
class Oversight:
    """Watches the servers of one host.

    Args:
        plan: How a server is reached, with its entry of the configuration; None if it is not known.
        note: Called with an event and its fields, for the audit log.
        scan, flow: For the servers that do not say it themselves.
    """

    def __init__(
        self,
        plan: Callable[[str], ConnectPlan | None],
        *,
        note: Callable[..., object],
        scan: ScanMode | None = None,
        flow: FlowMode | None = None,
    ) -> None:
        for name, mode, modes in (("scan", scan, SCAN_MODES), ("flow", flow, FLOW_MODES)):
            if mode is not None and mode not in modes:
                raise ConfigError(f"{name} is one of {', '.join(modes)}, not {mode!r}")
        self._plan = plan
        self._note = note
        self._scan: ScanMode | None = scan
        self._flow: FlowMode | None = flow
        self._scanner: Scanner | None = None
        self._conversations: DataFlows | None = None
        self._touches: dict[tuple[str, str], tuple[Tool, frozenset[Touch]]] = {}

    # --- settings ----------------------------------------------------------------------------------------------------

    def _entry(self, server: str) -> TrustEntry:
        plan = self._plan(server)
        return plan.entry.trust if plan is not None and plan.entry is not None else TrustEntry()

    def _setting(self, server: str) -> ScanSetting:
        from .trust.scanner import ScanSetting

        entry = self._entry(server)
        mode: ScanMode = entry.scan or self._scan or "ask"
        return ScanSetting(mode, frozenset(entry.allow))

    def _flow_mode(self, server: str, *, attended: bool) -> FlowMode:
        """Unless it is said, a call is held up where a person can be asked, and only logged where nobody can."""
        unsaid: FlowMode = "ask" if attended else "warn"
        return self._entry(server).flow or self._flow or unsaid

    @property
    def scanner(self) -> Scanner:
        """The scan, which is loaded when it is first needed."""
        if self._scanner is None:
            from .trust.scanner import Scanner

            self._scanner = Scanner(self._setting, note=self._note)
        return self._scanner

    def conversation(self, name: str = "") -> DataFlow:
        """The conversation of this name; a new one, if there is none."""
        if self._conversations is None:
            from .trust.flow import DataFlows

            self._conversations = DataFlows()
        return self._conversations.get(name)

    # --- definitions -------------------------------------------------------------------------------------------------

    async def tools(self, server: str, tools: Mapping[str, Tool], others: Collection[tuple[str, str]]) -> Scanned:
        """Look at what a server lists."""
        scanner = self.scanner
        # In a thread: a server chooses how much there is to read. The findings are kept, and the rest is quick.
        await asyncio.to_thread(scanner.read_ahead, server, tools)
        return scanner.tools(server, tools, others)

    def forget(self, server: str) -> None:
        """The server is gone."""
        if self._scanner is not None:
            self._scanner.forget(server)

    def findings(self, server: str | None = None) -> list[ScanFinding]:
        """The findings in the texts of servers."""
        return [] if self._scanner is None else self._scanner.findings(server)

    def touches(self, server: str, tool: Tool) -> frozenset[Touch]:
        """The things that a call of this tool touches."""
        cached = self._touches.get((server, tool.name))
        if cached is not None and cached[0] is tool:
            return cached[1]
        from .trust.touches import touches_of

        touches = touches_of(tool, configured=self._configured(server, tool.name), hints=_hints(self._plan(server)))
        self._touches[server, tool.name] = (tool, touches)
        return touches

    def _configured(self, server: str, tool: str) -> tuple[Touch, ...] | None:
        plan = self._plan(server)
        if plan is None or plan.entry is None:
            return None
        settings = plan.entry.tools.get(tool)
        return settings.touches if settings is not None and settings.touches is not None else plan.entry.trust.touches

    # --- calls -------------------------------------------------------------------------------------------------------

    def before(
        self,
        server: str,
        tool: Tool,
        name: str,
        arguments: Mapping[str, object],
        reasons: Iterable[str],
        conversation: str,
        *,
        attended: bool,
    ) -> CallReasons:
        """Why a call asks.

        Args:
            name: The tool's name in the catalog.
            reasons: Those of the definition.
        """
        known = self.conversation(conversation)
        touches = self.touches(server, tool)
        collected = list(reasons)
        graves = [
            item for item in self.scanner.arguments(arguments, server=server, subject=name) if item.severity == "ask"
        ]
        if "outside" not in touches and self._is_private(server, tool, touches):
            graves = [item for item in graves if item.id != "secret-argument"]  # nothing leaves
        if self.scanner.is_asking(server):
            collected += map(str, graves)
            is_pure = self._configured(server, tool.name) == ()
            collected += known.orders(frozenset() if is_pure else touches or None)
        leak = known.leak(name, touches)
        mode = self._flow_mode(server, attended=attended) if leak else "off"
        if leak and mode == "warn":
            log.warning("%s", leak)
            self._note("flow", server=server, tool=name, reason=leak)
        elif leak and mode != "off":
            collected.append(leak)
        return CallReasons(tuple(dict.fromkeys(collected)), leak != "" and mode == "refuse")

    def _is_private(self, server: str, tool: Tool, touches: frozenset[Touch]) -> bool:
        """Whether somebody said that the tool stays inside: the configuration, or what is known of the server."""
        from .trust.touches import known_touches

        if self._configured(server, tool.name) is not None:
            return True
        return known_touches(_hints(self._plan(server)), tool.name) is not None

    async def after(self, server: str, tool: Tool, name: str, result: ToolResult, conversation: str) -> ToolResult:
        """A result as it is passed on. The conversation remembers what came with it."""
        scanner = self.scanner
        if sum(len(getattr(block, "text", "")) for block in result.content) > _LARGE:
            passed_on, findings = await asyncio.to_thread(scanner.result, result, server=server, subject=name)
        else:
            passed_on, findings = scanner.result(result, server=server, subject=name)
        asks = self.scanner.is_asking(server)
        self.conversation(conversation).add(name, self.touches(server, tool), findings if asks else ())
        return passed_on

    def failed(self, server: str, name: str, text: str, conversation: str) -> None:
        """An error of a server reaches the model as text."""
        findings = self.scanner.text(text, "error", server=server, subject=name)
        if findings and self.scanner.is_asking(server):
            self.conversation(conversation).add(name, frozenset(), findings)

    def resource(self, server: str, uri: str, text: str) -> str:
        """The text of a resource as it is passed on, in a message of the person's."""
        findings = self.scanner.text(text, "result", server=server, subject=uri)
        if findings and self.scanner.is_asking(server):
            self.conversation().add(uri, frozenset(), findings)
        return self.scanner.clean(text, server)

    def look(self, server: str, place: Literal["elicitation", "sampling"], text: str) -> tuple[str, ...]:
        """Warnings about what a server asks a person or a model."""
        findings = self.scanner.text(text, place, server=server)
        return tuple(dict.fromkeys(str(item) for item in findings if item.severity == "ask"))


def _hints(plan: ConnectPlan | None) -> list[str]:
    """The words that say which program or service a server is."""
    target: Any = plan.target if plan is not None else None
    if isinstance(target, str):
        return [target]
    if isinstance(target, Mapping):
        table = cast("Mapping[str, Any]", target)
        return [str(table.get("command") or ""), *map(str, table.get("args") or ()), str(table.get("url") or "")]
    return [str(word) for word in cast("list[Any]", target)] if isinstance(target, (list, tuple)) else []
