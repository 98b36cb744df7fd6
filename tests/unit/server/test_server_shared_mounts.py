from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from trimaran import Server


async def test_a_server_that_is_mounted_twice_starts_once_and_stops_with_the_last() -> None:
    events: list[str] = []

    @asynccontextmanager
    async def live(_: Server) -> AsyncGenerator[None]:
        events.append("start")
        yield
        events.append("stop")

    inner = Server("inner", lifespan=live)
    outer, other = Server("outer"), Server("other")
    outer.mount(inner)
    other.mount(inner)
    await outer.start()
    await other.start()
    await inner.start()
    assert events == ["start"]
    await outer.stop()
    await inner.stop()
    assert events == ["start"]
    await other.stop()
    assert events == ["start", "stop"]
    await outer.start()
    await outer.stop()
    assert events == ["start", "stop", "start", "stop"]
