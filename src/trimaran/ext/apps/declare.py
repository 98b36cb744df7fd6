"""`Apps`: a server's views.

    apps = Apps()
    apps.attach(server)

    @apps.view("ui://weather/dashboard", csp=Csp(connect_domains=("https://api.weather.example",)))
    def dashboard() -> str:
        return Path("dashboard.html").read_text()

    @server.tool(meta=ui_tool("ui://weather/dashboard"))
    def forecast(city: str) -> Forecast: ...

A view is a resource with a type of its own; its `_meta.ui` goes where hosts look for it, on the contents, and on the
listing for those who look there. A client that does not know views gets the tools as tools, without those that only a
view should call. Nothing is rendered here.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar, Unpack, final

from trimaran.errors import DeclarationError
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.meta import Peer
from trimaran.server.context import Context
from trimaran.server.dispatch import Serve
from trimaran.server.resources import AnyResourceOptions, ResourceOptions
from trimaran.server.server import Server
from trimaran.types import Json, Resource, ResourceTemplate

from .metadata import IDENTIFIER, MIME_TYPE, ViewMeta, check_view_uri, ui_of
from .policy import Csp

F = TypeVar("F", bound=Callable[..., Any])

_NO_TOOLS: Final[frozenset[str]] = frozenset()


class ViewOptions(AnyResourceOptions, total=False):
    """The keywords of `Apps.view` and `add_view`: those of a resource, whose type is fixed, and the view's own."""

    csp: Csp | Mapping[str, Sequence[str]] | None
    permissions: Iterable[str]
    domain: str | None
    prefers_border: bool | None


def supports_ui(ctx: Context | Peer) -> bool:
    """Whether the client of this call can show views. If not, put everything into the text."""
    peer = ctx.peer if isinstance(ctx, Context) else ctx
    settings = peer.extension(IDENTIFIER)
    types: Any = None if settings is None else settings.get("mimeTypes")
    return isinstance(types, (list, tuple)) and MIME_TYPE in types


