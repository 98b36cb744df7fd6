"""Several processes on one port: a supervisor that serves nothing, and workers that it starts, replaces and ends.

Supervisor and worker share a socket pair, the channel. The worker writes one byte when it serves. The supervisor writes
nothing after the start, so the end of the channel means one thing only: the supervisor is gone, however it went. A thread of
the worker waits for that, so neither kill -9 nor a busy event loop leaves a worker behind.

The first workers are forked: they share what the program loaded. After SIGHUP the supervisor runs its own command line
again, once per worker, each as a process that reads the code again. A new worker takes over when it serves; one that never
does leaves the workers before it in place.

| the supervisor gets | then |
|---|---|
| SIGTERM, SIGINT | workers finish what they do and end; a second signal kills them |
| SIGHUP | a rolling restart; but if the terminal it was started from is gone, the same as SIGTERM |
| SIGHUP under nohup | nothing |

It does not load user code, hold the port, or give up on a server that has served: workers that keep dying are replaced, more
slowly.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from math import inf
from typing import Any, Final, NoReturn, final

import msgspec

from trimaran.errors import ConfigError, Error
from trimaran.server.handlers import logger

# How a worker ends that never came to serve. If the very first ones do, nothing will be served.
NEVER_STARTED: Final = 3
# Calls have one second to end, steps of tasks some more, and a lifespan its own time. A worker that takes longer is stuck.
_END_SECONDS: Final = 30.0
# The same for a worker without a supervisor: a new one may be waiting for the port.
_ORPHAN_SECONDS: Final = 15.0
# The slowest honest import. A worker that does not serve by then is given up.
_LOAD_SECONDS: Final = 60.0
# Workers that keep dying have a reason that another one will not cure. Those that served are replaced all the same, but so
# many within so many seconds may not eat the machine.
_DEATHS_AT_ONCE: Final = 5
_DEATHS_WITHIN: Final = 10.0
_FALSE_STARTS: Final = 5
_LENGTH: Final = struct.Struct(">I")
_ASKED_TO_END: Final = (0, -signal.SIGTERM, -signal.SIGINT)


class WorkerSettings(msgspec.Struct, frozen=True):
    """The things that all workers of a supervisor share, beside the code."""

    port: int
    secret_keys: tuple[bytes, ...]
    variable: str
    """The environment variable that names its channel to a worker which runs the command line again."""


class _Orders(msgspec.Struct, frozen=True):
    index: int
    post: WorkerSettings


@final
class WorkerChannel:
    """A worker's side: which one it is, and the channel to its supervisor."""

    def __init__(self, index: int, post: WorkerSettings, channel: socket.socket) -> None:
        self.index = index
        self.post = post
        self._channel = channel

    def watch(self) -> None:
        """From now on this process ends when its supervisor does."""
        threading.Thread(target=self._watch, name="trimaran-supervisor", daemon=True).start()

    def _watch(self) -> None:
        with contextlib.suppress(OSError):
            while self._channel.recv(1):
                pass
        # In order, if the loop still turns; if it does not, all the same.
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(_ORPHAN_SECONDS)
        os._exit(1)

    def report(self) -> None:
        """Tell the supervisor that this worker serves."""
        with contextlib.suppress(OSError):  # it is gone, which the thread notices
            self._channel.send(b"+")


def adopt(variable: str) -> WorkerChannel | None:
    """In a process that a supervisor started by its command line: its seat. None everywhere else."""
    number = os.environ.pop(variable, None)
    if number is None:
        return None
    channel = socket.socket(fileno=int(number))
    channel.set_inheritable(False)
    (length,) = _LENGTH.unpack(_receive(channel, _LENGTH.size))
    orders = msgspec.msgpack.decode(_receive(channel, length), type=_Orders)
    _forget_signals()
    return WorkerChannel(orders.index, orders.post, channel)


