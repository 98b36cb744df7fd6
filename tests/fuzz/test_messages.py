"""Whatever bytes arrive, reading them gives a message or a ProtocolError that a peer may be told."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from trimaran import Server
from trimaran.errors import ProtocolError
from trimaran.protocol.inbound import Batch, IncomingCall, IncomingNotification, IncomingReply, MessageReader

PREFIX = "io.modelcontextprotocol/"
CODES = {-32700, -32600, -32601, -32602, -32020, -32021, -32022}
STATUSES = {400, 404}


def make(*, legacy: bool = True) -> MessageReader:
    server = Server("fuzz", version="1")

    @server.tool(inline=True)
    def add(a: int, b: int) -> int:
        return a + b

    @server.resource("memo://{name}")
    async def memo(name: str) -> str:
        return name

    @server.prompt
    async def greet(name: str) -> str:
        return name

    return server.runtime.dispatcher.reader(legacy=legacy)


READERS = [make(), make(legacy=False)]


class Headers(dict[str, str]):
    """What the ladder asks of headers."""


def read(body: bytes, headers: dict[str, str] | None = None) -> list[Any]:
    """Every reader's verdict: a message, or the code of its refusal. Anything else is a failure."""
    verdicts: list[Any] = []
    for reader in READERS:
        try:
            message = reader.read(body, headers)
            if isinstance(message, IncomingCall):
                assert isinstance(message.meta, dict)  # read on demand, so it may be refused only now
        except ProtocolError as error:
            assert error.code in CODES, (error.code, error.message)
            assert error.status in STATUSES, (error.status, error.message)
            assert error.message
            json.dumps([error.message, error.data]).encode()
            assert error.request_id is None or type(error.request_id) in (int, str)
            verdicts.append(error.code)
            continue
        assert isinstance(message, (IncomingCall, IncomingNotification, IncomingReply, Batch))
        if isinstance(message, IncomingCall):
            assert type(message.id) in (int, str)
            assert message.progress_token is None or type(message.progress_token) in (int, str)
        elif isinstance(message, IncomingNotification):
            assert isinstance(message.params, dict)
        verdicts.append(message)
    return verdicts


# --- what to send ----------------------------------------------------------------------------------------------------

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=20),
    st.sampled_from(["2.0", "2026-07-28", "2025-11-25", "tools/call", "add", "info", "loud", ""]),
)
VALUES = st.recursive(
    SCALARS, lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=8), v, max_size=3), max_leaves=8
)
METHODS = st.sampled_from(
    [
        "tools/call",
        "tools/list",
        "resources/read",
        "prompts/get",
        "completion/complete",
        "server/discover",
        "initialize",
        "ping",
    ]
    + ["subscriptions/listen", "logging/setLevel", "resources/subscribe", "notifications/cancelled", "nothing/such", ""]
)
META = st.fixed_dictionaries(
    {},
    optional={
        PREFIX + "protocolVersion": st.sampled_from(["2026-07-28", "2025-11-25", "v999"]) | VALUES,
        PREFIX + "clientCapabilities": st.just({}) | VALUES,
        PREFIX + "clientInfo": st.just({"name": "f", "version": "1"}) | VALUES,
        PREFIX + "logLevel": st.just("info") | VALUES,
        "progressToken": VALUES,
        "vendor": VALUES,
    },
)
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "_meta": META | VALUES,
        "name": st.just("add") | VALUES,
        "arguments": st.just({"a": 1, "b": 2}) | VALUES,
        "uri": st.just("memo://a") | VALUES,
        "cursor": VALUES,
        "level": VALUES,
        "protocolVersion": VALUES,
        "capabilities": VALUES,
        "clientInfo": VALUES,
        "notifications": VALUES,
        "requestState": VALUES,
        "inputResponses": VALUES,
        "ref": VALUES,
        "argument": VALUES,
    },
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0") | VALUES,
        "id": st.integers(0, 9) | VALUES,
        "method": METHODS | VALUES,
        "params": PARAMS | VALUES,
        "result": VALUES,
        "error": VALUES,
    },
)
HEADERS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "mcp-protocol-version": st.sampled_from(["2026-07-28", " 2026-07-28\t", "2025-11-25", "v999", "", "\xff"])
        | st.text(max_size=8),
        "mcp-method": METHODS | st.text(max_size=8),
        "mcp-name": st.sampled_from(["add", "memo://a", "=?base64?YWRk?=", "=?base64?!?=", ""]) | st.text(max_size=8),
    },
)

