"""The public codec: envelopes to bytes and back, every refusal with its code (R114-R116, R278)."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.errors import LocalProtocolError, ProtocolError, RemoteProtocolError, UnsupportedVersion
from trimaran.jsonrpc import Failure, Message, Notification, Request, Result, decode, encode

MESSAGES: list[tuple[Message, bytes]] = [
    (Request(1, "ping"), b'{"jsonrpc":"2.0","id":1,"method":"ping"}'),
    (Request("a", "x", {"b": 1}), b'{"jsonrpc":"2.0","id":"a","method":"x","params":{"b":1}}'),
    (Request(1, "x", [1]), b'{"jsonrpc":"2.0","id":1,"method":"x","params":[1]}'),
    (Notification("n"), b'{"jsonrpc":"2.0","method":"n"}'),
    (Notification("n", {}), b'{"jsonrpc":"2.0","method":"n","params":{}}'),
    (Result(1, {"ok": [None]}), b'{"jsonrpc":"2.0","id":1,"result":{"ok":[null]}}'),
    (Result(1, None), b'{"jsonrpc":"2.0","id":1,"result":null}'),
]


@pytest.mark.parametrize(("message", "data"), MESSAGES)
def test_a_message_is_written_and_read_back(message: Message, data: bytes) -> None:
    assert encode(message) == data
    assert decode(data) == decode(data.decode()) == message


def test_an_error_is_read_as_the_exception_that_a_client_raises() -> None:
    """R278."""
    data = encode(Failure(7, ProtocolError(-32022, "no such version", {"supported": ["2025-11-25"]})))
    assert data == (
        b'{"jsonrpc":"2.0","id":7,"error":{"code":-32022,"message":"no such version","data":{"supported":["2025-11-25"]}}}'
    )
    failure = decode(data)
    assert isinstance(failure, Failure)
    assert isinstance(failure.error, UnsupportedVersion)
    assert (failure.id, failure.error.request_id, failure.error.data) == (7, 7, {"supported": ["2025-11-25"]})
    unread = decode(encode(Failure(None, ProtocolError(-32700, "not JSON"))))
    assert isinstance(unread, Failure)
    assert (unread.id, unread.error.code) == (None, -32700)


@pytest.mark.parametrize(
    ("data", "code", "id"),
    [
        (b"{nope", -32700, None),
        (b"\xff", -32700, None),
        (b'"\xff"', -32700, None),
        (b"[" * 100_000, -32700, None),
        (b"5", -32600, None),
        (b"{}", -32600, None),
        (b'{"jsonrpc":"1.0","id":1,"method":"x"}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":null,"method":"x"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"x"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"x"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"x","params":5}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1,"result":1,"error":{}}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":null,"result":1}', -32600, None),
        (b'{"jsonrpc":"2.0","result":1}', -32600, None),
    ],
)
def test_what_is_no_message_is_refused_with_its_code(data: bytes, code: int, id: Any) -> None:
    """R114, R116."""
    with pytest.raises(RemoteProtocolError) as caught:
        decode(data)
    assert (caught.value.code, caught.value.request_id) == (code, id)


def test_an_error_of_no_shape_is_still_an_error() -> None:
    failure = decode(b'{"jsonrpc":"2.0","id":1,"error":"oops"}')
    assert isinstance(failure, Failure)
    assert "not shaped like one" in failure.error.message


def test_batches_exist_in_one_revision() -> None:
    """R115."""
    batch = [message for message, _ in MESSAGES]
    data = encode(batch, version="2025-03-26")
    assert decode(data, version="2025-03-26") == decode(data) == batch
    for version in ("2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28"):
        with pytest.raises(LocalProtocolError, match="batches exist in 2025-03-26 only"):
            encode(batch, version=version)
        with pytest.raises(RemoteProtocolError, match="batches exist in 2025-03-26 only"):
            decode(data, version=version)


@pytest.mark.parametrize("size", [0, 101])
def test_a_batch_holds_one_to_a_hundred_messages(size: int) -> None:
    with pytest.raises(LocalProtocolError, match="a batch m"):
        encode([Notification("n")] * size)
    with pytest.raises(RemoteProtocolError, match="a batch m"):
        decode(b"[" + b",".join([b'{"jsonrpc":"2.0","method":"n"}'] * size) + b"]")
