"""Every peer and every client of a test is ended with it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.peers import Site

from trimaran.client import reconnecting


@pytest.fixture
async def dock(tmp_path: Path) -> AsyncIterator[object]:
    """Where clients meet peers that misbehave: `async with dock.open(wire, era) as (client, peer)`."""
    from .peers import Dock

    async with Dock(tmp_path) as made:
        yield made


@pytest.fixture
async def complaints() -> AsyncIterator[list[str]]:
    """The complaints of the loop: exceptions that nobody looked at, above all."""
    texts: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: texts.append(str(context)))
    yield texts
    gc.collect()
    asyncio.get_running_loop().set_exception_handler(None)
    assert not texts


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    scripted = Site()
    await scripted.start()
    yield scripted
    await scripted.stop()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reconnecting without the pauses."""
    monkeypatch.setattr(reconnecting, "_PAUSES", (0.0, 0.001))
