"""An HTTP+SSE server (2024-11-05) that sends back each message, on threads of its own so that no loop is shared with a test."""

from __future__ import annotations

import contextlib
import itertools
import json
import queue
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Session:
    def __init__(self) -> None:
        self.events: queue.Queue[bytes | None] = queue.Queue()
        self.paused_until = 0.0


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: EchoServer  # type: ignore[assignment]

    def do_GET(self) -> None:
        number = next(self.server.numbers)
        session = self.server.sessions[number] = Session()
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.wfile.write(f"event: endpoint\ndata: /message/{number}\n\n".encode())
            while (message := session.events.get()) is not None:
                self.wfile.write(b"event: message\ndata: " + message + b"\n\n")

    def do_POST(self) -> None:
        session = self.server.sessions[int(self.path.rpartition("/")[2])]
        time.sleep(max(0.0, session.paused_until - time.monotonic()))
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) == length:
            self.obey(session, body)
        self.send_response(202)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def obey(self, session: Session, body: bytes) -> None:
        command = json.loads(body) if len(body) < 1000 else {}
        if command.get("method") == "testing/hang-up":
            session.events.put(None)
        elif command.get("method") == "testing/pause":
            session.paused_until = time.monotonic() + command["params"]["seconds"]
        else:
            session.events.put(body)

    def handle_one_request(self) -> None:
        with contextlib.suppress(ConnectionError):  # a client that gave up
            super().handle_one_request()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class EchoServer(ThreadingHTTPServer):
    daemon_threads = False
    block_on_close = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.numbers = itertools.count(1)
        self.sessions: dict[int, Session] = {}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A test that cuts a connection is no error of the server's."""


@contextlib.contextmanager
def sse_echo() -> Iterator[str]:
    """Its URL, while it runs."""
    server = EchoServer()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/sse"
    finally:
        server.shutdown()
        thread.join()
        for session in server.sessions.values():
            session.events.put(None)
        server.server_close()