def _receive(channel: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = channel.recv(count - len(data))
        if not chunk:
            raise ConfigError("the supervisor of this worker ended while the worker was starting")
        data += chunk
    return data


def _forget_signals() -> None:
    """A worker has its own handlers, set by its loop. The supervisor decides what SIGHUP means."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:
        signal.signal(
            signal.SIGHUP, lambda number, frame: None
        )  # not SIG_IGN, which programs that a tool starts would inherit


def supervise(count: int, post: WorkerSettings, work: Callable[[WorkerChannel], NoReturn]) -> None:
    """Keep `count` workers at work until told to stop; `work` is the life of a forked one."""
    _Supervisor(count, post, work).run()


@final
class _Child:
    """The supervisor's side of a worker."""

    def __init__(self, index: int, pid: int, channel: socket.socket, poll: Callable[[], int | None]) -> None:
        self.index = index
        self.pid = pid
        self.channel = channel
        self.poll = poll
        self.is_serving = False
        self.is_leaving = False
        self.deadline = time.monotonic() + _LOAD_SECONDS
        """When it is killed, unless it serves by then; after it was told to end, unless it is gone."""

    def send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def end(self) -> None:
        if not self.is_leaving:
            self.is_leaving = True
            self.deadline = time.monotonic() + _END_SECONDS
            self.send(signal.SIGTERM)


@final
class _Supervisor:
    def __init__(self, count: int, post: WorkerSettings, work: Callable[[WorkerChannel], NoReturn]) -> None:
        self._count = count
        self._post = post
        self._work = work
        self._children: set[_Child] = set()
        self._due: dict[int, float] = {}
        """When the next worker with this index may start."""
        self._rolling: list[int] = []
        """The workers whose turn is still to come in a rolling restart."""
        self._candidate: _Child | None = None
        self._reads_anew = False
        """Do workers run the command line again? From the first rolling restart that succeeded."""
        self._has_served = False
        self._false_starts = 0
        self._deaths: list[float] = []
        self._is_slow = False
        self._failure: str | None = None
        self._stops = 0
        self._hangups = 0
        self._selector = selectors.DefaultSelector()
        self._words = [sys.executable, *sys.orig_argv[1:]]
        self._folder = os.getcwd()
        self._had_terminal = _has_terminal()

    # --- its life

    def run(self) -> None:
        with self._listening_to_signals():
            for index in range(self._count):
                self._start(index)
            while self._children or (self._due and not self._stops):
                self._turn()
        if self._failure is not None:
            raise ConfigError(f"{self._failure}; the log above says why")

    @contextlib.contextmanager
    def _listening_to_signals(self) -> Any:
        """Each signal wakes the loop, and is counted there."""
        inside, outside = socket.socketpair()
        inside.setblocking(False)
        outside.setblocking(False)
        self._selector.register(inside, selectors.EVENT_READ)
        numbers = [signal.SIGTERM, signal.SIGINT, signal.SIGCHLD]
        if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
            numbers.append(signal.SIGHUP)
        before = {number: signal.signal(number, self._note) for number in numbers}
        wakeup = signal.set_wakeup_fd(outside.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(wakeup)
            for number, handler in before.items():
                signal.signal(number, handler)
            self._selector.close()
            inside.close()
            outside.close()

    def _note(self, number: int, frame: Any) -> None:
        if number in (signal.SIGTERM, signal.SIGINT):
            self._stops += 1
        elif number == signal.SIGHUP:
            self._hangups += 1

    def _turn(self) -> None:
        """Wait for something to happen, then deal with all that did."""
        for key, _ in self._selector.select(self._patience()):
            if isinstance(key.data, _Child):
                self._hear(key.data)
            else:
                with contextlib.suppress(BlockingIOError):
                    key.fileobj.recv(4096)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
        self._obey()
        for child in tuple(self._children):
            code = child.poll()
            if code is not None:
                self._bury(child, code)
            elif time.monotonic() > child.deadline:
                self._kill(child)
        if not self._stops:
            for index in [index for index, due in self._due.items() if due <= time.monotonic()]:
                del self._due[index]
                self._start(index)
            self._roll()

    def _patience(self) -> float | None:
        moments = [child.deadline for child in self._children] + list(self._due.values())
        first = min(moments, default=inf)
        return None if first == inf else max(0.0, first - time.monotonic()) + 0.01

    def _obey(self) -> None:
        if self._hangups and not self._stops:
            self._hangups = 0
            if self._had_terminal and not _has_terminal():
                self._stops += 1
            else:
                logger.info("rolling restart: %d workers are replaced, one after the other", self._count)
                self._rolling = list(range(self._count))
        if self._stops:
            self._rolling.clear()
            for child in self._children:
                child.end()
        if self._stops > 1:
            for child in self._children:
                child.send(signal.SIGKILL)

    # --- workers

    def _start(self, index: int, *, reads_anew: bool = False) -> _Child:
        ours, channel = socket.socketpair()
        with channel:
            child = (self._execute if reads_anew or self._reads_anew else self._fork)(index, ours, channel)
        ours.setblocking(False)
        self._children.add(child)
        self._selector.register(ours, selectors.EVENT_READ, child)
        return child

    def _fork(self, index: int, ours: socket.socket, channel: socket.socket) -> _Child:
        blocked = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
        signal.pthread_sigmask(signal.SIG_BLOCK, blocked)  # until the child has its own handlers
        try:
            pid = os.fork()
            if pid == 0:
                _forget_signals()
                ours.close()
                for child in self._children:  # else it would hold the channels of the others open
                    child.channel.close()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, blocked)
        if pid == 0:
            self._work(WorkerChannel(index, self._post, channel))
        return _Child(index, pid, ours, lambda: _poll(pid))

    def _execute(self, index: int, ours: socket.socket, channel: socket.socket) -> _Child:
        orders = msgspec.msgpack.encode(_Orders(index, self._post))
        ours.sendall(_LENGTH.pack(len(orders)) + orders)
        number = channel.fileno()
        process = subprocess.Popen(  # noqa: S603 - our own command line
            self._words, cwd=self._folder, env={**os.environ, self._post.variable: str(number)}, pass_fds=[number]
        )
        return _Child(index, process.pid, ours, process.poll)

    def _hear(self, child: _Child) -> None:
        try:
            word = child.channel.recv(16)
        except BlockingIOError:
            return
        except OSError:
            word = b""
        if word:
            child.is_serving = self._has_served = True
            self._false_starts = 0
            if not child.is_leaving:
                child.deadline = inf
        else:  # it is ending; its death is heard of by SIGCHLD
            self._selector.unregister(child.channel)

    def _kill(self, child: _Child) -> None:
        failure = "did not end" if child.is_leaving else "did not begin to serve"
        seconds = _END_SECONDS if child.is_leaving else _LOAD_SECONDS
        logger.error("worker %d (process %d) %s within %g s; it is killed", child.index, child.pid, failure, seconds)
        child.deadline = inf
        child.send(signal.SIGKILL)

    def _bury(self, child: _Child, code: int) -> None:
        self._children.discard(child)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(child.channel)
        child.channel.close()
        if child is self._candidate:
            self._candidate = None
            if not self._stops:
                self._rolling.clear()
                logger.error(
                    "the new worker %d ended with %s; the workers before it go on", child.index, _describe_exit(code)
                )
        elif not child.is_leaving and not self._stops:
            self._replace(child, code)

    def _replace(self, child: _Child, code: int) -> None:
        now = time.monotonic()
        if not child.is_serving:
            self._false_starts += 1
            if not self._has_served and code == NEVER_STARTED:
                return self._give_up("a worker could not start")
            if self._false_starts > _FALSE_STARTS and not self._has_served:
                return self._give_up(f"{self._false_starts} workers in a row ended before they served")
        if code in _ASKED_TO_END and child.is_serving:
            logger.info("worker %d was told to end (%s); starting another", child.index, _describe_exit(code))
        else:
            logger.error("worker %d ended with %s; starting another", child.index, _describe_exit(code))
            self._deaths = [at for at in self._deaths if now - at < _DEATHS_WITHIN] + [now]
        is_slow = len(self._deaths) > _DEATHS_AT_ONCE
        if is_slow and not self._is_slow:
            logger.error(
                "%d workers died within %g s; each is replaced after a pause", len(self._deaths), _DEATHS_WITHIN
            )
        self._is_slow = is_slow
        self._due[child.index] = now + (_DEATHS_WITHIN / _DEATHS_AT_ONCE if is_slow else 0.0)
        return None

    def _give_up(self, why: str) -> None:
        self._failure = why
        self._stops += 1
        for child in self._children:
            child.end()

    # --- the rolling restart

    def _roll(self) -> None:
        candidate = self._candidate
        if candidate is not None and candidate.is_serving:
            self._candidate = None
            self._reads_anew = True
            self._due.pop(candidate.index, None)
            for child in self._children:
                if child.index == candidate.index and child is not candidate:
                    child.end()
            if not self._rolling:
                logger.info("rolling restart: all workers are new")
        if self._candidate is None and self._rolling:
            self._candidate = self._start(self._rolling.pop(0), reads_anew=True)


def _poll(pid: int) -> int | None:
    """The exit code of a forked child, or minus the signal that ended it; None while it lives."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:  # somebody else took it
        return NEVER_STARTED
    return os.waitstatus_to_exitcode(status) if ended else None


def _describe_exit(code: int) -> str:
    return f"exit code {code}" if code >= 0 else signal.Signals(-code).name


def _has_terminal() -> bool:
    """Is there a controlling terminal, and is it still open?"""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY))
    except OSError:
        return False
    return True


def work(seat: WorkerChannel, serve_one: Callable[[Callable[[], None]], None]) -> NoReturn:
    """The life of a worker, and its end: nothing of the supervisor's runs in it."""
    code = NEVER_STARTED

    def on_ready() -> None:
        nonlocal code
        code = 1
        seat.report()

    try:
        seat.watch()
        serve_one(on_ready)
        code = 0
    except Exception as error:
        logger.error("worker %d: %s", seat.index, error, exc_info=None if isinstance(error, Error) else error)
    finally:
        os._exit(code)
