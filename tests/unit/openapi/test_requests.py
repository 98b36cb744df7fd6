"""Arguments arrive where the document wants them, in its style; none of them can change where a request goes."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from trimaran.errors import ToolError
from trimaran.openapi.definitions import SchemaWriter
from trimaran.openapi.document import Document, RawOperation
from trimaran.openapi.operations import Operation, compile_operation
from trimaran.openapi.requests import build_request

OBJECT = {"R": 100, "G": 200}
ARRAY = ["blue", "black"]


def compiled(path: str = "/x", method: str = "get", **content: Any) -> Operation:
    document = Document({"openapi": "3.1.0", "paths": {path: {method: content}}})
    raw = next(iter(document.operations()))
    assert isinstance(raw, RawOperation)
    return compile_operation(document, raw, SchemaWriter(document, most_bytes=10_000))


def parameter(place: str, name: str = "color", **more: Any) -> dict[str, Any]:
    return {"name": name, "in": place, "required": place == "path", "schema": {}, **more}


@pytest.mark.parametrize(
    ("style", "explode", "value", "expected"),
    [
        ("simple", False, "blue", "blue"),
        ("simple", False, ARRAY, "blue,black"),
        ("simple", False, OBJECT, "R,100,G,200"),
        ("simple", True, OBJECT, "R=100,G=200"),
        ("label", False, "blue", ".blue"),
        ("label", True, ARRAY, ".blue.black"),
        ("label", True, OBJECT, ".R=100.G=200"),
        ("matrix", False, "blue", ";color=blue"),
        ("matrix", False, ARRAY, ";color=blue,black"),
        ("matrix", True, ARRAY, ";color=blue;color=black"),
        ("matrix", False, OBJECT, ";color=R,100,G,200"),
        ("matrix", True, OBJECT, ";R=100;G=200"),
    ],
)
def test_styles_of_a_path(style: str, explode: bool, value: Any, expected: str) -> None:
    """OpenAPI 3.1, "Style Examples"."""
    operation = compiled("/a/{color}", parameters=[parameter("path", style=style, explode=explode)])
    assert build_request(operation, {"color": value}).path == f"/a/{expected}"


@pytest.mark.parametrize(
    ("style", "explode", "value", "expected"),
    [
        ("form", True, "blue", "color=blue"),
        ("form", True, ARRAY, "color=blue&color=black"),
        ("form", False, ARRAY, "color=blue,black"),
        ("form", True, OBJECT, "R=100&G=200"),
        ("form", False, OBJECT, "color=R,100,G,200"),
        ("spaceDelimited", False, ARRAY, "color=blue%20black"),
        ("pipeDelimited", False, ARRAY, "color=blue%7Cblack"),
        ("deepObject", True, OBJECT, "color[R]=100&color[G]=200"),
        ("deepObject", True, {"a": {"b": [1, {"c": "x y"}]}}, "color[a][b][0]=1&color[a][b][1][c]=x%20y"),
        ("form", True, True, "color=true"),
        ("form", True, "a&b=c d", "color=a%26b%3Dc%20d"),
    ],
)
def test_styles_of_a_query(style: str, explode: bool, value: Any, expected: str) -> None:
    operation = compiled(parameters=[parameter("query", style=style, explode=explode)])
    assert "&".join(build_request(operation, {"color": value}).query) == expected


def test_reserved_characters_pass_where_they_may() -> None:
    operation = compiled(parameters=[parameter("query", allowReserved=True)])
    assert build_request(operation, {"color": "a/b:c&d#e"}).query == ["color=a/b:c%26d%23e"]


def test_a_parameter_may_be_json() -> None:
    operation = compiled(parameters=[{"name": "f", "in": "query", "content": {"application/json": {"schema": {}}}}])
    assert build_request(operation, {"f": {"a": 1}}).query == ["f=%7B%22a%22%3A1%7D"]


def test_headers_and_cookies() -> None:
    operation = compiled(
        parameters=[parameter("header", "X-Ids"), parameter("cookie", "sid"), parameter("header", "Authorization")]
    )
    request = build_request(operation, {"X-Ids": [1, 2], "sid": "a b"})
    assert (request.headers["x-ids"], request.cookies) == ("1,2", {"sid": "a%20b"})
    assert set(operation.placements) == {"X-Ids", "sid"}, "credentials are no arguments"
    with pytest.raises(ToolError, match="one line"):
        build_request(operation, {"X-Ids": "a\r\nevil: 1"})


@pytest.mark.parametrize("value", ["..", ".", "", [], ["a", ".."], "../admin", "a/../../b", "a/..", "..\\admin", "./a"])
def test_a_path_cannot_be_climbed(value: Any) -> None:
    """CVE-2026-32871: a path argument that chooses another endpoint."""
    operation = compiled("/users/{id}/pets", parameters=[parameter("path", "id")])
    with pytest.raises(ToolError, match="must not be empty"):
        build_request(operation, {"id": value})


@pytest.mark.parametrize("value", ["..admin", "a/b", "a/b..c", "a?b", "a#b", "%2e%2e/x", "a\\b", "//evil.example", "é"])
def test_whatever_is_in_a_path_stays_one_segment(value: str) -> None:
    operation = compiled("/users/{id}", parameters=[parameter("path", "id")])
    path = build_request(operation, {"id": value}).path
    assert path.count("/") == 2
    assert not set("?#\\") & set(path)


def test_a_json_body_is_made_of_arguments() -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string"}, "id": {"type": "integer"}},
        "required": ["name"],
    }
    operation = compiled("/pets/{id}", "put", parameters=[parameter("path", "id")], requestBody={"required": True, "content": {"application/json": {"schema": schema}}})  # fmt: skip
    assert list(operation.input_schema["properties"]) == ["id", "name", "id_field"]
    assert operation.input_schema["required"] == ["id", "name"]
    request = build_request(operation, {"id": 1, "name": "Rex", "id_field": 2})
    assert (request.path, request.body) == ("/pets/1", b'{"name":"Rex","id":2}')
    assert request.headers["content-type"] == "application/json"


def test_any_other_body_is_one_argument() -> None:
    operation = compiled(method="post", requestBody={"content": {"application/json": {"schema": {"type": "array"}}}})
    assert build_request(operation, {"body": [1, 2]}).body == b"[1,2]"
    operation = compiled(method="post", requestBody={"content": {"text/plain": {"schema": {"type": "string"}}}})
    assert build_request(operation, {"body": "hi"}).body == b"hi"
    operation = compiled(method="post", requestBody={"content": {"application/octet-stream": {}}})
    assert build_request(operation, {"body": base64.b64encode(b"\0\1").decode()}).body == b"\0\1"
    with pytest.raises(ToolError, match="base64"):
        build_request(operation, {"body": "no base64!"})


def test_forms() -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "array", "items": {"type": "integer"}}},
    }
    operation = compiled(
        method="post", requestBody={"content": {"application/x-www-form-urlencoded": {"schema": schema}}}
    )
    assert build_request(operation, {"a": "x y", "b": [1, 2]}).body == b"a=x%20y&b=1&b=2"


def test_multipart_carries_files() -> None:
    schema = {
        "type": "object",
        "properties": {"title": {"type": "string"}, "photo": {"type": "string", "format": "binary"}},
    }
    operation = compiled(method="post", requestBody={"content": {"multipart/form-data": {"schema": schema}}})
    request = build_request(operation, {"title": "Rex", "photo": base64.b64encode(b"\xff\xd8").decode()})
    assert request.headers["content-type"].startswith("multipart/form-data; boundary=")
    assert request.body is not None
    assert (
        b'name="photo"; filename="photo"\r\nContent-Type: application/octet-stream\r\n\r\n\xff\xd8\r\n' in request.body
    )
    assert b'name="title"\r\n\r\nRex\r\n' in request.body


def test_names_that_clients_refuse_are_changed_and_mapped_back() -> None:
    operation = compiled(parameters=[parameter("query", "filter[name]"), parameter("query", "$top")])
    assert set(operation.placements) == {"filter_name", "top"}
    assert build_request(operation, {"filter_name": "x", "top": 5}).query == ["filter[name]=x", "%24top=5"]
    assert operation.description.endswith("The answer comes in pages: see top.")


def test_what_has_a_single_value_is_no_argument_and_is_always_sent() -> None:
    only = {"type": "string", "enum": ["Trent.Invoke"]}
    operation = compiled(
        method="post",
        parameters=[parameter("header", "X-Amz-Target", required=True, schema=only), parameter("query", "Version", schema=only)],
        requestBody={"required": True, "content": {"application/json": {"schema": {"type": "object", "properties": {"kind": {"const": 1}}, "required": ["kind"]}}}},
    )  # fmt: skip
    assert list(operation.placements) == ["Version"], "an optional one stays an argument"
    request = build_request(operation, {})
    assert (request.headers["x-amz-target"], request.body, request.query) == ("Trent.Invoke", b'{"kind":1}', [])


def test_signatures_and_system_parameters_are_no_arguments() -> None:
    names = ["prettyPrint", "access_token", "key", "fields"]
    operation = compiled(
        parameters=[parameter("header", "X-Amz-Signature"), *(parameter("query", name) for name in names)]
    )
    assert list(operation.placements) == ["fields"]
    assert list(compiled(parameters=[parameter("query", "key")]).placements) == ["key"], (
        "elsewhere it may mean anything"
    )


def form(media_type: str, properties: dict[str, Any], **body: Any) -> Operation:
    media = {"schema": {"type": "object", "properties": properties}, "encoding": body.pop("encoding", {})}
    return compiled(method="post", requestBody={"content": {media_type: media}, **body})


def test_the_document_says_how_a_field_of_a_form_is_written() -> None:
    thing = {"type": "object"}
    encoding = {"deep": {"style": "deepObject"}, "flat": {"style": "form", "explode": False}}
    operation = form(
        "application/x-www-form-urlencoded", {"deep": thing, "flat": thing, "plain": thing}, encoding=encoding
    )
    request = build_request(operation, {"deep": {"a": {"b": 1}}, "flat": {"c": 2}, "plain": {"d": 3}})
    assert request.body == b"deep[a][b]=1&flat=c,2&plain=%7B%22d%22%3A3%7D"


def test_the_document_says_what_a_part_is() -> None:
    files = {"type": "array", "items": {"type": "string", "format": "binary"}}
    encoding = {"photos": {"contentType": "image/png, image/jpeg"}, "note": {"contentType": "text/markdown"}}
    operation = form("multipart/form-data", {"photos": files, "note": {"type": "string"}}, encoding=encoding)
    body = build_request(operation, {"photos": ["aGk=", "aG8="], "note": "# x"}).body
    assert body is not None
    assert body.count(b'name="photos"; filename="photos"\r\nContent-Type: image/png\r\n\r\nh') == 2
    assert b'name="note"\r\nContent-Type: text/markdown\r\n\r\n# x\r\n' in body


def test_a_required_body_is_sent_even_if_it_is_empty() -> None:
    operation = form("application/json", {"a": {"type": "string"}}, required=True)
    assert build_request(operation, {}).body == b"{}"
    assert build_request(form("application/json", {"a": {"type": "string"}}), {}).body is None


def test_required_members_are_required_unless_the_body_is_said_to_be_optional() -> None:
    media = {"application/json": {"schema": {"type": "object", "properties": {"a": {}}, "required": ["a"]}}}

    def required(**body: Any) -> Any:
        return compiled(method="post", requestBody={"content": media, **body}).input_schema.get("required")

    assert required(required=True) == required() == ["a"]
    assert required(required=False) is None


@pytest.mark.parametrize(
    ("path", "url"),
    [
        ("/#Action=Describe", "https://a.example/v1/?color=red"),  # AWS
        ("/x/schema#update", "https://a.example/v1/x/schema?color=red"),  # Box
        ("/x?acl", "https://a.example/v1/x?acl&color=red"),  # S3
    ],
)
def test_what_only_tells_operations_apart_is_not_sent(path: str, url: str) -> None:
    operation = compiled(path, parameters=[parameter("query")])
    assert build_request(operation, {"color": "red"}).url("https://a.example/v1/") == url


def test_a_form_without_fields_is_no_argument() -> None:
    """Stripe's document has one at every GET."""
    assert form("application/x-www-form-urlencoded", {}).placements == {}


