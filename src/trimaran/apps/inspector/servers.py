"""The servers that are inspected: how each is reached, its connection, its state, and the story of both.

One client for each server, not a host: a person presses every button, so there is nothing to permit, and a supervisor that
restarts servers by itself would hide what the person wants to see. The client negotiates the era and heals a lost session;
its changes of state become the story that the page tells.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, final

import msgspec
from msgspec import Struct, structs

from trimaran.client.client import Client
from trimaran.client.server_requests import Elicitation, Sampling, StateEvent
from trimaran.connecting import connect
from trimaran.errors import Error, Unauthorized
from trimaran.ext.apps.metadata import IDENTIFIER as APPS
from trimaran.ext.apps.metadata import MIME_TYPE
from trimaran.protocol.mask import MASK, Mask
from trimaran.types import Implementation

from .catalog import Catalog
from .events import PageEvents, now_ms
from .failures import PageFailure, failure_of
from .questions import QuestionDesk
from .requests import BadRequest, NotThere, WrongState
from .wire import MessageLog, ServerTap

__all__ = ["Activity", "InspectedServer", "InspectedServerOptions", "Reach", "ServerSource", "ServerView", "Servers"]

_MOST_STDERR: Final = 2_000  # lines; a traceback storm fits, a debug log of days does not
_LONGEST_LINE: Final = 8_192  # characters of one line of stderr
_MOST_ACTIVITIES: Final = 500
_MOST_SERVERS: Final = 200  # a person looks at a few; other programs' files together may name dozens
_SHOWN_OF_SESSION: Final = 8
_STDERR_EVENT: Final = 200  # lines in one event; the rest is read on demand
_CLOSE_SECONDS: Final = 8.0  # for a child's two graces, and a little

_MESSAGE_BYTES: Final = 32 * 1024 * 1024  # twice a client's default: whoever inspects wants to see what others refuse
_MOST_MESSAGE_BYTES: Final = 1024 * 1024 * 1024  # it stands in memory, more than once

State: TypeAlias = Literal["idle", "connecting", "ready", "reconnecting", "needs-auth", "failed", "closed"]


class Reach(Struct, frozen=True, kw_only=True):
    """How a server is reached."""

    target: Any
    """As `connect` takes it."""
    name: str
    text: str
    """For people, masked."""
    transport: str
    options: Mapping[str, Any] = {}
    """Those of `connect` that belong to the way there: headers, auth, env, cwd."""
    mask: Mask = Mask()
    details: Any = None
    """Whatever the doctor needs to examine the same target."""

    def __repr__(self) -> str:
        return f"<Reach {self.text}>"  # options hold secrets


class ServerSource(Struct, frozen=True, kw_only=True):
    """Who named the server."""

    kind: Literal["command-line", "config", "program", "page", "process", "recording", "try"]
    label: str


class InspectedServerOptions(Struct, kw_only=True, rename="camel", omit_defaults=False):
    """What a person can set for the next connection; `timeout` in milliseconds, to connect and for each answer."""

    era: Literal["auto", "modern", "legacy"] = "auto"
    revision: str | None = None
    timeout: float = 60_000
    elicitation: bool = True
    sampling: bool = True
    roots: bool = True
    tasks: bool = True
    apps: bool = True
    max_message_bytes: Annotated[int, msgspec.Meta(ge=1024, le=_MOST_MESSAGE_BYTES)] = _MESSAGE_BYTES
    log_level: str | None = None
    headers: list[str] = []
    """Their names; the values are not told."""

    def changed(self, changes: Mapping[str, Any]) -> InspectedServerOptions:
        """These options with some of them changed."""
        fields = {info.encode_name: info.name for info in structs.fields(InspectedServerOptions)}
        unknown = changes.keys() - fields.keys()
        if unknown:
            raise BadRequest(f"there is no option {sorted(unknown)[0]!r}; there are {', '.join(sorted(fields))}")
        try:
            known = {name: value for name, value in changes.items() if name != "headers"}
            return msgspec.convert({**msgspec.to_builtins(self), **known}, InspectedServerOptions)
        except msgspec.ValidationError as error:
            raise BadRequest(f"the options are not valid: {error}") from None


class Activity(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """One entry in the story of a connection."""

    at: float
    event: str = msgspec.field(name="what")
    text: str
    failure: PageFailure | None = None


class ServerView(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """A server as the page sees it."""

    id: str
    name: str
    target: str
    transport: str
    source: ServerSource
    state: State
    client_capabilities: Any
    connections: int
    stderr_lines: int
    counts: Mapping[str, int]
    options: InspectedServerOptions
    subscriptions: list[str]
    roots: list[dict[str, str]]
    failure: PageFailure | None = None
    era: str | None = None
    revision: str | None = None
    info: Any = None
    capabilities: Any = None
    instructions: str | None = None
    session_id: str | None = None
    pid: int | None = None
    connecting_since: float | None = None
    connected_at: float | None = None
    connect_ms: float | None = None
    tokens: int | None = None


@final
class InspectedServer:
    """One server: its client, when there is one, and everything that is known about it."""

    def __init__(
        self, id: str, reach: Reach, source: ServerSource, options: InspectedServerOptions, servers: Servers
    ) -> None:
        self.id: Final = id
        self.name: str = reach.name
        self.reach: Reach = reach
        self.source: Final = source
        self.options: InspectedServerOptions = options
        self.state: State = "idle"
        self.failure: PageFailure | None = None
        self.client: Client | None = None
        self.tap: Final = ServerTap(servers.log, id)
        self.catalog: Final = Catalog(self, servers.events)
        self.activities: Final[deque[Activity]] = deque(maxlen=_MOST_ACTIVITIES)
        self.stderr: Final[deque[tuple[float, str]]] = deque(maxlen=_MOST_STDERR)
        self.stderr_count: int = 0
        self.connections: int = 0
        self.subscriptions: list[str] = []
        self.roots: list[dict[str, str]] = []
        self.are_roots_asked: bool = False
        """The server asked for them, so a client that repeats its calls must have some, if none at all."""
        self.connected_at: float | None = None
        self.connect_ms: float | None = None
        self._servers = servers
        self._events = servers.events
        self._questions = servers.questions
        self._unsent_lines: list[str] = []
        self._watching: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<InspectedServer {self.id}: {self.state}>"

    # What others ask of it

    def ready_client(self) -> Client:
        """The client, if there is a connection or one is on its way back.

        Raises:
            WrongState: there is none.
        """
        client = self.client
        if client is None or self.state not in ("ready", "reconnecting"):
            why = "connect it first" if self.failure is None else self.failure.message
            raise WrongState(f"{self.name} is {self.state}: {why}")
        return client

    def view(self) -> ServerView:
        client = self.client if self.state in ("ready", "reconnecting") else None
        view = ServerView(
            id=self.id,
            name=self.name,
            target=self.reach.text,
            transport=self.reach.transport,
            source=self.source,
            state=self.state,
            client_capabilities=self._declared(),
            connections=self.connections,
            stderr_lines=self.stderr_count,
            counts=self.catalog.counts(),
            options=self.options,
            subscriptions=list(self.subscriptions),
            roots=list(self.roots),
            failure=self.failure,
            connecting_since=self.activities[-1].at if self.state == "connecting" and self.activities else None,
            connected_at=self.connected_at,
            connect_ms=self.connect_ms,
            tokens=self.catalog.tokens,
        )
        if client is not None:
            self._describe(view, client)
        return view

    def _describe(self, view: ServerView, client: Client) -> None:
        with contextlib.suppress(Error):  # between two sessions there is nothing to tell
            view.era, view.revision = client.era, client.version
            info = client.server_info
            view.info = info if isinstance(info, Implementation) else None
            view.capabilities = client.server_capabilities
            view.instructions = client.instructions
            session = client.session_id
            is_long = session is not None and len(session) > _SHOWN_OF_SESSION
            view.session_id = session[:_SHOWN_OF_SESSION] + MASK if session and is_long else session
            view.pid = client.pid

    def _declared(self) -> dict[str, Any]:
        """The capabilities that the next connection declares."""
        options = self.options
        declared: dict[str, Any] = {}
        if options.elicitation:
            declared["elicitation"] = {"form": {}, "url": {}}
        if options.sampling:
            declared["sampling"] = {}
        if options.roots:
            declared["roots"] = {}
        return declared

    def spawn(self, work: Coroutine[Any, Any, Any]) -> None:
        """Run something in the background."""
        self._servers.spawn(work)

    def tell(self) -> None:
        """Tell the page how the server is now."""
        self._events.emit("server", key=self.id, size=4_000, server=self.view())

    def note(self, event: str, text: str, failure: PageFailure | None = None) -> None:
        """Add to the story of the connection."""
        activity = Activity(at=now_ms(), event=event, text=text, failure=failure)
        self.activities.append(activity)
        self._events.emit("activity", server=self.id, activity=activity)

    # Life

    def begin_connecting(self) -> None:
        """Connect in the background; the state tells how it goes."""
        if self._opening is None or self._opening.done():
            self._opening = self._servers.spawn(self.connect())

    async def connect(self) -> None:
        """Connect; a failure is a state, not an exception."""
        async with self._turn:
            await self._close_client()
            self.state, self.failure = "connecting", None
            self.tap.begin(self.reach.mask)
            self.catalog.clear()
            self.note("connecting", f"connecting to {self.reach.text}")
            self.tell()
            began = time.perf_counter()
            client: Client | None = None
            try:
                client = self.client = connect(self.reach.target, **self.connect_options())
                await client.open()
            except Error as error:
                self._fail(error)
                return
            except asyncio.CancelledError:
                self.state = "closed"
                if client is not None:
                    await client.close()
                raise
            self.connect_ms = round((time.perf_counter() - began) * 1000, 1)
            self._ready(client, "ready")
        self._looking = self._servers.spawn(self._look_around(client))

    def connect_options(self) -> dict[str, Any]:
        """The options of `connect` for the next connection."""
        options = self.options
        capabilities: dict[str, Any] = {}
        if options.apps:
            capabilities["extensions"] = {APPS: {"mimeTypes": [MIME_TYPE]}}
        chosen: dict[str, Any] = {
            **self.reach.options,
            "era": options.era,
            "version": options.revision,
            "timeout": options.timeout / 1000 or None,
            "connect_timeout": options.timeout / 1000 or None,
            "tap": self.tap,
            "on_state": self._hear_state,
            "on_log": _ignore,  # declares the wish for log messages; the tap shows them
            "on_stderr": self._hear_stderr,
            "schema_check": "off",  # we check results ourselves, and say who failed
            "cache": False,  # what a person asks for goes over the wire
            "tasks": options.tasks,
            "capabilities": capabilities or None,
            "client_info": {"name": "trimaran-inspector", "version": _version()},
            "max_message_bytes": options.max_message_bytes,
        }
        if options.elicitation:
            chosen["on_elicit"] = self._elicit
        if options.sampling:
            chosen["on_sample"] = self._sample
        if options.roots:
            chosen["roots"] = self._list_roots
        return chosen

    def _fail(self, error: Error) -> None:
        self.failure = failure_of(error)
        self.state = "needs-auth" if isinstance(error, Unauthorized) and error.status == 401 else "failed"
        self.flush_stderr()
        self.note(self.state, self.failure.message, self.failure)
        self.tell()
        if self.state == "failed":
            self._servers.on_failed(self)

    def _ready(self, client: Client, event: str) -> None:
        self.state, self.failure = "ready", None
        self.connections += 1
        self.connected_at = now_ms()
        self.tap.era, self.tap.revision = client.era, client.version
        name = client.server_info.name if client.server_info is not None else "a server without a name"
        self.note(event, f"{name} speaks {client.version} ({client.era})")
        self.tell()

    async def look_around(self) -> None:
        """Wait until the lists of a connected server were read."""
        looking = self._looking
        if looking is not None:
            await asyncio.wait((looking,))

    async def _look_around(self, client: Client) -> None:
        """Read what the server offers, and hear of changes from then on."""
        self._watch(client)
        if self.options.log_level:
            with contextlib.suppress(Error):
                await client.set_log_level(self.options.log_level)  # pyright: ignore[reportArgumentType]
        await self.catalog.read()

    async def disconnect(self) -> None:
        """End the connection."""
        opening = self._opening
        if opening is not None and not opening.done() and opening is not asyncio.current_task():
            opening.cancel()
            await asyncio.wait((opening,), timeout=_CLOSE_SECONDS)
        async with self._turn:
            had_client = self.client is not None
            await self._close_client()
            self.state, self.failure = "closed", None
            if had_client:
                self.note("closed", "disconnected")
            self.tell()

    async def _close_client(self) -> None:
        client, self.client = self.client, None
        if self._watching is not None:
            self._watching.cancel()
            self._watching = None
        if client is not None:
            await client.close()
        self.flush_stderr()

    # What the client tells

    def _hear_state(self, event: StateEvent) -> None:
        client = self.client
        if client is None or self.state in ("connecting", "closed"):
            return
        if event.state == "reconnecting":
            failure = None if event.error is None else failure_of(event.error)
            if self.state != "reconnecting":
                self.tap.begin(self.reach.mask)
                self.note("lost", "the connection was lost" if failure is None else failure.message, failure)
            self.state, self.failure = "reconnecting", failure
            self.tell()
        elif event.state == "ready" and self.state == "reconnecting":
            self._ready(client, "reinitialised")
            self._servers.spawn(self.catalog.read())

    def _hear_stderr(self, line: str) -> None:
        text = self.reach.mask(line.rstrip("\n"))[:_LONGEST_LINE]
        self.stderr.append((now_ms(), text))
        self.stderr_count += 1
        if not self._unsent_lines:
            asyncio.get_running_loop().call_later(0.05, self.flush_stderr)
        self._unsent_lines.append(text)

    def flush_stderr(self) -> None:
        """Send the lines that came since the last time, in one event."""
        lines, self._unsent_lines = self._unsent_lines, []
        if lines:
            size = sum(map(len, lines[-_STDERR_EVENT:]))
            dropped = max(0, len(lines) - _STDERR_EVENT)
            self._events.emit("stderr", size=size, server=self.id, lines=lines[-_STDERR_EVENT:], dropped=dropped)
            if self.state == "connecting":  # all there is to see of a server that hangs
                self.tell()

    async def _elicit(self, question: Elicitation) -> Any:
        return await self._questions.elicit(self.id, self.tap.era or "legacy", question)

    async def _sample(self, question: Sampling) -> Any:
        return await self._questions.sample(self.id, self.tap.era or "legacy", question)

    # Changes

    def watch_resources(self, uris: list[str]) -> None:
        """Hear when one of these resources changes."""
        self.subscriptions = uris
        if self.client is not None and self.state == "ready":
            self._watch(self.client)
        self.tell()

    def _watch(self, client: Client) -> None:
        if self._watching is not None:
            self._watching.cancel()
        self._watching = self._servers.spawn(self._listen(client, list(self.subscriptions)))

    async def _listen(self, client: Client, uris: list[str]) -> None:
        offered = client.server_capabilities
        wishes = {
            "tools": "tools" in offered,
            "prompts": "prompts" in offered,
            "resources_list": "resources" in offered,
        }
        if not any(wishes.values()) and not uris:
            return
        try:
            async with client.listen(**wishes, resources=uris) as changes:  # pyright: ignore[reportCallIssue, reportArgumentType]
                async for _ in changes:
                    pass  # the tap sees every notification, of either era, and the catalog hears of it there
        except Error as error:
            self.note("changed", f"changes cannot be watched: {error}", failure_of(error))

    def _list_roots(self) -> list[dict[str, str]]:
        self.are_roots_asked = True
        return list(self.roots)

    async def set_roots(self, roots: list[dict[str, str]]) -> None:
        """Replace the roots; a legacy server is told."""
        self.roots = roots
        if self.client is not None and self.options.roots and self.state == "ready":
            with contextlib.suppress(Error):
                await self.client.set_roots(self._list_roots)


def _ignore(entry: object) -> None:
    return None


def _version() -> str:
    from trimaran import __version__

    return __version__


@final
class Servers:
    """All servers, by id."""

    def __init__(self, events: PageEvents, log: MessageLog, questions: QuestionDesk) -> None:
        self.events = events
        self.log = log
        self.questions = questions
        self._servers: dict[str, InspectedServer] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.on_failed: Callable[[InspectedServer], None] = lambda server: None
        """Told when a connection cannot be made."""

    def __iter__(self) -> Any:
        return iter(tuple(self._servers.values()))

    def get(self, id: str) -> InspectedServer:
        server = self._servers.get(id)
        if server is None:
            raise NotThere(f"there is no server {id!r}")
        return server

    def add(self, reach: Reach, source: ServerSource, options: InspectedServerOptions | None = None) -> InspectedServer:
        """Take a server on; nothing is connected yet."""
        if len(self._servers) >= _MOST_SERVERS:
            raise WrongState(f"there are {_MOST_SERVERS} servers: remove some first")
        chosen = options or InspectedServerOptions()
        chosen.headers = sorted(reach.options.get("headers") or {})
        names = {server.reach.name for server in self._servers.values()}
        if reach.name in names:  # lists and lines of time show names, and no ids
            number = next(number for number in itertools.count(2) if f"{reach.name} {number}" not in names)
            reach = structs.replace(reach, name=f"{reach.name} {number}")
        server = InspectedServer(self._free_id(reach.name), reach, source, chosen, self)
        self._servers[server.id] = server
        server.tell()
        return server

    def _free_id(self, name: str) -> str:
        base = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:40] or "server"
        id, number = base, 2
        while id in self._servers:
            id, number = f"{base}-{number}", number + 1
        return id

    async def remove(self, id: str) -> None:
        server = self.get(id)
        await server.disconnect()
        self._servers.pop(id, None)
        self.events.forget("server", id)
        self.events.emit("server-removed", id=id)

    def spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run something for as long as the inspector runs."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            import logging

            logging.getLogger("trimaran.inspector").error("a task of the inspector failed", exc_info=error)

    async def close(self) -> None:
        """Disconnect from all servers."""
        await asyncio.gather(*(server.disconnect() for server in self), return_exceptions=True)
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
