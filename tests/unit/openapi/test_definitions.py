"""Definitions are shared, stay within the limit, and come to an end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from trimaran.format import lint
from trimaran.openapi.definitions import ArgumentSource, SchemaWriter
from trimaran.openapi.document import Document
from trimaran.schema import Validator


def ref(name: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{name}"}


def thing(*, required: tuple[str, ...] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(required)}


COMPONENTS: dict[str, Any] = {
    "Node": thing(next=ref("Node")),
    "A": thing(b=ref("B")),
    "B": thing(c=ref("C")),
    "C": thing(text={"type": "string", "description": "x" * 190}),
    "List": {"type": "array", "items": ref("B")},
    "Tree": thing(children={"type": "array", "items": ref("Tree")}, required=("children",)),
    "Ping": {"allOf": [ref("Pong")]},
    "Pong": {"allOf": [ref("Ping")]},
    "a/Same": thing(x=ref("C")),
    "b/Same": thing(y=ref("C")),
}
DOCUMENT = Document({"openapi": "3.0.0", "components": {"schemas": COMPONENTS}})


def write(schema: Any, *, is_output: bool = False, most: int = 10_000) -> dict[str, Any]:
    return SchemaWriter(DOCUMENT, most_bytes=most).write(schema, is_output=is_output)


def test_a_schema_that_refers_to_itself_is_written_once() -> None:
    schema = write({"$ref": "#/components/schemas/Node"})
    assert schema["properties"]["next"] == {"$ref": "#/$defs/Node"}
    assert schema["$defs"]["Node"]["properties"]["next"] == {"$ref": "#/$defs/Node"}


def test_a_large_schema_is_cut_at_a_lower_level() -> None:
    whole = write({"$ref": "#/components/schemas/A"})
    assert set(whole["$defs"]) == {"B", "C"}
    cut = write({"$ref": "#/components/schemas/A"}, most=250)
    assert len(msgspec.json.encode(cut)) <= 250
    assert cut["$defs"]["B"]["properties"]["c"] == {"type": "object"}


@pytest.mark.parametrize("is_output", [False, True])
def test_a_large_schema_without_references_is_cut_at_a_lower_level(is_output: bool) -> None:
    """Some documents are dereferenced before they are published: api.github.com.deref.json."""
    leaf = {"type": "string", "enum": ["x" * 90, "y" * 90]}
    deep = thing(a=thing(b={"type": "array", "items": thing(c=thing(d=leaf, e=leaf, f=leaf), required=("c",))}))
    deep["properties"]["a"]["additionalProperties"] = False
    most = 300 if not is_output else 120 * 6
    cut = write(deep, is_output=is_output, most=most)
    assert len(msgspec.json.encode(cut)) <= 300
    inner = cut["properties"]["a"]["properties"]["b"]["items"]
    assert inner["type"] == "object"
    assert Validator(cut).is_valid({"a": {"b": [{"c": {"d": "x" * 90}}]}})
    assert not Validator(cut).is_valid({"a": {"b": [1]}})
    assert not lint([{"name": "t", "description": "", "inputSchema": cut}], "gemini")


def test_an_array_that_is_cut_says_that_it_has_items() -> None:
    """OpenAI refuses an array without items."""
    schema = write(thing(list=ref("List")), most=100)
    assert schema["properties"]["list"] == {"type": "array", "items": {}}


def test_a_schema_of_a_result_has_a_sixth_of_the_bytes() -> None:
    assert "$defs" in write(ref("A"), most=300)
    assert "$defs" not in write(ref("A"), is_output=True, most=300)


def test_definitions_are_shared_by_the_schemas_that_use_them() -> None:
    writer = SchemaWriter(DOCUMENT, most_bytes=10_000)
    first = writer.write(ref("A"))
    second = writer.write(thing(list={"type": "array", "items": ref("B")}))
    assert first["$defs"]["B"] is second["$defs"]["B"]
    assert writer.write(ref("A")) is first


def test_two_definitions_of_one_name_are_told_apart() -> None:
    same = {"$ref": "#/components/schemas/a~1Same"}
    schema = write(thing(a=same, b={"$ref": "#/components/schemas/b~1Same"}))
    assert set(schema["$defs"]) == {"a_1Same", "b_1Same", "C"}


def test_arguments_have_the_better_text() -> None:
    writer = SchemaWriter(DOCUMENT, most_bytes=10_000)
    name = {"type": "string", "description": "a name"}
    schema = writer.write_arguments(
        {"a": ArgumentSource(name, "", "a"), "b": ArgumentSource(name, "better", "b")}, ["b"]
    )
    assert schema == {
        "type": "object",
        "properties": {"a": name, "b": {"type": "string", "description": "better"}},
        "required": ["b"],
    }


@pytest.mark.parametrize("name", ["Tree", "Ping"])
@pytest.mark.parametrize("is_output", [True, False])
def test_a_schema_that_has_to_contain_itself_is_cut(name: str, is_output: bool) -> None:
    """Gemini refuses it, and a validator may never come to an end."""
    schema = write(thing(tree=ref(name), required=("tree",)), is_output=is_output)
    assert Validator(schema).is_valid({"tree": {"children": [{"children": []}]}})
    assert [
        finding for finding in lint([{"name": "x", "inputSchema": schema}], "gemini") if finding.weight == "refused"
    ] == []


def test_a_schema_that_may_contain_itself_is_not() -> None:
    schema = write(thing(node=ref("Node")))
    assert schema["$defs"]["Node"]["properties"]["next"] == {"$ref": "#/$defs/Node"}
