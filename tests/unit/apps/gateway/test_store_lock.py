"""One at a time, over all processes of a store."""

from __future__ import annotations

import asyncio

import pytest

from trimaran.apps.gateway import store_lock
from trimaran.apps.gateway.store_lock import StoreLocks
from trimaran.state.contracts import StoreUnavailable
from trimaran.state.memory import MemoryStore


@pytest.mark.parametrize("has_store", [True, False])
async def test_one_at_a_time(has_store: bool) -> None:
    store = MemoryStore() if has_store else None
    here = StoreLocks(lambda: store)
    there = StoreLocks(lambda: store) if has_store else here
    inside, most = 0, 0

    async def work(locks: StoreLocks) -> None:
        nonlocal inside, most
        async with locks.hold("Ann"):
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(work(locks) for locks in (here, there) * 3))
    assert (inside, most) == (0, 1)
    async with here.hold("Ann"), there.hold("Bob"):
        pass


async def test_a_killed_holder_does_not_keep_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    store = MemoryStore(clock=lambda: now)
    lost = StoreLocks(lambda: store).hold("Ann")
    await lost.__aenter__()
    monkeypatch.setattr(store_lock, "_PATIENCE", 0.05)
    with pytest.raises(StoreUnavailable, match="held a lock"):
        async with StoreLocks(lambda: store).hold("Ann"):
            raise AssertionError("two hold it")
    now = 16_000
    async with StoreLocks(lambda: store).hold("Ann"):
        await lost.__aexit__(None, None, None)  # it comes back late, and ends nobody else's
        assert await store.sessions.count() == 1
    assert await store.sessions.count() == 0


@pytest.mark.slow
async def test_a_slow_holder_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_lock, "_LIFETIME", 0.3)
    monkeypatch.setattr(store_lock, "_RENEWAL", 0.02)
    monkeypatch.setattr(store_lock, "_PATIENCE", 0.6)
    store = MemoryStore()
    async with StoreLocks(lambda: store).hold("Ann"):
        with pytest.raises(StoreUnavailable):
            async with StoreLocks(lambda: store).hold("Ann"):
                raise AssertionError("two hold it")
