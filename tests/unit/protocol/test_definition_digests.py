"""Canonical JSON as RFC 8785 has it, and the digest of a definition."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import pytest

from trimaran.protocol.definition_digests import META_KEY, canonical_json, definition_digest, definition_of
from trimaran.types import Tool


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (-0.0, "0"),
        (10.0, "10"),
        (4.50, "4.5"),
        (2e-3, "0.002"),
        (1e-6, "0.000001"),
        (1e-7, "1e-7"),
        (1.5e-9, "1.5e-9"),
        (1e20, "100000000000000000000"),
        (1e21, "1e+21"),
        (1e30, "1e+30"),
        (333333333.33333329, "333333333.3333333"),
        (1e-27, "1e-27"),
        (-1.25, "-1.25"),
        (5e-324, "5e-324"),
        (1.7976931348623157e308, "1.7976931348623157e+308"),
        (2**53, "9007199254740992"),
        (2**53 + 1, "9007199254740992"),
    ],
)
def test_numbers_are_written_as_ecmascript_writes_them(number: float, text: str) -> None:
    assert canonical_json(number) == text.encode()


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 10**400, {1, 2}, "\ud800"])
def test_what_is_no_json_is_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="."):
        canonical_json({"x": value})


def test_members_are_sorted_by_utf16_units() -> None:
    """RFC 8785, 3.2.3: the emoji comes before the Hebrew letter, because its first unit is a surrogate."""
    named = {"\u20ac": 1, "\r": 2, "\ufb33": 3, "1": 4, "\U0001f600": 5, "\u0080": 6, "\u00f6": 7}
    text = canonical_json(named).decode()
    assert [text.index(f":{number}") for number in (2, 4, 6, 7, 1, 5, 3)] == sorted(
        text.index(f":{number}") for number in range(1, 8)
    )


def test_only_what_must_be_escaped_is() -> None:
    assert canonical_json('\x08\t\n\x0c\r\x1f\x7f"\\/\u2028é') == '"\\b\\t\\n\\f\\r\\u001f\x7f\\"\\\\/\u2028é"'.encode()
    assert canonical_json({"b": [{}, [], None, True, False], "a": ""}) == b'{"a":"","b":[{},[],null,true,false]}'


def test_a_digest_does_not_depend_on_order_or_meta() -> None:
    one: dict[str, Any] = {"name": "a", "inputSchema": {"type": "object", "properties": {}}, "_meta": {META_KEY: "x"}}
    other: dict[str, Any] = {"inputSchema": {"properties": {}, "type": "object"}, "name": "a"}
    assert definition_digest(one) == definition_digest(other)
    text = b'{"inputSchema":{"properties":{},"type":"object"},"name":"a"}'
    assert definition_digest(one) == f"sha256:{hashlib.sha256(text).hexdigest()}"


@pytest.mark.parametrize(
    "change",
    [
        {"title": "A"},
        {"description": "adds "},
        {"inputSchema": {"type": "object", "required": []}},
        {"annotations": {"readOnlyHint": True}},
        {"icons": [{"src": "https://example.com/a.png"}]},
    ],
)
def test_every_field_counts(change: dict[str, Any]) -> None:
    plain: dict[str, Any] = {"name": "a", "description": "adds", "inputSchema": {"type": "object"}}
    assert definition_digest(plain) != definition_digest({**plain, **change})


def test_a_struct_is_taken_as_it_is_on_the_wire() -> None:
    tool = Tool(name="a", input_schema={"type": "object"}, meta={"x": 1})
    assert definition_of(tool) == {"name": "a", "inputSchema": {"type": "object"}} or definition_of(tool) == {
        "name": "a"
    }
