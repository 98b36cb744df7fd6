"""Children that misbehave as processes: they die, linger, flood, sulk; the client says so, recovers, and leaves none behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from typing import Any

import pytest
from tests.support.until import PATIENCE, soon, until

from trimaran import connect
from trimaran.client.options import Era
from trimaran.errors import ConnectFailed, ConnectionLost, Error, TimedOut

from .peers import ERAS, LAZY, Dock, Peak, assert_usable, evil_command, failure_of, is_alive, took, wrapped


@ERAS
async def test_a_killed_child_fails_its_calls_at_once_and_the_next_has_a_new_one(dock: Dock, era: Era) -> None:
    """P1, P2: kill -9 in mid-call."""
    async with dock.open("stdio", era, timeout=20.0, retries=0) as (client, peer):
        calls = [asyncio.create_task(client.call_tool("never")) for _ in range(10)]
        await until(lambda: peer.calls("never") == 10, "the server has them all")
        assert client.pid is not None
        first = client.pid
        os.kill(first, signal.SIGKILL)
        with took(most=1.0):
            losses = await soon(asyncio.gather(*calls, return_exceptions=True))
        for loss in losses:
            assert isinstance(loss, ConnectionLost), repr(loss)
            assert loss.exit_code == -9
        with took(most=2.0):
            await assert_usable(client)
        assert client.pid != first
        assert not is_alive(first)


@ERAS
async def test_a_child_that_died_while_nobody_looked_is_replaced(dock: Dock, era: Era) -> None:
    async with dock.open("stdio", era, timeout=20.0) as (client, _):
        for _ in range(3):
            assert client.pid is not None
            os.kill(client.pid, signal.SIGKILL)
            await until(lambda: client.state != "ready", "the loss was noticed")
            with took(most=4.0):
                await assert_usable(client)


@ERAS
async def test_the_last_words_come_with_the_loss(dock: Dock, era: Era) -> None:
    """P34: exit code and the last 200 lines."""
    async with dock.open("stdio", era, retries=0) as (client, _):
        assert (await soon(client.call_tool("noisy", {"mb": 1}))).text == "phew"
        await until(lambda: client.stderr[-1:] == ["the last words"], "its stderr was read")
        assert len(client.stderr) == 200
        error = await failure_of(client.call_tool("hang_up"))
        assert isinstance(error, ConnectionLost), repr(error)
        assert error.exit_code == 3
        assert len(error.stderr) <= 200
        assert error.stderr[-1] == "going down"
        assert "3" in str(error)
        assert error.cause_text


@pytest.mark.slow
@ERAS
async def test_a_child_that_floods_stderr_is_read_and_not_kept(dock: Dock, era: Era) -> None:
    """P12, P34."""
    heard = 0

    def hear(line: str) -> None:
        nonlocal heard
        heard += 1

    async with dock.open("stdio", era, timeout=20.0, on_stderr=hear) as (client, _):
        peak = Peak()
        assert (await soon(client.call_tool("noisy", {"mb": 40}), 20)).text == "phew"
        await until(lambda: heard == 40 * 1024 + 1, "every line was heard")
        assert len(client.stderr) == 200
        assert peak.growth < 100, f"grew by {peak.growth:.0f} MB"


async def test_a_line_on_stderr_without_an_end_is_cut(dock: Dock) -> None:
    peak = Peak()
    async with connect(wrapped("import os\nos.write(2, b'x' * 50_000_000)"), timeout=10.0) as client:
        listed = await soon(client.list_tools())
        assert listed
        assert sum(map(len, client.stderr)) < 5_000_000
    assert peak.growth < 150, f"grew by {peak.growth:.0f} MB"


@pytest.mark.slow
@ERAS
async def test_a_deaf_child_is_ended_all_the_same(dock: Dock, era: Era) -> None:
    """It ignores the end of its input and SIGTERM; the ladder ends in SIGKILL."""
    journal = dock.journal()
    client = connect(evil_command(era, journal=journal.path, deaf=1), grace=0.3)
    await soon(client.__aenter__())
    await assert_usable(client)
    pid = client.pid
    assert pid is not None
    with took(0.3, 3.0):
        await soon(client.close())
    assert not is_alive(pid)


@ERAS
async def test_the_whole_family_ends_on_close(dock: Dock, era: Era) -> None:
    """P10: the client kills the process tree."""
    journal = dock.journal()
    async with connect(evil_command(era, journal=journal.path, family=1), grace=0.3) as client:
        await assert_usable(client)
        kin = next(entry["kin"] for entry in journal.entries() if "kin" in entry)
        assert is_alive(kin)
    await until(lambda: not is_alive(kin), "the grandchild has ended")


@ERAS
async def test_the_family_of_a_dead_child_ends_too(dock: Dock, era: Era) -> None:
    journal = dock.journal()
    async with connect(evil_command(era, journal=journal.path, family=1), grace=0.3, retries=0) as client:
        kin = next(entry["kin"] for entry in journal.entries() if "kin" in entry)
        error = await failure_of(client.call_tool("kill"))
        assert isinstance(error, ConnectionLost), repr(error)
        await until(lambda: not is_alive(kin), "the grandchild of the dead child has ended")


# --- eras ------------------------------------------------------------------------------------------------------------


async def test_a_child_that_dies_of_the_probe_is_spoken_to_in_its_own_era(dock: Dock) -> None:
    """P30: respawned, then `initialize`; and remembered, so that the next one lives."""
    journal = dock.journal()
    command = evil_command("legacy", journal=journal.path, probe="die")
    with took(most=4.0):
        async with connect(command) as client:
            assert client.era == "legacy"
            await assert_usable(client)
    assert len(journal.starts()) == 2
    assert [message["method"] for message in journal.messages()][:3] == [
        "server/discover",
        "initialize",
        "notifications/initialized",
    ]
    async with connect(command) as client:
        await assert_usable(client)
    assert len(journal.starts()) == 3
    assert len(journal.messages("server/discover")) == 1


@pytest.mark.slow
async def test_a_child_that_never_answers_the_probe_is_spoken_to_in_its_own_era(dock: Dock) -> None:
    journal = dock.journal()
    with took(most=8.0):
        async with connect(evil_command("legacy", journal=journal.path, probe="silent"), connect_timeout=8.0) as client:
            assert client.era == "legacy"
            await assert_usable(client)
    assert len(journal.starts()) == 1


async def test_a_respawned_legacy_child_is_not_probed_again(dock: Dock) -> None:
    journal = dock.journal()
    async with connect(evil_command("legacy", journal=journal.path, probe="die"), retries=0) as client:
        for _ in range(3):
            assert isinstance(await failure_of(client.call_tool("kill")), ConnectionLost)
            await assert_usable(client)
    assert len(journal.messages("server/discover")) == 1
    assert len(journal.starts()) == 5


async def test_a_child_that_grew_up_between_restarts_is_spoken_to_in_its_new_era(dock: Dock) -> None:
    """The verdict is cached, and found wrong: `initialize` no longer works, so the probe is repeated."""
    from .peers import EVIL

    journal = dock.journal()
    switch = dock.path / "era"
    code = (
        "import sys, pathlib; path = sys.argv[1]; era = pathlib.Path(sys.argv[2]).read_text(); "
        "sys.argv = [path, f'era={era}', f'journal={sys.argv[3]}']; exec(open(path).read())"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(EVIL), str(switch), str(journal.path)]
    switch.write_text("legacy")
    async with connect(command, retries=0) as client:
        assert client.era == "legacy"
        switch.write_text("modern")
        await failure_of(client.call_tool("kill"))
        await assert_usable(client)
        assert client.era == "modern"
        switch.write_text("legacy")
        await failure_of(client.call_tool("kill"))
        await assert_usable(client)
        assert client.era == "legacy"


# --- bad starts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ["auto", "modern", "legacy"])
async def test_a_child_that_dies_at_its_start_says_why(dock: Dock, era: Era) -> None:
    journal = dock.journal()
    with took(most=4.0):
        error = await failure_of(connect(evil_command(journal=journal.path, start="die"), era=era).__aenter__())
    assert isinstance(error, ConnectFailed), repr(error)
    assert error.exit_code == 7
    assert "cannot find my configuration" in "\n".join(error.stderr)
    assert "cannot find my configuration" in str(error)
    assert len(journal.starts()) <= 3


async def test_a_command_that_does_not_exist_is_named() -> None:
    """P35."""
    error = await failure_of(connect(["no-such-command-anywhere", "x"]).__aenter__())
    assert isinstance(error, ConnectFailed), repr(error)
    assert "no-such-command-anywhere" in str(error)


async def test_a_file_that_cannot_run_is_named(dock: Dock) -> None:
    path = dock.path / "plain.txt"
    path.write_text("no program")
    error = await failure_of(connect([str(path)]).__aenter__())
    assert isinstance(error, ConnectFailed), repr(error)
    assert "plain.txt" in str(error)


async def test_a_directory_that_does_not_exist_is_named(dock: Dock) -> None:
    error = await failure_of(connect(evil_command(), cwd=str(dock.path / "nowhere")).__aenter__())
    assert isinstance(error, ConnectFailed), repr(error)
    assert "nowhere" in str(error)


@pytest.mark.parametrize("era", ["auto", "modern", "legacy"])
async def test_a_child_that_says_nothing_is_given_up(dock: Dock, era: Era) -> None:
    journal = dock.journal()
    client = connect(evil_command(journal=journal.path, start="silent"), era=era, connect_timeout=0.6, grace=0.2)
    with took(0.5, 4.0):
        error = await failure_of(client.__aenter__())
    assert isinstance(error, (TimedOut, ConnectFailed)), repr(error)
    await until(lambda: not any(is_alive(pid) for pid in journal.pids()), "it was ended")


async def test_a_child_that_prints_before_it_speaks_is_understood(dock: Dock) -> None:
    """P11: banners on stdout."""
    async with connect(wrapped("print('Welcome to evil 6.6.6!', flush=True)")) as client:
        assert client.era == "modern"
        assert await soon(client.list_tools())


@pytest.mark.slow
async def test_a_child_that_keeps_dying_is_not_respawned_in_a_busy_loop(dock: Dock) -> None:
    """It starts once, then never again; callers are told at once or after the back-off, and starts are few."""
    from .peers import EVIL

    journal = dock.journal()
    flag = dock.path / "once"
    code = (
        "import sys, pathlib; path, flag, journal = sys.argv[1:4]; flag = pathlib.Path(flag); ok = not flag.exists(); "
        "flag.touch(); sys.argv = [path, 'era=modern', f'journal={journal}', 'start=' + ('ok' if ok else 'die')]; "
        "exec(open(path).read())"
    )
    command = [sys.executable, "-I", "-S", "-c", code, str(EVIL), str(flag), str(journal.path)]
    async with connect(command, timeout=1.0, retries=0) as client:
        await failure_of(client.call_tool("kill"))
        begun = time.monotonic()
        failures: list[Error] = []
        while time.monotonic() - begun < 3.0:
            failures.append(await failure_of(client.call_tool("add", {"a": 1, "b": 2})))
        for error in failures:
            assert isinstance(error, (ConnectFailed, ConnectionLost, TimedOut)), repr(error)
        starts = len(journal.starts()) - 1
        assert 1 <= starts <= 12, f"{starts} starts in 3 s, {len(failures)} calls"
        gaps = [b["at"] - a["at"] for a, b in zip(journal.starts()[1:], journal.starts()[2:], strict=False)]
        assert not gaps or max(gaps) > 2 * min(gaps) or max(gaps) > 0.5, f"no back-off: {gaps}"
        flag.unlink()
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await assert_usable(client)
                    break
                except Error:
                    pass


@pytest.mark.slow
@ERAS
async def test_a_child_that_dies_soon_after_each_greeting_is_not_respawned_in_a_busy_loop(dock: Dock, era: Era) -> None:
    """Nobody calls anything meanwhile: the client by itself must not keep a core busy."""
    journal = dock.journal()
    life = 1 if era == "modern" else 3  # discover; or discover, initialize, initialized
    client = connect(evil_command(era, journal=journal.path, life=life), retries=0)
    try:
        await soon(client.__aenter__())
    except Error:
        pass
    await asyncio.sleep(3.0)
    starts = len(journal.starts())
    await soon(client.close())
    assert starts <= 8, f"{starts} starts in 3 s"


async def test_a_child_that_closes_its_output_but_lives_counts_as_lost(dock: Dock) -> None:
    command = wrapped("import os, threading\nthreading.Timer(0.5, lambda: os.close(1)).start()")
    async with connect(command, timeout=8.0, retries=0, grace=0.3) as client:
        with took(most=3.0):
            error = await failure_of(client.call_tool("never"))
        assert isinstance(error, ConnectionLost), repr(error)


async def test_a_child_that_does_not_read_does_not_hang_the_client(dock: Dock) -> None:
    """Its input is full: the calls end with their deadline, and so does close."""
    client = connect(wrapped(LAZY.replace("MOST", "2")), timeout=0.7, grace=0.2)
    await soon(client.__aenter__())
    calls = [asyncio.create_task(client.call_tool("echo", {"text": "x" * 100_000})) for _ in range(20)]
    with took(most=4.0):
        results: list[Any] = await soon(asyncio.gather(*calls, return_exceptions=True))
    assert all(isinstance(error, (TimedOut, ConnectionLost)) for error in results), results
    with took(most=3.0):
        await soon(client.close())


async def test_two_clients_of_one_command_have_a_child_each(dock: Dock) -> None:
    journal = dock.journal()
    command = evil_command(journal=journal.path)
    async with connect(command) as one, connect(command) as two:
        assert one.pid != two.pid
        assert two.pid is not None
        os.kill(two.pid, signal.SIGKILL)
        await assert_usable(one)
        await assert_usable(two)