def test_a_parameter_is_never_null() -> None:
    operation = compiled(parameters=[parameter("query", schema={"type": "string", "nullable": True})])
    assert operation.input_schema["properties"] == {"color": {"type": "string"}}


def response(schema: Any) -> dict[str, Any]:
    return {"description": "", "content": {"application/json": {"schema": schema}}}


def test_a_result_is_described_by_all_successes() -> None:
    text, number = {"type": "string"}, {"type": "integer"}
    assert compiled(responses={"200": response(text), "default": response(number)}).output_schema == text
    assert compiled(responses={"204": {}, "default": response(number)}).output_schema is None
    assert compiled(responses={"default": response(number)}).output_schema == number
    both = compiled(responses={"200": response(text), "202": response(number)}).output_schema
    assert both == {"anyOf": [text, number]}


def test_a_parameter_that_may_be_null_is_left_out_instead() -> None:
    union = parameter("query", "size", schema={"anyOf": [{"type": "integer"}, {"type": "null"}]})
    listed = parameter("query", "name", schema={"type": ["string", "null"]})
    assert compiled(parameters=[union, listed]).input_schema["properties"] == {
        "size": {"type": "integer"},
        "name": {"type": "string"},
    }


def test_a_file_may_be_a_data_url_that_says_what_it_is() -> None:
    operation = form("multipart/form-data", {"file": {"type": "string", "format": "binary"}})
    body = build_request(operation, {"file": "data:image/png;base64,aGk="}).body
    assert body is not None
    assert b'name="file"; filename="file.png"\r\nContent-Type: image/png\r\n\r\nhi\r\n' in body
    with pytest.raises(ToolError, match="must be base64 or a data: URL"):
        build_request(operation, {"file": "data:image/png,hi!"})


