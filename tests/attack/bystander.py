"""A client that does nothing wrong: one connection, steady calls in both eras, and the time each one took.

    python -m tests.attack.bystander PORT [--token TOKEN] [--tls] [--path PATH]

Prints a line per call: when it was due, how long it took, and `ok` or what went wrong. Times are of the machine's monotonic
clock, so whoever reads them knows what else happened then.

A call that was due while another one waited for its answer counts from when it was due: a server that stops for a second
then has a hundred slow calls, not one. When only the bystander itself woke up late, the call counts from when it was sent.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import socket
import ssl
import time
from collections.abc import Iterator

from tests.support.faults import INITIALIZED, call, initialize, legacy_call, legacy_http, modern_http

RATE = 100  # calls per second: enough for a p99 of three seconds, and a small part of what a server can do
ANSWER_LIMIT = 20.0  # seconds
SUM = b'"text":"5"'


class Caller:
    """One keep-alive connection, blocking."""

    def __init__(self, port: int, token: str, *, is_tls: bool, path: str = "/mcp") -> None:
        self._raw = socket.create_connection(("127.0.0.1", port), ANSWER_LIMIT)
        self._raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if is_tls:
            context = ssl.create_default_context()
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE  # its certificate is the test's own
            self._raw = context.wrap_socket(self._raw)
        self._path = path.encode()
        self._authorization = f"Authorization: Bearer {token}\r\n".encode() if token else b""

    def close(self) -> None:
        self._raw.close()

    def ask(self, data: bytes) -> tuple[bytes, bytes]:
        """The head and the body of the answer."""
        line, _, rest = data.partition(b"\r\n")
        line = line.replace(b" /mcp ", b" %b " % self._path)
        self._raw.sendall(line + b"\r\n" + self._authorization + rest)
        reply = b""
        while b"\r\n\r\n" not in reply:
            reply += self._receive()
        head, _, body = reply.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0] or b"0")
        while len(body) < length:
            body += self._receive()
        return head, body

    def _receive(self) -> bytes:
        data = self._raw.recv(65536)
        if not data:
            raise ConnectionError("closed")
        return data

    def open_session(self) -> str:
        head, _ = self.ask(legacy_http(initialize()))
        session = head.lower().partition(b"mcp-session-id:")[2].split(b"\r\n")[0].strip().decode()
        if not session:
            raise ConnectionError(head.split(b"\r\n")[0].decode())
        self.ask(legacy_http(INITIALIZED, session))
        return session


def requests(session: str) -> Iterator[bytes]:
    """Calls of both eras, in turn."""
    arguments, number = {"a": 2, "b": 3}, 0
    while True:
        number += 2
        yield modern_http(call("add", arguments, number))
        yield legacy_http(legacy_call("add", arguments, number + 1), session)


def run(caller: Caller) -> None:
    with contextlib.closing(caller):
        calls = requests(caller.open_session())
        due = time.monotonic()
        free_since = due
        for data in calls:
            now = time.monotonic()
            if now < due:
                time.sleep(due - now)
            start = due if free_since > due else time.monotonic()
            head, body = caller.ask(data)
            free_since = time.monotonic()
            verdict = "ok" if SUM in body else json.dumps(f"{head[9:12].decode()} {body[:80].decode('latin-1')}")
            print(f"{due:.6f} {free_since - start:.6f} {verdict}", flush=True)
            due += 1 / RATE


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--token", default="")
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--path", default="/mcp")
    options = parser.parse_args()
    while True:
        try:
            run(Caller(options.port, options.token, is_tls=options.tls, path=options.path))
        except OSError as error:
            print(f"{time.monotonic():.6f} {ANSWER_LIMIT:.6f} {json.dumps(str(error))}", flush=True)
            time.sleep(0.2)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        main()
