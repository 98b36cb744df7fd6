"""One limit of depth for JSON at every door and on every interpreter, and one rule for names that come twice."""

from __future__ import annotations

import base64
import copy
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from trimaran import jsonrpc
from trimaran.auth import Refused
from trimaran.auth.jwt_keys import FixedKeys, import_secret, read_signed, split_signed
from trimaran.depth import (
    MAX_CONTAINERS,
    MAX_DEPTH,
    MAX_EXTREME_NUMBERS,
    MAX_MEMBERS,
    MAX_VALUES,
    TooDeep,
    check_depth,
    decode_json,
)
from trimaran.errors import Error, RemoteProtocolError
from trimaran.format.openai import from_openai_call
from trimaran.host.config.jsontext import read_json
from trimaran.oauth.effects import HttpReply
from trimaran.oauth.metadata import read_object
from trimaran.protocol.inbound import MessageReader
from trimaran.protocol.methods import METHODS
from trimaran.protocol.read_reply import read_frame, split_batch
from trimaran.schema import Validator, compile_signature
from trimaran.schema.typed_values import parse_json

SECRET = "x" * 32


def nested(levels: int, kind: str = "{") -> bytes:
    """A value with this many levels."""
    if kind == "[":
        return b"[" * levels + b"]" * levels
    return b'{"a":' * (levels - 1) + b"{}" + b"}" * (levels - 1)


# --- the check -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["[", "{"])
def test_the_deepest_value_passes_and_one_level_more_does_not(kind: str) -> None:
    check_depth(nested(MAX_DEPTH, kind))
    check_depth(nested(MAX_DEPTH, kind).decode())
    for text in (nested(MAX_DEPTH + 1, kind), nested(MAX_DEPTH + 1, kind).decode()):
        with pytest.raises(TooDeep, match=f"more than {MAX_DEPTH} levels"):
            check_depth(text)


def levels_of(text: bytes) -> int:
    """The depth by the letter: character by character, outside of strings."""
    depth = most = position = 0
    is_string = False
    while position < len(text):
        sign = text[position : position + 1]
        if is_string:
            position += sign == b"\\"
            is_string = sign != b'"'
        elif sign == b'"':
            is_string = True
        elif sign in b"[{":
            depth += 1
            most = max(most, depth)
        elif sign in b"]}":
            depth -= 1
        position += 1
    return most


TEXTS = st.text(alphabet='[]{}"\\ \n,a\u00e9', max_size=12)
VALUES = st.recursive(TEXTS | st.integers(), lambda v: st.lists(v, max_size=5) | st.dictionaries(TEXTS, v, max_size=4))


@given(VALUES, st.booleans(), st.integers(0, 3), st.sampled_from("[{"))
def test_brackets_in_strings_are_not_levels(value: Any, is_ascii: bool, missing: int, kind: str) -> None:
    """The value stands as deep as the limit lets it, or a level deeper; in between come 200 siblings of each kind."""
    text = json.dumps([value, ["]"] * 200, [{}] * 200], ensure_ascii=is_ascii).encode()
    around = max(0, MAX_DEPTH - levels_of(text) + 2 - missing)
    opening, closing = (b"[", b"]") if kind == "[" else (b'{"\\"":', b"}")
    text = opening * around + text + closing * around
    try:
        check_depth(text)
    except TooDeep:
        assert levels_of(text) > MAX_DEPTH
    else:
        assert levels_of(text) <= MAX_DEPTH
        json.loads(text)


@given(st.text(alphabet='[]{}"\\,1', max_size=600))
def test_what_is_not_json_is_no_trouble(text: str) -> None:
    try:
        check_depth(text)
    except TooDeep:
        assert levels_of(text.encode()) > MAX_DEPTH or not _is_json(text)


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


EXTREMES = ["1e300", "1E+308", "-1.5e-0308", "2.2250738585072011e-308", "1e0000290"]


@pytest.mark.parametrize("number", EXTREMES)
@pytest.mark.parametrize("form", ["[{}1]", '{{"a":[{}1]}}', '["\\"",{}1]'])
def test_numbers_that_are_slow_to_read_are_counted(number: str, form: str) -> None:
    """Whose rule: ours. Each costs the parser 20 us, and six bytes: 8 MiB of them would be half a minute."""
    check_depth(form.format(f"{number}," * (MAX_EXTREME_NUMBERS - 1)))
    with pytest.raises(TooDeep, match="2000 numbers"):
        check_depth(form.format(f"{number}, " * (MAX_EXTREME_NUMBERS + 1)))


