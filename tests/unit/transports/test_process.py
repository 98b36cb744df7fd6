"""A child process as a channel: what it says, what it is told, and that it ends, on both loops."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.until import PATIENCE, soon

from trimaran.client.link import Channel
from trimaran.errors import ConfigError, ConnectFailed, ConnectionLost, Error, LocalProtocolError, NotReady
from trimaran.transports import process
from trimaran.transports.process import ChildChannel

from .conftest import FACTORIES

pytestmark = pytest.mark.slow  # nearly all of them start a child, and many wait until it is given up on

LOOPS = ("asyncio", "uvloop")
HERE = Path(__file__).parent
GRACE = 0.2  # seconds between the rungs of the ladder, for children that will not go
OBEDIENT = {"about", "big", "breed", "die", "echo", "flood", "mutter", "shout"}

Open = Callable[..., Any]


class Log:
    """An owner that remembers everything, and can be waited on."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []
        self.losses: list[Error | None] = []
        self.oddities: list[str] = []
        self._news = asyncio.Event()

    def receive(self, message: bytes) -> None:
        self.messages.append(message)
        self._news.set()

    def lost(self, error: Error | None) -> None:
        self.losses.append(error)
        self._news.set()

    def odd(self, what: str) -> None:
        self.oddities.append(what)
        self._news.set()

    async def until(self, condition: Callable[[], Any], seconds: float = PATIENCE) -> None:
        async with asyncio.timeout(seconds):
            while not condition():
                self._news.clear()
                await self._news.wait()

    async def message(self, index: int = 0) -> Any:
        await self.until(lambda: len(self.messages) > index or self.losses)
        if len(self.messages) <= index:
            raise self.losses[0] or EOFError
        return json.loads(self.messages[index])

    async def loss(self) -> ConnectionLost:
        await self.until(lambda: self.losses)
        assert isinstance(self.losses[0], ConnectionLost)
        return self.losses[0]


class Patient(Log):
    """One that knows what to do with a message too long."""

    def __init__(self, answer: bool) -> None:
        super().__init__()
        self.answer = answer
        self.ends: list[tuple[bytes, bytes, int]] = []

    def too_long(self, head: bytes, tail: bytes, limit: int) -> bool:
        self.ends.append((head, tail, limit))
        self._news.set()
        return self.answer


def child(*words: str, **options: Any) -> ChildChannel:
    options.setdefault("grace", PATIENCE if words[0] in OBEDIENT else GRACE)
    return ChildChannel([sys.executable, "-S", "-E", str(HERE / "child.py"), *words], **options)


@pytest.fixture
async def start() -> AsyncIterator[Open]:
    """Open a channel to a child in this mood, and close it at the end."""
    channels: list[ChildChannel] = []

    async def start(*words: str, owner: Any = None, **options: Any) -> tuple[ChildChannel, Any]:
        channel = child(*words, **options)
        channels.append(channel)
        owner = owner or Log()
        await channel.open(owner)
        return channel, owner

    yield start
    for channel in channels:
        await channel.close()


