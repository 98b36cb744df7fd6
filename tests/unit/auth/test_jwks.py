"""Key sets from an issuer: read at the start, kept fresh behind the callers' backs, and never trusted further than said."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import pytest
from joserfc.jwk import ECKey
from tests.support.until import PATIENCE, soon

from trimaran.auth import Bearer, Refused
from trimaran.auth.jwks import KEEP_SECONDS, REFETCH_SECONDS, RETRY_SECONDS, STALE_SECONDS
from trimaran.errors import AuthorizationFailed, ConfigError, UnsafeUrl
from trimaran.oauth.effects import HttpReply, HttpRequest

URL = "https://issuer.example/jwks.json"
ISSUER = "https://issuer.example"


class Issuer:
    """A fetch function over documents by URL; it can fail, and it can wait."""

    def __init__(self, documents: dict[str, Any]) -> None:
        self.documents = documents
        self.asked: list[HttpRequest] = []
        self.failure: Exception | None = None
        self.status: int | None = None
        self.gate: asyncio.Event | None = None

    async def __call__(self, request: HttpRequest) -> HttpReply:
        self.asked.append(request)
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        if self.status is not None:
            return HttpReply(self.status, {}, b"busy")
        found = self.documents.get(request.url)
        if found is None:
            return HttpReply(404, {}, b"<html>")
        return HttpReply(200, {}, found if isinstance(found, bytes) else json.dumps(found).encode())

    @property
    def urls(self) -> list[str]:
        return [request.url for request in self.asked]


@pytest.fixture
def issuer(mint: Any) -> Issuer:
    return Issuer({URL: {"keys": [mint.jwk("ES256", kid="k1")]}})


@pytest.fixture
def bearer(clock: Any) -> Callable[..., Bearer]:
    def make(**options: Any) -> Bearer:
        given = {"jwks": URL, "issuer": ISSUER, "audience": "https://api.example", "remember": 0, **options}
        return Bearer(clock=clock, **given)

    return make


@pytest.fixture
def enter(request_with: Any) -> Any:
    async def authenticate(provider: Bearer, token: str) -> str | None:
        found = await provider.authenticate(request_with(f"Bearer {token}"))
        assert found is not None
        return found.subject

    return authenticate


@pytest.fixture
def token(mint: Any, clock: Any) -> Callable[..., str]:
    def make(kid: str | None = "k1", alg: str = "ES256", **changes: Any) -> str:
        changes = {"exp": clock.now + 1000, **changes}
        return mint.token(alg, header={} if kid is None else {"kid": kid}, **changes)

    return make


async def settle() -> None:
    """Let what was begun behind our back run as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_keys_are_read_at_the_start_and_not_again(issuer: Issuer, bearer: Any, enter: Any, token: Any) -> None:
    provider = bearer()
    await provider.start(issuer)
    assert await enter(provider, token()) == "ada"
    assert await enter(provider, token(kid=None)) == "ada"
    assert issuer.urls == [URL]
    asked = issuer.asked[0]
    # The operator named this URL, so it may be where the operator says.
    assert (asked.method, asked.server_url, asked.step) == ("GET", URL, "signing keys")


async def test_an_issuer_that_cannot_be_read_keeps_the_server_from_starting(issuer: Issuer, bearer: Any) -> None:
    """R166."""
    issuer.documents.clear()
    with pytest.raises(ConfigError, match=r"jwks\.json answered 404; a JWK Set was expected"):
        await bearer().start(issuer)
    for document, said in ((b"<html>", "no JSON object"), (b"[]", "no JSON object"), ({"keys": []}, "no key")):
        issuer.documents[URL] = document
        with pytest.raises(ConfigError, match=said):
            await bearer().start(issuer)
    issuer.failure = UnsafeUrl("inside", step="signing keys", url=URL)
    with pytest.raises(UnsafeUrl):
        await bearer().start(issuer)