MANY = settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)

MODERN = b'{"%bprotocolVersion":"2026-07-28","%bclientCapabilities":{}}' % (PREFIX.encode(), PREFIX.encode())


def framed(params: bytes, method: bytes = b"tools/call") -> bytes:
    return b'{"jsonrpc":"2.0","id":1,"method":"%b","params":%b}' % (method, params)


@MANY
@given(st.binary(max_size=200))
@example(b"")
@example(b"\xff")
@example(b"[" * 200_000)
@example(b'{"a":' * 200_000)
@example(b'{"jsonrpc":"2.0","id":' + b"9" * 5000 + b',"method":"ping"}')
@example(b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}')
@example(b'{"jsonrpc":"2.0","id":1,"id":2,"method":"ping","method":"pong"}')
def test_any_bytes_give_a_message_or_a_refusal(body: bytes) -> None:
    read(body)


@MANY
@given(MESSAGES, HEADERS)
def test_any_object_gives_a_message_or_a_refusal(message: Any, headers: dict[str, str] | None) -> None:
    read(json.dumps(message).encode("utf-8", "surrogatepass"), headers)
    read(json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass"), headers)


@MANY
@given(MESSAGES, st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 255)), min_size=1, max_size=4))
def test_any_damaged_message_gives_a_message_or_a_refusal(message: Any, damage: list[tuple[int, int]]) -> None:
    body = bytearray(json.dumps(message, allow_nan=False if False else True).encode())
    for where, byte in damage:
        body[where % len(body)] = byte
    read(bytes(body))


BROKEN = [
    b'"\xff"',
    b'"\xed\xa0\x80"',
    b'"\xc3"',
    b"1e999",
    b"9" * 5000,
    b'"\\ud800"',
    b"[" * 2000 + b"]" * 2000,
    b'{"\xff":1}',
]


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    st.sampled_from(BROKEN),
    st.sampled_from(
        ["protocolVersion", "clientCapabilities", "clientInfo", "logLevel", "progressToken", "vendor", "deep"]
    ),
    st.sampled_from([b"tools/call", b"tools/list", b"nothing/such", b"initialize", b"completion/complete"]),
    st.booleans(),
)
@example(b'"\xff"', "protocolVersion", b"tools/list", True)
@example(b'"\xff"', "clientInfo", b"tools/list", True)
@example(b'{"\xff":1}', "clientCapabilities", b"tools/list", True)
def test_what_is_broken_inside_meta_is_found(broken: bytes, key: str, method: bytes, named: bool) -> None:
    """`_meta` is cut out raw and read later: its faults must come out as refusals too."""
    name = b"vendor" if key == "vendor" else (PREFIX + key).encode() if key != "progressToken" else b"progressToken"
    meta = (MODERN[:-1] + b"," if named else b"{") + b'"%b":%b}' % (name, broken)
    if key == "deep":
        meta = MODERN[:-2] + b'"x":{"y":%b}}}' % broken
    read(framed(b'{"name":"add","_meta":%b}' % meta, method))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.sampled_from(BROKEN),
    st.sampled_from(["name", "arguments", "uri", "cursor", "params", "id", "method", "result", "error"]),
)
def test_what_is_broken_elsewhere_is_found(broken: bytes, key: str) -> None:
    if key in ("params", "id", "method", "result", "error"):
        read(b'{"jsonrpc":"2.0","id":1,"method":"tools/call","%b":%b}' % (key.encode(), broken))
        read(b'{"jsonrpc":"2.0","id":1,"%b":%b}' % (key.encode(), broken))
        read(b'{"jsonrpc":"2.0","method":"x","%b":%b}' % (key.encode(), broken))
    else:
        read(framed(b'{"%b":%b,"_meta":%b}' % (key.encode(), broken, MODERN)))
        read(framed(b'{"%b":%b}' % (key.encode(), broken)))


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.sampled_from(["tools/call", "tools/list", "resources/read"]), st.integers(0, 2**63) | st.text(max_size=10))
def test_a_good_message_reads_back(method: str, id: Any) -> None:
    meta = {PREFIX + "protocolVersion": "2026-07-28", PREFIX + "clientCapabilities": {}}
    message = {
        "jsonrpc": "2.0",
        "id": id,
        "method": method,
        "params": {"name": "add", "uri": "memo://a", "_meta": meta},
    }
    for call in read(json.dumps(message).encode()):
        assert isinstance(call, IncomingCall)
        assert (call.id, call.method, call.modern) == (id, method, True)
