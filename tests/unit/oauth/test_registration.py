"""Registering a client (RFC 7591; protocol.md 4.1, point 6)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.support.oauth_stage import REDIRECT, Stage, reply

from trimaran.errors import AuthorizationFailed
from trimaran.oauth.metadata import ServerMetadata
from trimaran.oauth.registration import choose_auth_method, client_metadata, register_client

ENDPOINT = "https://as.example.com/register"


def described(redirect_uri: str = REDIRECT) -> dict[str, Any]:
    return client_metadata(name="Boat", redirect_uri=redirect_uri, auth_method="none", scopes=["a"])


@pytest.mark.parametrize(
    ("redirect_uri", "kind"),
    [
        (REDIRECT, "native"),
        ("http://localhost:1/cb", "native"),
        ("boat://callback", "native"),
        ("https://app.example.com/cb", "web"),
    ],
)
def test_the_application_type_follows_from_where_the_browser_comes_back(redirect_uri: str, kind: str) -> None:
    assert described(redirect_uri)["application_type"] == kind


def test_a_refresh_token_is_asked_for() -> None:
    assert described()["grant_types"] == ["authorization_code", "refresh_token"]


def test_a_registration_is_what_the_server_made_of_it() -> None:
    answer = {
        "client_id": "c",
        "client_secret": "s",
        "token_endpoint_auth_method": "client_secret_post",
        "client_secret_expires_at": 5,
    }
    stage = Stage({ENDPOINT: reply(answer, 201)})
    found = stage.play(register_client(ENDPOINT, described(), "initial"))
    assert (found.client_id, found.client_secret, found.auth_method) == ("c", "s", "client_secret_post")
    assert found.expires_at == 5.0
    assert found.redirect_uri == REDIRECT
    request = stage.requests[0]
    assert json.loads(request.body or b"")["client_name"] == "Boat"
    assert request.headers["Authorization"] == "Bearer initial"
    assert "'s'" not in repr(found)


def test_a_method_that_is_not_said_is_the_one_asked_for() -> None:
    stage = Stage({ENDPOINT: reply({"client_id": "c", "client_secret": "s", "client_secret_expires_at": 0}, 201)})
    found = stage.play(register_client(ENDPOINT, described()))
    assert found.auth_method == "none"
    assert found.expires_at is None


@pytest.mark.parametrize("other", [["https://evil.example/cb"], [], "x"])
def test_a_registration_for_other_redirect_uris_is_refused(other: Any) -> None:
    stage = Stage({ENDPOINT: reply({"client_id": "c", "redirect_uris": other}, 201)})
    with pytest.raises(AuthorizationFailed, match="other redirect URIs"):
        stage.play(register_client(ENDPOINT, described()))


@pytest.mark.parametrize(
    ("document", "status"),
    [
        ({"error": "invalid_client_metadata"}, 400),
        ({}, 201),
        ({"client_id": ""}, 201),
        ({"client_id": 7}, 201),
        (b"no", 403),
    ],
)
def test_a_failed_registration_is_surfaced_with_advice(document: Any, status: int) -> None:
    """protocol.md 4.1, point 6: surface registration failures."""
    stage = Stage({ENDPOINT: reply(document, status)})
    with pytest.raises(AuthorizationFailed, match="give its client_id") as caught:
        stage.play(register_client(ENDPOINT, described(), "initial-token"))
    assert caught.value.step == "client registration"
    assert "initial-token" not in str(caught.value)


@pytest.mark.parametrize(
    ("offered", "has_secret", "method"),
    [
        (None, False, "none"),
        (None, True, "client_secret_basic"),
        (("none",), False, "none"),
        (("client_secret_post",), False, "client_secret_post"),
        (("client_secret_post", "client_secret_basic"), True, "client_secret_basic"),
        (("client_secret_post",), True, "client_secret_post"),
        (("private_key_jwt",), True, "client_secret_basic"),
        (("client_secret_basic", "none"), False, "none"),
    ],
)
def test_the_method_is_one_the_issuer_takes(offered: tuple[str, ...] | None, has_secret: bool, method: str) -> None:
    metadata = ServerMetadata(issuer="https://a.example", token_endpoint_auth_methods_supported=offered)
    assert choose_auth_method(metadata, has_secret=has_secret) == method
