"""stdio: one JSON message per line, and nothing else, on a standard output that is ours alone.

The real stdin and stdout become private descriptors; descriptor 1 then points to stderr and descriptor 0 to nothing. A stray
`print`, a native library or a child process cannot corrupt the stream or read from it (P11), not even at exit. If stderr is
a pipe that nobody reads, its output is buffered up to a bound and then dropped, so that no log line can stop the server
(P12).

The server ends on EOF, on SIGTERM or Ctrl-C, and when the process that started it is gone (P10).
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, final

from trimaran.daemon_threads import own_process
from trimaran.errors import ProtocolError
from trimaran.protocol.json_lines import LineReader, LineTooLong, write_line

from .duplex import Duplex, LegacyHalf
from .stop_signals import ENDS, hangup, hear

if TYPE_CHECKING:
    from trimaran.server.server import Server

_CHUNK: Final = 64 * 1024
_PARENT_POLL_SECONDS: Final = 1.0
_STDERR_BUFFER: Final = 1024 * 1024  # bytes that wait for a slow reader of stderr; further lines are dropped
# Seconds at exit for the last lines on stderr. Only a reader that does not read, or a child that still holds stderr, takes them.
_LAST_WORDS: Final = 1.0
_EOF_PATIENCE: Final = 5.0
# Longer than the time that calls, tasks and the lifespan have to end.
_ORPHAN_SECONDS: Final = 15.0
_SIGNAL_PATIENCE: Final = 0.5
_HIGH_WATER: Final = 4 * 1024 * 1024  # bytes waiting for a client that does not read, before calls wait with them


@final
class StdioPipes:
    """The private descriptors of the real stdin and stdout."""

    __slots__ = ("stdin", "stdout")

    def __init__(self, stdin: int, stdout: int) -> None:
        self.stdin: int = stdin
        self.stdout: int = stdout


_pipes: StdioPipes | None = None


def take_stdio() -> StdioPipes:
    """Take stdin and stdout for the protocol, once; descriptor 1 is stderr from here on, for good."""
    global _pipes
    if _pipes is None:
        _require_stderr()
        stdin, stdout = os.dup(0), os.dup(1)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        os.set_inheritable(stdin, False)
        os.set_inheritable(stdout, False)
        # Output that is still buffered goes to the new place, too.
        sys.stdout.flush()
        _pipes = StdioPipes(stdin, stdout)
        _relieve_stderr()
    return _pipes


def _require_stderr() -> None:
    """A process started without a stderr gets one that goes nowhere: descriptor 2 must not become something else."""
    try:
        os.fstat(2)
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        if nowhere != 2:
            os.dup2(nowhere, 2)
            os.close(nowhere)


def _relieve_stderr() -> None:
    """Put a buffer between the process and a stderr that may be a full pipe."""
    if not stat.S_ISFIFO(os.fstat(2).st_mode) or not hasattr(os, "pipe"):
        return
    real = os.dup(2)
    incoming, outgoing = os.pipe()
    os.dup2(outgoing, 2)
    os.dup2(outgoing, 1)
    os.close(outgoing)
    relief = _StderrBuffer(incoming, real)
    threading.Thread(target=relief.read, name="trimaran-stderr-in", daemon=True).start()
    threading.Thread(target=relief.write, name="trimaran-stderr-out", daemon=True).start()
    import atexit

    atexit.register(relief.flush)


@final
class _StderrBuffer:
    """Between our stderr and the real one: always read, written when the other side takes it."""

    def __init__(self, incoming: int, real: int) -> None:
        self._incoming = incoming
        self._real = real
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._more = threading.Condition()
        self._has_ended = False
        self._drained = threading.Event()

    def read(self) -> None:
        while chunk := os.read(self._incoming, _CHUNK):
            with self._more:
                self._chunks.append(chunk)
                self._size += len(chunk)
                while self._size > _STDERR_BUFFER:
                    self._size -= len(self._chunks.popleft())
                self._more.notify()
        with self._more:
            self._has_ended = True
            self._more.notify()

    def write(self) -> None:
        while True:
            with self._more:
                while not self._chunks:
                    if self._has_ended:
                        self._drained.set()
                        return
                    self._more.wait()
                chunk = self._chunks.popleft()
                self._size -= len(chunk)
            try:
                os.write(self._real, chunk)
            except OSError:
                self._drained.set()
                return

    def flush(self) -> None:
        """At exit: pass on what is buffered, as long as somebody takes it."""
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                continue
        # With our ends of the pipe closed, the reader meets its end after the last byte. Waiting for a moment of silence
        # instead lost the last words on a busy machine.
        for descriptor in (1, 2):
            os.dup2(self._real, descriptor)
        self._drained.wait(_LAST_WORDS)


async def serve_stdio(
    server: Server,
    *,
    pipes: StdioPipes | None = None,
    legacy: Callable[[Duplex], LegacyHalf] | None = None,
    watch_parent: bool = True,
) -> None:
    """Serve stdio inside a running loop until EOF, the parent's death or cancellation."""
    pipes = pipes or take_stdio()
    await server.start()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    gate = _ReadGate(loop, pipes.stdin, ended.set)
    write, finish = await _open_writer(loop, pipes.stdout, gate)
    duplex = Duplex(server, write, legacy=legacy)
    lines = LineReader(server.limits.max_line_bytes)

    def take(chunk: bytes) -> None:
        for line in lines.feed(chunk):
            _take_line(duplex, line)

    def eof() -> None:
        rest = lines.close()
        if rest is not None:
            _take_line(duplex, rest)
        ended.set()

    stop_reading = await _open_reader(loop, pipes.stdin, take, eof, gate)
    watch = asyncio.ensure_future(_watch_parent(ended)) if watch_parent else None
    try:
        await ended.wait()
    finally:
        if watch is not None:
            watch.cancel()
        stop_reading()
        # At EOF running calls are still answered (`printf ... | server`); a signal means to end soon.
        # Do not wait for a client that does not read its answers.
        await duplex.close(_EOF_PATIENCE if ended.is_set() and not gate.is_shut else _SIGNAL_PATIENCE)
        await finish()
        await server.stop()


