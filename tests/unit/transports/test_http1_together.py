"""What a stream says in one turn of the loop leaves the server in one piece."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from trimaran.transports.http1_server import _TOGETHER, _Connection


class Transport:
    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.sent.append(bytes(data))

    def set_write_buffer_limits(self, high: int) -> None: ...
    def get_extra_info(self, name: str) -> None: ...


@pytest.fixture
async def connection() -> Any:
    engine = SimpleNamespace(max_body_bytes=1000)
    server: Any = SimpleNamespace(engine=engine, now=0.0, connections=set(), listener=None, max_header_bytes=1000)
    made: Any = _Connection(server, asyncio.get_running_loop())
    made.connection_made(Transport())
    made.sent = made._transport.sent
    return made


async def turn() -> None:
    await asyncio.sleep(0)


async def test_events_of_one_turn_are_sent_together_and_in_order(connection: Any) -> None:
    for piece in (b"head", b"1", b"2"):
        connection.write_soon(piece)
    assert connection.sent == []
    await turn()
    assert connection.sent == [b"head12"]
    connection.write_soon(b"3")
    await turn()
    assert connection.sent == [b"head12", b"3"]


async def test_the_end_takes_what_is_unsent_along(connection: Any) -> None:
    connection.write_soon(b"1")
    connection.write(b"end")
    assert connection.sent == [b"1end"]
    await turn()
    assert connection.sent == [b"1end"]


async def test_much_is_not_held_back(connection: Any) -> None:
    """Else a stream that never waits would fill our memory before anybody could ask it to."""
    piece = b"x" * (_TOGETHER // 4)
    for _ in range(40):
        connection.write_soon(piece)
    assert len(b"".join(connection.sent)) >= 40 * len(piece) - _TOGETHER
    await turn()
    assert len(b"".join(connection.sent)) == 40 * len(piece)


async def test_what_is_unsent_when_the_client_goes_is_dropped(connection: Any) -> None:
    connection.write_soon(b"1")
    connection.connection_lost(None)
    connection.write_soon(b"2")
    connection.write(b"3")
    await turn()
    assert connection.sent == []


async def test_a_body_that_ends_with_the_connection_is_sent_before_it_is_closed(connection: Any) -> None:
    """HTTP/1.0."""
    closed: list[int] = []
    connection._transport.close = lambda: closed.append(len(connection.sent))
    connection.write_soon(b"1")
    connection._finished(SimpleNamespace(keep_alive=False), SimpleNamespace(is_complete=False, task=None))
    assert (connection.sent, closed) == ([b"1"], [1])
