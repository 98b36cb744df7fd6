"""What a person may see of a configuration: names, never secrets."""

from __future__ import annotations

from typing import Any

import pytest

from trimaran.host.config import masked
from trimaran.host.config.mask import mask_text, mask_url


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("", ""),
        ("hunter2", "***"),
        ("${KEY}", "${KEY}"),
        ("Bearer ${KEY}", "***${KEY}"),
        ("${KEY:-hunter2}", "${KEY:-***}"),
        ("${KEY:-}", "${KEY:-}"),
        ("${unclosed", "***"),
    ],
)
def test_a_secret_text_shows_only_the_variables_in_it(text: str, seen: str) -> None:
    assert mask_text(text) == seen


@pytest.mark.parametrize(
    ("url", "seen"),
    [
        ("https://h.example/mcp", "https://h.example/mcp"),
        ("https://me:hunter2@h/mcp", "https://***@h/mcp"),
        ("https://h/mcp?key=hunter2&v=${V}#x", "https://h/mcp?key=***&v=${V}#x"),
        ("https://h/mcp/s/a1b2c3d4e5f6a1b2c3d4e5f6/sse", "https://h/mcp/s/***/sse"),
        (
            "https://a-very-long-name-of-a-host-0123456789.example/mcp",
            "https://a-very-long-name-of-a-host-0123456789.example/mcp",
        ),
    ],
)
def test_a_url_shows_neither_credentials_nor_values_nor_keys_in_its_path(url: str, seen: str) -> None:
    assert mask_url(url) == seen


def test_every_place_for_secrets_is_masked() -> None:
    secret = "hunter2"
    table: dict[str, Any] = {
        "command": "npx",
        "args": ["-y", "x", "--token", secret, f"--api-key={secret}", "--header", f"Authorization: Bearer {secret}",
                 "-e", f"APP_SECRET={secret}", f"https://u:{secret}@h/?k={secret}", "ghp_abcdefghijklmnop1234", "--verbose", "on"],
        "env": {"A": secret, "N": 5},
        "headers": {"X": secret},
        "oauth_config": {"client_id": "c", "client_secret": secret, "token_url": "https://a/t", "scopes": ["r"]},
        "oauth": {"clientSecret": secret},
        "auth": {"CLIENT_SECRET": secret},
        "envs": {"A": secret},
        "http_headers": {"A": secret},
        "timeout": "5s",
        "disabled": False,
    }  # fmt: skip
    seen = masked(table)
    assert secret not in str(seen)
    assert "ghp_" not in str(seen)
    assert seen["args"][:4] == ["-y", "x", "--token", "***"]
    assert seen["args"][-2:] == ["--verbose", "on"]
    assert seen["oauth_config"] == {
        "client_id": "c",
        "client_secret": "***",
        "token_url": "https://a/t",
        "scopes": ["r"],
    }
    assert (seen["command"], seen["timeout"], seen["disabled"]) == ("npx", "5s", False)


def test_credentials_of_a_program_are_hidden_and_where_they_are_is_not() -> None:
    """R211, R212."""
    table = {
        "client_secret": "${SECRET}",
        "private_key": "-----BEGIN",
        "client_assertion": "a.b.c",
        "subject_token": "d.e.f",
        "idp_client_secret": "g",
    }
    assert masked({"oauth_config": table})["oauth_config"] == dict.fromkeys(table, "***") | {
        "client_secret": "${SECRET}"
    }
    shown = {
        "private_key_file": "/keys/app.pem",
        "subject_token_type": "saml2",
        "assertion_file": "/var/run/token",
        "idp_token_url": "https://idp.example/token",
        "client_id": "app",
    }
    assert masked({"oauth_config": shown})["oauth_config"] == shown
