"""`OAuth`: a person logs in once, and the program stays logged in (protocol.md 4.1; R246-R256)."""

from __future__ import annotations

import json
import shlex
from typing import Any

import msgspec
import pytest
from tests.support.oauth_stage import ISSUER, NOW, REDIRECT, SERVER, Stage, metadata, reply, resource, token

from trimaran.errors import AuthorizationFailed, ConfigError, LoginRequired
from trimaran.oauth import Credentials, OAuth
from trimaran.oauth.authorization import code_challenge
from trimaran.oauth.grant import CredentialNeed

PATH_FORM = "https://mcp.example.com/.well-known/oauth-protected-resource/v1/mcp"
AS_METADATA = f"{ISSUER}/.well-known/oauth-authorization-server"
TOKEN = f"{ISSUER}/token"
REGISTER = f"{ISSUER}/register"
OTHER = "https://other.example.com"


def other_server(**changes: Any) -> dict[str, Any]:
    return {
        PATH_FORM: resource(authorization_servers=[OTHER]),
        f"{OTHER}/.well-known/oauth-authorization-server": metadata(OTHER),
        f"{OTHER}/register": reply({"client_id": "client-2"}, 201),
        f"{OTHER}/token": token(access_token="access-2"),
        **changes,
    }


def need(why: Any = "refused", challenge: str = "Bearer", **changes: Any) -> CredentialNeed:
    return CredentialNeed(why=why, server_url=SERVER, www_authenticate=challenge, **changes)


def person(**options: Any) -> OAuth:
    return OAuth(login=lambda url: url, **options)


def log_in(
    stage: Stage, grant: OAuth, what: CredentialNeed | None = None, held: Credentials | None = None
) -> Credentials:
    found = stage.play(grant.acquire(what or need(), stage.world, held))
    assert found is not None
    return found


def test_a_login_goes_from_the_challenge_to_a_token() -> None:
    stage = Stage()
    found = log_in(stage, person(client_name="Boat"))
    assert stage.urls == [PATH_FORM, AS_METADATA, REGISTER, TOKEN]
    registered = json.loads(stage.requests[2].body or b"")
    assert registered["client_name"] == "Boat"
    assert registered["application_type"] == "native"
    query = stage.query()
    assert query["client_id"] == ["client-1"]
    assert query["resource"] == [SERVER]
    form = stage.form(TOKEN)
    assert code_challenge(form["code_verifier"]) == query["code_challenge"][0]
    assert form["resource"] == SERVER
    assert form["redirect_uri"] == REDIRECT
    assert found.access_token == "access-1"
    assert found.issuer == ISSUER
    assert found.expires_at == NOW + 3600


def test_the_resource_is_sent_as_the_metadata_writes_it() -> None:
    stage = Stage({PATH_FORM: resource(resource="https://mcp.example.com")})
    log_in(stage, person())
    assert stage.query()["resource"] == ["https://mcp.example.com"]


# --- who the client is


def test_a_client_registered_beforehand_is_used_as_it_is() -> None:
    """protocol.md 4.1, point 6."""
    stage = Stage({AS_METADATA: metadata(token_endpoint_auth_methods_supported=["client_secret_post"])})
    log_in(stage, person(client_id="mine", client_secret="s", client_metadata_url="https://me.example/c.json"))
    assert REGISTER not in stage.urls
    assert stage.form(TOKEN)["client_secret"] == "s"


def test_a_client_with_a_document_registers_nowhere() -> None:
    stage = Stage({AS_METADATA: metadata(client_id_metadata_document_supported=True)})
    log_in(stage, person(client_metadata_url="https://me.example/c.json"))
    assert REGISTER not in stage.urls
    assert stage.query()["client_id"] == ["https://me.example/c.json"]


def test_a_document_is_no_use_where_nobody_reads_it() -> None:
    stage = Stage()
    log_in(stage, person(client_metadata_url="https://me.example/c.json"))
    assert stage.query()["client_id"] == ["client-1"]


def test_a_registration_is_used_again_at_the_same_issuer() -> None:
    stage = Stage()
    first = log_in(stage, person())
    log_in(stage, person(), held=first.without_tokens())
    assert stage.urls.count(REGISTER) == 1


def test_a_registration_that_has_run_out_is_made_anew() -> None:
    stage = Stage({REGISTER: reply({"client_id": "c", "client_secret": "s", "client_secret_expires_at": NOW + 5}, 201)})
    first = log_in(stage, person())
    stage.now += 10
    log_in(stage, person(), held=first.without_tokens())
    assert stage.urls.count(REGISTER) == 2


