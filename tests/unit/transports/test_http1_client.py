"""The plain HTTP/1.1 client against servers written by hand: what a pool does with its connections, and what it never does."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import socket
import struct
import types
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from tests.support.until import PATIENCE, until

from trimaran.errors import ConfigError, ConnectFailed, ConnectionLost, LocalProtocolError, RemoteProtocolError
from trimaran.protocol.http1_framing import chunk
from trimaran.transports import http1_client
from trimaran.transports.http1_client import PlainPool, PlainResponse

LOOPS = ("asyncio", "uvloop")
SECONDS = PATIENCE
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
HEAD_ONLY = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
ENDLESS = b"HTTP/1.1 200 OK\r\n\r\n"


# --- a server --------------------------------------------------------------------------------------------------------


class Visit:
    """One connection, as the server has it."""

    def __init__(self, peer: Peer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._peer = peer
        self._reader = reader
        self._writer = writer
        self.number = peer.visits

    async def request(self) -> bytes | None:
        """The next request's body, its head noted in the peer; None when the client is gone."""
        try:
            head = await self._reader.readuntil(b"\r\n\r\n")
            length = 0
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:"):
                    length = int(line.partition(b":")[2])
            body = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            return None
        self._peer.heads.append(head)
        return body

    async def say(self, data: bytes) -> None:
        with contextlib.suppress(ConnectionError):
            self._writer.write(data)
            await self._writer.drain()

    async def until_gone(self) -> None:
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(65536):
                pass

    def reset(self) -> None:
        """End it with RST rather than FIN."""
        with socket.socket(fileno=os.dup(self._writer.get_extra_info("socket").fileno())) as raw:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Script = Callable[[Visit], Awaitable[None]]


class Peer:
    def __init__(self, script: Script) -> None:
        self._script = script
        self._tasks: set[asyncio.Task[None]] = set()
        self.visits = 0
        self.live = 0
        self.heads: list[bytes] = []
        self.port = 0

    async def _visit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.visits += 1
        self.live += 1
        try:
            await self._script(Visit(self, reader, writer))
        except asyncio.CancelledError:
            pass  # the peer is closing; streams would log it
        finally:
            self.live -= 1
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    @contextlib.asynccontextmanager
    async def open(self, host: str) -> AsyncIterator[Peer]:
        server = await asyncio.start_server(self._visit, host, 0, backlog=2048)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            left = tuple(self._tasks)
            for task in left:
                task.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await server.wait_closed()


async def polite(visit: Visit) -> None:
    while await visit.request() is not None:
        await visit.say(OK)


@contextlib.asynccontextmanager
async def meeting(
    script: Script = polite, *, host: str = "127.0.0.1", name: str | None = None, **options: Any
) -> AsyncIterator[tuple[PlainPool, Peer, str]]:
    """A server, a pool for it, and its URL."""
    async with Peer(script).open(host) as peer:
        named = name or (f"[{host}]" if ":" in host else host)
        url = f"http://{named}:{peer.port}/mcp"
        pool = PlainPool(url, connect_seconds=SECONDS, **options)
        try:
            yield pool, peer, url
        finally:
            await pool.close()


async def get(pool: PlainPool, url: str, body: bytes | None = b"{}") -> bytes:
    response = await pool.request("POST", url, {}, body)
    return await response.read()


def fields(head: bytes, name: str) -> list[str]:
    lines = (line.decode("latin-1").partition(":") for line in head.split(b"\r\n")[1:])
    return [value.strip() for key, _, value in lines if key.lower() == name]


# --- requests --------------------------------------------------------------------------------------------------------


async def test_a_request_is_answered_head_first() -> None:
    async def script(visit: Visit) -> None:
        assert await visit.request() == b"hello"
        await visit.say(b"HTTP/1.1 404 Not Here\r\nX-A: b\r\nContent-Length: 3\r\n\r\n")
        await visit.request()

    async with meeting(script) as (pool, _, url):
        response = await pool.request("POST", url, {}, b"hello")
        assert (response.status, response.reason, response.url) == (404, "Not Here", url)
        assert (response.headers["x-a"], response.length, response.is_complete) == ("b", 3, False)
        response.close()


