"""One server of a host's, kept running: started, watched, healed, started again; and what to tell about it (R216-R218, R272, R273).

    starting -> connected <-> failed          needs_auth, disabled: until somebody does something
    idle: until it is needed

Each server has a task of its own, and nothing that goes wrong in it reaches another. Two times belong to a start, which goes
from nothing to the list of tools: the host waits for it for `startup_timeout` seconds, and gives it up after `startup_limit`.
In between the child lives and the start goes on in the background: a package runner may be downloading what it is to run,
and ending it would only make it begin again. A failed start is tried again in the background, with growing pauses, unless
trying again cannot help: a configuration that cannot be right, a login that only a person can make. A connection that dies heals in the client (`trimaran.client`);
here it is noticed, told, and the list is read again. A child that runs and does not answer is ended, and another started:
nothing else would bring it back. A server that does not last is tried with growing pauses, too. Announced changes of the list are read when they come, but never more
often than every fifth of a second, whatever the server announces.

The list is read whole, every page, and stays known while a server is away: names must not move (C40).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

from msgspec import Struct

from trimaran.client.client import Client
from trimaran.client.server_requests import StateEvent
from trimaran.client.subscriptions import ChangeStream
from trimaran.errors import (
    CODE_METHOD_NOT_FOUND,
    AuthorizationFailed,
    CallError,
    ConfigError,
    Error,
    LoginRequired,
    ProtocolError,
    TimedOut,
    TransportError,
    Unauthorized,
    UnsafeUrl,
    Unsupported,
)
from trimaran.transports.child_environment import describe_missing
from trimaran.types import Tool

from .terminal_text import shortened
from .trust.review import HeldDefinition, Reviewed

if TYPE_CHECKING:
    from .transforms import ToolTransforms, TransformedTool

log: Final = logging.getLogger("trimaran.host")

State: TypeAlias = Literal["starting", "connected", "needs_auth", "failed", "idle", "disabled"]

GLYPHS: Final[Mapping[State, str]] = {
    "connected": "●",
    "starting": "◐",
    "needs_auth": "◐",
    "failed": "○",
    "idle": "○",
    "disabled": "○",
}

_PAUSES: Final = (0.5, 1.0, 2.0, 5.0, 15.0, 30.0, 60.0)  # between attempts
_HEALTH: Final = 30.0  # seconds of quiet after which a server is asked for a sign of life
_SOON: Final = 1.0  # seconds until a list that a busy server did not give is asked for again
_REST: Final = 0.2  # seconds between two readings of a list that keeps changing
_SILENT: Final = 2  # signs of life that a child may miss; one may be a machine that was asleep
_STEADY: Final = 60.0  # seconds; a shorter connection counts as a failed start
_TO_LISTEN: Final = 2.0  # seconds for a server to agree to tell of changes; it is not worth a start
_MOST_PAGES: Final = 200
_MOST_TOOLS: Final = 10_000  # of one server; one that lists on and on is not one to use
# Seconds after which a start is given up, by transport. `npx -y` and `uvx` download for a minute or more; over HTTP there is
# only a slow answer to wait for, and 30 s is what `connect` waits.
_LIMITS: Final = {"stdio": 180.0}
_LIMIT_ELSEWHERE: Final = 30.0
_LAST_LINES: Final = 5  # of stderr, in the status of a server that is starting
_LONGEST: Final = 20_000  # characters of a reason; those of a bad configuration are many lines
_TAIL: Final = 200  # R273: lines of stderr


class ServerUnavailable(Error):
    """A server that is needed cannot be used now; `status` says why."""

    def __init__(self, message: str, *, status: ServerStatus) -> None:
        super().__init__(message)
        self.status = status
        self.kind: str = status.kind or status.state


@final
class ServerStatus(Struct, frozen=True, kw_only=True):
    """The state of one server at one moment."""

    name: str
    state: State
    transport: str
    """stdio, http, sse or memory."""
    tools: int = 0
    reason: str = ""
    """Why it is not connected. While it starts: the last lines that it wrote to stderr."""
    kind: str = ""
    """The kind of failure, for programs (R280); empty if there is none."""
    where: str = ""
    """Where it is configured."""
    retries: bool = False
    """Whether it is retried automatically."""
    withheld: int = 0
    """Definitions that have changed or are new, and wait for a person to agree."""
    sandbox: str = ""
    """The sandbox of its process, in one line; empty if it has none."""

    @property
    def glyph(self) -> str:
        return GLYPHS[self.state]

    @property
    def text(self) -> str:
        """R273: connected (3 tools), needs re-auth, failed or disabled (the reason, in one line), idle.

        `starting (...)` shows the last line of stderr.
        """
        if self.state == "connected":
            waiting = f", {self.withheld} held" if self.withheld else ""
            return f"connected ({self.tools} tool{'' if self.tools == 1 else 's'}{waiting})"
        if self.state == "needs_auth":
            return "needs re-auth"
        why = self.reason.rpartition("\n")[2] if self.state == "starting" else _in_one_line(self.reason)
        return f"{self.state} ({why})" if self.state == "failed" or why else self.state

    def __str__(self) -> str:
        return f"{self.glyph} {self.name}: {self.text}, {self.transport}"


def _in_one_line(reason: str) -> str:
    """A reason of several lines, in one. Where the first announces the others, as of stderr, the last one says most."""
    first, *others = [line.strip() for line in reason.splitlines() if line.strip()] or [""]
    if not others:
        return first
    return f"{first} {others[-1]}" if first.endswith(":") else f"{first} (and {len(others)} more)"


@final
class SupervisedServer:
    """One server. `dial` makes a client that is not open yet; it is given the callbacks and limits that are ours.

    Args:
        startup_timeout: seconds that `tried` waits for a start; the start goes on after that.
        startup_limit: seconds after which a start is given up; None: 180 for a child, 30 for another.
        can_log_in: could a person's login help where the server wants credentials?
        mask: removes secrets of the configuration from a text.
        missing: the variables that a text names, that are set here, and that the server did not get.
        review: the verdict about the definitions that it lists; see `trust/review.py`.
        changed: called whenever state or tools are others than before.
        forgotten: called when the server's resources are, or may be, others than before.
    """

    def __init__(
        self,
        name: str,
        transport: str,
        dial: Callable[..., Client] | None,
        *,
        startup_timeout: float,
        call_timeout: float,
        startup_limit: float | None = None,
        tool_timeouts: Mapping[str, float] | None = None,
        transforms: ToolTransforms | None = None,
        output_limit: int | None = None,
        can_log_in: bool = False,
        where: str = "",
        problem: str = "",
        problem_kind: str = "config",
        mask: Callable[[str], str] = str,
        missing: Callable[[str], Sequence[str]] = lambda text: (),
        review: Callable[[str, Mapping[str, Tool]], Awaitable[Reviewed]] | None = None,
        sandbox: str = "",
        changed: Callable[[SupervisedServer], None] = lambda server: None,
        forgotten: Callable[[str], None] = lambda name: None,
    ) -> None:
        self.name: Final = name
        self.transport: Final = transport
        self.startup_timeout: Final = startup_timeout
        self.startup_limit: Final = startup_limit or max(startup_timeout, _LIMITS.get(transport, _LIMIT_ELSEWHERE))
        self.call_timeout: Final = call_timeout
        self.tool_timeouts: Final = tool_timeouts or {}
        self.output_limit: Final = output_limit
        self.state: State = "disabled"
        self.reason: str = ""
        self.tools: dict[str, Tool] = {}
        """As last listed, by the names under which they are shown."""
        self.transformed: dict[str, TransformedTool] = {}
        """Those of them that are not shown as they are, by the same names."""
        self.withheld: Mapping[str, HeldDefinition] = {}
        """Tools that wait for a person to agree, by the server's own names."""
        self.reasons: Mapping[str, tuple[str, ...]] = {}
        """Why calls of a tool ask, by the server's own names."""
        self.client: Client | None = None
        """Open, or on its way to be open again; None where there is none."""
        self._transforms = transforms
        self._dial = dial
        self._can_log_in = can_log_in
        self._where = where
        self._problem = problem
        self._problem_kind = problem_kind
        self._kind = ""
        self._mask = mask
        self._missing = missing
        self._review = review
        self._sandbox = sandbox
        self._told_missing: set[str] = set()
        self._changed = changed
        self._forgotten = forgotten
        self._stderr: deque[str] = deque(maxlen=_TAIL)
        self._task: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()
        """One ends or begins it at a time."""
        self._turns: set[asyncio.Task[None]] = set()
        self._is_retired = False
        self._settled = asyncio.Event()
        """The first attempt has ended, either way."""
        self._began = 0.0
        """When the first attempt began, by the loop's clock."""
        self._lines_before = 0
        """How many lines of stderr were there when it began."""
        self._lines_heard = 0
        self._telling: asyncio.TimerHandle | None = None
        """Tells, in a moment, that a server that is starting wrote to stderr."""
        self._wake = asyncio.Event()
        self._is_dirty = False
        """The list of tools may be another one than we know."""
        self._is_deaf = False
        """It would tell of changes, but we do not hear of them: its list is looked at now and then."""
        self._refusal: Unauthorized | None = None
        self._retries = False

    def __repr__(self) -> str:
        return f"<Supervised {self.status}>"

    # --- what is to be known -----------------------------------------------------------------------------------------

    @property
    def status(self) -> ServerStatus:
        return ServerStatus(
            name=self.name,
            state=self.state,
            transport=self.transport,
            tools=len(self.tools) if self.state == "connected" else 0,
            reason=self._latest_lines() if self.state == "starting" else self.reason,
            kind=self._kind,
            where=self._where,
            retries=self._retries,
            withheld=len(self.withheld) if self.state == "connected" else 0,
            sandbox=self._sandbox,
        )

    @property
    def stderr(self) -> list[str]:
        """The last lines that the server wrote to stderr, also from before it was started again."""
        return list(self._stderr)

    def _latest_lines(self) -> str:
        """The end of the server's stderr since this start began."""
        lines = list(self._stderr)[-min(_LAST_LINES, self._lines_heard - self._lines_before) :]
        return (
            self._mask("\n".join(line for line in lines if line.strip()))
            if self._lines_heard > self._lines_before
            else ""
        )

    @property
    def is_healing(self) -> bool:
        """Whether it is away but comes back by itself, so that a call may wait for it."""
        return self.client is not None and self.client.state in ("ready", "reconnecting")

    def require(self) -> Client:
        """A client to call through. One whose connection heals will do: the call waits for it, within its time.

        Raises:
            ServerUnavailable: there is none. The message says why, and what to do.
        """
        if self.client is not None and self.state in ("connected", "failed") and self.is_healing:
            return self.client
        advice = {
            "disabled": f"enable it first: host.enable({self.name!r})" if not self.reason else "fix that first",
            "needs_auth": f"a person has to log in: host.authorize({self.name!r})",
            "starting": "it is still starting, and its tools appear when it is ready; try again in a moment",
            "idle": f"it is started when it is needed: host.wake({self.name!r})",
            "connected": "it is being closed",
            "failed": "it is tried again in the background"
            if self._retries
            else f"fix that, then host.reload({self.name!r})",
        }[self.state]
        raise ServerUnavailable(
            f"the server {self.name!r} cannot be used now, {self.status.text}: {advice}", status=self.status
        )

    # --- what is to be done ------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin, in the background; no-op if it runs, or is to run no more."""
        if self._is_retired or (self._task is not None and not self._task.done()):
            return
        self._settled.clear()
        self._began = asyncio.get_running_loop().time()
        self._lines_before = self._lines_heard
        if self._dial is None:
            self._enter("failed", self._problem, self._problem_kind)
            self._settled.set()
            return
        self._retries = False
        self._enter("starting")
        self._task = asyncio.create_task(self._run(), name=f"trimaran-host-{self.name}")

    def rest(self) -> None:
        """Wait until it is needed: then `start` is called. If it could not be started, it has failed."""
        if self._dial is None:
            self.start()
        elif self._task is None and not self._is_retired:
            self._enter("idle")

    async def settled(self, within: float | None = None) -> bool:
        """Wait until the first attempt since `start` has ended, well or not; False if `within` seconds pass first."""
        if self._settled.is_set():
            return True
        try:
            async with asyncio.timeout(within):
                return await self._settled.wait()
        except TimeoutError:
            return False

    async def tried(self) -> None:
        """As `settled`, but no longer than until `startup_timeout` seconds after `start`; the start goes on (R267)."""
        await self.settled(max(self._began + self.startup_timeout - asyncio.get_running_loop().time(), 0.0))

    async def restart(self) -> None:
        """End it, then begin again."""
        await self._in_turn(self._restart())

    async def _restart(self) -> None:
        async with self._turn:
            await self._end("disabled" if self._is_retired else "starting", "")
            self.start()

    async def stop(self, state: State = "disabled", reason: str = "", *, for_good: bool = False) -> None:
        """End it: the connection is closed, and a child process is gone when this returns."""
        self._is_retired = self._is_retired or for_good
        await self._in_turn(self._stop(state, reason))

    async def _stop(self, state: State, reason: str) -> None:
        async with self._turn:
            await self._end(state, reason)

    async def _in_turn(self, work: Coroutine[Any, Any, None]) -> None:
        """End the server completely, even if the caller is cancelled."""
        task = asyncio.create_task(work)
        self._turns.add(task)
        task.add_done_callback(self._turns.discard)
        await asyncio.shield(task)

    async def _end(self, state: State, reason: str) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None
        self._retries = False
        if state != "starting":  # else callers that wait for the first attempt go on waiting
            self._settled.set()
        self._enter(state, reason)

    def look_for_missing(self, text: str) -> None:
        """Tell, once for each, which variables the server seems to miss. One that died says so in its reason."""
        names = [name for name in self._missing(text) if name not in self._told_missing]
        if names and self.state == "connected":
            self._told_missing.update(names)
            log.warning("the server %r: %s", self.name, describe_missing(names))

    def suspect(self, error: Error) -> None:
        """A call ended with this: have a look whether the server is still there, or still wants us."""
        if isinstance(error, Unauthorized) and (error.status == 401 or isinstance(error, LoginRequired)):
            self._refusal = error
            self._wake.set()
        elif isinstance(error, TransportError) and not isinstance(error, (TimedOut, Unauthorized)):
            self._wake.set()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _enter(self, state: State, reason: str = "", kind: str = "") -> None:
        reason = shortened(self._mask(reason), _LONGEST)  # it may quote the server
        if (state, reason) == (self.state, self.reason):
            return
        if state == "failed" and self.state != "failed":
            log.warning("the server %r failed: %s", self.name, reason)
        elif state != "failed":
            log.info("the server %r: %s%s", self.name, state, f" ({reason})" if reason else "")
        self.state, self.reason, self._kind = state, reason, kind
        self._changed(self)

    def _on_stderr(self, line: str) -> None:
        self._stderr.append(line)
        self._lines_heard += 1
        self.look_for_missing(line)
        if self.state == "starting" and self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(_REST, self._tell)

    def _tell(self) -> None:
        self._telling = None
        if self.state == "starting":
            self._changed(self)

    def _on_state(self, event: StateEvent) -> None:
        if self.client is None or self.state in ("starting", "disabled"):
            return
        if event.state == "reconnecting":
            if isinstance(event.error, Unauthorized):
                self._refusal = event.error
            self._retries = self._is_dirty = True
            self._enter("failed", str(event.error or "the connection was lost"), _kind_of(event.error))
        elif event.state == "ready":
            self._is_dirty = True
            self._forgotten(self.name)
        self._wake.set()

    async def _run(self) -> None:
        failures = 0
        lived = 0.0
        while True:
            self._refusal = None
            self._is_dirty = False  # a new life begins with a list of its own
            self._wake.clear()
            try:
                lived = await self._once(self.startup_limit)
            except Error as error:
                if self._task is not asyncio.current_task():
                    return  # it was ended on purpose
                lived = 0.0
                self._fail(error)
            except Exception as error:
                if self._task is not asyncio.current_task():
                    return
                log.exception("the server %r failed unexpectedly", self.name)
                lived = 0.0
                self._retries = True
                self._enter("failed", f"{type(error).__name__}: {error}", "error")
            self._settled.set()
            if not self._retries:
                return
            failures = 0 if lived >= _STEADY else failures + 1
            await asyncio.sleep(_PAUSES[min(failures, len(_PAUSES)) - 1 if failures else 0])

    def _fail(self, error: Error) -> None:
        """Say why, and whether trying again can help."""
        if isinstance(error, Unauthorized) and self._can_log_in and not isinstance(error, UnsafeUrl):
            self._retries = isinstance(error, AuthorizationFailed) and not isinstance(error, LoginRequired)
            self._enter("needs_auth", str(error), error.kind)
            return
        self._retries = _is_passing(error) or not isinstance(error, (ConfigError, Unauthorized))
        self._enter("failed", str(error) or type(error).__name__, _kind_of_start(error))

    async def _once(self, limit: float) -> float:
        """One life, from dialing to the end; for how many seconds it was connected."""
        assert self._dial is not None
        client = self._dial(
            on_state=self._on_state,
            on_stderr=self._on_stderr,
            connect_timeout=limit,
            timeout=self.call_timeout,
        )
        clock = asyncio.get_running_loop().time
        began = clock()
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(self._close, client)
            try:
                await client.open()
                async with asyncio.timeout(max(limit - (clock() - began), 0.5)):
                    changes = await self._listen(client, stack)
                    await self._list(client)
            except TimeoutError:
                raise TimedOut(
                    f"it did not list its tools within {limit:g} s; a slow start needs a larger startup_limit"
                ) from None
            except TimedOut as error:
                raise TimedOut(str(error).replace("connect_timeout", "startup_limit")) from None
            self.client = client
            self._retries = False
            self._enter("connected")
            self._settled.set()
            connected = clock()
            if changes is not None:
                follow = asyncio.create_task(self._follow(changes))
                stack.push_async_callback(_ended, follow)
            await self._live(client)
            return clock() - connected

    async def _close(self, client: Client) -> None:
        if self.client is client:
            self.client = None
        self._forgotten(self.name)
        closing = asyncio.ensure_future(client.close())
        try:
            await asyncio.shield(closing)
        except asyncio.CancelledError:
            await asyncio.wait((closing,))  # return only when the child is gone
            if not closing.cancelled() and (error := closing.exception()) is not None:
                log.warning("the server %r could not be closed in good order: %s", self.name, self._mask(str(error)))
            raise

    async def _listen(self, client: Client, stack: contextlib.AsyncExitStack) -> ChangeStream | None:
        """Changes are listened to before the first look, so that none falls in between."""
        self._is_deaf = False
        offered = client.server_capabilities
        if "tools" not in offered and "resources" not in offered:
            return None
        changes = client.listen(tools="tools" in offered, resources_list="resources" in offered)
        try:
            async with asyncio.timeout(_TO_LISTEN):
                return await stack.enter_async_context(changes)
        except Unsupported:
            log.debug("the server %r does not tell of changes", self.name)
        except (TimeoutError, ProtocolError, TransportError) as error:
            self._is_deaf = True
            log.info("the server %r was not ready to tell of changes: %s", self.name, error or "no answer")
        return None

    async def _follow(self, changes: ChangeStream) -> None:
        async for change in changes:
            if change.kind in ("resources", "reconnected"):
                self._forgotten(self.name)
            if change.kind in ("tools", "reconnected"):
                self._is_dirty = True
                self._wake.set()
        self._is_deaf = True

    async def _list(self, client: Client) -> None:
        tools: dict[str, Tool] = {}
        if "tools" in client.server_capabilities:
            listed = await self._read_tools(client)
            if len(listed) > _MOST_TOOLS:
                raise ServerUnavailable(
                    f"it lists {len(listed)} tools, more than the {_MOST_TOOLS} that are taken of one server",
                    status=self.status,
                )
            for tool in listed:
                if tool.name in tools:
                    log.warning("the server %r lists the tool %r twice; the first is taken", self.name, tool.name)
                tools.setdefault(tool.name, tool)
        reviewed = await self._reviewed(tools)
        tools = dict(reviewed.tools)
        transformed: dict[str, TransformedTool] = {}
        if self._transforms is not None:
            transformed = self._transforms.show(tools.values())
            tools = {name: entry.tool for name, entry in transformed.items()}
        is_same = (
            tools == self.tools
            and _originals(transformed) == _originals(self.transformed)
            and (reviewed.withheld, reviewed.reasons) == (self.withheld, self.reasons)
        )
        if not is_same:
            self.tools, self.transformed = tools, transformed
            self.withheld, self.reasons = reviewed.withheld, reviewed.reasons
            if self.state == "connected":
                self._changed(self)

    async def _reviewed(self, tools: Mapping[str, Tool]) -> Reviewed:
        """The verdict about these tools. Those that the configuration leaves out are nobody's to agree to."""
        if self._review is None:
            return Reviewed(tools=tools)
        if self._transforms is not None:
            names = {entry.original.name for entry in self._transforms.show(tools.values()).values()}
            tools = {name: tool for name, tool in tools.items() if name in names}
        return await self._review(self.name, tools)

    async def look_again(self) -> None:
        """Read the list again, because another verdict is to be expected."""
        client = self.client
        if client is None or self.state != "connected":
            return  # the next start reads it
        try:
            async with asyncio.timeout(self.startup_timeout):
                await self._list(client)
        except (TimeoutError, Error):
            self._is_dirty = True  # its task tries again
            self._wake.set()

    async def _read_tools(self, client: Client) -> list[Tool]:
        try:
            return await client.list_tools_all(max_pages=_MOST_PAGES, fresh=True)
        except CallError as error:
            if error.code != CODE_METHOD_NOT_FOUND:
                raise
            # Its resources and prompts can be used all the same.
            log.warning("the server %r declares tools and cannot list them: %s", self.name, self._mask(str(error)))
            return []

    async def _live(self, client: Client) -> None:
        """Watch over it, until it is over for good."""
        failures = 0
        while True:
            pause = _PAUSES[min(failures, len(_PAUSES)) - 1] if failures else _SOON if self._is_dirty else _HEALTH
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._wake.wait()
            self._wake.clear()
            error = await self._look(client)
            if isinstance(error, Unauthorized):
                raise error
            if client.state == "closed":
                self._retries = True
                self._enter("failed", str(error or "the connection was closed"), _kind_of(error))
                return
            if error is None:
                failures = 0
                self._retries = False
                self._enter("connected")
                await asyncio.sleep(_REST)
            else:
                failures += 1
                self._is_dirty = True
                self._retries = True
                self._enter("failed", str(error), _kind_of(error))
                is_silent = isinstance(error, TimedOut) and client.state == "ready"  # else the client is about it
                if self.transport == "stdio" and failures >= _SILENT and is_silent:
                    log.warning("the server %r does not answer: it is ended, and started again", self.name)
                    return

    async def _look(self, client: Client) -> Error | None:
        """Check the server, and read its list if it may have changed. Returns the failure, if any."""
        if (refusal := self._refusal) is not None:
            self._refusal = None
            return refusal
        is_dirty, self._is_dirty = self._is_dirty or (self._is_deaf and not client.requests), False
        try:
            async with asyncio.timeout(self.startup_timeout):
                if is_dirty and "tools" in client.server_capabilities:
                    await self._list(client)
                else:
                    await client.ping(timeout=self.startup_timeout)
        except (TimeoutError, TimedOut):
            if client.requests and (not is_dirty or self.state == "connected"):
                self._is_dirty = self._is_dirty or is_dirty
                return None  # busy with a call, which has a limit of its own
            return TimedOut(f"no answer within {self.startup_timeout:g} s")
        except ProtocolError as error:
            return error if is_dirty else None  # an error is a sign of life
        except Error as error:
            return error
        return None


def _originals(transformed: Mapping[str, TransformedTool]) -> dict[str, Tool]:
    return {name: entry.original for name, entry in transformed.items()}


def _kind_of(error: Error | None) -> str:
    return error.kind if error is not None else "transport"


def _kind_of_start(error: Error) -> str:
    """The kind of a failed start (R280): the same error has another kind before the first answer than after it."""
    if isinstance(error, TimedOut):
        return "handshake_timeout"
    is_early = isinstance(error, ProtocolError) or getattr(error, "exit_code", None) is not None
    return "handshake" if is_early else error.kind


def _is_passing(error: Error) -> bool:
    """Whether machine credentials failed only because the issuer may be away."""
    if not isinstance(error, AuthorizationFailed) or isinstance(error, (LoginRequired, UnsafeUrl)):
        return False
    return error.code in (None, "server_error", "temporarily_unavailable")


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("following the changes of a server failed", exc_info=error)