def test_a_client_registers_for_all_scopes_it_may_come_to_need() -> None:
    """Some issuers refuse a client scopes that it did not register for."""
    stage = Stage({PATH_FORM: resource(scopes_supported=["a", "b"])})
    held = log_in(stage, person(), need(challenge='Bearer scope="a"'))
    assert json.loads(stage.requests[2].body or b"")["scope"] == "a b"
    held = log_in(stage, person(), need("scopes", 'Bearer error="insufficient_scope", scope="b"'), held)
    assert stage.urls.count(REGISTER) == 1
    log_in(stage, person(), need("scopes", 'Bearer error="insufficient_scope", scope="c"'), held)
    assert stage.urls.count(REGISTER) == 2


def test_where_nobody_can_register_the_advice_is_to_register_beforehand() -> None:
    """R251."""
    stage = Stage({AS_METADATA: metadata(registration_endpoint=None)})
    with pytest.raises(AuthorizationFailed, match="register an application"):
        log_in(stage, person())
    assert not stage.visits


# --- what is asked for


@pytest.mark.parametrize(
    ("challenge", "supported", "configured", "asked"),
    [
        ('Bearer scope="a b"', ["x", "y"], None, "a b"),
        ("Bearer", ["x", "y"], None, "x y"),
        ("Bearer", None, None, None),
        ("Bearer", ["x"], ["mine"], "mine"),
        ('Bearer scope="a"', ["x"], ["mine"], "mine a"),
        ("Bearer", ["x", "offline_access"], None, "x"),
        ("Bearer", [], ["offline_access"], "offline_access"),
    ],
)
def test_scopes_come_from_the_challenge_then_from_the_resource(
    challenge: str, supported: Any, configured: Any, asked: str | None
) -> None:
    """protocol.md 4.1, point 8."""
    stage = Stage({PATH_FORM: resource(scopes_supported=supported)})
    log_in(stage, person(scopes=configured), need(challenge=challenge))
    assert stage.query().get("scope") == (None if asked is None else [asked])


def test_offline_access_is_asked_for_only_where_the_issuer_knows_it() -> None:
    stage = Stage({AS_METADATA: metadata(scopes_supported=["a", "offline_access"])})
    found = log_in(stage, person(), need(challenge='Bearer scope="a"'))
    assert stage.query()["scope"] == ["a offline_access"]
    assert stage.query()["prompt"] == ["consent"]
    assert found.scopes == ("a",)


def test_a_step_up_asks_for_all_there_was_and_what_is_missing() -> None:
    """protocol.md 4.1, point 13: the union."""
    stage = Stage()
    first = log_in(stage, person(), need(challenge='Bearer scope="a b"'))
    challenge = 'Bearer error="insufficient_scope", scope="c"'
    found = log_in(stage, person(), need("scopes", challenge), first)
    assert stage.query()["scope"] == ["a b c"]
    assert found.scopes == ("a", "b", "c")


# --- refusals


def test_a_program_without_a_person_says_what_to_do_and_registers_nothing() -> None:
    """R254."""
    stage = Stage()
    with pytest.raises(LoginRequired, match=r"trimaran auth login https://mcp\.example\.com"):
        log_in(stage, OAuth())
    assert stage.urls == [PATH_FORM, AS_METADATA]


def test_the_advice_to_log_in_can_be_pasted_whatever_scopes_a_server_names() -> None:
    stage = Stage()
    first = log_in(stage, person(), need(challenge='Bearer scope="a"'))
    challenge = 'Bearer error="insufficient_scope", scope="$(id) x;touch\x1b[2J"'
    with pytest.raises(LoginRequired) as caught:
        log_in(stage, OAuth(), need("scopes", challenge), first)
    words = shlex.split(str(caught.value).split("`")[1])
    assert words[:4] == ["trimaran", "auth", "login", SERVER]
    assert [word for before, word in zip(words, words[1:], strict=False) if before == "--scope"] == [
        "a",
        "$(id)",
        "x;touch?[2J",
    ]


@pytest.mark.parametrize("methods", [None, [], ["plain"]])
def test_an_issuer_without_pkce_is_refused(methods: Any) -> None:
    """protocol.md 4.1, point 5."""
    stage = Stage({AS_METADATA: metadata(code_challenge_methods_supported=methods)})
    with pytest.raises(AuthorizationFailed, match="S256"):
        log_in(stage, person())
    assert not stage.visits


