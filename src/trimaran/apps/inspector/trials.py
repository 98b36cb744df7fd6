"""Try the same thing under other circumstances: another era, fewer capabilities, no token, a bad network, a restart.

Each trial makes two connections of its own, one as usual and one changed, does the same on both and shows the difference. The
connection of the page is not touched. Questions are declined on both: nobody should have to answer twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import time
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast, final
from urllib.parse import urlsplit, urlunsplit

import msgspec
from msgspec import Struct

from trimaran.client.client import Client
from trimaran.client.server_requests import StateEvent
from trimaran.connecting import connect
from trimaran.errors import ConfigError, Error
from trimaran.testing.faults import Cut, Delay, FaultChannel

from .comparing import DiffLine, diff_json
from .failures import PageFailure, failure_of
from .requests import BadRequest
from .servers import InspectedServer
from .wire import ServerTap

if TYPE_CHECKING:
    from .inspector import Inspector

TrialName: TypeAlias = Literal[
    "modern",
    "legacy",
    "revision",
    "no-elicitation",
    "no-sampling",
    "no-roots",
    "no-capabilities",
    "no-token",
    "slow",
    "cut",
    "restart",
]
TRIALS: Final[dict[str, str]] = {
    "modern": "speak the modern era",
    "legacy": "speak the legacy era",
    "revision": "speak another revision",
    "no-elicitation": "declare no elicitation",
    "no-sampling": "declare no sampling",
    "no-roots": "declare no roots",
    "no-capabilities": "declare no capabilities",
    "no-token": "send no credentials",
    "slow": "delay every message",
    "cut": "cut the connection in the middle of the answer",
    "restart": "restart the server before the call",
}
_SECONDS: Final = 60.0  # for one of the two attempts
_DROPPED: Final[dict[str, tuple[str, ...]]] = {
    "no-elicitation": ("on_elicit",),
    "no-sampling": ("on_sample",),
    "no-roots": ("roots",),
    "no-capabilities": ("on_elicit", "on_sample", "roots", "capabilities", "tasks"),
}
_FIRST_CONNECTION: Final = 1_000_000  # trials number their connections from here, apart from the page's own
_numbers = itertools.count(_FIRST_CONNECTION)
_MESSAGES: Final = 10_000  # messages of a pipe that a delay strikes


class Outcome(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """How one attempt went."""

    title: str
    ok: bool
    events: list[str]
    messages: list[int]
    era: str | None = None
    revision: str | None = None
    connect_ms: float | None = None
    call_ms: float | None = None
    failure: PageFailure | None = None
    result: Any = None
    tools: list[str] | None = None


class TrialResult(Struct, kw_only=True, rename="camel", omit_defaults=True):
    """Both attempts, and their difference."""

    trial: str = msgspec.field(name="what")
    baseline: Outcome
    variant: Outcome
    same: bool
    difference: list[DiffLine]
    verdict: str
    value: Any = None


@final
class _Attempt:
    """One connection and what is done on it."""

    def __init__(self, inspector: Inspector, server: InspectedServer, title: str) -> None:
        self._inspector = inspector
        self.server = server
        self.outcome = Outcome(title=title, ok=False, events=[], messages=[])
        self.tap = ServerTap(inspector.log, server.id)
        self.tap.begin(server.reach.mask)
        self.tap.connection = next(_numbers)
        self.target: Any = server.reach.target
        self.options: dict[str, Any] = {
            **server.connect_options(),
            "tap": self.tap,
            "on_state": self._hear_state,
            "on_stderr": None,
        }
        if "on_elicit" in self.options:
            self.options["on_elicit"] = self._decline
        if "on_sample" in self.options:
            self.options["on_sample"] = self._decline
        self.restarts = False

    def _hear_state(self, event: StateEvent) -> None:
        if event.previous != event.state and event.state != "closed":
            reason = f": {event.error}" if event.error is not None else ""
            self.outcome.events.append(f"{event.previous} -> {event.state}{reason}")

    def _decline(self, question: object) -> Any:
        self.outcome.events.append("a question was declined")
        return None if type(question).__name__ == "Sampling" else {"action": "decline"}

    async def run(self, call: Mapping[str, Any] | None) -> Outcome:
        outcome = self.outcome
        began = time.perf_counter()
        first = self._inspector.events.seq
        try:
            async with asyncio.timeout(_SECONDS), connect(self.target, **self.options) as client:
                outcome.connect_ms = round((time.perf_counter() - began) * 1000, 1)
                outcome.era, outcome.revision = client.era, client.version
                if self.restarts:
                    await self._restart(client)
                called = time.perf_counter()
                await self._do(client, call)
                outcome.call_ms = round((time.perf_counter() - called) * 1000, 1)
        except TimeoutError:
            outcome.failure = PageFailure(
                blame="transport", kind="TimedOut", message=f"it did not end within {_SECONDS:g} s"
            )
        except Error as error:
            outcome.failure = failure_of(error)
        rows, _ = self._inspector.log.select(
            lambda row, _: row.connection == self.tap.connection, after=first, limit=1_000
        )
        outcome.messages = [row.seq for row in rows]
        return outcome

    async def _do(self, client: Client, call: Mapping[str, Any] | None) -> None:
        outcome = self.outcome
        if call is None:
            outcome.tools = sorted(tool.name for tool in await client.list_tools_all())
            outcome.ok = True
            return
        name, arguments = str(call.get("name")), call.get("arguments")
        kind = call.get("kind", "tool")
        if kind == "tool":
            result = await client.call_tool(name, cast("Any", arguments))
            outcome.result = dict(result.raw)
            outcome.ok = not result.is_error
            return
        params: dict[str, Any] = {"uri": name} if kind == "resource" else {"name": name, "arguments": arguments or {}}
        method = {"resource": "resources/read", "prompt": "prompts/get"}.get(str(kind), name)
        outcome.result = await client.request(method, params if method != name else cast("Any", arguments) or {})
        outcome.ok = True

    async def _restart(self, client: Client) -> None:
        if client.pid is not None:
            os.kill(client.pid, signal.SIGKILL if hasattr(signal, "SIGKILL") else signal.SIGTERM)
            self.outcome.events.append(f"the process {client.pid} was killed")
            await asyncio.sleep(0.2)  # the client must notice before the call, as after a real restart
            return
        session = client.session_id
        if session is None:
            self.outcome.events.append("without a session there is nothing that a restart could lose")
            return
        await _end_session(self.server, session, client.version)
        self.outcome.events.append("the server was told to forget the session")


async def _end_session(server: InspectedServer, session: str, version: str) -> None:
    """Make an HTTP server forget a session, which is what a restart does."""
    from trimaran.transports.http_auth import authority_for
    from trimaran.transports.http_client import HttpWire

    options = server.reach.options
    url = _url_of(server)
    wire = HttpWire(
        url,
        headers=options.get("headers"),
        auth=authority_for(options.get("auth"), url, options.get("ssl")),
        ssl=options.get("ssl"),
        max_bytes=65536,
    )
    wire.open()
    try:
        headers = {"Mcp-Session-Id": session, "Mcp-Protocol-Version": version}
        (await wire.send("DELETE", None, headers)).close()
    finally:
        await wire.close()


def _url_of(server: InspectedServer) -> str:
    target: Any = server.reach.target
    url = cast("dict[str, Any]", target).get("url") if isinstance(target, dict) else target
    if not isinstance(url, str):
        raise BadRequest("this trial needs a server on HTTP")
    return url


async def run_trial(
    inspector: Inspector, server: InspectedServer, name: str, value: Any, call: Mapping[str, Any] | None
) -> TrialResult:
    """Do the same twice, the second time changed.

    Raises:
        BadRequest: there is no such trial, or it makes no sense for this server.
    """
    if name not in TRIALS:
        raise BadRequest(f"there is no trial {name!r}; there are {', '.join(TRIALS)}")
    baseline = _Attempt(inspector, server, "as usual")
    variant = _Attempt(inspector, server, TRIALS[name])
    async with _changed(variant, cast("TrialName", name), value):
        usual = await baseline.run(call)
        changed = await variant.run(call)
    difference = diff_json(_essence(usual), _essence(changed))
    return TrialResult(
        trial=name,
        value=value,
        baseline=usual,
        variant=changed,
        same=not difference,
        difference=difference,
        verdict=_verdict(usual, changed, is_same=not difference),
    )


def _essence(outcome: Outcome) -> dict[str, Any]:
    failure = outcome.failure
    return {
        "ok": outcome.ok,
        "era": outcome.era,
        "revision": outcome.revision,
        "failure": None
        if failure is None
        else {"blame": failure.blame, "kind": failure.kind, "message": failure.message},
        "result": outcome.result,
        "tools": outcome.tools,
    }


def _verdict(usual: Outcome, changed: Outcome, *, is_same: bool) -> str:
    if usual.failure is not None:
        return f"It already fails without any change: {usual.failure.message}"
    if changed.failure is not None:
        return f"It works without the change and fails if you {changed.title}: {changed.failure.message}"
    if is_same:
        return f"It makes no difference if you {changed.title}."
    return f"It works either way, but the result differs if you {changed.title}."


@contextlib.asynccontextmanager
async def _changed(attempt: _Attempt, name: TrialName, value: Any) -> AsyncGenerator[None]:
    """The attempt under other circumstances."""
    options, transport = attempt.options, attempt.server.reach.transport
    if name in ("modern", "legacy"):
        options.update(era=name, version=None)
    elif name == "revision":
        options.update(era="auto", version=str(value))
    elif name in _DROPPED:
        for option in _DROPPED[name]:
            options.pop(option, None)
    elif name == "no-token":
        if transport not in ("http", "sse"):
            raise BadRequest("only a server on HTTP gets a token")
        options.pop("auth", None)
        headers: dict[str, str] = options.get("headers") or {}
        options["headers"] = {k: v for k, v in headers.items() if k.lower() not in ("authorization", "x-api-key")}
    elif name == "restart":
        if transport == "memory":
            raise BadRequest("a server in this process cannot be restarted")
        attempt.restarts = True
    elif transport in ("http", "sse"):
        async with _bad_network(attempt, name, value):
            yield
        return
    else:
        _put_faults(attempt, name, value)
    yield


def _milliseconds(value: Any) -> float:
    if value is None:
        return 2_000.0
    if not isinstance(value, (int, float)) or not 0 <= value <= 20_000:
        raise BadRequest("value must be a number of milliseconds, at most 20000")
    return float(value)


def _put_faults(attempt: _Attempt, name: TrialName, value: Any) -> None:
    """Faults in the pipe of a child process, or of a server in this process."""
    target: Any = attempt.target
    if isinstance(target, dict):
        entry = cast("dict[str, Any]", target)
        if attempt.options.get("sandbox") or entry.get("sandbox"):
            raise ConfigError(
                "this trial starts the server by itself, and would do so without its sandbox; the trial was not run"
            )
        target = [entry.get("command"), *(entry.get("args") or ())]
    if name == "slow":
        plan: list[Any] = [Delay("in", range(1, _MESSAGES), seconds=_milliseconds(value) / 1000)]
    else:
        plan = [Cut("in", at=3)]  # after the greeting and, in the modern era, the list of tools
    for option in ("env", "cwd", "inherit_env", "on_stderr", "grace"):
        attempt.options.pop(option, None)
    attempt.target = FaultChannel(target, plan)


@contextlib.asynccontextmanager
async def _bad_network(attempt: _Attempt, name: TrialName, value: Any) -> AsyncGenerator[None]:
    """A relay on loopback that delays, or cuts, what the server answers."""
    url = _url_of(attempt.server)
    parts = urlsplit(url)
    if parts.scheme != "http":
        raise BadRequest("this trial puts a relay in between, which cannot read https; use http:// on loopback")
    delay = _milliseconds(value) / 1000 if name == "slow" else 0.0
    relay = _Relay(parts.hostname or "127.0.0.1", parts.port or 80, delay=delay, cuts=name == "cut")
    server = await asyncio.start_server(relay.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    moved = urlunsplit(parts._replace(netloc=f"127.0.0.1:{port}"))
    target: Any = attempt.target
    attempt.target = {**cast("dict[str, Any]", target), "url": moved} if isinstance(target, dict) else moved
    try:
        yield
    finally:
        server.close()
        relay.close()


@final
class _Relay:
    """Passes bytes on; slowly, or only the first half of the answer to a call."""

    def __init__(self, host: str, port: int, *, delay: float, cuts: bool) -> None:
        self._host, self._port = host, port
        self._delay = delay
        self._cuts = cuts
        self._writers: set[asyncio.StreamWriter] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            upstream, sink = await asyncio.open_connection(self._host, self._port)
        except OSError:
            writer.close()
            return
        self._writers.add(sink)
        state = {"call": False}
        both = (self._pass(reader, sink, state, out=True), self._pass(upstream, writer, state, out=False))
        try:
            await asyncio.gather(*both)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            for end in (writer, sink):
                self._writers.discard(end)
                end.close()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, state: dict[str, bool], *, out: bool
    ) -> None:
        while data := await reader.read(65536):
            if out:
                state["call"] = state["call"] or b'"tools/' in data or b'"resources/' in data or b'"prompts/' in data
            else:
                await asyncio.sleep(self._delay)
                if self._cuts and state["call"]:
                    writer.write(data[: max(1, len(data) // 2)])
                    await writer.drain()
                    writer.transport.abort()
                    return
            writer.write(data)
            await writer.drain()
        writer.close()

    def close(self) -> None:
        for writer in tuple(self._writers):
            writer.transport.abort()
