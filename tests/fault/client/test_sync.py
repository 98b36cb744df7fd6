"""`SyncClient` where scripts are rough: many threads, Ctrl+C, servers that die, programs that forget to close (P33).

What ends a whole program is tried on whole programs: each is a script in a process of its own, which must end soon, with
the code its author expects, and leave no child behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.faults import is_alive
from tests.support.until import PATIENCE, wait_until

from trimaran import Context, Server, SyncClient, errors

from .peers import Journal, evil_command

SECONDS = PATIENCE
ERAS = pytest.mark.parametrize("era", ["modern", "legacy"])


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


def command(era: str, journal: Journal, **options: Any) -> list[str]:
    return evil_command(era, journal=journal.path, **options)


class Background:
    """Something done in another thread; what it returned or raised."""

    def __init__(self, work: Any, *args: Any, **kwargs: Any) -> None:
        self.outcome: Any = None
        self.error: BaseException | None = None

        def run() -> None:
            try:
                self.outcome = work(*args, **kwargs)
            except BaseException as error:
                self.error = error

        self.thread = threading.Thread(target=run)
        self.thread.start()

    def join(self, seconds: float = SECONDS) -> Background:
        self.thread.join(seconds)
        assert not self.thread.is_alive(), "hangs"
        return self


def in_flight(client: SyncClient, number: int = 1) -> None:
    wait_until(lambda: len(client.requests) >= number, f"{number} calls are in flight")


def no_threads_of_ours() -> None:
    wait_until(
        lambda: not [one for one in threading.enumerate() if one.name.startswith("trimaran-client")],
        "the client's thread is gone",
    )


# --- threads ---------------------------------------------------------------------------------------------------------


@ERAS
def test_many_threads_call_list_and_listen_at_once(era: Any, journal: Journal) -> None:
    with SyncClient(command(era, journal), era=era) as client:

        def work(number: int) -> list[str]:
            found = [client.call_tool("echo", {"text": f"{number}.{n}"}).text for n in range(30)]
            assert len(client.list_tools(fresh=True)) > 1
            with pytest.raises(errors.CallError):
                client.call_tool("nobody")
            return found

        works = [Background(work, number) for number in range(12)]
        for number, one in enumerate(works):
            one.join()
            assert one.error is None, repr(one.error)
            assert one.outcome == [f"{number}.{n}" for n in range(30)]
    no_threads_of_ours()


@ERAS
def test_a_call_of_another_thread_can_be_cancelled(era: Any, journal: Journal) -> None:
    with SyncClient(command(era, journal), era=era) as client:
        client.list_tools()
        waiting = Background(client.call_tool, "never", timeout=None)
        in_flight(client)
        assert client.cancel(client.requests[0], "changed my mind")
        assert isinstance(waiting.join().error, errors.CallCancelled)
        assert not client.cancel(12345)
        assert client.call_tool("echo", {"text": "x"}).text == "x"


@ERAS
def test_closing_from_another_thread_ends_every_wait(era: Any, journal: Journal) -> None:
    client = SyncClient(command(era, journal), era=era).open()
    client.list_tools()
    waiting = [Background(client.call_tool, "never", timeout=None) for _ in range(5)]
    in_flight(client, 5)
    closing = [Background(client.close) for _ in range(3)]
    for one in (*waiting, *closing):
        one.join()
    assert [type(one.error) for one in waiting] == [errors.Closed] * 5
    assert [one.error for one in closing] == [None] * 3
    assert client.state == "closed"
    assert not any(is_alive(pid) for pid in journal.pids())
    no_threads_of_ours()


def test_everyone_who_closes_returns_when_it_is_closed(journal: Journal) -> None:
    """The second close() finds the first one at work, and waits for the same end."""
    client = SyncClient(command("modern", journal, deaf=1), grace=0.3).open()
    pid = client.pid
    assert pid is not None
    first = Background(client.close)
    wait_until(lambda: client._loop is None, "the first close is at work")
    client.close()
    is_running = is_alive(pid)
    first.join()
    assert not is_running, "close() returned while the child was still running"


def test_closing_while_another_thread_opens_ends_the_opening(journal: Journal) -> None:
    client = SyncClient(command("modern", journal, start="silent"))
    opening = Background(client.open)
    wait_until(journal.pids, "the child is up")
    client.close()
    assert isinstance(opening.join().error, errors.Closed), repr(opening.error)
    wait_until(lambda: not any(is_alive(pid) for pid in journal.pids()), "the child is gone")
    no_threads_of_ours()


async def test_inside_a_running_loop_over_every_transport(journal: Journal) -> None:
    """P33: the loop of the notebook stands still meanwhile; the client's own does not."""
    with SyncClient(command("legacy", journal), era="legacy") as client:
        assert client.call_tool("echo", {"text": "x"}).text == "x"

        async def beside() -> str:
            return (await asyncio.to_thread(client.call_tool, "echo", {"text": "y"})).text

        assert await asyncio.gather(*(beside() for _ in range(5))) == ["y"] * 5
    no_threads_of_ours()


