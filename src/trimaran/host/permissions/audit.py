"""The audit log: every decision as a line of JSON, in a file that only its owner can read.

The impure edge of the package. It must not get in the way of a call: `record` makes the line and hands it to a thread,
which alone touches the disk. A full disk, a missing directory, a hung file system cost lines, never a call: lines that
are lost are counted (`lost`), told once to the `trimaran.permissions` logger, and told in the log itself when it works again.

Arguments are not written: a digest stands for them, keyed with a secret of this log, so that equal arguments can be seen
to be equal while nothing can be found out by trying. `arguments="full"` writes them.

A file that would grow past `max_bytes` becomes `<name>.1`, the one before `<name>.2`, and so on to `keep`. Several processes
may write to one log: each takes the file's lock to write, and notices when another has moved it on.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import queue
import secrets
import stat
import sys
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, Self, final

import msgspec

from trimaran.errors import ConfigError

from .policy import Decision

if sys.platform != "win32":
    import fcntl

logger: logging.Logger = logging.getLogger("trimaran.permissions")

_MOST_WAITING: Final = 10_000  # lines; some 4 MB, and minutes of a busy agent
_BATCH: Final = 256  # lines written under one lock
_MOST_ARGUMENTS: Final = 65536  # bytes of arguments in a line; of longer ones only the digest is written
_MOST_NAME: Final = 300  # characters; a server chooses the names of its tools
_PATIENCE: Final = 2.0  # seconds that the end of a program waits for the disk
_NO_FOLLOW: Final = getattr(os, "O_NOFOLLOW", 0)
_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


def _now() -> datetime:
    return datetime.now(UTC)


@final
class AuditLog:
    """Keeps decisions in a file. Close it, or use it as a context manager, so that the last lines get there."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = 10 * 1024 * 1024,
        keep: int = 5,
        arguments: Literal["digest", "full", "none"] = "digest",
        key: bytes | None = None,
        clock: Callable[[], datetime] = _now,
    ) -> None:
        """
        Args:
            max_bytes: how large a file may get.
            keep: how many full files are kept beside the one that is written.
            arguments: how much of a call's arguments is written.
            key: makes digests comparable between runs; without one, each log has a secret of its own (at most 64 bytes).
        """
        if max_bytes < 1 or keep < 0:
            raise ConfigError(
                f"an audit log needs max_bytes of 1 or more, and keep of 0 or more, not {max_bytes} and {keep}"
            )
        if key is not None and not 1 <= len(key) <= 64:
            raise ConfigError(f"the key of an audit log must have 1 to 64 bytes, not {len(key)}")
        self.path: Final = Path(path)
        self._arguments = arguments
        self._key = key or secrets.token_bytes(32)
        self._clock = clock
        self._writer = _Writer(_File(self.path, max_bytes, keep), clock)
        self._stop = weakref.finalize(self, self._writer.stop)

    @property
    def lost(self) -> int:
        """How many lines did not get to the file."""
        return self._writer.lost

    @property
    def problem(self) -> str:
        """Why lines are being lost at present; empty while all is well."""
        return self._writer.problem

    def record(self, decision: Decision, arguments: Mapping[str, object] | None = None, **more: object) -> None:
        """Keep one decision, with more fields if there are any. It neither raises nor waits for the disk."""
        line = self._line(decision, arguments, more)
        if line is None:
            self._writer.lose(1, "a decision could not be written as JSON")
        else:
            self._writer.put(line)

    def note(self, event: str, **fields: object) -> None:
        """Keep something else that happened, as a line with its time. It neither raises nor waits for the disk."""
        try:
            line = msgspec.json.encode({"time": _stamp(self._clock()), "event": event, **fields}) + b"\n"
        except (TypeError, ValueError):
            self._writer.lose(1, "an event could not be written as JSON")
        else:
            self._writer.put(line)

    def flush(self, timeout: float = _PATIENCE) -> bool:
        """Wait until all records so far are written or lost; False if that takes too long."""
        return self._writer.flush(timeout)

    def close(self) -> None:
        """Write the waiting records, for two seconds at most. Later records are lost."""
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _line(
        self, decision: Decision, arguments: Mapping[str, object] | None, more: Mapping[str, object]
    ) -> bytes | None:
        rule = decision.rule
        entry: dict[str, Any] = {
            "time": _stamp(self._clock()),
            "act": decision.act.name[:_MOST_NAME],
            "server": decision.act.server,
            "action": decision.action,
            "by": decision.by,
            "tier": decision.tier.label,
            "rule": None if rule is None else rule.text,
            "source": None if rule is None else str(rule.source),
        }
        entry.update(more)
        if not decision.is_certain:
            entry["certain"] = False
        if decision.reasons:
            entry["reasons"] = decision.reasons
        if arguments is not None and self._arguments != "none":
            entry.update(self._of(arguments))
        try:
            return msgspec.json.encode(entry) + b"\n"
        except ValueError:
            return None  # a lone surrogate, from a rule

    def _of(self, arguments: Mapping[str, object]) -> dict[str, Any]:
        try:
            encoded = msgspec.json.encode(arguments, order="deterministic")
        except (TypeError, ValueError, OverflowError, RecursionError):
            return {"arguments_digest": None}
        digest = hashlib.blake2b(encoded, key=self._key, digest_size=16).hexdigest()
        if self._arguments == "full" and len(encoded) <= _MOST_ARGUMENTS:
            return {"arguments_digest": digest, "arguments": msgspec.Raw(encoded)}
        return {"arguments_digest": digest, "arguments_bytes": len(encoded)}


