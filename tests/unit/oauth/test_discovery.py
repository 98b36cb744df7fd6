"""Finding the authorization server of a server (protocol.md 4.1, points 1-4; 4.2)."""

from __future__ import annotations

import pytest
from tests.support.oauth_stage import ISSUER, SERVER, Stage, metadata, reply, resource

from trimaran.errors import AuthorizationFailed, UnsafeUrl
from trimaran.oauth.discovery import (
    authorization_server_urls,
    discover_authorization_server,
    discover_legacy_server,
    discover_protected_resource,
    protected_resource_urls,
)

ORIGIN = "https://mcp.example.com"
PATH_FORM = f"{ORIGIN}/.well-known/oauth-protected-resource/v1/mcp"
ROOT_FORM = f"{ORIGIN}/.well-known/oauth-protected-resource"


def test_metadata_is_looked_for_under_the_path_and_then_at_the_root() -> None:
    assert protected_resource_urls(SERVER) == [PATH_FORM, ROOT_FORM]
    assert protected_resource_urls(ORIGIN + "/") == [ROOT_FORM]


@pytest.mark.parametrize(
    ("issuer", "urls"),
    [
        (
            "https://a.example",
            [
                "https://a.example/.well-known/oauth-authorization-server",
                "https://a.example/.well-known/openid-configuration",
            ],
        ),
        (
            "https://a.example/tenant1",
            [
                "https://a.example/.well-known/oauth-authorization-server/tenant1",
                "https://a.example/.well-known/openid-configuration/tenant1",
                "https://a.example/tenant1/.well-known/openid-configuration",
            ],
        ),
    ],
)
def test_an_issuer_with_a_path_is_never_looked_for_at_the_root(issuer: str, urls: list[str]) -> None:
    """protocol.md 4.1, point 3."""
    assert authorization_server_urls(issuer) == urls


def test_the_url_in_the_challenge_is_asked_first_and_alone() -> None:
    stage = Stage({"https://mcp.example.com/custom.json": resource()})
    found = stage.play(discover_protected_resource(SERVER, "https://mcp.example.com/custom.json"))
    assert found is not None
    assert found.resource == SERVER
    assert stage.urls == ["https://mcp.example.com/custom.json"]


def test_without_one_the_path_form_comes_before_the_root_form() -> None:
    stage = Stage({PATH_FORM: reply(b"", 404), ROOT_FORM: resource(resource=ORIGIN)})
    found = stage.play(discover_protected_resource(SERVER))
    assert found is not None
    assert found.resource == ORIGIN
    assert stage.urls == [PATH_FORM, ROOT_FORM]


def test_a_page_for_everything_is_no_metadata() -> None:
    stage = Stage({PATH_FORM: reply(b"<html>welcome</html>"), ROOT_FORM: reply(b"[1]")})
    assert stage.play(discover_protected_resource(SERVER)) is None


def test_a_server_that_says_nothing_has_none() -> None:
    stage = Stage({PATH_FORM: reply(b"", 404)})
    assert stage.play(discover_protected_resource(SERVER)) is None


def test_a_server_that_is_ill_is_not_taken_for_an_old_one() -> None:
    stage = Stage({PATH_FORM: reply(b"", 503)})
    with pytest.raises(AuthorizationFailed, match="answered 503"):
        stage.play(discover_protected_resource(SERVER))


@pytest.mark.parametrize(
    "other", ["https://evil.example.com/v1/mcp", "https://mcp.example.com/v2", "http://mcp.example.com/v1/mcp"]
)
def test_metadata_about_another_resource_is_refused(other: str) -> None:
    """protocol.md 4.1, point 2."""
    stage = Stage({PATH_FORM: resource(resource=other)})
    with pytest.raises(AuthorizationFailed, match="is about"):
        stage.play(discover_protected_resource(SERVER))