async def test_the_request_says_host_with_port_target_with_query_and_length() -> None:
    async with meeting() as (pool, peer, url):
        await get(pool, url + "?a=b&c=%20d#fragment", b"12345")
        await pool.request("GET", f"http://127.0.0.1:{peer.port}", {"Accept": "x/y"}, None)
        await get(pool, f"http://127.0.0.1:{peer.port}?q", None)
        first, second, third = peer.heads
    assert first.startswith(b"POST /mcp?a=b&c=%20d HTTP/1.1\r\n")
    assert second.startswith(b"GET / HTTP/1.1\r\n")
    assert third.startswith(b"POST /?q HTTP/1.1\r\n")
    assert fields(first, "host") == fields(second, "host") == [f"127.0.0.1:{peer.port}"]
    assert (fields(first, "content-length"), fields(second, "content-length")) == (["5"], [])
    assert fields(third, "content-length") == ["0"]
    assert fields(second, "accept") == ["x/y"]


async def test_a_path_beyond_ascii_travels_percent_encoded() -> None:
    """As it does through aiohttp, and as RFC 3986 wants it; what is encoded already stays."""
    async with meeting() as (pool, peer, url):
        assert await get(pool, url + "/a b/é/日?q=ü x&r=%41") == b"ok"
    assert peer.heads[0].startswith(b"POST /mcp/a%20b/%C3%A9/%E6%97%A5?q=%C3%BC%20x&r=%41 HTTP/1.1\r\n")


async def test_a_name_in_the_url_does_not_travel_in_the_host() -> None:
    async with Peer(polite).open("127.0.0.1") as peer:
        url = f"http://me:secret@127.0.0.1:{peer.port}/mcp"
        pool = PlainPool(url, connect_seconds=SECONDS)
        assert await get(pool, url) == b"ok"
        await pool.close()
    assert fields(peer.heads[0], "host") == [f"127.0.0.1:{peer.port}"]
    assert b"secret" not in peer.heads[0]


@pytest.mark.parametrize(("host", "name"), [("::1", None), ("127.0.0.1", "localhost"), ("127.0.0.1", "LOCALHOST")])
async def test_hosts_are_reached_by_any_name(host: str, name: str | None) -> None:
    try:
        socket.getaddrinfo(host, 0)
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
            probe.bind((host, 0))
    except OSError:
        pytest.skip(f"no {host} here")
    async with meeting(host=host, name=name) as (pool, peer, url):
        assert await get(pool, url) == b"ok"
        assert fields(peer.heads[0], "host") == [f"{name or f'[{host}]'}:{peer.port}"]


async def test_a_large_request_body_arrives_whole() -> None:
    body = bytes(range(256)) * 40_960  # 10 MiB
    seen: list[bytes | None] = []

    async def script(visit: Visit) -> None:
        seen.append(await visit.request())
        await visit.say(OK)
        await visit.request()

    async with meeting(script) as (pool, _, url):
        async with asyncio.timeout(SECONDS):
            assert await get(pool, url, body) == b"ok"
    assert seen[0] == body


async def test_a_header_that_would_break_the_request_apart_is_refused_before_anything_is_sent() -> None:
    async with meeting() as (pool, peer, url):
        with pytest.raises(LocalProtocolError):
            await pool.request("POST", url, {"X": "a\r\nY: b"}, b"")
        assert peer.visits == 0


async def test_nothing_listening_is_connect_failed(free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}/"
    pool = PlainPool(url, connect_seconds=SECONDS)
    with pytest.raises(ConnectFailed, match=r": connection refused; is the server running\?"):
        await get(pool, url)
    await pool.close()


async def test_a_name_that_cannot_be_one_is_a_config_error() -> None:
    url = f"http://{'a' * 64}.invalid/"
    pool = PlainPool(url, connect_seconds=SECONDS)
    with pytest.raises(ConfigError):
        await get(pool, url)
    await pool.close()


