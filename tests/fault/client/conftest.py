"""Every peer and every client of a test is ended with it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest


@pytest.fixture
async def dock(tmp_path: Path) -> AsyncIterator[object]:
    """Where clients meet peers that misbehave: `async with dock.open(wire, era) as (client, peer)`."""
    from .peers import Dock

    async with Dock(tmp_path) as made:
        yield made
