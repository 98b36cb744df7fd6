"""What a provider costs by itself: `await provider.authenticate(request)`, for a caller seen before and for a new one.

Prints microseconds as JSON, by kind; "first" is what a token costs that was never seen, its signature verified. Keys
and tokens come in BENCH_AUTH.
"""

import asyncio
import json
import os
import sys
import time
from typing import Any

from trimaran.auth import ApiKey, Bearer, JwtAuthorizer, ProtectedResource, Provider

CALLS = 2_000
FIRST = 200


class Request:
    """As much of a request as a provider looks at."""

    method, path, query, url, address = "POST", "/mcp", "", None, None

    def __init__(self, name: str, value: str) -> None:
        # A plain dict by lower-case name, with the company a credential has in a real call: what our HTTP/1.1 server gives.
        self.headers = {
            "host": "127.0.0.1:9090",
            "content-type": "application/json",
            "accept": "application/json, text/event-stream",
            "mcp-protocol-version": "2026-07-28",
            "mcp-method": "tools/call",
            "mcp-name": "add",
            "content-length": "300",
            name: value,
        }


async def timed(provider: Provider, request: Any, seconds: float) -> float:
    """Microseconds of processor time a call, the median of batches: so the clock costs nothing."""
    authenticate = provider.authenticate
    assert await authenticate(request) is not None
    batches: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or not batches:
        before = time.process_time()
        for _ in range(CALLS):
            await authenticate(request)
        batches.append((time.process_time() - before) / CALLS)
    return sorted(batches)[len(batches) // 2] * 1e6


async def timed_first(provider: Provider, request: Any) -> float:
    """The same of a provider that remembers nothing."""
    assert await provider.authenticate(request) is not None
    before = time.process_time()
    for _ in range(FIRST):
        await provider.authenticate(request)
    return (time.process_time() - before) / FIRST * 1e6


async def main() -> None:
    seconds = float(sys.argv[1])
    facts = json.loads(os.environ["BENCH_AUTH"])
    checks: dict[str, Any] = {
        "issuer": facts["issuer"],
        "audience": facts["audience"],
        "required_scopes": [facts["scope"]],
    }
    by_secret: dict[str, Any] = {"secret": facts["secret"], **checks}
    by_key: dict[str, Any] = {"key": facts["public_key"], **checks}
    resource = ProtectedResource(
        resource=facts["audience"],
        authorization_servers=[facts["issuer"]],
        authorizer=JwtAuthorizer(jwks=facts["public_key"], **checks),
    )
    api_key = facts["api_key"]
    bearer = {kind: Request("authorization", f"Bearer {token}") for kind, token in facts["tokens"].items()}
    found = {
        "hs256": await timed(Bearer(**by_secret), bearer["hs256"], seconds),
        "rs256": await timed(Bearer(**by_key), bearer["rs256"], seconds),
        "resource": await timed(resource, bearer["rs256"], seconds),
        "apikey": await timed(ApiKey([api_key]), Request("x-api-key", api_key), seconds),
        "hs256 first": await timed_first(Bearer(remember=0, **by_secret), bearer["hs256"]),
        "rs256 first": await timed_first(Bearer(remember=0, **by_key), bearer["rs256"]),
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    asyncio.run(main())