# --- handlers --------------------------------------------------------------------------------------------------------


def asking() -> Server:
    server = Server("asking", version="1")

    @server.tool(timeout=600)
    async def book(ctx: Context) -> str:
        answer = await ctx.elicit("Where to?", {"type": "object", "properties": {"city": {"type": "string"}}})
        return f"{answer.action}: {answer.content}"

    return server


@ERAS
def test_a_plain_handler_may_wait_for_a_person(era: Any) -> None:
    """It waits as input() does, in a thread of its own; other calls go on meanwhile."""
    typed = threading.Event()
    asked = threading.Event()

    def on_elicit(ask: Any) -> Any:
        assert ask.message == "Where to?"
        asked.set()
        assert typed.wait(SECONDS)
        return {"city": "Oslo"}

    with SyncClient(asking(), era=era, on_elicit=on_elicit, timeout=0.5) as client:
        waiting = Background(client.call_tool, "book")
        assert asked.wait(SECONDS)
        time.sleep(0.6)  # longer than the timeout: a person's time is not the server's
        client.ping()
        typed.set()
        assert waiting.join().error is None, repr(waiting.error)
        assert "Oslo" in waiting.outcome.text


@ERAS
def test_a_handler_that_fails_fails_its_call_with_a_known_error(era: Any) -> None:
    def on_elicit(ask: Any) -> Any:
        raise LookupError("no terminal")

    with SyncClient(asking(), era=era, on_elicit=on_elicit) as client:
        try:
            result = client.call_tool("book")
        except Exception as error:
            assert isinstance(error, (errors.Error, LookupError)), repr(error)
        else:
            assert result.is_error
        client.ping()


# --- losses and errors -----------------------------------------------------------------------------------------------


@ERAS
def test_a_killed_server_ends_the_wait_and_the_next_call_works(era: Any, journal: Journal) -> None:
    with SyncClient(command(era, journal), era=era) as client:
        client.list_tools()
        waiting = Background(client.call_tool, "never", timeout=None)
        in_flight(client)
        assert client.pid is not None
        os.kill(client.pid, signal.SIGKILL)
        assert isinstance(waiting.join().error, errors.ConnectionLost)
        assert client.call_tool("echo", {"text": "x"}).text == "x"


@ERAS
def test_every_error_keeps_its_type_and_its_traceback(era: Any, journal: Journal) -> None:
    with SyncClient(command(era, journal), era=era, retries=0) as client:
        for act, kind in (
            (lambda: client.call_tool("nobody"), errors.CallError),
            (lambda: client.call_tool("never", timeout=0.1), errors.TimedOut),
            (lambda: client.call_tool("echo", {"text": object()}), errors.LocalProtocolError),
            (lambda: client.list_prompts(), errors.Unsupported),
            (lambda: client.listen(), errors.ConfigError),
            (lambda: client.subscribe("a:b", print), errors.Unsupported),
            (lambda: client.call_tool("hang_up"), errors.ConnectionLost),
        ):
            with pytest.raises(kind) as caught:
                act()
            assert caught.traceback[0].path == Path(__file__)
    with pytest.raises(errors.Closed):
        client.call_tool("echo")


def test_a_client_is_entered_once(journal: Journal) -> None:
    client = SyncClient(command("modern", journal))
    with client:
        with pytest.raises(errors.NotReady):
            client.__enter__()
        client.ping()
    with pytest.raises(errors.Closed):
        with client:
            pass
    no_threads_of_ours()


