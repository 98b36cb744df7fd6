"""Refusals as HTTP: status, challenge, body, and nothing that could break a header."""

from __future__ import annotations

import json

import pytest

from trimaran.auth import Refused
from trimaran.auth.refusal import challenge, quote
from trimaran.errors import ConfigError, Error


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("missing", 401, "unauthorized"),
        ("unauthorized", 401, "unauthorized"),
        ("invalid_token", 401, "invalid_token"),
        ("expired_token", 401, "invalid_token"),
        ("expired", 401, "invalid_token"),
        ("invalid_audience", 401, "invalid_token"),
        ("invalid_credentials", 401, "invalid_credentials"),
        ("insufficient_scope", 403, "insufficient_scope"),
        ("invalid_request", 400, "invalid_request"),
        ("rate_limited", 429, "rate_limited"),
        ("server_error", 500, "server_error"),
        ("unavailable", 503, "temporarily_unavailable"),
    ],
)
def test_every_kind_has_its_status_and_code(kind: str, status: int, code: str) -> None:
    """R164, R173, R174: the body says error and error_description, and no more."""
    refusal = Refused(kind, reason="for the log")
    assert isinstance(refusal, Error)
    assert (refusal.status, refusal.code) == (status, code)
    body = json.loads(refusal.body)
    assert body == {"error": code, "error_description": refusal.message}
    assert "for the log" not in str(refusal)


def test_an_unknown_kind_is_named_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match=r"'forbidden'.*insufficient_scope"):
        Refused("forbidden")


@pytest.mark.parametrize(
    ("kind", "challenged"),
    [
        ("missing", True),
        ("invalid_token", True),
        ("insufficient_scope", True),
        ("invalid_request", True),
        ("rate_limited", False),
        ("server_error", False),
        ("unavailable", False),
    ],
)
def test_only_who_could_do_better_is_challenged(kind: str, challenged: bool) -> None:
    """R174: a 500 carries no challenge; and patience is no credential."""
    refusal = Refused(kind)
    refusal.challenges = ('Bearer realm="a"', 'Basic realm="b"')
    headers = dict(refusal.headers)
    assert headers.get("www-authenticate") == ('Bearer realm="a", Basic realm="b"' if challenged else None)
    assert headers["content-type"] == "application/json"
    assert headers["cache-control"] == "no-store"


@pytest.mark.parametrize(
    ("seconds", "header"),
    [(0.0, "1"), (0.01, "1"), (1.0, "1"), (1.01, "2"), (59.5, "60"), (1e300, "86400"), (float("inf"), "86400")],
)
def test_the_wait_is_told_in_whole_seconds_rounded_up(seconds: float, header: str) -> None:
    assert dict(Refused("rate_limited", retry_after=seconds).headers)["retry-after"] == header
    assert "retry-after" not in dict(Refused("rate_limited").headers)


def test_a_missing_token_is_challenged_without_an_error() -> None:
    """RFC 6750, 3.1; R174."""
    assert Refused("missing").bearer_challenge("mcp") == 'Bearer realm="mcp"'
    assert Refused("missing").bearer_challenge(None) == "Bearer"
    assert Refused("missing").bearer_challenge("mcp", "https://x/meta", scopes=["a", "b"]) == (
        'Bearer realm="mcp", scope="a b", resource_metadata="https://x/meta"'
    )


def test_a_bad_token_is_challenged_with_what_was_wrong() -> None:
    assert Refused("insufficient_scope", scopes=["read"]).bearer_challenge("mcp", scopes=["other"]) == (
        'Bearer realm="mcp", error="insufficient_scope", error_description="the token does not cover this", scope="read"'
    )
    assert 'error="invalid_token"' in Refused("expired_token").bearer_challenge("mcp")


@pytest.mark.parametrize(
    ("text", "quoted"),
    [
        ('say "x"', r'"say \"x\""'),
        ("a\\b", r'"a\\b"'),
        ("a\r\nSet-Cookie: x", '"aSet-Cookie: x"'),
        ("a\x00\x1f\x7f\x85b", '"ab"'),
        ("café \U0001f600", '"caf? ?"'),
        ("\ud800", '"?"'),
    ],
)
def test_what_is_quoted_cannot_leave_its_quotes(text: str, quoted: str) -> None:
    """R174."""
    assert quote(text) == quoted


def test_what_is_sent_has_no_control_characters_and_an_end() -> None:
    body = json.loads(Refused("invalid_token", "a\r\n\x00b" + "x" * 10_000).body)
    assert body["error_description"].startswith("abxxx")
    assert len(body["error_description"]) == 500


def test_parameters_without_a_value_are_left_out() -> None:
    assert challenge("ApiKey", {"realm": None, "header": "X-API-Key"}) == 'ApiKey header="X-API-Key"'
    assert challenge("ApiKey", {}) == "ApiKey"
