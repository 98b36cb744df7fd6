"""What holds for every test: it ends in time, and it leaves nothing behind.

A test fails when one of its phases (set-up, body, tear-down) outlasts its deadline: 90 s, or `@pytest.mark.deadline(seconds)`.
It fails in tear-down, when all other fixtures are gone, if an asyncio task still runs, if a child process is still there,
or if a socket, pipe or file was dropped unclosed (the ResourceWarning, an error here by `filterwarnings`).

A test with many cases is quick in some of them and slow in the others (`CASES`).

Fixture: `free_port`.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import faulthandler
import functools
import gc
import hashlib
import inspect
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

# The checks that files share explain their failures like tests do. Here, since others may import them first.
pytest.register_assert_rewrite("tests.support", "tests.fault.client.peers", "tests.fleet.rig", "tests.fleet.verdict")

from tests.support.ports import find_port  # noqa: E402 - after the line above, which comes before every import of ours

# A test run in the background inherits a SIGINT that is ignored, and so would the programs it starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# The same with SIGHUP, under nohup: a server that ignores it does not restart its workers.
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

# How somebody likes their own terminal is not how the tests want theirs; those that are about these variables set them.
for variable in ("COLUMNS", "LINES", "COLORTERM", "FORCE_COLOR", "NO_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
    os.environ.pop(variable, None)

# A host keeps pins of the servers it uses, and must not keep those of tests with the user's own.
if "TRIMARAN_TEST_DATA" not in os.environ:
    os.environ["TRIMARAN_TEST_DATA"] = os.environ["XDG_DATA_HOME"] = tempfile.mkdtemp(prefix="trimaran-tests-")
    atexit.register(shutil.rmtree, os.environ["XDG_DATA_HOME"], ignore_errors=True)

DEADLINE = 90.0  # seconds; the slowest honest unit test takes about one, and a wait for what must come gives up before
TESTS = Path(__file__).resolve().parent
ARCH = TESTS / "arch"
GRACE = 10.0  # seconds in which what was told to end may still end


@pytest.fixture(autouse=True)
def no_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    """No client of a test remembers the servers of another: a port may have been another server's a moment ago."""
    if (connecting := sys.modules.get("trimaran.connecting")) is not None:
        monkeypatch.setattr(connecting, "_memory", type(connecting._memory)())


@pytest.fixture(autouse=True)
def no_bounds_reached() -> None:
    """No test has used up the lines that another one's log may have."""
    if (bounded := sys.modules.get("trimaran.bounded_log")) is not None:
        bounded.forget_kinds()


@pytest.fixture
def free_port() -> int:
    return find_port()


# --- quick or slow ---------------------------------------------------------------------------------------------------

CASES = 8  # of one test that are quick; half of all tests are cases of some 230 functions

# The folders whose files take long come first: two workers share the files, one after the other, and none of them should be
# left with minutes of work when the other is done (`--dist loadfile --no-loadscope-reorder`).
LONG_FIRST = ("conformance", "interop", "fleet", "fault", "docs", "unit/apps", "typing", "attack", "soak", "wire")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as slow all but some cases of a test that has many: `make check` runs those, `make test` all.

    Which ones is decided by a digest of their names: the same ones each time and everywhere, and some of every kind, while
    every second case might be all of one. A case in tests/arch is one of our own files: all of these are quick.
    """
    items.sort(key=lambda item: _rank(item.path))
    tests: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if " at 0x" in item.name:  # another name in every process, so two workers would not agree on the tests
            raise pytest.UsageError(f"{item.nodeid} is named after an address: give its cases ids")
        if "[" in item.name and item.path.parent != ARCH and not item.get_closest_marker("slow"):
            tests.setdefault((item.path, item.nodeid.partition("[")[0]), []).append(item)
    for cases in tests.values():
        for item in sorted(cases, key=lambda item: hashlib.sha256(item.name.encode()).digest())[CASES:]:
            item.add_marker("slow")


@functools.cache
def _rank(file: Path) -> int:
    path = file.relative_to(TESTS).as_posix() if file.is_relative_to(TESTS) else ""
    return next((rank for rank, folder in enumerate(LONG_FIRST) if path.startswith(f"{folder}/")), len(LONG_FIRST))


# --- nothing left behind ---------------------------------------------------------------------------------------------
#
# After each test its garbage is collected: an unclosed thing in a reference cycle complains when it is collected, and that
# is to be in this test, not in a later one. What a collection costs grows with what is looked at, 50 ms with all of the
# library imported, so all that was there before a file began is frozen, and of a test's garbage only the young generations
# are searched: what earlier tests left alive (memos, for the most part) has grown old, and is searched when the file ends.
# That the collector itself makes nothing of a test old meanwhile is what the thresholds are for: five million objects.

gc.set_threshold(100_000, 50, 50)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Iterator[None]:
    """Importing makes much and drops little: looking for garbage meanwhile doubles the time it takes."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.fixture(autouse=True, scope="module")
