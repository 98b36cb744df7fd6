"""A protected resource: its documents, its challenges, and what it makes of tokens and of those who judge them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import random
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

from trimaran.auth.dpop import DPoP
from trimaran.auth.exchange import TokenExchange
from trimaran.auth.principal import Principal
from trimaran.auth.refusal import Refused
from trimaran.auth.resource import JwtAuthorizer, ProtectedResource
from trimaran.errors import ConfigError
from trimaran.oauth.challenges import parse_www_authenticate
from trimaran.oauth.discovery import protected_resource_urls
from trimaran.oauth.dpop import ProofKey
from trimaran.oauth.effects import HttpReply, HttpRequest

RESOURCE = "https://mcp.example.com/mcp"
ISSUER = "https://login.example.com"
METADATA = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
KEY = ECKey.generate_key("P-256", {"kid": "one"})


class Request:
    """What the engine hands to a provider."""

    def __init__(
        self,
        headers: Mapping[str, str] | None = None,
        *,
        method: str = "POST",
        path: str = "/mcp",
        query: str = "",
        url: str | None = RESOURCE,
        public_url: str | None = None,
    ) -> None:
        self.public_url = public_url
        self.headers = {name.lower(): value for name, value in (headers or {}).items()}
        self.method = method
        self.path = path
        self.query = query
        self.url = url
        self.address = "127.0.0.1"
        self.reply_headers: list[tuple[str, str]] = []


def bearer(token: str, **options: Any) -> Request:
    return Request({"authorization": f"Bearer {token}"}, **options)


async def anyone(token: str, auth: ProtectedResource, request: Any) -> Any:
    return {"sub": "ann"}


def protected(**options: Any) -> ProtectedResource:
    given: dict[str, Any] = {
        "resource": RESOURCE,
        "authorization_servers": [ISSUER],
        "authorizer": anyone,
        **options,
    }
    return ProtectedResource(**given)


async def refusal(auth: ProtectedResource, request: Request) -> Refused:
    with pytest.raises(Refused) as refused:
        await auth.authenticate(request)
    return refused.value


async def challenge(auth: ProtectedResource, request: Request) -> dict[str, str]:
    """The parameters of the first challenge of a refusal."""
    sent = dict((await refusal(auth, request)).headers)["www-authenticate"]
    return parse_www_authenticate(sent)[0].parameters


def document(auth: ProtectedResource, path: str = "/.well-known/oauth-protected-resource/mcp") -> dict[str, Any]:
    answer = auth.document(Request(method="GET", path=path))
    assert answer is not None
    return json.loads(answer[2])


def raising(error: Exception) -> Callable[..., Any]:
    def function(*_: Any) -> Any:
        raise error

    return function


# --- configuration (R167-R169) ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"resource": "/mcp"}, "resource: '/mcp' is not absolute"),
        ({"resource": "mcp.example.com"}, "is not absolute"),
        ({"resource": "urn:mcp"}, "is not absolute"),
        ({"resource": "https://mcp.example.com/mcp#tools"}, "has a fragment"),
        ({"resource": "https://mcp.example.com/mcp#"}, "has a fragment"),
        ({"resource": "https://me@mcp.example.com/"}, "or a user"),
        ({"resource": "https://mcp.example.com:port/"}, "is not a URL"),
        ({"resource": None}, 'resource is a URL, resource="https://mcp.example.com/mcp"'),
        ({"resource": "https://mcp.example.com/a b"}, "resource is a URL"),
        ({"authorization_servers": []}, "authorization_servers must not be empty"),
        ({"authorization_servers": ISSUER}, r'authorization_servers=\["https://login.example.com"\]'),
        ({"authorization_servers": None}, "must be a list of strings"),
        ({"authorization_servers": [5]}, "must be a list of strings"),
        ({"authorization_servers": [""]}, "must be a list of strings"),
        ({"authorization_servers": ["login.example.com"]}, "is not absolute"),
        ({"authorization_servers": ["http://login.example.com"]}, "is not https"),
        ({"authorization_servers": ["http://127.0.0.1.evil.example"]}, "is not https"),
        ({"authorization_servers": [f"{ISSUER}?tenant=1"]}, "has a query"),
        ({"authorization_servers": [f"{ISSUER}?"]}, "has a query"),
        ({"authorization_servers": [f"{ISSUER}#a"]}, "has a fragment"),
        ({"authorizer": "function"}, "authorizer is a function"),
        ({"authorizer": JwtAuthorizer}, "authorizer is a function"),
        ({"authorizer": lambda token: token}, r"three arguments: \(token, auth, request\)"),
        ({"scopes_supported": "read"}, "scopes_supported must be a list of strings"),
        ({"scopes_supported": ["a b"]}, "scopes_supported must be a list of scopes"),
        ({"scopes_supported": ["read", "offline_access"]}, "scopes_supported: offline_access is between"),
        ({"required_scopes": "read"}, "required_scopes must be a list of strings"),
        ({"required_scopes": ['say "hi"']}, "required_scopes must be a list of scopes"),
        ({"required_scopes": ["offline_access"]}, "required_scopes: offline_access is between"),
        ({"bearer_methods_supported": ["header", "query"]}, "from the Authorization header only"),
        ({"resource_name": 5}, "resource_name must be a text"),
        ({"resource_name": ""}, "resource_name must be a text"),
        ({"jwks_uri": "http://mcp.example.com/jwks"}, "jwks_uri: .* is not https"),
        ({"resource_documentation": "docs"}, "resource_documentation: 'docs' is not absolute"),
        ({"resource_metadata_url": "/metadata"}, "resource_metadata_url: '/metadata' is not absolute"),
        ({"metadata": {"resource": "https://other.example.com"}}, "resource has an option of its own"),
        ({"metadata": {"authorization_servers": [], "x": 1}}, "authorization_servers has an option"),
        ({"metadata": {"dpop_bound_access_tokens_required": False}}, "has an option"),
        ({"metadata": ["x"]}, "metadata must be a mapping"),
        ({"metadata": {5: "x"}}, "metadata must be a mapping"),
        ({"metadata": {"x": object()}}, "cannot be written as JSON"),
        ({"dpop": True}, r"dpop is a DPoP, dpop=DPoP\(\)"),
        ({"exchange": "https://login.example.com/token"}, "exchange is a TokenExchange"),
    ],
)
def test_options_that_make_no_sense_are_refused_with_what_to_write(options: dict[str, Any], said: str) -> None:
    """R167, R168, R169."""
    with pytest.raises(ConfigError, match=said):
        protected(**options)


@pytest.mark.parametrize("option", ["authorization_servers", "required_scopes", "resource_metadata_url"])
def test_a_resolver_cannot_be_async(option: str) -> None:
    async def resolver(request: Any) -> Any: ...

    with pytest.raises(ConfigError, match=f"{option}: .*use a plain def"):
        protected(**{option: resolver})


def test_an_option_nobody_knows_is_refused() -> None:
    """R167."""
    with pytest.raises(TypeError, match="audience"):
        protected(audience=RESOURCE)


@pytest.mark.parametrize(
    "issuer", ["http://localhost:8080", "http://127.0.0.1:9/a", "http://[::1]:9", "https://a.example/t/1"]
)
def test_an_issuer_is_https_or_on_this_machine(issuer: str) -> None:
    """R169."""
    assert document(protected(authorization_servers=[issuer]))["authorization_servers"] == [issuer]


def test_an_insecure_issuer_can_be_allowed() -> None:
    """R168, R169."""
    auth = protected(authorization_servers=["http://idp.internal"], allow_insecure_authorization_servers=True)
    assert document(auth)["authorization_servers"] == ["http://idp.internal"]


def test_an_insecure_issuers_keys_are_not_fetched_by_default() -> None:
    with pytest.raises(ConfigError, match="the keys of http://idp.internal would come in the open"):
        protected(
            authorization_servers=["http://idp.internal"], allow_insecure_authorization_servers=True, authorizer=None
        )


def test_with_resolved_issuers_an_authorizer_has_to_be_given() -> None:
    """R167."""
    with pytest.raises(ConfigError, match="authorizer is missing"):
        protected(authorization_servers=lambda request: [ISSUER], authorizer=None)


# --- the document (R170, R180) ----------------------------------------------------------------------------------------


def test_the_document_says_what_was_configured() -> None:
    """R168, R170, R180."""
    auth = protected(
        scopes_supported=["notes:read", "notes:write"],
        resource_name="Notes",
        jwks_uri="https://mcp.example.com/jwks.json",
        resource_documentation="https://docs.example.com/notes",
        metadata={"resource_policy_uri": "https://mcp.example.com/policy"},
    )
    assert document(auth) == {
        "resource": RESOURCE,
        "authorization_servers": [ISSUER],
        "bearer_methods_supported": ["header"],
        "scopes_supported": ["notes:read", "notes:write"],
        "resource_name": "Notes",
        "jwks_uri": "https://mcp.example.com/jwks.json",
        "resource_documentation": "https://docs.example.com/notes",
        "resource_policy_uri": "https://mcp.example.com/policy",
    }


def test_what_was_not_configured_is_not_in_the_document() -> None:
    """R168, R170."""
    assert document(protected()) == {
        "resource": RESOURCE,
        "authorization_servers": [ISSUER],
        "bearer_methods_supported": ["header"],
    }


def test_with_dpop_the_document_says_so() -> None:
    found = document(protected(dpop=DPoP(required=True, algorithms=["ES256"])))
    assert found["dpop_signing_alg_values_supported"] == ["ES256"]
    assert found["dpop_bound_access_tokens_required"] is True


@pytest.mark.parametrize(
    ("resource", "paths"),
    [
        (RESOURCE, ["/mcp", "/mcp/", "", "/"]),
        ("https://mcp.example.com/a/b/", ["/a/b", "/a/b/", ""]),
        ("https://mcp.example.com", ["", "/"]),
        ("https://mcp.example.com/", ["", "/"]),
        ("https://mcp.example.com/caf%C3%A9", ["/caf%C3%A9", "/café", ""]),
        ("https://mcp.example.com/mcp?tenant=1", ["/mcp", ""]),
    ],
)
def test_the_document_is_under_the_resources_path_and_at_the_root(resource: str, paths: list[str]) -> None:
    """R170, C21."""
    auth = protected(resource=resource)
    for path in paths:
        assert document(auth, f"/.well-known/oauth-protected-resource{path}")["resource"] == resource
    for make in auth.documents().values():
        assert json.loads(make(Request()))["resource"] == resource


@pytest.mark.parametrize("resource", [RESOURCE, "https://mcp.example.com/", "https://mcp.example.com/a/b/"])
def test_our_own_client_looks_where_the_document_is(resource: str) -> None:
    served = protected(resource=resource).documents()
    assert {url.removeprefix("https://mcp.example.com") for url in protected_resource_urls(resource)} <= set(served)


@pytest.mark.parametrize(
    "path",
    [
        "/mcp",
        "/",
        "/.well-known/oauth-protected-resource/other",
        "/.well-known/oauth-protected-resourcemcp",
        "/.well-known",
    ],
)
def test_nothing_else_is_a_document(path: str) -> None:
    assert protected().document(Request(method="GET", path=path)) is None


@pytest.mark.parametrize(
    ("method", "status"), [("GET", 200), ("HEAD", 200), ("OPTIONS", 204), ("POST", 405), ("PUT", 405)]
)
def test_the_document_is_read_by_anyone_and_only_read(method: str, status: int) -> None:
    """R170, C21."""
    answer = protected().document(Request(method=method, path="/.well-known/oauth-protected-resource/mcp"))
    assert answer is not None
    found, headers, body = answer[0], dict(answer[1]), answer[2]
    assert found == status
    assert headers["access-control-allow-origin"] == "*"
    assert headers["cache-control"] == "no-store"
    assert (headers.get("content-type") == "application/json") == (status == 200)
    assert bool(body) == (method == "GET")
    if status != 200:
        assert headers["allow"] == "GET, HEAD, OPTIONS"
    if method == "OPTIONS":
        assert headers["access-control-allow-methods"] == "GET, HEAD, OPTIONS"
        assert headers["access-control-allow-headers"] == "*"


def test_authorization_servers_are_resolved_by_request() -> None:
    auth = protected(authorization_servers=lambda request: [f"https://{request.headers['host']}.example"])
    for tenant in ("one", "two"):
        request = Request({"host": tenant}, method="GET", path="/.well-known/oauth-protected-resource")
        answer = auth.document(request)
        assert answer is not None
        assert json.loads(answer[2])["authorization_servers"] == [f"https://{tenant}.example"]


@pytest.mark.parametrize(
    "resolver",
    [
        raising(OSError("secret")),
        lambda _: [],
        lambda _: None,
        lambda _: ["http://plain.example"],
        lambda _: "https://a",
    ],
    ids=["raises", "empty", "none", "insecure", "text"],
)
def test_a_document_that_cannot_be_made_is_our_fault(
    resolver: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    auth = protected(authorization_servers=resolver)
    answer = auth.document(Request(method="GET", path="/.well-known/oauth-protected-resource"))
    assert answer is not None
    assert answer[0] == 500
    assert json.loads(answer[2])["error"] == "server_error"
    assert "the document at /.well-known/oauth-protected-resource could not be built" in caplog.text
    assert "secret" not in caplog.text


# --- tokens (R171, R172) ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer \t "},
        {"authorization": "Basic YTpi"},
        {"authorization": "DPoP abc"},
        {"x-api-key": "abc"},
    ],
)
async def test_without_a_token_nobody_is_asked(headers: dict[str, str]) -> None:
    asked: list[str] = []
    found = await refusal(protected(authorizer=lambda token, auth, request: asked.append(token)), Request(headers))
    assert (found.status, found.kind) == (401, "missing")
    assert not asked


async def test_a_token_in_the_query_is_no_token() -> None:
    request = Request(query="access_token=good", url=f"{RESOURCE}?access_token=good")
    assert (await refusal(protected(), request)).kind == "missing"


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEaReR"])
async def test_the_scheme_is_in_any_case(scheme: str) -> None:
    principal = await protected().authenticate(Request({"authorization": f"{scheme} good"}))
    assert principal is not None
    assert principal.subject == "ann"


@pytest.mark.parametrize(
    "value", ["Bearer a b", "Bearer a, Bearer b", "Bearer é", "Bearer a;b", "Bearer " + "a" * 20_000]
)
async def test_what_is_no_token_is_a_bad_request(value: str) -> None:
    found = await refusal(protected(), Request({"authorization": value}))
    assert (found.status, found.code) == (400, "invalid_request")
    assert 'error="invalid_request"' in dict(found.headers)["www-authenticate"]


# --- authorizers (R173, R176) -----------------------------------------------------------------------------------------


async def test_an_authorizer_gets_token_provider_and_request() -> None:
    seen: list[Any] = []

    async def authorizer(token: str, auth: ProtectedResource, request: Any) -> Principal:
        seen.extend((token, auth.resource, request))
        return Principal(subject="ann", scopes=frozenset({"read"}))

    request = bearer("abc.def")
    principal = await protected(authorizer=authorizer).authenticate(request)
    assert principal == Principal(subject="ann", scopes=frozenset({"read"}))
    assert seen == ["abc.def", RESOURCE, request]


async def test_an_authorizer_may_be_plain_or_an_object_or_callable() -> None:
    class Object:
        def authorize(self, token: str, auth: Any, request: Any) -> Any:
            return {"sub": token}

    class Called:
        async def __call__(self, token: str, auth: Any, request: Any) -> Any:
            return {"sub": token}

    for authorizer in (lambda token, auth, request: {"sub": token}, Object(), Called()):
        principal = await protected(authorizer=authorizer).authenticate(bearer("ann"))
        assert principal is not None
        assert principal.subject == "ann"


async def test_claims_become_a_principal() -> None:
    claims = {
        "sub": "ann",
        "iss": ISSUER,
        "aud": [RESOURCE, "other"],
        "scope": "read write",
        "azp": "app",
        "exp": time.time() + 60,
        "tenant": 5,
    }
    principal = await protected(authorizer=lambda *_: claims).authenticate(bearer("t"))
    assert principal is not None
    assert principal.subject == "ann"
    assert principal.client_id == "app"
    assert principal.audience == (RESOURCE, "other")
    assert principal.has_scopes(["read", "write"])
    assert principal.claims == claims
    assert principal.covers_resource(RESOURCE)


async def test_a_principal_without_a_subject_is_told_apart_from_others() -> None:
    auth = protected(authorizer=lambda *_: {"scope": "read"})
    one, two = [await auth.authenticate(bearer(token)) for token in ("one", "two")]
    assert one is not None
    assert two is not None
    assert one.identity != two.identity


@pytest.mark.parametrize(
    "claims", [{"active": False}, {"active": False, "sub": "ann"}, {"active": None}, {"active": "true"}]
)
async def test_an_introspection_reply_that_is_not_active_is_no_token(claims: dict[str, Any]) -> None:
    assert (await refusal(protected(authorizer=lambda *_: claims), bearer("t"))).kind == "invalid_token"


async def test_claims_that_are_over_are_no_token() -> None:
    auth = protected(authorizer=lambda *_: {"sub": "ann", "exp": 1000}, clock=lambda: 1060.0)
    assert (await refusal(auth, bearer("t"))).kind == "expired_token"
    auth = protected(authorizer=lambda *_: {"sub": "ann", "exp": 1000}, clock=lambda: 1059.0)
    assert await auth.authenticate(bearer("t")) is not None


@pytest.mark.parametrize(
    ("kind", "status", "error"),
    [
        ("missing", 401, None),
        ("invalid_token", 401, "invalid_token"),
        ("expired", 401, "invalid_token"),
        ("expired_token", 401, "invalid_token"),
        ("invalid_audience", 401, "invalid_token"),
        ("invalid_credentials", 401, "invalid_token"),
        ("insufficient_scope", 403, "insufficient_scope"),
        ("invalid_request", 400, "invalid_request"),
    ],
)
@pytest.mark.parametrize("how", ["raised", "given"])
async def test_an_authorizers_refusal_has_its_status_and_challenge(
    kind: str, status: int, error: str | None, how: str
) -> None:
    def authorizer(token: str, auth: Any, request: Any) -> Any:
        made = Refused(kind, "not today", reason="internal")
        if how == "raised":
            raise made
        return made

    found = await refusal(protected(authorizer=authorizer), bearer("t"))
    assert found.status == status
    sent = dict(found.headers)["www-authenticate"]
    parameters = parse_www_authenticate(sent)[0].parameters
    assert parameters.get("error") == error
    assert parameters.get("error_description") == (None if kind == "missing" else "not today")
    assert parameters["resource_metadata"] == METADATA
    assert json.loads(found.body)["error_description"] == "not today"
    assert "internal" not in sent + found.body.decode()


async def test_an_authorizer_that_knows_no_such_token_says_nothing() -> None:
    assert (await refusal(protected(authorizer=lambda *_: None), bearer("t"))).kind == "invalid_token"


FOREIGN: dict[str, Any] = {
    "True": lambda *_: True,
    "text": lambda *_: "s3cret",
    "tuple": lambda *_: ("ok", {"sub": "ann"}),
    "number": lambda *_: 5,
    "list": lambda *_: [{"sub": "ann"}],
    "bad claims": lambda *_: {"sub": 5, "note": "s3cret"},
    "raises": raising(KeyError("s3cret")),
    "raises ours": raising(ConfigError("s3cret")),
}


@pytest.mark.parametrize("name", FOREIGN)
async def test_an_authorizer_that_fails_is_our_fault_and_shows_nothing(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    found = await refusal(protected(authorizer=FOREIGN[name]), bearer("s3cret"))
    assert (found.status, found.code) == (500, "server_error")
    assert "www-authenticate" not in dict(found.headers)
    assert json.loads(found.body) == {
        "error": "server_error",
        "error_description": "the credentials could not be checked",
    }
    assert "the authorizer" in caplog.text
    assert "s3cret" not in caplog.text + str(found) + repr(found)
    assert found.__cause__ is None


@pytest.mark.deadline(3)
async def test_a_plain_authorizer_that_runs_out_of_items_is_answered_too() -> None:
    """A StopIteration cannot travel through a future as it is, and must not leave a request waiting for ever."""
    assert (await refusal(protected(authorizer=raising(StopIteration())), bearer("t"))).status == 500


async def test_being_cancelled_is_no_failure() -> None:
    entered = asyncio.Event()

    async def authorizer(token: str, auth: Any, request: Any) -> Any:
        entered.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(protected(authorizer=authorizer).authenticate(bearer("t")))
    await asyncio.wait_for(entered.wait(), 5)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


# --- challenges (R174, R175, R177, R181) ------------------------------------------------------------------------------


async def test_a_missing_token_is_challenged_without_an_error() -> None:
    found = await refusal(protected(required_scopes=["notes:read", "notes:write"]), Request())
    assert dict(found.headers)["www-authenticate"] == (
        f'Bearer scope="notes:read notes:write", resource_metadata="{METADATA}"'
    )
    assert json.loads(found.body)["error"] == "unauthorized"


@pytest.mark.parametrize(
    ("resource", "url"),
    [
        (RESOURCE, METADATA),
        ("https://mcp.example.com/", "https://mcp.example.com/.well-known/oauth-protected-resource"),
        ("https://mcp.example.com", "https://mcp.example.com/.well-known/oauth-protected-resource"),
        ("http://127.0.0.1:9090/mcp", "http://127.0.0.1:9090/.well-known/oauth-protected-resource/mcp"),
        ("https://m.example/a?t=1", "https://m.example/.well-known/oauth-protected-resource/a?t=1"),
    ],
)
async def test_a_challenge_names_the_url_of_rfc_9728(resource: str, url: str) -> None:
    """R180, R181."""
    assert (await challenge(protected(resource=resource), Request()))["resource_metadata"] == url


async def test_a_challenge_names_the_url_that_was_configured_or_resolved() -> None:
    """R168, R181: a URL of another host is for that host to serve."""
    auth = protected(resource_metadata_url="https://cdn.example.com/prm.json")
    assert (await challenge(auth, Request()))["resource_metadata"] == "https://cdn.example.com/prm.json"
    assert auth.metadata_url == "https://cdn.example.com/prm.json"
    assert "/prm.json" not in auth.documents()
    assert "/prm.json" in protected(resource_metadata_url="https://mcp.example.com/prm.json").documents()
    auth = protected(resource_metadata_url=lambda request: f"{METADATA}?tenant={request.headers['host']}")
    assert (await challenge(auth, Request({"host": "one"})))["resource_metadata"] == f"{METADATA}?tenant=one"


@pytest.mark.parametrize(
    "resolver",
    [raising(KeyError("x")), lambda _: None, lambda _: 5, lambda _: "relative", lambda _: 'https://a.example/\r\nX: "'],
    ids=["raises", "none", "number", "relative", "injection"],
)
async def test_a_resolver_that_fails_costs_only_its_hint(
    resolver: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """R175."""
    found = await challenge(protected(resource_metadata_url=resolver, required_scopes=["read"]), Request())
    assert found == {"scope": "read"}
    assert "resource_metadata_url" in caplog.text
    found = await challenge(protected(required_scopes=resolver), Request())
    assert found == {"resource_metadata": METADATA}
    assert "required_scopes" in caplog.text
    denied = await refusal(
        protected(required_scopes=resolver, authorizer=raising(Refused("insufficient_scope"))), bearer("t")
    )
    assert denied.status == 403


async def test_required_scopes_are_resolved_for_challenges_only_and_are_no_demand() -> None:
    """R177."""
    calls: list[Any] = []

    def scopes(request: Any) -> list[str]:
        calls.append(request)
        return ["notes:read"]

    auth = protected(required_scopes=scopes)
    assert await auth.authenticate(bearer("t")) is not None
    assert not calls
    assert (await refusal(protected(required_scopes=scopes, authorizer=raising(OSError())), bearer("t"))).status == 500
    assert not calls
    request = Request()
    assert (await challenge(auth, request))["scope"] == "notes:read"
    assert calls == [request]


async def test_a_refusal_for_scopes_names_its_own_and_the_required_ones_once() -> None:
    auth = protected(
        required_scopes=["notes:read"],
        authorizer=raising(
            Refused("insufficient_scope", scopes=["notes:write", "notes:read", "offline_access", "a b"])
        ),
    )
    assert (await challenge(auth, bearer("t")))["scope"] == "notes:write notes:read"


async def test_one_refusal_may_serve_many_requests() -> None:
    """A refusal made once, at the top of a module, must not carry a challenge from one request to another."""
    once = Refused("invalid_token", "no")
    auth = protected(authorizer=raising(once), required_scopes=lambda request: [request.headers["host"]])
    for host in ("one", "two"):
        request = Request({"authorization": "Bearer t", "host": host})
        assert (await challenge(auth, request))["scope"] == host


async def test_what_an_authorizer_says_cannot_leave_its_quotes() -> None:
    text = 'no"\r\nSet-Cookie: a=b\x00\x7f\\ é'
    found = await refusal(protected(authorizer=raising(Refused("invalid_token", text))), bearer("t"))
    sent = dict(found.headers)["www-authenticate"]
    assert re.search(r"[^\x20-\x7e]", sent) is None
    assert parse_www_authenticate(sent)[0].parameters["error_description"] == 'no"Set-Cookie: a=b\\ ?'
    assert sent.count("resource_metadata=") == 1


def test_a_step_up_names_all_scopes_of_the_operation_in_one_challenge() -> None:
    auth = protected(required_scopes=lambda request: ["mcp"])
    [found] = parse_www_authenticate(auth.step_up(bearer("t"), ["notes:write", "notes:read"]))
    assert found.scheme == "bearer"
    assert found.parameters["error"] == "insufficient_scope"
    assert found.parameters["scope"] == "notes:write notes:read mcp"
    assert found.parameters["resource_metadata"] == METADATA


def test_without_a_request_a_challenge_still_points_home() -> None:
    auth = protected(resource_metadata_url=raising(OSError()), required_scopes=raising(OSError()))
    assert auth.challenge(Refused("missing")) == f'Bearer resource_metadata="{METADATA}"'


# --- the JWT authorizer (C18, P50) ------------------------------------------------------------------------------------


def token(key: Any = KEY, **changes: Any) -> str:
    good = {"iss": ISSUER, "aud": RESOURCE, "sub": "ann", "exp": int(time.time()) + 60, "scope": "notes:read"}
    claims = {name: value for name, value in {**good, **changes}.items() if value is not None}
    kid = {"kid": key.kid} if key.kid else {}
    return jwt.encode({"alg": "ES256", **kid}, claims, key)


def jwks(*keys: Any) -> dict[str, Any]:
    return {"keys": [key.as_dict(private=False) for key in keys]}


class Issuers:
    """Authorization servers as a fetch function sees them."""

    def __init__(self, **keys: Any) -> None:
        self.asked: list[HttpRequest] = []
        self.documents: dict[str, Any] = {}
        for name, key in keys.items():
            issuer = f"https://{name}.example.com"
            self.documents[f"{issuer}/.well-known/oauth-authorization-server"] = {
                "issuer": issuer,
                "jwks_uri": f"{issuer}/keys",
            }
            self.documents[f"{issuer}/keys"] = jwks(key)

    async def __call__(self, request: HttpRequest) -> HttpReply:
        self.asked.append(request)
        found = self.documents.get(request.url)
        return HttpReply(404 if found is None else 200, {}, json.dumps(found).encode(), request.url)


async def test_a_protected_server_in_three_lines() -> None:
    """C18."""
    auth = ProtectedResource(resource=RESOURCE, authorization_servers=[ISSUER])
    await auth.start(Issuers(login=KEY))
    principal = await auth.authenticate(bearer(token()))
    assert principal is not None
    assert principal.subject == "ann"
    assert principal.scopes == {"notes:read"}
    await auth.close()


async def test_a_token_is_known_by_its_header_until_it_expires_and_no_longer() -> None:
    now = time.time()
    authorizer = JwtAuthorizer(issuer=ISSUER, jwks=jwks(KEY), clock_skew=0, clock=lambda: now)
    auth = protected(authorizer=authorizer, clock=lambda: now)
    request = bearer(token())
    first = await auth.authenticate(request)
    assert await auth.authenticate(request) is first
    with pytest.raises(Refused):
        await auth.authenticate(bearer(token() + "x"))
    now += 61
    with pytest.raises(Refused):
        await auth.authenticate(request)


async def test_keys_that_cannot_be_had_keep_the_server_from_starting() -> None:
    """R166."""
    auth = ProtectedResource(resource=RESOURCE, authorization_servers=[ISSUER])
    with pytest.raises(ConfigError, match=re.escape(ISSUER)):
        await auth.start(Issuers())
    with pytest.raises(ConfigError, match="fetch"):
        await auth.start(None)


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": None},
        {"aud": "https://other.example.com/mcp"},
        {"aud": RESOURCE + "/"},
        {"aud": "https://MCP.example.com/mcp"},
        {"aud": "https://mcp.example.com:443/mcp"},
        {"aud": "https://mcp.example.com"},
        {"aud": []},
        {"aud": ["a", "b"]},
        {"iss": None},
        {"iss": ISSUER + "/"},
        {"iss": "https://evil.example.com"},
        {"exp": None},
        {"exp": 1000},
        {"nbf": 4_000_000_000},
        {"sub": 5},
    ],
    ids=repr,
)
async def test_a_claim_that_does_not_fit_is_refused(changes: dict[str, Any]) -> None:
    """C18."""
    auth = protected(authorizer=JwtAuthorizer(issuer=ISSUER, jwks=jwks(KEY)))
    found = await refusal(auth, bearer(token(**changes)))
    assert (found.status, found.code) == (401, "invalid_token")


@pytest.mark.parametrize(
    "forge",
    [
        lambda: token(ECKey.generate_key("P-256", {"kid": "one"})),
        lambda: token(ECKey.generate_key("P-256", {"kid": "two"})),
        lambda: token()[:-4] + "AAAA",
        lambda: b64({"alg": "none"}) + "." + token().split(".")[1] + ".",
        lambda: b64({"alg": "none"}) + "." + token().split(".")[1] + ".AAAA",
        lambda: "opaque",
    ],
    ids=["same kid", "other kid", "signature", "none", "none signed", "opaque"],
)
async def test_a_forged_token_is_refused(forge: Callable[[], str]) -> None:
    auth = protected(authorizer=JwtAuthorizer(issuer=ISSUER, jwks=jwks(KEY)))
    found = await refusal(auth, bearer(forge()))
    assert (found.status, found.code) == (401, "invalid_token")


def b64(value: Any) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


async def test_scopes_are_enforced_and_named() -> None:
    auth = protected(
        required_scopes=["mcp"],
        authorizer=JwtAuthorizer(issuer=ISSUER, jwks=jwks(KEY), required_scopes=["notes:write"]),
    )
    found = await refusal(auth, bearer(token()))
    assert found.status == 403
    assert (await challenge(auth, bearer(token())))["scope"] == "notes:write mcp"
    assert await auth.authenticate(bearer(token(scope="notes:write other"))) is not None


@pytest.mark.parametrize("is_resolver", [False, True], ids=["list", "resolver"])
async def test_required_scopes_are_enforced_by_the_usual_authorizer(is_resolver: bool) -> None:
    auth = ProtectedResource(
        resource=RESOURCE,
        authorization_servers=[ISSUER],
        required_scopes=(lambda request: ["notes:write"]) if is_resolver else ["notes:write"],
    )
    await auth.start(Issuers(login=KEY))
    found = await refusal(auth, bearer(token()))
    assert (found.status, found.scopes) == (403, ("notes:write",))
    assert await auth.authenticate(bearer(token(scope=["notes:write"]))) is not None


async def test_a_resolver_of_demanded_scopes_that_fails_lets_nobody_in() -> None:
    authorizer = JwtAuthorizer(issuer=ISSUER, jwks=jwks(KEY), required_scopes=raising(OSError()))
    assert (await refusal(protected(authorizer=authorizer), bearer(token()))).status == 500


async def test_an_audience_of_ones_own_is_exact_too() -> None:
    auth = protected(authorizer=JwtAuthorizer(issuer=ISSUER, audience=["api://notes", "other"], jwks=jwks(KEY)))
    assert await auth.authenticate(bearer(token(aud="api://notes"))) is not None
    assert (await refusal(auth, bearer(token()))).kind == "invalid_token"


RSA = RSAKey.generate_key(2048)


async def function_of_keys() -> dict[str, Any]:
    return jwks(KEY)


@pytest.mark.parametrize(
    "source",
    [
        jwks(RSA, KEY),
        KeySet([KEY]),
        KEY.as_dict(private=False),
        KEY.as_pem(private=False).decode(),
        KEY,
        function_of_keys,
    ],
    ids=["set", "KeySet", "JWK", "PEM", "key", "function"],
)
async def test_keys_come_in_many_forms(source: Any) -> None:
    auth = protected(authorizer=JwtAuthorizer(issuer=ISSUER, jwks=source))
    await auth.start(None)
    assert await auth.authenticate(bearer(token())) is not None
    assert (await refusal(auth, bearer(token(ECKey.generate_key("P-256", {"kid": "one"}))))).kind == "invalid_token"


async def test_keys_come_from_a_url() -> None:
    issuers = Issuers(login=KEY)
    auth = protected(authorizer=JwtAuthorizer(issuer="anything", jwks="https://login.example.com/keys"))
    await auth.start(issuers)
    assert await auth.authenticate(bearer(token(iss="anything"))) is not None
    assert [request.url for request in issuers.asked] == ["https://login.example.com/keys"]


async def test_a_key_of_one_issuer_verifies_nothing_of_another() -> None:
    other = ECKey.generate_key("P-256", {"kid": "one"})
    auth = ProtectedResource(
        resource=RESOURCE, authorization_servers=["https://login.example.com", "https://other.example.com"]
    )
    await auth.start(Issuers(login=KEY, other=other))
    assert await auth.authenticate(bearer(token())) is not None
    assert await auth.authenticate(bearer(token(other, iss="https://other.example.com"))) is not None
    for forged in (token(other), token(KEY, iss="https://other.example.com"), token(iss="https://third.example.com")):
        assert (await refusal(auth, bearer(forged))).kind == "invalid_token"
    for odd in ("opaque", "a.b.c", f"{b64({})}.{b64([1])}.AAAA", f"{b64({})}.{b64({'iss': 5})}.AAAA"):
        assert (await refusal(auth, bearer(odd))).kind == "invalid_token"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"issuer": []}, "issuer is missing"),
        ({"issuer": None}, "issuer must be a list"),
        ({"issuer": "http://login.example.com"}, "http://login.example.com"),
        ({"issuer": [ISSUER, "https://b.example"], "jwks": {"keys": []}}, "several issuers"),
        ({"issuer": ISSUER, "jwks": None}, "jwks is"),
        ({"issuer": ISSUER, "jwks": {"keys": []}}, "jwks"),
        ({"issuer": ISSUER, "jwks": "nonsense"}, "key"),
        ({"issuer": ISSUER, "algorithms": ["none"]}, "algorithms"),
        ({"issuer": ISSUER, "clock_skew": -1}, "clock_skew"),
        ({"issuer": ISSUER, "required_scopes": "read"}, "required_scopes"),
    ],
)
def test_a_jwt_authorizer_that_cannot_work_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        JwtAuthorizer(**options)


async def test_a_token_seen_before_is_not_verified_again(monkeypatch: pytest.MonkeyPatch) -> None:
    auth = protected(authorizer=JwtAuthorizer(issuer=ISSUER, jwks=jwks(KEY)))
    text = token()
    first = await auth.authenticate(bearer(text))
    monkeypatch.setattr("trimaran.auth.bearer.read_signed", raising(AssertionError("verified again")))
    assert await auth.authenticate(bearer(text)) is first


# --- bound tokens (RFC 9449, 7) ---------------------------------------------------------------------------------------

PROOFS = ProofKey.generate()
ALGS = "ES256 EdDSA"


def bound(**options: Any) -> ProtectedResource:
    dpop = DPoP(algorithms=ALGS.split(), **options.pop("dpop", {}))
    return protected(authorizer=JwtAuthorizer(issuer=ISSUER, jwks=jwks(KEY)), dpop=dpop, **options)


def bound_token(**changes: Any) -> str:
    return token(**{"cnf": {"jkt": PROOFS.thumbprint}, **changes})


def proved(
    text: str, *, key: ProofKey = PROOFS, jti: str = "one", nonce: str | None = None, target: str = RESOURCE, **how: Any
) -> Request:
    made = key.proof("POST", target, now=time.time(), jti=jti, access_token=text, nonce=nonce)
    return Request({"authorization": f"DPoP {text}", "dpop": made}, **how)


@pytest.mark.parametrize("required", [False, True])
async def test_a_bound_token_with_its_proof_is_good_once(required: bool) -> None:
    auth = bound(dpop={"required": required})
    text = bound_token()
    request = proved(text)
    principal = await auth.authenticate(request)
    assert principal is not None
    assert principal.subject == "ann"
    assert request.reply_headers == []
    found = await refusal(auth, request)
    [told] = parse_www_authenticate(dict(found.headers)["www-authenticate"])
    assert (found.status, told.scheme) == (401, "dpop")
    assert told.parameters["error"] == "invalid_dpop_proof"
    assert told.parameters["algs"] == ALGS
    assert told.parameters["resource_metadata"] == METADATA
    assert json.loads(found.body)["error"] == "invalid_dpop_proof"


async def test_our_clients_proof_scheme_may_be_in_any_case() -> None:
    request = proved(bound_token())
    request.headers["authorization"] = request.headers["authorization"].replace("DPoP", "dpop")
    assert await bound().authenticate(request) is not None


@pytest.mark.parametrize("with_dpop", [False, True])
@pytest.mark.parametrize(
    "cnf",
    [{"jkt": PROOFS.thumbprint}, {"jkt": 5}, {"x5t#S256": "abc"}, "odd"],
    ids=["a key", "a number", "a certificate", "text"],
)
async def test_a_bound_token_is_worth_nothing_as_a_bearer_token(with_dpop: bool, cnf: Any) -> None:
    """RFC 9449, 7.2: the downgrade."""
    auth = bound() if with_dpop else protected(authorizer=JwtAuthorizer(issuer=ISSUER, jwks=jwks(KEY)))
    text = token(cnf=cnf)
    request = Request({"authorization": f"Bearer {text}", "dpop": proved(text).headers["dpop"]})
    found = await refusal(auth, request)
    assert (found.status, found.code) == (401, "invalid_token")
    assert "bound to a key" in found.message


@pytest.mark.parametrize("claims", [{"cnf": None}, {"cnf": {}}, {"cnf": {"jkt": 5}}, {"cnf": "odd"}], ids=repr)
async def test_a_token_that_is_bound_to_nothing_is_no_bound_token(claims: dict[str, Any]) -> None:
    found = await refusal(bound(), proved(token(**claims)))
    assert (found.status, found.code) == (401, "invalid_token")


async def test_a_proof_by_a_swapped_key_is_refused() -> None:
    found = await refusal(bound(), proved(bound_token(), key=ProofKey.generate()))
    assert (found.status, found.code) == (401, "invalid_token")
    assert dict(found.headers)["www-authenticate"].startswith('DPoP error="invalid_token"')


async def test_a_proof_for_another_token_is_refused() -> None:
    one, two = bound_token(), bound_token(jti="another")
    request = proved(one)
    request.headers["authorization"] = f"DPoP {two}"
    assert (await refusal(bound(), request)).code == "invalid_dpop_proof"


@pytest.mark.parametrize(
    "changes", [{"aud": "https://other.example.com"}, {"exp": 1000}, {"iss": "https://evil.example"}]
)
async def test_a_proof_excuses_nothing_of_the_token(changes: dict[str, Any]) -> None:
    assert (await refusal(bound(), proved(bound_token(**changes)))).code == "invalid_token"


async def test_without_a_proof_a_bound_token_is_refused() -> None:
    found = await refusal(bound(), Request({"authorization": f"DPoP {bound_token()}"}))
    assert (found.status, found.code) == (401, "invalid_dpop_proof")


async def test_plain_tokens_are_taken_where_proofs_are_optional_and_both_schemes_are_offered() -> None:
    auth = bound()
    assert await auth.authenticate(bearer(token())) is not None
    found = await refusal(auth, Request())
    one, two = parse_www_authenticate(dict(found.headers)["www-authenticate"])
    assert (one.scheme, one.parameters) == ("bearer", {"resource_metadata": METADATA})
    assert (two.scheme, two.parameters) == ("dpop", {"algs": ALGS})


async def test_plain_tokens_are_refused_where_proofs_are_required() -> None:
    auth = bound(dpop={"required": True}, required_scopes=["read"])
    for request in (bearer(token()), bearer(bound_token())):
        found = await refusal(auth, request)
        [told] = parse_www_authenticate(dict(found.headers)["www-authenticate"])
        assert (found.status, told.scheme, told.parameters["error"]) == (401, "dpop", "invalid_token")
    found = await refusal(auth, Request())
    [told] = parse_www_authenticate(dict(found.headers)["www-authenticate"])
    assert told.parameters == {"scope": "read", "resource_metadata": METADATA, "algs": ALGS}


@pytest.mark.parametrize("value", ["DPoP", "DPoP ", "DPoP \t"])
async def test_a_blank_bound_token_is_missing(value: str) -> None:
    found = await refusal(bound(), Request({"authorization": value}))
    assert found.kind == "missing"


@pytest.mark.parametrize("value", ["DPoP a b", "DPoP a, DPoP b", "DPoP é", "DPoP " + "a" * 20_000])
async def test_a_malformed_bound_token_is_a_bad_request(value: str) -> None:
    assert (await refusal(bound(), Request({"authorization": value}))).status == 400


@pytest.mark.parametrize(
    ("target", "how"),
    [
        (RESOURCE, {"url": "http://10.0.0.7:9090/mcp"}),
        (RESOURCE, {"url": None}),
        ("https://other.example.com/mcp", {"public_url": "https://other.example.com/mcp"}),
        ("https://mcp.example.com/messages", {"url": None, "path": "/messages"}),
        (RESOURCE, {"url": "http://inside/", "path": "/"}),
        ("https://mcp.example.com/caf%C3%A9", {"url": None, "path": "/café"}),
    ],
    ids=["behind a proxy", "unknown", "as the operator says", "another route", "stripped path", "decoded path"],
)
async def test_a_proof_names_the_target_as_the_client_knows_it(target: str, how: dict[str, Any]) -> None:
    auth = bound(resource="https://mcp.example.com/mcp/") if how.get("path") == "/" else bound()
    text = bound_token(aud=auth.resource)
    target = auth.resource if how.get("path") == "/" else target
    assert await auth.authenticate(proved(text, target=target, **how)) is not None


@pytest.mark.parametrize(
    ("target", "how"),
    [
        ("https://evil.example.com/mcp", {}),
        ("https://evil.example.com/mcp", {"url": "https://evil.example.com/mcp"}),
        (RESOURCE, {"url": "https://mcp.example.com/messages", "path": "/messages"}),
        ("https://mcp.example.com/", {}),
    ],
)
async def test_a_proof_for_another_target_is_refused(target: str, how: dict[str, Any]) -> None:
    assert (await refusal(bound(), proved(bound_token(), target=target, **how))).code == "invalid_dpop_proof"


async def test_a_nonce_is_demanded_given_and_renewed() -> None:
    now = [float(int(time.time()) // 150 * 150)]
    auth = bound(dpop={"nonces": True, "window": 300, "clock": lambda: now[0]})
    text = bound_token()

    def ask(jti: str, nonce: str | None) -> Request:
        made = PROOFS.proof("POST", RESOURCE, now=now[0], jti=jti, access_token=text, nonce=nonce)
        return Request({"authorization": f"DPoP {text}", "dpop": made})

    found = await refusal(auth, ask("a", None))
    headers = dict(found.headers)
    assert (found.status, found.code) == (401, "use_dpop_nonce")
    assert headers["www-authenticate"].startswith('DPoP error="use_dpop_nonce"')
    nonce = headers["dpop-nonce"]
    assert re.fullmatch(r"[A-Za-z0-9_-]{16,}", nonce)

    request = ask("b", nonce)
    assert await auth.authenticate(request) is not None
    assert request.reply_headers == []

    now[0] += 150
    request = ask("c", nonce)
    assert await auth.authenticate(request) is not None
    [(name, renewed)] = request.reply_headers
    assert name == "dpop-nonce"
    assert renewed != nonce

    now[0] += 150
    found = await refusal(auth, ask("d", nonce))
    assert found.code == "use_dpop_nonce"
    assert dict(found.headers)["dpop-nonce"] not in (nonce, renewed)


async def test_who_comes_without_a_token_is_given_a_nonce_to_begin_with() -> None:
    assert "dpop-nonce" in dict((await refusal(bound(dpop={"nonces": True}), Request())).headers)
    assert "dpop-nonce" not in dict((await refusal(bound(), Request())).headers)


def test_a_step_up_speaks_the_scheme_that_was_used() -> None:
    auth = bound()
    assert auth.step_up(proved(bound_token()), ["notes:write"]).startswith('DPoP error="insufficient_scope"')
    [told] = parse_www_authenticate(auth.step_up(bearer(token()), ["notes:write"]))
    assert told.scheme == "bearer"


async def test_what_a_page_may_send_and_what_is_presented() -> None:
    assert protected().header_names == ()
    assert bound().header_names == ("DPoP",)
    assert bound().presents(proved("t"))
    assert not protected().presents(proved("t"))
    assert protected().presents(bearer("t"))
    assert not bound().presents(Request({"authorization": "Basic YTpi"}))


# --- what is kept -----------------------------------------------------------------------------------------------------


async def test_the_token_is_kept_only_for_an_exchange_and_never_shown() -> None:
    plain = await protected().authenticate(bearer("s3cret"))
    assert plain is not None
    assert not plain.metadata
    exchange = TokenExchange("https://login.example.com/token", "mcp", "secret")
    kept = await protected(exchange=exchange).authenticate(bearer("s3cret"))
    assert kept is not None
    assert kept.metadata["token"].reveal() == "s3cret"
    assert "s3cret" not in repr(kept)


async def test_an_authorizer_of_ones_own_is_started_and_closed() -> None:
    class Object:
        def __init__(self) -> None:
            self.calls: list[Any] = []

        def start(self, fetch: Any) -> None:
            self.calls.append(fetch)

        async def close(self) -> None:
            self.calls.append("closed")

        async def authorize(self, token: str, auth: Any, request: Any) -> Any: ...

    authorizer, fetch = Object(), Issuers()
    auth = protected(authorizer=authorizer)
    await auth.start(fetch)
    await auth.close()
    assert authorizer.calls == [fetch, "closed"]
    await protected().start(fetch)  # a function has nothing to start
    await protected().close()


# --- whatever comes ---------------------------------------------------------------------------------------------------


async def test_headers_of_any_kind_let_nobody_in_and_break_nothing() -> None:
    dice = random.Random(6750)
    auth = bound(dpop={"nonces": True})
    good = bound_token()
    alphabet = 'aZ9-._~+/=, ;"\\\t\x00\x7f\x80é\ud800{}'
    schemes = ["Bearer", "bearer", "DPoP", "dpop", "Basic", "", "Bearer Bearer", "Bearer,", "DPoP DPoP"]
    parts = [good, token(), *good.split("."), "", "a.b.c", hashlib.sha256(b"x").hexdigest()]
    for _ in range(2000):
        noise = "".join(dice.choices(alphabet, k=dice.randrange(6)))
        middle = ".".join(dice.choices(parts, k=dice.randrange(1, 4)))
        value = f"{dice.choice(schemes)}{dice.choice([' ', '  ', chr(9), ''])}{noise}{middle}{noise[::-1]}"
        headers = {"authorization": value, "dpop": dice.choice([noise, middle, "", good])}
        try:
            principal = await auth.authenticate(Request(headers))
        except Refused as refused:
            assert refused.status in (400, 401)
            assert all(char.isprintable() for _, sent in refused.headers for char in sent)
            assert good not in str(refused.headers) + refused.body.decode()
        else:
            # The one honest way in: the plain token, whole.
            assert principal is not None
            assert "cnf" not in principal.claims