@pytest.mark.parametrize(
    "text",
    [
        "[" + "1e100,-1.25e-19," * 10_000 + "1]",
        json.dumps('1e300,",' * 10_000),
        json.dumps(["e300," * 10_000, "\\"] * 3),
        json.dumps(bytes(range(256)).hex() * 1000),
    ],
    ids=["ordinary numbers", "text", "texts", "hex"],
)
def test_other_numbers_and_texts_are_no_trouble(text: str) -> None:
    check_depth(text)
    assert decode_json(text) == json.loads(text)


def test_containers_are_counted_where_that_is_asked_for() -> None:
    text = b"[" + b"[]," * 999 + b'"[[[["]'
    check_depth(text, max_containers=1000)
    with pytest.raises(TooDeep, match="more than 999 arrays and objects"):
        check_depth(text, max_containers=999)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[" + "1," * MAX_VALUES + "1,1]", "values"),
        ("[" + '"",' * MAX_VALUES + "1,1]", "values"),
        ("[" + '",",' * (MAX_MEMBERS + MAX_VALUES) + "1,1]", "values"),
        ("{" + ",".join(f'"{number}":1' for number in range(MAX_MEMBERS + 1)) + "}", "members"),
        ("[" + '{"\\"":1},' * (MAX_MEMBERS + 1) + "1]", "members"),
    ],
    ids=["numbers", "texts", "texts with commas", "one object", "objects"],
)
def test_members_and_values_are_counted_in_messages_to_a_server(text: str, reason: str) -> None:
    """Whose rule: ours. 7 MB of members with names of their own held up everybody for a second."""
    check_depth(text)
    with pytest.raises(TooDeep, match=reason):
        check_depth(text, max_containers=MAX_CONTAINERS)


@pytest.mark.parametrize(
    "value",
    [
        [1] * MAX_VALUES,
        {str(number): number for number in range(MAX_MEMBERS)},
        [",:" * 1_000_000, '",":' * 1_000_000],
    ],
    ids=["values", "members", "texts"],
)
def test_a_message_within_the_counts_passes(value: Any) -> None:
    check_depth(msgspec.json.encode(value), max_containers=MAX_CONTAINERS)


def test_a_text_that_a_deep_stack_cannot_read_is_too_deep_as_well() -> None:
    """3.11 counts the levels of JSON and the frames of its caller together."""

    def sink(frames: int) -> Any:
        return sink(frames - 1) if frames else decode_json(nested(MAX_DEPTH))

    reached = 0
    for frames in range(100, 1000, 10):
        try:
            sink(frames)
        except TooDeep:
            return  # and not RecursionError
        except RecursionError:  # the stack itself was too short for the call
            break
        reached = frames
    assert reached >= 500


def test_nothing_that_walks_a_value_gives_up_at_the_limit() -> None:
    """Half of the interpreter's thousand frames may be in use already."""
    value = decode_json(nested(MAX_DEPTH))
    array = decode_json(nested(MAX_DEPTH, "["))
    schema: dict[str, Any] = {"additionalProperties": {"$ref": "#"}, "items": {"$ref": "#"}}

    def walk(frames: int) -> None:
        if frames:
            walk(frames - 1)
            return
        for deep in (value, array):
            assert json.loads(json.dumps(deep)) == msgspec.json.decode(msgspec.json.encode(deep))
            assert copy.deepcopy(deep) == msgspec.to_builtins(deep)
            assert repr(deep)
            assert Validator(schema).is_valid(deep)

    walk(500)


# --- the doors -------------------------------------------------------------------------------------------------------

READER = MessageReader(METHODS)


def message(members: str, value: bytes) -> bytes:
    return b'{"jsonrpc":"2.0",' + members.encode() % value + b"}"


def segment(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).decode().rstrip("=")


