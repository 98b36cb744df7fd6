"""The ladder a message climbs (protocol.md 2.1, 2.2): every rung, first failure wins, the id echoed where it can be read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trimaran.errors import ProtocolError
from trimaran.protocol.inbound import Batch, IncomingCall, IncomingNotification, IncomingReply, MessageReader
from trimaran.protocol.methods import METHODS

MODERN = "2026-07-28"
P = "io.modelcontextprotocol/"
META: dict[str, Any] = {P + "protocolVersion": MODERN, P + "clientCapabilities": {}}
MODERN_ROWS = {n: r for n, r in METHODS.items() if r.modern}


def reader(*, legacy: bool = True, without: str = "") -> MessageReader:
    return MessageReader(
        {n: r for n, r in MODERN_ROWS.items() if not (without and n.startswith(without))}, legacy=legacy
    )


def frame(method: str = "tools/list", params: Any = None, **rest: Any) -> bytes:
    whole: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": method}
    if params is not ...:
        whole["params"] = {"_meta": META, **params} if isinstance(params, dict) else params or {"_meta": META}
    return json.dumps({**whole, **rest}).encode()


def headers(method: str = "tools/list", name: str | None = None, **changes: str | None) -> dict[str, str]:
    found: dict[str, str | None] = {"mcp-protocol-version": MODERN, "mcp-method": method, "mcp-name": name}
    found.update({k.replace("_", "-"): v for k, v in changes.items()})
    return {k: v for k, v in found.items() if v is not None}


def refused(body: bytes, given: dict[str, str] | None = None, **options: Any) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        reader(**options).read(body, given)
    return caught.value


# --- what kind of message --------------------------------------------------------------------------------------------


def test_a_modern_request_is_a_typed_call() -> None:
    call = reader().read(frame("tools/call", {"name": "add", "arguments": {"a": 1}}))
    assert isinstance(call, IncomingCall)
    assert (call.id, call.method, call.modern, call.params.name) == (1, "tools/call", True, "add")
    assert bytes(call.params.arguments) == b'{"a": 1}'
    assert call.meta == META
    assert call.meta is call.meta
    assert call.headers is None
    assert "tools/call" in repr(call)


def test_the_reserved_wishes_of_a_request_are_on_the_call() -> None:
    call = reader().read(frame(params={"_meta": {**META, "progressToken": "t", P + "logLevel": "debug", "v.x/y": 1}}))
    assert isinstance(call, IncomingCall)
    assert (call.progress_token, call.log_level, call.meta["v.x/y"]) == ("t", "debug", 1)


@pytest.mark.parametrize("params", [..., {}, {"_meta": {}}])
def test_a_request_that_names_no_revision_is_a_legacy_call(params: Any) -> None:
    """protocol.md 2.1 (8, 9)."""
    body = {"jsonrpc": "2.0", "id": "a", "method": "ping", **({} if params is ... else {"params": params})}
    call = reader().read(json.dumps(body).encode())
    assert isinstance(call, IncomingCall)
    assert (call.peer, call.modern, call.id) == (None, False, "a")
    assert call.meta == {}


def test_a_legacy_call_with_bad_params_keeps_the_reason_for_later() -> None:
    """Whether the method exists at all depends on the session, which is asked first."""
    call = reader().read(
        b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":1,"_meta":{"progressToken":3}}}'
    )
    assert isinstance(call, IncomingCall)
    assert call.params is None
    assert call.shape_error is not None
    assert call.progress_token == 3


def test_params_that_are_no_object_keep_the_reason_too() -> None:
    """R85."""
    call = reader().read(b'{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}')
    assert isinstance(call, IncomingCall)
    assert call.params is None


@pytest.mark.parametrize(
    ("params", "seen"), [("", {}), (',"params":{"a":1}', {"a": 1}), (',"params":[1]', {}), (',"params":null', {})]
)
def test_a_message_without_an_id_is_a_notice(params: str, seen: Any) -> None:
    notice = reader().read(('{"jsonrpc":"2.0","method":"notifications/x"' + params + "}").encode())
    assert notice == IncomingNotification("notifications/x", seen)


def test_a_notice_says_whether_it_is_modern() -> None:
    body = json.dumps({"jsonrpc": "2.0", "method": "notifications/x", "params": {"_meta": META}}).encode()
    plain = b'{"jsonrpc":"2.0","method":"notifications/x"}'
    found = [
        reader().read(body),
        reader().read(plain, {"mcp-protocol-version": MODERN}),
        reader().read(plain, {}),
        reader().read(plain),
    ]
    assert [n.modern for n in found if isinstance(n, IncomingNotification)] == [True, True, False, False]


def test_a_message_without_a_method_is_an_answer() -> None:
    assert reader().read(b'{"jsonrpc":"2.0","id":"srv-1","result":{"a":1}}') == IncomingReply("srv-1", result={"a": 1})
    assert reader().read(b'{"jsonrpc":"2.0","id":1,"error":{"code":-1}}') == IncomingReply(1, error={"code": -1})
    assert reader().read(b'{"jsonrpc":"2.0","id":1,"result":null}') == IncomingReply(1, result=None)


def test_an_array_is_a_batch_of_raw_messages() -> None:
    """protocol.md 2.1 (4)."""
    batch = reader().read(b'[{"a":1}, 2]')
    assert isinstance(batch, Batch)
    assert [bytes(m) for m in batch.messages] == [b'{"a":1}', b"2"]


# --- bytes, JSON, envelope -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nope",
        b"\xff\xfe",
        b'{"jsonrpc":"2.0",}',
        b"{}{}",
        b"[" * 100_000,
        b'{"jsonrpc":"2.0","method":"\xff"}',
    ],
)
def test_what_is_no_json_is_a_parse_error_without_an_id(body: bytes) -> None:
    error = refused(body)
    assert (error.code, error.status, error.request_id) == (-32700, 400, None)


@pytest.mark.parametrize(
    ("body", "id"),
    [
        (b"1", None),
        (b'"x"', None),
        (b"null", None),
        (b"[]", None),
        (b"{}", None),
        (b'{"id":7,"method":"ping"}', 7),
        (b'{"jsonrpc":"1.0","id":"a","method":"ping"}', "a"),
        (b'{"jsonrpc":2.0,"id":1,"method":"ping"}', 1),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":[],"method":"ping"}', None),
        (b'{"jsonrpc":"2.0","id":1,"method":2}', 1),
        (b'{"jsonrpc":"2.0","id":1}', 1),
        (b'{"jsonrpc":"2.0"}', None),
        (b'{"jsonrpc":"2.0","result":{}}', None),
        (b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}', 1),
    ],
)
def test_a_broken_envelope_is_an_invalid_request(body: bytes, id: Any) -> None:
    """protocol.md 2.2a: id is a string or an integer, not null, bool or float."""
    error = refused(body)
    assert (error.code, error.status, error.request_id) == (-32600, 400, id)


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"progressToken":"\xff"}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"nope","params":{"_meta":{"progressToken":"\xff"}}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"progressToken":"\\ud800x"},"x":"yyyyyyyyyyyy"}}',
        b'{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"cursor":"\xff"}}',
        b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":"\xff"}}',
        b'{"jsonrpc":"2.0","id":1,"result":{"a":"\xff"}}',
    ],
)
def test_bytes_that_are_no_text_are_refused_wherever_they_stand(body: bytes) -> None:
    """protocol.md 3.1: UTF-8 only. A reader raises protocol errors and nothing else: the channel lives on."""
    assert refused(body).code in (-32700, -32602)


# --- the modern ladder -----------------------------------------------------------------------------------------------


def test_a_request_with_all_its_headers_climbs_the_whole_ladder() -> None:
    call = reader().read(frame("tools/call", {"name": "x"}), headers("tools/call", "x"))
    assert isinstance(call, IncomingCall)
    assert call.headers is not None


def test_blanks_around_a_header_value_do_not_count() -> None:
    """protocol.md 3.2: trim OWS."""
    given = headers("tools/call", " x ", mcp_protocol_version=f" {MODERN}\t", mcp_method="\ttools/call ")
    assert isinstance(reader().read(frame("tools/call", {"name": "x"}), given), IncomingCall)


LADDER: list[tuple[str, bytes, dict[str, str] | None, int, int]] = [
    ("meta: capabilities missing", frame(params={"_meta": {P + "protocolVersion": MODERN}}), headers(), -32602, 400),
    (
        "meta: version of another type",
        frame(params={"_meta": {**META, P + "protocolVersion": 1}}),
        headers(),
        -32602,
        400,
    ),
    ("meta: no revision, modern header", frame(params={"_meta": {}}), headers(), -32602, 400),
    ("meta: no revision, no header for it", frame(params={"_meta": {}}), {"mcp-protocol-version": "v999"}, -32022, 400),
    ("version header missing", frame(), headers(mcp_protocol_version=None), -32020, 400),
    ("version header legacy", frame(), headers(mcp_protocol_version="2025-11-25"), -32020, 400),
    (
        "header good, meta v999",
        frame(params={"_meta": {**META, P + "protocolVersion": "v999"}}),
        headers(),
        -32020,
        400,
    ),
    (
        "both v999",
        frame(params={"_meta": {**META, P + "protocolVersion": "v999"}}),
        headers(mcp_protocol_version="v999"),
        -32022,
        400,
    ),
    ("v999 without headers", frame(params={"_meta": {**META, P + "protocolVersion": "v999"}}), None, -32022, 400),
    (
        "a legacy revision by meta",
        frame(params={"_meta": {**META, P + "protocolVersion": "2025-11-25"}}),
        None,
        -32022,
        400,
    ),
    ("method header missing", frame(), headers(mcp_method=None), -32020, 400),
    ("method header other", frame(), headers("tools/call"), -32020, 400),
    ("method header in another case", frame(), headers("Tools/List"), -32020, 400),
    ("unknown method", frame("nope"), headers("nope"), -32601, 404),
    ("unknown method, no headers", frame("nope"), None, -32601, 404),
    ("initialize", frame("initialize"), headers("initialize"), -32601, 404),
    ("ping", frame("ping"), None, -32601, 404),
    ("setLevel", frame("logging/setLevel", {"level": "info"}), None, -32601, 404),
    ("subscribe", frame("resources/subscribe", {"uri": "a:b"}), None, -32601, 404),
    ("name header missing", frame("tools/call", {"name": "x"}), headers("tools/call"), -32020, 400),
    ("name header other", frame("tools/call", {"name": "x"}), headers("tools/call", "y"), -32020, 400),
    ("uri header other", frame("resources/read", {"uri": "a:b"}), headers("resources/read", "a:c"), -32020, 400),
    ("bad base64", frame("tools/call", {"name": "x"}), headers("tools/call", "=?base64?!?="), -32020, 400),
    ("params shape", frame("tools/call", {"name": 1}), headers("tools/call", "1"), -32602, 400),
    ("log level", frame(params={"_meta": {**META, P + "logLevel": "loud"}}), headers(), -32602, 400),
    ("log level, unknown method", frame("nope", {"_meta": {**META, P + "logLevel": "loud"}}), None, -32601, 404),
    ("params shape without headers", frame("tools/call", {}), None, -32602, 400),
]


@pytest.mark.parametrize(
    ("body", "given", "code", "status"), [row[1:] for row in LADDER], ids=[row[0] for row in LADDER]
)
def test_the_first_rung_that_breaks_answers(body: bytes, given: Any, code: int, status: int) -> None:
    """protocol.md 2.2 a-i."""
    error = refused(body, given)
    assert (error.code, error.status, error.request_id) == (code, status, 1)


def test_a_base64_name_header_is_compared_decoded() -> None:
    """protocol.md 3.3."""
    given = headers("tools/call", "=?base64?R3LDvMOfZQ==?=")
    assert isinstance(reader().read(frame("tools/call", {"name": "Grüße"}), given), IncomingCall)


def test_an_unsupported_version_lists_what_is_spoken() -> None:
    """protocol.md 1.7: both fields are required."""
    body = frame(params={"_meta": {**META, P + "protocolVersion": "v999"}})
    error = refused(body)
    assert error.data == {
        "supported": [MODERN, "2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"],
        "requested": "v999",
    }
    assert refused(body, legacy=False).data["supported"] == [MODERN]


def test_a_method_whose_capability_is_not_advertised_is_unknown() -> None:
    """protocol.md 2.2f; R2."""
    assert refused(frame("tools/call", {"name": "x"}), without="tools").code == -32601


def test_the_table_of_served_methods_is_live() -> None:
    served = dict(MODERN_ROWS)
    live = MessageReader(served)
    assert isinstance(live.read(frame()), IncomingCall)
    del served["tools/list"]
    with pytest.raises(ProtocolError):
        live.read(frame())


def test_a_missing_method_is_told_before_its_params() -> None:
    """A probe with nonsense params for a removed method still hears -32601."""
    assert refused(frame("logging/setLevel", {"level": 5})).code == -32601


# --- the legacy door -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05", " 2025-06-18 "])
def test_a_legacy_version_header_opens_the_legacy_door(version: str) -> None:
    call = reader().read(b'{"jsonrpc":"2.0","id":1,"method":"ping"}', {"mcp-protocol-version": version})
    assert isinstance(call, IncomingCall)
    assert call.peer is None


def test_initialize_may_come_with_any_version_header() -> None:
    """A client cannot know yet what will be agreed on."""
    call = reader().read(
        b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}', {"mcp-protocol-version": "v999"}
    )
    assert isinstance(call, IncomingCall)


HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}}


@pytest.mark.parametrize(
    ("body", "requested"),
    [
        (json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": HELLO}).encode(), "2025-06-18"),
        (b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}', "none"),
        (b'{"jsonrpc":"2.0","id":1,"method":"tools/list"}', "none"),
    ],
)
def test_a_modern_only_server_names_its_versions_to_a_legacy_client(body: bytes, requested: str) -> None:
    """protocol.md 2.4."""
    error = refused(body, legacy=False)
    assert (error.code, error.request_id) == (-32022, 1)
    assert error.data == {"supported": [MODERN], "requested": requested}
    assert MODERN in error.message
    stated = refused(body, {"mcp-protocol-version": "2025-11-25"}, legacy=False).data["requested"]
    assert stated == ("2025-11-25" if requested == "none" else requested)