async def test_a_connection_that_cannot_be_made_in_time_is_connect_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(*_: Any, **_options: Any) -> None:
        await asyncio.Event().wait()

    class Slow:
        create_connection = staticmethod(never)

    pool = PlainPool("http://127.0.0.1:9/", connect_seconds=0.01)
    # uvloop's loop takes no attributes, so the module's view of asyncio is what is changed.
    fake = types.SimpleNamespace(**{**vars(asyncio), "get_running_loop": Slow})
    monkeypatch.setattr(http1_client, "asyncio", fake)
    with pytest.raises(ConnectFailed, match="within 0.01 s"):
        await pool.request("GET", "http://127.0.0.1:9/", {}, None)


# --- connections, again and again ------------------------------------------------------------------------------------


async def test_a_connection_is_used_again_whatever_framed_its_answers() -> None:
    answers = [
        OK,
        CHUNKED + b"2\r\nok\r\n0\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK,
        b"HTTP/1.1 500 Oh\r\nContent-Length: 0\r\n\r\n",
    ]

    async def script(visit: Visit) -> None:
        for answer in answers * 20:
            await visit.request()
            await visit.say(answer)
        await visit.request()

    async with meeting(script) as (pool, peer, url):
        bodies = [await get(pool, url) for _ in range(100)]
        assert peer.visits == 1
    assert bodies == [b"ok", b"ok", b"", b"ok", b""] * 20


async def test_interim_answers_without_end_are_refused() -> None:
    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" * 1000)
        await visit.until_gone()

    async with meeting(script) as (pool, _, url):
        with pytest.raises(RemoteProtocolError, match=r"more than 100 interim answers \(1xx\)"):
            await pool.request("POST", url, {}, b"")


async def test_a_connection_is_not_shared_while_its_answer_is_under_way() -> None:
    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.say(HEAD_ONLY)
        await visit.until_gone()

    async with meeting(script) as (pool, peer, url):
        first = await pool.request("POST", url, {}, b"")
        second = await pool.request("POST", url, {}, b"")
        assert peer.visits == 2
        first.close()
        second.close()


@pytest.mark.parametrize("answer", [b"Connection: close\r\nContent-Length: 2\r\n\r\nok", b"\r\nok"], ids=["said", "until the end"])  # fmt: skip
async def test_a_connection_the_server_ends_is_not_used_again(answer: bytes) -> None:
    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\n" + answer)

    async with meeting(script) as (pool, peer, url):
        assert [await get(pool, url) for _ in range(3)] == [b"ok"] * 3
        assert peer.visits == 3


async def test_a_connection_closed_while_idle_is_replaced_unseen() -> None:
    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.say(OK)

    async with meeting(script) as (pool, peer, url):
        for number in range(1, 6):
            assert await get(pool, url) == b"ok"
            await until(lambda: not pool._lines)
            assert peer.visits == number


async def test_a_connection_that_is_closing_is_not_taken() -> None:
    """The server's end has been read, and is told to the line in the loop's next turn: the request must not go there."""
    async with meeting() as (pool, peer, url):
        assert await get(pool, url) == b"ok"
        (line,) = pool._lines
        line._transport.close()
        assert await get(pool, url) == b"ok"
        assert peer.visits == 2


async def test_a_connection_closed_at_the_moment_of_reuse_loses_the_request_and_says_that_it_was_sent() -> None:
    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.say(OK)
        await visit.request()
        if visit.number > 1:
            await visit.say(OK)
            await visit.request()

    async with meeting(script) as (pool, peer, url):
        assert await get(pool, url) == b"ok"
        with pytest.raises(ConnectionLost, match="before an answer came") as caught:
            await get(pool, url)
        assert caught.value.sent
        assert await get(pool, url) == b"ok"
        assert (peer.visits, len(peer.heads)) == (2, 3)


async def test_a_connection_reset_instead_of_an_answer_is_lost() -> None:
    async def script(visit: Visit) -> None:
        await visit.request()
        visit.reset()

    async with meeting(script) as (pool, _, url):
        with pytest.raises(ConnectionLost) as caught:
            await get(pool, url)
        assert caught.value.sent


