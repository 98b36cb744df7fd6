"""Claims as a principal: what is read, what is not believed, and that nobody can change it."""

from __future__ import annotations

import copy
import math
import pickle
from typing import Any

import msgspec
import pytest

from trimaran.auth import Bearer, Principal
from trimaran.auth.principal import has_scopes, read_time
from trimaran.auth.provider import principal_from_info


def test_a_jwt_or_an_introspection_reply_becomes_a_principal() -> None:
    """R154, R178."""
    claims = {
        "sub": "ada",
        "iss": "https://issuer.example",
        "aud": ["a", "b"],
        "scope": "read write",
        "exp": 1000,
        "client_id": "app",
        "tenant": {"id": 7},
    }
    found = Principal.from_claims(claims)
    assert found.subject == "ada"
    assert found.issuer == "https://issuer.example"
    assert found.audience == ("a", "b")
    assert found.scopes == {"read", "write"}
    assert found.expires_at == 1000.0
    assert found.client_id == "app"
    assert found.claims == claims
    assert found.metadata == {}


@pytest.mark.parametrize(
    ("claims", "scopes"),
    [
        ({"scope": "a b"}, {"a", "b"}),
        ({"scope": ["a", "b"]}, {"a", "b"}),
        ({"scp": ["a"]}, {"a"}),
        ({"scp": "a b"}, {"a", "b"}),
        ({"scopes": ["a"]}, {"a"}),
        ({"scope": "a b", "scp": ["b", "c"]}, {"a", "b", "c"}),
        ({"scope": ["a"], "scp": "b c"}, {"a", "b", "c"}),
        ({"scope": "a", "scp": "b"}, {"a", "b"}),
        ({"scope": "", "scp": ["a"]}, {"a"}),
        ({"scope": "a", "scopes": ["b"]}, {"a"}),
        ({"scope": "  a   b "}, {"a", "b"}),
        ({}, set()),
    ],
)
def test_scopes_are_found_under_their_usual_names(claims: Any, scopes: set[str]) -> None:
    """R155, R178."""
    assert Principal.from_claims(claims).scopes == scopes


@pytest.mark.parametrize("blank", ["\u00a0", "\u2003", "\u2028", "\x1c", "\x85", "\t", "\n", "\u3000"])
def test_only_a_space_parts_two_scopes(blank: str) -> None:
    """RFC 6749, 3.3: an issuer that grants the one odd scope `x<blank>admin` has not granted `admin`."""
    assert Principal.from_claims({"scope": f"x{blank}admin"}).scopes == {f"x{blank}admin"}


def test_another_claim_may_hold_the_scopes_and_then_no_other_does() -> None:
    """R155: scope_claim."""
    claims = {"scope": "admin", "perms": ["read"]}
    assert Principal.from_claims(claims, scope_claim="perms").scopes == {"read"}
    assert Principal.from_claims({"scope": "admin"}, scope_claim="perms").scopes == frozenset()


@pytest.mark.parametrize(
    "claims",
    [
        {"sub": 7},
        {"sub": ["ada"]},
        {"sub": {"name": "ada"}},
        {"iss": ["https://issuer.example"]},
        {"iss": True},
        {"aud": 7},
        {"aud": {"a": 1}},
        {"aud": ["a", 7]},
        {"aud": ["a", None]},
        {"aud": ["a", ["b"]]},
        {"client_id": 1},
        {"azp": []},
        {"scope": 7},
        {"scope": ["a", 1]},
        {"scope": {"admin": True}},
        {"exp": "1000"},
        {"exp": True},
        {"exp": [1000]},
        {"exp": {}},
        {"exp": math.nan},
        {"exp": math.inf},
        {"exp": -math.inf},
        {"exp": 10**400},
        {"exp": 1e300},
        {"exp": 1_800_000_000_000},
    ],
)
def test_a_claim_of_the_wrong_type_makes_no_principal(claims: Any) -> None:
    with pytest.raises(ValueError, match="the claim"):
        Principal.from_claims(claims)


def test_a_time_in_milliseconds_is_not_a_time() -> None:
    """It would be good for fifty thousand years."""
    assert read_time({"exp": 253_402_300_799}, "exp") == 253_402_300_799.0
    with pytest.raises(ValueError, match="not a time in seconds"):
        read_time({"exp": 253_402_300_800}, "exp")


def test_azp_stands_in_for_the_client() -> None:
    """R178."""
    assert Principal.from_claims({"azp": "app"}).client_id == "app"
    assert Principal.from_claims({"azp": "app", "client_id": "other"}).client_id == "other"


def test_nobody_is_granted_nothing() -> None:
    """R179."""
    ada = Principal(subject="ada", scopes=frozenset({"read", "write"}))
    assert ada.has_scope("read")
    assert not ada.has_scope("admin")
    assert ada.has_scopes(["read", "write"])
    assert not ada.has_scopes(["read", "admin"])
    assert has_scopes(ada, ["read"])
    assert not has_scopes(None, ["read"])
    assert not has_scopes(None, [])


