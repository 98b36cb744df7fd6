"""Reloading: a front process that stays while the process with the user's code is replaced (P53).

The front imports nothing of the user's. When a .py file changes it starts a new worker beside the old one and lets it take
over once it has loaded; a version that does not load is reported on stderr and the old one goes on serving.

HTTP: the worker that has loaded tells so by making a file, then waits for a line on its stdin before it listens. In
between the old worker is stopped, which frees the port. End of input on that stdin means that the front is gone, or wants
the worker gone: it ends itself, on every platform.

stdio: the front owns the client's pipes and hands lines through. It keeps what makes up a legacy session (`initialize`,
`initialized`, the log level, subscriptions) and replays it to a new worker, whose answers it swallows. Then, in this
order: calls caught in the old worker are answered with -32603 "reloaded", lines that came meanwhile go to the new one,
and a legacy client hears that its lists may have changed. A worker's own requests get ids that no later worker uses, so a
late answer cannot reach the wrong one.

Threads: one reads the client, one writes to it, one reads each worker; all state is behind one lock, under which nobody
waits for the client, nor for a worker that has not loaded. The main thread watches files and processes.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, cast, final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from trimaran.depth import check_depth
from trimaran.errors import CODE_INTERNAL
from trimaran.protocol.json_lines import LineReader, LineTooLong
from trimaran.protocol.versions import MODERN
from trimaran.transports.stop_signals import ENDS, hangup

_TICK: Final = 0.02  # seconds between looks at processes and signals
_POLL: Final = 0.25  # seconds between looks at the files: a save is noticed before the hand is off the keyboard
_LOAD_SECONDS: Final = 60.0  # the slowest honest import; a worker that takes longer is given up
_STOP_SECONDS: Final = 8.0  # a worker lets its calls finish for five, then leaves its lifespan
_SKIPPED: Final = frozenset({"__pycache__", "node_modules", "site-packages", "venv"})


def _say(message: str) -> None:
    print(f"trimaran: {message}", file=sys.stderr, flush=True)


def _python(words: Sequence[str]) -> list[str]:
    # -P: the worker must not find modules in the current directory that the front does not find.
    return [sys.executable, "-P", "-m", "trimaran.apps.cli", *words]


# Watching


@final
class FileWatcher:
    """Tells when a .py file under a directory was added, removed or written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seen = self._look()
        self._next = time.monotonic() + _POLL

    def _look(self) -> dict[str, tuple[int, int]]:
        return dict(_python_files(str(self._directory)))

    def changed(self) -> list[str]:
        """The files that changed since the last time; empty between two polls."""
        now = time.monotonic()
        if now < self._next:
            return []
        self._next = now + _POLL
        before, after = self._seen, self._look()
        if after == before:
            return []
        self._seen = after
        return sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))


def _python_files(directory: str) -> Iterator[tuple[str, tuple[int, int]]]:
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return
    for entry in entries:
        with contextlib.suppress(OSError):  # gone meanwhile
            if entry.is_dir(follow_symlinks=False):
                if not entry.name.startswith(".") and entry.name not in _SKIPPED:
                    yield from _python_files(entry.path)
            elif entry.name.endswith(".py"):
                about = entry.stat()
                yield entry.path, (about.st_mtime_ns, about.st_size)


@final
class _Signals:
    """SIGINT, SIGTERM and SIGHUP as a flag: a front has children to end before it may go."""

    def __init__(self) -> None:
        self.received: int | None = None
        for number in (*ENDS, *hangup()):
            signal.signal(number, self._take)

    def _take(self, number: int, frame: Any) -> None:
        self.received = number


def _end(process: subprocess.Popen[bytes], patience: float) -> None:
    """End a worker: politely by end of input, then by signal, then for good."""
    if process.stdin is not None:
        with contextlib.suppress(OSError, ValueError):
            process.stdin.close()
    for ask in (process.terminate, process.kill):
        try:
            process.wait(patience)
            return
        except subprocess.TimeoutExpired:
            ask()
    process.wait()


# HTTP


