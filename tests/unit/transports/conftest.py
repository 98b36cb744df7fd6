"""Which loops the coroutine tests of a module run in: those its `LOOPS` names; asyncio's unless said."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

FACTORIES: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.new_event_loop,
    "uvloop": uvloop.new_event_loop,
}


def pytest_asyncio_loop_factories(item: pytest.Item) -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    module: Any = getattr(item, "module", None)
    return {name: FACTORIES[name] for name in getattr(module, "LOOPS", ("asyncio",))}
