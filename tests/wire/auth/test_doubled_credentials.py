"""Headers that come twice, and proofs for another host."""

from __future__ import annotations

import time
from typing import Any

import pytest
from tests.support.badges import demo
from tests.support.harness import serve

from trimaran.auth import (
    AnyOf,
    ApiKey,
    Basic,
    Bearer,
    DPoP,
    Principal,
    ProtectedResource,
    RateLimit,
)
from trimaran.oauth.dpop import ProofKey

ISSUER = "https://login.example.com"
RESOURCE = "https://mcp.example.com/mcp"


@pytest.fixture(params=["http", "asgi", "http2"])
def carrier(request: pytest.FixtureRequest) -> str:
    """All three: each has its own way to read a header that comes twice."""
    return request.param


async def test_who_writes_a_forwarded_for_of_its_own_is_still_counted_by_what_the_proxy_adds(carrier: str) -> None:
    """A proxy may add its line below the caller's (RFC 9110, 5.3): the last one is the proxy's."""
    limit = RateLimit(address="2/hour", trusted_proxies=["127.0.0.1"])
    async with serve(carrier, demo(), rate_limit=limit) as wire:
        statuses: list[int] = []
        for number in range(4):
            pairs, body = wire.modern_parts("tools/list")
            lines = [("X-Forwarded-For", f"198.51.100.{number}"), ("X-Forwarded-For", "203.0.113.7")]
            statuses.append((await wire.send("POST", [*pairs, *lines], body)).status)
        assert statuses == [200, 200, 429, 429]


@pytest.mark.parametrize("header", ["Authorization", "X-API-Key"])
async def test_two_credentials_in_one_request_are_refused(carrier: str, header: str) -> None:
    """Or else whoever stands before us may have looked at the other one."""
    auth = AnyOf(Bearer(verifier=lambda token: {"sub": token}), ApiKey(["one", "two"]))
    prefix = "Bearer " if header == "Authorization" else ""
    async with serve(carrier, demo(), auth=auth) as wire:
        pairs, body = wire.modern_parts("tools/list")
        reply = await wire.send("POST", [*pairs, (header, f"{prefix}one"), (header, f"{prefix}two")], body)
        assert reply.status == 400
        assert reply.json["error"]["data"] == {"error": "invalid_request"}


@pytest.mark.parametrize("header", ["Authorization", "X-API-Key", "X-Forwarded-For"])
async def test_bytes_that_are_not_ascii_are_turned_away_without_an_error_of_ours(carrier: str, header: str) -> None:
    auth = AnyOf(Bearer(verifier=lambda token: None), ApiKey(["one"]), Basic({"alice": "secret"}))
    limit = RateLimit(address="100/minute", trusted_proxies=["127.0.0.1"])
    async with serve(carrier, demo(), auth=auth, rate_limit=limit) as wire:
        pairs, body = wire.modern_parts("tools/list")
        for value in ("Bearer \xff\xfe", "\xe9", "Basic \xff"):
            reply = await wire.send("POST", [*pairs, (header, value)], body)
            assert reply.status in (400, 401), (value, reply)


async def test_a_proof_for_another_host_is_refused_whatever_the_host_header_says(carrier: str) -> None:
    """RFC 9449, 4.3 (9): whoever was sent a proof for its own URL must not pass it on here by naming itself as Host."""
    key = ProofKey.generate()

    async def authorizer(token: str, auth: Any, request: Any) -> Principal:
        return Principal(subject="alice", claims={"cnf": {"jkt": key.thumbprint}})

    auth = ProtectedResource(
        resource=RESOURCE, authorization_servers=[ISSUER], authorizer=authorizer, dpop=DPoP(required=True)
    )
    async with serve(carrier, demo(), auth=auth, allowed_hosts=["*"]) as wire:

        async def status(url: str, host: str, jti: str) -> int:
            proof = key.proof("POST", url, now=time.time(), jti=jti, access_token="token")
            headers = {"Authorization": "DPoP token", "DPoP": proof, "Host": host}
            return (await wire.modern("tools/list", headers=headers)).status

        assert await status(RESOURCE, "mcp.example.com", "1") == 200
        assert await status("http://evil.example/mcp", "evil.example", "2") == 401
