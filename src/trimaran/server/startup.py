"""The steps before the first call of a server, and at its end: lifespan, readiness, `init`.

`ServerRuntime` owns the one `Startup` of a server. It is a gate around calls only while it is needed: once it is passed, the
dispatcher folds it away.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, final

from trimaran.errors import ProtocolError, TimedOut
from trimaran.protocol.inbound import IncomingCall

from .dispatch import Serve
from .handlers import call_any

if TYPE_CHECKING:
    from .server import Server


@final
class Startup:
    """The steps before the first call: lifespan entered, readiness reached, sessionless state made.

    It happens once, on the first call if nobody asked earlier, so that no framework needs to run a lifespan (P14).
    """

    def __init__(
        self,
        server: Server,
        mounted: list[Server],
        lifespan: Callable[[Server], AbstractAsyncContextManager[Any]] | None,
        wait_for: Callable[[], Any] | None,
    ) -> None:
        self._server = server
        self.mounted = mounted
        self._lifespan = lifespan
        self._wait_for = wait_for
        self._entered: AbstractAsyncContextManager[Any] | None = None
        self._task: asyncio.Task[None] | None = None
        self.value: Any = None
        self.state: Any = None
        """The return value of `init` for calls without a session."""
        self.ready: bool = False

    @property
    def needed(self) -> bool:
        is_needed = self._lifespan is not None or self._wait_for is not None or self._server.init is not None
        return is_needed or any(mounted.runtime.startup.needed for mounted in self.mounted)

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
            for mounted in self.mounted:
                await mounted.runtime.start_for(server)
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
        server.runtime.dispatcher.fold()  # the next call has nothing to wait for

    def _is_awaitable_gate(self) -> bool:
        # A coroutine function is waited for; a plain one is a question, asked until it says yes.
        return inspect.iscoroutinefunction(self._wait_for)

    async def stop(self) -> None:
        entered, self._entered = self._entered, None
        task, self._task = self._task, None
        if self.ready:
            self.ready = False
            self._server.runtime.dispatcher.fold()
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})
        for mounted in reversed(self.mounted):
            await mounted.runtime.stop_for(self._server)
        if entered is not None:
            await entered.__aexit__(None, None, None)
