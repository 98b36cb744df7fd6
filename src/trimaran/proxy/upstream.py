"""The target of a proxy: one connection, its catalog kept up to date, and the way of every call.

    start -> connect -> list everything -> listen for changes; on any failure: pause, then connect again

A target that cannot be reached does not stop the server: it has no entries until it answers, and the log says why. The
client heals lost connections by itself; after one, everything is listed again, since nobody knows what changed meanwhile.

Resource subscriptions follow the callers: the target is asked to watch exactly what somebody here watches.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar, final
from weakref import WeakKeyDictionary

import msgspec
from msgspec import Raw

from trimaran.client.client import Client
from trimaran.client.server_requests import StateEvent
from trimaran.client.subscriptions import Subscription
from trimaran.client.tasks import TASKS
from trimaran.connecting import Target, connect
from trimaran.errors import (
    CODE_INVALID_REQUEST,
    CODE_MISSING_CAPABILITY,
    CallError,
    ConnectFailed,
    Error,
    ProtocolError,
    TransportError,
    Unauthorized,
    Unsupported,
)
from trimaran.fleet import Fleet
from trimaran.outage_log import Outage
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.meta import LOG_LEVELS, PREFIX
from trimaran.server.access import identity
from trimaran.server.context import Context
from trimaran.server.handlers import call_any, logger
from trimaran.server.input_rounds import ModernVoice
from trimaran.types import CompleteResult, Completion, GetPromptResult, Json, ReadResourceResult, as_object

from .connections import CallerAuth, ConnectionBudget, Connections, Isolation
from .definitions import (
    TaskSupport,
    completion_entries,
    is_task_only,
    prompt_entries,
    resource_entries,
    template_entries,
    tool_entries,
)
from .forwarding import describe_failure, forward, malformed, read_result, send
from .parked_calls import ParkedCalls, RoundEnd, raise_error
from .results import MalformedResult, PlainReply, cache_hints, check_contents, check_messages
from .shortcuts import ToolShortcut

if TYPE_CHECKING:
    from trimaran.server.resources import TemplateEntry
    from trimaran.server.server import Server

E = TypeVar("E")
D = TypeVar("D")
Review: TypeAlias = Callable[[str, list[Any]], Awaitable[Sequence[Any]]]
"""Called with a kind (tool, prompt, template) and the definitions that the target lists; returns those to serve."""

_STEP: Final = "parked"
# After its lists were read again they rest for so many times as long, so that a target whose lists change all the time takes
# a fifth of the process at most; the first change after a rest is followed at once.
_REST_FACTOR: Final = 4.0
_MOST_REST: Final = 10.0  # seconds
_PAUSES: Final = (0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)  # seconds between attempts to connect
# What an older target is told at its handshake; whether a caller can answer is checked when it is asked.
_CAPABILITIES: Final[dict[str, Any]] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {},
    "roots": {"listChanged": True},
}

_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


class AdmittedCall(NamedTuple):
    """A call that was sent by a shortcut, and is waited for after all."""

    answer: Coroutine[Any, Any, Any]
    began: float
    """A time of `perf_counter`."""


class CallControl(Protocol):
    """Decides about the calls of a proxy: who may see and use what, and over which connection."""

    active: int
    """Calls that are at work."""

    def adapt(self, kind: str, entries: Sequence[Any]) -> None:
        """Set who sees entries of the catalog, and how long they may take. These are all that the target has of this kind
        (tool, prompt, resource or template) from now on."""
        ...

    def call(
        self,
        upstream: Upstream,
        ctx: Context,
        method: str,
        params: dict[str, Any],
        name: str,
        admitted: AdmittedCall | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Serve one call, by `upstream.send` if it may be served; or wait for one that `admits_at_once` let through."""
        ...

    def admits_at_once(self, call: IncomingCall, name: str) -> bool:
        """May a tool be called, and has nothing to be done before? False: `call` decides."""
        ...

    def note_plain_reply(self, call: IncomingCall, name: str, answer: PlainReply, began: float) -> bool:
        """Take note of a call that was admitted at once, and is over. False: its answer cannot pass as it is."""
        ...


