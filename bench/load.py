"""The load generator: HTTP/1.1 keep-alive connections that each send the next request when the last was answered.

Every answer is checked (status 200, the request's own id, the expected text) and counted; one wrong answer ends the run
with the reason. Bounded by time and by count. Raw asyncio.Protocol on uvloop with prebuilt bytes, so that one core of
client outruns any server measured here; `servers/echo_raw.py` finds its ceiling on the machine at hand.

Reading an answer: the head is looked up in a memo (it changes once a second, with the Date header), so the usual answer,
one packet with a Content-Length, costs two searches and a dict lookup. Everything else takes the slow road.

As a command: `python bench/load.py --port 8000 --era modern --tool add --seconds 5`.
"""

import argparse
import asyncio
import gc
import itertools
import json
import ssl
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import cast

import messages
import uvloop

CHUNKED = -1
MEMO_LIMIT = 4096  # heads remembered per run: more than a run has seconds x connections


class BadAnswerError(Exception):
    """The server answered, but not with what was asked for."""


@dataclass(frozen=True)
class Outcome:
    answers: int
    seconds: float
    p50_ms: float
    p99_ms: float
    sent: int = 0
    """All requests, also those before the clock started and after it stopped."""

    @property
    def rate(self) -> float:
        return self.answers / self.seconds


def head_length(head: bytes) -> int:
    """Return the body length a response head declares, or CHUNKED."""
    status, _, fields = head.partition(b"\r\n")
    if not status.startswith(b"HTTP/1.1 200"):
        raise BadAnswerError(f"answered {status.decode('latin-1')!r}")
    for field in fields.split(b"\r\n"):
        name, _, value = field.partition(b":")
        name = name.strip().lower()
        if name == b"content-length":
            return int(value)
        if name == b"transfer-encoding" and value.strip().lower() == b"chunked":
            return CHUNKED
    raise BadAnswerError("the answer has neither Content-Length nor chunked encoding")


def join_chunks(data: bytes, at: int) -> bytes | None:
    """Return the body of a chunked answer that begins at `at`, None while it is incomplete."""
    parts: list[bytes] = []
    while (end := data.find(b"\r\n", at)) >= 0:
        size = int(data[at:end].partition(b";")[0], 16)
        at = end + 2 + size + 2
        if len(data) < at:
            return None
        if size == 0:
            return b"".join(parts)
        parts.append(data[end + 2 : end + 2 + size])
    return None


class Connection(asyncio.Protocol):
    """One keep-alive connection: send, check, send again, until the run says stop."""

    def __init__(self, run: "Run", template: messages.Template) -> None:
        self.run = run
        self.template = template
        self.buffer = b""
        self.waiting_for = b""
        self.sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.write = cast("asyncio.Transport", transport).write
        self.send_next()

    def send_next(self) -> None:
        self.waiting_for = b"%d" % next(self.run.ids)
        self.sent_at = time.perf_counter()
        self.write(self.waiting_for.join(self.template.pieces))

    def data_received(self, data: bytes) -> None:
        try:
            if self.buffer:
                data = self.buffer + data
            head_end = data.find(b"\r\n\r\n")
            if head_end < 0:
                self.buffer = data
                return
            head = data[:head_end]
            memo = self.run.memo
            length = memo.get(head)
            if length is None:
                length = head_length(head)
                if len(memo) < MEMO_LIMIT:
                    memo[head] = length
            body_at = head_end + 4
            if length == CHUNKED:
                body = join_chunks(data, body_at)
                if body is None:
                    self.buffer = data
                    return
            elif len(data) - body_at < length:
                self.buffer = data
                return
            else:
                body = data[body_at:]
            self.buffer = b""
            if self.run.expected not in body or self.waiting_for not in body:
                raise BadAnswerError(f"unexpected body {body[:300]!r}")
        except (BadAnswerError, ValueError) as error:
            self.run.fail(error)
            return
        if self.run.count(self.sent_at):
            self.send_next()

    def connection_lost(self, exc: Exception | None) -> None:
        self.run.fail(exc or ConnectionError("the server closed a connection in the middle of the run"))


