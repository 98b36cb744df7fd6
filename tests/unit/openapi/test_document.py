"""OpenAPI documents of every version are read as one shape; a broken part costs itself."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from trimaran import Server
from trimaran.errors import ConfigError
from trimaran.openapi.document import Document, DocumentFault, RawOperation, read_document

SWAGGER: dict[str, Any] = {
    "swagger": "2.0",
    "info": {"title": "Old", "version": "1"},
    "host": "api.example.com",
    "basePath": "/v1",
    "schemes": ["http", "https"],
    "produces": ["application/json"],
    "paths": {
        "/pets": {
            "parameters": [{"name": "tenant", "in": "header", "type": "string"}],
            "post": {
                "operationId": "addPet",
                "parameters": [
                    {"name": "pet", "in": "body", "required": True, "schema": {"$ref": "#/definitions/Pet"}}
                ],
                "responses": {200: {"description": "ok", "schema": {"$ref": "#/definitions/Pet"}}},
            },
            "get": {
                "operationId": "listPets",
                "parameters": [
                    {
                        "name": "ids",
                        "in": "query",
                        "type": "array",
                        "items": {"type": "integer"},
                        "collectionFormat": "pipes",
                    },
                    {"name": "tenant", "in": "header", "type": "integer"},
                ],
            },
        },
        "/photos": {
            "post": {
                "parameters": [
                    {"name": "title", "in": "formData", "type": "string", "required": True},
                    {"name": "photo", "in": "formData", "type": "file"},
                ]
            }
        },
    },
    "definitions": {"Pet": {"type": "object", "properties": {"name": {"type": "string"}}}},
    "securityDefinitions": {"key": {"type": "apiKey", "in": "header", "name": "X-Key"}},
}


def operations(document: Document) -> dict[str, RawOperation]:
    return {raw.label: raw for raw in document.operations() if isinstance(raw, RawOperation)}


def test_a_document_of_2_0_reads_like_one_of_3_0() -> None:
    document = Document(SWAGGER)
    assert document.server_url == "https://api.example.com/v1"
    assert list(document.security_schemes) == ["key"]
    found = operations(document)
    add = found["POST /pets"]
    assert add.body is not None
    assert add.body["required"] is True
    assert add.body["content"] == {"application/json": {"schema": {"$ref": "#/definitions/Pet"}}}
    assert document.responses(add)["200"]["content"]["application/json"]["schema"] == {"$ref": "#/definitions/Pet"}
    ids, tenant = found["GET /pets"].parameters
    assert (ids["style"], ids["explode"], ids["schema"]["type"]) == ("pipeDelimited", False, "array")
    assert tenant["schema"]["type"] == "integer", "an operation's parameter takes the place of its path's"


def test_form_fields_of_2_0_become_a_form() -> None:
    body = operations(Document(SWAGGER))["POST /photos"].body
    assert body is not None
    schema = body["content"]["multipart/form-data"]["schema"]
    assert schema["properties"]["photo"] == {"type": "string", "format": "binary"}
    assert schema["required"] == ["title"]


def test_variables_of_a_server_have_their_defaults() -> None:
    servers = [
        {
            "url": "https://{region}.example.com/{base}",
            "variables": {"region": {"default": "eu"}, "base": {"default": "v2"}},
        }
    ]
    assert Document({"openapi": "3.1.0", "servers": servers}).server_url == "https://eu.example.com/v2"
    assert Document({"openapi": "3.1.0", "servers": [{"url": "/relative"}]}).server_url == ""
    assert Document({"openapi": "3.0.3"}).server_url == ""


@pytest.mark.parametrize(
    ("reference", "reason"),
    [
        ("#/components/schemas/Nobody", "points at nothing"),
        ("other.yaml#/Pet", "in another document"),
        ("#/components/schemas/Loop", "leads to itself"),
    ],
)
def test_a_reference_that_leads_nowhere_says_so(reference: str, reason: str) -> None:
    loop = {"$ref": "#/components/schemas/Loop"}
    document = Document({"openapi": "3.0.0", "components": {"schemas": {"Loop": loop}}})
    with pytest.raises(DocumentFault, match=reason):
        document.resolve({"$ref": reference})


def test_pointers_may_be_escaped() -> None:
    paths = {"/a/b": {"get": {"operationId": "x"}}}
    document = Document({"openapi": "3.0.0", "paths": paths})
    assert document.resolve({"$ref": "#/paths/~1a~1b/get"}) == {"operationId": "x"}


def test_a_broken_path_costs_itself() -> None:
    paths = {"/bad": {"$ref": "elsewhere.yaml"}, "/good": {"get": {}}, "x-note": "no path"}
    results = list(Document({"openapi": "3.0.0", "paths": paths}).operations())
    assert [raw.label for raw in results if isinstance(raw, RawOperation)] == ["GET /good"]
    assert [raw[0] for raw in results if not isinstance(raw, RawOperation)] == ["/bad"]


def test_yaml_keeps_texts_as_texts(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(
        "openapi: 3.0.0\ninfo: {title: T, version: 2024-01-01}\npaths:\n  /x:\n    get: {operationId: 'no', summary: no}\n"
    )
    document = read_document(file)
    assert document.version == "2024-01-01"
    assert operations(document)["GET /x"].content["summary"] == "no"


def test_aliases_and_merge_keys_stand_for_their_values(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(
        "openapi: 3.0.0\nx-a: &a {summary: one, tags: [t]}\nx-b: &b {summary: two, operationId: b}\n"
        "paths: {/x: {get: {<<: [*a, *b], description: &d long, x-d: *d}}, /y: {get: *b}}\n"
    )
    read = operations(read_document(file))
    assert read["GET /x"].content == {
        "summary": "one", "tags": ["t"], "operationId": "b", "description": "long", "x-d": "long"
    }  # fmt: skip
    assert read["GET /y"].content["summary"] == "two"


_LAUGHS = "x0: &x0 [a, a]\n" + "".join(f"x{n}: &x{n} [*x{n - 1}, *x{n - 1}, *x{n - 1}]\n" for n in range(1, 40))
_MERGES = "x0: &x0 {a: 1}\n" + "".join(f"x{n}: &x{n} {{<<: [*x{n - 1}, *x{n - 1}]}}\n" for n in range(1, 60))
_DEEP_BY_ALIAS = "x0: &x0 [a]\n" + "".join(f"x{n}: &x{n} [*x{n - 1}]\n" for n in range(1, 200))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),  # ended the process: PyYAML composes by recursion in C
        ("- " * 100_000, "nested too deeply"),
        (_DEEP_BY_ALIAS, "nested too deeply"),
        (_LAUGHS, "aliases stand for more than"),
        (_MERGES, "aliases stand for more than"),
        ("paths: &p [*p]", "contains itself"),
        ("paths: *nobody", "is not defined"),
        ("paths: !!python/object/apply:os.getcwd []", "is not known"),
        ("[a, b]: 1", "a key must be"),
        ("a: 1\n---\nb: 1", "a single document"),
    ],
    ids=[
        "brackets",
        "dashes",
        "deep by aliases",
        "laughs",
        "merges",
        "itself",
        "nobody",
        "tag",
        "key",
        "two documents",
    ],
)
def test_yaml_that_explodes_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_document(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "not valid JSON"),
        ("a.yaml", "a: [", "not valid YAML"),
        ("a.yaml", "- 1", "an OpenAPI document is an object"),
        ("a.json", '{"openapi": "4.0"}', "2.0, 3.0 or 3.1"),
        ("a.json", '{"hello": 1}', "not an OpenAPI document"),
    ],
)
def test_a_file_that_is_no_document_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_document(tmp_path / name)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: No such file"):
        read_document(tmp_path / "nowhere.yaml")


def test_a_mapping_of_other_classes_is_read_like_dicts() -> None:
    """Readers of YAML that keep comments have classes of their own; schemas in them were lost without a word."""
    schema = OrderedDict(type="object", properties=OrderedDict(name=OrderedDict(type="string")))
    operation = OrderedDict(
        requestBody=OrderedDict(content=OrderedDict({"application/json": OrderedDict(schema=schema)}))
    )
    content = MappingProxyType({"openapi": "3.1.0", "paths": OrderedDict({"/a": OrderedDict(post=operation)})})
    (tool,) = Server.from_openapi(content, base_url="https://x.example").list_tools()
    assert tool.input_schema == {"type": "object", "properties": {"name": {"type": "string"}}}
