"""More than one way in, and none."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from trimaran.auth import Anonymous, AnyOf, ApiKey, Basic, Bearer, Custom, ProtectedResource, Provider, Refused
from trimaran.errors import ConfigError


@pytest.fixture
def bearer(mint: Any, clock: Any) -> Bearer:
    return Bearer(secret=mint.secret, clock=clock)


@pytest.fixture
def door(bearer: Bearer) -> AnyOf:
    return AnyOf(bearer, ApiKey({"k-1": {"subject": "bob"}}), Basic({"carl": "geheim"}))


CARL = "Basic " + base64.b64encode(b"carl:geheim").decode()


async def test_whoever_is_known_to_one_is_let_in(door: AnyOf, mint: Any, request_with: Any) -> None:
    for request, subject in (
        (request_with(f"Bearer {mint.token()}"), "ada"),
        (request_with(x_api_key="k-1"), "bob"),
        (request_with("ApiKey k-1"), "bob"),
        (request_with(CARL), "carl"),
        (request_with(CARL, x_api_key="wrong"), "carl"),
    ):
        found: Any = await door.authenticate(request)
        assert found.subject == subject
        assert door.presents(request)
    assert door.header_names == ("x-api-key",)


async def test_who_presents_nothing_is_challenged_to_all(door: AnyOf, request_with: Any) -> None:
    for request in (request_with(), request_with("Digest x")):
        with pytest.raises(Refused) as caught:
            await door.authenticate(request)
        assert caught.value.status == 401
        assert dict(caught.value.headers)["www-authenticate"] == (
            'Bearer realm="mcp", ApiKey header="X-API-Key", Basic realm="mcp", charset="UTF-8"'
        )


async def test_who_is_refused_hears_from_whoever_looked(door: AnyOf, request_with: Any, mint: Any) -> None:
    with pytest.raises(Refused) as caught:
        await door.authenticate(request_with(x_api_key="wrong"))
    assert caught.value.kind == "invalid_credentials"
    assert caught.value.challenges == ('ApiKey header="X-API-Key"',)
    with pytest.raises(Refused) as caught:
        await door.authenticate(request_with(f"Bearer {mint.token(exp=0)}", x_api_key="wrong"))
    assert caught.value.kind == "expired_token"


async def test_a_refusal_is_logged_once(door: AnyOf, request_with: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "trimaran.auth")
    with pytest.raises(Refused):
        await door.authenticate(request_with(x_api_key="wrong"))
    assert caplog.messages == ["refused: invalid_credentials (an unknown key)"]


async def test_a_flood_of_refusals_does_not_fill_the_log(
    door: AnyOf, request_with: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "trimaran.auth")
    for number in range(500):
        with pytest.raises(Refused):
            await door.authenticate(request_with(x_api_key=f"wrong{number}"))
    assert 1 <= len(caplog.messages) <= 10
    assert "counted only" in caplog.messages[-1]


class Fixed(Provider):
    """Says what it was told to."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def presents(self, request: Any) -> bool:
        return True

    def challenge(self, refusal: Refused) -> str:
        return f"Fixed {self.kind}"

    async def identify(self, request: Any) -> Any:
        raise Refused(self.kind)


@pytest.mark.parametrize(
    ("kinds", "heard"),
    [
        (("invalid_token", "server_error"), "server_error"),
        (("insufficient_scope", "invalid_token"), "insufficient_scope"),
        (("invalid_token", "insufficient_scope"), "insufficient_scope"),
        (("invalid_request", "expired_token"), "expired_token"),
        (("missing", "invalid_credentials"), "missing"),
        (("invalid_token", "rate_limited", "server_error"), "rate_limited"),
    ],
)
async def test_when_all_refuse_the_most_telling_is_heard(kinds: Any, heard: str, request_with: Any) -> None:
    """That one of them cannot tell is not the same as that all have said no."""
    with pytest.raises(Refused) as caught:
        await AnyOf(*map(Fixed, kinds)).authenticate(request_with())
    assert caught.value.kind == heard
    assert caught.value.challenges == (f"Fixed {heard}",)