@pytest.mark.parametrize(
    ("names", "pages"),
    [
        (["NextToken", "MaxResults"], ("NextToken", "MaxResults")),  # AWS
        (["per_page", "before", "after"], ("per_page", "before", "after")),  # GitHub
        (["limit", "continue"], ("limit", "continue")),  # Kubernetes
        (["start_cursor", "page_size"], ("start_cursor", "page_size")),  # Notion
        (["page[number]", "page[size]"], ("page_number", "page_size")),
        (["after", "before"], ()),
    ],
)
def test_the_arguments_that_turn_pages_are_known(names: list[str], pages: tuple[str, ...]) -> None:
    operation = compiled(parameters=[parameter("query", name) for name in names], summary="All things")
    assert operation.pages == pages
    assert operation.description == (
        f"All things. The answer comes in pages: see {', '.join(pages)}." if pages else "All things"
    )


def test_a_token_that_a_security_scheme_brings_is_no_argument() -> None:
    """Slack's document has it at every operation."""
    token = {**parameter("query", "token"), "description": "Authentication token. Requires scope: `chat:write`"}
    assert compiled(parameters=[token], security=[{"slack": ["chat:write"]}]).placements == {}
    assert list(compiled(parameters=[token]).placements) == ["token"], "nothing else brings it"
    other = {**token, "description": "Of the device"}
    assert list(compiled(parameters=[other], security=[{"slack": []}]).placements) == ["token"]


