"""stdio with a real child: one message per line, nothing else on stdout, an orderly end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.support.harness import P, encode, initialize, meta, notification, request
from tests.support.until import soon

pytestmark = pytest.mark.slow  # each starts a process

CHILD = """
import asyncio, sys
from trimaran import Context, Limits, Server
server = Server("child", version="1", limits=Limits(max_line_bytes=2000))
@server.tool
async def echo(text: str, ctx: Context) -> str:
    print("noise on stdout")
    sys.stderr.write("noise on stderr")
    await ctx.progress(1)
    return text
@server.tool
async def hold(ctx: Context) -> str:
    await ctx.progress(1)
    await asyncio.sleep(60)
    return "held"
server.run()
"""


class Child:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process

    async def send(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        await soon(self.process.stdin.drain())

    async def receive(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(await soon(self.process.stdout.readline()))

    async def end(self) -> bytes:
        """Close its input, and return what it still wrote; it must leave by itself."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        rest = await soon(self.process.stdout.read())
        assert await soon(self.process.wait()) == 0
        return rest


@contextlib.asynccontextmanager
async def child() -> AsyncIterator[Child]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", CHILD, stdin=pipe, stdout=pipe, stderr=asyncio.subprocess.DEVNULL, limit=2**20
    )
    try:
        yield Child(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_conversation_over_stdio() -> None:
    """R138, R139, R140, P11, Limits.max_line_bytes: only messages on stdout, blank lines ignored, bad lines answered, EOF ends it."""
    async with child() as peer:
        lines = [
            b"\n  \n",
            encode(initialize()) + b"\r\n",
            encode(notification("notifications/initialized")) + b"\n",
        ]
        await peer.send(b"".join(lines))
        assert (await peer.receive())["result"]["serverInfo"]["name"] == "child"
        long = request("tools/call", {"name": "echo", "arguments": {"text": "x" * 3000}}, "long")
        await peer.send(encode(long) + b"\n")
        refused = await peer.receive()
        assert (refused["error"]["code"], refused["id"]) == (-32600, None)
        await peer.send(b"{nope\n")
        assert (await peer.receive())["error"]["code"] == -32700
        call = request(
            "tools/call", {"name": "echo", "arguments": {"text": "hi\nthere ü"}, "_meta": meta(progressToken=1)}, "c"
        )
        await peer.send(encode(call) + b"\n")
        assert (await peer.receive())["method"] == "notifications/progress"
        reply = await peer.receive()
        assert reply["result"]["content"][0]["text"] == "hi\nthere ü"
        assert reply["result"]["resultType"] == "complete"
        # The last line may come without its newline.
        await peer.send(encode(request("ping", {}, "last")))
        assert json.loads(await peer.end())["id"] == "last"


async def test_a_cancelled_call_is_not_answered_over_stdio() -> None:
    """R65, protocol.md 1.4, 3.5: both eras on one pipe; nothing further is sent for a cancelled request."""
    async with child() as peer:
        await peer.send(encode(initialize()) + b"\n" + encode(notification("notifications/initialized")) + b"\n")
        await peer.receive()
        for id, own in (("legacy", {"progressToken": 1}), ("modern", meta(progressToken=2))):
            await peer.send(encode(request("tools/call", {"name": "hold", "_meta": own}, id)) + b"\n")
            assert (await peer.receive())["method"] == "notifications/progress"
            await peer.send(encode(notification("notifications/cancelled", {"requestId": id})) + b"\n")
            await peer.send(encode(request("ping", {}, f"after {id}")) + b"\n")
            assert (await peer.receive())["id"] == f"after {id}"
        assert await peer.end() == b""


async def test_a_terminated_server_ends_listening_with_a_result() -> None:
    """protocol.md 1.4, 8.1: a server that ends a subscription by itself sends the listen result, on stdio too; and is gone soon."""
    async with child() as peer:
        wanted = {"notifications": {"toolsListChanged": True}, "_meta": meta()}
        await peer.send(encode(request("subscriptions/listen", wanted, "L")) + b"\n")
        assert (await peer.receive())["method"] == "notifications/subscriptions/acknowledged"
        peer.process.send_signal(signal.SIGTERM)
        assert peer.process.stdout is not None
        rest = (await soon(peer.process.stdout.read())).splitlines()
        assert await soon(peer.process.wait()) is not None
        assert rest, "the stream was dropped without its result"
        result = json.loads(rest[0])
        assert (result["id"], result["result"]["_meta"][P + "subscriptionId"]) == ("L", "L")


@pytest.mark.slow
def test_the_last_words_on_stderr_arrive_however_busy_the_machine_is() -> None:
    """A refusal that ends the process at once lost its reason where the thread behind stderr came late to its turn."""
    script = """
import os, sys, time
from trimaran.transports.stdio import take_stdio
read = os.read
def read_late(descriptor, size):
    chunk = read(descriptor, size)
    time.sleep(0.2)
    return chunk
os.read = read_late
take_stdio()
print("the reason", file=sys.stderr)
sys.exit(2)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=30, stdin=subprocess.DEVNULL
    )
    assert (done.returncode, done.stderr) == (2, "the reason\n")
