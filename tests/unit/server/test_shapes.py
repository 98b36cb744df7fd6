"""Every shape the schema layer knows, listed and called in every revision that has output schemas."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from tests.support.shapes import PORTO, SHAPES, WRITTEN, Leg, Place, Result, make_server

from trimaran import CallToolResult, Server, connect
from trimaran.errors import DeclarationError
from trimaran.protocol.versions import MODERN, V2025_06, V2025_11
from trimaran.schema import Validator
from trimaran.schema.references import lost_reference
from trimaran.server.results import encode
from trimaran.types import Tool

LEGACY = [V2025_11, V2025_06]
REVISIONS = [MODERN, *LEGACY]


def schemas_in(tool: Tool) -> list[dict[str, Any]]:
    return [schema for schema in (tool.input_schema, tool.output_schema) if isinstance(schema, dict)]


@pytest.mark.parametrize("version", REVISIONS)
async def test_every_reference_that_is_listed_leads_somewhere(version: str) -> None:
    async with connect(make_server(), version=version) as client:
        tools = await client.list_tools()
    assert len(tools) == 2 * len(SHAPES) + len(WRITTEN)
    assert [(tool.name, lost) for tool in tools for one in schemas_in(tool) if (lost := lost_reference(one))] == []


@pytest.mark.slow
@pytest.mark.parametrize("version", REVISIONS)
async def test_every_result_fits_the_listed_schema_and_is_read_as_the_value_it_was(version: str) -> None:
    """Our own client is strict here, and `data` is the plain value whatever it travelled in."""
    values = {name: values for name, (_, values) in {**SHAPES, **WRITTEN}.items()}
    differing: list[tuple[str, Any, Any]] = []
    async with connect(make_server(), version=version, schema_check="strict") as client:
        for name, returned in values.items():
            for number, value in enumerate(returned):
                result = await client.call_tool(name, {"number": number})
                plain = msgspec.json.decode(encode(value))
                if result.data != plain:
                    differing.append((name, plain, result.data))
    assert differing == []


@pytest.mark.slow
@pytest.mark.parametrize("version", REVISIONS)
async def test_every_value_that_is_returned_may_be_sent_back(version: str) -> None:
    """What a client may check before it calls is what we take."""
    refused: list[tuple[str, Any, str]] = []
    async with connect(make_server(), version=version, raise_on_error=False) as client:
        listed: dict[str, Any] = {tool.name: tool.input_schema for tool in await client.list_tools()}
        for name, (_, values) in SHAPES.items():
            for value in values:
                arguments = {"value": msgspec.json.decode(encode(value))}
                fault = Validator(listed[f"take_{name}"]).first(arguments)
                result = await client.call_tool(f"take_{name}", arguments)
                if fault is not None or result.is_error:
                    refused.append((name, arguments, str(fault) + result.text))
    assert refused == []


@pytest.mark.parametrize("version", LEGACY)
async def test_definitions_stand_at_the_root_of_an_envelope(version: str) -> None:
    server = Server("s", version="1")

    @server.tool
    def legs() -> list[Leg]:
        return []

    async with connect(server, version=version) as client:
        [tool] = await client.list_tools()
    schema: Any = tool.output_schema
    assert set(schema["$defs"]) == {"Place"}
    assert "$defs" not in schema["properties"]["result"]
    assert schema["properties"]["result"]["items"]["properties"]["start"] == {"$ref": "#/$defs/Place"}


@dataclass
class Sent:
    structured: Any
    meta: Mapping[str, Any]
    data: Any


async def sent(server: Server, name: str, version: str) -> Sent:
    async with connect(server, version=version, schema_check="strict", raise_on_error=False) as client:
        result = await client.call_tool(name)
        return Sent(result.structured, result.meta, result.data)


@pytest.mark.parametrize("version", LEGACY)
@pytest.mark.parametrize(
    "value",
    [
        PORTO,
        None,
        CallToolResult.ok("x", structured={"name": "Porto", "seen": None}),
        CallToolResult.ok("x", structured=None),
    ],
    ids=repr,
)
async def test_one_decision_holds_for_every_result_of_a_tool(value: Any, version: str) -> None:
    """`Place | None` is no object always, so a place travels in the envelope too; an explicit result does as well."""
    server = Server("s", version="1")

    def find() -> Place | None:
        return value

    server.add_tool(find)
    outer = Server("o", version="1")
    outer.mount(server, "geo")
    for one, name in ((server, "find"), (outer, "geo_find")):
        result = await sent(one, name, version)
        assert result.structured.keys() == {"result"}
        assert result.data == result.structured["result"]


@pytest.mark.parametrize("version", LEGACY)
async def test_a_mapping_that_middleware_answers_with_travels_the_same_way(version: str) -> None:
    server = Server("s", version="1")
    place = {"name": "Porto", "seen": None}

    @server.tool
    def find() -> Place | None:
        return None

    @server.middleware
    async def answer(call: Any, call_next: Any) -> Any:
        return {"content": [], "structuredContent": place} if call.method == "tools/call" else await call_next(call)

    result = await sent(server, "find", version)
    assert (result.structured, result.data) == ({"result": place}, place)


@pytest.mark.parametrize("version", LEGACY)
async def test_an_object_with_one_field_called_result_is_no_envelope(version: str) -> None:
    server = Server("s", version="1")

    @server.tool
    def total() -> Result:
        return Result(5)

    result = await sent(server, "total", version)
    assert result.structured == result.data == {"result": 5}


@pytest.mark.parametrize("version", LEGACY)
async def test_a_result_in_an_envelope_says_so_in_the_words_of_fastmcp(version: str) -> None:
    """Its client reads the inner schema alone, so it is not told where that would miss the definitions."""
    server = Server("s", version="1")

    @server.tool
    def five() -> CallToolResult:
        return CallToolResult.ok("5", structured=5, meta={"own": 1})

    @server.tool
    def legs() -> list[Leg]:
        return []

    assert (await sent(server, "five", version)).meta == {"fastmcp": {"wrap_result": True}, "own": 1}
    assert "fastmcp" not in (await sent(server, "legs", version)).meta


@pytest.mark.parametrize("version", LEGACY)
async def test_the_result_of_a_long_running_tool_travels_the_same_way(version: str) -> None:
    server = Server("s", version="1")

    @server.tool(long_running=True)
    async def find() -> Place | None:
        return PORTO

    plain = await sent(server, "find", version)
    assert plain.structured["result"]["name"] == "Porto"
    if version == V2025_11:
        async with connect(server, version=version, schema_check="strict") as client:
            result = await (await client.start_task("find")).result()
        assert result.structured == plain.structured
        assert result.data == plain.data


class Callbacks:
    """A server without declarations: what it lists and returns is its own affair."""

    SCHEMAS = (
        ("always", {"type": "object"}, {"a": 1}),
        ("never", {"type": "integer"}, 5),
        ("sometimes", {"anyOf": [{"type": "object"}, {"type": "null"}]}, {"a": 1}),
        ("broken", {"$ref": "#/$defs/Gone"}, {"a": 1}),
    )

    def list_tools(self, cursor: Any, ctx: Any) -> list[Tool]:
        return [Tool(name=name, output_schema=schema) for name, schema, _ in self.SCHEMAS]

    def call_tool(self, name: str, arguments: Any, ctx: Any) -> CallToolResult:
        return CallToolResult.ok("x", structured={n: value for n, _, value in self.SCHEMAS}[name])


@pytest.mark.parametrize("version", REVISIONS)
async def test_callbacks_promise_what_holds_for_every_value(version: str, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is decided for their tools, so a schema that would hold for some results only is not shown."""
    server = Server("s", version="1", callbacks=Callbacks())
    with caplog.at_level(logging.WARNING, "trimaran.server"):
        async with connect(server, version=version, schema_check="strict") as client:
            listed = {tool.name: tool.output_schema for tool in await client.list_tools()}
            for name, _, value in Callbacks.SCHEMAS:
                assert (await client.call_tool(name)).data == value
    assert {name for name, schema in listed.items() if schema is None} == (
        {"broken"} if version == MODERN else {"broken", "sometimes"}
    )
    assert "broken" in caplog.text
    assert "'#/$defs/Gone' leads nowhere" in caplog.text


@pytest.mark.parametrize("option", ["input_schema", "output_schema"])
@pytest.mark.parametrize("is_checked", [True, False])
def test_a_reference_that_leads_nowhere_is_refused_when_the_tool_is_declared(option: str, is_checked: bool) -> None:
    schema: Any = {"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": "#/$defs/Gone"}}}}
    checks: dict[str, Any] = {"validate_input": is_checked, "validate_output": is_checked}
    with pytest.raises(DeclarationError) as refusal:
        Server("s", version="1").add_tool(lambda arguments: 1, name="tool", **{option: schema}, **checks)
    for word in ("tool 'tool'", option, "'#/$defs/Gone'", "$.properties.a.items", "'$defs' at the root"):
        assert word in str(refusal.value)