def test_an_answer_from_another_issuer_leads_to_no_token_request() -> None:
    stage = Stage()
    stage.callback = lambda query: f"{REDIRECT}?code=c&state={query['state']}&iss=https://evil.example"
    with pytest.raises(AuthorizationFailed, match="not trusted"):
        log_in(stage, person())
    assert TOKEN not in stage.urls


@pytest.mark.parametrize("kind", ["mac", "DPoP", "N_A"])
def test_a_token_of_another_type_is_refused(kind: str) -> None:
    stage = Stage({TOKEN: token(token_type=kind)})
    with pytest.raises(AuthorizationFailed, match="of the type"):
        log_in(stage, person())


def test_a_bearer_token_where_a_bound_one_was_asked_for_is_refused() -> None:
    stage = Stage()
    with pytest.raises(AuthorizationFailed, match="dpop=False"):
        log_in(stage, person(dpop=True))


# --- old servers


def test_an_old_server_without_metadata_is_logged_in_to_at_fixed_places() -> None:
    """protocol.md 4.2."""
    origin = "https://mcp.example.com"
    stage = Stage(
        {
            PATH_FORM: reply(b"", 404),
            f"{origin}/register": reply({"client_id": "old"}, 201),
            f"{origin}/token": token(),
        }
    )
    found = log_in(stage, person())
    assert found.issuer == origin
    assert stage.visits[0].startswith(f"{origin}/authorize?")


# --- refreshing


def logged_in(**changes: Any) -> tuple[Stage, Credentials]:
    stage = Stage({TOKEN: [reply(token(refresh_token="refresh-1", **changes)), reply(token(access_token="access-2"))]})
    return stage, log_in(stage, person())


def test_a_refused_token_is_refreshed_without_a_person() -> None:
    """R210."""
    stage, held = logged_in()
    found = log_in(stage, person(), held=held)
    assert len(stage.visits) == 1
    assert stage.form(TOKEN)["refresh_token"] == "refresh-1"
    assert stage.form(TOKEN)["resource"] == SERVER
    assert found.access_token == "access-2"


def test_a_refresh_token_that_was_not_replaced_is_kept() -> None:
    """R249."""
    stage, held = logged_in()
    assert log_in(stage, person(), held=held).refresh_token == "refresh-1"


def test_a_rotated_refresh_token_takes_the_place_of_the_old_one() -> None:
    """R210."""
    stage, held = logged_in()
    stage.answers[TOKEN] = token(access_token="access-2", refresh_token="refresh-2")
    assert log_in(stage, person(), held=held).refresh_token == "refresh-2"


def test_ahead_of_expiry_nothing_is_discovered_anew() -> None:
    stage, held = logged_in()
    before = len(stage.requests)
    found = log_in(stage, OAuth(), need("expiring"), held)
    assert stage.urls[before:] == [TOKEN]
    assert found.access_token == "access-2"


def test_a_refresh_token_that_is_dead_leads_to_a_login() -> None:
    """R255."""
    stage, held = logged_in()
    stage.answers[TOKEN] = [reply({"error": "invalid_grant"}, 400), reply(token(access_token="access-3"))]
    assert log_in(stage, person(), held=held).access_token == "access-3"
    assert len(stage.visits) == 2


def test_a_server_that_is_ill_costs_no_login() -> None:
    stage, held = logged_in()
    stage.answers[TOKEN] = reply(b"oops", 503)
    with pytest.raises(AuthorizationFailed, match="503"):
        log_in(stage, person(), held=held)
    assert len(stage.visits) == 1


def test_ahead_of_expiry_a_dead_refresh_token_is_dropped_and_a_bad_day_is_not_held_against_it() -> None:
    stage, held = logged_in()
    stage.answers[TOKEN] = reply(b"oops", 503)
    assert stage.play(OAuth().acquire(need("expiring"), stage.world, held)) is None
    stage.answers[TOKEN] = reply({"error": "invalid_grant"}, 400)
    found = log_in(stage, OAuth(), need("expiring"), held)
    assert (found.access_token, found.refresh_token) == ("access-1", None)


def test_a_fresh_token_that_was_refused_is_not_refreshed_again() -> None:
    stage, held = logged_in()
    log_in(stage, person(), need(may_refresh=False), held)
    assert len(stage.visits) == 2


