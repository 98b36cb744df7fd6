"""The fetcher and the listener for logins under fault: cut off at every byte, trickled, cancelled at every await."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from tests.support.until import soon, until

from trimaran.errors import AuthorizationFailed
from trimaran.oauth.effects import HttpRequest
from trimaran.transports.fetch import Fetcher
from trimaran.transports.loopback_login import LoopbackLogin

from .peers import failure_of, sockets
from .test_cancel_points import everywhere

ANSWERS = {
    "length": b'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{"a": 1}',
    "chunked": b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{"a"\r\n4\r\n: 1}\r\n0\r\n\r\n',
}
Speak = Callable[[asyncio.StreamWriter], Coroutine[Any, Any, None]]


@contextlib.asynccontextmanager
async def answering(speak: Speak) -> AsyncIterator[str]:
    """A server that reads a head, speaks, and closes: its URL."""
    running: set[asyncio.Task[Any]] = set()

    async def meet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        running.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await speak(writer)
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            running.discard(task)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    server = await asyncio.start_server(meet, "127.0.0.1", 0)
    try:
        yield f"http://localhost:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in tuple(running):
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@contextlib.asynccontextmanager
async def fetching(**options: Any) -> AsyncIterator[Fetcher]:
    fetcher = Fetcher(**options)
    try:
        yield fetcher
    finally:
        await fetcher.close()


def get(url: str, **more: Any) -> HttpRequest:
    return HttpRequest(step="metadata request", url=url, **more)


# --- broken answers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("framing", ["length", "chunked"])
@pytest.mark.parametrize("how", ["closed", "reset"])
async def test_an_answer_cut_off_at_any_byte_is_an_error_and_soon(framing: str, how: str) -> None:
    whole = ANSWERS[framing]
    at = 0

    async def speak(writer: asyncio.StreamWriter) -> None:
        writer.write(whole[:at])
        await writer.drain()
        if how == "reset":
            writer.transport.abort()

    async with answering(speak) as url, fetching() as fetcher:
        before = sockets()
        for at in range(len(whole)):  # noqa: B007 - `speak` reads it
            error = await failure_of(fetcher(get(f"{url}/x?s3cret")))
            assert isinstance(error, AuthorizationFailed), f"cut at {at}"
            assert error.step == "metadata request"
            assert f"{url}/x" in str(error)
            assert "s3cret" not in str(error)
        at = len(whole)
        if how == "closed":
            assert (await soon(fetcher(get(url)))).body == b'{"a": 1}'
        await until(lambda: not sockets() - before, "no connection is left")


@pytest.mark.parametrize("framing", ["length", "chunked"])
async def test_an_answer_in_single_bytes_is_whole(framing: str) -> None:
    async def speak(writer: asyncio.StreamWriter) -> None:
        for byte in ANSWERS[framing]:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    async with answering(speak) as url, fetching() as fetcher:
        assert (await soon(fetcher(get(url)))).body == b'{"a": 1}'


@pytest.mark.parametrize(
    "start",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX: ",
        b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
    ids=["nothing", "head", "length", "chunked"],
)
async def test_a_trickle_is_given_up_after_the_limit_of_the_whole(start: bytes) -> None:
    """Each byte in time, and never an end: a limit per read would wait for good."""

    async def speak(writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while True:
            writer.write(b"1\r\nx\r\n" if b"chunked" in start else b"x" if start else b"")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with answering(speak) as url, fetching(timeout=0.2) as fetcher:
        error = await failure_of(fetcher(get(url)))
        assert "within 0.2 s" in str(error)


async def test_a_flood_is_cut_at_its_limit_and_not_kept_in_memory() -> None:
    sent = 0

    async def speak(writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            writer.write(b"x" * 65536)
            await writer.drain()
            sent += 65536

    async with answering(speak) as url, fetching() as fetcher:
        error = await failure_of(fetcher(get(url, max_bytes=100_000)))
        assert "more than 100000 bytes" in str(error)
    assert sent < 50_000_000  # what two sockets buffer, and no more


@pytest.mark.parametrize(
    "flood",
    [b"X: y\r\n", b"x", b"HTTP/1.1 100 Continue\r\n\r\n"],
    ids=["headers", "a_header", "interim"],
)
async def test_a_head_without_end_is_an_error(flood: bytes) -> None:
    async def speak(writer: asyncio.StreamWriter) -> None:
        if not flood.startswith(b"HTTP"):
            writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(flood * 1000)
            await writer.drain()

    async with answering(speak) as url, fetching(timeout=1.0) as fetcher:
        assert isinstance(await failure_of(fetcher(get(url))), AuthorizationFailed)


# --- cancelled -------------------------------------------------------------------------------------------------------


async def test_a_fetch_cancelled_anywhere_leaves_nothing() -> None:
    async def speak(writer: asyncio.StreamWriter) -> None:
        writer.write(
            b"HTTP/1.1 302 Found\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n" if redirects else ANSWERS["length"]
        )
        redirects.clear()

    redirects = [True]

    async def scenario() -> None:
        redirects[:] = [True]
        async with fetching() as fetcher:
            assert (await fetcher(get(f"{url}/a"))).body == b'{"a": 1}'

    async def settle() -> None:
        pass

    async with answering(speak) as url:
        assert await everywhere(scenario, settle) >= 4


async def test_a_fetch_cancelled_anywhere_leaves_its_fetcher_usable() -> None:
    async def speak(writer: asyncio.StreamWriter) -> None:
        writer.write(ANSWERS["length"])

    async with answering(speak) as url, fetching() as fetcher:
        await soon(fetcher(get(url)))

        async def scenario() -> None:
            assert (await fetcher(get(url))).body == b'{"a": 1}'

        async def settle() -> None:
            assert (await soon(fetcher(get(url)))).status == 200

        assert await everywhere(scenario, settle) >= 2


async def test_a_login_cancelled_anywhere_leaves_nothing() -> None:
    async def knock(uri: str) -> None:
        host, port = "127.0.0.1", int(uri.split(":")[2].split("/")[0])
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(b"GET /callback?state=right&code=c HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            with contextlib.suppress(ConnectionError):
                await reader.read()
        finally:
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def scenario() -> None:
        visitors: list[asyncio.Task[None]] = []
        login = LoopbackLogin(
            port=0, open_browser=False, show=lambda _: visitors.append(asyncio.create_task(knock(uri)))
        )
        uri = ""
        try:
            uri = await login.redirect_uri()
            assert await login.browse("https://as.example.com/authorize", "right") == f"{uri}?state=right&code=c"
        finally:
            try:
                await login.close()
            finally:
                for visitor in visitors:
                    visitor.cancel()

    async def settle() -> None:
        pass

    assert await everywhere(scenario, settle) >= 2
