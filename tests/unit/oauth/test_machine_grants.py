"""Grants that need no person (protocol.md 4.5; R211, R212)."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from tests.support.oauth_stage import ISSUER, SERVER, Stage, metadata, reply, resource, token

from trimaran.errors import AuthorizationFailed, ConfigError
from trimaran.oauth import ClientCredentials, Credentials, EnterpriseManaged, Grant, SigningKey, WorkloadIdentity
from trimaran.oauth.grant import CredentialNeed

TOKEN = f"{ISSUER}/token"
IDP = "https://idp.example.com/token"
AS_METADATA = f"{ISSUER}/.well-known/oauth-authorization-server"


def need(why: Any = "refused", challenge: str = "Bearer") -> CredentialNeed:
    return CredentialNeed(why=why, server_url=SERVER, www_authenticate=challenge)


def acquire(
    stage: Stage, grant: Grant, what: CredentialNeed | None = None, held: Credentials | None = None
) -> Credentials:
    found = stage.play(grant.acquire(what or need(), stage.world, held))
    assert found is not None
    return found


def decoded(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def pem() -> str:
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


# --- client credentials


def test_a_secret_is_shown_by_basic() -> None:
    methods = ["client_secret_basic"]
    stage = Stage({AS_METADATA: metadata(token_endpoint_auth_methods_supported=methods)})
    grant = ClientCredentials(client_id="robot", client_secret="s", scopes=["a"])
    found = acquire(stage, grant)
    assert stage.requests[-1].headers["Authorization"] == "Basic " + base64.b64encode(b"robot:s").decode()
    assert stage.form(TOKEN) == {"grant_type": "client_credentials", "resource": SERVER, "scope": "a"}
    assert found.access_token == "access-1"
    assert found.refresh_token is None


def test_a_key_signs_an_assertion_for_the_issuer() -> None:
    stage = Stage()
    acquire(stage, ClientCredentials(client_id="robot", private_key=pem(), algorithm="ES256"))
    claims = decoded(stage.form(TOKEN)["client_assertion"])
    assert claims["iss"] == claims["sub"] == "robot"
    assert claims["aud"] == ISSUER
    assert 0 < claims["exp"] - stage.now <= 300
    assert "Authorization" not in stage.requests[-1].headers


def test_each_assertion_is_another() -> None:
    stage = Stage()
    grant = ClientCredentials(client_id="robot", private_key=pem())
    acquire(stage, grant)
    acquire(stage, grant)
    first, second = (decoded(stage.form(TOKEN, number)["client_assertion"]) for number in (0, 1))
    assert first["jti"] != second["jti"]


def test_with_an_endpoint_of_its_own_a_token_is_fetched_at_the_start() -> None:
    """R211: eager, so that a misconfiguration fails the start."""
    stage = Stage()
    grant = ClientCredentials(client_id="robot", client_secret="s", token_endpoint=TOKEN)
    acquire(stage, grant, need("start"))
    assert stage.urls == [TOKEN]


def test_without_one_nothing_is_done_before_the_server_asks() -> None:
    stage = Stage()
    grant = ClientCredentials(client_id="robot", client_secret="s")
    assert stage.play(grant.acquire(need("start"), stage.world, None)) is None
    assert not stage.requests


def test_an_expiring_token_is_had_anew_without_discovery() -> None:
    stage = Stage()
    grant = ClientCredentials(client_id="robot", client_secret="s", scopes=["a"])
    held = acquire(stage, grant)
    before = len(stage.requests)
    assert acquire(stage, grant, need("expiring"), held).scopes == ("a",)
    assert stage.urls[before:] == [TOKEN]


def test_nobody_is_registered() -> None:
    """protocol.md 4.5: no DCR."""
    stage = Stage()
    acquire(stage, ClientCredentials(client_id="robot", client_secret="s"))
    assert f"{ISSUER}/register" not in stage.urls


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"client_secret": "s", "private_key": "x"},
        {"private_key": "not a key"},
        {"client_secret": "s", "token_endpoint": "http://as.example.com/token"},
    ],
)
def test_credentials_that_cannot_work_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ClientCredentials(client_id="robot", **options)


def test_what_it_declares() -> None:
    plain = ClientCredentials(client_id="robot", client_secret="s")
    bound = ClientCredentials(client_id="robot", client_secret="s", dpop=True)
    assert plain.extensions == ("io.modelcontextprotocol/oauth-client-credentials",)
    assert bound.extensions == (*plain.extensions, "io.modelcontextprotocol/auth/dpop")
    assert "'s'" not in repr(plain)


# --- enterprise-managed


def enterprise(**changes: Any) -> EnterpriseManaged:
    options: dict[str, Any] = {
        "client_id": "app",
        "client_secret": "s",
        "idp_token_endpoint": IDP,
        "idp_client_id": "app-at-idp",
        "subject_token": "id-token",
        **changes,
    }
    return EnterpriseManaged(**options)


def at_idp(**changes: Any) -> dict[str, Any]:
    return {
        IDP: token(
            access_token="id-jag",
            token_type="N_A",
            issued_token_type="urn:ietf:params:oauth:token-type:id-jag",
            **changes,
        ),
        AS_METADATA: metadata(token_endpoint_auth_methods_supported=["client_secret_basic"]),
    }


def test_an_identity_becomes_a_grant_and_the_grant_a_token() -> None:
    """R212."""
    stage = Stage(at_idp())
    found = acquire(stage, enterprise(), need(challenge='Bearer scope="a"'))
    first = stage.form(IDP)
    assert first["requested_token_type"] == "urn:ietf:params:oauth:token-type:id-jag"
    assert first["subject_token_type"] == "urn:ietf:params:oauth:token-type:id_token"
    assert (first["audience"], first["resource"], first["scope"]) == (ISSUER, SERVER, "a")
    assert first["client_id"] == "app-at-idp"
    second = stage.form(TOKEN)
    assert second["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert second["assertion"] == "id-jag"
    assert stage.requests[-1].headers["Authorization"].startswith("Basic ")
    assert found.access_token == "access-1"
    assert "id-token" not in str(second)


def test_the_subject_token_is_asked_for_each_time() -> None:
    tokens = iter(["one", "two"])
    stage = Stage(at_idp())
    grant = enterprise(subject_token=lambda: next(tokens))
    acquire(stage, grant)
    acquire(stage, grant)
    assert [stage.form(IDP, number)["subject_token"] for number in (0, 1)] == ["one", "two"]


def test_an_expired_subject_token_is_told_as_such() -> None:
    stage = Stage({**at_idp(), IDP: reply({"error": "invalid_grant"}, 400)})
    with pytest.raises(AuthorizationFailed, match="sign in at the identity provider") as caught:
        acquire(stage, enterprise())
    assert caught.value.code == "subject_token_expired"
    assert caught.value.url == IDP
    assert TOKEN not in stage.urls


def test_another_kind_of_token_is_not_passed_on() -> None:
    answers = at_idp()
    answers[IDP]["issued_token_type"] = "urn:ietf:params:oauth:token-type:access_token"
    stage = Stage(answers)
    with pytest.raises(AuthorizationFailed, match="not an ID-JAG"):
        acquire(stage, enterprise())
    assert TOKEN not in stage.urls


# --- workload identity


def test_a_platforms_assertion_is_all_it_takes() -> None:
    stage = Stage()
    acquire(stage, WorkloadIdentity(assertion="a.b.c"))
    assert stage.form(TOKEN) == {
        "grant_type": "urn:ietf:params:oauth:grant-type:jwt-bearer",
        "assertion": "a.b.c",
        "resource": SERVER,
    }


def test_a_refused_assertion_is_not_sent_again() -> None:
    """protocol.md 4.5: do not retry, do not switch grant."""
    stage = Stage({TOKEN: reply({"error": "invalid_grant"}, 400)})
    grant = WorkloadIdentity(assertion="a.b.c")
    for _ in range(3):
        with pytest.raises(AuthorizationFailed) as caught:
            acquire(stage, grant)
        assert caught.value.code == "invalid_grant"
        assert "a.b.c" not in str(caught.value)
    assert stage.urls.count(TOKEN) == 1


def test_another_assertion_has_its_chance() -> None:
    stage = Stage({TOKEN: [reply({"error": "invalid_grant"}, 400), reply(token())]})
    assertions = iter(["a.b.c", "d.e.f"])
    grant = WorkloadIdentity(assertion=lambda: next(assertions))
    with pytest.raises(AuthorizationFailed):
        acquire(stage, grant)
    assert acquire(stage, grant).access_token == "access-1"


@pytest.mark.parametrize("bad", [lambda: "", lambda: None])
def test_an_assertion_that_is_none_is_refused(bad: Any) -> None:
    with pytest.raises(ConfigError):
        acquire(Stage(), WorkloadIdentity(assertion=bad))


# --- shared


@pytest.mark.parametrize(
    "grant",
    [
        ClientCredentials(client_id="c", client_secret="s", dpop=True),
        enterprise(dpop=True),
        WorkloadIdentity(assertion="a.b.c", dpop=True),
    ],
    ids=["client credentials", "enterprise", "workload"],
)
def test_every_grant_can_bind_its_token(grant: Grant) -> None:
    stage = Stage({**at_idp(), TOKEN: token(token_type="DPoP")})
    found = acquire(stage, grant)
    assert "DPoP" in stage.requests[-1].headers
    assert found.proof_key is not None
    assert SigningKey.from_jwk(found.proof_key).algorithm == "ES256"


def test_a_step_up_needs_no_person() -> None:
    stage = Stage()
    grant = ClientCredentials(client_id="c", client_secret="s")
    held = acquire(stage, grant, need(challenge='Bearer scope="a"'))
    acquire(stage, grant, need("scopes", 'Bearer error="insufficient_scope", scope="b"'), held)
    assert stage.form(TOKEN)["scope"] == "a b"


def test_a_resource_of_another_server_is_refused_before_anything_is_shown() -> None:
    stage = Stage(
        {
            "https://mcp.example.com/.well-known/oauth-protected-resource/v1/mcp": resource(
                resource="https://evil.example.com/mcp"
            )
        }
    )
    with pytest.raises(AuthorizationFailed):
        acquire(stage, ClientCredentials(client_id="c", client_secret="s"))
    assert len(stage.requests) == 1
