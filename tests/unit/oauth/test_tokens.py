"""Token requests, replies and refusals (R213, R214; RFC 6749, 7523, 8693, 9449)."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from tests.support.oauth_stage import Stage, reply, token

from trimaran.errors import AuthorizationFailed
from trimaran.oauth.dpop import ProofKey
from trimaran.oauth.effects import HttpReply, HttpRequest
from trimaran.oauth.registration import ClientInfo
from trimaran.oauth.tokens import (
    Prover,
    client_credentials,
    exchange_code,
    jwt_bearer,
    refresh_token,
    revoke_token,
    token_exchange,
)

ENDPOINT = "https://as.example.com/token"
RESOURCE = "https://mcp.example.com/mcp"
SECRET = "s3cr3t:with/odd chars"


def client(method: str | None = None, secret: str | None = SECRET) -> ClientInfo:
    return ClientInfo(client_id="me&you", client_secret=secret, auth_method=method)


def test_a_code_is_exchanged_with_its_verifier_and_resource() -> None:
    """protocol.md 4.1, point 11."""
    stage = Stage()
    stage.play(exchange_code(ENDPOINT, code="c", verifier="v", redirect_uri="http://127.0.0.1/cb", resource=RESOURCE))
    assert stage.form(ENDPOINT) == {
        "grant_type": "authorization_code",
        "code": "c",
        "code_verifier": "v",
        "redirect_uri": "http://127.0.0.1/cb",
        "resource": RESOURCE,
    }
    request = stage.requests[0]
    assert request.method == "POST"
    assert request.headers["Content-Type"] == "application/x-www-form-urlencoded"


def test_a_refresh_names_the_resource_too() -> None:
    """protocol.md 4.1, point 11: also on refresh."""
    stage = Stage()
    stage.play(refresh_token(ENDPOINT, "r", resource=RESOURCE, client=client("none", None)))
    assert stage.form(ENDPOINT) == {
        "grant_type": "refresh_token",
        "refresh_token": "r",
        "resource": RESOURCE,
        "client_id": "me&you",
    }
    assert "Authorization" not in stage.requests[0].headers


def test_basic_form_encodes_both_halves() -> None:
    """RFC 6749, 2.3.1; R214."""
    stage = Stage()
    stage.play(client_credentials(ENDPOINT, resource=RESOURCE, client=client("client_secret_basic")))
    scheme, _, value = stage.requests[0].headers["Authorization"].partition(" ")
    assert scheme == "Basic"
    assert base64.b64decode(value) == b"me%26you:s3cr3t%3Awith%2Fodd+chars"
    assert "client_secret" not in stage.form(ENDPOINT)


def test_post_puts_both_in_the_form() -> None:
    stage = Stage()
    stage.play(client_credentials(ENDPOINT, resource=RESOURCE, client=client("client_secret_post")))
    form = stage.form(ENDPOINT)
    assert (form["client_id"], form["client_secret"]) == ("me&you", SECRET)
    assert "Authorization" not in stage.requests[0].headers


def test_none_shows_no_secret_even_if_there_is_one() -> None:
    stage = Stage()
    stage.play(client_credentials(ENDPOINT, resource=RESOURCE, client=client("none")))
    assert stage.form(ENDPOINT)["client_id"] == "me&you"
    assert SECRET not in str(stage.requests[0])


def test_an_assertion_replaces_every_other_way() -> None:
    stage = Stage()
    stage.play(client_credentials(ENDPOINT, resource=RESOURCE, client=client(), client_assertion="a.b.c"))
    form = stage.form(ENDPOINT)
    assert form["client_assertion"] == "a.b.c"
    assert form["client_assertion_type"] == "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
    assert "Authorization" not in stage.requests[0].headers


def test_an_exchange_knows_the_short_names_of_token_types() -> None:
    stage = Stage()
    stage.play(
        token_exchange(
            ENDPOINT,
            subject_token="t",
            subject_token_type="id_token",
            requested_token_type="urn:ietf:params:oauth:token-type:id-jag",
            audience="https://other.example",
            resource=RESOURCE,
            scopes=["a", "b"],
        )
    )
    assert stage.form(ENDPOINT) == {
        "grant_type": "urn:ietf:params:oauth:grant-type:token-exchange",
        "requested_token_type": "urn:ietf:params:oauth:token-type:id-jag",
        "audience": "https://other.example",
        "resource": RESOURCE,
        "scope": "a b",
        "subject_token": "t",
        "subject_token_type": "urn:ietf:params:oauth:token-type:id_token",
    }


def test_a_jwt_bearer_request_has_no_client_unless_told() -> None:
    stage = Stage()
    stage.play(jwt_bearer(ENDPOINT, assertion="a.b.c", resource=RESOURCE))
    assert stage.form(ENDPOINT) == {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": "a.b.c",
        "resource": RESOURCE,
    }


def answered(document: Any, status: int = 200) -> Any:
    stage = Stage({ENDPOINT: reply(document, status)})
    return stage.play(
        exchange_code(
            ENDPOINT,
            code="code-secret",
            verifier="verifier-secret",
            redirect_uri="x",
            resource=RESOURCE,
            client=client("client_secret_post"),
        )
    )


def test_a_good_reply_is_read() -> None:
    found = answered(token(scope="a b", refresh_token="r", token_type="bearer", id_token="i"))
    assert (found.access_token, found.token_type, found.expires_in) == ("access-1", "bearer", 3600.0)
    assert (found.scopes, found.refresh_token, found.id_token) == (("a", "b"), "r", "i")
    assert "access-1" not in repr(found)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (60, 60.0),
        (60.5, 60.5),
        ("3600", 3600.0),
        (-1, None),
        (0, None),
        ("soon", None),
        (True, None),
        ([], None),
        (None, None),
    ],
)
def test_a_lifetime_that_is_none_is_unknown(given: Any, seconds: float | None) -> None:
    assert answered(token(expires_in=given)).expires_in == seconds


def test_an_endless_lifetime_is_cut() -> None:
    assert answered(token(expires_in=10**30)).expires_in == 10 * 365 * 24 * 3600


@pytest.mark.parametrize("bad", ["", "a b", "a\r\nX: y", "tök", 7, None, ["x"]])
def test_a_token_that_no_header_can_carry_is_refused(bad: Any) -> None:
    with pytest.raises(AuthorizationFailed):
        answered(token(access_token=bad))


@pytest.mark.parametrize("status", [200, 400, 401, 500])
def test_an_error_is_recognised_under_any_status(status: int) -> None:
    """R255: token errors with HTTP 200 are recognised."""
    with pytest.raises(AuthorizationFailed) as caught:
        answered({"error": "invalid_grant", "error_description": "it is used up"}, status)
    error = caught.value
    assert (error.step, error.url, error.code) == ("token request", ENDPOINT, "invalid_grant")
    assert "it is used up" in str(error)
    assert "log in again" in str(error)


def test_what_a_server_echoes_is_cut_cleaned_and_stripped_of_secrets() -> None:
    """R255: echoed bodies cut to 512 characters; nothing secret in a message."""
    echo = f"code-secret verifier-secret {SECRET} \x1b[31m\r\n" + "x" * 10_000
    with pytest.raises(AuthorizationFailed) as caught:
        answered({"error": "invalid_request", "error_description": echo}, 400)
    text = str(caught.value)
    assert "secret" not in text
    assert SECRET not in text
    assert text.isprintable()
    assert len(text) < 800


@pytest.mark.parametrize("body", [b"<html>", b"", b"[]", b"null", b'{"access_token"'])
def test_what_is_not_json_is_refused(body: bytes) -> None:
    with pytest.raises(AuthorizationFailed, match=r"answered 200 without a token"):
        answered(body)


# --- DPoP


def nonced(stage: Stage) -> Prover:
    return Prover(ProofKey.generate(), stage.nonces, lambda: stage.now, stage.entropy)


def test_a_demanded_nonce_is_shown_on_the_second_try() -> None:
    """RFC 9449, 8."""
    refusal = reply({"error": "use_dpop_nonce"}, 400, {"dpop-nonce": "n1"})
    stage = Stage({ENDPOINT: [refusal, reply(token(token_type="DPoP"))]})
    found = stage.play(client_credentials(ENDPOINT, resource=RESOURCE, prover=nonced(stage)))
    assert found.token_type == "dpop"
    first, second = (claims(request) for request in stage.requests)
    assert "nonce" not in first
    assert second["nonce"] == "n1"
    assert first["jti"] != second["jti"]
    assert second["htm"] == "POST"
    assert second["htu"] == ENDPOINT


def test_a_server_that_always_wants_another_nonce_is_not_asked_for_ever() -> None:
    count = 0

    def again(request: HttpRequest) -> HttpReply:
        nonlocal count
        count += 1
        return reply({"error": "use_dpop_nonce"}, 400, {"dpop-nonce": f"n{count}"})

    stage = Stage({ENDPOINT: again})
    with pytest.raises(AuthorizationFailed, match="use_dpop_nonce"):
        stage.play(client_credentials(ENDPOINT, resource=RESOURCE, prover=nonced(stage)))
    assert count == 3


def test_a_demand_without_a_nonce_is_final() -> None:
    stage = Stage({ENDPOINT: reply({"error": "use_dpop_nonce"}, 400)})
    with pytest.raises(AuthorizationFailed):
        stage.play(client_credentials(ENDPOINT, resource=RESOURCE, prover=nonced(stage)))
    assert len(stage.requests) == 1


def claims(request: HttpRequest) -> dict[str, Any]:
    import json

    part = request.headers["DPoP"].split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def test_a_token_is_revoked_by_its_client() -> None:
    """RFC 7009."""
    endpoint = "https://as.example.com/revoke"
    stage = Stage({endpoint: reply(b"")})
    assert stage.play(revoke_token(endpoint, "r", client=client("client_secret_post"))) is True
    assert stage.form(endpoint)["token"] == "r"
    assert stage.form(endpoint)["client_secret"] == SECRET
