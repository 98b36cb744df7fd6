"""What travels in headers besides the body: value encoding (spec, 2026-07-28), and `x-mcp-header` on both sides."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.errors import DeclarationError, HeaderMismatch, LocalProtocolError
from trimaran.protocol.headers import (
    ParamHeaders,
    compile_param_headers,
    decode_value,
    encode_value,
    routing_name_matches,
)

ENCODED = [
    ("us-west1", "us-west1"),
    ("", ""),
    ("two  words", "two  words"),
    ("a", "a"),
    ("~!@#$%^&*()", "~!@#$%^&*()"),
    (42, "42"),
    (-7, "-7"),
    (0, "0"),
    (True, "true"),
    (False, "false"),
    (" padded", "=?base64?IHBhZGRlZA==?="),
    ("padded ", "=?base64?cGFkZGVkIA==?="),
    (" ", "=?base64?IA==?="),
    ("a\tb", "=?base64?YQli?="),
    ("line\nbreak", "=?base64?bGluZQpicmVhaw==?="),
    ("\x7f", "=?base64?fw==?="),
    ("Grüße", "=?base64?R3LDvMOfZQ==?="),
    ("日本", "=?base64?5pel5pys?="),
    ("=?base64?Zm9v?=", "=?base64?PT9iYXNlNjQ/Wm05dj89?="),
    ("=?base64?=", "=?base64?PT9iYXNlNjQ/PQ==?="),
    ("=?base64?open", "=?base64?open"),
    ("shut?=", "shut?="),
]


@pytest.mark.parametrize(("value", "text"), ENCODED)
def test_a_value_is_written_plain_or_wrapped_and_reads_back(value: str | int | bool, text: str) -> None:
    assert encode_value(value) == text
    expected = value if isinstance(value, str) else text
    assert decode_value(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "=?BASE64?Zm9v?=",
        "=?Base64?Zm9v?=",
        "=?base64?Zm9v",
        "Zm9v?=",
        "=?base64?=",
        "=?utf-8?q?x?=",
        "x=?base64?Zm9v?=",
    ],
)
def test_a_text_without_both_exact_markers_is_literal(text: str) -> None:
    assert decode_value(text) == text


@pytest.mark.parametrize(
    "inner",
    [
        "Zm9",
        "Zg=",
        "Zg===",
        "Zm9v=",
        "=Zm9v",
        "Zm 9v",
        "Zm9v\n",
        "Zm-v",
        "Zm_v",
        "Zm9v!",
        "Z",
        "Zh==",
        "é",
        "/w==",
        "7aCA",
    ],
    ids=ascii,
)
def test_bad_base64_between_the_markers_is_refused(inner: str) -> None:
    with pytest.raises(HeaderMismatch, match="padded standard base64") as caught:
        decode_value(f"=?base64?{inner}?=")
    assert caught.value.code == -32020
    assert caught.value.status == 400


def test_an_empty_wrapped_value_is_the_empty_string() -> None:
    assert decode_value("=?base64??=") == ""


def test_a_lone_surrogate_cannot_be_written() -> None:
    with pytest.raises(LocalProtocolError, match="lone surrogate"):
        encode_value("\ud800")


@pytest.mark.parametrize(
    ("header", "expected", "matches"),
    [
        ("add", "add", True),
        ("  add\t", "add", True),
        ("Add", "add", False),
        (None, "add", False),
        ("", "", True),
        ("", "add", False),
        ("=?base64?R3LDvMOfZQ==?=", "Grüße", True),
        ("=?base64?!!?=", "=?base64?!!?=", False),
        ("=?base64?PT9iYXNlNjQ/Wm05dj89?=", "=?base64?Zm9v?=", True),
    ],
)
def test_a_routing_name_is_compared_decoded_and_trimmed(header: str | None, expected: str, matches: bool) -> None:
    assert routing_name_matches(header, expected) is matches


def schema(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def compiled(**properties: Any) -> ParamHeaders:
    params = compile_param_headers(schema(**properties))
    assert params is not None
    return params


REGION = {"type": "string", "x-mcp-header": "Region"}
COUNT = {"type": "integer", "x-mcp-header": "Count"}
DRY = {"type": "boolean", "x-mcp-header": "Dry-Run"}


@pytest.mark.parametrize(
    "plain",
    [
        {},
        {"type": "object"},
        schema(a={"type": "string"}),
        schema(**{"x-mcp-header": {"type": "string"}}),
        schema(a={"type": "string", "default": {"x-mcp-header": "A"}, "examples": [{"x-mcp-header": "A"}]}),
        schema(a={"const": {"x-mcp-header": "A"}}, b={"enum": [{"x-mcp-header": "A"}]}),
        schema(a=True),
        {"properties": ["x-mcp-header"]},
    ],
)
def test_a_schema_without_annotations_compiles_to_nothing(plain: dict[str, Any]) -> None:
    assert compile_param_headers(plain) is None


def test_annotations_are_found_through_nested_properties_in_order() -> None:
    params = compiled(region=REGION, outer=schema(inner=schema(count=COUNT)), dry=DRY)
    assert [(p.name, p.lookup, p.path) for p in params.params] == [
        ("Mcp-Param-Region", "mcp-param-region", ("region",)),
        ("Mcp-Param-Count", "mcp-param-count", ("outer", "inner", "count")),
        ("Mcp-Param-Dry-Run", "mcp-param-dry-run", ("dry",)),
    ]


@pytest.mark.parametrize("label", ["Method", "x", "A.b_c~1", "!#$%&'*+-.^_`|~"])
def test_any_token_may_name_a_header(label: str) -> None:
    assert compiled(a={"type": "string", "x-mcp-header": label}).params[0].name == f"Mcp-Param-{label}"


@pytest.mark.parametrize(
    "label", ["", " ", "a b", "a:b", "naïve", "a\n", "(x)", "a/b", 7, None, True, ["A"], {}], ids=repr
)
def test_a_label_that_is_no_token_is_refused(label: object) -> None:
    with pytest.raises(DeclarationError, match=r"#/properties/a: .* is not a header name"):
        compile_param_headers(schema(a={"type": "string", "x-mcp-header": label}))


@pytest.mark.parametrize(
    "kind",
    ["number", "object", "array", "null", "String", None, [], ["string", "integer"], ["null"], {}, 3, [{}]],
    ids=repr,
)
def test_only_strings_integers_and_booleans_can_be_mirrored(kind: object) -> None:
    with pytest.raises(DeclarationError, match="`type` must be string, integer or boolean"):
        compile_param_headers(schema(a={"type": kind, "x-mcp-header": "A"}))


def test_a_property_without_a_type_cannot_be_mirrored() -> None:
    with pytest.raises(DeclarationError, match="`type` must be"):
        compile_param_headers(schema(a={"$ref": "#/$defs/A", "x-mcp-header": "A"}))


def test_a_nullable_type_can_be_mirrored() -> None:
    assert compiled(a={"type": ["string", "null"], "x-mcp-header": "A"}).mirror({"a": None}) == []


@pytest.mark.parametrize(
    "where",
    [
        {"properties": {"a": {"type": "array", "items": REGION}}},
        {"properties": {"a": {"prefixItems": [REGION]}}},
        {"anyOf": [schema(a=REGION)]},
        {"oneOf": [schema(a=REGION)]},
        {"allOf": [schema(a=REGION)]},
        {"properties": {"a": {"anyOf": [REGION, {"type": "null"}]}}},
        {"not": schema(a=REGION)},
        {"if": schema(a=REGION)},
        {"then": schema(a=REGION)},
        {"else": schema(a=REGION)},
        {"$defs": {"A": REGION}},
        {"definitions": {"A": REGION}},
        {"$defs": {"A": schema(a=REGION)}},
        {"patternProperties": {"^a": REGION}},
        {"additionalProperties": REGION},
        {"dependentSchemas": {"a": schema(b=REGION)}},
        {"propertyNames": REGION},
        {"type": "object", "x-mcp-header": "Root"},
        {"type": "string", "x-mcp-header": "Root"},
        {"properties": {"a": {"type": "array", "items": schema(b=REGION)}}},
        {"x-vendor": {"deep": [REGION]}},
    ],
    ids=str,
)
def test_an_annotation_reached_by_anything_but_properties_is_refused(where: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match="through `properties` alone"):
        compile_param_headers(where)


def test_two_properties_cannot_share_a_header_whatever_the_case() -> None:
    with pytest.raises(DeclarationError, match="already the header of #/properties/a"):
        compile_param_headers(schema(a=REGION, b={"type": "string", "x-mcp-header": "REGION"}))


def test_every_fault_is_listed_at_once() -> None:
    bad = schema(
        a={"type": "number", "x-mcp-header": "A"}, b={"type": "string", "x-mcp-header": ""}, c={"items": REGION}
    )
    with pytest.raises(DeclarationError) as caught:
        compile_param_headers(bad)
    for where in ("#/properties/a", "#/properties/b", "#/properties/c/items"):
        assert where in str(caught.value)


def test_a_schema_of_any_depth_is_walked() -> None:
    deep: dict[str, Any] = REGION
    for _ in range(5_000):
        deep = {"not": deep}
    with pytest.raises(DeclarationError):
        compile_param_headers(deep)


AGREEING = [
    ({"region": "eu"}, {"mcp-param-region": "eu"}),
    ({"region": "eu"}, {"mcp-param-region": " eu\t"}),
    ({"region": ""}, {"mcp-param-region": ""}),
    ({"region": "Grüße"}, {"mcp-param-region": "=?base64?R3LDvMOfZQ==?="}),
    ({"region": "eu"}, {"mcp-param-region": "=?base64?ZXU=?="}),
    ({"count": 42}, {"mcp-param-count": "42"}),
    ({"count": 42}, {"mcp-param-count": "42.0"}),
    ({"count": 42.0}, {"mcp-param-count": "42"}),
    ({"count": 1000}, {"mcp-param-count": "1e3"}),
    ({"count": -(2**53) + 1}, {"mcp-param-count": str(-(2**53) + 1)}),
    ({"count": 0}, {"mcp-param-count": "-0"}),
    ({"dry": True}, {"mcp-param-dry-run": "true"}),
    ({"dry": False}, {"mcp-param-dry-run": "false"}),
    ({"region": None, "other": 1}, {}),
    ({}, {"mcp-param-unknown": "x", "host": "y"}),
]


@pytest.mark.parametrize(("arguments", "headers"), AGREEING)
def test_headers_that_say_what_the_body_says_pass(arguments: dict[str, Any], headers: dict[str, str]) -> None:
    compiled(region=REGION, count=COUNT, dry=DRY).check(headers, arguments)


DISAGREEING = [
    ({"region": "eu"}, {}, "Mcp-Param-Region is missing but argument 'region'"),
    ({}, {"mcp-param-region": "eu"}, "Mcp-Param-Region is sent but argument 'region'"),
    ({"region": None}, {"mcp-param-region": "null"}, "is sent but"),
    ({"region": None}, {"mcp-param-region": ""}, "is sent but"),
    ({"region": "eu"}, {"mcp-param-region": "EU"}, "Mcp-Param-Region must have the same value as argument 'region'"),
    ({"region": "eu"}, {"mcp-param-region": "=?base64?ZXU?="}, "header Mcp-Param-Region: .*padded standard base64"),
    ({"region": "=?base64?ZXU=?="}, {"mcp-param-region": "=?base64?ZXU=?="}, "must have the same value"),
    ({"count": 42}, {"mcp-param-count": "43"}, "must have the same value"),
    ({"count": 42}, {"mcp-param-count": "42.5"}, "must have the same value"),
    ({"count": 42}, {"mcp-param-count": "4_2"}, "must have the same value"),
    ({"count": 42}, {"mcp-param-count": "٤٢"}, "must have the same value"),
    ({"count": 42}, {"mcp-param-count": "0x2a"}, "must have the same value"),
    ({"count": 1}, {"mcp-param-count": "true"}, "must have the same value"),
    ({"count": 2**53}, {"mcp-param-count": str(2**53)}, "must have the same value"),
    ({"count": 42}, {"mcp-param-count": "9" * 100_000}, "must have the same value"),
    ({"count": 42}, {"mcp-param-count": "1e999999999"}, "must have the same value"),
    ({"count": float("nan")}, {"mcp-param-count": "nan"}, "must have the same value"),
    ({"dry": True}, {"mcp-param-dry-run": "True"}, "must have the same value"),
    ({"dry": True}, {"mcp-param-dry-run": "1"}, "must have the same value"),
    ({"region": ["eu"]}, {"mcp-param-region": "eu"}, "must have the same value"),
    ({"region": {"a": 1}}, {"mcp-param-region": "eu"}, "must have the same value"),
]


@pytest.mark.parametrize(("arguments", "headers", "message"), DISAGREEING, ids=lambda value: ascii(value)[:40])
def test_headers_that_disagree_with_the_body_are_refused(
    arguments: dict[str, Any], headers: dict[str, str], message: str
) -> None:
    with pytest.raises(HeaderMismatch, match=message) as caught:
        compiled(region=REGION, count=COUNT, dry=DRY).check(headers, arguments)
    assert (caught.value.code, caught.value.status) == (-32020, 400)


def test_a_nested_argument_is_named_by_its_path() -> None:
    params = compiled(outer=schema(region=REGION))
    params.check({"mcp-param-region": "eu"}, {"outer": {"region": "eu"}})
    params.check({}, {"outer": "not an object"})
    with pytest.raises(HeaderMismatch, match="'outer.region'"):
        params.check({}, {"outer": {"region": "eu"}})


def test_a_client_mirrors_what_a_server_accepts() -> None:
    params = compiled(region=REGION, count=COUNT, dry=DRY)
    arguments = {"region": " Grüße", "count": 42.0, "dry": False, "unrelated": [1]}
    sent = params.mirror(arguments)
    assert sent == [
        ("Mcp-Param-Region", "=?base64?IEdyw7zDn2U=?="),
        ("Mcp-Param-Count", "42"),
        ("Mcp-Param-Dry-Run", "false"),
    ]
    params.check({name.lower(): text for name, text in sent}, arguments)


def test_a_client_sends_no_header_for_null_or_absent_values() -> None:
    assert compiled(region=REGION, count=COUNT).mirror({"region": None}) == []


@pytest.mark.parametrize("value", [1.5, 2**53, -(2**53), ["a"], {"a": 1}, float("inf"), float("nan")], ids=repr)
def test_a_client_refuses_what_no_header_can_mirror(value: object) -> None:
    with pytest.raises(LocalProtocolError, match="argument 'count' travels in header Mcp-Param-Count"):
        compiled(count=COUNT).mirror({"count": value})