def is_running(pid: int) -> bool:
    """Dead and not yet collected counts as dead: it may be somebody else's to collect."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


async def gone(pid: int, seconds: float = 5) -> None:
    async with asyncio.timeout(seconds):
        while is_running(pid):
            await asyncio.sleep(0.005)


async def idle() -> None:
    """Until nothing runs but the test, though nobody waits for it."""
    async with asyncio.timeout(PATIENCE):
        while asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.sleep(0.005)


# --- messages --------------------------------------------------------------------------------------------------------


async def test_each_line_of_stdout_is_a_message_and_each_message_a_line_of_stdin(start: Open) -> None:
    """R142: one envelope per line."""
    channel, log = await start("echo")
    sent = [json.dumps({"id": n, "text": "é" * n}, ensure_ascii=False).encode() for n in range(500)]
    for message in sent:
        await channel.send(message)
    await log.until(lambda: len(log.messages) == len(sent))
    assert log.messages == sent
    await channel.close()
    assert (log.losses, log.oddities) == ([], [])
    assert channel.postmortem().exit_code == 0


def test_it_is_a_channel() -> None:
    assert isinstance(child("echo"), Channel)


async def test_a_message_of_a_megabyte_travels_whole(start: Open) -> None:
    channel, log = await start("echo")
    message = b'{"x":"' + b"y" * 1_000_000 + b'"}'
    await asyncio.gather(channel.send(message), channel.send(b"{}"))
    await log.until(lambda: len(log.messages) == 2)
    assert log.messages == [message, b"{}"]


async def test_what_is_sent_right_before_the_close_still_arrives(start: Open, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    channel = ChildChannel(["sh", "-c", f"cat > {copy}"], grace=5)
    await channel.open(Log())
    await channel.send(b"{" + b"x" * 500_000 + b"}")
    await channel.close()
    assert copy.stat().st_size == 500_003


async def test_a_message_with_a_newline_is_refused_and_nothing_is_sent(start: Open) -> None:
    channel, log = await start("echo")
    with pytest.raises(LocalProtocolError, match="one line"):
        await channel.send(b"{\n}")
    await channel.send(b"[1]")
    assert await log.message() == [1]


async def test_lines_that_are_no_messages_are_oddities(start: Open) -> None:
    """P30: a banner, a log line, a prompt: named, dropped, survived."""
    lines = (r"Welcome!\n", r"\n", r"[1]\r\n", r"\xff\xfe\n", "z" * 300 + r"\n", r"  {}\n")
    _, log = await start("shout", *lines)
    await log.loss()
    assert log.messages == [b"[1]", b"  {}"]
    assert log.oddities == [
        "sent a line on stdout that is not a message: 'Welcome!'",
        "sent a line on stdout that is not a message: '\ufffd\ufffd'",
        f"sent a line on stdout that is not a message: '{'z' * 120}'...",
    ]


async def test_half_a_line_before_the_end_is_an_oddity(start: Open) -> None:
    _, log = await start("shout", r'{"id":1}\n{"id":2,"resu')
    await log.loss()
    assert log.messages == [b'{"id":1}']
    assert log.oddities == ["""ended its stdout in the middle of a line: '{"id":2,"resu'"""]


async def test_a_whole_message_before_the_end_needs_no_newline(start: Open) -> None:
    _, log = await start("shout", r'{"id":1}\n{"id":2}')
    await log.loss()
    assert (log.messages, log.oddities) == ([b'{"id":1}', b'{"id":2}'], [])


async def test_a_message_too_long_is_handed_over_by_its_ends_and_the_next_one_arrives(start: Open) -> None:
    channel, log = await start("big", "100000", owner=Patient(True), max_message_bytes=50_000)
    await channel.send(b"7")
    await channel.send(b"8")
    await log.until(lambda: len(log.ends) == 2)
    head, tail, limit = log.ends[0]
    assert head == b'{"result":"' + b"x" * 245
    assert tail == b"x" * 247 + b'","id":7}'
    assert limit == 50_000
    assert log.ends[1][1].endswith(b'"id":8}')
    assert set(log.oddities) <= {"sent a line on stdout that is longer than 50000 bytes"}
    assert (log.messages, log.losses) == ([], [])


@pytest.mark.parametrize("owner", [Log, lambda: Patient(False)], ids=["knows-nothing", "declines"])
async def test_a_message_too_long_ends_the_channel_unless_the_owner_takes_it(start: Open, owner: Any) -> None:
    """R142: a line over the limit closes the connection."""
    channel, log = await start("big", "1000", owner=owner(), max_message_bytes=100)
    await channel.send(b"7")
    assert "a message of more than 100 bytes (max_message_bytes)" in str(await log.loss())
    with pytest.raises(ConnectionLost, match="more than 100 bytes"):
        await channel.send(b"8")
    await channel.close()
    assert len(log.losses) == 1


async def test_an_endless_line_is_an_oddity_as_soon_as_it_is_too_long(start: Open) -> None:
    channel = ChildChannel(["sh", "-c", "printf '{%0200d' 1; cat >/dev/null"], max_message_bytes=100, grace=GRACE)
    log = Log()
    await channel.open(log)
    await log.until(lambda: log.oddities)
    assert log.oddities == ["sent a line on stdout that is longer than 100 bytes"]
    await channel.close()


# --- the start -------------------------------------------------------------------------------------------------------


async def test_the_child_gets_no_secret_that_nobody_named(start: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose rule: ours, as the official SDK has it; R228 (merged over the parent's) yields."""
    for name in ("GITHUB_TOKEN", "AWS_SECRET_ACCESS_KEY", "TRIMARAN_TOKEN", "DATABASE_URL", "SSH_AUTH_SOCK"):
        monkeypatch.setenv(name, "hunter2-hunter2")
    _, log = await start("about", env={"GITHUB_TOKEN": "named"})
    env = (await log.message())["env"]
    assert "hunter2-hunter2" not in env.values()
    assert env["GITHUB_TOKEN"] == "named"
    assert env["PATH"] == os.environ["PATH"]


async def test_a_dead_childs_error_says_which_variable_it_seems_to_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_TOKEN", "hunter2")
    words = ["sh", "-c", "echo 'FATAL: GITHUB_TOKEN and NOWHERE_SET are not set' >&2; exit 3"]
    for env, inherits, is_told in (({}, False, True), ({"GITHUB_TOKEN": "x"}, False, False), ({}, True, False)):
        channel, log = ChildChannel(words, env=env, inherit_env=inherits), Log()
        await channel.open(log)
        lost = await log.loss()
        await channel.close()
        assert ('env = { GITHUB_TOKEN = "${GITHUB_TOKEN}" }' in str(lost)) is is_told
        assert "hunter2" not in str(lost)