def _take_line(duplex: Duplex, line: bytes | LineTooLong) -> None:
    if isinstance(line, LineTooLong):
        error = ProtocolError.invalid_request(f"the line is longer than {line.limit} bytes (max_line_bytes)")
        duplex.put(duplex.server.runtime.writer.error(None, error))
    else:
        duplex.feed(line)


async def _watch_parent(ended: asyncio.Event) -> None:
    parent = os.getppid()
    if parent <= 1:
        return
    while os.getppid() == parent:
        await asyncio.sleep(_PARENT_POLL_SECONDS)
    ended.set()


def _can_poll(descriptor: int) -> bool:
    if sys.platform == "win32":
        return False
    mode = os.fstat(descriptor).st_mode
    # Only a terminal can be waited for among the character devices: epoll refuses /dev/null.
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or (stat.S_ISCHR(mode) and os.isatty(descriptor))


@final
class _ReadGate:
    """Between the two pipes: while the client does not read our answers, we do not read its requests.

    A pipe that is not read does not tell of its end either, so as long as it is shut the gate asks now and then.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, descriptor: int, on_end: Callable[[], None]) -> None:
        self.reading: asyncio.ReadTransport | None = None
        self._loop = loop
        self._descriptor = descriptor
        self._on_end = on_end
        self._open = threading.Event()
        self._open.set()

    @property
    def is_shut(self) -> bool:
        return not self._open.is_set()

    def shut(self) -> None:
        if self.is_shut:
            return
        self._open.clear()
        if self.reading is not None:
            self.reading.pause_reading()
            self._loop.call_later(_PARENT_POLL_SECONDS / 2, self._look)

    def _look(self) -> None:
        if not self.is_shut:
            return
        if _has_ended(self._descriptor):
            self._on_end()
        else:
            self._loop.call_later(_PARENT_POLL_SECONDS / 2, self._look)

    def open(self) -> None:
        self._open.set()
        if self.reading is not None and not self.reading.is_closing():
            self.reading.resume_reading()

    def wait(self) -> None:
        """For the thread that reads where no transport can."""
        self._open.wait()


def _has_ended(descriptor: int) -> bool:
    """Whether the other end of this pipe is closed, even if it still holds data."""
    import select

    if not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(descriptor, 0)
    return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))


async def _open_reader(
    loop: asyncio.AbstractEventLoop,
    descriptor: int,
    take: Callable[[bytes], None],
    eof: Callable[[], None],
    gate: _ReadGate,
) -> Callable[[], None]:
    if _can_poll(descriptor):

        class Incoming(asyncio.Protocol):
            def data_received(self, data: bytes) -> None:
                take(data)

            def connection_lost(self, exc: Exception | None) -> None:
                eof()

        transport, _ = await loop.connect_read_pipe(Incoming, os.fdopen(os.dup(descriptor), "rb", buffering=0))
        gate.reading = transport
        return transport.close

    def read() -> None:
        while chunk := os.read(descriptor, _CHUNK):
            gate.wait()
            loop.call_soon_threadsafe(take, chunk)
        loop.call_soon_threadsafe(eof)

    threading.Thread(target=read, name="trimaran-stdin", daemon=True).start()
    return lambda: None


async def _open_writer(
    loop: asyncio.AbstractEventLoop, descriptor: int, gate: _ReadGate
) -> tuple[Callable[[bytes], Awaitable[None]], Callable[[], Awaitable[None]]]:
    if _can_poll(descriptor):
        outgoing = _Outgoing(gate)
        transport, _ = await loop.connect_write_pipe(lambda: outgoing, os.fdopen(os.dup(descriptor), "wb", buffering=0))
        transport.set_write_buffer_limits(high=_HIGH_WATER)

        async def write(data: bytes) -> None:
            # Wait before writing, so that nothing is buffered.
            await outgoing.drained()
            if not outgoing.closed:
                transport.write(write_line(data))
                await outgoing.drained()

        async def finish() -> None:
            # close() flushes the buffer; a client that never reads must not block it.
            transport.close()
            await outgoing.wait_closed(_SIGNAL_PATIENCE if gate.is_shut else 2.0)
            if not outgoing.closed:
                transport.abort()

        return write, finish

    lock = asyncio.Lock()

    async def write_blocking(data: bytes) -> None:
        async with lock:
            await loop.run_in_executor(None, _write_all, descriptor, write_line(data))

    async def finish_blocking() -> None:
        async with lock:
            return

    return write_blocking, finish_blocking


def _write_all(descriptor: int, data: bytes) -> None:
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        return


@final
class _Outgoing(asyncio.BaseProtocol):
    """Flow control of the write pipe."""

    def __init__(self, gate: _ReadGate) -> None:
        self.closed = False
        self._gate = gate
        self._paused: asyncio.Future[None] | None = None
        self._gone: asyncio.Event = asyncio.Event()

    def pause_writing(self) -> None:
        self._paused = asyncio.get_running_loop().create_future()
        self._gate.shut()

    def resume_writing(self) -> None:
        self._release()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._gone.set()
        self._release()

    def _release(self) -> None:
        if self._paused is not None and not self._paused.done():
            self._paused.set_result(None)
        self._paused = None
        self._gate.open()

    async def drained(self) -> None:
        while self._paused is not None:
            await asyncio.shield(self._paused)

    async def wait_closed(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._gone.wait()
        except TimeoutError:
            return


def _end_without_parent() -> None:
    """The loop ends by itself when the client is gone. For one that hangs, this thread ends the process."""
    parent = os.getppid()
    if parent <= 1:
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_PARENT_POLL_SECONDS)
        time.sleep(_ORPHAN_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, name="trimaran-parent", daemon=True).start()


_TO_A_PERSON: Final = (
    "waits for a program that speaks MCP to its stdin (Ctrl-C ends it). To try it: `trimaran list FILE`"
)


def run_stdio(
    server: Server, *, legacy: Callable[[Duplex], LegacyHalf] | None = None, watch_parent: bool = True, **options: Any
) -> None:
    """Serve stdio and block until the end."""
    if options:
        from trimaran.errors import ConfigError

        raise ConfigError(f'unknown option {next(iter(options))!r} for stdio; did you mean run("http", ...)?')
    pipes = take_stdio()
    if watch_parent:
        _end_without_parent()

    async def main() -> None:
        task = asyncio.current_task()
        assert task is not None
        hear((*ENDS, *hangup()), task.cancel)
        if os.isatty(pipes.stdin) and os.isatty(2):
            os.write(2, f"{server.info.name} {_TO_A_PERSON}\n".encode())
        try:
            await serve_stdio(server, pipes=pipes, legacy=legacy, watch_parent=watch_parent)
        except asyncio.CancelledError:
            task.uncancel()

    asyncio.run(own_process(main()))