class Run:
    """The shared account of one run."""

    def __init__(self, expected: bytes, seconds: float, max_answers: int) -> None:
        self.expected = expected
        self.max_answers = max_answers
        self.ids: Iterator[int] = itertools.count(messages.FIRST_ID)
        self.memo: dict[bytes, int] = {}
        self.answers = 0
        self.latencies: list[float] = []
        self.started = time.perf_counter()
        self.deadline = self.started + seconds
        self.finished_at = 0.0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def count(self, sent_at: float) -> bool:
        """Count one right answer; say whether to go on."""
        now = time.perf_counter()
        self.answers += 1
        # One latency in eight is plenty for percentiles and keeps the list small.
        if not self.answers & 7 or self.answers < 1024:
            self.latencies.append(now - sent_at)
        if now < self.deadline and self.answers < self.max_answers:
            return True
        if not self.done.done():
            self.finished_at = now
            self.done.set_result(None)
        return False

    def fail(self, error: Exception) -> None:
        if not self.done.done():
            self.done.set_exception(error)

    def outcome(self) -> Outcome:
        ordered = sorted(self.latencies)
        return Outcome(
            answers=self.answers,
            seconds=self.finished_at - self.started,
            p50_ms=ordered[len(ordered) // 2] * 1e3,
            p99_ms=ordered[len(ordered) * 99 // 100] * 1e3,
            sent=next(self.ids) - messages.FIRST_ID,
        )


def any_certificate() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


async def _drive(
    port: int, templates: Sequence[messages.Template], expected: bytes, seconds: float, limit: int, tls: bool
) -> Outcome:
    loop = asyncio.get_running_loop()
    context = any_certificate() if tls else None
    run = Run(expected, seconds + 10, limit)  # shaking hands may take longer than the run
    transports: list[asyncio.Transport] = []
    try:
        for template in templates:
            transport, _ = await loop.create_connection(
                lambda t=template: Connection(run, t), "127.0.0.1", port, ssl=context
            )
            transports.append(transport)
        # The clock starts once every connection is up; the answers before that are dropped.
        run.answers, run.latencies = 0, []
        run.started = time.perf_counter()
        run.deadline = run.started + seconds
        # A slow server may take long over its last answers: ten seconds of grace, then it is called stuck.
        async with asyncio.timeout(seconds + 10):
            await run.done
        return run.outcome()
    except TimeoutError:
        raise BadAnswerError(f"no answer within {seconds + 10:.0f} s") from None
    finally:
        if not run.done.done():
            run.done.cancel()
        for transport in transports:
            transport.abort()


def measure(
    port: int,
    templates: Sequence[messages.Template],
    *,
    expected: bytes = messages.ANSWER,
    seconds: float,
    limit: int = 5_000_000,
    tls: bool = False,
) -> Outcome:
    """Load a server with one connection per template; return the counts."""
    gc.collect()
    gc.disable()
    try:
        return uvloop.run(_drive(port, templates, expected, seconds, limit, tls))
    finally:
        gc.enable()


def call_templates(
    port: int, tool: str, era: messages.Era, connections: int, more: Mapping[str, str] | None = None
) -> list[messages.Template]:
    """Build one template per connection; in the legacy era each connection is a session of its own.

    `more` headers go with the calls, and not with the handshake of a session.
    """
    if era == "modern":
        return [messages.call_template(port, tool, era=era, more=more)] * connections
    return [
        messages.call_template(port, tool, era=era, session=messages.open_session(port), more=more)
        for _ in range(connections)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--era", choices=("modern", "legacy"), default="modern")
    parser.add_argument("--tool", default="add")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--connections", type=int, default=16)
    parser.add_argument("--varied", action="store_true", help="another head with every request")
    options = parser.parse_args()
    more = messages.VARIED if options.varied else None
    templates = call_templates(options.port, options.tool, options.era, options.connections, more)
    outcome = measure(options.port, templates, seconds=options.seconds)
    print(json.dumps({"rate": round(outcome.rate, 1), **asdict(outcome)}))


if __name__ == "__main__":
    main()
