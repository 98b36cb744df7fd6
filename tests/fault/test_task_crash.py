"""A server with a hundred tasks at work is killed, and started again: each task goes on, or says why it cannot.

Real processes, `kill -9`, real databases. The ledger that the steps write is the proof that none of them ran twice.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import find_port
from tests.support.redis import redis_server

from trimaran import connect
from trimaran.errors import CallError

SERVER = Path(__file__).with_name("task_server.py")
PATIENCE = 60.0
VOYAGES, QUESTIONS, ERRANDS = 60, 20, 20
LEGS = 4


@pytest.fixture(params=["sqlite", "redis"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/tasks.db"
        return
    with redis_server(tmp_path) as server:
        yield server.url


@contextmanager
def running(port: int, url: str, ledger: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [sys.executable, str(SERVER), str(port), url, str(ledger)], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        _, said = process.communicate()
        assert b"Traceback" not in said, said.decode()


async def listening(port: int) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            assert time.monotonic() < deadline, "the server did not come up"
            await asyncio.sleep(0.02)
            continue
        writer.close()
        await writer.wait_closed()
        return


def lines(ledger: Path) -> list[str]:
    return ledger.read_text().splitlines() if ledger.exists() else []


@pytest.mark.deadline(150)
async def test_after_a_kill_each_task_is_resumed_or_failed_with_its_reason_and_no_step_ran_twice(
    url: str, tmp_path: Path, free_port: int
) -> None:
    ledger = tmp_path / "ledger"
    address = f"http://127.0.0.1:{free_port}/mcp"
    keys = {
        **{f"v{n}": "voyage" for n in range(VOYAGES)},
        **{f"q{n}": "question" for n in range(QUESTIONS)},
        **{f"e{n}": "errand" for n in range(ERRANDS)},
    }
    ids: dict[str, str] = {}

    def silent(_: Any) -> Any:
        raise AssertionError("nobody looks before the kill")

    with running(free_port, url, ledger) as process:
        await listening(free_port)
        async with connect(address, on_elicit=silent) as client:
            begun = await asyncio.gather(*(client.start_task(tool, {"key": key}) for key, tool in keys.items()))
            ids = dict(zip(keys, (task.id for task in begun), strict=True))
            # In the thick of it: every body has begun, and the voyages are under way.
            deadline = time.monotonic() + PATIENCE
            while len({line.split()[0] for line in lines(ledger)}) < len(keys) or len(lines(ledger)) < 150:
                assert time.monotonic() < deadline, f"only {len(lines(ledger))} lines"
                await asyncio.sleep(0.002)
            process.send_signal(signal.SIGKILL)
            process.wait()
    before = Counter(lines(ledger))
    ends: dict[str, str] = {}
    with running(free_port, url, ledger):
        await listening(free_port)
        async with connect(address, on_elicit=lambda question: question.accept({"value": "aye"})) as client:

            async def follow(key: str) -> None:
                try:
                    ends[key] = (await client.task(ids[key]).result(PATIENCE)).data
                except CallError as error:
                    ends[key] = f"failed: {error}"

            await asyncio.gather(*(follow(key) for key in keys))
    after = Counter(lines(ledger))
    assert all(count == 1 for count in after.values()), [line for line, count in after.items() if count > 1]
    assert after > before, "nothing was resumed"
    resumed = 0
    for key, tool in keys.items():
        end = ends[key]
        if tool == "errand":
            assert "the process that ran this task ended" in end, (key, end)
            assert "resumable" in end
            continue
        steps = [f"{key} leg {n}" for n in range(1, LEGS + 1)]
        if tool == "question":
            steps = [f"{key} before", f"{key} after aye"]
        if end.startswith("failed"):
            assert "it is not known whether that step was done" in end, (key, end)
            continue
        assert end == (f"{key} arrived" if tool == "voyage" else f"{key} aye")
        assert all(after[step] == 1 for step in steps), (key, [line for line in after if line.startswith(f"{key} ")])
        resumed += any(before[step] == 0 for step in steps)
    assert resumed >= 20, f"only {resumed} tasks were gone on with: the kill came too late to mean anything"


@pytest.mark.deadline(90)
async def test_a_process_that_slept_through_its_lease_does_nothing_that_another_has_done(
    tmp_path: Path, free_port: int
) -> None:
    """SIGSTOP: it is neither dead nor alive, and when it wakes it thinks that no time has passed."""
    ledger = tmp_path / "ledger"
    other_port = find_port()
    with (
        redis_server(tmp_path) as redis,
        running(free_port, redis.url, ledger) as sleeper,
        running(other_port, redis.url, ledger),
    ):
        await listening(free_port)
        await listening(other_port)
        keys = [f"v{number}" for number in range(20)]
        async with connect(f"http://127.0.0.1:{free_port}/mcp") as client:
            begun = await asyncio.gather(*(client.start_task("voyage", {"key": key}) for key in keys))
        deadline = time.monotonic() + PATIENCE
        while len(lines(ledger)) < 2 * len(keys):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.002)
        await asyncio.sleep(0.1)  # most are between two legs now, and can be gone on with
        sleeper.send_signal(signal.SIGSTOP)
        ends: list[str] = []
        try:
            async with connect(f"http://127.0.0.1:{other_port}/mcp") as client:

                async def follow(id: str) -> None:
                    try:
                        ends.append((await client.task(id).result(PATIENCE)).data)
                    except CallError as error:
                        assert "it is not known whether that step was done" in str(error), error
                        ends.append("not known")

                await asyncio.gather(*(follow(task.id) for task in begun))
                before = Counter(lines(ledger))
                sleeper.send_signal(signal.SIGCONT)
                # Awake, it answers again, and has had its chance to go on where it was.
                async with connect(f"http://127.0.0.1:{free_port}/mcp") as awake:
                    for task in begun:
                        assert (await awake.task(task.id).refresh()).status in ("completed", "failed")
                    await asyncio.sleep(0.5)  # more than a leg takes
        finally:
            sleeper.send_signal(signal.SIGCONT)
        after = Counter(lines(ledger))
    assert any(end.endswith("arrived") for end in ends), ends
    assert max(after.values()) == 1
    assert after == before
