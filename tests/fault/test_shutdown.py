"""The end: by signal, by EOF, by the death of the parent; streams ended properly, nothing left behind (P10, P13, P35)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.faults import (
    CHILD,
    INITIALIZED,
    Child,
    call,
    cancelled,
    http_child,
    initialize,
    is_alive,
    legacy_call,
    legacy_get,
    legacy_http,
    modern,
    modern_http,
)
from tests.support.until import PATIENCE, wait_until

from trimaran import Server
from trimaran.serve import HttpServer

LISTEN = modern("subscriptions/listen", {"notifications": {"toolsListChanged": True}}, "listen")
SIGNALS = pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])


class Socket:
    """A plain client that can wait."""

    def __init__(self, port: int, data: bytes, receive_buffer: int | None = None) -> None:
        self.raw = socket.socket()
        if receive_buffer is not None:
            self.raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.raw.settimeout(PATIENCE)
        self.raw.connect(("127.0.0.1", port))
        self.raw.sendall(data)
        self.data = b""

    def read_until(self, mark: bytes) -> bytes:
        while mark not in self.data:
            chunk = self.raw.recv(65536)
            assert chunk, f"ended before {mark!r}: {self.data[-300:]!r}"
            self.data += chunk
        return self.data

    def read_all(self) -> bytes:
        with contextlib.suppress(ConnectionError):
            while chunk := self.raw.recv(65536):
                self.data += chunk
        return self.data

    def close(self) -> None:
        self.raw.close()


@contextlib.contextmanager
def clients() -> Iterator[Any]:
    opened: list[Socket] = []

    def connect(*args: Any, **options: Any) -> Socket:
        opened.append(Socket(*args, **options))
        return opened[-1]

    try:
        yield connect
    finally:
        for one in opened:
            one.close()


def session_of(connect: Any, port: int) -> str:
    client = connect(port, legacy_http(initialize()))
    head = client.read_until(b'"serverInfo"').decode("latin-1").lower()
    session = head.partition("mcp-session-id: ")[2].partition("\r\n")[0]
    connect(port, legacy_http(INITIALIZED, session)).read_until(b"202")
    return session


def last_message(stream: bytes) -> Any:
    assert stream.endswith(b"\r\n0\r\n\r\n"), f"the stream has no proper end: {stream[-200:]!r}"
    return json.loads(stream.rpartition(b"data: ")[2].partition(b"\n")[0])


@SIGNALS
def test_open_streams_and_running_calls_end_properly(number: int) -> None:
    with http_child() as (child, port), clients() as connect:
        listens = [connect(port, modern_http(LISTEN)) for _ in range(200)]
        sessions = [session_of(connect, port) for _ in range(10)]
        gets = [connect(port, legacy_get(session)) for session in sessions]
        brief = connect(port, modern_http(call("nap", {"seconds": 0.5}, "brief")))
        brief_stream = connect(port, modern_http(call("noisy_nap", {"seconds": 0.5}, "noisy", progressToken="t")))
        long = connect(port, modern_http(call("nap", {"seconds": 60}, "long")))
        idle = connect(port, b"")
        half = connect(port, b"POST /mcp HTTP/1.1\r\nHost: 127")
        for one in listens:
            one.read_until(b"acknowledged")
        for one in gets:
            one.read_until(b"\r\n\r\n")
        brief_stream.read_until(b"notifications/progress")
        started = time.monotonic()
        child.signal(number)
        assert child.wait() == 0
        assert time.monotonic() - started < 15, "two seconds are promised; a call of a minute was not waited for"
        for one in listens:
            assert last_message(one.read_all())["result"]["resultType"] == "complete"
        for one in gets:
            assert one.read_all().endswith(b"\r\n0\r\n\r\n")
        assert b"rested" in brief.read_all(), "a call that needed half a second more was cut off"
        assert b"rested" in brief_stream.read_all()
        long.read_all()
        assert idle.read_all() == b""
        half.read_all()


def test_a_legacy_call_that_needs_half_a_second_more_gets_it() -> None:
    """The same patience for both eras."""
    with http_child() as (child, port), clients() as connect:
        session = session_of(connect, port)
        plain = connect(port, legacy_http(legacy_call("nap", {"seconds": 0.5}, 1), session))
        stream = connect(port, legacy_http(legacy_call("noisy_nap", {"seconds": 0.5}, 2, "t"), session))
        stream.read_until(b"notifications/progress")
        child.signal()
        assert child.wait() == 0
        assert b"rested" in stream.read_all()
        assert b"rested" in plain.read_all()


def test_a_call_beyond_the_servers_patience_is_told_so() -> None:
    """Ours: an answer is kinder than a connection that just ends; on a stream, one that ends properly."""
    with http_child() as (child, port), clients() as connect:
        long = connect(port, modern_http(call("nap", {"seconds": 60}, "long")))
        stream = connect(port, modern_http(call("noisy_nap", {"seconds": 60}, "noisy", progressToken="t")))
        stream.read_until(b"notifications/progress")
        child.signal()
        assert child.wait() == 0
        assert "error" in last_message(stream.read_all())
        assert b'"error"' in long.read_all()


def test_a_client_that_does_not_read_does_not_keep_the_server() -> None:
    with http_child() as (child, port), clients() as connect:
        for _ in range(3):
            connect(port, modern_http(call("ticks", {"n": 100_000}, progressToken="t")), receive_buffer=4096)
        session = session_of(connect, port)
        connect(port, legacy_get(session), receive_buffer=4096)
        connect(port, modern_http(LISTEN), receive_buffer=4096)
        connect(port, modern_http(call("changes", {"n": 5000}))).read_until(b'"result"')
        child.signal()
        assert child.wait() == 0


def test_a_second_signal_is_no_trouble() -> None:
    with http_child() as (child, port), clients() as connect:
        connect(port, modern_http(call("nap", {"seconds": 60})))
        connect(port, modern_http(LISTEN)).read_until(b"acknowledged")
        child.signal()
        for _ in range(3):
            time.sleep(0.02)
            if child.process.poll() is None:
                child.signal()
        assert child.wait() in (0, -signal.SIGTERM)


def test_a_blocked_thread_does_not_keep_an_http_server() -> None:
    with http_child() as (child, port), clients() as connect:
        connect(port, modern_http(call("block")))
        connect(port, modern_http(call("add", {"a": 1, "b": 1}))).read_until(b'"result"')
        child.signal()
        assert child.wait() == 0


@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("way", ["late", "at once", "thread"])
def test_a_tool_that_calls_sys_exit_fails_alone(transport: str, way: str) -> None:
    """Ours: wrapped command-line code exits where it should raise; that is its call's failure, not the server's end."""
    tool = "leave_thread" if way == "thread" else "leave"
    if transport == "stdio":
        with Child("stdio") as child:
            child.send(call(tool, {"way": way}, 1))
            try:
                first = child.answer(1)
            except (TimeoutError, AssertionError) as error:
                first = {"result": {}, "why": repr(error)}
            assert child.process.poll() is None, "the server ended"
            assert first["result"].get("isError"), first
            assert child.ask(call("add", {"a": 1, "b": 1}, 2))["result"]["structuredContent"] == 2
    else:
        with http_child() as (child, port), clients() as connect:
            first = connect(port, modern_http(call(tool, {"way": way}), Connection="close")).read_all()
            assert child.process.poll() is None, "the server ended"
            assert b'"isError":true' in first
            connect(port, modern_http(call("add", {"a": 1, "b": 1}))).read_until(b'"structuredContent":2')


# --- stdio -----------------------------------------------------------------------------------------------------------


def test_eof_ends_an_idle_stdio_server_at_once() -> None:
    with Child("stdio") as child:
        child.ask(call("add", {"a": 1, "b": 1}))
        started = time.monotonic()
        child.end_input()
        assert child.wait() == 0
        assert time.monotonic() - started < 15


def test_a_call_at_work_when_the_input_ends_is_still_answered() -> None:
    """`printf ... | server` works."""
    with Child("stdio") as child:
        child.send(call("nap", {"seconds": 0.5}, 7))
        child.end_input()
        assert child.wait() == 0
        assert b"rested" in child.everything()


@pytest.mark.slow
@pytest.mark.deadline(40)
def test_a_call_that_never_ends_does_not_outlive_the_input_for_long() -> None:
    with Child("stdio") as child:
        child.send(call("nap", {"seconds": 60}, 7), call("block", {}, 8), LISTEN)
        child.consumed()
        child.end_input()
        assert child.wait() == 0


@SIGNALS
def test_a_signal_ends_a_stdio_server_with_calls_at_work(number: int) -> None:
    with Child("stdio") as child:
        child.send(call("nap", {"seconds": 60}, 7), call("block", {}, 8))
        child.ask(call("add", {"a": 1, "b": 1}, 1))
        child.signal(number)
        assert child.wait() == 0


@SIGNALS
def test_a_signal_ends_an_idle_stdio_server(number: int) -> None:
    with Child("stdio") as child:
        child.ask(initialize())
        child.send(INITIALIZED)
        child.signal(number)
        assert child.wait() == 0


def test_a_listen_stream_on_stdio_is_ended_by_its_result() -> None:
    """Spec (SHOULD): a server that goes ends its subscriptions with their result."""
    with Child("stdio") as child:
        child.send(LISTEN)
        assert child.receive()["method"] == "notifications/subscriptions/acknowledged"
        child.signal()
        assert child.wait() == 0
        said = [json.loads(line) for line in child.everything().splitlines()]
        assert said[-1].get("id") == "listen", said
        assert said[-1]["result"]["resultType"] == "complete"


def test_a_second_signal_on_stdio_is_no_trouble() -> None:
    with Child("stdio") as child:
        child.send(call("nap", {"seconds": 60}, 7))
        child.ask(call("add", {"a": 1, "b": 1}, 1))
        child.signal()
        time.sleep(0.05)
        if child.process.poll() is None:
            child.signal()
        assert child.wait() in (0, -signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.deadline(40)
def test_a_client_that_does_not_read_does_not_keep_a_stdio_server() -> None:
    with Child("stdio") as child:
        child.send(call("ticks", {"n": 100_000}, 7, progressToken="t"))
        child.consumed()
        time.sleep(0.3)
        child.end_input()
        assert child.wait(9) == 0


BETWEEN = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, {child!r}, "stdio"], stdin={stdin}, stdout=sys.stdout, stderr=sys.stderr)
print(child.pid, file=sys.stderr, flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize(
    "stdin", ["sys.stdin", "subprocess.PIPE"], ids=["stdin held open elsewhere", "stdin of the parent"]
)
@pytest.mark.parametrize("busy", [False, True])
@pytest.mark.slow
@pytest.mark.deadline(40)
def test_a_stdio_server_dies_with_its_parent(stdin: str, busy: bool) -> None:
    """P10: also when somebody else still holds its stdin open, so that no EOF comes."""
    between = [sys.executable, "-c", BETWEEN.format(child=str(CHILD), stdin=stdin)]
    with Child(command=between) as parent:
        assert parent.process.stderr is not None
        pid = int(parent.process.stderr.readline())
        try:
            if stdin == "sys.stdin":
                parent.ask(call("add", {"a": 1, "b": 1}, 1))
                if busy:
                    parent.send(call("nap", {"seconds": 60}, 7), LISTEN)
                    parent.consumed()
            else:
                wait_until(lambda: len(list(Path(f"/proc/{pid}/task").iterdir())) > 2 or is_alive(pid), "it runs")
                time.sleep(0.6)  # its start cannot be seen from here
            parent.process.kill()
            parent.process.wait(PATIENCE)
            wait_until(lambda: not is_alive(pid), "the server has ended with its parent", 8 if busy else 3)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def test_nothing_is_left_of_a_stdio_server_that_started_children() -> None:
    with Child("stdio") as child:
        child.ask(call("pollute", {"way": "child"}, 1))
        child.send(call("nap", {"seconds": 60}, 7))
        child.ask(call("add", {"a": 1, "b": 1}, 2))
        child.send(cancelled(7))
        pid = child.pid
        child.end_input()
        assert child.wait() == 0
        left = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, check=False).stdout
        assert not left.strip()


async def test_connections_that_the_system_has_accepted_are_served_before_the_server_stops() -> None:
    """They are in the queue of a socket that is about to be closed: closed with them in it, they would be reset."""
    server = Server("busy", version="1")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientCapabilities": {}}
    params = {"name": "add", "arguments": {"a": 1, "b": 2}, "_meta": meta}
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}).encode()
    head = (
        "POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        "Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n"
        f"Mcp-Name: add\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    http = HttpServer(server, port=0)
    await http.start()
    clients = [socket.create_connection(("127.0.0.1", http.port), timeout=10) for _ in range(150)]
    try:
        for client in clients:  # the loop does not turn meanwhile, so none of them is accepted by the server
            client.sendall(head.encode() + body)
        await http.stop()
        replies = [await asyncio.to_thread(client.recv, 65536) for client in clients]
    finally:
        for client in clients:
            client.close()
    assert {reply.split(b" ")[1] for reply in replies} == {b"200"}
