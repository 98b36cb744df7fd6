"""From a method's name to the coroutine that serves it: one dictionary, middleware already folded in.

The table is rebuilt when middleware or capabilities change, never per call. Which methods a modern caller may use
(`served`) follows the capabilities the server advertises: what is not advertised does not exist.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, final

import msgspec
from msgspec import Raw

from trimaran.errors import ToolError
from trimaran.protocol.inbound import IncomingCall, MessageReader
from trimaran.protocol.methods import METHODS, Method
from trimaran.protocol.older_revisions import revise_definition
from trimaran.protocol.versions import MODERN
from trimaran.schema.references import is_too_deep, lost_reference
from trimaran.types import (
    DiscoverResult,
    ListPromptsResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    as_object,
)

from .access import is_hidden
from .changes import Listeners
from .completions import Completions
from .context import Context
from .handlers import call_any, is_answer, logger
from .mounted_middleware import mounted_middleware
from .prompts import Prompts
from .registry import EncodedPage, Registry
from .resources import Resources, failure
from .results import decode_result, error_result
from .tools import Tools

if TYPE_CHECKING:
    from .server import Server
    from .startup import Startup
    from .threads import ThreadPool

_PAGES_KEPT = 64
_NOTHING: frozenset[str] = frozenset()

Serve: TypeAlias = Callable[[IncomingCall], Awaitable[Any]]


class Middleware(Protocol):
    """Code around calls: look, change, refuse, or hand on with `await call_next(call)`."""

    async def __call__(self, call: IncomingCall, call_next: Serve, /) -> Any: ...


def _with_digest(field: str, definition: dict[str, Any], version: str) -> dict[str, Any]:
    """The definition with its digest in `_meta`, as the draft for per-primitive digests has it (2026-09).

    Computed when a page is encoded, so no call pays for it. Only for the newest revision: before 2025-06-18 definitions
    have no `_meta`, and some clients of that time refuse what they do not know. Not for resources: their lists are data,
    of thousands at times, and nobody pins them.
    """
    if field == "resources":
        return definition
    from trimaran.protocol.definition_digests import META_KEY, definition_digest, definition_of

    meta = dict(as_object(definition.get("_meta")) or {})
    has_digest = meta.pop(META_KEY, None) is not None  # of the target of a proxy, about its own definition
    if version != MODERN:
        return {**definition, "_meta": meta} if has_digest else definition
    try:
        digest = definition_digest(definition_of(definition))
    except ValueError:
        return definition  # a default that is no JSON number, such as infinity
    return {**definition, "_meta": {**meta, META_KEY: digest}}


class _Listing:
    """One list method: where its items come from, and its encoded pages by revision, cursor and what is hidden."""

    __slots__ = (
        "_entries",
        "_pages",
        "_veiled",
        "_version",
        "callback",
        "field",
        "kind",
        "registry",
        "result",
        "server",
    )

    def __init__(
        self, server: Server, registry: Registry[Any], kind: str, result: Callable[..., Any], field: str, callback: str
    ) -> None:
        self.server = server
        self.registry = registry
        self.kind = kind
        self.result = result
        self.field = field
        self.callback = callback
        self._version = -1
        self._pages: dict[tuple[str, str | None, frozenset[str]], Raw] = {}
        # Both of one moment: what is hidden is found among the very entries that are shown.
        self._entries: list[Any] = []
        self._veiled: list[Any] = []

    async def serve(self, call: IncomingCall) -> Any:
        callbacks = self.server.callbacks
        if callbacks is not None and hasattr(callbacks, self.callback):
            return await self._with_callback(call, getattr(callbacks, self.callback))
        self.registry.check_known()
        version, cursor = call.peer.version, call.params.cursor
        if self._version != self.registry.version:
            self._look()
        hidden = self._hidden(call.principal) if self._veiled else _NOTHING
        page = self._pages.get((version, cursor, hidden))
        if page is None:
            page = self.server.runtime.dispatcher.encode_page(self._page(version, cursor, hidden), version)
            # Cursors come from outside: a few pages are what honest clients ask for.
            if len(self._pages) >= _PAGES_KEPT:
                self._pages.clear()
            self._pages[(version, cursor, hidden)] = page
        return page

    def _look(self) -> None:
        """Follow a change of the registry."""
        self._version = self.registry.version
        self._pages.clear()
        self._entries = self.registry.entries()
        self._veiled = [e for e in self._entries if e.visible_to is not None]

    def _hidden(self, principal: Any) -> frozenset[str]:
        return frozenset(e.key for e in self._veiled if is_hidden(e, principal))

    async def typed(self, call: IncomingCall) -> Any:
        """The same as a struct, for middleware to look at."""
        result = await self.serve(call)
        if not isinstance(result, Raw):
            return result
        return self._page(call.peer.version, call.params.cursor, self._hidden(call.principal))

    def _page_without(self, cursor: str | None, hidden: frozenset[str]) -> EncodedPage[Any]:
        entries = [e for e in self._entries if e.key not in hidden] if hidden else self._entries
        return self.registry.page(cursor, self.server.page_size, entries)

    def _page(self, version: str, cursor: str | None, hidden: frozenset[str]) -> Any:
        page = self._page_without(cursor, hidden)
        items = [
            _with_digest(self.field, revise_definition(self.kind, msgspec.to_builtins(e.definition), version), version)
            for e in page.entries
        ]
        result = self.result(**{self.field: items}, next_cursor=page.next_cursor)
        ttls = (
            [t for e in page.entries if (t := getattr(e, "cache_ttl", None)) is not None] if self.kind == "tool" else []
        )
        return self._hinted(result, min(ttls, default=None))

    def _hinted(self, result: Any, ttl: float | None, *, is_private: bool = False) -> Any:
        # A list that depends on who asks is its asker's own, whatever this one was shown.
        return self.server.runtime.dispatcher.with_cache_hints(result, ttl, is_private=is_private or bool(self._veiled))

    async def _with_callback(self, call: IncomingCall, callback: Callable[..., Any]) -> Any:
        """Declared items first, then the callback's, whose cursors are marked so that each side meets its own."""
        version, cursor = call.peer.version, call.params.cursor
        if self._version != self.registry.version:
            self._look()
        items: list[Any] = []
        if cursor is None or not cursor.startswith("callback:"):
            page = self._page_without(cursor, self._hidden(call.principal))
            items = [revise_definition(self.kind, msgspec.to_builtins(e.definition), version) for e in page.entries]
            if page.next_cursor is not None:
                listed = self.result(**{self.field: items}, next_cursor=page.next_cursor)
                return self._hinted(listed, None, is_private=call.principal is not None)
            cursor = None
        else:
            cursor = cursor.removeprefix("callback:")
        try:
            value = await call_any(callback, cursor, Context(call, self.server))
        except Exception as error:
            if is_answer(error):
                raise
            raise failure(self.callback, error, self.server) from None
        listed, following = value if isinstance(value, tuple) else (value, None)  # pyright: ignore[reportUnknownVariableType]
        own = [self._offered(msgspec.to_builtins(i), version) for i in listed or ()]  # pyright: ignore[reportUnknownVariableType]
        marked = None if following is None else f"callback:{following}"
        result = self.result(**{self.field: items + own}, next_cursor=marked)
        # The callback knows who asks, so its list may be for nobody else.
        return self._hinted(result, None, is_private=call.principal is not None)

    def _offered(self, definition: dict[str, Any], version: str) -> dict[str, Any]:
        """A definition of the callback's, as this revision lists it. Nobody looked at it before it came here."""
        output = as_object(definition.get("outputSchema"))
        lost = None if output is None else lost_reference(output)
        if lost is not None:
            # Clients compile every output schema when they list the tools: a broken one would cost them all tools.
            place, ref = lost
            logger.warning(
                "the output schema of %s is left out: %r leads nowhere (at %s)", definition["name"], ref, place
            )
            del definition["outputSchema"]
        elif output is not None and is_too_deep(output):
            logger.warning("the output schema of %s is left out: it is nested too deeply", definition["name"])
            del definition["outputSchema"]
        return revise_definition(self.kind, definition, version, is_declared=False)


