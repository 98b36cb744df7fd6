"""What a server writes: envelopes, completed modern results, bare legacy ones, errors (protocol.md 1.5, 3.1)."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

import pytest
from msgspec import Raw

from trimaran.errors import ProtocolError
from trimaran.protocol.outbound import Writer
from trimaran.schema import enc_hook
from trimaran.types import (
    CallToolResult,
    EmptyResult,
    Implementation,
    InputRequiredResult,
    ListenResult,
    ListToolsResult,
)

SIGNED = {"io.modelcontextprotocol/serverInfo": {"name": "s", "version": "1", "websiteUrl": "https://s"}}


@pytest.fixture
def writer() -> Writer:
    return Writer(Implementation(name="s", version="1", website_url="https://s"), enc_hook)


def result_of(data: bytes) -> Any:
    message = json.loads(data)
    assert message["jsonrpc"] == "2.0"
    return message["result"]


@pytest.mark.parametrize("id", [1, 0, -3, "a", "", "1"])
def test_a_result_echoes_the_id_in_its_own_type(writer: Writer, id: int | str) -> None:
    for data in (writer.modern_result(id, EmptyResult()), writer.legacy_result(id, EmptyResult())):
        assert json.loads(data)["id"] == id
        assert type(json.loads(data)["id"]) is type(id)


@pytest.mark.parametrize("result", [EmptyResult(), CallToolResult.ok("x"), ListToolsResult(tools=[]), {}])
def test_a_modern_result_is_typed_and_signed(writer: Writer, result: Any) -> None:
    """protocol.md 1.1: serverInfo SHOULD be on EVERY result; resultType is required."""
    found = result_of(writer.modern_result(1, result))
    assert found["resultType"] == "complete"
    assert found["_meta"] == SIGNED


@pytest.mark.parametrize(
    "result",
    [
        CallToolResult.ok("x", meta={"a": 1}),
        ListenResult(meta={"a": 1}),
        {"content": [], "_meta": {"a": 1}},
    ],
)
def test_a_results_own_meta_is_kept_beside_the_signature(writer: Writer, result: Any) -> None:
    """R46."""
    assert result_of(writer.modern_result(1, result))["_meta"] == {**SIGNED, "a": 1}


def test_a_result_type_that_is_set_stays(writer: Writer) -> None:
    asked = InputRequiredResult(request_state="s")
    assert result_of(writer.modern_result(1, asked))["resultType"] == "input_required"
    assert result_of(writer.modern_result(1, {"resultType": "task"}))["resultType"] == "task"


def test_a_result_written_twice_is_signed_once(writer: Writer) -> None:
    result = CallToolResult.ok("x")
    assert writer.modern_result(1, result) == writer.modern_result(1, result)


def test_an_encoded_result_goes_out_as_it_is(writer: Writer) -> None:
    assert writer.modern_result(1, Raw(b'{"tools":[]}')) == b'{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}'


def test_a_legacy_result_is_bare(writer: Writer) -> None:
    """protocol.md 3.1: legacy results are {} where modern needs resultType."""
    assert result_of(writer.legacy_result(1, EmptyResult())) == {}
    assert result_of(writer.legacy_result(1, CallToolResult.ok("x"))) == {"content": [{"type": "text", "text": "x"}]}


def test_an_error_carries_code_message_and_data(writer: Writer) -> None:
    data = writer.error("a", ProtocolError(-32022, "no", {"supported": []}))
    assert json.loads(data) == {
        "jsonrpc": "2.0",
        "id": "a",
        "error": {"code": -32022, "message": "no", "data": {"supported": []}},
    }


def test_an_error_without_data_has_no_data_field(writer: Writer) -> None:
    """R278."""
    assert "data" not in json.loads(writer.error(1, ProtocolError(-32600, "no")))["error"]


def test_an_error_to_nobody_has_a_null_id(writer: Writer) -> None:
    """protocol.md 3.1: absent and null are both accepted; null is plain JSON-RPC."""
    assert json.loads(writer.error(None, ProtocolError.parse_error()))["id"] is None


def test_a_notification_has_no_id_and_drops_empty_params(writer: Writer) -> None:
    assert json.loads(writer.notification("a/b")) == {"jsonrpc": "2.0", "method": "a/b"}
    assert json.loads(writer.notification("a/b", {"x": 1}))["params"] == {"x": 1}


def test_a_request_has_an_id(writer: Writer) -> None:
    assert json.loads(writer.request("srv-1", "roots/list")) == {
        "jsonrpc": "2.0",
        "id": "srv-1",
        "method": "roots/list",
    }
    assert json.loads(writer.request(1, "m", {"x": 1}))["params"] == {"x": 1}


def test_a_users_own_type_is_encoded_by_the_hook(writer: Writer) -> None:
    result = CallToolResult.ok("x", structured={"path": PurePosixPath("/a")})
    assert result_of(writer.legacy_result(1, result))["structuredContent"] == {"path": "/a"}


def test_a_message_holds_no_line_break(writer: Writer) -> None:
    """protocol.md 3.5: one JSON object per line."""
    assert b"\n" not in writer.legacy_result(1, CallToolResult.ok("one\ntwo\r\n\u2028"))
