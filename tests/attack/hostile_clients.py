"""What hostile clients do to a server. Each attack is one function, and goes on until its time is up.

An attacker (`attacker.py`) runs in a process of its own with the lowest priority, and sends no more than a `Link` carries:
it is to use up the server, not the processor that the server shares with it.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import itertools
import json
import random
import re
import ssl
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from tests.support.faults import (
    INITIALIZED,
    Connection,
    call,
    cancelled,
    encode,
    http,
    initialize,
    legacy_call,
    legacy_get,
    legacy_headers,
    legacy_http,
    modern,
    modern_headers,
    modern_http,
    rpc,
)

from .target import AUDIENCE, ISSUER, SECRET

LINK_BYTES: Final = 8_000_000  # per second: 64 Mbit/s
LINK_REQUESTS: Final = 200  # per second, for attacks that are made of requests
PIECE: Final = 32_768
TASKS: Final = {"extensions": {"io.modelcontextprotocol/tasks": {}}}
FORMS: Final = {"elicitation": {}}
P: Final = "io.modelcontextprotocol/"
ADD: Final = modern_http(call("add", {"a": 2, "b": 3}))

Kind = Literal["open", "guarded", "tls", "keys", "proxy", "gateway"]
Run = Callable[["Peer"], Awaitable[None]]


@dataclass(frozen=True)
class Attack:
    name: str
    run: Run
    server: Kind = "open"
    """Which server is attacked: one that lets in anybody, one that asks for a token, one on TLS, one that reads its keys
    from a hostile server, one that stands for a hostile server too, and a gateway before both."""
    upstream: str = ""
    """The attack of `hostile_servers.py` that the hostile server makes."""


ATTACKS: dict[str, Attack] = {}


def attack(name: str, server: Kind = "open", upstream: str = "") -> Callable[[Run], Run]:
    def register(run: Run) -> Run:
        ATTACKS[name] = Attack(name, run, server, upstream)
        return run

    return register


class Link:
    """Lets so many pass per second, and makes the others wait."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._free_at = time.monotonic()

    async def carry(self, amount: float = 1) -> None:
        now = time.monotonic()
        self._free_at = max(self._free_at, now) + amount / self._rate
        if self._free_at - now > 0.001:
            await asyncio.sleep(self._free_at - now)


