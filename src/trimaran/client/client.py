"""`Client`: everything a program can ask of an MCP server, of any year, over any transport.

    async with connect("http://127.0.0.1:9090/mcp") as client:
        result = await client.call_tool("add", {"a": 1, "b": 2})
        print(result.data)

This is the facade: it knows the methods and the shapes of their results. `lists.py` reads lists and keeps them,
`tool_calling.py` calls tools, `connection.py` sends requests and handles failures; `negotiation.py` and the dialects know the
revisions.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from functools import partial
from types import TracebackType, UnionType
from typing import Any, Final, Literal, Self, TypeAlias, Unpack, cast, final

import msgspec
from msgspec import Raw

from trimaran.errors import (
    CODE_INVALID_REQUEST,
    ConfigError,
    Error,
    LocalProtocolError,
    RemoteProtocolError,
)
from trimaran.option_names import check_options
from trimaran.paging import MAX_PAGES
from trimaran.protocol.inbound import RequestId
from trimaran.protocol.meta import LOG_LEVELS
from trimaran.protocol.methods import METHODS
from trimaran.types import (
    Completion,
    Implementation,
    Json,
    Prompt,
    PromptReference,
    Resource,
    ResourceReference,
    ResourceTemplate,
    Tool,
)

from .cache import Cache
from .capability_check import check_offered
from .connection import Connection, Unset
from .known_tools import KnownTool, KnownTools
from .lists import KEEP_BYTES, Lists, page_params
from .option_types import CallOptions, ListenOptions, LogLevel, OnProgress, Roots, TaskOptions
from .options import ClientState
from .results import (
    D,
    Page,
    PromptResult,
    ResourceResult,
    ToolResult,
    read_completion,
    read_prompt,
    read_resource,
    read_tool,
)
from .subscriptions import ChangeStream, Subscription, SubscriptionHub
from .tasks import TASKS, TaskClient, TaskHandle, read_begun
from .tool_calling import Timeout, ToolCalling

log: logging.Logger = logging.getLogger("trimaran.client")

_CALL_OPTIONS: Final = CallOptions.__annotations__.keys()
_TASK_OPTIONS: Final = TaskOptions.__annotations__.keys()
_LISTEN_OPTIONS: Final = ListenOptions.__annotations__.keys()
_MAX_PAGES: Final = MAX_PAGES
Recipe: TypeAlias = tuple[Any, Mapping[str, Any]]
"""The target and the options that `connect` was given."""

_decode_any = msgspec.json.Decoder().decode


def recipe_of(client: Client) -> Recipe | None:
    """The arguments of `connect`: a host that gets a client makes its own clients from them."""
    return client._recipe  # pyright: ignore[reportPrivateUsage] - no business of whoever uses a client


@final
class Client:
    """Made by `connect` and `open_client`. Safe to use from many tasks at once, and to close from any of them."""

    def __init__(self, connection: Connection, recipe: Recipe | None = None) -> None:
        self._recipe = recipe
        self._connection = connection
        self._options = connection.options
        self._tools = KnownTools()
        self._cache = Cache(time.monotonic)
        self._watch = SubscriptionHub(connection)
        self._level: str | None = None
        self._lists = Lists(connection, self._cache, self._tools)
        self._calling = ToolCalling(connection, self._lists, self._tools, self._cache)
        connection.on_notice = self._hear
        connection.on_gap = self._watch.gap
        connection.on_ready = self._began
        connection.is_needed = self._watch.is_needed

    # --- life --------------------------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Connect and greet. `connect` as a context manager and `open_client` do it for you.

        Raises:
            ConnectFailed, TimedOut, Unauthorized, UnexpectedStatus, UnsupportedVersion, RemoteProtocolError
        """
        await self._connection.open()
        return self

    async def close(self) -> None:
        """End the connection, and the child process if there is one: from any task, any number of times."""
        self._watch.close()
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def state(self) -> ClientState:
        """new, connecting, ready, reconnecting or closed."""
        return self._connection.state

    @property
    def era(self) -> Literal["modern", "legacy"]:
        """modern (2026-07-28) or legacy."""
        return self._connection.conversation.dialect.era

    @property
    def version(self) -> str:
        """The protocol revision in use."""
        return self._connection.conversation.welcome.version

    @property
    def server_info(self) -> Implementation | None:
        """The name and version the server gives itself. For display: nothing may be decided by it."""
        return self._connection.conversation.welcome.info

    @property
    def server_capabilities(self) -> dict[str, Json]:
        """The capabilities that the server declares."""
        return self._connection.conversation.welcome.capabilities

    @property
    def instructions(self) -> str | None:
        """The server's instructions for a model."""
        return self._connection.conversation.welcome.instructions

    @property
    def session_id(self) -> str | None:
        """The session of a legacy HTTP server."""
        return getattr(self._connection.conversation.link, "session_id", None)

    @property
    def pid(self) -> int | None:
        """The process id of the server, where it is our child."""
        return getattr(self._channel, "pid", None)

    @property
    def stderr(self) -> list[str]:
        """The last lines the server wrote to stderr, where it is our child."""
        return list(getattr(self._channel, "stderr", ()))

    @property
    def _channel(self) -> Any:
        return getattr(self._connection.conversation.link, "channel", None)

    def __repr__(self) -> str:
        return f"<Client of {self._connection.dialer.describe()}, {self.state}>"

    # --- tools -------------------------------------------------------------------------------------------------------

    async def list_tools(self, cursor: str | None = None, *, fresh: bool = False) -> Page[Tool]:
        """One page of the server's tools. `fresh`: do not answer from the cache."""
        return await self._lists.page("tools/list", cursor, fresh)

    async def list_tools_all(self, *, max_pages: int = _MAX_PAGES, fresh: bool = False) -> list[Tool]:
        """All of the server's tools.

        Raises:
            TooManyPages: the list goes on for more than `max_pages`.
        """
        return await self._lists.all("tools/list", max_pages, fresh)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        into: type[D] | UnionType | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult[D]:
        """Call a tool.

        Args:
            name: The tool.
            arguments: Its arguments; anything with a JSON form: dataclasses, pydantic models, dates, paths.
            into: The type of `result.data`: a dataclass, a msgspec Struct, a pydantic model, `list[int]`, ...
            timeout: Seconds to wait, instead of the client's default; None for no limit.
            max_timeout: Seconds to wait at most, however much progress is reported.
            on_progress: Called with (progress, total, message); each report also extends the wait.
            raise_on_error: Raise ToolError when the tool says that it failed, instead of `result.is_error`.
            idempotent: The call may be repeated when the connection is lost. Without it the tool's annotations decide.
            meta: Sent as `_meta`, for tracing and vendor extensions.

        Raises:
            CallError: the server refused the call (an unknown tool, say).
            ConnectionLost, TimedOut, ...: no answer; see trimaran.errors.
            InvalidOutput: the result breaks its schema, and `schema_check` is "strict" or `into` does not fit.
            TypeError: there is no such option.
        """
        if not options.keys() <= _CALL_OPTIONS:
            check_options(options, {*_CALL_OPTIONS, "into"}, "call_tool", TypeError)
        timeout: Timeout = options.get("timeout", Unset)
        max_timeout = options.get("max_timeout")
        finish = partial(self._finished, name, into, options.get("raise_on_error"))
        raw, tool = await self._calling.call(
            name,
            arguments,
            options.get("meta"),
            idempotent=options.get("idempotent"),
            timeout=timeout,
            max_timeout=max_timeout,
            on_progress=options.get("on_progress"),
            extension=TASKS if self._options.tasks else None,
            wish={} if self._options.tasks else None,
        )
        if self._options.tasks and (begun := self._begun(raw)) is not None:
            limit = max_timeout or options.get("timeout") or self._options.max_timeout
            return await self._handle(begun.task_id, partial(finish, tool), begun).result(limit)
        return finish(tool, raw)

    async def start_task(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        into: type[D] | UnionType | None = None,
        **options: Unpack[TaskOptions],
    ) -> TaskHandle[D]:
        """Call a tool as a task: returns as soon as the server has taken it on.

        `await task` is the result; `async for update in task` shows how it goes; `task.id` is enough to come back to it
        with `client.task(id)`. A server that answers at once, because the tool is quick or it has no tasks, gives a task
        that has ended.

        Args:
            ttl: How many seconds the server should keep it, if it lets its clients say that (2025-11-25).
            into, raise_on_error, timeout, meta: as for `call_tool`; `timeout` is for the start alone.
        """
        if not options.keys() <= _TASK_OPTIONS:
            check_options(options, {*_TASK_OPTIONS, "into"}, "start_task", TypeError)
        ttl = options.get("ttl")
        wish = {} if ttl is None else {"ttl": round(ttl * 1000)}
        finish = partial(self._finished, name, into, options.get("raise_on_error"))
        raw, tool = await self._calling.call(
            name,
            arguments,
            options.get("meta"),
            idempotent=False,
            timeout=options.get("timeout", Unset),
            extension=TASKS,
            wish=wish,
        )
        begun = self._begun(raw)
        if begun is None:
            return TaskHandle.ended(finish(tool, raw))
        return self._handle(begun.task_id, partial(finish, tool), begun)

    def task(
        self, id: str, *, into: type[D] | UnionType | None = None, raise_on_error: bool | None = None
    ) -> TaskHandle[D]:
        """A task that was begun before, perhaps by another run of this program."""
        return self._handle(id, partial(self._finished, id, into, raise_on_error, None))

    def _handle(self, id: str, finish: Callable[[Raw], ToolResult[Any]], begun: Any = None) -> TaskHandle[Any]:
        async def call(method: str, params: dict[str, Any], name: str, timeout: Timeout = Unset) -> Raw:
            raw, _ = await self._connection.call(method, params, name=name, timeout=timeout, extension=TASKS)
            return raw

        connection = self._connection

        async def ask(method: str, params: Mapping[str, Any], key: str) -> Any:
            return await connection.ask(method, params)

        return TaskHandle(TaskClient(call, ask, connection.rest, lambda: self.era == "modern"), id, finish, begun)

    def _begun(self, raw: Raw) -> Any:
        """The task a call was answered with; None if it was answered with its result."""
        return read_begun(raw, modern=self.era == "modern")

    def _finished(
        self, name: str, into: Any, raise_on_error: bool | None, tool: KnownTool | None, raw: Raw
    ) -> ToolResult[Any]:
        result = read_tool(raw, unwrap=tool is not None and tool.unwraps)
        if tool is not None and tool.output is not None:
            tool.check(result, self._options.schema_check)
        if result.is_error and (self._options.raise_on_error if raise_on_error is None else raise_on_error):
            raise result.failure(name)
        if into is not None:
            result.convert_into(into, name)
        return result

    # --- resources, prompts, completion ------------------------------------------------------------------------------

    async def list_resources(self, cursor: str | None = None, *, fresh: bool = False) -> Page[Resource]:
        """One page of the server's resources."""
        return await self._lists.page("resources/list", cursor, fresh)

    async def list_resources_all(self, *, max_pages: int = _MAX_PAGES, fresh: bool = False) -> list[Resource]:
        """All of the server's resources."""
        return await self._lists.all("resources/list", max_pages, fresh)

    async def list_resource_templates(
        self, cursor: str | None = None, *, fresh: bool = False
    ) -> Page[ResourceTemplate]:
        """One page of the server's resource templates."""
        return await self._lists.page("resources/templates/list", cursor, fresh)

    async def list_resource_templates_all(
        self, *, max_pages: int = _MAX_PAGES, fresh: bool = False
    ) -> list[ResourceTemplate]:
        """All of the server's resource templates."""
        return await self._lists.all("resources/templates/list", max_pages, fresh)

    async def read_resource(
        self, uri: str, *, timeout: Timeout = Unset, fresh: bool = False, meta: Mapping[str, Json] | None = None
    ) -> ResourceResult:
        """Read a resource.

        Raises:
            CallError: there is none with this URI (-32602, or -32002 from an older server), or it cannot be read.
        """
        check_offered(self._connection, "resources/read")
        params: dict[str, Any] = {"uri": uri}
        if meta:
            params["_meta"] = meta
        cached = None if fresh else self._cache.get("resources/read", params)
        if cached is not None:
            return cached.copy()
        generation = self._cache.generation
        raw, asked_for_input = await self._connection.call("resources/read", params, name=uri, timeout=timeout)
        result = read_resource(raw)
        if not asked_for_input and self._options.cache and self.era == "modern" and len(bytes(raw)) <= KEEP_BYTES:
            ttl: Any = _decode_any(raw).get("ttlMs")
            ttl_ms = ttl if isinstance(ttl, int) else None
            self._cache.put(
                "resources/read", params, ttl_ms, result.copy(), generation=generation, size=len(bytes(raw))
            )
        return result

    async def list_prompts(self, cursor: str | None = None, *, fresh: bool = False) -> Page[Prompt]:
        """One page of the server's prompts."""
        return await self._lists.page("prompts/list", cursor, fresh)

    async def list_prompts_all(self, *, max_pages: int = _MAX_PAGES, fresh: bool = False) -> list[Prompt]:
        """All of the server's prompts."""
        return await self._lists.all("prompts/list", max_pages, fresh)

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: Timeout = Unset,
        meta: Mapping[str, Json] | None = None,
    ) -> PromptResult:
        """Have a prompt filled in."""
        check_offered(self._connection, "prompts/get")
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = arguments
        if meta:
            params["_meta"] = meta
        raw, _ = await self._connection.call("prompts/get", params, name=name, timeout=timeout)
        return read_prompt(raw)

    async def complete(
        self,
        ref: str | PromptReference | ResourceReference,
        argument: str,
        value: str,
        context: Mapping[str, str] | None = None,
        *,
        timeout: Timeout = Unset,
    ) -> Completion:
        """Suggest values for an argument of a prompt (by name) or of a resource template (by its URI template)."""
        check_offered(self._connection, "completion/complete")
        if isinstance(ref, str):
            is_template = "{" in ref or "://" in ref
            ref = ResourceReference(uri=ref) if is_template else PromptReference(name=ref)
        params: dict[str, Any] = {"ref": ref, "argument": {"name": argument, "value": value}}
        if context:
            params["context"] = {"arguments": context}
        raw, _ = await self._connection.call("completion/complete", params, timeout=timeout)
        return read_completion(raw)

    # --- changes -----------------------------------------------------------------------------------------------------

    def listen(self, **options: Unpack[ListenOptions]) -> ChangeStream:
        """The server's announcements of change, until the client is closed: `async for change in client.listen(...)`.

        To be sure that nothing is missed between a first look and the first change, write
        `async with client.listen(...) as changes:`, look, then `async for change in changes`.

        Args:
            tools, prompts, resources_list: Hear when this list changes.
            resources: Hear when one of these resources changes; a list of URIs.
        """
        if not options.keys() <= _LISTEN_OPTIONS:
            check_options(options, _LISTEN_OPTIONS, "listen", TypeError)
        resources = options.get("resources", ())
        if isinstance(resources, str):
            raise ConfigError(f"resources must be a list of URIs: write resources=[{resources!r}]")
        uris = tuple(resources)
        lists = (("tools", "tools"), ("prompts", "prompts"), ("resources_list", "resources"))
        kinds = [kind for option, kind in lists if options.get(option)]
        if not kinds and not uris:
            raise ConfigError(
                "nothing to listen to: say tools=True, prompts=True, resources_list=True or resources=[...]"
            )
        return self._watch.listen(kinds, uris)

    async def subscribe(self, uri: str, callback: Callable[[str], object]) -> Subscription:
        """Have `callback(uri)` called whenever a resource changes; several callbacks may share one URI (R198)."""
        return await self._watch.subscribe(uri, callback)

    # --- the rest ----------------------------------------------------------------------------------------------------

    async def ping(self, *, timeout: Timeout = Unset) -> None:
        """Ask for a sign of life."""
        await self._connection.ping(timeout)

    async def set_log_level(self, level: LogLevel) -> None:
        """Receive log messages of this severity and above through `on_log`."""
        if level not in LOG_LEVELS:
            raise LocalProtocolError.invalid_params(
                f"{level!r} is not a log level; the levels are {', '.join(LOG_LEVELS)}"
            )
        check_offered(self._connection, "logging/setLevel")
        self._level = level
        self._connection.log_level = level
        if self.era == "legacy":
            await self._connection.call("logging/setLevel", {"level": level})

    async def set_roots(self, roots: Roots) -> None:
        """Replace the roots, and tell a legacy server that they changed."""
        asks = self._connection.asks
        if not asks.has_roots:
            raise LocalProtocolError.invalid_params("this client declared no roots: connect with roots=[...] first")
        asks.set_roots(roots)
        if self.state != "new" and self.era == "legacy":
            await self._connection.notify("notifications/roots/list_changed", None)

    async def request(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        timeout: Timeout = Unset,
        on_progress: OnProgress | None = None,
        idempotent: bool = False,
    ) -> dict[str, Json]:
        """Send any request and get its result as it came: the way to methods this client has no name for."""
        row = METHODS.get(method)
        fields = dict(params or {})
        name: Any = None
        if row is not None and row.routing_name is not None:
            name = fields.get("taskId" if row.routing_name == "task_id" else row.routing_name)
        elif method.startswith("tasks/"):
            name = fields.get("taskId")
        raw, _ = await self._connection.call(
            method,
            fields,
            name=name if isinstance(name, str) else None,
            timeout=timeout,
            on_progress=on_progress,
            repeatable=idempotent,
            extension=TASKS if self._options.tasks else None,
        )
        result: Any = _decode_any(raw)
        if not isinstance(result, dict):
            raise RemoteProtocolError(CODE_INVALID_REQUEST, f"the result of {method} is not an object")
        return cast("dict[str, Json]", result)

    async def notify(self, method: str, params: Mapping[str, object] | None = None) -> None:
        """Send any notification."""
        await self._connection.notify(method, params)

    @property
    def requests(self) -> tuple[RequestId, ...]:
        """The ids of the requests that wait for an answer."""
        return self._connection.in_flight

    def cancel(self, request_id: RequestId, reason: str | None = None) -> bool:
        """Cancel a request: its caller gets CallCancelled, and the server is told (R196). False: no such request waits."""
        return self._connection.cancel(request_id, reason)

    async def list_tasks(self, cursor: str | None = None) -> dict[str, Json]:
        """One page of a 2025-11-25 server's tasks."""
        return await self.request("tasks/list", page_params(cursor), idempotent=True)

    async def get_task(self, task_id: str) -> dict[str, Json]:
        """The state of a task."""
        return await self.request("tasks/get", {"taskId": task_id}, idempotent=True)

    async def cancel_task(self, task_id: str) -> dict[str, Json]:
        """End a task."""
        return await self.request("tasks/cancel", {"taskId": task_id}, idempotent=True)

    async def task_result(self, task_id: str, *, timeout: Timeout = Unset) -> dict[str, Json]:
        """The result of a 2025-11-25 task; waits until there is one."""
        return await self.request("tasks/result", {"taskId": task_id}, timeout=timeout, idempotent=True)

    # --- inside ------------------------------------------------------------------------------------------------------

    def _hear(self, method: str, params: dict[str, Any]) -> None:
        if method == "notifications/tools/list_changed":
            self._tools.forget()
        self._cache.hear(method, params)
        self._watch.hear(method, params)

    async def _began(self, again: bool) -> None:
        """A new conversation: what was known of the old one's server may no longer hold."""
        if not again:
            return
        self._tools.forget()
        self._cache.clear()
        if self._level is not None and self.era == "legacy":
            try:
                await self._connection.call("logging/setLevel", {"level": self._level}, is_internal=True)
            except Error as error:
                log.warning("the log level could not be set again after reconnecting: %s", error)
        await self._watch.restore()
