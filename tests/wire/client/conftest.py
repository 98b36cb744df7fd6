"""Each test meets its server for the first time: what another test learned about an address is forgotten."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from trimaran import dialers
from trimaran.client.meeting import EraMemory

from .peers import Site


@pytest.fixture(autouse=True)
def no_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dialers, "_memory", EraMemory())


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    made = Site()
    await made.start()
    yield made
    await made.stop()
