"""Nothing but messages on standard output, and no log line that stops the server (P11, P12)."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from typing import Any

import pytest
from tests.support.faults import CHILD, INITIALIZED, Child, call, encode, initialize
from tests.support.until import PATIENCE, wait_until

WAYS = ["print", "write", "stdout_buffer", "dunder", "puts", "child"]


def assert_clean(child: Child) -> None:
    said = child.everything()
    assert b"pollution" not in said
    assert all(line.startswith(b"{") for line in said.splitlines())


@pytest.mark.parametrize("way", WAYS)
def test_stray_output_goes_to_stderr(way: str) -> None:
    with Child("stdio") as child:
        for n in range(3):
            assert child.ask(call("pollute", {"way": way}, n))["result"]["content"][0]["text"] == way
        child.end_input()
        assert child.wait() == 0
        assert_clean(child)
        assert child.process.stderr is not None
        shown = child.process.stderr.read().decode()
        assert shown.count(f"pollution by {way}") == (6 if way == "puts" else 3), "it should be seen on stderr"


@pytest.mark.parametrize("way", ["atexit", "libc_atexit"])
def test_output_at_exit_goes_to_stderr(way: str) -> None:
    with Child("stdio") as child:
        child.ask(call("pollute", {"way": way}, 1))
        child.end_input()
        assert child.wait() == 0
        assert_clean(child)


def test_output_before_run_does_not_reach_the_stream() -> None:
    """A print while the program is being imported sits in a buffer: it must not be flushed onto the stream."""
    with Child("stdio", "print_early=true") as child:
        assert child.ask(call("add", {"a": 1, "b": 1}))["result"]["structuredContent"] == 2
        stderr = child.process.stderr
        assert stderr is not None
        shown = bytearray()

        def is_shown() -> bool:
            if b"late" not in shown and select.select([stderr], [], [], 0)[0]:
                shown.extend(os.read(stderr.fileno(), 65536))
            return b"late" in shown

        wait_until(is_shown, "the late print is on stderr")
        assert b"pollution before run" in shown
        child.end_input()
        assert child.wait() == 0
        assert_clean(child)


def test_a_child_process_does_not_eat_the_servers_input() -> None:
    with Child("stdio") as child:
        child.send(call("pollute", {"way": "child_stdin"}, 1), call("add", {"a": 1, "b": 1}, 2))
        answers = {m["id"]: m for m in (child.receive(), child.receive())}
        assert answers[2]["result"]["structuredContent"] == 2
        assert "isError" not in answers[1]["result"] or not answers[1]["result"]["isError"]
        child.end_input()
        assert child.wait() == 0


@pytest.mark.slow
@pytest.mark.deadline(60)
def test_a_full_stderr_pipe_stops_nobody() -> None:
    """10 MB of log lines that nobody reads."""
    with Child("stdio") as child:
        child.ask(initialize())
        child.send(INITIALIZED)
        started = time.monotonic()
        assert child.ask(call("pollute", {"way": "stderr"}, 1), 20)["result"]["content"][0]["text"] == "stderr"
        for n in range(10):
            assert child.ask(call("add", {"a": n, "b": 1}, n + 2))["result"]["structuredContent"] == n + 1
        assert time.monotonic() - started < 20
        child.end_input()
        assert child.wait() == 0
        assert_clean(child)


@pytest.mark.parametrize("closed", ["2>&-", "2>/dev/null", "2>/dev/full"])
def test_a_stderr_that_is_closed_or_broken_is_no_trouble(closed: str) -> None:
    shell: Any = ["/bin/sh", "-c", f'exec "$0" "$1" stdio {closed}', sys.executable, str(CHILD)]
    with Child(command=shell, stderr=subprocess.DEVNULL) as child:
        for way in ("print", "write", "child"):
            child.send(call("pollute", {"way": way}, way))
            child.answer(way)
        assert child.ask(call("add", {"a": 1, "b": 1}))["result"]["structuredContent"] == 2
        child.end_input()
        child.wait()
        assert_clean(child)


def test_a_stderr_whose_reader_has_gone_is_no_trouble() -> None:
    with Child("stdio") as child:
        child.ask(call("add", {"a": 1, "b": 1}))
        assert child.process.stderr is not None
        child.process.stderr.close()
        child.process.stderr = None
        for n, way in enumerate(("print", "write", "child", "stderr", "print")):
            child.send(call("pollute", {"way": way}, f"p{n}"))
            child.answer(f"p{n}", 20)
        assert child.ask(call("add", {"a": 1, "b": 1}))["result"]["structuredContent"] == 2
        child.end_input()
        assert child.wait() == 0


def test_a_stdout_whose_reader_has_gone_ends_the_server_quietly() -> None:
    with Child("stdio") as child:
        child.ask(call("add", {"a": 1, "b": 1}))
        assert child.process.stdout is not None
        child.process.stdout.close()
        child.process.stdout = None
        child.send(call("add", {"a": 1, "b": 1}, 2), call("ticks", {"n": 100}, 3, progressToken="t"))
        child.end_input()
        assert child.wait(PATIENCE) == 0
        assert child.process.stderr is not None
        assert b"Traceback" not in child.process.stderr.read()


@pytest.mark.parametrize("kind", ["file", "tty-less"])
def test_input_and_output_may_be_files(kind: str, tmp_path: Any) -> None:
    """`server < requests > answers`: files cannot be polled."""
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(b"".join(encode(call("add", {"a": n, "b": 1}, n)) + b"\n" for n in range(50)))
    with source.open("rb") as given, target.open("wb") as taken:
        done = subprocess.run(
            [sys.executable, str(CHILD), "stdio"],
            stdin=given,
            stdout=taken,
            stderr=subprocess.PIPE,
            timeout=PATIENCE,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert target.read_bytes().count(b'"result"') == 50
