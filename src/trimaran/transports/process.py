"""A server that runs as our child: one JSON message per line on its stdin and stdout, free text on its stderr.

`ChildChannel` is a `Channel` (client/link.py): it moves messages and reports its end once. It answers nothing, retries
nothing and starts no second child; its owner does.

The child leads a session of its own, so that it and its own children can be ended together: at the end stdin is closed, then
the whole group gets SIGTERM, then SIGKILL, a grace apart (P10). If we are killed, a guardian ends the child: a shell beside
each child waits for its pipe to close, as it does when we die, and then ends the child's group. A daemon that leaves its
group on purpose is out of reach.

stderr is always drained and its last lines are kept: they explain why a child died (P34). On Linux the channel can say how
much of stdin the child has not read: a child that dies with all of it unread did not die of our message.

A channel belongs to the loop it was opened in. The loop's own `subprocess_exec` is not used. uvloop's leaves spare copies of
the pipes and of other inheritable descriptors open in the child, so an EOF says nothing. asyncio's collects the dead at
once, after which another group may get the number. Popen and pipes behave the same on both.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import shutil
import signal
import subprocess
import sys
import threading
from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Final, final

import msgspec

from trimaran.client.fairness import FairTurn
from trimaran.client.link import ExitReport, Owner
from trimaran.client.stderr_summary import explain_stderr
from trimaran.depth import decode_json
from trimaran.errors import ConfigError, ConnectFailed, ConnectionLost, NotReady
from trimaran.protocol.json_lines import MAX_LINE_BYTES, LineReader, LineTooLong, write_line
from trimaran.protocol.mask import mask_command

from .child_environment import child_environment, describe_missing, missing_variables
from .process_activity import is_working
from .sandbox_filter import inherited_filter

if TYPE_CHECKING:
    from trimaran.client.sandbox_policy import Sandbox

    from .sandbox import SandboxedStart
    from .sandbox_proxy import SandboxProxy

if sys.platform == "linux":
    import fcntl
    import termios

_log: Final = logging.getLogger("trimaran.child")
_IS_WINDOWS: Final = os.name == "nt"

_STDERR_LINES: Final = 200  # enough for a few chained tracebacks
_STDERR_LINE_BYTES: Final = 8 * 1024  # for each line; the number above bounds all of them
_TOLD_PER_TURN: Final = 500  # stderr lines before stdout has its turn again: about a millisecond
# Between the signs of one end (EOF, exit), and for the last words: all come together unless somebody else holds a pipe.
_SETTLE_SECONDS: Final = 0.5
# A killed process that is still there after this hangs in the kernel, or is not ours to kill.
_DEATH_SECONDS: Final = 2.0

_SHELL: Final = "/bin/sh"
_GUARDIAN: Final = """\
trap "" HUP INT QUIT TERM
read -r _ && exit
sleep 0.5 || sleep 1
kill -s KILL -- "-$1" || kill -9 "-$1"
"""


@final
class ChildChannel:
    """The channel to one child process.

    The child gets the safe variables of our environment (`inheritance.py`), with `env` laid over them; nothing else is set.
    A command with a slash is looked for in `cwd`, one without on the PATH of that environment.

    Args:
        command: The program and its arguments, apart.
        env: Variables to add to the environment, or to change in it.
        inherit_env: Pass on our whole environment, with every secret in it.
        cwd: The directory to run in; by default ours.
        sandbox: Its sandbox; None: it may reach all that we may.
        max_message_bytes: How long an inbound message may be.
        grace: Seconds between the rungs of `close`: EOF, SIGTERM, SIGKILL.
        on_stderr: Called with each line of stderr. They are also logged, as DEBUG, to "trimaran.child".
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        inherit_env: bool = False,
        cwd: str | os.PathLike[str] | None = None,
        sandbox: Sandbox | None = None,
        max_message_bytes: int = MAX_LINE_BYTES,
        grace: float = 2.0,
        on_stderr: Callable[[str], None] | None = None,
    ) -> None:
        self._command = _read_command(command)
        self._env = _read_env(env or {})
        self._inherits = inherit_env
        self._cwd = None if cwd is None else os.fspath(cwd)
        self._sandbox = sandbox
        self._proxy: SandboxProxy | None = None
        self._limit = max_message_bytes
        self._grace = grace
        self._on_stderr = on_stderr
        self._child: _Child | None = None
        self._is_closed = False

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs; on POSIX also the id of its group."""
        return None if self._child is None else self._child.pid

    @property
    def stderr(self) -> list[str]:
        """The last 200 lines of stderr, at most 8 KiB of each; the last one may still be growing."""
        return [] if self._child is None else self._child.tail.lines()

    def describe(self) -> str:
        """The command as one would type it, with secrets masked."""
        return mask_command(self._command)

    def postmortem(self) -> ExitReport:
        """The exit code (negative: the signal that ended it), once known, and the end of stderr."""
        code = None if self._child is None else self._child.exit_code
        return ExitReport(exit_code=code, stderr=tuple(self.stderr))

    def unread(self) -> int | None:
        """The number of sent bytes that the child has not read yet; None if the system cannot tell."""
        return None if self._child is None else self._child.unread()

    def is_working(self) -> bool:
        """True if the child, or a process that it started, is using the processor or waits for it. Linux only."""
        return self.pid is not None and is_working(self.pid)

    async def open(self, owner: Owner) -> None:
        """Start the child. That it runs is all this says: whether it is a server shows when it answers.

        If this is cancelled, the child is ended at once.

        Raises:
            ConnectFailed: it cannot be started, or this channel was opened or closed before.
        """
        if self._child is not None or self._is_closed:
            raise ConnectFailed(f"this channel ({self.describe()}) has been used: make a new one for another child")
        environment = child_environment(os.environ, self._env, inherit=self._inherits)
        program = self._locate(environment)
        words, cwd, seccomp = [program, *self._command[1:]], self._cwd, b""
        if self._sandbox is not None:
            words, environment, cwd, seccomp = await self._enclose(self._sandbox, words)
        child = self._child = _Child(self.describe(), owner, self._limit, self._grace, self._on_stderr)
        try:
            await child.start(words, environment, cwd, seccomp)
        except (OSError, ValueError, RuntimeError) as error:
            self._child, self._is_closed = None, True
            await self._close_proxy()
            raise self._failed(_explain(error, words[0])) from error
        if self._is_closed:
            await child.end()
            raise self._failed("the channel was closed meanwhile")

    async def send(self, message: bytes) -> None:
        """Send one message. Senders take turns in the order they came, and wait while the child does not read.

        Raises:
            ConnectionLost: the child has ended, or the channel was closed.
            NotReady: it was not opened.
            LocalProtocolError: the message holds a raw newline.
        """
        if self._child is not None:
            await self._child.send(write_line(message))
        elif self._is_closed:
            raise ConnectionLost(f"the channel to {_short(self.describe())} was closed")
        else:
            raise NotReady(f"the channel to {_short(self.describe())} is not open: await open() first")

    async def close(self) -> None:
        """End the child and its group. All callers, from any task, wait for the same end.

        If this is cancelled, the group is killed at once and the rest, a few milliseconds, goes on behind.
        """
        self._is_closed = True
        if self._child is not None:
            await self._child.end()
        await self._close_proxy()

    async def _enclose(self, policy: Sandbox, words: list[str]) -> SandboxedStart:
        """The start within the sandbox, and its proxy if the policy lists hosts."""
        from .sandbox import prepare_sandbox, sandbox_environment
        from .sandbox_proxy import SandboxProxy

        if policy.net and policy.net is not True:
            self._proxy = SandboxProxy(policy.net, is_local=sys.platform != "darwin")
            await self._proxy.start()
        try:
            variables = sandbox_environment(policy, os.environ, self._env)
            address = self._proxy.address if self._proxy is not None else None
            return prepare_sandbox(policy, words, variables, self._cwd, proxy=address)
        except BaseException:
            await self._close_proxy()
            raise

    async def _close_proxy(self) -> None:
        proxy, self._proxy = self._proxy, None
        if proxy is not None:
            await proxy.close()

    def check(self) -> None:
        """Look for the program; nothing is started.

        Raises:
            ConnectFailed: it cannot be run.
        """
        self._locate(child_environment(os.environ, self._env, inherit=self._inherits))

    def _locate(self, environment: Mapping[str, str]) -> str:
        """The program's file. Raises ConnectFailed with the reason if it cannot be run."""
        cwd, name, path = self._cwd, self._command[0], environment.get("PATH", os.defpath)
        if cwd is not None and not os.path.isdir(cwd):
            fault = "is not a directory" if os.path.exists(cwd) else "does not exist"
            raise self._failed(f"its working directory {cwd!r} {fault}")
        if cwd is not None and not os.access(cwd, os.X_OK):
            raise self._failed(f"its working directory {cwd!r} may not be entered: permission denied")
        is_path = bool(os.path.dirname(name))
        if is_path:
            # Absolute, because exec looks after it has changed to cwd.
            name = os.path.join(os.path.abspath(cwd or ""), name)
        program = _which(name, path)
        if program is not None:
            return os.path.abspath(program)
        if is_path and os.path.isdir(name):
            raise self._failed(f"{name!r} is a directory, not a program")
        present = _which(name, path, os.F_OK)
        if present is not None:
            raise self._failed(_not_executable(present))
        if is_path:
            raise self._failed(f"there is no file {name!r}")
        remedy = "Install it, or give its full path"
        if len(self._command) == 1 and len(words := name.split()) > 1:
            remedy = f"Give the program and its arguments apart: {words}"
        count = len([entry for entry in path.split(os.pathsep) if entry])  # their names would bury the sentence
        raise self._failed(f"there is no command {name!r} in the {count} directories of PATH. {remedy}")

    def _failed(self, why: str) -> ConnectFailed:
        failed = ConnectFailed(f"cannot start {_short(self.describe())}: {why}")
        failed.kind = "spawn"
        return failed