@pytest.mark.parametrize("servers", [[], None])
def test_metadata_without_authorization_servers_is_refused(servers: list[str] | None) -> None:
    stage = Stage({PATH_FORM: resource(authorization_servers=servers)})
    with pytest.raises(AuthorizationFailed, match="names no authorization server"):
        stage.play(discover_protected_resource(SERVER))


def test_a_field_of_the_wrong_type_is_named() -> None:
    stage = Stage({PATH_FORM: resource(authorization_servers="https://as.example.com")})
    with pytest.raises(AuthorizationFailed, match="authorization_servers") as caught:
        stage.play(discover_protected_resource(SERVER))
    assert caught.value.step == "protected resource metadata"
    assert caught.value.url == PATH_FORM


def test_openid_configuration_is_asked_when_there_is_no_rfc_8414_document() -> None:
    stage = Stage(
        {
            f"{ISSUER}/.well-known/oauth-authorization-server": reply(b"", 404),
            f"{ISSUER}/.well-known/openid-configuration": metadata(),
        }
    )
    assert stage.play(discover_authorization_server(ISSUER)).token_endpoint == f"{ISSUER}/token"


@pytest.mark.parametrize("claimed", [ISSUER + "/", "https://AS.example.com", "https://attacker.example.com"])
def test_metadata_of_another_issuer_is_discarded_without_normalising(claimed: str) -> None:
    """protocol.md 4.1, point 4; P50."""
    stage = Stage({f"{ISSUER}/.well-known/oauth-authorization-server": metadata(issuer=claimed)})
    with pytest.raises(AuthorizationFailed, match="must be equal"):
        stage.play(discover_authorization_server(ISSUER))
    assert len(stage.requests) == 1


@pytest.mark.parametrize(
    "endpoint",
    ["javascript:alert(1)", "http://as.example.com/token", "file:///etc/passwd", "https://user:pw@as.example.com/"],
)
@pytest.mark.parametrize("name", ["authorization_endpoint", "token_endpoint", "registration_endpoint"])
def test_an_endpoint_that_nobody_should_go_to_is_refused(name: str, endpoint: str) -> None:
    """protocol.md 4.1, point 14."""
    stage = Stage({f"{ISSUER}/.well-known/oauth-authorization-server": metadata(**{name: endpoint})})
    with pytest.raises(UnsafeUrl):
        stage.play(discover_authorization_server(ISSUER))


def test_an_issuer_that_cannot_be_read_says_what_each_place_answered() -> None:
    stage = Stage({f"{ISSUER}/.well-known/oauth-authorization-server": reply(b"", 500)})
    with pytest.raises(AuthorizationFailed, match=r"answered 500; .*openid-configuration answered 404"):
        stage.play(discover_authorization_server(ISSUER))


def test_an_old_server_is_its_own_authorization_server() -> None:
    """protocol.md 4.2."""
    found = Stage().play(discover_legacy_server(SERVER))
    assert found.issuer == ORIGIN
    assert found.authorization_endpoint == f"{ORIGIN}/authorize"
    assert found.token_endpoint == f"{ORIGIN}/token"
    assert found.registration_endpoint == f"{ORIGIN}/register"


def test_an_old_servers_metadata_at_its_root_is_believed_if_it_stays_at_home() -> None:
    document = metadata(issuer=f"{ORIGIN}/oauth")
    stage = Stage({f"{ORIGIN}/.well-known/oauth-authorization-server": document})
    assert stage.play(discover_legacy_server(SERVER)).token_endpoint == f"{ORIGIN}/oauth/token"
    assert stage.requests[0].headers["MCP-Protocol-Version"] == "2025-03-26"


def test_an_old_servers_metadata_of_an_issuer_elsewhere_is_refused() -> None:
    stage = Stage({f"{ORIGIN}/.well-known/oauth-authorization-server": metadata(issuer="https://evil.example")})
    with pytest.raises(AuthorizationFailed, match="on another host"):
        stage.play(discover_legacy_server(SERVER))