@final
class WorkerTurn:
    """In a worker: it ends when the front does, and waits for its turn to listen. Made before the user's code is loaded."""

    def __init__(self) -> None:
        self._has_come = threading.Event()
        threading.Thread(target=self._listen, name="trimaran-front", daemon=True).start()

    def _listen(self) -> None:
        # Not `sys.stdin.buffer`: a thread that waits in there holds its lock, and an interpreter that ends meanwhile dies of it.
        while os.read(sys.stdin.fileno(), 64):
            self._has_come.set()
        # The server's own handler, once it is there, ends open streams properly. A loop that hangs does not run it.
        signal.raise_signal(signal.SIGTERM)
        time.sleep(_STOP_SECONDS)
        os._exit(1)

    def wait(self, ready: Path) -> None:
        """Say that the code has loaded, and wait for the old worker to free the port."""
        ready.touch()
        self._has_come.wait()


@final
class HttpFront:
    """Keeps one HTTP worker running, the newest that loads."""

    def __init__(self, words: Sequence[str], directory: Path) -> None:
        self._words = words
        self._watcher = FileWatcher(directory)
        self._signals = _Signals()
        self._worker: subprocess.Popen[bytes] | None = None
        self._count = 0

    def run(self) -> int:
        """Serve until a signal; the exit code."""
        with tempfile.TemporaryDirectory(prefix="trimaran-") as scratch:
            try:
                code = self._replace(Path(scratch))
                if code == 2:
                    return code
                while self._signals.received is None:
                    time.sleep(_TICK)
                    if self._worker is not None and self._worker.poll() is not None:
                        _say(f"the server ended with exit code {self._worker.returncode}; waiting for a change")
                        self._retire()
                    changed = self._watcher.changed()
                    if changed:
                        _say(f"{_short(changed)} changed")
                        self._replace(Path(scratch))
            finally:
                self._retire()
        return 0

    def _replace(self, scratch: Path) -> int | None:
        """Load a new worker and let it take over; its exit code if it failed to load."""
        self._count += 1
        ready = scratch / str(self._count)
        process = subprocess.Popen(_python([*self._words, "--behind-front", str(ready)]), stdin=subprocess.PIPE)  # noqa: S603 - our own command line
        deadline = time.monotonic() + _LOAD_SECONDS
        while not ready.exists() and process.poll() is None and self._signals.received is None:
            if time.monotonic() > deadline:
                _say(f"the new version did not load within {_LOAD_SECONDS:g} s")
                break
            time.sleep(_TICK / 4)
        if not ready.exists():
            _end(process, 1.0)
            if self._signals.received is None and process.returncode != 2:
                _say("still serving the previous version" if self._worker is not None else "waiting for a change")
            return process.returncode
        self._retire()
        self._worker = process
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.write(b"go\n")
            process.stdin.flush()
        return None

    def _retire(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            _end(worker, _STOP_SECONDS)


def _short(paths: Sequence[str]) -> str:
    name = os.path.basename(paths[0])
    return name if len(paths) == 1 else f"{name} and {len(paths) - 1} more"


# stdio

Id = int | str | float | None


class _Message(msgspec.Struct):
    """As much of a JSON-RPC message as the front must understand."""

    id: Id | UnsetType = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET

    @property
    def is_request(self) -> bool:
        return self.method is not UNSET and self.id is not UNSET

    @property
    def is_reply(self) -> bool:
        return self.method is UNSET and self.id is not UNSET


_single = msgspec.json.Decoder(_Message)
_many = msgspec.json.Decoder(list[_Message])


def _read(line: bytes) -> list[_Message]:
    """The messages of a line; none if it is not JSON-RPC, which is for the worker to say."""
    try:
        check_depth(line)
        return _many.decode(line) if line.lstrip().startswith(b"[") else [_single.decode(line)]
    except (msgspec.DecodeError, UnicodeDecodeError):
        return []


def _write(method: str | None = None, /, **fields: Any) -> bytes:
    head = {"jsonrpc": "2.0"} if method is None else {"jsonrpc": "2.0", "method": method}
    return msgspec.json.encode({**head, **{name: value for name, value in fields.items() if value is not UNSET}})


def _error(id: Id, message: str) -> bytes:
    return _write(id=id, error={"code": CODE_INTERNAL, "message": message})


def _field(raw: Raw | UnsetType, name: str) -> Any:
    value: Any = None if raw is UNSET else msgspec.json.decode(raw)
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None


@final
class _Session:
    """The messages that bring a new worker to the state of the old one."""

    def __init__(self) -> None:
        self.hello: bytes | None = None
        """The client's own `initialize`, as it came."""
        self.hello_id: Id = None
        self.initialized = False
        self.changing: set[str] = set()
        """The lists whose changes the client may hear of."""
        self._params: Raw | UnsetType = UNSET
        self._level: Raw | UnsetType = UNSET
        self._watched: dict[str, Raw] = {}

    def note(self, message: _Message, line: bytes) -> None:
        """Look at a message of the client on its way."""
        method, params = message.method, message.params
        if method == "initialize":
            self.__init__()
            self.hello, self.hello_id, self._params = line, cast("Id", message.id), params
        elif method == "notifications/initialized":
            self.initialized = True
        elif method == "logging/setLevel":
            self._level = params
        elif method == "resources/subscribe" and isinstance(uri := _field(params, "uri"), str):
            self._watched[uri] = cast("Raw", params)
        elif method == "resources/unsubscribe" and isinstance(uri := _field(params, "uri"), str):
            self._watched.pop(uri, None)

    def learn(self, result: Raw | UnsetType) -> None:
        """Look at an answer to `initialize`."""
        offered: Any = _field(result, "capabilities")
        if isinstance(offered, dict):
            self.changing.update({"tools", "prompts", "resources"} & cast("dict[str, Any]", offered).keys())

    def replay(self) -> list[tuple[str, Any]]:
        """Requests, and `initialized` between them, for a worker that has just begun."""
        if self.hello is None:
            return [("server/discover", _DISCOVER)]
        if not self.initialized:
            return [("initialize", self._params)]
        level = [("logging/setLevel", self._level)] if self._level is not UNSET else []
        watched = [("resources/subscribe", params) for params in self._watched.values()]
        return [("initialize", self._params), ("notifications/initialized", UNSET), *level, *watched]


_META: Final = "io.modelcontextprotocol/"
# Any answer will do, an error too: it says that the worker has loaded.
_DISCOVER: Final = {
    "_meta": {
        f"{_META}protocolVersion": MODERN,
        f"{_META}clientInfo": {"name": "trimaran-reload", "version": "1"},
        f"{_META}clientCapabilities": {},
    }
}


@final
class _Worker:
    """A process with the user's code, and the thread that reads it."""

    def __init__(self, words: Sequence[str], number: int, front: StdioFront) -> None:
        self.number = number
        self.awaited: set[Id] = set()
        """Replies of the replay that are still to come."""
        self.has_ended: bool = False
        self._front = front
        self._writing = threading.Lock()
        self.process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - our own command line
            _python(words), stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._thread = threading.Thread(target=self._listen, name=f"trimaran-worker-{number}", daemon=True)

    def start(self, replay: Sequence[tuple[str, Any]]) -> None:
        lines: list[bytes] = []
        for place, (method, params) in enumerate(replay):
            id: Id | UnsetType = UNSET if method.startswith("notifications/") else f"trimaran-reload-{place}"
            if id is not UNSET:
                self.awaited.add(id)
            lines.append(_write(method, id=id, params=params))
        self._thread.start()
        for line in lines:
            self.send(line)

    def send(self, line: bytes) -> None:
        assert self.process.stdin is not None
        with self._writing, contextlib.suppress(OSError, ValueError):  # it has ended; the main thread will see
            self.process.stdin.write(line + b"\n")
            self.process.stdin.flush()

    def close_input(self) -> None:
        assert self.process.stdin is not None
        with self._writing, contextlib.suppress(OSError, ValueError):
            self.process.stdin.close()

    def _listen(self) -> None:
        assert self.process.stdout is not None
        lines = LineReader(1 << 31)  # the worker and the client have limits of their own
        with self.process.stdout as stream:
            while chunk := os.read(stream.fileno(), 1 << 16):
                for line in lines.feed(chunk):
                    if not isinstance(line, LineTooLong):
                        self._front.from_worker(self, line)
        self.has_ended = True

    def wait_heard(self, seconds: float) -> None:
        """Wait until all the worker said has been taken."""
        self._thread.join(seconds)


@final
class StdioFront:
    """Stands between a client's pipes and one worker after the other."""

    def __init__(self, words: Sequence[str], directory: Path) -> None:
        from trimaran.transports.stdio import take_stdio

        self._pipes = take_stdio()
        self._words = words
        self._watcher = FileWatcher(directory)
        self._signals = _Signals()
        self._lock = threading.Lock()
        self._out: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._session = _Session()
        self._current: _Worker | None = None
        self._starting: _Worker | None = None
        self._is_broken = False
        """Nothing serves, and nothing will until a file changes."""
        self._give_up_at = 0.0
        self._retired: list[tuple[_Worker, float]] = []
        self._pending: list[bytes] = []
        """Lines of the client that wait for a worker."""
        self._in_flight: dict[Id, None] = {}
        self._askers: dict[Id, tuple[_Worker, Id]] = {}
        """Workers' own requests, by the id the client sees."""
        self._count = 0
        self._client_is_done = False

    def run(self) -> int:
        """Serve until the client is done or a signal; the exit code."""
        parent = os.getppid()
        writer = threading.Thread(target=self._write_out, name="trimaran-out", daemon=True)
        writer.start()
        threading.Thread(target=self._read_in, name="trimaran-in", daemon=True).start()
        self._start()
        code = 0
        try:
            while self._signals.received is None and os.getppid() == parent:
                time.sleep(_TICK)
                failed = self._look_after_workers()
                if failed == 2 and self._count == 1:
                    code = 2
                    break
                if self._client_is_done and self._starting is None:
                    break
                changed = self._watcher.changed()
                if changed:
                    _say(f"{_short(changed)} changed")
                    self._start()
        finally:
            self._finish()
            self._out.put(None)
            writer.join(2.0)
        return code

    # The client's side

    def _read_in(self) -> None:
        lines = LineReader(1 << 31)
        while chunk := os.read(self._pipes.stdin, 1 << 16):
            for line in lines.feed(chunk):
                if not isinstance(line, LineTooLong):
                    self._from_client(line)
        rest = lines.close()
        if rest is not None:
            self._from_client(rest)
        self._client_is_done = True

    def _write_out(self) -> None:
        while (line := self._out.get()) is not None:
            view = memoryview(line + b"\n")
            try:
                while view:
                    view = view[os.write(self._pipes.stdout, view) :]
            except OSError:
                self._client_is_done = True
                return

    def _from_client(self, line: bytes) -> None:
        with self._lock:
            worker = self._current
            if self._is_broken and self._refused(line):
                return
            if worker is None:
                self._pending.append(line)
                return
            passed = self._passed_on(worker, line)
        if passed is not None:
            worker.send(passed)

    def _refused(self, line: bytes) -> bool:
        """There is no server before the next change. A first message waits for it, since no client forgives an error there; others do not."""
        messages = _read(line)
        if any(m.method in ("initialize", "server/discover") for m in messages):
            return False
        for message in messages:
            if message.is_request:
                self._out.put(
                    _error(cast("Id", message.id), "the server's code does not load; see its stderr, and try again")
                )
        return any(m.is_request for m in messages)

    def _passed_on(self, worker: _Worker, line: bytes) -> bytes | None:
        """The line as this worker gets it; None if it is not meant for this one."""
        messages = _read(line)
        for message in messages:
            self._session.note(message, line)
            if message.is_request:
                self._in_flight[cast("Id", message.id)] = None
            elif message.method == "notifications/cancelled":
                self._in_flight.pop(_field(message.params, "requestId"), None)
        if len(messages) == 1 and messages[0].is_reply:
            return self._answer(worker, messages[0])
        return line

    def _answer(self, worker: _Worker, message: _Message) -> bytes | None:
        asker, id = self._askers.pop(cast("Id", message.id), (None, None))
        return _write(id=id, result=message.result, error=message.error) if asker is worker else None

    # The workers' side

    def from_worker(self, worker: _Worker, line: bytes) -> None:
        """Take a line a worker wrote. Called from that worker's thread."""
        with self._lock:
            messages = _read(line)
            if worker is self._starting:
                for message in messages:
                    self._take_replayed_reply(worker, message)
                return
            if worker is not self._current:
                return
            for message in messages:
                if message.is_reply:
                    self._in_flight.pop(cast("Id", message.id), None)
                    if self._session.hello is not None and message.id == self._session.hello_id:
                        self._session.learn(message.result)
            self._out.put(self._relabelled(worker, messages[0], line) if len(messages) == 1 else line)

    def _relabelled(self, worker: _Worker, message: _Message, line: bytes) -> bytes:
        """A worker's request, under an id that stays its own."""
        if message.is_request:
            label = f"{worker.number}:{message.id}"
            self._askers[label] = (worker, cast("Id", message.id))
            return _write(cast("str", message.method), id=label, params=message.params)
        if message.method == "notifications/cancelled":
            params: Any = {} if message.params is UNSET else msgspec.json.decode(message.params)
            label = f"{worker.number}:{params.get('requestId')}"
            if self._askers.pop(label, None) is not None:
                return _write("notifications/cancelled", params={**params, "requestId": label})
        return line

    def _take_replayed_reply(self, worker: _Worker, message: _Message) -> None:
        if message.is_reply and message.id in worker.awaited:
            worker.awaited.discard(message.id)
            self._session.learn(message.result)
            if not worker.awaited:
                self._take_over(worker)

    def _take_over(self, worker: _Worker) -> None:
        """Put the worker that has loaded in the place of the one before. Under the lock."""
        old, self._current, self._starting = self._current, worker, None
        if old is not None:
            self._retired.append((old, time.monotonic() + _STOP_SECONDS))
            old.close_input()
        session = self._session
        first: list[bytes] = []
        if session.hello is not None and session.hello_id in self._in_flight:
            # Caught in the handshake itself: the new worker answers it.
            first = [session.hello]
            self._in_flight.pop(session.hello_id)
        self._answer_lost("reloaded")
        for line in [*first, *self._pending]:
            passed = self._passed_on(worker, line)
            if passed is not None:
                worker.send(passed)
        self._pending.clear()
        if self._count > 1:
            _say("reloaded")
            if session.initialized:
                for kind in sorted(session.changing):
                    self._out.put(_write(f"notifications/{kind}/list_changed"))

    def _answer_lost(self, reason: str) -> None:
        for id in self._in_flight:
            self._out.put(_error(id, reason))
        self._in_flight.clear()
        for label in self._askers:
            self._out.put(_write("notifications/cancelled", params={"requestId": label, "reason": reason}))
        self._askers.clear()

    # The main thread

    def _start(self) -> None:
        with self._lock:
            self._count += 1
            if self._starting is not None:
                # Overtaken by a newer change before it had loaded.
                self._retired.append((self._starting, 0.0))
                self._starting.close_input()
            self._is_broken = False
            self._starting = worker = _Worker(self._words, self._count, self)
            self._give_up_at = time.monotonic() + _LOAD_SECONDS
            replay = self._session.replay()
        worker.start(replay)

    def _look_after_workers(self) -> int | None:
        """Notice what has ended; the exit code of a worker that failed to load."""
        for worker, deadline in self._retired[:]:
            if worker.process.poll() is not None:
                self._retired.remove((worker, deadline))
            elif time.monotonic() > deadline:
                worker.process.kill()
        with self._lock:
            starting, current = self._starting, self._current
            if current is not None and current.has_ended:
                self._current = None
                self._answer_lost("the server ended while it served this")
        if current is not None and current.has_ended:
            code = current.process.wait()
            if not self._client_is_done:
                _say(f"the server ended with exit code {code}; starting it again")
                if starting is None:
                    self._start()
            return None
        if starting is not None and (starting.has_ended or time.monotonic() > self._give_up_at):
            return self._give_up(starting)
        return None

    def _give_up(self, starting: _Worker) -> int | None:
        _end(starting.process, 1.0)
        with self._lock:
            if self._starting is not starting:
                return None
            self._starting = None
            is_serving = self._current is not None
            if not is_serving:
                self._is_broken = True
                self._pending = [line for line in self._pending if not self._refused(line)]
        if starting.process.returncode != 2 or self._count > 1:
            _say("still serving the previous version" if is_serving else "waiting for a change")
        return starting.process.returncode

    def _finish(self) -> None:
        """The client is done, or we must go: let the worker say its last, then end all."""
        with self._lock:
            workers = [w for w in (self._current, self._starting) if w is not None] + [w for w, _ in self._retired]
        for worker in workers:
            worker.close_input()
        current = self._current
        if current is not None and self._signals.received is None:
            current.wait_heard(_STOP_SECONDS)
        for worker in workers:
            _end(worker.process, 1.0 if worker is not current or self._signals.received is not None else 0.1)
            worker.wait_heard(1.0)