def test_arguments_for_below_and_above_can_be_told_apart() -> None:
    """Twilio's documents have such names."""
    operation = compiled(parameters=[parameter("query", "Day<"), parameter("query", "Day>"), parameter("query", "Day")])
    assert list(operation.placements) == ["Day_lt", "Day_gt", "Day"]
    assert build_request(operation, {"Day_lt": "3"}).query == ["Day%3C=3"]


def test_a_get_that_changes_something_is_not_called_read_only() -> None:
    """The older interfaces of AWS take every call by GET."""
    for name in ("GET_TerminateInstances", "deletePadUsingGET", "set-text"):
        assert "readOnlyHint" not in compiled(operationId=name).annotations
    for name in ("GET_DescribeInstances", "UpdateRuns_List", "getUpdates", "settings"):
        assert compiled(operationId=name).annotations["readOnlyHint"] is True


def test_a_description_that_is_only_a_name_says_the_path() -> None:
    assert compiled(operationId="x", summary="addLabel()").description == "addLabel(): GET /x"


def test_a_patch_is_sent_in_the_shape_of_what_it_changes() -> None:
    media = {
        kind: {"schema": {"type": "object"}} for kind in ("application/json-patch+json", "application/merge-patch+json")
    }
    assert compiled(method="patch", requestBody={"content": media}).media_type == "application/merge-patch+json"


