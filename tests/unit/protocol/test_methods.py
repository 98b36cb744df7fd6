"""The methods table against the specification's own lists (protocol.md 1.1-1.5, 1.8)."""

from __future__ import annotations

import msgspec
import pytest

from trimaran.protocol.methods import METHODS, extend
from trimaran.protocol.versions import LEGACY, MODERN
from trimaran.types import DiscoverParams

BOTH_ERAS = {
    "tools/call": "tools",
    "tools/list": "tools",
    "resources/read": "resources",
    "resources/list": "resources",
    "resources/templates/list": "resources",
    "prompts/get": "prompts",
    "prompts/list": "prompts",
    "completion/complete": "completions",
}
MODERN_ONLY = {"server/discover", "subscriptions/listen"}
LEGACY_ONLY = {
    "initialize": None,
    "ping": None,
    "logging/setLevel": "logging",
    "resources/subscribe": "resources",
    "resources/unsubscribe": "resources",
}


def test_the_table_holds_every_method_and_no_other() -> None:
    assert set(METHODS) == {*BOTH_ERAS, *MODERN_ONLY, *LEGACY_ONLY}
    assert all(name == row.name for name, row in METHODS.items())


@pytest.mark.parametrize("name", BOTH_ERAS)
def test_a_method_of_both_eras_exists_in_every_revision(name: str) -> None:
    assert all(METHODS[name].exists_in(v) for v in (MODERN, *LEGACY))


@pytest.mark.parametrize("name", sorted(MODERN_ONLY))
def test_a_modern_method_exists_in_no_legacy_revision(name: str) -> None:
    row = METHODS[name]
    assert row.exists_in(MODERN)
    assert not any(row.exists_in(v) for v in LEGACY)


@pytest.mark.parametrize("name", LEGACY_ONLY)
def test_a_handshake_method_is_gone_from_the_modern_revision(name: str) -> None:
    """protocol.md 2.1 (6)."""
    row = METHODS[name]
    assert not row.exists_in(MODERN)
    assert all(row.exists_in(v) for v in LEGACY)


@pytest.mark.parametrize(("name", "capability"), [*BOTH_ERAS.items(), *LEGACY_ONLY.items()])
def test_a_method_hangs_on_its_capability(name: str, capability: str | None) -> None:
    """R2, R70: without the capability the method does not exist."""
    assert METHODS[name].capability == capability


def test_the_routing_header_repeats_the_name_of_three_methods() -> None:
    """protocol.md 3.2."""
    routed = {name: row.routing_name for name, row in METHODS.items() if row.routing_name}
    assert routed == {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


def test_cache_hints_belong_to_six_results() -> None:
    """protocol.md 1.5."""
    assert {name for name, row in METHODS.items() if row.cacheable} == {
        "server/discover",
        "tools/list",
        "prompts/list",
        "resources/list",
        "resources/templates/list",
        "resources/read",
    }


def test_input_may_be_required_by_three_methods_only() -> None:
    """protocol.md 1.3."""
    assert {n for n, r in METHODS.items() if r.input_rounds} == {"tools/call", "prompts/get", "resources/read"}


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("tools/call", b'{"name":"a"}'),
        ("tools/list", b"{}"),
        ("tools/list", b'{"cursor":""}'),
        ("resources/read", b'{"uri":"a://b"}'),
        ("completion/complete", b'{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""}}'),
        ("subscriptions/listen", b'{"notifications":{}}'),
        ("server/discover", b"{}"),
        ("initialize", b'{"protocolVersion":"x","capabilities":{},"clientInfo":{"name":"a","version":"1"}}'),
    ],
)
def test_a_row_decodes_its_params(name: str, params: bytes) -> None:
    row = METHODS[name]
    assert isinstance(row.decode(params), row.params)


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("tools/call", b"{}"),
        ("tools/call", b"[]"),
        ("tools/call", b'{"name":1}'),
        ("tools/list", b'{"cursor":1}'),
        ("resources/read", b'{"uri":null}'),
        # R36
        ("completion/complete", b'{"ref":{"type":"ref/tool","name":"p"},"argument":{"name":"a","value":""}}'),
        ("completion/complete", b'{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":1}}'),
        (
            "completion/complete",
            b'{"ref":{"type":"ref/prompt","name":"p"},"argument":{"name":"a","value":""},"context":{"arguments":{"b":1}}}',
        ),
        # R98
        ("initialize", b'{"protocolVersion":"x","capabilities":{}}'),
        ("initialize", b'{"protocolVersion":"x","capabilities":[],"clientInfo":{"name":"a","version":"1"}}'),
        ("initialize", b'{"protocolVersion":"x","capabilities":{},"clientInfo":{"name":"a"}}'),
        ("initialize", b'{"protocolVersion":1,"capabilities":{},"clientInfo":{"name":"a","version":"1"}}'),
    ],
)
def test_params_of_another_shape_are_refused(name: str, params: bytes) -> None:
    """R36, R85, R98."""
    with pytest.raises(msgspec.ValidationError):
        METHODS[name].decode(params)


def test_an_extension_makes_a_row_of_its_own_and_leaves_the_table_alone() -> None:
    row = extend("tasks/get", DiscoverParams, routing_name="task_id", capability="tasks")
    assert row.exists_in(MODERN)
    assert not any(row.exists_in(v) for v in LEGACY)
    assert (row.name, row.routing_name, row.capability) == ("tasks/get", "task_id", "tasks")
    assert "tasks/get" not in METHODS
    assert isinstance(row.decode(b"{}"), DiscoverParams)