async def test_garbage_behind_an_answer_does_not_become_the_next_one() -> None:
    async def script(visit: Visit) -> None:
        while await visit.request() is not None:
            await visit.say(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong")

    async with meeting(script) as (pool, peer, url):
        assert [await get(pool, url) for _ in range(3)] == [b"ok"] * 3
        assert peer.visits == 3


async def test_an_answer_nobody_asked_for_ends_an_idle_connection() -> None:
    more = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.say(OK)
        await more.wait()
        await visit.say(b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        await visit.until_gone()

    async with meeting(script) as (pool, peer, url):
        assert await get(pool, url) == b"ok"
        more.set()
        await until(lambda: not pool._lines)
        assert await get(pool, url) == b"ok"
        assert peer.visits == 2


@pytest.mark.parametrize(
    ("said", "seconds"),
    [
        ("", 15.0),
        ("Keep-Alive: timeout=5\r\n", 4.0),
        ("Keep-Alive: max=9, Timeout=1\r\n", 0.5),
        ("Keep-Alive: x\r\n", 15.0),
    ],
    ids=["nothing said", "five seconds", "one second", "nonsense"],
)
async def test_a_connection_is_not_used_when_the_server_may_be_closing_it(
    said: str, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def tell(visit: Visit) -> None:
        while await visit.request() is not None:
            await visit.say(f"HTTP/1.1 200 OK\r\n{said}Content-Length: 2\r\n\r\nok".encode())

    async with meeting(tell) as (pool, peer, url):
        now = 1000.0
        monkeypatch.setattr(http1_client, "monotonic", lambda: now)
        await get(pool, url)
        now += seconds - 0.1
        await get(pool, url)
        assert peer.visits == 1
        now += seconds
        await get(pool, url)
        assert peer.visits == 2
        await until(lambda: peer.live == 1)


async def test_what_a_burst_left_idle_is_closed_though_one_connection_stays_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The newest is used first, so the oldest would never be looked at: 256 descriptors for as long as the client lives."""
    async with meeting() as (pool, peer, url):
        now = 1000.0
        monkeypatch.setattr(http1_client, "monotonic", lambda: now)
        await asyncio.gather(*(get(pool, url) for _ in range(20)))
        assert peer.live == 20
        for _ in range(5):
            now += 10
            await get(pool, url)
        await until(lambda: peer.live <= 1)


async def test_no_more_are_kept_idle_than_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http1_client, "_MAX_IDLE", 3)
    async with meeting() as (pool, peer, url):
        assert await asyncio.gather(*(get(pool, url) for _ in range(10))) == [b"ok"] * 10
        await until(lambda: peer.live == 3)


async def test_an_answer_that_came_before_its_request_was_read_frees_no_connection() -> None:
    """The rest of the body is still to be written; the next request would wait behind it, perhaps for ever."""

    async def script(visit: Visit) -> None:
        if visit.number == 1:
            await visit.say(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            await asyncio.Event().wait()
        await polite(visit)

    async with meeting(script) as (pool, peer, url):
        response = await pool.request("POST", url, {}, bytes(20_000_000))
        assert (response.status, await response.read()) == (413, b"")
        async with asyncio.timeout(SECONDS):
            assert await get(pool, url) == b"ok"
        assert peer.visits == 2


# --- bodies ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", [b"HTTP/1.1 100 C\r\n\r\n" + OK, CHUNKED + b"1;x\r\no\r\n1\r\nk\r\n0\r\nT: u\r\n\r\n", ENDLESS + b"ok"], ids=["length", "chunked", "until the end"])  # fmt: skip
async def test_an_answer_may_come_a_byte_at_a_time(raw: bytes) -> None:
    async def script(visit: Visit) -> None:
        await visit.request()
        for at in range(len(raw)):
            await visit.say(raw[at : at + 1])
            await asyncio.sleep(0)

    async with meeting(script) as (pool, _, url):
        assert await get(pool, url) == b"ok"


async def test_pieces_are_handed_over_before_the_body_has_ended() -> None:
    more = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.say(CHUNKED + chunk(b"one"))
        await more.wait()
        await visit.say(chunk(b"two") + b"0\r\n\r\n")
        await visit.request()

    async with meeting(script) as (pool, _, url):
        response = await pool.request("POST", url, {}, b"")
        pieces = response.pieces()
        assert await asyncio.wait_for(anext(pieces), SECONDS) == b"one"
        assert not response.is_complete
        more.set()
        assert [piece async for piece in pieces] == [b"two"]
        assert response.is_complete


@pytest.mark.parametrize("how", ["close", "reset"])
@pytest.mark.parametrize("start", [HEAD_ONLY + b"short", CHUNKED + b"5\r\nab", CHUNKED + b"2\r\nab\r\n", CHUNKED + b"2\r\nab\r\n0\r\n"], ids=["length", "in a chunk", "between chunks", "before the trailer"])  # fmt: skip
async def test_a_body_that_breaks_off_is_lost_after_what_came(start: bytes, how: str) -> None:
    go = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.say(start)
        await go.wait()
        if how == "reset":
            visit.reset()

    async with meeting(script) as (pool, _, url):
        response = await pool.request("POST", url, {}, b"")
        pieces = response.pieces()
        assert await anext(pieces) in (b"short", b"ab")
        go.set()
        with pytest.raises(ConnectionLost, match="broke off"):
            await anext(pieces)
        assert not response.is_complete
        response.close()


async def test_a_body_until_the_end_that_is_reset_is_lost() -> None:
    go = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.say(ENDLESS + b"half")
        await go.wait()
        visit.reset()

    async with meeting(script) as (pool, _, url):
        response = await pool.request("POST", url, {}, b"")
        pieces = response.pieces()
        assert await anext(pieces) == b"half"
        go.set()
        with pytest.raises(ConnectionLost):
            await anext(pieces)


@pytest.mark.parametrize("raw", [b"SSH-2.0-x\r\n", b"\x15\x03\x01\x00\x02\x02\x16", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/1.1 200 OK\r\nA b\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300_000])  # fmt: skip
async def test_what_is_not_http_is_refused_at_once_and_the_connection_ended(raw: bytes) -> None:
    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.say(raw)
        await visit.until_gone()

    async with meeting(script) as (pool, peer, url):
        async with asyncio.timeout(SECONDS):
            with pytest.raises(RemoteProtocolError, match="not HTTP"):
                await get(pool, url)
        await until(lambda: not peer.live and not pool._lines)


async def test_malformed_chunks_fail_who_reads_them_and_end_the_connection() -> None:
    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.say(CHUNKED + b"xyz\r\n")
        await visit.until_gone()

    async with meeting(script) as (pool, peer, url):
        response = await pool.request("POST", url, {}, b"")
        with pytest.raises(RemoteProtocolError, match="chunk"):
            await response.read()
        await until(lambda: not peer.live and not pool._lines)


@pytest.mark.parametrize("framing", ["length", "chunked", "until the end"])
async def test_a_body_nobody_reads_is_held_back_and_comes_whole_when_somebody_does(framing: str) -> None:
    total, piece = 24 * 1024 * 1024, bytes(range(256)) * 256
    said = 0

    async def script(visit: Visit) -> None:
        nonlocal said
        await visit.request()
        if framing == "length":
            await visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        else:
            await visit.say(CHUNKED if framing == "chunked" else ENDLESS)
        while said < total:
            await visit.say(chunk(piece) if framing == "chunked" else piece)
            said += len(piece)
        if framing == "chunked":
            await visit.say(b"0\r\n\r\n")
        if framing != "until the end":
            await polite(visit)

    async with meeting(script) as (pool, peer, url):
        response = await pool.request("POST", url, {}, b"")
        (line,) = pool._lines
        await until(lambda: line._is_paused)
        held, before = response._size, -1
        while before != said:  # the server comes to a stop once the sockets between are full
            before = said
            await asyncio.sleep(0.05)
        assert said < total
        assert response._size == held <= http1_client._HIGH_WATER + 512 * 1024
        got = most = 0
        async with asyncio.timeout(SECONDS * 2):
            async for part in response.pieces():
                got += len(part)
                most = max(most, response._size)
        assert got == total
        assert most <= http1_client._HIGH_WATER + 512 * 1024
        assert response.is_complete
        if framing != "until the end":
            async with asyncio.timeout(SECONDS):
                assert await get(pool, url) == b"ok"
            assert peer.visits == 1


async def test_reading_what_is_left_of_one_answer_does_not_release_the_next() -> None:
    """Both came over one connection; the first is complete and unread, the second held back."""
    first = b"a" * 700_000
    endless = b"b" * 65536

    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(first) + first)
        await visit.request()
        await visit.say(CHUNKED)
        while True:
            await visit.say(chunk(endless))

    async with meeting(script) as (pool, peer, url):
        one = await pool.request("POST", url, {}, b"")
        await until(lambda: one.is_complete)
        two = await pool.request("POST", url, {}, b"")
        assert peer.visits == 1
        (line,) = pool._lines
        await until(lambda: line._is_paused)
        assert await one.read() == first
        assert line._is_paused
        two.close()


# --- giving up -------------------------------------------------------------------------------------------------------


async def test_a_request_given_up_before_its_answer_ends_its_connection() -> None:
    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.until_gone()

    async with meeting(script) as (pool, peer, url):
        asked = asyncio.ensure_future(pool.request("POST", url, {}, b""))
        await until(lambda: len(peer.heads) == 1)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        await until(lambda: not peer.live and not pool._lines)


async def test_a_request_given_up_while_connecting_leaves_no_connection() -> None:
    async with meeting() as (pool, peer, url):
        for turns in range(8):
            asked = asyncio.ensure_future(pool.request("POST", url, {}, b""))
            for _ in range(turns):
                await asyncio.sleep(0)
            asked.cancel()
            await asyncio.wait([asked])
        await until(lambda: peer.live == len(pool._lines) == len([line for line in pool._idle if line.is_open]))
        assert await get(pool, url) == b"ok"


@pytest.mark.parametrize("is_before", [True, False], ids=["before", "after"])
@pytest.mark.parametrize("start", [HEAD_ONLY, ENDLESS, OK], ids=["length", "until the end", "whole"])
async def test_an_answer_given_up_in_the_turn_in_which_it_comes_leaves_nothing(start: bytes, is_before: bool) -> None:
    """Nobody will ever read or close that response. Where all of it was there, its connection stays for others."""

    go = asyncio.Event()

    async def script(visit: Visit) -> None:
        await visit.request()
        await go.wait()
        await visit.say(start)
        await visit.until_gone()

    async with meeting(script) as (pool, peer, url):
        asked = asyncio.ensure_future(pool.request("POST", url, {}, b""))
        await until(lambda: len(peer.heads) == 1)
        (line,) = pool._lines
        real, cancels = line.data_received, []

        def received(data: bytes) -> None:
            if is_before:
                cancels.append(asked.cancel())
            real(data)
            if not is_before:
                cancels.append(asked.cancel())

        line.data_received = received
        line._transport.set_protocol(line)  # uvloop keeps the method it was given
        go.set()
        await asyncio.wait([asked], timeout=SECONDS)
        assert asked.cancelled()
        assert cancels == [True]
        await until(lambda: len(pool._lines) == peer.live == (start == OK and not is_before))


async def test_a_response_closed_between_head_and_body_ends_its_connection() -> None:
    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.say(HEAD_ONLY)
        await visit.until_gone()

    async with meeting(script) as (pool, peer, url):
        response = await pool.request("POST", url, {}, b"")
        response.close()
        response.close()
        await until(lambda: not peer.live and not pool._lines)


async def test_a_response_closed_after_its_end_leaves_the_connection_to_others() -> None:
    async with meeting() as (pool, peer, url):
        response = await pool.request("POST", url, {}, b"")
        await until(lambda: response.is_complete)
        again = await pool.request("POST", url, {}, b"")
        response.close()
        assert await again.read() == b"ok"
        assert await response.read() == b""
        assert peer.visits == 1


@pytest.mark.parametrize("start", [HEAD_ONLY, CHUNKED, ENDLESS], ids=["length", "chunked", "until the end"])
async def test_a_reader_given_up_closes_and_the_connection_ends(start: bytes) -> None:
    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.say(start)
        await visit.until_gone()

    async with meeting(script) as (pool, peer, url):
        response = await pool.request("POST", url, {}, b"")
        reading = asyncio.ensure_future(response.read())
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        response.close()
        await until(lambda: not peer.live and not pool._lines)


@pytest.mark.parametrize("start", [HEAD_ONLY + b"half", CHUNKED + b"4\r\nhalf\r\n", ENDLESS + b"half"], ids=["length", "chunked", "until the end"])  # fmt: skip
async def test_a_body_closed_under_its_reader_is_lost_and_not_taken_for_complete(start: bytes) -> None:
    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.say(start)
        await visit.until_gone()

    async with meeting(script) as (pool, _, url):
        response = await pool.request("POST", url, {}, b"")
        pieces = response.pieces()
        assert await anext(pieces) == b"half"
        reading = asyncio.ensure_future(anext(pieces))
        await asyncio.sleep(0)
        response.close()
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(reading, SECONDS)
        assert not response.is_complete


# --- the end of a pool -----------------------------------------------------------------------------------------------


async def test_closing_a_pool_fails_all_that_is_under_way_and_leaves_nothing() -> None:
    starts = [b"", b"HTTP/1.1 200 OK\r\nContent-Le", HEAD_ONLY + b"half", CHUNKED + b"4\r\nhalf\r\n", ENDLESS + b"half"]

    async def script(visit: Visit) -> None:
        await visit.request()
        await visit.say(starts[visit.number % len(starts)])
        await visit.until_gone()

    async with meeting(script) as (pool, peer, url):
        asked = [asyncio.ensure_future(get(pool, url)) for _ in range(20)]
        await until(lambda: len(peer.heads) == 20)
        await asyncio.sleep(0.01)
        await pool.close()
        assert not pool._lines
        ended = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), SECONDS)
        assert [type(found) for found in ended] == [ConnectionLost] * 20
        assert "server closed" not in "".join(map(str, ended)), "it was not the server"
        await until(lambda: not peer.live)
        await pool.close()


async def test_closing_a_pool_ends_what_is_idle_and_nothing_more_is_sent() -> None:
    async with meeting() as (pool, peer, url):
        await asyncio.gather(*(get(pool, url) for _ in range(5)))
        await pool.close()
        await until(lambda: not peer.live)
        with pytest.raises(ConnectionLost) as caught:
            await get(pool, url)
        assert not caught.value.sent
        assert len(peer.heads) == 5


async def test_closing_a_pool_while_it_connects_leaves_no_connection_and_says_that_nothing_was_sent() -> None:
    async with meeting() as (pool, peer, url):
        asked = [asyncio.ensure_future(get(pool, url)) for _ in range(5)]
        await asyncio.sleep(0)
        await pool.close()
        ended = await asyncio.wait_for(asyncio.gather(*asked, return_exceptions=True), SECONDS)
        for found in ended:
            assert isinstance(found, ConnectionLost)
            assert not found.sent
        await until(lambda: not peer.live and not pool._lines)
        assert peer.heads == []


# --- cookies ---------------------------------------------------------------------------------------------------------


async def sets_cookies(visit: Visit) -> None:
    given = [
        b"Set-Cookie: route=a1; Path=/; HttpOnly\r\nSet-Cookie: b = 2 ; Expires=Wed, 21 Oct 2037 07:28:00 GMT\r\n",
        b"Set-Cookie: route=a2\r\nSet-Cookie: =nameless\r\nSet-Cookie: \r\n",
        b"",
    ]
    for more in given:
        await visit.request()
        await visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + more + b"\r\n")
    await visit.request()


async def test_cookies_are_sent_back_where_they_are_wanted() -> None:
    async with meeting(sets_cookies, cookies=True) as (pool, peer, url):
        for _ in range(3):
            await get(pool, url)
    assert [fields(head, "cookie") for head in peer.heads] == [[], ["route=a1; b=2"], ["route=a2; b=2"]]


async def test_cookies_are_not_sent_back_where_they_are_not() -> None:
    async with meeting(sets_cookies) as (pool, peer, url):
        for _ in range(3):
            await get(pool, url)
    assert [fields(head, "cookie") for head in peer.heads] == [[], [], []]


@pytest.mark.parametrize("name", ["Cookie", "cookie"])
async def test_a_cookie_of_the_callers_own_is_sent_beside_the_servers(name: str) -> None:
    async with meeting(sets_cookies, cookies=True) as (pool, peer, url):
        for _ in range(2):
            await pool.request("POST", url, {name: "mine=1"}, b"")
    (sent,) = fields(peer.heads[1], "cookie")
    assert sorted(sent.split("; ")) == ["b=2", "mine=1", "route=a1"]


async def test_a_server_cannot_set_cookies_without_end() -> None:
    async def script(visit: Visit) -> None:
        for turn in range(5):
            await visit.request()
            more = b"".join(b"Set-Cookie: c%d=1\r\n" % (turn * 20 + number) for number in range(20))
            await visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n" + more + b"\r\n")
        await visit.request()

    async with meeting(script, cookies=True) as (pool, peer, url):
        for _ in range(5):
            await get(pool, url)
    assert fields(peer.heads[-1], "cookie")[0].count("=") == 20


# --- many ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
async def test_a_thousand_requests_at_once_are_all_answered_each_with_its_own() -> None:
    async def echo(visit: Visit) -> None:
        while (body := await visit.request()) is not None:
            await visit.say(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async with meeting(echo) as (pool, peer, url):
        bodies = [str(number).encode() for number in range(1000)]
        async with asyncio.timeout(SECONDS * 3):
            assert await asyncio.gather(*(get(pool, url, body) for body in bodies)) == bodies
        await until(lambda: peer.live <= http1_client._MAX_IDLE)
        async with asyncio.timeout(SECONDS):
            assert await asyncio.gather(*(get(pool, url, body) for body in bodies[:200])) == bodies[:200]
        assert peer.visits == 1000


def descriptors() -> int:
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.slow
async def test_two_thousand_requests_leave_no_descriptor() -> None:
    async def script(visit: Visit) -> None:
        """Keep, close, reset, drop in turn."""
        while await visit.request() is not None:
            if visit.number % 4 == 1:
                await visit.say(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok")
            elif visit.number % 4 == 2:
                visit.reset()
                return
            elif visit.number % 4 == 3:
                await visit.say(HEAD_ONLY)
                return
            else:
                await visit.say(OK)
                if visit.number % 8 == 4:
                    return

    async def one(pool: PlainPool, url: str) -> None:
        with contextlib.suppress(ConnectionLost):
            await get(pool, url)

    async with meeting() as (pool, _, url):
        await get(pool, url)  # what the loop itself opens, it opens now
    before = descriptors()
    async with meeting(script) as (pool, peer, url):
        for _ in range(100):
            await asyncio.gather(*(one(pool, url) for _ in range(20)))
        assert len(peer.heads) >= 1900
    await until(lambda: descriptors() <= before)


@pytest.mark.slow
async def test_a_pool_remembers_no_more_than_it_must() -> None:
    """Heads that differ each time, and long ones, must not pile up."""
    count = 0

    async def script(visit: Visit) -> None:
        nonlocal count
        while await visit.request() is not None:
            count += 1
            await visit.say(b"HTTP/1.1 204 N\r\nX-%d: " % count + b"a" * 30_000 + b"\r\n\r\n")

    async with meeting(script) as (pool, _, url):
        for _ in range(300):
            await get(pool, url)
        assert sum(map(len, pool.known)) < 1024 * 1024


def test_a_response_is_what_the_protocol_says() -> None:
    def takes(_: http1_client.Response) -> None: ...

    def check(response: PlainResponse) -> None:
        takes(response)

    assert check
