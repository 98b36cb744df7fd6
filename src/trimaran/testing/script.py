"""A server that follows a script: the messages that the client must send, in order, and the answers.

The script is written before the client opens the channel and played by one task, step by step; messages that come early
wait for their step. Nothing is answered that the script does not answer. A message the script did not expect ends the
connection with the reason, and `verify` raises the same reason as an AssertionError.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, Self, TypeAlias, Union, cast, final

import msgspec

from trimaran.client.link import ExitReport, Owner
from trimaran.errors import ConnectFailed, ConnectionLost, Error, ProtocolError
from trimaran.protocol.versions import LATEST_LEGACY, MODERN
from trimaran.types import Json

from .transcript import Transcript, diff, parse, pretty

_NOTHING: Final[Any] = ...

Says: TypeAlias = Union[str, bytes, Mapping[str, object], "Callable[[dict[str, Json]], Says]"]
Answers: TypeAlias = Mapping[str, object] | Callable[[dict[str, Json]], object]
Fails: TypeAlias = tuple[int, str] | tuple[int, str, Any]


class _LeftScript(Exception):
    """The client left the script."""


@final
class ScriptedPeer:
    """A channel with a script at its far end.

        peer = ScriptedPeer().legacy(capabilities={"tools": {}}).expect("tools/list", result={"tools": []})
        async with connect(peer) as client:
            assert await client.list_tools() == []
        peer.verify()

    Steps return the peer, so that a script reads from top to bottom. A client that reconnects goes on where the last
    connection was hung up.
    """

    def __init__(self, name: str = "a script") -> None:
        self._name = name
        self._steps: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        self._at = 0
        self._allowed: list[tuple[str, Callable[[dict[str, Any]], Awaitable[None]]]] = []
        self._inbox: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._requests: list[dict[str, Any]] = []
        self._last_id = 0
        self._owner: Owner | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_elsewhere = False
        self._is_hung_up = False
        self._ended: str | None = "the script was not opened"
        self._failure: str | None = None
        self.transcript: Transcript = Transcript()
        """All that was said, by both sides; `print` it to see what went on."""

    # Writing the script

    def expect(
        self,
        method: str,
        params: Mapping[str, object] | Callable[[dict[str, Json]], object] | None = None,
        *,
        result: Answers = _NOTHING,
        error: Fails | None = None,
        then: Sequence[Says] = (),
    ) -> Self:
        """Wait for a request or notification, and answer it.

        Args:
            method: The method that the client must send next.
            params: The fields that its params must have; more may be there. Or a function of them that returns or asserts something.
            result: The answer, or a function of the params, plain or async, that makes it. A ProtocolError it raises
                is the answer. Without a result and an error there is none: see `reply`.
            error: The answer as (code, message) or (code, message, data).
            then: The messages after the answer, as for `say`.
        """
        if result is not _NOTHING and error is not None:
            raise TypeError("an answer is a result or an error, not both")

        async def step() -> None:
            message = await self._await(method)
            self._check(method, params, message)
            self._requests.append(message)
            await self._answer(message, result, error)
            for says in then:
                self._say(says, message)

        return self._add(f"expect {method}", step)

    def reply(self, result: Answers = _NOTHING, *, error: Fails | None = None, to: str | None = None) -> Self:
        """Answer the last expected request, or the last one of the method `to`, whether or not it was answered before."""
        if (result is _NOTHING) == (error is None):
            raise TypeError("an answer is a result or an error: give one of them")

        async def step() -> None:
            for message in reversed(self._requests):
                if to in (None, message["method"]) and "id" in message:
                    await self._answer(message, result, error)
                    return
            raise _LeftScript(f"the script replies to {to or 'a request'}, but none has come")

        return self._add(f"reply to {to or 'the last request'}", step)

    def say(self, message: Says, params: Mapping[str, object] | None = None) -> Self:
        """Send something unasked.

        Args:
            message: The method of a notification; a message as a mapping, where `jsonrpc` may be left out; bytes, sent
                as they are; or a function that makes one of these from the last expected message.
            params: The params of the notification, if `message` is a method.
        """
        if params is not None:
            message = {"method": message, "params": params}

        async def step() -> None:
            self._say(message, self._requests[-1] if self._requests else {})

        return self._add(f"say {message if isinstance(message, str) else 'a message'}", step)

    def ask(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        answer: Mapping[str, object] | Callable[[dict[str, Json]], object] | None = None,
    ) -> Self:
        """Send the client a request and wait for its reply, as servers before 2026-07-28 may.

        Args:
            method: Its method.
            params: Its params.
            answer: Fields that the reply must have, e.g. `{"result": {"roots": []}}`; or a function of the reply.
        """

        async def step() -> None:
            self._last_id += 1
            id = f"script-{self._last_id}"
            question: dict[str, Any] = {"id": id, "method": method}
            self._say({**question, "params": params} if params is not None else question, {})
            reply = await self._await(None, id)
            self._check(f"the answer to {method}", answer, reply, whole=True)

        return self._add(f"ask {method}", step)

    def allow(self, pattern: str, result: Answers = _NOTHING, *, error: Fails | None = None) -> Self:
        """Let such a message come at any time and any number of times, or not at all: "ping", "notifications/*".

        It is answered as in `expect`; a step that expects it comes first. Of several patterns the first counts.
        """

        async def handle(message: dict[str, Any]) -> None:
            await self._answer(message, result, error)

        self._allowed.append((pattern, handle))
        return self

    def hang_up(self, error: Error | None = None) -> Self:
        """End the connection here: in order, or with an error, as a broken pipe would."""

        async def step() -> None:
            self._is_hung_up = True
            self._end(str(error) if error else "the script hung up", error)

        return self._add("hang up", step)

    def legacy(self, version: str = LATEST_LEGACY, **initialize: object) -> Self:
        """The handshake of a server before 2026-07-28, which knows no `server/discover`.

        Args:
            version: The revision it settles on.
            **initialize: More of its result: `capabilities`, `instructions`.
        """
        hello = {"protocolVersion": version, "capabilities": {}, "serverInfo": _INFO, **initialize}
        self.allow("server/discover", error=(-32601, "Method not found"))
        return self.expect("initialize", result=hello).expect("notifications/initialized")

    def modern(self, version: str = MODERN, **discover: object) -> Self:
        """A server of 2026-07-28, however often it is asked who it is.

        Args:
            version: The revision it speaks.
            **discover: More of its DiscoverResult: `capabilities`, `instructions`.
        """
        result = {
            "resultType": "complete",
            "supportedVersions": [version],
            "capabilities": {},
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": _INFO},
            **discover,
        }
        return self.allow("server/discover", result=result)

    # Reading the outcome

    def verify(self) -> None:
        """Raise AssertionError if the client left the script, or the script was not played to its end."""
        if self._failure is not None:
            raise AssertionError(self._failure)
        if self._at < len(self._steps):
            left = ", ".join(name for name, _ in self._steps[self._at :])
            raise AssertionError(self._with_place(f"the script was not played to its end; left are: {left}"))

    # The channel

    async def open(self, owner: Owner) -> None:
        if self._failure is not None or self._task is not None:
            raise ConnectFailed(self._failure or f"{self._name} is open already; one script serves one client")
        if self._at and self._at == len(self._steps):
            raise ConnectFailed(f"{self._name} was played to its end; it takes no further connection")
        self._owner = owner
        self._ended = None
        self._is_hung_up = False
        self._inbox = asyncio.Queue()
        self._task = asyncio.ensure_future(self._play())

    async def send(self, message: bytes) -> None:
        if self._ended is not None:
            raise ConnectionLost(f"the connection has ended: {self._ended}", cause_text=self._ended)
        self.transcript.add("client", message)
        self._inbox.put_nowait(message)

    async def close(self) -> None:
        self._owner = None
        self._ended = self._ended or "this end was closed"
        task = self._task
        if task is None or task is asyncio.current_task():
            return
        # Messages that the client sent before it closed still count: the script reads all of them.
        self._inbox.put_nowait(None)
        if self._is_elsewhere:
            task.cancel()
        await asyncio.wait({task})

    def describe(self) -> str:
        return self._name

    def postmortem(self) -> ExitReport:
        return ExitReport()

    # Playing it

    def _add(self, name: str, step: Callable[[], Awaitable[None]]) -> Self:
        self._steps.append((name, step))
        return self

    async def _play(self) -> None:
        try:
            while self._at < len(self._steps) and not self._is_hung_up:
                await self._steps[self._at][1]()
                self._at += 1
            while not self._is_hung_up:
                await self._await(None)
        except _LeftScript as reason:
            self._failure = self._with_place(str(reason))
            self._end(self._failure, ConnectionLost(f"the client left the script: {self._failure}"))
        except _Finished:
            pass
        finally:
            self._task = None

    async def _await(self, method: str | None, reply_to: str | None = None) -> dict[str, Any]:
        """The next message that is not merely allowed; it must be of this method, or the reply to this id."""
        while True:
            raw = await self._inbox.get()
            if raw is None:
                raise _Finished
            message = parse(raw)
            if not isinstance(message, dict):
                raise _LeftScript(f"the client sent an invalid JSON-RPC message: {raw[:200]!r}")
            message = cast("dict[str, Any]", message)
            came = message.get("method")
            if came is None and reply_to is not None and message.get("id") == reply_to:
                return message
            if came is not None and came == method:
                return message
            handle = next((h for p, h in self._allowed if came is not None and fnmatchcase(str(came), p)), None)
            if handle is None:
                raise _LeftScript(self._surprise(method, reply_to, message))
            await handle(message)

    def _surprise(self, method: str | None, reply_to: str | None, message: dict[str, Any]) -> str:
        came = message.get("method", f"a reply to {message.get('id')!r}")
        if method is None and reply_to is None:
            return f"the script has ended, and the client sent {came}: {pretty(message)}"
        step = method or f"a reply to {reply_to!r}"
        expected: dict[str, Any] = {"method": method} if method else {"id": reply_to, "result": {}}
        content = {key: value for key, value in message.items() if key != "jsonrpc"}
        return f"the script expected {step}, and the client sent {came}\n{diff(expected, content)}"

    def _check(self, title: str, expected: Any, message: dict[str, Any], *, whole: bool = False) -> None:
        part: Any = message if whole else message.get("params") or {}
        if expected is None:
            return
        if callable(expected):
            try:
                verdict = expected(part)
            except AssertionError as error:
                raise _LeftScript(f"{title}: {error or 'an assertion failed'}\n{pretty(part, spread=True)}") from None
            if verdict is False:
                raise _LeftScript(f"the script refuses the content of {title}\n{pretty(part, spread=True)}")
            return
        if not _holds(part, expected):
            raise _LeftScript(
                f"{title} came with other content than the script expects\n{diff(expected, _same(part, expected))}"
            )

    async def _answer(self, message: dict[str, Any], result: Any, error: Fails | None) -> None:
        if (result is _NOTHING and error is None) or "id" not in message:
            return
        reply: dict[str, Any] = {"id": message["id"]}
        if callable(result):
            try:
                result = await self._run_result(result, message.get("params") or {})
            except ProtocolError as raised:
                error = (
                    (raised.code, raised.message) if raised.data is None else (raised.code, raised.message, raised.data)
                )
        if error is not None:
            reply["error"] = dict(zip(("code", "message", "data"), error, strict=False))
        else:
            reply["result"] = result
        self._say(reply, message)

    async def _run_result(self, result: Callable[[dict[str, Any]], Any], params: dict[str, Any]) -> Any:
        try:
            value = result(params)
            if inspect.isawaitable(value):
                self._is_elsewhere = True
                value = await value
        except ProtocolError:
            raise
        except Exception as error:
            raise _LeftScript(f"the script's own function failed: {type(error).__name__}: {error}") from error
        finally:
            self._is_elsewhere = False
        return value

    def _say(self, says: Says, request: dict[str, Any]) -> None:
        if callable(says):
            says = says(request)
        if isinstance(says, str):
            says = {"method": says}
        data = (
            says
            if isinstance(says, bytes)
            else msgspec.json.encode({"jsonrpc": "2.0", **cast("Mapping[str, Any]", says)})
        )
        if self._owner is not None and self._ended is None:
            self.transcript.add("server", data)
            self._owner.receive(data)

    def _end(self, why: str, error: Error | None) -> None:
        owner, self._owner = self._owner, None
        self._ended = self._ended or why
        if owner is not None:
            owner.lost(error)

    def _with_place(self, problem: str) -> str:
        steps = len(self._steps)
        place = f"after all {steps} steps" if self._at == steps else f"at step {self._at + 1} of {steps}"
        transcript = f"\n\nThe messages so far:\n{self.transcript}" if len(self.transcript) else ""
        return f"{problem}\n({self._name}, {place}){transcript}"


class _Finished(Exception):
    """The client closed the channel, and all it sent was read."""


_INFO: Final = {"name": "scripted", "version": "1.0.0"}


def _holds(value: Any, expected: Any) -> bool:
    """Whether a value has everything that is expected. Dicts may have extra keys at any depth."""
    if isinstance(expected, Mapping) and isinstance(value, dict):
        expected_fields = cast("Mapping[Any, Any]", expected)
        fields = cast("dict[Any, Any]", value)
        return all(key in fields and _holds(fields[key], part) for key, part in expected_fields.items())
    return bool(value == expected)


def _same(value: Any, expected: Any) -> Any:
    """The part of a value that the expectation names, so that the difference shows nothing else."""
    if isinstance(expected, Mapping) and isinstance(value, dict):
        expected_fields = cast("Mapping[Any, Any]", expected)
        fields = cast("dict[Any, Any]", value)
        return {key: _same(fields[key], part) for key, part in expected_fields.items() if key in fields}
    return value
