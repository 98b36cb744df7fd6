"""User functions, looked at once: how each is to be called, and by what means.

`async def` runs in the task of the call. A plain `def` runs in the thread pool, because it may block; `inline=True` says
that it will not, and then it is called directly. If it returns an awaitable, the task of the call awaits that. An async
generator streams.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging
import secrets
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, final

from trimaran.errors import (
    DeclarationError,
    Disconnected,
    Error,
    LocalProtocolError,
    ProtocolError,
    RemoteProtocolError,
    TimedOut,
    ToolError,
)
from trimaran.protocol.inbound import IncomingCall

from .threads import ThreadPool

logger: Final = logging.getLogger("trimaran.server")

Mode = Literal["async", "thread", "inline", "stream"]


def _bare(fn: Any) -> Any:
    while isinstance(fn, functools.partial):
        fn = fn.func  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    if not inspect.isroutine(fn) and callable(fn):
        return getattr(fn, "__call__", fn)  # noqa: B004
    return fn  # pyright: ignore[reportUnknownVariableType]


@final
class Handler:
    """A user function and the means to run it."""

    __slots__ = ("fn", "mode")

    def __init__(self, fn: Callable[..., Any], *, inline: bool = False) -> None:
        if not callable(fn):
            raise DeclarationError(f"a handler is a function, not {type(fn).__name__}")
        self.fn: Callable[..., Any] = fn
        bare = _bare(fn)
        if inspect.isasyncgenfunction(bare):
            self.mode: Mode = "stream"
        elif inspect.iscoroutinefunction(bare):
            self.mode = "async"
        elif inspect.isgeneratorfunction(bare):
            name = getattr(fn, "__name__", "the handler")
            raise DeclarationError(f"{name} is a plain generator; write `async def` with `yield` to stream its results")
        else:
            self.mode = "inline" if inline else "thread"

    async def run(self, kwargs: Mapping[str, Any], call: IncomingCall, pool: ThreadPool) -> Any:
        """Call it and wait for its value."""
        if self.mode == "async":
            return await self.fn(**kwargs)
        if self.mode == "inline":
            value = self.fn(**kwargs)
        elif self.mode == "thread":
            call.exchange.loop = asyncio.get_running_loop()
            value = await pool.submit(self.fn, kwargs, call.exchange)
        else:
            raise DeclarationError("only tools may be async generators")
        return await value if hasattr(value, "__await__") else value


async def call_any(fn: Callable[..., Any], *args: Any) -> Any:
    """Call a hook that may be plain or async. It must not block if it is plain."""
    value = fn(*args)
    return await value if inspect.isawaitable(value) else value


def ends_the_call(error: BaseException) -> bool:
    """Is this the call being stopped from outside? Anything else, `sys.exit()` included, is the handler's own failure."""
    return isinstance(error, (asyncio.CancelledError, GeneratorExit))


def is_answer(error: BaseException) -> bool:
    """Did the handler raise this to answer with it (R48)? What a client inside the handler raised is not for our peer:
    its text names places that only we should know.
    """
    return isinstance(error, ProtocolError) and not isinstance(error, (LocalProtocolError, RemoteProtocolError))


def is_meant(error: BaseException) -> bool:
    """Are these words for the peer: an author's own, or ours about a value that cannot be sent? Other errors of ours
    speak of paths, URLs and stores.
    """
    if isinstance(error, (ToolError, DeclarationError)):
        return True
    kind = type(error)
    return kind is Error or (isinstance(error, Error) and kind.__module__.partition(".")[0] != "trimaran")


def is_silence(error: BaseException) -> bool:
    """Did the caller not answer what a handler asked, or leave? It is told so, and there is nothing to look into."""
    return isinstance(error, Disconnected) or (isinstance(error, TimedOut) and error.is_of_caller)


def incident(owner: str, error: BaseException) -> str:
    """Log a failure with its traceback under a short id, and return the id: all that the peer is told."""
    number = secrets.token_hex(4)
    logger.error("%s failed [%s]", owner, number, exc_info=error)
    return number