@final
class Dispatcher:
    """Every method this server serves."""

    def __init__(
        self, server: Server, startup: Startup, threads: ThreadPool, *, cache_ttl: float, cache_scope: str
    ) -> None:
        self._server = server
        self.startup = startup
        self._cache_ttl = cache_ttl
        self._cache_scope = cache_scope
        self.handlers: dict[str, Serve] = {}
        """Method to coroutine, middleware included. Looked up once per call."""
        self.served: dict[str, Method] = {}
        """The rows a modern caller may use."""
        self.groups: frozenset[str] = frozenset()
        """The capabilities advertised, by name."""
        self.edition: object = None
        """Another object whenever `handlers` has changed."""
        self._middleware: list[tuple[frozenset[str] | None, Middleware]] = []
        self._travelling: list[tuple[frozenset[str] | None, Middleware]] = []
        self.on_fold: list[Callable[[], None]] = []
        """Servers that have this one mounted: they fold its middleware into theirs."""
        self.takes_shortcuts: bool = False
        """Tools may be called by shortcuts: nothing is around `tools/call`, and some are those of other servers."""
        self._relays = False
        self._extra: dict[str, tuple[Method, Serve]] = {}
        self.table: dict[str, Method] = dict(METHODS)
        """Every method there is, those of extensions included. Readers hold on to this very table."""
        listings = {
            "tools/list": _Listing(server, server.tools, "tool", ListToolsResult, "tools", "list_tools"),
            "prompts/list": _Listing(server, server.prompts, "prompt", ListPromptsResult, "prompts", "list_prompts"),
            "resources/list": _Listing(
                server, server.resources, "resource", ListResourcesResult, "resources", "list_resources"
            ),
            "resources/templates/list": _Listing(
                server,
                server.templates,
                "resource",
                ListResourceTemplatesResult,
                "resource_templates",
                "list_resource_templates",
            ),
        }
        self._listings = listings
        self.resources: Resources = Resources(server)
        self.tools: Tools = Tools(server, threads)
        self._bare: dict[str, Serve] = {
            "tools/call": self.tools.call,
            "resources/read": self.resources.read,
            "prompts/get": Prompts(server).get,
            "completion/complete": Completions(server).complete,
            "subscriptions/listen": Listeners(server).listen,
            "server/discover": self._discover,
            **{name: listing.serve for name, listing in listings.items()},
        }
        self._signature: object = None
        self.refresh()

    def use(self, middleware: Middleware, methods: frozenset[str] | None, *, travels: bool = False) -> None:
        """Put code around calls. `travels`: also where this server is mounted, around the calls that it serves there."""
        self._middleware.append((methods, middleware))
        if travels:
            self._travelling.append((methods, middleware))
        self.fold()

    def relay(self) -> None:
        """The tools of this server are those of another one."""
        self._relays = True
        self.fold()

    @property
    def is_relaying(self) -> bool:
        """Are there tools of other servers, here or in what is mounted here?"""
        return self._relays or any(other.runtime.dispatcher.is_relaying for other in self.startup.mounted)

    def travelling(self, method: str) -> list[Middleware]:
        """The middleware that goes with this server where it is mounted, the outermost first."""
        own = [m for methods, m in self._travelling if methods is None or method in methods]
        return own + self._of_mounted(method)

    def _of_mounted(self, method: str) -> list[Middleware]:
        mounted = dict.fromkeys(self.startup.mounted)  # one may be mounted twice, with two prefixes
        return [m for other in mounted if (m := mounted_middleware(self._server, other, method)) is not None]

    def extend(self, row: Method, serve: Serve) -> None:
        """Add a method an extension brings."""
        self._extra[row.name] = (row, serve)
        self.table[row.name] = row
        self._bare[row.name] = serve
        self._signature = None
        self.refresh()

    def refresh(self) -> None:
        """Follow a change of what the server offers. Cheap when the change does not touch its capabilities."""
        capabilities = self._server.capabilities()
        self.groups = frozenset(capabilities)
        signature = (self.groups, len(self._extra))
        if signature == self._signature:
            return
        self._signature = signature
        rows = self.rows()
        served = {
            n: r
            for n, r in rows.items()
            if r.modern and n in self._bare and (r.capability is None or r.capability in capabilities)
        }
        # In place and never empty in between: readers hold on to this very table.
        self.served.update(served)
        for gone in self.served.keys() - served.keys():
            self.served.pop(gone, None)
        self.fold()

    def rows(self) -> Mapping[str, Method]:
        """Every method there is, those of extensions included."""
        return self.table

    def fold(self) -> None:
        """Put the middleware, and whatever the first call waits for, around every method."""
        self.edition = object()
        gates = [self.startup.gate] if self.startup.needed and not self.startup.ready else []
        for name, bare in self._bare.items():
            wrapping = [m for methods, m in self._middleware if methods is None or name in methods]
            wrapping += self._of_mounted(name)
            serve = self._listings[name].typed if wrapping and name in self._listings else bare
            if wrapping and name == "tools/call":
                serve = _typed(serve)
            # The first declared is the outermost: it sees the call first and the result last.
            for middleware in reversed([*gates, *wrapping]):
                serve = _around(middleware, serve)
            # A tool's own errors are dealt with inside; middleware may raise them too.
            self.handlers[name] = _report_errors_to_model(serve) if wrapping and name == "tools/call" else serve
        is_direct = self.handlers["tools/call"] is self._bare["tools/call"]
        self.takes_shortcuts = is_direct and self.is_relaying
        for follow in self.on_fold:
            follow()

    def reader(self, *, legacy: bool = True) -> MessageReader:
        return MessageReader(self.served, rows=self.table, legacy=legacy)

    def with_cache_hints(self, result: Any, ttl: float | None, *, is_private: bool = False) -> Any:
        """The result with how long and by whom it may be cached; the legacy voice leaves these out again.

        A result from another server has hints already. Its time stays, and a private one stays private.
        """
        if result.ttl_ms is None:
            result.ttl_ms = round((self._cache_ttl if ttl is None else ttl) * 1000)
        if is_private or result.cache_scope != "private":
            result.cache_scope = "private" if is_private else self._cache_scope
        return result

    def encode_page(self, result: Any, version: str) -> Raw:
        """A list result, encoded once for everyone who speaks this revision."""
        writer = self._server.runtime.writer
        if version == MODERN:
            return Raw(writer.encode(writer.completed(result)))
        result.ttl_ms = result.cache_scope = None
        return Raw(writer.encode(result))

    async def _discover(self, call: IncomingCall) -> DiscoverResult:
        server = self._server
        result = DiscoverResult(
            supported_versions=list(call.versions),
            capabilities=server.capabilities(),
            instructions=server.instructions,
        )
        return self.with_cache_hints(result, None)


def _typed(serve: Serve) -> Serve:
    """Middleware sees results as structs, those of a proxied tool too."""

    async def call_tool(call: IncomingCall) -> Any:
        result = await serve(call)
        return decode_result(result) if isinstance(result, Raw) else result

    return call_tool


def _report_errors_to_model(serve: Serve) -> Serve:
    async def call_tool(call: IncomingCall) -> Any:
        try:
            return await serve(call)
        except ToolError as error:
            return error_result(error)

    return call_tool


def _around(middleware: Middleware, serve: Serve) -> Serve:
    def call_through(call: IncomingCall) -> Awaitable[Any]:
        return middleware(call, serve)

    return call_through