@final
class _Pipe(asyncio.Protocol):
    def __init__(self, child: _Child, fd: int) -> None:
        self._child = child
        self._fd = fd

    def data_received(self, data: bytes) -> None:
        if self._fd == 1:
            self._child.take(data)
        else:
            self._child.hear(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._child.pipe_ended(self._fd)

    def pause_writing(self) -> None:
        self._child.block()

    def resume_writing(self) -> None:
        self._child.unblock()


@final
class _Child:
    """A child from its start to its burial.

    It is *over* when no message can pass any more: by `end`, or when it exited or closed a pipe. Exit and EOF come in any
    order and milliseconds apart, so the first of them only starts a short wait for the others: who reports the loss wants the
    last message, the exit code and the last words. Whichever way it came to be over, one task ends what is left and cleans up.
    """

    def __init__(
        self, name: str, owner: Owner, limit: int, grace: float, on_stderr: Callable[[str], None] | None
    ) -> None:
        self.tail = _Tail()
        self.exit_code: int | None = None
        self._name = _short(name)
        self._owner = owner
        self._limit = limit
        self._grace = grace
        self._on_stderr = on_stderr
        self._loop = asyncio.get_running_loop()
        self._passed: frozenset[str] = frozenset()
        """The names of the variables that it got."""
        self._process: subprocess.Popen[bytes] | None = None
        self._guardian: subprocess.Popen[bytes] | None = None
        self._pidfd: int | None = None
        self._stdin: asyncio.WriteTransport | None = None
        self._stdout: asyncio.ReadTransport | None = None
        self._stderr: asyncio.ReadTransport | None = None
        self._pipes: set[int] = set()
        """Those that are open."""
        self._lines = LineReader(limit, to_the_end=True)
        self._untaken: deque[bytes | LineTooLong] = deque()
        """Lines of stdout that were read; while there are any, stdout is not."""
        self._is_behind = False
        self._is_warned = False
        self._is_held = False
        self._untold: deque[bytes] = deque()
        """Lines of stderr for the log and `on_stderr`; while there are any, stderr is not read."""
        self._sent = 0
        self._is_deaf = False
        """Whether it ended without reading a byte of its input."""
        self._turns = asyncio.Lock()
        self._blocked: asyncio.Future[None] | None = None
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._cause = ""
        self._exited = asyncio.Event()
        self._silent = asyncio.Event()
        self._buried = asyncio.Event()
        self._settling: asyncio.TimerHandle | None = None
        self._starting: asyncio.Task[None] | None = None
        self._ending: asyncio.Task[None] | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None or self._exited.is_set() else self._process.pid

    # The start

    async def start(self, words: list[str], environment: dict[str, str], cwd: str | None, seccomp: bytes) -> None:
        self._passed = frozenset(environment)
        # In a task of its own, because a start cannot be called off half way: it is waited for, then ended.
        self._starting = self._loop.create_task(self._spawn(words, environment, cwd, seccomp))
        try:
            await asyncio.shield(self._starting)
        except asyncio.CancelledError:
            self._grace = 0.0
            self._begin_end("was not wanted any more")
            raise
        except Exception:
            # Clean up everything that was started before the failure.
            self._grace = 0.0
            await self.end()
            raise

    async def _spawn(self, words: list[str], environment: dict[str, str], cwd: str | None, seccomp: bytes) -> None:
        with inherited_filter(words, seccomp) as (command, descriptors):
            process = self._process = _popen(command, environment, cwd, descriptors)
        self._guardian = _set_guardian(process.pid)
        self._watch(process)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._pipes = {0, 1, 2}
        self._stdin, _ = await self._loop.connect_write_pipe(lambda: _Pipe(self, 0), process.stdin)
        self._stdout, _ = await self._loop.connect_read_pipe(lambda: _Pipe(self, 1), process.stdout)
        self._stderr, _ = await self._loop.connect_read_pipe(lambda: _Pipe(self, 2), process.stderr)

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Be told of the exit."""
        try:
            self._pidfd = os.pidfd_open(process.pid)
        except (AttributeError, OSError):
            # Not Linux, or an old one.
            threading.Thread(target=self._wait_for_exit, args=(process,), name="trimaran-child", daemon=True).start()
        else:
            self._loop.add_reader(self._pidfd, self._look_at_exit, process)

    def _wait_for_exit(self, process: subprocess.Popen[bytes]) -> None:
        code = process.wait()
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self._note_exit, code)

    def _look_at_exit(self, process: subprocess.Popen[bytes]) -> None:
        self._stop_watching()
        # It is not reaped yet: until then no other process gets its number, which is the group's too.
        code = None
        with contextlib.suppress(ChildProcessError):  # somebody else has collected it
            status = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            if status is not None:
                code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
        self._note_exit(code)

    def _stop_watching(self) -> None:
        if self._pidfd is not None:
            self._loop.remove_reader(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = None

    # Its output

    def take(self, data: bytes) -> None:
        """From stdout."""
        if self._over.done():
            return
        self._untaken.extend(self._lines.feed(data))
        self._take_lines()
        if self._lines.is_skipping != self._is_warned:
            self._is_warned = not self._is_warned
            if self._is_warned:
                self._owner.odd(f"sent a line on stdout that is longer than {self._limit} bytes")

    def _take_lines(self, *, to_the_end: bool = False) -> None:
        """Handle the bytes that were read, for one turn of the loop. A child that floods its stdout delays only itself."""
        turn = FairTurn()
        while self._untaken and (to_the_end or not turn.is_over):
            line = self._untaken.popleft()
            if isinstance(line, bytes) and line[0] in b"{[":
                self._owner.receive(line)
            elif not self._over.done():
                self._take_odd(line)
        pipe = self._stdout
        is_behind = bool(self._untaken)
        if is_behind != self._is_behind and pipe is not None and not pipe.is_closing():
            self._is_behind = is_behind
            (pipe.pause_reading if is_behind else pipe.resume_reading)()
        if is_behind:
            self._loop.call_soon(self._take_lines)

    def _take_odd(self, line: bytes | LineTooLong) -> None:
        if isinstance(line, LineTooLong):
            too_long: Callable[[bytes, bytes, int], bool] | None = getattr(self._owner, "too_long", None)
            if too_long is None or not too_long(line.head, line.tail, line.limit):
                self._lose(f"sent a message of more than {line.limit} bytes (max_message_bytes)")
        elif line.lstrip()[:1] in (b"{", b"["):
            self._owner.receive(line)
        else:
            self._owner.odd(f"sent a line on stdout that is not a message: {_excerpt(line)}")

    def _take_rest(self) -> None:
        """stdout has ended; the bytes after its last newline may be a message."""
        self._take_lines(to_the_end=True)
        rest = self._lines.close()
        if rest is None or self._over.done():
            return
        try:
            decode_json(rest, msgspec.Raw)
        except msgspec.DecodeError:
            self._owner.odd(f"ended its stdout in the middle of a line: {_excerpt(rest)}")
        else:
            self._take_odd(rest)

    def hear(self, data: bytes) -> None:
        """From stderr."""
        self._queue(self.tail.feed(data))

    def _queue(self, lines: list[bytes]) -> None:
        if not lines or (self._on_stderr is None and not _log.isEnabledFor(logging.DEBUG)):
            return
        is_behind = bool(self._untold)
        self._untold.extend(lines)
        if not is_behind:
            self._tell()

    def _tell(self) -> None:
        """Give a few lines of stderr away. A child that floods it waits for us; its stdout does not."""
        for _ in range(min(_TOLD_PER_TURN, len(self._untold))):
            line = _decode(self._untold.popleft())
            _log.debug("[%s] %s", self._name, line)
            if self._on_stderr is not None:
                try:
                    self._on_stderr(line)
                except Exception:
                    _log.exception("on_stderr failed for a line of %s", self._name)
        self._hold_stderr(bool(self._untold))
        if self._untold:
            self._loop.call_soon(self._tell)

    async def _finish_telling(self) -> None:
        deadline = self._loop.time() + _SETTLE_SECONDS
        while self._untold and self._loop.time() < deadline:
            await asyncio.sleep(0)
        self._untold.clear()

    def _hold_stderr(self, is_held: bool) -> None:
        pipe = self._stderr
        if is_held != self._is_held and pipe is not None and not pipe.is_closing():
            self._is_held = is_held
            (pipe.pause_reading if is_held else pipe.resume_reading)()

    # Its input

    async def send(self, data: bytes) -> None:
        if self._stdin is None:
            raise NotReady(f"the child process ({self._name}) is still being started")
        async with self._turns:
            while self._blocked is not None:
                await asyncio.shield(self._blocked)
            if 0 not in self._pipes and not self._over.done():
                # It hears nothing any more; a moment later we know whether, and how, it ended.
                await asyncio.shield(self._over)
            if self._over.done():
                raise self._lost()
            self._sent += len(data)
            self._stdin.write(data)

    def unread(self) -> int | None:
        if self._process is None or self._stdin is None or 0 not in self._pipes:
            return self._sent if self._is_deaf else None
        waiting = self._stdin.get_write_buffer_size()
        in_pipe = _unread_in(self._process.stdin)
        return None if in_pipe is None else waiting + in_pipe

    def _note_deafness(self) -> None:
        """Measure the unread bytes at each sign of the end, while the pipe exists."""
        if not self._over.done():
            self._is_deaf = self._is_deaf or (self._sent > 0 and self.unread() == self._sent)

    def block(self) -> None:
        self._blocked = self._loop.create_future()

    def unblock(self) -> None:
        if self._blocked is not None:
            self._blocked.set_result(None)
            self._blocked = None

    # How it ends

    def pipe_ended(self, fd: int) -> None:
        self._note_deafness()
        self._pipes.discard(fd)
        if fd == 1:
            self._take_rest()
        elif fd == 2:
            self._queue(self.tail.close())
        if not self._pipes & {1, 2}:
            self._silent.set()
        if not self._pipes:
            self._buried.set()
        # A child may well close its stderr and go on.
        if fd != 2 or self._settling is not None:
            self._settle()

    def _note_exit(self, code: int | None) -> None:
        self.exit_code = code
        self._note_deafness()
        self._exited.set()
        self._settle()

    def _settle(self) -> None:
        if self._over.done():
            return
        if self._exited.is_set() and self._silent.is_set():
            self._give_up()
        elif self._settling is None:
            self._settling = self._loop.call_later(_SETTLE_SECONDS, self._give_up)

    def _give_up(self) -> None:
        if self._exited.is_set():
            self._take_rest()
            self._lose("")
        else:
            name = "output" if 1 not in self._pipes else "input"
            self._lose(f"closed its standard {name} and did not exit")

    def _lose(self, cause: str) -> None:
        """It is over, and not by our will."""
        if not self._over.done():
            self._begin_end(cause)
            self._owner.lost(self._lost())

    def _lost(self) -> ConnectionLost:
        cause = self._cause
        if self._exited.is_set():
            cause = f"{cause}, then {_fate(self.exit_code)}" if cause else _fate(self.exit_code)
        cause = f"the child process ({self._name}) {cause}"
        lines = self.tail.lines()
        missing = describe_missing(missing_variables("\n".join(lines), os.environ, self._passed))
        message = f"{cause}{explain_stderr(lines)}{missing and chr(10) + missing}"
        lost = ConnectionLost(message, cause_text=cause, exit_code=self.exit_code, stderr=lines)
        lost.sent = not self._is_deaf
        return lost

    def _begin_end(self, cause: str) -> asyncio.Task[None]:
        if not self._over.done():
            self._cause = cause
            self._note_deafness()
            self._over.set_result(None)
            if self._settling is not None:
                self._settling.cancel()
            self.unblock()
        if self._ending is None:
            self._ending = self._loop.create_task(self._end())
        return self._ending

    async def end(self) -> None:
        ending = self._begin_end("was closed")
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            if not ending.done():
                self._grace = 0.0
                self._strike(hard=True)
            raise

    async def _end(self) -> None:
        # It is cancelled when the loop is being ended. The rest takes milliseconds; to skip it would leave a process.
        with contextlib.suppress(asyncio.CancelledError):
            await self._ask_to_end()
        if self._process is None:
            return
        try:
            self._strike(hard=True)
            if not await _within(self._exited, _DEATH_SECONDS):
                _log.warning("the child process (%s), pid %d, cannot be killed", self._name, self._process.pid)
            await _within(self._silent, _SETTLE_SECONDS)
            await self._finish_telling()
        finally:
            self._stop_watching()
            self._close_pipes()
            self._process.poll()
            if self._guardian is not None:
                _dismiss(self._guardian)
        await _within(self._buried, _DEATH_SECONDS)
        if self._guardian is not None:
            await _collect(self._guardian)

    async def _ask_to_end(self) -> None:
        if self._starting is not None:
            await asyncio.wait([self._starting])
            # The start was cancelled, so its outcome does not matter.
            if not self._starting.cancelled():
                self._starting.exception()
        if self._stdin is None:
            return
        self._stdin.close()
        if await _within(self._exited, self._grace):
            return
        self._strike(hard=False)
        await _within(self._exited, self._grace)

    def _strike(self, *, hard: bool) -> None:
        """Tell the whole group to end, or end it, whether or not its leader still lives."""
        if self._process is None:
            return
        if sys.platform == "win32":
            # There is no softer way to reach a tree; of one whose root is gone nothing can be found.
            if hard and not self._exited.is_set():
                command = ["taskkill", "/T", "/F", "/PID", str(self._process.pid)]
                subprocess.run(command, capture_output=True, check=False)  # noqa: S603 - no shell, no input
            return
        # Nobody is left, or (macOS) only those that are dead and not yet collected.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL if hard else signal.SIGTERM)

    def _close_pipes(self) -> None:
        assert self._process is not None
        if self._stdin is not None and 0 in self._pipes and self._stdin.get_write_buffer_size():
            # close() would wait for somebody to read it.
            self._stdin.abort()
        pipes = (
            (self._stdin, self._process.stdin),
            (self._stdout, self._process.stdout),
            (self._stderr, self._process.stderr),
        )
        for fd, (transport, file) in enumerate(pipes):
            if transport is not None:
                transport.close()
            elif file is not None:
                # The start failed before the loop had it.
                file.close()
                self.pipe_ended(fd)


def _popen(
    words: list[str], environment: dict[str, str], cwd: str | None, descriptors: tuple[int, ...]
) -> subprocess.Popen[bytes]:
    """Start it with three pipes and these descriptors of ours, as the first of a group."""
    pipe = subprocess.PIPE
    if sys.platform == "win32":
        from asyncio.windows_utils import Popen  # whose pipes its loop can wait for

        group = subprocess.CREATE_NEW_PROCESS_GROUP
        return Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, cwd=cwd, creationflags=group)
    return subprocess.Popen(  # noqa: S603 - what the user wants to run
        words,
        bufsize=0,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=environment,
        cwd=cwd,
        start_new_session=True,
        pass_fds=descriptors,
    )


@final
class _Tail:
    """The last lines of a stream, bounded in number and length."""

    __slots__ = ("_partial", "_ring")

    def __init__(self) -> None:
        self._ring: deque[bytes] = deque(maxlen=_STDERR_LINES)
        self._partial = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take the next bytes; return the lines they complete."""
        *ended, rest = chunk.split(b"\n")
        if ended:
            ended[0] = self._partial + ended[0]
            self._partial = b""
            ended = [line[:_STDERR_LINE_BYTES] for line in ended]
            self._ring.extend(ended)
        if len(self._partial) < _STDERR_LINE_BYTES:
            self._partial = (self._partial + rest)[:_STDERR_LINE_BYTES]
        return ended

    def close(self) -> list[bytes]:
        """End the stream; return the last line if it lacked its terminator."""
        return self.feed(b"\n") if self._partial else []

    def lines(self) -> list[str]:
        """These lines, and the unfinished one."""
        lines = [*self._ring, self._partial] if self._partial else self._ring
        return [_decode(line) for line in lines][-_STDERR_LINES:]


# The guardian

_guardians: set[subprocess.Popen[bytes]] = set()
_is_fork_watched = False


def _set_guardian(group: int) -> subprocess.Popen[bytes] | None:
    """Start the shell that ends this process group when we are gone; None where there is no shell to do it.

    Its stdin is a pipe whose other end only we have. We never write to it: an orderly end kills the guardian first.
    """
    global _is_fork_watched
    if sys.platform == "win32":
        return None
    if not _is_fork_watched:
        # A forked copy of us would hold the pipe open beyond our death.
        os.register_at_fork(after_in_child=_forget_guardians)
        _is_fork_watched = True
    try:
        guardian = subprocess.Popen(  # noqa: S603 - our own script
            [_SHELL, "-c", _GUARDIAN, "trimaran-guardian", str(group)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            cwd="/",
            env={},
            start_new_session=True,
        )
    except OSError as error:
        _log.debug("no guardian for process group %d: %s", group, error)
        return None
    _guardians.add(guardian)
    return guardian


def _dismiss(guardian: subprocess.Popen[bytes]) -> None:
    guardian.kill()
    if guardian.stdin is not None:
        guardian.stdin.close()


async def _collect(guardian: subprocess.Popen[bytes]) -> None:
    """Wait for a guardian that was dismissed. It was killed while it slept: a turn of the loop or two."""
    delay = 0.0005
    while guardian.poll() is None:
        await asyncio.sleep(delay)
        delay = min(delay * 2, 0.1)
    _guardians.discard(guardian)


def _forget_guardians() -> None:
    for guardian in _guardians:
        if guardian.stdin is not None:
            guardian.stdin.close()
        guardian.returncode = 0  # so that nothing here takes it for its own child
    _guardians.clear()


# Words


def _read_command(command: Sequence[str]) -> list[str]:
    if isinstance(command, (str, bytes)):
        raise ConfigError(
            f"a command must be a list, program and arguments apart: {str(command).split()}, not {command!r}"
        )
    words = [os.fspath(word) for word in command]
    if not words or not words[0]:
        raise ConfigError("a command names at least the program: ['python', 'server.py']")
    if any("\0" in word for word in words):
        raise ConfigError(f"a command cannot hold a null byte: {words}")
    return words


def _read_env(env: Mapping[str, str]) -> dict[str, str]:
    for name, value in env.items():
        if not isinstance(value, str):  # pyright: ignore[reportUnnecessaryIsInstance]  (a value out of a config file)
            raise ConfigError(f"the environment variable {name} must be a string, not {value!r}")
        if not name or "=" in name or "\0" in name + value:
            raise ConfigError(f"no environment can hold the variable {name!r} with the value {value!r}")
    if sys.platform == "win32":
        return {name.upper(): value for name, value in env.items()}
    return dict(env)


def _explain(error: Exception, program: str) -> str:
    """Why a program that was found could not be started."""
    if isinstance(error, NotImplementedError):
        return "this event loop cannot start processes; on Windows run the asyncio.ProactorEventLoop"
    match getattr(error, "errno", None):
        case errno.ENOENT if os.path.exists(program):
            return f"{program!r} is there, but the interpreter that its first line (#!) names is not"
        case errno.ENOEXEC:
            return (
                f"{program!r} is nothing this system can run (exec format error): "
                "a script needs a first line such as #!/usr/bin/env python3, a binary must be made for this machine"
            )
        case errno.EACCES:
            return _not_executable(program)
        case errno.E2BIG:
            return "its arguments and its environment are longer than the system allows"
        case number:
            from .failure_reasons import TOO_MANY_FILES  # which knows TLS, and that takes a while

            return TOO_MANY_FILES.get(number or 0) or str(error)


def _not_executable(file: str) -> str:
    return f"{file!r} may not be executed (permission denied): chmod +x it, or run it by its interpreter: ['python', {file!r}]"


def _fate(code: int | None) -> str:
    if code is None:
        return "ended"
    if code >= 0:
        return f"exited with status {code}"
    try:
        return f"was killed by {signal.Signals(-code).name} ({-code})"
    except ValueError:
        return f"was killed by signal {-code}"


def _unread_in(pipe: IO[bytes] | None) -> int | None:
    """How many bytes lie in a pipe that we write to. Linux tells at either end; others not, or only at the other one."""
    if pipe is None or sys.platform != "linux":
        return None
    count = array("i", [0])
    try:
        fcntl.ioctl(pipe.fileno(), termios.FIONREAD, count)
    except (OSError, ValueError):  # closed meanwhile
        return None
    return count[0]


def _which(name: str, path: str, mode: int = os.F_OK | os.X_OK) -> str | None:
    """As `shutil.which`, but on Windows that looks into the current directory first: a folder one happens to be in must
    not replace a command of the system.
    """
    if not _IS_WINDOWS or os.path.dirname(name):
        return shutil.which(name, mode, path)
    endings = [ending for ending in os.environ.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").split(";") if ending]
    is_whole = any(name.lower().endswith(ending.lower()) for ending in endings)
    for folder in filter(None, path.split(os.pathsep)):
        for ending in [""] if is_whole else endings:
            file = os.path.join(folder, name + ending)
            if os.path.isfile(file) and os.access(file, mode):
                return file
    return None


def _short(text: str) -> str:
    return text if len(text) <= 200 else f"{text[:200]}..."


def _excerpt(line: bytes) -> str:
    return f"{_decode(line[:120])!r}{'...' if len(line) > 120 else ''}"


def _decode(line: bytes) -> str:
    return line.removesuffix(b"\r").decode("utf-8", "replace")


async def _within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for it, at most this long. Returns whether it happened."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()