def signed(header: bytes, payload: bytes) -> str:
    text = f"{segment(header)}.{segment(payload)}"
    return f"{text}.{segment(hmac.new(SECRET.encode(), text.encode(), hashlib.sha256).digest())}"


async def claims(token: str) -> dict[str, Any]:
    keys = FixedKeys([import_secret(SECRET)], by_kid=False)
    return await read_signed(token, keys, keys.algorithms)


def model_call(arguments: str) -> Any:
    return from_openai_call({"type": "function", "id": "1", "function": {"name": "f", "arguments": arguments}})


def present(value: Any) -> Any:
    if value is None:
        raise ValueError("nothing was read")
    return value


# name: (the levels around the value, what reads it)
DOORS: dict[str, tuple[int, Callable[[bytes], Any]]] = {
    "a call": (2, lambda v: READER.read(message('"id":1,"method":"ping","params":{"v":%s}', v))),
    "a call's arguments": (
        2,
        lambda v: READER.read(message('"id":1,"method":"tools/call","params":{"name":"x","arguments":%s}', v)),
    ),
    "a call's _meta": (2, lambda v: READER.read(message('"id":1,"method":"tools/list","params":{"_meta":%s}', v))),
    "an unknown method": (2, lambda v: READER.read(message('"id":1,"method":"x/y","params":{"v":%s}', v))),
    "an unknown member": (1, lambda v: READER.read(message('"id":1,"method":"ping","x":%s', v))),
    "a notification": (2, lambda v: READER.read(message('"method":"notifications/x","params":{"v":%s}', v))),
    "an answer": (1, lambda v: READER.read(message('"id":1,"result":%s', v))),
    "a batch": (3, lambda v: READER.read(b"[" + message('"id":1,"method":"ping","params":{"v":%s}', v) + b"]")),
    "a reply": (1, lambda v: read_frame(message('"id":1,"result":%s', v))),
    "a server's request": (2, lambda v: read_frame(message('"id":1,"method":"x","params":{"v":%s}', v))),
    "a server's batch": (2, lambda v: split_batch(b"[" + message('"id":1,"result":%s', v) + b"]")),
    "jsonrpc.decode": (1, lambda v: jsonrpc.decode(message('"id":1,"result":%s', v))),
    "the header of a token": (1, lambda v: split_signed(signed(b'{"alg":"HS256","x":%s}' % v, b"{}"))),
    "a document of an authorization server": (
        1,
        lambda v: present(read_object(HttpReply(200, {}, b'{"issuer":%s}' % v))),
    ),
    "an argument on the command line": (0, lambda v: parse_json(v.decode(), "it")),
    "the arguments of a model's call": (
        1,
        lambda v: model_call((b'{"v":%s}' % v).decode()),
    ),
}


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 400, 990, 1200, 5000, 100_000])
@pytest.mark.parametrize("door", DOORS)
def test_every_door_has_the_same_limit(door: str, levels: int) -> None:
    """Ours. An interpreter's own limit is near 1,000 on 3.11, 1,500 on 3.12 and 10,000 on 3.13."""
    around, read = DOORS[door]
    read(nested(MAX_DEPTH - around))
    with pytest.raises((Error, ValueError)) as refusal:
        read(nested(levels - around))
    if isinstance(refusal.value, RemoteProtocolError):
        assert refusal.value.code == -32700
        assert refusal.value.request_id is None
        assert f"nested too deeply: more than {MAX_DEPTH} levels" in refusal.value.message


@pytest.mark.parametrize("levels", [MAX_DEPTH, 400, 990, 1200, 5000])
async def test_the_claims_of_a_token_have_the_limit_too(levels: int) -> None:
    """However well the token is signed."""
    header = b'{"alg":"HS256"}'
    assert await claims(signed(header, b'{"v":%s}' % nested(MAX_DEPTH - 1)))
    with pytest.raises(Refused):
        await claims(signed(header, b'{"v":%s}' % nested(levels)))