def _stamp(moment: datetime) -> str:
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


@final
class _Writer:
    """The writing thread and its queue. It starts with the first line."""

    def __init__(self, file: _File, clock: Callable[[], datetime]) -> None:
        self.lost = 0
        self.problem = ""
        self._untold = 0
        self._file = file
        self._clock = clock
        self._lock = threading.Lock()
        self._waiting: queue.SimpleQueue[bytes | threading.Event | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def put(self, line: bytes) -> None:
        if self._is_stopped:
            self.lose(1, "the audit log is closed")
        elif self._waiting.qsize() >= _MOST_WAITING:
            self.lose(1, f"{_MOST_WAITING} lines wait for a disk that does not take them")
        else:
            self._waiting.put(line)
            self._start()

    def lose(self, count: int, why: str) -> None:
        with self._lock:
            self.lost += count
            self._untold += count
            is_new = not self.problem
            self.problem = why
        if is_new:
            logger.warning("decisions are not being recorded in the audit log %s: %s", self._file.path, why)

    def flush(self, timeout: float) -> bool:
        if self._thread is None or not self._thread.is_alive():
            return True
        reached = threading.Event()
        self._waiting.put(reached)
        return reached.wait(timeout)

    def stop(self) -> None:
        self._is_stopped = True
        with self._lock:
            thread = self._thread
        if thread is not None:
            self._waiting.put(None)
            thread.join(_PATIENCE)

    def _start(self) -> None:
        if self._thread is not None:
            return
        with self._lock:
            if self._thread is not None:
                return
            # A daemon: a file system that hangs must not keep the program from ending.
            thread = threading.Thread(target=self._run, name="trimaran-audit", daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return  # no more threads, or the interpreter is ending: the lines wait, and are lost with it
            self._thread = thread

    def _run(self) -> None:
        goes_on = True
        while goes_on:
            lines: list[bytes] = []
            reached: list[threading.Event] = []
            entry = self._waiting.get()
            while True:
                if entry is None:
                    goes_on = False
                elif isinstance(entry, threading.Event):
                    reached.append(entry)
                else:
                    lines.append(entry)
                if len(lines) >= _BATCH or self._waiting.empty():
                    break
                entry = self._waiting.get()
            self._write(lines)
            for event in reached:
                event.set()
        self._file.close()

    def _write(self, lines: list[bytes]) -> None:
        if not lines:
            return
        with self._lock:
            untold, why = self._untold, self.problem
        if untold:
            gap = {"time": _stamp(self._clock()), "lost": untold, "why": why}
            lines = [msgspec.json.encode(gap) + b"\n", *lines]
        try:
            written = self._file.append(lines)
            reason = self._file.reason
        except Exception as error:  # the thread must go on
            written, reason = 0, str(error)
        is_reported = bool(untold and written)
        if is_reported:
            with self._lock:
                self._untold -= untold
        missing = len(lines) - written - (1 if untold and not written else 0)
        if missing:
            self.lose(missing, reason)
        elif self.problem:
            with self._lock:
                self.problem = ""
            logger.warning("decisions are recorded in the audit log %s again; %d were lost", self._file.path, self.lost)


@final
class _File:
    """One open file, its size and its predecessors. Used by one thread."""

    def __init__(self, path: Path, max_bytes: int, keep: int) -> None:
        self.path = path
        self.reason = ""
        self._max_bytes = max_bytes
        self._keep = keep
        self._descriptor: int | None = None

    def append(self, lines: Sequence[bytes]) -> int:
        """Write the lines; how many of them were, and in `reason` why not more."""
        done = 0
        self.reason = ""
        try:
            with contextlib.ExitStack() as stack:
                size = self._hold(stack)
                for line in lines:
                    if size and size + len(line) > self._max_bytes:
                        self._move_on()
                        stack.close()
                        size = self._hold(stack)
                    self._write_whole(line, size)
                    size += len(line)
                    done += 1
        except OSError as error:
            self.reason = error.strerror or str(error)
            self.close()
        return done

    def close(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None

    def _hold(self, stack: contextlib.ExitStack) -> int:
        """Open the file that has our name now, take its lock, and say how large it is."""
        while True:
            if self._descriptor is None:
                self._open()
            descriptor = self._descriptor
            assert descriptor is not None
            if sys.platform != "win32":
                fcntl.flock(descriptor, fcntl.LOCK_EX)
                stack.callback(_unlock, descriptor)
            status = os.fstat(descriptor)
            if self._is_ours(status):
                return status.st_size
            # Another process has moved it on while we waited, or somebody has deleted it.
            stack.close()
            self.close()

    def _open(self) -> None:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        # O_NONBLOCK: opening a pipe without a reader must fail, not wait.
        descriptor = os.open(self.path, _FLAGS | _NO_FOLLOW, 0o600)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(f"{self.path} is not a file")
            if sys.platform != "win32" and stat.S_IMODE(status.st_mode) & 0o077:
                os.fchmod(descriptor, 0o600)
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor

    def _is_ours(self, status: os.stat_result) -> bool:
        try:
            stat_result = os.stat(self.path, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return (stat_result.st_dev, stat_result.st_ino) == (status.st_dev, status.st_ino)

    def _write_whole(self, line: bytes, size: int) -> None:
        assert self._descriptor is not None
        written = 0
        try:
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
        except OSError:
            if written:
                # Half a line would spoil the next one.
                with contextlib.suppress(OSError):
                    os.ftruncate(self._descriptor, size)
            raise

    def _move_on(self) -> None:
        """Give the full file the name of a predecessor, and those before it the next ones; the oldest goes."""
        if sys.platform == "win32":
            self.close()  # an open file cannot be renamed there
        if not self._keep:
            self.path.unlink(missing_ok=True)
        for number in range(self._keep, 0, -1):
            older = self.path.with_name(f"{self.path.name}.{number}")
            newer = self.path.with_name(f"{self.path.name}.{number - 1}") if number > 1 else self.path
            with contextlib.suppress(FileNotFoundError):
                os.replace(newer, older)


def _unlock(descriptor: int) -> None:
    if sys.platform != "win32":
        with contextlib.suppress(OSError):  # closing it has done so already
            fcntl.flock(descriptor, fcntl.LOCK_UN)