async def test_the_child_has_our_whole_environment_where_that_is_said(
    start: Open, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TRIMARAN_KEPT", "kept")
    monkeypatch.setenv("TRIMARAN_CHANGED", "old")
    expected = {**os.environ, "TRIMARAN_CHANGED": "new", "TRIMARAN_ADDED": "é"}
    channel, log = await start(
        *("about", "a b", ""),
        env={"TRIMARAN_CHANGED": "new", "TRIMARAN_ADDED": "é"},
        inherit_env=True,
        cwd=tmp_path,
    )
    about = await log.message()
    about["env"].pop("LC_CTYPE", None)  # Python itself sets it when the locale is C
    expected.pop("LC_CTYPE", None)
    assert about["env"] == expected
    assert about["cwd"] == str(tmp_path)
    assert about["args"] == ["a b", ""]
    assert about["pid"] == channel.pid
    assert channel.describe().endswith("child.py about 'a b' ''")
    await channel.close()
    assert channel.pid is None


def script(path: Path, text: str = "#!/bin/sh\nexec cat\n", mode: int = 0o755) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(("command", "where"), [("ship", "PATH"), ("./ship", "cwd"), ("../bin/ship", "cwd")])
async def test_a_command_is_found_on_the_given_path_or_under_cwd(tmp_path: Path, command: str, where: str) -> None:
    directory = script(tmp_path / "bin" / "ship").parent
    if where == "PATH":
        channel = ChildChannel([command], env={"PATH": f"{directory}{os.pathsep}{os.environ['PATH']}"})
    else:
        channel = ChildChannel([command], cwd=directory)
    log = Log()
    await channel.open(log)
    await channel.send(b"{}")
    assert await log.message() == {}
    await channel.close()


async def refused(channel: ChildChannel) -> str:
    with pytest.raises(ConnectFailed) as caught:
        await channel.open(Log())
    await channel.close()
    with pytest.raises(ConnectionLost):
        await channel.send(b"{}")
    return str(caught.value)


async def test_an_unknown_command_is_named_and_the_path_is_not_spelt_out() -> None:
    """P35: a wrong command is an error at once, not a silent wait. A PATH of thirty directories would bury what to do."""
    said = await refused(ChildChannel(["no-such-ship", "--x"], env={"PATH": "/nowhere:/else"}))
    assert said == (
        "cannot start no-such-ship --x: there is no command 'no-such-ship' in the 2 directories of PATH. "
        "Install it, or give its full path"
    )


async def test_a_command_line_in_one_word_is_told_apart() -> None:
    assert (await refused(ChildChannel(["python server.py"]))).endswith(
        "Give the program and its arguments apart: ['python', 'server.py']"
    )


async def test_what_cannot_be_started_is_said_exactly(tmp_path: Path) -> None:
    """P35."""
    file = script(tmp_path / "file", mode=0o644)
    assert f"{str(file)!r} may not be executed (permission denied): chmod +x" in await refused(
        ChildChannel([str(file)])
    )
    assert f"{str(file)!r} may not be executed" in await refused(ChildChannel(["file"], env={"PATH": str(tmp_path)}))
    assert "is a directory, not a program" in await refused(ChildChannel([str(tmp_path)]))
    assert f"there is no file '{tmp_path}/./none'" in await refused(ChildChannel(["./none"], cwd=tmp_path))
    assert "does not exist" in await refused(ChildChannel(["cat"], cwd=tmp_path / "none"))
    assert f"working directory {str(file)!r} is not a directory" in await refused(ChildChannel(["cat"], cwd=file))
    orphan = script(tmp_path / "orphan", "#!/no/such/python\n")
    assert "the interpreter that its first line (#!) names is not" in await refused(ChildChannel([str(orphan)]))
    assert "longer than the system allows" in await refused(ChildChannel(["cat", "x" * 10_000_000]))


@pytest.mark.asyncio(loop_factories=["asyncio"])
async def test_a_file_of_no_known_format_is_said_to_be_one(tmp_path: Path) -> None:
    """Ours. uvloop hands such a file to a shell, as execvp does; what the shell thinks of it is then on stderr."""
    strange = script(tmp_path / "strange", "\0\1\2")
    assert "exec format error" in await refused(ChildChannel([str(strange)]))


@pytest.mark.asyncio(loop_factories=["asyncio"])
@pytest.mark.parametrize("failing", ["connect_write_pipe", "connect_read_pipe"])
async def test_a_start_that_fails_half_way_leaves_nothing(monkeypatch: pytest.MonkeyPatch, failing: str) -> None:
    async def fail(*_: object) -> None:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(asyncio.get_running_loop(), failing, fail)
    assert "too many open files" in await refused(child("stubborn", "15", grace=60))
    assert guardians() == {}


def test_the_reasons_of_a_system_that_gives_none_we_know_are_passed_on() -> None:
    explain: Any = vars(process)["_explain"]
    assert explain(OSError(errno.EAGAIN, "no more processes"), "cat").endswith("no more processes")
    assert "may not be executed" in explain(PermissionError(errno.EACCES, "no"), "cat")
    assert "ProactorEventLoop" in explain(NotImplementedError(), "cat")


@pytest.mark.parametrize(
    ("command", "env", "said"),
    [
        ("python server.py", {}, r"\['python', 'server.py'\]"),
        ([], {}, "at least the program"),
        ([""], {}, "at least the program"),
        (["cat", "a\0b"], {}, "null byte"),
        (["cat"], {"PORT": 80}, "PORT must be a string, not 80"),
        (["cat"], {"": ""}, "no environment can hold"),
        (["cat"], {"A=B": ""}, "no environment can hold"),
        (["cat"], {"A": "\0"}, "no environment can hold"),
    ],
    ids=["string", "empty", "nameless", "null", "number", "no-name", "equals", "null-value"],
)
def test_what_is_no_command_is_refused_before_anything_starts(command: Any, env: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        ChildChannel(command, env=env)


async def test_a_channel_is_opened_once_and_used_after_that(start: Open) -> None:
    fresh = child("echo")
    with pytest.raises(NotReady):
        await fresh.send(b"{}")
    assert (fresh.pid, fresh.stderr, fresh.postmortem().exit_code) == (None, [], None)
    channel, _ = await start("echo")
    with pytest.raises(ConnectFailed, match="has been used"):
        await channel.open(Log())
    await channel.close()
    with pytest.raises(ConnectFailed, match="has been used"):
        await channel.open(Log())
    with pytest.raises(ConnectionLost, match="was closed"):
        await channel.send(b"{}")


# --- stderr ----------------------------------------------------------------------------------------------------------


async def test_stderr_is_kept_logged_and_given_away_line_by_line(start: Open, caplog: pytest.LogCaptureFixture) -> None:
    """P34: always piped, never lost."""
    caplog.set_level(logging.DEBUG, "trimaran.child")
    given: list[str] = []
    lines = (r"one\r\n\ntw", r"o\xc3\xa9\n", r"\xff\n", "x" * 20_000 + r"\nlast")
    channel, log = await start("mutter", *lines, on_stderr=given.append)
    await channel.send(b"{}")
    await log.message()
    await channel.close()
    expected = ["one", "", "twoé", "\ufffd", "x" * 8192, "last"]
    assert given == expected
    assert channel.stderr == expected
    assert list(channel.postmortem().stderr) == expected
    told = [record for record in caplog.records if record.name == "trimaran.child"]
    assert [record.args[1] for record in told if record.args] == expected  # pyright: ignore[reportArgumentType]
    assert all("child.py mutter" in record.getMessage() for record in told)


async def test_a_line_of_stderr_that_has_not_ended_shows_already(start: Open) -> None:
    channel, log = await start("mutter", "Password: ")
    await channel.send(b"{}")
    await log.message()
    async with asyncio.timeout(PATIENCE):
        while channel.stderr != ["Password: "]:
            await asyncio.sleep(0.005)


async def test_an_on_stderr_that_fails_harms_nobody(start: Open, caplog: pytest.LogCaptureFixture) -> None:
    def fail(line: str) -> None:
        raise ValueError(line)

    channel, log = await start("mutter", r"one\ntwo\n", on_stderr=fail)
    await channel.send(b"{}")
    await log.message()
    await channel.close()
    assert [str(r.exc_info[1]) for r in caplog.records if r.exc_info] == ["one", "two"]
    assert channel.stderr == ["one", "two"]


@pytest.mark.parametrize("is_told", [False, True], ids=["untold", "told"])
async def test_a_flood_on_stderr_is_drained_and_not_kept(start: Open, is_told: bool) -> None:
    """P12, P34: 100 MB go by (20 where each line is wanted); stdout goes on, and only the last 200 lines stay."""
    count = 0

    def hear(line: str) -> None:
        nonlocal count
        count += 1

    size = 20_000_000 if is_told else 100_000_000
    channel, log = await start("flood", str(size), on_stderr=hear if is_told else None)
    await channel.send(b"{}")
    await log.until(lambda: log.messages)
    await channel.close()
    assert channel.stderr == [f"{number:079d}" for number in range(800, 1000)]
    assert count == (size // 80 if is_told else 0)


async def test_stdout_is_not_kept_waiting_by_a_flood_on_stderr() -> None:
    """P12: an answer needs one turn of ours, and between two turns only so many lines of stderr are given away."""
    count = 0

    def hear(line: str) -> None:
        nonlocal count
        count += 1

    noisy = "yes '' >&2 & while read -r line; do echo $line; done; kill $!"
    channel = ChildChannel(["sh", "-c", noisy], grace=PATIENCE, on_stderr=hear)
    log = Log()
    await channel.open(log)
    await channel.send(b"[0]")
    await log.message()
    async with asyncio.timeout(10):
        while not count:
            await asyncio.sleep(0)
    for _ in range(100):
        before = count
        await asyncio.sleep(0)
        assert count - before <= 1000
    await channel.send(b"[1]")
    assert await log.message(1) == [1]
    await channel.close()


# --- the end of a child ----------------------------------------------------------------------------------------------


async def test_a_child_that_dies_says_how_and_why(start: Open) -> None:
    """R142, P34: the exit status, and the crash reason."""
    lines = [f"line {n}" for n in range(300)]
    channel, log = await start("die", "3", *lines)
    error = await log.loss()
    assert error.exit_code == 3
    assert error.stderr == lines[-200:]
    assert error.cause_text.startswith(f"the child process ({sys.executable} -S -E ")
    assert error.cause_text.endswith("...) exited with status 3")
    assert str(error).startswith(error.cause_text)
    assert str(error).endswith(
        "; its stderr says:\n    line 295\n    line 296\n    line 297\n    line 298\n    line 299"
    )
    with pytest.raises(ConnectionLost, match="exited with status 3") as caught:
        await channel.send(b"{}")
    assert caught.value.exit_code == 3
    assert caught.value.stderr == lines[-200:]
    assert channel.postmortem().exit_code == 3
    await channel.close()
    assert len(log.losses) == 1


async def test_the_line_that_names_the_cause_is_shown_whole(start: Open) -> None:
    """P34: what follows it, a stack trace or a usage text, does not hide it."""
    cause = f"FATAL: API_KEY is not set{'!' * 600}"
    _, log = await start("die", "1", cause, *(f"    at frame {n}" for n in range(30)))
    assert str(await log.loss()).endswith(f"; its stderr says:\n    {cause}")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is unread at this end of a pipe")
async def test_what_a_child_has_not_read_is_known(start: Open) -> None:
    channel, log = await start("linger")
    await channel.send(b"{}")
    assert channel.unread() == 3
    await channel.close()
    assert channel.unread() == 3
    channel, log = await start("echo")
    await channel.send(b"{}")
    await log.message()
    assert channel.unread() == 0


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is unread at this end of a pipe")
async def test_a_child_that_dies_without_having_read_anything_has_seen_no_request(start: Open) -> None:
    """ConnectionLost.sent: could the server have seen the request?"""
    channel, log = await start("linger")
    assert channel.pid is not None
    await channel.send(b"{}")
    os.kill(channel.pid, signal.SIGKILL)
    assert (await log.loss()).sent is False
    channel, log = await start("echo")
    assert channel.pid is not None
    await channel.send(b"{}")
    await log.message()
    os.kill(channel.pid, signal.SIGKILL)
    assert (await log.loss()).sent is True


async def test_a_child_that_dies_in_silence_is_said_to(start: Open) -> None:
    _, log = await start("die", "0")
    assert str(await log.loss()).endswith("exited with status 0; it wrote nothing on stderr")


@pytest.mark.parametrize(("number", "name"), [(9, "SIGKILL"), (15, "SIGTERM"), (11, "SIGSEGV")])
async def test_a_child_killed_by_a_signal_is_said_to(start: Open, number: int, name: str) -> None:
    _, log = await start("die_by", str(number))
    error = await log.loss()
    assert f"was killed by {name} ({number})" in str(error)
    assert error.exit_code == -number


async def test_an_exit_that_somebody_else_collects_is_an_end_all_the_same(start: Open) -> None:
    """Ours: a program may reap all its children, ours among them."""
    channel, log = await start("linger")
    pid = channel.pid
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    error = await log.loss()
    assert "ended; it wrote nothing on stderr" in str(error)
    assert error.exit_code is None


@pytest.mark.parametrize(("words", "code"), [(["echo"], 0), (["stubborn", "15"], -9)], ids=["obeys", "stubborn"])
async def test_where_there_are_no_pidfds_a_thread_waits_for_the_exit(
    start: Open, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int
) -> None:
    def refuse(pid: int) -> int:
        raise OSError(errno.ENOSYS, "no such call")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    channel, log = await start(*words)
    await channel.send(b'{"ready":true}')
    assert await log.message() == {"ready": True}
    await channel.close()
    assert channel.postmortem().exit_code == code
    assert channel.pid is None


async def test_what_a_child_answered_before_it_died_comes_before_the_loss(start: Open) -> None:
    channel = ChildChannel(["sh", "-c", "read x; i=0; while [ $i -lt 2000 ]; do echo [$i]; i=$((i+1)); done; exit 7"])
    order: list[object] = []

    class Ordered(Log):
        def receive(self, message: bytes) -> None:
            order.append(json.loads(message)[0])
            super().receive(message)

        def lost(self, error: Error | None) -> None:
            order.append("lost")
            super().lost(error)

    log = Ordered()
    await channel.open(log)
    await channel.send(b"{}")
    assert (await log.loss()).exit_code == 7
    assert order == [*range(2000), "lost"]
    await channel.close()


async def test_the_signs_of_one_end_are_waited_for(start: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ours: stdout may end before the child does, and the child before the last of its group has spoken."""
    monkeypatch.setattr(process, "_SETTLE_SECONDS", PATIENCE)  # a busy machine needs more than the usual half second
    for script in (
        "exec 1>&-; sleep 0.05; echo sunk >&2; exit 3",
        "(sleep 0.05; echo '[1]'; echo sunk >&2) & exit 3",
    ):
        channel, log = ChildChannel(["sh", "-c", script]), Log()
        await channel.open(log)
        error = await log.loss()
        assert (error.exit_code, error.stderr) == (3, ["sunk"])
        assert log.messages == ([b"[1]"] if "[1]" in script else [])
        await channel.close()


async def test_a_dead_child_leaves_nothing_even_if_nobody_closes_it(start: Open) -> None:
    """P10: what was left of its group goes with it, and so does its guardian (the fixtures look)."""
    channel = child("breed", "die")
    log = Log()
    await channel.open(log)
    grandchild = (await log.message())["child"]
    assert (await log.loss()).exit_code == -9
    await gone(grandchild)
    await idle()


async def test_a_loss_is_not_kept_back_by_who_holds_the_pipes_open(start: Open) -> None:
    """Ours: a process that left the group cannot be ended, and is not waited for."""
    channel, log = await start("breed", "escape", "die")
    pid = (await log.message())["child"]
    try:
        began = time.monotonic()
        assert (await log.loss()).exit_code == -9
        await channel.close()
        assert time.monotonic() - began < 20
        assert is_running(pid)
    finally:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(("pipe", "name"), [("0", "input"), ("1", "output")])
async def test_a_child_that_closes_a_pipe_and_stays_is_lost_and_ended(start: Open, pipe: str, name: str) -> None:
    channel, log = await start("shut", pipe)
    pid = channel.pid
    await log.message()
    if pipe == "0":
        # Not every loop notices before the next message that nobody reads.
        with contextlib.suppress(ConnectionLost):
            await channel.send(b"{}")
    assert f"closed its standard {name} and did not exit" in str(await log.loss())
    await gone(pid)
    with pytest.raises(ConnectionLost, match=f"closed its standard {name}"):
        await channel.send(b"{}")


async def test_a_child_may_close_its_stderr_and_go_on(start: Open) -> None:
    channel, log = await start("shut", "2")
    await channel.send(b"[1]")
    assert await log.message(1) == [1]
    await asyncio.sleep(0)
    assert log.losses == []


# --- flow control ----------------------------------------------------------------------------------------------------

CHUNK = b'{"x":"' + b"y" * 100_000 + b'"}'


async def blocked(tasks: list[asyncio.Task[None]]) -> None:
    """Until some of them are sent and the rest wait, whatever the pipes hold."""
    async with asyncio.timeout(10):
        while not any(task.done() for task in tasks):
            await asyncio.sleep(0)
    for _ in range(100):
        await asyncio.sleep(0)
    assert not all(task.done() for task in tasks)


async def test_senders_wait_for_a_child_that_does_not_read_and_keep_their_order(start: Open) -> None:
    channel, log = await start("deaf")
    await log.message()
    order: list[int] = []

    async def send(n: int) -> None:
        order.append(n)
        await channel.send(b'[%d,"%s"]' % (n, b"y" * 50_000))

    tasks = [asyncio.create_task(send(n)) for n in range(20)]
    await blocked(tasks)
    tasks[15].cancel()  # never sent; nobody else notices
    os.kill(channel.pid, signal.SIGUSR1)
    while len(tasks) < 100 and not all(task.done() for task in tasks[:20]):
        # One at each turn, so that some come just when the others may go on.
        tasks.append(asyncio.create_task(send(len(tasks))))
        await asyncio.sleep(0)
    await asyncio.gather(*tasks, return_exceptions=True)
    order.remove(15)
    await log.until(lambda: len(log.messages) > len(order))
    assert [json.loads(message)[0] for message in log.messages[1:]] == order


@pytest.mark.parametrize("how", ["close", "kill"])
async def test_senders_that_wait_are_released_when_the_child_ends(start: Open, how: str) -> None:
    channel, log = await start("deaf")
    await log.message()
    tasks = [asyncio.create_task(channel.send(CHUNK)) for _ in range(20)]
    await blocked(tasks)
    if how == "close":
        await channel.close()
    else:
        os.kill(channel.pid, signal.SIGKILL)
        assert (await log.loss()).exit_code == -9
    results = await soon(asyncio.gather(*tasks, return_exceptions=True))
    errors = [result for result in results if result is not None]
    assert errors
    assert all(isinstance(error, ConnectionLost) for error in errors)
    assert ("was closed" if how == "close" else "SIGKILL") in str(errors[0])


# --- close -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "code"),
    [(["echo"], 0), (["stubborn"], -15), (["stubborn", "15"], -9), (["deaf"], -15)],
    ids=["obeys-eof", "ignores-eof", "ignores-term", "never-reads"],
)
async def test_close_asks_by_eof_then_by_term_then_kills(start: Open, words: list[str], code: int) -> None:
    """P10."""
    channel, log = await start(*words)
    pid = channel.pid
    if words != ["echo"]:
        await log.message()
        await channel.send(CHUNK)
    began = time.monotonic()
    await channel.close()
    assert channel.postmortem().exit_code == code
    assert not is_running(pid)
    assert time.monotonic() - began < 2 * GRACE + 15
    assert log.losses == []


async def test_close_ends_the_whole_group(start: Open) -> None:
    """P10: what the child started goes with it, though it ignores EOF and SIGTERM, though its parent ended well."""
    channel, log = await start("breed")
    grandchild = (await log.message())["child"]
    await log.message(1)
    await channel.close()
    assert channel.postmortem().exit_code == 0
    await gone(grandchild)


async def test_close_may_be_called_by_anybody_any_number_of_times(start: Open) -> None:
    channel, log = await start("stubborn", "15")
    await log.message()
    closers = [asyncio.create_task(channel.close()) for _ in range(5)]
    await asyncio.sleep(0)
    assert not any(closer.done() for closer in closers)
    await asyncio.gather(channel.close(), *closers)
    assert channel.postmortem().exit_code == -9
    await channel.close()
    assert log.losses == []


async def test_close_before_open_is_fine_and_final() -> None:
    channel = child("echo")
    await channel.close()
    await channel.close()
    with pytest.raises(ConnectFailed):
        await channel.open(Log())


async def test_a_close_that_is_cancelled_kills_at_once(start: Open) -> None:
    channel, log = await start("stubborn", "15", grace=60)
    pid = channel.pid
    await log.message()
    closing = asyncio.create_task(channel.close())
    other = asyncio.create_task(channel.close())
    for _ in range(3):
        await asyncio.sleep(0)
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await soon(other)
    assert not is_running(pid)
    assert channel.postmortem().exit_code == -9


async def test_a_close_that_nobody_waits_for_any_more_still_completes(start: Open) -> None:
    channel = child("stubborn", "15", grace=60)
    log = Log()
    await channel.open(log)
    await log.message()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await channel.close()
    await idle()
    assert channel.postmortem().exit_code == -9


@pytest.mark.parametrize("turns", range(8))
async def test_an_open_that_is_cancelled_leaves_no_child(start: Open, turns: int) -> None:
    channel = child("stubborn", "15", grace=60)
    opening = asyncio.create_task(channel.open(Log()))
    for _ in range(turns):
        await asyncio.sleep(0)
    opening.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await opening
    if not opening.cancelled():
        closing = asyncio.create_task(channel.close())
        await asyncio.sleep(0)
        closing.cancel()
    async with asyncio.timeout(PATIENCE):
        with contextlib.suppress(asyncio.CancelledError):
            await channel.close()
    assert channel.pid is None


@pytest.mark.parametrize("turns", range(1, 8))
async def test_a_close_during_open_ends_the_child(start: Open, turns: int) -> None:
    channel = child("echo")
    opening = asyncio.create_task(channel.open(Log()))
    for _ in range(turns):
        await asyncio.sleep(0)
    await channel.close()
    [outcome] = await asyncio.gather(opening, return_exceptions=True)
    assert outcome is None or isinstance(outcome, ConnectFailed)
    assert channel.pid is None


async def test_after_close_nothing_is_heard(start: Open) -> None:
    channel, log = await start("stubborn")
    await log.message()
    await channel.close()
    count = len(log.messages)
    for _ in range(10):
        await asyncio.sleep(0)
    assert (len(log.messages), log.losses) == (count, [])


@pytest.mark.parametrize("loop", LOOPS)
def test_a_loop_that_ends_takes_its_children_along(loop: str) -> None:
    """Ours: `asyncio.run` cancels what is left, the end of a child too; the child is killed then, and collected."""
    pids: list[int] = []

    async def main() -> None:
        channel = child("stubborn", "15", grace=60)
        log = Log()
        await channel.open(log)
        await log.message()
        assert channel.pid
        pids.append(channel.pid)
        asyncio.create_task(channel.close())
        await asyncio.sleep(0.01)

    with asyncio.Runner(loop_factory=FACTORIES[loop]) as runner:
        runner.run(main())
    assert not is_running(pids[0])


# --- the guardian, and the death of the parent -----------------------------------------------------------------------


@pytest.fixture
def parent(request: pytest.FixtureRequest) -> Iterator[Callable[..., tuple[subprocess.Popen[bytes], int, int]]]:
    processes: list[subprocess.Popen[bytes]] = []
    others: list[int] = []

    def parent(*words: str) -> tuple[subprocess.Popen[bytes], int, int]:
        started = subprocess.Popen([sys.executable, str(HERE / "parent.py"), *words], stdout=subprocess.PIPE)
        processes.append(started)
        assert started.stdout is not None
        pid, copy = map(int, started.stdout.readline().split())
        others.extend(filter(None, (pid, copy)))
        return started, pid, copy

    yield parent
    for started in processes:
        started.kill()
        started.wait()
        assert started.stdout is not None
        started.stdout.close()
    for pid in others:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def wait_gone(pid: int, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not is_running(pid)


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_a_child_does_not_outlive_a_parent_that_is_killed(parent: Any, loop: str) -> None:
    """P10: though the child ignores EOF and SIGTERM."""
    process, pid, _ = parent(loop)
    assert is_running(pid)
    process.kill()
    process.wait()
    wait_gone(pid, 2)


@pytest.mark.slow
@pytest.mark.parametrize("loop", LOOPS)
def test_a_forked_copy_of_the_parent_does_not_keep_the_child_alive(parent: Any, loop: str) -> None:
    """P10: (measured elsewhere) children survive where a pipe stays open in another process."""
    process, pid, copy = parent(loop, "fork")
    process.kill()
    process.wait()
    wait_gone(pid, 2)
    assert is_running(copy)


def guardians() -> dict[int, int]:
    """The guardians among our children, by the group they watch."""
    found: dict[int, int] = {}
    for path in Path(f"/proc/{os.getpid()}/task").glob("*/children"):
        for pid in path.read_text().split():
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            if b"trimaran-guardian" in words:
                found[int(words[-2])] = int(pid)
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="looks into /proc")
async def test_a_guardian_holds_nothing_heeds_no_polite_signal_and_goes_with_the_child(start: Open) -> None:
    channel, _ = await start("echo")
    other, _ = await start("echo")
    async with asyncio.timeout(PATIENCE):
        while set(guardians()) != {channel.pid, other.pid}:
            await asyncio.sleep(0.005)
        guardian = guardians()[channel.pid]
        while not ignores(guardian, signal.SIGTERM):
            await asyncio.sleep(0.005)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        os.kill(guardian, number)
    assert {int(fd.name) for fd in Path(f"/proc/{guardian}/fd").iterdir()} <= {0, 1, 2}
    assert os.getsid(guardian) == guardian
    assert is_running(guardian)
    await channel.close()
    assert not is_running(guardian)
    assert set(guardians()) == {other.pid}


def ignores(pid: int, number: int) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    mask = next(line.split()[1] for line in status.splitlines() if line.startswith("SigIgn"))
    return bool(int(mask, 16) >> (number - 1) & 1)


async def test_without_a_shell_there_is_no_guardian_and_all_else_works(
    start: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_SHELL", "/no/such/shell")
    channel, log = await start("echo")
    assert guardians() == {}
    await channel.send(b"{}")
    assert await log.message() == {}
    await channel.close()
    assert channel.postmortem().exit_code == 0


# --- other threads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", LOOPS)
def test_it_works_in_loops_of_other_threads(loop: str) -> None:
    codes: list[int | None] = []

    async def main() -> None:
        for words, code in ((["echo"], 0), (["stubborn", "15"], -9)):
            channel, log = child(*words), Log()
            await channel.open(log)
            await channel.send(b'{"ready":true}')
            assert await log.message() == {"ready": True}
            await channel.close()
            codes.append(channel.postmortem().exit_code)
            assert codes[-1] == code

    def run() -> None:
        with asyncio.Runner(loop_factory=FACTORIES[loop]) as runner:
            runner.run(main())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert sorted(codes, key=str) == [-9] * 4 + [0] * 4
