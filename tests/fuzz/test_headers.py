"""Any value survives a header, any text decodes or is refused, and client and server always agree."""

from __future__ import annotations

import contextlib
import re
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from trimaran.errors import DeclarationError, HeaderMismatch
from trimaran.protocol.headers import ParamHeaders, compile_param_headers, decode_value, encode_value

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
TRICKY = st.one_of(TEXT, st.text("=?base64Zg \t", max_size=20), TEXT.map(lambda inner: f"=?base64?{inner}?="))
INTEGERS = st.integers(-(2**53) + 1, 2**53 - 1)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TRICKY)
def test_any_text_survives_and_is_a_legal_header_value(value: str) -> None:
    text = encode_value(value)
    assert decode_value(text) == value
    assert re.fullmatch(r"([!-~]([ -~]*[!-~])?)?", text)


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TRICKY)
def test_any_text_decodes_or_is_refused(text: str) -> None:
    with contextlib.suppress(HeaderMismatch):
        decode_value(text)


PARAMS = compile_param_headers(
    {
        "properties": {
            "s": {"type": "string", "x-mcp-header": "S"},
            "i": {"type": "integer", "x-mcp-header": "I"},
            "o": {"properties": {"b": {"type": "boolean", "x-mcp-header": "B"}}},
        }
    }
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(TRICKY | st.none(), INTEGERS | st.none(), st.booleans() | st.none())
def test_a_server_accepts_what_a_client_mirrors(s: str | None, i: int | None, b: bool | None) -> None:
    assert isinstance(PARAMS, ParamHeaders)
    arguments = {"s": s, "i": i, "o": {"b": b}}
    PARAMS.check({name.lower(): text for name, text in PARAMS.mirror(arguments)}, arguments)


JSON = st.recursive(
    st.sampled_from([None, True, 7, "", "A", "a", "b c", "string", "integer", "object"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["properties", "type", "x-mcp-header", "items", "$defs", "a"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(["properties", "type", "x-mcp-header", "anyOf"]), JSON))
def test_any_schema_compiles_or_is_refused(schema: dict[str, Any]) -> None:
    with contextlib.suppress(DeclarationError):
        compile_param_headers(schema)
