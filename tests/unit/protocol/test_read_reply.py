"""What a server sends, judged by its envelope: replies, requests, notifications, batches, and everything that is none."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET

from trimaran.errors import (
    CallError,
    HeaderMismatch,
    MissingCapability,
    RemoteProtocolError,
    UnsupportedVersion,
    UrlElicitationRequired,
)
from trimaran.protocol.read_reply import Frame, excerpt, id_of_malformed, memory_of, read_frame, split_batch


def encode(message: Any) -> bytes:
    return json.dumps(message).encode()


# --- what there is ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", [1, 0, -5, 2**62, "x", "", "1"])
def test_a_result_keeps_its_id_and_its_value_raw(id: Any) -> None:
    frame = read_frame(encode({"jsonrpc": "2.0", "id": id, "result": {"a": [1, 2]}}))
    assert (frame.is_reply, frame.is_call, frame.is_notice) == (True, False, False)
    assert frame.id == id
    assert type(frame.id) is type(id)
    assert json.loads(bytes(frame.result)) == {"a": [1, 2]}  # pyright: ignore[reportArgumentType]
    assert frame.failure() is None


@pytest.mark.parametrize("value", ["null", "0", "[]", '"x"', "true", "{}"])
def test_any_value_is_a_result(value: str) -> None:
    """Whether it is a good one is for whoever knows the method."""
    frame = read_frame(f'{{"jsonrpc":"2.0","id":1,"result":{value}}}'.encode())
    assert frame.is_reply
    assert bytes(frame.result) == value.encode()  # pyright: ignore[reportArgumentType]


def test_a_request_and_a_notification_are_told_apart_by_the_id() -> None:
    call = read_frame(encode({"jsonrpc": "2.0", "id": "s", "method": "ping"}))
    assert (call.is_reply, call.is_call, call.is_notice) == (False, True, False)
    for message in ({"jsonrpc": "2.0", "method": "m"}, {"jsonrpc": "2.0", "id": None, "method": "m"}):
        notice = read_frame(encode(message))
        assert (notice.is_reply, notice.is_call, notice.is_notice) == (False, False, True)


@pytest.mark.parametrize(
    ("params", "found"),
    [("{}", {}), ('{"a":1}', {"a": 1}), ("[1]", {}), ("null", {}), ("5", {}), (None, {})],
)
def test_params_that_are_no_object_count_as_empty(params: str | None, found: Any) -> None:
    tail = "" if params is None else f',"params":{params}'
    assert read_frame(f'{{"jsonrpc":"2.0","method":"m"{tail}}}'.encode()).read_params() == found


def test_unknown_fields_and_order_do_not_matter() -> None:
    frame = read_frame(b' {"x":1,"result":{},"_meta":null,"id":1,"jsonrpc":"2.0"} \n')
    assert frame.is_reply
    assert frame.id == 1


def test_an_error_reply_may_lack_its_id() -> None:
    """protocol.md 3.1: accept absent and null."""
    for tail in ('"id":null,', ""):
        frame = read_frame(f'{{"jsonrpc":"2.0",{tail}"error":{{"code":-32700,"message":"m"}}}}'.encode())
        assert frame.is_reply
        assert frame.id is None
        failure = frame.failure()
        assert failure is not None
        assert failure.request_id is None


# --- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (-32020, HeaderMismatch),
        (-32021, MissingCapability),
        (-32022, UnsupportedVersion),
        (-32042, UrlElicitationRequired),
        (-32601, CallError),
        (-32002, CallError),
        (-1, CallError),
        (0, CallError),
        (12345, CallError),
    ],
)
def test_an_error_is_the_exception_its_code_asks_for(code: int, kind: type[CallError]) -> None:
    """protocol.md 1.7, R277."""
    body = {"code": code, "message": "why", "data": {"k": [1]}}
    failure = read_frame(encode({"jsonrpc": "2.0", "id": 7, "error": body})).failure()
    assert failure is not None
    assert type(failure) is kind
    assert (failure.code, failure.message, failure.data, failure.request_id) == (code, "why", {"k": [1]}, 7)
    assert str(failure) == f"the server answered: why ({code})"


def test_each_look_at_an_error_makes_a_new_exception() -> None:
    frame = read_frame(encode({"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "m"}}))
    assert frame.failure() is not frame.failure()


@pytest.mark.parametrize(
    "body",
    [
        "null",
        "5",
        '"boom"',
        "[]",
        "{}",
        '{"message":"m"}',
        '{"code":"-1","message":"m"}',
        '{"code":1.5}',
        '{"code":null}',
    ],
)
def test_an_error_that_is_not_shaped_like_one_is_still_an_error(body: str) -> None:
    failure = read_frame(f'{{"jsonrpc":"2.0","id":1,"error":{body}}}'.encode()).failure()
    assert type(failure) is CallError
    assert body in str(failure)


def test_an_error_may_lack_its_message() -> None:
    failure = read_frame(b'{"jsonrpc":"2.0","id":1,"error":{"code":-7}}').failure()
    assert failure is not None
    assert (failure.code, failure.message) == (-7, "")


def test_the_urls_of_an_elicitation_error_are_read_with_care() -> None:
    def failure(data: Any) -> Any:
        return read_frame(encode({"jsonrpc": "2.0", "id": 1, "error": {"code": -32042, "data": data}})).failure()

    assert failure({"elicitations": [{"url": "u"}]}).elicitations == [{"url": "u"}]
    for data in (None, [], {}, {"elicitations": None}, {"elicitations": {}}, "x"):
        assert failure(data).elicitations == []


# --- what is none ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (b"", -32700),
        (b"   ", -32700),
        (b"hello", -32700),
        (b"{", -32700),
        (b'{"jsonrpc":"2.0","id":1,"result":', -32700),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}garbage', -32700),
        (b'{"jsonrpc":"2.0","id":1,"result":NaN}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xff"}}', -32700),
        (b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"result":{}}', -32700),
        (b'{"jsonrpc":"2.0","id":1,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}", -32700),
        (b"null", -32600),
        (b"5", -32600),
        (b'"x"', -32600),
        (b"{}", -32600),
        (b'{"id":1,"result":{}}', -32600),
        (b'{"jsonrpc":"1.0","id":1,"result":{}}', -32600),
        (b'{"jsonrpc":2.0,"id":1,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1.5,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":true,"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":[],"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":{},"result":{}}', -32600),
        (b'{"jsonrpc":"2.0","id":1}', -32600),
        (b'{"jsonrpc":"2.0"}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"m"}}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":5}', -32600),
        (b'{"jsonrpc":"2.0","id":1,"method":null}', -32600),
    ],
    ids=lambda value: excerpt(value)[:40] if isinstance(value, bytes) else str(value),
)
def test_what_is_no_message_is_quoted(message: bytes, code: int) -> None:
    with pytest.raises(RemoteProtocolError) as caught:
        read_frame(message)
    assert caught.value.code == code
    assert excerpt(message) in caught.value.message
    assert len(str(caught.value)) < 500


# --- batches ---------------------------------------------------------------------------------------------------------


def read_frames(message: bytes) -> list[Frame]:
    return [read_frame(part) for part in split_batch(message)]


def test_a_batch_is_read_in_order() -> None:
    """protocol.md 1.1: receiving batches is a MUST of 2025-03-26."""
    batch = [
        {"jsonrpc": "2.0", "id": 2, "result": {}},
        {"jsonrpc": "2.0", "method": "n"},
        {"jsonrpc": "2.0", "id": "s", "method": "ping"},
    ]
    found = read_frames(b" \n" + encode(batch))
    assert [(one.is_reply, one.is_notice, one.is_call) for one in found] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    assert found[0].method is UNSET


def test_one_message_is_a_batch_of_one() -> None:
    assert len(read_frames(b'{"jsonrpc":"2.0","method":"n"}')) == 1


def test_an_empty_batch_holds_nothing() -> None:
    assert read_frames(b"[]") == []


@pytest.mark.parametrize("message", [b"[", b"[1", b"[{]", b"[\xff]", b"[" * 100_000 + b"]" * 100_000, b"[1]", b"[[]]"])
def test_a_batch_that_is_none_is_refused(message: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        read_frames(message)


# --- excerpts --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (b"", "an empty text"),
        (b"abc", "abc"),
        (b"a\nb\x1b[31m\xff", "a\\nb\\x1b[31m\\ufffd"),
        ("ä'".encode(), "\\xe4'"),
        (b"x" * 121, "x" * 120 + "..."),
        (b"x" * 120, "x" * 120),
    ],
)
def test_an_excerpt_is_short_and_safe_to_print(message: bytes, text: str) -> None:
    assert excerpt(message) == text


@pytest.mark.parametrize(
    "message", [b'{"jsonrpc":"2.0","id":"a\xff"},', b'{"id":"\xff","result":{}}', b'{"id":7,"\xff']
)
def test_the_id_of_what_is_no_text_is_unknown_or_known_but_no_failure(message: bytes) -> None:
    """Found by the fuzzer: a server could end the reading of its answers with one byte."""
    assert id_of_malformed(message) in (None, 7)


def test_a_batch_is_bounded() -> None:
    """Its messages are dealt with in one go, and three million empty ones took 16 s."""
    notice = b'{"jsonrpc":"2.0","method":"n"}'
    assert len(split_batch(b"[%b]" % b",".join([notice] * 100))) == 100
    for many in (b",".join([notice] * 101), b",".join([b"1"] * 1_000_000), b",".join([b"{}"] * 1_000_000)):
        with pytest.raises(RemoteProtocolError, match=r"over 100 messages|200000 arrays and objects|500000 values"):
            split_batch(b"[%b]" % many)


def test_a_message_of_nothing_but_brackets_is_refused() -> None:
    with pytest.raises(RemoteProtocolError, match="more than 200000 arrays and objects in one message"):
        read_frame(b'{"jsonrpc":"2.0","id":1,"result":[%b]}' % b",".join([b"[]"] * 300_000))


def test_a_large_table_is_read() -> None:
    rows = [{"id": number, "name": "n", "size": 1, "kind": None} for number in range(40_000)]
    frame = read_frame(encode({"jsonrpc": "2.0", "id": 1, "result": {"structuredContent": {"rows": rows}}}))
    assert frame.is_reply


def test_the_memory_of_a_message_counts_its_parts() -> None:
    small = read_frame(b'{"jsonrpc":"2.0","method":"n","params":{"a":"%b"}}' % (b"x" * 1000))
    large = read_frame(b'{"jsonrpc":"2.0","method":"n","params":{"a":[%b]}}' % b",".join([b"[]"] * 400))
    assert 1000 < memory_of(small) < 1200
    assert memory_of(large) > 400 * 60


def test_the_id_of_a_malformed_reply_is_found_without_reading_the_rest() -> None:
    assert id_of_malformed(b'{"jsonrpc":"1.0","id":7,"result":{}}') == 7
    assert id_of_malformed(b'{"jsonrpc":"2.0","id":true,"result":{}}') is None
    assert id_of_malformed(b'{"id":7,"level":"info"}') is None
    assert id_of_malformed(b"[1]") is None