@final
class Apps:
    """The views of one server. Off until `attach`; declare views before or after it."""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._waiting: list[tuple[str, Callable[..., Any], ResourceOptions]] = []
        self._is_filtering = False
        self._app_only: tuple[int, frozenset[str]] = (-1, _NO_TOOLS)

    def attach(self, server: Server) -> None:
        """Offer the views on this server, and tell clients that there are some."""
        if self._server is not None:
            raise DeclarationError("these Apps are attached already; a second server has Apps of its own")
        self._server = server
        server.enable_extension(IDENTIFIER, {})
        server.tools.watch(self._follow)
        self._follow()
        waiting, self._waiting = self._waiting, []
        for uri, fn, options in waiting:
            server.add_resource(uri, fn, **options)

    def view(self, uri: str, **options: Unpack[ViewOptions]) -> Callable[[F], F]:
        """Declare a view: the function returns its HTML, as text or bytes. The function stays as it is.

        Options: csp, permissions, domain, prefers_border, and those of a resource but for mime_type: name, title,
        description, annotations, icons, meta, size, cache_ttl, inline, scopes, visible_to.
        """
        if callable(uri):
            raise DeclarationError('a view needs its URI: @apps.view("ui://weather/dashboard")')

        def declare(fn: F) -> F:
            self.add_view(uri, fn, **options)
            return fn

        return declare

    def add_view(
        self,
        uri: str,
        html: str | bytes | Path | Callable[..., object],
        **options: Unpack[ViewOptions],
    ) -> Resource | ResourceTemplate | None:
        """Declare a view from its HTML, a file (read at each request) or a function.

        Raises:
            DeclarationError: the view cannot work as declared, or would ask for more than it says.
        """
        label = f"view {check_view_uri(uri)!r}"
        if "mime_type" in options:
            raise DeclarationError(f"{label}: the type of a view is always {MIME_TYPE}; leave mime_type out")
        meta = options.pop("meta", None) or {}
        if "ui" in meta:
            raise DeclarationError(
                f"{label}: give csp=, permissions=, domain= and prefers_border= instead of meta['ui']"
            )
        ui = ViewMeta.declare(
            label,
            csp=options.pop("csp", None),
            permissions=options.pop("permissions", ()),
            domain=options.pop("domain", None),
            prefers_border=options.pop("prefers_border", None),
        ).to_json()
        whole: dict[str, Json] = {**meta, **({"ui": ui} if ui else {})}
        if isinstance(html, (str, bytes)):
            options.setdefault("inline", True)
        resource: ResourceOptions = {**options, "mime_type": MIME_TYPE, "meta": whole or None}  # pyright: ignore[reportAssignmentType] - the four of a view are popped
        fn = _source(html, whole, label)
        if self._server is None:
            self._waiting.append((uri, fn, resource))
            return None
        return self._server.add_resource(uri, fn, **resource)

    def check(self) -> None:
        """See that every tool's view is there; DeclarationError names the first that is not. For tests and start-up."""
        server = self._attached()
        for entry in server.tools.entries():
            ui = ui_of(entry.definition)
            if ui.problems:
                raise DeclarationError(f"tool {entry.key!r}: {ui.problems[0]}")
            uri = ui.resource_uri
            if uri is None:
                continue
            view = server.resources.get(uri) or next(
                (t for t in server.templates.entries() if t.template.match(uri) is not None), None
            )
            if view is None or view.definition.mime_type != MIME_TYPE:
                raise DeclarationError(
                    f"tool {entry.key!r} has the view {uri!r}, which is not declared; write @apps.view({uri!r})"
                )

    def _attached(self) -> Server:
        if self._server is None:
            raise DeclarationError("these Apps belong to no server yet: apps.attach(server)")
        return self._server

    # Clients that know no views

    def _hidden(self) -> frozenset[str]:
        """The tools that only a view may call."""
        tools = self._attached().tools
        version, hidden = self._app_only
        if version != (now := tools.version):
            hidden = frozenset(e.key for e in tools.entries() if "model" not in ui_of(e.definition).visibility)
            self._app_only = (now, hidden)
        return hidden

    def _follow(self) -> None:
        # Only when there is something to hide: an unfiltered list is encoded once and served as bytes.
        if not self._is_filtering and self._hidden():
            self._is_filtering = True
            self._attached().middleware("tools/list")(self._filter)

    async def _filter(self, call: IncomingCall, call_next: Serve, /) -> Any:
        """Hide tools that only views may call from clients without views, which would offer them to the model."""
        result = await call_next(call)
        hidden = self._hidden()
        if not hidden:
            return result
        if result.cache_scope is not None:
            result.cache_scope = "private"  # the list depends on the client's capabilities
        if not supports_ui(call.peer):
            result.tools = [tool for tool in result.tools if tool["name"] not in hidden]
        return result

    def __repr__(self) -> str:
        return f"<Apps of {self._server!r}>"


def _source(html: Any, meta: Mapping[str, Json], label: str) -> Callable[..., Any]:
    """A resource handler whose contents carry the view's `_meta`."""
    extra = {"_meta": dict(meta)} if meta else {}

    def contents(value: Any) -> Any:
        if isinstance(value, str):
            return {"text": value, **extra}
        if isinstance(value, (bytes, bytearray)):
            return {"blob": bytes(value), **extra}
        raise DeclarationError(f"{label} returns HTML as text or bytes, not {type(value).__name__}")

    if isinstance(html, (str, bytes)):
        if (b"<" if isinstance(html, bytes) else "<") not in html:  # pyright: ignore[reportOperatorIssue]
            raise DeclarationError(f"{label}: {html[:80]!r} is not HTML; for a file, give pathlib.Path(...)")
        fixed = contents(html)
        return lambda: fixed
    if isinstance(html, Path):
        return lambda: contents(html.read_text(encoding="utf-8"))
    if not callable(html):
        raise DeclarationError(f"{label} is made from HTML, a pathlib.Path or a function, not {type(html).__name__}")
    if inspect.iscoroutinefunction(html) or inspect.iscoroutinefunction(getattr(html, "__call__", None)):  # noqa: B004

        @functools.wraps(html)
        async def waited(**kwargs: Any) -> Any:
            value: Any = html(**kwargs)
            return contents(await value)

        return waited

    @functools.wraps(html)
    def called(**kwargs: Any) -> Any:
        return contents(html(**kwargs))

    return called
