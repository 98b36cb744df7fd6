"""Requests made from an OpenAPI document, checked by prism, which reads the same document. `scripts/setup-servers` installs it.

Prism 5.14 cannot read some styles, so they are left to the unit tests: it dies of commas in a path,
wants "spaceDelimited" encoded twice, takes the last of the repeated fields of a form, knows deep objects in lower case,
and keeps the texts of an object of style "label".
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.ports import find_port
from tests.support.until import until

from trimaran import Client, Server, connect

from .harness import DEADLINE, NODE, TOOLS, need

pytestmark = [pytest.mark.slow, pytest.mark.deadline(DEADLINE)]

PRISM = TOOLS / "servers" / "prism" / "node_modules" / ".bin" / "prism"
PATIENCE = 60.0

TEXT = {"type": "string"}
COLOURS = {"type": "array", "items": {"type": "string", "enum": ["blue", "black"]}, "minItems": 2}
RGB = {
    "type": "object",
    "properties": {"r": {"type": "integer"}, "g": {"type": "integer"}},
    "required": ["r", "g"],
    "additionalProperties": False,
}
BASE = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}
VALUES: dict[str, Any] = {"colours": ["blue", "black"], "rgb": {"r": 100, "g": 200}}
SCHEMAS: dict[str, Any] = {"colours": COLOURS, "rgb": RGB}
# Style, whether it explodes, and a value of which kind.
QUERIES = [("form", True, "colours"), ("form", False, "colours"), ("pipeDelimited", False, "colours"), ("deepObject", True, "rgb"), ("form", False, "rgb")]  # fmt: skip
PATHS = [("label", True, "colours"), ("matrix", True, "colours"), ("matrix", True, "rgb")]  # fmt: skip


def operation(operation_id: str, **content: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}}
    done = {"description": "Done.", "content": {"application/json": {"schema": schema}}}
    return {"operationId": operation_id, "responses": {"200": done}, **content}


def parameter(place: str, name: str, schema: Any, **more: Any) -> dict[str, Any]:
    return {"in": place, "name": name, "required": True, "schema": schema, **more}


def body(media_type: str, schema: Any, **media: Any) -> dict[str, Any]:
    return {"required": True, "content": {media_type: {"schema": schema, **media}}}


def form(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def document() -> dict[str, Any]:
    paths: dict[str, Any] = {
        "/header": {"get": operation("header", parameters=[parameter("header", "X-Colours", COLOURS)])},
        "/cookie": {"get": operation("cookie", parameters=[parameter("cookie", "sid", TEXT)])},
        "/json": {"post": operation("json", requestBody=body("application/json", {"allOf": [BASE, form(name=TEXT)]}))},
        "/list": {"post": operation("list", requestBody=body("application/json", COLOURS))},
        "/empty": {
            "post": operation("empty", requestBody=body("application/json", {"type": "object", "properties": {"a": TEXT}}))
        },
        "/form": {
            "post": operation(
                "form",
                requestBody=body(
                    "application/x-www-form-urlencoded",
                    form(rgb=RGB, text=TEXT),
                    encoding={"rgb": {"style": "deepObject", "explode": True}},
                ),
            )
        },
        "/upload": {
            "post": operation(
                "upload", requestBody=body("multipart/form-data", form(note=TEXT, file={**TEXT, "format": "binary"}))
            )
        },
        "/key": {"get": operation("key", security=[{"key": []}])},
        "/login": {"get": operation("login", security=[{"login": []}])},
        "/gone": {"delete": {"operationId": "gone", "responses": {"204": {"description": "Gone."}}}},
    }  # fmt: skip
    for number, (style, explode, kind) in enumerate(QUERIES):
        stated = parameter("query", kind, SCHEMAS[kind], style=style, explode=explode)
        paths[f"/query/{number}"] = {"get": operation(f"query_{number}", parameters=[stated])}
    for number, (style, explode, kind) in enumerate(PATHS):
        stated = parameter("path", kind, SCHEMAS[kind], style=style, explode=explode)
        paths[f"/path/{number}/{{{kind}}}"] = {"get": operation(f"path_{number}", parameters=[stated])}
    key = {"type": "apiKey", "in": "query", "name": "api_key"}
    schemes = {"key": key, "login": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.0.3",
        "info": {"title": "Styles", "version": "1"},
        "paths": paths,
        "components": {"securitySchemes": schemes},
    }


CALLS: dict[str, dict[str, Any]] = {
    "header": {"X-Colours": ["blue", "black"]},
    "cookie": {"sid": "a b;c"},
    "json": {"id": 1, "name": "x"},
    "list": {"body": ["blue", "black"]},
    "empty": {},
    "form": {"rgb": VALUES["rgb"], "text": "a&b=c d+é"},
    "upload": {"note": "a\r\nb", "file": base64.b64encode(bytes(range(256))).decode()},
    "key": {},
    "login": {},
    "gone": {},
    **{f"query_{number}": {kind: VALUES[kind]} for number, (_, _, kind) in enumerate(QUERIES)},
    **{f"path_{number}": {kind: VALUES[kind]} for number, (_, _, kind) in enumerate(PATHS)},
}


@asynccontextmanager
async def prism(file: Path) -> AsyncIterator[str]:
    """A mock of the API in `file`, which refuses what the document does not allow."""
    need(PRISM, NODE)
    port = find_port()
    words = ["mock", "--errors", "--host", "127.0.0.1", "--port", str(port), str(file)]
    child = await asyncio.create_subprocess_exec(
        str(NODE), str(PRISM), *words, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
    )

    async def is_listening() -> bool:
        assert child.returncode is None, "prism ended"
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            return False
        writer.close()
        return True

    try:
        await until(is_listening, "prism to listen", PATIENCE)
        yield f"http://127.0.0.1:{port}"
    finally:
        child.terminate()
        await child.wait()


async def refusal(client: Client, tool: str, arguments: dict[str, Any]) -> str | None:
    result = await client.call_tool(tool, arguments)
    return result.text if result.is_error else None


async def test_prism_takes_every_request(tmp_path: Path) -> None:
    file = tmp_path / "api.json"
    file.write_text(json.dumps(document()))
    async with prism(file) as url:
        server = Server.from_openapi(file, base_url=url, auth="secret")
        async with connect(server) as client:
            assert set(CALLS) == {tool.name for tool in server.list_tools()}
            refusals = {tool: await refusal(client, tool, arguments) for tool, arguments in CALLS.items()}
        await server.stop()
        assert {tool: text for tool, text in refusals.items() if text is not None} == {}


async def test_prism_refuses_what_its_document_does_not_allow(tmp_path: Path) -> None:
    """The control of the test above: here our document allows more than prism's."""
    file = tmp_path / "api.json"
    file.write_text(json.dumps(document()))
    lax = document()
    lax["paths"]["/json"]["post"]["requestBody"] = body(
        "application/json", {"type": "object", "properties": {"id": TEXT}}
    )
    async with prism(file) as url:
        server = Server.from_openapi(lax, base_url=url, include=["json"])
        async with connect(server) as client:
            text = await refusal(client, "json", {"id": "one"})
        await server.stop()
    assert text is not None
    assert text.startswith("POST /json answered 422 Unprocessable Entity.")
    assert "must be integer" in text