def test_a_bound_token_is_refreshed_with_the_key_it_is_bound_to() -> None:
    stage = Stage({TOKEN: token(token_type="DPoP", refresh_token="r")})
    held = log_in(stage, person(dpop=True))
    found = log_in(stage, person(dpop=True), held=held)
    assert held.proof_key is not None
    assert found.proof_key == held.proof_key


# --- another authorization server


def test_a_server_that_has_moved_is_registered_with_anew() -> None:
    """protocol.md 4.1, point 7."""
    stage, held = logged_in()
    stage.answers |= other_server()
    before = len(stage.requests)
    found = log_in(stage, person(), held=held)
    sent = stage.requests[before:]
    assert found.access_token == "access-2"
    assert found.issuer == OTHER
    assert set(found.clients) == {ISSUER, OTHER}
    assert all(request.url.startswith((OTHER, PATH_FORM)) for request in sent)
    assert all(b"client-1" not in (request.body or b"") for request in sent)
    assert all(b"refresh-1" not in (request.body or b"") for request in sent)
    assert "client-1" not in stage.visits[-1]


def test_a_client_registered_beforehand_is_not_shown_to_another_issuer() -> None:
    stage = Stage()
    held = log_in(stage, person(client_id="mine"))
    stage.answers |= other_server()
    with pytest.raises(AuthorizationFailed, match="sent nowhere else"):
        log_in(stage, person(client_id="mine"), held=held)
    assert len(stage.visits) == 1


def test_of_several_authorization_servers_the_one_already_used_is_kept() -> None:
    stage = Stage()
    held = log_in(stage, person())
    stage.answers |= other_server(**{PATH_FORM: resource(authorization_servers=[OTHER, ISSUER])})
    assert log_in(stage, person(), held=held).issuer == ISSUER


def test_a_given_issuer_must_be_one_the_resource_names() -> None:
    with pytest.raises(AuthorizationFailed, match="not by the issuer"):
        log_in(Stage(), person(issuer="https://mine.example"))


# --- set by hand


def test_endpoints_given_by_hand_need_no_discovery() -> None:
    """R256."""
    stage = Stage()
    grant = person(client_id="mine", authorization_endpoint=f"{ISSUER}/authorize", token_endpoint=TOKEN)
    log_in(stage, grant)
    assert stage.urls == [TOKEN]
    assert stage.query()["resource"] == [SERVER]


def test_tokens_given_by_hand_are_used_and_refreshed() -> None:
    """R210."""
    stage = Stage()
    grant = OAuth(access_token="a", refresh_token="r", client_id="mine", token_endpoint=TOKEN)
    held = log_in(stage, grant, need("start"))
    assert held.access_token == "a"
    assert log_in(stage, grant, held=held).access_token == "access-1"
    assert stage.urls == [TOKEN]


@pytest.mark.parametrize(
    "options",
    [
        {"scopes": "a b"},
        {"scopes": [""]},
        {"client_secret": "s"},
        {"client_metadata_url": "http://me.example/c.json"},
        {"client_metadata_url": "https://me.example"},
        {"client_id": "c", "authorization_endpoint": "javascript:1", "token_endpoint": "https://a.example/t"},
        {"authorization_endpoint": "https://a.example/a", "token_endpoint": "https://a.example/t"},
    ],
)
def test_options_that_cannot_work_are_refused_at_once(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        person(**options)


# --- what is kept


def test_credentials_survive_being_stored() -> None:
    """R249: nothing that a restart needs is lost."""
    stage = Stage({TOKEN: token(token_type="DPoP", refresh_token="r", scope="a")})
    held = log_in(stage, person(dpop=True))
    assert Credentials.from_bytes(held.to_bytes()) == held


@pytest.mark.parametrize("record", [b"", b"{}", b"[]", b'{"server_url": 1}', b"\xff", b"null"])
def test_a_record_that_is_none_is_nothing(record: bytes) -> None:
    assert Credentials.from_bytes(record) is None


def test_nothing_secret_shows_in_a_repr() -> None:
    stage, held = logged_in()
    grant = OAuth(client_id="mine", client_secret="hush", access_token="hush", refresh_token="hush", issuer=ISSUER)
    shown = f"{held!r} {grant!r} {msgspec.structs.replace(held)}"
    assert "access-1" not in shown
    assert "refresh-1" not in shown
    assert "hush" not in shown