@pytest.mark.parametrize("media_type", ["application/xml", "text/csv"])
@pytest.mark.parametrize(
    "schema", [{"type": "object", "properties": {"a": {}}}, {"type": "string", "format": "binary"}, {}]
)
def test_a_body_of_text_is_written_by_the_model(media_type: str, schema: dict[str, Any]) -> None:
    """The schema of an XML body tells its elements; JSON under the name of XML would be of no use to anybody."""
    operation = compiled(method="post", requestBody={"required": True, "content": {media_type: {"schema": schema}}})
    assert operation.input_schema["properties"]["body"] == {"type": "string", "description": f"({media_type})"}
    request = build_request(operation, {"body": "<a/>"})
    assert (request.body, request.headers["content-type"]) == (b"<a/>", media_type)


@pytest.mark.parametrize("value", [3, "x", {"a": [1]}, [None]])
def test_a_json_body_without_a_schema_is_anything(value: Any) -> None:
    operation = compiled(method="post", requestBody={"required": True, "content": {"application/json": {}}})
    assert operation.input_schema["properties"]["body"] == {}
    assert json.loads(build_request(operation, {"body": value}).body or b"") == value


@pytest.mark.parametrize(
    ("stated", "value", "sent"),
    [
        ("image/*", "data:image/png;base64,aGk=", "image/png"),
        ("image/*", "aGk=", "application/octet-stream"),
        ("image/gif", "data:image/png;base64,aGk=", "image/gif"),
    ],
)
def test_bytes_of_any_kind_say_what_they_are(stated: str, value: str, sent: str) -> None:
    operation = compiled(method="put", requestBody={"content": {stated: {}}})
    request = build_request(operation, {"body": value})
    assert (request.body, request.headers["content-type"]) == (b"hi", sent)


def test_a_place_in_the_path_that_nobody_declared_is_an_argument() -> None:
    operation = compiled("/a/{b}/{c}?d={e}#{f}", parameters=[parameter("path", "c")])
    assert operation.input_schema["required"] == ["c", "b", "e"]
    assert build_request(operation, {"b": "x/y", "c": "2", "e": "3"}).url("https://h") == "https://h/a/x%2Fy/2?d=3"


@pytest.mark.parametrize(
    ("operation_id", "name"), [("検索", "get_x"), ("検索 pets", "pets"), ("list pets!", "list_pets"), ("7", "call_7")]
)
def test_an_id_without_a_letter_that_names_may_have_gives_way_to_the_path(operation_id: str, name: str) -> None:
    assert compiled(operationId=operation_id).name == name
