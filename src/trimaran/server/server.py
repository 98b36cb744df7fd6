"""Server: what an author declares things on.

It holds the registries, the middleware and the options, and nothing about any transport or revision: `run` and `asgi` hand
it to `trimaran.serve`, which puts the pieces together. One server object may be served several ways at once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, ParamSpec, Protocol, TypeVar, Unpack, cast, final, overload

import msgspec
from msgspec import UNSET, Raw

from trimaran.durations import check_seconds
from trimaran.errors import ConfigError, DeclarationError
from trimaran.option_names import check_options, suggestion
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.meta import LOG_LEVELS, LogLevel, Peer, RequestMeta
from trimaran.protocol.methods import METHODS, Method
from trimaran.protocol.versions import MODERN
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

from .changes import Notify
from .completions import CompletionEntry, compile_completion, completion_key
from .dispatch import Middleware, Serve
from .exchange import SENT, Exchange
from .limits import PAGE_SIZE, LimitOptions, Limits
from .prompts import PromptEntry, PromptOptions, compile_prompt
from .registry import Registry
from .resources import ResourceEntry, ResourceOptions, TemplateEntry, compile_resource, compile_template
from .runtime import ServerRuntime
from .seams import ServerSessions
from .session_info import SessionInfo
from .tools import ToolEntry, ToolOptions, compile_tool, icons_of

if TYPE_CHECKING:
    from trimaran.connecting import Target
    from trimaran.openapi.server import OpenApiOptions
    from trimaran.proxy.options import ProxyOptions
    from trimaran.serve import AsgiOptions, HttpOptions, HttpServer, StdioOptions
    from trimaran.transports.asgi import AsgiApp
    from trimaran.transports.engine import Engine

    from .transform_options import Choice, ToolChoice, TransformOptions

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., object])


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
            raise DeclarationError(f"cache_ttl must be a number of seconds, 0 or more, not {cache_ttl!r}")
        check_seconds("cache_ttl", cache_ttl, DeclarationError)
        if cache_scope not in ("public", "private"):
            raise DeclarationError(f'cache_scope is "public" or "private", not {cache_scope!r}')
        self._logging = logging
        self._capabilities = dict(capabilities) if capabilities is not None else None
        self._experimental = dict(experimental) if experimental else None
        self._extensions: dict[str, Mapping[str, Json]] = dict(extensions or {})
        self.tools: Registry[ToolEntry] = Registry("tool", self.info.name)
        self.resources: Registry[ResourceEntry] = Registry("resource", self.info.name)
        self.templates: Registry[TemplateEntry] = Registry("resource template", self.info.name)
        self.prompts: Registry[PromptEntry] = Registry("prompt", self.info.name)
        self.completions: Registry[CompletionEntry] = Registry("completion", self.info.name)
        self.dependency_overrides: dict[Callable[..., Any], Callable[..., Any]] = {}
        """Functions that take the place of dependencies, for tests: `dependency_overrides[get_db] = fake_db`."""
        self.runtime: ServerRuntime = ServerRuntime(
            self, lifespan, wait_for, secret_keys or (), cache_ttl=cache_ttl, cache_scope=cache_scope
        )
        """For the parts of the library that serve this server; authors need nothing of it."""
        self.notify: Notify = Notify(self.runtime.changes)
        for registry, kind in (
            (self.tools, "tools"),
            (self.prompts, "prompts"),
            (self.resources, "resources"),
            (self.templates, "resources"),
        ):
            registry.watch(partial(self.runtime.publish_change, kind))
        self.completions.watch(self.runtime.dispatcher.refresh)

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
        if isinstance(fn, str):
            raise DeclarationError(f"write @server.tool(name={fn!r}): the argument without a name is the function")
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
            self.runtime.enable_tasks()
        return added.definition

    def remove_tool(self, name: str) -> None:
        """Remove a tool; clients that listen hear of it."""
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
        """Declare `fn` as a resource, or as a template if the URI has braces; the options are those of `resource`."""
        if "{" in uri:
            return self.templates.add(compile_template(uri, fn, **options), replace=replace).definition
        return self.resources.add(compile_resource(uri, fn, **options), replace=replace).definition

    resource_template = resource

    def remove_resource(self, uri: str) -> None:
        """Remove a resource, or the template with this URI; clients that listen hear of it."""
        (self.templates if "{" in uri else self.resources).remove(uri)

    @overload
    def prompt(self, fn: Callable[P, R], /) -> Callable[P, R]: ...
    @overload
    def prompt(self, /, **options: Unpack[PromptOptions]) -> Callable[[F], F]: ...
    def prompt(self, fn: Any = None, /, **options: Any) -> Any:
        """Declare a prompt, bare or with options.

        Options: name, title, description, arguments, annotations, icons, meta, tags, scopes, visible_to.
        """
        if isinstance(fn, str):
            raise DeclarationError(f"write @server.prompt(name={fn!r}): the argument without a name is the function")
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
        """Declare `fn` as a prompt; the options are those of `prompt`. Returns its definition."""
        check_options(options, PromptOptions.__annotations__, "a prompt", DeclarationError)
        return self.prompts.add(compile_prompt(fn, **options), replace=replace).definition

    def remove_prompt(self, name: str) -> None:
        """Remove a prompt; clients that listen hear of it."""
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
        """Declare `fn` as the completion of an argument; `completion` does it as a decorator."""
        entry = compile_completion(fn, prompt=prompt, template=template, argument=argument, inline=inline)
        self.completions.add(entry, replace=replace)

    def remove_completion(self, *, argument: str, prompt: str | None = None, template: str | None = None) -> None:
        """Remove the completion of this argument."""
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
            unknown = sorted(methods - set(self.runtime.dispatcher.handlers))
            if unknown:
                raise DeclarationError(
                    f"there is no method {unknown[0]!r}; middleware goes around {', '.join(sorted(self.runtime.dispatcher.handlers))}"
                )

            def declare(function: F) -> F:
                self.runtime.dispatcher.use(cast("Middleware", function), methods, travels=True)
                return function

            return declare
        self.runtime.dispatcher.use(fn, None, travels=True)
        return fn

    def custom_route(self, path: str, methods: Sequence[str] = ("GET",)) -> Callable[[F], F]:
        """Declare a plain HTTP route beside the endpoint: `@server.custom_route("/health")`.

        The function takes a `RouteRequest`, or Starlette's `Request` if its parameter is annotated so. It returns text,
        bytes, a dict or a list, `(status, body)`, `(status, body, headers)`, or a response of Starlette's. Nobody is asked
        for credentials.
        """

        def declare(fn: F) -> F:
            self.runtime.custom_routes.add(path, methods, fn)
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
            hint = suggestion(next(iter(options)), ("prefix", "include", "exclude", "read_only", "transforms"))
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
        self.tools.mount(other.tools, adapt, rename(""))
        self.runtime.mounted.append(other)
        self.runtime.dispatcher.fold()  # its middleware, and a lifespan that the first call may have to wait for
        other.runtime.dispatcher.on_fold.append(self.runtime.dispatcher.fold)
        other.tools.watch(self.runtime.refresh_tasks)
        self.runtime.refresh_tasks()
        self.prompts.mount(other.prompts, rename_prompt, rename(""))
        with self.runtime.changes.collected():
            self.resources.mount(other.resources, same)
            self.templates.mount(other.templates, same)
        self.completions.mount(other.completions, rename_completion)
        self.runtime.changes.mount(other.runtime.changes)

    async def unmount(self, other: Server) -> None:
        """Serve a mounted server no longer. It stops unless somebody else uses it; calls that are at work go on.

        Raises:
            DeclarationError: it is not mounted here.
        """
        if other not in self.runtime.mounted:
            raise DeclarationError(f"the server {other.name!r} is not mounted on {self.name!r}")
        self.runtime.mounted.remove(other)
        with self.runtime.changes.collected():
            for own, inner in (
                (self.tools, other.tools),
                (self.prompts, other.prompts),
                (self.resources, other.resources),
                (self.templates, other.templates),
                (self.completions, other.completions),
            ):
                own.unmount(inner)  # pyright: ignore[reportArgumentType]  (each pair is of one kind)
        other.tools.unwatch(self.runtime.refresh_tasks)
        other.runtime.dispatcher.on_fold.remove(self.runtime.dispatcher.fold)
        self.runtime.dispatcher.fold()
        self.runtime.changes.unmount(other.runtime.changes)
        await other.runtime.stop_for(self)

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
            self.runtime.modern_only.add(identifier)
        for row, serve in methods:
            self.runtime.dispatcher.extend(row, serve)
        self.runtime.dispatcher.refresh()

    def has_extension(self, identifier: str) -> bool:
        """Whether an extension of this identifier is enabled."""
        return identifier in self._extensions

    # The server's description of itself

    def capabilities(self) -> dict[str, Json]:
        """The capabilities advertised: derived from what is declared or implemented, or as overridden."""
        if self._capabilities is not None:
            return {**self._optional_capabilities(), **self._capabilities}
        extra = self.callbacks
        advertised: dict[str, Json] = {}
        if self.tools or not self.tools.is_known or hasattr(extra, "call_tool"):
            advertised["tools"] = {"listChanged": True}
        if self.resources or self.templates or not self.resources.is_known or hasattr(extra, "read_resource"):
            advertised["resources"] = {"listChanged": True, "subscribe": True}
        if self.prompts or not self.prompts.is_known or hasattr(extra, "get_prompt"):
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
        """The tools that are declared, those of mounted servers included."""
        return [e.definition for e in self.tools.entries()]

    def list_resources(self) -> list[Resource]:
        """The resources that are declared, those of mounted servers included."""
        return [e.definition for e in self.resources.entries()]

    def list_resource_templates(self) -> list[ResourceTemplate]:
        """The resource templates that are declared, those of mounted servers included."""
        return [e.definition for e in self.templates.entries()]

    def list_prompts(self) -> list[Prompt]:
        """The prompts that are declared, those of mounted servers included."""
        return [e.definition for e in self.prompts.entries()]

    # Running locally, without a client (R21)

    async def call_tool(self, name: str, arguments: Mapping[str, Json] | None = None) -> CallToolResult:
        """Call a tool here and now, validation and middleware included."""
        raw = Raw(self.runtime.writer.encode(dict(arguments or {})))
        return await self._local("tools/call", CallToolParams(name=name, arguments=raw))

    async def read_resource(self, uri: str) -> ReadResourceResult:
        """Read a resource here and now, validation and middleware included."""
        return await self._local("resources/read", ReadResourceParams(uri=uri))

    async def get_prompt(self, name: str, arguments: Mapping[str, str] | None = None) -> GetPromptResult:
        """Get a prompt here and now, validation and middleware included."""
        raw = Raw(self.runtime.writer.encode(dict(arguments or {})))
        return await self._local("prompts/get", GetPromptParams(name=name, arguments=raw))

    async def _local(self, method: str, params: Any) -> Any:
        call = IncomingCall(0, method, METHODS[method], params, Peer(MODERN, {}), UNSET, RequestMeta(), None)
        Exchange(call, _NullSink(), self.runtime.voice)
        result = await self.runtime.dispatcher.handlers[method](call)
        if isinstance(result, CallToolResult) and isinstance(result.structured_content, Raw):
            result.structured_content = msgspec.json.decode(result.structured_content)
        return result

    def broadcast(self, method: str, params: Mapping[str, Json] | None = None) -> int:
        """Send a notification to every legacy session; returns how many were told (R19)."""
        return 0 if self.runtime.sessions is None else self.runtime.sessions.broadcast(method, params)

    def list_sessions(self, capability: str | None = None) -> list[SessionInfo]:
        """The live sessions of legacy clients in this process, oldest first; only those that declare a capability (R41).

        Requests of 2026-07-28 belong to no session. Where several processes share a store, each knows the sessions that it
        has served.
        """
        return [] if self.runtime.sessions is None else self.runtime.sessions.infos(capability)

    async def end_session(self, id: str, why: str = "the server's operator ended it") -> bool:
        """End a session of a legacy client: its streams close, its calls fail with `why`, and its id is unknown from now on.

        With a store it is ended in every process, whichever of them knows it. False if there is no such session.
        """
        return False if self.runtime.sessions is None else await self.runtime.sessions.terminate(id, why)

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
        inspect: bool = False,
        **options: Unpack[HttpOptions],
    ) -> None: ...
    def run(self, transport: Any = "stdio", **options: Any) -> None:
        """Serve until the end: `run()` on stdio, `run("http", port=9090)` on HTTP. Blocks.

        HTTP options: host, port, path, workers, tls, auth, allowed_origins and more; see `trimaran.serve`. `inspect=True`
        opens the inspector beside it, for development.
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

    async def start(self) -> None:
        """Run `lifespan` and wait for `wait_for`, once. Serving does it; calling it earlier does no harm."""
        await self.runtime.start_for(self)

    async def stop(self) -> None:
        """Leave `lifespan`; the server may be started again. While it is mounted on a server that runs, it goes on."""
        await self.runtime.stop_for(self)

    async def wait_ready(self, timeout: float = 5.0) -> None:
        """Wait until the server is ready to serve; TimedOut if that takes too long (R23)."""
        await self.runtime.startup.wait_ready(timeout)

    @property
    def name(self) -> str:
        """The name that clients are told."""
        return self.info.name

    @property
    def version(self) -> str:
        """The version that clients are told."""
        return self.info.version

    @property
    def sessions(self) -> ServerSessions | None:
        """The legacy sessions of this process, once the server is served to legacy clients."""
        return self.runtime.sessions

    @property
    def lifespan_state(self) -> Any:
        """The value that `lifespan` yielded."""
        return self.runtime.startup.value

    def __repr__(self) -> str:
        return f"<Server {self.info.name} {self.info.version}: {len(self.tools)} tools>"


@final
class _NullSink:
    """The sink of a local call: nobody listens."""

    __slots__ = ()

    def send(self, data: bytes) -> Any:
        return SENT


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
        raise DeclarationError(f"{name} must be a positive integer, not {value!r}")
    return value


_KEYWORDS: Final = Server.__init__.__kwdefaults__ or {}
# The names the original systems used for the same limits (C13).
_LIMIT_ALIASES: Final = {"sse_buffer_size": "replay_events", "sse_buffer_limit": "replay_events"}


def _limits(limits: Limits | None, options: Mapping[str, Any]) -> Limits:
    if limits is not None and not isinstance(limits, Limits):  # pyright: ignore[reportUnnecessaryIsInstance]  (nobody checks the caller)
        raise ConfigError(f"limits must be a Limits, such as Limits(tool_threads=8), not {limits!r}")
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
