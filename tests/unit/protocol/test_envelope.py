"""What is no object travels as `{"result": value}` to revisions that know objects only: who decides, and how."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import UNSET, Raw

from trimaran.protocol.envelope import Envelope, decide_envelope, is_object, legacy_output, legacy_result
from trimaran.types import CallToolResult

OBJECT = {"type": "object"}
INTEGER = {"type": "integer"}


@pytest.mark.parametrize(
    ("schema", "verdict"),
    [
        (OBJECT, True),
        ({"type": ["object"]}, True),
        ({"type": ["object", "null"]}, None),
        (INTEGER, False),
        ({"type": ["integer", "null"]}, False),
        ({}, None),
        ({"properties": {}}, None),
        ({"const": {}}, True),
        ({"enum": [1, None]}, False),
        ({"enum": [1, {}]}, None),
        ({"anyOf": [OBJECT, {"const": {}}]}, True),
        ({"anyOf": [OBJECT, INTEGER]}, None),
        ({"oneOf": [INTEGER, {"type": "null"}]}, False),
        ({"allOf": [{"minProperties": 1}, OBJECT]}, True),
        ({"allOf": [{"anyOf": [OBJECT, INTEGER]}, INTEGER]}, False),
        ({"$ref": "#/$defs/A", "$defs": {"A": OBJECT}}, True),
        ({"anyOf": [{"$ref": "#/$defs/A"}, INTEGER], "$defs": {"A": OBJECT}}, None),
        ({"$ref": "#"}, None),
        ({"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}, OBJECT]}}}, None),
        ({"anyOf": [True, OBJECT]}, None),
        (True, None),
    ],
    ids=repr,
)
def test_a_schema_tells_whether_every_value_is_an_object(schema: Any, verdict: bool | None) -> None:
    assert is_object(schema) is verdict


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf", "allOf", "$ref"])
@pytest.mark.parametrize("ends", [1, 2])
def test_definitions_that_refer_on_and_on_cost_no_time(keyword: str, ends: int) -> None:
    """A server of a gateway sent them, and the gateway was gone: two references per level double the work at each."""

    def level(number: int) -> dict[str, Any]:
        ref = {"$ref": f"#/$defs/D{number + 1}"}
        return {**ref, "anyOf": [ref] * ends} if keyword == "$ref" else {keyword: [ref] * ends}

    few, many = 20, 3000
    for levels, verdict in ((few, True), (many, None)):
        definitions = {f"D{number}": level(number) for number in range(levels)} | {f"D{levels}": OBJECT}
        assert is_object({**level(0), "$defs": definitions}) is verdict


def test_a_tool_without_a_schema_leaves_it_to_each_value() -> None:
    assert decide_envelope(None) is None
    assert decide_envelope(OBJECT) == Envelope(wraps=False)
    assert decide_envelope({"$defs": {}, **INTEGER}) == Envelope(wraps=True, is_noted=False)


def test_an_object_that_does_not_say_so_says_so_there() -> None:
    schema = {"anyOf": [OBJECT, {"const": {}}]}
    assert legacy_output(schema, "a") == {**schema, "type": "object"}


@pytest.mark.parametrize(
    ("schema", "inner", "beside"),
    [
        (INTEGER, INTEGER, {}),
        ({"$schema": "x", "$defs": {"A": INTEGER}, "$ref": "#/$defs/A"}, {"$ref": "#/$defs/A"}, {"$schema": "x", "$defs": {"A": INTEGER}}),
        ({"items": {"$ref": "#"}}, {"items": {"$ref": "#/properties/result"}}, {}),
        ({"items": {"$recursiveRef": "#"}}, {"items": {"$ref": "#/properties/result"}}, {}),
        ({"prefixItems": [INTEGER, {"$ref": "#/prefixItems/0"}]}, {"prefixItems": [INTEGER, {"$ref": "#/properties/result/prefixItems/0"}]}, {}),
        ({"definitions": {"A": {"$ref": "#"}}, "$ref": "#a"}, {"$ref": "#a"}, {"definitions": {"A": {"$ref": "#/properties/result"}}}),
        ({"items": {"$id": "x", "$ref": "#"}}, {"items": {"$id": "x", "$ref": "#"}}, {}),
        ({"$id": "x", "$schema": "y", "$ref": "#/$defs/A", "$defs": {"A": INTEGER}}, {"$id": "x", "$ref": "#/$defs/A", "$defs": {"A": INTEGER}}, {}),
        ({"default": {"$ref": "#"}}, {"default": {"$ref": "#"}}, {}),
    ],
    ids=repr,
)  # fmt: skip
def test_references_hold_after_the_schema_has_moved(schema: Any, inner: Any, beside: Any) -> None:
    envelope = {"title": "aOutput", "type": "object", "properties": {"result": inner}, "required": ["result"]}
    assert legacy_output(schema, "a") == {**envelope, **beside}


@pytest.mark.parametrize(
    ("structured", "envelope", "travels"),
    [
        (UNSET, Envelope(wraps=True), UNSET),
        ({"a": 1}, None, {"a": 1}),
        ({"a": 1}, Envelope(wraps=False), {"a": 1}),
        ({"a": 1}, Envelope(wraps=True), {"result": {"a": 1}}),
        (Raw(b'{"a":1}'), Envelope(wraps=True), {"result": {"a": 1}}),
        (Raw(b'{"a":1}'), None, {"a": 1}),
        (5, None, {"result": 5}),
        (None, Envelope(wraps=True), {"result": None}),
        ([1], Envelope(wraps=False), {"result": [1]}),  # unchecked, and yet an object is what these revisions take
    ],
    ids=lambda value: bytes(value).decode() if isinstance(value, Raw) else repr(value),
)
def test_the_decision_of_the_tool_holds_for_its_results(structured: Any, envelope: Any, travels: Any) -> None:
    mapping = {"content": []} if structured is UNSET else {"content": [], "structuredContent": structured}
    for answer in (CallToolResult(content=[], structured_content=structured), mapping):
        sent = msgspec.json.decode(msgspec.json.encode(legacy_result(answer, envelope, msgspec.json.encode)))
        assert sent.get("structuredContent", UNSET) == travels
        assert ("_meta" in sent) == (travels is not UNSET and travels != {"a": 1})
