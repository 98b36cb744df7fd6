"""Server: what an author declares things on.

It holds the registries, the middleware and the options, and nothing about any transport or revision: `run` and `asgi` hand
it to `trimaran.serve`, which puts the pieces together. One server object may be served several ways at once.
"""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, Protocol, TypeVar, Unpack, cast, final, overload

import msgspec
from msgspec import UNSET, Raw

from trimaran.durations import check_seconds
from trimaran.errors import ConfigError, DeclarationError, ProtocolError, TimedOut
from trimaran.option_names import check_options, suggestion
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.meta import LOG_LEVELS, LogLevel, Peer, RequestMeta
from trimaran.protocol.methods import METHODS, Method
from trimaran.protocol.outbound import Writer
from trimaran.protocol.seal import Sealer
from trimaran.protocol.versions import MODERN
from trimaran.schema import enc_hook
from trimaran.types import (
    CallToolParams,
    CallToolResult,
    GetPromptParams,
    GetPromptResult,
    Icon,
    Implementation,
    Json,
    Prompt,
    ReadResourceParams,
    ReadResourceResult,
    Resource,
    ResourceTemplate,
    Tool,
)

from .changes import Changes, Notify
from .completions import CompletionEntry, compile_completion, completion_key
from .dispatch import Dispatcher, Middleware, Serve
from .exchange import SENT, Exchange
from .handlers import call_any
from .input_rounds import ModernVoice
from .limits import LimitOptions, Limits
from .prompts import PromptEntry, PromptOptions, compile_prompt
from .registry import Registry
from .resources import ResourceEntry, ResourceOptions, TemplateEntry, compile_resource, compile_template
from .routes import CustomRoutes
from .threads import ThreadPool
from .tools import ToolEntry, ToolOptions, compile_tool, icons_of

if TYPE_CHECKING:
    from trimaran.connecting import Target
    from trimaran.openapi.server import OpenApiOptions
    from trimaran.proxy.options import ProxyOptions
    from trimaran.serve import AsgiOptions, HttpOptions, HttpServer, StdioOptions
    from trimaran.transports.asgi import AsgiApp
    from trimaran.transports.engine import Engine

    from .context import Context
    from .seams import ServerFleet, ServerSessions
    from .session_info import SessionInfo
    from .transform_options import Choice, ToolChoice, TransformOptions

__all__ = ["Server"]

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])

# More than any client shows at once, less than what hurts on the wire: a client that reads one page only still sees
# every tool of any server but the largest. See docs/adr/0005.
PAGE_SIZE: Final = 1000


class Extension(Protocol):
    """A protocol extension that knows how to make itself part of a server."""

    def attach(self, server: Server) -> None: ...