def what_was_there_before_is_not_looked_at() -> Iterator[None]:
    """Autouse, so it is set up before, and torn down after, the other fixtures of the file: these are looked at."""
    gc.collect()
    gc.freeze()
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def leaves_nothing_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """Autouse, so it is set up before, and torn down after, every other fixture of the same scope."""
    before = children()
    if inspect.iscoroutinefunction(getattr(request, "function", None)):
        request.getfixturevalue("leaves_no_task")
    yield
    gc.collect(1)
    deadline = time.monotonic() + GRACE
    while (left := children() - before) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)
    assert not left, f"child processes left running: {sorted(left)} (killed now)"


@pytest.fixture
async def leaves_no_task() -> AsyncIterator[None]:
    """Requested for coroutine tests only: it lives in the test's own loop and sees it last."""
    before = asyncio.all_tasks()
    yield
    deadline = time.monotonic() + GRACE
    while (left := asyncio.all_tasks() - before - {asyncio.current_task()}) and time.monotonic() < deadline:
        await asyncio.sleep(0.001)
    assert not left, "asyncio tasks left running:\n" + "\n".join(f"  {task!r}" for task in left)


def children() -> set[int]:
    """The live or unreaped children of this process; empty where there is no /proc to ask."""
    found: set[int] = set()
    if hasattr(os, "waitid"):
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:  # there are none: no need to look further
            return found
    with contextlib.suppress(FileNotFoundError):
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError):  # a thread that ended meanwhile
                found.update(map(int, Path(f"/proc/self/task/{thread}/children").read_bytes().split()))
    return {pid for pid in found if b"resource_tracker" not in command_line(pid)}  # multiprocessing keeps one for good


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


# --- ends in time ----------------------------------------------------------------------------------------------------


STDERR = pytest.StashKey[int]()
SECONDS = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Raise in the main thread when the time of a phase is up, and once a second from then on: a task may swallow the first.

    What is deaf to signals (a C extension that never returns) is ended with the whole run, stacks printed, when the time of
    all phases is up: that watch is a thread, and to start three of them for each test would take longer than most tests.
    """
    marker = item.get_closest_marker("deadline")
    seconds = item.stash[SECONDS] = float(marker.args[0]) if marker else DEADLINE

    def overdue(_signal: int, _frame: FrameType | None) -> None:
        tasks = ""
        with contextlib.suppress(RuntimeError):  # no loop is running
            tasks = "\n" + "\n".join(f"  {task!r}" for task in asyncio.all_tasks())
        pytest.fail(f"{item.nodeid} took longer than its deadline of {seconds:g} s{tasks}")

    previous = signal.signal(signal.SIGALRM, overdue)
    faulthandler.dump_traceback_later(3 * seconds + 15, exit=True, file=item.config.stash[STDERR])
    try:
        return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGALRM, previous)


@contextlib.contextmanager
def deadline(item: pytest.Item) -> Iterator[None]:
    signal.setitimer(signal.ITIMER_REAL, item.stash[SECONDS], 1.0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def pytest_configure(config: pytest.Config) -> None:
    """Keep the real standard error: during a test, descriptor 2 is pytest's capture file."""
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        config.stash[STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    os.close(config.stash[STDERR])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with deadline(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with deadline(item):
        return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    with deadline(item):
        return (yield)
