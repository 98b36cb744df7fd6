"""Credentials out of headers: in any case, one at a time, and never more than so large (R163)."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest

from trimaran.auth import Refused, extract_api_key, extract_basic_auth, extract_bearer_token
from trimaran.auth.extract import MAX_CREDENTIAL, presents


@pytest.mark.parametrize("name", ["authorization", "Authorization", "AUTHORIZATION"])
@pytest.mark.parametrize("value", ["Bearer abc.d-_~+/1==", "bearer abc.d-_~+/1==", "BEARER   abc.d-_~+/1==  "])
def test_a_bearer_token_is_found_in_any_case(name: str, value: str) -> None:
    """R163, R172."""
    assert extract_bearer_token({name: value}) == "abc.d-_~+/1=="


@pytest.mark.parametrize("headers", [{}, {"authorization": ""}, {"authorization": "Basic YTpi"}, {"x": "Bearer a"}])
@pytest.mark.parametrize("extra", ["Bearer", "Bearer ", "bearer   ", "Bearertoken", "Token abc", None])
def test_another_scheme_or_a_blank_one_is_no_token(headers: dict[str, str], extra: str | None) -> None:
    assert extract_bearer_token(headers if extra is None else {"authorization": extra}) is None


@pytest.mark.parametrize(
    "value",
    [
        "Bearer a b",
        "Bearer a, Bearer b",
        "Bearer a,b",
        "Bearer é",
        "Bearer a\x00",
        "Bearer a\tb",
        "Bearer =",
        "Bearer a=b",
    ],
)
def test_a_malformed_token_or_two_at_once_is_a_bad_request(value: str) -> None:
    with pytest.raises(Refused) as caught:
        extract_bearer_token({"authorization": value})
    assert caught.value.status == 400


@pytest.mark.parametrize(
    ("extract", "name", "prefix"),
    [
        (extract_bearer_token, "authorization", "Bearer "),
        (extract_basic_auth, "authorization", "Basic "),
        (extract_api_key, "authorization", "ApiKey "),
        (extract_api_key, "x-api-key", ""),
    ],
)
@pytest.mark.parametrize("size", [MAX_CREDENTIAL + 1, 10_000_000])
def test_a_huge_credential_is_refused_unread(
    extract: Callable[[dict[str, str]], Any], name: str, prefix: str, size: int
) -> None:
    with pytest.raises(Refused, match="larger than") as caught:
        extract({name: prefix + "a" * size})
    assert caught.value.status == 400


def test_an_api_key_is_found_in_its_header_or_under_its_scheme() -> None:
    """R157, R163."""
    assert extract_api_key({"X-Api-Key": " k-1 "}) == "k-1"
    assert extract_api_key({"authorization": "ApiKey k-1"}) == "k-1"
    assert extract_api_key({"X-Token": "k-1"}, "x-token") == "k-1"
    assert extract_api_key({"X-API-Key": "k-1", "authorization": "apikey k-1"}) == "k-1"
    assert extract_api_key({"X-API-Key": "", "authorization": "Bearer x"}) is None


@pytest.mark.parametrize(
    "headers",
    [
        {"x-api-key": "a, b"},
        {"x-api-key": "a b"},
        {"x-api-key": "é"},
        {"x-api-key": "a\x00"},
        {"x-api-key": "a", "authorization": "ApiKey b"},
    ],
)
def test_two_keys_at_once_are_a_bad_request(headers: dict[str, str]) -> None:
    with pytest.raises(Refused) as caught:
        extract_api_key(headers)
    assert caught.value.status == 400


def basic(text: str | bytes) -> dict[str, str]:
    raw = text.encode() if isinstance(text, str) else text
    return {"Authorization": "Basic " + base64.b64encode(raw).decode()}


def test_user_and_password_part_at_the_first_colon() -> None:
    """R163; RFC 7617: a password may hold colons, and both are UTF-8."""
    assert extract_basic_auth(basic("ada:se:cret")) == ("ada", "se:cret")
    assert extract_basic_auth(basic("ada:")) == ("ada", "")
    assert extract_basic_auth(basic("émile:pässwörd")) == ("émile", "pässwörd")
    assert extract_basic_auth({"authorization": "Bearer x"}) is None


@pytest.mark.parametrize(
    "headers",
    [
        basic("nocolon"),
        basic(b"\xff\xfe:x"),
        basic("ada:x\x00"),
        basic("a\nda:x"),
        {"authorization": "Basic !!!!"},
        {"authorization": "Basic YWRhOng"},
        {"authorization": "Basic YWRh Onhg"},
        {"authorization": "Basic YWRhOng=, Basic YWRhOng="},
    ],
)
def test_what_is_not_user_and_password_is_a_bad_request(headers: dict[str, str]) -> None:
    with pytest.raises(Refused) as caught:
        extract_basic_auth(headers)
    assert caught.value.status == 400


def test_presenting_looks_at_the_scheme_only() -> None:
    assert presents({"authorization": "Bearer " + "x" * 10_000_000}, "bearer")
    assert presents({"authorization": "bearer"}, "bearer")
    assert not presents({"authorization": "bearerx y"}, "bearer")
    assert not presents({}, "bearer")
