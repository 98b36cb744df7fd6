"""Each test meets its server for the first time: what another test learned about an address is forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.support.peers import Site

from trimaran import connecting
from trimaran.client.negotiation import EraMemory


@pytest.fixture(autouse=True)
def no_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connecting, "_memory", EraMemory())


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    await made.start()
    yield made
    await made.stop()