def test_a_message_with_more_containers_than_a_server_should_read_is_refused() -> None:
    """Eight MiB of empty arrays would take half a gigabyte and hold up everybody for a second."""
    READER.read(message('"id":1,"method":"ping","params":{"v":[%s1]}', b"[]," * (MAX_CONTAINERS - 3)))
    with pytest.raises(RemoteProtocolError, match="more than 200000 arrays and objects") as refusal:
        READER.read(message('"id":1,"method":"ping","params":{"v":[%s1]}', b"[]," * MAX_CONTAINERS))
    assert refusal.value.code == -32700
    with pytest.raises(RemoteProtocolError, match="more than 200000 arrays and objects"):
        read_frame(message('"id":1,"result":[%s1]', b"[]," * MAX_CONTAINERS))


# --- names that come twice -------------------------------------------------------------------------------------------


def call_of(members: str) -> Any:
    return READER.read(f'{{"jsonrpc":"2.0",{members}}}'.encode())


def add(a: int, b: int = 0) -> int:
    return a + b


# where: (what is read, the value it must have)
TWICE: dict[str, tuple[Callable[[], Any], Any]] = {
    "method": (lambda: call_of('"id":1,"method":"tools/list","method":"ping"').method, "ping"),
    "method, spelt with an escape": (lambda: call_of(r'"id":1,"method":"a","m\u0065thod":"ping"').method, "ping"),
    "id": (lambda: call_of('"id":1,"id":2,"method":"ping"').id, 2),
    "params": (
        lambda: call_of('"id":1,"method":"tools/call","params":{"name":"a"},"params":{"name":"b"}').params.name,
        "b",
    ),
    "the name of a tool": (
        lambda: call_of('"id":1,"method":"tools/call","params":{"name":"a","name":"b"}').params.name,
        "b",
    ),
    "_meta": (
        lambda: (
            call_of(
                '"id":1,"method":"ping","params":{"_meta":{"progressToken":1},"_meta":{"progressToken":2}}'
            ).progress_token
        ),
        2,
    ),
    "inside _meta": (
        lambda: (
            call_of('"id":1,"method":"ping","params":{"_meta":{"progressToken":1,"progressToken":2}}').progress_token
        ),
        2,
    ),
    "an argument of a tool": (lambda: compile_signature(add).arguments(b'{"a":1,"a":2}')["a"], 2),
    "a notification": (lambda: call_of('"method":"x","params":{"a":1,"a":2}').params["a"], 2),
    "an answer": (lambda: call_of('"id":1,"result":1,"result":2').result, 2),
    "a reply": (lambda: read_frame(b'{"jsonrpc":"2.0","id":1,"result":1,"result":2}').result, Raw(b"2")),
    "the id of a reply": (lambda: read_frame(b'{"jsonrpc":"2.0","id":1,"id":2,"result":1}').id, 2),
    "jsonrpc.decode": (
        lambda: jsonrpc.decode('{"jsonrpc":"2.0","id":1,"method":"a","method":"b"}'),
        jsonrpc.Request(1, "b"),
    ),
    "a document of an authorization server": (
        lambda: read_object(HttpReply(200, {}, b'{"active":false,"active":true}')),
        {"active": True},
    ),
    "the command line": (lambda: parse_json('{"a":1,"a":2}', "it"), {"a": 2}),
    "a file of servers": (lambda: read_json('{"a":1,"a":2}', "f"), {"a": 2}),
    "a file of servers with comments": (lambda: read_json('{"a":1, // one\n"a":2,}', "f"), {"a": 2}),
    "a model's call": (lambda: model_call('{"a":1,"a":2}').arguments, {"a": 2}),
}


@pytest.mark.parametrize("where", TWICE)
def test_of_two_members_with_one_name_the_last_counts(where: str) -> None:
    """Ours: RFC 8259 leaves it open; JSON.parse and json.loads do the same, and so do both official SDKs."""
    read, value = TWICE[where]
    assert read() == value


@pytest.mark.parametrize("name", ["sub", "s\\u0075b"])
async def test_a_token_that_says_a_name_twice_is_refused(name: str) -> None:
    """RFC 7519, section 4 allows that, or the last: two who verify one token must not read two subjects."""
    header = b'{"alg":"HS256"}'
    assert await claims(signed(header, b'{"sub":"a"}')) == {"sub": "a"}
    with pytest.raises(Refused):
        await claims(signed(header, b'{"sub":"a","%s":"b"}' % name.encode()))
    with pytest.raises(Refused):
        split_signed(signed(b'{"alg":"none","alg":"HS256"}', b"{}"))
