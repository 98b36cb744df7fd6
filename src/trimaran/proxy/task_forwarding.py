"""A call that the target answers with a task: the task is followed to its end, on behalf of the caller.

The caller sees a task of the proxy, with an id of the proxy's, in the protocol of its own era; nobody else can read it. Behind
it stands the target's own task, in the protocol of the target's era:

    tasks/get         the proxy's record, which follows the target's status message and its questions
    questions         become questions of the proxy's task; the answers go back to the target
    tasks/cancel      cancels the target's task, too
    the result        is the target's, and so is the error

The target's id is a step in the journal of the proxy's task. If the process ends, another one of the fleet follows the same
task of the target; the tool is never called again. A task that the target does not know any more is an error.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final, TypeAlias, cast, final

import msgspec
from msgspec import Raw

from trimaran.client.client import Client
from trimaran.client.relaying import relay_request
from trimaran.client.tasks import TASKS, TaskClient, TaskHandle, read_begun
from trimaran.errors import CODE_INVALID_PARAMS, CallError, Error, ProtocolError
from trimaran.ext.tasks.voice import TaskVoice
from trimaran.protocol.inbound import IncomingCall
from trimaran.protocol.journal import digest
from trimaran.protocol.meta import KEY_CLIENT_CAPABILITIES
from trimaran.server.context import Context
from trimaran.server.input_rounds import ModernVoice

from .forwarding import LiveRelay, PassingRelay, answer_live, describe_failure, read_result, send, send_round

_STEP: Final = "proxy.task"
_LOOK_SECONDS: Final = 1.0  # between two looks at the status message of a task of 2025-11-25
_CANCEL_SECONDS: Final = 10.0  # for the target to hear of the end; nobody waits for it
_ABANDON_SECONDS: Final = 1.0  # for a target to answer a cancelled call with a task; a task is begun at once
_MOST_MESSAGE: Final = 1000  # characters of a status message; the store keeps it, and people read it

Ask: TypeAlias = Callable[[str, Mapping[str, Any]], Awaitable[Any]]
_ending: Final[set[asyncio.Task[None]]] = set()  # the loop itself keeps only weak references to tasks


class _Status(msgspec.Struct, rename="camel"):
    status_message: str | None = None


_read_status = msgspec.json.Decoder(_Status).decode


def _with_tasks(meta: dict[str, Any]) -> dict[str, Any]:
    return {**meta, KEY_CLIENT_CAPABILITIES: {**meta[KEY_CLIENT_CAPABILITIES], "extensions": {TASKS: {}}}}


@final
class _TaskRelay(LiveRelay):
    """A request about a task, whose caller is asked by `ask_caller`, or while it waits."""

    extension = TASKS

    def __init__(self, call: IncomingCall, ask_caller: Ask | None = None) -> None:
        super().__init__(call)
        self._ask_caller = ask_caller

    def modern_meta(self, id: int) -> dict[str, Any]:
        return _with_tasks(super().modern_meta(id))

    async def ask(self, method: str, params: Mapping[str, Any]) -> Any:
        if self._ask_caller is not None:
            return await self._ask_caller(method, params)
        # On 2025-11-25 the questions of a task have no keys. What is asked tells them apart, after a restart as well.
        return await answer_live(self.call, method, params, f"{method}-{digest(method, params)}")


@final
class _PassingTaskRelay(PassingRelay):
    """A call between sides of 2026-07-28 that may end its round with questions before the target makes a task of it."""

    extension = TASKS

    def modern_meta(self, id: int) -> dict[str, Any]:
        return _with_tasks(super().modern_meta(id))


async def forward_task(
    client: Callable[[], Client], ctx: Context, params: dict[str, Any], name: str, target: str
) -> Any:
    """Serve a call that is a task of ours, or may become one.

    Returns the result as this caller's era writes it; None if the round has ended with questions.

    Args:
        client: The connection to the target that there is at the moment.
    """
    call = ctx.call
    following = _Following(client, call, target)
    voice = cast("TaskVoice", call.exchange.voice)
    if voice.is_task:
        id = await ctx.step(_STEP, following.begin, params, name)
        if id is None and following.result is None:
            raise _lost(target)  # it was answered at once, and the answer went with its process
    else:
        raw = await following.begin_in_rounds(params, name, voice.request_voice)
        if raw is None:
            return None
        id = following.read_begun(raw)
        if id is not None:
            await ctx.step(_STEP, _keep, id)  # before it is a task: whoever goes on with it has to know
            await following.or_cancel(id, ctx.detach())
    if id is not None:
        following.result = await following.or_cancel(id, following.wait(id, voice), voice)
    assert following.result is not None
    return read_result(following.result, call, client(), target)


def _keep(id: str) -> str:
    return id


async def wait_for_task(
    client: Callable[[], Client],
    call: IncomingCall,
    params: dict[str, Any],
    name: str,
    target: str,
    ask_caller: Ask | None = None,
) -> Raw:
    """Serve a plain call of a tool that the target runs as a task only: begin the task, and wait for its end."""
    following = _Following(client, call, target, ask_caller)
    id = await following.begin(params, name)
    if id is not None:
        following.result = await following.or_cancel(id, following.wait(id, None))
    assert following.result is not None
    return following.result


@final
class _Following:
    """One task of the target, for one call."""

    def __init__(
        self, client: Callable[[], Client], call: IncomingCall, target: str, ask_caller: Ask | None = None
    ) -> None:
        self._client = client
        self._call = call
        self._target = target
        self._ask_caller = ask_caller
        self._message: str | None = None
        self.result: Raw | None = None
        """The target's answer, once it is there."""

    async def begin(self, params: dict[str, Any], name: str) -> str | None:
        """Have the target begin; the id of its task, or None if it has answered with the result."""
        client = self._client()
        if client.era == "legacy":
            params = {**params, "task": {}}
        sending = asyncio.ensure_future(send(client, self._call, params, name, self._relay(), self._target))
        try:
            raw, _ = await asyncio.shield(sending)
        except asyncio.CancelledError:
            _spawn(self._abandon(sending))
            raise
        return self.read_begun(raw)

    async def _abandon(self, sending: asyncio.Future[tuple[Raw, bool]]) -> None:
        """The call was cancelled before its answer came. The answer may be a task, which would go on."""
        await asyncio.wait((sending,), timeout=_ABANDON_SECONDS)
        if not sending.done():
            sending.cancel()
        elif not sending.cancelled() and sending.exception() is None:
            id = self.read_begun(sending.result()[0])
            if id is not None:
                await self._cancel(id)

    async def begin_in_rounds(self, params: dict[str, Any], name: str, voice: object) -> Raw | None:
        """The same where the caller's request may end with questions first: then None."""
        client, call = self._client(), self._call
        if isinstance(voice, ModernVoice) and client.era == "modern":
            return await send_round(client, call, voice, params, name, _PassingTaskRelay(call), self._target)
        raw, _ = await send(client, call, params, name, self._relay(), self._target)
        return raw

    def read_begun(self, raw: Raw) -> str | None:
        begun = read_begun(raw, modern=self._client().era == "modern")
        if begun is None:
            self.result = raw
            return None
        return begun.task_id

    def _relay(self) -> Any:
        return _TaskRelay(self._call, self._ask_caller)

    async def _request(self, method: str, params: dict[str, Any], id: str, timeout: object = None) -> Raw:
        try:
            raw, _ = await relay_request(self._client(), method, params, id, self._relay())
        except CallError as error:
            if method == "tasks/get" and error.code == CODE_INVALID_PARAMS:
                raise _lost(self._target) from error
            raise
        return raw

    async def _ask(self, method: str, params: Mapping[str, Any], key: str) -> Any:
        if self._ask_caller is not None:
            return await self._ask_caller(method, params)
        return await answer_live(self._call, method, params, key)

    async def wait(self, id: str, voice: TaskVoice | None) -> Raw:
        """The result of the target's task. What it asks on its way is put to the caller, what it tells to the caller's task."""

        async def request(method: str, params: dict[str, Any], id: str, timeout: object = None) -> Raw:
            raw = await self._request(method, params, id)
            if method == "tasks/get" and voice is not None:
                self._note(raw, voice)
            return raw

        client = TaskClient(request, self._ask, _rest, lambda: self._client().era == "modern")
        handle: TaskHandle[Any] = TaskHandle(client, id, cast("Any", _whole))
        watching = asyncio.ensure_future(_watch(handle)) if self._client().era == "legacy" else None
        try:
            return cast("Raw", await handle.result())
        except Error as error:
            raise (
                error
                if isinstance(error, ProtocolError) and not isinstance(error, CallError)
                else describe_failure(error, self._target)
            ) from error
        finally:
            if watching is not None:
                watching.cancel()

    def _note(self, raw: Raw, voice: TaskVoice) -> None:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError):  # whoever reads the whole says what is wrong
            message = _read_status(raw).status_message
            if message is not None and message != self._message:
                self._message = message
                voice.note(message[:_MOST_MESSAGE])

    async def or_cancel(self, id: str, work: Awaitable[Any], voice: TaskVoice | None = None) -> Any:
        """Do the work; if that ends before its time, have the target cancel its task, unless another process goes on."""
        try:
            return await work
        except BaseException as error:
            if isinstance(error, ProtocolError) or (voice is not None and not await voice.has_ended()):
                raise
            _spawn(self._cancel(id))
            raise

    async def _cancel(self, id: str) -> None:
        with contextlib.suppress(Error, TimeoutError):
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self._request("tasks/cancel", {"taskId": id}, id)


def _spawn(work: Coroutine[Any, Any, None]) -> None:
    task = asyncio.ensure_future(work)
    _ending.add(task)
    task.add_done_callback(_ending.discard)


def _whole(raw: Raw) -> Raw:
    return raw


async def _rest(pause: Awaitable[None]) -> None:
    await pause


async def _watch(handle: TaskHandle[Any]) -> None:
    """Look at a task of 2025-11-25 beside the request that waits for its result."""
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        with contextlib.suppress(Error):
            await handle.refresh()


def _lost(target: str) -> ProtocolError:
    return ProtocolError.internal_error(
        f"{target} does not know the task any more: it may have been restarted. The call may have been carried out, and was "
        "not repeated",
        {"upstream": target, "kind": "task_lost"},
        status=200,
    )