@pytest.mark.parametrize("options", [{}, {"jwks": "discover"}])
@pytest.mark.parametrize("absence", ["no connection", "busy", "silence"])
async def test_an_issuer_that_is_away_at_the_start_stops_nobody(
    issuer: Issuer,
    bearer: Any,
    enter: Any,
    token: Any,
    clock: Any,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    options: Any,
    absence: str,
) -> None:
    """It stopped the server, after up to 20 seconds."""
    monkeypatch.setattr("trimaran.auth.jwks.START_SECONDS", 0.01)
    issuer.documents[OAUTH] = {"issuer": ISSUER, "jwks_uri": URL}
    if absence == "silence":
        issuer.gate = asyncio.Event()
    elif absence == "busy":
        issuer.status = 503
    else:
        issuer.failure = AuthorizationFailed("nobody listens", step="signing keys", url=URL)
    provider = bearer(**options)
    await provider.start(issuer)
    assert "the signing keys cannot be read yet; tokens are refused with 503 until they can: " in caplog.text
    with pytest.raises(Refused) as caught:
        await enter(provider, token())
    assert (caught.value.status, dict(caught.value.headers)["retry-after"]) == (503, "5")
    issuer.gate, issuer.status, issuer.failure = None, None, None
    clock.now += RETRY_SECONDS
    assert await enter(provider, token()) == "ada"


@pytest.mark.parametrize("options", [{}, {"jwks": "discover"}])
async def test_without_a_network_there_is_a_clear_word(bearer: Any, options: Any) -> None:
    with pytest.raises(ConfigError, match="async function"):
        await bearer(**options).start()


async def test_a_provider_that_was_never_started_cannot_judge(bearer: Any, enter: Any, token: Any) -> None:
    with pytest.raises(Refused) as caught:
        await enter(bearer(), token())
    assert caught.value.status == 500


async def test_an_async_function_may_get_the_keys(bearer: Any, enter: Any, token: Any, mint: Any) -> None:
    async def get() -> Any:
        return {"keys": [mint.jwk("ES256", kid="k1")]}

    provider = bearer(jwks=get)
    await provider.start()
    assert await enter(provider, token()) == "ada"


# --- rotation --------------------------------------------------------------------------------------------------------


async def test_an_unknown_kid_reads_the_keys_anew(
    issuer: Issuer, bearer: Any, enter: Any, token: Any, mint: Any, clock: Any
) -> None:
    provider = bearer()
    await provider.start(issuer)
    issuer.documents[URL] = {"keys": [mint.jwk("EdDSA", kid="k2")]}
    clock.now += REFETCH_SECONDS
    assert await enter(provider, token("k2", "EdDSA")) == "ada"
    assert len(issuer.asked) == 2
    # What the issuer has withdrawn is gone.
    with pytest.raises(Refused) as caught:
        await enter(provider, token("k1"))
    assert caught.value.kind == "invalid_token"


async def test_forged_kids_cannot_make_us_ask_more_than_now_and_then(
    issuer: Issuer, bearer: Any, enter: Any, token: Any, clock: Any
) -> None:
    provider = bearer()
    await provider.start(issuer)
    for number in range(120):
        with pytest.raises(Refused) as caught:
            await enter(provider, token(f"forged-{number}"))
        assert caught.value.kind == "invalid_token"
        clock.now += 1
    assert len(issuer.asked) == 1 + 120 // 30 - 1 + (120 % 30 > 0)
    assert await enter(provider, token()) == "ada"


async def test_many_callers_wait_for_one_reading(
    issuer: Issuer, bearer: Any, enter: Any, token: Any, mint: Any, clock: Any
) -> None:
    provider = bearer()
    await provider.start(issuer)
    clock.now += REFETCH_SECONDS
    issuer.documents[URL] = {"keys": [mint.jwk("ES256", kid="k2")]}
    issuer.gate = asyncio.Event()
    callers = [asyncio.create_task(enter(provider, token("k2"))) for _ in range(50)]
    await settle()
    assert len(issuer.asked) == 2
    # Who goes does not end it for the others, even if it was the one who began.
    callers[0].cancel()
    await settle()
    issuer.gate.set()
    found = await soon(asyncio.gather(*callers, return_exceptions=True))
    assert isinstance(found[0], asyncio.CancelledError)
    assert found[1:] == ["ada"] * 49
    assert len(issuer.asked) == 2


async def test_an_old_set_is_read_anew_without_making_anyone_wait(
    issuer: Issuer, bearer: Any, enter: Any, token: Any, mint: Any, clock: Any
) -> None:
    provider = bearer()
    await provider.start(issuer)
    clock.now += STALE_SECONDS - 1
    await enter(provider, token())
    await settle()
    assert len(issuer.asked) == 1
    clock.now += 1
    issuer.gate = asyncio.Event()
    issuer.documents[URL] = {"keys": [mint.jwk("RS256", kid="k2")]}
    for _ in range(3):
        assert await enter(provider, token()) == "ada"  # though the issuer has not answered
    await settle()
    assert len(issuer.asked) == 2
    issuer.gate.set()
    await settle()
    assert await enter(provider, token("k2", "RS256")) == "ada"
    assert len(issuer.asked) == 2
    with pytest.raises(Refused):
        await enter(provider, token("k1"))