class Peer:
    """One hostile machine: its link, its connections, and what it was answered."""

    def __init__(self, port: int, seconds: float) -> None:
        self.port = port
        self.answers: Counter[str] = Counter()
        self._deadline = time.monotonic() + seconds
        self._bytes = Link(LINK_BYTES)
        self._requests = Link(LINK_REQUESTS)

    @property
    def goes_on(self) -> bool:
        return time.monotonic() < self._deadline

    @property
    def seconds_left(self) -> float:
        return max(0.01, self._deadline - time.monotonic())

    async def connect(self, *, receive_buffer: int | None = None) -> Connection:
        await self._requests.carry()
        return await Connection.open(self.port, receive_buffer=receive_buffer)

    async def send(self, connection: Connection, data: bytes) -> bool:
        """Send at the speed of the link; False once the server has ended the connection."""
        for start in range(0, len(data), PIECE):
            piece = data[start : start + PIECE]
            await self._bytes.carry(len(piece))
            if connection.writer.transport.is_closing() or connection.reader.at_eof() or not self.goes_on:
                return False
            connection.writer.write(piece)
            try:
                await asyncio.wait_for(connection.writer.drain(), self.seconds_left)
            except (OSError, TimeoutError):
                return False
        return True

    async def read(self, connection: Connection) -> int | None:
        """Count the answer, whole, or how the connection ended instead; the status, if the connection goes on."""
        try:
            async with asyncio.timeout(self.seconds_left + 0.5):
                status, headers = await connection.head()
                await connection.body(status, headers)
                is_last = headers.get("connection") == "close"
        except TimeoutError:
            self.answers["silence"] += 1
        except EOFError:
            self.answers["closed"] += 1
        except (OSError, ValueError, asyncio.LimitOverrunError, asyncio.IncompleteReadError) as error:
            self.answers["reset" if isinstance(error, OSError) else "garbled"] += 1
        else:
            self.answers[str(status)] += 1
            return None if is_last else status
        return None

    async def ask(self, connection: Connection, data: bytes) -> int | None:
        await self._requests.carry()
        if not await self.send(connection, data) and not self.goes_on:
            return None
        return await self.read(connection)

    async def repeat(self, requests: Iterable[bytes], *, connections: int = 4) -> None:
        """Send requests, each answered before the next, over some connections that are made again when they end."""
        source = iter(requests)

        async def worker() -> None:
            while self.goes_on:
                with contextlib.suppress(OSError):
                    async with await self.connect() as connection:
                        for data in source:
                            if await self.ask(connection, data) is None or not self.goes_on:
                                break

        await self.crowd(worker, connections)

    async def crowd(self, worker: Callable[[], Awaitable[None]], size: int) -> None:
        """The same thing many times at once, until the time is up."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.seconds_left + 2):
                await asyncio.gather(*(worker() for _ in range(size)))

    async def open_session(self, version: str = "2025-11-25", **capabilities: Any) -> tuple[Connection, str]:
        connection = await self.connect()
        reply = await connection.ask(legacy_http(initialize(version, capabilities=capabilities)))
        session = reply.headers.get("mcp-session-id", "")
        await connection.ask(legacy_http(INITIALIZED, session))
        return connection, session


def head(message: dict[str, Any], *fields: str) -> bytes:
    """The head of a request without a length: how the body is framed is for the attack to say."""
    whole = http(b"", modern_headers(message), framed=False)
    return whole[:-2] + "".join(f"{field}\r\n" for field in fields).encode("latin-1") + b"\r\n"


def stop_reading(connection: Connection) -> None:
    """From now on what the server sends stays in its own buffers, once the kernel's are full."""
    cast("asyncio.Transport", connection.writer.transport).pause_reading()


def forever(*requests: bytes) -> Iterator[bytes]:
    return itertools.cycle(requests)


# --- framing ---------------------------------------------------------------------------------------------------------