def test_a_failed_open_leaves_no_thread(free_port: int) -> None:
    for target in (f"http://127.0.0.1:{free_port}/mcp", ["/no/such/program"]):
        with pytest.raises(errors.ConnectFailed):
            SyncClient(target).open()
    no_threads_of_ours()


class Alarm(Exception):
    pass


@pytest.fixture
def alarm() -> Iterator[None]:
    def ring(number: int, frame: Any) -> None:
        raise Alarm

    before = signal.signal(signal.SIGUSR1, ring)
    yield
    signal.signal(signal.SIGUSR1, before)


def strike_when(condition: Any) -> threading.Thread:
    main = threading.main_thread().ident
    assert main is not None

    def strike() -> None:
        deadline = time.monotonic() + SECONDS
        while not condition() and time.monotonic() < deadline:
            time.sleep(0.005)
        time.sleep(0.05)
        signal.pthread_kill(main, signal.SIGUSR1)

    thread = threading.Thread(target=strike)
    thread.start()
    return thread


@ERAS
@pytest.mark.usefixtures("alarm")
def test_whatever_a_signal_raises_cancels_the_call_it_interrupts(era: Any, journal: Journal) -> None:
    """Not only Ctrl+C: a handler of SIGTERM or SIGALRM raises something else, and nobody waits for the answer either."""
    with SyncClient(command(era, journal), era=era) as client:
        client.list_tools()
        thread = strike_when(lambda: client.requests)
        with pytest.raises(Alarm):
            client.call_tool("never", timeout=None)
        thread.join()
        wait_until(lambda: client.requests == (), "nothing waits any more")
        wait_until(lambda: journal.messages("notifications/cancelled"), "the server is told")
        assert client.call_tool("echo", {"text": "x"}).text == "x"


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


@ERAS
@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_ends_an_iteration_and_is_what_the_program_sees(era: Any) -> None:
    server = asking()
    with SyncClient(server, era=era) as client:
        thread = strike_when(lambda: client._async._watch._watchers)
        with pytest.raises(KeyboardInterrupt):
            for _ in client.listen(tools=True):
                pass
        thread.join()
        wait_until(lambda: not client._async._watch._watchers, "nobody listens any more")
        client.ping()


# --- whole programs --------------------------------------------------------------------------------------------------

PRELUDE = """
import os, sys, threading, time
from trimaran import SyncClient, Server, Context, errors
command = {command!r}
def ready():
    print("ready", flush=True)
def asking():
    server = Server("asking", version="1")
    @server.tool(timeout=600)
    async def book(ctx: Context) -> str:
        return str(await ctx.elicit("Where to?", {{"type": "object", "properties": {{}}}}))
    return server
"""


