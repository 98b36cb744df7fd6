"""`SyncClient`: the client for scripts, notebooks and everything else without an event loop (P33).

    with SyncClient("http://127.0.0.1:9090/mcp") as client:
        print(client.call_tool("add", {"a": 1, "b": 2}).data)

The client itself lives on a loop in a thread of its own; each method waits for its twin there. So it works inside a running
loop too (Jupyter has one), may be shared between threads, and Ctrl+C interrupts a wait and cancels the call. Handlers that
are plain functions run in worker threads, as they do for the asynchronous client.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import CancelledError
from types import TracebackType, UnionType
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, Unpack, final

from trimaran.client.client import Client, Timeout
from trimaran.client.connection import Unset
from trimaran.client.option_types import CallOptions, ListenOptions, LogLevel, OnProgress, Roots, TaskOptions
from trimaran.client.options import ClientState
from trimaran.client.results import D, Page, PromptResult, ResourceResult, ToolResult
from trimaran.client.subscriptions import Change, ChangeStream, Subscription
from trimaran.client.tasks import TaskHandle, TaskUpdate
from trimaran.connecting import Target, connect
from trimaran.errors import Closed, NotReady
from trimaran.protocol.inbound import RequestId
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

if TYPE_CHECKING:
    from trimaran.connect_options import ConnectOptions

__all__ = ["SyncClient", "SyncSubscription", "SyncTask"]

_T = TypeVar("_T")


@final
class SyncClient:
    """The same options and methods as `connect`, without `await`. Opened by `with` or `open`, ended by `close`."""

    def __init__(self, target: Target, **options: Unpack[ConnectOptions]) -> None:
        self._make: Callable[[], Client] = lambda: connect(target, **options)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: Client | None = None
        self._is_closed = False
        self._ending: Any = None
        self._process = 0
        """The process of the thread: a fork copies us, and not the thread."""
        self._lock = threading.Lock()
        """Nothing is handed to the loop once its end is decided."""
        # Arguments that cannot be right fail here, not in the thread.
        self._first: Client | None = self._make()

    # --- life --------------------------------------------------------------------------------------------------------

    def open(self) -> Self:
        if self._is_closed:
            raise Closed("the client is closed; make a new one")
        if self._loop is not None:
            raise NotReady("the client is open already")
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=_turn, args=(loop,), name="trimaran-client", daemon=True)
        self._loop, self._thread, self._process = loop, thread, os.getpid()
        thread.start()
        try:
            self._client = self._run(self._open())
        except BaseException:
            self.close()
            raise
        # One that is dropped without being closed takes its connection along.
        self._ending = weakref.finalize(self, _abandon, loop, self._client, self._process)
        self._ending.atexit = False
        return self

    async def _open(self) -> Client:
        client, self._first = self._first or self._make(), None
        return await client.open()

    def close(self) -> None:
        """End the connection and the thread. Any number of times, from any thread."""
        if self._is_forked:
            self._is_closed, self._loop = True, None  # the connection is the other process's
            return
        with self._lock:
            self._is_closed = True
            loop, self._loop = self._loop, None
        thread = self._thread
        if loop is None:
            if thread is not None and thread is not threading.current_thread():
                thread.join()  # somebody else is closing it; wait for the same end
            return
        if self._ending is not None:
            self._ending.detach()
        client = self._client
        if thread is threading.current_thread():
            # A callback of the client's own: it cannot wait for the thread it runs on.
            closing = asyncio.ensure_future(client.close() if client is not None else _nothing(), loop=loop)
            closing.add_done_callback(lambda _: loop.stop())
            return
        try:
            if client is not None:
                asyncio.run_coroutine_threadsafe(client.close(), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            if thread is not None:
                thread.join()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _is_forked(self) -> bool:
        return self._loop is not None and self._process != os.getpid()

    def _run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        if self._is_forked:
            coroutine.close()
            raise Closed(
                f"the client was opened in process {self._process}, and this one was forked from it: make a client in "
                "each process, after the fork"
            )
        with self._lock:
            loop = self._loop
            future = (
                None
                if loop is None or threading.current_thread() is self._thread
                else asyncio.run_coroutine_threadsafe(coroutine, loop)
            )
        if future is None:
            coroutine.close()
            if self._is_closed:
                raise Closed("the client is closed")
            if loop is None:
                raise NotReady("the client is not open yet: use `with SyncClient(...)`, or call open()")
            raise NotReady("a handler on the client's own thread cannot wait for the client; make the handler async")
        try:
            return future.result()
        except CancelledError:
            raise Closed("the client was closed") from None
        except BaseException:
            future.cancel()  # interrupted, by Ctrl+C or a signal's handler; of a call that has ended it changes nothing
            raise

    @property
    def _async(self) -> Client:
        client = self._client
        if client is None:
            if self._is_closed:
                raise Closed("the client is closed")
            raise NotReady("the client is not open yet: use `with SyncClient(...)`, or call open()")
        return client

    @property
    def state(self) -> ClientState:
        """new, connecting, ready, reconnecting or closed."""
        return self._client.state if self._client is not None else ("closed" if self._is_closed else "new")

    @property
    def era(self) -> Literal["modern", "legacy"]:
        return self._async.era

    @property
    def version(self) -> str:
        return self._async.version

    @property
    def server_info(self) -> Implementation | None:
        return self._async.server_info

    @property
    def server_capabilities(self) -> dict[str, Json]:
        return self._async.server_capabilities

    @property
    def instructions(self) -> str | None:
        return self._async.instructions

    @property
    def session_id(self) -> str | None:
        return self._async.session_id

    @property
    def pid(self) -> int | None:
        return self._async.pid

    @property
    def stderr(self) -> list[str]:
        return self._async.stderr

    # --- calls -------------------------------------------------------------------------------------------------------

    def call_tool(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        into: type[D] | UnionType | None = None,
        **options: Unpack[CallOptions],
    ) -> ToolResult[D]:
        """Call a tool; see Client.call_tool."""
        return self._run(self._async.call_tool(name, arguments, into=into, **options))

    def start_task(
        self,
        name: str,
        arguments: Mapping[str, object] | None = None,
        *,
        into: type[D] | UnionType | None = None,
        **options: Unpack[TaskOptions],
    ) -> SyncTask[D]:
        """Call a tool as a task; see Client.start_task."""
        return SyncTask(self._run, self._run(self._async.start_task(name, arguments, into=into, **options)))

    def task(
        self, id: str, *, into: type[D] | UnionType | None = None, raise_on_error: bool | None = None
    ) -> SyncTask[D]:
        """A task that was begun before, perhaps by another run of this program."""
        return SyncTask(self._run, self._async.task(id, into=into, raise_on_error=raise_on_error))

    def list_tools(self, cursor: str | None = None, *, fresh: bool = False) -> Page[Tool]:
        return self._run(self._async.list_tools(cursor, fresh=fresh))

    def list_tools_all(self, *, max_pages: int = 1000, fresh: bool = False) -> list[Tool]:
        return self._run(self._async.list_tools_all(max_pages=max_pages, fresh=fresh))

    def list_resources(self, cursor: str | None = None, *, fresh: bool = False) -> Page[Resource]:
        return self._run(self._async.list_resources(cursor, fresh=fresh))

    def list_resources_all(self, *, max_pages: int = 1000, fresh: bool = False) -> list[Resource]:
        return self._run(self._async.list_resources_all(max_pages=max_pages, fresh=fresh))

    def list_resource_templates(self, cursor: str | None = None, *, fresh: bool = False) -> Page[ResourceTemplate]:
        return self._run(self._async.list_resource_templates(cursor, fresh=fresh))

    def list_resource_templates_all(self, *, max_pages: int = 1000, fresh: bool = False) -> list[ResourceTemplate]:
        return self._run(self._async.list_resource_templates_all(max_pages=max_pages, fresh=fresh))

    def list_prompts(self, cursor: str | None = None, *, fresh: bool = False) -> Page[Prompt]:
        return self._run(self._async.list_prompts(cursor, fresh=fresh))

    def list_prompts_all(self, *, max_pages: int = 1000, fresh: bool = False) -> list[Prompt]:
        return self._run(self._async.list_prompts_all(max_pages=max_pages, fresh=fresh))

    def read_resource(
        self, uri: str, *, timeout: Timeout = Unset, fresh: bool = False, meta: Mapping[str, Json] | None = None
    ) -> ResourceResult:
        return self._run(self._async.read_resource(uri, timeout=timeout, fresh=fresh, meta=meta))

    def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: Timeout = Unset,
        meta: Mapping[str, Json] | None = None,
    ) -> PromptResult:
        return self._run(self._async.get_prompt(name, arguments, timeout=timeout, meta=meta))

    def complete(
        self,
        ref: str | PromptReference | ResourceReference,
        argument: str,
        value: str,
        context: Mapping[str, str] | None = None,
        *,
        timeout: Timeout = Unset,
    ) -> Completion:
        return self._run(self._async.complete(ref, argument, value, context, timeout=timeout))

    def ping(self, *, timeout: Timeout = Unset) -> None:
        self._run(self._async.ping(timeout=timeout))

    def set_log_level(self, level: LogLevel) -> None:
        self._run(self._async.set_log_level(level))

    def set_roots(self, roots: Roots) -> None:
        self._run(self._async.set_roots(roots))

    def request(
        self,
        method: str,
        params: Mapping[str, object] | None = None,
        *,
        timeout: Timeout = Unset,
        on_progress: OnProgress | None = None,
        idempotent: bool = False,
    ) -> dict[str, Json]:
        call = self._async.request(method, params, timeout=timeout, on_progress=on_progress, idempotent=idempotent)
        return self._run(call)

    @property
    def requests(self) -> tuple[RequestId, ...]:
        """The ids of the requests that wait for an answer, in other threads."""
        return self._async.requests

    def cancel(self, request_id: RequestId, reason: str | None = None) -> bool:
        """Cancel a request of another thread: its caller gets CallCancelled."""

        async def cancel() -> bool:
            return self._async.cancel(request_id, reason)

        return self._run(cancel())

    def notify(self, method: str, params: Mapping[str, object] | None = None) -> None:
        self._run(self._async.notify(method, params))

    def list_tasks(self, cursor: str | None = None) -> dict[str, Json]:
        return self._run(self._async.list_tasks(cursor))

    def get_task(self, task_id: str) -> dict[str, Json]:
        return self._run(self._async.get_task(task_id))

    def cancel_task(self, task_id: str) -> dict[str, Json]:
        return self._run(self._async.cancel_task(task_id))

    def task_result(self, task_id: str, *, timeout: Timeout = Unset) -> dict[str, Json]:
        return self._run(self._async.task_result(task_id, timeout=timeout))

    def subscribe(self, uri: str, callback: Callable[[str], object]) -> SyncSubscription:
        """Have `callback(uri)` called, on the client's thread, whenever a resource changes."""
        return SyncSubscription(self._run, self._run(self._async.subscribe(uri, callback)))

    def listen(self, **options: Unpack[ListenOptions]) -> Iterator[Change]:
        """The server's announcements of change, until the client is closed; each step waits for the next one."""
        return self._iterate(self._async.listen(**options))

    def _iterate(self, changes: ChangeStream) -> Iterator[Change]:
        async def step() -> Change | None:
            return await anext(changes, None)

        try:
            while (change := self._run(step())) is not None:
                yield change
        finally:
            if self._loop is not None:
                self._run(changes.aclose())

    def __repr__(self) -> str:
        return f"<SyncClient {self.state}>"