@pytest.mark.parametrize(
    ("audience", "resource", "covered"),
    [
        ("https://api.example", "https://api.example/mcp", True),
        ("https://api.example/", "https://api.example/mcp", True),
        ("https://api.example/mcp", "https://api.example/mcp", True),
        ("https://api.example/mcp", "https://api.example/mcp/", True),
        ("https://api.example:443/mcp", "https://api.example/mcp/deep", True),
        ("https://API.example/mcp", "https://api.example/mcp", True),
        ("https://api.example/mcp?t=1", "https://api.example/mcp?t=1", True),
        ("https://api.example/mcp", "https://api.example/mcp?t=1", True),
        ("https://api.example/mcp?t=1", "https://api.example/mcp", False),
        ("https://api.example/mcp?t=1", "https://api.example/mcp?t=2", False),
        ("https://api.example/mcp", "https://api.example", False),
        ("https://api.example/mc", "https://api.example/mcp", False),
        ("https://api.example/mcp", "https://api.example/mcp/../admin", False),
        ("https://api.example/mcp", "https://api.example/mcp/%2e%2E/admin", False),
        ("https://api.example/mcp", "https://api.example/other", False),
        ("http://api.example/mcp", "https://api.example/mcp", False),
        ("https://api.example:8443/mcp", "https://api.example/mcp", False),
        ("https://other.example/mcp", "https://api.example/mcp", False),
        ("https://api.example@evil.example/", "https://evil.example/", False),
        ("https://api.example#x", "https://api.example/", False),
        ("https://api.example:x/", "https://api.example/", False),
        ("https://api\n.example/", "https://api.example/", False),
        ("https://evil.example\\@api.example/", "https://api.example/", False),
        ("api.example", "https://api.example/", False),
        ("", "https://api.example/", False),
    ],
)
def test_a_resource_is_covered_by_its_own_origin_and_a_path_above_it(
    audience: str, resource: str, covered: bool
) -> None:
    """R179."""
    assert Principal(audience=("urn:other", audience)).covers_resource(resource) is covered


def test_identity_tells_apart_whoever_differs_in_issuer_or_subject() -> None:
    pairs = [("a", "b"), ("ab", ""), ("", "ab"), (None, "ab:"), ("a", ":b"), ("a:", "b"), ("1:a", "b"), (None, "1:a:b")]
    found = {Principal(issuer=issuer, subject=subject).identity for issuer, subject in pairs}
    assert len(found) == len({(issuer or "", subject) for issuer, subject in pairs})
    assert Principal(subject="x").identity == Principal(subject="x", scopes=frozenset({"a"})).identity


def test_claims_cannot_be_changed_and_still_go_where_a_dict_goes() -> None:
    """One principal serves many requests: a handler must not write into the next one's."""
    claims: dict[str, Any] = {"sub": "ada", "roles": ["x"]}
    found: Any = Principal.from_claims(claims)
    for change in (
        lambda: found.claims.update(sub="eve"),
        lambda: found.claims.__setitem__("sub", "eve"),
        lambda: found.claims.pop("sub"),
        lambda: found.claims.clear(),
        lambda: found.claims.setdefault("a", 1),
        lambda: found.claims.popitem(),
        lambda: found.claims.__delitem__("sub"),
        lambda: found.claims.__ior__({"sub": "eve"}),
        lambda: Principal().metadata.__setitem__("a", 1),  # pyright: ignore[reportAttributeAccessIssue]
    ):
        with pytest.raises(TypeError, match="cannot be changed"):
            change()
    with pytest.raises(AttributeError):
        found.subject = "eve"
    claims["sub"] = "eve"
    assert found.claims == {"sub": "ada", "roles": ["x"]}
    assert msgspec.json.decode(msgspec.json.encode(found))["claims"] == found.claims
    assert copy.deepcopy(found) == found
    assert pickle.loads(pickle.dumps(found)) == found


@pytest.mark.parametrize(
    "said",
    [
        Principal(subject="ada", scopes=frozenset({"read"}), claims={"scp": ["admin"]}),
        {"sub": "ada", "scopes": ["read"], "scp": ["admin"]},
    ],
    ids=["principal", "mapping"],
)
async def test_what_an_author_says_of_scopes_stands_in_place_of_the_tokens(said: Any) -> None:
    """R178: whoever narrows the scopes of a token down must not find them widened by its other claim."""
    found = await Bearer(verifier=lambda token: said).verify("t")
    assert found.scopes == {"read"}
    other = principal_from_info({"subject": "ada", "scopes": ["read"], "claims": {"scp": ["admin"]}}, None)
    assert other.scopes == {"read"}
    assert principal_from_info({"sub": "ada", "scope": "read", "scp": ["write"]}, None).scopes == {"read", "write"}