@final
class Server:
    """An MCP server: declare tools, resources and prompts on it, then `run()` it or mount its `asgi()` app.

    server = Server("demo", version="1.0.0")

    @server.tool
    def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    server.run()
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        version: str = "0.0.0",
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: Sequence[Icon | Mapping[str, Json]] | None = None,
        instructions: str | None = None,
        callbacks: object = None,
        init: Callable[..., object] | None = None,
        init_arg: object = None,
        lifespan: Callable[[Server], AbstractAsyncContextManager[object]] | None = None,
        wait_for: Callable[[], object] | None = None,
        capabilities: Mapping[str, Json] | None = None,
        experimental: Mapping[str, Json] | None = None,
        extensions: Mapping[str, Mapping[str, Json]] | None = None,
        logging: bool = True,
        min_log_level: LogLevel = "info",
        on_set_level: Callable[..., object] | None = None,
        on_roots_changed: Callable[..., object] | None = None,
        expose_internal_errors: bool = False,
        page_size: int = PAGE_SIZE,
        cache_ttl: float = 0,
        cache_scope: Literal["public", "private"] = "public",
        secret_keys: Sequence[bytes | str] | None = None,
        limits: Limits | None = None,
        **limit_options: Unpack[LimitOptions],
    ) -> None:
        self.callbacks: Any = callbacks
        self.info: Implementation = _implementation(name, version, callbacks, title, description, website_url, icons)
        self.instructions: str | None = instructions if instructions is not None else _instructions_of(callbacks)
        self.expose_internal_errors = expose_internal_errors
        self.page_size: int = _positive("page_size", page_size)
        self.limits: Limits = _limits(limits, limit_options)
        self.min_log_level: str = min_log_level
        self.on_set_level: Callable[..., object] | None = on_set_level or getattr(callbacks, "set_log_level", None)
        self.on_roots_changed = on_roots_changed
        self.init: Callable[..., object] | None = init or getattr(callbacks, "init", None)
        self.init_arg = init_arg
        if min_log_level not in LOG_LEVELS:
            raise DeclarationError(f"there is no log level {min_log_level!r}; use one of {', '.join(LOG_LEVELS)}")
        if not 0 <= cache_ttl < float("inf"):
            raise DeclarationError(f"cache_ttl is a number of seconds, 0 or more, not {cache_ttl!r}")
        check_seconds("cache_ttl", cache_ttl, DeclarationError)
        if cache_scope not in ("public", "private"):
            raise DeclarationError(f'cache_scope is "public" or "private", not {cache_scope!r}')
        self._logging = logging
        self._capabilities = dict(capabilities) if capabilities is not None else None
        self._experimental = dict(experimental) if experimental else None
        self._extensions: dict[str, Mapping[str, Json]] = dict(extensions or {})
        self._modern_only: set[str] = set()
        self.legacy_capabilities: dict[str, Json] = {}
        """What is advertised in handshakes only: capabilities that 2026-07-28 does not have."""
        self.on_stop: list[Callable[[], Awaitable[None]]] = []
        """What extensions have to put away when the server stops."""
        self.shortages: list[Callable[[], str | None]] = []
        """Each says what there is too little of at the moment, in words for anyone; None if there is enough."""
        self.on_start: list[Callable[[], None]] = []
        """What extensions begin once it has started. Called each time it is made sure of that."""
        self.fleet: ServerFleet | None = None
        """The processes that serve this server on one store, if it is given one (see `trimaran.fleet`)."""
        self._secret_keys = [k.encode() if isinstance(k, str) else k for k in secret_keys or ()]
        self._sealer: Sealer | None = None
        self._startup = _Startup(self, lifespan, wait_for)
        self._holders = 0
        self._users: set[Server] = set()
        """Who has started this server: itself, and the servers that it is mounted on. The last one stops it."""

        self.threads: ThreadPool = ThreadPool(self.limits.tool_threads)
        self.changes: Changes = Changes()
        self.notify: Notify = Notify(self.changes)
        self.tools: Registry[ToolEntry] = Registry("tool", self.info.name)
        self.resources: Registry[ResourceEntry] = Registry("resource", self.info.name)
        self.templates: Registry[TemplateEntry] = Registry("resource template", self.info.name)
        self.prompts: Registry[PromptEntry] = Registry("prompt", self.info.name)
        self.completions: Registry[CompletionEntry] = Registry("completion", self.info.name)
        self.writer: Writer = Writer(self.info, enc_hook)
        self.voice: ModernVoice = ModernVoice(self.writer, self._sealed, input_ttl=self.limits.input_ttl)
        self.sessions: ServerSessions | None = None
        """The legacy sessions, once the server is served to legacy clients."""
        self.custom_routes: CustomRoutes = CustomRoutes()
        self.read_undeclared: Callable[[str, Context], Awaitable[Any]] | None = None
        """Reads resources that are declared nowhere; None if there is no such resource. For proxies."""
        self.mounted: list[Server] = []
        """The servers that are mounted here; they start and stop with this one."""
        self.dependency_overrides: dict[Callable[..., Any], Callable[..., Any]] = {}
        """Functions that take the place of dependencies, for tests: `dependency_overrides[get_db] = fake_db`."""
        self.dispatcher: Dispatcher = Dispatcher(self, self._startup, cache_ttl=cache_ttl, cache_scope=cache_scope)
        self.tools.watch(lambda: self._changed("tools"))
        self.prompts.watch(lambda: self._changed("prompts"))
        self.resources.watch(lambda: self._changed("resources"))
        self.templates.watch(lambda: self._changed("resources"))
        self.completions.watch(self.dispatcher.refresh)

    def _changed(self, kind: str) -> None:
        self.dispatcher.refresh()
        self.changes.publish(kind)

    # Declaring

    @overload
    def tool(self, fn: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def tool(self, /, **options: Unpack[ToolOptions]) -> Callable[[F], F]: ...
    def tool(self, fn: Any = None, /, **options: Any) -> Any:
        """Declare a tool, bare or with options; the function stays as it is.

        Options: name, title, description, annotations, icons, meta, tags, input_schema, output_schema, scopes, visible_to,
        timeout, long_running, resumable, cache_ttl, inline, validate_input, validate_output, structured_output.

        `scopes` says who may call it; `visible_to` (scopes, or a function of the principal) who may know of it at all.
        `resumable` says that a long-running tool may be run again after a crash, past the `ctx.step`s that are done.
        """
        if fn is not None:
            self.add_tool(fn, **options)
            return fn

        def declare(function: F) -> F:
            self.add_tool(function, **options)
            return function

        return declare

    def add_tool(self, fn: Callable[..., object], *, replace: bool = False, **options: Unpack[ToolOptions]) -> Tool:
        """Register a tool at run time; clients that listen hear of it."""
        check_options(options, ToolOptions.__annotations__, "a tool", DeclarationError)
        added = self.tools.add(compile_tool(fn, **options), replace=replace)
        if added.long_running:
            self._enable_tasks()
        return added.definition

    def _enable_tasks(self) -> None:
        """A long-running tool wants tasks; whoever wants other settings enables them before."""
        from trimaran.ext.tasks import EXTENSION, Tasks

        if EXTENSION not in self._extensions:
            Tasks().attach(self)

    def refresh_tasks(self) -> None:
        """Offer tasks, if a tool that came by another way than `add_tool` wants them."""
        if any(entry.long_running for entry in self.tools.entries()):
            self._enable_tasks()

    def describe_as(self, info: Implementation | None, instructions: str | None) -> None:
        """Take over what another server says of itself: for a proxy, once its target has answered."""
        if info is not None:
            self.info = info
            self.writer.sign(info)
            for registry in (self.tools, self.resources, self.templates, self.prompts):
                registry.owner = info.name
        self.instructions = instructions if instructions is not None else self.instructions

    def remove_tool(self, name: str) -> None:
        self.tools.remove(name)

    def resource(self, uri: str, **options: Unpack[ResourceOptions]) -> Callable[[F], F]:
        """Declare a resource; braces make it a template: `@server.resource("file:///{+path}")`.

        Options: name, title, description, mime_type, annotations, icons, meta, tags, size, cache_ttl, inline, scopes,
        visible_to.
        """
        if callable(uri):
            raise DeclarationError('a resource needs its URI: @server.resource("config://app")')

        def declare(fn: F) -> F:
            self.add_resource(uri, fn, **options)
            return fn

        return declare

    def add_resource(
        self, uri: str, fn: Callable[..., object], *, replace: bool = False, **options: Unpack[ResourceOptions]
    ) -> Resource | ResourceTemplate:
        if "{" in uri:
            return self.templates.add(compile_template(uri, fn, **options), replace=replace).definition
        return self.resources.add(compile_resource(uri, fn, **options), replace=replace).definition

    resource_template = resource

    def remove_resource(self, uri: str) -> None:
        (self.templates if "{" in uri else self.resources).remove(uri)

    @overload
    def prompt(self, fn: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def prompt(self, /, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...
    def prompt(self, fn: Any = None, /, **options: Any) -> Any:
        """Declare a prompt, bare or with options.

        Options: name, title, description, arguments, annotations, icons, meta, tags, scopes, visible_to.
        """
        if fn is not None:
            self.add_prompt(fn, **options)
            return fn

        def declare(function: F) -> F:
            self.add_prompt(function, **options)
            return function

        return declare

    def add_prompt(
        self, fn: Callable[..., object], *, replace: bool = False, **options: Unpack[PromptOptions]
    ) -> Prompt:
        check_options(options, PromptOptions.__annotations__, "a prompt", DeclarationError)
        return self.prompts.add(compile_prompt(fn, **options), replace=replace).definition

    def remove_prompt(self, name: str) -> None:
        self.prompts.remove(name)

    def completion(
        self, *, argument: str, prompt: str | None = None, template: str | None = None, inline: bool = False
    ) -> Callable[[F], F]:
        """Declare how one argument of a prompt, or one variable of a template, is completed."""

        def declare(fn: F) -> F:
            self.add_completion(fn, argument=argument, prompt=prompt, template=template, inline=inline)
            return fn

        return declare

    def add_completion(
        self,
        fn: Callable[..., object],
        *,
        argument: str,
        prompt: str | None = None,
        template: str | None = None,
        inline: bool = False,
        replace: bool = False,
    ) -> None:
        entry = compile_completion(fn, prompt=prompt, template=template, argument=argument, inline=inline)
        self.completions.add(entry, replace=replace)

    def remove_completion(self, *, argument: str, prompt: str | None = None, template: str | None = None) -> None:
        self.completions.remove(completion_key("prompt" if prompt else "template", prompt or template or "", argument))

    @overload
    def middleware(self, fn: F, /) -> F: ...
    @overload
    def middleware(self, method: str, /, *more: str) -> Callable[[F], F]: ...
    def middleware(self, fn: Any, /, *more: str) -> Any:
        """Declare code around calls: bare for every method, or for the methods named.

        @server.middleware
        async def timed(call, call_next):
            return await call_next(call)
        """
        if isinstance(fn, str):
            methods = frozenset((fn, *more))
            unknown = sorted(methods - set(self.dispatcher.handlers))
            if unknown:
                raise DeclarationError(
                    f"there is no method {unknown[0]!r}; middleware goes around {', '.join(sorted(self.dispatcher.handlers))}"
                )

            def declare(function: F) -> F:
                self.dispatcher.use(cast("Middleware", function), methods)
                return function

            return declare
        self.dispatcher.use(fn, None)
        return fn

    def custom_route(self, path: str, methods: Sequence[str] = ("GET",)) -> Callable[[F], F]:
        """Declare a plain HTTP route beside the endpoint: `@server.custom_route("/health")`.

        The function takes a `RouteRequest`, or Starlette's `Request` if its parameter is annotated so. It returns text,
        bytes, a dict or a list, `(status, body)`, `(status, body, headers)`, or a response of Starlette's. Nobody is asked
        for credentials.
        """

        def declare(fn: F) -> F:
            self.custom_routes.add(path, methods, fn)
            return fn

        return declare

    def transform(self, tools: Choice, /, **options: Unpack[TransformOptions]) -> None:
        """Show tools of this server otherwise than they are declared: `server.transform("search", name="find")`.

        Options: name, title, description, tags, annotations, hidden, arguments, wrap, result, output_schema.

        `tools` is a name, a pattern ("search_*"), a tag ("tag:billing") or a function of the definition. Mounted tools
        and those that come later are meant too. Of several transforms, each sees what those before it made.

        Raises:
            DeclarationError: there is no such tool, an option does not fit it, or its new name is taken.
        """
        from .transform_options import is_tool_name  # 5 ms, which most servers do not need
        from .transforms import Transform, check_known

        transform = Transform(tools, **options)
        if isinstance(tools, str) and is_tool_name(tools):
            check_known((tools,), self.tools, f"transform of the server {self.name!r}", transform)
        self.tools.transform(transform)

    @classmethod
    def proxy(cls, target: Target, **options: Unpack[ProxyOptions]) -> Server:
        """A server that stands for another one: whatever `connect` takes, of any era, over any transport.

            Server.proxy("https://example.com/mcp").run()          # HTTP there, stdio here
            Server.proxy(["npx", "-y", "some-server"]).run("http")

        Options are those of `connect`, and `name`, `start_timeout`.
        """
        from trimaran.proxy.server import build_proxy

        return build_proxy(target, **options)

    def mount(
        self,
        other: Server | Target,
        prefix: str | None = None,
        *,
        include: ToolChoice | None = None,
        exclude: ToolChoice = (),
        read_only: bool = False,
        transforms: Mapping[str, TransformOptions] | None = None,
        **options: Unpack[ProxyOptions],
    ) -> None:
        """Serve everything another server offers, now and later, beside our own.

        `other` is a Server, or anything that `connect` takes: that is mounted as `Server.proxy(other, **options)`.
        Tools and prompts get the prefix (`weather` makes `weather_today` of `today`); resources keep their URIs.

        Args:
            include: The tools to show, by the names that the other server has: names, patterns, tags, or a function of
                the definition. This and the next three are for tools alone.
            exclude: The tools not to show.
            read_only: Show only tools whose annotations say that they change nothing.
            transforms: Options of `transform` by tool; the prefix comes afterwards.

        Raises:
            DeclarationError: two tools, or two prompts, would have one name; or an option does not fit.
        """
        from .transforms import adapt_mounted

        if not isinstance(other, Server):
            other = Server.proxy(other, **options)
        elif options:
            hint = suggestion(next(iter(options)), ("include", "exclude", "read_only", "transforms"))
            raise DeclarationError(
                f"{', '.join(options)}: options of a connection, and a Server needs none{hint and ';' + hint}"
            )
        if other.tools.holds(self.tools):
            raise DeclarationError("a server cannot be mounted on itself, nor on one that it has mounted")

        def rename(key: str) -> str:
            return f"{prefix}_{key}" if prefix else key

        def rename_prompt(entry: PromptEntry) -> PromptEntry:
            return entry.renamed(rename(entry.key)) if prefix else entry

        def rename_completion(entry: CompletionEntry) -> CompletionEntry:
            kind, name, argument = entry.key.split("\0")
            return entry.renamed("\0".join((kind, rename(name), argument))) if prefix and kind == "prompt" else entry

        def same(entry: T) -> T:
            return entry

        adapt = adapt_mounted(
            other.tools, rename, include=include, exclude=exclude, read_only=read_only, transforms=transforms or {}
        )
        self.prompts.check_mount(other.prompts, rename_prompt)
        self.tools.mount(other.tools, adapt)
        self.mounted.append(other)
        self.dispatcher.fold()  # the first call may have a lifespan to wait for now
        other.tools.watch(self.refresh_tasks)
        self.refresh_tasks()
        self.prompts.mount(other.prompts, rename_prompt)
        self.resources.mount(other.resources, same)
        self.templates.mount(other.templates, same)
        self.completions.mount(other.completions, rename_completion)
        self.changes.mount(other.changes)

    async def unmount(self, other: Server) -> None:
        """Serve a mounted server no longer. It stops unless somebody else uses it; calls that are at work go on.

        Raises:
            DeclarationError: it is not mounted here.
        """
        if other not in self.mounted:
            raise DeclarationError(f"the server {other.name!r} is not mounted on {self.name!r}")
        self.mounted.remove(other)
        for own, inner in (
            (self.tools, other.tools),
            (self.prompts, other.prompts),
            (self.resources, other.resources),
            (self.templates, other.templates),
            (self.completions, other.completions),
        ):
            own.unmount(inner)  # pyright: ignore[reportArgumentType]  (each pair is of one kind)
        other.tools.unwatch(self.refresh_tasks)
        self.changes.unmount(other.changes)
        await other._stop_for(self)

    def enable_extension(
        self,
        identifier: str | Extension,
        settings: Mapping[str, Json] | None = None,
        methods: Sequence[tuple[Method, Serve]] = (),
        *,
        modern_only: bool = False,
    ) -> None:
        """Advertise a protocol extension and serve its methods: one of `trimaran.ext`, or by its name and parts.

        Extensions are off until enabled. `modern_only`: handshakes do not mention it.
        """
        if not isinstance(identifier, str):
            identifier.attach(self)
            return
        if "/" not in identifier:
            raise DeclarationError(f'an extension has a prefixed name, like "com.example/thing", not {identifier!r}')
        self._extensions[identifier] = dict(settings or {})
        if modern_only:
            self._modern_only.add(identifier)
        for row, serve in methods:
            self.dispatcher.extend(row, serve)
        self.dispatcher.refresh()

    def has_extension(self, identifier: str) -> bool:
        return identifier in self._extensions

    # What the server says about itself

    def handshake_capabilities(self) -> dict[str, Json]:
        """The capabilities as a handshake tells them."""
        capabilities = {**self.capabilities(), **self.legacy_capabilities}
        extensions: dict[str, Json] = {k: dict(v) for k, v in self._extensions.items() if k not in self._modern_only}
        if self._modern_only and "extensions" in capabilities:
            capabilities["extensions"] = extensions
            if not extensions:
                del capabilities["extensions"]
        return capabilities

    def capabilities(self) -> dict[str, Json]:
        """The capabilities advertised: derived from what is declared or implemented, or as overridden."""
        if self._capabilities is not None:
            return {**self._optional_capabilities(), **self._capabilities}
        extra = self.callbacks
        advertised: dict[str, Json] = {}
        if self.tools or hasattr(extra, "call_tool"):
            advertised["tools"] = {"listChanged": True}
        if self.resources or self.templates or hasattr(extra, "read_resource"):
            advertised["resources"] = {"listChanged": True, "subscribe": True}
        if self.prompts or hasattr(extra, "get_prompt"):
            advertised["prompts"] = {"listChanged": True}
        if self.completions or hasattr(extra, "complete"):
            advertised["completions"] = {}
        if self._logging:
            advertised["logging"] = {}
        advertised.update(self._optional_capabilities())
        if callable(getattr(extra, "capabilities", None)):
            advertised.update(extra.capabilities())
        return advertised

    def _optional_capabilities(self) -> dict[str, Json]:
        optional: dict[str, Json] = {}
        if self._experimental:
            optional["experimental"] = self._experimental
        if self._extensions:
            optional["extensions"] = {k: dict(v) for k, v in self._extensions.items()}
        return optional

    def list_tools(self) -> list[Tool]:
        return [e.definition for e in self.tools.entries()]

    def list_resources(self) -> list[Resource]:
        return [e.definition for e in self.resources.entries()]

    def list_resource_templates(self) -> list[ResourceTemplate]:
        return [e.definition for e in self.templates.entries()]

    def list_prompts(self) -> list[Prompt]:
        return [e.definition for e in self.prompts.entries()]

    # Running locally, without a client (R21)

    async def call_tool(self, name: str, arguments: Mapping[str, Json] | None = None) -> CallToolResult:
        """Call a tool here and now, validation and middleware included."""
        raw = Raw(self.writer.encode(dict(arguments or {})))
        return await self._local("tools/call", CallToolParams(name=name, arguments=raw))

    async def read_resource(self, uri: str) -> ReadResourceResult:
        return await self._local("resources/read", ReadResourceParams(uri=uri))

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        raw = Raw(self.writer.encode(dict(arguments or {})))
        return await self._local("prompts/get", GetPromptParams(name=name, arguments=raw))

    async def _local(self, method: str, params: Any) -> Any:
        call = IncomingCall(0, method, METHODS[method], params, Peer(MODERN, {}), UNSET, RequestMeta(), None)
        Exchange(call, _NullSink(), self.voice)
        result = await self.dispatcher.handlers[method](call)
        if isinstance(result, CallToolResult) and isinstance(result.structured_content, Raw):
            result.structured_content = msgspec.json.decode(result.structured_content)
        return result

    def broadcast(self, method: str, params: Mapping[str, Json] | None = None) -> int:
        """Send a notification to every legacy session; returns how many were told (R19)."""
        return 0 if self.sessions is None else self.sessions.broadcast(method, params)

    def list_sessions(self, capability: str | None = None) -> list[SessionInfo]:
        """The live sessions of legacy clients in this process, oldest first; only those that declare a capability (R41).

        Requests of 2026-07-28 belong to no session. Where several processes share a store, each knows the sessions that it
        has served.
        """
        return [] if self.sessions is None else self.sessions.infos(capability)

    async def end_session(self, id: str, why: str = "the server's operator ended it") -> bool:
        """End a session of a legacy client: its streams close, its calls fail with `why`, and its id is unknown from now on.

        With a store it is ended in every process, whichever of them knows it. False if there is no such session.
        """
        return False if self.sessions is None else await self.sessions.terminate(id, why)

    # Serving

    @overload
    def run(self, transport: Literal["stdio"] = "stdio", **options: Unpack[StdioOptions]) -> None: ...
    @overload
    def run(
        self,
        transport: Literal["http", "streamable-http"],
        *,
        workers: int = 1,
        on_ready: Callable[[HttpServer], object] | None = None,
        **options: Unpack[HttpOptions],
    ) -> None: ...
    def run(self, transport: Any = "stdio", **options: Any) -> None:
        """Serve until the end: `run()` on stdio, `run("http", port=9090)` on HTTP. Blocks.

        HTTP options: host, port, path, workers, tls, auth, allowed_origins and more; see `trimaran.serve`.
        """
        from trimaran import serve

        serve.run(self, transport, **options)

    @overload
    async def serve(self, transport: Literal["stdio"] = "stdio", **options: Unpack[StdioOptions]) -> None: ...
    @overload
    async def serve(
        self,
        transport: Literal["http", "streamable-http"],
        *,
        on_ready: Callable[[HttpServer], object] | None = None,
        **options: Unpack[HttpOptions],
    ) -> None: ...
    async def serve(self, transport: Any = "stdio", **options: Any) -> None:
        """The same inside a running event loop, until cancelled (R20)."""
        from trimaran import serve

        await serve.serve(self, transport, **options)

    @classmethod
    def from_openapi(
        cls, spec: Mapping[str, Json] | str | os.PathLike[str], **options: Unpack[OpenApiOptions]
    ) -> Server:
        """A server whose tools are the operations of an HTTP API, from its OpenAPI document (2.0, 3.0, 3.1; JSON or YAML).

            server = Server.from_openapi("petstore.yaml", base_url="https://api.example.com", auth="the key")

        Raises:
            ConfigError: the document cannot be read, or no operation of it can be used.
        """
        from trimaran.openapi.server import OpenApiOptions, build_server

        check_options(options, OpenApiOptions.__annotations__, "from_openapi")
        return build_server(spec, **options)

    @classmethod
    def from_fastapi(cls, app: Callable[..., object], **options: Unpack[OpenApiOptions]) -> Server:
        """The same for a FastAPI application of this process: calls reach it without a socket."""
        from trimaran.openapi.server import OpenApiOptions, build_from_app

        check_options(options, OpenApiOptions.__annotations__, "from_fastapi")
        return build_from_app(app, **options)

    def asgi(self, path: str = "/mcp", **options: Unpack[AsgiOptions]) -> AsgiApp:
        """An ASGI app: mount it in FastAPI, Starlette, Django, anything. It needs no lifespan."""
        from trimaran import serve

        return serve.asgi(self, path, **options)

    def engine(self, path: str = "/mcp", **options: Unpack[AsgiOptions]) -> Engine:
        """The transport-neutral HTTP engine, for embedding without ASGI (R143)."""
        from trimaran import serve

        return serve.engine(self, path, **options)

    def lifespan(self, app: object = None) -> AbstractAsyncContextManager[None]:
        """The life of this server inside another application: `FastAPI(lifespan=server.lifespan)`.

        An application with a lifespan of its own writes `async with server.lifespan():` around its `yield`.
        """
        from trimaran import serve

        return serve.lifespan(self)

    def hold(self) -> None:
        """A client in this process begins to use the server; what its first call starts ends with the last `release`."""
        self._holders += 1

    async def release(self) -> None:
        self._holders -= 1
        if self._holders == 0 and not self._users:
            await self._startup.stop()

    async def start(self) -> None:
        """Run `lifespan` and wait for `wait_for`, once. Serving does it; calling it earlier does no harm."""
        await self._start_for(self)

    async def _start_for(self, user: Server) -> None:
        self._users.add(user)
        await self.get_ready()

    async def get_ready(self) -> None:
        """The same, on behalf of one call."""
        if self.fleet is not None:
            await self.fleet.start()
        await self._startup.start()
        for begin in self.on_start:
            begin()

    async def stop(self) -> None:
        """Leave `lifespan`; the server may be started again. While it is mounted on a server that runs, it goes on."""
        await self._stop_for(self)

    async def _stop_for(self, user: Server) -> None:
        self._users.discard(user)
        if self._users:
            return
        for put_away in self.on_stop:
            await put_away()
        await self._startup.stop()
        if self.fleet is not None:
            await self.fleet.close()

    async def wait_ready(self, timeout: float = 5.0) -> None:
        """Wait until the server is ready to serve; TimedOut if that takes too long (R23)."""
        await self._startup.wait_ready(timeout)

    @property
    def name(self) -> str:
        return self.info.name

    @property
    def version(self) -> str:
        return self.info.version

    @property
    def lifespan_state(self) -> Any:
        """What `lifespan` yielded."""
        return self._startup.value

    # For the parts of the library that serve this server

    def _sealed(self) -> Sealer:
        if self._sealer is None:
            # Without configured keys a state lives as long as this process: made before workers fork, they share it.
            self._sealer = Sealer(self._secret_keys or [os.urandom(32)], random=os.urandom)
        return self._sealer

    def prepare_to_fork(self, keys: Sequence[bytes] = ()) -> list[bytes]:
        """Make what workers must share, or take it from whoever made it: the keys of sealed state. Those of the code come first."""
        if not self._secret_keys:
            self._secret_keys = list(keys) or [os.urandom(32)]
        return self._secret_keys

    def __repr__(self) -> str:
        return f"<Server {self.info.name} {self.info.version}: {len(self.tools)} tools>"


@final
class _NullSink:
    """The sink of a local call: nobody listens."""

    __slots__ = ()

    def send(self, data: bytes) -> Any:
        return SENT


@final
class _Startup:
    """What must have happened before the first call: lifespan entered, readiness reached, sessionless state made.

    It happens once, on the first call if nobody asked earlier, so that no framework needs to run a lifespan (P14).
    """

    def __init__(
        self,
        server: Server,
        lifespan: Callable[[Server], AbstractAsyncContextManager[Any]] | None,
        wait_for: Callable[[], Any] | None,
    ) -> None:
        self._server = server
        self._lifespan = lifespan
        self._wait_for = wait_for
        self._entered: AbstractAsyncContextManager[Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self.value: Any = None
        self.state: Any = None
        self.ready = False

    @property
    def needed(self) -> bool:
        is_needed = self._lifespan is not None or self._wait_for is not None or self._server.init is not None
        return is_needed or any(mounted.dispatcher.startup.needed for mounted in self._server.mounted)

    async def gate(self, call: IncomingCall, call_next: Serve, /) -> Any:
        if not self.ready:
            try:
                await self.wait_ready(5.0)
            except TimedOut:
                raise ProtocolError.internal_error("the server is not ready yet; try again", status=503) from None
        return await call_next(call)

    async def wait_ready(self, timeout: float) -> None:
        if self._task is None or (self._task.done() and not self.ready):
            self._task = asyncio.ensure_future(self._begin())
        try:
            async with asyncio.timeout(timeout):
                # Shielded: a caller that gives up must not stop what the others wait for.
                await asyncio.shield(self._task)
        except TimeoutError:
            raise TimedOut(f"the server was not ready within {timeout:g} s") from None

    async def start(self) -> None:
        if self.needed and not self.ready:
            await self.wait_ready(60.0)

    async def _begin(self) -> None:
        server = self._server
        if self._lifespan is not None:
            entered = self._lifespan(server)
            self.value = await entered.__aenter__()
            self._entered = entered
        try:
            for mounted in server.mounted:
                await mounted._start_for(server)  # pyright: ignore[reportPrivateUsage]
            await self._get_ready(server)
        except BaseException as error:
            entered, self._entered = self._entered, None
            if entered is not None:
                await entered.__aexit__(type(error), error, error.__traceback__)
            raise

    async def _get_ready(self, server: Server) -> None:
        if self._wait_for is not None:
            while not await call_any(self._wait_for) and not self._is_awaitable_gate():
                await asyncio.sleep(0.05)
        if server.init is not None:
            self.state = await call_any(server.init, server.init_arg)
        self.ready = True
        server.dispatcher.fold()  # the next call has nothing to wait for

    def _is_awaitable_gate(self) -> bool:
        # A coroutine function is waited for; a plain one is a question, asked until it says yes.
        return inspect.iscoroutinefunction(self._wait_for)

    async def stop(self) -> None:
        entered, self._entered = self._entered, None
        task, self._task = self._task, None
        if self.ready:
            self.ready = False
            self._server.dispatcher.fold()
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})
        for mounted in reversed(self._server.mounted):
            await mounted._stop_for(self._server)  # pyright: ignore[reportPrivateUsage]
        if entered is not None:
            await entered.__aexit__(None, None, None)


def _implementation(
    name: str | None,
    version: str,
    callbacks: Any,
    title: str | None,
    description: str | None,
    website_url: str | None,
    icons: Sequence[Icon | Mapping[str, Json]] | None,
) -> Implementation:
    if callbacks is not None and hasattr(callbacks, "server_info"):
        info = callbacks.server_info() if callable(callbacks.server_info) else callbacks.server_info
        try:
            return msgspec.convert(info, Implementation, from_attributes=True)
        except msgspec.ValidationError as error:
            raise DeclarationError(f'server_info returns {{"name": "...", "version": "..."}}: {error}') from None
    if not name or not version or {type(name), type(version)} != {str}:
        raise DeclarationError(
            f'a server has a name and a version, both strings: Server("demo", version="1.0.0"), not {name!r} and {version!r}'
        )
    return Implementation(
        name=name, version=version, title=title, description=description, website_url=website_url, icons=icons_of(icons)
    )


def _instructions_of(callbacks: Any) -> str | None:
    instructions: Any = getattr(callbacks, "instructions", None)
    return cast("Any", instructions)() if callable(instructions) else instructions


def _positive(name: str, value: int) -> int:
    if type(value) is not int or value <= 0:
        raise DeclarationError(f"{name} is a positive integer, not {value!r}")
    return value


_KEYWORDS: Final = Server.__init__.__kwdefaults__ or {}
# The names the original systems used for the same limits (C13).
_LIMIT_ALIASES: Final = {"sse_buffer_size": "replay_events", "sse_buffer_limit": "replay_events"}


def _limits(limits: Limits | None, options: Mapping[str, Any]) -> Limits:
    options = {_LIMIT_ALIASES.get(k, k): v for k, v in options.items()}
    if "session_ttl" in options:
        options["session_idle_timeout"] = _from_session_ttl(options.pop("session_ttl"))
    check_options(options, (*_KEYWORDS, *LimitOptions.__annotations__), "Server")
    return msgspec.structs.replace(limits or Limits(), **options) if options else limits or Limits()


def _from_session_ttl(milliseconds: Any) -> float | None:
    """`session_ttl` of barrel_mcp, in milliseconds as its users know it (R17)."""
    if milliseconds is None:
        return None
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, (int, float)) or not milliseconds >= 1000:
        raise ConfigError(
            f"session_ttl is in milliseconds, 1000 or more, not {milliseconds!r}; "
            "the same in seconds is session_idle_timeout"
        )
    return milliseconds / 1000
