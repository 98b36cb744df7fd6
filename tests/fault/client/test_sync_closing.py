"""The blocking client: it is interrupted, or closed from a handler."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import textwrap
import threading
from typing import Any

import pytest
from tests.support.peers import (
    Pipe,
)

from trimaran import SyncClient, errors

from .moments import LISTEN, acknowledge


def test_ctrl_c_in_a_loop_over_changes_is_ctrl_c() -> None:
    def listen(pipe: Pipe, message: Any) -> None:
        acknowledge(pipe, message)
        acknowledged.set()

    acknowledged = threading.Event()
    pipe = Pipe().modern().on(LISTEN, listen)

    def interrupt() -> None:
        acknowledged.wait(3)
        threading.Event().wait(0.1)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    with SyncClient(pipe) as client:
        thread = threading.Thread(target=interrupt)
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            for _ in client.listen(tools=True):
                pass
        thread.join()


def test_a_call_that_meets_the_very_end_of_close_ends_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is handed to a loop that turns no more is never run: its caller must not wait for it."""
    ending, handed_over = threading.Event(), threading.Event()
    submit = asyncio.run_coroutine_threadsafe

    def late(coroutine: Any, loop: Any) -> Any:
        if threading.current_thread() is caller:
            ending.wait(0.5)
            try:
                return submit(coroutine, loop)
            finally:
                handed_over.set()
        return submit(coroutine, loop)

    client = SyncClient(Pipe().modern()).open()
    loop: Any = client._loop
    close = loop.close

    def close_late() -> None:
        ending.set()
        handed_over.wait(0.5)
        close()

    loop.close = close_late
    outcomes: list[Any] = []

    def call() -> None:
        try:
            outcomes.append(client.ping())
        except Exception as error:
            outcomes.append(error)

    caller = threading.Thread(target=call, daemon=True)
    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", late)
    caller.start()
    closer = threading.Timer(0.05, client.close)
    closer.start()
    closer.join(5)
    caller.join(2)
    assert not caller.is_alive(), "the call hangs"
    assert outcomes[0] is None or isinstance(outcomes[0], errors.Closed)


def run(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, timeout=8, check=False
    )


DEMO = """
    import threading
    from trimaran import Context, Server, SyncClient, errors
    server = Server("demo", version="1")
    @server.tool
    async def ask(ctx: Context) -> str:
        return str((await ctx.sample("hi", max_tokens=5)).content)
"""


@pytest.mark.slow
def test_a_plain_handler_may_close_its_client() -> None:
    """It runs on a worker thread of the very loop that is being ended."""
    script = """
    made = []
    def on_sample(ask):
        made[0].close()
        return "x"
    client = SyncClient(server, on_sample=on_sample)
    made.append(client)
    client.open()
    try:
        client.call_tool("ask")
    except errors.Closed:
        print("closed")
    """
    assert run(DEMO + script).stdout == "closed\n"


@pytest.mark.slow
def test_a_plain_handler_that_waits_for_a_person_does_not_hold_up_close() -> None:
    script = """
    import os
    stuck = threading.Event()
    def on_sample(ask):
        stuck.set()
        threading.Event().wait()
    client = SyncClient(server, on_sample=on_sample).open()
    call = threading.Thread(target=lambda: client.call_tool("ask"), daemon=True)
    threading.excepthook = lambda args: None
    call.start()
    stuck.wait()
    client.close()
    print("closed", flush=True)
    os._exit(0)
    """
    assert run(DEMO + script).stdout == "closed\n"
