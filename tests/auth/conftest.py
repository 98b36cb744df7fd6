"""No client of a test remembers the servers of another."""

from __future__ import annotations

import pytest

from trimaran import connecting
from trimaran.client.negotiation import EraMemory


@pytest.fixture(autouse=True)
def no_memories(monkeypatch: pytest.MonkeyPatch) -> None:
    """A port may have been another server's a moment ago."""
    monkeypatch.setattr(connecting, "_memory", EraMemory())