async def test_when_the_issuer_is_down_the_keys_there_were_stay_good_for_a_day(
    issuer: Issuer, bearer: Any, enter: Any, token: Any, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    provider = bearer()
    await provider.start(issuer)
    begin = clock.now
    issuer.failure = RuntimeError("with a secret in it")
    while clock.now + 600 < begin + KEEP_SECONDS:
        clock.now += 600
        assert await enter(provider, token()) == "ada"
        await settle()
    assert "could not be read: RuntimeError" in caplog.text
    assert "with a secret" not in caplog.text
    clock.now = begin + KEEP_SECONDS
    with pytest.raises(Refused) as caught:
        await enter(provider, token())
    assert caught.value.kind == "server_error"
    issuer.failure = AuthorizationFailed("no connection", step="signing keys")
    clock.now += REFETCH_SECONDS
    with pytest.raises(Refused) as caught:
        await enter(provider, token())
    assert (caught.value.status, dict(caught.value.headers)["retry-after"]) == (503, "5")
    # And when it is back, so are we.
    issuer.failure = None
    clock.now += REFETCH_SECONDS
    assert await enter(provider, token()) == "ada"


async def test_a_set_that_became_unreadable_does_not_replace_the_one_there_was(
    issuer: Issuer, bearer: Any, enter: Any, token: Any, clock: Any, caplog: pytest.LogCaptureFixture
) -> None:
    provider = bearer()
    await provider.start(issuer)
    for document in (b"<html>", {"keys": []}, {"keys": [{"kty": "oct", "k": "AAAA"}]}, b"[" * 100_000):
        issuer.documents[URL] = document
        clock.now += STALE_SECONDS
        assert await enter(provider, token()) == "ada"
        await settle()
    assert len(issuer.asked) == 5
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 4


async def test_a_clock_set_back_is_no_reason_to_forget_the_keys(
    issuer: Issuer, bearer: Any, enter: Any, token: Any, clock: Any
) -> None:
    provider = bearer()
    await provider.start(issuer)
    clock.now -= 100_000
    issuer.failure = RuntimeError()
    assert await enter(provider, token()) == "ada"
    await settle()
    assert len(issuer.asked) == 2


async def test_closing_ends_a_reading_under_way(
    issuer: Issuer, bearer: Any, enter: Any, token: Any, clock: Any
) -> None:
    provider = bearer()
    await provider.start(issuer)
    clock.now += STALE_SECONDS
    issuer.gate = asyncio.Event()
    await enter(provider, token())
    await settle()
    async with asyncio.timeout(PATIENCE):
        await provider.close()
        await provider.close()
    issuer.gate = None
    await provider.start(issuer)
    assert await enter(provider, token()) == "ada"


def test_a_provider_outlives_the_loop_it_was_started_in(
    issuer: Issuer, bearer: Any, enter: Any, token: Any, clock: Any
) -> None:
    provider = bearer()

    async def first() -> None:
        await provider.start(issuer)
        clock.now += STALE_SECONDS
        issuer.gate = asyncio.Event()
        await enter(provider, token())
        await settle()

    async def second() -> None:
        issuer.gate = None
        clock.now += REFETCH_SECONDS
        assert await enter(provider, token()) == "ada"
        await settle()

    asyncio.run(first())
    asyncio.run(second())
    assert len(issuer.asked) == 3


async def test_a_shared_secret_in_a_set_signs_nothing(
    issuer: Issuer, bearer: Any, enter: Any, mint: Any, token: Any
) -> None:
    """A key set is public: whoever reads it could sign with what is in it."""
    issuer.documents[URL]["keys"].append({"kty": "oct", "kid": "s1", "k": mint.keys["HS256"].as_dict()["k"]})
    provider = bearer()
    await provider.start(issuer)
    with pytest.raises(Refused):
        await enter(provider, token("s1", "HS256"))


async def test_keys_without_kid_serve_tokens_with_one_and_nobody_waits(
    issuer: Issuer, bearer: Any, enter: Any, token: Any, mint: Any, clock: Any
) -> None:
    issuer.documents[URL] = {"keys": [mint.jwk("ES256")]}
    provider = bearer()
    await provider.start(issuer)
    clock.now += REFETCH_SECONDS
    issuer.gate = asyncio.Event()
    assert await enter(provider, token("any")) == "ada"
    issuer.gate.set()
    await settle()
    with pytest.raises(Refused):
        await enter(provider, mint.raw("ES256", b"{}", header={"kid": "any"}, key=ECKey.generate_key("P-256")))


# --- discovery -------------------------------------------------------------------------------------------------------

OAUTH = "https://issuer.example/.well-known/oauth-authorization-server"
OPENID = "https://issuer.example/.well-known/openid-configuration"


@pytest.mark.parametrize("place", [OAUTH, OPENID])
async def test_an_issuer_says_where_its_keys_are(
    issuer: Issuer, bearer: Any, enter: Any, token: Any, place: str
) -> None:
    issuer.documents[place] = {"issuer": ISSUER, "jwks_uri": URL}
    provider = bearer(jwks="discover")
    await provider.start(issuer)
    assert await enter(provider, token()) == "ada"
    assert issuer.urls == ([OAUTH, URL] if place == OAUTH else [OAUTH, OPENID, URL])
    assert {request.server_url for request in issuer.asked} == {ISSUER}


@pytest.mark.parametrize(
    "place", ["/.well-known/oauth-authorization-server/t1", "/t1/.well-known/openid-configuration"]
)
async def test_an_issuer_with_a_path_is_looked_up_by_it(issuer: Issuer, bearer: Any, place: str) -> None:
    issuer.documents[ISSUER + place] = {"issuer": ISSUER + "/t1", "jwks_uri": URL}
    await bearer(jwks="discover", issuer=ISSUER + "/t1").start(issuer)
    assert OAUTH not in issuer.urls  # the root belongs to somebody else


@pytest.mark.parametrize(
    "said", ["https://issuer.example/", "https://ISSUER.example", "https://evil.example", "", 7, ["x"]]
)
async def test_an_issuer_that_calls_itself_otherwise_is_not_believed(issuer: Issuer, bearer: Any, said: Any) -> None:
    """RFC 8414, 3.3; P50: the same to the byte."""
    issuer.documents[OAUTH] = {"issuer": said, "jwks_uri": URL}
    with pytest.raises(ConfigError, match="the same to the byte"):
        await bearer(jwks="discover").start(issuer)
    assert URL not in issuer.urls


@pytest.mark.parametrize(
    ("jwks_uri", "said"),
    [
        (None, "names no jwks_uri"),
        (7, "names no jwks_uri"),
        ("http://issuer.example/jwks.json", "must be an https URL"),
        ("file:///etc/passwd", "must be an https URL"),
        ("javascript:alert(1)", "must be an https URL"),
        ("//issuer.example/jwks.json", "must be an https URL"),
        ("https://u:p@issuer.example/", "has a user in it"),
        ("https://issuer.example:x/", "is not a URL"),
    ],
)
async def test_keys_are_fetched_only_from_a_safe_place(issuer: Issuer, bearer: Any, jwks_uri: Any, said: str) -> None:
    issuer.documents[OAUTH] = {"issuer": ISSUER, "jwks_uri": jwks_uri}
    with pytest.raises(ConfigError, match=said):
        await bearer(jwks="discover").start(issuer)
    assert issuer.urls == [OAUTH]


async def test_an_issuer_without_metadata_is_told_with_all_places_tried(issuer: Issuer, bearer: Any) -> None:
    issuer.documents[OAUTH] = b"<html>"
    with pytest.raises(
        ConfigError, match=r"oauth-authorization-server answered 200; .*openid-configuration answered 404"
    ):
        await bearer(jwks="discover").start(issuer)


async def test_an_issuer_may_move_its_keys(
    issuer: Issuer, bearer: Any, enter: Any, token: Any, mint: Any, clock: Any
) -> None:
    issuer.documents[OAUTH] = {"issuer": ISSUER, "jwks_uri": URL}
    provider = bearer(jwks="discover")
    await provider.start(issuer)
    issuer.documents[OAUTH] = {"issuer": ISSUER, "jwks_uri": URL + "2"}
    issuer.documents[URL + "2"] = {"keys": [mint.jwk("RS256", kid="k2")]}
    clock.now += REFETCH_SECONDS
    assert await enter(provider, token("k2", "RS256")) == "ada"
