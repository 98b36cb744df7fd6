"""`_meta`: the reserved keys, what they default to, what is refused (protocol.md 1.1, 1.6, 2.2b)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec import UNSET, Raw

from trimaran.errors import ProtocolError
from trimaran.protocol.meta import LOG_LEVELS, MetaReader, Peer, RequestMeta
from trimaran.types import Implementation

P = "io.modelcontextprotocol/"
REQUIRED: dict[str, Any] = {P + "protocolVersion": "2026-07-28", P + "clientCapabilities": {}}


def read(value: Any, reader: MetaReader | None = None) -> RequestMeta:
    return (reader or MetaReader()).read(Raw(value if isinstance(value, bytes) else json.dumps(value).encode()))


def test_no_meta_is_a_legacy_request_without_wishes() -> None:
    meta = MetaReader().read(UNSET)
    assert (meta.peer, meta.log_level, meta.progress_token, meta.missing) == (None, None, None, None)


def test_a_meta_that_names_no_revision_is_legacy_but_may_carry_a_token() -> None:
    meta = read({"progressToken": 7, "com.example/x": [1]})
    assert meta.peer is None
    assert meta.progress_token == 7


def test_a_modern_meta_describes_its_peer() -> None:
    meta = read(
        {**REQUIRED, P + "clientInfo": {"name": "c", "version": "2"}, P + "logLevel": "error", "progressToken": "t"}
    )
    assert meta.peer == Peer("2026-07-28", {}, Implementation(name="c", version="2"))
    assert (meta.log_level, meta.progress_token, meta.missing) == ("error", "t", None)


def test_a_modern_meta_without_capabilities_says_what_it_lacks() -> None:
    """protocol.md 2.2b."""
    assert read({P + "protocolVersion": "2026-07-28"}).missing == P + "clientCapabilities"


@pytest.mark.parametrize("info", [None, "me", {}, {"name": "x"}, {"name": 1, "version": "1"}])
def test_a_client_that_spells_its_name_oddly_is_served_all_the_same(info: Any) -> None:
    """Ours: clientInfo is display data, and only a SHOULD."""
    peer = read({**REQUIRED, P + "clientInfo": info}).peer
    assert peer is not None
    assert peer.info is None


@pytest.mark.parametrize("level", LOG_LEVELS)
def test_every_log_level_is_taken(level: str) -> None:
    """R56."""
    assert read({**REQUIRED, P + "logLevel": level}).log_level == level


def test_a_level_that_is_none_is_marked_for_the_last_rung() -> None:
    """protocol.md 1.4: a bad level is -32602, but an unknown method or version is told before it."""
    assert not read({**REQUIRED, P + "logLevel": "loud"}).is_level_known
    assert read(REQUIRED).is_level_known


def test_the_levels_are_in_order_of_severity() -> None:
    """R56."""
    assert LOG_LEVELS == ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


@pytest.mark.parametrize(
    "value",
    [
        {**REQUIRED, P + "logLevel": 3},
        {**REQUIRED, P + "clientCapabilities": []},
        {**REQUIRED, P + "clientCapabilities": None},
        {**REQUIRED, P + "protocolVersion": 20260728},
        {"progressToken": 1.5},
        {"progressToken": True},
        {"progressToken": None},
        [],
        None,
        "x",
    ],
)
def test_a_reserved_key_of_the_wrong_type_is_invalid_params(value: Any) -> None:
    with pytest.raises(ProtocolError) as caught:
        read(value)
    assert caught.value.code == -32602


@pytest.mark.parametrize(
    "raw",
    [b'{"progressToken":"\xff"}', b'{"' + P.encode() + b'protocolVersion":"\xc3("}', b'{"progressToken":"\\ud800x"}'],
)
def test_text_that_is_no_unicode_is_a_protocol_error_never_another_exception(raw: bytes) -> None:
    """protocol.md 3.1: UTF-8 only. Whatever is wrong with a message is answered, and nothing else breaks."""
    with pytest.raises(ProtocolError):
        read(raw)


def test_the_same_bytes_are_read_once() -> None:
    reader = MetaReader()
    assert read(REQUIRED, reader) is read(REQUIRED, reader)


def test_a_progress_token_is_never_remembered() -> None:
    """Each call has its own token: remembering them would only fill the memory."""
    reader = MetaReader()
    with_token = {**REQUIRED, "progressToken": 1}
    assert read(with_token, reader) is not read(with_token, reader)


def test_the_memory_is_bounded_in_entries_and_in_size() -> None:
    """P8."""
    reader = MetaReader()
    for number in range(2000):
        read({**REQUIRED, "com.example/n": number}, reader)
    assert len(reader._memo) <= 512
    long = {**REQUIRED, "com.example/n": "x" * 4000}
    assert read(long, reader) is not read(long, reader)


@pytest.mark.parametrize(
    ("capabilities", "asked", "answer"),
    [
        ({}, "sampling", False),
        ({"sampling": {}}, "sampling", True),
        ({"sampling": {}}, "sampling.tools", False),
        ({"sampling": {"tools": {}}}, "sampling.tools", True),
        ({"sampling": None}, "sampling", False),
        ({"sampling": False}, "sampling", False),
        ({"sampling": True}, "sampling.tools", False),
        ({"elicitation": {"url": {}}}, "elicitation.url", True),
        ({"elicitation": {"url": {}}}, "elicitation.form", False),
    ],
)
def test_a_peer_supports_what_it_declared(capabilities: Any, asked: str, answer: bool) -> None:
    """R59, R99."""
    assert Peer("2026-07-28", capabilities).supports(asked) is answer


@pytest.mark.parametrize(
    ("capabilities", "settings"),
    [
        ({}, None),
        ({"extensions": {}}, None),
        ({"extensions": []}, None),
        ({"extensions": {"a.b/c": True}}, None),
        ({"extensions": {"a.b/c": {}}}, {}),
        ({"extensions": {"a.b/c": {"x": 1}}}, {"x": 1}),
    ],
)
def test_a_peer_tells_its_settings_of_an_extension(capabilities: Any, settings: Any) -> None:
    assert Peer("2026-07-28", capabilities).extension("a.b/c") == settings