class Program:
    """A script in a process of its own."""

    def __init__(self, script: str, command: list[str], tmp_path: Path) -> None:
        path = tmp_path / "script.py"
        path.write_text(PRELUDE.format(command=command) + script)
        self.process = subprocess.Popen(
            [sys.executable, str(path)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def ready(self) -> Program:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == "ready\n", line + (self.process.stderr.read() if self.process.stderr and not line else "")
        return self

    def ends(self, seconds: float) -> tuple[int, str, str]:
        """Its code and what it said; it must end in this time."""
        try:
            out, err = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            _, err = self.process.communicate()
            raise AssertionError(f"the program still runs after {seconds:g} s: {err[-500:]}") from None
        return self.process.returncode, out, err


def all_gone(journal: Journal) -> None:
    wait_until(lambda: not any(is_alive(pid) for pid in journal.pids()), "the children are gone")


INTERRUPTED = {
    "a call": """
with SyncClient(command) as client:
    client.list_tools()
    threading.Timer(0.1, ready).start()
    client.call_tool("never", timeout=None)
""",
    "a call outside of with": """
client = SyncClient(command).open()
client.list_tools()
threading.Timer(0.1, ready).start()
client.call_tool("never", timeout=None)
""",
    "an iteration": """
with SyncClient(asking()) as client:
    threading.Timer(0.2, ready).start()
    for change in client.listen(tools=True):
        pass
""",
    "an opening": """
command.append("start=silent")
threading.Timer(0.3, ready).start()
with SyncClient(command) as client:
    pass
""",
    "a person who is asked": """
def on_elicit(ask):
    ready()
    time.sleep(60)
with SyncClient(asking(), on_elicit=on_elicit) as client:
    client.call_tool("book", timeout=None)
""",
    "calls of other threads": """
client = SyncClient(command).open()
client.list_tools()
threads = [threading.Thread(target=client.call_tool, args=("never",), kwargs={"timeout": None}) for _ in range(3)]
def quietly(args): pass
threading.excepthook = quietly
with __import__("contextlib").closing(client):
    for thread in threads:
        thread.start()
    threading.Timer(0.2, ready).start()
    client.call_tool("never", timeout=None)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("what", list(INTERRUPTED))
def test_ctrl_c_ends_the_program(what: str, journal: Journal, tmp_path: Path) -> None:
    """P33: soon, with a KeyboardInterrupt for all to see, and with nothing left running."""
    with Program(INTERRUPTED[what], command("modern", journal), tmp_path) as program:
        program.ready()
        program.process.send_signal(signal.SIGINT)
        code, _, err = program.ends(6.0)
        assert code in (-signal.SIGINT, 130), f"{code}: {err}"
        assert "KeyboardInterrupt" in err
        for noise in ("RuntimeError", "never retrieved", "was destroyed", "never awaited"):
            assert noise not in err, err
    all_gone(journal)


FORGOTTEN = {
    "collected": """
client = SyncClient(command).open()
assert client.call_tool("echo", {"text": "x"}).text == "x"
del client
import gc; gc.collect()
ready()
""",
    "kept to the end": """
client = SyncClient(command).open()
assert client.call_tool("echo", {"text": "x"}).text == "x"
ready()
""",
    "never opened": """
client = SyncClient(command)
ready()
""",
    "with an iteration begun": """
client = SyncClient(asking()).open()
changes = client.listen(tools=True)
threading.Thread(target=next, args=(changes, None), daemon=True).start()
time.sleep(0.2)
ready()
""",
    "with a call waiting in a daemon thread": """
client = SyncClient(command).open()
client.list_tools()
threading.Thread(target=client.call_tool, args=("never",), kwargs={"timeout": None}, daemon=True).start()
time.sleep(0.2)
ready()
""",
    "after an exception": """
def main():
    client = SyncClient(command).open()
    ready()
    sys.exit(client.call_tool("echo", {"text": "0"}).text != "0")
main()
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("how", list(FORGOTTEN))
def test_a_client_nobody_closes_does_not_keep_the_program(how: str, journal: Journal, tmp_path: Path) -> None:
    with Program(FORGOTTEN[how], command("modern", journal), tmp_path) as program:
        program.ready()
        code, _, err = program.ends(6.0)
        assert (code, err) == (0, "")
    all_gone(journal)


@pytest.mark.slow
def test_a_deaf_child_does_not_outlive_a_program_that_forgot_it(journal: Journal, tmp_path: Path) -> None:
    """It ignores the end of its input and SIGTERM: only closing the client ends it, so the exit has to."""
    with Program(FORGOTTEN["kept to the end"], command("modern", journal, deaf=1), tmp_path) as program:
        program.ready()
        code, _, err = program.ends(10.0)
        assert (code, err) == (0, "")
    try:
        all_gone(journal)
    finally:
        for pid in journal.pids():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_a_client_that_is_collected_ends_its_thread_and_its_child(journal: Journal) -> None:
    """A notebook cell that is run again makes a new client each time; the old ones must not pile up."""
    client = SyncClient(command("modern", journal)).open()
    pid, loop, inner = client.pid, client._loop, client._async
    assert pid is not None
    assert loop is not None
    del client
    import gc

    gc.collect()
    try:
        wait_until(lambda: not is_alive(pid), "the child of a client that is gone has ended")
        no_threads_of_ours()
    finally:
        if loop.is_running():
            asyncio.run_coroutine_threadsafe(inner.close(), loop).result(SECONDS)
            loop.call_soon_threadsafe(loop.stop)
            no_threads_of_ours()