async def frame(peer: Peer, start: bytes, filler: bytes, *, amount: int = 64_000_000, connections: int = 1) -> None:
    """Send a beginning and then the same filler, over and over, until the server says something."""
    block = filler * max(1, PIECE // len(filler))

    async def worker() -> None:
        while peer.goes_on:
            with contextlib.suppress(OSError):
                async with await peer.connect() as connection:
                    answer = asyncio.create_task(peer.read(connection))
                    await peer.send(connection, start)
                    sent = 0
                    while sent < amount and not answer.done() and await peer.send(connection, block):
                        sent += len(block)
                    await answer

    await peer.crowd(worker, connections)


CHUNKED: Final = head(call("add", {"a": 2, "b": 3}), "Transfer-Encoding: chunked")


@attack("nothing but calls")
async def calls(peer: Peer) -> None:
    """For comparison: an honest client, as fast as the others are hostile."""
    await peer.repeat(forever(ADD))


@attack("chunks of one byte")
async def tiny_chunks(peer: Peer) -> None:
    await frame(peer, CHUNKED, b"1\r\n \r\n")


@attack("8 MB in chunks of two")
async def small_chunks(peer: Peer) -> None:
    await frame(peer, CHUNKED, b"2\r\n  \r\n", amount=8_000_000 // 2 * 7)


@attack("chunk extensions without end")
async def extensions(peer: Peer) -> None:
    await frame(peer, CHUNKED + b"1;", b"a=b;")


@attack("trailers without end")
async def trailers(peer: Peer) -> None:
    await frame(peer, CHUNKED + b"0\r\n", b"X-Trailer: y\r\n")


@attack("empty lines without end")
async def empty_lines(peer: Peer) -> None:
    await frame(peer, b"", b"\r\n", connections=2)


@attack("head without end")
async def endless_head(peer: Peer) -> None:
    await frame(peer, b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"X: y\r\n", connections=2)


@attack("one line without end")
async def endless_line(peer: Peer) -> None:
    await frame(peer, b"POST /", b"a" * 1000, connections=2)


@attack("pipelining, nothing read")
async def pipelining(peer: Peer) -> None:
    data = modern_http(call("big"))

    async def worker() -> None:
        while peer.goes_on:
            connection = await peer.connect(receive_buffer=4096)
            stop_reading(connection)
            while peer.goes_on and await peer.send(connection, data * 20):
                pass
            peer.answers["cut off" if connection.writer.transport.is_closing() else "made to wait"] += 1
            connection.vanish()

    await peer.crowd(worker, 8)


async def drip(peer: Peer, start: bytes, byte: bytes, *, connections: int = 300) -> None:
    """Many connections that each send a byte now and then."""

    async def worker() -> None:
        while peer.goes_on:
            with contextlib.suppress(OSError):
                async with await peer.connect() as connection:
                    await peer.send(connection, start)
                    while peer.goes_on and not connection.reader.at_eof():
                        connection.writer.write(byte)
                        await asyncio.sleep(0.5)
                    peer.answers["closed" if connection.reader.at_eof() else "still waiting"] += 1

    await peer.crowd(worker, connections)


@attack("slow heads")
async def slow_heads(peer: Peer) -> None:
    await drip(peer, b"POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ", b"z")


@attack("slow bodies")
async def slow_bodies(peer: Peer) -> None:
    await drip(peer, head(call("add"), "Content-Length: 100000"), b" ")


@attack("bodies that stop before their end")
async def half_bodies(peer: Peer) -> None:
    """Each connection sends nearly all of 8 MB, and then a byte now and then."""
    start = head(call("add"), "Content-Length: 8000000")

    async def worker() -> None:
        while peer.goes_on:
            with contextlib.suppress(OSError):
                async with await peer.connect() as connection:
                    answer = asyncio.create_task(peer.read(connection))
                    await peer.send(connection, start + b" " * 1_000_000)
                    while peer.goes_on and not answer.done():
                        await peer.send(connection, b" ")
                        await asyncio.sleep(0.1)
                    await answer

    await peer.crowd(worker, 40)


async def read_slowly(peer: Peer, data: bytes, *, connections: int) -> None:
    async def worker() -> None:
        while peer.goes_on:
            with contextlib.suppress(OSError):
                connection = await peer.connect(receive_buffer=4096)
                stop_reading(connection)
                await peer.send(connection, data)
                while peer.goes_on:
                    await asyncio.sleep(0.2)
                peer.answers["not read"] += 1
                connection.vanish()

    await peer.crowd(worker, connections)


@attack("large answers, not read")
async def unread_answers(peer: Peer) -> None:
    await read_slowly(peer, modern_http(call("big", {"size": 2_000_000})), connections=20)


@attack("streams, not read")
async def unread_streams(peer: Peer) -> None:
    data = modern_http(call("report", {"count": 10_000}, progressToken="t"))
    await read_slowly(peer, data, connections=20)


@attack("HTTP+SSE: calls posted, the stream not read")
async def unread_sse(peer: Peer) -> None:
    """Each POST is answered at once, and the result waits for the stream."""
    stream = await peer.connect(receive_buffer=4096)
    await peer.send(stream, http(b"", {"Accept": "text/event-stream"}, "GET", "/sse"))
    await stream.reader.readuntil(b"data: ")
    endpoint = (await stream.reader.readuntil(b"\n")).decode().strip()
    stop_reading(stream)

    def post(message: Any) -> bytes:
        return http(encode(message), legacy_headers(None), "POST", endpoint)

    data = post(legacy_call("big", {"size": 500_000}))
    handshake = iter([post(initialize("2024-11-05")), post(INITIALIZED)])
    await peer.repeat(itertools.chain(handshake, itertools.repeat(data)), connections=1)
    stream.vanish()


@attack("bodies over the limit")
async def large_bodies(peer: Peer) -> None:
    """urllib sends all it has before it reads: its 413 must not be lost to a reset."""

    def post() -> str:
        request = urllib.request.Request(f"http://127.0.0.1:{peer.port}/mcp", data=b" " * 9_000_000, method="POST")
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=10) as reply:
                return str(reply.status)
        except urllib.error.HTTPError as error:
            with error:
                return str(error.code)
        except OSError:
            return "reset"

    while peer.goes_on:
        peer.answers[await asyncio.to_thread(post)] += 1
        await asyncio.sleep(1)


SMUGGLED: Final = b"POST /mcp HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
SMUGGLING: Final = [
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + SMUGGLED,
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n12345",
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nContent-Length: +4\r\n\r\n1234",
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nContent-Length: 4, 4\r\n\r\n1234",
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nX: a\r\n folded\r\nContent-Length: 0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nX: a\nY: b\r\nContent-Length: 0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nHost: i\r\nContent-Length: 0\r\n\r\n",
    b"POST http://evil.example?a=/mcp HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
    b"POST /mcp#x HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1\nx\r\n0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nx\r\n0\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nx",
    b"POST /mcp HTTP/1.1\r\n\r\n",
    b"POST /mcp HTTP/2.0\r\nHost: h\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"CONNECT evil.example:443 HTTP/1.1\r\nHost: h\r\n\r\n",
    b"POST /mcp HTTP/1.1\r\nHost: h\r\nX: \x00\r\nContent-Length: 0\r\n\r\n",
]


@attack("smuggling")
async def smuggling(peer: Peer) -> None:
    """What two parsers could read differently is refused, and what stands behind it is not answered."""

    async def worker() -> None:
        for data in forever(*SMUGGLING):
            if not peer.goes_on:
                return
            with contextlib.suppress(OSError):
                async with await peer.connect() as connection:
                    await peer.send(connection, data + ADD)
                    rest = await asyncio.wait_for(connection.rest(), 5)
                    statuses = re.findall(rb"HTTP/1.1 (\d+)", rest)
                    peer.answers[statuses[0].decode() if statuses else "closed"] += 1
                    peer.answers["SERVED"] += b"200" in statuses

    await peer.crowd(worker, 2)


@attack("random bytes")
async def random_bytes(peer: Peer) -> None:
    seeded = random.Random(1)
    noise = (seeded.randbytes(seeded.choice([1, 10, 1000, 100_000])) for _ in itertools.count())
    lines = (piece + b"\r\n\r\n" for piece in noise)
    await peer.repeat(itertools.chain.from_iterable(zip(lines, forever(ADD.replace(b"add", b"\xff\xfe\xfd")))))


@attack("TLS and HTTP/2 on the plain port")
async def other_protocols(peer: Peer) -> None:
    hello = bytes.fromhex("16030100c8010000c40303") + bytes(197)
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes.fromhex("000000040000000000")
    upgrade = ADD.replace(
        b"Host:", b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\nHost:"
    )
    websocket = b"GET /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    await peer.repeat(forever(hello, preface, upgrade, websocket, hello * 100))


@attack("connect and leave")
async def connect_and_leave(peer: Peer) -> None:
    async def worker() -> None:
        for number in itertools.count():
            if not peer.goes_on:
                return
            connection = await peer.connect()
            if number % 2:
                connection.writer.write(ADD[: number % len(ADD)])
            connection.vanish()
            peer.answers["left"] += 1

    await peer.crowd(worker, 4)


@attack("connections that stay and say nothing")
async def idle_connections(peer: Peer) -> None:
    connections: list[Connection] = []
    while peer.goes_on:
        with contextlib.suppress(OSError):
            if len(connections) < 1500:
                connections.append(await peer.connect())
                continue
        await asyncio.sleep(0.05)
    peer.answers["open"] = len(connections)


@attack("heads with odd fields")
async def odd_fields(peer: Peer) -> None:
    many = [f"X-{number}: y" for number in range(500)]
    long = ["X: " + "y" * 100_000]
    origins = (
        http(encode(call("add")), {**modern_headers(call("add")), "Origin": f"https://{number}.evil.example"})
        for number in itertools.count()
    )
    names = (ADD.replace(b"Host:", b"X-%d: y\r\nHost:" % number) for number in itertools.count())
    hosts = (ADD.replace(b"Host: 127.0.0.1", b"Host: %d.evil.example" % number) for number in itertools.count())
    refused = forever(*(head(call("add"), *fields, "Content-Length: 0") for fields in (many, long)))
    await peer.repeat(itertools.chain.from_iterable(zip(origins, names, hosts, refused)))


# --- JSON ------------------------------------------------------------------------------------------------------------


def body_of(message: dict[str, Any], old: str, new: str) -> bytes:
    """A call whose JSON has something in it that no encoder would write."""
    return http(encode(message).replace(old.encode(), new.encode()), modern_headers(message))


def odd_json(*values: str) -> list[bytes]:
    return [body_of(call("kind", {"value": "@"}), '"@"', value) for value in values]


@attack("deep JSON")
async def deep_json(peer: Peer) -> None:
    depths = [900, 5_000, 100_000, 1_000_000]
    deep = [("[" * depth + "]" * depth) for depth in depths] + [
        '{"a":' * 100_000 + "1" + "}" * 100_000,
        "[" * 1_000_000,
    ]
    envelope = [http(value.encode(), modern_headers(call("kind"))) for value in deep]
    await peer.repeat(forever(*odd_json(*deep), *envelope))


@attack("huge numbers")
async def huge_numbers(peer: Peer) -> None:
    numbers = [
        "1" * 1_000_000,
        "1e999999999",
        "-0." + "1" * 1_000_000,
        "1" * 4000,
        "1e-400",
        "[" + "1e308," * 100_000 + "1]",
    ]
    arguments = [body_of(call("add", {"a": "@", "b": 1}), '"@"', number) for number in numbers]
    ids = [body_of(call("add", {"a": 1, "b": 1}, id="@"), '"id":"@"', f'"id":{number}') for number in numbers[:2]]
    await peer.repeat(forever(*odd_json(*numbers), *arguments, *ids))


@attack("duplicate keys, countless keys and values")
async def many_keys(peer: Peer) -> None:
    same = "{" + ",".join('"a":1' for _ in range(100_000)) + "}"
    distinct = "{" + ",".join(f'"k{number}":1' for number in range(100_000)) + "}"
    most = "{" + ",".join(f'"k{number}":1' for number in range(500_000)) + "}"
    values = ["[" + filler * (7_000_000 // len(filler)) + "1]" for filler in ("1,", '"a",', '",",', "[],", '{"a":1},')]
    twice = body_of(call("add", {"a": 1, "b": 1}), '"method"', '"method":"tools/list","method"')
    await peer.repeat(forever(*odd_json(most, same, *values, distinct), twice), connections=2)


@attack("broken text")
async def broken_text(peer: Peer) -> None:
    values = [
        '"\\ud800"',
        '"\\ud800' * 1000 + '"',
        '"' + "\\u0000" * 100_000 + '"',
        '"\x9b\u202e"',
        '"' + "\\n" * 500_000 + '"',
    ]
    raw = [
        http(b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}', modern_headers(call("add"))),
        http(b"\x00" * 1000, modern_headers(call("add"))),
    ]
    await peer.repeat(forever(*odd_json(*values), *raw))


@attack("URIs of 8 MB for templates")
async def long_uris(peer: Peer) -> None:
    def read(uri: str) -> bytes:
        return legacy_http(rpc("resources/read", {"uri": uri}), session)

    connection, session = await peer.open_session()
    await connection.close()
    uris = [
        "target://page/" + "a" * 7_900_000,
        "target://files/" + "/a" * 3_900_000,
        "target://" + "a/" * 3_900_000,
        "a" * 7_900_000,
    ]
    short = [uri[:60_000] for uri in uris]
    await peer.repeat(forever(*map(read, short + uris)), connections=1)


@attack("a text against an author's pattern")
async def patterns(peer: Peer) -> None:
    texts = ["a" * 30 + "!", "a" * 5000 + "!", "a " * 20 + "!", "a " * 100_000 + "!"]
    await peer.repeat(forever(*(modern_http(call("match", {"text": text})) for text in texts)))


@attack("base64 of 6 MB")
async def large_base64(peer: Peer) -> None:
    good = base64.b64encode(bytes(5_900_000)).decode()
    texts = (good, good[:-3], "=" * 7_000_000)
    await peer.repeat(forever(*(modern_http(call("upload", {"data": text})) for text in texts)), connections=1)


@attack("compressed bodies")
async def compressed(peer: Peer) -> None:
    import zlib

    bomb = zlib.compress(bytes(50_000_000), 9)
    headers = modern_headers(call("add"))
    await peer.repeat(
        forever(*(http(bomb, {**headers, "Content-Encoding": coding}) for coding in ("gzip", "deflate", "br")))
    )


# --- messages --------------------------------------------------------------------------------------------------------


@attack("batches of 100")
async def batches(peer: Peer) -> None:
    connection, session = await peer.open_session("2025-03-26")
    await connection.close()
    entries = [legacy_call("add", {"a": 1, "b": 2}, number) for number in range(100)]
    slow = [legacy_call("wait", {"seconds": 1}, number) for number in range(100)]
    await peer.repeat(
        forever(
            *(
                http(encode(batch), {**legacy_headers(session), "MCP-Protocol-Version": "2025-03-26"})
                for batch in (entries, slow, [[]] * 100, [])
            )
        )
    )


@attack("sessions that are left at once")
async def sessions(peer: Peer) -> None:
    await peer.repeat(forever(legacy_http(initialize())))


@attack("sessions with streams that are left")
async def session_streams(peer: Peer) -> None:
    async def worker() -> None:
        while peer.goes_on:
            connection, session = await peer.open_session()
            stream = await peer.connect()
            await peer.send(stream, legacy_get(session))
            peer.answers["left"] += 1
            stream.vanish()
            connection.vanish()

    await peer.crowd(worker, 4)


@attack("events that nobody comes back for")
async def kept_events(peer: Peer) -> None:
    """Every session keeps what it was sent, for a client that reconnects."""

    async def worker() -> None:
        while peer.goes_on:
            connection, session = await peer.open_session()
            await peer.ask(connection, legacy_http(legacy_call("report", {"count": 250}, token="t"), session))
            connection.vanish()

    await peer.crowd(worker, 8)


@attack("questions nobody answers")
async def questions(peer: Peer) -> None:
    """A legacy client is asked on the stream of its call, and goes; a modern one gets the question and never comes back."""

    async def worker() -> None:
        connection, session = await peer.open_session(elicitation={})
        for number in itertools.count():
            if not peer.goes_on:
                break
            asking = await peer.connect()
            await peer.send(asking, legacy_http(legacy_call("greet", id=number), session))
            await asyncio.sleep(0.01)
            asking.vanish()
            await peer.ask(connection, modern_http(call("greet", id=number, **{P + "clientCapabilities": FORMS})))
        connection.vanish()

    await peer.crowd(worker, 3)


@attack("tasks that wait for nobody")
async def abandoned_tasks(peer: Peer) -> None:
    capabilities = {P + "clientCapabilities": {**TASKS, **FORMS}}
    await peer.repeat(modern_http(call("survey", id=number, **capabilities)) for number in itertools.count())


@attack("listeners that leave")
async def listeners(peer: Peer) -> None:
    wanted = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["target://page/1"]}}
    listen = modern_http(modern("subscriptions/listen", wanted))

    async def worker() -> None:
        while peer.goes_on:
            streams = [await peer.connect() for _ in range(5)]
            for stream in streams:
                await peer.send(stream, listen)
            async with await peer.connect() as announcing:
                await peer.ask(announcing, modern_http(call("announce")))
            for stream in streams:
                stream.vanish()

    await peer.crowd(worker, 3)


@attack("listeners that do not read")
async def deaf_listeners(peer: Peer) -> None:
    wanted = {"notifications": {"toolsListChanged": True, "resourceSubscriptions": ["target://page/1"]}}
    listen = modern_http(modern("subscriptions/listen", wanted))
    deaf = [await peer.connect(receive_buffer=4096) for _ in range(100)]
    for stream in deaf:
        stop_reading(stream)
        await peer.send(stream, listen)
    await peer.repeat(forever(modern_http(call("announce"))), connections=1)
    for stream in deaf:
        stream.vanish()


@attack("subscriptions to everything")
async def subscriptions(peer: Peer) -> None:
    connection, session = await peer.open_session()
    await connection.close()
    uris = (f"target://page/{number}" for number in itertools.count())
    await peer.repeat(legacy_http(rpc("resources/subscribe", {"uri": uri}), session) for uri in uris)


@attack("calls that are cancelled")
async def cancels(peer: Peer) -> None:
    async def worker() -> None:
        connection, session = await peer.open_session()
        for number in itertools.count():
            if not peer.goes_on:
                break
            asking = await peer.connect()
            await peer.send(asking, legacy_http(legacy_call("wait", {"seconds": 5}, number), session))
            for wrong in (number, number + 1, "no such id"):
                await peer.ask(connection, legacy_http(cancelled(wrong), session))
            asking.vanish()
            leaving = await peer.connect()
            await peer.send(leaving, modern_http(call("wait", {"seconds": 5})))
            leaving.vanish()
        connection.vanish()

    await peer.crowd(worker, 3)


@attack("calls that keep their threads")
async def hung_threads(peer: Peer) -> None:
    await peer.repeat(forever(modern_http(call("hang", {"seconds": 1}))), connections=100)


@attack("state replayed and forged")
async def forged_state(peer: Peer) -> None:
    capabilities = {P + "clientCapabilities": FORMS}
    async with await peer.connect() as connection:
        reply = await connection.ask(modern_http(call("greet", **capabilities)))
    result = reply.json["result"]
    state, key = result["requestState"], next(iter(result["inputRequests"]))
    answers = {key: {"action": "accept", "content": {"name": "Mallory"}}}

    def retry(state: Any, name: str = "greet") -> bytes:
        message = call(name, **capabilities)
        message["params"] |= {"requestState": state, "inputResponses": answers}
        return modern_http(message)

    forged = [state[:-3], state[:-1] + "A", "x" * 1_000_000, "", 5, [state], state * 100, state[::-1]]
    await peer.repeat(forever(retry(state), retry(state, "add"), *map(retry, forged)))


@attack("events asked for again and again")
async def resumptions(peer: Peer) -> None:
    connection, session = await peer.open_session()
    await peer.ask(connection, legacy_http(legacy_call("report", {"count": 100}, token="t"), session))
    await connection.close()
    ids = ["1", "0", "999999999", "x" * 5000, f"{session}-1", "-1", "1.5"]

    async def worker() -> None:
        for last in forever(*(one.encode() for one in ids)):
            if not peer.goes_on:
                return
            stream = await peer.connect()
            await peer.send(stream, legacy_get(session, last.decode()))
            with contextlib.suppress(EOFError, OSError, TimeoutError):
                status, _ = await asyncio.wait_for(stream.head(), 2)
                peer.answers[str(status)] += 1
            stream.vanish()

    await peer.crowd(worker, 3)


# --- credentials -----------------------------------------------------------------------------------------------------


def token(header: Any = None, payload: Any = None, *, secret: str = SECRET, signature: str | None = None) -> str:
    def part(value: Any) -> str:
        raw = value if isinstance(value, bytes) else json.dumps(value).encode()
        return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()

    header = {"alg": "HS256", "typ": "JWT"} if header is None else header
    payload = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": time.time() + 3600} if payload is None else payload
    signed = f"{part(header)}.{part(payload)}"
    if signature is None:
        signature = part(hmac.new(secret.encode(), signed.encode(), hashlib.sha256).digest())
    return f"{signed}.{signature}"


@attack("forged tokens", "guarded")
async def forged_tokens(peer: Peer) -> None:
    """Every one is refused: a single 200 is a break-in, and is called so."""
    deep = b'{"a":' * 1500 + b"1" + b"}" * 1500
    forged = [
        token({"alg": "none"}, signature=""),
        token({"alg": "None"}, signature=""),
        token(secret="another secret, as long as the one that is right"),
        token({"alg": "HS256", "kid": "k" * 8000}, secret="x" * 40),
        token({"alg": "RS256"}),
        token({"alg": "HS256", "crit": ["b64"], "b64": False}),
        token({"alg": "HS256", "jwk": {"kty": "oct", "k": "AAAA"}}, secret="\0\0\0" * 20),
        token(payload=deep, secret="x" * 40),
        token(deep, secret="x" * 40),
        token(payload={"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "exp": 1}),
        token(payload={"iss": "https://evil.example", "aud": AUDIENCE, "sub": "ada", "exp": time.time() + 3600}),
        token(payload={"iss": ISSUER, "aud": "https://other.example", "sub": "ada", "exp": time.time() + 3600}),
        "." * 8000,
        "a.b.c",
        "=" * 8000,
        "",
    ]
    values = [f"Bearer {one}" for one in forged] + [token(), "Basic " + token(), "Bearer", "Bearer " + token() + " x"]
    message = call("add", {"a": 2, "b": 3})
    requests = [http(encode(message), {**modern_headers(message), "Authorization": value}) for value in values]
    await peer.repeat(forever(*requests))
    peer.answers["SERVED"] += peer.answers.pop("200", 0)


@attack("tokens that are all different", "guarded")
async def many_tokens(peer: Peer) -> None:
    """Good ones: what is remembered of each must not add up."""
    message = call("add", {"a": 2, "b": 3})

    def request(number: int) -> bytes:
        payload = {"iss": ISSUER, "aud": AUDIENCE, "sub": f"caller {number}", "exp": time.time() + 3600}
        return http(encode(message), {**modern_headers(message), "Authorization": f"Bearer {token(payload=payload)}"})

    await peer.repeat(request(number) for number in itertools.count())


@attack("fields without number for a gateway's page", "gateway")
async def sign_in_forms(peer: Peer) -> None:
    """Anybody may send the form with which an administrator signs in."""
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    fields = (b"%41=1&" * 330_000, b"a&" * 1_000_000, b"credential=" + b"%" * 2_000_000, b"a=1&" * 8_000)
    await peer.repeat(forever(*(http(body, headers, path="/") for body in fields)), connections=1)


# --- TLS -------------------------------------------------------------------------------------------------------------

ANYBODY: Final = ssl.create_default_context()
ANYBODY.check_hostname = False
ANYBODY.verify_mode = ssl.CERT_NONE


async def shake_hands(peer: Peer) -> Connection:
    connection = await peer.connect()
    await connection.writer.start_tls(ANYBODY)
    return connection


@attack("handshakes that stop half-way", "tls")
async def half_handshakes(peer: Peer) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ANYBODY.wrap_bio(incoming, outgoing).do_handshake()
    hello = outgoing.read()
    await drip(peer, hello[: len(hello) // 2], b"", connections=100)
    await drip(peer, hello, b"", connections=100)


@attack("handshakes, and gone", "tls")
async def handshakes(peer: Peer) -> None:
    """Each costs the server a signature: with 200 a second, what a small core can do."""

    async def worker() -> None:
        while peer.goes_on:
            with contextlib.suppress(OSError):
                connection = await shake_hands(peer)
                peer.answers["shaken"] += 1
                connection.vanish()

    await peer.crowd(worker, 4)


@attack("no TLS on the TLS port", "tls")
async def plain_on_tls(peer: Peer) -> None:
    noise = random.Random(2).randbytes(2000)
    await peer.repeat(forever(ADD, noise, b"\x16\x03\x01\xff\xff" + noise, b"\r\n" * 100))


@attack("large answers on TLS, not read", "tls")
async def unread_on_tls(peer: Peer) -> None:
    async def worker() -> None:
        while peer.goes_on:
            with contextlib.suppress(OSError):
                connection = await shake_hands(peer)
                stop_reading(connection)
                await peer.send(connection, modern_http(call("big", {"size": 2_000_000})))
                while peer.goes_on:
                    await asyncio.sleep(0.2)
                peer.answers["not read"] += 1
                connection.vanish()

    await peer.crowd(worker, 20)
