"""The authorization request and its answer (protocol.md 4.1, points 5, 9 and 10)."""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from trimaran.errors import AuthorizationFailed
from trimaran.oauth.authorization import build_authorization_url, code_challenge, gen_code_verifier, read_callback
from trimaran.oauth.metadata import ServerMetadata

ISSUER = "https://as.example.com"
BACK = "http://127.0.0.1:4000/callback"


def server(**changes: Any) -> ServerMetadata:
    return ServerMetadata(issuer=ISSUER, authorization_endpoint=f"{ISSUER}/authorize", **changes)


def test_a_verifier_is_long_and_of_the_right_letters() -> None:
    made = {gen_code_verifier() for _ in range(20)}
    assert len(made) == 20
    assert all(len(one) == 43 and one.replace("-", "a").replace("_", "a").isalnum() for one in made)


def test_the_challenge_is_the_digest_of_the_verifier() -> None:
    digest = hashlib.sha256(b"abc").digest()
    assert code_challenge("abc") == urlsafe_b64encode(digest).rstrip(b"=").decode()


def test_the_url_carries_everything_the_protocol_asks_for() -> None:
    url, verifier, state = build_authorization_url(
        f"{ISSUER}/authorize?tenant=1",
        client_id="c",
        redirect_uri=BACK,
        resource="https://mcp.example.com/mcp",
        scopes=["a", "b:c"],
    )
    query = parse_qs(urlsplit(url).query)
    assert query == {
        "tenant": ["1"],
        "response_type": ["code"],
        "client_id": ["c"],
        "redirect_uri": [BACK],
        "state": [state],
        "code_challenge": [code_challenge(verifier)],
        "code_challenge_method": ["S256"],
        "resource": ["https://mcp.example.com/mcp"],
        "scope": ["a b:c"],
    }


def test_no_scopes_means_no_scope_parameter() -> None:
    """protocol.md 4.1, point 8: omitted when undefined."""
    url, _, _ = build_authorization_url(f"{ISSUER}/authorize", client_id="c", redirect_uri=BACK)
    assert "scope" not in parse_qs(urlsplit(url).query)


@pytest.mark.parametrize(
    ("announced", "iss", "accepted"),
    [
        (True, ISSUER, True),
        (True, None, False),
        (True, ISSUER + "/", False),
        (True, "https://AS.example.com", False),
        (True, "https://as.example.com:443", False),
        (True, "", False),
        (False, ISSUER, True),
        (False, "https://evil.example.com", False),
        (False, ISSUER + "/", False),
        (False, None, True),
    ],
)
def test_who_answered_is_compared_to_the_byte(announced: bool, iss: str | None, accepted: bool) -> None:
    """protocol.md 4.1, point 10: the whole table."""
    callback = f"{BACK}?code=abc&state=s" + (f"&iss={iss}" if iss is not None else "")
    metadata = server(authorization_response_iss_parameter_supported=announced)
    if accepted:
        assert read_callback(callback, state="s", metadata=metadata) == "abc"
    else:
        with pytest.raises(AuthorizationFailed, match="not trusted"):
            read_callback(callback, state="s", metadata=metadata)


def test_an_error_from_somebody_else_is_not_even_read() -> None:
    """protocol.md 4.1, point 10: on mismatch ignore code and error."""
    callback = f"{BACK}?error=access_denied&error_description=call+555&state=s&iss=https://evil.example"
    with pytest.raises(AuthorizationFailed) as caught:
        read_callback(callback, state="s", metadata=server())
    assert caught.value.code is None
    assert "555" not in str(caught.value)


@pytest.mark.parametrize("state", ["", "&state=", "&state=other", "&state=S"])
def test_another_state_is_refused(state: str) -> None:
    with pytest.raises(AuthorizationFailed, match="another state"):
        read_callback(f"{BACK}?code=abc{state}", state="s", metadata=server())


@pytest.mark.parametrize("twice", ["state=s&state=s", "state=s&code=x", "state=s&iss=a&iss=b"])
def test_a_parameter_given_twice_is_refused(twice: str) -> None:
    with pytest.raises(AuthorizationFailed, match="more than once"):
        read_callback(f"{BACK}?code=abc&{twice}", state="s", metadata=server())


def test_a_refusal_is_told_in_one_clean_line() -> None:
    callback = f"{BACK}?error=access_denied&error_description=no%0D%0Away%1B%5B31m{'x' * 3000}&state=s"
    with pytest.raises(AuthorizationFailed) as caught:
        read_callback(callback, state="s", metadata=server())
    assert caught.value.code == "access_denied"
    assert caught.value.step == "login"
    text = str(caught.value)
    assert "no way [31mxxx" in text
    assert text.isprintable()
    assert len(text) < 700


@pytest.mark.parametrize("query", ["state=s", "state=s&code="])
def test_neither_code_nor_error_is_refused(query: str) -> None:
    with pytest.raises(AuthorizationFailed, match="neither a code nor an error"):
        read_callback(f"{BACK}?{query}", state="s", metadata=server())


def test_a_flood_of_parameters_is_refused() -> None:
    with pytest.raises(AuthorizationFailed, match="cannot be read"):
        read_callback(f"{BACK}?{'a=1&' * 500}state=s", state="s", metadata=server())
