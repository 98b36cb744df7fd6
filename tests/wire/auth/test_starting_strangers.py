"""Strangers who come while a mounted app starts."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.support.badges import ALICE, Badges, demo

from trimaran.auth import (
    RateLimit,
)


class Unreachable(Badges):
    """An authenticator whose issuer cannot be reached."""

    def __init__(self) -> None:
        super().__init__()
        self.starts = 0

    async def start(self, fetch: Any) -> None:
        self.starts += 1
        await asyncio.sleep(0)
        raise ConnectionError("no route to the issuer")


async def _knock(app: Any, times: int) -> list[int]:
    from tests.support.harness import AsgiCarrier, Wire

    wire = Wire(AsgiCarrier(app), "/mcp", app.engine)

    async def one() -> int:
        return (await wire.modern("tools/list", headers=ALICE)).status

    return list(await asyncio.gather(*(one() for _ in range(times))))


async def test_strangers_who_come_at_once_do_not_each_make_a_mounted_app_ask_its_issuer() -> None:
    """The first request starts the authenticator; those who wait for that share what comes of it."""
    auth = Unreachable()
    app = demo().asgi("/mcp", auth=auth)
    try:
        assert await _knock(app, 20) == [503] * 20
        assert auth.starts == 1
    finally:
        await app.aclose()


async def test_an_address_that_comes_too_often_is_sent_away_before_a_mounted_app_asks_its_issuer() -> None:
    """R129: so many from one address comes first, also while the authenticator is not ready."""
    auth = Unreachable()
    app = demo().asgi("/mcp", auth=auth, rate_limit=RateLimit(address="2/hour"))
    try:
        statuses = await _knock(app, 5)
        assert statuses.count(429) == 3, statuses
    finally:
        await app.aclose()