async def test_two_of_a_kind_are_tried_in_turn(mint: Any, clock: Any, request_with: Any) -> None:
    door = AnyOf(Bearer(key=mint.jwk("ES256"), clock=clock), Bearer(secret=mint.secret, clock=clock))
    for alg in ("ES256", "HS256"):
        assert await door.authenticate(request_with(f"Bearer {mint.token(alg)}"))
    with pytest.raises(Refused):
        await door.authenticate(request_with(f"Bearer {mint.token('RS256')}"))


async def test_scopes_are_demanded_of_all(bearer: Bearer, request_with: Any) -> None:
    """R154."""
    door = AnyOf(bearer, ApiKey({"k-1": {"scopes": ["read"]}, "k-2": {}}), Anonymous(), required_scopes=["read"])
    assert await door.authenticate(request_with(x_api_key="k-1"))
    with pytest.raises(Refused) as caught:
        await door.authenticate(request_with(x_api_key="k-2"))
    assert caught.value.status == 403
    # Nobody has no scopes, and is told how to become somebody.
    with pytest.raises(Refused) as caught:
        await door.authenticate(request_with())
    assert (caught.value.status, len(caught.value.challenges)) == (401, 1)


async def test_all_of_them_are_started_and_closed(bearer: Bearer) -> None:
    """R166: one that fails keeps the server from starting."""
    seen: list[Any] = []

    class Watched(Fixed):
        async def start(self, fetch: Any = None) -> None:
            seen.append(fetch)
            if self.kind == "missing":
                raise LookupError("no database")

        async def close(self) -> None:
            seen.append("closed")

        def documents(self) -> Any:
            return {f"/{self.kind}": len}

    async def fetch(request: Any) -> Any:
        raise AssertionError

    door = AnyOf(Watched("invalid_token"), Watched("server_error"))
    await door.start(fetch)
    await door.close()
    assert seen == [fetch, fetch, "closed", "closed"]
    assert list(door.documents()) == ["/invalid_token", "/server_error"]
    with pytest.raises(LookupError):
        await AnyOf(bearer, Watched("missing")).start()


async def test_the_documents_and_the_step_up_of_one_are_those_of_all(request_with: Any) -> None:
    resource = ProtectedResource(
        resource="https://mcp.example.com/mcp", authorization_servers=["https://as.example.com"], authorizer=_anyone
    )
    door = AnyOf(ApiKey(["k" * 32]), resource)
    request = request_with()
    request.method, request.path = "GET", "/.well-known/oauth-protected-resource/mcp"
    document = door.document(request)
    assert document is not None
    status, _, body = document
    assert (status, b"https://as.example.com" in body) == (200, True)
    assert door.step_up is not None
    assert 'scope="write"' in door.step_up(request, ["write"])
    request.path = "/other"
    assert door.document(request) is None
    assert AnyOf(ApiKey(["k" * 32]), Anonymous()).step_up is None


async def _anyone(token: str, auth: Any, request: Any) -> dict[str, Any]:
    return {"sub": "ada"}


@pytest.mark.parametrize("given", [(), ("bearer",), (None, None), ({"provider": "bearer"}, 7)])
def test_what_is_not_two_providers_is_refused(given: Any) -> None:
    with pytest.raises(ConfigError, match="two providers or more"):
        AnyOf(*given)


# --- nobody ----------------------------------------------------------------------------------------------------------


async def test_anonymous_lets_everyone_in_as_nobody(request_with: Any) -> None:
    """R153, R165."""
    provider = Anonymous()
    await provider.start()
    for request in (request_with(), request_with("Bearer x"), request_with(x_api_key="k")):
        assert await provider.authenticate(request) is None
        assert not provider.presents(request)
    await provider.close()
    assert provider.documents() == {}


async def test_beside_others_anonymous_is_for_who_presents_nothing(
    bearer: Bearer, request_with: Any, mint: Any
) -> None:
    for door in (
        AnyOf(bearer, Anonymous()),
        AnyOf(Anonymous(), bearer),
        AnyOf(Custom(print), AnyOf(Anonymous(), bearer)),
    ):
        assert await door.authenticate(request_with()) is None
        assert await door.authenticate(request_with("Digest x")) is None
    door = AnyOf(Anonymous(), bearer)
    found: Any = await door.authenticate(request_with(f"Bearer {mint.token()}"))
    assert found.subject == "ada"
    with pytest.raises(Refused):
        await door.authenticate(request_with("Bearer forged"))