@final
class Upstream:
    """A target, as a proxy server knows it."""

    def __init__(
        self,
        server: Server,
        target: Target,
        *,
        start_timeout: float,
        name: str | None,
        isolation: Isolation,
        max_connections: int,
        control: CallControl | None = None,
        caller_auth: Callable[[IncomingCall], CallerAuth] | None = None,
        is_personal: bool = True,
        budget: ConnectionBudget | None = None,
        review: Review | None = None,
        on_refused: Callable[[Unauthorized], Awaitable[object]] | None = None,
        **options: Any,
    ) -> None:
        self._server = server
        self._review = review
        self._withheld: list[TemplateEntry] = []
        """Templates that the target lists, and that the review did not pass."""
        self._on_refused = on_refused
        self.is_personal: bool = caller_auth is not None and is_personal
        """Callers have credentials of their own here."""
        self._may_be_personal = caller_auth is not None
        self._has_logins = caller_auth is not None and not is_personal
        self._is_isolated = isolation == "caller"
        self._wake = asyncio.Event()
        self.control = control
        self._target = target
        self._on_state: Callable[[StateEvent], object] | None = options.get("on_state")
        self._options: dict[str, Any] = {"capabilities": _CAPABILITIES, **options, "on_state": self._hear_state}
        self._start_timeout = start_timeout
        self.name: str = name or "the upstream server"
        """What callers are told it is called."""
        self._is_named = name is not None
        self._client: Client | None = None
        self._newest: Client | None = None
        """The same, and while it is opened or closed as well."""
        self._own: Connections | None = None
        if isolation == "caller" or caller_auth is not None:
            self._own = Connections(self._connect_for, most=max_connections, auth=caller_auth, budget=budget)
        self._running: asyncio.Task[None] | None = None
        self._listed: asyncio.Event = asyncio.Event()
        self._is_new: asyncio.Event = asyncio.Event()
        """Set when the client has connected again."""
        self._failure: Error | None = None
        self._outage = Outage(logger, "the target of the proxy answers again")
        self._parked = ParkedCalls(ttl=server.limits.input_ttl)
        self._levels: WeakKeyDictionary[Client, Any] = WeakKeyDictionary()
        """The log level that each client asks its session for."""
        self._task_only: set[str] = set()
        """Tools that the target runs as tasks only."""
        self._watching: dict[str, Subscription] = {}
        self._following: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        server.runtime.changes.on_watch = self._follow

    def _connect_for(self, auth: CallerAuth | None, capabilities: dict[str, Json] | None) -> Client:
        options: dict[str, Any] = self._options if auth is None else {**self._options, "auth": auth}
        if capabilities is not None:
            options = {**options, "capabilities": capabilities}
        return connect(self._target, **options)

    # --- its life

    async def start(self) -> None:
        """Begin to connect, and wait until the target is listed or `start_timeout` is over."""
        if self._running is not None:
            return
        self._loop = asyncio.get_running_loop()
        self._listed, self._is_new = asyncio.Event(), asyncio.Event()
        self._running = asyncio.ensure_future(self._run())
        waiting = asyncio.ensure_future(self._listed.wait())
        try:
            await asyncio.wait((waiting,), timeout=self._start_timeout)
        finally:
            waiting.cancel()

    async def close(self) -> None:
        running, self._running = self._running, None
        for task in (running, self._following):
            if task is not None and not task.done():
                task.cancel()
                await asyncio.wait((task,))
        await self._parked.close()
        if self._own is not None:
            await self._own.close()
        self._watching.clear()
        self._client = None
        if self._newest is not None:
            await self._newest.close()  # it may be closing already: everybody waits for the same end

    async def _run(self) -> None:
        attempt = 0
        while True:
            self._wake.clear()  # before the options are read: other credentials that come later end the pause
            client = self._newest = connect(self._target, **self._options)
            try:
                await client.open()
                self._client = client
                attempt = 0
                await self._live(client)
            except Exception as error:
                if not isinstance(
                    error, Error
                ):  # of ours, by what the target sent; it may send something else next time
                    logger.error("the catalog of %s cannot be read", self.name, exc_info=error)
                    error = Error("its catalog cannot be read")
                elif isinstance(error, Unauthorized) and self._on_refused is not None:
                    error = await self._find_credentials(error, self._on_refused)
                self._failure = _without_frames(error)
                self.is_personal = self.is_personal or (self._may_be_personal and isinstance(error, Unauthorized))
                self._outage.failed(f"{self.name} cannot be used: {error}")
                self._listed.set()
            except BaseException:
                self._client = None
                await client.close()
                raise
            self._client = None
            await client.close()
            self._watching.clear()  # the next client watches nothing yet
            await self._pause(_PAUSES[min(attempt, len(_PAUSES) - 1)])
            attempt += 1

    async def _find_credentials(
        self, refusal: Unauthorized, find: Callable[[Unauthorized], Awaitable[object]]
    ) -> Error:
        """The error that stays, after a look for other credentials."""
        try:
            credentials = await find(refusal)
        except Error as error:
            return error
        if credentials is not None:
            self.use_credentials(credentials)
        return refusal

    async def _pause(self, seconds: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._wake.wait()

    def use_credentials(self, auth: object) -> None:
        """Connect with these credentials from now on; at once, if there is no connection."""
        self._options["auth"] = auth
        self._wake.set()

    def drop_caller(self, principal: object) -> None:
        """Close the connections of a caller."""
        if self._own is not None:
            self._own.drop_owner(identity(principal))

    async def _live(self, client: Client) -> None:
        """List everything and follow the changes, for as long as the client lasts."""
        kinds = {kind: True for kind in ("tools", "prompts") if kind in client.server_capabilities}
        if "resources" in client.server_capabilities:
            kinds["resources_list"] = True
        try:
            if not kinds:
                raise Unsupported("there are no lists", method="subscriptions/listen")
            async with client.listen(**kinds) as changes:  # pyright: ignore[reportArgumentType]
                await self._describe(client)
                async for change in changes:
                    if change.kind in ("tools", "prompts", "resources"):
                        began = time.monotonic()
                        await self._list(client, change.kind)
                        await asyncio.sleep(min(_REST_FACTOR * (time.monotonic() - began), _MOST_REST))
                    elif change.kind == "reconnected":
                        await self._describe(client)
        except (CallError, Unsupported) as error:
            if self._listed.is_set():
                raise
            # A server that tells of no changes: its lists are read again with each new connection.
            logger.debug("changes of %s are not announced: %s", self.name, error)
            while True:
                self._is_new.clear()
                await self._describe(client)
                await self._is_new.wait()

    async def _hear_state(self, event: StateEvent) -> None:
        if event.state == "ready" and event.previous == "reconnecting":
            self._is_new.set()
        if self._on_state is not None:
            await call_any(self._on_state, event)

    async def _describe(self, client: Client) -> None:
        """Take over everything that the target says of itself."""
        info = client.server_info
        if info is not None:
            self.name = self.name if self._is_named else info.name
            self._server.runtime.describe_as(msgspec.structs.replace(info, name=self.name), client.instructions)
        for kind in ("tools", "resources", "prompts"):
            await self._list(client, kind)
        self._follow()
        self._failure = None
        self._outage.succeeded()
        self._listed.set()

    async def _list(self, client: Client, kind: str) -> None:
        server, capabilities = self._server, client.server_capabilities
        if kind not in capabilities:
            with server.runtime.changes.collected():
                for registry in {
                    "tools": (server.tools,),
                    "prompts": (server.prompts,),
                    "resources": (server.resources, server.templates),
                }[kind]:
                    if registry or not registry.is_known:
                        registry.reset(())
            return
        if kind == "tools":
            tools = await self._reviewed("tool", await client.list_tools_all(fresh=True))
            shortcut = partial(ToolShortcut, self)
            entries = tool_entries(tools, self.forward, self.name, _task_support(client), shortcut)
            self._task_only = {tool.name for tool in tools if is_task_only(tool)}
            server.tools.reset(self._adapted("tool", entries))
            server.runtime.refresh_tasks()
            return
        if kind == "prompts":
            prompts = await self._reviewed("prompt", await client.list_prompts_all(fresh=True))
            server.prompts.reset(self._adapted("prompt", prompt_entries(prompts, self.forward, self.name)))
        else:
            resources = await client.list_resources_all(fresh=True)
            listed = await _optional(client.list_resource_templates_all)
            templates = await self._reviewed("template", listed)
            withheld = [template for template in listed if template not in templates]
            self._withheld = template_entries(withheld, self.forward, self.name)
            with server.runtime.changes.collected():
                server.resources.reset(self._adapted("resource", resource_entries(resources, self.forward, self.name)))
                server.templates.reset(self._adapted("template", template_entries(templates, self.forward, self.name)))
        if "completions" in capabilities:
            prompts = [entry.definition for entry in server.prompts.entries()]
            templates = [entry.definition for entry in server.templates.entries()]
            server.completions.reset(completion_entries(prompts, templates, self.forward, self.name))

    async def _reviewed(self, kind: str, definitions: list[D]) -> list[D]:
        return definitions if self._review is None else list(await self._review(kind, definitions))

    async def list_again(self) -> None:
        """Read all lists again, because another verdict about them is to be expected."""
        if self._client is not None and self._listed.is_set():
            await self._describe(self._client)

    def _adapted(self, kind: str, entries: Iterable[E]) -> Sequence[E]:
        adapted = list(entries)
        if self.control is not None:
            self.control.adapt(kind, adapted)
        return adapted

    def why_unlisted(self) -> ProtocolError | None:
        """Why the lists are not known yet; None where a caller has to log in, as the tools for that say."""
        needs_login = self._has_logins and isinstance(self._failure, Unauthorized)
        return None if needs_login else self.failure()

    def failure(self) -> ProtocolError:
        """Why the target is not there, for a caller."""
        failure = self._failure
        if failure is None or getattr(failure, "sent", False):  # a request of ours was lost; this call is not sent
            failure = ConnectFailed("not connected")
        return describe_failure(failure, self.name)

    @property
    def client(self) -> Client | None:
        """The connection that all callers share, while there is one."""
        return self._client

    @property
    def own_clients(self) -> int:
        """Connections of single callers."""
        return 0 if self._own is None else len(self._own)

    @property
    def parked(self) -> int:
        """Calls that wait for an answer of their caller."""
        return len(self._parked)

    @property
    def status(self) -> str:
        """connected, or why it is not."""
        if self._client is not None:
            return "connected"
        return "connecting" if self._failure is None else str(self._failure)

    # --- calls

    def forward(self, ctx: Context, method: str, params: dict[str, Any], name: str) -> Coroutine[Any, Any, Any]:
        """Have the target serve a call."""
        if self.control is not None:
            return self.control.call(self, ctx, method, params, name)
        return self.send(ctx, method, params, name)

    @property
    def shared_client(self) -> Client | None:
        """The connection over which all calls go; None while there is none, or where callers have their own."""
        return self._client if self._own is None and not self.is_personal else None

    def finish(
        self, client: Client, ctx: Context, params: dict[str, Any], name: str, began: float
    ) -> Coroutine[Any, Any, Any]:
        """Wait for the answer to a call that took a shortcut."""
        answer = self._call_tool(client, ctx, params, name, is_own=False)
        if self.control is None:
            return answer
        return self.control.call(self, ctx, "tools/call", params, name, AdmittedCall(answer, began))

    def send(self, ctx: Context, method: str, params: dict[str, Any], name: str) -> Coroutine[Any, Any, Any]:
        """Send a call to the target, by the connection of its caller or the one that all share."""
        client = self.shared_client
        if client is not None:
            if method == "tools/call" and client.era == "modern":
                return self._call_tool(client, ctx, params, name, is_own=False)
            return self._forward_to(client, ctx, method, params, name)
        return self._send_for_caller(ctx, method, params, name)

    async def _send_for_caller(self, ctx: Context, method: str, params: dict[str, Any], name: str) -> Any:
        call = ctx.call
        client = self._client
        if client is None and not self.is_personal:
            raise self.failure()
        caller = (
            self._own.caller_of(call) if self._own is not None and (self.is_personal or self._is_isolated) else None
        )
        if self.is_personal and call.principal is None:
            raise ProtocolError(
                CODE_INVALID_REQUEST,
                f"{self.name} is called in the name of its caller, and you are not authenticated: send credentials",
                {"upstream": self.name, "kind": "anonymous"},
                status=200,
            )
        rounds = call.exchange.rounds
        is_parked = rounds is not None and _STEP in rounds.steps
        if client is not None and (self._own is None or caller is None or is_parked):
            return await self._forward_to(client, ctx, method, params, name)
        own = self._own
        assert own is not None
        try:
            client = await own.take(caller, call)
        except TransportError as error:
            raise describe_failure(error, self.name) from error
        try:
            return await self._forward_to(client, ctx, method, params, name, lambda: own.hold(caller))
        finally:
            own.release(caller)

    async def _forward_to(
        self,
        client: Client,
        ctx: Context,
        method: str,
        params: dict[str, Any],
        name: str,
        hold: Callable[[], Callable[[], None]] | None = None,
    ) -> Any:
        call = ctx.call
        voice = call.exchange.voice
        fleet = ctx.server.runtime.fleet
        if fleet is not None and isinstance(fleet, Fleet):
            self._parked.join(fleet)
        is_legacy = client.era == "legacy"
        if is_legacy:
            self._raise_log_level(client, call)
        if is_legacy and isinstance(voice, ModernVoice) and method != "completion/complete":
            result = await self._in_rounds(client, call, voice, params, name, hold)
        elif method == "tools/call":
            return await self._call_tool(client, ctx, params, name, is_own=hold is not None)
        else:
            result = await forward(client, call, params, name, self.name)
        if method == "tools/call" or result is None:
            return result
        return _read(result, method, self.name)

    def _call_tool(
        self, client: Client, ctx: Context, params: dict[str, Any], name: str, *, is_own: bool
    ) -> Coroutine[Any, Any, Any]:
        """Have a tool called whose caller can wait, or whose rounds the target keeps; or whose target begins a task."""
        call = ctx.call
        if isinstance(call.exchange.voice, ModernVoice):
            return forward(client, call, params, name, self.name)
        return self._call_tool_for_older(client, ctx, params, name, is_own=is_own)

    async def _call_tool_for_older(
        self, client: Client, ctx: Context, params: dict[str, Any], name: str, *, is_own: bool
    ) -> Any:
        call = ctx.call
        voice = call.exchange.voice
        if not (hasattr(voice, "detach") or name in self._task_only):
            try:
                return await forward(client, call, params, name, self.name)
            except ProtocolError as error:
                if client.era == "legacy" or not _needs_task(error):
                    raise
        from .task_forwarding import forward_task, wait_for_task

        def current() -> Client:
            return client if is_own else self._connected()

        if hasattr(voice, "detach") and _task_support(client) is not None:
            return await forward_task(current, ctx, params, name, self.name)
        raw = await wait_for_task(current, call, params, name, self.name)
        return read_result(raw, call, client, self.name)

    def _connected(self) -> Client:
        client = self._client
        if client is None:
            raise ConnectFailed(f"{self.name} is not connected")
        return client

    async def _in_rounds(
        self,
        client: Client,
        call: IncomingCall,
        voice: ModernVoice,
        params: dict[str, Any],
        name: str,
        hold: Callable[[], Callable[[], None]] | None,
    ) -> Any:
        """A caller of 2026-07-28, and a target that asks while it waits. `hold` keeps the client for a parked call."""
        parked_calls, exchange = self._parked, call.exchange
        rounds = exchange.rounds
        id = None if rounds is None else rounds.steps.get(_STEP)
        if rounds is not None and id is not None:
            end = await parked_calls.resume(id, rounds.answers, call)
        else:
            parked = parked_calls.new(call)
            id = parked.id

            async def request() -> Raw:
                if name in self._task_only:
                    from .task_forwarding import wait_for_task

                    return await wait_for_task(lambda: client, call, params, name, self.name, parked.ask)
                raw, _ = await send(client, call, params, name, parked, self.name)
                return raw

            task = parked.begin(request())
            if hold is not None:
                let_go = hold()
                task.add_done_callback(lambda _: let_go())
            end = await parked_calls.first_round(parked)
        return self._finish(end, id, call, voice, client)

    def _finish(self, end: RoundEnd, id: str, call: IncomingCall, voice: ModernVoice, client: Client) -> Any:
        raise_error(end)
        if end.questions is not None:
            voice.end_round(call.exchange, end.questions, {_STEP: id})
            return None
        return read_result(Raw(end.result or b"{}"), call, client, self.name)

    def _raise_log_level(self, client: Client, call: IncomingCall) -> None:
        """An older target has one level for all: the least severe that a caller wants to hear."""
        if "logging" not in client.server_capabilities:
            return
        level: Any = call.log_level if call.session is None else call.session.log_level
        if level is None or LOG_LEVELS.index(level) >= LOG_LEVELS.index(self._levels.get(client, "info")):
            return
        self._levels[client] = level
        asyncio.ensure_future(_quietly(client.set_log_level(level)))  # noqa: RUF006 - short, and its outcome matters to nobody

    async def read_undeclared(self, uri: str, ctx: Context) -> Any:
        """Read what the target does not list: tools may return links to such resources. Not by a template that is withheld."""
        client, resources = self._client, self._server.resources
        if client is None and not self.is_personal and (resources or self._server.templates or not resources.is_known):
            raise self.failure()
        if client is None or "resources" not in client.server_capabilities:
            return None
        if any(entry.template.match(uri) is not None for entry in self._withheld):
            return None
        return await self.forward(ctx, "resources/read", {"uri": uri}, uri)

    # --- what callers watch

    def _follow(self) -> asyncio.Future[None] | None:
        """Begin to ask the target to watch what callers watch."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return None
        try:
            is_here = asyncio.get_running_loop() is loop
        except RuntimeError:
            is_here = False
        if not is_here:
            loop.call_soon_threadsafe(self._follow)
            return None
        if self._following is None or self._following.done():
            self._following = asyncio.ensure_future(self._agree())
        return self._following

    async def _agree(self) -> None:
        """Ask the target to watch what callers watch, until both agree."""
        client = self._client
        if client is None or "resources" not in client.server_capabilities:
            return
        while (uris := self._server.runtime.changes.watched()) != self._watching.keys():
            for uri in self._watching.keys() - uris:
                await _quietly(self._watching.pop(uri).cancel())
            for uri in uris - self._watching.keys():
                try:
                    self._watching[uri] = await client.subscribe(uri, self._server.notify.resource_updated)
                except Error as error:
                    logger.debug("%s does not watch %.200s: %s", self.name, uri, error)
                    return


def _task_support(client: Client) -> TaskSupport:
    """How the target has calls become tasks, if it does."""
    if client.era == "legacy":
        return "declared" if "tasks" in client.server_capabilities else None
    return "any" if TASKS in (as_object(client.server_capabilities.get("extensions")) or {}) else None


def _needs_task(error: ProtocolError) -> bool:
    """True if a target of 2026-07-28 refused a call because its client knows no tasks. Nothing was run."""
    if error.code != CODE_MISSING_CAPABILITY:
        return False
    required = as_object((as_object(error.data) or {}).get("requiredCapabilities")) or {}
    return TASKS in (as_object(required.get("extensions")) or {})


async def _optional(list_all: Callable[..., Awaitable[list[Any]]]) -> list[Any]:
    """A list that a target may lack though it declares the capability."""
    try:
        return await list_all(fresh=True)
    except ProtocolError:
        return []


def _without_frames(error: Error) -> Error:
    """What can be kept of an error: its frames hold all that the target had sent, up to a list that was too long."""
    error.__cause__ = error.__context__ = None
    return error.with_traceback(None)


async def _quietly(work: Awaitable[Any]) -> None:
    try:
        await work
    except Error as error:
        logger.debug("%s", error)


def _read(raw: Any, method: str, target: str) -> Any:
    """The result of any method but `tools/call`, as the struct that our server writes for each era."""
    try:
        fields = _decode_object(raw)
        own: dict[str, Any] = fields.get("_meta") or {}
        meta = {key: value for key, value in own.items() if not key.startswith(PREFIX)} or None
        if method == "resources/read":
            check_contents(raw)
            ttl, scope = cache_hints(fields)
            return ReadResourceResult(contents=fields["contents"], ttl_ms=ttl, cache_scope=scope, meta=meta)
        if method == "prompts/get":
            check_messages(raw)
            return GetPromptResult(messages=fields["messages"], description=fields.get("description"), meta=meta)
        return CompleteResult(completion=msgspec.convert(fields["completion"], Completion), meta=meta)
    except (msgspec.DecodeError, UnicodeDecodeError, MalformedResult, KeyError, AttributeError) as error:
        raise malformed(target, f"a malformed result of {method}: {error}") from None
