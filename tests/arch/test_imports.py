"""Importing is cheap and silent. Each case runs in a fresh interpreter."""

from __future__ import annotations

import functools
import json
import subprocess
import sys

import pytest

HEAVY = [
    "aiohttp",
    "h2",
    "cryptography",
    "joserfc",
    "click",
    "rich",
    "pydantic",
    "attr",
    "attrs",
    "uvloop",
    "http.client",
]
REPORT = """
import json, logging, sys
json.dump({"modules": sorted(sys.modules), "handlers": len(logging.root.handlers)}, sys.stdout)
"""


def loaded_by(statement: str) -> set[str]:
    """The modules a statement adds to a bare interpreter."""
    return set(run(statement)["modules"]) - set(run("pass")["modules"])


@functools.cache
def run(statement: str) -> dict[str, list[str]]:
    # -I: no environment variables, no current directory; the library is found as a user's install would be.
    done = subprocess.run([sys.executable, "-I", "-c", statement + REPORT], capture_output=True, text=True)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return json.loads(done.stdout)


def test_bare_import_loads_nothing_heavy() -> None:
    """Whose rule: ours (decision 0001: names resolve on demand)."""
    heavy = loaded_by("import trimaran") & {*HEAVY, "asyncio", "msgspec", "jsonschema_rs", "ssl", "socket"}
    assert not heavy


def test_server_loads_no_http_library_and_no_crypto() -> None:
    """Whose rule: ours (the budgets in bench/README.md). `ssl` is not on the list: asyncio itself imports it."""
    heavy = loaded_by("from trimaran import Server") & set(HEAVY)
    assert not heavy


def test_client_loads_no_server_code_and_no_http_library() -> None:
    """Whose rule: ours (the budgets in bench/README.md): a client of a remote server needs neither."""
    loaded = loaded_by("from trimaran import connect, open_client, SyncClient")
    server = {name for name in loaded if name.startswith(("trimaran.server", "trimaran.serve", "trimaran.legacy."))}
    assert not server
    assert not loaded & {*HEAVY, "jsonschema_rs"}


@pytest.mark.parametrize(
    "statement", ["import trimaran", "from trimaran import Server", "from trimaran import connect, SyncClient"]
)
def test_import_leaves_no_trace_in_the_process(statement: str) -> None:
    """Whose rule: ours: no logging set-up, no environment reads, no event loop, no threads, no signal handlers."""
    before = "import logging, os, signal, sys, threading\n"
    spy = """
read = []
class Spy(type(os.environ)):
    def __getitem__(self, key):
        frame = sys._getframe(1)
        for _ in range(3):  # os.getenv calls environ.get calls us
            if frame and frame.f_globals.get("__name__", "").startswith("trimaran"):
                read.append(key)
            frame = frame and frame.f_back
        return super().__getitem__(key)
os.environ.__class__ = Spy
signals = [signal.getsignal(s) for s in signal.valid_signals()]
"""
    after = """
assert not logging.root.handlers and not logging.getLogger("trimaran").handlers, "logging was set up"
assert threading.active_count() == 1, "a thread was started"
assert signals == [signal.getsignal(s) for s in signal.valid_signals()], "a signal handler was set"
assert not read, f"environment read: {read}"
if "asyncio" in sys.modules:
    policy = sys.modules["asyncio"].events._event_loop_policy
    assert policy is None or policy._local._loop is None, "an event loop was made"
"""
    run(f"{before}{spy}{statement}\n{after}")