@final
class SyncSubscription:
    """A callback on one resource; `cancel` ends it."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, None]], None], subscription: Subscription) -> None:
        self._run = run
        self._subscription = subscription

    def cancel(self) -> None:
        self._run(self._subscription.cancel())


@final
class SyncTask(Generic[D]):
    """One task; see TaskHandle. Ctrl+C ends the wait and not the task: only `cancel` ends the task."""

    def __init__(self, run: Callable[[Coroutine[Any, Any, Any]], Any], handle: TaskHandle[D]) -> None:
        self._run = run
        self._handle = handle

    @property
    def id(self) -> str:
        return self._handle.id

    @property
    def status(self) -> str:
        """As of the last look."""
        return self._handle.status

    @property
    def message(self) -> str | None:
        return self._handle.message

    @property
    def is_over(self) -> bool:
        return self._handle.is_over

    def result(self, timeout: float | None = None) -> ToolResult[D]:
        """Wait for the end: the tool's result; see TaskHandle.result."""
        return self._run(self._handle.result(timeout))

    def refresh(self) -> TaskUpdate:
        """Ask the server for the state of the task, and answer the task's questions."""
        return self._run(self._handle.refresh())

    def cancel(self) -> None:
        """Ask the server to cancel the task. A task that has ended stays as it is."""
        self._run(self._handle.cancel())

    def __iter__(self) -> Iterator[TaskUpdate]:
        """Each change of the status or its message, the end included; each step waits for the next one."""
        updates = aiter(self._handle)

        async def step() -> TaskUpdate | None:
            return await anext(updates, None)

        while (update := self._run(step())) is not None:
            yield update

    def __repr__(self) -> str:
        return f"<SyncTask {self.id} {self.status}>"


def _abandon(loop: asyncio.AbstractEventLoop, client: Client, process: int) -> None:
    if process != os.getpid():
        return

    async def end() -> None:
        await client.close()
        loop.stop()

    if not loop.is_closed():
        asyncio.run_coroutine_threadsafe(end(), loop)


async def _nothing() -> None:
    pass


def _turn(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks))
        loop.run_until_complete(loop.shutdown_asyncgens())
        # Look-ups of names may still be at work in its threads; they are not waited for.
        with contextlib.suppress(TimeoutError):
            loop.run_until_complete(asyncio.wait_for(loop.shutdown_default_executor(), 1.0))
        loop.close()
