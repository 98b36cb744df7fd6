"""What a stream says in one turn of the loop leaves the server in one piece, and so do the answers of many connections."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from trimaran.errors import ProtocolError
from trimaran.server.limits import Limits
from trimaran.transports.engine import FixedHeaders
from trimaran.transports.http1_server import _MANY, _TOGETHER, Http1Server, _Connection


class Transport:
    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.sent.append(bytes(data))

    def set_write_buffer_limits(self, high: int) -> None: ...
    def get_extra_info(self, name: str) -> None: ...


@pytest.fixture
async def connection() -> Any:
    return connect_to(make_server())


def make_server() -> Http1Server:
    engine: Any = SimpleNamespace(max_body_bytes=1000, may_relay=False, server=SimpleNamespace(limits=Limits()))
    return Http1Server(engine, "127.0.0.1", 0, backlog=1)


def connect_to(server: Http1Server) -> Any:
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


HEADERS = FixedHeaders([("content-type", "application/json")])


async def test_an_answer_is_sent_at_once_where_few_requests_are_at_work(connection: Any) -> None:
    connection.fixed_reply(200, HEADERS, b"{}")
    assert len(connection.sent) == 1


async def test_the_answers_of_many_connections_are_sent_at_the_end_of_the_turn() -> None:
    server = make_server()
    server.serving = _MANY
    connections = [connect_to(server) for _ in range(_MANY)]
    for number, connection in enumerate(connections):
        connection.fixed_reply(200, HEADERS, b"%d" % number)
    assert not any(connection.sent for connection in connections)
    await turn()
    bodies = [[sent.rpartition(b"\r\n\r\n")[2] for sent in connection.sent] for connection in connections]
    assert bodies == [[b"0"], [b"1"], [b"2"]]


@pytest.mark.parametrize("end", ["end_soon", "eof_received", "refuse", "write"])
async def test_an_answer_that_waits_for_the_turn_leaves_before_whatever_follows_it(connection: Any, end: str) -> None:
    calls: list[str] = []
    transport = connection._transport
    for name in ("close", "write_eof"):
        setattr(transport, name, lambda name=name: calls.append(f"{name} after {len(connection.sent)}"))
    transport.is_closing, transport.can_write_eof = (lambda: False), (lambda: True)
    connection._server.serving = _MANY
    connection._engine.writer = SimpleNamespace(error=lambda id, error: b"no")
    connection.fixed_reply(200, HEADERS, b"first")
    if end == "refuse":
        connection._refuse(ProtocolError.invalid_request("malformed"))
    elif end == "write":
        connection.write(b"second")
    else:
        getattr(connection, end)()
    assert connection.sent
    assert b"first" in connection.sent[0]
    assert not any(call.endswith("after 0") for call in calls)
    await turn()
    assert b"".join(connection.sent).count(b"first") == 1
